"""How much SurrogateMetropolis computes, by what an evaluation costs."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.quadratic import n_coefficients


class Effort(NamedTuple):
    """What learning and moving may cost."""

    n_centres: int  # points that the surrogate is fitted to, at most; more for a quadratic
    n_scored: int  # points by which it is chosen how, likewise
    n_rounds: int  # how often each part of that choice is reconsidered at first, at most
    most_stretched: int  # coordinates up to which each has a rate of its own
    most_inner: int  # M at most
    # What an evaluation is taken to cost, in µs. Where that is finite, kinds of moves, M, and
    # whether kernels are worth their cost follow from what moves bring per µs.
    evaluation: float

    @property
    def is_cheap(self):
        """Whether the surrogate's arithmetic counts."""
        return self.evaluation < np.inf

    def in_dimensions(self, d):
        """Return the effort for d coordinates: somewhat more points than a quadratic needs."""
        enough = min(int(1.3 * n_coefficients(d)), MOST_CENTRES)
        return self._replace(
            n_centres=max(self.n_centres, enough), n_scored=max(self.n_scored, enough)
        )


CHEAP, EXPENSIVE = Effort(400, 100, 1, 12, 16, 6.0), Effort(800, 400, 4, 40, 64, np.inf)
"""For log-densities that cost microseconds, and for those that cost more."""

STEP_COST, COORDINATE_COST, KERNEL_COST = 0.06, 0.01, 1.6e-4
"""µs of a move besides the log-density: of an inner step, a coordinate, and these times centres."""

MOST_CENTRES = 1200
"""Centres of a surrogate with kernels, at most."""


def move_costs(effort, surrogate, n_inner):
    """Return µs of each kind of move: by what was measured once, not on this machine."""
    d = surrogate.rates.size
    step = STEP_COST + d * (COORDINATE_COST + KERNEL_COST * surrogate.n[0])
    return effort.evaluation + step * np.array([0.5, 1.0, n_inner, n_inner])
