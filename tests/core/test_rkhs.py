"""The kernel covariance against M H Mᵀ, and the median distance against scipy."""

import numpy as np
import pytest
from scipy.spatial.distance import pdist

from pymc_kameleon.core.rkhs import kernel_covariance, median_distance


def kernel(x, z, bandwidth):
    """Evaluate the Gaussian kernel."""
    return np.exp(-np.sum((x - z) ** 2) / (2 * bandwidth**2))


def gradient(x, z, bandwidth):
    """Differentiate the kernel with respect to x, by hand."""
    return kernel(x, z, bandwidth) * (z - x) / bandwidth**2


def numerical_gradient(x, z, bandwidth):
    """Differentiate the kernel with respect to x, by central differences."""
    h = 1e-4 * bandwidth
    steps = h * np.eye(x.size)
    return np.array(
        [(kernel(x + e, z, bandwidth) - kernel(x - e, z, bandwidth)) / (2 * h) for e in steps]
    )


def naive(x, points, bandwidth, gradient=gradient):
    """S = M H Mᵀ with M = 2[∇k(x, z₁) … ∇k(x, z_m)] and H = I - 11ᵀ/m, both in full."""
    m = len(points)
    big_m = 2 * np.column_stack([gradient(x, z, bandwidth) for z in points])
    h = np.eye(m) - np.ones((m, m)) / m
    return big_m @ h @ big_m.T


def fast(x, points, bandwidth, spare=0):
    """Call kernel_covariance with `spare` columns of NaN behind the points."""
    m, d = points.shape
    z = np.full((d, m + spare), np.nan)
    z[:, :m] = points.T
    covariance = np.full((d, d), np.nan)
    kernel_covariance(z, m, bandwidth, x, covariance, np.full((d + 1, m + spare), np.nan))
    return covariance


@pytest.mark.parametrize(("d", "m"), [(1, 1), (1, 5), (2, 2), (3, 40), (8, 100), (20, 7)])
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 30.0])
def test_kernel_covariance(d, m, bandwidth):
    rng = np.random.default_rng(d)
    points, x = rng.standard_normal((m, d)), rng.standard_normal(d)
    s = fast(x, points, bandwidth, spare=3)
    expected = naive(x, points, bandwidth)
    scale = np.abs(naive(x, np.vstack([points, x]), bandwidth)).max()  # m = 1 gives zeros
    np.testing.assert_allclose(s, expected, rtol=1e-10, atol=1e-12 * scale)
    np.testing.assert_allclose(
        s, naive(x, points, bandwidth, numerical_gradient), rtol=1e-6, atol=1e-7 * scale
    )
    np.testing.assert_array_equal(s, s.T)


def test_kernel_covariance_is_one_of_a_covariance():
    """Positive semidefinite, of rank m - 1 at most."""
    rng = np.random.default_rng(0)
    s = fast(rng.standard_normal(6), rng.standard_normal((4, 6)), 2.0)
    eigenvalues = np.linalg.eigvalsh(s)
    assert (np.abs(eigenvalues[:3]) < 1e-15).all()
    assert (eigenvalues[3:] > 1e-4).all()


def test_a_linear_kernel_would_give_the_scatter():
    """A wide bandwidth makes 4 (z - x)/σ² of each point: the scatter matrix of z."""
    points = np.random.default_rng(0).standard_normal((30, 3))
    scatter = 30 * np.cov(points, rowvar=False, bias=True)
    np.testing.assert_allclose(
        fast(np.zeros(3), points, 1e4) * 1e16 / 4, scatter, rtol=1e-5, atol=1e-5
    )


def test_no_points_give_zeros():
    np.testing.assert_array_equal(
        fast(np.ones(3), np.empty((0, 3)), 1.0, spare=4), np.zeros((3, 3))
    )


def test_far_away_there_is_nothing_to_learn():
    np.testing.assert_array_equal(fast(np.full(2, 1e3), np.eye(2), 1.0), np.zeros((2, 2)))


# ---- median distance ------------------------------------------------------------------------


def with_spare_columns(points):
    z = np.full((points.shape[1], len(points) + 5), np.nan)
    z[:, : len(points)] = points.T
    return z


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
    assert estimate == pytest.approx(exact, rel=0.05)  # its standard error is .014
    ordered = points[np.argsort(points[:, 0])]
    biased = median_distance(with_spare_columns(ordered), 1000, 2000)
    assert biased != pytest.approx(exact, rel=0.05)
