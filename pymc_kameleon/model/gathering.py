"""Calls of black boxes by tasks in several threads: at the same time, or those of all in one.

Chains whose model calls Python may be in threads. Machine code runs at the same time; what it calls
in Python is done in turn, as Ops may keep things. A task that calls the function of a black box
leaves its turn to others.

* Where a user passes an executor (evaluators.py), that calls functions, several at the same time.
* Without one (`Gathering`), a call of a batched black box waits until each of the others has called
  one, too, or has ended. Then one call makes all. Other functions are called in turn.
"""

import threading
from collections import defaultdict
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps

import numpy as np

from pymc_kameleon.model.remote import within

gathering = ContextVar("gathering", default=None)
"""The Turns of the task that this thread is doing."""


@contextmanager
def no_turns():
    """Let what Python computes inside of a call neither take a turn nor leave it."""
    token = gathering.set(None)
    try:
        yield
    finally:
        gathering.reset(token)


class RunEnded(BaseException):
    """The run has ended before a call was made. No ``except Exception`` of the model stops it."""


def run(function, timeout, arguments):
    """Return what the function of a black box returns, wherever it is called; TooLong if late."""
    turns = gathering.get()
    if turns is None:
        return within(timeout, function, *arguments)
    return turns.run(function, timeout, arguments)


def perform(op, node, inputs, storage):
    """Let an Op compute; only black boxes are safe in several threads, and leave their turn."""
    with nullcontext() if getattr(op, "minds_turns", False) else no_turns():
        op.perform(node, inputs, storage)


class Turns:
    """Turns of tasks in threads, which call functions of black boxes at the same time."""

    def __init__(self):
        self._turn, self._holder = threading.Lock(), None

    def __enter__(self):
        """Begin a task."""
        self.take()
        gathering.set(self)

    def __exit__(self, *error):
        gathering.set(None)
        self.leave()

    def take(self):
        """Wait for the turn."""
        self._turn.acquire()
        self._holder = threading.get_ident()

    def leave(self):
        """Leave the turn to others."""
        self._holder = None
        self._turn.release()

    @property
    def is_mine(self):
        """Whether it is the turn of this thread's task."""
        return self._holder == threading.get_ident()

    @contextmanager
    def left(self):
        """Leave the turn to others meanwhile."""
        self.leave()
        try:
            yield
        finally:
            self.take()

    def call(self, op, inputs):
        """Return the outputs of a black box, which others may call meanwhile."""
        with self.left():
            return op.compute(inputs)

    def run(self, function, timeout, arguments):
        """Return what a function returns."""
        with no_turns():
            return within(timeout, function, *arguments)


class Gathering(Turns):
    """Turns in which calls of batched black boxes, those `ops`, are made together."""

    def __init__(self, ops):
        super().__init__()
        self.ops = ops
        self._change = threading.Condition()  # of what follows
        self._calls, self._ended = [], False
        self._wanted = None  # calls to be waited for, if it is known how many there will be

    def call(self, op, inputs):
        """Return the outputs of a black box, by one call for all tasks if it is batched."""
        if op not in self.ops:
            return op.compute(inputs)
        call = _Call(op, inputs)
        with self.left():
            self._make(call)
        if isinstance(call.outcome, BaseException):
            raise call.outcome
        return call.outcome

    def _make(self, call):
        with self._change:
            self._calls.append(call)
            self._change.wait_for(lambda: call.is_made or self._ended or self._is_due())
            if call.is_made:
                return
            if self._ended:
                raise RunEnded
            calls, self._calls = self._calls, []
        _make_together(calls)  # nobody else has a turn now
        with self._change:
            for own in calls:
                own.is_made = True
            self._change.notify_all()

    def _is_due(self):
        return len(self._calls) == self._wanted

    @contextmanager
    def of(self, n):
        """Let calls be made as soon as there are n, which is how many tasks the run waits for."""
        self._want(n)
        try:
            yield
        finally:
            self._want(None)

    def _want(self, n):
        with self._change:
            self._wanted = n
            if self._is_due():
                self._change.notify()  # one, who makes all calls

    def end(self):
        """Let tasks that wait for others end, by a RunEnded."""
        with self._change:
            self._ended = True
            self._change.notify_all()


def in_turn(python):
    """Return a function for machine code to call, which waits for its turn if tasks take turns."""

    @wraps(python)
    def run(*arguments):
        turns = gathering.get()
        if turns is None or turns.is_mine:
            return python(*arguments)
        turns.take()
        try:
            return python(*arguments)
        finally:
            turns.leave()

    return run


def out_of_turn(machine_code):
    """Return a function that leaves the turn to others meanwhile, if tasks take turns."""

    def run(*arguments):
        turns = gathering.get()
        if turns is None:
            return machine_code(*arguments)
        with turns.left():
            return machine_code(*arguments)

    return run


class _Call:
    """A call of a black box, with what comes of it: its outputs, or an exception."""

    def __init__(self, op, inputs):
        self.op, self.inputs, self.outcome, self.is_made = op, inputs, None, False


def _make_together(calls):
    """Make calls, those of the same black box by inputs of the same shapes in one."""
    alike = defaultdict(list)
    for call in calls:
        alike[call.op, *map(np.shape, call.inputs)].append(call)
    for (op, *_), own in alike.items():
        for call, outcome in zip(own, op.outcomes([c.inputs for c in own]), strict=True):
            call.outcome = outcome
