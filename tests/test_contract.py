"""What every sampler promises to PyMC and its users. A new sampler adds one row to ARGUMENTS."""

import inspect
import logging
import re
from collections import Counter
from copy import deepcopy

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pytensor.graph import Apply, Op

import pymc_kameleon as pk
from pymc_kameleon.core.chain import MOVED, compile_draws

ARGUMENTS = {
    pk.RWM: {},
    pk.AM: {},
    pk.RBAM: {},
    pk.GAM: {},
    pk.RAM: {},
    pk.KAM: {"n_subsample": 40},
    pk.PCAKAM: {"n_subsample": 40},
    pk.CyclicalKAM: {"n_subsample": 40},
    pk.CMH: {},
    pk.CMTM: {},
    pk.MALA: {},
    pk.GadRWM: {},
    pk.GadMALA: {},
}
"""For each sampler, arguments that make it quick to test."""

ROWS = {cls.__name__: (cls, arguments) for cls, arguments in ARGUMENTS.items()} | {
    "published": (pk.CyclicalKAM, {"variant": "published", "cycle_length": 20})
}
NOT_PROMISED = {
    "published": {  # it never stops adapting, and evaluates more in some draws
        "test_alone",
        "test_without_tuning_nothing_adapts",
        "test_one_dimension",
        "test_one_evaluation_per_proposal",
        "test_logp_follows_the_other_steps",
        "test_logp_follows_the_data",
        "test_float32_keeps_the_logp",
        "test_recovers_from_a_far_start",
        "test_stays_within_the_region_without_evaluating_outside",
        "test_keep_adapting",
    },
    "RWM": {"test_recovers_from_a_far_start"},  # one scale for all coordinates cannot
    "CMH": {"test_recovers_from_a_far_start"},  # of a posterior with strong correlations
    "CMTM": {
        "test_recovers_from_a_far_start",
        "test_keep_adapting",  # needs bounds, and changes once in hundreds of sweeps
    },
    "MALA": {"test_recovers_from_a_far_start"},  # one scale
    "GadMALA": {"test_keep_adapting"},  # s is as great as it may be
}

COMPONENTWISE = (pk.CMH, pk.CMTM)
SINGLE = (*COMPONENTWISE, pk.MALA, pk.GadMALA)
"""Those that make one transition, or one sweep, per draw by default."""

COMMON = [
    "steps_per_draw",
    "target_accept",
    "keep_adapting",
    "region",
    "model",
    "rng",
    "initial_point",
    "compile_kwargs",
]
STATS = {"accept_prob", "accept_share", "scaling", "n_logp"}


@pytest.fixture(params=ROWS)
def sampler(request):
    cls, arguments = ROWS[request.param]
    if request.node.originalname in NOT_PROMISED.get(request.param, ()):
        pytest.skip("not promised")

    def build(vars=None, **kwargs):
        return cls(vars, **arguments | kwargs)

    build.cls = cls
    build.options = set(inspect.signature(cls).parameters)
    if request.param == "published":
        build.options -= {"scale_bounds"}
    return build


@pytest.fixture(params=[pm.sample, pk.sample], ids=["pm.sample", "pk.sample"])
def driver(request):
    return request.param


def sample(step, model, driver=pm.sample, **kwargs):
    """Run pm.sample or pk.sample small and quiet."""
    defaults = {
        "draws": 30,
        "tune": 50,
        "chains": 2,
        "cores": 1,
        "random_seed": 7,
        "progressbar": False,
        "compute_convergence_checks": False,
    }
    return driver(step=step, model=model, **defaults | kwargs)


def run(step, point, draws, tune=0, seed=0):
    """Drive a step by hand; return the last point and all statistics."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    history = []
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, [stats] = step.step(point)
        history.append(stats)
    return point, history


def evaluations(step):
    """Least and greatest number of evaluations in a draw, if nothing has to be evaluated anew."""
    greatest = step.steps_per_draw * step._greatest_n_logp()
    if isinstance(step, pk.CMTM):
        return greatest // 9, greatest
    return (step.steps_per_draw if isinstance(step, pk.GadMALA) else greatest), greatest


class Counting(Op):
    """A black-box log-density of one vector, which counts its evaluations."""

    def __init__(self, function=lambda x: -0.5 * x @ x):
        self.function = function
        self.count = 0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        self.count += 1
        outputs[0][0] = np.array(self.function(inputs[0]), dtype=np.float64)

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] * Slope()(*inputs)]


class Slope(Op):
    """The gradient of most black boxes here, and for the others one that is as good as any."""

    factor = 1.0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = -inputs[0] * self.factor


def black_box(op, d=2):
    with pm.Model() as model:
        x = pm.Flat("x", shape=d)
        pm.Potential("black_box", op(x))
    return model


# ---- construction ---------------------------------------------------------------------------


def test_every_sampler_has_a_row():
    assert set(ARGUMENTS) == set(pk.SAMPLERS)
    assert all(sampler.__name__ in pk.__all__ for sampler in pk.SAMPLERS)
    assert len({sampler.name for sampler in pk.SAMPLERS}) == len(pk.SAMPLERS)


def test_signature_and_documentation(sampler):
    parameters = inspect.signature(sampler.cls).parameters
    assert next(iter(parameters)) == "vars"
    assert parameters["vars"].default is None
    keywords = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    assert set(COMMON) - ({"target_accept"} if sampler.cls is pk.CMTM else set()) <= set(keywords)
    assert len(keywords) == len(parameters) - 1
    documentation = inspect.getdoc(sampler.cls)
    for name in parameters:
        assert len(re.findall(rf"^{name} : ", documentation, re.MULTILINE)) == 1, name
    assert "\n\nRaises\n------\nValueError\n    For" in documentation


def test_takes_all_continuous_variables_by_default(sampler, mixed_model):
    step = sampler(model=mixed_model)
    assert step.var_names == ("a", "b_log__")
    n = 1 if sampler.cls in SINGLE else 10
    assert step.steps_per_draw == n
    assert repr(step) == f"{sampler.cls.__name__}([a, b_log__], steps_per_draw={n})"


def test_default_steps_per_draw(sampler):
    """The dimension, or one sweep over it, or one transition."""
    with pm.Model() as model:
        pm.Normal("x", shape=12)
    assert sampler(model=model).steps_per_draw == (1 if sampler.cls in SINGLE else 12)


def test_refuses_discrete_variables(sampler, mixed_model):
    with pytest.raises(ValueError, match=r"\['k'\] are discrete.*Leave them out"):
        sampler([mixed_model["a"], mixed_model["k"]], model=mixed_model)


def test_refuses_a_model_without_continuous_variables(sampler):
    with pm.Model() as model:
        pm.Poisson("k", 3)
    with pytest.raises(ValueError, match=r"the model has none.*\['k'\]"):
        sampler(model=model)


def test_refuses_variables_of_another_model(sampler, mixed_model):
    with pm.Model():
        stranger = pm.Normal("stranger")
    with pytest.raises(ValueError, match="stranger"):
        sampler([stranger], model=mixed_model)


def test_refuses_a_variable_twice(sampler, mixed_model):
    with pytest.raises(ValueError, match="twice"):
        sampler([mixed_model["a"], mixed_model["a"]], model=mixed_model)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("blocked", False),
        ("steps_per_draw", 0),
        ("steps_per_draw", 2.5),
        ("target_accept", 0),
        ("target_accept", 1.0),
        ("steps_per_draw", 10.0),
        ("steps_per_draw", "a"),
        ("steps_per_draw", True),
        ("target_accept", np.nan),
        ("target_accept", "a"),
        ("keep_adapting", 1),
    ],
)
def test_refuses_impossible_options(sampler, mixed_model, option, value):
    if option not in sampler.options:
        pytest.skip("no such option")
    with pytest.raises(ValueError, match=option):
        sampler(model=mixed_model, **{option: value})


@pytest.mark.parametrize(
    ("region", "message"),
    [
        ({"b": (0, 1)}, r"region names \['b'\].*\['a', 'b_log__'\]"),
        ("a", "region must be a dict"),
        ({"a": 3}, r"region\['a'\] must be a pair"),
        ({"a": (0, 1, 2)}, r"region\['a'\] must be a pair"),
        ({"a": (np.zeros(3), 1)}, r"region\['a'\] must be a pair.*shape \(2,\)"),
        ({"a": (1, 0)}, "low < high"),
        ({"a": (0, np.nan)}, "low < high"),
    ],
)
def test_refuses_impossible_regions(sampler, mixed_model, region, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=mixed_model, region=region)


@pytest.mark.parametrize("bounds", [3, (1,), (0, 1), (2, 1), (1, np.inf), ("a", 1), (1, 1)])
def test_refuses_impossible_scale_bounds(sampler, mixed_model, bounds):
    if "scale_bounds" not in sampler.options:
        pytest.skip("its scale is fixed")
    with pytest.raises(ValueError, match="scale_bounds"):
        sampler(model=mixed_model, scale_bounds=bounds)


def test_refuses_a_noisy_logp(sampler):
    data = pm.Minibatch(np.arange(100.0), batch_size=10)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=data, total_size=100)
    with pytest.raises(ValueError, match="Minibatch"):
        sampler(model=model)


# ---- pm.sample ------------------------------------------------------------------------------


def test_alone(sampler, driver):
    with pm.Model() as model:
        pm.Normal("a", [1.0, -1.0], 0.1)
        pm.HalfNormal("s")
    step = sampler(model=model)
    dt = sample(step, model, driver, initvals={}, discard_tuned_samples=False)
    stats = dt["sample_stats"]
    assert STATS | set(sampler.cls.own_stats) <= set(stats)
    assert "lp" in stats  # model_logp, as this step covers all variables
    logp = model.compile_logp()
    a, s = dt["posterior"]["a"].values[1, -1], dt["posterior"]["s"].values[1, -1]
    expected = logp({"a": a, "s_log__": np.log(s)})
    assert stats["lp"].values[1, -1] == pytest.approx(float(expected))
    assert ((stats["accept_prob"] >= 0) & (stats["accept_prob"] <= 1)).all()
    assert stats["n_logp"].dtype.kind == "i"
    least, greatest = evaluations(step)
    assert least <= stats["n_logp"].min() <= stats["n_logp"].max() <= greatest
    # Tuning changes the scale, and the end of tuning freezes it.
    assert len(np.unique(dt["warmup_sample_stats"]["scaling"].values[0])) > 1
    assert len(np.unique(stats["scaling"].values[0])) == 1


@pytest.mark.parametrize("theirs", [pm.Metropolis, pm.DEMetropolisZ])
def test_mixes_with_the_steps_of_pymc_and_the_other_samplers(theirs):
    """PyMC refuses its Metropolis and DEMetropolisZ together: `accepted` has two types."""
    with pm.Model() as model:
        own = [pm.Normal(f"x{i}", shape=2) for i in range(len(pk.SAMPLERS))]
        other = pm.Poisson("k", 3) if theirs is pm.Metropolis else pm.Normal("k", shape=2)
        pm.Normal("nuts", other.sum())
        steps = [cls([x], **ARGUMENTS[cls]) for cls, x in zip(pk.SAMPLERS, own, strict=True)]
        # DEMetropolisZ takes the dimension of the whole model unless it is given S.
        steps.append(theirs([other], S=np.ones(2)) if theirs is pm.DEMetropolisZ else theirs(other))
    stats = sample(steps, model, progressbar=True)["sample_stats"]
    n = len(pk.SAMPLERS)
    for name in ["accept_prob", "accept_share", "n_logp"]:
        assert stats[name].shape == (2, 30, n), name
    assert stats["scaling"].shape == (2, 30, n + 1)
    owners = Counter(name for cls in pk.SAMPLERS for name in cls.own_stats)
    for name, count in owners.items():
        assert stats[name].shape == ((2, 30, count) if count > 1 else (2, 30)), name
    assert {"accepted", "accept", "acceptance_rate", "tree_depth"} <= set(stats)


def test_beside_nuts_and_a_discrete_variable(sampler, mixed_model):
    with mixed_model:
        dt = sample(sampler([mixed_model["a"]]), mixed_model)
    assert set(dt["sample_stats"]) >= STATS
    assert len(np.unique(dt["posterior"]["k"])) > 1
    assert len(np.unique(dt["posterior"]["b"])) > 30


def test_without_tuning_nothing_adapts(sampler, driver):
    with pm.Model() as model:
        pm.Gamma("b", 2, [1, 2])
    dt = sample(sampler(model=model), model, driver, tune=0)
    assert len(np.unique(dt["sample_stats"]["scaling"].values[..., 0])) == 1
    assert dt["sample_stats"]["accept_share"].mean() > 0


@pytest.mark.parametrize("tune", [1, 2, 3, 5, 20])
def test_short_tuning_leaves_a_working_sampler(sampler, tune):
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    step = sampler(model=model, steps_per_draw=1)
    _, stats = run(step, model.initial_point(), 200, tune)
    assert np.isfinite(stats[-1]["scaling"])
    assert sum(s["accept_share"] for s in stats[tune:]) > 0


def test_one_dimension(sampler, driver):
    """CyclicalKAM tunes its acceptance in a tenth of the transitions of tuning only."""
    with pm.Model() as model:
        pm.Normal("x", 3, 0.1)
    step = sampler(model=model)
    dt = sample(step, model, driver, tune=1000, draws=300)
    assert float(dt["posterior"]["x"].mean()) == pytest.approx(3, abs=0.03)
    share = float(dt["sample_stats"]["accept_share"].mean())
    if isinstance(step, pk.GadMALA):
        assert share > step.target_accept == 0.75  # two steps are a quarter of a period
    elif step.tunes_acceptance:
        targets = {pk.MALA: 0.574, pk.GadRWM: 0.25}
        assert step.target_accept == targets.get(sampler.cls, 0.44)
        assert share == pytest.approx(step.target_accept, abs=0.05)
    else:
        assert 0.1 < share < 0.9


@pytest.mark.parametrize("context", ["fork", "forkserver", "spawn"])
def test_workers_draw_what_one_process_draws(sampler, mixed_model, context):
    with mixed_model:
        step = sampler([mixed_model["a"], mixed_model["b"]])
        arguments = {"draws": 20, "tune": 20, "chains": 4 if context == "fork" else 2}
        one = sample(step, mixed_model, cores=1, **arguments)
        many = sample(step, mixed_model, cores=4, mp_ctx=context, **arguments)
    for group in ["posterior", "sample_stats"]:
        for name in [*one["posterior"], "scaling", "accept_prob"]:
            if name in one[group]:
                np.testing.assert_array_equal(one[group][name], many[group][name])


def test_sequential_chains_do_not_leak(sampler, mixed_model):
    """A chain is the same whether another one ran before it or not."""
    used, fresh = (sampler(model=mixed_model) for _ in range(2))
    start = mixed_model.initial_point()
    initial_state = used.sampling_state
    run(used, start, draws=20, tune=30, seed=1)
    used.sampling_state = initial_state
    (one, stats), (other, other_stats) = (
        run(step, start, draws=20, tune=30, seed=2) for step in (used, fresh)
    )
    np.testing.assert_array_equal(one["a"], other["a"])
    np.testing.assert_equal(stats, other_stats)


# ---- one evaluation per proposal, and when the log-density is computed again ----------------


def test_one_evaluation_per_proposal(sampler):
    op = Counting()
    step = sampler(model=black_box(op), steps_per_draw=5)
    op.count = 0
    _, stats = run(step, {"x": np.ones(2)}, draws=20, tune=400)
    assert op.count == sum(s["n_logp"] for s in stats)
    n_logp = np.array([s["n_logp"] for s in stats])
    least, greatest = evaluations(step)
    assert n_logp[400:].min() >= least
    assert n_logp[400:].max() <= greatest
    more = (n_logp[1:400] < least) | (n_logp[1:400] > greatest)
    assert more.sum() <= 2  # where the modes are learned


def test_logp_follows_the_other_steps(sampler, mixed_model):
    """A pair that depends on each other exposes a stale log-density."""
    step = sampler([mixed_model["a"]], model=mixed_model)
    point = mixed_model.initial_point()
    step.setup_chain(np.random.default_rng(0), 0, 3)
    point, [stats] = step.step(point)
    least, greatest = evaluations(step)
    point, [stats] = step.step(point)
    assert least <= stats["n_logp"] <= greatest
    point = point | {"k": np.array(1), "b_log__": np.array(-1.0)}
    point, [stats] = step.step(point)
    assert least + 1 <= stats["n_logp"] <= greatest + 1
    expected = mixed_model.compile_logp()(point)
    assert step.state.logp[0] == pytest.approx(float(expected))


def test_logp_follows_the_data(sampler, mixed_model):
    step = sampler(model=mixed_model)
    step.setup_chain(np.random.default_rng(0), 0, 3)
    point, _ = step.step(mixed_model.initial_point())
    old = mixed_model["data"].get_value()
    with mixed_model:
        pm.set_data({"data": np.full(7, 2.0)})  # of another shape
    try:
        point, [stats] = step.step(point)
        least, greatest = evaluations(step)
        assert least + 1 <= stats["n_logp"] <= greatest + 1
        expected = mixed_model.compile_logp()(point)
        assert step.state.logp[0] == pytest.approx(float(expected))
    finally:
        with mixed_model:
            pm.set_data({"data": old})


# ---- the gradient, and what the state derives from it, from x and from the parameters --------


@pytest.mark.parametrize("name", [name for name, (cls, _) in ROWS.items() if cls.derivatives])
def test_a_wrong_gradient_changes_the_trajectory(name, monkeypatch):
    """Wrong in any one coordinate at the proposals; at the start it is 0, which cannot be wrong."""
    cls, arguments = ROWS[name]
    step = cls(model=black_box(Counting()), **arguments)
    ends = set()
    for factor in ([1.0, 1.0], [0.5, 1.0], [1.0, 0.5]):
        monkeypatch.setattr(Slope, "factor", np.array(factor))
        ends.add(run(step, {"x": np.zeros(2)}, draws=20, tune=100)[0]["x"].tobytes())
    assert len(ends) == 3


def test_nothing_derived_outlives_what_it_is_derived_from(sampler, mixed_model, monkeypatch):
    """To derive it anew before each draw changes nothing, during tuning and after."""
    step = sampler(model=mixed_model, steps_per_draw=1)
    start = mixed_model.initial_point()
    one, stats = run(step, start, 50, 400)
    monkeypatch.setattr(step, "_what_changed", lambda q: MOVED)
    other, other_stats = run(step, start, 50, 400)
    for name in "a", "b_log__":
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6)
    for name in "scaling", "accept_share":
        found, expected = ([row[name] for row in rows] for rows in (other_stats, stats))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


# ---- the state of a chain -------------------------------------------------------------------


@pytest.mark.parametrize("when", [0, 7, 30, 55])
def test_a_saved_state_continues_bit_for_bit(sampler, mixed_model, when):
    step, fresh = (sampler(model=mixed_model) for _ in range(2))
    point, _ = run(step, mixed_model.initial_point(), draws=0, tune=0)
    step.setup_chain(np.random.default_rng(3), 50, 50)
    for i in range(100):
        if i == 50:
            step.stop_tuning()
        if i == when:
            fresh.sampling_state = step.sampling_state
            copy = dict(point)
        point, stats = step.step(point)
        if i >= when:
            if i == 50:
                fresh.stop_tuning()
            copy, copied_stats = fresh.step(copy)
            np.testing.assert_equal(stats, copied_stats)
            for name, value in point.items():
                np.testing.assert_array_equal(value, copy[name])


def test_a_state_of_another_configuration_is_refused(sampler, mixed_model):
    state = sampler(model=mixed_model).sampling_state
    with pytest.raises(ValueError, match="configuration"):
        sampler(model=mixed_model, steps_per_draw=3).sampling_state = state


def test_float32_keeps_the_logp(sampler):
    with pm.Model() as model:
        pm.Normal("x", shape=2, dtype="float32")
    step = sampler(model=model)
    point = {"x": np.zeros(2, np.float32)}
    _, stats = run(step, point, draws=5)
    least, greatest = evaluations(step)
    assert all(least <= s["n_logp"] <= greatest for s in stats[1:])


def test_recovers_from_a_far_start(sampler):
    """Of a regression with raw, strongly correlated predictors, hundreds of sds away."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=200)
    predictors = np.c_[50 + 10 * base + 2 * rng.normal(size=200), 3 + 0.1 * base]
    predictors[:, 1] += 0.03 * rng.normal(size=200)
    observed = 5 + predictors @ [0.1, -2.0] + rng.normal(size=200)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 100)
        b = pm.Normal("b", 0, 100, shape=2)
        pm.Normal("y", a + pt.dot(predictors, b), 1, observed=observed)
    design = np.c_[np.ones(200), predictors]
    precision = design.T @ design + np.eye(3) / 1e4
    mean, sds = np.linalg.solve(precision, design.T @ observed), np.linalg.inv(precision)
    sds = np.diag(sds) ** 0.5
    step = sampler(model=model)
    step.setup_chain(np.random.default_rng(2), 1000, 1000)
    point, draws = {"a": np.array(300.0), "b": np.array([-50.0, 200.0])}, []
    for i in range(2000):
        if i == 1000:
            step.stop_tuning()
        point, _ = step.step(point)
        draws.append(np.r_[point["a"], point["b"]])
    draws = np.array(draws[1000:])
    np.testing.assert_allclose((draws.mean(axis=0) - mean) / sds, 0, atol=0.3)
    np.testing.assert_allclose(draws.std(axis=0) / sds, 1, atol=0.2)


def test_state_is_bounded(sampler):
    """A million transitions of tuning in ten dimensions fit into a fixed memory."""
    with pm.Model() as model:
        pm.Normal("x", shape=10)
    step = sampler(model=model)

    def size(value):
        if isinstance(value, np.ndarray):
            return value.nbytes
        return sum(map(size, value)) if isinstance(value, tuple) else 8

    def state_size(tune):
        step.setup_chain(0, tune, 1)
        state = step.sampling_state
        return sum(map(size, (state.state, state.parameters, state.tuning)))

    assert state_size(100_000) == state_size(10_000)
    assert state_size(100_000) < 2e6


# ---- region, and adaptation that goes on ----------------------------------------------------


def test_stays_within_the_region_without_evaluating_outside(sampler):
    """The posterior is restricted to it: here, a half-normal by one-sided bounds."""
    outside = []

    def record(x):
        outside.append(x[0] < 0 or x[1] > 2)
        return -0.5 * x @ x

    step = sampler(
        model=black_box(Counting(record)),
        region={"x": ([0, -np.inf], [np.inf, 2])},
        steps_per_draw=10,
    )
    outside.clear()
    step.setup_chain(np.random.default_rng(1), 500, 1500)
    point, draws = {"x": np.array([0.5, 0.0])}, []
    for i in range(2000):
        if i == 500:
            step.stop_tuning()
        point, _ = step.step(point)
        draws.append(point["x"])
    assert len(outside) > 10_000
    assert not any(outside)
    half_normal = np.array(draws[500:])[:, 0]
    assert half_normal.mean() == pytest.approx(np.sqrt(2 / np.pi), abs=0.08)


def test_start_outside_the_region(sampler, mixed_model):
    step = sampler(model=mixed_model, region={"a": (5, 6)})
    step.setup_chain(0, 10, 10)
    with pytest.raises(SamplingError, match="outside region"):
        step.step(mixed_model.initial_point())


@pytest.mark.parametrize("tune", [0, 100])
def test_keep_adapting(sampler, mixed_model, tune):
    """Goes on after tuning; never without any tuning."""
    step = sampler(model=mixed_model, keep_adapting=True)
    point, sizes = mixed_model.initial_point(), []
    step.setup_chain(np.random.default_rng(0), tune, 1000)
    for i in range(tune + 1000):
        if i == tune:
            step.stop_tuning()
        before = deepcopy(step.parameters)
        point, _ = step.step(point)
        sizes.append(not equal(before, step.parameters))
    after = np.reshape(sizes[tune:], (-1, 10))  # a cycle explores for less than ten draws
    assert after.any(axis=1).all() if tune else not after.any()


def equal(one, other):
    """Whether two tuples of arrays, numbers and tuples are equal."""
    if isinstance(one, tuple):
        return all(equal(a, b) for a, b in zip(one, other, strict=True))
    return np.array_equal(one, other, equal_nan=True)


# ---- errors ---------------------------------------------------------------------------------


def test_start_outside_the_support(sampler):
    with pm.Model() as model:
        pm.Normal("x")
        pm.Exponential("y", 1, observed=-1.0)
    step = sampler(model=model)
    step.setup_chain(0, 10, 10)
    with pytest.raises(SamplingError, match=r"(?s)not finite.*'y'.*initvals"):
        step.step(model.initial_point())


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_no_finite_logp_no_move(sampler, value):
    """NaN and +inf count as -inf: the chain never goes there."""
    op = Counting(lambda x: value if x[0] > 0 else -0.5 * x @ x)
    step = sampler(model=black_box(op))
    point, stats = run(step, {"x": -np.ones(2)}, draws=50, tune=50)
    assert point["x"][0] < 0
    assert 0 < np.mean([s["accept_share"] for s in stats]) < 1


def test_an_exception_in_the_likelihood_arrives_as_it_is(sampler):
    def fail(x):
        if x[0] > 0.5:
            raise ZeroDivisionError("the solver broke down")
        return -0.5 * x @ x

    step = sampler(model=black_box(Counting(fail)))
    with pytest.raises(ZeroDivisionError, match="the solver broke down") as error:
        run(step, {"x": np.zeros(2)}, draws=100, tune=100)
    assert "fail" in [entry.name for entry in error.traceback]


# ---- compilation ----------------------------------------------------------------------------


def test_transitions_compile_once_for_all_models(sampler, mixed_model):
    with pm.Model() as other:
        pm.MvNormal("x", np.zeros(3), np.eye(3))
    sampler(model=mixed_model)
    step = sampler(model=other)
    sampler([mixed_model["b"]], model=mixed_model)
    assert len(compile_draws((step.algorithm,)).signatures) == 1


def test_a_model_without_numba_gives_the_same_numbers(sampler, mixed_model, caplog):
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        slow = sampler(model=mixed_model, compile_kwargs={"mode": "FAST_COMPILE"})
        assert caplog.text.count("runs through Python") <= 1
    fast = sampler(model=mixed_model)
    (one, _), (other, _) = (run(s, mixed_model.initial_point(), 20, 20) for s in (fast, slow))
    np.testing.assert_allclose(one["a"], other["a"], rtol=1e-6)


def test_an_expensive_logp_is_mentioned_once(sampler, caplog):
    import time

    def slow(x):
        time.sleep(2e-3)
        return -0.5 * x @ x

    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        step = sampler(model=black_box(Counting(slow)))
        run(step, {"x": np.zeros(2)}, draws=2)
    said = [r.getMessage() for r in caplog.records if "One logp evaluation takes" in r.message]
    assert len(said) == 1
    assert ("With steps_per_draw=1" in said[0]) == (step.steps_per_draw > 1)
