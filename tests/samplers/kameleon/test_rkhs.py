"""The kernel covariance against M H Mᵀ, and distances against scipy."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from pymc_kameleon.samplers.kameleon.kernels import Gaussian, Linear, Matern
from pymc_kameleon.samplers.kameleon.rkhs import (
    centred_gram,
    kernel_covariance,
    median_distance,
)

KERNELS = [Gaussian(), Matern(1.5), Matern(2), Matern(4), Matern(30), Linear()]


def compiled(kernel, bandwidth):
    """Return the kernel as compiled code takes it, with this bandwidth."""
    result = kernel.compiled()
    result.bandwidth[0] = bandwidth
    return result


def with_spare_columns(points, spare=5):
    """Return the points as columns, and NaN behind them."""
    z = np.full((points.shape[1], len(points) + spare), np.nan)
    z[:, : len(points)] = points.T
    return z


def fast(kernel, bandwidth, x, points, spare=3):
    """Call kernel_covariance with `spare` columns of NaN behind the points."""
    m, d = points.shape
    z, v = with_spare_columns(points, spare), np.full((d + 1, m + spare), np.nan)
    covariance = np.full((d, d), np.nan)
    kernel_covariance(compiled(kernel, bandwidth), z, m, x, covariance, v)
    return covariance


@pytest.mark.parametrize("far", [0.0, 1e3, 1e6])
def test_the_linear_kernel_gives_the_scatter_from_anywhere(far):
    """4 m times the covariance of z. The paper's v = 2z loses digits far from the origin."""
    rng = np.random.default_rng(0)
    centred = rng.standard_normal((30, 3)) @ np.diag([1.0, 10.0, 0.1])
    points = np.round(centred * 2**20) / 2**20 + far  # so that the shift itself is exact
    expected = 4 * 30 * np.cov(points - far, rowvar=False, bias=True)
    scale = np.sqrt(np.outer(np.diag(expected), np.diag(expected)))
    for x in [np.zeros(3), points[0], np.full(3, far), far + rng.standard_normal(3)]:
        error = np.abs(fast(Linear(), 1.0, x, points) - expected) / scale
        assert error.max() < 1e-10 if np.abs(x - far).max() < 100 else 1e-3
    if far == 1e6:
        m = 2 * points.T
        naive = m @ m.T - np.outer(m.sum(axis=1), m.sum(axis=1)) / 30
        assert (np.abs(naive - expected) / scale).max() > 1e-6


@pytest.mark.parametrize("kernel", KERNELS, ids=str)
def test_no_points_give_zeros(kernel):
    s = fast(kernel, 1.0, np.ones(3), np.empty((0, 3)))
    np.testing.assert_array_equal(s, np.zeros((3, 3)))


@pytest.mark.parametrize("kernel", KERNELS[:-1], ids=str)
@pytest.mark.parametrize("far", [1e3, 1e150, 1e200])
def test_far_away_there_is_nothing_to_learn(kernel, far):
    s = fast(kernel, 1.0, np.full(2, far), np.eye(2))
    np.testing.assert_array_equal(s, np.zeros((2, 2)))


# ---- centred kernel matrix ------------------------------------------------------------------


def test_centred_gram_far_from_the_origin():
    """As for S, it does not matter where the origin is."""
    points = np.round(np.random.default_rng(0).standard_normal((20, 2)) * 2**20) / 2**20
    near, far = (centred_gram(1.5, with_spare_columns(points + shift), 20) for shift in (0, 1e6))
    np.testing.assert_allclose(far, near, rtol=0, atol=1e-8)


# ---- median distance ------------------------------------------------------------------------


@pytest.mark.parametrize(("d", "m"), [(1, 2), (1, 20), (3, 3), (5, 45)])
def test_median_distance_of_all_pairs(d, m):
    points = np.random.default_rng(m).standard_normal((m, d))
    distance = median_distance(with_spare_columns(points), m, m * (m - 1) // 2)
    assert distance == pytest.approx(np.median(pdist(points)), rel=1e-12)


def test_median_distance_leaves_zeros_out():
    points = np.repeat(np.random.default_rng(0).standard_normal((6, 2)), 5, axis=0)
    distances = pdist(points)
    expected = np.median(distances[distances > 0])
    assert expected != pytest.approx(np.median(distances))
    distance = median_distance(with_spare_columns(points), 30, 1000)
    assert distance == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("m", [0, 1, 4])
def test_median_distance_of_one_place_is_zero(m):
    assert median_distance(with_spare_columns(np.ones((m, 2))), m, 100) == 0


def test_median_distance_from_some_pairs():
    """2000 pairs of points in random order suffice; of sorted points they do not."""
    points = np.random.default_rng(0).standard_normal((1000, 2))
    exact = np.median(pdist(points))
    estimate = median_distance(with_spare_columns(points), 1000, 2000)
    assert estimate == pytest.approx(exact, rel=0.05)  # its standard error is 0.014
    ordered = points[np.argsort(points[:, 0])]
    biased = median_distance(with_spare_columns(ordered), 1000, 2000)
    assert biased != pytest.approx(exact, rel=0.05)
