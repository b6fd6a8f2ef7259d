"""Proposals that are drawn in a reproducing kernel Hilbert space [KAM], and kernels k(x, z).

Points z are stored as the columns of (d, n) arrays: rows are contiguous, so that loops vectorise.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import fast_jit, jit

GAUSSIAN, MATERN, LINEAR = range(3)
"""Families of kernels."""


class Kernel(NamedTuple):
    """A kernel as compiled code takes it.

    With r = |x − z|, σ the bandwidth, NaN until it is known, v the order and u = √(2v) r/σ, they
    are

    * Gaussian, exp(−r²/2σ²);
    * Matérn, M_v(u) with M_a(u) = 2^{1−a}/Γ(a) u^a K_a(u), 0 from √u = `reach` on;
    * linear, xᵀz.

    The table (n + 1, 2) has M_{v−1} and its derivative by √u, evenly spaced in √u.
    """

    family: int
    order: float
    reach: float
    table: np.ndarray
    bandwidth: np.ndarray


@fast_jit
def interpolate(kernel, r2, n):
    """Turn squared distances r² into M_{v−1}(u), by cubic interpolation in the table."""
    size = kernel.table.shape[0] - 1
    unit = kernel.reach / size
    stretch = np.sqrt(2.0 * kernel.order) / kernel.bandwidth[0]
    for i in range(n):
        position = np.sqrt(stretch * np.sqrt(r2[i])) / unit
        if not position < size:
            r2[i] = 0.0
            continue
        k = int(position)
        t = position - k
        left, right = kernel.table[k], kernel.table[k + 1]
        s = 1.0 - t
        r2[i] = s * s * ((1.0 + 2.0 * t) * left[0] + t * unit * left[1])
        r2[i] += t * t * ((3.0 - 2.0 * t) * right[0] + (t - 1.0) * unit * right[1])


@fast_jit
def gradient_weights(kernel, r2, n):
    """Turn r² into 2c(r), where ∇ₓk(x, z) = c(|x − z|)(z − x).

    The linear kernel's gradient is z; z − x instead changes nothing once the mean over z is taken
    off, and loses no digits far from the origin.
    """
    precision = 1.0 / (kernel.bandwidth[0] * kernel.bandwidth[0])
    if kernel.family == GAUSSIAN:
        for i in range(n):
            r2[i] = 2.0 * precision * np.exp(-0.5 * precision * r2[i])
    elif kernel.family == MATERN:
        interpolate(kernel, r2, n)
        for i in range(n):
            r2[i] *= 2.0 * precision * kernel.order / (kernel.order - 1.0)
    else:
        for i in range(n):
            r2[i] = 2.0


@fast_jit
def squared_distances(z, n, x, r2):
    """Write |x − z_i|² of the first n columns of z into `r2`."""
    for i in range(n):
        r2[i] = 0.0
    for k in range(x.size):
        for i in range(n):
            v = z[k, i] - x[k]
            r2[i] += v * v


@fast_jit
def kernel_covariance(kernel, z, m, x, covariance, v):
    """Write S(x) = M H Mᵀ [KAM, proposition 2] into `covariance` (d, d).

    M = 2[∇ₓk(x, z₁) … ∇ₓk(x, z_m)] and H = I − 1 1ᵀ/m, so with v_i = 2c_i(z_i − x), S = Σ v_i v_iᵀ
    − (Σ v_i)(Σ v_i)ᵀ/m. H is never formed. Points are the first m columns of z (d, n); `v` (d + 1,
    n) is scratch.
    """
    d = x.size
    weight = v[d]
    squared_distances(z, m, x, weight)
    gradient_weights(kernel, weight, m)
    for k in range(d):
        mean = 0.0
        for i in range(m):
            v[k, i] = weight[i] * (z[k, i] - x[k])
            mean += v[k, i] / m
        for i in range(m):
            v[k, i] -= mean
        for j in range(k + 1):
            s = 0.0
            for i in range(m):
                s += v[k, i] * v[j, i]
            covariance[k, j] = s
            covariance[j, k] = s


@jit(fast=True, allocates=True)
def centred_gram(bandwidth, z, m):
    """Return HKH (m, m), with K a Gaussian kernel's values at the first m columns of z."""
    gram, x = np.empty((m, m)), np.empty(z.shape[0])
    precision = 1.0 / (bandwidth * bandwidth)
    for j in range(m):
        row = gram[j]
        for k in range(x.size):
            x[k] = z[k, j]
        squared_distances(z, m, x, row)
        for i in range(m):
            row[i] = np.exp(-0.5 * precision * row[i])
    means = np.zeros(m)
    for j in range(m):
        for i in range(m):
            means[j] += gram[j, i] / m
    total = means.mean()
    for j in range(m):
        for i in range(m):
            gram[j, i] += total - means[i] - means[j]
    return gram


@jit(allocates=True)
def median_distance(z, m, n_pairs):
    """Median of positive distances between columns of z, of at most `n_pairs`; 0 without any."""
    distances = np.empty(n_pairs)
    n = 0
    for lag in range(1, m):
        for i in range(m - lag):
            if n == n_pairs:
                break
            s = 0.0
            for k in range(z.shape[0]):
                v = z[k, i] - z[k, i + lag]
                s += v * v
            if s > 0.0:
                distances[n] = np.sqrt(s)
                n += 1
    return np.median(distances[:n]) if n > 0 else 0.0
