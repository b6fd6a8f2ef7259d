"""A search for the posterior: its budget, its metric, and what it has found so far.

Symbols: as in approach.py.
"""

import time
from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.rounds import Rounds
from pymc_kameleon.core.conventions import EPS

MOST_FITTED = 40
"""Dimensions up to which quadratics are fitted; beyond, they would take most of the budget."""

MOST_SOLVED = 60
"""Coordinates in which f is solved for at once; of more, least squares would take minutes."""

LINE_EVALUATIONS, MASS_LINE_EVALUATIONS = (12, 6), 20
"""Evaluations along a coordinate, about: at first, and later; and along one for the mass."""

EXACT_LINE, EXACT_FIT = 1e-7, 1e-3
"""Misfit of a quadratic, over the range of f, if f is one: on a line, and in many coordinates."""

ROUNDING = 10 * EPS
"""Relative rounding of a value of f: more than that is misfit."""

NOTHING = np.array([])
"""Where nothing is noted of an evaluation but its value."""


class Guide(NamedTuple):
    """What others follow of a chain's WarmStart; NaN before there is one."""

    x: np.ndarray
    scales: np.ndarray
    factor: np.ndarray
    exact: np.ndarray
    top_logp: np.ndarray  # (1,), at x, as a process of the log-density has it
    draws: np.ndarray  # (n, d), the best point, and draws of that process where others may begin

    @classmethod
    def nowhere(cls, d, n_draws=0):
        """Return a Guide before that, with room for draws."""
        shapes = d, d, (d, d), min(n_draws, 1), (n_draws, d)
        x, scales, factor, top_logp, draws = (np.full(shape, np.nan) for shape in shapes)
        return cls(x, scales, factor, np.zeros(d, bool), top_logp, draws)

    @property
    def is_known(self):
        """Whether the posterior has been found."""
        return bool(self.x.size > 0 and not np.isnan(self.x[0]))

    @property
    def has_draws(self):
        """Whether a process has found it."""
        return bool(self.draws.size > 0 and not np.isnan(self.draws[0, 0]))

    def warm_start(self, points, logps):
        """Return the WarmStart of a chain that begins there, and has evaluated these points."""
        return WarmStart(self.x, self.top_logp[0], *self[1:4], 0.0, points, logps)


def turned(guide, k):
    """Return a guide with its draws k places farther on, of which others try the first one."""
    draws = np.concatenate([guide.draws[:1], np.roll(guide.draws[1:], -k, axis=0)])
    return guide._replace(draws=draws)


class WarmStart(NamedTuple):
    """Where an approach has found the posterior, and its shape there."""

    x: np.ndarray  # (d,), the middle of the posterior
    logp: float  # log-density there
    scales: np.ndarray  # (d,), standard deviation of each coordinate, given the others
    factor: np.ndarray  # (d, d), lower triangular, about that of the posterior's covariance
    exact: np.ndarray  # (d,), coordinates in which logp is exactly quadratic, together
    climbing: float  # what logp gained last if no evaluations are left, or may gain; else 0
    points: np.ndarray  # (n, d), all that was evaluated, in its order
    logps: np.ndarray  # (n,), its log-density, -inf where that is not finite
    rounds: Rounds = ()


class OutOfTime(Exception):
    """The time was up before the posterior was found."""


class Wanted(Exception):
    """The way to the posterior needs log-densities that are not known, at `points` (n, d)."""

    def __init__(self, points):
        super().__init__(points)
        self.points = points


class RecordedLogp:
    """A log-density that records its values, so that an approach can go on after a pause.

    The approach is repeated from its beginning: known values take no evaluation, and with the same
    random numbers it comes to the same end. `values` (n, 1 + q) are what is known, then NaN: the
    log-density, and what else an evaluation leaves in `outputs`. `OutOfTime` is raised so many
    seconds after the first new value. If it `asks`, `Wanted` is raised where a value is not known.
    If it `has_gradient`, that is what `outputs` has.
    """

    def __init__(self, logp, values, seconds, outputs=NOTHING, asks=False, has_gradient=False):
        self.logp, self.values, self.outputs, self.asks = logp, values, outputs, asks
        self.has_gradient = has_gradient
        self.known, self.n, self.x = np.count_nonzero(~np.isnan(values[:, 0])), 0, NOTHING
        self.begun, self.seconds, self.end = self.known, seconds, None

    def __call__(self, x):
        """Return the log-density at x, -inf for NaN."""
        if self.n == self.known:
            self.announce(x[None])
            if self.end is None:
                self.end = time.perf_counter() + self.seconds
            elif time.perf_counter() > self.end:
                raise OutOfTime
            value = self.logp(x)
            self.values[self.n, 0] = value if value < np.inf else -np.inf  # for NaN, too
            self.values[self.n, 1:] = self.outputs
            self.known += 1
        value, self.outputs[:] = self.values[self.n, 0], self.values[self.n, 1:]
        self.n, self.x = self.n + 1, x.copy()
        return value

    def announce(self, points):
        """Say that points (n, d) are evaluated next, one after another, whatever comes out."""
        if self.asks and self.n + len(points) > self.known:
            raise Wanted(points[self.known - self.n :].copy())


class BudgetSpent(Exception):
    """The budget is spent."""


class Search:
    """All that was evaluated, the best of it, and what is known of the shape there."""

    def __init__(self, logp, start, budget):
        self.logp, self.left = logp, budget + 1
        self.points, self.logps, self.rounds = [], [], Rounds()
        self.has_gradient, self.slopes = getattr(logp, "has_gradient", False), []
        self.promised = 0.0  # by how much f is to rise from the best point, if that is much
        self.x, self.f = start.copy(), -np.inf
        self.scales = np.full(start.size, 0.5)
        self.metric = np.diag(self.scales)
        self.misfits, self.ranges = np.full(start.size, np.inf), np.zeros(start.size)
        self.exact = np.zeros(start.size, bool)

    def note(self, decided, *numbers):
        """Note a round that has ended, of all evaluations since the last one."""
        self.rounds.note(len(self.logps), max(self.logps), decided, *numbers)

    def here(self):
        """Return the best point, f there, and a copy of the metric."""
        return self.x, self.f, self.metric.copy()

    def return_to(self, place):
        """Make a place the best again."""
        self.x, self.f, self.metric = place

    def go_to(self, guide, f):
        """Move to a guide's place, where f is known."""
        self.return_to((guide.x, f, guide.factor.copy()))
        self.scales, self.exact = guide.scales.copy(), guide.exact

    def evaluate_all(self, points):
        """Return f (n,) at points (n, d), which may be evaluated together."""
        if hasattr(self.logp, "announce"):
            self.logp.announce(points[: self.left])
        return np.array([self.evaluate(y) for y in points])

    def evaluate(self, y):
        """Return f(y); y may be the best so far."""
        if self.left == 0:
            raise BudgetSpent
        self.left -= 1
        f = self.logp(y)
        f = f if np.isfinite(f) else -np.inf
        self.points.append(y)
        self.logps.append(f)
        if self.has_gradient:
            self.slopes.append(self.logp.outputs.copy())
        if f > self.f:
            self.x, self.f = y, f
        return f

    def slope_at(self, y):
        """Return the gradient of f at y, which is evaluated unless it was."""
        for x, slope in zip(reversed(self.points), reversed(self.slopes), strict=True):
            if np.array_equal(x, y):
                return slope
        self.evaluate(y)
        return self.slopes[-1]


def moved(x, coordinates, step):
    """Return x after a step in some of its coordinates."""
    y = x.copy()
    y[coordinates] += step
    return y
