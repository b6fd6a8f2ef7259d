"""A search for the posterior: its budget, its metric, and what it has found so far.

Symbols: as in approach.py.
"""

import time
from typing import NamedTuple

import numpy as np

FEW = 40
"""Dimensions up to which quadratics are fitted; beyond, they would take most of the budget."""

MANY = 60
"""Coordinates in which f is solved for at once; of more, least squares would take minutes."""

ALONG, FAR = (12, 6), 20
"""Evaluations along a coordinate, about: the first time, and later; and along one in which f is not
quadratic, where it is in others."""

EXACT, EXACT_FIT = 1e-7, 1e-3
"""Largest misfit of a quadratic, over the range of f, where f is taken to be one: along a line,
and in many coordinates."""

ROUNDING = 10 * np.finfo(float).eps
"""Of a value of f, relative: more than that is misfit."""


class Guide(NamedTuple):
    """What a chain that has come home tells others of the way; NaN before there is one.

    Attributes
    ----------
    x, scales, factor, exact
        As of a Home.
    """

    x: np.ndarray
    scales: np.ndarray
    factor: np.ndarray
    exact: np.ndarray

    @classmethod
    def nowhere(cls, d):
        """Return the one that knows nothing."""
        return cls(*(np.full(shape, np.nan) for shape in (d, d, (d, d))), np.zeros(d, bool))

    @property
    def is_home(self):
        """Whether it is one."""
        return self.x.size > 0 and not np.isnan(self.x[0])


class Home(NamedTuple):
    """Where an approach has come to.

    Attributes
    ----------
    x : (d,) float64
        The middle of it.
    logp : float
        Log-density there.
    scales : (d,) float64
        Standard deviation of each coordinate, given the others.
    factor : (d, d) float64
        Lower triangular; times its transpose it is about the posterior's covariance.
    exact : (d,) bool
        Coordinates in which the log-density is exactly quadratic, together, if that was found.
    climbing : float
        What the log-density still gained in the last 5 d evaluations if the budget was used up;
        else 0.
    points : (n, d) float64
        All that was evaluated, in its order.
    logps : (n,) float64
        Its log-density, -inf where that is not finite.
    """

    x: np.ndarray
    logp: float
    scales: np.ndarray
    factor: np.ndarray
    exact: np.ndarray
    climbing: float
    points: np.ndarray
    logps: np.ndarray

    @property
    def guide(self):
        """What others may know of it."""
        return Guide(self.x, self.scales, self.factor, self.exact)


class OnTheWay(Exception):
    """There was no time to arrive."""


class Trail:
    """A log-density that remembers what it gave, so that an approach can go on after a pause.

    It is made again from its beginning, which takes no evaluations as far as the values are known,
    and by the same random numbers comes to the same end.

    Parameters
    ----------
    logp : callable
    values : (n,) float64
        What is known, then NaN; filled in.
    seconds : float
        After which `OnTheWay` is raised, but not before there is one new value.
    """

    def __init__(self, logp, values, seconds):
        self.logp, self.values = logp, values
        self.known, self.n = np.count_nonzero(~np.isnan(values)), 0
        self.begun, self.end = self.known, time.perf_counter() + seconds

    def __call__(self, x):
        """Return the log-density at x, -inf for NaN."""
        if self.n == self.known:
            if self.known > self.begun and time.perf_counter() > self.end:
                raise OnTheWay
            value = self.logp(x)
            self.values[self.n] = value if value < np.inf else -np.inf  # for NaN, too
            self.known += 1
        self.n += 1
        return self.values[self.n - 1]


class Spent(Exception):
    """The budget is spent."""


class Search:
    """All that was evaluated, the best of it, and what is known of the shape there."""

    def __init__(self, logp, start, budget):
        self.logp, self.left = logp, budget + 1
        self.points, self.logps = [], []
        self.x, self.f = start.copy(), -np.inf
        self.scales = np.full(start.size, 0.5)
        self.metric = np.diag(self.scales)
        self.misfits, self.ranges = np.full(start.size, np.inf), np.zeros(start.size)
        self.exact = np.zeros(start.size, bool)

    def here(self):
        """Return the best point, f there, and a copy of the metric."""
        return self.x, self.f, self.metric.copy()

    def return_to(self, place):
        """Make a place the best again."""
        self.x, self.f, self.metric = place

    def go_to(self, guide, f):
        """Take the place of a guide, where f is known, for home."""
        self.return_to((guide.x, f, guide.factor.copy()))
        self.scales, self.exact = guide.scales.copy(), guide.exact

    def evaluate(self, y):
        """Return f(y); y may be the best so far."""
        if self.left == 0:
            raise Spent
        self.left -= 1
        f = self.logp(y)
        f = f if np.isfinite(f) else -np.inf
        self.points.append(y)
        self.logps.append(f)
        if f > self.f:
            self.x, self.f = y, f
        return f


def moved(x, coordinates, step):
    """Return x after a step in some of its coordinates."""
    y = x.copy()
    y[coordinates] += step
    return y
