"""Kernels: gradients by finite differences, limits, the table, and impossible options."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

import pymc_kameleon as pk
from pymc_kameleon.samplers.kameleon.kernels import Gaussian, Linear, Matern
from pymc_kameleon.samplers.kameleon.rkhs import gradient_weights, interpolate

ORDERS = [1.5, 1.6, 2, 2.5, 4, 10, 30]
RADIAL = [Gaussian, *(lambda bandwidth, v=v: Matern(v, bandwidth) for v in ORDERS)]
NAMES = ["Gaussian", *(f"Matern({v})" for v in ORDERS)]


def weights(kernel, r):
    """2c(r) of the compiled kernel."""
    r2 = np.square(r, dtype=float)
    gradient_weights(kernel.compiled(), r2, r2.size)
    return r2


# ---- the functions --------------------------------------------------------------------------


@pytest.mark.parametrize("build", RADIAL, ids=NAMES)
@pytest.mark.parametrize("bandwidth", [0.05, 1.0, 700.0])
def test_gradients_of_the_kernel(build, bandwidth):
    """∇ₓk(x, z) = c(z - x), by central differences of k."""
    rng = np.random.default_rng(0)
    kernel = build(bandwidth)
    for distance in [0.1, 0.5, 1.0, 2.0, 5.0]:
        x, direction = rng.standard_normal((2, 3)) * bandwidth
        z = x + distance * bandwidth * direction / np.linalg.norm(direction)
        h = 1e-4 * bandwidth
        numerical = [
            (
                reference.kernel_value(kernel, bandwidth, x + e, z)
                - reference.kernel_value(kernel, bandwidth, x - e, z)
            )
            / (2 * h)
            for e in h * np.eye(3)
        ]
        c = weights(kernel, np.array([np.linalg.norm(z - x)])) / 2
        np.testing.assert_allclose(c * (z - x), numerical, rtol=1e-5, atol=1e-8 / bandwidth)
        by_hand = reference.kernel_gradients(kernel, bandwidth, x, z[None])[0]
        np.testing.assert_allclose(by_hand, numerical, rtol=1e-5, atol=1e-8 / bandwidth)


@pytest.mark.parametrize("build", RADIAL, ids=NAMES)
def test_weights_where_two_points_meet(build):
    """2/σ² of the Gaussian, times v/(v - 1) of Matérn's; from there they fall."""
    kernel = build(0.5)
    factor = kernel.order / (kernel.order - 1) if isinstance(kernel, Matern) else 1
    found = weights(kernel, np.linspace(0, 2, 500))
    assert found[0] == pytest.approx(8 * factor, rel=1e-14)
    assert (np.diff(found) < 0).all()
    assert weights(kernel, np.array([1e-9]))[0] == pytest.approx(found[0], rel=1e-6)


def test_the_linear_kernel_has_weights_of_two():
    """∇ₓ xᵀz is z: what is missing, x, is the same for all z and goes with the mean."""
    np.testing.assert_array_equal(weights(Linear(), np.array([0.0, 1.0, 1e9])), [2, 2, 2])
    x, points = np.array([3.0, -1.0]), np.array([[1.0, 2.0], [0.0, 5.0]])
    np.testing.assert_array_equal(reference.kernel_gradients(Linear(), 1.0, x, points), points)
    centred = (points - x) - (points - x).mean(axis=0)
    np.testing.assert_allclose(centred, points - points.mean(axis=0))


# ---- the table ------------------------------------------------------------------------------


def bessel(a, u):
    """M_a(u), 1 at the origin."""
    safe = np.maximum(u, 1e-9)
    return np.where(u < 1e-9, 1, 2 ** (1 - a) / special.gamma(a) * safe**a * special.kv(a, safe))


@pytest.mark.parametrize("v", [*ORDERS, 1.55, 1.75, 1.9, 3.3, 20])
def test_the_table_is_exact_to_seven_or_ten_digits(v):
    """Near the origin, at large, and beyond its reach."""
    kernel = Matern(v, 1.0).compiled()
    u = np.concatenate([np.geomspace(1e-8, 1, 20_000), np.linspace(0, 1.2 * kernel.reach**2, 5000)])
    found = u**2 / (2 * v)
    interpolate(kernel, found, found.size)
    assert np.abs(found - bessel(v - 1, u)).max() < (1e-10 if v >= 2 else 1e-7)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(v=st.floats(2, 30), r=st.floats(0, 100), bandwidth=st.floats(0.01, 100))
def test_the_table_of_any_order(v, r, bandwidth):
    kernel, r2 = Matern(v, bandwidth).compiled(), np.array([r * r])
    interpolate(kernel, r2, 1)
    assert r2[0] == pytest.approx(bessel(v - 1, np.sqrt(2 * v) * r / bandwidth), abs=1e-10)


# ---- options --------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", [Gaussian, Matern])
@pytest.mark.parametrize(
    "bad", [True, False, 0, 0.0, -1.0, np.nan, np.inf, "mode", "", None, [1.0], np.ones(2), 1j]
)
def test_refuses_impossible_bandwidths(kernel, bad):
    with pytest.raises(ValueError, match="bandwidth must be"):
        kernel(bandwidth=bad)


@pytest.mark.parametrize("bad", [True, 1, 1.49, 30.1, -4.0, np.nan, np.inf, "4", None, [4.0]])
def test_refuses_impossible_orders(bad):
    with pytest.raises(ValueError, match="order must be"):
        Matern(order=bad)


@pytest.mark.parametrize("kernel", [Gaussian, Matern])
@pytest.mark.parametrize("good", [1, 0.5, np.float32(0.5), np.int64(2)])
def test_a_number_is_the_bandwidth(kernel, good):
    assert kernel(bandwidth=good).compiled().bandwidth[0] == good


@pytest.mark.parametrize("kernel", [Gaussian, Matern])
def test_the_median_leaves_the_bandwidth_open(kernel):
    assert np.isnan(kernel(bandwidth="median").compiled().bandwidth[0])


def test_the_linear_kernel_has_no_bandwidth():
    assert Linear().compiled().bandwidth[0] == 1
    with pytest.raises(TypeError):
        Linear(bandwidth=2.0)


def test_kernels_are_values():
    """Equal if their options are, and cannot be changed: a saved state holds them."""
    assert Matern(4, 2.0) == Matern(order=4, bandwidth=2.0) != Matern(5, 2.0)
    assert Gaussian() == pk.samplers.kernels.Gaussian("median") != Gaussian(1.0)
    assert hash(Gaussian(0.5)) == hash(Gaussian(0.5))
    with pytest.raises(AttributeError):
        Gaussian().bandwidth = 2.0


def test_each_compiled_kernel_has_a_bandwidth_of_its_own():
    """The chains of one sampler must not share what they learn."""
    kernel = Gaussian()
    one, other = kernel.compiled(), kernel.compiled()
    one.bandwidth[0] = 3.0
    assert np.isnan(other.bandwidth[0])
