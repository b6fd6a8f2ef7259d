"""Clusters of points, as a mixture of normals.

Symbols: K clusters, cluster k with mean μ_k, covariance L_k L_kᵀ, weight w_k, and responsibility
r(k|x) ∝ w_k N(x; μ_k, L_k L_kᵀ).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import argmax, log_determinant, solve_lower, squared_norm

MOST_MODES = 30
"""Clusters that are kept at most, the largest."""


class Clusters(NamedTuple):
    """The modes that were found."""

    n: integers(1)  # K
    log_weights: floats(MOST_MODES)
    means: floats(MOST_MODES, "d")
    factors: floats(MOST_MODES, "d", "d")


@jit
def nearest_cluster(clusters, x, log_r, scaled):
    """Return the cluster that is most responsible for x."""
    responsibilities(clusters, x, log_r, scaled)
    return argmax(log_r[: clusters.n[0]])


@jit
def responsibilities(clusters, x, log_r, scaled):
    """Write log r(k|x) of all clusters."""
    n = clusters.n[0]
    largest = -np.inf
    for i in range(n):
        for k in range(x.size):
            scaled[k] = x[k] - clusters.means[i, k]
        factor = clusters.factors[i]
        solve_lower(factor, scaled, scaled)
        log_r[i] = clusters.log_weights[i] - 0.5 * squared_norm(scaled) - log_determinant(factor)
        largest = max(largest, log_r[i])
    total = 0.0
    for i in range(n):
        total += np.exp(log_r[i] - largest)
    for i in range(n):
        log_r[i] -= largest + np.log(total)


@jit
def draw_index(log_r, k, rng):
    """Draw from probabilities exp(log_r[:k])."""
    left = rng.random()
    for i in range(k - 1):
        left -= np.exp(log_r[i])
        if left < 0.0:
            return i
    return k - 1
