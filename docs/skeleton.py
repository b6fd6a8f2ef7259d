"""A sampler from outside the package, as short as can be: what docs/adding_a_sampler.md describes.

A random walk that is uniform on a cube around x, whose half width ν is tuned.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.scaling import ScaleTuning, gain, settle_scale, tune_scale
from pymc_kameleon.core.target import log_density
from pymc_kameleon.step import KameleonStep
from pymc_kameleon.step.initial_search import NoSearch
from pymc_kameleon.step.learned import scale_of


class State(NamedTuple):
    """What the next transition needs."""

    x: floats("d")
    logp: floats(1)


class Parameters(NamedTuple):
    """What tuning decides."""

    log_scale: floats(1)  # log ν


class Tuning(NamedTuple):
    """What tuning remembers: the transition t of n, and how the scale is tuned."""

    t: integers(1)
    n: int
    scale: ScaleTuning


class Work(NamedTuple):
    """Scratch."""

    y: floats("d")


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + νU with U uniform on (−1, 1)."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * (2.0 * rng.random() - 1.0)
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune log ν; it settles at its mean over the second half of tuning."""
    t = tuning.t[0]
    tune_scale(parameters.log_scale, tuning.scale, 0, accept_prob, gain(t))
    settle_scale(parameters.log_scale, tuning.scale, 0, t, tuning.n // 2, tuning.n)
    tuning.t[0] = t + 1


@jit
def report(state, parameters, stats):
    """Report ν."""
    return np.exp(parameters.log_scale[0])


class CubeWalk(KameleonStep):
    r"""Random walk that is uniform on a cube.

    .. math:: y_i \sim U(x_i - \nu, x_i + \nu)

    Parameters
    ----------
    {common parameters}
    """

    name = "cube_walk"
    initial_search = NoSearch  # it begins where it is told
    algorithm = Algorithm(transition, adapt, nothing_derived, report)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        log_scale, tuning = ScaleTuning.start(self.target_accept, np.log(4 / scales.size**0.5))
        tuning = allocate(Tuning, sizes, n=n_tune, scale=tuning)
        return allocate(State, sizes), Parameters(log_scale), tuning, allocate(Work, sizes)

    def _learned(self):
        return {"scaling": scale_of(self.parameters, "Half the width ν of the cube.")}
