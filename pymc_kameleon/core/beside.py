"""Compilation in another process, beside what this one compiles meanwhile."""

import os
import signal
import sys
import threading
import warnings
from contextlib import contextmanager, suppress

from numba import config, typeof

from pymc_kameleon.core.compiler import entry_point
from pymc_kameleon.core.numba_cache import Cache


@contextmanager
def compiled_beside(dispatcher, *arguments):
    """Compile `dispatcher` for these arguments in a child process, while the block runs.

    The child keeps the machine code on disk, where `specialise` finds it; if that is called before
    the child has ended, it waits. Yields whether there is a child: on Linux, with two processors,
    if the code is not on disk. The child is a fork, which shares what was imported, and all that
    the types refer to. It would wait for ever for what another thread of Python holds, such as the
    lock of an import, so there is none in a program with threads, such as a notebook.
    """
    types = () if config.DISABLE_JIT else tuple(typeof(argument) for argument in arguments)
    child = None
    if types and _pays(dispatcher, types):
        with suppress(OSError):  # there may be no more processes, or memory for one
            child = _fork(lambda: entry_point(dispatcher, types))
    if child is None:
        yield False
        return
    try:
        yield True
    finally:  # nobody needs it any longer
        with suppress(ProcessLookupError, ChildProcessError):  # the program ignores SIGCHLD
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _pays(dispatcher, types):
    if sys.platform != "linux" or len(os.sched_getaffinity(0)) < 2 or threading.active_count() > 1:
        return False
    return isinstance(dispatcher._cache, Cache) and not dispatcher._cache.holds(types)


def _fork(work):
    """Return the number of a child that does the work and ends; its errors come again here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of BLAS's threads, which the child does not use
        child = os.fork()
    if child == 0:
        try:
            for number in signal.valid_signals():  # the program's handlers are not for the child
                if callable(signal.getsignal(number)):
                    signal.signal(number, signal.SIG_DFL)
            work()
        finally:
            os._exit(0)
    return child
