"""A chain's progress as a pure function: ``advance(job, state, n) -> (state, portion)``.

A job is the model and its steps, and travels to each worker once. All else that a chain needs is
its state. So threads, processes, clusters, checkpoints, resuming, and workers that die are one
thing: which states have come back.
"""

import pickle
import signal
import sys
import threading
import time
import traceback
from collections import OrderedDict
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import parent_process
from typing import NamedTuple
from uuid import uuid4

import cloudpickle
import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.approach import OnTheWay
from pymc_kameleon.core.chain import N_LOGP, N_PROGRESS
from pymc_kameleon.draws import compiled_run, learn_together, make_draws, where
from pymc_kameleon.logp import black_box_ops_silent

MOST_JOBS = 4
"""That a worker keeps; the oldest is forgotten first."""


@dataclass
class ChainState:
    """All that a chain needs to go on, to the last bit, wherever it does.

    Attributes
    ----------
    point : (n,) float64
        All value variables, raveled in the model's order.
    steps : list of KameleonState
        What each step needs.
    """

    point: np.ndarray
    steps: list

    @property
    def monitor(self):
        """What the chain has seen; of the draws made, that of any step is right."""
        return self.steps[0].monitor


class Portion(NamedTuple):
    """What an advance makes.

    Attributes
    ----------
    outputs : (n, outputs) float64
        What is kept of each draw; without columns while tuning, unless that is kept.
    stats : list of (n, ...) float64
        Statistics of each step.
    last : list of DrawStats or None
        Of each step, for the progress bar; None if there are no draws yet.
    n_logp : int
        Evaluations of the log-density.
    seconds : float
    """

    outputs: np.ndarray
    stats: list
    last: list
    n_logp: int
    seconds: float


class Job:
    """The model and its steps, compiled: what all chains of a run share.

    Parameters
    ----------
    steps : list of KameleonStep
    outputs : ModelOutputs
        What is kept of each draw.
    keeps_warmup : bool
        Whether it is computed while tuning, too.
    """

    def __init__(self, steps, outputs, keeps_warmup):
        self.steps, self.outputs, self.keeps_warmup = steps, outputs, keeps_warmup
        self.token = uuid4().hex
        self._make_ready()

    def _make_ready(self):
        self.run = compiled_run(self.steps)
        self._idle = []
        # What Python computes is not safe in several threads of a process.
        self.turns = threading.Lock() if self.holds_gil else nullcontext()

    @property
    def holds_gil(self):
        """Whether Python is called, so that threads wait for each other."""
        parts = (self.outputs, *(step.log_density for step in self.steps))
        return any(part.holds_gil for part in parts)

    def width(self, tuning):
        """Return the number of outputs of a draw."""
        return self.outputs.n if self.keeps_warmup or not tuning else 0

    def steps_at(self, state):
        """Return copies of the steps, which are where a chain is."""
        try:
            steps = self._idle.pop()
        except IndexError:
            steps = [step.for_chain() for step in self.steps]
            for step in steps:
                step.setup_chain(0, state.monitor.tune, draws=0)
        for step, own in zip(steps, state.steps, strict=True):
            step.sampling_state = own
        return steps

    def leave(self, steps, point):
        """Return the state of a chain, whose steps others may use from now on."""
        state = ChainState(point, [step.sampling_state for step in steps])
        self._idle.append(steps)
        return state

    def __getstate__(self):
        return {k: v for k, v in self.__dict__.items() if k not in ("run", "_idle", "turns")}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_ready()


def advance(job, state, n):
    """Make n draws of a chain, which are all of tuning or all after it.

    Parameters
    ----------
    job : Job
    state : ChainState
        It is left as it is.
    n : int
        Less are made, none, where a chain takes longer than `PATIENCE` to find the posterior.

    Returns
    -------
    state : ChainState
    portion : Portion

    Raises
    ------
    CannotStart
        If the log-density of a step is not finite where the chain is.
    """
    start = time.perf_counter()
    with job.turns:
        steps, point = job.steps_at(state), state.point.copy()
        monitor = steps[0].monitor
        rows = np.empty((n, job.width(tuning=monitor.done < monitor.tune)))
        progress, begun = np.zeros(N_PROGRESS, np.int64), monitor.done
        try:
            stats = make_draws(job.run, steps, point, n, job.outputs.into(rows), progress)
        except OnTheWay:
            return _on_the_way(job, state, steps, start)
        except BaseException as error:
            error.add_note(where(error, steps, point, begun, progress))
            raise
        if monitor.done == monitor.tune:
            for step in steps:
                step.stop_tuning()
        last = [step.last_draw(own) for step, own in zip(steps, stats, strict=True)]
        told = sum(np.count_nonzero(~np.isnan(own.trail)) for own in state.steps)
        n_logp = int(sum(own[:, N_LOGP].sum() for own in stats)) - told
        new = job.leave(steps, point)
    return new, Portion(rows, stats, last, n_logp, time.perf_counter() - start)


def _on_the_way(job, state, steps, start):
    """Return a chain that has no draws yet, but has seen more of its way to the posterior."""
    trails = [step.trail.copy() for step in steps]
    known = sum(np.count_nonzero(~np.isnan(trail)) for trail in trails)
    before = sum(np.count_nonzero(~np.isnan(own.trail)) for own in state.steps)
    job.leave(steps, state.point)
    own = [replace(own, trail=trail) for own, trail in zip(state.steps, trails, strict=True)]
    rows = np.empty((0, job.width(tuning=True)))
    stats = [step.empty_stats(0) for step in steps]
    seconds = time.perf_counter() - start
    return ChainState(state.point, own), Portion(rows, stats, None, known - before, seconds)


def learn(job, states):
    """Let the steps of all chains learn together, as is due before their next draw.

    Parameters
    ----------
    job : Job
    states : list of ChainState
        Of all chains, which have made the same number of draws.

    Returns
    -------
    list of ChainState
    """
    with job.turns:
        chains = [job.steps_at(state) for state in states]
        for k in range(len(job.steps)):
            points = [state.point for state in states]
            learn_together([chain[k] for chain in chains], points)
        pairs = zip(chains, states, strict=True)
        return [job.leave(chain, state.point) for chain, state in pairs]


# ---- in a worker --------------------------------------------------------------------------------


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
