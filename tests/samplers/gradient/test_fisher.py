"""The factor from positions and gradients against its definition in numpy, and what it promises."""

import numpy as np
import pytest
import reference
from scipy import linalg

from pymc_kameleon.core.factor import diagonal_factor, is_diagonal, multiply, multiply_transposed
from pymc_kameleon.samplers.gradient.fisher_rule import learn_factor


def rotation(d, seed=9):
    return np.linalg.qr(np.random.default_rng(seed).standard_normal((d, d)))[0]


def covariance_of(d, condition=1e2):
    axes = rotation(d, seed=d)
    return axes * np.geomspace(1, condition, d) @ axes.T


def normal_pairs(covariance, k, seed=0, mean=3.0):
    """Positions from a normal density, and its gradients there."""
    x = np.random.default_rng(seed).standard_normal((k, len(covariance)))
    x = x @ np.linalg.cholesky(covariance).T
    return x + mean, -np.linalg.solve(covariance, x.T).T


def rough_pairs(d, k, seed=1):
    """Positions and gradients of a density that is not normal."""
    x, g = normal_pairs(covariance_of(d), k, seed)
    return x + 0.3 * np.sin(x), g - 0.5 * np.tanh(x)


def learned(x, g, is_dense=True, is_early=False):
    """Return L, or its diagonal, and vx·vg."""
    d = x.shape[1]
    factor, information = diagonal_factor(np.full(d, np.nan), is_dense), np.full(d, np.nan)
    learn_factor(np.concatenate([x, g], axis=1), is_early, factor, information)
    return factor, information


def dense(factor):
    """L as a matrix."""
    return np.diag(factor[:, 0]) if is_diagonal(factor) else np.tril(factor)


def relative(found, expected):
    """Largest deviation of LLᵀ from a covariance, where that is I."""
    root = np.linalg.cholesky(expected)
    whitened = np.linalg.solve(root, np.linalg.solve(root, found @ found.T).T)
    return np.abs(whitened - np.eye(len(expected))).max()


def weight(k):
    """How much of I is mixed into the covariances of k pairs."""
    return 0.05 / (0.05 + k**2)


# ---- dense ----------------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 5])
def test_geometric_mean(d):
    """Of the covariance of positions and the inverse of the gradients', by matrix square roots."""
    x, g = rough_pairs(d, 10_000)
    cx, cg = (np.cov(rows, rowvar=False, bias=True) for rows in (x, g))
    root = linalg.sqrtm(cg)
    inverse = np.linalg.inv(root)
    expected = inverse @ linalg.sqrtm(root @ cx @ root) @ inverse
    np.testing.assert_allclose(expected @ cg @ expected, cx, rtol=1e-9)
    found = dense(learned(x, g)[0])
    assert relative(found, expected) < 1e-6
    assert relative(found, cx) > 0.1  # and that is neither of both
    assert relative(found, np.linalg.inv(cg)) > 0.1


@pytest.mark.parametrize(("d", "k"), [(1, 30), (2, 7), (5, 10), (20, 25), (20, 250), (100, 120)])
def test_normal_target_is_known_exactly(d, k):
    """However few pairs there are: some d already."""
    covariance = covariance_of(d)
    x, g = normal_pairs(covariance, k)
    factor, _ = learned(x, g)
    expected = weight(k) * by_regularisation(x, g, covariance)
    assert relative(dense(factor), covariance) < 2 * expected + 1e-8


def by_regularisation(x, g, covariance):
    """Largest deviation of LLᵀ for each unit of weight, to first order.

    Where the covariance is I, both second moments are S, those of I are M and N, and the deviation
    δ solves δS + Sδ = M − N.
    """
    scales = np.sqrt(x.std(axis=0) / g.std(axis=0))
    root = np.linalg.cholesky(covariance / np.outer(scales, scales))
    inverse = np.linalg.inv(root)
    s = np.atleast_2d(np.cov(inverse @ (x / scales).T, bias=True))
    m = inverse @ inverse.T * np.mean((x / scales).var(axis=0))
    n = root.T @ root * np.mean((g * scales).var(axis=0))
    return np.abs(linalg.solve_sylvester(s, s, m - n)).max()


@pytest.mark.parametrize("d", [1, 5])
@pytest.mark.parametrize("k", [4, 60])
def test_units_do_not_matter(d, k):
    x, g = rough_pairs(d, k)
    units = 2.0 ** np.linspace(-20, 20, d).round()
    expected, information = learned(x, g)
    found, same = learned(units * x, g / units)
    np.testing.assert_array_equal(dense(found), units[:, None] * dense(expected))
    np.testing.assert_array_equal(same, information)


@pytest.mark.parametrize(("d", "k"), [(2, 10), (5, 30), (5, 1000), (20, 100)])
def test_axes_matter_by_regularisation_only(d, k):
    x, g = rough_pairs(d, k)
    axes = rotation(d)
    expected = dense(learned(x, g)[0])
    found = dense(learned(x @ axes.T, g @ axes.T)[0])
    deviation = relative(axes.T @ found, expected @ expected.T)
    one = by_regularisation(x, g, expected @ expected.T)
    other = by_regularisation(x @ axes.T, g @ axes.T, found @ found.T)
    assert deviation < 2 * weight(k) * (one + other) + 1e-9
    assert k >= 1000 or deviation > 1e-9  # it does


def test_shifts_do_not_matter():
    x, g = rough_pairs(5, 60)
    expected = dense(learned(x, g)[0])
    np.testing.assert_allclose(dense(learned(x + 100, g - 7)[0]), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("is_early", [False, True])
def test_constant_gradients(is_early):
    """The first coordinate is uniform, and has its own scale; the second never moved."""
    x, g = rough_pairs(4, 256)
    g[:, 0], x[:, 1] = 5.0, 2.0
    factor, information = learned(x, g, is_early=is_early)
    assert max(information[:2]) < 1e-20
    found, expected = dense(factor), reference.fisher_factor(x, g, 1e-8 if is_early else 0.1)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    assert 0.5 * x[:, 0].std() < found[0, 0] < 2 * x[:, 0].std()
    assert np.isfinite(found).all()
    assert (np.diag(found) > 0).all()


@pytest.mark.parametrize(("is_early", "least"), [(False, 0.1), (True, 1e-8)])
def test_weak_gradients_are_not_believed(is_early, least):
    """√(vx/vg) is right down to the least vx·vg; below, the positions alone decide."""
    x, g = normal_pairs(np.eye(1), 1000)

    def variance(product):
        weaker = g * np.sqrt(product / (x.var() * g.var()))
        found = dense(learned(x, weaker, is_early=is_early)[0])
        expected = reference.fisher_factor(x, weaker, least)
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        return found[0, 0] ** 2 / x.var()

    believed, not_believed = variance(least * 1.001), variance(least * 0.999)
    assert believed == pytest.approx(least**-0.5, rel=1e-2)
    if not is_early:
        assert not_believed == pytest.approx(believed, rel=5e-2)  # continuous
    assert variance(least * 1e-9) == pytest.approx(1, rel=1e-3)
    assert variance(1.0) == pytest.approx(1, rel=1e-3)


@pytest.mark.parametrize("size", [1e-150, 1e-60, 1e60, 1e150])
def test_scales_are_bounded(size):
    x, g = normal_pairs(np.eye(2), 50)
    factor, _ = learned(size * x, g / size)
    found = dense(factor)
    assert np.isfinite(found).all()
    assert (np.diag(found) > 0).all()


def test_points_that_are_all_the_same():
    found = dense(learned(np.full((8, 3), 2.0), np.full((8, 3), 1.0))[0])
    assert np.isfinite(found).all()
    assert (np.diag(found) > 0).all()


@pytest.mark.parametrize("k", [4, 50])
def test_points_on_a_line(k):
    """All coordinates are multiples of each other: what is not known stays of moderate size."""
    z = np.random.default_rng(0).standard_normal((k, 1))
    factor, _ = learned(z * [1.0, 2.0, -3.0], -z * [1.0, 0.5, -1 / 3])
    found = dense(factor)
    expected = reference.fisher_factor(z * [1.0, 2.0, -3.0], -z * [1.0, 0.5, -1 / 3])
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8)


def test_what_is_not_finite_falls_back_to_the_scales():
    x, g = normal_pairs(np.eye(2), 50)
    x[:, 1] *= 1e200  # its square is inf
    factor, _ = learned(x, g)
    assert np.isfinite(dense(factor)[0]).all()


# ---- diagonal -------------------------------------------------------------------------------


@pytest.mark.parametrize("is_dense", [True, False])
def test_products(is_dense):
    factor, _ = learned(*rough_pairs(8, 100), is_dense)
    assert is_diagonal(factor) != is_dense
    v, out = np.arange(8.0) - 3, np.empty(8)
    multiply(factor, v, out)
    np.testing.assert_allclose(out, dense(factor) @ v, rtol=1e-12)
    multiply_transposed(factor, v, out)
    np.testing.assert_allclose(out, dense(factor).T @ v, rtol=1e-12)
