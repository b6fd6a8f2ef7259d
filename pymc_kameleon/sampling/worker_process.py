"""Tasks in a worker: the jobs that it keeps, Ctrl-C, and exceptions that travel."""

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
"""That a worker keeps; the oldest is forgotten first."""

_jobs, _arriving = OrderedDict(), threading.Lock()


def hold(job):
    """Let this process, and those that are forked from it, do tasks of a job."""
    _jobs[job.token] = job


def release(job):
    """Forget a job."""
    _jobs.pop(job.token, None)


def work(number, token, luggage, function, *arguments):
    """Do a task of a job: return ``function(job, *arguments)``, or Failed.

    Its `number` is its own, as some executors answer equal tasks with what they remember.

    None is returned if the job has not arrived here: the task has to come again with its
    `luggage`, the pickled job. So that travels a few times at most to each worker.
    """
    if token not in _jobs:
        if luggage is None:
            return None
        with _arriving:
            if token not in _jobs:
                leave_ctrl_c()
                threadpool_limits(1)  # LAPACK's own threads would fight with other workers
                with black_box_ops_silent():
                    _jobs[token] = cloudpickle.loads(luggage)
                while len(_jobs) > MOST_JOBS:
                    _jobs.popitem(last=False)
    try:
        return function(_jobs[token], *arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return Failed(error)
    except BaseException as error:  # a likelihood that calls sys.exit
        told = RuntimeError(f"The model raised {error!r}, which would end Python.")
        told.__notes__, told.__cause__ = getattr(error, "__notes__", []), error
        return Failed(told)


def leave_ctrl_c():
    """Leave Ctrl-C, which a terminal sends to all processes, to the one that began this one."""
    if parent_process() is None:
        return
    ignore = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    if threading.current_thread() is threading.main_thread():
        ignore()
    elif "distributed" in sys.modules:  # Dask does tasks in threads, and all else in the main one
        with suppress(ValueError):  # no worker of Dask
            sys.modules["distributed"].get_worker().loop.add_callback(ignore)


class InWorker(Exception):
    """What a traceback in another process says."""

    def __str__(self):
        return f"\n{self.args[0]}"


class Failed:
    """What a task raised, to be told from a worker that dies.

    Attributes
    ----------
    error : Exception
        With its traceback. After a journey from another process that is told as its cause.
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
        self.error.__cause__ = InWorker(text)
