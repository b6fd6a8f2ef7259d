"""Rounds of searches for the posterior: what a result keeps of them, of each kind of search."""

import numpy as np
import pymc as pm
import pytest
from runs import QUIET, assert_same, resume, sample, states_of
from simulated import growth

import pymc_kameleon as pk
from pymc_kameleon.approximation.rounds import (
    DECISIONS,
    Rounds,
    no_rounds,
    put_into,
    search_dataset,
)


def test_rounds_are_noted_and_told():
    rounds, other = Rounds(), Rounds()
    rounds.end("converged")  # nothing yet
    other.note(8, -9.0, "design")
    other.note(10, -3.0, "climb", 1.0, 5.0, 6.0)
    other.note(10, -3.0, "draws of the prior")  # which has evaluated nothing
    other.end("converged")
    rounds.note(2, -4.0, "design")
    rounds += [one._replace(evaluations=2 + one.evaluations) for one in other]
    rows = no_rounds(4)
    put_into(rows, [])
    assert np.isnan(rows).all()
    put_into(rows, rounds)
    found = search_dataset({3: [no_rounds(4)], 5: [no_rounds(4), rows]})
    assert found["evaluations"].values.tolist() == [2, 10, 12]
    assert found["logp"].values.tolist() == [-4.0, -4.0, -3.0]  # the best so far
    assert found["decided"].values.tolist() == ["design", "design", "converged"]
    numbers = [found[name].values[2] for name in ("radius", "predicted_gain", "gain")]
    assert numbers == [1.0, 5.0, 6.0]
    assert np.isnan(found["gain"].values[:2]).all()
    assert set(found["of_chain"].values) == {5}
    assert set(found["of_step"].values) == {1}
    assert f"converged: {DECISIONS['converged']}" in found["decided"].attrs["description"]
    assert "climb:" not in found["decided"].attrs["description"]
    assert search_dataset({3: [no_rounds(4)]}) is None


def test_of_too_many_rounds_some_are_kept():
    rounds, rows = Rounds(), no_rounds(7)
    for n in range(1, 102):
        rounds.note(n, float(-n), "climb")
    put_into(rows, rounds)
    found = search_dataset({0: [rows]})["evaluations"].values
    assert len(found) == 7
    assert (found[0], found[-1]) == (1, 101)


@pytest.fixture(scope="module")
def sum_model():
    with pm.Model() as model:
        x = pm.Normal("x", 5, [1.0, 3.0, 0.1])
        pm.Normal("y", x.sum(), pm.HalfNormal("s"), observed=[1.0, 2.0, 2.5])
    return model


def made_by(step, model):
    return pk.sample(20, tune=30, chains=2, cores=1, step=step, model=model, random_seed=1, **QUIET)


SEARCHES = {
    "GAM": (pk.GAM, {"line searches"}),
    "KAM beside MALA": ([pk.KAM.options(["x"]), pk.baselines.MALA], {"line searches"}),
    "SurrogateMetropolis": (
        pk.SurrogateMetropolis,
        {"design", "converged", "informative points"},
    ),
    "EmulatorMetropolis": (pk.EmulatorMetropolis, {"design", "converged", "draws of the prior"}),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_all_evaluations_of_a_search_are_in_its_rounds(name, sum_model):
    step, decided = SEARCHES[name]
    model = growth() if step is pk.EmulatorMetropolis else sum_model
    dt = made_by(step, model)
    own = dt["search"].to_dataset()
    states = states_of(dt)
    for chain in (0, 1):
        for k in np.unique(own["of_step"]):
            of_search = own.sel(round=(own["of_chain"] == chain) & (own["of_step"] == k))
            assert (np.diff(of_search["evaluations"]) > 0).all()
            assert (np.diff(of_search["logp"]) >= 0).all()
            assert of_search["evaluations"].values[-1] == states[chain][f"{k}.monitor.on_the_way"]
            assert of_search["decided"].values[-1] == "start of the chain"
    assert decided <= set(own["decided"].values)
    assert all(own[name].attrs["description"] for name in own)
    assert_same(resume(dt, model, draws=5), dt, ["search"])


def test_a_climb_has_a_region_and_gains():
    own = made_by(pk.EmulatorMetropolis, growth())["search"].to_dataset()
    is_climb = own["decided"].isin(["climb", "converged", "climb abandoned"]).values
    assert is_climb.any()
    for name in ("radius", "predicted_gain", "gain"):
        np.testing.assert_array_equal(np.isfinite(own[name].values), is_climb)
    first = np.flatnonzero(is_climb)[0]
    risen = np.diff(own["logp"].values[first - 1 : first + 1])
    assert own["gain"].values[first] == pytest.approx(risen.item())


def test_without_a_search_there_are_no_rounds(sum_model):
    for result in (
        made_by(pk.GadMALA, sum_model),
        sample(pk.GAM(model=sum_model), tune=0),
        pm.sample(20, tune=30, step=pk.GAM(model=sum_model), model=sum_model, cores=1, **QUIET),
    ):
        assert "search" not in result.children
        with pytest.raises(ValueError, match=r"no group 'search'.* pk\.sample"):
            pk.plot_search(result, backend="none")
