"""Rounds of a search for the posterior: what each has evaluated, and what was decided.

A search notes its rounds as it goes. A chain keeps them as rows of numbers, which travel with its
state, and a result has them in words.
"""

from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.records import evenly

DECISIONS = {
    "design": "points around a start",
    "climb": "points where the approximation is high, or a step of BFGS",
    "converged": "the last round of a climb that has ended at a maximum",
    "climb abandoned": "the last round of a climb that gained little",
    "climb again": "a point was much higher than predicted",
    "other maxima": "maxima of the emulated posterior that may be other modes",
    "mirror images": "mirror images of the best point",
    "draws of the prior": "to see whether the emulator predicts them",
    "informative points": "points that tell most about the posterior",
    "line searches": "points along each coordinate",
    "quadratic fit": "points to which a quadratic was fitted",
    "follow": "points on the way to where another chain's search has ended",
    "budget spent": "the last round of a search that may evaluate no more",
    "other modes": "climbs from starts far away",
    "start of the chain": "draws near the end of the search, of which the chain begins at one",
}
"""What a round was for, or how it ended."""

MOST_ROUNDS = 500
"""Rounds that a chain remembers, at most: 24 kB in each of its checkpoints."""


class Round(NamedTuple):
    """Evaluations that a search has asked for together, and what was decided.

    NaN is what there was not: a radius without a trust region, or a gain that nobody predicted.
    """

    evaluations: int  # by the chain so far, at the end of the round
    logp: float  # the best log-density so far
    decided: str  # one of `DECISIONS`
    radius: float = np.nan  # of the round's trust region
    predicted_gain: float = np.nan  # of log-density, over the point that the climb was at
    gain: float = np.nan  # the same, of the best point of the round


class Rounds(list):
    """The rounds of a search so far."""

    def note(self, evaluations, logp, decided, *numbers):
        """Add a round, if it has evaluated anything; parameters as of a Round."""
        if not self or evaluations > self[-1].evaluations:
            self.append(Round(evaluations, logp, decided, *numbers))

    def end(self, decided):
        """Say how the last round ended."""
        if self:
            self[-1] = self[-1]._replace(decided=decided)


def no_rounds(most):
    """Return the rows of a chain that has not searched, for at most so many rounds."""
    return np.full((min(most, MOST_ROUNDS), len(Round._fields)), np.nan)


def put_into(rows, rounds):
    """Write rounds into the rows of a chain; of too many, some that are evenly spaced."""
    names, kept, best = [*DECISIONS], evenly(np.arange(len(rounds)), len(rows)), -np.inf
    for row, k in zip(rows, kept, strict=False):
        best = max(best, rounds[k].logp)  # also of searches one after another
        row[:] = rounds[k]._replace(logp=best, decided=names.index(rounds[k].decided))


DESCRIPTIONS = Round(
    "Evaluations that the chain had made at the end of the round.",
    "Best log-density so far.",
    "What the round was for, or how it ended.",
    "Radius of the trust region, in standard deviations of the prior with EmulatorMetropolis, else "
    "about the posterior's; NaN without one.",
    "Gain of log-density that the approximation predicted; NaN where it did not.",
    "Gain of log-density by the best point of a climb's round; NaN in other rounds.",
)


def search_dataset(chains):
    """Return the rounds of all chains, None if there are none; `chains` are number -> steps' rows.

    Along the dimension ``round``, `of_chain` and `of_step` say which chain and step it was.
    """
    rows = [
        (n, k, *row) for n, steps in chains.items() for k, own in enumerate(steps) for row in own
    ]
    of_chain, of_step, *columns = np.reshape(rows, (-1, 2 + len(Round._fields))).T
    there = ~np.isnan(columns[0])
    if not there.any():
        return None
    own = Round(*(column[there] for column in columns))
    decided = np.array([*DECISIONS])[own.decided.astype(int)]
    own = own._replace(evaluations=own.evaluations.astype(int), decided=decided)
    parts = zip(Round._fields, own, DESCRIPTIONS, strict=True)
    data = xr.Dataset({name: ("round", one, {"description": text}) for name, one, text in parts})
    meanings = "; ".join(f"{one}: {DECISIONS[one]}" for one in dict.fromkeys(decided.tolist()))
    data["decided"].attrs["description"] += f" {meanings}."
    numbers = {"of_chain": of_chain[there].astype(int), "of_step": of_step[there].astype(int)}
    return data.assign_coords({name: ("round", values) for name, values in numbers.items()})
