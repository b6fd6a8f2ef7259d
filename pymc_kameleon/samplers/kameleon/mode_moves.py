"""Moves between modes: jumps, mirror images, and differences of points of the past.

The jumps are in the spirit of Pompe, Holmes & Łatuszyński, "A framework for adaptive MCMC targeting
multimodal distributions", Annals of Statistics 48 (2020).

Symbols: K clusters of the past, cluster k with mean μ_k, covariance L_k L_kᵀ, weight w_k, and
responsibility r(k|x) ∝ w_k N(x; μ_k, L_k L_kᵀ); G a symmetry; z, C and γ as in KAM.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.modes import MOST_MODES
from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    argmax,
    log_determinant,
    multiply_lower,
    solve_lower,
    squared_norm,
)
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon import kam

ALL_DIFFERENCE, WHITENED_DIFFERENCE, SINGLE_DIFFERENCE, GLOBAL_WALK = range(4)
"""Moves: differences in all coordinates, in one of Cx, in one of x; walks with the covariance Σ."""
WIDE_KAM, LOCAL_MOVE, JUMP, MIRROR = range(4, 8)
"""KAM moves with a wide γ; those that tune a scale; jumps; mirror images."""

VALLEY_DEPTH = 3.0
"""Depth from which on a valley separates two modes: a local sampler crosses lesser ones."""


class Clusters(NamedTuple):
    """The modes that were found."""

    n: integers(1)  # K
    log_weights: floats(MOST_MODES)
    means: floats(MOST_MODES, "d")
    factors: floats(MOST_MODES, "d", "d")


class Work(NamedTuple):
    """Scratch: KAM's, log r(k|x), and the last move."""

    kam: kam.Work
    log_r: floats(MOST_MODES)
    move: integers(1)


@jit(inlined=False)
def accept_derived(target, state, parameters, work, log_hastings, rng):
    """Accept or reject the proposal in `work`; derive anew what KAM needs where it is accepted."""
    y = work.kam.walk.y
    logp_y = log_density(target, y)
    accept_prob, accepted = accept(target, state, y, logp_y, log_hastings, rng)
    if accepted:
        kam.derived(state, parameters.kam, work.kam)
    return accept_prob, accepted


@jit
def walk_step(target, state, parameters, scale, factor, work, rng):
    """Make a step of a random walk, x + scale · factor ξ."""
    walk = work.kam.walk
    normal_step(scale, factor, walk.xi, walk.step, rng)
    for i in range(state.x.size):
        walk.y[i] = state.x[i] + walk.step[i]
    return accept_derived(target, state, parameters, work, 0.0, rng)


@jit
def jump(target, state, parameters, work, rng):
    """Propose y = μ_j + L_j L_i⁻¹(x − μ_i), with i ~ r(·|x) and j ≠ i drawn by v_j = w_j + 1/K.

    An involution on (x, i, j) with Jacobian |L_j|/|L_i|, accepted with
    π(y) r(j|y) q(i|j) |L_j| / (π(x) r(i|x) q(j|i) |L_i|), where q(j|i) = v_j/(Σ_k v_k − v_i).
    """
    clusters, walk = parameters.clusters, work.kam.walk
    n, xi, step, y = clusters.n[0], walk.xi, walk.step, walk.y
    responsibilities(clusters, state.x, work.log_r, step)
    i = draw_index(work.log_r, n, rng)
    j, log_hastings = draw_other(clusters.log_weights, i, n, rng)
    log_hastings += log_determinant(clusters.factors[j]) - log_determinant(clusters.factors[i])
    log_hastings -= work.log_r[i]
    for k in range(state.x.size):
        xi[k] = state.x[k] - clusters.means[i, k]
    solve_lower(clusters.factors[i], xi, xi)
    multiply_lower(clusters.factors[j], xi, y)
    for k in range(state.x.size):
        y[k] += clusters.means[j, k]
    responsibilities(clusters, y, work.log_r, step)
    log_hastings += work.log_r[j]
    return accept_derived(target, state, parameters, work, log_hastings, rng)


@jit
def mirror(target, state, parameters, work, rng):
    """Propose y = Gx with one of the symmetries, each its own inverse, with |det G| = 1."""
    maps, walk, d = parameters.maps, work.kam.walk, state.x.size
    k = int(rng.random() * parameters.n_maps[0])
    for i in range(d):
        walk.y[i] = 0.0
        for j in range(d):
            walk.y[i] += maps[k, i, j] * state.x[j]
    return accept_derived(target, state, parameters, work, 0.0, rng)


@jit
def draw_other(log_weights, i, n, rng):
    """Draw j ≠ i with v_j = w_j + 1/n; return it and log q(i|j) − log q(j|i)."""
    total = 0.0
    for k in range(n):
        total += np.exp(log_weights[k]) + 1.0 / n
    own = np.exp(log_weights[i]) + 1.0 / n
    left = rng.random() * (total - own)
    j = i
    for k in range(n):
        if k != i and left >= 0.0:
            j = k
            left -= np.exp(log_weights[k]) + 1.0 / n
    other = np.exp(log_weights[j]) + 1.0 / n
    return j, np.log(own / (total - other)) - np.log(other / (total - own))


@jit
def difference(target, state, parameters, work, kind, rng):
    """Propose y = x + B(C(z_a − z_b) + γCξ) with a ≠ b, or the same with C and B exchanged.

    B picks all coordinates, or one of x or Cx, as the kind of move has it. Symmetric, as a and b
    are exchangeable.
    """
    subsample, walk = parameters.kam.subsample, work.kam.walk
    z, m, d = subsample.z, subsample.m[0], state.x.size
    gamma = np.exp(subsample.shape.log_scale[0])
    a = int(rng.random() * m)
    b = (a + 1 + int(rng.random() * (m - 1))) % m
    only = int(rng.random() * d)
    for i in range(d):
        walk.xi[i] = 0.0
        if kind != WHITENED_DIFFERENCE or only == i:
            walk.xi[i] = z[i, a] - z[i, b] + gamma * rng.standard_normal()
    multiply_lower(subsample.shape.factor, walk.xi, walk.step)
    for i in range(d):
        if kind == SINGLE_DIFFERENCE and only != i:
            walk.step[i] = 0.0
        walk.y[i] = state.x[i] + walk.step[i]
    return accept_derived(target, state, parameters, work, 0.0, rng)


# ---- clusters, as a mixture of normals -----------------------------------------------------------


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
