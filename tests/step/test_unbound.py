"""Samplers without a model, by class, name and options; and the ones that we choose."""

import logging
import pickle
from importlib.metadata import version

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from models import Blind, black_box, normal
from pymc.step_methods import CompoundStep
from pytensor import wrap_py

import pymc_kameleon as pk
from pymc_kameleon.samplers import choice
from pymc_kameleon.samplers.choice import bound_steps
from pymc_kameleon.step.unbound import UnboundStep

QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


@pytest.fixture(scope="module")
def pair():
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.HalfNormal("s")
    return model


def shown(steps):
    return [(type(step), step.var_names) for step in steps]


# ---- unbound steps --------------------------------------------------------------------------


def test_an_unbound_step_shows_how_it_was_made():
    assert repr(pk.GAM.options(["x"], steps_per_draw=5)) == (
        "GAM.options(vars=['x'], steps_per_draw=5)"
    )
    assert repr(pickle.loads(pickle.dumps(pk.GAM.options()))) == "GAM.options()"


def test_options_are_checked_at_once():
    with pytest.raises(TypeError, match="GAM has no option 'step_per_draw'; did you mean 'steps_"):
        pk.GAM.options(step_per_draw=5)
    with pytest.raises(TypeError, match="CyclicalKAM has no option 'nu'"):
        pk.CyclicalKAM.options(nu=1.0)


@pytest.mark.parametrize("cores", [1, 2])
def test_pm_sample_makes_it_the_step(cores, pair):
    with pair:
        step = pk.baselines.RWM.options("x", steps_per_draw=3)
        options = {"draws": 10, "tune": 10, "chains": 2, "cores": cores} | QUIET
        found = pm.sample(step=[step], **options)  # beside NUTS
        expected = pm.sample(step=[pk.baselines.RWM("x", steps_per_draw=3)], **options)
    [made] = step.methods
    assert type(made) is pk.baselines.RWM
    assert repr(made) == "RWM([x], steps_per_draw=3)"
    assert CompoundStep([step]).stats_dtypes_shapes == CompoundStep([made]).stats_dtypes_shapes
    np.testing.assert_array_equal(found["posterior"]["x"], expected["posterior"]["x"])


def test_pk_sample_leaves_it_as_it_is(pair):
    step = pk.baselines.RWM.options(steps_per_draw=3)
    for model, names in (normal(2), {"x"}), (pair, {"x", "s"}):
        found = pk.sample(draws=10, tune=10, chains=1, step=step, model=model, **QUIET)
        assert set(found["posterior"]) == names
        assert isinstance(step, UnboundStep)


def test_without_a_context_pm_sample_cannot_bind_it():
    step = pk.baselines.RWM.options()
    with pytest.raises(TypeError, match=r"RWM.options\(\) is not bound to a model yet. .*context"):
        pm.sample(step=step, model=normal(2), **QUIET)
    assert pk.baselines.RWM.options(model=normal(2)).vars == normal(2).value_vars
    with pytest.raises(TypeError, match="not bound"):
        step.step({})


# ---- what a user means ----------------------------------------------------------------------


def test_steps_are_taken_however_they_are_given(pair):
    all_of, x, s = ("x", "s_log__"), pk.baselines.RWM("x", model=pair), pk.GAM.options("s")
    for step, expected in [
        (pk.baselines.RWM, [(pk.baselines.RWM, all_of)]),
        ("rwm", [(pk.baselines.RWM, all_of)]),
        ("RWM", [(pk.baselines.RWM, all_of)]),
        (pk.baselines.RWM.options(steps_per_draw=5), [(pk.baselines.RWM, all_of)]),
        ([x, s], [(pk.baselines.RWM, ("x",)), (pk.GAM, ("s_log__",))]),
        ((s, pk.baselines.RWM), [(pk.GAM, ("s_log__",)), (pk.baselines.RWM, ("x",))]),
        (["gam", x], [(pk.GAM, ("s_log__",)), (pk.baselines.RWM, ("x",))]),
        (CompoundStep([x]), [(pk.baselines.RWM, ("x",))]),
        ([], []),
    ]:
        assert shown(bound_steps(step, pair)) == expected, step
    assert bound_steps(x, pair) == [x]
    assert bound_steps(pk.baselines.RWM.options(steps_per_draw=5), pair)[0].steps_per_draw == 5


def test_steps_that_cannot_be_meant(pair):
    x, s = pk.baselines.RWM("x", model=pair), pk.GAM.options("s")
    for step, message in [
        ("gad", "no sampler 'gad'. Did you mean 'GAM'. There are AM, .*CMH.* RWM"),
        ("xyz", "no sampler 'xyz'. There are AM"),
        ([pk.GAM, pk.KAM.options()], r"GAM.options\(\) and KAM.options\(\) would each take all"),
        ([x, s, pk.KAM], r"KAM.options\(\) has nothing to move"),
        (pm.NUTS, "needs a step of pymc_kameleon"),
        (3, "such as step=pk.GAM.., and got 3"),
    ]:
        with pytest.raises(ValueError, match=message):
            bound_steps(step, pair)


# ---- what we choose -------------------------------------------------------------------------


def test_pk_sample_chooses_and_says_so(pair, caplog):
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        found = pk.sample(draws=10, tune=10, chains=1, model=pair, **QUIET)
    (said,) = [line for line in caplog.messages if "chooses" in line]
    assert said == (
        "Sampling with GadMALA, as the log-density has a gradient; step=pk.GAM chooses another. "
        "With a gradient NUTS is the usual choice: pm.sample() takes it."
    )
    assert "GadMALA" in found["sampling_state"].attrs["steps"]


def test_the_choice_is_by_gradient_and_size(pair, caplog, monkeypatch):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    blind = black_box(Blind())
    assert shown(bound_steps(None, blind)) == [(pk.SurrogateMetropolis, ("x",))]
    said = "as the log-density has no gradient; step=pk."
    assert f"Sampling with SurrogateMetropolis, {said}GAM chooses" in caplog.text
    monkeypatch.setattr(choice, "MOST_FOR_SURROGATE", 0)
    assert shown(bound_steps(None, blind)) == [(pk.GAM, ("x",))]
    assert f"Sampling with GAM, {said}KAM chooses" in caplog.text
    assert "NUTS" not in caplog.text
    monkeypatch.setattr(choice, "MOST_DENSE", 2)
    assert shown(bound_steps(None, normal(2))) == [(pk.GadMALA, ("x",))]
    assert shown(bound_steps(None, pair)) == [(pk.GAM, ("x", "s_log__"))]
    assert "as there are 3 coordinates, more than 2;" in caplog.text
    assert caplog.text.count("NUTS is the usual choice") == 2


def predictions_of(function):
    """Return a model with a black box of predictions, two of two."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        box = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(function)
        pm.Normal("y", box(x), observed=[0.3, 0.4])
    return model


@pytest.mark.slow
def test_what_cannot_be_emulated_is_said_in_the_one_line_of_the_choice(caplog, monkeypatch):
    """Though that is known only when a step was made; and each call is told of."""
    caplog.set_level(logging.INFO, "pymc_kameleon")
    [step] = bound_steps(None, predictions_of(lambda x: x + x[0] ** 2))
    assert type(step) is pk.EmulatorMetropolis
    assert [line for line in caplog.messages if line.startswith("Sampling with")] == [
        "Sampling with EmulatorMetropolis, as the log-density calls a black box; "
        "step=pk.GAM chooses another."
    ]
    caplog.clear()
    calls = []

    def breaks_at_first(x):
        calls.append(x)
        if len(calls) <= 10:
            raise ArithmeticError("no solution")
        return x

    monkeypatch.setattr(choice, "MOST_FOR_SURROGATE", 1)
    [step] = bound_steps(None, predictions_of(breaks_at_first))
    assert type(step) is pk.GAM
    assert step.n_trials == len(calls)
    (said,) = [line for line in caplog.messages if "Sampling with" in line]
    assert said.startswith("Sampling with GAM, as the log-density has no gradient;")
    assert said.endswith("looked for: no solution")
    assert "Emulating" not in caplog.text


def test_there_is_no_choice_for_discrete_variables(mixed_model):
    with pytest.raises(ValueError, match=r"moves \['k'\], which are discrete. pm.sample"):
        pk.sample(model=mixed_model)


def test_the_version_is_that_of_the_installed_package():
    assert pk.__version__ == version("pymc_kameleon")
