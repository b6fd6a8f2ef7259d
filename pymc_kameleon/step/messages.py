"""A message for those who wait for a compiler."""

import logging
import time
from contextlib import contextmanager
from threading import Timer

from pymc_kameleon.findings.words import in_words

_log = logging.getLogger("pymc_kameleon")


@contextmanager
def say_if_compiling(what, seconds=0.5):
    """Log that `what` is compiled, and how long it took, if that is more than a moment."""
    start, said = time.perf_counter(), []

    def say():
        said.append(True)
        _log.info(f"Compiling {what}, once per machine and version …")

    timer = Timer(seconds, say)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
    if said:
        _log.info(f"… compiling {what} done in {in_words(time.perf_counter() - start)}.")
