"""How a run ends, and what its user can do meanwhile."""

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import faults
import numpy as np
import pymc as pm
import pytest
from models import box, normal
from runs import DRAWN, QUIET, assert_same, codes, done_of, messages, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.model import pymc_internals
from pymc_kameleon.result import memory
from pymc_kameleon.sampling import limits, run
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.sampling.run import Run

pytestmark = pytest.mark.forks

ALL = (*DRAWN, "warmup_sample_stats", "learned")


@pytest.fixture(scope="module")
def walk():
    return pk.baselines.RWM(model=normal(), steps_per_draw=5)


@pytest.fixture(scope="module")
def whole(walk):
    return sample(walk)


@pytest.fixture(scope="module")
def black_walk():
    """Of a black box."""
    return pk.baselines.RWM(model=box()[1], steps_per_draw=5)


@pytest.fixture
def by_one(monkeypatch):
    """Make one draw at a time."""
    monkeypatch.setattr(Chain, "next_portion", lambda self, pauses: 1)


# ---- target_ess -----------------------------------------------------------------------------

LOOKS = [100]
while LOOKS[-1] < 5000:
    LOOKS.append(int(np.ceil(limits.LOOK_GROWTH * LOOKS[-1])))


def reached(draws):
    """Return least ESS, bulk or tail, and largest R-hat, of all parameters."""
    ess = [
        float(np.min(pm.stats.ess(draws, method=method)[name]))
        for method in ("bulk", "tail")
        for name in draws
    ]
    return min(ess), max(float(np.max(pm.stats.rhat(draws)[name])) for name in draws)


@pytest.fixture(scope="module")
def enough(walk):
    return sample(walk, draws=None, tune=100, chains=3, target_ess=500)


@pytest.mark.slow
def test_stops_when_enough_is_drawn(enough, walk, black_walk):
    """Not before, and not after, the same with any number of cores."""
    n = enough["posterior"].sizes["draw"]
    assert n in LOOKS
    draws = enough["posterior"].to_dataset()
    ess, rhat = reached(draws)
    assert ess >= 500
    assert rhat <= 1.01
    for look in LOOKS[: LOOKS.index(n)]:
        ess, rhat = reached(draws.isel(draw=slice(look)))
        assert ess < 500 or rhat > 1.01
    assert_same(sample(walk, draws=None, tune=100, chains=3, target_ess=500, cores=2), enough, ALL)
    assert_same(sample(walk, draws=n, tune=100, chains=3), enough, ALL)
    options = {"draws": None, "tune": 100, "chains": 3, "target_ess": 200}
    box()
    one, two = (sample(black_walk, cores=cores, **options) for cores in (1, 2))
    assert_same(one, two, ALL)


@pytest.mark.parametrize(
    ("bulk", "tail", "rhat", "expected"),
    [
        ([100, 100], [100, 100], [1.01, 1.0], True),
        ([99, 100], [100, 100], [1.0, 1.0], False),
        ([100, 100], [100, 99], [1.0, 1.0], False),
        ([100, 100], [100, 100], [1.0, 1.011], False),
        ([np.nan, 100], [100, 100], [1.0, 1.0], False),
    ],
)
def test_what_is_enough(bulk, tail, rhat, expected, monkeypatch, enough):
    """Every parameter, in bulk and tail."""
    draws = enough["posterior"].to_dataset().rename(x="a").assign(b=enough["posterior"]["x"])
    values = {"bulk": np.array(bulk), "tail": np.array(tail)}
    monkeypatch.setattr(limits.pm.stats, "ess", lambda draws, method: values[method])
    monkeypatch.setattr(limits.pm.stats, "rhat", lambda draws: np.array(rhat))
    assert limits.has_enough(draws, 100) == expected
    one = draws.isel(chain=[0])
    assert limits.has_enough(one, 100) == (min(*bulk, *tail) >= 100)


def test_what_is_not_enough_is_said(walk, enough, caplog):
    n = enough["posterior"].sizes["draw"]
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = sample(walk, draws=n - 1, tune=100, chains=3, target_ess=1e5)
    assert result["posterior"].sizes["draw"] == n - 1
    assert "not_enough" in codes(result)
    said = f"{n - 1} draws of 3 chains are not enough for target_ess. pk.resume(...) resumes it."
    assert f"{said} [not_enough]" in messages(caplog)
    enough = sample(walk, draws=n, tune=100, chains=3, target_ess=500)
    assert "not_enough" not in codes(enough)


def test_the_most_draws_may_be_enough(walk, enough):
    """They are looked at, too, wherever the last look was."""
    n = enough["posterior"].sizes["draw"] - 1
    options = {"draws": n, "tune": 100, "chains": 3}
    draws = sample(walk, **options)["posterior"].to_dataset()
    target, rhat = reached(draws)
    assert rhat <= 1.01
    assert reached(draws.isel(draw=slice(max(look for look in LOOKS if look < n))))[0] < target
    assert "not_enough" not in codes(sample(walk, target_ess=target, **options))
    for few in (1, 3):
        assert sample(walk, draws=few, target_ess=450)["posterior"].sizes["draw"] == few


def test_goes_on_from_what_was_enough(enough, walk):
    n = enough["posterior"].sizes["draw"]
    more = LOOKS[LOOKS.index(n) + 3]
    expected = sample(walk, draws=more, tune=100, chains=3)
    assert_same(resume(enough, walk.model, more - n), expected, ALL)


def test_what_was_drawn_before_is_kept(walk):
    """Though the target is reached long before its end."""
    half = sample(walk, draws=700, tune=100)
    both = resume(half, walk.model, None, target_ess=50)
    n = both["posterior"].sizes["draw"]
    assert n >= 700
    assert_same(both, sample(walk, draws=n, tune=100), ALL)


@pytest.mark.slow
def test_goes_on_to_what_is_enough_when_interrupted(enough, walk, monkeypatch):
    """To the same number of draws, wherever it was interrupted."""
    n = enough["posterior"].sizes["draw"]
    for stop in (30, 150, 100 + LOOKS[1] + 3, 99 + n):

        def press(run, draw, stop=stop):
            if draw.draw_idx >= stop:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(
                Chain,
                "next_portion",
                lambda self, pauses: min(7, (self.total if self.done >= 100 else 100) - self.done),
            )
            options = {"draws": None, "tune": 100, "chains": 3, "target_ess": 500}
            half = sample(walk, callback=press, **options)
        assert_same(resume(half, walk.model, None, target_ess=500), enough, ALL)


def test_a_target_needs_parameters():
    with pm.Model() as model:
        pm.Deterministic("twice", 2 * pm.Normal("x"))
    step = pk.baselines.RWM(model=model)
    with pytest.raises(ValueError, match="target_ess needs parameters to look at"):
        sample(step, target_ess=10, var_names=["twice"])


# ---- max_time -------------------------------------------------------------------------------


class Clock:
    """Goes on a second whenever a chain has advanced."""

    def __init__(self, monkeypatch):
        self.now, take = 100.0, Chain.take
        monkeypatch.setattr(run.time, "perf_counter", lambda: self.now)

        def ticking(chain, *arguments):
            self.now += 1.0
            take(chain, *arguments)

        monkeypatch.setattr(Chain, "take", ticking)


@pytest.mark.parametrize("limit", [130.5, timedelta(minutes=2, seconds=10.5)])
def test_time_may_be_up(limit, walk, whole, by_one, monkeypatch, caplog):
    Clock(monkeypatch)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = sample(walk, max_time=limit)
    made = 131 - 100  # advances of both chains, of which 50 each are tuning
    assert result["posterior"].sizes["draw"] == made // 2
    assert result["posterior"].attrs["sampling_time"] >= 131
    said = f"The time was up. The result has {made // 2} draws of 2 chains. pk.resume"
    assert said in "\n".join(messages(caplog))
    assert "ended_early" in codes(result)
    assert_same(resume(result, walk.model, None), whole, ALL)


@pytest.mark.slow
def test_time_may_be_up_while_tuning(walk, whole, by_one, monkeypatch, caplog):
    with monkeypatch.context() as patch:
        Clock(patch)
        with caplog.at_level(logging.WARNING, "pymc_kameleon"):
            result = sample(walk, max_time=20)
    assert {"no_draws", "ended_early"} <= set(codes(result))
    assert done_of(result) == [11, 10]
    assert_same(resume(result, walk.model, None), whole, ALL)
    assert_same(sample(walk, max_time=3600), whole, ALL)


# ---- callback -------------------------------------------------------------------------------


def test_a_callback_sees_what_pymc_shows_it(walk, whole):
    seen = []

    def look(run, draw):
        seen.append(draw)
        assert isinstance(run, Run)

    assert_same(sample(walk, callback=look), whole, ALL)
    assert all(isinstance(draw, pymc_internals.Draw) for draw in seen)
    for chain in (0, 1):
        own = [draw for draw in seen if draw.chain == chain]
        indices = [draw.draw_idx for draw in own]
        assert indices == sorted(set(indices))
        assert indices[-1] == 79
        assert [draw.is_last for draw in own] == [i == 79 for i in indices]
        assert [draw.tuning for draw in own] == [i < 50 for i in indices]
        assert 49 in indices
        for draw in own:
            group = "warmup_sample_stats" if draw.tuning else "sample_stats"
            at = draw.draw_idx - (0 if draw.tuning else 50)
            for name in ("accept_prob", "n_logp", "scaling"):
                assert draw.stats[0][name] == whole[group][name].values[chain, at]
            if not draw.tuning:
                x = whole["posterior"]["x"].values[chain, at]
                np.testing.assert_array_equal(draw.point["x"], x)


@pytest.mark.slow
def test_a_callback_may_stop(walk, whole, by_one):
    def interrupts(run, draw):
        if draw.draw_idx == 70:
            raise KeyboardInterrupt

    def stops(run, draw):
        if draw.draw_idx == 70:
            assert run.stop() is None

    for callback, what in ((interrupts, "interrupted"), (stops, "stopped")):
        result = sample(walk, callback=callback)
        [text] = [str(own) for own in result["findings"]["what"].values if "Sampling" in str(own)]
        assert text == f"Sampling was {what}. The result has 20 draws of 2 chains."
        assert "ended_early" in codes(result)
        assert_same(resume(result, walk.model, None), whole, ALL)


def test_an_exception_of_a_callback_arrives(walk, whole, by_one):
    error = ZeroDivisionError("a plot broke down")
    error.add_note("of its own")

    def fails(run, draw):
        if draw.draw_idx == 70:
            raise error

    with pytest.raises(ZeroDivisionError, match="a plot broke down") as raised:
        sample(walk, callback=fails)
    mine, where, _ = raised.value.__notes__
    assert mine == "of its own"
    assert where == "In the callback, after draw 70 of chain 0."
    assert_same(resume(raised.value.result, walk.model, None), whole, ALL)
    with pytest.raises(OSError, match="no terminal"):
        sample(walk, callback=lambda run, draw: (_ for _ in ()).throw(OSError("no terminal")))


def test_a_callback_inspects(walk, whole, by_one):
    lengths = []

    def look(run, draw):
        if draw.chain == 1 and draw.draw_idx in (0, 49, 50, 60, 79):
            there = run.inspect()
            lengths.append(there["posterior"].sizes["draw"] if "posterior" in there else 0)
            if lengths[-1]:
                own = whole["posterior"]["x"].isel(draw=slice(lengths[-1]))
                np.testing.assert_array_equal(there["posterior"]["x"], own)

    sample(walk, callback=look)
    assert lengths == [0, 0, 1, 11, 30]


# ---- several runs, and what interrupts one -----------------------------------------------------


@pytest.mark.slow
def test_two_runs_at_a_time(walk, black_walk):
    """Of the same step too; each as if it were alone."""
    box(faults.wells)
    runs = [(walk, 1, {}), (walk, 2, {"cores": 2}), (black_walk, 3, {}), (black_walk, 4, {})]
    with ThreadPoolExecutor(len(runs)) as threads:
        going = [
            threads.submit(sample, step, random_seed=seed, draws=300, **options)
            for step, seed, options in runs
        ]
    for (step, seed, _), running in zip(runs, going, strict=True):
        assert_same(running.result(), sample(step, random_seed=seed, draws=300), ALL)


# ---- a second Ctrl-C ------------------------------------------------------------------------


@pytest.mark.slow
def test_ctrl_c_pressed_twice_at_any_line(walk, by_one, monkeypatch):
    """While chains advance and draws are taken: none that is returned is cut off from its chain."""
    pressed, tried, options = [0], set(), {"tune": 3, "draws": 6}
    whole = sample(walk, **options)
    functions = [Run._submit, Run._take, Run._keep, Chain.take, memory.Memory.put]
    codes = [function.__code__ for function in functions]

    def press_twice_at_a_new_line(frame, event, argument):
        if frame.f_code not in codes:
            return None
        line = (frame.f_code, frame.f_lineno)
        if event == "line" and pressed[0] == 1 and line not in tried:
            tried.add(line)
            pressed[0] = 2
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
        return press_twice_at_a_new_line

    def look(run, draw):
        if draw.draw_idx == 5 and pressed[0] == 0:
            pressed[0] = 1

    before, n = sys.gettrace(), -1
    while len(tried) > n:
        n, pressed[0] = len(tried), 0
        sys.settrace(press_twice_at_a_new_line)
        try:
            tree = sample(walk, callback=look, **options)
        finally:
            sys.settrace(before)
        expected = whole.sel(chain=tree["posterior"]["chain"])
        length = tree["posterior"].sizes["draw"]
        for group in DRAWN:
            for name, values in tree[group].data_vars.items():
                own = expected[group][name].isel(draw=slice(length))
                np.testing.assert_array_equal(values, own, name)
        if length < 6:
            assert_same(resume(tree, walk.model, None), expected, ALL)
    assert n > 20


@pytest.mark.slow
def test_the_way_to_the_posterior_goes_on_where_it_was(tmp_path, monkeypatch):
    """Told after each evaluation, stopped in the middle, and gone on from a store."""
    op, model = box()
    step = pk.GAM(model=model, steps_per_draw=2)
    options = {"step": step, "model": model, "cores": 1, **QUIET}
    whole = pk.sample(20, tune=30, chains=3, random_seed=4, **options)
    op.count = 0
    monkeypatch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", -1.0)
    told = []
    keep = run.Run._keep

    def stop_soon(self, chain, state, portion):
        keep(self, chain, state, portion)
        told.append((state.monitor.done, portion.n_logp))
        if len(told) == 10:
            self.stop()

    monkeypatch.setattr(run.Run, "_keep", stop_soon)
    store = tmp_path / "run.zarr"
    before = pk.sample(20, tune=30, chains=3, random_seed=4, store=store, **options)
    assert before["posterior"].sizes["draw"] == 0
    assert told == [(0, 1)] * 10
    monkeypatch.setattr(run.Run, "_keep", keep)
    assert_same(pk.resume(store, **options), whole, (*DRAWN, "search"))
    n_logp = whole["sample_stats"]["n_logp"].sum() + whole["warmup_sample_stats"]["n_logp"].sum()
    assert op.count < n_logp + 3 * (100 + 1)  # the starts are evaluated each time, and no more


def press_twice(step, cores, folder):
    """Press Ctrl-C when a chain hangs, and again when the run waits for it."""
    marker, stopping, left = folder / "hangs", threading.Event(), threading.Event()
    end, ended = Run._end, Run._ended

    def press():
        until_there = threading.Event()
        while not marker.exists():
            until_there.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        stopping.wait()
        os.kill(os.getpid(), signal.SIGINT)
        while not left.wait(1.0):  # Python sees no signal that comes as a wait is about to begin
            os.kill(os.getpid(), signal.SIGINT)

    def leave(self):
        left.set()
        return ended(self)

    def note(self, why):
        end(self, why)
        stopping.set()

    Run._ended, Run._end, Chain.next_portion = leave, note, lambda self, pauses: 1
    logger = logging.getLogger("pymc_kameleon")
    logger.addHandler(logging.FileHandler(folder / "log"))
    logger.setLevel(logging.INFO)
    box(faults.Hangs((99, 101), marker))
    threading.Thread(target=press, daemon=True).start()
    starts = [faults.well(0), {"x": faults.well(1)["x"] - [3.0, 0.0]}]
    tree = sample(step, tune=20, cores=cores, initvals=starts, random_seed=1)
    (folder / "done").write_text(json.dumps(done_of(tree)))


@pytest.mark.parametrize("cores", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_a_second_ctrl_c_leaves_what_hangs(cores, tmp_path):
    """In a process of its own, and here."""
    step = pk.baselines.RWM(model=box(faults.wells)[1], steps_per_draw=1)
    forked = multiprocessing.get_context("fork")
    ended = forked.Process(target=press_twice, args=(step, cores, tmp_path))
    ended.start()
    ended.join(faults.HANGING)
    ended.kill()
    ended.join()
    assert ended.exitcode == 0
    done = json.loads((tmp_path / "done").read_text())
    assert max(done) >= 1
    assert "press Ctrl-C again not to wait" in (tmp_path / "log").read_text()
    assert "Sampling was interrupted" in (tmp_path / "log").read_text()
