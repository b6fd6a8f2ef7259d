"""Where the tasks of a run are done: in this thread, in threads, in processes, or elsewhere."""

import logging
import os
import signal
import sys
import threading
import time
import warnings
from concurrent.futures import (
    BrokenExecutor,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from contextlib import contextmanager, nullcontext, suppress
from multiprocessing import current_process

import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.findings.finding import say
from pymc_kameleon.model.black_box import Function
from pymc_kameleon.model.black_boxes import names_of
from pymc_kameleon.model.evaluators import ByValue, Elsewhere, Evaluators
from pymc_kameleon.model.gathering import Gathering
from pymc_kameleon.model.pymc_internals import multiprocessing_context
from pymc_kameleon.model.remote import belong_to_parent
from pymc_kameleon.result.store import DEATH_WAIT
from pymc_kameleon.sampling.without_main import WITHOUT_MAIN
from pymc_kameleon.sampling.worker_process import (
    Packed,
    call_in_process,
    do_in_process,
    do_task,
    set_up_process,
)

_log = logging.getLogger("pymc_kameleon")

SECONDS_IN_PROCESSES, SECONDS_TOGETHER = 0.5, 1.0
"""Time that an advance should take: some fifty times what it costs to send it and back."""

SLOW_CALL = 0.005
"""Seconds of a call from which it is sent alone to a process, which costs about 0.9 ms. From there
on two processes that make calls are as fast as two that have chains: 1.96 times one, with 20 ms."""

POLL_INTERVAL = 0.1
"""Seconds between two looks at what is done, and between two pictures of a bar; and time that an
advance should take in a thread."""

FORK_WAIT, FORK_EVALUATIONS = 10.0, 20
"""In so many seconds, and times that an evaluation takes, a forked process should have made one."""


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
    evaluators = Evaluators(executor, lambda: _fresh_pool(default_cores()))
    try:
        yield evaluators
    finally:
        evaluators.close()


def _fresh_pool(n):
    return ProcessPoolExecutor(n, WITHOUT_MAIN, initializer=ByValue(belong_to_parent))


class CallPools:
    """Makes pools of processes that call functions.

    The first one is made as pm.sample makes processes, so usually by forking, and what the
    functions refer to need not be pickled. By later ones threads run, so that nothing can fork.
    """

    def __init__(self, functions, n, context):
        self.n, self._first = n, (functions, n, context)

    def __call__(self):
        """Return a pool."""
        first, self._first = self._first, None
        return CallPool(*first) if first else _fresh_pool(self.n)


class CallPool(ProcessPoolExecutor):
    """Processes that know functions from their beginning on."""

    def __init__(self, functions, n, context):
        own = Packed(functions)
        super().__init__(n, context, initializer=set_up_process, initargs=(own,))
        self._numbers = {function: i for i, function in enumerate(functions)}
        self.submit(int)  # forks them, before any thread begins

    def submit_call(self, function, timeout, inputs):
        """Return the future of what comes of a call."""
        return self.submit(call_in_process, self._numbers[function], timeout, inputs)


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
        if evaluators is not None and not _has_calls(job):
            evaluators = None
        self._job, self.evaluators = job, evaluators
        self._abandoned, self._broken, self._death, self._pools = False, False, None, None
        self._news = threading.Event()
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
        elif job.holds_gil and not self.gathers:
            self._choose_processes(most)
        self.seconds = SECONDS_IN_PROCESSES if self._in_processes else POLL_INTERVAL
        if self.gathers or evaluators is not None:  # where others wait while one begins and ends
            self.seconds = SECONDS_TOGETHER

    def _choose_processes(self, most):
        """Let tasks be in processes, or in turn: Python does one thing at a time in threads."""
        is_daemon = current_process().daemon  # which may have no children
        self._in_processes = not is_daemon and (self.at_once > 1 or self._job.has_timeout)
        if self._in_processes and not _survives_fork(self._job):
            self._in_processes = False
            say("jax_in_turn")
        if not self._in_processes:
            self.at_once = 1
            return
        ops = self._job.users_ops
        are_slow = all(isinstance(op, Function) and SLOW_CALL < op.seconds < np.inf for op in ops)
        if self.at_once > 1 and self._job.in_numba and are_slow:  # worth being sent one by one
            context = multiprocessing_context(self._job.compile_kwargs)
            functions = [op.function for op in ops]
            self._pools = CallPools(functions, self.at_once, context)
            self._in_processes, self.at_once = False, most

    @property
    def evaluations_at_once(self):
        """How many evaluations are made at a time, None if that is not known."""
        if self._pools is not None:
            return min(self.at_once, self._pools.n)
        if self.evaluators is None:
            return self.at_once
        return min(self.at_once, self.evaluators.size) or None

    def __enter__(self):
        """Start the workers."""
        self._limits = threadpool_limits(1)  # LAPACK's own threads would fight with ours
        if self._pools is not None:
            self.evaluators = Evaluators(self._pools)
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
        if self._pools is not None:
            _kill(self.evaluators.executor._processes or {})
            self.evaluators.close()
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
        boxes = names_of(self._job.users_ops)
        if self._pools is not None:
            return (
                f"Sampling ({chains}, whose calls of {boxes} are made by {self._pools.n} processes)"
            )
        if self.evaluators is not None:
            return f"Sampling by {self.evaluators.name}, which calls {boxes} ({chains})"
        if self._in_processes and self.at_once == 1:
            return f"Sequential sampling ({chains} in turn, in a process of their own)"
        if self.at_once == 1:
            return f"Sequential sampling ({chains} in turn)"
        if self._in_processes:
            why = "as the model calls Python, which only one thread can do at a time"
            return f"Multiprocess sampling ({chains} in {self.at_once} processes, {why})"
        boxes = names_of(self._job.batched)
        together = f", whose calls of {boxes} are made in one" if self.gathers else ""
        return f"Threaded sampling ({chains} in {self.at_once} threads{together})"

    @property
    def why_not_together(self):
        """Why calls of batched black boxes are not made in one, a sentence, or ""."""
        if self.gathers or not self._job.batched or self.at_once == 1:
            return ""
        why = "that takes threads of this process, and no executor"
        if self.evaluators is None:
            why = "that takes a model that numba compiles"
        boxes = names_of(self._job.batched)
        return f"Each chain calls {boxes} for itself. All calls could be made in one: {why}."

    def submit(self, function, *arguments):
        """Return the future of a task."""
        future = self._submitted(function, *arguments)
        future.add_done_callback(lambda future: self._news.set())
        return future

    def _submitted(self, function, *arguments):
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
        self._news.clear()
        if not any(future.done() for future in futures):
            with self._job.turns.of(len(futures)) if self.gathers else nullcontext():
                self._news.wait(seconds)  # concurrent.futures.wait would look at each one again
        return {future for future in futures if future.done()}

    def check_processes(self):
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

    @property
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


def _has_calls(job):
    """Whether an executor has something to do; warn if it has little or nothing."""
    if not any(isinstance(op, Function) for op in job.users_ops):
        say("idle_executor")
        return False
    if not job.in_numba:
        say("executor_in_turn")
    return True


def _check_stoppable(gathers):
    """Raise a ValueError if calls of black boxes cannot be stopped."""
    why = None
    if not hasattr(signal, "setitimer"):
        why = "this system has no timer for it (SIGALRM), as Windows has none"
    elif gathers:
        why = "black_box(batched=True) makes those of all chains in one call; cores=1 does not"
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
