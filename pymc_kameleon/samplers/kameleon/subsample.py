"""The subsample of a chain's past by which KAM and its relatives propose, and how it is learned.

Source: [KAM], as in kam.py.

Symbols: z = {z₁ … z_m} the subsample, in coordinates that are whitened by C, γ the scale of
exploration in them, s the scale of one such coordinate, t the transition, n the number of tuning
transitions.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.history import History, choose, distinct_rows, recent, record
from pymc_kameleon.core.jit import jit, python_or_jit
from pymc_kameleon.core.linalg import copy, copy_matrix, solve_lower
from pymc_kameleon.core.moments import learn_moments
from pymc_kameleon.core.scaling import OPTIMAL_SCALE, best_scale, gain, settle_scale, tune_scale
from pymc_kameleon.core.shape import Shape, ShapeTuning, learn_shape
from pymc_kameleon.samplers.kameleon.rkhs import Kernel, median_distance

N_PAIRS = 2000
"""Pairs of points from which a median distance is estimated, to some 2 %."""
BANDWIDTH_SHARE = 0.5
"""σ as a share of the median distance, with which KAM does best (docs/kam.md)."""

N_CENTRES = 50
"""Points of z at which what is seen from there is averaged."""


class Subsample(NamedTuple):
    """What tuning decides."""

    shape: Shape  # γ and C; without a z, those of a random walk
    z: floats("d", "m")  # in its first m columns, in random order
    m: integers(1)  # 0 until the chain has a past to learn from
    kernel: Kernel  # its bandwidth is NaN until there is a z, unless it was given


class SubsampleTuning(NamedTuple):
    """What tuning remembers: before `n_walk` of a walk; z is redrawn until `n_learning`."""

    n_walk: int
    n_learning: int
    first: integers(1)  # transition in which z was drawn for the first time
    shape: ShapeTuning
    history: History
    gamma: float  # as given by the user, or NaN
    exploration: float  # γ as a share of the random walk's best scale
    bandwidth_share: float  # of the median distance; 0 if the bandwidth was given
    whiten: bool

    @classmethod
    def start(cls, settings, scales, n_tune, m, target_accept, exploration, bandwidth_share):
        """Return the first Subsample, without a z, and this, for m points and a walk's target."""
        d, whiten, kernel = scales.size, settings["whiten"], settings["kernel"]
        first = scales if whiten else np.ones(d)
        shape, shape_tuning = ShapeTuning.start(first, n_tune, target_accept, best_scale(d))
        sizes = {"d": d, "m": m}
        subsample = allocate(Subsample, sizes, shape=shape, kernel=kernel.compiled())
        return subsample, allocate(
            cls,
            {},
            n_walk=n_tune * (7 if whiten else 1) // 10,
            n_learning=n_tune - n_tune * 3 // 20,
            shape=shape_tuning,
            history=History.empty(max(2000, 8 * m), d),
            gamma=settings["gamma"] or np.nan,
            exploration=exploration,
            bandwidth_share=bandwidth_share if kernel.bandwidth == "median" else 0.0,
            whiten=whiten,
        )


# ---- what is learned after each transition ------------------------------------------------------


@jit
def follow(x, subsample, tuning, accept_prob, v):
    """Learn C from x; without a z, tune γ as a walk's scale. `tuning` has t, n and `past`."""
    t, n, past = tuning.t[0], tuning.n, tuning.past
    if subsample.m[0] > 0:
        learn_moments(past.shape.moments, x, t, v)
    else:
        log_scale, scale = subsample.shape.log_scale, past.shape.scale
        if past.whiten:
            learn_shape(subsample.shape, past.shape, x, accept_prob, t, v)
        else:
            tune_scale(log_scale, scale, 0, accept_prob, gain(t))
        settle_scale(log_scale, scale, 0, t, settling(tuning), n)
    if t < past.n_learning or t >= n:
        record(past.history, x)


@jit
def settling(tuning):
    """First transition whose scale counts: half of the last phase."""
    return (tuning.past.n_learning + tuning.n) // 2


@jit(allocates=True)
def draw(subsample, tuning, u, rng):
    """Draw z from the newest half of the past, with C, bandwidth and γ; return s, 0 without z."""
    past, z = tuning.past, subsample.z
    points = past.history.points
    d = points.shape[1]
    start, stop = recent(past.history)
    rows = np.empty(stop - start, np.int64)
    n = distinct_rows(points, start, stop, rows)
    if n < least_points(d):
        return 0.0
    if subsample.m[0] == 0:
        past.first[0] = tuning.t[0]
    m = min(n, z.shape[1])
    choose(rows, n, m, rng)

    whitening = subsample.shape.factor
    if past.whiten:
        copy_matrix(past.shape.moments.factor, whitening)
    for i in range(m):
        solve_lower(whitening, points[rows[i]], u)
        copy(u, z[:, i])
    subsample.m[0] = m

    distance = median_distance(z, m, N_PAIRS)
    if past.bandwidth_share > 0.0:
        subsample.kernel.bandwidth[0] = past.bandwidth_share * distance
    s = distance / np.sqrt(2.0 * d)
    guess_gamma(subsample, past.exploration, s)
    if past.gamma > 0.0:
        subsample.shape.log_scale[0] = np.log(past.gamma)
    return s


@jit
def guess_gamma(subsample, exploration, s):
    """Set γ to a share of the best scale of a random walk."""
    d = subsample.z.shape[0]
    subsample.shape.log_scale[0] = np.log(exploration * OPTIMAL_SCALE * s / np.sqrt(d))


@python_or_jit
def least_points(d):
    """Return how many distinct points it takes to draw z."""
    return 2 * d + 2
