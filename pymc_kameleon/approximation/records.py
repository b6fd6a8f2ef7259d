"""Records of evaluations: how many are kept, which of them, and what a Dataset calls them."""

import numpy as np

from pymc_kameleon.core.conventions import MOST_BYTES

MOST_ROWS = 20_000
"""What a result keeps of evaluations, at most; of more, some that are evenly spaced."""

MOST_REUSED = 2000
"""Evaluations of earlier runs that a chain takes up, at most."""

MOST_REMEMBERED = 3000
"""Evaluations of tuning, and before it, that a chain remembers, at most."""

MANY_DRAWS = 4000
"""Draws of a result that tell enough where all of them would take long."""

OF_BEFORE = -1
"""Stands for the chain where an evaluation was taken up."""

EVALUATION = "evaluation"
"""The dimension of rows."""


def some_of_each(first, most):
    """Return at most so many rows, the `first` ones first; of more, half of each, evenly spaced."""
    own, others = np.flatnonzero(first), np.flatnonzero(~first)
    if len(first) > most:
        own = evenly(own, max(most // 2, most - len(others)))
        others = evenly(others, most - len(own))
    return np.concatenate([own, others])


def evenly(rows, n):
    """Return at most n rows, evenly spaced."""
    if len(rows) <= n:
        return rows
    return rows[np.linspace(0, len(rows) - 1, n).astype(int)]


def thinned(n, size):
    """Return which of n rows of so many bytes are kept."""
    most = max(1, min(MOST_ROWS, MOST_BYTES // size))
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
