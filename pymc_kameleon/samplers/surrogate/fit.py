"""The fit of a surrogate to all that was evaluated, by a Gaussian process.

f is modelled as a base, −½|u|² or lt(u), plus a polynomial and a Gaussian process with a Cauchy
kernel, both at once. Low log-densities matter less: their noise is larger. Base, length, amplitude
and noise are chosen by leave-one-out errors [RW, section 5.4.2].

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), here [RW].

Symbols: u the points (n, d), f their log-densities, K the covariance of the values, σ² the noise.
"""

from functools import cache, cached_property
from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

from pymc_kameleon.approximation.linalg import squared_distances
from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.core.quadratic import by_order, terms

LEVELS = {
    "on_quadratic": (True, False),
    "length": (1.0, 3.0, 9.0),  # times √d
    "amplitude": (0.3, 3.0, 30.0),  # times length⁴, so that curvature is about this
    "noise": (1e-6, 1e-3, 0.1),
    "range": (2.0, 6.0),  # drop of f over which noise grows by e
}
"""The values that a choice is made among."""

STRETCH = 2.0, 64.0
"""Factor by which a coordinate is stretched or shrunk at a time, and at most."""

MOST_FOR_SURROGATE = 40
"""Coordinates up to which each has a rate of its own, and up to which SurrogateMetropolis is the
default without a gradient: more have more correlations than its surrogate is fitted to points."""

N_CENTRES, N_SCORED = 1000, 400
"""Points that a surrogate is fitted to, and by which it is chosen how, at most. A fit takes 0.004
and 0.04 s for 400 and 1000 points, and a choice makes a hundred or more."""

N_ROUNDS = 4
"""How often each part of the choice is reconsidered at first, at most."""

PRIOR_VARIANCES = 1e4, 10.0, 1.0
"""Variances of the constant, of linear and of second-order coefficients."""

LEAST_WEIGHT = 1e-3
"""Weight of a point, for its noise, at least."""

SCORED_RANGE, LARGEST_ERROR = 4.0, 6.0
"""Leave-one-out errors count the less the lower f is, by e over this range, and at most so much."""

LOWER_MARGIN, UPPER_MARGIN = 3.5, 1.0
"""How far h may lie below its typical value, so that chains do not stick; and above all that was
seen."""


class Hyper(NamedTuple):
    """What was chosen, in units of LEVELS."""

    on_quadratic: bool
    length: float
    amplitude: float
    noise: float
    range: float
    stretch: tuple  # of each coordinate

    @classmethod
    def start(cls, d):
        """Return what the choice begins with."""
        return cls(True, 3.0, 3.0, 1e-3, 2.0, (1.0,) * d)


def fit(surrogate, u, f, counts, hyper, nu, level=0.0, n_rounds=N_ROUNDS):
    """Fit a surrogate to log-densities f (n,) at points u (n, d); return the Hyper and its error.

    The choice begins at `hyper`, and is reconsidered `n_rounds` times; errors at points that
    `counts` (n,) leaves out do not matter. `level` is what f typically is. The error is
    leave-one-out, in log-density, and infinite if rounding forbids the fit; then the surrogate is
    left as it is.
    """
    few, f = slice(N_SCORED), f - level
    problem = _Problem(u[few], f[few], counts[few], nu)
    hyper, error = _choose(problem, hyper, n_rounds)
    if len(problem.u) < len(u):
        problem = _Problem(u, f, counts, nu)
    solved = problem.solved(hyper)
    if solved is None:
        return hyper, np.inf
    surrogate.nu[0], (_, alpha) = nu, solved
    _write(surrogate, problem, hyper, alpha, level)
    return hyper, error


def _choose(problem, hyper, n_rounds):
    """Return a better choice, changing its parts in turn, and its error."""
    error = cache(problem.error)
    for _ in range(n_rounds):
        last = hyper
        for name, levels in LEVELS.items():
            hyper = min([hyper, *(hyper._replace(**{name: level}) for level in levels)], key=error)
        for k in range(problem.d if problem.d <= MOST_FOR_SURROGATE else 0):
            hyper = min([hyper, *_stretched(hyper, k)], key=error)
        if hyper == last:
            break
    return hyper, error(hyper)


def _stretched(hyper, k):
    """Yield choices in which a coordinate is stretched more, or less."""
    for factor in (STRETCH[0], 1 / STRETCH[0]):
        value = hyper.stretch[k] * factor
        if 1 / STRETCH[1] <= value <= STRETCH[1]:
            yield hyper._replace(stretch=(*hyper.stretch[:k], value, *hyper.stretch[k + 1 :]))


class _Problem:
    """A fit of points, for any choice."""

    def __init__(self, u, f, counts, nu):
        self.u, self.f, self.d = u, f, u.shape[1]
        self.features, self.prior = terms(u), by_order(PRIOR_VARIANCES, self.d)
        self.log_t = log_t(u, nu)
        self.drop = np.maximum(-f, 0)
        weights = np.exp(-self.drop / SCORED_RANGE) * (counts if counts.any() else 1.0)
        self.scored = weights / weights.sum()

    @cached_property
    def polynomial(self):
        """Covariance of the polynomial at the points."""
        scaled = self.features * np.sqrt(self.prior)
        return scaled @ scaled.T

    def residual(self, hyper):
        """Return what is to be explained."""
        base = -np.sum(self.u * self.u, axis=1) / 2 if hyper.on_quadratic else self.log_t
        return self.f - base

    def covariance(self, hyper):
        """Return K + the noise."""
        w = self.u * rates(hyper)
        k = amplitude(hyper) / (1 + squared_distances(w, w))
        k += self.polynomial if hyper.on_quadratic else PRIOR_VARIANCES[0]
        noise = hyper.noise / (np.exp(-self.drop / hyper.range) + LEAST_WEIGHT)
        k[np.diag_indices(len(k))] += noise
        return k

    def solved(self, hyper):
        """Return the factor of K, and K⁻¹ r; None where rounding forbids that."""
        factor, failed = lapack.dpotrf(self.covariance(hyper), lower=1)
        if failed:
            return None
        return factor, lapack.dpotrs(factor, self.residual(hyper), lower=1)[0]

    def error(self, hyper):
        """Return the weighted mean of leave-one-out errors [RW, 5.12], each limited."""
        solved = self.solved(hyper)
        if solved is None:
            return np.inf
        factor, alpha = solved
        inverse, _ = lapack.dtrtri(factor, lower=1)
        errors = alpha / np.sum(np.tril(inverse) ** 2, axis=0)
        errors -= self.scored @ errors
        return self.scored @ np.minimum(np.abs(errors), LARGEST_ERROR)


def rates(hyper):
    """Return r: reciprocal lengths of the kernel."""
    return np.array(hyper.stretch) / (hyper.length * len(hyper.stretch) ** 0.5)


def amplitude(hyper):
    """Return the kernel's variance."""
    return hyper.amplitude * max(1.0, hyper.length) ** 4


def _write(surrogate, problem, hyper, alpha, level):
    """Write the fitted function into the surrogate."""
    (n, d), u = problem.u.shape, problem.u
    surrogate.rates[:] = rates(hyper)
    surrogate.n[0] = n
    surrogate.centres[:, :n] = (u * surrogate.rates).T
    surrogate.weights[:n] = amplitude(hyper) * alpha
    coefficients = problem.prior * (problem.features.T @ alpha)
    surrogate.is_quadratic[0] = hyper.on_quadratic
    surrogate.constant[0] = level + coefficients[0]
    surrogate.linear[:], surrogate.quadratic[:] = 0.0, 0.0
    if hyper.on_quadratic:
        surrogate.linear[:] = coefficients[1 : d + 1]
        surrogate.quadratic[np.tril_indices(d)] = coefficients[d + 1 :]
        surrogate.quadratic[np.diag_indices(d)] -= 1.0
        surrogate.quadratic[np.diag_indices(d)] /= 2.0
    h = problem.f - problem.log_t
    typical = np.average(h, weights=problem.scored)
    surrogate.bounds[:] = level + typical - LOWER_MARGIN, level + h.max() + UPPER_MARGIN


def log_t(u, nu):
    """Return the log of the t density at points u (n, d), but for a constant."""
    return -0.5 * (nu + u.shape[1]) * np.log1p(np.sum(u * u, axis=1) / nu)


def values(surrogate, u):
    """Return log s at points u (n, d), as compiled code computes it."""
    base = log_t(u, surrogate.nu[0])
    return base + np.clip(unbounded_values(surrogate, u) - base, *surrogate.bounds)


def are_lowest(surrogate, u, log_s):
    """Return at which points u (n, d) h is at its lower bound, as nothing is known there."""
    return log_s - log_t(u, surrogate.nu[0]) < surrogate.bounds[0] + ROOT_EPS


BLOCK = 200
"""Points whose kernels are computed at a time."""


def unbounded_values(surrogate, u):
    """Return what was fitted at points u (n, d), without bounds of h."""
    n, f = surrogate.n[0], np.full(len(u), surrogate.constant[0])
    if surrogate.is_quadratic[0]:
        f += u @ surrogate.linear + np.sum((u @ surrogate.quadratic.T) * u, axis=1)
    else:
        f += log_t(u, surrogate.nu[0])
    if n > 0:
        for few in range(0, len(u), BLOCK):  # which stay in the processor's cache
            own = slice(few, few + BLOCK)
            kernels = squared_distances(u[own] * surrogate.rates, surrogate.centres[:, :n].T)
            kernels += 1
            f[own] += np.reciprocal(kernels, out=kernels) @ surrogate.weights[:n]
    return f
