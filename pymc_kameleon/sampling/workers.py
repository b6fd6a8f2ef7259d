"""Where the tasks of a run are done: in this thread, in threads, in processes, or elsewhere."""

import logging
import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import (
    FIRST_COMPLETED,
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from itertools import count
from multiprocessing import current_process, parent_process

from threadpoolctl import threadpool_limits

from pymc_kameleon.model.black_boxes import name_of
from pymc_kameleon.model.pymc_internals import multiprocessing_context
from pymc_kameleon.sampling.worker_process import (
    Lacks,
    Parcel,
    do_task,
    forget_job,
    ignore_ctrl_c,
    keep_job,
)

_log = logging.getLogger("pymc_kameleon")

SECONDS_IN_THREADS, SECONDS_IN_PROCESSES, SECONDS_ELSEWHERE = 0.1, 0.5, 1.0
"""Time that an advance should take: some fifty times what it costs to send it and back."""

DEATH_WAIT = 2.0
"""Seconds in which a pool should see that one of its processes has died."""

FORK_WAIT, FORK_EVALUATIONS = 10.0, 20
"""In so many seconds, and times that an evaluation takes, a forked process should have made one."""

TASKS_WITH_JOB = 8
"""Tasks that are sent with the job when a worker had none: we cannot choose the worker."""


def size_of(executor):
    """Return how many tasks an executor does at a time, 0 if that is not known."""
    client = getattr(executor, "_client", None)
    if hasattr(client, "nthreads"):  # Dask's
        return sum(client.nthreads().values())
    return getattr(executor, "_max_workers", None) or 0


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
    """Where the tasks of a run are done.

    Parameters
    ----------
    job : Job
    cores : int
        How many tasks to do at a time, if no executor is given.
    executor : concurrent.futures.Executor or callable, optional
        A callable returns one, and is called again if that breaks.

    Attributes
    ----------
    given : concurrent.futures.Executor, callable or None
        That of the user.
    gathers : bool
        Whether tasks are done in threads, whose calls of batched black boxes are made in one.
    shares_threads : bool
        Whether tasks are done in the user's threads, which call black boxes at the same time.
    """

    def __init__(self, job, cores, executor=None):
        self._job, self.given = job, executor
        # Tasks to submit at a time, None for all; and how long one should take.
        self.at_once, self.seconds = None, SECONDS_ELSEWHERE
        self._own, self._abandoned, self._broken = executor is None, False, False
        self._numbers, self._tasks_with_job, self._death = count(), 0, None
        self._sends_functions = False
        self.gathers, self._gathering = self._own and cores > 1 and job.can_gather, None
        self.shares_threads = self._can_share(executor)
        # A daemon may have no children.
        self._alone = job.holds_gil and not self.gathers and current_process().daemon
        if job.has_timeout:
            _check_stoppable(executor, self.gathers)
        if self._own:
            self.at_once = 1 if self._alone else cores
            if self._in_processes and not _survives_fork(job):
                self._alone, self.at_once = True, 1
                _log.warning(
                    "The model calls JAX, which hangs in processes that are forked from this one. "
                    "So chains are sampled in turn. multiprocessing.set_start_method('forkserver') "
                    "at the beginning of a program lets them be in processes."
                )
            if not self.gathers:  # where those that come back are waited for by all others
                self.seconds = SECONDS_IN_PROCESSES if self._in_processes else SECONDS_IN_THREADS

    @property
    def _in_processes(self):
        """Whether chains are in processes; one alone is where its evaluations are to be stopped."""
        holds_gil = self._job.holds_gil and not self.gathers
        several = self._own and holds_gil and not self._alone
        return several and (self.at_once > 1 or self._job.has_timeout)

    def _can_share(self, executor):
        return isinstance(executor, ThreadPoolExecutor) and self._job.can_share_threads

    def __enter__(self):
        """Start the workers."""
        self._executor = self._new_executor()
        if self._job.has_timeout and not self._own:
            _check_stoppable(self._executor, self.gathers)
        keep_job(self._job)
        if self.gathers:
            self._gathering = self._job.gather()
        self.shares_threads = self._can_share(self._executor) and not self._own
        if self.shares_threads:
            self._job.share_threads()
        self._limits = threadpool_limits(1)  # LAPACK's own threads would fight with ours
        if self._in_processes:
            self._executor.submit(int)  # forks them, before the progress bar begins a thread
        return self

    def __exit__(self, *error):
        """Stop, after the tasks that are being done."""
        if self._in_processes:
            self.abandon()  # shutdown waits for ever if a process dies just now
        if self.gathers:
            self._gathering.end()  # or for a call that is never made
        if self._own:
            self._executor.shutdown(wait=not self._abandoned, cancel_futures=True)
        elif self._executor is not self.given:  # it was made here
            self._executor.shutdown(wait=False)  # loky's knows no cancel_futures
        self._limits.restore_original_limits()
        forget_job(self._job)

    def _new_executor(self):
        if not self._own:
            made = self.given if isinstance(self.given, Executor) else self.given()
            if not isinstance(made, Executor):
                raise ValueError(
                    f"executor() must return a concurrent.futures.Executor, not {made!r}."
                )
            return made
        if self._in_processes:
            context = multiprocessing_context(self._job.compile_kwargs)
            return ProcessPoolExecutor(self.at_once, context, initializer=_set_up_process)
        return OneByOne() if self.at_once == 1 else ThreadPoolExecutor(self.at_once)

    def described(self, chains):
        """Return in words where so many chains, "4 chains", are sampled."""
        if not self._own:
            name = type(self.given).__name__ if isinstance(self.given, Executor) else "executors"
            return f"Sampling by {name} ({chains})"
        if self._in_processes and self.at_once == 1:
            return f"Sequential sampling ({chains} in turn, in a process of their own)"
        if self.at_once == 1:
            return f"Sequential sampling ({chains} in turn)"
        if self._in_processes:
            why = "as the model calls Python, which only one thread can do at a time"
            return f"Multiprocess sampling ({chains} in {self.at_once} processes, {why})"
        together = f", whose calls of {self._batched} are made in one" if self.gathers else ""
        return f"Threaded sampling ({chains} in {self.at_once} threads{together})"

    @property
    def _batched(self):
        return ", ".join(sorted(f"`{name_of(op)}`" for op in self._job.batched))

    @property
    def why_not_together(self):
        """Why calls of batched black boxes are not made in one, a sentence, or ""."""
        if self.gathers or not self._job.batched or self.at_once == 1:
            return ""
        why = "that takes threads of this process, and no executor"
        if self._own:
            why = "that takes a model that numba compiles"
        return (
            f"Each chain calls {self._batched} for itself. All calls could be made in one: {why}."
        )

    @cached_property
    def _parcel(self):
        return Parcel.of(self._job)

    def submit(self, function, *arguments, lacks=None):
        """Return the future of a task: a Lacks if it has to be sent again, as a worker lacks that.

        From the first one on that lacks the compiled functions they are sent, too, with the job.
        """
        self._tasks_with_job = TASKS_WITH_JOB if lacks else max(0, self._tasks_with_job - 1)
        self._sends_functions = self._sends_functions or lacks is Lacks.FUNCTIONS
        parcel = self._parcel if self._tasks_with_job else None
        if parcel and not self._sends_functions:
            parcel = replace(parcel, functions=None)
        try:
            if self._broken:
                self._renew()
            number, token = next(self._numbers), self._job.token
            return self._executor.submit(do_task, number, token, parcel, function, *arguments)
        except BrokenExecutor as error:
            future = Future()
            future.set_exception(error)
            return future
        except Exception as error:
            raise RuntimeError(f"The executor takes no tasks: {error}") from error

    def do(self, function, *arguments):
        """Do a task here, and return what it gives, or Failed."""
        return do_task(next(self._numbers), self._job.token, None, function, *arguments)

    def wait(self, futures, seconds):
        """Wait until one of these, all that there are, is done, or so long; return those done."""
        if not self.gathers:
            return wait(futures, seconds, FIRST_COMPLETED).done
        with self._gathering.of(sum(not future.done() for future in futures)):
            return wait(futures, seconds, FIRST_COMPLETED).done

    def check_processes(self):
        """Break a pool that waits for the rest of what a worker was sending when it died.

        Others wait for that, too, as they may not send before it has: nothing would ever come.
        """
        processes = getattr(self._executor, "_processes", None)
        queue = getattr(self._executor, "_result_queue", None)
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

    @property
    def has_no_workers(self):
        """Whether a cluster of Dask has no workers, and waits for some that may never come.

        Ctrl-C in a terminal ends those of the same terminal that are just beginning.
        """
        client = getattr(self._executor, "_client", None)
        return hasattr(client, "nthreads") and not client.nthreads()

    def note_error(self, error):
        """Note an exception that is not the task's own: the next task goes elsewhere."""
        self._broken = self._broken or isinstance(error, BrokenExecutor)

    def _renew(self):
        self._broken = False
        if not self._own and isinstance(self.given, Executor):
            self.at_once = os.cpu_count() or 1
            self.seconds, self._own = SECONDS_IN_PROCESSES, True
            _log.warning(
                "The executor is broken, so the chains go on on this machine. To have a new one "
                "made instead, pass a function: executor=lambda: ProcessPoolExecutor(4)."
            )
        elif self._own:
            self._executor.shutdown(wait=False, cancel_futures=True)
        self._executor = self._new_executor()

    def abandon(self):
        """Give up tasks that hang; kill our own processes."""
        self._abandoned = True
        if self._own:
            _kill(getattr(self._executor, "_processes", None) or {})


def _check_stoppable(executor, gathers):
    """Raise a ValueError if calls of black boxes cannot be stopped."""
    why = None
    if not hasattr(signal, "setitimer"):
        why = "this system has no timer for it (SIGALRM), as Windows has none"
    elif gathers:
        why = "black_box(batched=True) makes those of all chains in one call; cores=1 does not"
    elif isinstance(executor, ThreadPoolExecutor) or hasattr(executor, "_client"):
        why = "this executor does its tasks in threads; only the main one of a process can be"
    if why:
        raise ValueError(f"timeout of black_box: its calls cannot be stopped, as {why}.")


def _survives_fork(job):
    """Whether the log-density can be evaluated in forked processes; without JAX it can.

    JAX's threads are not there in a process that is forked. What waits for them waits for ever, but
    not all that JAX computes does.
    """
    context = multiprocessing_context(job.compile_kwargs)
    if context.get_start_method() != "fork" or not _jax_is_in_use():
        return True
    process = context.Process(target=_evaluate_once, args=(job,), daemon=True)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", r"os\.fork\(\) was called", RuntimeWarning)  # JAX's own
        process.start()
    process.join(FORK_WAIT + FORK_EVALUATIONS * job.seconds_per_logp)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    return True


def _jax_is_in_use():
    """Whether JAX has begun its threads in this process."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    return bridge is not None and getattr(bridge, "backends_are_initialized", lambda: True)()


def _evaluate_once(job):
    with suppress(BaseException):  # the chains meet it, too
        job.evaluate_once()


def _kill(processes):
    for process in [*processes.values()]:
        process.kill()


def _end_with_parent():
    parent_process().join()
    os._exit(1)


def _set_up_process():
    """Ignore Ctrl-C, and end when the parent has ended."""
    ignore_ctrl_c()
    threading.Thread(target=_end_with_parent, daemon=True).start()
