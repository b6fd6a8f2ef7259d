"""Means and covariances against numpy and against the slow recursion."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st

from pymc_kameleon.core import moments
from pymc_kameleon.core.moments import Moments, learn_moments
from pymc_kameleon.core.schedules import Decay

COVARIANCE = np.array(
    [[1.0, 0.9, 0.0, 0.2], [0.9, 4.0, 0.1, 0.0], [0.0, 0.1, 0.25, 0.0], [0.2, 0.0, 0.0, 1.0]]
)
MEAN = np.array([1.0, -5.0, 0.0, 30.0])


# ---- of a batch -----------------------------------------------------------------------------


@settings(deadline=None, derandomize=True, max_examples=40)
@given(
    d=st.integers(1, 8),
    n=st.integers(1, 60),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
    seed=st.integers(0, 2**32 - 1),
)
def test_mean_and_covariance(d, n, offset, seed):
    rng = np.random.default_rng(seed)
    scales = 10 ** rng.uniform(-3, 3, d)
    points = (rng.standard_normal((n + 7, d)) + offset) * scales
    mean, covariance = np.empty(d), np.empty((d, d))
    moments.mean_and_covariance(points, 4, 4 + n, mean, covariance)
    rows = points[4 : 4 + n]
    expected = np.cov(rows.T, bias=True).reshape(d, d)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=1e-12, atol=1e-13 * scales.max())
    error = np.abs(covariance - expected) / np.outer(scales, scales)
    assert error.max() < 1e-12 * (1 + offset)
    np.testing.assert_array_equal(covariance, covariance.T)


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_the_covariance_of_few_points_is_shrunk(n):
    points = np.random.default_rng(n).standard_normal((n, 5))
    covariance, keep = np.cov(points.T, bias=True), min(1, n / (5 * 5 + 2))
    expected = keep * covariance + (1 - keep + 1e-9) * np.diag(np.diag(covariance))
    np.testing.assert_allclose(moments.shrunk_covariance(points), expected, rtol=1e-12)


@pytest.mark.parametrize(("n", "keep"), [(10, 10 / 17), (17, 1), (400, 1)])
def test_few_points_are_blended_with_the_last_covariance(n, keep):
    covariance, last = np.diag([4.0, 9.0, 1.0]), np.array([[1.0, 0, 0], [2, 1, 0], [0, 3, 2]])
    blended = covariance.copy()
    moments.blend(blended, n, last)
    expected = keep * covariance + (1 - keep) * last @ last.T
    np.testing.assert_allclose(np.tril(blended), np.tril(expected), rtol=1e-8)


# ---- recursion ------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [1, 3, 12])
@pytest.mark.parametrize("decades", [0, 4])
def test_update_is_the_slow_recursion(d, decades):
    rng = np.random.default_rng(d)
    scales = 10 ** rng.uniform(-decades, decades, d)
    mean, covariance = rng.standard_normal(d) * scales, np.diag(scales**2)
    fast_mean, factor, v = mean.copy(), np.diag(scales), np.empty(d)
    for t in range(600):
        x = (rng.standard_normal(d).cumsum() + 0.01 * t) * scales
        eta = (2.0 + t) ** -0.6
        mean, covariance = reference.am_update(mean, covariance, x, eta)
        moments.update_mean_and_factor(fast_mean, factor, x, eta, v)
        np.testing.assert_allclose(fast_mean / scales, mean / scales, rtol=1e-9, atol=1e-9)
        expected = np.linalg.cholesky(covariance)
        np.testing.assert_allclose(
            np.tril(factor) / scales[:, None], expected / scales[:, None], rtol=1e-8, atol=1e-9
        )


def random_moments(d, seed):
    """Return a Generator, a mean, a factor with mixed scales, and two points about the mean."""
    rng = np.random.default_rng(seed)
    units = 10 ** rng.uniform(-3, 3, d)
    root = rng.standard_normal((d, 2 * d)) * units[:, None]
    mean = units * rng.standard_normal(d)
    x, y = mean + 2 * units * rng.standard_normal((2, d))
    return mean, np.linalg.cholesky(root @ root.T), x, y


def assert_same(mean, factor, expected, rtol=1e-9):
    """Compare mean and LLᵀ in units of the coordinates."""
    units = np.sqrt(np.diag(expected[1]))
    np.testing.assert_allclose(mean / units, expected[0] / units, rtol=rtol, atol=rtol)
    covariance = np.tril(factor) @ np.tril(factor).T
    np.testing.assert_allclose(
        covariance / np.outer(units, units), expected[1] / np.outer(units, units), atol=rtol
    )


@pytest.mark.parametrize("bad", [np.inf, -np.inf, np.nan])
def test_a_proposal_that_is_impossible_leaves_no_trace(bad):
    mean, factor, x, y = random_moments(3, 2)
    expected = reference.am_update(mean, factor @ factor.T, x, 0.1)
    y[1] = bad
    moments.update_from_both(mean, factor, x, y, 0.0, 0.1, np.empty(3))
    assert_same(mean, factor, expected)


def normal_sequence(n, seed=0):
    return np.random.default_rng(seed).multivariate_normal(MEAN, COVARIANCE, n)


def relative_error(mean, factor):
    """Largest error of mean and covariance in units of the true standard deviations."""
    scales = np.sqrt(np.diag(COVARIANCE))
    covariance = np.tril(factor) @ np.tril(factor).T
    return max(
        np.abs((mean - MEAN) / scales).max(),
        np.abs((covariance - COVARIANCE) / np.outer(scales, scales)).max(),
    )


def learn_all(states, n_tune, start_scales, *rate):
    """Feed a chain's states to learn_moments; return the moments and when the seeding ended."""
    learned, v = Moments.start(start_scales, n_tune, *rate), np.empty(states.shape[1])
    ends = [t for t, x in enumerate(states) if learn_moments(learned, x, t, v)]
    return learned, ends


@pytest.mark.slow
def test_learns_the_moments_of_an_independent_sequence():
    """A gain that does not decrease, 1/16d, never converges: it fails the same bound.

    Its last seeding, by 100 states, has the weight (12 800 / n)^1.5 of a gain of 1.5/t since. So
    the standard error of a variance is √2 (.1² · .125² + 1.5²/2n)^½ = .019, at most, and the bound
    is more than five of them.
    """
    n, bound = 51_199, 0.1
    states = normal_sequence(n)
    learned, ends = learn_all(states, n, np.full(4, 1e-3))
    assert [end + 1 for end in ends] == reference.seeding_times(4, n)
    assert relative_error(learned.mean, learned.factor) < bound

    mean, factor, v = MEAN.copy(), np.linalg.cholesky(COVARIANCE), np.empty(4)
    errors = []
    for t, x in enumerate(states[:4000]):
        moments.update_mean_and_factor(mean, factor, x, 1 / 64, v)
        if t % 400 == 399:
            errors.append(relative_error(mean, factor))
    assert np.median(errors) > bound


@pytest.mark.parametrize(
    ("rate", "seedings"),
    [((), [100, 200, 400]), ((Decay(0.02, 1.0, 0.0),), [100]), ((Decay(0.5, 20.0, 0.7),), [100])],
)
def test_learn_moments_is_the_seeding_and_the_slow_recursion(rate, seedings):
    """Seeded at doubling times by np.cov of the newest half; between them η = 1/max(16d, 2t/3).

    Only once with a rate of the user.
    """
    n, d = 1200, 4
    states = normal_sequence(n)
    states[40:60] = states[40]  # as if rejected
    learned, ends = learn_all(states, n, np.ones(d), *rate)
    assert [end + 1 for end in ends] == reference.seeding_times(d, n, *rate) == seedings
    mean, covariance = reference.moments(states, n, None, *rate)[-1]
    np.testing.assert_allclose(learned.mean, mean, rtol=1e-9)
    np.testing.assert_allclose(
        np.tril(learned.factor), np.linalg.cholesky(covariance), rtol=1e-7, atol=1e-9
    )


def test_seeding_takes_a_quarter_at_most():
    for n_tune in range(400):
        assert Moments.start(np.ones(3), n_tune).seeding[0] <= n_tune // 4 + 1


def test_a_chain_that_never_moved_keeps_the_scales_it_started_with():
    scales = np.array([1e-3, 1.0, 50.0, 2.0])
    learned, _ = learn_all(np.tile(MEAN, (100, 1)), 400, scales)
    np.testing.assert_array_equal(learned.factor, np.diag(scales))
    np.testing.assert_allclose(learned.mean, MEAN)
