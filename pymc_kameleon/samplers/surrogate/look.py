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
from itertools import islice
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import lower_of
from pymc_kameleon.approximation.modes import NEGLIGIBLE_MASS, Mode
from pymc_kameleon.approximation.searches import Searches
from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.quadratics import fit_shape
from pymc_kameleon.step.warm_start.search import BudgetSpent, Search

LOOK_SHARES, MOST_LOOKED = (0.1, 0.5), (800, 4000)
"""Shares of the evaluations by which a chain looks, of its own or of all that follow it, at first,
and as long as more ends are expected; and evaluations of a look, at most."""

SHAPE_BUDGET = 40
"""Times d: evaluations, at most, by which the shape of a new mode is learned."""

SCALES = 3.0, 50.0
"""How far away starts are, in standard deviations of the known mode, log-uniformly."""

N_STARTS, AS_KNOWN = 6, (0.95, 1.3)
"""Starts of which one is climbed from; and by how much f falls, compared with normals, if what is
known is nearly normal, and all."""

LARGEST_DIP, ON_LINE = 2.0, (0.2, 0.4, 0.6, 0.8)
"""Dip of f between two modes, at least; and where it is looked for, on the line from one to the
other."""

SHORTEST_CLIMB, LONGEST_CLIMB, FARTHEST = 3, 20, 200.0
"""Steps of a climb that are to be paid for; at most; and how far from the first mode it may lead,
in standard deviations, or else twice as far as draws of the prior: in the neck of a funnel it would
go on for ever."""


class Looked(NamedTuple):
    """What a look has found."""

    modes: list  # new Modes that have mass
    shapes: list  # the Search for the shape of each
    searches: Searches  # that for `home`, and climbs


def least_for_look(d):
    """Return how many evaluations a chain makes if it looks: at first they pay for a climb."""
    return math.ceil((N_STARTS + SHORTEST_CLIMB * (d + 2)) / LOOK_SHARES[0])


def evaluations_of_look(n, d):
    """Return the evaluations of a look of a chain that makes n: at first, and at most."""
    if n < least_for_look(d):
        return 0, 0
    pairs = zip(LOOK_SHARES, MOST_LOOKED, strict=True)
    return tuple(min(int(share * n), most) for share, most in pairs)


def look_for_modes(logp, home, first, most, rng, prior=None):
    """Look for other modes than `home`; return what was Looked.

    It takes the `first` evaluations, and `most` as long as more ends are expected. Of `prior` draws
    (n, d), about every second start is the next ones.
    """
    look = _Look(logp, home, first, most, rng, prior)
    with suppress(BudgetSpent), threadpool_limits(1), np.errstate(all="ignore"):
        while look.goes_on:
            look.climb()
    return Looked(look.new, look.shapes, look.searches)


class _Look:
    def __init__(self, logp, home, first, most, rng, prior):
        self.logp, self.rng, self.later = logp, rng, most - first
        self.search = Search(logp, home.mean, first - 1)
        self.known, self.new, self.shapes = [home], [], []
        self.searches, self.is_any_low = Searches(1, 1), False
        self.farthest = FARTHEST * np.linalg.norm(home.factor, axis=1)
        self.unseen = []
        if prior is not None:
            self.unseen = list(rng.permutation(prior))
            away = np.abs(prior - home.mean).max(axis=0)
            self.farthest = np.maximum(self.farthest, 2 * away)

    @property
    def goes_on(self):
        """Whether evaluations that come first are left, or more ends are expected."""
        is_first = self.searches.n_ends == 1 or self.search.left > self.later
        return is_first or self.searches.expects_more

    def climb(self):
        """Climb from a start, and learn what is there."""
        x, f, is_as_known = _start(self.search, self.known, self.unseen, self.rng)
        metric = None
        if not is_as_known:
            top = np.isfinite(f) and _climb(self.search, x, f, self.known, self.farthest)
            if not top:
                return
            x, f, metric = top
        self.searches = self.searches._replace(n=self.searches.n + 1)
        if is_as_known or _attract(self.known, x, f):
            return
        if f < max(mode.logp for mode in self.known) - drop(x.size, NEGLIGIBLE):
            self._count_end(True)
        else:
            self._learn_shape(x, f, metric)

    def _learn_shape(self, x, f, metric):
        left = self.search.left + self.later * (self.searches.n_ends == 1)
        own = Search(self.logp, x, min(SHAPE_BUDGET * x.size, left) - 1)
        mode = _mode_at(own, x, f, metric, self.known, self.rng)
        self.search.left = max(self.search.left - len(own.logps), 0)
        if mode is None or any(one.is_same(mode) for one in self.known):
            return
        self.known.append(mode)
        is_low = mode.mass < max(one.mass for one in self.known) - NEGLIGIBLE_MASS
        if not is_low:
            self.new.append(mode)
            self.shapes.append(own)
        self._count_end(is_low)

    def _count_end(self, is_low):
        if self.searches.n_ends == 1:  # now more are expected
            self.search.left += self.later
        self.is_any_low |= is_low
        self.searches = self.searches._replace(n_ends=1 + len(self.new) + self.is_any_low)


def _attract(modes, x, f):
    return any(mode.attracts(x, f) for mode in modes)


def _start(search, known, unseen, rng):
    """Return a start, f there, and whether a climb would come to what is known.

    It is the point where f has fallen least, compared with normals about the known modes. Where all
    points are as these tell, nothing else can be there.
    """
    home, scale = known[rng.integers(len(known))], np.exp(rng.uniform(*np.log(SCALES)))
    alone = np.diag(np.linalg.norm(home.factor, axis=1))
    shape = home.factor if rng.random() < 0.5 else alone
    if len(unseen) < N_STARTS or rng.random() < 0.5:
        points = home.mean + scale * rng.standard_normal((N_STARTS, home.mean.size)) @ shape.T
    else:
        points = np.array([unseen.pop() for _ in range(N_STARTS)])
    f, top = search.evaluate_all(points), max(mode.logp for mode in known)
    fallen = (top - f) / (top - np.max([mode.normal(points) for mode in known], axis=0))
    k = np.argmin(fallen)
    as_known = (fallen > AS_KNOWN[0]) & (fallen < AS_KNOWN[1])
    return points[k], f[k], as_known.all()


def _climb(search, x, f, known, farthest):
    """Return where a climb leads (d,), f there, and a metric; None where that is too far.

    It ends where it comes to what is known.
    """
    home = known[0]
    for place in islice(climb(search, x, f, home.factor), 1 + LONGEST_CLIMB):
        x, f, _ = place
        if np.any(np.abs(x - home.mean) > farthest):
            return None
        if _attract(known, x, f):
            break
    return place


def _mode_at(search, x, f, metric, known, rng):
    """Return a Mode about a top; None if it is of a known one, or that cannot be told."""
    with suppress(BudgetSpent, np.linalg.LinAlgError):
        if all(_dips(search, x, f, mode) for mode in known):
            return _shape(search, x, metric, rng)


def _dips(search, x, f, mode):
    """Whether f dips on the line from a top to a mode."""
    between = [search.evaluate(x + t * (mode.mean - x)) for t in ON_LINE]
    return min(between) < min(f, mode.logp) - LARGEST_DIP


def _shape(search, x, metric, rng):
    """Return a Mode about a top, by quadratics that are fitted there."""
    search.metric = metric
    search.evaluate(x)
    fit_shape(search, rng, False)
    return Mode(search.x, lower_of(search.metric), search.f)
