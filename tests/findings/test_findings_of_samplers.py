"""What samplers tell at the end of a chain, of states that are made to be so."""

import numpy as np
import pymc as pm
import pytest
from models import normal
from noisy import toy
from runs import codes

import pymc_kameleon as pk
from pymc_kameleon.samplers.approximation.moves import BY_S
from pymc_kameleon.samplers.emulator import findings
from pymc_kameleon.step.problems import findings_of


def begun(step, tune=2000, draws=1000):
    step.setup_chain(np.random.default_rng(1), tune, draws)
    step.monitor.done = tune + draws
    return step


def test_an_estimate_that_a_chain_sticks_to():
    step = begun(pk.GAM(model=toy(), pseudo_marginal=True))
    step.monitor.longest, step.monitor.accepted = 200, True
    assert "stuck_on_estimate" in codes(findings_of(step))


@pytest.mark.parametrize(
    ("information", "code"), [(np.nan, "nothing_learned"), (0.0, "flat_gradient")]
)
def test_a_gradient_that_teaches_nothing(information, code):
    step = begun(pk.GadMALA(model=normal(2)))
    step.tuning.information[:] = 1.0, information
    assert codes(step._findings()) == [code]


def test_no_modes_without_points():
    step = begun(pk.CyclicalKAM(model=normal(2)), tune=20_000)
    step.parameters.kam.subsample.m[0] = 0
    assert codes(step._findings()) == ["no_modes_learned"]


@pytest.mark.parametrize(("mean", "found"), [(0.1, ["poor_emulator"]), (1.0, [])])
def test_moves_by_an_emulator_that_lead_nowhere(mean, found):
    sums = np.zeros((3, 2))
    sums[BY_S] = 100 * mean, 100
    of = findings.of_efficiency(sums, ["growth"])
    assert codes([of] if of else []) == found
    assert of is None or "`growth`" in of.what or "growth" in of.what


def test_the_parts_of_a_run_that_are_one_finding_each():
    """Those of chains as a whole: none is said of a good one."""
    with pm.Model() as model:
        pm.Normal("x")
    step = begun(pk.GAM(model=model))
    step.monitor.accepted = True
    assert {one.severity for one in findings_of(step)} <= {"note"}
