"""Averages over posteriors by quadrature or by importance sampling, without any chain.

Symbols: x the position on the unconstrained scale, π its density, up to a constant.
"""

from typing import NamedTuple

import numpy as np
from problems import exact
from scipy.interpolate import CubicSpline
from scipy.stats import chi2, multivariate_t, norm, qmc

from pymc_kameleon.analysis.zero_variance import control_of_step, controls_of

NU, WIDER, POINTS, REPEATS = 6, 1.3, 2**14, 16
"""Degrees of freedom of the proposal; its covariance over that of the draws; points of a Sobol
sequence, a power of 2; and such sequences, whose differences give the error."""


class Normals(NamedTuple):
    """A posterior as a sum of normals of all but one or two coordinates, given a grid of these.

    Parameters
    ----------
    own : (d,) bool
        Which coordinates are given.
    axes : list of (n,) float64
        Places of each.
    weights, means, variances : (m,), (m, d) and (m, d) float64
        Variances of coordinates that are given are 0.
    """

    own: np.ndarray
    axes: list
    weights: np.ndarray
    means: np.ndarray
    variances: np.ndarray

    def moments(self):
        """Return the Moments."""
        w, m, v = self.weights, self.means, self.variances
        return exact(w @ m, w @ (m**2 + v), w @ (m**4 + 6 * m**2 * v + 3 * v**2))

    def below(self, points):
        """Return the share below each of some points, (k, d) as these."""
        sd = np.sqrt(np.maximum(self.variances, 1e-300))
        found = np.stack([self.weights @ norm.cdf((x - self.means) / sd) for x in points])
        weights = self.weights.reshape([axis.size for axis in self.axes])
        for k, (place, axis) in enumerate(zip(np.flatnonzero(self.own), self.axes, strict=True)):
            others = tuple(j for j in range(len(self.axes)) if j != k)
            cumulative = CubicSpline(axis, weights.sum(axis=others)).antiderivative()
            inside = points[:, place].clip(axis[0], axis[-1])
            found[:, place] = cumulative(inside) / cumulative(axis[-1])
        return found


def by_quadrature(problem, given=("sigma_log__",), within=(-14, 12), to=None):
    """Return the Normals where all but the `given` coordinates are normal, given those.

    `given` are names of one or two value variables that are numbers. `to` returns a matrix by which
    the others are multiplied. `within` is where to look for the `given`.
    """
    own = np.concatenate(
        [np.full(value.size, name in given) for name, value in problem.initial.items()]
    )
    logp, gradient = problem.model.compile_logp(), problem.model.compile_dlogp()
    eye = np.eye(problem.d)[~own]

    def slope(x):
        return gradient(problem.unraveled(x))[~own]

    def conditional(values):
        """Return the log marginal density of the given values, and mean and covariance."""
        x = np.zeros(problem.d)
        x[own] = values
        for _ in range(2):  # the second one takes back what the first one rounds
            here = slope(x)
            precision = here - np.array([slope(x + e) for e in eye])
            x[~own] += np.linalg.solve(precision, here)
        log_density = logp(problem.unraveled(x)) - np.linalg.slogdet(precision)[1] / 2
        a = np.eye(len(eye)) if to is None else to(values)
        return log_density, a @ x[~own], np.diag(a @ np.linalg.inv(precision) @ a.T)

    axes, points, log_w, rest, spread = grid(conditional, [within] * len(given))
    means, variances = np.zeros((2, len(points), problem.d))
    means[:, own], means[:, ~own], variances[:, ~own] = points, rest, spread
    w = np.exp(log_w - log_w.max())
    return Normals(own, axes, w / w.sum(), means, variances)


def grid(conditional, ends, n=(600, 60), rounds=5, depth=30):
    """Return axes, points (m, k) where the density is not negligible, and what is known there.

    Each round looks at where the last one has found it, with as many points.
    """
    for _ in range(rounds):
        axes = [np.linspace(*pair, n[len(ends) - 1]) for pair in ends]
        points = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(ends))
        log_w, means, variances = map(np.array, zip(*map(conditional, points), strict=True))
        high = points[log_w > log_w.max() - depth]
        step = np.array([axis[1] - axis[0] for axis in axes])
        ends = np.stack([high.min(axis=0) - step, high.max(axis=0) + step], axis=1)
    return axes, points, log_w, means, variances


def by_importance(density, x, points):
    """Return means of x, of x² and of x < each of some points, and their standard errors.

    By importance sampling from Student's t, at randomised Sobol points, with control variates by
    gradients. For any posterior of few parameters.

    Parameters
    ----------
    density : callable
        Takes positions (n, d), and returns log π (n,) and its gradient (n, d).
    x : (n, d) float64
        Draws, which say where to look.
    points : (k, d) float64
    """
    d = x.shape[1]
    mean, covariance = x.mean(axis=0), np.cov(x.T)
    factor = np.linalg.cholesky(covariance * WIDER * (NU - 2) / NU)
    proposal = multivariate_t(mean, factor @ factor.T, NU)
    parts = []
    for seed in range(REPEATS):
        u = qmc.Sobol(d + 1, seed=seed).random(POINTS).clip(1e-12, 1 - 1e-12)
        radius = np.sqrt(NU / chi2(NU).ppf(u[:, -1]))
        position = mean + radius[:, None] * norm.ppf(u[:, :-1]) @ factor.T
        logp, gradient = density(position)
        parts.append((position, gradient, logp - proposal.logpdf(position)))
    position, gradient, log_weight = (np.stack(part) for part in zip(*parts, strict=True))
    weight = np.exp(np.nan_to_num(log_weight, nan=-np.inf) - np.nanmax(log_weight))
    gradient = np.where(weight[..., None] > 0, gradient, 0.0)
    sd = np.sqrt(np.diag(covariance))
    u, s = (position - mean) / sd, gradient @ covariance / sd
    below = [(position < point) - control_of_step(u, s, (point - mean) / sd) for point in points]
    f = np.concatenate([position, position**2, *below], axis=2)
    c = controls_of(position, gradient).values
    flat_c, flat_f, w = (part.reshape(-1, *part.shape[2:]) for part in (c, f, weight))
    scaled_c, scaled_f = w[:, None] * flat_c, w[:, None] * (flat_f - w @ flat_f / w.sum())
    theta = np.linalg.lstsq(scaled_c.T @ scaled_c, scaled_c.T @ scaled_f, rcond=1e-12)[0]
    means = np.einsum("rn,rnq->rq", weight, f - c @ theta) / weight.sum(axis=1)[:, None]
    return means.mean(axis=0), means.std(axis=0, ddof=1) / np.sqrt(REPEATS)
