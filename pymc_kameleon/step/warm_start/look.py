"""A look for other modes, where evaluations are plenty, from wide starts about the one found.

From each a short climb, which is abandoned where it comes to a known mode. Where one ends
elsewhere, and the log-density dips in between, the shape there tells whether it has mass. Where
some have ended elsewhere there are more climbs, until no further end is expected
(approximation/searches.py).

Symbols: f the log-density, L the factor of the known mode's covariance, u the coordinates in which
y = x + Lu.
"""

import math
from contextlib import suppress

import numpy as np
from scipy.linalg import solve_triangular
from threadpoolctl import threadpool_limits

from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import lower_of
from pymc_kameleon.approximation.modes import NEGLIGIBLE_MASS, Mode, felt_beside
from pymc_kameleon.approximation.search import spread_of
from pymc_kameleon.approximation.searches import SHARES, Searches
from pymc_kameleon.step.warm_start.approach import WARM_START_BUDGET
from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.lines import sweep
from pymc_kameleon.step.warm_start.quadratics import fit_shape
from pymc_kameleon.step.warm_start.search import (
    LINE_EVALUATIONS,
    BudgetSpent,
    Search,
    WarmStart,
)

MOST_LOOKED = 4000
"""Evaluations of a look, at most; at first the same part of it as of a run."""

SCALES = 3.0, 50.0
"""How far away starts are, in standard deviations of the known mode, log-uniformly."""

N_STARTS, AS_KNOWN = 6, (0.95, 1.3)
"""Starts of which one is climbed from; and by how much f falls, compared with normals, if what is
known is nearly normal, and all."""

ON_LINE = 4
"""Points on the line from one mode to another, where a dip of f is looked for."""

MAY_BE_FELT = 0.001
"""Part of the variance from which the shape of a low mode is learned, before which it counts as
being as wide as another."""

SHORTEST_CLIMB, FARTHEST = 3, 200.0
"""Steps of a climb that are to be paid for; and how far from the first mode it may lead, in
standard deviations, or else twice as far as draws of the prior: in the neck of a funnel it would go
on for ever."""


def least_for_look(d):
    """Return how many evaluations a chain makes if it looks: at first they pay for a climb."""
    return math.ceil((N_STARTS + SHORTEST_CLIMB * (d + 2)) / SHARES[0])


def evaluations_of_look(n, d):
    """Return the evaluations of a look of a chain that makes n: at first, and at most."""
    if n < least_for_look(d):
        return 0, 0
    n = min(n, MOST_LOOKED / SHARES[1])
    return tuple(int(share * n) for share in SHARES)


class Look:
    """A look for other modes than `home`.

    It takes the `first` evaluations, and `most` as long as more ends are expected. Of `prior` draws
    (n, d), about every second start is the next ones.
    """

    def __init__(self, logp, home, first, most, rng, prior=None):
        self.rng, self.later = rng, most - first
        self.search = Search(logp, home.mean, most - 1)
        self.home, self.known = home, [home]
        self.starts = [None]  # the WarmStart of each known mode, None of that for `home`
        self.n, self.is_any_low = 1, False
        self.farthest = FARTHEST * np.linalg.norm(home.factor, axis=1)
        self.unseen = []  # draws of the prior that are to be evaluated
        self.of_prior = np.zeros(2, int)  # how many were, and of these how many are impossible
        if prior is not None:
            self.unseen, self.spread = list(rng.permutation(prior)), spread_of(prior)
            away = np.abs(prior - home.mean).max(axis=0)
            self.farthest = np.maximum(self.farthest, 2 * away)

    def go(self):
        """Climb as often as it pays, and evaluations allow."""
        with suppress(BudgetSpent), threadpool_limits(1), np.errstate(all="ignore"):
            while self.goes_on:
                with suppress(np.linalg.LinAlgError):
                    self.climb()

    @property
    def goes_on(self):
        """Whether evaluations that come first are left, or there are ends, and more expected."""
        searches, at_first = self.searches, self.search.left > self.later
        return at_first or (searches.n_ends > 1 and searches.expects_more)

    @property
    def high(self):
        """Which known modes have mass."""
        least = max(mode.mass for mode in self.known) - NEGLIGIBLE_MASS
        return [k for k, mode in enumerate(self.known) if mode.mass > least]

    @property
    def modes(self):
        """The known modes that have mass."""
        return [self.known[k] for k in self.high]

    @property
    def searches(self):
        """The search for `home`, and the climbs."""
        n_high = len(self.high)
        return Searches(self.n, n_high + (self.is_any_low or n_high < len(self.known)))

    def climb(self):
        """Climb from a start, and learn what is there."""
        x, f, metric, is_as_known = self.start()
        if not is_as_known:
            top = self._climb(x, f, metric)
            if not top:
                return
            x, f, metric = top
        self.n += 1
        if is_as_known or self._attract(x, f):
            return
        best = max(self.known, key=lambda mode: mode.logp)
        if f < best.logp - drop(x.size, NEGLIGIBLE):
            self.is_any_low = True
            is_known = any(mode.holds(x) for mode in self.known)
            if is_known or felt_beside(best, x, best.mass + f - best.logp) < MAY_BE_FELT:
                return
        self._learn_shape(x, f, metric)

    def start(self):
        """Return a start, f there, a metric, and whether a climb would come to what is known.

        It is the point where f has fallen least, compared with normals about the known modes. Where
        all points are as these tell, nothing else can be there.
        """
        rng, known = self.rng, self.known
        home, scale = known[rng.integers(len(known))], np.exp(rng.uniform(*np.log(SCALES)))
        metric = home.factor if rng.random() < 0.5 else np.diag(np.linalg.norm(home.factor, axis=1))
        is_wide = len(self.unseen) < N_STARTS or rng.random() < 0.5
        if is_wide:
            metric = scale * metric
            points = home.mean + rng.standard_normal((N_STARTS, home.mean.size)) @ metric.T
        else:
            metric = np.diag(self.spread)
            points = np.array([self.unseen.pop() for _ in range(N_STARTS)])
        f, top = self.search.evaluate_all(points), max(mode.logp for mode in known)
        self.of_prior += (not is_wide) * np.array([len(f), np.count_nonzero(~np.isfinite(f))])
        fallen = (top - f) / (top - np.max([mode.normal(points) for mode in known], axis=0))
        k = np.argmin(fallen)
        as_known = (fallen > AS_KNOWN[0]) & (fallen < AS_KNOWN[1])
        return points[k], f[k], metric, as_known.all()

    def _climb(self, x, f, metric):
        """Return where a climb leads (d,), f there, and a metric; None if it has no end, or is far.

        It ends where it comes to what is known.
        """
        if not np.isfinite(f):
            return None
        last = self.search.left - WARM_START_BUDGET * x.size
        for place in climb(self.search, x, f, metric, longest=x.size**0.5):
            x, f, _ = place
            if self.search.left < last:
                return None
            if np.any(np.abs(x - self.home.mean) > self.farthest):
                return None
            if self._attract(x, f):
                break
        return place

    def _attract(self, x, f):
        """Whether a climb at x leads to a known mode; others are to lead on from a saddle."""
        return any(self.known[k].attracts(x, f) for k in self.high)

    def _learn_shape(self, x, f, metric):
        """Learn the shape at a top that is apart from what is known.

        A known mode that is low, with no dip on the way here, was none: a search may end at a
        saddle.
        """
        dips = np.array([_dips(self.search, x, f, mode) for mode in self.known])
        is_low = [mode.logp < f - drop(x.size, NEAR) for mode in self.known]
        if not np.all(dips | is_low):
            return
        mode, apart = _shape(self.search, x, f, metric, self.rng), np.flatnonzero(dips)
        if mode is None and len(apart):
            self.is_any_low = True  # an end, whatever it is
        elif mode and not any(self.known[k].is_same(mode) for k in apart):
            self.known = [*(self.known[k] for k in apart), mode]
            self.starts = [*(self.starts[k] for k in apart), _warm_start(mode, self.search)]


def _dips(search, x, f, mode):
    """Whether f dips on the line from a top to a mode."""
    shares = np.linspace(0, 1, ON_LINE + 2)[1:-1]
    between = [search.evaluate(x + t * (mode.mean - x)) for t in shares]
    return min(between) < min(f, mode.logp) - drop(1, NEAR)


def _shape(search, x, f, metric, rng):
    """Return a Mode about a top, by quadratics that are fitted there before and after a climb.

    Where none fits, lines along the coordinates tell the scale. None if it has no shape, or is no
    top.
    """
    search.return_to((x, f, metric))
    if not fit_shape(search, rng):
        search.return_to((x, f, metric))
        search.scales = np.linalg.norm(metric, axis=1)
        sweep(search, rng, range(x.size), LINE_EVALUATIONS[0])
        search.metric = np.diag(search.scales)
    list(climb(search, search.x, search.f, search.metric))
    has_shape = fit_shape(search, rng)
    is_mode = has_shape and not search.promised
    return Mode(search.x, lower_of(search.metric), search.f) if is_mode else None


def _warm_start(mode, search):
    """Return the WarmStart in a mode, whose shape was learned by a search."""
    inverse = solve_triangular(mode.factor, np.eye(len(mode.factor)), lower=True)
    scales = 1 / np.linalg.norm(inverse, axis=0)
    exact = np.zeros(len(scales), bool)
    known = np.array(search.points), np.array(search.logps)
    return WarmStart(mode.mean, mode.logp, scales, mode.factor, exact, 0.0, *known)
