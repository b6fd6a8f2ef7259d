"""A factor L with which proposals take the shape of the target.

It is lower triangular, (d, d); or (d, 1), its diagonal, where nothing else is learned.
"""

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import multiply_lower, multiply_lower_transposed


def diagonal_factor(scales, is_dense):
    """Return diag(scales), as a matrix that may become triangular or as its diagonal."""
    return np.diag(scales) if is_dense else scales[:, None].copy()


@jit
def is_diagonal(factor):
    """Whether L is stored as its diagonal; in one dimension both are the same."""
    return factor.shape[1] < factor.shape[0]


@jit
def multiply(factor, v, out):
    """Write L v into `out`, which must not be `v`."""
    if is_diagonal(factor):
        for i in range(v.size):
            out[i] = factor[i, 0] * v[i]
    else:
        multiply_lower(factor, v, out)


@jit
def multiply_transposed(factor, v, out):
    """Write Lᵀ v into `out`, which must not be `v`."""
    if is_diagonal(factor):
        multiply(factor, v, out)
    else:
        multiply_lower_transposed(factor, v, out)
