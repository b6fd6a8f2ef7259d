"""The way of a chain, which can be interrupted after each evaluation; and what it has found."""

import numpy as np

from pymc_kameleon.approximation.batches import BatchSearch
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.samplers.surrogate.active.draws import N_STEPS_ALONE
from pymc_kameleon.samplers.surrogate.active.way import MOST_FOR_ALL, Way
from pymc_kameleon.step.warm_start.search import Guide, WarmStart

MOST_COORDINATES = 14
"""Coordinates up to which a process is worth its arithmetic."""

BUDGET = 15, 60
"""Times d, and plus: evaluations at most. If it is not home then, it is given up."""

GOOD, BETTER = (0.1, 0.3), (0.02, 0.1)
"""sdV, and the root mean square error of plain draws, with which s is good enough to move by; and
with which averages by the process itself are good."""

MOST_BATCHES = 16
"""Batches for which a search has evaluations at least, if many are made at a time."""

N_TYPICAL = 200
"""Draws for the typical log-density."""


def active_budget(d, at_once=1):
    """Return the evaluations of a search, at most, of which so many are made at a time."""
    return max(BUDGET[0] * d + BUDGET[1], MOST_BATCHES * at_once if at_once > 1 else 0)


def most_of_search(d, at_once=1):
    """Return the evaluations of a search, at most, however many there are in all."""
    return max(active_budget(d, at_once), MOST_FOR_ALL)


def suits(d):
    """Whether a search of d coordinates is worth it."""
    return 0 < d <= MOST_COORDINATES


class Search(BatchSearch):
    """A Way, one evaluation after another; parameters as of BatchSearch."""

    def __init__(self, start, seed, at_once=1):
        super().__init__(start, seed)
        self.way, self.is_over = Way(self.rng, at_once), False
        self.begin(self.way.go(start[None]))
        self._learns_all = False  # kept here, as a search may be interrupted anywhere
        self._budget = active_budget(start.size, at_once)

    def go_on(self, logp, most, is_all=False):
        """Evaluate until s is good enough, or the budget is spent; return whether it is home.

        If these evaluations are all there is, or log π is exactly quadratic in most coordinates, it
        learns more, and has all of them.
        """
        logp.n = self.n
        while not self.has_ended:
            self._learns_all |= is_all or (self.way.are_exact and self.way.is_home)
            longest = MOST_FOR_ALL if self._learns_all else self._budget
            sd, error = BETTER if self._learns_all else GOOD
            is_enough = self.way.is_home and self.way.sd < sd and self.way.error < error
            if self.n >= min(most, longest) or (self.is_between_batches and is_enough):
                break
            self.evaluate(logp, min(most, longest))
            self.advance()
        return not self.has_ended and self.way.is_home

    def _settle(self, n):
        """Return a WarmStart, and a Guide."""
        way = self.way
        draws = way.draws(N_STEPS_ALONE, self.rng)
        mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
        scales = np.diag(np.linalg.inv(covariance)) ** -0.5
        factor = np.linalg.cholesky(covariance)
        typical = way.expected(self.rng.choice(draws, N_TYPICAL))
        logp = typical + mean.size / 2  # as if at the top of a normal
        found = WarmStart(mean, logp, scales, factor, way.exact, 0.0, way.x, way.f)
        if way.at_once == 1:
            some = self.rng.choice(draws, n - 1, replace=False)
        else:
            some = way.beginnings(typical - drop(mean.size, NEGLIGIBLE))
            some = some[np.arange(n - 1) % len(some)]
        points = np.concatenate([way.best[None], some])
        return found, Guide(mean, scales, factor, way.exact, np.array([logp]), points)
