"""pk.sample: the draws of pm.sample, without Python between them; to be interrupted and resumed."""

import json
import logging
import re
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from importlib.metadata import version
from itertools import pairwise

import arviz as az
import models
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from hypothesis import example, given
from hypothesis import strategies as st
from models import box, guarded_box, normal
from pymc.exceptions import SamplingError
from pymc.step_methods import CompoundStep
from pymc.util import get_random_generator
from pytensor import wrap_py
from pytensor.compile.mode import get_mode
from pytensor.raise_op import Assert
from runs import (
    DRAWN,
    QUIET,
    WARMUP,
    assert_same,
    codes,
    done_of,
    messages,
    resume,
    sample,
    states_of,
    unpooled,
)
from test_contract import BY_FAMILY, BY_FEW, ROWS, refusal
from test_contract import run as run_by_hand

import pymc_kameleon as pk
from pymc_kameleon.core.schedules import Decay
from pymc_kameleon.result import columns, memory
from pymc_kameleon.result import tree as result_tree
from pymc_kameleon.result.steps import check_same_step, describe
from pymc_kameleon.sampling import (
    chain_of_run,
    ctrl_c,
    outcome,
    progress,
    run,
    workers,
)
from pymc_kameleon.sampling import sample as sampling_sample
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.sampling.run import Run
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.make_draws import make_draws
from pymc_kameleon.step.monitor import ChainMonitor

pytestmark = pytest.mark.forks

STARTS = [{"a": [0.1, -0.2], "s": 1.5}, {"a": [1.0, 2.0], "s": 0.5}]
# ---- models ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    """Coordinates, data, a transform and a deterministic."""
    with pm.Model(coords={"city": ["A", "B"]}) as model:
        data = pm.Data("data", [0.5, 1.5, 1.0])
        a = pm.Normal("a", 0, [1.0, 2.0], dims="city")
        s = pm.Gamma("s", 2, 1)
        pm.Deterministic("scaled", a * s, dims="city")
        pm.Normal("y", a[0], s, observed=data)
    return model


@pytest.fixture(scope="module")
def gam(model):
    return pk.GAM(model=model)


@pytest.fixture(scope="module")
def line():
    return normal()


@pytest.fixture(scope="module")
def plane():
    return normal(2)


@pytest.fixture(scope="module")
def walk(line):
    """A step that is quick to make, and quick."""
    return pk.baselines.RWM(model=line, steps_per_draw=5)


@pytest.fixture(scope="module")
def still(line):
    """Its first draw is where the chain starts, but for a billionth."""
    return pk.baselines.RWM(model=line, scaling=1e-10, tune_scaling=False)


@pytest.fixture(scope="module")
def pair():
    return models.pair()


@pytest.fixture(scope="module")
def two_steps(pair):
    """One needs the gradient."""
    walk = pk.GAM([pair["x"]], model=pair, steps_per_draw=5)
    return [walk, pk.baselines.MALA([pair["y"]], model=pair, steps_per_draw=5)]


# ---- every sampler --------------------------------------------------------------------------


@pytest.fixture(params=BY_FEW, scope="module")
def row(request, model):
    """A step, and 60 draws of it."""
    cls, arguments = ROWS[request.param]
    step = cls(model=model, **arguments)
    return step, sample(step, draws=60, tune=200, discard_tuned_samples=False)


def test_draws_what_pm_sample_draws(row, model):
    step, _ = row
    theirs = pm.sample(
        draws=60,
        tune=200,
        chains=2,
        cores=1,
        random_seed=7,
        step=step,
        initvals=STARTS,
        model=model,
        discard_tuned_samples=False,
        **QUIET,
    )
    options = {"initvals": STARTS, "discard_tuned_samples": False}
    ours = sample(unpooled(step), draws=60, tune=200, **options)
    assert set(theirs.children) <= set(ours.children)
    kept = {step.keeps.group} if step.statistics.kept else set()
    knows = type(step).__name__ in {"SurrogateMetropolis", "BoxedEmulator"}
    kept |= {"evaluations"} if knows else set()
    kept |= {"search"} if step.search.searches else set()
    own = {"learned", "sampling_state", "findings"}
    assert set(ours.children) - set(theirs.children) == own | kept
    assert_same(ours, theirs, theirs.children)
    assert len(np.unique(ours["posterior"]["a"])) > 60


def test_resumed_draws_are_those_of_one_run(row, model):
    step, whole = row
    options = {"tune": 200, "discard_tuned_samples": False}
    if isinstance(step, pk.EmulatorMetropolis):  # for more draws it makes more searches
        options |= {"callback": lambda run, draw: draw.draw_idx < 230 or run.stop()}
        half = sample(step, draws=60, **options)
        assert half["posterior"].sizes["draw"] < 60
        assert_same(resume(half, model, None), whole, DRAWN + WARMUP)
        return
    half = sample(step, draws=30, **options)
    assert_same(half, whole, WARMUP)
    assert_same(resume(half, model), whole, DRAWN + WARMUP)


KEEP = {name: arguments for name, (_, arguments) in ROWS.items()} | {
    "CMTM": {"scaling_bounds": (0.01, 100), "region": {"x": (-20, 20)}, "adapt_every": 10}
}


REFUSED = "SurrogateMetropolis", "BoxedEmulator"


LONG = "KAM", "CyclicalKAM"  # to compile again for this


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(*row.values, marks=[*row.marks, *[pytest.mark.slow] * (row.values[0] in LONG)])
        for row in BY_FAMILY
        if row.values[0] not in REFUSED
    ],
)
def test_resumed_draws_when_adaptation_goes_on(name, plane):
    step = ROWS[name][0](model=plane, keep_adapting=True, **KEEP[name])
    half, whole = (sample(step, draws=draws, tune=200) for draws in (30, 60))
    both = resume(half, plane)
    assert_same(both, whole)
    assert_same(both, whole, ["learned"])


# ---- what pm.sample returns -----------------------------------------------------------------


def theirs_and_ours(step, **kwargs):
    """Return what both give where chains do not learn from one another."""
    arguments = {"draws": 30, "tune": 50, "chains": 2, "cores": 1, "random_seed": 7} | QUIET
    arguments |= {"step": step, "model": step.model} | kwargs
    return pm.sample(**arguments), pk.sample(**arguments | {"step": unpooled(step)})


@pytest.mark.parametrize(
    "options",
    [
        {"var_names": ["scaled"]},
        {"idata_kwargs": {"include_transformed": True}},
        {"idata_kwargs": {"coords": {"place": [5, 6]}, "dims": {"scaled": ["place"]}}},
        {"idata_kwargs": {"log_likelihood": True, "log_prior": ["s"]}, "tune": 0},
        {"random_seed": [3, 4], "chains": 1, "draws": 1},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.filterwarnings("ignore:Passing `log:FutureWarning")  # of pm.sample
def test_options_mean_what_they_mean_in_pm_sample(options, gam):
    starts = STARTS[: options.get("chains", 2)]
    theirs, ours = theirs_and_ours(gam, initvals=starts, **options)
    assert set(theirs.children) <= set(ours.children)
    assert_same(ours, theirs, theirs.children)


@pytest.mark.parametrize("others", [pytest.param(True, marks=pytest.mark.slow), False])
def test_float32(others):
    """Alone, and beside a variable of float64."""
    with pm.Model() as model:
        f = pm.Normal("f", shape=2, dtype="float32")
        pm.Deterministic("double", 2 * f)
        if others:
            pm.Normal("x")
    start = {"f": np.array([0.1, 0.2], np.float32)}
    theirs, ours = theirs_and_ours(pk.GAM(model=model), initvals=start)
    assert ours["posterior"]["f"].dtype == np.float32
    assert_same(ours, theirs)


@pytest.mark.slow
def test_float32_has_dispersed_starts():
    with pm.Model() as model:
        pm.Normal("f", dtype="float32")
    result = sample(pk.baselines.RWM(model=model))
    assert len(np.unique(result["posterior"]["f"])) > 2


def test_attributes(gam):
    result = sample(gam)
    attributes = result["posterior"].attrs
    assert attributes["tuning_steps"] == 50
    assert attributes["sampling_time"] > 0
    assert attributes["inference_library"] == "pymc_kameleon"
    assert attributes["inference_library_version"] == version("pymc_kameleon")


def test_the_step_passed_in_is_left_alone(walk):
    before = walk.sampling_state
    sample(walk)
    assert walk.sampling_state.monitor == before.monitor
    np.testing.assert_equal(walk.sampling_state.state, before.state)
    np.testing.assert_equal(walk.sampling_state.parameters, before.parameters)


def test_convergence_is_checked(still):
    found = sample(still, compute_convergence_checks=True, draws=200)
    assert "chains_disagree" in codes(found)
    assert found["findings"].attrs["verdict"] == "not usable"
    unchecked = sample(still, draws=200)
    assert "chains_disagree" not in codes(unchecked)
    assert not unchecked["findings"].attrs["is_checked"]


@pytest.mark.parametrize(("apart", "is_told"), [(0.0, False), (1.0, True)])
def test_chains_that_differ_are_given_advice(pair, apart, is_told):
    rng = np.random.default_rng(1)
    x = rng.standard_normal((4, 200)) + apart * np.arange(4)[:, None]
    draws = {"x": x, "y": rng.standard_normal((4, 200))}
    posterior = xr.Dataset({name: (("chain", "draw"), own) for name, own in draws.items()})
    tree = xr.DataTree.from_dict({"posterior": posterior})
    outcome.Finish(pair, {}, True, False, None).conclude(tree, [], "8 draws")
    found = set(codes(tree))
    assert ({"r_hat", "chains_disagree"} & found != set()) == is_told
    assert ({"hierarchy", "has_gradient"} & found == {"hierarchy", "has_gradient"}) == is_told


def test_quiet(gam, caplog, capsys):
    options = {"tune": 5, "draws": 200, "progressbar": True, "compute_convergence_checks": True}
    for quiet in (False, True):
        caplog.clear()
        with caplog.at_level(logging.INFO, "pymc_kameleon"):
            sample(gam, quiet=quiet, **options)
        shown = capsys.readouterr()
        assert ("draws and" in caplog.text) == ("Progress" in shown.out) != quiet
        assert (caplog.text + shown.out + shown.err == "") == quiet


# ---- several steps --------------------------------------------------------------------------


@pytest.mark.slow
def test_statistics_of_several_steps_are_as_in_pm_sample(two_steps, pair):
    arguments = {"draws": 10, "tune": 20, "chains": 2, "model": pair, "step": two_steps} | QUIET
    theirs, ours = pm.sample(cores=1, **arguments), pk.sample(cores=1, **arguments)
    for group in DRAWN:
        a, b = theirs[group], ours[group]
        assert {k: (v.dims, v.shape, v.dtype) for k, v in a.data_vars.items()} == {
            k: (v.dims, v.shape, v.dtype) for k, v in b.data_vars.items()
        }
    assert ours["sample_stats"]["scaling"].shape == (2, 10, 2)


def test_evaluating_anew_is_counted(two_steps):
    """Once where the other one has moved, wherever calls of compiled code begin."""
    result = sample(two_steps, draws=200)
    n_logp = result["sample_stats"]["n_logp"].values
    x, y = (np.diff(result["posterior"][name].values, axis=1) != 0 for name in "xy")
    np.testing.assert_array_equal(n_logp[:, 2:, 0] - 5, y[:, :-1])
    np.testing.assert_array_equal(n_logp[:, 1:, 1] - 5, x)
    assert 0 < x.mean() < 1
    assert 0 < y.mean() < 1


def test_several_steps_resume(two_steps, pair):
    half, whole = (sample(two_steps, draws=draws) for draws in (30, 60))
    assert_same(resume(half, pair), whole)
    assert_same(resume(half, pair, step=CompoundStep(two_steps)), whole)


def test_a_step_that_cannot_start_where_another_went(caplog):
    """The log-density is finite there, but not its gradient."""
    with pm.Model() as model:
        x, y = pm.Normal("x"), pm.Normal("y")
        pm.Potential("p", -pt.sqrt(y**2 * (x < 0.5)))
        steps = [pk.GAM([x]), pk.baselines.MALA([y])]
    with pytest.raises(SamplingError, match=r"(?s)MALA cannot start: the gradient.*y") as error:
        sample(steps, model=model, initvals={"x": 0.0, "y": 1.0})
    (note,) = error.value.__notes__
    x = re.match(r"In chain \d, draw \d+ of tuning, at .*'x': array\(([-.\d]+)\)", note)[1]
    assert float(x) >= 0.5


# ---- chains ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_draws_do_not_depend_on_the_number_of_cores(gam, two_steps):
    for step in (gam, two_steps):
        one, two, many = (sample(step, chains=3, cores=cores) for cores in (1, 2, 8))
        assert_same(one, two)
        assert_same(one, many)


def test_chains_differ_and_are_reproducible(walk):
    one, again, other = (
        sample(walk, chains=3, random_seed=seed) for seed in (1, np.random.default_rng(1), 2)
    )
    assert_same(one, again)
    draws = [*one["posterior"]["x"].values, *other["posterior"]["x"].values]
    assert len({float(chain[0]) for chain in draws}) == len(draws)
    random = [sample(walk, random_seed=None)["posterior"]["x"].values for _ in range(2)]
    assert (random[0] != random[1]).any()


def test_starts_are_dispersed(still):
    starts = sample(still, tune=0, chains=20, draws=1, random_seed=1)["posterior"]["x"].values
    assert len(np.unique(starts.round(6))) == 20
    assert np.abs(starts).max() <= 1 + 1e-6
    assert starts.std() == pytest.approx(1 / np.sqrt(3), abs=0.2)
    again = sample(still, tune=0, chains=20, draws=1, random_seed=1)["posterior"]["x"].values
    np.testing.assert_array_equal(starts, again)


def test_starts_are_in_the_region(line, pair):
    step = pk.baselines.RWM(model=line, scaling=1e-10, tune_scaling=False, region={"x": (0.7, 5)})
    starts = sample(step, tune=0, chains=10, draws=1)["posterior"]["x"]
    assert (starts > 0.7).all()
    second = pk.baselines.RWM(
        [pair["y"]], model=pair, scaling=1e-10, tune_scaling=False, region={"y": (0.7, 5)}
    )
    steps = [pk.baselines.RWM([pair["x"]], model=pair, scaling=1e-10, tune_scaling=False), second]
    assert (sample(steps, tune=0, chains=10, draws=1)["posterior"]["y"] > 0.7).all()
    nowhere = pk.baselines.RWM(model=line, region={"x": (7, 8)})
    with pytest.raises(ValueError, match="not finite at any of 100 points"):
        sample(nowhere)


def test_initvals_are_where_chains_start(still):
    for initvals, expected in [
        ({"x": 3.0}, [3, 3]),
        ([{"x": 3.0}, {"x": 4.0}], [3, 4]),
        ([{"x": 3.0}, {}], [3, 0]),
    ]:
        first = sample(still, initvals=initvals, tune=0, draws=1)["posterior"]["x"].values[:, 0]
        np.testing.assert_allclose(first, expected, atol=1e-6)


def test_impossible_initvals(still):
    with pytest.raises(ValueError, match=r"initval dicts \(3\).*chains \(2\)"):
        sample(still, initvals=[{}] * 3)
    with pytest.raises(SamplingError, match=r"(?s)not finite.*'x': array\(nan\)") as error:
        sample(still, initvals=[{"x": 0.5}, {"x": np.nan}])
    assert re.match("In chain 1, draw 0 of tuning, at .*'x'", error.value.__notes__[0])
    with pm.Model() as model:
        size = pm.Data("size", np.zeros(2))
        pm.Normal("v", shape=size.shape)
    with pytest.raises(ValueError, match=r"start of v has shape \(3,\), not \(2,\)"):
        sample(pk.baselines.RWM(model=model), initvals={"v": np.zeros(3)})


# ---- resume ---------------------------------------------------------------------------------


PROGRAM = """
import numpy as np, pymc as pm, xarray as xr, pymc_kameleon as pk, sys

with pm.Model() as line:
    pm.Normal("x")
    with xr.open_datatree(sys.argv[1]) as half:
        pk.resume(half, 30, progressbar=False).to_netcdf(sys.argv[2])
"""


@pytest.mark.slow
def test_resumes_in_another_process(walk, tmp_path):
    half, whole = (sample(walk, draws=draws) for draws in (30, 60))
    half.to_netcdf(tmp_path / "half.nc")
    arguments = [sys.executable, "-c", PROGRAM, tmp_path / "half.nc", tmp_path / "both.nc"]
    subprocess.run(arguments, check=True, capture_output=True)
    with xr.open_datatree(tmp_path / "both.nc") as both:
        assert_same(both, whole)


@pytest.mark.parametrize("kind", ["PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"])
def test_resumes_with_any_generator(kind, walk, line, tmp_path):
    half, whole = (
        sample(walk, draws=draws, random_seed=np.random.Generator(getattr(np.random, kind)(3)))
        for draws in (30, 60)
    )
    assert json.loads(states_of(half)[0]["0.rng"].item())["bit_generator"] == kind
    assert_same(resume(half, line), whole)


def test_resumes_some_of_the_chains(walk, line):
    """In files, too, a user selects them by ArviZ's names."""
    half, whole = (sample(walk, draws=draws, chains=3) for draws in (30, 60))
    for chosen in ([2, 0], [1]):
        assert_same(resume(half.sel(chain=chosen), line), whole.sel(chain=chosen))


def test_resumes_again_and_again_even_from_no_draws(walk, line):
    whole = sample(walk, draws=50)
    result = sample(walk, draws=0)
    assert set(result.children) & {*DRAWN, *WARMUP} == {*DRAWN, "warmup_sample_stats"}
    assert result["posterior"].sizes["draw"] == 0
    for draws in (1, 9, 40):
        result = resume(result, line, draws)
    assert_same(result, whole)
    assert result["posterior"].attrs["tuning_steps"] == 50


def test_resuming_leaves_the_old_result_and_what_was_learned(gam, model):
    half = sample(gam)
    copy = half.copy(deep=True)
    both = resume(half, model)
    assert half.identical(copy)
    assert_same(both, half, ["learned"])
    assert both["posterior"].attrs["sampling_time"] > half["posterior"].attrs["sampling_time"]


OPTIONS = {
    "kernel": (
        pk.KAM,
        {
            "kernel": pk.samplers.kernels.Matern(2.5, "median"),
            "n_subsample": np.int64(30),
            "gamma": np.float64(0.5),
        },
    ),
    "Decay": (
        pk.GAM,
        {
            "learning_rate": Decay(0.3, 20, 0.7),
            "region": {"a": ([-9, -8], np.array([8.0, 9.0])), "s_log__": (-5, np.inf)},
            "initial_point": {"a": np.ones(2), "s_log__": np.array(0.2)},
        },
    ),
    "arrays": (pk.CMTM, {"scaling": np.array([0.1, 1.0, 10.0]), "n_tries": 3}),
    "mode": (pk.baselines.RWM, {"compile_kwargs": {"mode": "NUMBA"}}),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "Decay")) for name in OPTIONS]
)
def test_options_survive(name, model, tmp_path):
    cls, options = OPTIONS[name]
    step = cls([model["s"], model["a"]], model=model, **options)
    half, whole = (sample(step, draws=draws) for draws in (5, 10))
    assert json.loads(half["sampling_state"].attrs["steps"])[0]["variables"] == ["s_log__", "a"]
    half.to_netcdf(tmp_path / "half.nc")
    with xr.open_datatree(tmp_path / "half.nc") as loaded:
        assert_same(resume(loaded, model, 5), whole)


class Own(pk.samplers.kernels.Gaussian):
    """A kernel that the package does not know."""


@pytest.mark.parametrize(
    ("cls", "options"),
    [
        (pk.baselines.RWM, {"compile_kwargs": {"mode": get_mode("NUMBA")}}),
        (pk.KAM, {"kernel": Own(2.0), "n_subsample": 30}),
    ],
)
def test_objects_that_cannot_be_stored_have_to_be_passed_again(cls, options, line):
    step = cls(model=line, **options)
    half, whole = (sample(step, draws=draws) for draws in (30, 60))
    with pytest.raises(ValueError, match=f"{cls.__name__}, cannot be made again.*Pass step="):
        resume(half, line)
    assert_same(resume(half, line, step=step), whole)


# ---- resume: refusals -----------------------------------------------------------------------


def regression(shape=2, name="x", mu=0.0, observed=1.0, flat=False):
    with pm.Model() as model:
        data = pm.Data("data", observed)
        x = pm.Normal(name, mu, shape=shape)
        pm.Normal("y", x.sum(), observed=data)
        if flat:
            pm.Flat("flat")
    return model


@pytest.fixture(scope="module")
def of_regression():
    model = regression()
    return sample(pk.baselines.RWM(model=model))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "z"}, r"same model: this one has no variables \['x'\]"),
        ({"shape": 3}, r"same model.*: shapes was \[\[2\]\], and is \[\[3\]\] now"),
        ({"mu": 0.5}, r"same model and data: the log-density.* was -\d.*, and is -\d"),
        ({"observed": 1.5}, "same data: pm.Data, or the length"),
        ({"flat": True}, r"(same model|No step moves).*flat"),
    ],
)
def test_another_model_is_refused(change, message, of_regression):
    with pytest.raises(ValueError, match=message):
        resume(of_regression, regression(**change))


def test_changed_data_are_refused():
    model = regression()
    half = sample(pk.baselines.RWM(model=model))
    with model:
        pm.set_data({"data": 2.0})
    with pytest.raises(ValueError, match=r"same data: pm.Data, or the length"):
        resume(half, model)
    with model:
        pm.set_data({"data": 1.0})
    assert resume(half, model)["posterior"].sizes["draw"] == 60


def test_a_noisy_or_rounded_log_density_is_not_refused():
    """Black boxes may be noisy."""
    rng = np.random.default_rng(1)
    _, model = box(lambda x: -0.5 * x @ x + 1e-3 * rng.standard_normal())
    half = sample(pk.baselines.RWM(model=model, steps_per_draw=1))
    assert resume(half, model)["posterior"].sizes["draw"] == 60


def test_another_step_is_refused(gam, model):
    half = once(gam)
    for cls, options, message in [
        (pk.baselines.RWM, {}, "sampler was 'GAM', and is 'RWM' now"),
        (pk.GAM, {"steps_per_draw": 3}, "steps_per_draw was 10, and is 3 now"),
        (pk.GAM, {"target_accept": 0.3}, "target_accept was 0.234, and is 0.3 now"),
        (pk.GAM, {"keep_adapting": True}, "keep_adapting was False, and is True now"),
        (pk.GAM, {"region": {"s_log__": (-5, 5)}}, r"region was .*inf.*, and is .*-5.0.* now"),
        (pk.GAM, {"learning_rate": 0.1}, "learning_rate was .*, and is .*0.1.* now"),
        (pk.GAM, {"scaling_bounds": (1, 2)}, "scaling_bounds was None, and is .* now"),
        (pk.GAM, {"vars": ["s", "a"]}, r"variables was \['a', 's_log__'\], and is \['s_log__'"),
    ]:
        own = [model[name] for name in options.get("vars", ["a", "s"])]
        step = cls(model=model, **options | {"vars": own})
        said = refusal(resume, half, model, step=step)
        expected = f"resume needs the same model and step: {message}"
        assert re.search(expected, said), (options, said)


def test_a_configuration_with_nan_is_the_same(walk, monkeypatch):
    monkeypatch.setitem(walk.configuration, "rate", np.nan)
    description = json.loads(json.dumps(describe(walk)))
    check_same_step(walk, description)
    monkeypatch.setitem(walk.configuration, "rate", 0.5)
    with pytest.raises(ValueError, match=r"rate was nan, and is 0\.5 now"):
        check_same_step(walk, description)


def test_settings_of_a_class_are_not_shared_by_accident():
    with pytest.raises(TypeError, match="does not support item assignment"):
        KameleonStep.settings["rate"] = 0.5


@cache
def once(step):
    return sample(step)


def test_another_number_of_steps_is_refused(two_steps, pair):
    with pytest.raises(ValueError, match="same steps: there were 2, and now 1"):
        resume(sample(two_steps), pair, step=pk.GAM(model=pair))


def test_results_of_others_are_refused(walk, line):
    theirs = pm.sample(5, tune=5, chains=1, cores=1, step=walk, model=line, **QUIET)
    with pytest.raises(ValueError, match=r"takes a result of pk.sample"):
        resume(theirs, line)


def test_results_that_were_changed_are_refused(walk, line):
    half = sample(walk)
    with pytest.raises(ValueError, match="no dimension chain"):
        resume(half.isel(chain=0), line)
    states = half["sampling_state"]["state"].values
    states[0] = np.frombuffer(bytes(states[0]).replace(b"0.rng", b"0.rnd"), np.uint8)
    with pytest.raises(ValueError, match=r"has no 'rng'.*was changed"):
        resume(half, line)
    states[0, ::9] = 0
    with pytest.raises(ValueError, match=r"cannot be read .*: they were changed"):
        resume(half, line)


# ---- what was learned -----------------------------------------------------------------------


def leaves(parameters, prefix=""):
    for name, value in zip(parameters._fields, parameters, strict=True):
        if isinstance(value, tuple):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, np.asarray(value)


@pytest.mark.parametrize("cls", [pk.GAM, pk.KAM])
def test_what_is_learned_is_what_a_step_driven_by_hand_learns(cls, line):
    step = cls(model=line, **ROWS[cls.__name__][1])
    starts = [{"x": np.array(0.3)}, {"x": np.array(-1.0)}]
    result = sample(unpooled(step), tune=100, initvals=starts)
    learned, states = result["learned"], states_of(result)
    assert learned["chain"].values.tolist() == [0, 1]
    for i, rng in enumerate(get_random_generator(7).spawn(2)):
        rng.integers(2**30)  # was for the start
        run_by_hand(step, starts[i], 30, 100, seed=rng)
        for name, value in leaves(step.parameters, "0.parameters."):
            if value.size:
                np.testing.assert_array_equal(states[i][name], value, name)
        assert set(learned.data_vars) == set(step._learned())
        for name, quantity in step._learned().items():
            np.testing.assert_array_equal(learned[name][i], quantity.values, name)


@pytest.mark.slow
def test_a_file_holds_everything(gam, tmp_path):
    result = sample(gam, discard_tuned_samples=False)
    result.to_netcdf(tmp_path / "result.nc")
    with xr.open_datatree(tmp_path / "result.nc") as loaded:
        assert loaded.equals(result)
        assert set(loaded.children) == set(result.children)
        for name in result.children:
            assert set(loaded[name].attrs) == set(result[name].attrs)


def test_arviz_works_on_it(gam):
    result = sample(gam, draws=100, tune=200)
    assert list(az.summary(result).index) == ["a[A]", "a[B]", "s", "scaled[A]", "scaled[B]"]
    for function in (az.rhat, az.ess):
        values = function(result)
        values = values["posterior"] if "posterior" in getattr(values, "children", ()) else values
        assert np.isfinite(values["a"]).all()


# ---- interruption ---------------------------------------------------------------------------


@pytest.fixture
def interrupt(monkeypatch):
    """Return a function that makes Ctrl-C come when each chain has made so many more draws."""

    def at(*limits):
        can_advance, goes_on = Chain.can_advance.fget, Run._goes_on

        def below(self):
            return can_advance(self) and self.done - self.begun < limits[self.row]

        def press_at_the_limits(self):
            if [chain.done - chain.begun for chain in self._chains] == list(limits):
                signal.raise_signal(signal.SIGINT)
            return goes_on(self)

        monkeypatch.setattr(Chain, "can_advance", property(below))
        monkeypatch.setattr(Chain, "next_portion", lambda self, pauses: 1)
        monkeypatch.setattr(Run, "_goes_on", press_at_the_limits)

    yield at
    monkeypatch.undo()


@pytest.mark.parametrize(
    ("limits", "length", "kept"),
    [((70, 65), 15, [0, 1]), ((70, 55), 20, [0]), ((50, 70), 20, [1]), ((51, 51), 1, [0, 1])],
)
def test_an_interrupted_run_gives_what_there_is(
    limits, length, kept, walk, line, interrupt, caplog, monkeypatch
):
    """What one chain has made and the other has not, is not lost."""
    whole = sample(walk, discard_tuned_samples=False)
    interrupt(*limits)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = sample(walk, cores=2, draws=30, discard_tuned_samples=False)
    [message] = [text for text in messages(caplog) if "interrupted" in text]
    chains = f"{len(kept)} chain{'s' * (len(kept) > 1)}"
    assert f"interrupted. The result has {length} draws of {chains}." in message
    assert (f"Chain {1 - kept[0]} is shorter" in message) == (len(kept) == 1)
    expected = whole.sel(chain=kept)
    assert_same(result, expected, WARMUP)
    for group in DRAWN:
        xr.testing.assert_equal(
            result[group].to_dataset(), expected[group].to_dataset().isel(draw=slice(length))
        )
    monkeypatch.undo()
    assert_same(resume(result, line, None), whole, DRAWN + WARMUP)
    for more in (10, 1):
        resumed = resume(result, line, more)
        expected = whole["posterior"]["x"].isel(draw=slice(length + more))
        np.testing.assert_array_equal(resumed["posterior"]["x"], expected)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [(10, 1), (50, 50), (0, 7)])
def test_a_run_interrupted_while_tuning_keeps_its_tuning(
    limits, walk, line, interrupt, monkeypatch, caplog
):
    whole = sample(walk, discard_tuned_samples=False)
    interrupt(*limits)
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        result = sample(walk, cores=2, discard_tuned_samples=False)
    assert {"no_draws", "ended_early"} <= set(codes(result))
    assert {name: len(result[name]["draw"]) for name in DRAWN} == dict.fromkeys(DRAWN, 0)
    assert "no_move" not in codes(result)
    monkeypatch.undo()
    assert_same(resume(result, line, None), whole, DRAWN + WARMUP)


def test_interrupted_before_the_first_draw(walk, interrupt):
    interrupt(0, 0)
    with pytest.raises(KeyboardInterrupt, match=r"no draws\.$"):
        sample(walk, cores=2)


@pytest.mark.slow
@pytest.mark.parametrize("limits", [(20, 20), (20, 15), (20, 3), (0, 20)])
def test_an_interrupted_resumption_gives_what_there_is(limits, walk, line, interrupt, monkeypatch):
    half = sample(walk)
    interrupt(*limits)
    result = resume(half, line, cores=2)
    sizes = {name: result[name].sizes for name in DRAWN}
    assert sizes["posterior"] == sizes["sample_stats"]
    n = sizes["posterior"]["draw"]
    assert 30 <= n <= 50
    chains = result["posterior"]["chain"]
    for name in ("learned", "sampling_state"):
        np.testing.assert_array_equal(result[name]["chain"], chains)
    old = half["posterior"].to_dataset().sel(chain=chains)
    xr.testing.assert_equal(result["posterior"].to_dataset().isel(draw=slice(30)), old)
    monkeypatch.undo()
    assert resume(result, line, 5)["posterior"].sizes["draw"] == n + 5


def test_a_resumption_interrupted_before_its_first_draw(walk, line, interrupt):
    half = sample(walk)
    interrupt(0, 0)
    with pytest.raises(KeyboardInterrupt) as error:
        resume(half, line, cores=2)
    assert "no draws" in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize("every", [6, 3, 1])
def test_ctrl_c_at_any_line_loses_no_draw(every, walk, monkeypatch):
    """It comes when all draws are made: in the progress bar, in assembling, while leaving."""
    monkeypatch.setattr(progress, "Terminal", lambda *arguments: progress.NoDisplay())
    monkeypatch.setattr(run, "POLL_INTERVAL", 1e-4)
    begun, tried, look = [], set(), Run._look_at_time
    modules = (sampling_sample, run, chain_of_run, outcome, ctrl_c, workers)
    files = [module.__file__ for module in (*modules, progress, result_tree, columns, memory)]

    def look_when_all_are_made(self):
        look(self)
        if all(chain.done == chain.total for chain in self._chains):
            begun.append(True)

    def press_at_a_new_line(frame, event, argument):
        if frame.f_code.co_filename not in files:
            return None
        line = (frame.f_code, frame.f_lineno)
        if event == "line" and begun and line not in tried and frame.f_lineno % every == 0:
            tried.add(line)
            begun.clear()
            signal.raise_signal(signal.SIGINT)
        return press_at_a_new_line

    monkeypatch.setattr(Run, "_look_at_time", look_when_all_are_made)
    whole = sample(walk, progressbar=True)
    before, n = sys.gettrace(), -1
    while len(tried) > n:
        n = len(tried)
        begun.clear()
        sys.settrace(press_at_a_new_line)
        try:
            result = sample(walk, progressbar=True)
        finally:
            sys.settrace(before)
        assert_same(result, whole)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert n > 100 / every


def test_ctrl_c_stops_the_chains(walk, monkeypatch):
    """While one is still drawing, and Python waits."""
    take = Chain.take

    def press_once(self, *arguments):
        take(self, *arguments)
        self._n = 1
        if self.made == 5:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Chain, "take", press_once)
    result = sample(walk, chains=1, draws=10_000)
    assert 5 <= result["posterior"].sizes["draw"] < 10_000


# ---- exceptions -----------------------------------------------------------------------------


def broken(x):
    if x[0] > 1.5:
        raise ZeroDivisionError("the solver broke down")
    return -0.5 * x @ x


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def twice(x):
    """A black-box function of a vector, which fails like the log-density above."""
    broken(x)
    return 2 * x


def fails_in_the_likelihood():
    return box(broken)[1]


def fails_in_a_deterministic():
    with pm.Model() as model:
        pm.Deterministic("twice", twice(pm.Normal("x", shape=2)))
    return model


def fails_in_compiled_code():
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("p", Assert("the solver broke down")(x[1], x[0] < 1.5))
    return model


@pytest.mark.parametrize(
    "build", [fails_in_the_likelihood, fails_in_a_deterministic, fails_in_compiled_code]
)
def test_exceptions_arrive_as_they_are(build):
    """And say where."""
    model = build()
    kind = AssertionError if build is fails_in_compiled_code else ZeroDivisionError
    with pytest.raises(kind, match="the solver broke down") as error:
        sample(pk.GAM(model=model), tune=0, draws=100_000, cores=2, initvals={"x": [0.1, 0.2]})
    if kind is ZeroDivisionError:  # in another process
        assert "in broken" in str(error.value.__cause__)
    note, *_ = error.value.__notes__
    x = re.match(r"In chain [01], draw \d+, at \{'x': array\(\[ *([^,]*),", note)[1]
    assert float(x) > 1.5


def test_an_exception_says_in_which_draw():
    """That draw is the first one that cannot be made."""
    model = fails_in_the_likelihood()
    step = pk.baselines.RWM(model=model, scaling=0.5, steps_per_draw=1)
    options = {"chains": 1, "tune": 0, "initvals": {"x": [0.1, 0.2]}}
    with pytest.raises(ZeroDivisionError) as error:
        sample(step, draws=100_000, **options)
    n = int(re.match(r"In chain 0, draw (\d+), at ", error.value.__notes__[0])[1])
    assert n > 0
    assert sample(step, draws=n, **options)["posterior"].sizes["draw"] == n
    with pytest.raises(ZeroDivisionError) as error:
        run_by_hand(step, {"x": np.array([0.1, 0.2])}, draws=100_000)
    said = r"Raised in draw \d+, at \{'x': .* are to blame, let it return NaN instead"
    assert re.match(said, error.value.__notes__[0])
    with pytest.raises(ZeroDivisionError):
        sample(step, draws=n + 1, **options)


@pytest.mark.parametrize("where", ["start", "scout"])
def test_exceptions_before_the_first_transition_say_where(where):
    """While starts are looked for, or the scales of the coordinates around one."""
    start, failed = np.array([0.1, 0.2]), []

    def fail(x):
        if where == "start" or (x != start).any():
            failed.append(x.copy())
            raise ZeroDivisionError("the solver broke down")
        return -0.5 * x @ x

    op, model = box()
    step = pk.GAM(model=model)
    op.function = fail
    with pytest.raises(ZeroDivisionError) as error:
        sample(step, chains=1, initvals={"x": start} if where == "scout" else None)
    note, *_ = getattr(error.value, "__notes__", ["no note"])
    named = re.match(r"In chain 0.*, at \{'x': array\(\[ *([^ ,]*) *, *([^ ,]*)\]\)", note)
    assert named, note
    np.testing.assert_allclose([float(named[1]), float(named[2])], failed[0], rtol=1e-6)


def test_an_op_that_returns_another_type_is_reminded_of_what_it_declares(monkeypatch):
    def single(node, inputs, outputs):
        outputs[0][0] = np.zeros((), np.float32)

    op, model = box()
    step = pk.GAM(model=model)
    monkeypatch.setattr(op, "perform", single)
    message = "Counting returned float32, but declares float64. Let its perform convert"
    for initvals, when in (None, "looking for a start"), ({"x": [0.1, 0.2]}, "evaluation 1 of"):
        with pytest.raises(TypeError, match=message) as error:
            sample(step, chains=1, initvals=initvals)
        assert error.value.__notes__[0].startswith(f"In chain 0, {when}")


@pytest.mark.parametrize("returned", [np.int64(0), np.float32(0), [0.0]])
def test_an_op_that_returns_another_type_is_refused(returned, monkeypatch):
    """numba would read the bits of a 64-bit integer as a float, without a word."""

    def other(node, inputs, outputs):
        outputs[0][0] = returned

    op, model = box()
    monkeypatch.setattr(op, "perform", other)
    name = type(returned).__name__
    message = f"Counting returned {name}, but declares float64. Let its perform convert"
    with pytest.raises(TypeError, match=message):
        pk.GAM(model=model)
    monkeypatch.undo()
    pk.GAM(model=model)


@pytest.mark.parametrize("k", [2, 17])
def test_exceptions_on_the_way_to_the_posterior_say_so(k):
    """At which evaluation; and what another chain has drawn is not lost."""
    left = k

    def fail(x):
        nonlocal left
        left -= x[0] > 500
        if left < 0:
            raise ZeroDivisionError("the solver broke down")
        return -0.5 * (x[0] - 1000 * round(x[0] / 1000)) ** 2 - 0.5 * x[1] ** 2

    op, model = box()
    step = pk.GAM(model=model)
    op.function = fail
    starts = [{"x": np.array([x, 0.2])} for x in (0.1, 1000.1)]
    with pytest.raises(ZeroDivisionError) as error:
        sample(unpooled(step), chains=2, cores=1, initvals=starts)
    note = f"In chain 1, evaluation {k + 1} of the search for the posterior, before the first draw"
    assert error.value.__notes__[0].startswith(note)
    assert done_of(error.value.result)[0] > 0


def test_an_exception_stops_the_other_chains(walk, monkeypatch):
    """Those that run, and those that have not begun; what they have made is in the exception."""
    made, advance = [], run.advance

    def fails_once(job, state, n):
        made.append(n)
        if len(made) == 7:
            raise ZeroDivisionError("the solver broke down")
        return advance(job, state, 1)

    monkeypatch.setattr(run, "advance", fails_once)
    with pytest.raises(ZeroDivisionError, match="the solver broke down") as error:
        sample(walk, cores=2, chains=4, discard_tuned_samples=False)
    assert len(made) <= 8
    assert "attribute `result` of this exception" in error.value.__notes__[-1]
    monkeypatch.undo()
    whole = sample(walk, chains=4, discard_tuned_samples=False)
    assert_same(resume(error.value.result, walk.model, None), whole, DRAWN + WARMUP)


# ---- black boxes, threads -------------------------------------------------------------------


@pytest.mark.slow
def test_a_black_box_is_recognised(caplog):
    op, model = box()
    step = pk.GAM(model=model)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        op.count = 0
        result = sample(step, chains=3, cores=2, initvals={"x": np.ones(2)}, tune=100)
    said = [message for message in messages(caplog) if "Multiprocess" in message]
    assert len(said) == 1
    assert said[0].startswith("Multiprocess sampling (3 chains in 2 processes)")
    caplog.clear()
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        sample(step, chains=2, cores=1, initvals={"x": np.ones(2)})
    assert "calls Python" not in caplog.text
    lp = -0.5 * (result["posterior"]["x"] ** 2).sum("x_dim_0")
    np.testing.assert_allclose(result["sample_stats"]["lp"], lp, rtol=1e-12)


def test_all_evaluations_of_a_black_box_are_counted():
    op, model = box()
    step = pk.GAM(model=model)
    op.count = 0
    result = sample(step, initvals={"x": np.ones(2)}, discard_tuned_samples=False)
    groups = ("sample_stats", "warmup_sample_stats")
    assert op.count == sum(int(result[group]["n_logp"].sum()) for group in groups)


def test_a_black_box_deterministic_is_recognised(caplog):
    with pm.Model() as model:
        x = pm.TruncatedNormal("x", upper=1.5, shape=2)
        pm.Deterministic("twice", twice(x))
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = sample(pk.GAM(model=model), cores=2)
    assert sum("Multiprocess sampling" in message for message in messages(caplog)) == 1
    np.testing.assert_array_equal(result["posterior"]["twice"], 2 * result["posterior"]["x"])


def test_a_compiled_model_says_nothing(gam, caplog):
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        sample(gam, tune=100, cores=2)
    assert messages(caplog, logging.WARNING) == []
    said = messages(caplog)
    assert said[0] == "Threaded sampling (2 chains in 2 threads). GAM: [a, s]."
    assert said[1].startswith("Not checked. 2 × (100 + 30) draws and ")
    assert "[searches]" in said[2]
    assert len(said) == 3


@pytest.fixture
def no_switching():
    """Python leaves a thread only where it waits, or lets others run."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    yield
    sys.setswitchinterval(interval)


@pytest.mark.parametrize("compiled", [True, False])
def test_compiled_draws_let_other_threads_run(compiled, walk, no_switching):
    """Another thread runs meanwhile; not while Python itself computes."""
    step = walk.for_chain()
    step.setup_chain(np.random.default_rng(1), 0, 10)
    signal, ran = threading.Lock(), []
    signal.acquire()
    other = threading.Thread(target=lambda: (signal.acquire(), ran.append(True)))
    other.start()
    signal.release()
    for _ in range(1000 if compiled else 20):  # until the system has woken the other one
        if compiled:
            make_draws(step._run, [step], np.zeros(1), 10_000)
        else:
            sum(range(100_000))
        if ran:
            break
    ran_meanwhile = bool(ran)
    other.join()
    assert ran_meanwhile == compiled


# ---- errors ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"draws": -1}, "draws must be an integer from 0 on, not -1"),
        ({"draws": 1.0}, "draws must be an integer"),
        ({"tune": -1}, "tune must be an integer from 0 on, not -1"),
        ({"chains": 0}, "chains must be an integer from 1 on, not 0"),
        ({"cores": 0}, "cores must be an integer from 1 on, not 0"),
        ({"cores": "a"}, "cores must be an integer"),
        ({"draws": 0, "tune": 0}, "draws and tune are 0"),
        ({"discard_tuned_samples": 1}, "discard_tuned_samples must be True or False, not 1"),
        ({"idata_kwargs": {"prior": {}}}, r"idata_kwargs takes coords, .*, not \['prior'\]"),
        ({"var_names": ["a", "b"]}, r"var_names must be some of .*not \['b'\]"),
        ({"var_names": "as"}, r"var_names must be a list of names, as \['as'\]"),
        ({"initvals": "jitter"}, "initvals must be a dict, .* not 'jitter'"),
        ({"initvals": [1, 2]}, r"initvals must be a dict, .* not \[1, 2\]"),
        ({"initvals": {"a": np.zeros(4)}}, r"start of a has shape \(4,\), not \(2,\)"),
        ({"initvals": {"s_log__": [0.0]}}, r"start of s_log__ has shape \(1,\), not \(\)"),
        ({"progressbar": "long"}, "progressbar must be one of False, True, 'split'"),
    ],
)
def test_impossible_options(options, message, gam):
    with pytest.raises(ValueError, match=message):
        sample(gam, **options)


def test_cores_beside_an_executor_are_not_used(caplog):
    walk = pk.baselines.RWM(model=guarded_box()[1])
    with ThreadPoolExecutor(1) as pool, caplog.at_level(logging.INFO, "pymc_kameleon"):
        sample(walk, executor=pool, cores=2)
    assert sum("cores=2 is not used" in message for message in messages(caplog)) == 1


def test_impossible_steps(gam, line, walk, pair, two_steps, mixed_model):
    for step, message in [
        (3, "needs a step of pymc_kameleon, such as step=pk.GAM.., and got 3"),
        (pm.NUTS, "and got <class .*NUTS'>. Other steps run in pm.sample"),
        (walk, r"RWM\(\[x\], steps_per_draw=5\) was made for another model"),
        (two_steps[1], r"No step moves \['x'\]. pk.sample needs steps .* pm.sample\(step=...\)"),
        ([], r"No step moves \['x', 'y'\]"),
        ([*two_steps, two_steps[0]], r"\['x'\] are moved by two steps"),
        (pm.NUTS(model=pair), "and got <pymc.step_methods.hmc.nuts.NUTS.*Other steps run in"),
        ([two_steps[0], pm.Metropolis([pair["y"]], model=pair)], "and got <pymc.*Metropolis"),
    ]:
        with pytest.raises(ValueError, match=message):
            sample(step, model=pair)
    with pytest.raises(ValueError, match=r"No step moves \['k'\].* have to be continuous"):
        sample(pk.baselines.RWM(model=mixed_model))
    with pytest.raises(TypeError, match="context"):
        sample(walk, model=None)


# ---- warnings -------------------------------------------------------------------------------


def test_a_finding_appears_once_with_the_numbers_of_its_chains(gam, caplog):
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        dt = sample(gam, chains=3, initvals=[{}, STARTS[0], {}], tune=100)
    line, message = messages(caplog, logging.WARNING)
    assert line.startswith("Check. 3 × (100 + 30) draws and ")
    assert message.startswith("Chains 0, 2: The chain started at")
    assert codes(dt).count("common_start") == 1
    caplog.clear()
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        sample(gam, tune=5, chains=1)
    line, message = messages(caplog, logging.WARNING)
    assert message.startswith("Only 50 transitions of tuning")


@given(
    tune=st.integers(0, 20),
    shares=st.lists(st.sampled_from([0.0, 0.0, 0.0, 0.5]), min_size=1, max_size=80),
    cuts=st.sets(st.integers(1, 79)),
)
@example(tune=0, shares=[0.0] * 5 + [0.5], cuts={3})
def test_a_monitor_counts_the_same_in_any_portions(tune, shares, cuts):
    at_once, one_by_one = ChainMonitor(tune, 100), ChainMonitor(tune, 100)
    for share in shares:
        one_by_one.follow(np.zeros(1), np.array([share]))
    edges = sorted({0, len(shares), *(c for c in {*cuts, tune} if c < len(shares))})
    for start, end in pairwise(edges):
        at_once.follow(np.zeros(end - start), np.array(shares[start:end]))
    assert at_once == one_by_one
    run = longest = 0
    for share in shares[tune:]:
        run = 0 if share > 0 else run + 1
        longest = max(longest, run)
    accepted = any(share > 0 for share in shares[tune:])
    seen = {"done": len(shares), "accepted": accepted, "run": run, "longest": longest}
    assert at_once == ChainMonitor(tune, 100, **seen)


def test_a_check_that_fails_loses_no_draws(monkeypatch, caplog):
    def fail(tree, model):
        raise RuntimeError("no luck")

    monkeypatch.setattr(outcome, "findings_of_draws", fail)
    result = sample(pk.GAM(model=normal(2)), compute_convergence_checks=True)
    assert result["posterior"].sizes["draw"] > 0
    assert "The convergence checks failed; the draws are returned" in caplog.text
    assert "no luck" in caplog.text
