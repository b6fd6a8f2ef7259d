"""Covariance of a proposal that is drawn in a reproducing kernel Hilbert space [KAM]."""

import numpy as np

from pymc_kameleon.core.jit import fast_jit, jit


@fast_jit
def kernel_covariance(z, m, bandwidth, x, covariance, v):
    """Write S(x) = M H Mᵀ for the Gaussian kernel [KAM, proposition 2] into `covariance`.

    M = 2[∇ₓk(x, z₁) … ∇ₓk(x, z_m)] and H = I − 11ᵀ/m, so with v_i = 2 exp(−r_i²/2σ²)/σ² (z_i − x),
    S = Σ v_i v_iᵀ − (Σ v_i)(Σ v_i)ᵀ/m. H is never formed.

    Parameters
    ----------
    z : (d, n) float64
        Points in the first m columns: rows are contiguous, so that the loops vectorise.
    m : int
    bandwidth : float
        σ of the kernel.
    x : (d,) float64
    covariance : (d, d) float64
        Output.
    v : (d + 1, n) float64
        Work array.
    """
    d = x.size
    weight = v[d]
    for i in range(m):
        weight[i] = 0.0
    for k in range(d):
        for i in range(m):
            v[k, i] = z[k, i] - x[k]
            weight[i] += v[k, i] * v[k, i]
    precision = 1.0 / (bandwidth * bandwidth)
    for i in range(m):
        weight[i] = 2.0 * precision * np.exp(-0.5 * precision * weight[i])
    for k in range(d):
        mean = 0.0
        for i in range(m):
            v[k, i] *= weight[i]
            mean += v[k, i] / m
        for i in range(m):
            v[k, i] -= mean
        for j in range(k + 1):
            s = 0.0
            for i in range(m):
                s += v[k, i] * v[j, i]
            covariance[k, j] = s
            covariance[j, k] = s


@jit
def median_distance(z, m, n_pairs):
    """Median distance between the first m columns of z (d, n), which are in random order.

    Estimated from at most `n_pairs` pairs of columns, zeros left out; 0 if there are none.
    """
    distances = np.empty(n_pairs)
    n = 0
    for lag in range(1, m):
        for i in range(m - lag):
            if n == n_pairs:
                break
            s = 0.0
            for k in range(z.shape[0]):
                s += (z[k, i] - z[k, i + lag]) ** 2
            if s > 0.0:
                distances[n] = np.sqrt(s)
                n += 1
    return np.median(distances[:n]) if n > 0 else 0.0
