"""A bounded record of a chain's past."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy


class History(NamedTuple):
    """Every `stride`-th state of a chain, evenly spaced over its whole past.

    When the record is full, every other state is dropped and the stride doubles, so memory is
    bounded by the capacity whatever the length of the chain.
    """

    points: np.ndarray  # (capacity, d)
    counts: np.ndarray  # (3,) int64: states kept, stride, and states seen since the last one kept

    @classmethod
    def empty(cls, capacity, d):
        """Allocate a record of at most `capacity` states."""
        return cls(np.zeros((capacity, d)), np.array([0, 1, 0]))


@jit
def record(history, x):
    """Append x if its turn has come."""
    points, counts = history.points, history.counts
    counts[2] += 1
    if counts[2] < counts[1]:
        return
    capacity = points.shape[0]
    if counts[0] == capacity:  # keep every other state, the last among them; x is in between
        counts[0] = (capacity + 1) // 2
        counts[1] *= 2
        for i in range(counts[0]):
            copy(points[2 * i + 1 - capacity % 2], points[i])
        return
    copy(x, points[counts[0]])
    counts[0] += 1
    counts[2] = 0


@jit
def recent(history):
    """Rows that make up the newest half, which has forgotten where the chain began."""
    return history.counts[0] // 2, history.counts[0]


@jit
def distinct_rows(points, start, stop, rows):
    """Write the rows that differ from their predecessor; return how many there are.

    A chain repeats a state exactly when it rejects, so equal states are neighbours.
    """
    n = 0
    for i in range(start, stop):
        if is_new(points, i, start):
            rows[n] = i
            n += 1
    return n


@jit
def count_distinct(points, start, stop):
    """Return how many rows differ from their predecessor."""
    n = 0
    for i in range(start, stop):
        n += is_new(points, i, start)
    return n


@jit
def is_new(points, i, start):
    """Whether row i is the first one, or differs from its predecessor."""
    new = i == start
    if not new:
        for k in range(points.shape[1]):
            new |= points[i, k] != points[i - 1, k]
    return new


@jit
def choose(rows, n, m, rng):
    """Move m of the first n rows, drawn without replacement, to the front."""
    for i in range(m):
        j = i + int(rng.random() * (n - i))
        rows[i], rows[j] = rows[j], rows[i]


@jit
def forget_older_half(history):
    """Keep the newest half of the record."""
    start, stop = recent(history)
    for i in range(start, stop):
        copy(history.points[i], history.points[i - start])
    history.counts[0] = stop - start
