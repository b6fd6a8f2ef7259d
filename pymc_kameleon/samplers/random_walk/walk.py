"""A random walk whose proposal takes a scale and a shape: what AM, RBAM and GAM share.

Symbols: those of adaptive.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.core.schedules import UNSET
from pymc_kameleon.core.shape import ShapeTuning
from pymc_kameleon.core.target import log_density


class State(NamedTuple):
    """What the next transition needs: the position and its log-density."""

    x: floats("d")
    logp: floats(1)


class Tuning(NamedTuple):
    """What tuning remembers: t of n, μ and Σ; `on_factor` is whether AM's recursion is on L."""

    t: integers(1)
    n: int
    shape: ShapeTuning
    on_factor: bool


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition."""

    x: floats("d")  # before the move
    xi: floats("d")
    step: floats("d")  # √λ L ξ
    y: floats("d")
    v: floats("d")


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ."""
    copy(state.x, work.x)
    scale = np.exp(parameters.log_scale[0])
    return walk(target, state, scale, parameters.factor, work, rng)


@jit
def walk(target, state, scale, factor, work, rng):
    """Make a step of a random walk, x + scale · factor ξ."""
    normal_step(scale, factor, work.xi, work.step, rng)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + work.step[i]
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


def allocate_walk(step, scales, n_tune):
    """Return fresh (state, parameters, tuning, work) of AM, RBAM and GAM."""
    sizes = {"d": scales.size}
    shape, shape_tuning = ShapeTuning.start(
        scales,
        n_tune,
        step.target_accept,
        best_scale(scales.size),
        step.settings.get("scaling_bounds"),
        step.settings["learning_rate"] or UNSET,
    )
    on_factor = step.settings.get("update") == "cholesky"
    tuning = allocate(Tuning, sizes, n=n_tune, shape=shape_tuning, on_factor=on_factor)
    return allocate(State, sizes), shape, tuning, allocate(Work, sizes)
