"""Threads that a user passes call the function of a black box at the same time."""

import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from models import box, standard_normal
from runs import DRAWN, assert_same, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.model.gathering import Turns
from pymc_kameleon.sampling.workers import size_of

ALL, PATIENCE = (*DRAWN, "warmup_sample_stats", "learned"), 60


class Meeting:
    """A log-density whose first two calls in workers wait for each other."""

    def __init__(self):
        self.begin()

    def begin(self, patience=PATIENCE):
        self.left, self.lock = 2, threading.Lock()
        self.meet = threading.Barrier(2, timeout=patience)

    def __call__(self, x):
        with self.lock:
            waits = self.left > 0 and threading.current_thread() is not threading.main_thread()
            self.left -= waits
        if waits:
            self.meet.wait()
        return standard_normal(x)


meeting = Meeting()


@pytest.fixture(scope="module")
def walk():
    with pm.Model() as model:
        pm.Potential("meeting", pk.black_box(meeting, ndim=0)(pm.Flat("x", shape=2)))
    return pk.baselines.RWM(model=model, steps_per_draw=2)


def test_two_threads_are_in_the_function_at_the_same_time(walk, monkeypatch):
    alone = sample(walk, chains=2)
    meeting.begin()
    with ThreadPoolExecutor(2) as threads:
        assert_same(sample(walk, chains=2, executor=threads), alone, ALL)
    assert meeting.left == 0
    # The broken twin keeps its turn.
    monkeypatch.setattr(Turns, "call", lambda turns, op, inputs: op.compute(inputs))
    meeting.begin(patience=0.1)
    with ThreadPoolExecutor(2) as threads, pytest.raises(threading.BrokenBarrierError):
        sample(walk, chains=2, executor=threads)


def test_other_ops_take_turns_which_is_told(caplog):
    _, model = box()
    with ThreadPoolExecutor(2) as threads:
        sample(pk.baselines.RWM(model=model), chains=2, executor=threads)
    [said] = [text for text in messages(caplog) if "take turns" in text]
    assert "@pk.black_box" in said


@pytest.mark.slow
def test_searches_in_threads_are_those_in_turn():
    """With fits, and what chains learn together; each thread makes an evaluation of the search."""
    with pm.Model() as model:
        pm.Potential("normal", pk.black_box(standard_normal, ndim=0)(pm.Normal("x", shape=3)))
    run = partial(sample, pk.SurrogateMetropolis(model=model), chains=4, tune=20, draws=10)
    alone = run(max_concurrent=4)
    with ThreadPoolExecutor(4) as threads:
        assert_same(run(executor=threads), alone, ALL)


def test_the_size_of_executors():
    with ThreadPoolExecutor(3) as threads, ProcessPoolExecutor(2) as processes:
        assert (size_of(threads), size_of(processes)) == (3, 2)
    cluster = SimpleNamespace(_client=SimpleNamespace(nthreads=lambda: {"a": 2, "b": 3}))
    assert size_of(cluster) == 5
    assert size_of(ThreadPoolExecutor) == size_of(None) == 0


def test_as_many_evaluations_at_once_as_there_are_workers(walk, caplog):
    meeting.left = 0
    with caplog.at_level("INFO", "pymc_kameleon"), ThreadPoolExecutor(5) as threads:
        dt = sample(walk, chains=None, draws=2, tune=2, executor=threads)
        few = sample(walk, chains=None, draws=2, tune=2, executor=threads, max_concurrent=1)
    assert (dt["posterior"].sizes["chain"], few["posterior"].sizes["chain"]) == (5, 4)
    assert sum("max_concurrent=5, because" in text for text in messages(caplog)) == 1
    np.testing.assert_array_equal(dt["posterior"]["x"][:4], few["posterior"]["x"])
