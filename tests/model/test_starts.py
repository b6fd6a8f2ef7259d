"""Dispersed starting points."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from models import box, normal
from runs import QUIET

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


@pytest.mark.slow
@pytest.mark.parametrize("how", ["jitter", "prior"])
@pytensor.config.change_flags(cxx="")  # as C takes seconds to compile
def test_points_are_those_that_pm_sample_starts_from(model, natural, how):
    points = pk.initvals(3, random_seed=1, how=how, model=model)
    assert len(points) == 3
    for name in ["low", "inside", "scale", "shares"]:
        assert len({point[name].tobytes() for point in points}) == 3
    step = pk.baselines.RWM(model=model, compile_kwargs={"mode": "FAST_COMPILE"})
    starts = []
    original = step.step
    step.step = lambda point: starts.append(point) or original(point)
    options = {"initvals": points, "compile_kwargs": {"mode": "FAST_COMPILE"}} | QUIET
    pm.sample(5, tune=0, chains=3, cores=1, step=[step], model=model, **options)
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
    """Of the model of the context, too."""
    one, other = (pk.initvals(1, random_seed=s, model=model) for s in (5, 6))
    with model:
        np.testing.assert_equal(pk.initvals(1, 5), one)
    assert one[0]["low"] != other[0]["low"]


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


# ---- where a chain jumps to before its first draw -------------------------------------------

STILL = {"scaling": 1e-10, "tune_scaling": False, "steps_per_draw": 1}


def first_draw(step, point, tune=10, seed=1):
    step.setup_chain(np.random.default_rng(seed), tune, 10)
    after, [stats] = step.step(point)
    return after, stats


@pytest.fixture(scope="module")
def still(mixed_model):
    """It moves b_log__, and stays where it starts but for a billionth."""
    return pk.baselines.RWM("b", model=mixed_model, **STILL)


@pytest.mark.slow
def test_a_chain_at_the_initial_point_jumps(still, mixed_model):
    """In the step's own coordinates, to where the log-density is then known."""
    start = mixed_model.initial_point() | {"a": np.array([0.3, 0.4]), "k": np.array(1)}
    ends = []
    for seed in range(200):
        point, stats = first_draw(still, start, seed=seed)
        assert stats["n_logp"] == 3  # of the jump, of the start, of the proposal
        assert point["a"] is start["a"]
        ends.append(point["b_log__"] - start["b_log__"])
    assert -1 < np.min(ends) < -0.9  # 200 are all above in 4e-5 of the cases
    assert 0.9 < np.max(ends) < 1
    assert np.mean(ends) == pytest.approx(0, abs=4 / np.sqrt(3 * 200))
    logp = mixed_model.compile_logp()(point)
    assert still.state.logp[0] == pytest.approx(float(logp))


@pytest.mark.parametrize(
    ("options", "tune", "away"),
    [({"jitter": False}, 10, 0.0), ({}, 0, 0.0), ({}, 10, 0.5)],
    ids=["jitter=False", "tune=0", "initvals"],
)
def test_a_chain_stays(options, tune, away, mixed_model):
    step = pk.baselines.RWM("b", model=mixed_model, **STILL, **options)
    start = mixed_model.initial_point()
    start["b_log__"] = start["b_log__"] + away
    point, stats = first_draw(step, start, tune)
    np.testing.assert_allclose(point["b_log__"], start["b_log__"], atol=1e-8)
    assert stats["n_logp"] == 2


def test_jumps_until_the_log_density_is_finite_within_the_region():
    op, model = box(lambda x: 0.0 if x[0] > 0.4 else np.nan)
    step = pk.baselines.RWM(model=model, region={"x": (-2, (2, 0))}, **STILL)
    op.count = 0
    for seed in range(10):
        point, stats = first_draw(step, {"x": np.zeros(2)}, seed=seed)
        assert point["x"][0] > 0.4
        assert point["x"][1] < 0
        assert op.count == stats["n_logp"]
        op.count = 0


def test_a_chain_that_finds_no_place_to_jump_to_starts_where_it_is():
    _, model = box(lambda x: 0.0 if abs(x).max() < 1e-6 else -np.inf)
    step = pk.baselines.RWM(model=model, **STILL)
    point, stats = first_draw(step, {"x": np.zeros(2)})
    assert abs(point["x"]).max() < 1e-8
    assert stats["n_logp"] == 102
    assert step.monitor.common_start


def test_a_jump_goes_where_the_gradient_is_finite():
    """The slope of √ is not, where its argument is 0."""
    with pm.Model() as model:
        x = pm.Flat("x", initval=0)
        pm.Potential("root", -pm.math.sqrt(pm.math.maximum(x, 0)) - x**2)
    step = pk.baselines.MALA(model=model)
    for seed in range(5):
        point, _ = first_draw(step, {"x": np.array(0.0)}, seed=seed)
        assert np.isfinite(step.state.gradient).all()
        assert point["x"] != 0


def test_steps_jump_in_pm_sample_and_leave_starts_alone_in_pk_sample():
    options = {"chains": 3, "cores": 1, "tune": 5, "draws": 3, "random_seed": 1}
    options |= {"progressbar": False, "compute_convergence_checks": False}
    options |= {"step": pk.baselines.RWM(model=normal(2), **STILL), "model": normal(2)}
    found = pm.sample(**options)["posterior"]["x"].values
    assert len(np.unique(found.round(6))) == 6
    assert (abs(found) < 1).all()
    kept = pk.sample(initvals={"x": np.zeros(2)}, **options)["posterior"]["x"].values
    assert (abs(kept) < 1e-8).all()
