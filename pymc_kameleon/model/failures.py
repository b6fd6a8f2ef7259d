"""What becomes of a call of a black box that fails: an exception, a rejection, or a time limit."""

import threading
from contextvars import ContextVar
from numbers import Real
from typing import NamedTuple

from pymc_kameleon.model.gathering import run
from pymc_kameleon.model.python_calls import WrongReturn
from pymc_kameleon.model.remote import NotHere, TooLong

ERRORS, LATE, TURN = range(3)
"""Kinds of rejected calls; and what else a Watch has counts of."""


class Rejected(Exception):
    """A black box has failed, of kind `ERRORS` or `LATE`, so its parameters are impossible."""

    def __init__(self, kind, why):
        super().__init__(why)
        self.kind = kind

    def __reduce__(self):
        return type(self), (self.kind, *self.args)


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
            return run(function, self.timeout, arguments)
        except TooLong:
            raise Rejected(LATE, f"took longer than {self.timeout:g} s") from None
        except Exception as error:
            is_mistake = isinstance(error, MemoryError | WrongReturn | NotHere)
            if self.on_error == "raise" or is_mistake:
                raise
            raise Rejected(ERRORS, f"raised {type(error).__name__}: {error}") from error
