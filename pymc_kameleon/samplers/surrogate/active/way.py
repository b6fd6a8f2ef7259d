"""From the first evaluation to a surrogate of the posterior: points chosen for what they teach.

A star around the start (star.py) begins. Then a Gaussian process is fitted, batch by batch. While
it climbs, the next points are the maximum of its mean within R of the best point, and what
tells most within R. Where the mean has its maximum within, it is home: then the next points are
those that tell most of the posterior.

Generators yield points and are sent their log-densities.

Symbols: x the points (n, d), x = m + L u, f their log-densities, R the radius in u; and those of
process.py.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import cholesky, lower_of
from pymc_kameleon.approximation.modes import reach
from pymc_kameleon.approximation.records import evenly, some_of_each
from pymc_kameleon.approximation.rounds import Rounds
from pymc_kameleon.approximation.search import next_radius
from pymc_kameleon.samplers.surrogate.active import draws, star
from pymc_kameleon.samplers.surrogate.active.draws import Density
from pymc_kameleon.samplers.surrogate.active.process import (
    CLIMBING,
    HOME,
    HOME_EXACT,
    Hyper,
    Prior,
    Process,
    best_of_starts,
    choose,
    compressed,
    is_bounded,
    noise_of,
)
from pymc_kameleon.samplers.surrogate.fit import N_CENTRES, N_SCORED

LEAST_BATCH, PER_POINT = 2, 40
"""Points of a batch at least; and one for so many evaluations."""

REFIT = 1.08
"""Growth of the number of points after which the process' numbers are chosen anew."""

FIRST_RADIUS = 3.0
"""R."""

USUAL = 4.0
"""Curvatures in u with which it may be home, at most, and at least 1 over this; so, too, variances
of draws in u with which the coordinates remain; and by how much either changes L at a time."""

FITTED_RADII, LEAST_FITTED = 2.0, (6, 3)
"""Of radii of s, the distance of points that are fitted, more while R is larger than at first; and
their number at least, and times d."""

USUAL_SHIFT = 0.7
"""Distance of the mean of draws in u from 0 with which the coordinates remain."""

N_CANDIDATES, WIDE_WEIGHT = 100, 0.2
"""Candidates from s, at least; as many from its power; and the weight of these."""

PER_PLAIN = 8
"""Points of a large batch for each plain draw; of small ones, every other begins with one."""

BURN_IN = draws.N_STEPS // 3
"""Steps of chains before their draws count."""

MOST_FOR_ALL = 400
"""Evaluations of the way up to which these are all there is."""

MOST_FRAMES = 10
"""Coordinates that are tried after these, at most."""

N_ERRORS, LEAST_ERRORS = 10, 4
"""Plain draws, the last ones, whose predictions tell how good s is; and how many of them at least,
also if chains are to begin at these alone."""


def least_fitted(d):
    """Return the points below which none are fitted, as if there were a few on each line."""
    return LEAST_FITTED[0] + LEAST_FITTED[1] * d


class Known(NamedTuple):
    """Evaluations that a process is fitted to after a run."""

    x: np.ndarray  # (n, d)
    f: np.ndarray  # (n,)
    exact: np.ndarray  # (d,) bool, of I

    @property
    def near(self):
        """Which points are near the best one, (n,) bool."""
        return self.f >= self.f.max(initial=-np.inf) - drop(self.x.shape[1], NEGLIGIBLE)

    @property
    def is_enough(self):
        """Whether a process can be fitted to them."""
        x = self.x[self.near]
        return len(x) >= least_fitted(x.shape[1]) and bool(np.all(np.ptp(x, axis=0) > 0))


class Way:
    """The search, and what it has learned; a batch has `at_once` points, at least.

    Attributes
    ----------
    x, f : (n, d), (n,) float64
        All that was evaluated, and its log-densities, -inf where they are not finite.
    is_home : bool
        Whether it is where the posterior is, as far as it knows.
    mean, factor : (d,), (d, d) float64
        m and L.
    order, exact : (d,) int64, (d,) bool
        J, and then I, in which u is; which are of I.
    are_exact : bool
        Whether f is exactly quadratic in so many coordinates that the process knows it.
    process : Process or None
        Fitted last, in u.
    sd : float
        sdV, see `spread`, infinite before it is home.
    errors : list of float
        Of plain draws of s, predicted before they were evaluated.
    """

    def __init__(self, rng, at_once=1):
        self.rng, self.at_once = rng, at_once
        self.is_home, self.process = False, None
        self.sd, self.errors, self._plain = np.inf, [], []
        self.x = self.f = self.mean = self.factor = self.order = self.exact = None
        self._radius, self._hyper, self._n_chosen, self._n_batches = FIRST_RADIUS, None, 0, 0
        self.chains, self.are_exact, self._n_held = None, False, 0
        self.rounds = Rounds()

    @classmethod
    def knowing(cls, known, rng):
        """Return one that evaluates nothing, but has what is Known.

        It is home if there are coordinates in which draws of its process come to rest.
        """
        way = cls(rng)
        way.x, way.f, x = known.x, known.f, known.x[known.near]
        factor = cholesky(np.cov(x.T).reshape(x.shape[1], -1))
        way._take_frame(x.mean(axis=0), factor, known.exact)
        way._arrive()
        for k in range(MOST_FRAMES):
            way._fit(is_new=True, last=way._hyper)
            density, mean = Density(way.process, rng), way.mean
            powers = np.ones(draws.N_CHAINS)
            found, _ = draws.run(density, way.chains, powers, draws.N_STEPS, rng)
            way.chains = found[-1]
            way._follow_draws(found[BURN_IN:], however_little=k == 0)
            if way.mean is mean:
                return way
        way.is_home = False
        return way

    def go(self, starts):
        """Go on for ever from the best of some starts (k, d)."""
        self.x, self.f = np.empty((0, starts.shape[1])), np.empty(0)
        yield from self._evaluated(starts)
        if not self.f.max() > -np.inf:
            return
        yield from self._look_around()
        while True:
            self._fit()
            if self.is_home:
                yield from self._learn()
            else:
                yield from self._climb()

    @property
    def best(self):
        """The best point (d,)."""
        return self.x[np.argmax(self.f)]

    # ---- evaluations ----------------------------------------------------------------------------

    def _note(self, decided, *numbers):
        self.rounds.note(len(self.f), self.f.max(), decided, *numbers)

    def _evaluated(self, x):
        f = yield x
        f = np.where(np.isfinite(f), f, -np.inf)
        self.x, self.f = np.concatenate([self.x, x]), np.concatenate([self.f, f])
        return f

    def _look_around(self):
        best = np.argmax(self.f)
        looking = star.look_around(self.x[best].copy(), self.f[best])
        points = next(looking)
        try:
            while True:
                f = yield from self._evaluated(points)
                self._note("design")
                points = looking.send(f)
        except StopIteration as end:
            found = end.value
        self._take_frame(found.x, found.factor, found.exact)
        if found.is_home:
            self._arrive()

    def _take_frame(self, mean, factor, exact):
        d, n_exact = len(mean), int(exact.sum())
        self.are_exact = n_exact >= star.least_exact(d)
        self._n_held = d - n_exact if self.are_exact else 0
        self.order = np.argsort(exact, kind="stable")  # J first
        self.mean, self.exact, self.factor = mean, exact, lower_of(factor[self.order])

    def _arrive(self):
        self.is_home, self._n_chosen = True, 0
        self.rounds.end("converged")
        self.chains = self.rng.standard_normal((draws.N_CHAINS, len(self.mean)))

    def u_of(self, x):
        """Return the coordinates of points, J first."""
        return np.linalg.solve(self.factor, (x - self.mean)[:, self.order].T).T

    def x_of(self, u):
        """Return the points at these coordinates."""
        x = np.empty_like(u)
        x[:, self.order] = u @ self.factor.T
        return x + self.mean

    # ---- the process ----------------------------------------------------------------------------

    @property
    def _prior(self):
        at_home, own = HOME_EXACT if self.are_exact else HOME, None
        if n := self._n_held:
            own = np.eye(len(self.mean))
            own[:n, :n] = self.factor[:n, :n]
            own[n:, :n] = solve_triangular(self.factor[n:, n:], self.factor[n:, :n], lower=True)
        return Prior(n, at_home if self.is_home else CLIMBING, own)

    def _fit(self, is_new=False, last=None):
        """Fit the process to what is near; its numbers are chosen by slopes if `is_new`."""
        d = self.x.shape[1]
        u, best = self.u_of(self.x), int(np.argmax(self.f))
        if self.is_home:
            distance, most = np.linalg.norm(u, axis=1), FITTED_RADII * reach(d)
        else:
            distance = np.linalg.norm(u - u[best], axis=1)
            n = min(least_fitted(d), len(u))
            wide = FITTED_RADII * reach(d) * max(1, self._radius / FIRST_RADIUS)
            most = max(wide, np.sort(distance)[n - 1])
        prior, is_fitted = self._prior, distance <= most
        if prior.n_held:
            is_fitted &= ~is_bounded(self.f, self.f[best], d)
        rows = np.flatnonzero(is_fitted)
        if len(rows) > N_CENTRES:
            high = self.f[rows] > np.median(self.f[rows])
            rows = np.union1d(rows[some_of_each(high, N_CENTRES)], best)
        u, y = u[rows], compressed(self.f[rows], self.f[best], d, prior.n_held > 0)
        if is_new or len(self.f) >= REFIT * self._n_chosen:
            some = evenly(np.arange(len(y)), N_SCORED)
            if is_new:
                self._hyper = best_of_starts(u[some], y[some], prior, last)
            else:
                self._hyper = choose(u[some], y[some], self._hyper or Hyper.start(prior, d), prior)
            self._n_chosen = len(self.f)
        self.process = Process(u, y, self._hyper, prior)

    def _reframe(self, mean, factor):
        """Take other coordinates, in which chains stay where they are."""
        chains = None if self.chains is None else self.x_of(self.chains)
        self.mean, self.factor = mean, factor
        if chains is not None:
            self.chains = self.u_of(chains)

    @property
    def _n_batch(self):
        n = max(LEAST_BATCH, len(self.f) // PER_POINT)
        return max(n, self.at_once)

    @property
    def _n_candidates(self):
        return max(N_CANDIDATES, 2 * self.at_once)

    # ---- climbing -------------------------------------------------------------------------------

    def _climb(self):
        """Evaluate a batch on the way up."""
        process, rng, d = self.process, self.rng, self.x.shape[1]
        best = self.f.max()
        at = self.u_of(self.best[None])[0]
        density = Density(process, rng, at, self._radius)
        step = min(1.0, self._radius / d**0.5)
        u = at + step * rng.standard_normal((draws.N_CHAINS, d))
        u[density(u) == -np.inf] = at
        found, logs = draws.run(density, u, np.ones(len(u)), draws.N_STEPS, rng)
        top = _maximum(process, [at, found.reshape(-1, d)[np.argmax(logs)]], at, self._radius)
        candidates = np.vstack([top, _some(found[BURN_IN:], self._n_candidates, rng)])
        covariance, mean = process.covariance(candidates), process.mean(candidates)
        weights, noise = np.ones(len(mean)), noise_of(mean, process.hyper)
        chosen = most_telling(covariance, weights, noise, self._n_batch, [0])
        own = process.mean(at[None])[0]
        predicted = mean[0] - own
        f = yield from self._evaluated(self.x_of(candidates[chosen]))
        self._note("climb", self._radius, predicted, f.max() - best)
        gain = f.max() - best
        self._radius = next_radius(self._radius, gain, predicted)
        held = abs(f[0] - best - predicted) < _small(d)
        self._fit()
        self._follow_curvature(gain < _small(d) and held)

    def _follow_curvature(self, may_be_home):
        """Take coordinates in which the curvature is nearer to 1; be home if it is all there."""
        at = self.u_of(self.best[None])[0]
        values, vectors = np.linalg.eigh(-self.process.hessian(at))
        slope = vectors.T @ self.process.slopes(at[None])[0]
        clipped = np.clip(np.abs(values), 1 / USUAL, USUAL)
        is_home = may_be_home and values[0] > 1 / USUAL and values[-1] < USUAL
        is_home = is_home and 0.5 * np.sum(slope**2 / values) < _small(len(at))
        scales = (values if is_home else clipped) ** -0.5
        u = at + vectors @ (slope / values) if is_home else at
        factor = lower_of(self.factor @ (vectors * scales))
        self._reframe(self.x_of(u[None])[0], factor)
        if is_home:
            self._radius = FIRST_RADIUS
            self._arrive()

    # ---- home -----------------------------------------------------------------------------------

    def _learn(self):
        """Evaluate a batch that tells most of the posterior."""
        rng, d, m = self.rng, self.x.shape[1], draws.N_CHAINS - draws.N_TEMPERED
        density = Density(self.process, rng)
        powers = np.repeat([1.0, draws.POWER], [m, draws.N_TEMPERED])
        found, _ = draws.run(density, self.chains, powers, draws.N_STEPS, rng)
        self.chains = found[-1]
        of_s, wide = found[BURN_IN:, :m], found[BURN_IN:, m:]
        own, others = (_some(one, self._n_candidates, rng) for one in (of_s, wide))
        n_plain = self.at_once // PER_PLAIN or 1 - self._n_batches % 2
        candidates = np.concatenate([own, others])
        covariance, mean = self.process.covariance(candidates), self.process.mean(candidates)
        self.sd = spread(covariance[: len(own), : len(own)])
        weights = np.repeat([1.0, WIDE_WEIGHT], [len(own), len(others)])
        noise = noise_of(mean, self.process.hyper)
        chosen = most_telling(covariance, weights, noise, self._n_batch, range(n_plain))
        best, n, points = self.f.max(), len(self.f), self.x_of(candidates[chosen])
        f = yield from self._evaluated(points)
        self._note("informative points")
        self.errors += (f - best - mean[chosen])[:n_plain].tolist()
        self._plain += range(n, n + n_plain)
        self._n_batches += 1
        if self.f.max() > best + drop(d, NEAR):
            self._leave()
        else:
            self._follow_draws(of_s)

    def _leave(self):
        self.is_home, self.sd, self.errors, self._n_chosen = False, np.inf, [], 0
        self.rounds.end("climb again")

    @property
    def error(self):
        """Root mean square error of the last plain draws; infinite before there are enough."""
        if len(self.errors) < LEAST_ERRORS:
            return np.inf
        return float(np.sqrt(np.mean(np.square(self.errors[-N_ERRORS:]))))

    def _follow_draws(self, plain, however_little=False):
        """Take the coordinates in which draws of s have mean 0 and covariance 1, if not nearly so.

        Each time would add noise of the draws. `however_little`: take them if they are nearly so,
        too.
        """
        u = plain.reshape(-1, plain.shape[-1])
        mean, covariance = u.mean(axis=0), np.cov(u.T).reshape(u.shape[1], -1)
        values, vectors = np.linalg.eigh(covariance)
        is_usual = values[0] > 1 / USUAL and values[-1] < USUAL and mean @ mean < USUAL_SHIFT**2
        if is_usual and not however_little:
            return
        if self.errors and abs(self.errors[-1]) > _small(len(mean)):
            return
        factor = lower_of(self.factor @ (vectors * np.clip(values, 1 / USUAL, USUAL) ** 0.5))
        self._reframe(self.x_of(mean[None])[0], factor)

    # ---- what it has learned --------------------------------------------------------------------

    def draws(self, n_steps, rng):
        """Return draws (n, d) of s, of all that is known, and evaluate nothing."""
        self._fit()
        m, u = draws.N_CHAINS, self.chains
        if u is None:
            u = rng.standard_normal((m, self.x.shape[1]))
        density = Density(self.process, rng)
        found, _ = draws.run(density, u, np.ones(m), draws.N_STEPS, rng)
        found, _ = draws.run(density, found[-1], np.ones(m), n_steps, rng)
        return self.x_of(found.reshape(-1, found.shape[-1]))

    def beginnings(self, least):
        """Return points (n, d) where chains may begin, as f is not low: plain draws, if enough."""
        least, rows = min(least, self.f.max()), np.array(self._plain[::-1], np.int64)
        rows = rows[self.f[rows] >= least]
        return self.x[rows if len(rows) >= LEAST_ERRORS else self.f >= least]

    def expected(self, x):
        """Return the mean of f at points (n, d), as the process has it."""
        return self.f.max() + self.process.mean(self.u_of(x)).mean()


def _small(d):
    """Return by how much draws of a normal are lower than its maximum, about."""
    return d / 2


def _some(found, n, rng):
    """Return n of draws (t, m, d), or as many as there are, none twice."""
    rows = found.reshape(-1, found.shape[-1])
    return rows[rng.choice(len(rows), min(n, len(rows)), replace=False)]


def _maximum(process, starts, centre, radius):
    """Return where the mean is largest, no coordinate a radius away, from some starts."""

    def loss(u):
        return -process.mean(u[None])[0], -process.slopes(u[None])[0]

    bounds = np.column_stack([centre - radius, centre + radius])
    options = {"jac": True, "method": "L-BFGS-B", "bounds": bounds, "options": {"maxiter": 50}}
    return min((minimize(loss, u, **options) for u in starts), key=lambda end: end.fun).x


# ---- which points to evaluate next --------------------------------------------------------------


def most_telling(covariance, weights, noise, n, first=()):
    """Return the places of n candidates, or of all, that tell most; the `first` ones among them.

    The variance of f − f̄, summed over candidates j with weights w, falls by

        Σ_j w_j (V_ji − Σ_k w_k V_ki)² / (V_ii + σ_i²)

    when f is evaluated at i, with V the covariance (m, m) and σ² the noise. V of the next choice is
    what is left after the last one.
    """
    v, weights, chosen = covariance.copy(), weights / weights.sum(), []
    for k in range(min(n, len(v))):
        if k < len(first):
            i = first[k]
        else:
            centred = v - weights @ v
            gain = weights @ centred**2 / (np.diag(v) + noise)
            gain[chosen] = -1
            i = int(np.argmax(gain))
        chosen.append(i)
        v -= np.outer(v[:, i], v[i]) / (v[i, i] + noise[i])
    return chosen


def spread(covariance):
    """Return sdV: the root mean square of the standard deviation of f minus its average."""
    return float(np.sqrt(max(np.mean(np.diag(covariance)) - covariance.mean(), 0.0)))
