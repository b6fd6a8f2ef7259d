"""What the steps of all samplers by an approximation share.

Symbols: as in moves.py.
"""

from typing import ClassVar

import numpy as np

from pymc_kameleon.approximation.modes import shares_in
from pymc_kameleon.approximation.records import MOST_REMEMBERED
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.core.history import History
from pymc_kameleon.core.scaling import ScaleTuning, best_scale
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.learned import COORDINATE, SHAPE_TEXT, UNITS, Quantity, covariance

FIT_GROWTH = 1.2
"""Factor by which the draws of tuning grow from one fit to the next."""

MOST_MOVES = 2000
"""Moves of tuning that a chain remembers, at most; of more, some that are evenly spaced."""

LEAST_KEPT = 300
"""Evaluations that a chain remembers, at least, however many numbers each has."""


class ApproximationStep(KameleonStep):
    """A step whose parameters, tuning, state and work extend those of moves.py."""

    kinds: ClassVar[tuple]  # what kinds of moves are called in a result
    lacks = frozenset({"keep_adapting"})  # an approximation that follows the chain would bias it
    needs_exact_logp = "its approximation is fitted to values that it takes to be exact"
    learns = "both"
    least_between_fits = 1  # draws
    # Of what was evaluated, and of the guide, which may have none.
    lengths_of_run = frozenset({"points", "top_logp", "draws", "evaluated"})
    default_steps_per_draw = staticmethod(lambda d: 1)

    def _for_moves(self, d, n_tune, evaluation):
        """Return sizes of arrays, and values of fields, of parameters and of tuning.

        `evaluation` is how many numbers are kept of each.
        """
        log_scale, scale = ScaleTuning.start(self.target_accept, np.log(best_scale(d)))
        most = max(LEAST_KEPT, min(MOST_REMEMBERED, NUMBERS_PER_PART // evaluation))
        kept = min(self.search.most_evaluations() + 1 + n_tune, most)
        sizes = {"d": d, "row": 2 * d + 2, "kinds": len(self.kinds)}
        sizes |= {"kept": kept, "evaluation": evaluation}
        moves = History.empty(max(100, min(n_tune, MOST_MOVES)), sizes["row"])
        shares = np.eye(len(self.kinds))[0]
        parameters = {"log_scale": log_scale, "shares": shares}
        return sizes, parameters, {"n": n_tune, "scale": scale, "moves": moves}

    def _first_fit(self):
        """Return the draw before which the approximation is fitted for the first time."""
        return 1

    def pauses(self):
        """Return the draws of tuning before which the approximation is fitted anew."""
        tune, end, ends = self.monitor.tune, self._first_fit(), []
        while end < 0.9 * (tune - 1):
            ends.append(end)
            end = int(FIT_GROWTH * end) + self.least_between_fits
        return [*ends, tune - 1] if tune > 1 else []

    def _learned(self):
        own, labels = self.parameters, {"move": self.kinds}
        return {
            "scaling": Quantity((), np.exp(own.log_scale[0]), "Scale of the walk."),
            "mean": Quantity((COORDINATE,), own.mean, "Of the posterior, about.", UNITS),
            **covariance(own.factor, SHAPE_TEXT),
            "shares": Quantity(("move",), own.shares, "Probabilities of moves.", labels=labels),
        }


def several_modes(modes):
    """Tell between which modes chains move, by the mixture of these."""
    if len(shares := shares_in(modes)) < 2:
        return None
    listed = ", ".join(f"{100 * share:.0f} %" for share in shares)
    return finding("several_modes", n=len(shares), shares=listed)
