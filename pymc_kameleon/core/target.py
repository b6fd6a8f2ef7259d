"""The log-density, and its gradient, that the transitions call: one type for every model.

A model's log-density is compiled apart from the transitions and reaches them as the address of its
machine code. So the transitions are compiled once, whatever the model.
"""

from typing import NamedTuple

import numpy as np
from numba import config, float64, int64
from numba.extending import overload
from numpy.random import Generator

from pymc_kameleon.core import numba_calls
from pymc_kameleon.core.conventions import EPS
from pymc_kameleon.core.jit import jit, part_options
from pymc_kameleon.core.linalg import copy

VECTOR = float64[::1]
LOGP_SIGNATURE = float64(VECTOR, VECTOR, int64[::1], VECTOR)
"""Log-density of (all value variables raveled, all data raveled, shapes of the data, gradient). The
gradient by the step's own variables is written into the last one, unless that is empty."""


class Target(NamedTuple):
    """A log-density over `n` value variables, of which a step moves the first `d`."""

    address: int  # machine code of a function with `LOGP_SIGNATURE`
    point: np.ndarray  # (n,), where it is evaluated: the step's own variables first
    data: np.ndarray  # (k,), the model's shared variables (``pm.Data``), raveled
    shapes: np.ndarray  # (s,) int64, their shapes, one after the other
    region: np.ndarray  # (2, d), least and largest coordinates; outside, it is -inf
    count: np.ndarray  # (2,) int64, evaluations, and those that were +inf
    gradient: np.ndarray  # (d,), where it was evaluated last; (0,) if none is needed
    # (f,) int64, addresses of further functions of the same signature. Of a sampler that uses the
    # Hessian, the first one's last argument is a vector v, which it turns into the Hessian of the
    # log-density times v. Of simulators they are those of model/simulator_logp.py.
    others: np.ndarray
    # (1,), where in `data` the seed of an estimate is, drawn anew before each evaluation; (0,) if
    # the log-density is no estimate.
    seed: np.ndarray
    rng: Generator  # the chain's, which the seed is drawn from


class Outputs(NamedTuple):
    """What is computed from the chain's point after each draw."""

    address: int  # of a function with `LOGP_SIGNATURE` that writes into its last argument
    data: np.ndarray  # as in a Target
    shapes: np.ndarray
    rows: np.ndarray  # (draws, outputs), to be filled; without columns nothing is computed

    @classmethod
    def none(cls):
        """Return what computes nothing."""
        return cls(0, np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0)))


def address_array(addresses):
    """Return addresses of functions as a Target has them."""
    return np.array(addresses, object if config.DISABLE_JIT else np.int64)


def function_address(dispatcher):
    """Return the address of a compiled function, valid as long as `dispatcher` lives."""
    if config.DISABLE_JIT:
        return dispatcher
    address, _ = numba_calls.address_of(dispatcher, LOGP_SIGNATURE.args)
    return address


if config.DISABLE_JIT:

    def call(function, arguments):
        """Call a function with `LOGP_SIGNATURE`."""
        return function(*arguments)

else:
    call = numba_calls.caller(LOGP_SIGNATURE.return_type, LOGP_SIGNATURE.args)


@jit
def log_density(target, y):
    """Log-density with the step's own variables at `y`; NaN and +inf count as -inf."""
    inside = True
    for i in range(y.size):
        inside &= target.region[0, i] <= y[i] <= target.region[1, i]
    if not inside:
        return -np.inf
    copy(y, target.point)
    return evaluate(target)


@jit
def log_density_along(target, k, value):
    """Log-density with coordinate k at `value`, all others where `target.point` is."""
    if not target.region[0, k] <= value <= target.region[1, k]:
        return -np.inf
    target.point[k] = value
    return evaluate(target)


N_SEEDS = 2 / EPS
"""Seeds that there are: as many as floats between 0 and 1 that a Generator draws."""


@jit
def evaluate(target):
    """Log-density at `target.point`, or a fresh estimate of it."""
    target.count[0] += 1
    for i in range(target.seed.size):
        target.seed[i] = N_SEEDS * target.rng.random()
    logp = call(target.address, (target.point, target.data, target.shapes, target.gradient))
    if logp == np.inf:
        target.count[1] += 1
    return logp if logp < np.inf else -np.inf


@jit
def write_outputs(outputs, i, point):
    """Compute the outputs of draw i."""
    if outputs.rows.shape[1] > 0:
        call(outputs.address, (point, outputs.data, outputs.shapes, outputs.rows[i]))


@jit
def multiply_by_hessian(target, y, v):
    """Replace `v` by the Hessian of the log-density at `y`, times `v`."""
    copy(y, target.point)
    call(target.others[0], (target.point, target.data, target.shapes, v))


# ---- what the chain does with fields that only some states have ---------------------------------


def take_gradient(target, state):
    """Copy the gradient from where the target was evaluated last, into states that have one."""
    if hasattr(state, "gradient"):
        copy(target.gradient, state.gradient)


@overload(take_gradient, jit_options=part_options())
def _take_gradient(target, state):
    if "gradient" not in state.fields:
        return lambda target, state: None
    return lambda target, state: copy(target.gradient, state.gradient)


def clear_tally(state):
    """Set the tally to zero, in which some states count what happens within a draw."""
    if hasattr(state, "tally"):
        state.tally[...] = 0.0


@overload(clear_tally, jit_options=part_options())
def _clear_tally(state):
    if "tally" not in state.fields:
        return lambda state: None

    def clear(state):
        state.tally[...] = 0.0

    return clear
