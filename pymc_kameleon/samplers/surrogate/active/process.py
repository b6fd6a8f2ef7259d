"""A Gaussian process of a log-density, from its first evaluations on.

    y(u) = −½|u|² + c + bᵀu + ½uᵀBu + k(u),  cov k = A² κ(q),  q = |Δu·r|²/(ℓ²d)

y is the log-density below the best one that is known, its depth compressed from T on, and noisy.
Where f is exactly quadratic in the coordinates I, given the others J, as in the coefficients of a
regression given log σ, there are two more terms: "quadratic in I with coefficients that are
functions of J", and a function of J alone:

    P² (1 + s + s²/2) κ_J + C² exp(−½|Δu_J|²/l_C²),  s = v·v'
    κ_J = exp(g/l²) − 1 + Π_j [1 + U_j² (e^t + ¼ e^2t) + D_j² (e^−t + ¼ e^−2t)]
    g = u_J·u_J',  t = x_j + x_j'

The coefficients are power series in J, and of exp x_j and its inverse: if x_j is the logarithm of a
scale, that is what they are. There depths are not compressed.

Symbols: u the points (n, d), J their first coordinates; x_j those of J, in their own units, and v
those of I, which do not depend on J; y the values, α = K⁻¹(y + ½|u|²); the numbers that are chosen
by marginal likelihood [RW, section 5.4.1]: the standard deviations of the noise, and of B, "quad";
A = amp·max(ℓ, 1)², the length ℓ, P, l, C, l_C, and r, "stretch", U and D of each coordinate; κ the
kernel.

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), here [RW].
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import blas, lapack
from scipy.optimize import minimize
from scipy.special import xlogy

from pymc_kameleon.approximation.linalg import factorised
from pymc_kameleon.approximation.search import LOSS_OUTSIDE

DEPTH, LARGEST_DROP = (6, 4), 1000
"""T: from this, and times d, drops are compressed; and their bound, times T. With the drop that is
negligible of a normal instead, means of the centred eight schools were twice as far off."""

LEAST_NOISE, DEEP_NOISE = 1e-6, 0.05
"""Variance of the noise, at least; and its standard deviation by what a compressed drop is beyond
T/2: without that, means of the centred eight schools were about twice as far off."""

CONSTANT = 1e2
"""Standard deviation of the constant c."""

CLIMBING, HOME, HOME_EXACT = 10.0, 1.5, 0.3
"""Standard deviation of the linear coefficients b: on the way; at home; and where exact."""

NOISE, QUAD, AMP, LENGTH, PRODUCT, SMOOTH, ALONE, ALONE_LENGTH, EACH = range(9)
"""Places of the chosen numbers, which are logarithms; those of each coordinate follow: of the
stretch, of U, and of D."""

FARTHEST = 7.0
"""Of each coordinate in J, from where on the coefficients grow no more, in u and in x."""

LEAST_CURVATURE = 0.01
"""In I given J, at least, of the normal that draws of I are proposed from."""

ROUNDING = 1e-11
"""Noise by rounding, as a share of the variance."""


def depth_of(d):
    """Return T."""
    return DEPTH[0] + d * DEPTH[1]


def compressed(f, best, d, is_exact=False):
    """Return f (n,) below the best one, compressed unless exact; T where it is not finite."""
    depth = depth_of(d)
    drop = np.where(np.isfinite(f), np.minimum(best - f, LARGEST_DROP * depth), depth)
    if is_exact:
        return -drop
    return -np.where(drop > depth, depth * (1 + np.log(np.maximum(drop, depth) / depth)), drop)


def is_bounded(f, best, d):
    """Whether drops (n,) are beyond their bound; one such value spoils many that are exact."""
    return np.isfinite(f) & (best - f > LARGEST_DROP * depth_of(d))


class Prior(NamedTuple):
    """What is known of the log-density before it is fitted."""

    n_held: int  # of J, the first coordinates; 0 if f is exactly quadratic in none
    linear: float  # standard deviation of b
    own: np.ndarray | None = None  # (d, d), takes u to x_j, from their middle, and v; if there is J

    def centre(self, d):
        """Return where the logarithms of the chosen numbers are, a priori, and their sds."""
        small = 0.05 if self.n_held else 0.2
        centres = [3e-4, small, small, 2.0, 0.15, 10.0, 1.0, 2.0, *np.ones(d), *np.full(2 * d, 0.3)]
        sds = [2.0, 1.2, 1.2, 0.5, 1.0, 1.0, 1.0, 0.4, *np.full(d, 0.5), *np.full(2 * d, 1.5)]
        return np.log(centres), np.array(sds)

    def bounds(self, d):
        """Return the least and largest logarithms that are chosen."""
        centres, sds = self.centre(d)
        return centres - FARTHEST_SDS * sds, centres + FARTHEST_SDS * sds

    def own_of(self, u):
        """Return x_j (n, |J|), within their bounds, and v (n, |I|) of points u."""
        own = u @ self.own.T
        return np.clip(own[:, : self.n_held], -FARTHEST, FARTHEST), own[:, self.n_held :]


class Hyper(NamedTuple):
    """What was chosen."""

    kernel: int
    logs: np.ndarray  # (EACH + 3d,)

    @property
    def d(self):
        """The number of coordinates."""
        return (len(self.logs) - EACH) // 3

    def of_each(self, k):
        """Return the squares of r, U or D, by k = 0, 1 or 2, (d,)."""
        return np.exp(2 * self.logs[EACH:].reshape(3, -1)[k])

    @classmethod
    def start(cls, prior, d):
        """Return what a choice begins with."""
        return cls(1, prior.centre(d)[0])


class Terms(NamedTuple):
    """What covariances of two sets of points are made of; the last three if some are exact."""

    points: tuple  # (n, d) and (m, d)
    products: np.ndarray  # u·u'
    quadratics: np.ndarray  # covariance of ½uᵀBu, if the standard deviation of B is 1
    held: tuple | None = None  # x_j of the points, (n, |J|) and (m, |J|)
    growth: np.ndarray | None = None  # g
    exact: np.ndarray | None = None  # 1 + s + s²/2

    @classmethod
    def of(cls, a, b, prior):
        """Return those of points a (n, d) and b (m, d)."""
        products = a @ b.T
        quadratics = 0.5 * products * products - (0.25 * a * a) @ (b * b).T
        if not prior.n_held:
            return cls((a, b), products, quadratics)
        s = prior.own_of(a)[1] @ prior.own_of(b)[1].T
        exact = 1 + s * (1 + 0.5 * s)
        held = cls.of_held(a, b, prior)
        return held._replace(products=products, quadratics=quadratics, exact=exact)

    @classmethod
    def of_held(cls, a, b, prior):
        """Return what κ_J needs of them, without the rest."""
        n, held = prior.n_held, (prior.own_of(a)[0], prior.own_of(b)[0])
        return cls((a, b), None, None, held, _bounded(a[:, :n]) @ _bounded(b[:, :n]).T)


def _squared(points):
    """Return products (n, d²) of all pairs of coordinates."""
    return (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)


def _bounded(held):
    return np.clip(held, -FARTHEST, FARTHEST)


def kernel(kind, q):
    """Return κ, of curvature 1 whatever its kind."""
    if kind == 0:
        return np.exp(-0.5 * q)
    k = 1 / (1 + (0.5 if kind == 1 else 1 / 6) * q)
    return k if kind == 1 else k * k * k  # a power takes ten times as long


def kernel_slope(kind, q):
    """Return the derivative of κ."""
    if kind == 0:
        return -0.5 * np.exp(-0.5 * q)
    return -0.5 / (1 + 0.5 * q) ** 2 if kind == 1 else -0.5 / ((1 + q / 6) ** 2) ** 2


def rates_of(hyper, n_held):
    """Return the squares of r/(ℓ√d) (d,); where f is exact in I, its coordinates share one."""
    rates = hyper.of_each(0) * np.exp(-2 * hyper.logs[LENGTH]) / hyper.d
    if n_held:
        rates[n_held:] = rates[n_held]
    return rates


def _distance(points, rates):
    """Return Σ_i rates_i Δu_i², by a product of matrices, as that is one pass over the result."""
    a, b = (u * np.sqrt(rates) for u in points)
    a2, b2 = (np.sum(u * u, axis=1)[:, None] for u in (a, b))
    left = np.concatenate([-2 * a, a2, np.ones_like(a2)], axis=1)
    return left @ np.concatenate([b, np.ones_like(b2), b2], axis=1).T


def variance_of(hyper):
    """Return A²."""
    return np.exp(2 * hyper.logs[AMP] + 4 * max(hyper.logs[LENGTH], 0.0))


def noise_of(y, hyper):
    """Return the variances of the noise of compressed values."""
    deep = DEEP_NOISE * np.maximum(-y - depth_of(hyper.d) / 2, 0)
    return LEAST_NOISE + np.exp(2 * hyper.logs[NOISE]) + deep**2


def powers(x, hyper):
    """Return (|J|, n, 4): products of these, over the last axis, are those of U and D in κ_J."""
    n_held, e = x.shape[1], np.exp(x.T)
    up, down = (np.sqrt(hyper.of_each(k)[:n_held, None]) for k in (1, 2))
    return np.stack([up * e, 0.5 * up * e * e, down / e, 0.5 * down / (e * e)], axis=2)


def covariance(terms, hyper, prior):
    """Return the covariance of y at two sets of points, without the noise."""
    numbers, n_held = np.exp(2 * hyper.logs), prior.n_held
    k = variance_of(hyper) * kernel(hyper.kernel, _distance(terms.points, rates_of(hyper, n_held)))
    k += CONSTANT**2
    k += prior.linear**2 * terms.products
    k += numbers[QUAD] * terms.quadratics
    if n_held:
        k += numbers[PRODUCT] * of_held(terms, hyper) * terms.exact
        k += _alone(terms, numbers, n_held)
    return k


def of_held(terms, hyper):
    """Return κ_J."""
    a, b = (powers(x, hyper) for x in terms.held)
    growth = np.exp(terms.growth * np.exp(-2 * hyper.logs[SMOOTH]))
    return growth + (1 + a @ b.mT).prod(axis=0) - 1


def _alone(terms, numbers, n_held):
    """Return the covariance of what depends on J alone."""
    rates = np.full(n_held, 1 / numbers[ALONE_LENGTH])
    return numbers[ALONE] * kernel(0, _distance([u[:, :n_held] for u in terms.points], rates))


def variances(u, hyper, prior):
    """Return the prior variance of y at points u (m, d): the covariance of each with itself."""
    numbers, squares, n_held = np.exp(2 * hyper.logs), u * u, prior.n_held
    s = squares.sum(axis=1)
    quadratics = 0.5 * s**2 - 0.25 * np.sum(squares * squares, axis=1)
    v = variance_of(hyper) + CONSTANT**2 + prior.linear**2 * s + numbers[QUAD] * quadratics
    if n_held:
        x, rest = prior.own_of(u)
        s = np.sum(rest * rest, axis=1)
        growth = np.sum(_bounded(u[:, :n_held]) ** 2, axis=1) / numbers[SMOOTH]
        factors = 1 + np.sum(powers(x, hyper) ** 2, axis=2)
        held = np.exp(growth) - 1 + factors.prod(axis=0)
        v += numbers[PRODUCT] * (1 + s + 0.5 * s * s) * held + numbers[ALONE]
    return v


class Process:
    """The process given values y (n,), as `compressed`, at points u (n, d)."""

    def __init__(self, u, y, hyper, prior):
        self.u, self.y, self.hyper, self.prior = u, y, hyper, prior
        factor = factorised(_with_noise(Terms.of(u, u, prior), y, hyper, prior))
        self.alpha = lapack.dpotrs(factor, y + 0.5 * np.sum(u * u, axis=1), lower=1)[0]
        self.inverse = np.asfortranarray(np.tril(lapack.dtrtri(factor, lower=1)[0]))
        """L⁻¹, K = LLᵀ, as BLAS takes it."""
        if n := prior.n_held:
            rest, (_, own) = u[:, n:], prior.own_of(u)
            self._of_exact = rest, own, _squared(own), (self.alpha @ _squared(rest))

    def mean(self, u):
        """Return the mean of y at points u (m, d)."""
        return self._mean(u, self._covariance(u))

    def mean_and_sd(self, u, is_wanted=None):
        """Return mean and sd of y at points u (m, d); the sd is NaN where it is not `is_wanted`."""
        k = self._covariance(u)
        mean, sd = self._mean(u, k), np.full(len(u), np.nan)
        rows = np.arange(len(u)) if is_wanted is None else np.flatnonzero(is_wanted(mean))
        if rows.size:
            sd[rows] = self._sd(u[rows], k[rows])
        return mean, sd

    def covariance(self, u):
        """Return the covariance (m, m) of y at points u, given the values."""
        explained = self._explained(self._covariance(u))
        k = covariance(Terms.of(u, u, self.prior), self.hyper, self.prior)
        k -= explained.T @ explained
        return k

    def left_out(self):
        """Return how far off (n,) each value is predicted by all others, and its sd [RW, 5.4.2]."""
        variance = 1 / np.sum(self.inverse**2, axis=0)
        return self.alpha * variance, np.sqrt(variance)

    def slopes(self, u):
        """Return the derivative (m, d) of the mean."""
        hyper, prior, alpha = self.hyper, self.prior, self.alpha
        numbers, n_held = np.exp(2 * hyper.logs), self.prior.n_held
        rates = rates_of(hyper, n_held)
        terms = Terms.of(u, self.u, prior)
        weights = prior.linear**2 + numbers[QUAD] * terms.products
        slopes = (weights * alpha) @ self.u - u
        slopes -= 0.5 * numbers[QUAD] * u * (alpha @ (self.u * self.u))
        q = _distance(terms.points, rates)
        weights = 2 * variance_of(hyper) * kernel_slope(hyper.kernel, q) * alpha
        slopes += rates * (u * weights.sum(axis=1)[:, None] - weights @ self.u)
        if n_held:
            slopes += self._slopes_of_exact(u, terms)
        return slopes

    def _slopes_of_exact(self, u, terms):
        """Return the derivative of what f has where it is quadratic in I, and of J alone."""
        prior, alpha, n_held = self.prior, self.alpha, self.prior.n_held
        numbers = np.exp(2 * self.hyper.logs)
        a, b = (powers(x, self.hyper) for x in terms.held)
        factors, steps = 1 + a @ b.mT, (np.array([1.0, 2.0, -1.0, -2.0]) * a) @ b.mT
        rise = np.exp(terms.growth / numbers[SMOOTH])
        (_, rest), (_, own) = prior.own_of(u), prior.own_of(self.u)
        weights = numbers[PRODUCT] * alpha
        slopes = np.empty_like(u)  # by x_j and v
        slopes[:, n_held:] = (weights * of_held(terms, self.hyper) * (1 + rest @ own.T)) @ own
        for j in range(n_held):
            others = np.delete(factors, j, axis=0).prod(axis=0)
            slopes[:, j] = np.sum(weights * terms.exact * others * steps[j], axis=1)
        slopes[:, :n_held] *= np.abs(u @ prior.own[:n_held].T) < FARTHEST
        slopes = slopes @ prior.own
        held, known = u[:, :n_held], self.u[:, :n_held]
        grown = (weights * terms.exact * rise / numbers[SMOOTH]) @ _bounded(known)
        alone = _alone(terms, numbers, n_held) * alpha / numbers[ALONE_LENGTH]
        slopes[:, :n_held] += (np.abs(held) < FARTHEST) * grown
        slopes[:, :n_held] += alone @ known - held * alone.sum(axis=1)[:, None]
        return slopes

    def given_held(self, held):
        """Return the normal of u in I given u in J, `held` (m, |J|), as the mean has it.

        Its mean (m, |I|), principal axes (m, |I|, |I|) in columns, and standard deviations along
        these.
        """
        prior, n, numbers = self.prior, self.prior.n_held, np.exp(2 * self.hyper.logs)
        rest, own, squares, by_squares = self._of_exact
        u = np.zeros((len(held), self.u.shape[1]))
        u[:, :n] = held
        u[:, n:] = -held @ prior.own[n:, :n].T  # where v = 0
        of_quad, size = numbers[QUAD] * self.alpha, rest.shape[1]
        weights = numbers[PRODUCT] * of_held(Terms.of_held(u, self.u, prior), self.hyper)
        weights *= self.alpha
        by_quad = (numbers[QUAD] * by_squares).reshape(size, size)
        curvature = np.eye(size) - (weights @ squares).reshape(-1, size, size)
        values, vectors = np.linalg.eigh(curvature - by_quad + np.diag(np.diag(by_quad)) / 2)
        values = np.maximum(values, LEAST_CURVATURE)
        slopes = weights @ own + (prior.linear**2 * self.alpha + of_quad * (u @ self.u.T)) @ rest
        slopes -= u[:, n:] * (1 + np.diag(by_quad) / 2)
        mean = np.einsum("mij,mi->mj", vectors, slopes) / values
        return u[:, n:] + np.einsum("mij,mj->mi", vectors, mean), vectors, values**-0.5

    def hessian(self, u, step=1e-3):
        """Return the second derivatives (d, d) of the mean at a point (d,)."""
        steps = step * np.eye(len(u))
        slopes = self.slopes(np.concatenate([u + steps, u - steps]))
        hessian = (slopes[: len(u)] - slopes[len(u) :]) / (2 * step)
        return (hessian + hessian.T) / 2

    def _covariance(self, u):
        return covariance(Terms.of(u, self.u, self.prior), self.hyper, self.prior)

    def _mean(self, u, k):
        return k @ self.alpha - 0.5 * np.sum(u * u, axis=1)

    def _sd(self, u, k):
        explained = self._explained(k)
        explained = np.einsum("ij,ij->j", explained, explained)
        return np.sqrt(np.maximum(variances(u, self.hyper, self.prior) - explained, 0))

    def _explained(self, k):
        """Return L⁻¹ kᵀ (n, m)."""
        return blas.dtrmm(1.0, self.inverse, k.T, lower=1)


def _with_noise(terms, y, hyper, prior):
    """Return the covariance of values, with their noise, and that of rounding."""
    k = covariance(terms, hyper, prior)
    diagonal = np.diag_indices(len(k))
    k[diagonal] = (1 + ROUNDING) * k[diagonal] + noise_of(y, hyper)
    return k


# ---- the choice of its numbers ------------------------------------------------------------------


STEPS = 0.8, 0.4
"""Factors, their logarithms, by which each number is changed in turn: climbs by slopes while the
search goes on left means of the centred eight schools three times as far off."""

N_KERNELS, NOISES = 3, (0.01, 0.1)
"""κ to choose from; and noises that are tried with the usual length, as short lengths explain
noise, too."""

SMOOTHS = 5.0, 100.0
"""l to begin with: coefficients that are power series, or else hardly change but for powers."""

FARTHEST_SDS = 4.0
"""Of the prior, within which numbers are chosen."""

FEW = 150
"""Points by which starts climb: a step takes a tenth of its time with 450."""

NO_GAIN = 1e-5
"""Relative gain of the log posterior density with which a search by its slopes ends."""


def choose(u, y, hyper, prior):
    """Return a more probable Hyper, from the last one on, by a pattern search."""
    score, bounds = _log_posterior(u, y, prior), prior.bounds(u.shape[1])
    best = score(hyper)
    for kind in range(N_KERNELS):
        other = hyper._replace(kernel=kind)
        if kind != hyper.kernel and (value := score(other)) > best:
            hyper, best = other, value
    for size in STEPS:
        for place in _free(prior, u.shape[1]):
            for step in (size, -size):
                other, value = _moved(hyper, place, step, bounds), -np.inf
                while other is not None and (value := score(other)) > best:
                    hyper, best = other, value
                    other = _moved(hyper, place, step, bounds)
    for noise in NOISES:
        other = _noisy(hyper, noise, prior)
        if (value := score(other)) > best:
            hyper, best = other, value
    return hyper


def best_of_starts(u, y, prior, last=None):
    """Return the most probable Hyper that is found from several starts, or from the last one on.

    Each start climbs by few of the points; from the end that is best by all, all of them count.
    """
    starts = [last] if last else _starts(prior, u.shape[1])
    starts += [_noisy(starts[0], noise, prior) for noise in NOISES]
    few = slice(None, None, -(-len(u) // FEW))
    found = [_climbed(start, u[few], y[few], prior) for start in starts]
    best = min(found, key=lambda one: one[0])[1]
    if not prior.n_held:
        others = [kind for kind in range(N_KERNELS) if kind != best.kernel]
        found += [_climbed(best._replace(kernel=kind), u[few], y[few], prior) for kind in others]
    best = max((end for _, end in found), key=_log_posterior(u, y, prior))
    return _climbed(best, u, y, prior)[1]


def _climbed(start, u, y, prior):
    """Return the loss at the top that is reached from a Hyper by its slopes, and that top."""
    loss, places, logs = _loss_and_slopes(u, y, prior), _free(prior, u.shape[1]), start.logs.copy()
    bounds = np.column_stack(prior.bounds(start.d))[places]
    options = {"ftol": NO_GAIN}

    def moved(x):
        logs[places] = x
        value, slopes = loss(start._replace(logs=logs))
        return value, slopes[places]

    end = minimize(moved, logs[places], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
    logs[places] = end.x
    return end.fun, start._replace(logs=logs)


def _noisy(hyper, noise, prior):
    """Return a Hyper with another noise, and the usual length."""
    logs = hyper.logs.copy()
    logs[[NOISE, LENGTH]] = np.log(noise), prior.centre(hyper.d)[0][LENGTH]
    return hyper._replace(logs=logs)


def _starts(prior, d):
    """Return where a choice begins: with the usual κ, or, where f is exact, with each l."""
    start = Hyper.start(prior, d)
    if not prior.n_held:
        return [start]
    starts = [start._replace(logs=start.logs.copy()) for _ in SMOOTHS]
    for one, smooth in zip(starts, SMOOTHS, strict=True):
        one.logs[SMOOTH] = np.log(smooth)
    return starts


def _log_posterior(u, y, prior):
    """Return the log posterior density of a Hyper, but for a constant, as a function."""
    terms = Terms.of(u, u, prior)
    residual = y + 0.5 * np.sum(u * u, axis=1)
    centres, sds = prior.centre(u.shape[1])

    def score(hyper):
        k = _with_noise(terms, y, hyper, prior)
        factor, failed = lapack.dpotrf(k.T, lower=1, overwrite_a=1)  # as LAPACK stores it
        if failed:
            return -np.inf
        half = lapack.dtrtrs(factor, residual, lower=1)[0]
        fit = -0.5 * half @ half - np.log(np.diag(factor)).sum()
        return fit - 0.5 * np.sum(((hyper.logs - centres) / sds) ** 2)

    return score


def _loss_and_slopes(u, y, prior):
    """Return a function: minus the log posterior of a Hyper, and its slopes [RW, equation 5.9]."""
    terms, n_held, n = Terms.of(u, u, prior), prior.n_held, len(u)
    residual, diagonal = y + 0.5 * np.sum(u * u, axis=1), np.diag_indices(n)
    centres, sds = prior.centre(u.shape[1])

    def loss(hyper):
        logs, numbers, slopes = hyper.logs, np.exp(2 * hyper.logs), np.zeros(len(hyper.logs))
        k = _with_noise(terms, y, hyper, prior)
        factor, failed = lapack.dpotrf(k.T, lower=1, overwrite_a=1)
        if failed:
            return LOSS_OUTSIDE, slopes
        alpha = lapack.dpotrs(factor, residual, lower=1)[0]
        value = -0.5 * residual @ alpha - np.log(np.diag(factor)).sum()
        inverse = lapack.dpotri(factor, lower=1, overwrite_c=1)[0].T  # rows, as K has
        inverse += np.triu(inverse, 1).T
        w = 0.5 * (np.outer(alpha, alpha) - inverse)  # derivatives by K

        def along(change):
            return np.vdot(w, change)

        rates = rates_of(hyper, n_held)
        q, variance = _distance(terms.points, rates), variance_of(hyper)
        by_amplitude = variance * along(kernel(hyper.kernel, q))
        by_distance = variance * w * kernel_slope(hyper.kernel, q)
        slopes[NOISE] = 2 * numbers[NOISE] * np.sum(w[diagonal])
        slopes[QUAD] = 2 * numbers[QUAD] * along(terms.quadratics)
        slopes[AMP] = 2 * by_amplitude
        slopes[LENGTH] = 4 * (logs[LENGTH] > 0) * by_amplitude - 2 * np.vdot(by_distance, q)
        if n_held:
            _add_slopes_of_held(slopes, terms, hyper, along)
        else:
            squares = by_distance.sum(axis=1) @ (u * u) - np.sum(u * (by_distance @ u), axis=0)
            slopes[EACH : EACH + u.shape[1]] = 4 * rates * squares
        z = (logs - centres) / sds
        return 0.5 * z @ z - value, z / sds - slopes

    return loss


def _add_slopes_of_held(slopes, terms, hyper, along):
    """Add those by the numbers that count if f is quadratic in I; `along` sums changes of K."""
    numbers, n_held = np.exp(2 * hyper.logs), terms.held[0].shape[1]
    a, b = (powers(x, hyper) for x in terms.held)
    factors, growth = 1 + a @ b.mT, terms.growth / numbers[SMOOTH]
    size = numbers[PRODUCT] * terms.exact
    slopes[PRODUCT] = 2 * along(size * of_held(terms, hyper))
    slopes[SMOOTH] = -2 * along(size * growth * np.exp(growth))
    for j in range(n_held):
        others = size * np.delete(factors, j, axis=0).prod(axis=0)
        for k, own in enumerate((slice(2), slice(2, 4)), start=1):
            place = EACH + k * hyper.d + j
            slopes[place] = 2 * along(others * (a[j, :, own] @ b[j, :, own].T))
    alone = _alone(terms, numbers, n_held)
    slopes[ALONE] = 2 * along(alone)
    slopes[ALONE_LENGTH] = -2 * along(xlogy(alone, alone / numbers[ALONE]))  # 0 where alone is


def _free(prior, d):
    """Return the places of the numbers that count, the noise last: it is what nothing explains."""
    if n_held := prior.n_held:
        of_powers = [EACH + k * d + j for k in (1, 2) for j in range(n_held)]
        return [*range(QUAD, EACH), *of_powers, NOISE]
    return [QUAD, AMP, LENGTH, *range(EACH, EACH + d), NOISE]


def _moved(hyper, place, step, bounds):
    """Return a Hyper with another number, None beyond its bounds."""
    logs, (low, high) = hyper.logs.copy(), bounds
    logs[place] += step
    return hyper._replace(logs=logs) if low[place] <= logs[place] <= high[place] else None
