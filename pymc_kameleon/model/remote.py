"""What is done in workers of an executor, which need numpy, cloudpickle and what a function needs.

This module is not there. So what is here travels by value, and nothing is imported that is ours.
"""

import importlib
import os
import pickle
import signal
import sys
import threading
import time
import traceback
from contextlib import suppress
from multiprocessing import parent_process
from numbers import Number

import cloudpickle

RETURNED, RAISED, LATE, LACKS, REFUSED, STAYS = range(6)
"""What comes of a call: a value; an exception; it took too long; the worker lacks the function; it
cannot call it; or what it returned cannot travel."""

MOST_KEPT = 64
"""Functions that a worker keeps at most, over all runs; the oldest is forgotten first."""


class TooLong(BaseException):
    """A call has taken longer than it may. No ``except Exception`` of the function stops it."""


class NotHere(ValueError):
    """Here a function cannot be called, or not be stopped, whatever its inputs are."""


def call(name, number, parcel, key, timeout, inputs):
    """Return what comes of a call of a function, see `Worker.call`.

    Parameters
    ----------
    name : str
        Under which the Worker of this process is kept, among the modules.
    number : int
        Of the call: some executors answer equal ones from memory.
    parcel : tuple or None
        For a process that lacks something: the class Worker, pickled, and what that takes.
    """
    worker = sys.modules.get(name)
    if worker is None:
        if parcel is None:
            return (LACKS,)
        worker = sys.modules.setdefault(name, pickle.loads(parcel[0])())
    return worker.call(parcel and parcel[1:], key, timeout, inputs)


class Worker:
    """What a process keeps from call to call: functions by their keys."""

    def __init__(self):
        self._functions = {}

    def call(self, parcel, key, timeout, inputs):
        """Return what comes of a call of a function that is kept, or comes now."""
        if key not in self._functions:
            if parcel is None:
                return (LACKS,)
            try:
                self._keep(key, *parcel)
            except Exception as error:
                return REFUSED, (
                    f"a worker cannot open it ({type(error).__name__}: {error}). Workers need the "
                    "same version of Python, numpy, cloudpickle, and what the function imports."
                )
        return travelling(*attempt(self._functions[key], timeout, inputs))

    def _keep(self, key, pickled, jax_doubles):
        ignore_ctrl_c()
        with suppress(ImportError):  # which not all need
            importlib.import_module("threadpoolctl").threadpool_limits(1)
        set_jax_doubles(jax_doubles)
        self._functions[key] = cloudpickle.loads(pickled)
        while len(self._functions) > MOST_KEPT:
            del self._functions[next(iter(self._functions))]


def uses_jax_doubles():
    """Whether JAX computes with 64 bits here, which a program has to say: workers do not know."""
    jax = sys.modules.get("jax")
    return jax is not None and bool(jax.config.jax_enable_x64)


def set_jax_doubles(wanted):
    """Let JAX compute with 64 bits in this process, if that is wanted."""
    if wanted:
        os.environ["JAX_ENABLE_X64"] = "1"  # which it reads when it is imported
        if jax := sys.modules.get("jax"):
            jax.config.update("jax_enable_x64", True)


def belong_to_parent():
    """Let this process ignore Ctrl-C, and end when its parent has ended."""
    ignore_ctrl_c()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent():
    parent_process().join()
    os._exit(1)


def ignore_ctrl_c():
    """Ignore Ctrl-C, which a terminal sends to all processes: the parent handles it."""
    if parent_process() is None:
        return

    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    if threading.current_thread() is threading.main_thread():
        ignore()
    elif "distributed" in sys.modules:  # Dask does tasks in threads, and all else in the main one
        with suppress(ValueError):  # no worker of Dask
            sys.modules["distributed"].get_worker().loop.add_callback(ignore)


def attempt(function, timeout, inputs):
    """Return what comes of a call: a kind, and a value, an exception, or why it is refused."""
    try:
        return RETURNED, within(timeout, function, *inputs)
    except TooLong:
        return (LATE,)
    except NotHere as error:
        return REFUSED, str(error)
    except BaseException as error:
        return RAISED, error


def travelling(kind, *found):
    """Return what comes of a call so that it can be sent."""
    if kind == RAISED:
        return kind, *sendable(*found)
    if kind == RETURNED and not _can_travel(*found):
        return STAYS, type(*found).__name__
    return kind, *found


def _can_travel(value):
    if isinstance(value, tuple | list):
        return all(map(_can_travel, value))
    if isinstance(value, Number) or not getattr(getattr(value, "dtype", None), "hasobject", True):
        return True
    try:
        pickle.loads(pickle.dumps(value))
    except Exception:
        return False
    return True


def sendable(error):
    """Return an exception, and its traceback as text, as that does not travel with it."""
    text = "".join(traceback.format_exception(error))
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # of its own kind, with arguments that do not travel
        notes = getattr(error, "__notes__", [])
        error = RuntimeError(f"{type(error).__name__}: {error}")
        error.__notes__ = notes
    return error, text


def within(seconds, function, *arguments):
    """Return ``function(*arguments)``; raise TooLong if that takes longer, where Python goes on.

    Without a limit if `seconds` is None.

    Raises
    ------
    NotHere
        In any but the main thread of a process, which alone hears of signals.
    """
    if seconds is None:
        return function(*arguments)
    if threading.current_thread() is not threading.main_thread():
        raise NotHere(
            "its timeout needs calls in the main thread of a process. So call pk.sample from "
            "there, and leave out an executor that does tasks in threads."
        )
    begun, handler = time.monotonic(), signal.signal(signal.SIGALRM, _ring)
    # It rings again, in case the first exception was lost in a callback of C.
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        try:
            return function(*arguments)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            left = max(1e-6, left - (time.monotonic() - begun))
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _ring(number, frame):
    raise TooLong
