"""How far below the best point something still counts, by one rule.

Where a posterior is normal in d dimensions, twice the drop of the log-density below its maximum has
the distribution χ²_d. So a drop that draws exceed with a probability p is half of a quantile of it.
"""

from functools import cache

from scipy.stats import chi2

NEAR, TYPICAL, NEGLIGIBLE = 0.05, 1e-4, 1e-10
"""Probabilities with which draws of a normal are lower than what is near its maximum, than what is
typical of it, and than what may be neglected."""


@cache
def drop(d, probability):
    """Return the drop that draws of a normal in d dimensions exceed with this probability."""
    return float(chi2.isf(probability, d) / 2)
