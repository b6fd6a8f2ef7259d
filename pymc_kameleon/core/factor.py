"""A factor L with which proposals take the shape of the target: dense, or diagonal and low rank."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    add_multiple,
    dot,
    multiply_lower,
    multiply_lower_transposed,
)


class Factor(NamedTuple):
    """L (d, d), in one of two forms; the arrays of the other one are empty.

    Attributes
    ----------
    dense : (d, d) float64
        L itself, lower triangular.
    scales : (d,) float64
        Or L = diag(scales) (I + Bᵀ (C − I) B): orthonormal directions in which it is not diagonal.
    basis : (m, d) float64
        B; rows may be zero. Without rows, L is diagonal.
    core : (m, m) float64
        C, lower triangular.
    """

    dense: np.ndarray
    scales: np.ndarray
    basis: np.ndarray
    core: np.ndarray

    @classmethod
    def diagonal(cls, scales, rank=None):
        """Begin with diag(scales); dense without a rank, the number of directions."""
        d = scales.size
        if rank is None:
            return cls(np.diag(scales), np.zeros(0), np.zeros((0, d)), np.zeros((0, 0)))
        return cls(np.zeros((0, 0)), scales.copy(), np.zeros((rank, d)), np.eye(rank))


@jit
def multiply(factor, v, out, scratch):
    """Write L v into `out`; `scratch` is (2, m)."""
    if factor.scales.size == 0:
        multiply_lower(factor.dense, v, out)
        return
    d = v.size
    for i in range(d):
        out[i] = v[i]
    if factor.basis.shape[0] > 0:
        for k in range(factor.basis.shape[0]):
            scratch[0, k] = dot(factor.basis[k], v)
        multiply_lower(factor.core, scratch[0], scratch[1])
        for k in range(factor.basis.shape[0]):
            add_multiple(scratch[1, k] - scratch[0, k], factor.basis[k], out)
    for i in range(d):
        out[i] *= factor.scales[i]


@jit
def multiply_transposed(factor, v, out, scratch):
    """Write Lᵀ v into `out`; `scratch` is (2, m)."""
    if factor.scales.size == 0:
        multiply_lower_transposed(factor.dense, v, out)
        return
    for i in range(v.size):
        out[i] = v[i] * factor.scales[i]
    if factor.basis.shape[0] > 0:
        for k in range(factor.basis.shape[0]):
            scratch[0, k] = dot(factor.basis[k], out)
        multiply_lower_transposed(factor.core, scratch[0], scratch[1])
        for k in range(factor.basis.shape[0]):
            add_multiple(scratch[1, k] - scratch[0, k], factor.basis[k], out)
