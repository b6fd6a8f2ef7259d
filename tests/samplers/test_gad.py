"""MALA, GadRWM and GadMALA against slow versions from their definitions, on the same numbers."""

import numba
import numpy as np
import pytest
import slow

from pymc_kameleon.core.target import LOGP_SIGNATURE

# ---- targets --------------------------------------------------------------------------------
# data are the scales of the coordinates and, for some, a matrix (d, d), raveled.


@numba.njit(LOGP_SIGNATURE)
def skewed(x, data, shapes, gradient):
    """A normal density times a Cauchy density about 1 in each coordinate, so the Hessian varies."""
    d, total = x.size, 0.0
    for i in range(d):
        z, slope = x[i] / data[i], 0.0
        for j in range(d):
            slope -= data[d + d * i + j] * (x[j] / data[j])
        total += 0.5 * z * slope - np.log(1 + (z - 1) ** 2)
        gradient[i] = (slope - 2 * (z - 1) / (1 + (z - 1) ** 2)) / data[i]
    return total


@numba.njit(LOGP_SIGNATURE)
def skewed_curvature(x, data, shapes, v):
    """Replace v by the Hessian's product with it."""
    d = x.size
    product = np.empty(d)
    for i in range(d):
        square, product[i] = (x[i] / data[i] - 1) ** 2, 0.0
        for j in range(d):
            product[i] -= data[d + d * i + j] * (v[j] / data[j])
        product[i] -= 2 * (1 - square) / (1 + square) ** 2 * (v[i] / data[i])
    for i in range(d):
        v[i] = product[i] / data[i]
    return 0.0


def precision_of(d):
    """A precision matrix with strong correlations."""
    a = np.random.default_rng(d).standard_normal((d, d))
    return a @ a.T / d + np.diag(np.linspace(0.1, 1.0, d))


class Slow:
    """A target in plain Python: a function that returns the log-density and its gradient."""

    def __init__(self, logp, data, curvature=None):
        self.logp, self.curvature, self.data = logp, curvature, np.array(data)
        self.count = 0

    def __call__(self, x):
        self.count += 1
        gradient = np.empty(x.size)
        value = self.logp.py_func(x, self.data, np.empty(0, np.int64), gradient)
        return (value if value < np.inf else -np.inf), gradient

    def hessian(self, x):
        columns = np.eye(x.size)
        for v in columns:
            self.curvature.py_func(x, self.data, np.empty(0, np.int64), v)
        return columns.T


def slow_skewed(d, scales=1.0):
    scales = np.broadcast_to(scales, d)
    return Slow(skewed, [*scales, *precision_of(d).ravel()], skewed_curvature)


def differences(function, x, step=1e-6):
    """Central differences of a function with respect to each entry of x."""
    result = np.empty((*np.shape(function(x)), *x.shape))
    for index in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[index] += step
        low[index] -= step
        result[(..., *index)] = (function(high) - function(low)) / (2 * step)
    return result


@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_target_has_these_derivatives(d):
    target = slow_skewed(d, 2.0 ** np.arange(d))
    x = np.random.default_rng(0).standard_normal(d)
    expected = differences(lambda x: target(x)[0], x)
    np.testing.assert_allclose(target(x)[1], expected, rtol=1e-7, atol=1e-8)
    hessian = target.hessian(x)
    np.testing.assert_allclose(hessian, hessian.T, rtol=1e-12)
    expected = differences(lambda x: target(x)[1], x)
    np.testing.assert_allclose(hessian, expected, rtol=1e-7, atol=1e-8)


# ---- the published gradients ----------------------------------------------------------------


def some_factor(d, rng):
    return np.tril(0.3 * rng.standard_normal((d, d)), -1) + np.diag(rng.uniform(0.5, 1.0, d))


def mala_objective(target, x, xi, factor, beta, held=None):
    """min(0, log r) + β Σ log L_ii [GAD, section 2.3], perhaps with ∇log π(y) held constant."""
    log_p, g = target(x)
    y = x + factor @ factor.T @ g / 2 + factor @ xi
    log_p_y, gy = target(y)
    gy = gy if held is None else held
    back = factor.T @ (g + gy) / 2 + xi
    log_ratio = log_p_y - log_p - (back @ back - xi @ xi) / 2
    return min(0.0, log_ratio) + beta * np.log(np.diag(factor)).sum()


def walk_objective(target, x, xi, factor, beta):
    """min(0, log r) + β Σ log L_ii [GAD, section 2.2]."""
    log_ratio = target(x + factor @ xi)[0] - target(x)[0]
    return min(0.0, log_ratio) + beta * np.log(np.diag(factor)).sum()


def published_cases(d, propose, n=20):
    """Yield target, L, β and a proposal, of which some have log r < 0 and some have not."""
    rng = np.random.default_rng(d)
    target, negative = slow_skewed(d), 0
    for _ in range(n):
        x, factor = 1.5 * rng.standard_normal(d), some_factor(d, rng)
        move = propose(target, x, factor, rng)
        negative += move.log_ratio < 0
        yield target, factor, rng.uniform(0.5, 2), move
    assert 0 < negative < n


@pytest.mark.parametrize("exact", [False, True], ids=["fast", "exact"])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_gradient_of_the_objective(d, exact):
    for target, factor, beta, move in published_cases(d, slow.langevin):
        hessian = target.hessian if exact else None
        found = slow.published_gradient(move, factor, beta, hessian)
        held = None if exact else move.gradient_y
        expected = differences(
            lambda entries, target=target, beta=beta, move=move, held=held: mala_objective(
                target, move.x, move.xi, np.tril(entries), beta, held
            ),
            factor,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("d", [1, 2, 5])
def test_gradient_of_the_objective_of_the_walk(d):
    for target, factor, beta, move in published_cases(d, slow.walk):
        found = slow.published_walk_gradient(move, factor, beta)
        expected = differences(
            lambda entries, target=target, beta=beta, move=move: walk_objective(
                target, move.x, move.xi, np.tril(entries), beta
            ),
            factor,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-7, atol=1e-7)


# ---- the factor from positions and gradients ------------------------------------------------


def pairs_of(d, k, seed=0, condition=1e2, shift=3.0):
    """Positions from a normal density, their gradients, and its covariance."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    covariance = axes * np.geomspace(1, condition, d) @ axes.T
    x = rng.standard_normal((k, d)) @ np.linalg.cholesky(covariance).T
    return x + shift, -x @ np.linalg.inv(covariance), covariance
