"""A Gaussian process of a log-density, from its first evaluations on.

    y(u) = −½|u|² + c + bᵀu + ½uᵀBu + k(u),  cov k = A² κ(q),  q = |Δu·r|²/(ℓ²d)

y is the log-density below the best one that is known, its depth compressed: what is T below the
best has next to no mass, and a few raw values of −1e7 would leave nothing of the rest. Where f is
exactly quadratic in the coordinates I, given the others J, as in the coefficients of a regression
given log σ, there are two more terms: "quadratic in I with coefficients that are functions of J",
and a function of J alone, as what is normal in I has a density of J that may be anything:

    P² (1 + s + s²/2) κ_J + C² exp(−½|Δu_J|²/l_C²),  s = v·v'
    κ_J = exp(g/l²) − 1 + Π_j [1 + U_j² (e^t + ¼ e^2t) + D_j² (e^−t + ¼ e^−2t)]
    g = u_J·u_J',  t = x_j + x_j'

The coefficients are power series in J, and of the first and second powers of exp x_j and of its
inverse: if x_j is the logarithm of a scale, that is what they are. They grow outwards, and how
little is known of them does, too. There depths are not compressed, as what is compressed is not
quadratic.

Values have noise, independent from point to point: rounding, and a solver's tolerance.

Symbols: u the points (n, d), J their first coordinates; x_j those of J, in their own units, and v
those of I, which do not depend on J; y the values, α = K⁻¹(y + ½|u|²); the numbers that are chosen
by marginal likelihood [RW, section 5.4.1]: the standard deviations of the noise, and of B, "quad";
A = amp·max(ℓ, 1)², the length ℓ, P, l, C, l_C, and r, "stretch", U and D of each coordinate; κ the
kernel.

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), here [RW].
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import lapack

DEPTH, LARGEST_DROP = (6, 4), 1000
"""T: from this, and times d, drops are compressed; and their bound, times T."""

LEAST_NOISE, DEEP_NOISE = 1e-6, 0.05
"""Variance of the noise, at least; and its standard deviation by what a compressed drop is beyond
T/2."""

CONSTANT = 1e2
"""Standard deviation of the constant c."""

CLIMBING, HOME, HOME_EXACT = 10.0, 1.5, 0.3
"""Standard deviation of the linear coefficients b: on the way; at home; and where exact."""

NOISE, QUAD, AMP, LENGTH, PRODUCT, SMOOTH, ALONE, ALONE_LENGTH, EACH = range(9)
"""Places of the chosen numbers, which are logarithms; those of each coordinate follow: of the
stretch, of U, and of D."""

FARTHEST, FARTHEST_LOG = 8.0, 7.0
"""Of each coordinate in J, from where on the coefficients grow no more, in u and in x."""

LEAST_CURVATURE = 0.01
"""In I given J, at least, of the normal that draws of I are proposed from."""

ROUNDING = 1e-11
"""Noise by rounding, as a share of the variance."""

JITTERS = 0.0, 1e-6, 1e-4, 1e-2
"""Variances that are added until rounding leaves K positive definite."""


def compressed(f, best, d, is_exact=False):
    """Return log-densities f (n,) below the best one, their depth compressed, unless it is exact.

    Where they are not finite, it is T: a cliff as deep as others would bend all around it.
    """
    depth = DEPTH[0] + d * DEPTH[1]
    drop = np.where(np.isfinite(f), np.minimum(best - f, LARGEST_DROP * depth), depth)
    if is_exact:
        return -drop
    return -np.where(drop > depth, depth * (1 + np.log(np.maximum(drop, depth) / depth)), drop)


def is_bounded(f, best, d):
    """Whether drops of log-densities (n,) are larger than their bound, so that a value is wrong.

    One such value, of many that are exactly quadratic, spoils what all others tell.
    """
    return np.isfinite(f) & (best - f > LARGEST_DROP * (DEPTH[0] + d * DEPTH[1]))


class Prior(NamedTuple):
    """What is known of the log-density before it is fitted."""

    n_held: int  # of J, the first coordinates; 0 if f is exactly quadratic in none
    linear: float  # standard deviation of b
    own: np.ndarray | None = None  # (d, d), takes u to x_j, from their middle, and v; None: to u

    def centre(self, d):
        """Return where the logarithms of the chosen numbers are, a priori, and their sds."""
        small = 0.05 if self.n_held else 0.2
        centres = [3e-4, small, small, 2.0, 0.15, 10.0, 1.0, 2.0, *np.ones(d), *np.full(2 * d, 0.3)]
        sds = [2.0, 1.2, 1.2, 0.5, 1.0, 1.0, 1.0, 0.4, *np.full(d, 0.5), *np.full(2 * d, 1.5)]
        return np.log(centres), np.array(sds)

    def squares_of(self, a, b):
        """Return the squared differences of points a (n, d) and b (m, d) that count."""
        n = self.n_held or a.shape[1]
        squares = (a.T[:n, :, None] - b.T[:n, None, :]) ** 2
        if not self.n_held:
            return squares
        a, b = a[:, n:], b[:, n:]
        rest = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1) - 2 * a @ b.T
        return np.concatenate([squares, np.maximum(rest, 0)[None]])

    def own_of(self, u):
        """Return x_j (n, |J|), within their bounds, and v (n, |I|) of points u."""
        own = u if self.own is None else u @ self.own.T
        return np.clip(own[:, : self.n_held], -FARTHEST_LOG, FARTHEST_LOG), own[:, self.n_held :]


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
    """What covariances of two sets of points are made of, whatever the numbers are."""

    products: np.ndarray  # u·u'
    quadratics: np.ndarray  # covariance of ½uᵀBu, if the standard deviation of B is 1
    squares: np.ndarray  # (d, n, m), Δu²; (|J| + 1, n, m) if f is exact in I: the last is |Δu_I|²
    growth: np.ndarray  # g
    sums: np.ndarray  # (|J|, n, m), t
    exact: np.ndarray  # 1 + s + s²/2

    @classmethod
    def of(cls, a, b, prior):
        """Return those of points a (n, d) and b (m, d)."""
        products, s = a @ b.T, prior.own_of(a)[1] @ prior.own_of(b)[1].T
        squares = prior.squares_of(a, b)
        quadratics = 0.5 * products**2 - 0.25 * (a * a) @ (b * b).T
        held = cls.of_held(a, b, prior)
        return held._replace(
            products=products, quadratics=quadratics, squares=squares, exact=1 + s + 0.5 * s * s
        )

    @classmethod
    def of_held(cls, a, b, prior):
        """Return what κ_J needs of them; the others are None."""
        n, (x, _), (y, _) = prior.n_held, prior.own_of(a), prior.own_of(b)
        growth = _bounded(a[:, :n]) @ _bounded(b[:, :n]).T
        sums = x.T[:, :, None] + y.T[:, None, :]
        return cls(None, None, None, growth, sums, None)

    @classmethod
    def of_each(cls, u, prior):
        """Return those of each point u (m, d) and itself, of which m is the only dimension."""
        (held, rest), squares = prior.own_of(u), u * u
        products, s = squares.sum(axis=1), np.sum(rest * rest, axis=1)
        quadratics = 0.5 * products**2 - 0.25 * np.sum(squares * squares, axis=1)
        growth = np.sum(_bounded(u[:, : prior.n_held]) ** 2, axis=1)
        zeros = np.zeros((prior.n_held + 1 if prior.n_held else u.shape[1], len(u)))
        return cls(products, quadratics, zeros, growth, 2 * held.T, 1 + s + 0.5 * s * s)


def _squared(points):
    """Return products (n, d²) of all pairs of coordinates."""
    return (points[:, :, None] * points[:, None, :]).reshape(len(points), -1)


def _bounded(held):
    return np.clip(held, -FARTHEST, FARTHEST)


def kernel(kind, q):
    """Return κ, of curvature 1 whatever its kind."""
    if kind == 0:
        return np.exp(-0.5 * q)
    return 1 / (1 + 0.5 * q) if kind == 1 else (1 + q / 6) ** -3


def kernel_slope(kind, q):
    """Return the derivative of κ."""
    if kind == 0:
        return -0.5 * np.exp(-0.5 * q)
    return -0.5 / (1 + 0.5 * q) ** 2 if kind == 1 else -0.5 * (1 + q / 6) ** -4


def rates_of(hyper):
    """Return the squares of r/(ℓ√d) (d,)."""
    return hyper.of_each(0) * np.exp(-2 * hyper.logs[LENGTH]) / hyper.d


def _distance(terms, hyper):
    """Return q; where f is exact in I, its coordinates are stretched alike."""
    return np.tensordot(rates_of(hyper)[: len(terms.squares)], terms.squares, 1)


def variance_of(hyper):
    """Return A²."""
    return np.exp(2 * hyper.logs[AMP] + 4 * max(hyper.logs[LENGTH], 0.0))


def noise_of(y, hyper):
    """Return the variances of the noise of compressed values."""
    depth = DEPTH[0] + hyper.d * DEPTH[1]
    deep = DEEP_NOISE * np.maximum(-y - depth / 2, 0)
    return LEAST_NOISE + np.exp(2 * hyper.logs[NOISE]) + deep**2


def powers(terms, hyper):
    """Return the factors of κ_J (|J|, ...), and their derivatives by x_j."""
    n_held = len(terms.sums)
    up, down = (hyper.of_each(k)[:n_held].reshape(-1, *(1,) * terms.growth.ndim) for k in (1, 2))
    e = np.exp(terms.sums)
    factors = 1 + up * (e + 0.25 * e * e) + down * (1 / e + 0.25 / (e * e))
    return factors, up * (e + 0.5 * e * e) - down * (1 / e + 0.5 / (e * e))


def covariance(terms, hyper, prior):
    """Return the covariance of y at two sets of points, without the noise."""
    numbers = np.exp(2 * hyper.logs)
    q = _distance(terms, hyper)
    k = variance_of(hyper) * kernel(hyper.kernel, q)
    k += CONSTANT**2 + prior.linear**2 * terms.products + numbers[QUAD] * terms.quadratics
    if n_held := prior.n_held:
        k += numbers[PRODUCT] * terms.exact * of_held(terms, hyper)
        k += _alone(terms, numbers, n_held)
    return k


def of_held(terms, hyper):
    """Return κ_J."""
    factors, _ = powers(terms, hyper)
    return np.exp(terms.growth * np.exp(-2 * hyper.logs[SMOOTH])) - 1 + factors.prod(axis=0)


def _alone(terms, numbers, n_held):
    """Return the covariance of what depends on J alone."""
    q = terms.squares[:n_held].sum(axis=0) / numbers[ALONE_LENGTH]
    return numbers[ALONE] * np.exp(-0.5 * q)


def variances(u, hyper, prior):
    """Return the prior variance of y at points u (m, d)."""
    return covariance(Terms.of_each(u, prior), hyper, prior)


class Process:
    """The process given values y (n,) at points u (n, d).

    Attributes
    ----------
    u : (n, d) float64
    y : (n,) float64
        As `compressed`.
    hyper : Hyper
    prior : Prior
    """

    def __init__(self, u, y, hyper, prior):
        self.u, self.y, self.hyper, self.prior = u, y, hyper, prior
        k = covariance(Terms.of(u, u, prior), hyper, prior)
        _add_noise(k, y, hyper)
        factor = factorised(k)
        self.alpha = lapack.dpotrs(factor, y + 0.5 * np.sum(u * u, axis=1), lower=1)[0]
        self.inverse = np.tril(lapack.dtrtri(factor, lower=1)[0])  # L⁻¹, K = LLᵀ

    def mean(self, u):
        """Return the mean of y at points u (m, d)."""
        return self._mean(u, self._covariance(u))

    def mean_and_sd(self, u):
        """Return the mean and the standard deviation of y."""
        k = self._covariance(u)
        explained = np.sum((k @ self.inverse.T) ** 2, axis=1)
        v = variances(u, self.hyper, self.prior) - explained
        return self._mean(u, k), np.sqrt(np.maximum(v, 0))

    def covariance(self, u):
        """Return the covariance (m, m) of y at points u, given the values."""
        explained = self._covariance(u) @ self.inverse.T
        terms = Terms.of(u, u, self.prior)
        return covariance(terms, self.hyper, self.prior) - explained @ explained.T

    def left_out(self):
        """Return how far off (n,) each value is predicted by all others, and the sd of that.

        [RW, section 5.4.2].
        """
        variance = 1 / np.sum(self.inverse**2, axis=0)
        return self.alpha * variance, np.sqrt(variance)

    def slopes(self, u):
        """Return the derivative (m, d) of the mean."""
        hyper, prior, alpha = self.hyper, self.prior, self.alpha
        numbers, rates, n_held = np.exp(2 * hyper.logs), rates_of(hyper), self.prior.n_held
        terms = Terms.of(u, self.u, prior)
        weights = prior.linear**2 + numbers[QUAD] * terms.products
        slopes = (weights * alpha) @ self.u - u
        slopes -= 0.5 * numbers[QUAD] * u * (alpha @ (self.u * self.u))
        q = _distance(terms, hyper)
        weights = 2 * variance_of(hyper) * kernel_slope(hyper.kernel, q) * alpha
        slopes += rates * (u * weights.sum(axis=1)[:, None] - weights @ self.u)
        if n_held:
            slopes += self._slopes_of_exact(u, terms)
        return slopes

    def _slopes_of_exact(self, u, terms):
        """Return the derivative of what f has where it is quadratic in I, and of J alone."""
        prior, alpha, n_held = self.prior, self.alpha, self.prior.n_held
        numbers, (factors, steps) = np.exp(2 * self.hyper.logs), powers(terms, self.hyper)
        rise = np.exp(terms.growth / numbers[SMOOTH])
        (_, rest), (_, own) = prior.own_of(u), prior.own_of(self.u)
        weights = numbers[PRODUCT] * alpha
        slopes = np.empty_like(u)  # by x_j and v
        slopes[:, n_held:] = (weights * of_held(terms, self.hyper) * (1 + rest @ own.T)) @ own
        for j in range(n_held):
            others = np.delete(factors, j, axis=0).prod(axis=0)
            slopes[:, j] = np.sum(weights * terms.exact * others * steps[j], axis=1)
        by_own = np.eye(u.shape[1]) if prior.own is None else prior.own
        slopes[:, :n_held] *= np.abs(u @ by_own[:n_held].T) < FARTHEST_LOG
        slopes = slopes @ by_own
        held, known = u[:, :n_held], self.u[:, :n_held]
        grown = (weights * terms.exact * rise / numbers[SMOOTH]) @ _bounded(known)
        alone = _alone(terms, numbers, n_held) * alpha / numbers[ALONE_LENGTH]
        slopes[:, :n_held] += (np.abs(held) < FARTHEST) * grown
        slopes[:, :n_held] += alone @ known - held * alone.sum(axis=1)[:, None]
        return slopes

    def given_held(self, held):
        """Return the normal of u in I given J, as the mean has it.

        Parameters
        ----------
        held : (m, |J|) float64
            u in J.

        Returns
        -------
        mean : (m, |I|) float64
        vectors : (m, |I|, |I|) float64
            In columns, principal axes.
        sds : (m, |I|) float64
            Along these.
        """
        prior, n, numbers = self.prior, self.prior.n_held, np.exp(2 * self.hyper.logs)
        u, rest = np.zeros((len(held), self.u.shape[1])), self.u[:, n:]
        u[:, :n] = held
        if prior.own is not None:
            u[:, n:] = -held @ prior.own[n:, :n].T  # where v = 0
        of_quad, size = numbers[QUAD] * self.alpha, rest.shape[1]
        weights = numbers[PRODUCT] * of_held(Terms.of_held(u, self.u, prior), self.hyper)
        weights, own = weights * self.alpha, prior.own_of(self.u)[1]
        by_quad = (of_quad @ _squared(rest)).reshape(size, size)
        curvature = np.eye(size) - (weights @ _squared(own)).reshape(-1, size, size)
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


def _add_noise(k, y, hyper):
    """Add the noise of values, and that of rounding, to their covariance."""
    diagonal = np.diag_indices(len(k))
    k[diagonal] = (1 + ROUNDING) * k[diagonal] + noise_of(y, hyper)


def factorised(k):
    """Return the lower factor of K, with as little added to its diagonal as rounding needs."""
    for jitter in JITTERS:
        factor, failed = lapack.dpotrf(k + jitter * np.eye(len(k)), lower=1)
        if not failed:
            return factor
    raise np.linalg.LinAlgError("The covariance is not positive definite.")


# ---- the choice of its numbers ------------------------------------------------------------------


STEPS = 0.8, 0.4
"""Factors, their logarithms, by which each number is changed in turn."""

N_KERNELS, NOISES, MOST_ROUNDS = 3, (0.01, 0.1), 6
"""κ to choose from; noises that are tried with the usual length, as short lengths explain noise,
too; and searches that go on from each other."""

SMOOTHS = 5.0, 100.0
"""l to begin with: coefficients that are power series, or else hardly change but for powers."""

WALKS, WALK, MOVED = 30, 0.5, 2
"""Steps of a random walk from one draw of the numbers to the next; their size, and how many numbers
move at a time."""

BOUNDS = {
    NOISE: (1e-5, 0.3),
    LENGTH: (0.4, 6.0),
    AMP: (0.02, 40.0),
    SMOOTH: (2.0, 200.0),
    ALONE_LENGTH: (0.5, 20.0),
}
"""Of the numbers."""


def choose(u, y, hyper, prior):
    """Return a more probable Hyper, from the last one on, by a pattern search."""
    score, usual = _log_posterior(u, y, prior), Hyper.start(prior, u.shape[1]).logs[LENGTH]
    best = score(hyper)
    for kind in range(N_KERNELS):
        other = hyper._replace(kernel=kind)
        if kind != hyper.kernel and (value := score(other)) > best:
            hyper, best = other, value
    for size in STEPS:
        for place in _free(prior, u.shape[1]):
            for step in (size, -size):
                other, value = _moved(hyper, place, step), -np.inf
                while other is not None and (value := score(other)) > best:
                    hyper, best = other, value
                    other = _moved(hyper, place, step)
    for noise in NOISES:
        logs = hyper.logs.copy()
        logs[[NOISE, LENGTH]] = np.log(noise), usual
        other = hyper._replace(logs=logs)
        if (value := score(other)) > best:
            hyper, best = other, value
    return hyper


def best_of_starts(u, y, prior):
    """Return the most probable Hyper that is found from several starts."""
    score, ends = _log_posterior(u, y, prior), []
    for hyper in _starts(prior, u.shape[1]):
        last = None
        for _ in range(MOST_ROUNDS):
            hyper, last = choose(u, y, hyper, prior), hyper
            if hyper is last:
                break
        ends.append(hyper)
    return max(ends, key=score)


def _starts(prior, d):
    """Return where a choice begins: with each κ, which hardly matters if f is exact, or each l."""
    start = Hyper.start(prior, d)
    if not prior.n_held:
        return [start._replace(kernel=kind) for kind in range(N_KERNELS)]
    starts = [start._replace(logs=start.logs.copy()) for _ in SMOOTHS]
    for one, smooth in zip(starts, SMOOTHS, strict=True):
        one.logs[SMOOTH] = np.log(smooth)
    return starts


def drawn(process, n, rng):
    """Return n Hypers, draws of their posterior, by a random walk from those of a process."""
    score, prior = _log_posterior(process.u, process.y, process.prior), process.prior
    places, hyper, found = _free(prior, process.u.shape[1]), process.hyper, []
    log_p = score(hyper)
    for k in range(n * WALKS):
        some = rng.choice(places, MOVED, replace=False)
        other = hyper._replace(kernel=rng.choice([hyper.kernel, rng.integers(N_KERNELS)]))
        for place, step in zip(some, WALK * rng.standard_normal(MOVED), strict=True):
            other = other and _moved(other, place, step)
        value = score(other) if other else -np.inf
        if np.log(rng.random()) < value - log_p:
            hyper, log_p = other, value
        if k % WALKS == WALKS - 1:
            found.append(hyper)
    return found


def _log_posterior(u, y, prior):
    """Return the log posterior density of a Hyper, but for a constant, as a function."""
    terms = Terms.of(u, u, prior)
    residual = y + 0.5 * np.sum(u * u, axis=1)
    centres, sds = prior.centre(u.shape[1])

    def score(hyper):
        k = covariance(terms, hyper, prior)
        _add_noise(k, y, hyper)
        factor, failed = lapack.dpotrf(k, lower=1, overwrite_a=1)
        if failed:
            return -np.inf
        half = lapack.dtrtrs(factor, residual, lower=1)[0]
        fit = -0.5 * half @ half - np.log(np.diag(factor)).sum()
        return fit - 0.5 * np.sum(((hyper.logs - centres) / sds) ** 2)

    return score


def _free(prior, d):
    """Return the places of the numbers that count, the noise last: it is what nothing explains."""
    if n_held := prior.n_held:
        of_powers = [EACH + k * d + j for k in (1, 2) for j in range(n_held)]
        return [*range(QUAD, EACH), *of_powers, NOISE]
    return [QUAD, AMP, LENGTH, *range(EACH, EACH + d), NOISE]


def _moved(hyper, place, step):
    """Return a Hyper with another number, None beyond its bounds."""
    logs = hyper.logs.copy()
    logs[place] += step
    low, high = BOUNDS.get(place, (1e-4, 1e4))
    return hyper._replace(logs=logs) if low <= np.exp(logs[place]) <= high else None
