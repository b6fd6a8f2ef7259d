"""How large R-hat may be of chains that are good, by chance."""

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import chi2

HIGH_RHAT, SELDOM, LEAST_ESS = 1.01, 1e-3, 100
"""R-hat up to which no chain is suspect; the probability that good chains, or samplers, are said to
disagree by chance; and effective draws from which the limit of R-hat may be higher."""


def limits_of_r_hat(x, n=None):
    """Return the largest R-hat (d,) of good chains of draws x (chains, draws, d), of n in all.

    The square of R-hat, less 1, is that of the means of m half-chains: m over the effective draws,
    counted in each chain for itself, times χ²/ν with ν = m − 1.
    """
    m, n = 2 * len(x), n or x.shape[2]
    parts = x, np.abs(x - np.median(x, axis=(0, 1)))  # R-hat is that of both
    ess = np.minimum(*map(_ess_of_each_chain, parts))
    limit = np.sqrt(1 + m / ess * chi2.isf(SELDOM / n, m - 1) / (m - 1))
    return np.where(ess < LEAST_ESS, HIGH_RHAT, np.maximum(HIGH_RHAT, limit))


def _ess_of_each_chain(x):
    return sum(array_stats.ess(own[None], chain_axis=0, draw_axis=1, method="mean") for own in x)
