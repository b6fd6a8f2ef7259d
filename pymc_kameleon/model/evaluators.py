"""Functions of black boxes that an executor calls: what is sent to it, and what comes back.

A worker gets each function once, by value where it has no importable name. Where a worker dies, the
calls under way are made again, one at a time, so that only one that kills its worker is counted.
"""

import io
import threading
from concurrent.futures import BrokenExecutor, Executor, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import cache
from hashlib import sha256
from itertools import count

import cloudpickle
from pytensor.compile.ops import FromFunctionOp

from pymc_kameleon.model import remote
from pymc_kameleon.model.black_boxes import name_of, reduced
from pymc_kameleon.model.gathering import RunEnded, Turns
from pymc_kameleon.model.python_calls import WorkerTraceback, WrongReturn
from pymc_kameleon.model.remote import (
    LACKS,
    LATE,
    RAISED,
    REFUSED,
    STAYS,
    NotHere,
    TooLong,
)

MOST_DEATHS = 3
"""Workers that may die of a call that was made alone, or in a row of draws of a chain."""


class WorkersDied(RuntimeError):
    """Each worker that made a call has died of it."""


class Elsewhere(Turns):
    """Turns in which an executor calls the functions of black boxes."""

    def __init__(self, evaluators):
        super().__init__()
        self._evaluators = evaluators

    def run(self, function, timeout, arguments):
        """Return what a function returns elsewhere."""
        return self._evaluators.run(function, timeout, arguments)


@contextmanager
def calling_elsewhere(evaluators):
    """Let evaluators, unless they are None, call black boxes meanwhile, instead of this thread."""
    with nullcontext() if evaluators is None else Elsewhere(evaluators):
        yield


class Evaluators:
    """Workers of an `executor` that call functions.

    It is as `given`, or returned by that, which is called again if it breaks.
    """

    def __init__(self, given):
        self.given = given
        self._change, self._numbers = threading.Condition(), count()
        self._under_way, self._suspects, self._waits, self._ended = 0, 0, set(), False
        self._parcels = {}
        self.executor = given if isinstance(given, Executor) else self._made(given)

    def _made(self, make):
        made = make()
        if not isinstance(made, Executor):
            raise ValueError(f"executor() must return a concurrent.futures.Executor, not {made!r}.")
        return made

    @property
    def name(self):
        """What it is called."""
        return type(self.executor).__name__

    @property
    def size(self):
        """How many calls are made at a time, 0 if that is not known."""
        if self.is_dask:
            return sum(self.executor._client.nthreads().values())
        return getattr(self.executor, "_max_workers", None) or 0

    @property
    def is_dask(self):
        """Whether these are workers of Dask, which call functions in threads."""
        return hasattr(getattr(self.executor, "_client", None), "nthreads")

    @property
    def are_threads(self):
        """Whether these are threads of this process."""
        return isinstance(self.executor, ThreadPoolExecutor)

    def end(self):
        """Let calls that wait end, by a RunEnded."""
        with self._change:
            self._ended = True
            for wait in self._waits:
                wait.set()
            self._change.notify_all()

    def close(self):
        """End, and shut down what was made here."""
        self.end()
        if self.executor is not self.given:
            self.executor.shutdown(wait=False)  # loky's knows no cancel_futures

    def run(self, function, timeout, arguments):
        """Return what a function returns elsewhere."""
        if timeout is not None and (self.are_threads or self.is_dask):
            raise NotHere(
                "timeout of black_box: its calls cannot be stopped, as this executor does its "
                "tasks in threads; only the main one of a process can be."
            )
        deaths, is_suspect = 0, False
        while True:
            with self._turn(is_suspect):
                executor = self.executor
                tasks = self._tasks(executor, function, timeout, arguments)
                try:
                    kind, *found = self._outcome(tasks)
                    break
                except (RunEnded, NotHere):
                    raise
                except Exception as error:  # not of the function itself
                    self._renew(executor, error)
                    deaths, is_suspect, last = deaths + is_suspect, True, error
            if deaths == MOST_DEATHS:
                raise WorkersDied(
                    f"{MOST_DEATHS} workers died of it in a row ({last!r}): does it take too much "
                    "memory, or crash?"
                ) from last
        if kind == LATE:
            raise TooLong
        if kind == REFUSED:
            raise NotHere(f"`{name_of(function)}` cannot be called elsewhere: {found[0]}")
        if kind == STAYS:
            raise WrongReturn(
                f"`{name_of(function)}` returned {found[0]}, which cannot be sent back. Let it "
                "return real numbers."
            )
        if kind == RAISED:
            error, *seen = found
            if seen:
                error.__cause__ = WorkerTraceback(*seen)
            raise error
        return found[0]

    @contextmanager
    def _turn(self, is_suspect):
        """Wait until calls may be made, a suspect when there is no other one."""
        with self._change:
            self._suspects += is_suspect
            self._change.wait_for(
                lambda: self._ended or not (self._under_way if is_suspect else self._suspects)
            )
            self._under_way += 1
        try:
            yield
        finally:
            with self._change:
                self._under_way -= 1
                self._suspects -= is_suspect
                self._change.notify_all()

    def _tasks(self, executor, function, timeout, arguments):
        """Return what to submit, and to what, until nothing is lacking."""
        if self.are_threads:
            return [(executor.submit, remote.attempt, function, timeout, arguments)]
        name, there, _ = _by_value()
        key, parcel = self._parcel(function)
        return [
            (executor.submit, there, name, next(self._numbers), sent, key, timeout, arguments)
            for sent in (None, parcel)
        ]

    def _outcome(self, tasks):
        for submit, *task in tasks:
            outcome = self._wait(self._submitted(submit, *task))
            if outcome[0] != LACKS:
                break
        return outcome

    def _submitted(self, submit, *task):
        try:
            return submit(*task)
        except BrokenExecutor:
            raise
        except Exception as error:
            raise NotHere(f"The executor takes no tasks: {error}") from error

    def _wait(self, future):
        """Return the result of a future, however long it takes, as long as the run goes on."""
        done = threading.Event()
        with self._change:
            if self._ended:
                raise RunEnded
            self._waits.add(done)
        future.add_done_callback(lambda _: done.set())
        done.wait()
        with self._change:
            self._waits.discard(done)
        if not future.done():
            future.cancel()
            raise RunEnded
        return future.result()

    def _renew(self, executor, error):
        """Make another executor if one is broken, unless another call has done so."""
        if not isinstance(error, BrokenExecutor):
            return
        if isinstance(self.given, Executor):
            raise NotHere(
                f"The executor is broken ({error}). To have a new one made instead, pass a "
                "function: executor=lambda: ProcessPoolExecutor(4)."
            ) from error
        with self._change:
            if executor is self.executor:
                executor.shutdown(wait=False)
                self.executor = self._made(self.given)

    def _parcel(self, function):
        """Return the key of a function, and what a worker needs that lacks it."""
        if function not in self._parcels:
            with _remote_by_value():
                pickled = packed(function)
            parcel = _by_value()[-1], pickled, remote.uses_jax_doubles()
            self._parcels[function] = sha256(pickled).digest(), parcel
        return self._parcels[function]


_packing = threading.Lock()


@contextmanager
def _remote_by_value():
    with _packing:
        cloudpickle.register_pickle_by_value(remote)
        try:
            yield
        finally:
            cloudpickle.unregister_pickle_by_value(remote)


@cache
def _by_value():
    """Return the name of the Worker of a process, what calls that, and its class, pickled."""
    with _remote_by_value():
        worker = cloudpickle.dumps(remote.Worker)
    return f"_pymc_kameleon_{sha256(worker).hexdigest()}", ByValue(remote.call), worker


class ByValue:
    """A function of remote.py, which travels by value."""

    def __init__(self, function):
        self._function = function
        with _remote_by_value():
            self._pickled = cloudpickle.dumps(function)

    def __call__(self, *arguments):
        """Call it here, for an executor of this process."""
        return self._function(*arguments)

    def __reduce__(self):
        return cloudpickle.loads, (self._pickled,)


def packed(value):
    """Return functions, or what holds them, as bytes that a worker can open.

    By value where they have no name that is found by import, as those of a script or notebook.
    """
    file = io.BytesIO()
    try:
        _Pickler(file).dump(value)
    except Exception as error:  # pickling calls what users have written
        error.add_note(
            "The functions of black boxes are pickled to travel to workers, with all that those of "
            "a script or notebook refer to. What cannot be pickled can be made by the function "
            "that needs it, or be in a module that workers import."
        )
        raise
    return file.getvalue()


class _Pickler(cloudpickle.Pickler):
    """Lets functions of a script or notebook travel, of which PyTensor would send the names."""

    def reducer_override(self, obj):
        return reduced(obj) if type(obj) is FromFunctionOp else super().reducer_override(obj)
