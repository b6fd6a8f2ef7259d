"""A wrong simulator beside a Gaussian process of its discrepancy [Kennedy & O'Hagan 2001].

The simulator is linear here, and priors and processes are normal. So the posterior is normal, and
its mean and covariance are known exactly.
"""

import numpy as np
import pymc as pm
import pytest
from scipy.linalg import cho_factor, cho_solve

import pymc_kameleon as pk

TIMES = np.linspace(0, 6, 40)
AMPLITUDE, LENGTH, NOISE = 0.5, 1.5, 0.1
COLUMNS = np.c_[np.ones(40), TIMES, np.exp(-TIMES)]
SEEN = (
    COLUMNS @ [0.3, -0.4, 1.2]
    + 0.6 * np.sin(TIMES)
    + NOISE * np.random.default_rng(2).normal(size=40)
)


def covariance():
    """Return that of δ, by Rasmussen and Williams' equation 4.17 for Matérn's with ν = 5/2."""
    r = np.sqrt(5) * np.abs(TIMES[:, None] - TIMES) / LENGTH
    return AMPLITUDE**2 * (1 + r + r**2 / 3) * np.exp(-r)


def exact(covariance):
    """Return mean and covariance of the posterior, given that of the discrepancy."""
    factor = cho_factor(covariance + NOISE**2 * np.eye(40))
    inverse = np.linalg.inv(np.eye(3) + COLUMNS.T @ cho_solve(factor, COLUMNS))
    return inverse @ COLUMNS.T @ cho_solve(factor, SEEN), inverse


def kernel():
    return AMPLITUDE**2 * pm.gp.cov.Matern52(1, LENGTH)


def by_marginal(curve):
    process = pm.gp.Marginal(mean_func=lambda times: curve, cov_func=kernel())
    process.marginal_likelihood("seen", TIMES[:, None], SEEN, NOISE, jitter=0)


def by_normal(curve):
    whole = kernel()(TIMES[:, None]) + NOISE**2 * np.eye(40)
    pm.MvNormal("seen", curve, whole, observed=SEEN)


def without(curve):
    pm.Normal("seen", curve, NOISE, observed=SEEN)


def model(observe):
    @pk.black_box
    def line(theta):
        return COLUMNS @ theta

    with pm.Model() as own:
        observe(line(pm.Normal("theta", shape=3)))
    return own


def moments(observe):
    """Return means and covariance by a run, and its verdict."""
    with model(observe):
        dt = pk.sample(max_evaluations=500, random_seed=1, cores=1, progressbar=False)
        first = pk.expectation(dt, lambda v: v["theta"])
        second = pk.expectation(dt, lambda v: v["theta"][..., None] * v["theta"][..., None, :])
    covariance = second.mean - np.outer(first.mean, first.mean)
    return first.mean, covariance, dt["findings"].attrs["verdict"]


def off_by(found, known):
    """Return how far means are off, in sds, and covariances, in products of sds."""
    sd = np.sqrt(np.diag(known[1]))
    return (
        np.abs((found[0] - known[0]) / sd).max(),
        np.abs((found[1] - known[1]) / np.outer(sd, sd)).max(),
    )


@pytest.mark.slow
@pytest.mark.parametrize("observe", [by_marginal, by_normal])
def test_the_posterior_beside_a_discrepancy_is_the_exact_one(observe):
    *found, verdict = moments(observe)
    of_mean, of_covariance = off_by(found, exact(covariance()))
    assert of_mean < 0.1
    assert of_covariance < 0.1
    assert verdict == "usable"


@pytest.mark.slow
def test_without_it_the_posterior_is_another_one():
    """Which is right for what that model says: too narrow, and far from the other one."""
    *found, _ = moments(without)
    assert max(off_by(found, exact(np.zeros((40, 40))))) < 0.1
    of_mean, of_covariance = off_by(found, exact(covariance()))
    assert of_mean > 0.5
    assert of_covariance > 0.5
