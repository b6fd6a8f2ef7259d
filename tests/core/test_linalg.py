"""Factors against numpy, over dimensions and scales."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_kameleon.core import linalg

CASES = settings(deadline=None, derandomize=True, max_examples=60)


@st.composite
def covariances(draw):
    """A covariance of 1 to 20 coordinates whose scales span up to 16 decades, and a Generator."""
    d = draw(st.integers(1, 20))
    decades = draw(st.sampled_from([0, 3, 8]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    root = rng.standard_normal((d, 2 * d)) * 10 ** rng.uniform(-decades, decades, (d, 1))
    return root @ root.T, rng


def assert_same_factor(factor, expected):
    """Compare lower triangles, each row relative to the scale of its coordinate."""
    scale = np.sqrt(np.sum(expected**2, axis=1, keepdims=True))
    np.testing.assert_allclose(np.tril(factor) / scale, expected / scale, rtol=0, atol=1e-9)


@CASES
@given(covariances())
def test_cholesky_in_place_uses_the_lower_triangle_only(case):
    a, _ = case
    expected = np.linalg.cholesky(a)
    a[np.triu_indices_from(a, 1)] = np.nan
    assert linalg.cholesky(a, a)
    assert_same_factor(a, expected)


@pytest.mark.parametrize("d", [1, 2, 7])
@pytest.mark.parametrize("bad", [0.0, -1.0, np.nan, np.inf, -np.inf])
def test_cholesky_refuses_a_bad_diagonal(d, bad):
    for k in range(d):
        a = np.eye(d)
        a[k, k] = bad
        assert not linalg.cholesky(a, np.empty((d, d)))


@pytest.mark.parametrize("bad", [1.0, -1.0, 1.5, np.nan, np.inf, -np.inf])
def test_cholesky_refuses_singular_and_indefinite_matrices(bad):
    a = np.eye(4)
    a[3, 1] = a[1, 3] = bad
    assert not linalg.cholesky(a, np.empty((4, 4)))
    a[3, 1] = a[1, 3] = 0.999
    assert linalg.cholesky(a, np.empty((4, 4)))


@CASES
@given(covariances(), st.booleans(), st.booleans())
def test_solve(case, in_place, transposed):
    a, rng = case
    factor = np.linalg.cholesky(a)
    solve = linalg.solve_lower_transposed if transposed else linalg.solve_lower
    matrix = factor.T if transposed else factor
    b = rng.standard_normal(len(a)) * np.sqrt(np.diag(a))
    right = b.copy()
    out = right if in_place else np.empty(len(a))
    solve(factor, right, out)
    assert (np.abs(matrix @ out - b) <= 1e-13 * (np.abs(matrix) @ np.abs(out))).all()
    if not in_place:
        np.testing.assert_array_equal(right, b)


@CASES
@given(covariances(), st.sampled_from([0.0, 1e-6, 1.0, 1e6]))
def test_rank_one_update(case, size):
    a, rng = case
    v = size * rng.standard_normal(len(a)) * np.sqrt(np.diag(a))
    factor = np.linalg.cholesky(a)
    expected = np.linalg.cholesky(a + np.outer(v, v)) if size <= 1 else None
    before = factor.copy()
    linalg.rank_one_update(factor, v.copy())
    assert (np.diag(factor) > 0).all()
    if expected is not None:
        assert_same_factor(factor, expected)
    else:  # numpy loses the small part of the sum: only the sum itself can be compared
        scale = np.sqrt(np.diag(before @ before.T + np.outer(v, v)))
        error = factor @ factor.T - before @ before.T - np.outer(v, v)
        assert np.abs(error / np.outer(scale, scale)).max() < 1e-13


def test_log_determinant_where_the_determinant_underflows():
    assert linalg.log_determinant(1e-200 * np.eye(20)) == pytest.approx(-200 * 20 * np.log(10))
