"""The factor that whitens both a target and its gradients, from pairs of positions and gradients.

For a normal target with covariance Σ the gradients have covariance Σ⁻¹, so Σ is the geometric mean
of the positions' covariance and the inverse of the gradients'. Both have the same noise, which
cancels: some d pairs are enough, where the covariance alone needs many times more.

Symbols: k pairs (x, g) of d coordinates; vx, vg their variances; s the scales √(vx/vg)^½; A and B
the standardised positions (x − mean)/s and gradients (g − mean)s; Cx and Cg their second moments.
"""

import numpy as np

from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import (
    add_multiple,
    cholesky,
    dot,
    geometric_mean,
    second_moments,
)

SMOOTH = 0.1
"""Least vx·vg for which the gradient is believed: it is at least 1 for a smooth density
[Cramér-Rao], and tends to 0 where the density ends abruptly."""

POWER_STEPS = 10
"""Of the subspace iteration that finds the directions of a low-rank factor."""


@jit
def learn_factor(pairs, factor, information):
    """Set L such that x ↦ L⁻¹x whitens positions and gradients of the pairs alike.

    Parameters
    ----------
    pairs : (k, 2d) float64
        Positions, and gradients beside them.
    factor : Factor
        Output, as it was if it would not be finite.
    information : (d,) float64
        Output: vx·vg.
    """
    k, d = pairs.shape[0], pairs.shape[1] // 2
    a, b, scales = np.empty((k, d)), np.empty((k, d)), np.empty(d)
    standardise(pairs, a, b, scales, information)
    ridge = 0.05 / (0.05 + k**2)
    m = d if factor.scales.size == 0 else factor.basis.shape[0]
    cx, cg = np.zeros((m, m)), np.zeros((m, m))
    chol = np.zeros((m, m))
    if factor.scales.size == 0:
        second_moments(a, cx)
        second_moments(b, cg)
        regularise(cx, ridge)
        regularise(cg, ridge)
        for i in range(d):
            cg[i, i] += max(0.0, 1.0 - information[i] / SMOOTH)
        if not (geometric_mean(cx, cg) and cholesky(cx, chol)):
            for i in range(d):
                chol[i] = 0.0
                chol[i, i] = 1.0
        for i in range(d):
            for j in range(i + 1):
                factor.dense[i, j] = scales[i] * chol[i, j]
        return
    factor.scales[:] = scales
    if m == 0:
        return
    leading_directions(a, factor.basis[: m // 2])
    leading_directions(b, factor.basis[m // 2 :])
    orthonormalise(factor.basis)
    projected = np.empty((k, m))
    project(a, factor.basis, projected)
    second_moments(projected, cx)
    project(b, factor.basis, projected)
    second_moments(projected, cg)
    for i in range(m):
        if cx[i, i] == 0.0 or cg[i, i] == 0.0:  # a direction of no length, or no gradient
            cx[i, i] += 1.0
            cg[i, i] += 1.0
    regularise(cx, ridge)
    regularise(cg, ridge)
    if not (geometric_mean(cx, cg) and cholesky(cx, chol)):
        chol[:] = np.eye(m)
    factor.core[:] = chol


@jit
def standardise(pairs, a, b, scales, information):
    """Write A and B (k, d), s and vx·vg (d,)."""
    k, d = a.shape
    for i in range(d):
        mean_x = mean_g = vx = vg = 0.0
        for r in range(k):
            mean_x += pairs[r, i] / k
            mean_g += pairs[r, d + i] / k
        for r in range(k):
            vx += (pairs[r, i] - mean_x) ** 2 / k
            vg += (pairs[r, d + i] - mean_g) ** 2 / k
        information[i] = vx * vg
        variance = np.sqrt(vx / vg) if vx * vg >= SMOOTH else vx
        scale = np.sqrt(min(max(variance, 1e-20), 1e20)) if vx > 0.0 else 1.0
        for r in range(k):
            a[r, i] = (pairs[r, i] - mean_x) / scale
            b[r, i] = (pairs[r, d + i] - mean_g) * scale
        scales[i] = scale


@jit
def regularise(c, weight):
    """Mix `c` with the multiple of I that has its trace."""
    d = c.shape[0]
    trace = 0.0
    for i in range(d):
        trace += c[i, i]
    for i in range(d):
        for j in range(i + 1):
            c[i, j] *= 1.0 - weight
        c[i, i] += weight * trace / d + 1e-12


@fast_jit
def project(rows, basis, out):
    """Write the coordinates of the rows (k, d) in the basis (m, d) into `out` (k, m)."""
    for r in range(rows.shape[0]):
        for i in range(basis.shape[0]):
            out[r, i] = dot(rows[r], basis[i])


@jit
def leading_directions(rows, basis):
    """Write an orthonormal basis (m, d) of about the space where the rows (k, d) vary most."""
    k, d = rows.shape
    m = basis.shape[0]
    for i in range(m):
        for j in range(d):  # any start that is orthogonal to no direction
            basis[i, j] = np.sin(1.0 + (i + 1.0) * (j + 1.0))
    orthonormalise(basis)
    projected = np.empty((k, m))
    for _ in range(POWER_STEPS):
        project(rows, basis, projected)
        basis[:] = 0.0
        for r in range(k):
            for i in range(m):
                add_multiple(projected[r, i], rows[r], basis[i])
        orthonormalise(basis)


@jit
def orthonormalise(basis):
    """Make the rows orthonormal; those that depend on rows above become zero."""
    for i in range(basis.shape[0]):
        before = np.sqrt(dot(basis[i], basis[i]))
        for _ in range(2):  # once is not enough for what depends almost
            for j in range(i):
                add_multiple(-dot(basis[i], basis[j]), basis[j], basis[i])
        length = np.sqrt(dot(basis[i], basis[i]))
        for j in range(basis.shape[1]):
            basis[i, j] = basis[i, j] / length if length > 1e-10 * before else 0.0
