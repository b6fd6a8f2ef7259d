"""Dispersed starting points."""

import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk


@pytest.fixture(scope="module")
def model():
    """Transforms of several kinds, one of which depends on another variable."""
    with pm.Model() as model:
        low = pm.Normal("low", 3)
        pm.Uniform("inside", low, low + 0.5)
        pm.HalfNormal("scale", 0.1, shape=(2, 2))
        pm.Dirichlet("shares", np.ones(3))
        pm.Poisson("count", 4)
    return model


@pytest.fixture(scope="module")
def natural(model):
    """From a point of value variables to the free variables on their natural scale."""
    free = model.replace_rvs_by_values(model.free_RVs)
    return model.compile_fn(free, inputs=model.value_vars, point_fn=True, mode="FAST_COMPILE")


@pytest.mark.parametrize("how", ["jitter", "prior"])
def test_points_are_those_that_pm_sample_starts_from(model, natural, how):
    points = pk.initvals(3, random_seed=1, how=how, model=model)
    assert len(points) == 3
    for name in ["low", "inside", "scale", "shares"]:
        assert len({point[name].tobytes() for point in points}) == 3
    step = pk.RWM(model=model, compile_kwargs={"mode": "FAST_COMPILE"})
    starts = []
    original = step.step
    step.step = lambda point: starts.append(point) or original(point)
    pm.sample(
        draws=5,
        tune=0,
        chains=3,
        cores=1,
        step=[step],
        initvals=points,
        model=model,
        progressbar=False,
        compute_convergence_checks=False,
    )
    for point, start in zip(points, starts[::5], strict=True):
        values = dict(zip(point, natural(start), strict=True))
        for name, value in point.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-9)


def test_jitter_is_uniform_on_the_unconstrained_scale(model):
    points = pk.initvals(200, random_seed=1, model=model)
    start = model.initial_point()
    moved = np.array([np.log(point["scale"]) for point in points]) - start["scale_log__"]
    assert -1 < moved.min() < -0.97
    assert 0.97 < moved.max() < 1
    np.testing.assert_allclose(moved.mean(axis=0), 0, atol=4 / np.sqrt(3 * 200))
    assert {int(point["count"]) for point in points} == {4}


def test_prior_draws_have_the_spread_of_the_prior(model):
    points = pk.initvals(200, random_seed=1, how="prior", model=model)
    low = np.array([point["low"] for point in points])
    assert low.mean() == pytest.approx(3, abs=0.25)
    assert low.std() == pytest.approx(1, abs=0.2)
    assert len({int(point["count"]) for point in points}) > 4
    for point in points:
        assert point["low"] < point["inside"] < point["low"] + 0.5


def test_a_seed_repeats_the_points(model):
    one, same, other = (pk.initvals(2, random_seed=s, model=model) for s in (5, 5, 6))
    np.testing.assert_equal(one, same)
    assert one[0]["low"] != other[0]["low"]


def test_takes_the_model_of_the_context(model):
    with model:
        np.testing.assert_equal(pk.initvals(1, 5), pk.initvals(1, 5, model=model))


@pytest.mark.parametrize("how", ["jitter", "prior"])
def test_retries_until_the_logp_is_finite(how):
    with pm.Model() as model:
        x = pm.Normal("x", 0, 0.5)
        pm.Potential("right", pm.math.switch(x > 0.2, 0, -np.inf))
    points = pk.initvals(20, random_seed=1, how=how, model=model)
    assert min(point["x"] for point in points) > 0.2


def test_gives_up_where_the_logp_is_never_finite():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("nowhere", x * -np.inf)
    with pytest.raises(ValueError, match=r"not finite at any of 100 points.*'x'"):
        pk.initvals(1, model=model)


def test_names_what_cannot_be_transformed():
    """Six draws of a prior are in order once in 720 times."""
    with pm.Model() as model:
        ordered = pm.distributions.transforms.ordered
        pm.Normal("o", shape=6, transform=ordered, initval=np.arange(6.0))
    with pytest.raises(ValueError, match=r"\['o__?[a-z_]*'\] cannot be transformed.*jitter"):
        pk.initvals(2, random_seed=1, how="prior", model=model)
    for point in pk.initvals(3, random_seed=1, model=model):
        assert (np.diff(point["o"]) > 0).all()


def test_flat_has_no_prior():
    with pm.Model() as model:
        pm.Flat("a")
        pm.HalfFlat("b")
        pm.Normal("c")
    with pytest.raises(ValueError, match=r"\['a', 'b'\] has no prior.*jitter"):
        pk.initvals(2, how="prior", model=model)
    assert set(pk.initvals(1, model=model)[0]) == {"a", "b", "c"}


@pytest.mark.parametrize("arguments", [{"chains": 0}, {"chains": 2.0}, {"chains": 1, "how": "no"}])
def test_refuses_impossible_options(model, arguments):
    with pytest.raises(ValueError, match=r"(chains|how) must be"):
        pk.initvals(model=model, **arguments)
