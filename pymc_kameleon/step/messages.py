"""Numbers and lists in words, and a message for those who wait for a compiler."""

import logging
import time
from contextlib import contextmanager
from threading import Timer

from pymc_kameleon.model.layout import MOST_IN_WORDS

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


def say_each_once(notes):
    """Log what is not empty of these, each once."""
    for note in dict.fromkeys(filter(None, notes)):
        _log.info(note)


def in_words(seconds):
    """Return a duration to two digits, or two units: 2.1 ms, 12 s, 3 min, 2 h 10 min."""
    rounded, minutes = float(f"{seconds:.2g}"), max(60, round(seconds / 60))
    if seconds >= 48 * 3600:
        hours = round(seconds / 3600)
        return f"{hours // 24} d {hours % 24} h"
    if rounded >= 3600:
        return f"{minutes // 60} h {minutes % 60} min"
    for unit, size in {"min": 60, "s": 1, "ms": 1e-3, "µs": 1e-6, "ns": 1e-9}.items():
        if rounded >= size:
            return f"{float(f'{max(1, seconds / size):.2g}'):g} {unit}"
    return "0 s"


def grouped(n):
    """Return an integer with a space before every three digits, if there are more than four."""
    return f"{n:,}".replace(",", " ") if n >= 10_000 else str(n)


def counted(n, what):
    """Return how many there are of something: 1 chain, 4 chains."""
    return f"{grouped(n)} {what}{'s' * (n != 1)}"


def chains_named(numbers, n):
    """Name some of n chains by their numbers; of many the first three."""
    if len(numbers) > MOST_IN_WORDS:
        which = f"{len(numbers)} of {n}" if len(numbers) < n else f"all {n}"
        return f"{which} chains ({', '.join(map(str, numbers[:3]))}, …)"
    return f"chain{'s' * (len(numbers) != 1)} {', '.join(map(str, numbers))}"


def capitalised(sentence):
    """Return a sentence with a capital letter at its beginning."""
    return sentence[:1].upper() + sentence[1:]


def some(names):
    """List at most three names."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
