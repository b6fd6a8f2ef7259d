"""Means and covariances of a chain's past.

[AT] is Andrieu & Thoms, "A tutorial on adaptive MCMC", Statistics and Computing 18 (2008).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.history import History, count_distinct, recent, record
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import cholesky, rank_one_update
from pymc_kameleon.core.scaling import GOOD_GUESS
from pymc_kameleon.core.schedules import UNSET, Decay, decayed

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
def blend(covariance, n, factor):
    """Blend the covariance of few distinct points, n < 5d, with the last one; regularise it.

    That keeps the covariance of few points well conditioned, and the narrow directions that the
    last one has.
    """
    d = covariance.shape[0]
    keep = min(1.0, n / (5.0 * d + 2.0))
    for i in range(d):
        for j in range(i + 1):
            last = 0.0
            for k in range(j + 1):
                last += factor[i, k] * factor[j, k]
            covariance[i, j] = keep * covariance[i, j] + (1.0 - keep) * last
        covariance[i, i] *= 1.0 + JITTER


@fast_jit
def update_mean_and_factor(mean, factor, x, eta, v):
    """Adaptive Metropolis recursion [AT, algorithm 2], on Σ = LLᵀ in O(d²).

    With v = x − μ and the old μ: μ ← μ + ηv, Σ ← (1−η)Σ + ηvvᵀ. `v` is a work array.
    """
    multiply_factor(factor, (1.0 - eta) ** 0.5)
    add_deviation(mean, factor, x, eta, v)
    for i in range(x.size):
        mean[i] += eta * (x[i] - mean[i])


@fast_jit
def update_from_both(mean, factor, x, y, alpha, eta, v):
    """Rao-Blackwellised recursion [AT, algorithm 3]: from x before the move and the proposal y.

    With the old μ: μ ← μ + η[α(y−μ) + (1−α)(x−μ)],
    Σ ← (1−η)Σ + η[α(y−μ)(y−μ)ᵀ + (1−α)(x−μ)(x−μ)ᵀ]. `v` is a work array.
    """
    multiply_factor(factor, (1.0 - eta) ** 0.5)
    add_deviation(mean, factor, x, eta * (1.0 - alpha), v)
    if alpha == 0.0:  # y may be anything, even infinite
        for i in range(x.size):
            mean[i] += eta * (x[i] - mean[i])
        return
    add_deviation(mean, factor, y, eta * alpha, v)
    for i in range(x.size):
        mean[i] += eta * (alpha * (y[i] - mean[i]) + (1.0 - alpha) * (x[i] - mean[i]))


@fast_jit
def multiply_factor(factor, number):
    """Multiply a lower triangular factor."""
    for i in range(factor.shape[0]):
        for j in range(i + 1):
            factor[i, j] *= number


@fast_jit
def add_deviation(mean, factor, x, weight, v):
    """Add weight · (x − μ)(x − μ)ᵀ to LLᵀ; `v` is a work array."""
    for i in range(x.size):
        v[i] = weight**0.5 * (x[i] - mean[i])
    rank_one_update(factor, v)


class Moments(NamedTuple):
    """A mean and covariance that are learned from a chain as it runs.

    They follow a recursion, and are seeded afresh from the newest half of the past at doubling
    times, so that nothing remains of the way from a far start.
    """

    n_seed: int  # transitions up to the first seeding
    n_fast: int  # those after which there is no more
    seeding: np.ndarray  # (2,) int64, transitions up to the next one and the last; 0 before
    mean: np.ndarray  # (d,)
    factor: np.ndarray  # (d, d), L with LLᵀ = Σ
    history: History  # the past, up to `n_fast`
    rate: Decay  # η of the recursion as the user gave it, or UNSET
    covariance: np.ndarray  # (d, d), scratch of seeding

    @classmethod
    def start(cls, scales, n_tune, rate=UNSET):
        """Seed first after 20 d transitions, at least 100, at most a quarter of all.

        With a `rate` of the user only once: the recursion alone is to forget the start.
        """
        d = scales.size
        n_seed = min(max(100, 20 * d), n_tune // 4 + 1)
        history = History.empty(2 * n_seed, d)
        n_fast = n_tune // 2 if rate is UNSET else 0
        seeding, scratch = np.array([n_seed, 0]), np.zeros((d, d))
        return cls(n_seed, n_fast, seeding, np.zeros(d), np.diag(scales), history, rate, scratch)


@jit
def learning_rate(moments, t):
    """η_t, the weight of the state at t; negative before the first seeding.

    By default its memory is two thirds of the past, at least 16 d transitions: with a shorter one
    a walk's own small range is taken for the target's, and Σ shrinks in all directions but one.
    """
    if moments.seeding[1] == 0:
        return -1.0
    if np.isnan(moments.rate.start):
        return 1.0 / max(16.0 * moments.mean.size, t / 1.5)
    return decayed(moments.rate, t)


@jit
def renew_moments(moments, x, t):
    """Record the state x after transition t; return whether mean and Σ were seeded afresh."""
    seeding = moments.seeding
    if t < moments.n_fast or seeding[1] == 0:
        record(moments.history, x)
    if t != seeding[0] - 1:
        return False
    seed_moments(moments)
    seeding[1] = t + 1
    if 2 * (t + 1) <= moments.n_fast:
        seeding[0] = 2 * (t + 1)
    return True


@jit
def learn_moments(moments, x, t, v):
    """Learn from the state x after transition t; return whether mean and Σ were seeded afresh."""
    if renew_moments(moments, x, t):
        return True
    eta = learning_rate(moments, t)
    if eta > 0.0:
        update_mean_and_factor(moments.mean, moments.factor, x, eta, v)
    return False


@jit
def seed_moments(moments):
    """Take the mean and Σ from the newest half of the record; of few points, blend it with Σ."""
    points, covariance = moments.history.points, moments.covariance
    start, stop = recent(moments.history)
    n = count_distinct(points, start, stop)
    mean_and_covariance(points, start, stop, moments.mean, covariance)
    if n > 1:
        blend(covariance, n, moments.factor)
        cholesky(covariance, moments.factor)


@jit
def scale_step(moments, t):
    """Step t of the Robbins-Monro recursion of the scale that goes with Σ, restarted with it."""
    last = moments.seeding[1]
    return t - last + (GOOD_GUESS if last > 0 else 0)


def shrunk_covariance(points):
    """Return the covariance of the points, regularised; shrunk to its diagonal if n < 5d.

    That keeps it well conditioned whatever the units of the coordinates. That of many points must
    not be shrunk: it would lose the narrow directions of a correlated target.
    """
    covariance = np.atleast_2d(np.cov(points, rowvar=False, bias=True))
    keep = min(1.0, len(points) / (5.0 * len(covariance) + 2.0))
    diagonal = np.diag(covariance) * (1.0 + JITTER)
    covariance *= keep
    np.fill_diagonal(covariance, diagonal)
    return covariance
