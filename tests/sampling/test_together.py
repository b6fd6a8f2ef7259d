"""Runs in which a batched black box computes what all chains need in one call."""

import logging
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pymc as pm
import pytest
from runs import assert_same, resume, sample
from together import Growth

import pymc_kameleon as pk
from pymc_kameleon.model.failures import OnFailure
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.sampling.run import Run
from pymc_kameleon.sampling.workers import Workers
from pymc_kameleon.step.job import Job

SAMPLERS = {
    "GAM": lambda model: pk.GAM(model=model, steps_per_draw=2),
    "EmulatorMetropolis": lambda model: pk.EmulatorMetropolis(model=model),
    "SurrogateMetropolis": lambda model: pk.SurrogateMetropolis(model=model),
}


@pytest.fixture(scope="module")
def growth():
    return Growth()


@pytest.fixture(scope="module")
def model(growth):
    return growth.model()


@pytest.fixture(scope="module")
def gam(model):
    return SAMPLERS["GAM"](model)


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[pytest.mark.slow] * (name == "EmulatorMetropolis"))
        for name in SAMPLERS
    ],
)
def test_draws_are_those_of_calls_one_by_one(name, model, growth, caplog):
    step = SAMPLERS[name](model)
    caplog.set_level(logging.INFO, "pymc_kameleon")
    options = {"chains": 6, "tune": 20, "draws": 10}
    growth.sizes.clear()
    alone = sample(step, **options)
    one_by_one, growth.sizes[:] = len(growth.sizes), []
    together = sample(step, cores=None, **options)
    assert "6 chains in 6 threads, whose calls of `growth` are made in one" in caplog.text
    assert_same(together, alone)
    assert one_by_one - sum(growth.sizes) in (0, 1)  # the first run looks at shapes, once
    assert max(growth.sizes) == 6
    assert len(growth.sizes) < 0.5 * one_by_one
    if name == "GAM":
        assert_same(sample(step, cores=4, **options), alone)


@pytest.mark.slow
def test_an_exception_says_in_which_chain(growth, gam, monkeypatch):
    last = sample(gam, chains=3)["posterior"]["theta"].values[1, -1]
    monkeypatch.setattr(growth, "fails", lambda theta: np.array_equal(theta, last))
    with pytest.raises(ArithmeticError, match="no solution") as raised:
        sample(gam, chains=3, cores=3)
    where, _ = raised.value.__notes__
    assert where.startswith("In chain 1, draw ")
    assert f"{np.log(last)[0]:.8f}"[:8] in where
    assert "chain" in raised.value.result["posterior"].sizes


def test_what_is_rejected_is_only_what_raised(growth, gam, monkeypatch):
    monkeypatch.setattr(growth, "fails", lambda theta: theta[1] > 20)
    [box] = gam.log_density.batched
    monkeypatch.setattr(box, "on_failure", OnFailure("reject"))
    options = {"chains": 3}
    alone, together = sample(gam, **options), sample(gam, cores=3, **options)
    assert_same(together, alone)
    rejected = [dt["posterior"].attrs["rejected_errors"] for dt in (alone, together)]
    assert rejected[0] == rejected[1] > 0


@pytest.mark.slow
def test_wrong_shapes_stop_the_run():
    def total(x):
        return np.array([-0.5 * np.sum(x**2)])  # of all rows

    with pm.Model() as model:
        total = pk.black_box(total, ndim=0, batched=True, on_error="reject")
        pm.Potential("total", total(pm.Flat("x", shape=2)))
    with pytest.raises(TypeError, match=r"shape \(1,\) for \d evaluations") as raised:
        sample(pk.baselines.RWM(model=model), cores=2)
    assert len(raised.value.__notes__) == 2  # where, and that there is a result


@pytest.mark.slow
def test_a_run_that_is_stopped_goes_on(gam, tmp_path):
    whole = sample(gam, chains=3, draws=60)

    def stop(run, draw):
        if draw.draw_idx > 70:
            run.stop()

    path = tmp_path / "run.zarr"
    sample(gam, chains=3, draws=60, cores=3, callback=stop, store=path)
    assert_same(resume(path, gam.model, None, step=gam, cores=3), whole)


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_tasks_end_if_the_run_does(gam, monkeypatch, error):
    """Where nobody waits for what they return: then calls are not made, either."""
    look, looks = Run._look_at_limits, []

    def fail(run):
        looks.append(run)
        if len(looks) > 10:
            raise error("a test")
        look(run)

    monkeypatch.setattr(Run, "_look_at_limits", fail)
    if error is ValueError:
        with pytest.raises(ValueError, match="a test"):
            sample(gam, chains=3, cores=3, draws=1000)
    else:
        dt = sample(gam, chains=3, cores=3, draws=1000)
        assert dt["posterior"].sizes["draw"] < 1000


@pytest.mark.slow
def test_two_black_boxes_of_several_shapes():
    sizes = []

    def sums(x):
        sizes.append(x.shape)
        return x.cumsum(axis=1)

    def squares(x):
        return x**2

    sums, squares = (pk.black_box(own, batched=True) for own in (sums, squares))
    with pm.Model() as model:
        x = pm.Normal("x", shape=3)
        pm.Potential("p", -0.5 * (squares(sums(x)).sum() + squares(sums(x[:2])).sum()))
    step = pk.baselines.RWM(model=model)
    alone = sample(step, chains=4)
    sizes.clear()
    assert_same(sample(step, chains=4, cores=4), alone)
    assert {(4, 3), (4, 2)} <= set(sizes)


# ---- where calls are not made together ----------------------------------------------------------


def test_an_executor_calls_for_each_chain(gam, growth):
    alone = sample(gam)
    growth.sizes.clear()
    with ThreadPoolExecutor(2) as threads:
        assert_same(sample(gam, executor=threads), alone)
    assert set(growth.sizes) == {1}


def test_evaluations_in_one_call_cannot_be_stopped(growth, gam, monkeypatch):
    monkeypatch.setattr(ModelLogp, "has_timeout", True)
    with pytest.raises(ValueError, match="makes those of all chains in one call"):
        sample(gam, cores=2)


def workers(model, **options):
    step = pk.baselines.RWM(model=model, compile_kwargs=options)
    return Workers(Job([step], step.outputs([model.free_RVs[0].name]), True), 4, 4)


def test_functions_of_pytensor_are_not_safe_in_threads(model):
    """They keep what they compute in places of their own."""
    own = workers(model, mode="FAST_COMPILE")
    assert "4 processes" in own.described("4 chains")
