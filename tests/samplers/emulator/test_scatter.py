"""Outputs that are not smooth: how much they scatter, and what a run tells of that."""

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.samplers.emulator.evaluations import Calls
from pymc_kameleon.samplers.emulator.fit import Hyper
from pymc_kameleon.samplers.emulator.scatter import scatter_of

TIMES = np.linspace(0.2, 5.0, 12)
SPREAD = 0.02
"""Of outputs where the posterior is, about."""


def curves(x):
    return x[:, :1] * np.exp(-x[:, 1:2] * TIMES) + x[:, 2:] * TIMES / 5


def calls_with(noise, n, seed, logs=False):
    """Return calls as a run would have made, from far off and where the posterior is."""
    rng = np.random.default_rng(seed)
    width = np.where(np.arange(n) < n // 4, 0.3, 0.03)[:, None]
    z = width * rng.standard_normal((n, 3))
    x = np.array([2.0, 0.7, 0.5]) * np.exp(z)
    y = curves(x) + noise * rng.standard_normal((n, 12))
    logp = -np.sum((curves(x) - curves(np.array([[2.0, 0.7, 0.5]]))) ** 2, axis=1) / 0.005
    hyper = np.tile(Hyper(), (4, 1)).tolist()
    described = {"variant": 1 if logs else 0, "hyper": hyper}
    curvature = np.full(12, 400.0)
    return Calls(described, ["a", "b", "c"], x, y, logp, np.ones(n, bool), curvature, 4)


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("relative", [1e-4, 1e-2, 0.3])
def test_its_size_is_known_within_a_factor_of_two(relative, n, logs):
    noise = relative * SPREAD
    for seed in range(5):
        found = scatter_of(calls_with(noise, n, seed, logs))
        assert found.is_sure
        assert noise / 2 < np.median(found.sd) < 2 * noise


@pytest.mark.parametrize("n", [60, 300])
def test_a_smooth_function_does_not_scatter(n):
    assert not any(scatter_of(calls_with(0.0, n, seed)).is_sure for seed in range(5))


def test_each_output_has_its_own():
    calls = calls_with(0.0, 300, seed=1)
    sizes = np.geomspace(1e-4, 1e-2, 12)
    noise = sizes * np.random.default_rng(2).standard_normal((300, 12))
    found = scatter_of(calls._replace(y=calls.y + noise))
    np.testing.assert_array_less(np.abs(np.log(found.sd / sizes)), np.log(2))


def test_nothing_is_told_of_a_box_without_a_fit():
    calls = calls_with(0.01, 100, seed=1)
    calls.described["hyper"] = np.full((4, 5), -1).tolist()
    assert scatter_of(calls) is None


def model_of(noise):
    def simulator(a, b):
        rng = np.random.default_rng(abs(hash((float(a), float(b)))))
        return a * np.exp(-b * TIMES) + noise * rng.standard_normal(12)

    observed = 2 * np.exp(-0.7 * TIMES) + 0.05 * np.random.default_rng(1).standard_normal(12)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0.5, 0.5), pm.LogNormal("b", -0.5, 0.5)
        pm.Normal("y", pk.black_box(simulator)(a, b), 0.05, observed=observed)
    return model


@pytest.mark.parametrize("noise", [0.0, 1e-3])
def test_a_run_tells_of_it(noise):
    with model_of(noise):
        dt = pk.sample(max_evaluations=120, random_seed=1, cores=1, quiet=True, progressbar=False)
    told = [one for one in pk.diagnose(dt).findings if one.code == "rough_outputs"]
    assert len(told) == (noise > 0)
    for one in told:
        assert noise / 2 < one.numbers["size"] < 2 * noise
        assert "`simulator` scatter" in one.what
