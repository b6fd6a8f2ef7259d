"""Superchains: groups of chains that begin at the same point, where a run has many chains.

Each of many short chains tells little, and those of a superchain together as much as a longer one.
"""

import json

import numpy as np

from pymc_kameleon.core.conventions import CHAINS

LEAST, MOST = CHAINS, CHAINS * CHAINS
"""Superchains, at least and at most: as many as a usual run has chains, of as many chains each."""

ATTRIBUTE = "superchains"
"""Of the groups of a result: the number of the superchain of each chain."""


def superchains(n):
    """Return the superchain of each of n chains, (n,) int64, all of the same size if possible."""
    usual = int(np.clip(n // CHAINS, min(LEAST, n), MOST))
    possible = [k for k in range(LEAST, min(MOST, n // 2) + 1) if n % k == 0]
    k = min(possible, key=lambda k: abs(k - usual), default=usual)
    return np.arange(n) * k // n


def size_of_superchains(posterior):
    """Return how many neighbouring chains of draws each superchain has; 1 if that differs."""
    numbers = np.array(json.loads(posterior.attrs.get(ATTRIBUTE, "[]")), np.int64)
    counts = np.unique(numbers, return_counts=True)[1]
    is_known = len(numbers) == posterior.sizes["chain"] and len(counts) >= LEAST
    are_equal = is_known and np.ptp(counts) == 0 and np.all(np.diff(numbers) >= 0)
    return int(counts[0]) if are_equal else 1
