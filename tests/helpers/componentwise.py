"""Targets, compiled transitions and chains for the tests of CMH, CMTM and the random walks."""

from functools import cache

import numba
import numpy as np
import pymc as pm
from models import normal_model

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.core.target import LOGP_SIGNATURE, Target, function_address
from pymc_kameleon.samplers.componentwise import cmh, cmtm
from pymc_kameleon.samplers.componentwise.sweeps import State

# ---- targets --------------------------------------------------------------------------------

PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])


@numba.njit(LOGP_SIGNATURE)
def normal(x, data, shapes, gradient):
    total = data[0]
    for i in range(3):
        for j in range(3):
            total -= 0.5 * x[i] * PRECISION[i, j] * x[j]
    return total


@numba.njit(LOGP_SIGNATURE)
def mixture(x, data, shapes, gradient):
    """The two dimensions of the paper, of which the second is wide in one mode."""
    left = -0.5 * ((x[0] - 5) ** 2 / 6.25 + x[1] ** 2 / 6.25)
    right = np.log(5.0) - 0.5 * ((x[0] - 15) ** 2 / 6.25 + x[1] ** 2 / 0.25)
    return data[0] + np.logaddexp(left, right)


@numba.njit(LOGP_SIGNATURE)
def two_modes(x, data, shapes, gradient):
    """In one dimension, and one of them narrow."""
    return data[0] + np.logaddexp(-0.5 * x[0] ** 2, np.log(10.0) - 50 * (x[0] - 4) ** 2)


@numba.njit(LOGP_SIGNATURE)
def holes(x, data, shapes, gradient):
    """A gamma and a normal density; around them, and in the midst, there is nothing."""
    if x[0] < 0:
        return -np.inf
    if x[1] > 1:
        return np.nan
    if 1 < x[0] < 1.5 or x[1] < -2:
        return np.inf
    return data[0] + np.log(x[0]) - x[0] - 0.5 * x[1] ** 2


@numba.njit(LOGP_SIGNATURE)
def point_in_a_plane(x, data, shapes, gradient):
    """A normal density along the second coordinate, where the first is exactly 1."""
    return data[0] - 0.5 * x[1] ** 2 if x[0] == 1 else -np.inf


STARTS = {
    normal: [0.5, 1.5, -0.1],
    mixture: [5.0, 1.0],
    two_modes: [0.3],
    holes: [0.7, 0.2],
    point_in_a_plane: [1.0, 0.3],
}

REGIONS = {mixture: [[-2.0, -1.5], [30.0, np.inf]]}


def target_of(logp, offset=0.0):
    d = len(STARTS[logp])
    region = REGIONS.get(logp, [[-np.inf] * d, [np.inf] * d])
    data, shapes = np.array([offset]), np.array([1])
    address = function_address(logp)
    count, empty = np.zeros(2, np.int64), np.zeros(0)
    rng = np.random.default_rng(0)  # for estimates
    where = np.zeros(d), data, shapes, np.array(region), count
    return Target(address, *where, empty, np.zeros(0, np.int64), empty, rng)


class LogDensity:
    """A target in plain Python, which counts its evaluations within the region."""

    def __init__(self, logp, offset=0.0):
        self.logp, self.target = logp, target_of(logp, offset)
        self.count = 0

    def __call__(self, x):
        low, high = self.target.region
        if not ((low <= x) & (x <= high)).all():
            return -np.inf
        self.count += 1
        value = self.logp.py_func(x, self.target.data, self.target.shapes, self.target.gradient)
        return value if value < np.inf else -np.inf


# ---- compiled transitions -------------------------------------------------------------------


class Chain:
    """Sweeps of a compiled transition."""

    def __init__(self, algorithm, work, logp, parameters, m=1, offset=0.0, start=None):
        self.transition, self.target = algorithm.transition, target_of(logp, offset)
        start = STARTS[logp] if start is None else start
        sizes = {"d": len(start), "m": m, "choices": m + 1}
        self.state, self.work = allocate(State, sizes), allocate(work, sizes)
        self.selected, self.accepted = np.moveaxis(self.state.tally[:, :m], 2, 0)
        self.parameters = parameters
        self.move_to(start, LogDensity(logp, offset)(np.array(start)))

    def move_to(self, x, log_p):
        self.state.x[:] = x
        self.state.logp[0] = log_p

    def sweep(self, rng):
        """Make a transition; return what it returns: mean accept_prob and share accepted."""
        return self.transition(self.target, self.state, self.parameters, self.work, rng)


def cmtm_chain(logp, scales, power=2.9, n_single=0, single=0, **kwargs):
    d = len(STARTS[logp])
    scales = np.broadcast_to(scales, (d, np.shape(scales)[-1])).astype(float, order="C")
    n_single, single = (np.broadcast_to(value, d).copy() for value in (n_single, single))
    parameters = cmtm.Parameters(scales, n_single, single, float(power))
    algorithm = pk.CMTM.algorithm
    return Chain(algorithm, cmtm.Work, logp, parameters, m=scales.shape[1], **kwargs)


def cmh_chain(logp, scales):
    log_scales = np.log(np.broadcast_to(scales, len(STARTS[logp])))
    parameters = cmh.Parameters(log_scales)
    return Chain(pk.CMH.algorithm, cmh.Work, logp, parameters)


def ladders(logp, m, low=0.05, high=20.0):
    """Scales that differ from coordinate to coordinate."""
    d = len(STARTS[logp])
    return np.geomspace(low, high, m) * np.linspace(1, 2, d)[:, None]


# ---- whole chains ---------------------------------------------------------------------------


@cache
def correlated_normal():
    return normal_model(PRECISION)


@cache
def ill_scaled_normal():
    return normal_model(np.diag(ILL_SCALES**-2))


ILL_SCALES = np.array([1e-4, 1e4])

START = np.array(STARTS[normal])

SCALES = np.diag(PRECISION) ** -0.5
"""The conditional ones, which are exact where π is normal."""


def log_density(x):
    return -0.5 * x @ PRECISION @ x


def run(step, n, tune=0, seed=0, x=START, **parameters):
    """Run n draws; return positions and statistics. `parameters` are set before the first."""
    step.setup_chain(np.random.default_rng(seed), tune, n - tune)
    for name, value in parameters.items():
        getattr(step.parameters, name)[...] = value
    point, positions, rows = {"x": np.array(x)}, [], []
    for i in range(n):
        if i == tune:
            step.stop_tuning()
        point, [row] = step.step(point)
        positions.append(point["x"])
        rows.append(row)
    return np.array(positions), {name: np.array([row[name] for row in rows]) for name in rows[0]}


@cache
def pair_model():
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=2)
    return model
