"""Where the chains of a new run start: a result, the prior, the mode, and values by name."""

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from pymc.initial_point import make_initial_point_fn
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.sampling.starts_of_run import starts
from pymc_kameleon.step.job import Job

STILL = {"scaling": 1e-10, "tune_scaling": False, "steps_per_draw": 1}
"""Options of a walk that stays where it starts."""


@pytest.fixture(scope="module")
def model():
    """Labels, transforms, one of which depends on another variable, and a deterministic."""
    with pm.Model(coords={"city": ["A", "B"]}) as model:
        a = pm.Normal("a", 3, 0.5, dims="city")
        s = pm.HalfNormal("s")
        pm.Uniform("inside", a[0], a[0] + 0.5)
        pm.Deterministic("scaled", a * s, dims="city")
    return model


@pytest.fixture(scope="module")
def step(model):
    return pk.baselines.RWM(model=model, **STILL)


def points_of(step, chains, initvals):
    """Return starts as `pk.sample` makes them."""
    job = Job([step], step.outputs([step.model.free_RVs[0].name]), False)
    return [point for point, _ in starts(job, list(range(chains)), initvals)]


def begun(step, initvals, chains=2, **options):
    """Return where the chains of a run of one draw are."""
    options |= {"initvals": initvals, "chains": chains, "tune": 0, "draws": 1}
    return sample(step, **options)["posterior"].to_dataset().isel(draw=0)


# ---- words --------------------------------------------------------------------------------------


def test_an_unknown_word_is_answered_by_those_that_there_are(step):
    with pytest.raises(ValueError, match="\"prior\", not 'piror'"):
        begun(step, "piror")
    with pytest.raises(ValueError, match=r"must be a dict, .* not <xarray.DataTree"):
        begun(step, xr.DataTree())


@pytest.mark.slow
def test_starts_of_the_prior(step, model):
    one, same, other = (begun(step, "prior", 3, random_seed=seed) for seed in (5, 5, 6))
    xr.testing.assert_equal(one, same)
    assert not np.isclose(one["s"], other["s"]).any()
    every = points_of(step, 200, "prior")
    assert np.std([point["a"][0] for point in every]) == pytest.approx(0.5, abs=0.1)
    assert len({float(point["s_log__"]) for point in every}) == 200


def test_starts_of_the_prior_are_possible():
    """They are drawn again; not for ever."""
    with pm.Model() as model:
        x = pm.Normal("x")
        limit = pm.Data("limit", 0.5)
        pm.Potential("above", pm.math.switch(x > limit, 0, -np.inf))
    step = pk.baselines.RWM(model=model, **STILL)
    assert (begun(step, "prior", 8)["x"] > 0.5).all()
    with model:
        pm.set_data({"limit": 50})
    with pytest.raises(ValueError, match="not finite at any of 100 points drawn from the prior"):
        begun(step, "prior")


# ---- values -------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::FutureWarning")  # PyMC's plans
def test_what_find_map_returns_is_taken_as_pm_sample_takes_it(step, model):
    found = pm.find_MAP(progressbar=False, model=model)
    assert {"s", "s_log__", "inside", "inside_interval__", "scaled"} <= set(found)
    expected = make_initial_point_fn(model=model, overrides=found)(0)
    for initvals in (found, [found, found]):
        for point in points_of(step, 2, initvals):
            np.testing.assert_equal(point, expected)
    with pytest.raises(ValueError, match=r"names \['t'\]; the model has .*s_log__, s, inside"):
        begun(step, found | {"t": 1.0})
