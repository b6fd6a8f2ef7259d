"""Where the tasks of a run are done: in this thread, in threads, in processes, or elsewhere."""

import logging
import os
import signal
import sys
import time
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import contextmanager, nullcontext
from multiprocessing import current_process

import cloudpickle
from threadpoolctl import threadpool_limits

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.findings.finding import say
from pymc_kameleon.model.black_box import Function
from pymc_kameleon.model.black_boxes import names_of
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.evaluators import Elsewhere, Evaluators, packed
from pymc_kameleon.model.gathering import Gathering
from pymc_kameleon.model.pymc_internals import multiprocessing_context
from pymc_kameleon.model.python_calls import WorkerTraceback
from pymc_kameleon.model.remote import belong_to_parent, sendable, set_jax_doubles, uses_jax_doubles
from pymc_kameleon.result.store import DEATH_WAIT

_log = logging.getLogger("pymc_kameleon")

SECONDS_AWAY = 0.5
"""Time that an advance should take where others wait while one begins and ends, or in a process:
some fifty times what it costs to send it and back."""

POLL_INTERVAL = 0.1
"""Seconds between two looks at what is done, and between two pictures of a bar; and time that an
advance should take in a thread."""


def default_cores():
    """Return how many chains advance at a time by default: one per processor, at most 4."""
    return min(CHAINS, os.cpu_count() or 1)


@contextmanager
def evaluators_of(executor):
    """Yield the Evaluators of an executor as a user passes it, None without one."""
    if executor is None:
        yield None
        return
    if hasattr(executor, "get_executor"):
        raise ValueError("executor takes what the Dask client gives: client.get_executor().")
    if not isinstance(executor, Executor) and not callable(executor):
        raise ValueError(
            "executor must be a concurrent.futures.Executor, or a callable that returns one, not "
            f"{executor!r}."
        )
    evaluators = Evaluators(executor)
    try:
        yield evaluators
    finally:
        evaluators.close()


class OneByOne(Executor):
    """Does each task at once, in the thread that submits it."""

    def submit(self, function, /, *arguments):
        """Return a future that is done."""
        future = Future()
        try:
            future.set_result(function(*arguments))
        except Exception as error:
            future.set_exception(error)
        return future


class Workers:
    """Where the tasks of a run are done: in this thread, in threads, or in processes of ours.

    `most` tasks may be done at a time. Of those that call black boxes themselves these are as many
    as `cores`, by default one per processor, at most 4, or all where their calls are made in one;
    `evaluators` call black boxes instead. There should be `at_once` tasks, of so many `seconds`
    each. If it `gathers`, they are done in threads, whose calls of batched black boxes are made in
    one.
    """

    def __init__(self, job, most, cores=None, evaluators=None):
        if evaluators is not None and not _has_calls(job, evaluators):
            evaluators = None
        self._job, self.evaluators = job, evaluators
        self._abandoned, self._broken, self._death = False, False, None
        can_gather = evaluators is None and job.batched and job.in_numba
        self.at_once = min(most, cores or (most if can_gather else default_cores()))
        self.gathers = bool(can_gather) and self.at_once > 1
        if job.has_timeout:
            _check_stoppable(self.gathers)
        self._in_processes = False
        if evaluators is not None:
            self.at_once = most if job.in_numba else 1
            if cores is not None:
                _log.info(f"cores={cores} is not used: the executor has its own workers.")
        elif job.holds_gil and not self.gathers:  # Python does one thing at a time in threads
            several = self.at_once > 1 or job.has_timeout
            self._in_processes = several and _can_have_processes(job)
            self.at_once = self.at_once if self._in_processes else 1
        here = evaluators is None and not self._in_processes and not self.gathers
        self.seconds = POLL_INTERVAL if here else SECONDS_AWAY

    @property
    def evaluations_at_once(self):
        """How many evaluations are made at a time."""
        size = self.evaluators.size if self.evaluators else None
        return min(self.at_once, size or self.at_once)

    def __enter__(self):
        """Start the workers."""
        self._limits = threadpool_limits(1)  # LAPACK's own threads would fight with ours
        if self.evaluators is not None:
            self._job.turns = Elsewhere(self.evaluators)
        if self.gathers:
            self._job.turns = Gathering(self._job.batched)
        self._executor = self._new_executor()
        return self

    def __exit__(self, *error):
        """Stop, after the tasks that are being done."""
        if self._in_processes:
            self.abandon()  # shutdown waits for ever if a process dies just now
        if self.gathers:
            self._job.turns.end()  # or for a call that is never made
        if self.evaluators is not None:
            self.evaluators.end()
        self._executor.shutdown(wait=not self._abandoned, cancel_futures=True)
        self._limits.restore_original_limits()

    def _new_executor(self):
        if not self._in_processes:
            return OneByOne() if self.at_once == 1 else ThreadPoolExecutor(self.at_once)
        context = multiprocessing_context(self._job.compile_kwargs)
        own = Packed(self._job)
        pool = ProcessPoolExecutor(
            self.at_once, context, initializer=set_up_process, initargs=(own,)
        )
        pool.submit(int)  # forks them, before the progress bar begins a thread
        return pool

    def described(self, chains):
        """Return in words where so many chains, "4 chains", are sampled."""
        if self.evaluators is not None:
            boxes = names_of(self._job.users_ops)
            return f"Sampling by {self.evaluators.name}, which calls {boxes} ({chains})"
        if self.at_once == 1:
            where = ", in a process of their own" if self._in_processes else ""
            return f"Sequential sampling ({chains} in turn{where})"
        if self._in_processes:
            return f"Multiprocess sampling ({chains} in {self.at_once} processes)"
        boxes = names_of(self._job.batched)
        together = f", whose calls of {boxes} are made in one" if self.gathers else ""
        return f"Threaded sampling ({chains} in {self.at_once} threads{together})"

    def submit(self, function, *arguments):
        """Return the future of a task."""
        try:
            if self._broken:
                self._broken = False
                self._executor.shutdown(wait=False, cancel_futures=True)
                self._executor = self._new_executor()
            if self._in_processes:
                return self._executor.submit(do_in_process, function, *arguments)
            return self._executor.submit(do_task, self._job, function, *arguments)
        except BrokenExecutor as error:
            future = Future()
            future.set_exception(error)
            return future

    def wait(self, futures, seconds):
        """Wait until one of these, all that there are, is done, or so long; return those done."""
        with self._job.turns.of(len(futures)) if self.gathers else nullcontext():
            done = wait(futures, seconds, FIRST_COMPLETED).done
        self._check_processes()
        return done

    def _check_processes(self):
        """Break a pool that waits for the rest of what a worker was sending when it died.

        Others wait for that, too, as they may not send before it has: nothing would ever come.
        """
        processes = getattr(self._pool, "_processes", None)
        queue = getattr(self._pool, "_result_queue", None)
        if not processes or queue is None:  # no pool of processes
            return
        if all(process.is_alive() for process in [*processes.values()]):
            self._death = None
        elif self._death is None:
            self._death = time.monotonic()  # usually the pool sees it at once
        elif time.monotonic() - self._death > DEATH_WAIT:
            self._death = None
            _kill(processes)
            queue._writer.close()  # so it stops waiting, as nobody is left to send

    def has_no_workers(self):
        """Whether a cluster of Dask has no workers, and waits for some that may never come.

        Ctrl-C in a terminal ends those of the same terminal that are just beginning.
        """
        by = self.evaluators
        return by is not None and by.is_dask and by.size == 0

    def note_error(self, error):
        """Note an exception that is not the task's own: the next task goes elsewhere."""
        self._broken = self._broken or isinstance(error, BrokenExecutor)

    def abandon(self):
        """Give up tasks that hang; kill our own processes."""
        self._abandoned = True
        if self.evaluators is not None:
            self.evaluators.end()
        _kill(getattr(self._executor, "_processes", None) or {})

    @property
    def _pool(self):
        """What may be a pool of processes that die."""
        return self._executor if self.evaluators is None else self.evaluators.executor


def _has_calls(job, evaluators):
    """Whether an executor has something to do; warn if it has little or nothing."""
    if not any(isinstance(op, Function) for op in job.users_ops):
        say("idle_executor")
        return False
    if not job.in_numba:
        say("executor_in_turn")
    alone = [op for op in job.users_ops if not isinstance(op, Function)]
    if evaluators.are_threads and alone:
        say("one_thread_at_a_time", boxes=names_of(alone))
    return True


def _can_have_processes(job):
    """Whether tasks may be in processes: a daemon may have no children, and JAX's threads none."""
    if current_process().daemon:
        return False
    context = multiprocessing_context(job.compile_kwargs)
    if context.get_start_method() == "fork" and _jax_is_in_use():
        say("jax_in_turn")
        return False
    return True


def _jax_is_in_use():
    """Whether JAX has begun its threads in this process, which a forked one does not have."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and getattr(bridge, "backends_are_initialized", lambda: True)()


def _check_stoppable(gathers):
    """Raise a ValueError if calls of black boxes cannot be stopped."""
    why = None
    if not hasattr(signal, "setitimer"):
        why = "this system has no timer for it (SIGALRM), as Windows has none"
    elif gathers:
        why = "black_box(batched=True) makes those of all chains in one call; cores=1 does not"
    if why:
        raise ValueError(f"timeout of black_box: its calls cannot be stopped, as {why}.")


# ---- tasks --------------------------------------------------------------------------------------


def do_task(job, function, *arguments):
    """Do a task of a job: return ``function(job, *arguments)``, or Failed."""
    try:
        return function(job, *arguments)
    except KeyboardInterrupt:
        raise
    except Exception as error:
        return Failed(error)
    except BaseException as error:  # a likelihood that calls sys.exit
        explained = RuntimeError(f"The model raised {error!r}, which would end Python.")
        explained.__notes__, explained.__cause__ = getattr(error, "__notes__", []), error
        return Failed(explained)


class Failed:
    """An exception that a task raised, as opposed to the death of its worker."""

    def __init__(self, error):
        self.error = error

    def __getstate__(self):
        return sendable(self.error)

    def __setstate__(self, state):
        self.error, text = state
        self.error.__cause__ = WorkerTraceback(text)


# ---- processes ----------------------------------------------------------------------------------

_jobs = []
"""The job of this process, last, if it is one of ours."""


class Packed:
    """A job, pickled only where a process does not inherit it."""

    def __init__(self, job):
        self.job = job

    def __reduce__(self):
        return _opened, (packed(self.job), uses_jax_doubles())


def _opened(pickled, jax_doubles):
    set_jax_doubles(jax_doubles)
    with black_box_ops_silent():
        return Packed(cloudpickle.loads(pickled))


def set_up_process(own):
    """Let this process do tasks of a job, ignore Ctrl-C, and end when its parent has ended."""
    _jobs.append(own.job)
    belong_to_parent()
    threadpool_limits(1)  # LAPACK's own threads would fight with those of others


def do_in_process(function, *arguments):
    """Do a task of the job of this process."""
    return do_task(_jobs[-1], function, *arguments)


def _kill(processes):
    for process in [*processes.values()]:
        process.kill()
