"""Means and covariances of a chain's past."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.history import History, distinct_rows, recent, record
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import cholesky, rank_one_update

JITTER = 1e-6
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
    """Shrink the covariance of n distinct points towards its diagonal, and regularise it.

    The weight (d+2)/(n+d+2) of the diagonal makes a covariance of few points well conditioned
    whatever the units of its coordinates.
    """
    d = covariance.shape[0]
    keep = n / (n + d + 2.0)
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

    They are seeded from the newest half of a first phase of the chain, and follow the adaptive
    Metropolis recursion from then on.

    Attributes
    ----------
    n_seed : int
        Transitions of the seeding phase.
    mean : (d,) float64
    factor : (d, d) float64
        L with LLᵀ = Σ.
    history : History
        States of the seeding phase.
    """

    n_seed: int
    mean: np.ndarray
    factor: np.ndarray
    history: History

    @classmethod
    def start(cls, scales, n_tune):
        """Seed with 20 d transitions, at least 100, at most a quarter of all."""
        d = scales.size
        n_seed = min(max(100, 20 * d), n_tune // 4 + 1)
        return cls(n_seed, np.zeros(d), np.diag(scales), History.empty(n_seed, d))


@jit
def learning_rate(t, d):
    """Weight of the state at t: its memory is a third of the past, at least 16 d transitions.

    With a shorter memory a walk's own small range is taken for the target's: the covariance shrinks
    in all directions but one. With a longer one it grows too slowly where scales differ by orders
    of magnitude.
    """
    return 1.0 / max(16.0 * d, t / 3.0)


@jit
def learn_moments(moments, x, t, v):
    """Learn from the state x after transition t; return whether it was the last of the seeding."""
    if t >= moments.n_seed:
        update_mean_and_factor(moments.mean, moments.factor, x, learning_rate(t, x.size), v)
        return False
    record(moments.history, x)
    if t < moments.n_seed - 1:
        return False
    points = moments.history.points
    start, stop = recent(moments.history)
    n = distinct_rows(points, start, stop, np.empty(stop - start, np.int64))
    covariance = np.empty_like(moments.factor)
    mean_and_covariance(points, start, stop, moments.mean, covariance)
    if n > 1:
        shrink(covariance, n)
        cholesky(covariance, moments.factor)
    return True
