"""Functions of black boxes that an executor calls: what travels, and what becomes of calls."""

import multiprocessing
import os
import pickle
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as Threads

import faults
import numpy as np
import pymc as pm
import pytest
from runs import DRAWN, assert_same, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.model import evaluators as model_evaluators
from pymc_kameleon.model.evaluators import Evaluators, WorkersDied
from pymc_kameleon.model.gathering import RunEnded
from pymc_kameleon.model.python_calls import WrongReturn
from pymc_kameleon.model.remote import NotHere, TooLong

pytestmark = pytest.mark.forks

FORK = multiprocessing.get_context("fork")
OURS = ("pymc_kameleon", "pymc", "pytensor", "numba", "scipy", "threadpoolctl")

BARE = f"""
import pickle, struct, sys
for name in {OURS!r}:
    sys.modules[name] = None  # to import it is an error
read, write = sys.stdin.buffer, sys.stdout.buffer
while head := read.read(8):
    function, arguments = pickle.loads(read.read(*struct.unpack("q", head)))
    found = pickle.dumps(function(*arguments))
    write.write(struct.pack("q", len(found)) + found)
    write.flush()
"""


class Bare(Executor):
    """Processes that can import numpy and cloudpickle, and nothing that models need."""

    def __init__(self, n):
        command = [sys.executable, "-c", BARE]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._free = [subprocess.Popen(command, **pipes) for _ in range(n)]
        self._threads, self.parcels = Threads(n), 0

    def submit(self, function, name, number, parcel, *call):
        self.parcels += parcel is not None
        return self._threads.submit(self._done, function, name, number, parcel, *call)

    def _done(self, function, *arguments):
        process = self._free.pop()
        try:
            sent = pickle.dumps((function, arguments))
            process.stdin.write(struct.pack("q", len(sent)) + sent)
            process.stdin.flush()
            return pickle.loads(process.stdout.read(*struct.unpack("q", process.stdout.read(8))))
        finally:
            self._free.append(process)

    def shutdown(self, wait=True, cancel_futures=False):
        self._threads.shutdown(wait)
        for process in self._free:
            process.communicate()


def called(executor, function, *inputs, timeout=None):
    return Evaluators(executor).run(function, timeout, inputs)


# ---- what travels -------------------------------------------------------------------------------


def test_a_worker_needs_numpy_and_cloudpickle_alone():
    """For a function of a notebook, too; the broken twin is one of PyMC."""
    shift = 2.0

    @pk.black_box
    def simulator(x):
        return shift * x

    with pm.Model() as model:
        pm.Normal("y", simulator(pm.Normal("x", shape=2)), 1, observed=np.ones(2))
    step = pk.baselines.RWM(model=model, steps_per_draw=2)
    with Bare(2) as workers:
        assert_same(sample(step, executor=workers), sample(step), DRAWN)
        assert workers.parcels <= 4  # as a worker may lack it that gets it meanwhile
        with pytest.raises(NotHere, match=r"a worker cannot open it \(.*Workers need the same"):
            called(workers, pm.math.sin, 1.0)


def test_a_function_travels_once_and_anew_if_it_has_changed():
    with Bare(1) as worker:
        for scale in (2, 3, 2):
            evaluators = Evaluators(worker)
            for x in range(3):
                assert evaluators.run(lambda x, scale=scale: scale * x, None, (x,)) == scale * x
        own = Evaluators(worker)
        before, function = worker.parcels, np.sin
        assert [own.run(function, None, (x,)) for x in range(4)] == [*np.sin(range(4))]
        assert worker.parcels == before + 1


def test_trials_before_the_run_are_made_elsewhere():
    home = os.getpid()

    def simulator(x):
        assert os.getpid() != home
        return x

    with pm.Model() as model, ProcessPoolExecutor(1, FORK) as pool:
        pm.Normal("y", pk.black_box(simulator)(pm.Normal("x", shape=2)), 1, observed=np.ones(2))
        sample(pk.GAM(), executor=pool, draws=2, tune=2, model=model, initvals=None)
        with pytest.raises(AssertionError):
            sample(pk.GAM(), cores=1, draws=2, tune=2, model=model)


def test_jax_has_as_many_bits_in_workers(monkeypatch):
    """A program sets them after the import, where workers may not come."""
    doubles = {"JAX_ENABLE_X64": "1"}
    with Bare(1) as worker:
        monkeypatch.setattr(model_evaluators.remote, "uses_jax_doubles", lambda: False)
        assert called(worker, lambda: os.environ.get("JAX_ENABLE_X64", "0")) == "0"
        monkeypatch.setattr(model_evaluators.remote, "uses_jax_doubles", lambda: True)
        assert called(worker, lambda: os.environ["JAX_ENABLE_X64"]) == doubles["JAX_ENABLE_X64"]


# ---- what becomes of calls ----------------------------------------------------------------------


def test_what_cannot_be_sent_back_is_no_death():
    with ProcessPoolExecutor(1, FORK) as pool:
        for value in (threading.Lock, lambda: [iter(x for x in "ab")]):
            with pytest.raises(WrongReturn, match=r"returned .*which cannot be sent back"):
                called(pool, lambda x, value=value: value(), 1)
        assert called(pool, lambda x: (np.ones(2), [x, 2]), 1)[1] == [1, 2]


def breaks_by_value(x):
    raise ZeroDivisionError("the solver broke down")


breaks_by_value.__module__ = "__main__"


def breaks(x):
    raise ZeroDivisionError("the solver broke down")


def test_exceptions_name_the_line_of_the_user():
    with pm.Model() as model:
        pm.Normal("y", pk.black_box(breaks)(pm.Normal("x", shape=2)), 1, observed=np.ones(2))
    with ProcessPoolExecutor(1, FORK) as pool, pytest.raises(ZeroDivisionError) as info:
        sample(pk.baselines.RWM(model=model), executor=pool)
    assert "in breaks" in str(info.value.__cause__)
    with Bare(1) as worker, pytest.raises(ZeroDivisionError) as info:
        called(worker, lambda x: breaks_by_value(x), 1)
    assert "in breaks_by_value" in str(info.value.__cause__)
    with ProcessPoolExecutor(1, FORK) as pool, pytest.raises(RuntimeError, match="Stubborn"):
        called(pool, faults.RaisesStubborn((-1, 1)), np.zeros(2))


def test_a_call_that_takes_too_long_is_stopped_in_the_worker():
    with ProcessPoolExecutor(1, FORK) as pool:
        assert called(pool, abs, -1, timeout=10) == 1
        with pytest.raises(TooLong):
            called(pool, time.sleep, faults.HANGING, timeout=0.05)
        assert called(pool, abs, -1, timeout=10) == 1
    with Threads(1) as threads, pytest.raises(NotHere, match="cannot be stopped"):
        called(threads, abs, -1, timeout=10)


class Deadly(Executor):
    """One worker, which notes what it calls, and dies of some inputs, as do calls beside these."""

    def __init__(self, waits=0):
        self.seen, self.lock, self.beside = [], threading.Lock(), threading.Barrier(2)
        self.waits = waits

    def submit(self, attempt, name, number, parcel, key, timeout, inputs):
        future, (x,) = Future(), inputs
        if parcel is None:
            future.set_result((model_evaluators.LACKS,))
            return future
        with self.lock:
            self.seen.append(x)
            first = self.seen.count(x) == 1
        if first and self.waits:
            self.beside.wait()  # both are under way
        if x < 0 or (first and self.waits):
            future.set_exception(BrokenExecutor("gone"))
        else:
            future.set_result(attempt(name, number, parcel, key, timeout, inputs))
        return future


def test_only_a_call_that_kills_alone_is_counted():
    made = []
    evaluators = Evaluators(lambda: made.append(Deadly()) or made[-1])
    with pytest.raises(WorkersDied, match=r"3 workers died of it in a row .*gone"):
        evaluators.run(abs, None, (-1,))
    assert [x for one in made for x in one.seen] == [-1] * 4
    assert len(made) == 5


def test_an_innocent_call_beside_a_deadly_one_is_made_again():
    one = Deadly(waits=2)
    evaluators, found = Evaluators(lambda: one), {}

    def call(x):
        try:
            found[x] = evaluators.run(abs, None, (x,))
        except WorkersDied as error:
            found[x] = error

    threads = [threading.Thread(target=call, args=(x,)) for x in (-1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[2] == 2
    assert isinstance(found[-1], WorkersDied)
    assert (one.seen.count(-1), one.seen.count(2)) == (4, 2)


@pytest.mark.parametrize("on_error", ["raise", "reject"])
def test_what_kills_all_its_workers_is_an_error_as_another(on_error, caplog):
    home = os.getpid()

    def simulator(x):
        if x[0] > 0.5 and os.getpid() != home:
            os.kill(os.getpid(), 9)
        return x

    with pm.Model() as model:
        box = pk.black_box(simulator, on_error=on_error)
        pm.Normal("y", box(pm.Normal("x", shape=2)), 1, observed=np.zeros(2))
    step = pk.baselines.RWM(model=model, scaling=1.0)
    options = {"tune": 0, "draws": 5, "chains": 2, "initvals": {"x": np.zeros(2)}}
    options["executor"] = lambda: ProcessPoolExecutor(2, multiprocessing.get_context("spawn"))
    if on_error == "raise":
        with pytest.raises(WorkersDied):
            sample(step, **options)
    else:
        result = sample(step, **options)
        assert (result["posterior"]["x"].values[..., 0] <= 0.5).all()
        assert any("workers died of it in a row" in text for text in messages(caplog))


def test_calls_that_wait_end_with_the_run():
    class Never(Executor):
        def submit(self, *task):
            return Future()

    evaluators, ended = Evaluators(Never()), threading.Event()

    def call():
        with pytest.raises(RunEnded):
            evaluators.run(abs, None, (1,))
        ended.set()

    thread = threading.Thread(target=call)
    thread.start()
    evaluators.end()
    thread.join()
    assert ended.is_set()


def test_an_executor_that_is_shut_down_says_so():
    pool = Threads(1)
    pool.shutdown()
    with pytest.raises(NotHere, match="The executor takes no tasks: cannot schedule"):
        called(pool, abs, 1)
