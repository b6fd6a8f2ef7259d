"""Faults of every kind: no hang, no draw lost, and never a wrong number in silence.

docs/faults.md lists them, with the tests of the other files that look at each.
"""

import faulthandler
import multiprocessing
import signal
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import faults
import numpy as np
import pymc as pm
import pytest
from models import box, normal
from test_driver import DRAWN, QUIET, assert_same, resume, sample

import pymc_kameleon as pk

ALL = (*DRAWN, "warmup_sample_stats", "learned")

PACKAGE = str(Path(pk.__file__).parent)


@pytest.fixture(autouse=True)
def watch():
    """A test that hangs ends with a traceback of each thread."""
    faulthandler.dump_traceback_later(300, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def walk():
    return pk.RWM(model=normal(), steps_per_draw=2)


@pytest.fixture(scope="module")
def black_walk():
    """Of a black box."""
    return pk.RWM(model=box()[1], steps_per_draw=2)


# ---- Ctrl-C at random moments ---------------------------------------------------------------


class Press:
    """Presses Ctrl-C when this package has begun to run its line number `at`, in this thread.

    Attributes
    ----------
    lines : int
        Lines run.
    """

    def __init__(self, at=None):
        self.lines, self._at = 0, at

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._follow)
        return self

    def __exit__(self, *error):
        sys.settrace(self._before)

    def _follow(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at:
                signal.raise_signal(signal.SIGINT)
        return self._follow


def moments(call, n, seed):
    """Return n random lines at which to interrupt a call."""
    with Press() as press:
        call()
    return np.random.default_rng(seed).integers(1, press.lines, n)


def is_part_of(result, whole, renumbered=False):
    """Check that draws are the first ones of the whole run; return how many there are."""
    if "posterior" not in result.children:
        return 0
    n, draws = result["posterior"].sizes["draw"], whole["posterior"]["x"].values
    for chain, own in zip(result["posterior"]["chain"], result["posterior"]["x"], strict=True):
        chains = range(len(draws)) if renumbered else [int(chain)]
        assert any(np.array_equal(own, draws[number, :n]) for number in chains)
    return own.sizes["draw"] * len(result["posterior"]["x"])


def pools(kind):
    return {
        "threads": lambda: ThreadPoolExecutor(2),
        "pool": lambda: ProcessPoolExecutor(2, multiprocessing.get_context("fork")),
    }[kind]()


def few_and_many(counts):
    """Two moments of the first case in the fast suite, and all in the slow one."""
    first = next(iter(counts))
    return [pytest.param(first, 2, id=f"{first}-few")] + [
        pytest.param(where, n, id=f"{where}-many", marks=pytest.mark.slow)
        for where, n in counts.items()
    ]


@pytest.fixture
def done(monkeypatch):
    """Chains and how many draws they had made, as they came back, one by one."""
    done, take = [], pk.run.Chain.take

    def note(self, state, *others):
        take(self, state, *others)
        done.append((self.number, self.done))

    monkeypatch.setattr(pk.run.Chain, "take", note)
    monkeypatch.setattr(pk.run.Chain, "next_portion", lambda self, pauses: 1)
    return done


CASES = {"in turn": 40, "own threads": 40, "threads": 30, "own processes": 25, "pool": 25}


@pytest.mark.parametrize(("where", "n"), few_and_many(CASES))
def test_ctrl_c_at_a_random_moment(where, n, walk, black_walk, done):
    """What is returned are the first draws of an undisturbed run; going on gives the others."""
    options, step = {"tune": 4, "draws": 6, "cores": 1}, walk
    if where in ("own processes", "pool"):
        box(faults.wells)
        options["initvals"], step = {"x": np.array([0.1, 0.2])}, black_walk
    whole = sample(step, **options)

    def run():
        if where in ("threads", "pool"):
            with pools(where) as executor:
                return sample(step, **options | {"executor": executor})
        return sample(step, **options | {"cores": 2 if where.startswith("own") else 1})

    kept = 0
    for at in moments(run, n, seed=1):
        done.clear()
        try:
            with Press(at):
                result = run()
        except KeyboardInterrupt:
            assert not done
            continue
        kept += is_part_of(result, whole)
        made = result["sampling_state"]["monitor_done"].to_series().to_dict()
        assert all(made[chain] >= n for chain, n in done)
        if min(made.values()) < 10:
            result = resume(result, step.model, None)
        assert_same(result, whole, ALL)
    assert kept > 0


@pytest.mark.filterwarnings("ignore:.*Could not extract data")
@pytest.mark.parametrize(("cores", "n"), few_and_many({1: 20, 2: 20}))
def test_ctrl_c_at_a_random_moment_of_pm_sample(cores, n, walk):
    """It returns the first draws, and leaves the step as it was."""
    model = walk.model

    def run():
        options = {"chains": 2, "cores": cores, "random_seed": 7}
        return pm.sample(6, tune=4, step=walk, model=model, **QUIET, **options)

    whole, kept = run(), 0
    for at in moments(run, n, seed=2):
        try:
            with Press(at):
                result = run()
        except KeyboardInterrupt:
            continue
        except ValueError as error:
            assert "Not enough samples" in str(error)  # as PyMC says if there are no draws
            continue
        kept += is_part_of(result, whole, renumbered=True)
    assert kept > 0
    assert_same(run(), whole)
