"""The factor that whitens both a target and its gradients, from pairs of positions and gradients.

For a normal target with covariance Σ the gradients have covariance Σ⁻¹, so Σ is the geometric mean
of the positions' covariance and the inverse of the gradients'. Both have the same noise, which
cancels: some d pairs are enough, where the covariance alone needs many times more.

Symbols: k pairs (x, g) of d coordinates; vx, vg their variances; s the scales √(vx/vg)^½; A and B
the standardised positions (x − mean)/s and gradients (g − mean)s; Cx and Cg their second moments.
"""

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    add_multiple,
    cholesky,
    copy,
    dot,
    geometric_mean,
    second_moments,
)

SMOOTH = 0.1
"""Least vx·vg for which the gradient is believed: it is at least 1 for a smooth density [Cramér-
Rao], and tends to 0 where a density ends abruptly."""

SMOOTH_EARLY = 1e-8
"""The same while the pairs may cover a small part of the density only: s is at most 100 √vx."""

POWER_STEPS = 10
"""Of the subspace iteration that finds the directions of a low-rank factor."""


@jit(allocates=True)
def learn_factor(pairs, is_early, factor, information):
    """Set L such that x ↦ L⁻¹x whitens positions and gradients of the pairs alike.

    Parameters
    ----------
    pairs : (k, 2d) float64
        Positions, and gradients beside them.
    is_early : bool
        Whether they may cover only a part of the target, on the way to it.
    factor : Factor
        Output; without correlations if they are not finite.
    information : (d,) float64
        Output: vx·vg.
    """
    k, d = pairs.shape[0], pairs.shape[1] // 2
    a, b, scales = np.empty((k, d)), np.empty((k, d)), np.empty(d)
    least = SMOOTH_EARLY if is_early else SMOOTH
    standardise(pairs, least, a, b, scales, information)
    is_dense = factor.scales.size == 0
    if not is_dense:
        copy(scales, factor.scales)
        find_directions(a, b, factor.basis)
        a, b = project(a, factor.basis), project(b, factor.basis)
    core = factor.dense if is_dense else factor.core
    m = core.shape[0]
    if m == 0:
        return
    cx, cg = np.empty((m, m)), np.empty((m, m))
    ridge = 0.05 / (0.05 + k * k)
    moments(a, ridge, cx)
    moments(b, ridge, cg)
    for c in range(d):  # where the gradient says nothing, let Cg be 1 as Cx is
        lack = max(0.0, 1.0 - information[c] / least)
        if is_dense:
            cg[c, c] += lack
        elif lack > 0.0:
            for i in range(m):
                for j in range(i + 1):
                    cg[i, j] += lack * factor.basis[i, c] * factor.basis[j, c]
    if not (geometric_mean(cx, cg) and cholesky(cx, core)):
        for i in range(m):
            for j in range(i + 1):
                core[i, j] = 1.0 if i == j else 0.0
    if is_dense:
        for i in range(d):
            for j in range(i + 1):
                core[i, j] *= scales[i]


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
def moments(rows, ridge, out):
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


@jit
def find_directions(a, b, basis):
    """Choose an orthonormal basis (m, d): half of it where A varies most, half where B does."""
    half = basis.shape[0] // 2
    for i in range(basis.shape[0]):
        for j in range(basis.shape[1]):  # any start that is orthogonal to no direction
            basis[i, j] = np.sin(1.0 + (i + 1.0) * (j + 1.0))
    for step in range(2 * POWER_STEPS):
        rows, start = (a, 0) if step < POWER_STEPS else (b, half)
        power_step(rows, basis[start : start + half])
        orthonormalise(basis, start, start + half)


@jit(allocates=True)
def power_step(rows, basis):
    """Multiply each direction by the second moments of the rows (k, d)."""
    for i in range(basis.shape[0]):
        product = np.zeros(basis.shape[1])
        for r in range(rows.shape[0]):
            add_multiple(dot(rows[r], basis[i]), rows[r], product)
        copy(product, basis[i])


@jit
def orthonormalise(basis, start, stop):
    """Make rows orthonormal to all above them; those that depend on these become zero."""
    for i in range(start, stop):
        before = np.sqrt(dot(basis[i], basis[i]))
        for _ in range(2):  # once is not enough for what depends almost
            for j in range(i):
                add_multiple(-dot(basis[i], basis[j]), basis[j], basis[i])
        length = np.sqrt(dot(basis[i], basis[i]))
        for j in range(basis.shape[1]):
            basis[i, j] = basis[i, j] / length if length > 1e-10 * before else 0.0


@jit(allocates=True)
def project(rows, basis):
    """Return the coordinates of the rows (k, d) in the basis (m, d)."""
    out = np.empty((rows.shape[0], basis.shape[0]))
    for r in range(rows.shape[0]):
        for i in range(basis.shape[0]):
            out[r, i] = dot(rows[r], basis[i])
    return out
