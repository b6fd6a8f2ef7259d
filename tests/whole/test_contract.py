"""What every sampler promises to PyMC and its users. A new sampler adds one row to ARGUMENTS."""

import inspect
import logging
import multiprocessing
import pickle
import re
from collections import Counter
from copy import deepcopy
from functools import cache
from itertools import pairwise

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytest
import skeleton
from boxed import SAMPLERS, BoxedEmulator
from models import Slope, box, normal
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import CompoundStep
from runs import assert_same, same

import pymc_kameleon as pk
from pymc_kameleon.core.chain import MOVED, compile_draws
from pymc_kameleon.core.jit import cached_jit, jit
from pymc_kameleon.core.numba_cache import Cache
from pymc_kameleon.samplers.approximation.metropolis import ApproximationMetropolis
from pymc_kameleon.samplers.gradient import mala
from pymc_kameleon.step import make_draws
from pymc_kameleon.step.initial_search import NoSearch
from pymc_kameleon.step.job import Job

ARGUMENTS = {
    pk.baselines.RWM: {},
    pk.baselines.AM: {},
    pk.baselines.RBAM: {},
    pk.GAM: {},
    pk.KAM: {"n_subsample": 40},
    pk.PCAKAM: {"n_subsample": 40},
    pk.CyclicalKAM: {"n_subsample": 40},
    pk.CMH: {},
    pk.CMTM: {},
    pk.baselines.MALA: {},
    pk.GadRWM: {},
    pk.GadMALA: {},
    pk.SurrogateMetropolis: {},
    BoxedEmulator: {},
}
"""For each sampler, arguments that make it quick to test."""

ROWS = {cls.__name__: (cls, arguments) for cls, arguments in ARGUMENTS.items()} | {
    "published": (pk.baselines.PublishedCyclicalKAM, {"cycle_length": 20}),
    "skeleton": (skeleton.CubeWalk, {}),  # from outside the package
}
NOT_PROMISED = {
    "published": {  # it never stops adapting, and evaluates more in some draws
        "test_alone",
        "test_one_dimension",
        "test_one_evaluation_per_proposal",
        "test_logp_follows_the_other_steps",
        "test_logp_follows_the_data",
        "test_float32_keeps_the_logp",
        "test_recovers_from_a_far_start",
        "test_stays_within_the_region_without_evaluating_outside",
        "test_keep_adapting",
        "test_parameters_are_constant_after_tuning",
    },
    "RWM": {"test_recovers_from_a_far_start"},  # one scale for all coordinates cannot
    "skeleton": {"test_recovers_from_a_far_start"},
    "CMH": {"test_recovers_from_a_far_start"},  # of a posterior with strong correlations
    "CMTM": {
        "test_recovers_from_a_far_start",
        "test_keep_adapting",  # needs bounds, and changes once in hundreds of sweeps
    },
    "MALA": {"test_recovers_from_a_far_start"},  # one scale
    "GadMALA": {"test_keep_adapting"},  # s is as great as it may be
    "SurrogateMetropolis": {
        "test_keep_adapting",  # refused
        # Its fits make much of rounding; test_surrogate.py looks at what is derived instead.
        "test_nothing_derived_outlives_what_it_is_derived_from",
    },
    "BoxedEmulator": {
        "test_keep_adapting",
        "test_nothing_derived_outlives_what_it_is_derived_from",
    },
}

COMMON = [
    "steps_per_draw",
    "target_accept",
    "keep_adapting",
    "region",
    "jitter",
    "model",
    "rng",
    "initial_point",
    "compile_kwargs",
]
FAMILIES = ("GAM", "KAM", "CyclicalKAM", "CMTM", "GadMALA", "SurrogateMetropolis", "skeleton")
"""Rows that stand for those whose code is much the same."""

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
    return build


def rows(*names):
    """Take these rows only: samplers of a kind keep the promise alike."""
    return pytest.mark.parametrize("sampler", names, indirect=True)


BY_FAMILY = [
    pytest.param(name, marks=[] if name in FAMILIES else [pytest.mark.slow]) for name in ROWS
]
"""All rows, of which one of each family is fast."""

by_family = pytest.mark.parametrize("sampler", BY_FAMILY, indirect=True)

FEW = "GAM", "GadMALA", "SurrogateMetropolis"
BY_FEW = [pytest.param(name, marks=[pytest.mark.slow] * (name not in FEW)) for name in ROWS]
"""All rows, of which three that differ most are fast, for what takes long."""

by_few = pytest.mark.parametrize("sampler", BY_FEW, indirect=True)


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
    return go_on(step, point, tune, range(tune + draws))


def go_on(step, point, tune, places):
    """Make these draws of a chain; return the last point and their statistics."""
    history = []
    for i in places:
        if i == tune:
            step.stop_tuning()
        point, [stats] = step.step(point)
        history.append(stats)
    return point, history


def evaluations(step):
    """Least and largest number of evaluations in a draw, if nothing has to be evaluated anew."""
    largest = step.steps_per_draw * step._largest_n_logp()
    if isinstance(step, pk.CMTM):
        return largest // 9, largest
    if isinstance(step, ApproximationMetropolis):
        return 0, largest  # its inner chain may lead nowhere
    return (step.steps_per_draw if isinstance(step, pk.GadMALA) else largest), largest


def refusal(function, *arguments, **options):
    """Return what the ValueError says, or nothing."""
    try:
        function(*arguments, **options)
    except ValueError as error:
        return str(error)
    return ""


# ---- models ---------------------------------------------------------------------------------


@cache
def free():
    """A model whose variables are all moved by one step."""
    with pm.Model() as model:
        pm.Normal("a", [1.0, -1.0], 0.1)
        pm.HalfNormal("s")
    return model


@cache
def narrow():
    with pm.Model() as model:
        pm.Normal("x", 3, 0.1)
    return model


@cache
def impossible():
    """No point has a finite log-density."""
    with pm.Model() as model:
        pm.Normal("x")
        pm.Exponential("y", 1, observed=-1.0)
    return model


@cache
def single():
    """A variable of float32."""
    with pm.Model() as model:
        pm.Normal("x", shape=2, dtype="float32")
    return model


@cache
def log_density(model):
    """PyMC's own."""
    return model.compile_logp()


MEMBERS = (*ROWS.values(), (pk.GadMALA, {"gradient": "exact", "adaptation": "published"}))


def variables_for(members):
    return [pm.Normal(f"x{i}", shape=2) for i in range(len(members))]


def steps_for(members, own):
    return [cls([x], **options) for (cls, options), x in zip(members, own, strict=True)]


# ---- what PyMC relies on ---------------------------------------------------------------------


@by_family
def test_changes_only_its_own_variables(sampler, mixed_model):
    """Not their order, types or shapes, nor the point that it was given."""
    step = sampler([mixed_model["a"]], model=mixed_model)
    step.setup_chain(np.random.default_rng(1), 10, 0)
    before = mixed_model.initial_point()
    for _ in range(10):
        given = deepcopy(before)
        after, _ = step.step(given)
        assert same(given, before)
        assert list(after) == list(before)
        for name, value in before.items():
            moved = np.asarray(after[name])
            assert (moved.dtype, moved.shape) == (value.dtype, value.shape), name
            assert name == "a" or np.array_equal(moved, value), name
        before = {name: np.array(value) for name, value in after.items()}


@by_family
def test_a_new_step_goes_on_from_a_saved_state(sampler):
    """All that a chain needs is in `sampling_state`, in tuning and after it."""
    step, point, history, saved = sampler(model=free()), free().initial_point(), [], []
    step.setup_chain(np.random.default_rng(1), 120, 30)
    for begin, end in pairwise((0, 7, 110, 125, 150)):
        saved.append((begin, point, pickle.dumps(step.sampling_state)))
        point, stats = go_on(step, point, 120, range(begin, end))
        history += stats
    for begin, start, state in saved:
        fresh = sampler(model=free())
        fresh.sampling_state = pickle.loads(state)
        found = go_on(fresh, start, 120, range(begin, 150))
        assert same(found, (point, history[begin:])), begin


@by_family
def test_a_second_chain_is_that_of_a_new_step(sampler):
    """In worker processes PyMC calls nothing but setup_chain before a chain."""
    used, new = sampler(model=free()), sampler(model=free())
    start = free().initial_point()
    run(used, start, 30, 120, seed=2)
    assert same(run(used, start, 30, 120), run(new, start, 30, 120))


SOME = [ROWS[name] for name in ("CyclicalKAM", "CMTM", "skeleton")]


@pytest.mark.parametrize(
    ("method", "members"),
    [
        ("fork", SOME),
        pytest.param("spawn", SOME, marks=pytest.mark.slow),
        pytest.param("fork", MEMBERS, marks=pytest.mark.slow),
        pytest.param("forkserver", MEMBERS, marks=pytest.mark.slow),
    ],
)
def test_processes_draw_the_same(method, members):
    """Each step has a generator and a state of its own, so that one run shows it for all."""
    if method not in multiprocessing.get_all_start_methods():
        pytest.skip(f"this system has no {method}")
    with pm.Model() as model:
        step = CompoundStep(steps_for(members, variables_for(members)))
    found = sample(step, model, cores=2, mp_ctx=method)  # which leaves the step as it is
    assert_same(found, sample(step, model))


# ---- construction ---------------------------------------------------------------------------


def test_every_sampler_has_a_row():
    assert set(ARGUMENTS) == set(SAMPLERS)
    assert len({sampler.name for sampler in pk.samplers.SAMPLERS}) == len(pk.samplers.SAMPLERS)


def test_signature_and_documentation(sampler):
    parameters = inspect.signature(sampler.cls).parameters
    assert next(iter(parameters)) == "vars"
    assert parameters["vars"].default is None
    keywords = [name for name, p in parameters.items() if p.kind is p.KEYWORD_ONLY]
    lacking = {"target_accept"} if sampler.cls is pk.CMTM else set()
    lacking |= set() if "keep_adapting" not in sampler.cls.lacks else {"keep_adapting"}
    assert set(COMMON) - lacking <= set(keywords)
    assert not lacking & set(keywords)
    assert len(keywords) == len(parameters) - 1
    documentation = inspect.getdoc(sampler.cls)
    for name in parameters:
        assert len(re.findall(rf"^{name} : ", documentation, re.MULTILINE)) == 1, name
    assert "\n\nRaises\n------\nValueError\n    For" in documentation


def test_takes_all_continuous_variables_by_default(sampler, mixed_model):
    step = sampler(model=mixed_model)
    assert step.var_names == ("a", "b_log__")
    n = sampler.cls.default_steps_per_draw(3)
    assert step.steps_per_draw == n
    assert repr(step) == f"{sampler.cls.__name__}([a, b_log__], steps_per_draw={n})"


def test_default_steps_per_draw():
    """The dimension, or one sweep over it, or one transition."""
    for cls, defaults in {pk.baselines.RWM: (10, 12), pk.CMH: (1, 1), pk.GadMALA: (1, 1)}.items():
        assert tuple(map(cls.default_steps_per_draw, (3, 12))) == defaults
    assert pk.baselines.RWM(model=normal(12)).steps_per_draw == 12


def test_refuses_impossible_variables(mixed_model):
    """As all others do, which leave it to the base class."""
    with pytest.raises(ValueError, match=r"\['k'\] are discrete.*Leave them out"):
        pk.baselines.RWM([mixed_model["a"], mixed_model["k"]], model=mixed_model)
    with pytest.raises(ValueError, match="twice"):
        pk.baselines.RWM([mixed_model["a"], mixed_model["a"]], model=mixed_model)
    with pm.Model():
        stranger = pm.Normal("stranger")
    for unknown in stranger, "stranger", mixed_model["y"]:
        with pytest.raises(ValueError, match=r"cannot sample '\w+'.*are \['a', 'b', 'k'\]"):
            pk.baselines.RWM([unknown], model=mixed_model)
    with pytest.raises(ValueError, match=r"'b_log_'\. Did you mean 'b_log__'"):
        pk.baselines.RWM("b_log_", model=mixed_model)
    with pm.Model():
        namesake = pm.Normal("a")
    with pytest.raises(ValueError, match=r"'a'\. This variable belongs to another model"):
        pk.baselines.RWM([namesake], model=mixed_model)
    with pm.Model() as model:
        pm.Poisson("k", 3)
    with pytest.raises(ValueError, match=r"the model has none.*\['k'\]"):
        pk.baselines.RWM(model=model)


def test_variables_go_by_their_names(mixed_model):
    a, b = mixed_model["a"], mixed_model["b"]
    for vars in ["a", "b_log__"], ("a", "b"), [a, "b"], [mixed_model.rvs_to_values[a], b]:
        assert pk.baselines.RWM(vars, model=mixed_model).var_names == ("a", "b_log__")
    for vars in "b", b, mixed_model.rvs_to_values[b]:
        assert pk.baselines.RWM(vars, model=mixed_model).var_names == ("b_log__",)


def test_an_unknown_option_names_the_nearest(mixed_model):
    with pytest.raises(TypeError, match=r"^KAM has no option 'gama'; did you mean 'gamma'\?$"):
        pk.KAM(model=mixed_model, gama=1.0)
    with pytest.raises(TypeError, match="GAM has no option 'xyz'; it has learning_rate, scaling_b"):
        pk.GAM(model=mixed_model, xyz=1)


def test_refuses_impossible_options(mixed_model):
    for option, values in {
        "steps_per_draw": [0, 2.5, 10.0, "a", True],
        "target_accept": [0, 1.0, np.nan, "a"],
        "keep_adapting": [1],
        "jitter": [0],
    }.items():
        for value in values:
            said = refusal(pk.baselines.RWM, model=mixed_model, **{option: value})
            assert option in said, (option, value)


def test_refuses_impossible_initial_points(mixed_model):
    start = mixed_model.initial_point()
    for point, message in [
        (3, "initial_point must be a dict of names and values, not 3."),
        ({"a": np.zeros(2)}, "initial_point lacks ['b_log__', 'k']"),
        (start | {"a": ["x", "y"]}, "initial_point['a'] is not a number: ['x', 'y']"),
        (start | {"a": 1.0}, "initial_point['a'] must have shape (2,), not ()."),
        (start | {"a": np.zeros(3)}, "initial_point['a'] must have shape (2,), not (3,)."),
    ]:
        assert message in refusal(pk.baselines.RWM, model=mixed_model, initial_point=point)


def test_refuses_impossible_regions(mixed_model):
    for region, message in [
        ({"b": (0, 1)}, r"region names \['b'\].*\['a', 'b_log__'\]"),
        ("a", "region must be a dict"),
        ({"a": 3}, r"region\['a'\] must be a pair"),
        ({"a": (0, 1, 2)}, r"region\['a'\] must be a pair"),
        ({"a": (np.zeros(3), 1)}, r"region\['a'\] must be a pair.*shape \(2,\)"),
        ({"a": (1, 0)}, "low < high"),
        ({"a": (0, np.nan)}, "low < high"),
    ]:
        assert re.search(message, refusal(pk.baselines.RWM, model=mixed_model, region=region)), (
            region
        )


def test_common_options_arrive(sampler, mixed_model):
    """Each one is handed on to the base class, which refuses these."""
    for option, value in {
        "steps_per_draw": 0,
        "target_accept": 0,
        "keep_adapting": 1,
        "region": "a",
    }.items():
        if option in sampler.options:
            assert option in refusal(sampler, model=mixed_model, **{option: value}), option


def test_refuses_impossible_scaling_bounds(mixed_model):
    for name, (cls, arguments) in ROWS.items():
        if "scaling_bounds" not in inspect.signature(cls).parameters:
            continue  # its scale is fixed
        wrong = [3, True, "ab", {}, (1,), (1, 2, 3), (1, 1), (2, 1), (0, 1), (-1, 1)]
        for bounds in [*wrong, (np.nan, 1), (1, np.inf), ("a", 1)]:
            said = refusal(cls, model=mixed_model, scaling_bounds=bounds, **arguments)
            assert "scaling_bounds" in said, (name, bounds)


def test_refuses_a_noisy_logp():
    data = pm.Minibatch(np.arange(100.0), batch_size=10)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=data, total_size=100)
    with pytest.raises(ValueError, match="Minibatch"):
        pk.baselines.RWM(model=model)


# ---- pm.sample and pk.sample -------------------------------------------------------------------


def scribble(values, number):
    """Fill the arrays of named tuples with what nobody should read."""
    for value in values:
        if hasattr(value, "_fields"):
            scribble(value, number)
        elif isinstance(value, np.ndarray):
            value[...] = number


@by_family
def test_what_other_chains_left_in_scratch_does_not_matter(sampler, monkeypatch):
    """Threads share it in no order; each advance begins with what happens to be there."""
    step = sampler(model=free())
    tune = 400 if sampler.cls is pk.CyclicalKAM else 60  # enough for its searches
    options = {"initvals": {}, "tune": tune, "discard_tuned_samples": False}
    copies, number = Job.steps_at, 0

    def with_scribbles(self, state):
        steps = copies(self, state)
        for one in steps:
            scribble(one._work, number)
        return steps

    monkeypatch.setattr(Job, "steps_at", with_scribbles)
    expected = sample(step, free(), pk.sample, **options)
    number = 1
    found = sample(step, free(), pk.sample, **options)
    for group in ("warmup_sample_stats", "posterior"):
        for name, values in expected[group].data_vars.items():
            np.testing.assert_array_equal(found[group][name], values, name)


@by_family
def test_alone(sampler):
    """With pk.sample; test_sample.py shows that pm.sample makes the same draws and statistics."""
    step = sampler(model=free())
    dt = sample(step, free(), pk.sample, initvals={}, discard_tuned_samples=False)
    stats = dt["sample_stats"]
    own = {step._stat_name(field) for field in step.stats._fields if field != "kept"}
    assert STATS | own <= set(stats)
    assert "lp" in stats  # model_logp, as this step covers all variables
    a, s = dt["posterior"]["a"].values[1, -1], dt["posterior"]["s"].values[1, -1]
    expected = log_density(free())({"a": a, "s_log__": np.log(s)})
    assert stats["lp"].values[1, -1] == pytest.approx(float(expected))
    assert ((stats["accept_prob"] >= 0) & (stats["accept_prob"] <= 1)).all()
    assert stats["n_logp"].dtype.kind == "i"
    least, largest = evaluations(step)
    n_logp = stats["n_logp"][:, 1:]  # in the first draw a black box is looked at again
    assert least <= n_logp.min() <= n_logp.max() <= largest
    learned = dt["learned"].to_dataset()
    assert learned
    assert all(variable.size and variable.attrs["description"] for variable in learned.values())
    if "coordinate" in learned.coords:
        assert learned["coordinate"].values.tolist() == ["a[0]", "a[1]", "s_log__"]
    # Tuning changes the scale, but a ladder that is right at once; and its end freezes it.
    changes = np.ptp(dt["warmup_sample_stats"]["scaling"].values, axis=1) > 0
    assert changes.any() or sampler.cls is pk.CMTM
    assert len(np.unique(stats["scaling"].values[0])) == 1


def check_mixing(theirs, members):
    """See what pm.sample gives with these samplers, a step of PyMC's, and NUTS."""
    with pm.Model() as model:
        variables = variables_for(members)
        k = pm.Poisson("k", 3) if theirs is pm.Metropolis else pm.Normal("k", shape=2)
        pm.Normal("nuts", k.sum())
        own = steps_for(members, variables)
        # DEMetropolisZ takes the dimension of the whole model unless it is given S.
        options = {"S": np.ones(2)} if theirs is pm.DEMetropolisZ else {}
        steps = [*own, theirs([k], **options)]
    stats = sample(steps, model, progressbar=True)["sample_stats"]
    for name in ["accept_prob", "accept_share", "n_logp"]:
        assert stats[name].shape == (2, 30, len(own)), name
    assert stats["scaling"].shape == (2, 30, len(own) + 1)
    numbers = [{k for k, v in step.stats_dtypes_shapes.items() if v[1] == []} for step in own]
    owners = Counter(name for names in numbers for name in names - STATS)
    for name, count in owners.items():
        assert stats[name].shape == ((2, 30, count) if count > 1 else (2, 30)), name
    assert max(owners.values()) > 1
    assert {"accepted", "accept", "acceptance_rate", "tree_depth"} <= set(stats)


def test_mixes_with_metropolis_nuts_and_some_other_samplers():
    check_mixing(pm.Metropolis, [ROWS[name] for name in ("KAM", "CyclicalKAM", "CMTM", "GadMALA")])


@pytest.mark.slow
@pytest.mark.parametrize("theirs", [pm.Metropolis, pm.DEMetropolisZ])
def test_mixes_with_the_steps_of_pymc_and_the_other_samplers(theirs):
    """PyMC refuses its Metropolis and DEMetropolisZ together: `accepted` has two types."""
    check_mixing(theirs, MEMBERS)


@by_family
def test_short_tuning_leaves_a_working_sampler(sampler):
    step = sampler(model=normal(3), steps_per_draw=1)
    for tune in [0, 1, 2, 3, 5, 20]:
        _, stats = run(step, {"x": np.zeros(3)}, 200, tune)
        assert np.isfinite(stats[-1]["scaling"]), tune
        assert sum(s["accept_share"] for s in stats[tune:]) > 0, tune


@by_family
def test_one_dimension(sampler):
    """CyclicalKAM tunes its acceptance in a tenth of the transitions of tuning only."""
    step = sampler(model=narrow())
    dt = sample(step, narrow(), pk.sample, tune=1000, draws=300)
    assert float(dt["posterior"]["x"].mean()) == pytest.approx(3, abs=0.03)
    share = float(dt["sample_stats"]["accept_share"].mean())
    if isinstance(step, pk.GadMALA):
        assert share > step.target_accept == 0.75  # two steps are a quarter of a period
    elif isinstance(step, pk.SurrogateMetropolis):
        assert share > 0.75  # target_accept is that of its walks
    elif "target_accept" not in step.lacks:
        assert share == pytest.approx(step.target_accept, abs=0.05)
    else:
        assert 0.1 < share < 0.9


def test_compiled_functions_travel():
    """By name to where they can be imported; those of a notebook are compiled again."""
    assert pickle.loads(pickle.dumps(mala.transition)) is mala.transition

    def nameless():
        @jit
        def one_more(x):
            return x + 1.0

        return cloudpickle.dumps(jit(lambda x: 2.0 * one_more(x)))

    travelled = cloudpickle.loads(nameless())

    def entry(x):
        return travelled(x)

    assert cached_jit(entry, (travelled,))(3.0) == 8.0


# ---- one evaluation per proposal, and when the log-density is computed again ----------------


@pytest.mark.slow
@by_family
def test_one_evaluation_per_proposal(sampler):
    op, model = box()
    step = sampler(model=model, steps_per_draw=5)
    op.count = 0
    _, stats = run(step, {"x": np.ones(2)}, draws=20, tune=400)
    assert op.count == sum(s["n_logp"] for s in stats)
    n_logp = np.array([s["n_logp"] for s in stats])
    least, largest = evaluations(step)
    n_logp[400] -= 1  # that of a point before, to see whether it is the same
    assert n_logp[400:].min() >= least
    assert n_logp[400:].max() <= largest
    more = (n_logp[1:400] < least) | (n_logp[1:400] > largest)
    after_learning = set(step.pauses())  # by a step that learns in Python: x is evaluated anew
    assert len(set(np.flatnonzero(more) + 1) - after_learning) <= 2  # where modes are learned


@by_family
def test_logp_follows_the_other_steps(sampler, mixed_model):
    """A pair that depends on each other exposes a stale log-density."""
    step = sampler([mixed_model["a"]], model=mixed_model)
    point = mixed_model.initial_point()
    step.setup_chain(np.random.default_rng(0), 0, 3)
    point, [stats] = step.step(point)
    assert "model_logp" not in stats  # that of the draw is another one
    least, largest = evaluations(step)
    point, [stats] = step.step(point)
    assert least <= stats["n_logp"] <= largest
    point = point | {"k": np.array(1), "b_log__": np.array(-1.0)}
    point, [stats] = step.step(point)
    assert least + 1 <= stats["n_logp"] <= largest + 1
    expected = log_density(mixed_model)(point)
    assert step.state.logp[0] == pytest.approx(float(expected))


@by_family
def test_logp_follows_the_data(sampler, mixed_model):
    step = sampler(model=mixed_model)
    step.setup_chain(np.random.default_rng(0), 0, 3)
    point, _ = step.step(mixed_model.initial_point())
    old = mixed_model["data"].get_value()
    with mixed_model:
        pm.set_data({"data": np.full(7, 2.0)})  # of another shape
    try:
        point, [stats] = step.step(point)
        least, largest = evaluations(step)
        assert least + 1 <= stats["n_logp"] <= largest + 1
        expected = log_density(mixed_model)(point)
        assert step.state.logp[0] == pytest.approx(float(expected))
    finally:
        with mixed_model:
            pm.set_data({"data": old})


# ---- the gradient, and what the state derives from it, from x and from the parameters --------


@pytest.mark.parametrize("name", [name for name, (cls, _) in ROWS.items() if cls.derivatives])
def test_a_wrong_gradient_changes_the_trajectory(name, monkeypatch):
    """Wrong in any one coordinate at the proposals; at the start it is 0, which cannot be wrong."""
    cls, arguments = ROWS[name]
    step = cls(model=box()[1], **arguments)
    ends = set()
    for factor in ([1.0, 1.0], [0.5, 1.0], [1.0, 0.5]):
        monkeypatch.setattr(Slope, "factor", np.array(factor))
        ends.add(run(step, {"x": np.zeros(2)}, draws=20, tune=100)[0]["x"].tobytes())
    assert len(ends) == 3


@pytest.mark.parametrize(
    "sampler",
    [pytest.param(name, marks=[pytest.mark.slow] * (name != "KAM")) for name in ROWS],
    indirect=True,
)
def test_nothing_derived_outlives_what_it_is_derived_from(sampler, mixed_model, monkeypatch):
    """To derive it anew before each draw changes nothing, during tuning and after."""
    step = sampler(model=mixed_model, steps_per_draw=1)
    start = mixed_model.initial_point()
    one, stats = run(step, start, 50, 400)
    monkeypatch.setattr(make_draws, "what_changed", lambda step, q: MOVED)
    other, other_stats = run(step, start, 50, 400)
    for name in "a", "b_log__":
        np.testing.assert_allclose(one[name], other[name], rtol=1e-6)
    for name in "scaling", "accept_share":
        found, expected = ([row[name] for row in rows] for rows in (other_stats, stats))
        np.testing.assert_allclose(found, expected, rtol=1e-6)


# ---- the state of a chain -------------------------------------------------------------------


@rows("GAM", "GadMALA")
def test_a_state_of_another_configuration_is_refused(sampler, mixed_model):
    state = sampler(model=mixed_model).sampling_state
    with pytest.raises(ValueError, match="configuration"):
        sampler(model=mixed_model, steps_per_draw=3).sampling_state = state


@pytest.mark.slow
@by_family
def test_float32_keeps_the_logp(sampler):
    step = sampler(model=single())
    point = {"x": np.zeros(2, np.float32)}
    _, stats = run(step, point, draws=5)
    least, largest = evaluations(step)
    assert all(least <= s["n_logp"] <= largest for s in stats[1:])


@cache
def far():
    """A regression with raw, strongly correlated predictors; mean and sds of its posterior."""
    rng = np.random.default_rng(1)
    base = rng.normal(size=200)
    predictors = np.c_[50 + 10 * base + 2 * rng.normal(size=200), 3 + 0.1 * base]
    predictors[:, 1] += 0.03 * rng.normal(size=200)
    observed = 5 + predictors @ [0.1, -2.0] + rng.normal(size=200)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 100)
        b = pm.Normal("b", 0, 100, shape=2)
        pm.Normal("y", a + (predictors * b).sum(axis=1), 1, observed=observed)
    design = np.c_[np.ones(200), predictors]
    precision = design.T @ design + np.eye(3) / 1e4
    sds = np.diag(np.linalg.inv(precision)) ** 0.5
    return model, np.linalg.solve(precision, design.T @ observed), sds


@pytest.mark.slow
@by_few
def test_recovers_from_a_far_start(sampler):
    """Hundreds of sds away."""
    model, mean, sds = far()
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
    step = sampler(model=normal(10))

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


@pytest.mark.slow
@by_few
def test_stays_within_the_region_without_evaluating_outside(sampler):
    """The posterior is restricted to it: here, a half-normal by one-sided bounds."""
    outside = []

    def record(x):
        outside.append(x[0] < 0 or x[1] > 2)
        return -0.5 * x @ x

    step = sampler(
        model=box(record)[1],
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


@rows("GAM", "GadMALA")
def test_start_outside_the_region(sampler, mixed_model):
    step = sampler(model=mixed_model, region={"a": (5, 6)})
    step.setup_chain(0, 10, 10)
    with pytest.raises(SamplingError, match="outside region"):
        step.step(mixed_model.initial_point())


@by_family
def test_parameters_are_constant_after_tuning(sampler):
    """To the last bit, and not before."""
    step, kept = sampler(model=free(), steps_per_draw=10), []
    step.setup_chain(np.random.default_rng(0), 300, 100)
    point = free().initial_point()
    for i in range(400):
        if i == 300:
            step.stop_tuning()
        point, _ = step.step(point)
        kept.append(deepcopy(step.parameters))
    assert all(same(parameters, kept[299]) for parameters in kept[300:])
    assert not same(kept[0], kept[299])
    changed = [not same(one, other) for one, other in pairwise(kept[:300])]
    assert sum(changed) > 2


@pytest.mark.slow
@by_family
def test_keep_adapting(sampler, mixed_model):
    """Goes on after tuning; never without any tuning."""
    step = sampler(model=mixed_model, keep_adapting=True)
    for tune in [100, 0]:
        point, changed = mixed_model.initial_point(), []
        step.setup_chain(np.random.default_rng(0), tune, 1000)
        for i in range(tune + 1000):
            if i == tune:
                step.stop_tuning()
            before = deepcopy(step.parameters)
            point, _ = step.step(point)
            changed.append(not same(before, step.parameters))
        after = np.reshape(changed[tune:], (-1, 10))  # a cycle explores for less than ten draws
        assert after.any(axis=1).all() if tune else not after.any(), tune


# ---- errors ---------------------------------------------------------------------------------


@rows("GAM", "GadMALA")
def test_start_outside_the_support(sampler):
    step = sampler(model=impossible())
    step.setup_chain(0, 10, 10)
    with pytest.raises(SamplingError, match=r"(?s)not finite.*'y'.*initvals"):
        step.step({"x": np.array(0.0)})


@pytest.mark.usefixtures("without_search")
@by_family
def test_no_finite_logp_no_move(sampler):
    """NaN and +inf count as -inf: the chain never goes there."""
    op, model = box()
    step = sampler(model=model)
    for value in [np.nan, np.inf, -np.inf]:
        op.function = lambda x, value=value: value if x[0] > 0 else -0.5 * x @ x
        point, stats = run(step, {"x": -np.ones(2)}, draws=50, tune=50)
        assert point["x"][0] < 0, value
        assert 0 < np.mean([s["accept_share"] for s in stats]) < 1, value


def test_an_exception_in_the_likelihood_arrives_as_it_is(sampler):
    def fail(x):
        if x[0] > 0.5:
            raise ZeroDivisionError("the solver broke down")
        return -0.5 * x @ x

    step = sampler(model=box(fail)[1])
    with pytest.raises(ZeroDivisionError, match="the solver broke down") as error:
        run(step, {"x": np.zeros(2)}, draws=100, tune=100)
    assert "fail" in [entry.name for entry in error.traceback]


# ---- compilation ----------------------------------------------------------------------------


def test_transitions_compile_once_for_all_models(mixed_model):
    for name, (cls, arguments) in ROWS.items():
        cls([mixed_model["b"]], model=mixed_model, **arguments)
        step = cls(model=normal(3), **arguments)
        compiled = compile_draws((step.algorithm,))
        assert len(compiled.signatures) == 1, name
        assert isinstance(compiled._cache, Cache), name  # for other processes, too


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (pk.GAM, {}),
        (pk.GadMALA, {}),
        pytest.param(
            pk.GadMALA,
            {"adaptation": "published", "gradient": "exact"},
            marks=pytest.mark.slow,
        ),
    ],
)
def test_a_model_without_numba_gives_the_same_numbers(cls, arguments, mixed_model, caplog):
    """Log-density, gradient, and products with the Hessian."""
    with (
        caplog.at_level(logging.WARNING, "pymc_kameleon"),
        pytensor.config.change_flags(cxx=""),  # a scan would compile C, for seconds
    ):
        slow = cls(model=mixed_model, compile_kwargs={"mode": "FAST_COMPILE"}, **arguments)
        assert caplog.text.count("runs through Python") <= 1
    fast = cls(model=mixed_model, **arguments)
    slow.search, fast.search = NoSearch(slow), NoSearch(fast)  # it lets rounding grow
    (one, _), (other, _) = (run(s, mixed_model.initial_point(), 20, 20) for s in (fast, slow))
    np.testing.assert_allclose(one["a"], other["a"], rtol=1e-6)


@pytest.mark.slow
@rows("GAM", "CMTM", "GadMALA")
def test_an_expensive_logp_is_mentioned_once(sampler, caplog, monkeypatch):
    """In either driver; building a step says nothing."""
    monkeypatch.setattr("pymc_kameleon.step.base.seconds_per_logp", lambda *arguments: 2.14e-3)

    def said(what):
        return [r.getMessage() for r in caplog.records if what in r.getMessage()]

    draw, run = "One logp evaluation takes 2.1 ms", "evaluations of 2.1 ms: about"
    options = {"chains": 1, "cores": 1, "progressbar": False, "compute_convergence_checks": False}
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        step = sampler(model=box()[1])
        assert not said(draw)
        pm.sample(2, tune=0, step=step, model=step.model, **options)
        assert [len(said(draw)), len(said(run))] == [1, 0]
        advice = step.steps_per_draw > 1
        assert ("With steps_per_draw=1" in said(draw)[0]) == advice
        caplog.clear()
        pk.sample(1, tune=1, step=step, model=step.model, **options)
    assert [len(said(draw)), len(said(run))] == [0, 1]
    largest = step._largest_n_logp()
    assert f"At most {2 * step.steps_per_draw * largest} evaluations" in said(run)[0]
