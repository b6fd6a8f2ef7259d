"""A third fit: a quadratic that is fitted to log π by least squares, and a sampler by it.

log s(z) = c − ½(z − m)ᵀP(z − m), so that s is normal.
"""

from functools import cache
from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import (
    Approximation,
    Chain,
    Density,
    Trajectory,
    compiled_exploration,
    example_points,
    x_of,
)
from pymc_kameleon.core.arrays import allocate, extended, floats
from pymc_kameleon.core.jit import jit, specialise
from pymc_kameleon.core.linalg import multiply_lower_transposed
from pymc_kameleon.core.target import Target
from pymc_kameleon.samplers.approximation.fit import Arrays, Fit, Nothing
from pymc_kameleon.samplers.approximation.initial_search import SearchByApproximation
from pymc_kameleon.samplers.approximation.learning import drops
from pymc_kameleon.samplers.approximation.metropolis import (
    ApproximationMetropolis,
    Kept,
    algorithm_of,
)
from pymc_kameleon.step.groups import EMULATOR_MOVES, Keeps
from pymc_kameleon.step.learned import COORDINATE

Quadratic = extended(
    "Quadratic", Chain, top=floats(1), middle=floats("d"), precision=floats("d", "d")
)


class Scratch(NamedTuple):
    z: floats("d")
    slope: floats("d")


@jit
def log_quadratic(density, u, gradient):
    s, z, slope = density.s, density.scratch.z, density.scratch.slope
    x_of(s, u, z)
    for i in range(u.size):
        z[i] -= s.middle[i]
    square = 0.0
    for i in range(u.size):
        slope[i] = 0.0
        for j in range(u.size):
            slope[i] -= s.precision[i, j] * z[j]
        square -= slope[i] * z[i]
    multiply_lower_transposed(s.factor, slope, gradient)
    return s.top[0] - 0.5 * square


@jit
def no_jump(density, at, rng):
    return np.nan


@jit
def note_nothing(density, noted):
    pass


class QuadraticFit(Fit):
    def start(self, step, scales):
        sizes = {"d": scales.size}
        s = allocate(
            Quadratic, sizes, factor=np.diag(scales), precision=np.eye(scales.size),
            leap=0.3, most_leaps=8, n_inner=10,
        )  # fmt: skip
        return Arrays(s, Nothing(), allocate(Scratch, sizes), np.zeros((0, 1)))

    def density(self, step, rng):
        s, sizes = step.parameters.s, {"d": step.state.x.size}
        density = Density(step.log_density.target(rng), s, allocate(Scratch, sizes))
        return Approximation(density, s, allocate(Trajectory, sizes), compiled())

    def fit(self, chains, known, new):
        """By least squares, with a normal of width of the points as a prior of the curvature."""
        s, d = chains[0].parameters.s, known.z.shape[1]
        drop = drops(known.logp, d)
        weights = np.where(np.isfinite(drop), np.exp(-drop / d), 0)
        center = np.average(known.z, axis=0, weights=weights)
        scale = np.sqrt(np.average((known.z - center) ** 2, axis=0, weights=weights)) + 1e-10
        v, (i, j) = (known.z - center) / scale, np.triu_indices(d)
        terms = np.column_stack([np.ones(len(v)), v, v[:, i] * v[:, j]])
        f = np.where(weights > 0, known.logp, 0) + np.sum(v * v, axis=1) / 2
        ridge = 1e-6 * weights.sum() * np.eye(terms.shape[1])
        c = np.linalg.solve((terms.T * weights) @ terms + ridge, terms.T @ (weights * f))
        curvature = np.zeros((d, d))
        curvature[i, j] = -c[1 + d :]
        values, vectors = np.linalg.eigh(curvature + curvature.T + np.eye(d))
        curvature = (vectors * np.maximum(values, 1e-2)) @ vectors.T
        shift = np.linalg.solve(curvature, c[1 : 1 + d])
        s.top[0] = c[0] + c[1 : 1 + d] @ shift / 2
        s.middle[:], s.precision[:] = center + scale * shift, curvature / np.outer(scale, scale)


@cache
def compiled():
    """The compiled function of an Approximation."""
    sizes, point = {"d": 1}, np.zeros(1)
    target = Target(
        0, point, point, np.zeros(0, np.int64), np.zeros((2, 1)), np.zeros(2, np.int64),
        np.zeros(0), np.zeros(0, np.int64), np.zeros(0), np.random.default_rng(0),
    )  # fmt: skip
    s, at = allocate(Quadratic, sizes), allocate(Trajectory, sizes)
    examples = Density(target, s, allocate(Scratch, sizes)), s, at
    explore = compiled_exploration(log_quadratic, no_jump)
    return specialise(explore, *examples, *example_points())


class Stats(NamedTuple):
    quadratic_accept: floats(1)
    reference_accept: floats(1)
    kept: Kept


class QuadraticMetropolis(ApproximationMetropolis):
    name = "quadratic_metropolis"
    stats = Stats
    kinds = "walk", "reference", "quadratic"
    initial_search = SearchByApproximation
    algorithm = algorithm_of(log_quadratic, no_jump, note_nothing)
    keeps = Keeps(EMULATOR_MOVES, {"others": ["run", COORDINATE]})

    def make_fit(self, log_density):
        return QuadraticFit()
