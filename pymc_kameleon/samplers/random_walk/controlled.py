"""GAM's transition that keeps control variates.

Symbols: those of adaptive.py and control_variates/tally.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats
from pymc_kameleon.core.jit import jit
from pymc_kameleon.samplers.control_variates.tally import (
    COLUMNS,
    Controls,
    Kept,
    add_controls,
    add_state,
    report_controls,
    standardise,
)
from pymc_kameleon.samplers.random_walk.walk import transition


class ControlledState(NamedTuple):
    """A State, and what control variates need.

    Attributes
    ----------
    x, logp
    z : (d,) float64
        L⁻¹(x − μ).
    tally : (4d + 2,) float64
        See `tally_size`.
    """

    x: floats("d")
    logp: floats(1)
    z: floats("d")
    tally: floats("tally")


class ControlledParameters(NamedTuple):
    """What tuning decides: a Shape, and what control variates need."""

    log_scale: floats(1)
    factor: floats("d", "d")
    controls: Controls


class ControlledWork(NamedTuple):
    """Scratch, as Work."""

    x: floats("d")
    xi: floats("d")
    step: floats("d")
    y: floats("d")
    v: floats("d")
    expected: floats(COLUMNS)


@jit
def controlled_transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ, and add up control variates."""
    accept_prob, accepted = transition(target, state, parameters, work, rng)
    d, controls = state.x.size, parameters.controls
    scale = np.exp(parameters.log_scale[0])
    for k in range(d):
        work.v[k] = scale * work.xi[k]
    add_state(controls, work.x, state.tally)
    sums = state.tally[1 + 2 * d :]
    add_controls(controls, work.x, work.y, state.z, work.v, accept_prob, work.expected, sums)
    if accepted:
        for k in range(d):
            state.z[k] += work.v[k]
    return accept_prob, accepted


@jit
def controlled_derived(state, parameters, work):
    """Compute z."""
    standardise(parameters.controls, parameters.factor, state.x, work.v, state.z)


class ControlledStats(NamedTuple):
    """What a draw tells besides."""

    kept: Kept


@jit
def controlled_report(state, parameters, stats):
    """Report √λ, and what is kept for the controls."""
    report_controls(state.x, state.tally, stats.kept)
    return np.exp(parameters.log_scale[0])
