"""Averages over posteriors by quadrature or by importance sampling, without any chain.

Symbols: x the position on the unconstrained scale, π its density, up to a constant.
"""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.stats import chi2, multivariate_t, norm, qmc

from pymc_kameleon.analysis.zero_variance import control_of_step, controls_of

LOW, HIGH = 40.0, 12.0
"""Standard deviations below and above the mean that quadrature reaches: log τ may be far below."""

STEPS = 20, 5
"""Points of the grid for each standard deviation, with one coordinate of it and with two."""

NU, WIDER, POINTS, REPEATS = 6, 1.3, 2**14, 16
"""Degrees of freedom of the proposal; its covariance over that of the draws; points of a Sobol
sequence, a power of 2; and such sequences, whose differences give the error."""


def by_quadrature(density, x, grid, points):
    """Return the means of x, of x², and of x < each of some points, side by side.

    Parameters
    ----------
    density : callable
        Takes positions (n, d), and returns log π (n,) and its gradient (n, d).
    x : (n, d) float64
        Draws, which say where to look.
    grid : list of int
        One or two coordinates. Given these, all others are normal, so that a few gradients tell
        their mean and covariance.
    points : (k, d) float64
    """
    d = x.shape[1]
    mean, scale, rest = x.mean(axis=0), x.std(axis=0), np.setdiff1d(np.arange(d), grid)
    steps = STEPS[len(grid) - 1]
    low = LOW if len(grid) == 1 else HIGH
    axes = [mean[k] + scale[k] * np.arange(-low * steps, HIGH * steps + 1) / steps for k in grid]
    places = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(grid))
    log_weight, centre, variance = (np.empty((len(places), n)) for n in (1, d, d))
    for i, place in enumerate(places):
        start = mean.copy()
        start[grid] = place
        steps_of_rest = np.vstack([np.zeros(d), np.eye(d)[rest] * scale[rest][:, None]])
        _, g = density(start + steps_of_rest)
        precision = -(g[1:, rest] - g[0, rest]) / scale[rest][:, None]
        inverse = np.linalg.inv(precision)
        start[rest] += inverse @ g[0, rest]
        log_weight[i] = density(start[None])[0] - np.linalg.slogdet(precision)[1] / 2
        centre[i], variance[i] = start, 0.0
        variance[i, rest] = np.diag(inverse)
    weight = np.exp(log_weight[:, 0] - log_weight.max())
    weight /= weight.sum()
    sd = np.sqrt(np.maximum(variance, 1e-300))
    below = np.stack([weight @ norm.cdf((point - centre) / sd) for point in points])
    for own, k in enumerate(grid):
        others = tuple(j for j in range(len(grid)) if j != own)
        marginal = weight.reshape([len(axis) for axis in axes]).sum(axis=others)
        cumulative = CubicSpline(axes[own], marginal).antiderivative()
        below[:, k] = cumulative(points[:, k]) / cumulative(axes[own][-1])
    return np.concatenate([weight @ centre, weight @ (centre**2 + variance), below.ravel()])


def by_importance(density, x, points):
    """Return the same means, and their standard errors, for any posterior of few parameters.

    By importance sampling from Student's t, at randomised Sobol points, with control variates by
    gradients. All else is as above.
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
