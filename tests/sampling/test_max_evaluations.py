"""Runs of limited evaluations: never more, whatever happens, and the same draws."""

import logging
import re
from contextlib import contextmanager
from functools import cache
from itertools import product

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from counted import CALLS, Switch, counting, told
from models import normal
from runs import DRAWN, QUIET, assert_same, codes, messages, states_of
from simulated import growth, simulator

import pymc_kameleon as pk
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.sampling import chain_of_run, run
from pymc_kameleon.step.base import KameleonStep

pytestmark = pytest.mark.forks

ALL = (*DRAWN, "warmup_sample_stats", "learned")


@pytest.fixture(scope="module")
def surrogate():
    return told(pk.SurrogateMetropolis(model=counting()))


@pytest.fixture(scope="module")
def walk():
    return told(pk.GAM(model=counting(), steps_per_draw=3))


@pytest.fixture(scope="module")
def plain_walk():
    """Of a log-density in machine code."""
    return pk.GAM(model=normal())


@pytest.fixture(scope="module")
def plain_surrogate():
    return pk.SurrogateMetropolis(model=normal())


@pytest.fixture(scope="module")
def whole():
    """Return a function that gives a run which is not interrupted, and how many calls it made."""

    @cache
    def made(step, n, searches):
        n_calls()
        return limited(step, n, cores=1), n_calls()

    return made


@pytest.fixture(autouse=True)
def from_now_on(caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    Switch.function, CALLS.value = Switch.usual, 0


def limited(step, n, **options):
    """Run with at most n evaluations."""
    options = {"max_evaluations": n, "random_seed": 5, "model": step.model} | options
    return pk.sample(step=step, **QUIET, **options)


def resumed(result, step, **options):
    return pk.resume(result, step=step, model=step.model, **QUIET, **options)


def n_logp(result):
    """Return the evaluations that the statistics of a run know of."""
    parts = ("sample_stats", "warmup_sample_stats")
    return sum(int(result[part]["n_logp"].sum()) for part in parts if part in result.children)


def n_calls():
    """Return how often the black box was called since the last time."""
    with CALLS.get_lock():
        n, CALLS.value = CALLS.value, 0
    return n


def stop_when(monkeypatch, stage):
    """Let a run stop when two of its portions have come back that end at a stage."""
    keep, seen = run.Run._keep, []

    def stops(self, chain, state, portion):
        keep(self, chain, state, portion)
        if STAGES[stage](state.monitor):
            seen.append(state)
        if len(seen) == 2:
            self.stop()

    monkeypatch.setattr(run.Run, "_keep", stops)
    monkeypatch.setattr(chain_of_run, "NUMBERS_PER_ADVANCE", 20)
    if stage == "on the way":
        monkeypatch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", -1.0)


# ---- a promise ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "n"), [("surrogate", 130), ("surrogate", 700), ("walk", 900)])
def test_there_are_no_more_evaluations_and_as_many_draws_of_each_chain(name, n, whole, request):
    """One after another, and in processes, which make the same draws."""
    step = request.getfixturevalue(name)
    if n == 700:
        request.getfixturevalue("without_search")
    one, calls = whole(step, n, n == 130)
    n_calls()
    assert n - 4 * 3 * 2 < calls <= n
    assert n_logp(one) == calls
    draws, tuned = (one[part].sizes["draw"] for part in ("posterior", "warmup_sample_stats"))
    assert draws >= 5
    assert tuned >= 5
    assert_same(limited(step, n, cores=4), one, ALL)
    assert n_calls() == calls


def test_there_is_room_for_no_more_on_the_way(plain_surrogate, monkeypatch):
    """With hundreds of outputs, room for the longest search of all took 80 MB, at each draw."""
    left, leave = [], KameleonStep.leave

    def noted(step):
        left.append(leave(step))
        return left[-1]

    monkeypatch.setattr(KameleonStep, "leave", noted)
    result = limited(plain_surrogate, 80)
    assert 0 < max(len(state.trail) for state in left) <= 80
    assert all("0.trail" not in own for own in states_of(result))  # of a way that has ended


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_what_comes_before_the_run_counts(caplog):
    """A step is made, starts are looked for where some are impossible, and NaN is not doubted."""

    def in_part(x):
        return np.nan if abs(x[0] - x[1]) > 0.7 else Switch.usual(x)

    Switch.function = in_part
    result = pk.sample(
        step=pk.SurrogateMetropolis, model=counting(), max_evaluations=150, random_seed=2, **QUIET
    )
    calls = n_calls()
    assert 3 <= calls - n_logp(result) <= 4
    assert calls <= 150
    said = re.search(r"(\d+) of 150 evaluations \((\d+) before the run", "".join(messages(caplog)))
    assert list(map(int, said.groups())) == [calls, calls - n_logp(result)]


def test_trials_of_a_step_count_for_its_first_run_alone(caplog):
    step = pk.GAM(model=counting(), steps_per_draw=3)
    assert (n_trials := step.n_trials) > 0
    said = []
    for _ in range(2):
        caplog.clear()
        limited(step, 200, cores=1)
        said.append(" ".join(messages(caplog)))
    assert f"{n_trials} before the run" in said[0]
    assert "before the run" not in said[1].lower()


@pytest.mark.slow
def test_the_log_says_what_they_were_for(surrogate, caplog):
    result = limited(surrogate, 200, cores=1)
    text = "\n".join(messages(caplog))
    made = re.search(
        r"4 × \(\d+ \+ (\d+)\) draws and (\d+) of 200 evaluations \((\d+) to find the posterior, "
        r"(\d+) to tune, (\d+) to draw\)",
        text,
    )
    each, total, *parts = map(int, made.groups())
    assert total == sum(parts) == n_calls()
    assert parts[2] == result["sample_stats"]["n_logp"].sum()
    assert each == result["posterior"].sizes["draw"]
    assert "At most 200 evaluations of" not in text  # as they take no time


@pytest.mark.usefixtures("without_search")
def test_a_run_that_lasts_says_so(surrogate, caplog, monkeypatch):
    monkeypatch.setattr(surrogate, "seconds_per_logp", 2.0)
    limited(surrogate, 150, cores=2)
    said = r"At most 14\d evaluations of 2 s: about 2\.4 min with 2 at a time"
    assert re.search(said, caplog.text)


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_draws_and_tuning_are_limits(surrogate, plain_walk):
    result = limited(surrogate, 300, draws=9, tune=7)
    assert result["posterior"].sizes["draw"] == 9
    assert result["warmup_sample_stats"].sizes["draw"] == 7
    result = limited(surrogate, 150, draws=1000, tune=1000)
    assert 5 < result["posterior"].sizes["draw"] < 30
    result = limited(plain_walk, 2000, draws=3, tune=0)
    assert result["posterior"].sizes["draw"] == 3
    result = limited(plain_walk, 2000, tune=0)
    assert 1900 < n_logp(result) <= 2000


def test_ways_take_more_where_a_process_makes_them():
    """In more dimensions they teach less than tuning does, which they would leave too little."""
    share = {d: pk.SurrogateMetropolis(model=normal(d)).search.share for d in (2, 15)}
    assert share == {2: 0.9, 15: 0.5}


@pytest.mark.slow
def test_there_must_be_enough_for_all_chains(surrogate, plain_walk):
    for step, chains in (surrogate, 4), (plain_walk, 4), (surrogate, None):
        n_calls()
        with pytest.raises(ValueError, match=f"more for {chains or 2} chains") as error:
            limited(step, 24, chains=chains)
        assert n_calls() == 0
        n = 24 + int(re.search(r"takes (\d+) more", str(error.value))[1])
        assert step is plain_walk or n < 60
        result = limited(step, n, chains=chains)
        assert n_logp(result) <= n
        assert result["posterior"].sizes["draw"] >= 2
        with pytest.raises(ValueError, match="takes 1 more"):
            limited(step, n - 1, chains=chains)


def test_of_few_evaluations_there_are_two_chains(surrogate, request, monkeypatch):
    """And what a way has evaluated where it ends, it does not evaluate again."""
    seen = []

    def noted(x):
        seen.append(x.tobytes())
        return Switch.usual(x)

    Switch.function = noted
    with monkeypatch.context() as patch:
        patch.setattr(ModelLogp, "looks_again", False)
        result = limited(surrogate, 79, cores=1)
    assert result["posterior"].sizes["chain"] == 2
    assert len(seen) == n_logp(result) > 75
    assert len(set(seen)) == len(seen)
    request.getfixturevalue("without_search")
    assert limited(surrogate, 80, cores=1)["posterior"].sizes["chain"] == 4
    assert limited(surrogate, 79, cores=1, chains=3)["posterior"].sizes["chain"] == 3


def test_a_search_that_ends_too_early_is_told(surrogate):
    Switch.function = lambda x: 50 * np.sin(1e3 * x.sum())
    assert "posterior_not_found" in codes(limited(surrogate, 45, cores=1))


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_hopeless_runs_are_refused(surrogate):
    first = limited(surrogate, 80, cores=1)
    with pytest.raises(ValueError, match=r"is too small: it takes .* for 2 chains to begin"):
        pk.sample(step=pk.SurrogateMetropolis, model=counting(), max_evaluations=1, **QUIET)
    for options in {"draws": 10}, {"max_evaluations": 3}:
        with pytest.raises(ValueError, match=r"do not suffice.*: [0-3] are left"):
            pk.resume(first, model=counting(), **options, **QUIET)


def test_what_would_evaluate_beyond_is_refused(surrogate):
    with pytest.raises(ValueError, match="log_prior would call"):
        limited(surrogate, 300, idata_kwargs={"log_prior": True})
    with pytest.raises(ValueError, match="max_evaluations must be an integer from 1 on"):
        limited(surrogate, 0)
    Switch.function = lambda x: -np.inf
    n_calls()
    with pytest.raises(ValueError, match="not all chains have a start"):
        limited(surrogate, 90)
    assert n_calls() <= 90


# ---- interruptions ------------------------------------------------------------------------------

STAGES = {
    "on the way": lambda monitor: monitor.done == 0,
    "at first": lambda monitor: monitor.done == 1,
    "while tuning": lambda monitor: 1 < monitor.done < monitor.tune,
    "tuned": lambda monitor: monitor.done == monitor.tune,
    "drawing": lambda monitor: monitor.done > monitor.tune,
}
FEW_STAGES = [
    pytest.param(stage, marks=[pytest.mark.slow] * (stage in ("at first", "tuned")))
    for stage in STAGES
]
"""The others are close to one of these."""


def searches_before(stage, request):
    """Let nothing search unless the stage is in the midst of it; say whether it does."""
    if stage != "on the way":
        request.getfixturevalue("without_search")
    return stage == "on the way"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "stage"),
    list(product(["plain_surrogate", "plain_walk"], STAGES)),
)
def test_interrupted_runs_make_the_same_draws(name, stage, whole, request, monkeypatch, tmp_path):
    """From a result, and from a store, which can be opened when it is interrupted."""
    step, store = request.getfixturevalue(name), tmp_path / "run.zarr"
    n = 130 if name == "plain_surrogate" else 3000
    expected, _ = whole(step, n, searches_before(stage, request))
    for where in (None, store) if stage != "drawing" else (store,):
        with monkeypatch.context() as patch:
            stop_when(patch, stage)
            part = limited(step, n, cores=1, store=where)
        assert part["posterior"].sizes["draw"] < expected["posterior"].sizes["draw"]
        if where is not None:
            with xr.open_datatree(store, engine="zarr") as tree:
                assert tree["posterior"].sizes["draw"] >= part["posterior"].sizes["draw"]
        assert_same(resumed(part if where is None else where, step), expected, ALL)
    with xr.open_datatree(store, engine="zarr") as tree:
        for group in "posterior", "warmup_sample_stats":
            assert tree[group].sizes["draw"] == expected[group].sizes["draw"]


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_a_state_is_as_long_as_tuning_was_to_be_at_first(plain_surrogate, monkeypatch):
    """With more evaluations, for which chains remember more moves the longer they tune."""
    options = {"draws": 5, "cores": 1, "step": plain_surrogate, "n": 3000}
    with monkeypatch.context() as patch:
        stop_when(patch, "while tuning")
        part = limited(**options)
    assert_same(resumed(part, plain_surrogate), limited(**options), ALL)


def killed(run):
    run._record.close()
    raise SystemExit


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_a_process_that_dies_while_it_is_settled(plain_surrogate, whole, monkeypatch, tmp_path):
    """The store knows how many draws there are to be, and not all states do."""
    expected, _ = whole(plain_surrogate, 130, False)
    for settled in 1, 2:
        store = tmp_path / f"run_{settled}.zarr"
        save = chain_of_run.Chain.settle

        def dies(self, *lengths, settled=settled, save=save):
            if self.number == 2 and (self.done > 1) == (settled == 2):
                raise KeyboardInterrupt
            save(self, *lengths)

        with monkeypatch.context() as patch:
            patch.setattr(chain_of_run.Chain, "settle", dies)
            patch.setattr(run.Run, "_ended", killed)
            with pytest.raises(SystemExit):
                limited(plain_surrogate, 130, cores=1, store=store)
        assert_same(resumed(store, plain_surrogate), expected, ALL)


@pytest.mark.parametrize("stage", FEW_STAGES)
def test_evaluations_that_resuming_takes_are_among_them(
    stage, surrogate, whole, request, monkeypatch
):
    """There may be fewer draws for that."""
    expected, _ = whole(surrogate, 130, searches_before(stage, request))
    n_calls()
    with monkeypatch.context() as patch:
        stop_when(patch, stage)
        part = limited(surrogate, 130, cores=1)
    result = pk.resume(part, model=surrogate.model, **QUIET)  # the step is made again
    assert n_calls() <= 130
    n = result["posterior"].sizes["draw"]
    assert expected["posterior"].sizes["draw"] - 3 <= n <= expected["posterior"].sizes["draw"]
    first = expected["posterior"]["x"].values[:, :n]
    np.testing.assert_array_equal(result["posterior"]["x"].values, first)


@contextmanager
def suppress_lack():
    """Suppress the error that evaluations do not suffice, and no other one."""
    try:
        yield
    except ValueError as error:
        if "do not suffice" not in str(error):
            raise


@pytest.mark.slow
@pytest.mark.parametrize("stage", FEW_STAGES)
def test_few_more_evaluations_are_not_exceeded(stage, surrogate, request, monkeypatch):
    """Where they do not suffice to tune, nothing begins."""
    searches_before(stage, request)
    with monkeypatch.context() as patch:
        stop_when(patch, stage)
        part = limited(surrogate, 130, cores=1)
    for n in 5, 45, 150:
        n_calls()
        made = 0
        with suppress_lack():
            made = resumed(part, surrogate, max_evaluations=n)["posterior"].sizes["draw"]
        assert n_calls() <= n
    assert made > 0


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_a_run_that_has_made_its_evaluations_makes_no_more(surrogate):
    """Not even to see that the model is what it was."""
    first = limited(surrogate, 150, cores=1)
    n = n_calls()
    for _ in range(3):
        assert_same(resumed(first, surrogate), first)
    assert n + n_calls() <= 150


@pytest.mark.usefixtures("without_search")
def test_more_evaluations_make_more_draws(surrogate, caplog):
    first = limited(surrogate, 150, cores=1)
    n_calls()
    again = resumed(first, surrogate)
    assert "The run has made its evaluations" in caplog.text
    assert again["posterior"].sizes == first["posterior"].sizes
    with pytest.raises(ValueError, match="do not suffice"):
        resumed(first, surrogate, draws=10)
    with pytest.raises(ValueError, match="do not suffice"):
        resumed(first, surrogate, max_evaluations=7)
    n_calls()
    more = resumed(first, surrogate, max_evaluations=100)
    assert 92 < n_calls() <= 100
    n = first["posterior"].sizes["draw"]
    assert n + 23 <= more["posterior"].sizes["draw"] <= n + 24
    assert resumed(first, surrogate, max_evaluations=100, draws=3)["posterior"].sizes["draw"] == (
        n + 3
    )


def test_a_run_without_a_limit_may_get_one(plain_walk, monkeypatch):
    """Once it has begun to tune, or is tuned."""
    for stage in "while tuning", "drawing":
        options = {"draws": 30, "tune": 30, "random_seed": 1, "model": plain_walk.model, "cores": 1}
        with monkeypatch.context() as patch:
            stop_when(patch, stage)
            part = pk.sample(step=plain_walk, **options, **QUIET)
        kinds = ("on_the_way", "to_tune", "to_draw")
        made = sum(int(own[f"0.monitor.{k}"]) for own in states_of(part) for k in kinds)
        result = resumed(part, plain_walk, max_evaluations=4000)
        assert 3900 < n_logp(result) - made <= 4000
    with pytest.raises(ValueError, match="do not suffice"):
        resumed(part, plain_walk, max_evaluations=10)


# ---- samplers -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def emulator():
    return told(pk.EmulatorMetropolis(model=growth()))


@pytest.mark.slow  # it is compiled
def test_of_an_emulator(emulator):
    result = limited(emulator, 150, cores=1)
    assert 140 < n_logp(result) <= 150
    assert_same(limited(emulator, 150, cores=2), result, DRAWN)


@pytest.mark.slow
@pytest.mark.parametrize("n", [50, 90, 120])
def test_of_an_emulator_that_does_not_predict(n):
    """What comes after its search in vain has what is left of the evaluations."""

    def rough(x):
        return x + 30 * np.sin(1e3 * x.sum() * np.arange(1, 5))

    with pm.Model() as model:
        pm.Normal("y", simulator(rough)(pm.Normal("x", shape=4)), observed=[1.0, 0.5, 0.0, 0.0])
    result = limited(told(pk.EmulatorMetropolis(model=model)), n, cores=1)
    assert n - 20 < n_logp(result) <= n
    assert result["posterior"].sizes["draw"] >= 2


@pytest.mark.slow
def test_calls_that_show_that_evaluations_can_be_reused_are_among_them():
    def counted(x):
        with CALLS.get_lock():
            CALLS.value += 1
        return np.array([x[0] + x[1] ** 2, x[1]])

    with pm.Model() as model:
        pm.Normal("y", simulator(counted)(pm.Normal("x", shape=2)), 0.3, observed=[1.0, 0.5])
    step = told(pk.EmulatorMetropolis(model=model))
    first = limited(step, 100, cores=1)
    for n in 100, 101, 102, 103:
        n_calls()
        limited(step, n, cores=1, reuse=first)
        assert n_calls() <= n


@pytest.mark.slow
@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("n", [150, 3000])  # with many, the way's length depends on tuning's
def test_of_an_emulator_that_is_interrupted(n, stage, emulator, monkeypatch, tmp_path):
    """There are as many draws of tuning as are settled, not as the chains began with."""
    options = {"draws": 15, "cores": 1, "step": emulator, "n": n}
    whole = limited(**options)
    for where in None, tmp_path / "run.zarr":
        with monkeypatch.context() as patch:
            stop_when(patch, stage)
            part = limited(**options, store=where)
        again = resumed(part if where is None else where, emulator)
        k = min(tree["posterior"].sizes["draw"] for tree in (again, whole))
        assert k >= whole["posterior"].sizes["draw"] - 3  # resuming takes evaluations, too
        first, second = (tree["posterior"].isel(draw=slice(k)) for tree in (again, whole))
        np.testing.assert_array_equal(first["rate"], second["rate"])


def test_what_draws_have_not_needed_makes_more_of_them(plain_walk, monkeypatch):
    """As of steps that cost less than they may. An interruption changes nothing."""
    monkeypatch.setattr(pk.GAM, "_largest_n_logp", lambda self: 2)
    whole = limited(plain_walk, 6000, cores=1)
    assert 5900 < n_logp(whole) <= 6000
    with monkeypatch.context() as patch:
        make = run.Run._make

        def stops(self, *lengths):
            make(self, *lengths)
            if self._chains[0].made > 0:
                self.stop()

        patch.setattr(run.Run, "_make", stops)
        part = limited(plain_walk, 6000, cores=1)
    assert 0 < part["posterior"].sizes["draw"] < whole["posterior"].sizes["draw"]
    assert_same(resumed(part, plain_walk), whole, ALL)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sampler", [cls for cls in pk.samplers.SAMPLERS if cls.__name__[:2] != "Em"]
)
def test_of_all_samplers(sampler):
    step = sampler(model=normal())
    for n in 3_000, 20_000:
        result = limited(step, n, cores=1)
        assert n_logp(result) <= n
        assert result["posterior"].sizes["draw"] >= 2


@pytest.mark.slow
def test_of_two_steps():
    """Which share what they may take, and evaluate anew where the other one has moved."""
    with pm.Model() as model:
        pm.Normal("x", 0, 1)
        pm.Normal("y", model["x"], 1)
        steps = [pk.SurrogateMetropolis([model["x"]]), pk.GAM([model["y"]], steps_per_draw=2)]
        result = pk.sample(step=steps, max_evaluations=1500, **QUIET)
    assert 1450 < n_logp(result) <= 1500
