"""Ridges that are narrower at one end, as of a conductance with a pole outside of the data.

Chains on an approximation go by a length of leaps that suits the middle. They came to no narrow end
then, where a fifth of the posterior may be, and R-hat was 1.01.
"""

import numpy as np
import pymc as pm
import pytest
from reports import off_by
from scipy.stats import norm

import pymc_kameleon as pk

RNG = np.random.default_rng(4)
X, V = RNG.uniform(0.01, 0.09, 60), RNG.uniform(0.8, 1.2, 60)
NOISE = 0.04
HIGH = 30.0, 10.0
"""Largest slope and b."""


def outputs(a, slope, b):
    return a + slope * X / (1 + V / b)


Y = outputs(0.1, 8.0, 1.2) + NOISE * RNG.standard_normal(60)


def ridge():
    @pk.black_box
    def conductance(a, slope, b):
        return outputs(a, slope, b)

    with pm.Model() as model:
        a, slope = pm.Uniform("a", -10, 20), pm.Uniform("slope", 0, HIGH[0])
        b = pm.Uniform("b", 0, HIGH[1])
        pm.Normal("y", conductance(a, slope, b), NOISE, observed=Y)
    return model


def marginal_of_b():
    """Return b (n,) on a grid, and shares: given b the model is linear, and slope is bounded."""
    grid, logp = np.linspace(0, HIGH[1], 4002)[1:-1], []
    for b in grid:
        columns = np.c_[np.ones(60), X / (1 + V / b)]
        fitted, misfit, *_ = np.linalg.lstsq(columns, Y)
        inverse = np.linalg.inv(columns.T @ columns) * NOISE**2
        ends = (np.array([0, HIGH[0]]) - fitted[1]) / np.sqrt(inverse[1, 1])
        mass = np.log(np.diff(norm.cdf(ends))[0]) + np.linalg.slogdet(inverse)[1] / 2
        logp.append(mass - misfit[0] / 2 / NOISE**2)
    shares = np.exp(np.array(logp) - np.max(logp))
    return grid, shares / shares.sum()


@pytest.mark.slow
def test_chains_come_to_the_narrow_end():
    """With leaps of one length most chains had .6 % of their draws where 5 % should be."""
    with ridge():
        dt = pk.sample(max_evaluations=3000, random_seed=1, cores=1, progressbar=False)
    grid, shares = marginal_of_b()
    end, mean = np.interp(0.05, np.cumsum(shares), grid), shares @ grid
    assert np.median((dt.posterior["b"] < end).mean("draw")) > 0.02
    assert off_by(dt, "b", mean, np.sqrt(shares @ (grid - mean) ** 2)) < 0.1
