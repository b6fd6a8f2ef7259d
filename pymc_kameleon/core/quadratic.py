"""Quadratics, by their coefficients: of 1, of u_i, and of u_i²/2 and u_i u_j, i > j."""

import numpy as np


def n_coefficients(d):
    """Return how many coefficients a quadratic in d coordinates has."""
    return (d + 1) * (d + 2) // 2


def terms(u):
    """Return the columns 1, u_i, and u_i²/2 and u_i u_j of rows u (n, d)."""
    i, j = np.tril_indices(u.shape[1])
    second = np.where(i == j, 0.5, 1.0) * u[:, i] * u[:, j]
    return np.column_stack([np.ones(len(u)), u, second])


def by_order(numbers, d):
    """Return a number for each coefficient, of three for the constant, the u_i and the others."""
    return np.repeat(numbers, [1, d, d * (d + 1) // 2])


def gradient_and_hessian(coefficients, d):
    """Return the gradient at 0 (d,), and the Hessian (d, d)."""
    hessian = np.zeros((d, d))
    hessian[np.tril_indices(d)] = coefficients[d + 1 :]
    return coefficients[1 : d + 1], hessian + np.tril(hessian, -1).T
