"""Superchains: groups of chains that begin at the same point; and nested R-hat, which uses them.

Many short chains that begin at the same few points cannot each be long enough for R-hat. But the
mean of all that began at a point is nearly that of all, if they have forgotten where that was.

Source: Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman, "Nested R-hat: assessing the
convergence of Markov chain Monte Carlo when running many short chains", Bayesian Analysis (2024).
"""

import json

import numpy as np
from arviz_stats.base import array_stats
from scipy.stats import chi2

from pymc_kameleon.core.conventions import CHAINS

LEAST, MOST = CHAINS, CHAINS * CHAINS
"""Superchains, at least and at most: as many as a usual run has chains, of as many chains each."""

MOST_RHAT, SELDOM, CORRELATION = 1.05, 0.01, 2.0
"""Values of R-hat and of nested R-hat that are high however few the draws are; the probability of
higher ones than nested R-hat's limit, for chains that are right; and how many draws then tell as
much as one that is independent of others."""

ATTRIBUTE = "superchains"
"""Of the groups of a result: the number of the superchain of each chain."""


def superchains(n):
    """Return the superchain of each of n chains, (n,) int64, all of the same size if possible."""
    usual = int(np.clip(n // CHAINS, min(LEAST, n), MOST))
    possible = [k for k in range(LEAST, min(MOST, n // 2) + 1) if n % k == 0]
    k = min(possible, key=lambda k: abs(k - usual), default=usual)
    return np.arange(n) * k // n


def superchains_of(posterior):
    """Return those of the chains of draws, (chains,) int64, None if none or too few for R-hat."""
    numbers = np.array(json.loads(posterior.attrs.get(ATTRIBUTE, "[]")), np.int64)
    are_known = len(numbers) == posterior.sizes["chain"]
    return numbers if are_known and np.sum(np.bincount(numbers) > 1) >= LEAST else None


def size_of_superchains(numbers):
    """Return how many neighbouring chains each superchain has, 1 if that differs, or for None."""
    if numbers is None:
        return 1
    counts = np.unique(numbers, return_counts=True)[1]
    return int(counts[0]) if np.ptp(counts) == 0 and np.all(np.diff(numbers) >= 0) else 1


def nested_r_hat(values, numbers):
    """Return nested R-hat (q,) of values (chains, draws, q), of equal superchains of several."""
    counts = np.bincount(numbers)
    several = np.flatnonzero(counts > 1)
    size = counts[several].min()
    rows = np.concatenate([np.flatnonzero(numbers == k)[:size] for k in several])
    ids = np.unique(numbers[rows], return_inverse=True)[1]
    with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
        return array_stats.rhat_nested(
            values[rows], superchain_ids=ids, chain_axis=0, draw_axis=1, method="rank"
        )


def are_high(r_hat, nested, numbers, n_draws):
    """Return which R-hats (q,), or nested ones (q,), are higher than those of few good draws.

    If CORRELATION draws tell as much as an independent one, R-hat of halves of m draws is about √(1
    + (CORRELATION − 1)/m). The square of nested R-hat, less 1, is CORRELATION over the draws of a
    superchain, times χ²/ν, with ν one less than there are superchains.
    """
    counts = np.bincount(numbers)
    several = counts[counts > 1]
    chance = chi2.isf(SELDOM, several.size - 1) / (several.size - 1)
    limit = max(MOST_RHAT, np.sqrt(1 + (CORRELATION - 1) / max(1, n_draws // 2)))
    limit_of_nested = max(MOST_RHAT, np.sqrt(1 + CORRELATION * chance / (several.min() * n_draws)))
    return r_hat > limit, nested > limit_of_nested
