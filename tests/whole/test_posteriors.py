"""Ordinary posteriors of 4 to 26 parameters with known answers; default arguments suffice."""

from functools import cache
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytest
from boxed import SAMPLERS as ALL

import pymc_kameleon as pk

COMPONENTWISE = (pk.CMH, pk.CMTM)
SAMPLERS = [s for s in ALL if s not in (pk.baselines.RWM, pk.baselines.MALA, *COMPONENTWISE)]
CHAINS, TUNE, DRAWS = 2, 1000, 1000


class Posterior(NamedTuple):
    """A model of one free variable "x", and mean and sd of its value variable, each (d,)."""

    model: pm.Model
    mean: np.ndarray
    sd: np.ndarray


def gaussian(precision, linear):
    """Mean and sd of the density exp(-x'Px/2 + l'x)."""
    covariance = np.linalg.inv(precision)
    return covariance @ linear, np.sqrt(np.diag(covariance))


def weighted(log_density, mode, scale, n=200_000, rounds=3):
    """Mean and sd by importance sampling from a t distribution, which is fitted in rounds."""
    rng = np.random.default_rng(0)
    d, df = mode.size, 6
    for _ in range(rounds):
        t = rng.standard_normal((n, d)) * np.sqrt(df / rng.chisquare(df, (n, 1)))
        x = mode + t @ np.linalg.cholesky(scale).T
        log_w = log_density(x) + 0.5 * (df + d) * np.log1p((t**2).sum(axis=1) / df)
        w = np.exp(log_w - log_w.max())
        w /= w.sum()
        mode, scale = w @ x, np.cov(x.T, aweights=w)
    assert 1 / (w**2).sum() > n / 4
    return mode, np.sqrt(np.diag(scale))


def newton(gradient_and_hessian, x):
    """Mode, and the inverse of minus the Hessian there."""
    for _ in range(50):
        gradient, hessian = gradient_and_hessian(x)
        x = x - np.linalg.solve(hessian, gradient)
    return x, np.linalg.inv(-hessian)


@cache
def regression():
    """11 parameters; predictors that correlate by 0.98, on different scales."""
    rng = np.random.default_rng(1)
    n, d = 80, 10
    base = rng.standard_normal((n, 1))
    predictors = (base + 0.15 * rng.standard_normal((n, d))) * np.logspace(-1, 2, d)
    design = np.c_[np.ones(n), predictors]
    y = 3 + predictors @ (rng.standard_normal(d) / np.logspace(-1, 2, d)) + rng.standard_normal(n)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 100, shape=d + 1)
        pm.Normal("y", (design * x).sum(axis=1), 1, observed=y)
    precision = design.T @ design + np.eye(d + 1) / 100**2
    return Posterior(model, *gaussian(precision, design.T @ y))


@cache
def hierarchy():
    """21 parameters: a mean and twenty groups of unequal size, centred."""
    rng = np.random.default_rng(2)
    k, tau = 20, 0.5
    sizes = rng.integers(1, 30, k)
    y = 2 + tau * rng.standard_normal(k) + rng.standard_normal(k) / np.sqrt(sizes)
    with pm.Model() as model:
        x = pm.Normal("x", 0, [10.0] + [1e3] * k, shape=k + 1)
        pm.Potential("groups", -(((x[1:] - x[0]) / tau) ** 2).sum() / 2)
        pm.Normal("y", x[1:], 1 / np.sqrt(sizes), observed=y)
    precision = np.diag(np.r_[1e-2 + k / tau**2, 1e-6 + 1 / tau**2 + sizes])
    precision[0, 1:] = precision[1:, 0] = -1 / tau**2
    return Posterior(model, *gaussian(precision, np.r_[0, sizes * y]))


@cache
def time_series():
    """26 parameters: the states of a random walk, seen with noise."""
    rng = np.random.default_rng(3)
    n, step, noise = 26, 0.3, 0.6
    y = np.cumsum(step * rng.standard_normal(n)) + noise * rng.standard_normal(n)
    with pm.Model() as model:
        x = pm.Normal("x", 0, [1.0] + [1e3] * (n - 1), shape=n)
        pm.Potential("steps", -(((x[1:] - x[:-1]) / step) ** 2).sum() / 2)
        pm.Normal("y", x, noise, observed=y)
    difference = np.diff(np.eye(n), axis=0) / step
    prior = np.diag(np.r_[1.0, np.full(n - 1, 1e-6)])
    precision = prior + difference.T @ difference + np.eye(n) / noise**2
    return Posterior(model, *gaussian(precision, y / noise**2))


@cache
def counts():
    """6 parameters of a Poisson regression with few counts, so that it is skewed."""
    rng = np.random.default_rng(4)
    design = np.c_[np.ones(30), rng.standard_normal((30, 5))]
    y = rng.poisson(np.exp(design @ [-0.5, 0.6, -0.4, 0.3, 0, 0.2]))
    with pm.Model() as model:
        x = pm.Normal("x", 0, 2, shape=6)
        pm.Poisson("y", pm.math.exp((design * x).sum(axis=1)), observed=y)

    def gradient_and_hessian(x):
        rate = np.exp(design @ x)
        return design.T @ (y - rate) - x / 4, -design.T @ (rate[:, None] * design) - np.eye(6) / 4

    def log_density(x):
        eta = x @ design.T
        return eta @ y - np.exp(eta).sum(axis=1) - (x**2).sum(axis=1) / 8

    return Posterior(model, *weighted(log_density, *newton(gradient_and_hessian, np.zeros(6))))


@cache
def mixture():
    """4 parameters: the shares of five known components, on the unconstrained scale."""
    rng = np.random.default_rng(5)
    centres = np.arange(5) * 1.5
    shares = [0.1, 0.3, 0.2, 0.25, 0.15]
    y = rng.choice(centres, 150, p=shares) + 0.7 * rng.standard_normal(150)
    with pm.Model() as model:
        x = pm.Dirichlet("x", np.full(5, 2.0))
        pm.NormalMixture("y", x, centres, 0.7, observed=y)
    (transform,) = (model.rvs_to_transforms[rv] for rv in model.free_RVs)
    components = np.exp(-0.5 * ((y[:, None] - centres) / 0.7) ** 2)

    def log_density(v):
        """Softmax of v and a last entry that makes the sum 0, as PyMC's simplex transform."""
        v = np.c_[v, -v.sum(axis=1)]
        log_w = v - np.logaddexp.reduce(v, axis=1, keepdims=True)
        likelihood = np.log(np.exp(log_w) @ components.T).sum(axis=1)
        return likelihood + 2 * log_w.sum(axis=1)  # prior (2 - 1) and Jacobian, Σ log w

    assert type(transform).__name__ == "SimplexTransform"
    spread = 0.3 * (np.eye(4) + 0.2)
    return Posterior(model, *weighted(log_density, np.zeros(4), spread))


POSTERIORS = [regression, hierarchy, time_series, counts, mixture]


@cache
def draws(sampler, posterior):
    """Draws of the value variable (CHAINS, DRAWS, d), from dispersed starts."""
    model = posterior().model
    step = sampler(model=model, **({"steps_per_draw": 4} if sampler is pk.CMH else {}))
    (name,) = step.var_names
    (value,) = model.value_vars
    starts = [np.random.default_rng([7, i]) for i in range(CHAINS)]
    result = np.empty((CHAINS, DRAWS, posterior().mean.size))
    for chain, rng in zip(result, starts, strict=True):
        point = {name: model.initial_point()[value.name] + rng.uniform(-1, 1, chain.shape[1])}
        step.setup_chain(rng, TUNE, DRAWS)
        for i in range(TUNE + DRAWS):
            if i == TUNE:
                step.stop_tuning()
            point, [stats] = step.step(point)
            if i >= TUNE:
                chain[i - TUNE] = point[name]
        told = stats["warning"] and stats["warning"].message
        assert not told or (sampler in COMPONENTWISE and "correlate too much" in told), told
    return result


def largest_z(x, mean, sd):
    """Largest error of a mean, or of a log sd, in standard errors by ArviZ's ESS."""
    tree = az.convert_to_datatree({"x": x, "square": (x - mean) ** 2})
    ess = az.ess(tree, method="mean")
    z_mean = (x.mean(axis=(0, 1)) - mean) / (sd / np.sqrt(ess["x"].values))
    log_sd = np.log(((x - mean) ** 2).mean(axis=(0, 1)) / sd**2) / 2
    z_sd = log_sd * np.sqrt(2 * ess["square"].values)
    return np.abs(np.r_[z_mean, z_sd]).max()


CASES = [(sampler, posterior) for sampler in SAMPLERS for posterior in POSTERIORS] + [
    (sampler, posterior)
    for sampler in COMPONENTWISE
    for posterior in (hierarchy, counts, mixture)  # the others correlate, and they warn
]

FEW = pk.baselines.AM, pk.KAM, pk.CMTM, pk.GadMALA, pk.SurrogateMetropolis
TWO = [(hierarchy, pk.GAM), (hierarchy, pk.GadMALA)]


def marked():
    """A few samplers on a skewed posterior, and two in 21 dimensions; the others are slow."""
    for sampler, posterior in CASES:
        is_fast = (posterior is counts and sampler in FEW) or (posterior, sampler) in TWO
        yield pytest.param(sampler, posterior, marks=[] if is_fast else [pytest.mark.slow])


@pytest.mark.parametrize(("sampler", "posterior"), list(marked()), ids=lambda case: case.__name__)
def test_default_arguments_get_it_right(sampler, posterior):
    """An error of 0.3 posterior sds, or of 20 % in an sd, would be seen."""
    x, (_, mean, sd) = draws(sampler, posterior), posterior()
    assert float(az.rhat(az.convert_to_datatree({"x": x}))["x"].max()) < 1.03
    assert largest_z(x, mean, sd) < 5
    assert largest_z(x, mean + 0.3 * sd, sd) > 5
    assert largest_z(x, mean, 1.2 * sd) > 5
