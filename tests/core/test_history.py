"""The record of the past: bounded, even, and drawn from uniformly."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pymc_kameleon.core.history import History, choose, distinct_rows, record

CASES = settings(deadline=None, derandomize=True, max_examples=60)


def recorded(capacity, length):
    """Return the history of the states 0, 1, …, length - 1, and the times that it holds."""
    history = History.empty(capacity, 2)
    for t in range(length):
        record(history, np.array([float(t), -float(t)]))
    return history, history.points[: history.counts[0], 0].copy()


@CASES
@given(capacity=st.integers(2, 40), length=st.integers(1, 600))
def test_bounded_and_spread_over_the_whole_past(capacity, length):
    history, times = recorded(capacity, length)
    size, stride, _ = history.counts
    assert history.points.shape == (capacity, 2)
    np.testing.assert_array_equal(history.points[:size, 1], -times)
    assert size <= capacity
    assert size >= min(length, capacity // 2)
    assert (np.diff(times) > 0).all()
    assert times[0] < 2 * stride
    assert length - 1 - times[-1] < stride
    assert np.diff(times, append=length).max() <= stride
    # Thinned no more than it must be.
    assert stride == 1 or stride * capacity < 2 * length


@CASES
@given(
    runs=st.lists(st.integers(1, 4), min_size=1, max_size=20),
    start=st.integers(0, 5),
)
def test_distinct_rows(runs, start):
    """Each run of equal states counts once, from `start` on."""
    states = np.repeat(np.arange(len(runs)), runs)
    points = np.column_stack([states % 2, states]).astype(float)
    start = min(start, len(points) - 1)
    rows = np.full(len(points), -1)
    n = distinct_rows(points, start, len(points), rows)
    np.testing.assert_array_equal(points[rows[:n], 1], np.unique(states[start:]))
    assert (rows[:n] >= start).all()
    assert (rows[n:] == -1).all()


@CASES
@given(n=st.integers(1, 30), data=st.data())
def test_choose_without_replacement(n, data):
    m = data.draw(st.integers(0, n))
    rows = np.arange(100, 140)
    choose(rows, n, m, np.random.default_rng(data.draw(st.integers(0, 2**32 - 1))))
    assert sorted(rows[:n]) == list(range(100, 100 + n))
    np.testing.assert_array_equal(rows[n:], np.arange(100 + n, 140))


def choose_wrongly(rows, n, m, rng):
    """Swap with any of the n rows instead of those that are left: a common mistake."""
    for i in range(m):
        j = int(rng.random() * n)
        rows[i], rows[j] = rows[j], rows[i]


@pytest.mark.parametrize(("chooser", "uniform"), [(choose, True), (choose_wrongly, False)])
def test_choose_is_uniform(chooser, uniform):
    """Ordered pairs out of five, the first of six rows."""
    rng = np.random.default_rng(1)
    counts = dict.fromkeys(itertools.permutations(range(5), 2), 0)
    for _ in range(10_000):
        rows = np.arange(6)
        chooser(rows, 5, 2, rng)
        counts[tuple(int(row) for row in rows[:2])] += 1
    p_value = stats.chisquare(list(counts.values())).pvalue
    assert p_value > 1e-3 if uniform else p_value < 1e-6
