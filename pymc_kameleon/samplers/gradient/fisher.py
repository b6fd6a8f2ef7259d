"""The factor that whitens both a target and its gradients, from pairs of positions and gradients.

For a normal target with covariance Σ the gradients have covariance Σ⁻¹, so Σ is the geometric mean
of the positions' covariance and the inverse of the gradients'. Both have the same noise, which
cancels: some d pairs are enough, where the covariance alone needs many times more.

Symbols: k pairs (x, g) of d coordinates; vx, vg their variances; s the scales √(vx/vg)^½; A and B
the standardised positions (x − mean)/s and gradients (g − mean)s; Cx and Cg their second moments.
"""

import numpy as np

from pymc_kameleon.core.factor import is_diagonal
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import cholesky, copy, geometric_mean, second_moments

SMOOTH = 0.1
"""Least vx·vg for which the gradient is believed: it is at least 1 for a smooth density [Cramér-
Rao], and tends to 0 where a density ends abruptly."""

SMOOTH_EARLY = 1e-8
"""The same while the pairs may cover a small part of the density only: s is at most 100 √vx."""


@jit(allocates=True)
def learn_factor(pairs, is_early, factor, information):
    """Set L such that x ↦ L⁻¹x whitens positions and gradients of the pairs alike.

    `pairs` (k, 2d) are positions, and gradients beside them; early ones may cover a part of the
    target only. L is (d, d), or its diagonal (d, 1), and is diagonal if moments are not finite.
    `information` (d,) becomes vx·vg.
    """
    k, d = pairs.shape[0], pairs.shape[1] // 2
    a, b, scales = np.empty((k, d)), np.empty((k, d)), np.empty(d)
    least = SMOOTH_EARLY if is_early else SMOOTH
    standardise(pairs, least, a, b, scales, information)
    if is_diagonal(factor):
        copy(scales, factor[:, 0])
        return
    cx, cg = np.empty((d, d)), np.empty((d, d))
    ridge = 0.05 / (0.05 + k * k)
    regularised_moments(a, ridge, cx)
    regularised_moments(b, ridge, cg)
    for i in range(d):  # where the gradient says nothing, let Cg be 1 as Cx is
        cg[i, i] += max(0.0, 1.0 - information[i] / least)
    if not (geometric_mean(cx, cg) and cholesky(cx, factor)):
        for i in range(d):
            for j in range(i + 1):
                factor[i, j] = 1.0 if i == j else 0.0
    for i in range(d):
        for j in range(i + 1):
            factor[i, j] *= scales[i]


@jit
def standardise(pairs, least, a, b, scales, information):
    """Write A and B (k, d), s and vx·vg (d,); s² is vx where vx·vg is less than `least`."""
    k, d = a.shape
    for i in range(d):
        mean_x = mean_g = vx = vg = 0.0
        for r in range(k):
            mean_x += pairs[r, i] / k
            mean_g += pairs[r, d + i] / k
        for r in range(k):
            x, g = pairs[r, i] - mean_x, pairs[r, d + i] - mean_g
            vx += x * x / k
            vg += g * g / k
        information[i] = vx * vg
        variance = np.sqrt(vx / vg) if vx * vg >= least else vx
        scale = np.sqrt(min(max(variance, 1e-20), 1e20)) if vx > 0.0 else 1.0
        for r in range(k):
            a[r, i] = (pairs[r, i] - mean_x) / scale
            b[r, i] = (pairs[r, d + i] - mean_g) * scale
        scales[i] = scale


@jit
def regularised_moments(rows, ridge, out):
    """Write the rows' second moments, mixed with the multiple of I that has their trace."""
    second_moments(rows, out)
    d = out.shape[0]
    trace = 0.0
    for i in range(d):
        trace += out[i, i]
    for i in range(d):
        for j in range(i + 1):
            out[i, j] *= 1.0 - ridge
        out[i, i] += ridge * trace / d + 1e-12
