"""Tasks in a worker: the jobs that it keeps, Ctrl-C, and exceptions that are sent back."""

import pickle
import signal
import sys
import threading
import traceback
from collections import OrderedDict
from contextlib import suppress
from functools import partial
from multiprocessing import parent_process

import cloudpickle
from threadpoolctl import threadpool_limits

from pymc_kameleon.model.entry_points import black_box_ops_silent

MOST_JOBS = 4
"""Jobs that a worker keeps at most; the oldest is forgotten first."""

_jobs, _loading = OrderedDict(), threading.Lock()


def keep_job(job):
    """Let this process, and those that are forked from it, do tasks of a job."""
    _jobs[job.token] = job


def forget_job(job):
    """Forget a job."""
    _jobs.pop(job.token, None)


def do_task(number, token, pickled_job, function, *arguments):
    """Do a task of a job: return ``function(job, *arguments)``, or Failed.

    Each task has a `number`, as some executors answer equal tasks from memory.

    Returns None if this worker does not have the job: the task is then sent again with
    `pickled_job`, which so is sent a few times at most to each worker.
    """
    if token not in _jobs:
        if pickled_job is None:
            return None
        with _loading:
            if token not in _jobs:
                ignore_ctrl_c()
                threadpool_limits(1)  # LAPACK's own threads would fight with other workers
                with black_box_ops_silent():
                    _jobs[token] = cloudpickle.loads(pickled_job)
                while len(_jobs) > MOST_JOBS:
                    _jobs.popitem(last=False)
    try:
        return function(_jobs[token], *arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return Failed(error)
    except BaseException as error:  # a likelihood that calls sys.exit
        explained = RuntimeError(f"The model raised {error!r}, which would end Python.")
        explained.__notes__, explained.__cause__ = getattr(error, "__notes__", []), error
        return Failed(explained)


def ignore_ctrl_c():
    """Ignore Ctrl-C, which a terminal sends to all processes: the parent handles it."""
    if parent_process() is None:
        return
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    if threading.current_thread() is threading.main_thread():
        ignore()
    elif "distributed" in sys.modules:  # Dask does tasks in threads, and all else in the main one
        with suppress(ValueError):  # no worker of Dask
            sys.modules["distributed"].get_worker().loop.add_callback(ignore)


class WorkerTraceback(Exception):
    """The traceback of another process, as text."""

    def __str__(self):
        return f"\n{self.args[0]}"


class Failed:
    """An exception that a task raised, as opposed to the death of its worker.

    Attributes
    ----------
    error : Exception
        With its traceback, which is its cause if it comes from another process.
    """

    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        text = "".join(traceback.format_exception(self.error))
        try:
            pickle.loads(pickle.dumps(self.error))
            return self.error, text
        except Exception:  # of its own kind, with arguments that do not travel
            error = RuntimeError(f"{type(self.error).__name__}: {self.error}")
            error.__notes__ = getattr(self.error, "__notes__", [])
            return error, text

    def __setstate__(self, state):
        self.error, text = state
        self.error.__cause__ = WorkerTraceback(text)
