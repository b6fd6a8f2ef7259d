"""Small dense linear algebra on lower triangular factors, L (d, d) in C order.

Plain loops over contiguous rows: below some hundred dimensions they are faster than BLAS, whose
threads would cost far more than they bring.
"""

import numpy as np

from pymc_kameleon.core.jit import fast_jit, jit


@jit
def copy(source, out):
    """Write a vector into another; numba compiles this far faster than ``out[:] = source``."""
    for i in range(source.size):
        out[i] = source[i]


@jit
def copy_matrix(source, out):
    """Write a matrix into another."""
    for i in range(source.shape[0]):
        copy(source[i], out[i])


@jit
def sum_of(v):
    """Sum. NumPy's sum, mean and argmax take numba long to compile."""
    s = 0.0
    for i in range(v.size):
        s += v[i]
    return s


@jit
def argmax(v):
    """Place of the first one of the largest."""
    k = 0
    for i in range(1, v.size):
        if v[i] > v[k]:
            k = i
    return k


@fast_jit
def cholesky(a, factor):
    """Write L with LLᵀ = a into `factor`; return whether `a` is positive definite."""
    d = a.shape[0]
    for i in range(d):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            if j < i:
                factor[i, j] = s / factor[j, j]
            elif s > 0.0 and s < np.inf:
                factor[i, i] = np.sqrt(s)
            else:
                return False
    return True


@fast_jit
def multiply_lower(factor, v, out):
    """Write L v into `out`, which must not be `v`."""
    for i in range(v.size):
        s = 0.0
        for k in range(i + 1):
            s += factor[i, k] * v[k]
        out[i] = s


@fast_jit
def solve_lower(factor, b, out):
    """Write L⁻¹ b into `out`, which may be `b`."""
    for i in range(b.size):
        s = b[i]
        for k in range(i):
            s -= factor[i, k] * out[k]
        out[i] = s / factor[i, i]


@fast_jit
def solve_lower_transposed(factor, b, out):
    """Write L⁻ᵀ b into `out`, which may be `b`."""
    d = b.size
    for i in range(d):
        out[i] = b[i]
    for k in range(d - 1, -1, -1):
        out[k] /= factor[k, k]
        for i in range(k):
            out[i] -= factor[k, i] * out[k]


@fast_jit
def rank_one_update(factor, v):
    """Turn L into the factor of LLᵀ + vvᵀ in O(d²); `v` is overwritten."""
    d = v.size
    for k in range(d):
        r = np.hypot(factor[k, k], v[k])
        c = r / factor[k, k]
        s = v[k] / factor[k, k]
        factor[k, k] = r
        for i in range(k + 1, d):
            factor[i, k] = (factor[i, k] + s * v[i]) / c
            v[i] = c * v[i] - s * factor[i, k]


@jit
def log_determinant(factor):
    """Log |L|, half the log determinant of LLᵀ."""
    s = 0.0
    for i in range(factor.shape[0]):
        s += np.log(factor[i, i])
    return s


@fast_jit
def squared_norm(v):
    """|v|²."""
    s = 0.0
    for i in range(v.size):
        s += v[i] * v[i]
    return s


@jit(fast=True, allocates=True)
def leading_eigenvectors(a, vectors, values, n_iterations=100):
    """Write the largest eigenvalues of a (m, m) ≥ 0 and unit eigenvectors, by subspace iteration.

    `values` (n,) decrease; of `vectors` (n, ≥ m) the first m columns are written, and rows beyond
    m, or without an eigenvalue, are arbitrary. Between eigenvalues that hardly differ the vectors
    may still be mixed: the residual |av − λv| is at most about λ₁/(e · n_iterations). LAPACK's
    threads would cost more than they bring.
    """
    m, n = a.shape[0], values.size
    product = np.empty(m)
    for j in range(n):
        for i in range(m):  # any start that is orthogonal to no eigenvector
            vectors[j, i] = np.sin(1.0 + (j + 1.0) * (i + 1.0))
    for _ in range(n_iterations):
        for j in range(n):
            v = vectors[j]
            for i in range(m):
                s = 0.0
                for k in range(m):
                    s += a[i, k] * v[k]
                product[i] = s
            for other in range(j):
                s = 0.0
                for i in range(m):
                    s += vectors[other, i] * product[i]
                for i in range(m):
                    product[i] -= s * vectors[other, i]
            length = 0.0
            for i in range(m):
                length += product[i] * product[i]
            values[j] = np.sqrt(length)
            for i in range(m):
                v[i] = product[i] / values[j] if values[j] > 0.0 else 0.0


@fast_jit
def multiply_lower_transposed(factor, v, out):
    """Write Lᵀ v into `out`, which must not be `v`; row by row, as L is stored."""
    for i in range(v.size):
        s = v[i]
        for k in range(i):
            out[k] += s * factor[i, k]
        out[i] = s * factor[i, i]


@fast_jit
def add_multiple(c, v, out):
    """Add c v to `out`."""
    for i in range(v.size):
        out[i] += c * v[i]


@fast_jit
def second_moments(rows, out):
    """Write the lower triangle of the rows' mean of v vᵀ."""
    k, d = rows.shape
    out[:] = 0.0
    for r in range(k):
        v = rows[r]
        for i in range(d):
            c = v[i] / k
            for j in range(i + 1):
                out[i, j] += c * v[j]


@fast_jit
def invert_positive(a, factor, inverse):
    """Write the lower triangle of a⁻¹; return whether `a` is positive definite.

    Of `a` (d, d) only the lower triangle is read. `factor` is scratch.
    """
    d = a.shape[0]
    if not cholesky(a, factor):
        return False
    for i in range(d):  # L⁻¹ in place of L: row i needs the rows above it
        diagonal = 1.0 / factor[i, i]
        for k in range(i):
            c = factor[i, k]
            factor[i, k] = 0.0
            for j in range(k + 1):
                factor[i, j] -= c * diagonal * factor[k, j]
        factor[i, i] = diagonal
    inverse[:] = 0.0
    for k in range(d):  # L⁻ᵀ L⁻¹
        for i in range(k + 1):
            c = factor[k, i]
            for j in range(i + 1):
                inverse[i, j] += c * factor[k, j]
    return True


@jit(allocates=True)
def geometric_mean(a, b):
    """Turn `a` into the positive definite S with S b S = a; return whether that succeeded.

    That is the geometric mean of a and b⁻¹, which are positive definite, and of which only lower
    triangles are read and written; `b` becomes S⁻¹. Newton's iteration for S and S⁻¹ together
    [Denman & Beavers 1976], scaled such that eight steps do [Byers & Xu 2008]; LAPACK's threads
    would cost more than they bring.
    """
    d = a.shape[0]
    a_inverse, b_inverse, scratch = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    highest = lowest = 0.0  # bounds of the roots of the eigenvalues of ab
    while True:
        if not (invert_positive(a, scratch, a_inverse) and invert_positive(b, scratch, b_inverse)):
            return False
        if highest == 0.0:
            highest = np.sqrt(trace_of_product(a, b))
            lowest = 1.0 / np.sqrt(trace_of_product(a_inverse, b_inverse))
        scale = 1.0 / np.sqrt(highest * lowest)
        for i in range(d):
            for j in range(i + 1):
                a[i, j] = 0.5 * (scale * a[i, j] + b_inverse[i, j] / scale)
                b[i, j] = 0.5 * (scale * b[i, j] + a_inverse[i, j] / scale)
        spread = np.sqrt(highest / lowest)
        if not spread > 1.0 + 1e-7:
            return spread == spread
        highest, lowest = 0.5 * (spread + 1.0 / spread), 1.0


@fast_jit
def trace_of_product(a, b):
    """Trace of ab, for symmetric matrices of which only the lower triangles are read."""
    s = 0.0
    for i in range(a.shape[0]):
        for j in range(i):
            s += 2.0 * a[i, j] * b[i, j]
        s += a[i, i] * b[i, i]
    return s
