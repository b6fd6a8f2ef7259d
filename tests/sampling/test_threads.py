"""Threads that a user passes call the function of a black box at the same time."""

import logging
import threading
import time
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from models import box, standard_normal
from runs import DRAWN, assert_same, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.evaluators import Evaluators
from pymc_kameleon.model.gathering import Turns

ALL = (*DRAWN, "warmup_sample_stats", "learned")


class Meeting:
    """A log-density whose calls in threads wait a bit for another one, until two have met."""

    def __init__(self):
        self.begin()

    def begin(self, patience=0.3):
        self.patience, self.inside, self.met = patience, 0, threading.Event()

    def __call__(self, x):
        if threading.current_thread() is not threading.main_thread():
            self.inside += 1
            if self.inside == 2:
                self.met.set()
            self.met.wait(self.patience)
            self.inside -= 1
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
    assert meeting.met.is_set()
    # The broken twin keeps its turn.
    monkeypatch.setattr(Turns, "call", lambda turns, op, inputs: op.compute(inputs))
    meeting.begin(patience=0.005)
    with ThreadPoolExecutor(2) as threads:
        sample(walk, chains=2, executor=threads)
    assert not meeting.met.is_set()


def test_other_ops_take_turns_which_is_told(caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    op, model = box()
    with ThreadPoolExecutor(2) as threads:
        sample(pk.baselines.RWM(model=model), chains=2, executor=threads)
        assert any("[idle_executor]" in text for text in messages(caplog))
        with pm.Model() as both:
            x = pm.Normal("x", shape=2)
            pm.Potential("both", op(x) + pk.black_box(standard_normal, ndim=0)(x))
        sample(pk.baselines.RWM(model=both), chains=2, executor=threads)
    [said] = [text for text in messages(caplog) if "[one_thread_at_a_time]" in text]
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
        sizes = [Evaluators(executor).size for executor in (threads, processes, Executor())]
        made = Evaluators(lambda: threads)
    assert sizes == [3, 2, 0]
    assert made.size == 3
    cluster = Executor()
    cluster._client = SimpleNamespace(nthreads=lambda: {"a": 2, "b": 3})
    assert Evaluators(cluster).size == 5


@pytest.mark.slow
def test_a_search_makes_as_many_evaluations_at_once_as_there_are_workers(walk, caplog):
    """Chains that do not follow a search stay as many as they are."""
    meeting.met.set()
    surrogate = pk.SurrogateMetropolis(model=walk.model)
    with caplog.at_level("INFO", "pymc_kameleon"), ThreadPoolExecutor(5) as threads:
        run = partial(sample, chains=None, draws=2, tune=4, executor=threads)
        runs = run(surrogate), run(surrogate, max_concurrent=1), run(walk)
    assert [dt["posterior"].sizes["chain"] for dt in runs] == [5, 4, 4]
    assert sum("max_concurrent=5, because" in text for text in messages(caplog)) == 1


@pk.black_box
def inner(x):
    time.sleep(0.001)  # so that other threads have their turn
    return 2 * x


def nested():
    """Black boxes inside of a function, whose call would be torn in the middle."""
    x = pt.dvector()
    with_box = pytensor.function([x], inner(x) + x, mode="FAST_COMPILE")
    lock = threading.Lock()  # PyTensor's functions keep what they compute

    @pk.black_box
    def in_function(v):
        with lock:
            return with_box(v)

    with pm.Model() as model:
        z = pm.Normal("z", shape=2)
        for name, box in {"one": in_function, "two": inner}.items():
            pm.Normal(name, box(z), 5, observed=np.ones(2))
    return model


def test_black_boxes_inside_of_others_keep_their_turn():
    with black_box_ops_silent():
        step = pk.GAM(model=nested(), steps_per_draw=2)
        alone = sample(step, chains=4, draws=20, tune=20)
        with ThreadPoolExecutor(4) as threads:
            found = sample(step, chains=4, draws=20, tune=20, executor=threads)
    assert_same(found, alone, ALL)


def test_a_function_that_makes_threads_is_looked_at(walk):
    alone = sample(walk, chains=2)
    meeting.begin()
    assert_same(sample(walk, chains=2, executor=lambda: ThreadPoolExecutor(2)), alone, ALL)
    assert meeting.met.is_set()


@pk.black_box(batched=True)
def rows(x):
    return 2 * x


def test_a_batched_black_box_may_call_another_one():
    """Calls of all chains are made in one, in the middle of which nobody has a turn to leave."""
    x = pt.dvector()
    one_row = pytensor.function([x], rows(x), mode="FAST_COMPILE")
    outer = pk.black_box(lambda x: np.stack([one_row(own) for own in x]), batched=True)
    with pm.Model() as model:
        z = pm.Normal("z", shape=2)
        for name, box in {"one": outer, "two": rows}.items():
            pm.Normal(name, box(z), 5, observed=np.ones(2))
    with black_box_ops_silent():
        step = pk.GAM(model=model, steps_per_draw=2)
        alone = sample(step, chains=4)
        assert_same(sample(step, chains=4, cores=4), alone, ALL)
