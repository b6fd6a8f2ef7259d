"""The verdict, how it is shown, and that it is kept in files and stores."""

import json
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from models import normal
from runs import codes, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.findings.diagnosis import Diagnosis, dataset_of, diagnosis_in
from pymc_kameleon.findings.finding import Finding, finding
from pymc_kameleon.findings.registry import KINDS

BENCHMARKS = Path(__file__).parents[2] / "examples" / "benchmarks"
NOTE, CAUTION, PROBLEM = (
    finding("few_searches", n=2),
    finding("stuck", draws=44),
    finding("no_move"),
)


@pytest.mark.parametrize(
    ("found", "is_checked", "verdict"),
    [
        ([], True, "usable"),
        ([NOTE], True, "usable"),
        ([NOTE], False, "not checked"),
        ([NOTE, CAUTION], True, "check"),
        ([CAUTION], False, "check"),
        ([CAUTION, NOTE, PROBLEM], True, "not usable"),
    ],
)
def test_the_verdict_is_that_on_the_most_serious_finding(found, is_checked, verdict):
    assert Diagnosis(found, "", is_checked).verdict == verdict


def test_three_are_shown_the_most_serious_first():
    text = Diagnosis([NOTE, NOTE, CAUTION, PROBLEM, CAUTION], "4 draws.").brief
    lines = text.split("\n")
    assert lines[0] == "Not usable. 4 draws."
    assert [line.split()[0] for line in lines[1:]] == ["problem", "caution", "caution"]
    assert lines[-1].endswith("(2 more findings: pk.diagnose(dt).)")
    assert "more finding" not in Diagnosis([NOTE] * 3).brief


def test_a_diagnosis_is_shown_as_a_table():
    diagnosis = Diagnosis([NOTE, CAUTION], "4 draws.")
    assert diagnosis.table["code"].tolist() == ["stuck", "few_searches"]
    shown = repr(diagnosis)
    assert shown.startswith("Check. 4 draws.")
    assert "what to do" in shown
    assert "stuck for 44" in shown
    page = diagnosis._repr_html_()
    assert "<p>Check. 4 draws.</p>" in page
    assert CAUTION.remedy in page  # whole


def test_a_code_outside_the_registry_does_not_exist():
    with pytest.raises(KeyError, match="no finding of the registry"):
        Finding("nonsense", {})


def test_a_diagnosis_survives_being_saved(tmp_path):
    found = [Finding("stuck", {"draws": np.int64(44)}, "GAM([x])", (0, 2), True), NOTE]
    before = Diagnosis(found, "4 draws.", False)
    dataset_of(before).to_netcdf(tmp_path / "it.nc")
    with xr.open_dataset(tmp_path / "it.nc") as data:
        after = diagnosis_in(data)
    assert [str(one) for one in after.findings] == [str(one) for one in before.findings]
    assert "those of chain 0" in str(after.findings[0])
    assert (after.verdict, after.summary) == (before.verdict, before.summary)


@pytest.fixture(scope="module")
def step():
    return pk.GAM(model=normal(2))


def test_it_is_kept_in_a_store_and_when_a_run_goes_on(step, tmp_path):
    whole = sample(step, tune=5, draws=40, store=tmp_path / "run.zarr")
    assert "short_tuning" in codes(whole)
    loaded = pk.load(tmp_path / "run.zarr")
    assert codes(loaded) == codes(whole)
    assert loaded["findings"].attrs["verdict"] == "check"
    with step.model:
        longer = pk.resume(tmp_path / "run.zarr", 10, progressbar=False)
    assert codes(pk.load(tmp_path / "run.zarr")) == codes(longer)


def test_diagnose_repeats_what_the_run_has_found(step):
    dt = sample(step, tune=5, draws=400, compute_convergence_checks=True)
    diagnosis = pk.diagnose(dt)
    assert [one.code for one in diagnosis.findings] == codes(dt)
    assert diagnosis.summary.startswith("400 draws of 2 chains. The worst of 2 means is known to ")


def test_diagnose_takes_other_results_too():
    rng = np.random.default_rng(1)
    apart = rng.standard_normal((4, 500)) + 20 * np.arange(4)[:, None]
    good = rng.standard_normal((4, 500))
    for x, expected in ((good, []), (apart, ["chains_disagree", "modes_apart"])):
        found = [one.code for one in pk.diagnose(az.from_dict({"posterior": {"x": x}})).findings]
        assert [code for code in found if code not in ("imprecise",)] == expected


def test_what_nuts_notes_is_told():
    """Divergences, trees that were too deep, and low energy."""
    rng = np.random.default_rng(1)
    stats = {"diverging": np.zeros((4, 200), bool), "energy": rng.standard_normal((4, 200))}
    stats["reached_max_treedepth"] = np.zeros((4, 200), bool)
    stats["diverging"][1, :2] = stats["reached_max_treedepth"][0, :3] = True
    stats["energy"][0] = np.arange(200)
    draws = {"posterior": {"x": rng.standard_normal((4, 200))}, "sample_stats": stats}
    found = {one.code: one for one in pk.diagnose(az.from_dict(draws)).findings}
    assert found["divergences"].numbers["n"] == 2
    assert found["deep_trees"].numbers["n"] == 3
    assert found["low_energy"].what.endswith("in chain 0.")


NORMAL = np.random.default_rng(1).standard_normal((4, 500))
APART = NORMAL + 10 * np.arange(4)[:, None]
SPOILT = APART.copy()
SPOILT[0, 0] = np.nan


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"x": SPOILT}, "not_finite"),
        ({"x": NORMAL, "y": np.full((4, 500), np.nan)}, "not_finite"),
        ({"x": APART[:3, :3]}, "not_judged"),
        ({"x": NORMAL > 0}, "not_judged"),
        ({"x": NORMAL, "k": APART.astype(int)}, "chains_disagree"),
        ({"x": NORMAL[:1]}, "one_chain"),
        ({"x": np.ones((4, 500))}, "constant_draws"),
    ],
)
def test_what_cannot_be_judged_is_not_usable(variables, expected):
    diagnosis = pk.diagnose(az.from_dict({"posterior": variables}))
    assert expected in [one.code for one in diagnosis.findings]
    assert diagnosis.verdict != "usable"


def test_a_parameter_that_never_moves_is_told():
    """If it is known to be one: a constant may be a deterministic."""
    with pm.Model() as model:
        pm.Normal("x")
        pm.Normal("y")
    dt = az.from_dict({"posterior": {"x": NORMAL, "y": np.ones((4, 500))}})
    assert "constant_draws" in [one.code for one in pk.diagnose(dt, model).findings]
    assert pk.diagnose(dt).verdict == "usable"


def test_draws_alone_are_judged_too(step):
    dt = sample(step, draws=400, tune=200)
    for draws in (dt["posterior"], dt["posterior"].to_dataset()):
        assert pk.diagnose(draws).summary.startswith("400 draws of 2 chains.")


def test_what_only_the_model_tells_is_kept_without_it(step):
    dt = sample(step, draws=400, tune=200)
    for code in ("not_felt", "r_hat"):
        numbers = {"name": "x", "r_hat": 1.04}
        dt["findings"] = xr.DataTree(dataset_of(Diagnosis([Finding(code, numbers)], "")))
        del dt["posterior"].attrs["model_id"]
        found = [one.code for one in pk.diagnose(dt).findings]
        assert (code in found) == (code == "not_felt")
        dt["posterior"].attrs["model_id"] = "gone"


def test_a_code_of_another_version_is_left_out():
    data = dataset_of(Diagnosis([NOTE, CAUTION]))
    data["code"] = data["code"].where(data["code"] != "stuck", "gone")
    assert codes(diagnosis_in(data).findings) == ["few_searches"]


def test_a_bad_verdict_is_repeated_by_the_summary(step, caplog):
    dt = sample(step, tune=5, draws=400, compute_convergence_checks=True)
    caplog.clear()
    pk.summary(dt, model=step.model)
    [said] = [text for text in messages(caplog) if "[bad_verdict]" in text]
    assert said.startswith("Check: ")
    assert "pk.diagnose(dt) has more." in said


def test_no_draws_are_no_result(step):
    stopped = sample(step, callback=lambda run, draw: run.stop())
    with pytest.raises(ValueError, match="no draws to judge"):
        pk.diagnose(stopped)


EXCLUSIVE = (
    {"no_search", "searches", "few_searches", "other_ends", "blind_search"},
    {"r_hat", "chains_disagree"},
    {"imprecise", "unknown_errors", "slow_chains"},
    {"few_points", "slow_tails"},
    {"ended_early", "not_enough"},
)
"""Codes of which one run has one at most: together they would contradict."""


def contradictions(found):
    """Return the codes of each group of which there are several."""
    assert set(found) <= set(KINDS)
    return [group & set(found) for group in EXCLUSIVE if len(group & set(found)) > 1]


@pytest.mark.parametrize("file", ["reliability", "suites"])
def test_stored_runs_have_no_contradictions(file):
    rows = json.loads((BENCHMARKS / f"{file}.json").read_text(encoding="utf-8"))
    runs = [row["told"] + row["notes"] for row in rows if "notes" in row]
    assert [found for found in map(contradictions, runs) if found] == []


def test_contradictions_are_seen():
    assert contradictions(["no_search", "searches"]) == [{"no_search", "searches"}]
    assert contradictions(["stuck", "r_hat"]) == []
