"""Gradients that samplers know, and keep of each draw: `keep_gradients`."""

from functools import cache

import numpy as np
import pymc as pm
import pytest
from runs import assert_same, resume, sample

import pymc_kameleon as pk

TUNE, DRAWS = 300, 300


@cache
def normal():
    with pm.Model() as model:
        x = pm.Normal("x", [0.0, 1.0], [1.0, 0.5], shape=2)
        pm.Deterministic("total", x.sum())
    return model


def run(sampler=pk.baselines.MALA, model=None, region=None, **how):
    how = {"draws": DRAWS, "tune": TUNE, "chains": 4, "random_seed": 4} | how
    options = {"keep_gradients": True, "region": region, "steps_per_draw": 5}
    step = sampler(model=model or normal(), **options)
    return sample(step, **how)


def kept_of(dt):
    return dt["gradients"].to_dataset()


@pytest.mark.parametrize(
    "sampler",
    [
        pk.baselines.MALA,
        *(pytest.param(own, marks=pytest.mark.slow) for own in (pk.GadMALA, pk.GadRWM)),
    ],
)
def test_they_are_those_of_the_model(sampler):
    """Of a gamma that is transformed, too; and draws are the same as without."""
    with pm.Model() as model:
        pm.Normal("x", [0.0, 1.0], [1.0, 0.5], shape=2)
        pm.Gamma("t", 20, 1)
    dt, gradient = run(sampler, model, draws=50), model.compile_dlogp()
    kept, own = kept_of(dt).stack(each=("chain", "draw")), dt["posterior"].to_dataset()
    assert kept["coordinate"].values.tolist() == ["x[0]", "x[1]", "t_log__"]
    for x, g in zip(kept["position"].values.T, kept["gradient"].values.T, strict=True):
        np.testing.assert_allclose(g, gradient({"x": x[:2], "t_log__": x[2]}), rtol=1e-9)
    np.testing.assert_array_equal(kept_of(dt)["position"][..., :2], own["x"])
    np.testing.assert_allclose(np.exp(kept_of(dt)["position"][..., 2]), own["t"])
    plain = sample(
        sampler(model=model, steps_per_draw=5), draws=50, tune=TUNE, chains=4, random_seed=4
    )
    assert_same(plain, dt)
    assert "gradients" not in plain.children


@pytest.mark.slow
def test_a_summary_needs_no_model_and_no_evaluation(monkeypatch, tmp_path):
    dt = run()
    monkeypatch.setattr("pymc_kameleon.analysis.gradients_of_draws.Density", None)
    table = pk.summary(dt, model=normal(), round_to="none")
    assert table.attrs["by_gradients"] == ["x[0]", "x[1]", "total"]
    np.testing.assert_allclose(table["mean"], [0, 1, 1], atol=1e-4)
    dt.to_netcdf(tmp_path / "run.nc")
    again = pk.summary(tmp_path / "run.nc", round_to="none")
    np.testing.assert_allclose(again, table, rtol=1e-6)


@pytest.mark.slow
def test_they_are_kept_in_stores_and_when_a_run_goes_on(tmp_path):
    whole, path = run(), tmp_path / "run.zarr"
    first = run(draws=50, store=path)
    assert kept_of(first).sizes["draw"] == 50
    of_store, of_memory = (resume(own, normal(), DRAWS - 50) for own in (path, run(draws=50)))
    for dt in (of_store, of_memory, pk.load(path)):
        assert_same(whole, dt, ["posterior", "gradients"])
        assert kept_of(dt).attrs["broken"] == ""


@pytest.mark.slow
def test_a_density_that_jumps_is_seen_at_the_end_of_the_run():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("p", pm.math.switch(x > 0.5, -1.0, 0.0))
    dt = run(model=model)
    assert "jumps" in kept_of(dt).attrs["broken"]
    assert "jumps" in pk.summary(dt).attrs["not_by_gradients"]


@pytest.mark.slow
def test_a_run_that_was_stopped_is_looked_at_by_a_summary():
    def stop(run, draw):
        if draw.chain == 3 and draw.draw_idx > TUNE + 150:
            run.stop()

    dt = run(callback=stop)
    assert "broken" not in kept_of(dt).attrs
    assert (pk.summary(dt)["gain"] == 1).all()
    assert pk.summary(dt, model=normal()).attrs["by_gradients"]
    assert kept_of(dt).attrs["broken"] == ""


def test_draws_of_a_region_are_not_those_of_the_model():
    """Their mean is another one, by less than their own errors would show."""
    dt = run(region={"x": (-2.5, 9.0)})
    assert "region" in pk.summary(dt, model=normal()).attrs["not_by_gradients"]
    del dt["gradients"]
    assert "region" in pk.summary(dt, model=normal()).attrs["not_by_gradients"]


def test_where_it_is_impossible():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Normal("y")
    with pytest.raises(ValueError, match="keep_gradients needs MALA to move all variables"):
        pk.baselines.MALA(["x"], model=model, keep_gradients=True)
    with pytest.raises(TypeError, match="GAM has no option 'keep_gradients'"):
        pk.GAM(model=model, keep_gradients=True)
    with pytest.raises(ValueError, match="keep_gradients must be True or False"):
        pk.baselines.MALA(model=model, keep_gradients="yes")
    with pytest.raises(ValueError, match="max_evaluations forbids"):
        sample(pk.baselines.MALA(model=model, keep_gradients=True), max_evaluations=1000, chains=4)
