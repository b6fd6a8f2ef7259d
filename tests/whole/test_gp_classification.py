"""The estimate of a Gaussian process's marginal likelihood, in examples/papers."""

import sys
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy import optimize
from scipy.special import expit, logsumexp

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[2] / "examples" / "papers"))
import gp_classification as gp
import kam_glass

SLOW = pytest.mark.slow


def data(n, d=2, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, d))
    return x, np.where(rng.random(n) < expit(3 * x[:, 0]), 1.0, -1.0)


def kernel(theta, x):
    squares = (x[:, None] - x) ** 2 / np.exp(theta)
    return np.exp(-squares.sum(axis=2) / 2) + gp.RIDGE * np.eye(len(x))


def by_quadrature(theta, x, y, points=40):
    """log p(y|θ) on a grid of Gauss and Hermite's, in u = C⁻¹f."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    grid = np.meshgrid(*[nodes] * len(y), indexing="ij")
    u = np.stack([g.ravel() for g in grid], axis=1)
    product = np.prod(np.meshgrid(*[weights / weights.sum()] * len(y), indexing="ij"), axis=0)
    f = u @ np.linalg.cholesky(kernel(theta, x)).T
    log_p = -np.logaddexp(0, -y * f).sum(axis=1)
    return logsumexp(log_p, b=product.ravel())


@SLOW
@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("theta", [[0.0, 0.0], [2.0, -1.0]])
def test_the_estimate_is_unbiased(n, theta):
    theta, (x, y) = np.array(theta), data(n)
    exact = by_quadrature(theta, x, y)
    ratios = np.exp([gp.log_estimate(theta, x, y, seed, 5) - exact for seed in range(20_000)])
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.01
    assert abs(ratios.mean() - 1) < 4 * error


@SLOW
def test_many_samples_are_exact():
    theta, (x, y) = np.zeros(2), data(3)
    exact = by_quadrature(theta, x, y)
    assert gp.log_estimate(theta, x, y, 1, 200_000) == pytest.approx(exact, abs=2e-3)


@SLOW
def test_a_large_case_agrees_with_plain_importance_sampling():
    """Of the prior: without Laplace's approximation."""
    theta, (x, y) = np.array([3.0, 5.0]), data(40)
    rng = np.random.default_rng(1)
    f = rng.standard_normal((400_000, 40)) @ np.linalg.cholesky(kernel(theta, x)).T
    log_p = -np.logaddexp(0, -y * f).sum(axis=1)
    weights = np.exp(log_p - log_p.max())
    error = weights.std() / weights.mean() / np.sqrt(len(weights))
    expected = logsumexp(log_p) - np.log(len(log_p))
    found = gp.log_estimate(theta, x, y, 1, 1000)
    assert error < 0.01
    assert found == pytest.approx(expected, abs=4 * error + 0.01)


@pytest.mark.slow
def test_the_mode_is_the_maximum():
    theta, (x, y) = np.array([0.5, 1.0]), data(30)
    covariance = kernel(theta, x)
    ours = gp.kernel_matrix(theta, x)
    np.testing.assert_allclose(ours, covariance, rtol=1e-12)
    f, a = gp.mode(ours, y)
    np.testing.assert_allclose(covariance @ a, f, atol=1e-10)
    factor = np.linalg.cholesky(covariance)

    def loss(u):
        f = factor @ u
        slope = u - factor.T @ (y * expit(-y * f))
        return u @ u / 2 + np.logaddexp(0, -y * f).sum(), slope

    found = optimize.minimize(loss, np.zeros(30), jac=True, options={"gtol": 1e-9})
    np.testing.assert_allclose(f, factor @ found.x, atol=0.02)


@SLOW
def test_it_is_a_likelihood_for_pk_sample():
    """Compiled, and called from Python, it is the same; a chain moves."""
    x, y = data(20)
    with pm.Model() as model:
        theta = pm.Normal("theta", sigma=5**0.5, shape=2)
        op = gp.LogMarginalLikelihood(n_samples=10)
        likelihood = op(theta, x, y, pk.noise_seed())
        pm.Potential("likelihood", likelihood)
    seed = model["noise_seed"]
    in_python = pytensor.function([], op(np.ones(2), x, y, seed), mode="FAST_COMPILE")
    in_numba = pytensor.function([], op(np.ones(2), x, y, seed), mode="NUMBA")
    found = [in_python(), in_numba()]  # which LAPACK's threads round differently
    np.testing.assert_allclose(found, gp.log_estimate(np.ones(2), x, y, 0, 10), rtol=1e-12)
    step = pk.GAM(model=model, pseudo_marginal=True)
    assert not step.log_density.holds_gil
    dt = pk.sample(50, tune=50, chains=1, step=step, model=model, quiet=True, random_seed=1)
    assert 0.02 < dt["sample_stats"]["accept_share"].values.mean() < 0.5
    assert 0 < dt["sample_stats"]["log_estimate_var"].values[0, 0] < 1


def test_cubic_features_have_the_kernel_of_the_paper():
    x, y = np.random.default_rng(1).normal(size=(2, 5, 9))
    products = np.sum(kam_glass.cubic_features(x) * kam_glass.cubic_features(y), axis=1)
    np.testing.assert_allclose(products, (1 + np.sum(x * y, axis=1)) ** 3)
