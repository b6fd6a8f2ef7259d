"""How large R-hat may be of chains that are good, by chance: one rule, wherever R-hat is judged."""

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import chi2

HIGH_RHAT, MOST_RHAT, SELDOM, LEAST_ESS = 1.01, 1.05, 1e-3, 100
"""R-hat up to which no chain is suspect, and the largest limit; the probability that good chains,
or samplers, are said to disagree by chance; and effective draws from which the limit may be
higher."""


def high_r_hats(values, r_hat):
    """Return which R-hats (q,) of values (chains, draws, q) are higher than of good chains.

    The limit is 1.01, or what chains with as many effective draws reach by chance, at most 1.05.
    """
    limits, doubtful = np.full(len(r_hat), MOST_RHAT), np.flatnonzero(r_hat > HIGH_RHAT)
    if doubtful.size:
        limits[doubtful] = _reached_by_chance(values[..., doubtful], len(r_hat))[1]
    return r_hat > np.clip(limits, HIGH_RHAT, MOST_RHAT)


def limits_of_r_hat(x, n=None):
    """Return the largest R-hat (d,) of good chains of draws x (chains, draws, d), of n in all.

    It is 1.01 where the effective draws are too few to tell.
    """
    ess, limit = _reached_by_chance(x, n)
    return np.where(ess < LEAST_ESS, HIGH_RHAT, np.maximum(HIGH_RHAT, limit))


def _reached_by_chance(x, n):
    """Return effective draws (d,), and the R-hats that chains as good have seldom.

    The square of R-hat, less 1, is that of the means of m half-chains: m over the effective draws,
    counted in each chain for itself, times χ²/ν with ν = m − 1.
    """
    m, n = 2 * len(x), n or x.shape[2]
    parts = x, np.abs(x - np.median(x, axis=(0, 1)))  # R-hat is that of both
    ess = np.minimum(*map(_ess_of_each_chain, parts))
    return ess, np.sqrt(1 + m / ess * chi2.isf(SELDOM / n, m - 1) / (m - 1))


def _ess_of_each_chain(x):
    return sum(array_stats.ess(own[None], chain_axis=0, draw_axis=1, method="mean") for own in x)
