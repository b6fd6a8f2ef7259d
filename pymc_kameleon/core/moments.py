"""Means and covariances of a chain's past."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.history import History, distinct_rows, recent, record
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import cholesky, rank_one_update
from pymc_kameleon.core.scaling import GOOD_GUESS

JITTER = 1e-9
"""Share of each variance that regularises a covariance; relative, so that units do not matter."""


@fast_jit
def mean_and_covariance(points, start, stop, mean, covariance):
    """Write the mean and covariance of rows start..stop of `points` (n, d)."""
    d = mean.size
    n = stop - start
    mean[:] = 0.0
    for i in range(start, stop):
        for k in range(d):
            mean[k] += points[i, k] / n
    covariance[:] = 0.0
    for i in range(start, stop):
        for k in range(d):
            v = points[i, k] - mean[k]
            for j in range(k + 1):
                covariance[k, j] += v * (points[i, j] - mean[j]) / n
    for k in range(d):
        for j in range(k):
            covariance[j, k] = covariance[k, j]


@jit
def shrink(covariance, n):
    """Shrink the covariance of few distinct points, n < 5d, towards its diagonal; regularise it.

    Shrinking towards the diagonal keeps the covariance of few points well conditioned whatever the
    units of the coordinates. That of many points must not be shrunk: it would lose the narrow
    directions of a correlated target.
    """
    d = covariance.shape[0]
    keep = min(1.0, n / (5.0 * d + 2.0))
    for i in range(d):
        for j in range(d):
            if i == j:
                covariance[i, i] *= 1.0 + JITTER
            else:
                covariance[i, j] *= keep


@fast_jit
def update_mean_and_factor(mean, factor, x, eta, v):
    """Adaptive Metropolis recursion [Andrieu & Thoms 2008, algorithm 2], on Σ = LLᵀ in O(d²).

    With v = x − μ and the old μ: μ ← μ + ηv, Σ ← (1−η)Σ + ηvvᵀ. `v` is a work array.
    """
    for i in range(x.size):
        v[i] = x[i] - mean[i]
        mean[i] += eta * v[i]
        v[i] *= eta**0.5
    keep = (1.0 - eta) ** 0.5
    for i in range(x.size):
        for j in range(i + 1):
            factor[i, j] *= keep
    rank_one_update(factor, v)


class Moments(NamedTuple):
    """A mean and covariance that are learned from a chain as it runs.

    They follow the adaptive Metropolis recursion, and are seeded afresh from the newest half of the
    past at doubling times, so that nothing remains of the way from a far start.

    Attributes
    ----------
    n_fast : int
        Transitions after which there is no more seeding.
    seeding : (2,) int64
        Transitions up to the next seeding, and up to the last one; 0 before the first.
    mean : (d,) float64
    factor : (d, d) float64
        L with LLᵀ = Σ.
    history : History
        The past, up to `n_fast`.
    """

    n_fast: int
    seeding: np.ndarray
    mean: np.ndarray
    factor: np.ndarray
    history: History

    @classmethod
    def start(cls, scales, n_tune):
        """Seed first after 20 d transitions, at least 100, at most a quarter of all."""
        d = scales.size
        n_seed = min(max(100, 20 * d), n_tune // 4 + 1)
        history = History.empty(2 * n_seed, d)
        return cls(n_tune // 2, np.array([n_seed, 0]), np.zeros(d), np.diag(scales), history)


@jit
def learning_rate(t, d):
    """Weight of the state at t: its memory is a third of the past, at least 16 d transitions.

    With a shorter memory a walk's own small range is taken for the target's: the covariance shrinks
    in all directions but one.
    """
    return 1.0 / max(16.0 * d, t / 3.0)


@jit
def learn_moments(moments, x, t, v):
    """Learn from the state x after transition t; return whether mean and Σ were seeded afresh."""
    seeding = moments.seeding
    if t < moments.n_fast or seeding[1] == 0:
        record(moments.history, x)
    if t == seeding[0] - 1:
        seed_moments(moments)
        seeding[1] = t + 1
        if 2 * (t + 1) <= moments.n_fast:
            seeding[0] = 2 * (t + 1)
        return True
    if seeding[1] > 0:
        update_mean_and_factor(moments.mean, moments.factor, x, learning_rate(t, x.size), v)
    return False


@jit
def seed_moments(moments):
    """Take the mean and a shrunk Σ from the newest half of the record."""
    points = moments.history.points
    start, stop = recent(moments.history)
    n = distinct_rows(points, start, stop, np.empty(stop - start, np.int64))
    covariance = np.empty_like(moments.factor)
    mean_and_covariance(points, start, stop, moments.mean, covariance)
    if n > 1:
        shrink(covariance, n)
        cholesky(covariance, moments.factor)


@jit
def scale_step(moments, t):
    """Step t of the Robbins-Monro recursion of the scale that goes with Σ, restarted with it."""
    last = moments.seeding[1]
    return t - last + (GOOD_GUESS if last > 0 else 0)
