"""What becomes of a call of a black box that fails: an exception, a rejection, or a time limit."""

import signal
import threading
import time
from contextvars import ContextVar
from numbers import Real
from typing import NamedTuple

from pymc_kameleon.model.gathering import no_turns
from pymc_kameleon.model.python_calls import WrongReturn

ERRORS, LATE = 0, 1
"""Kinds of rejected calls."""


class Rejected(Exception):
    """A black box has failed, and says that its parameters are impossible then.

    Parameters
    ----------
    kind : int
        `ERRORS` or `LATE`.
    why : str
        What it has done, for a sentence about the likelihood.
    """

    def __init__(self, kind, why):
        super().__init__(why)
        self.kind = kind

    def __reduce__(self):
        return type(self), (self.kind, *self.args)


class TooLong(BaseException):
    """A call has taken longer than it may. No ``except Exception`` of the function stops it."""


class NotHere(RuntimeError):
    """Where calls cannot be stopped."""


watched = ContextVar("watched", default=False)
"""Whether somebody takes note of rejected calls."""


class OnFailure(NamedTuple):
    """What becomes of calls that fail, as arguments of `black_box`."""

    on_error: str = "raise"
    timeout: float | None = None
    check_repeatable: bool = True

    @classmethod
    def checked(cls, on_error, timeout, check_repeatable):
        """Return them; raise a ValueError for impossible ones."""
        if on_error not in ("raise", "reject"):
            raise ValueError(f"on_error must be 'raise' or 'reject', not {on_error!r}.")
        is_number = isinstance(timeout, Real) and not isinstance(timeout, bool)
        if timeout is not None and not (is_number and 0 < timeout < threading.TIMEOUT_MAX):
            raise ValueError(f"timeout must be a positive number of seconds, not {timeout!r}.")
        if not isinstance(check_repeatable, bool):
            raise ValueError(f"check_repeatable must be True or False, not {check_repeatable!r}.")
        return cls(on_error, timeout, check_repeatable)

    def call(self, function, *arguments):
        """Return ``function(*arguments)``; raise Rejected where that fails, and may."""
        try:
            with no_turns():
                if self.timeout is None:
                    return function(*arguments)
                return within(self.timeout, function, *arguments)
        except TooLong:
            raise Rejected(LATE, f"took longer than {self.timeout:g} s") from None
        except Exception as error:
            is_mistake = isinstance(error, MemoryError | WrongReturn | NotHere)
            if self.on_error == "raise" or is_mistake:
                raise
            raise Rejected(ERRORS, f"raised {type(error).__name__}: {error}") from error


def within(seconds, function, *arguments):
    """Return ``function(*arguments)``; raise TooLong if that takes longer, where Python goes on.

    Raises
    ------
    NotHere
        In any but the main thread of a process, which alone hears of signals.
    """
    if threading.current_thread() is not threading.main_thread():
        raise NotHere(
            "The timeout of a black box needs calls in the main thread of a process. So call "
            "pk.sample from there, and leave out an executor that does tasks in threads."
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
