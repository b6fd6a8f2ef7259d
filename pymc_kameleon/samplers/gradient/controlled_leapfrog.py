"""GadMALA's transition that keeps control variates.

Symbols: as in mala.py and control_variates/tally.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.factor import multiply
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.samplers.control_variates import tally
from pymc_kameleon.samplers.gradient import fisher_rule, mala
from pymc_kameleon.samplers.gradient.mala import N_TALLY


class State(NamedTuple):
    """A TrajectoryState, and what control variates need."""

    x: floats("d")
    logp: floats(1)
    gradient: floats("d")
    u: floats("d")
    z: floats("d")  # L⁻¹(x − μ)
    tally: floats("tally")  # that of trajectories, and that of control variates


class Parameters(NamedTuple):
    """What tuning decides, and what control variates need."""

    log_scale: floats(1)
    factor: np.ndarray
    n_leapfrog: int
    controls: tally.Controls


class Work(NamedTuple):
    """Scratch: that of mala.py, and of control variates."""

    xi: floats("d")
    h: floats("d")
    step: floats("d")
    y: floats("d")
    uy: floats("d")
    logp_y: floats(1)
    log_hastings: floats(1)
    x: floats("d")  # before the move
    normal_step: floats("d")  # az + bξ − z
    normal_y: floats("d")  # ỹ
    v: floats("d")
    zy: floats("d")  # z of y
    expected: floats(tally.N_COLUMNS)


def with_controls(arrays):
    """Return (state, parameters, tuning, work) of GadMALA with what control variates need."""
    _, parameters, tuning, _ = arrays
    d = len(parameters.factor)
    state = allocate(State, {"d": d, "tally": N_TALLY + tally.tally_size(d)})
    controls = allocate(tally.Controls, {"d": d, "grid": tally.TABLE_ROWS})
    return state, Parameters(*parameters, controls), tuning, allocate(Work, {"d": d})


@jit
def transition(target, state, parameters, work, rng):
    """Make a transition of mala.py, and add up control variates."""
    d = work.x.size
    copy(state.x, work.x)
    n_steps = mala.number_of_steps(parameters.n_leapfrog, rng)
    accept_prob, accepted = mala.trajectory(target, state, parameters, n_steps, work, rng)
    controls, factor = parameters.controls, parameters.factor
    a, b = tally.leapfrog_of_normal(np.exp(parameters.log_scale[0]), n_steps)
    for k in range(d):
        work.normal_step[k] = (a - 1.0) * state.z[k] + b * work.xi[k]
    multiply(factor, work.normal_step, work.normal_y)
    for k in range(d):
        work.normal_y[k] += work.x[k]
    tally.add_state(controls, work.x, state.tally[N_TALLY:])
    sums = state.tally[N_TALLY + 1 + 2 * d :]
    tally.add_controls(
        controls, work.x, work.normal_y, state.z, work.normal_step, 0.0, work.expected, sums
    )
    if accept_prob > 0.0:  # y may be anything elsewhere
        tally.standardise(controls, factor, work.y, work.v, work.zy)
        tally.add_change(controls, work.x, work.y, state.z, work.zy, accept_prob, sums)
    if accepted:
        copy(work.zy, state.z)
    return accept_prob, accepted


@jit
def derived(state, parameters, work):
    """Compute u and z."""
    mala.derived(state, parameters, work)
    tally.standardise(parameters.controls, parameters.factor, state.x, work.v, state.z)


Stats = NamedTuple("Stats", [*mala.Stats.__annotations__.items(), ("kept", tally.Kept)])
"""Those of mala.py, and what is kept for the controls."""


@jit
def report(state, parameters, stats):
    """Report what mala.py does, and what is kept for the controls."""
    tally.report_controls(state.x, state.tally[N_TALLY:], stats.kept)
    return mala.report(state, parameters, stats)


CONTROLLED_LEAPFROG = Algorithm(
    transition, fisher_rule.adapt, derived, report, fisher_rule.tuning_transition
)  # GadMALA's algorithm with control variates
