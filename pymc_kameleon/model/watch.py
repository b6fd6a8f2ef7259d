"""A log-density that calls Python, and what is seen of its evaluations.

Its errors, and what takes too long, can be rejected as NaN is. A point that the chain has seen is
evaluated again, after announced draws.
"""

import threading
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.core.target import function_address
from pymc_kameleon.model.entry_points import python_entry
from pymc_kameleon.model.failures import ERRORS, LATE, TURN, Rejected, watched
from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.model.python_calls import WrongReturn

LOOKS = (0, 100, 1_000)
"""Draws after tuning at which a chain evaluates a point again: fixed, so that a run that was
interrupted makes the same statistics."""

LOOKING_CHAINS = CHAINS
"""Chains of a run that do so: two in both directions of a coordinate, and two of another one."""

MOST_LETTERS = 200
"""Of the text of an exception that is kept."""

FAILED, ODD, FAR = range(3)
BEFORE, AFTER, FAR_LOGP, BEST = range(4)
"""Places in the arrays of a Watch."""


class Watch(NamedTuple):
    """What a chain has seen of its log-density; arrays without elements if that is machine code."""

    counts: np.ndarray  # (3,) int64: rejected errors, rejected as late, turn
    points: np.ndarray  # (3, n): where the first was rejected, where it was odd, and a far one
    values: np.ndarray  # (4,): log-density where it was odd, before and after; at the far; the best
    error: np.ndarray  # (1,) text of the first that was rejected

    @classmethod
    def fresh(cls, n):
        """Return a Watch that has seen nothing, of n coordinates, or of none."""
        counts = np.zeros(3 if n else 0, np.int64)
        points, values = np.full((3, n), np.nan), np.full(4 if n else 0, np.nan)
        return cls(counts, points, values, np.zeros(1 if n else 0, f"<U{MOST_LETTERS}"))

    def turn(self, k):
        """Let it keep the farthest point in the k-th direction; in none if k is negative."""
        if self.counts.size:
            self.counts[TURN] = k

    @property
    def is_odd(self):
        """Whether two evaluations at a point have differed."""
        return self.points.size > 0 and not np.isnan(self.points[ODD]).all()

    @property
    def n_rejected(self):
        """How many evaluations raised and how many took too long, (2,)."""
        return self.counts[[ERRORS, LATE]] if self.counts.size else np.zeros(2, np.int64)

    def reject(self, kind, x, error):
        """Take note of an evaluation that was rejected."""
        if not self.counts[[ERRORS, LATE]].any():
            self.points[FAILED], self.error[0] = x, error
        self.counts[kind] += 1

    def add(self, other):
        """Take over what was rejected, or odd, at another evaluation of the same log-density."""
        if other.n_rejected.any() and not self.n_rejected.any():
            self.points[FAILED], self.error[0] = other.points[FAILED], other.error[0]
        self.counts[:TURN] += other.counts[:TURN]
        if other.is_odd and not self.is_odd:
            self.points[ODD], self.values[:FAR_LOGP] = other.points[ODD], other.values[:FAR_LOGP]

    def compare(self, x, before, after):
        """Take note of two evaluations at x if they are the first that differ."""
        same = np.isclose(before, after, rtol=REPEATABLE, atol=REPEATABLE)
        if self.points.size and not same and not self.is_odd:
            self.points[ODD], self.values[BEFORE], self.values[AFTER] = x, before, after

    def see(self, x, logp):
        """Keep a point if it is the farthest in its direction, and the chain may go there."""
        turn = self.counts.item(TURN)
        if not -np.inf < logp < np.inf or turn < 0:
            return
        best, far_logp = self.values.item(BEST), self.values.item(FAR_LOGP)
        if not logp <= best:
            self.values[BEST] = best = logp
        j, sign, least = (turn // 2) % x.size, 1 - 2 * (turn % 2), best - 5.0 - x.size
        is_farther = not sign * x.item(j) <= sign * self.points.item(FAR, j)
        if logp >= least and (is_farther or not far_logp >= least):  # NaN is no point
            self.points[FAR], self.values[FAR_LOGP] = x, logp

    def forget(self):
        """Forget points, at which the log-density is another one now."""
        if self.values.size:
            self.values[[FAR_LOGP, BEST]] = np.nan

    def look_again(self, logp):
        """Evaluate the farthest point once more, and turn to another direction."""
        before, x = self.values[FAR_LOGP], self.points[FAR].copy()
        if self.counts[TURN] < 0 or np.isnan(before):
            return
        gradient = logp.gradient.copy()
        after = logp(x)
        logp.gradient[:] = gradient
        if not logp.failure:
            self.compare(x, before, after)
        self.counts[TURN] += LOOKING_CHAINS
        self.forget()


class Watched:
    """A Compiled log-density that calls Python, seen at each evaluation, in some 5 to 10 µs."""

    def __init__(self, compiled):
        self.compiled = compiled
        self._make_entry()

    def __getattr__(self, name):
        """Have what the Compiled has."""
        return getattr(self.compiled, name)

    def _make_entry(self):
        self._local = threading.local()
        self._machine_code = python_entry(self.entry)
        self.address = function_address(self._machine_code)

    def watch_for(self, chain):
        """Let evaluations in this thread be those of a chain, a ModelLogp."""
        self._local.chain = chain

    def entry(self, x, data, shapes, gradient):
        """Return the log-density, NaN where an evaluation is rejected."""
        chain = self._local.chain
        chain.failure, token = "", watched.set(True)
        try:
            logp = self.compiled.entry(x, data, shapes, gradient)
            chain.watch.see(x, logp)
            return logp
        except Rejected as error:
            kind, chain.failure = error.kind, str(error)
        except Exception as error:
            if not chain.rejects_errors or isinstance(error, MemoryError | WrongReturn):
                raise
            kind, chain.failure = ERRORS, f"raised {type(error).__name__}: {error}"
        finally:
            watched.reset(token)
        chain.watch.reject(kind, x, chain.failure)
        gradient[:] = np.nan
        return np.nan

    def __getstate__(self):
        return {"compiled": self.compiled}

    def __setstate__(self, state):
        self.__dict__.update(state)
        self._make_entry()
