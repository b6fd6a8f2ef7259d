"""Linear algebra of approximations: factors, whitened coordinates, distances."""

from functools import cache

import numpy as np
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController

LEAST_JITTER = 1e-14
"""Share of the mean variance that is added first where rounding forbids a factor; then tenfold."""


@cache
def linear_algebra():
    """Return what limits its threads; to look for its libraries takes 3 ms."""
    return ThreadpoolController()


def factorised(k):
    """Return the lower factor of K, with as little added to its diagonal as rounding needs.

    K is symmetric, and may be overwritten. A LinAlgError says that it is not finite.
    """
    diagonal = np.diag(k).copy()
    jitter = LEAST_JITTER * diagonal.mean()
    while np.isfinite(jitter):
        factor, failed = lapack.dpotrf(k.T, lower=1)  # its transpose, as LAPACK stores it
        if not failed:
            return factor
        np.fill_diagonal(k, diagonal + jitter)
        jitter *= 10
    raise np.linalg.LinAlgError("The covariance is not finite.")


def cholesky(covariance):
    """Return the factor of a covariance, of correlations that are `factorised`."""
    scales = np.sqrt(np.diag(covariance))
    return scales[:, None] * factorised(covariance / np.outer(scales, scales))


def lower_of(factor):
    """Return the lower triangular factor, of positive diagonal, of the same covariance."""
    lower = np.linalg.qr(factor.T, mode="r").T
    return lower * np.where(np.diag(lower) < 0, -1.0, 1.0)


def whitened(points, mean, factor):
    """Return the coordinates u of points (n, d), x = mean + factor u."""
    return np.linalg.solve(factor, (points - mean).T).T


def squared_distances(a, b):
    """Return |a_i − b_j|² of rows."""
    squares = np.sum(a * a, axis=1)[:, None] + np.sum(b * b, axis=1)
    squares -= 2 * a @ b.T
    return np.maximum(squares, 0, out=squares)
