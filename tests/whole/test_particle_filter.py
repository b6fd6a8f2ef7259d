"""The particle filter of the examples."""

import re
import sys

import numba
import numpy as np
import pytensor
import pytest
from scipy.stats import multivariate_normal
from test_package import ROOT, python

import pymc_kameleon as pk

sys.path.append(str(ROOT / "examples"))
import particle_filter as pf

PARAMETERS = np.array([0.5, 0.8, 0.6])


@numba.njit
def seen_with_noise(y, state, parameters):
    """Return the log-density of a state plus a standard normal number."""
    return -0.5 * (np.log(2 * np.pi) + (y - state) ** 2)


def linear_case(n=10):
    """Return observations that are normal together, and their exact log-density."""
    mu, phi, sigma = PARAMETERS
    lags = np.abs(np.subtract.outer(np.arange(n), np.arange(n)))
    covariance = sigma**2 / (1 - phi**2) * phi**lags + np.eye(n)
    distribution = multivariate_normal(np.full(n, mu), covariance)
    y = distribution.rvs(random_state=1)
    return y, distribution.logpdf(y)


@pytest.mark.slow
@pytest.mark.parametrize("n_particles", [5, 20])
def test_the_estimate_is_unbiased(n_particles):
    y, exact = linear_case()
    functions = pf.first, pf.move, seen_with_noise
    estimates = [pf.log_estimate(PARAMETERS, y, i, n_particles, *functions) for i in range(40_000)]
    ratios = np.exp(np.array(estimates) - exact)
    error = ratios.std() / np.sqrt(len(ratios))
    assert error < 0.02
    assert abs(ratios.mean() - 1) < 4 * error


def test_states_are_chosen_in_proportion_to_their_weights():
    weights = np.array([0.0, 0.1, 2.0, 0.4, 0.7])
    chosen = [pf.parents(np.arange(5.0), weights) for _ in range(10_000)]
    counts = np.stack([np.bincount(each.astype(int), minlength=5) for each in chosen])
    expected = 5 * weights / weights.sum()
    assert np.all(np.abs(counts - expected) < 1)
    np.testing.assert_allclose(counts.mean(axis=0), expected, atol=0.02)


def test_impossible_observations_have_no_likelihood():
    functions = pf.first, pf.move, numba.njit(lambda y, state, parameters: -np.inf)
    assert pf.log_estimate(PARAMETERS, np.ones(3), 1, 5, *functions) == -np.inf


@pytest.mark.slow
def test_it_is_a_likelihood_for_pk_sample():
    """Compiled, and called from Python, it is the same; a chain moves."""
    y = pf.simulate()[:20]
    model = pf.estimated(y, 10)
    likelihood = pf.ParticleFilter(pf.first, pf.move, pf.log_density, 10)
    value = likelihood(PARAMETERS, y, model["noise_seed"])
    both = [pytensor.function([], value, mode=mode)() for mode in ("FAST_COMPILE", "NUMBA")]
    assert both[0] == pytest.approx(both[1], rel=1e-12)
    step = pk.GAM(model=model, pseudo_marginal=True)
    assert not step.log_density.holds_gil
    dt = pk.sample(50, tune=50, chains=1, step=step, model=model, quiet=True, random_seed=1)
    assert dt["sample_stats"]["accept_share"].values.mean() > 0.02
    assert dt["sample_stats"]["log_estimate_var"].values[0, 0] > 0


@pytest.mark.slow
def test_the_example_agrees_with_the_exact_likelihood(tmp_path):
    printed = python(ROOT / "examples" / "particle_filter.py", cwd=tmp_path)
    rows = re.findall(r"^(mu|phi|sigma) .* ([\d.]+)$", printed, re.M)
    assert len(rows) == 3
    assert max(float(errors) for _, errors in rows) < 4
