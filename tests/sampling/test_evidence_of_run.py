"""``pk.sample(evidence=...)``: the same number, whatever happens, and no evaluation twice."""

import logging
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import models
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from runs import QUIET, messages

import pymc_kameleon as pk
from pymc_kameleon.sampling import bridging, run
from pymc_kameleon.sampling.progress import Progress
from pymc_kameleon.sampling.settings import Settings

pytestmark = [
    # Zarr's own, of strings in its third format.
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:zarr"),
    pytest.mark.forks,
]

KNOWN = -np.log(2)  # of two dimensions: (1/√2)²
MOST = 500  # evaluations


@pytest.fixture(scope="module")
def box():
    return models.Counting()


@pytest.fixture(scope="module")
def step(box):
    with pm.Model():
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("likelihood", box(x))
        step = pk.SurrogateMetropolis(expensive=True)
    step.n_trials = 0  # they were told, and are over
    return step


def sample(step, **options):
    own = {"max_evaluations": MOST, "cores": 1, "random_seed": 1, "evidence": True}
    return pk.sample(step=step, model=step.model, **own | QUIET | options)


@pytest.fixture(scope="module")
def draws(step):
    """A run without evidence, and without a search, which does not matter to it."""
    options = {"draws": 60, "tune": 60, "cores": 1, "random_seed": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.samplers.surrogate.active.search.MOST_COORDINATES", 0)
        return pk.sample(step=step, model=step.model, **options, **QUIET)


def go_on(source, step, **options):
    """Find the evidence of a run."""
    own = {"cores": 1, "evidence": True}
    return pk.sample(resume=source, step=step, model=step.model, **own | QUIET | options)


@pytest.fixture(scope="module")
def whole(draws, step):
    """What is found if nothing interrupts it."""
    return go_on(draws, step)


def assert_same_evidence(one, other):
    assert pk.evidence(one) == pk.evidence(other)
    for name in ("x", "logp"):
        a, b = (np.sort(dt["evidence"][name].values, axis=0) for dt in (one, other))
        np.testing.assert_array_equal(a, b)


@pytest.fixture
def happens(box, monkeypatch):
    """Return a function that lets something happen at an evaluation for the evidence."""
    monkeypatch.setattr(run, "KEEP_INTERVAL", 0.0)
    monkeypatch.setattr(bridging, "TASK_SECONDS", 0.0)  # one evaluation in each
    find, usual = run.Run._find_evidence, box.function

    def at(n, what):
        def begin(self):
            left = [n]

            def function(x):
                left[0] -= 1
                if left[0] == 0:
                    what(self)
                return usual(x)

            box.function = function
            try:
                find(self)
            finally:
                box.function = usual

        monkeypatch.setattr(run.Run, "_find_evidence", begin)

    return at


# ---- what a run has of it -----------------------------------------------------------------------


@pytest.mark.slow
def test_a_run_has_its_evidence(box, step, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    box.count = 0
    dt = sample(step)
    made, found = box.count, pk.evidence(dt)
    assert box.count == made <= MOST
    assert abs(found.log_evidence - KNOWN) < 4 * found.standard_error < 0.1
    assert found.evaluations == 203 == dt["evidence"].sizes["evaluation"]
    said = messages(caplog)
    assert any("takes at most 203 evaluations" in message for message in said)
    assert any(message.startswith("The log evidence is -0.") for message in said)
    assert any("203 for the evidence" in message for message in said)
    assert pk.compare_models({"a": dt}).loc["a", "log_evidence"] == found.log_evidence
    assert box.count == made


@pytest.mark.slow
def test_a_model_that_is_passed_is_checked(box, step, whole):
    box.count = 0
    assert pk.evidence(whole, step.model, cores=1) == pk.evidence(whole)
    assert box.count == 3
    with pm.Model() as other:
        x = pm.Normal("x", 0, 2, shape=2)
        pm.Potential("likelihood", box(x))
    with pytest.raises(ValueError, match="not the model that was sampled"):
        pk.evidence(whole, other, cores=1)


@pytest.mark.slow
def test_a_seed_does_not_change_what_is_known(whole, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    assert pk.evidence(whole, random_seed=5) == pk.evidence(whole)
    assert any("random_seed= does not change it" in message for message in messages(caplog))


def test_draws_that_are_others_have_another_one(box, whole):
    box.count = 0
    assert pk.evidence(whole.isel(draw=slice(25)), cores=1) != pk.evidence(whole)
    assert box.count == 203
    assert pk.evidence(whole, evaluations=50, cores=1).evaluations == 53


@pytest.mark.slow
def test_executors_change_nothing(draws, step, whole):
    with ThreadPoolExecutor(2) as pool:
        assert_same_evidence(go_on(draws, step, cores=None, executor=pool), whole)
    assert_same_evidence(go_on(draws, step, cores=2), whole)


@pytest.mark.slow
def test_it_is_made_in_the_background(draws, step, whole):
    assert_same_evidence(go_on(draws, step, blocking=False).wait(), whole)


@pytest.mark.slow
def test_the_bar_shows_it(draws, step, monkeypatch):
    lines = []
    monkeypatch.setattr(Progress, "show", lambda self, chain: lines.append(self.summary()[-1]))
    go_on(draws, step)
    assert "for the evidence: 203 of 203 evaluations" in lines


@pytest.mark.slow
def test_draws_of_several_steps():
    with pm.Model():
        a, b = pm.Normal("a"), pm.Normal("b", 1, 2)
        steps = [pk.baselines.RWM([a]), pk.baselines.RWM([b])]
        dt = pk.sample(100, tune=100, step=steps, random_seed=1, cores=1, evidence=200, **QUIET)
        found = pk.evidence(dt)
    assert found.evaluations == 200 + 200  # steps do not know the log-density of the whole
    assert abs(found.log_evidence) < 4 * found.standard_error < 0.4


# ---- interruptions ------------------------------------------------------------------------------


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import os, models, pymc as pm, pymc_kameleon as pk
from pymc_kameleon.sampling import bridging, run
box, usual, left = models.Counting(), models.standard_normal, 60
find, run.KEEP_INTERVAL, bridging.TASK_SECONDS = run.Run._find_evidence, 0.0, 0.0
def dies(x):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), 9)
    return usual(x)
def begin(self):
    box.function = dies
    find(self)
run.Run._find_evidence = begin
with pm.Model():
    x = pm.Normal("x", 0, 1, shape=2)
    pm.Potential("likelihood", box(x))
    pk.sample(60, tune=60, step=pk.SurrogateMetropolis(expensive=True), cores=1, random_seed=1,
              evidence=True, store=sys.argv[2], progressbar=False)
"""


@pytest.mark.slow
def test_nothing_is_lost_by_kill_9(box, step, whole, tmp_path):
    arguments = [str(Path(models.__file__).parent), str(tmp_path / "run.zarr")]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert ended.returncode == -signal.SIGKILL
    box.count = 0
    dt = go_on(tmp_path / "run.zarr", step, evidence=None)
    assert box.count < 203 - 60 + 10
    assert_same_evidence(dt, whole)
    whole.to_netcdf(tmp_path / "run.nc")
    for source in (tmp_path / "run.nc", tmp_path / "run.zarr"):
        assert pk.evidence(source) == pk.evidence(whole)


def test_ctrl_c_leaves_what_can_go_on(box, draws, step, whole, happens, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    happens(60, lambda run: signal.raise_signal(signal.SIGINT))
    half = go_on(draws, step)
    assert "log_evidence" not in half["evidence"].attrs
    assert any("not known yet: pk.sample(resume" in message for message in messages(caplog))
    happens(0, None)
    box.count = 0
    caplog.clear()
    dt = go_on(half, step, evidence=None)
    assert any(f"at most {203 - 60} more evaluations" in message for message in messages(caplog))
    assert 203 - 60 < box.count < 203 - 60 + 10
    assert dt["posterior"].sizes == whole["posterior"].sizes
    assert_same_evidence(dt, whole)


@pytest.mark.slow
def test_points_of_another_machine(box, draws, step, whole, happens, caplog):
    """They are found again if they differ by rounding; if by more, there is no room for all."""
    happens(100, lambda run: signal.raise_signal(signal.SIGINT))
    half = go_on(draws, step)
    happens(0, None)
    kept = half["evidence"].to_dataset()
    rounded = kept.copy(deep=True)
    rounded["x"] *= 1 + 1e-13
    half["evidence"] = xr.DataTree(rounded)
    box.count = 0
    there = go_on(half, step, evidence=None)
    assert 203 - 100 < box.count < 203 - 100 + 10
    found = pk.evidence(there)
    assert found.log_evidence == pytest.approx(pk.evidence(whole).log_evidence, abs=1e-10)
    for part in (slice(3, None), slice(90, None)):
        other = kept.copy(deep=True)
        other["x"][part] *= 1 + 1e-5
        half["evidence"] = xr.DataTree(other)
        box.count = 0
        assert "log_evidence" not in go_on(half, step, evidence=None)["evidence"].attrs
        assert box.count < 10
        assert "rounds otherwise" in messages(caplog)[-1]
    assert pk.evidence(go_on(half, step, evidence=50)).evaluations == 53


def test_time_that_is_up_ends_it(draws, step, happens, caplog):
    def forward(run):
        run._begun -= 1e6

    happens(20, forward)
    dt = go_on(draws, step, max_time=1e5)
    assert 20 <= dt["evidence"]["logp"].notnull().sum() < 203
    assert any("The time was up" in message for message in messages(caplog))


def test_an_end_before_the_last_draw_tells_of_the_evidence(step, caplog):
    dt = sample(step, callback=lambda run, draw: run.stop() if draw.draw_idx > 40 else None)
    assert "evidence" not in dt.children
    assert "There is no evidence yet: pk.sample(resume=...) makes it" in messages(caplog)[-1]


def test_a_likelihood_that_fails_costs_no_draw(draws, step, happens, caplog):
    def raises(run):
        raise OSError("no licence")

    happens(20, raises)
    dt = go_on(draws, step)
    np.testing.assert_array_equal(dt["posterior"]["x"], draws["posterior"]["x"])
    assert any("no evidence, as this failed" in message for message in messages(caplog))


def test_a_value_error_of_the_likelihood_is_told_with_its_point(draws, step, happens, caplog):
    def raises(run):
        raise ValueError("no such root")

    happens(20, raises)
    go_on(draws, step)
    [said] = [message for message in messages(caplog) if "There is no evidence" in message]
    assert "no such root at [" in said


@pytest.mark.slow
def test_what_counts_as_impossible_in_the_run_does_for_it(box, draws, step, caplog):
    def raises(x):
        if x[0] > 1:
            raise OSError("no licence")
        return models.standard_normal(x)

    dt = go_on(draws, step, on_error="reject", evidence=False, draws=1)
    box.function = raises
    try:
        pk.evidence(dt, cores=1, random_seed=1)
        go_on(dt, step)
    finally:
        box.function = models.standard_normal
    said = [message for message in messages(caplog) if "counted as impossible points" in message]
    assert len(said) == 2


# ---- numbers of evaluations ---------------------------------------------------------------------


def test_more_draws_have_another_evidence(box, step, whole):
    """That costs evaluations again, within those that are allowed."""
    box.count = 0
    more = go_on(whole, step, max_evaluations=300, evidence=None)
    assert 250 < box.count <= 300
    assert pk.evidence(more) != pk.evidence(whole)
    assert box.count <= 300
    without = go_on(whole, step, draws=2, evidence=False)
    assert "evidence" not in without.children


@pytest.mark.slow
def test_an_evidence_that_comes_later(box, draws, step):
    box.count = 0
    later = go_on(draws, step, evidence=50)
    assert later["posterior"].sizes == draws["posterior"].sizes
    assert pk.evidence(later).evaluations == 53
    assert box.count <= 53 + 8  # resume looks at each chain, too


def test_how_many_there_are_by_default():
    plain = Settings.checked(evidence=1, draws=300, chains=4)
    assert plain.with_evidence(False, True).for_evidence == 1203
    assert plain.with_evidence(True, True).for_evidence == 203
    assert plain.with_evidence(False, False).for_evidence == 2404
    limited = Settings.checked(evidence=1, draws=100_000, max_evaluations=5000)
    assert limited.with_evidence(False, True).for_evidence == 503
    assert Settings.checked(evidence=70).with_evidence(True, True).for_evidence == 73
    assert Settings.checked().with_evidence(True, True).for_evidence == 0


# ---- refusals, before the run -------------------------------------------------------------------


def test_what_cannot_be_found_is_refused_before_the_run(box, step, mixed_model, caplog):
    with pm.Model():
        pm.Normal("y", pm.Flat("m"), 1, observed=[1.0, 2.0])
        with pytest.raises(ValueError, match="prior of m is improper"):
            pk.sample(step=pk.baselines.RWM(), evidence=True, **QUIET)
    with pm.Model():
        pm.Normal("a")
        pm.Normal("b")
        walk = pk.baselines.RWM()
        with pytest.raises(ValueError, match=r"evidence needs \['b'\], which var_names leaves"):
            pk.sample(step=walk, var_names=["a"], evidence=True, **QUIET)
        with pytest.raises(
            ValueError, match=r"too few for the evidence.*draws= or max_evaluations="
        ):
            pk.sample(20, step=walk, evidence=True, **QUIET)
        for wrong in (10, "yes", 0.5):
            with pytest.raises(ValueError, match="evidence must be"):
                pk.sample(20, step=walk, evidence=wrong, **QUIET)
    box.count = 0
    with pytest.raises(ValueError, match="beside 203 for the evidence"):
        sample(step, max_evaluations=210)
    assert box.count < 10


@pytest.mark.slow
def test_too_few_draws_are_told_as_soon_as_that_is_known(step, caplog):
    dt = sample(step, max_evaluations=220, evidence=50)
    assert "evidence" not in dt.children
    said = messages(caplog, logging.WARNING)
    assert [text.partition(":")[0] for text in said if "evidence" in text] == [
        "There will be no evidence",
        "There is no evidence",
    ]


@pytest.mark.slow
def test_a_limit_that_is_used_up_is_told(step):
    dt = sample(step, evidence=False, max_evaluations=300)
    with pytest.raises(ValueError, match="203 evaluations, which are not left"):
        go_on(dt, step)


@pytest.mark.slow
def test_a_restricted_step_is_told(caplog):
    with pm.Model():
        pm.Normal("a")
        walk = pk.baselines.RWM(region={"a": (-1, 1)})
        dt = pk.sample(
            200, tune=200, step=walk, chains=2, cores=1, random_seed=1, evidence=400, **QUIET
        )
    found = pk.evidence(dt)
    assert any("only in the region" in message for message in messages(caplog))
    assert abs(found.log_evidence - np.log(0.6827)) < 4 * found.standard_error < 0.2
