"""The way to the posterior with an emulator: Gauss–Newton without derivatives, in batches.

The likelihood's curvature is known as soon as the outputs' slopes are, which takes one evaluation
for each input. So first some points around the start are evaluated. Then, round by round, the
emulator is fitted, and points are evaluated that maximise the emulated log-density within a trust
region around the best point:

    maximise log s(z) − |(z − z_best)/sd|²/2r²   for r = ρ/6, ρ/2.5, ρ, 3ρ

and near each of these maxima a draw of the normal there. ρ becomes the r that won, or falls. Several
walkers go at once, each from a start of its own, and learn one emulator together: one of them alone
could end in a local mode.

It is a generator: it asks for points and is sent their log-densities, so that it runs one evaluation
after another, many at a time, or from what is known.

Symbols: z the coordinates (d,), sd their standard deviations in the prior, ρ and r the radii.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.starts import starts_from_prior
from pymc_kameleon.samplers.emulator import learning
from pymc_kameleon.samplers.emulator.inner_chain import EmulatedDensity
from pymc_kameleon.samplers.surrogate.learning import linear_algebra

LEAST_DESIGN, DESIGN_SHARE = 8, 0.25
"""Points of the design at least, besides those of d + 2; how far they are from the start, as a
share of draws of the prior."""

RADII = 1 / 6, 1 / 2.5, 1.0, 3.0
"""The radii r of a round, in units of ρ."""

AT_ONCE = 8
"""Evaluations of a round, at most."""

SHRINK, LEAST_RADIUS, LARGEST_RADIUS = 0.25, 1e-3, 10.0
"""Factor of ρ where a round has not gained anything, and its bounds."""

SMALL_GAIN, SMALL_ERROR, MOST_SMALL = 1.0, 1.5, 5
"""The way ends where a round gains less, and predicts the log-densities within this; or after so
many rounds in a row that gain less."""

BEHIND = 10.0, 2.0
"""A walker is given up that is lower than the best by more than this, and times d, after it has
stopped to gain."""

N_WALKERS = 1
"""Walkers that go at once."""

ENOUGH_ROWS = 8, 2
"""Calls of each box, and times its inputs, from which its emulator needs no design."""

MOST_JUMPS, N_STARTS, JUMP = 4, 8, 3.0
"""Draws of s by an emulator of earlier runs that are evaluated, before the way is gone as without
it; draws of the prior from which the maximum of s is looked for, besides; and how far, in standard
deviations of the prior."""

MOST_STEPS = 100
"""Evaluations of log s for a maximum, about."""


@dataclass
class Walker:
    """One of the searches that go at once."""

    z: np.ndarray  # its best point
    logp: float
    radius: float = 1.0  # ρ
    n_small: int = 0  # rounds in a row with a small gain
    arrived: bool = False


def design(start, prior, rng):
    """Return the points (n, d) of the first round, the start first."""
    d = start.size
    n = max(LEAST_DESIGN, d + 2) - 1
    steps = prior[rng.choice(len(prior), n, replace=n > len(prior))] - prior.mean(axis=0)
    return np.concatenate([start[None], start + DESIGN_SHARE * steps])


def way(density, learn, start, prior, n_walkers, rng, explore=None):
    """Go to the posterior; a generator that yields points (k, d) and is sent log-densities (k,).

    Parameters
    ----------
    density : EmulatedDensity
    learn : callable
        Fits the emulator to all that was evaluated.
    start : (d,) float64
    prior : (n, d) float64
        Draws of the prior, or what stands for them.
    n_walkers : int
    rng : numpy.random.Generator
    explore : callable, optional
        Returns draws of s (n, d), from its maximum and a factor of the curvature there; where
        earlier runs have evaluated enough for an emulator.
    """
    spread = spread_of(prior)
    points = design(start, prior, rng) if explore is None else start[None]
    logp = yield points
    walkers = _walkers(points, logp, n_walkers)
    if explore is not None and walkers:
        yield from _jumps(density, learn, explore, walkers[0], prior, rng)
    while any(not walker.arrived for walker in walkers):
        learn()
        active = [walker for walker in walkers if not walker.arrived]
        own = [_proposals(density, walker, spread, len(active), rng) for walker in active]
        points = np.concatenate([z for z, _ in own])
        predicted, _ = density.values(points)
        logp = yield points
        error = np.median(np.abs(logp - predicted)[np.isfinite(logp)]) if len(logp) else np.inf
        ends = np.cumsum([len(z) for z, _ in own])
        parts = zip(active, own, np.split(logp, ends[:-1]), strict=True)
        for walker, (z, radii), values in parts:
            _take(walker, z, radii, values, error)
        best = max(walker.logp for walker in walkers)
        for walker in active:
            lost = best - walker.logp > BEHIND[0] + BEHIND[1] * start.size
            walker.arrived |= lost and walker.n_small > 0


def _jumps(density, learn, explore, walker, prior, rng):
    """Evaluate draws of s by an emulator of earlier runs, until it predicts one; a point a round."""
    spread = spread_of(prior)
    for _ in range(MOST_JUMPS):
        learn()
        starts = [walker.z, *prior[rng.choice(len(prior), min(N_STARTS, len(prior)))]]
        ends = [_maximum(density, z, JUMP * spread) for z in starts]
        log_s, _ = density.values(np.array([z for z, _ in ends]))
        best = np.argmax(log_s)
        if not np.isfinite(log_s[best]):
            return
        draws = explore(*ends[best])
        z = draws[rng.integers(len(draws))][None]
        predicted, _ = density.values(z)
        logp = yield z
        if logp[0] > walker.logp:
            walker.z, walker.logp = z[0], logp[0]
        if abs(logp[0] - predicted[0]) < SMALL_ERROR:
            walker.arrived = True
            return


def _walkers(points, logp, n):
    """Return walkers from the best of the first points."""
    order = np.argsort(-np.where(np.isfinite(logp), logp, -np.inf), kind="stable")[:n]
    return [Walker(points[i], logp[i]) for i in order if np.isfinite(logp[i])]


def _proposals(density, walker, spread, n_walkers, rng):
    """Return points (k, d) to evaluate next, and the radius of each."""
    points, radii = [], []
    for factor in RADII:
        r = factor * walker.radius
        z, root = _maximum(density, walker.z, r * spread)
        points += [
            z,
            z + solve_triangular(root, rng.standard_normal(z.size), trans="T", lower=True),
        ]
        radii += [r, r]
    points, radii = np.array(points), np.array(radii)
    new = np.isfinite(points).all(axis=1)
    if n_walkers > 1:  # the maxima alone
        new[1::2] = False
    _, first = np.unique(np.round(points / spread, 6), axis=0, return_index=True)
    keep = np.sort(first[new[first]])[: max(2, AT_ONCE // n_walkers)]
    return points[keep], radii[keep]


def _maximum(density, centre, scales):
    """Return where log s is largest within a trust region, and a factor of the curvature there.

    The curvature is that of log s − |(z − centre)/scales|²/2, its eigenvalues no less than those of
    the trust region alone.
    """

    def loss(w):
        log_s, slope = density.values((centre + scales * w)[None])
        if not np.isfinite(log_s[0]):
            return 1e10, w
        return 0.5 * w @ w - log_s[0], w - scales * slope[0]

    found = minimize(
        loss, np.zeros(centre.size), jac=True, method="L-BFGS-B", options={"maxfun": MOST_STEPS}
    )
    z = centre + scales * found.x
    step = 1e-3 * np.eye(centre.size)
    ends = np.concatenate([found.x + step, found.x - step])
    _, slopes = density.values(centre + scales * ends)
    hessian = (slopes[: centre.size] - slopes[centre.size :]) * scales / 2e-3
    hessian = np.where(np.isfinite(hessian), hessian, 0.0)
    values, vectors = np.linalg.eigh((hessian + hessian.T) / 2)
    curvature = (vectors * (1 + np.maximum(-values, 0))) @ vectors.T / np.outer(scales, scales)
    return z, np.linalg.cholesky(curvature)


def _take(walker, z, radii, logp, error):
    """Let a walker learn what its points turned out to be."""
    logp = np.where(np.isfinite(logp), logp, -np.inf)
    best = np.argmax(logp)
    gain = logp[best] - walker.logp
    if gain > 0:
        walker.z, walker.logp, walker.radius = z[best], logp[best], radii[best]
    else:
        walker.radius *= SHRINK
    walker.radius = np.clip(walker.radius, LEAST_RADIUS, LARGEST_RADIUS)
    is_small = gain < SMALL_GAIN
    walker.n_small = walker.n_small + 1 if is_small else 0
    walker.arrived = (is_small and error < SMALL_ERROR) or walker.n_small >= MOST_SMALL


class Search:
    """The way of a chain, which can be interrupted after each evaluation.

    Parameters
    ----------
    step : EmulatorMetropolis
        A copy of the chain's step, which the search has for itself.
    start : (d,) float64
    seed : int
    prior : (n, d) float64 or None
        Draws of the prior.
    """

    def __init__(self, step, start, seed, prior):
        self.step, self._start, self._seed = step, start.copy(), seed
        self._rng = np.random.default_rng(seed)
        if prior is None:
            prior = start + self._rng.standard_normal((100, start.size))
        emulated = step.parameters.emulated
        emulated.mean[:] = start
        emulated.factor[:] = np.diag(spread_of(prior))
        density = EmulatedDensity(step.log_density.target(self._rng), emulated)
        self._density = density
        explore = self._explore if _has_enough(step.tuning.reused, emulated.structure) else None
        self._way = way(density, self._learn, start, prior, N_WALKERS, self._rng, explore)
        self._points, self._values = next(self._way), []
        self._evaluated = []

    def _learn(self):
        learning.fit_emulators([self.step])

    def _explore(self, z, root):
        choices = self.step.tuning.choices
        return learning.explore(self._density, choices, z, root, self._rng)

    def is_of(self, start, seed, trail):
        """Whether it is the search from this start, and has come as far as this."""
        own, n = np.array(self._evaluated), len(self._evaluated)
        same = seed == self._seed and np.array_equal(start, self._start)
        return same and np.array_equal(own, trail[:n, 0]) and (trail[n:, 0] != trail[n:, 0]).all()

    def go_on(self, logp, budget):
        """Evaluate until the way ends, or the budget is spent."""
        logp.n = len(self._evaluated)
        while self._points is not None and logp.n < budget:
            z = self._points[len(self._values)]
            value = logp(z)
            learning.note(self.step, z[None], np.array([value]), logp.outputs[None])
            self._values.append(value)
            self._evaluated.append(value)
            if len(self._values) == len(self._points):
                self._points = self._next()

    def _next(self):
        values, self._values = np.array(self._values), []
        try:
            with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
                return self._way.send(values)
        except StopIteration:
            return None

    def finish(self, step):
        """Hand what was learned to the chain's step; return draws of s (n, d)."""
        own = self.step
        best = np.nanargmax(own.tuning.evaluated[: own.tuning.n_evaluated[0], own._d])
        own.state.x[:] = own.tuning.evaluated[best, : own._d]
        places = learning.learn_emulator([own], self._rng)
        copy_arrays(own.parameters, step.parameters, ("emulated",))
        copy_arrays(own.tuning, step.tuning, ("evaluated", "n_evaluated", "n_learned", "choices"))
        return places


def _has_enough(reused, structure):
    """Whether earlier runs have called each box often enough for an emulator."""
    calls = [np.count_nonzero(reused[:, :1] == b) for b in range(len(structure.boxes))]
    needed = ENOUGH_ROWS[0] + ENOUGH_ROWS[1] * structure.boxes[:, 0]
    return bool(np.all(calls >= needed))


def spread_of(prior):
    """Return half of the range of the middle 68 % of draws (n, d)."""
    return np.diff(np.quantile(prior, [0.16, 0.84], axis=0), axis=0)[0] / 2


N_PRIOR = 300
"""Draws of the prior."""


def prior_draws(model, layout):
    """Return draws (n, d) of a step's variables from the prior, None if it has none to draw from."""
    if any(black_boxes([rv]) for rv in model.free_RVs):
        return None
    try:
        draw = starts_from_prior(model)
    except ValueError:
        return None
    points = [layout.raveled(draw(seed))[layout.places[: layout.d]] for seed in range(N_PRIOR)]
    return np.array(points)
