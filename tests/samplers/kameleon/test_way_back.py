"""Whether KAM tells that it comes back from the tails too slowly."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import reference
from models import normal
from runs import codes, sample

import pymc_kameleon as pk
from pymc_kameleon.samplers.kameleon import kam


@cache
def wide_and_narrow():
    """0.9 N(0, I) + 0.1 N(0, 16 I) in four dimensions: E x² is 2.5."""
    with pm.Model() as model:
        square = (pm.Flat("x", shape=4) ** 2).sum()
        narrow, wide = np.log(0.9) - square / 2, np.log(0.1 / 4**4) - square / 32
        pm.Potential("p", pt.logaddexp(narrow, wide))
    return model


@cache
def of(model):
    return pk.KAM(model=model)


def tuned(tune=100, **arguments):
    """Return a step after tuning, of ten transitions per draw."""
    step = pk.KAM(model=normal(4), **arguments)
    step.setup_chain(np.random.default_rng(1), tune, 100)
    point = {"x": np.full(4, 0.3)}
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    return step


@pytest.mark.parametrize(
    "arguments",
    [{}, {"kernel": pk.samplers.kernels.Matern(), "whiten": False, "n_subsample": 30}],
    ids=str,
)
def test_by_hand(arguments):
    """|u − ū|²/tr R(u), over the outermost twentieth of the newest half of the past."""
    step = tuned(**arguments)
    learned, history = reference.KAM(step), step.tuning.past.history
    n = history.counts[0]
    u = np.linalg.solve(learned.whitening, history.points[n // 2 : n].T).T
    distances = np.square(u - u.mean(axis=0)).sum(axis=1)
    outer = np.argsort(distances)[-int(np.ceil(len(u) / 20)) :]
    expected = [
        distances[i]
        / np.trace(learned.gamma**2 * np.eye(4) + learned.nu**2 * learned.kernel_covariance(u[i]))
        for i in outer
    ]
    found = kam.transitions_back(history, step.parameters.subsample, learned.gamma, learned.nu)
    assert found == pytest.approx(np.mean(expected), rel=1e-9)


def test_it_is_told_where_a_run_makes_few_stays(monkeypatch):
    """From 80 transitions on, unless there are 20 stays of this length in a twentieth of a run."""
    step = tuned()
    for steps_back, draws, is_told in [
        (79, 100, False),
        (81, 100, True),
        (81, 3239, True),
        (81, 3240, False),
    ]:
        monkeypatch.setattr(kam, "transitions_back", lambda *args, n=steps_back: float(n))
        step.monitor.done = step.monitor.tune + draws
        found = step._findings()
        assert codes(found) == ["slow_tails"] * is_told
        if is_told:
            assert "about 81 transitions to return" in found[0].what
            assert "make at least 3240 draws" in found[0].remedy


def test_there_may_be_no_way_back():
    """Of a plain random walk, and where a coordinate has never moved."""
    assert kam.slow_tails(None, tuned(tune=0).parameters.subsample, 1.0, 1.0) is None
    step = tuned()
    step.parameters.subsample.shape.factor[2, :] = 0
    assert kam.slow_tails(step, step.parameters.subsample, 1e-9, 1e-9) is None


@pytest.mark.slow
def test_of_a_wide_part_that_is_left_slowly():
    """In most runs, as a few have a mean square that is far too small; of a normal none."""
    n_told = 0
    for seed in range(200, 206):
        dt = sample(of(wide_and_narrow()), draws=1000, tune=1000, chains=4, random_seed=seed)
        n_told += "slow_tails" in codes(dt)
    assert n_told >= 3
    for seed in range(5):
        dt = sample(of(normal(4)), draws=1000, tune=1000, chains=4, random_seed=seed)
        assert "slow_tails" not in codes(dt)
