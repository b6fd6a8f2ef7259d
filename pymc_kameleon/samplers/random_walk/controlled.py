"""GAM's transition that keeps control variates.

Symbols: those of adaptive.py and control_variates/tally.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats
from pymc_kameleon.core.jit import jit
from pymc_kameleon.samplers.control_variates import tally
from pymc_kameleon.samplers.random_walk import walk


class State(NamedTuple):
    """The State of walk.py, and what control variates need."""

    x: floats("d")
    logp: floats(1)
    z: floats("d")  # L⁻¹(x − μ)
    tally: floats("tally")


class Parameters(NamedTuple):
    """What tuning decides: a Shape, and what control variates need."""

    log_scale: floats(1)
    factor: floats("d", "d")
    controls: tally.Controls


class Work(NamedTuple):
    """Scratch, as in walk.py."""

    x: floats("d")
    xi: floats("d")
    step: floats("d")
    y: floats("d")
    v: floats("d")
    expected: floats(tally.N_COLUMNS)


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ, and add up control variates."""
    accept_prob, accepted = walk.transition(target, state, parameters, work, rng)
    d, controls = state.x.size, parameters.controls
    scale = np.exp(parameters.log_scale[0])
    for k in range(d):
        work.v[k] = scale * work.xi[k]
    tally.add_state(controls, work.x, state.tally)
    sums = state.tally[1 + 2 * d :]
    tally.add_controls(controls, work.x, work.y, state.z, work.v, accept_prob, work.expected, sums)
    if accepted:
        for k in range(d):
            state.z[k] += work.v[k]
    return accept_prob, accepted


@jit
def derived(state, parameters, work):
    """Compute z."""
    tally.standardise(parameters.controls, parameters.factor, state.x, work.v, state.z)


class Stats(NamedTuple):
    """What a draw tells besides."""

    kept: tally.Kept


@jit
def report(state, parameters, stats):
    """Report √λ, and what is kept for the controls."""
    tally.report_controls(state.x, state.tally, stats.kept)
    return np.exp(parameters.log_scale[0])
