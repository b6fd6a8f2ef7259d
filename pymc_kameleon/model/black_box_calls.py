"""Calls of a model's black boxes, each made once: what is kept of a draw takes what they returned.

The log-density at a draw was evaluated before it became one. So a black box in the log-density is
replaced by a `Noted` one, which always calls it and notes what it returns, and in what is kept of
draws by a `Recalled` one, which looks there first. Both are Ops around the user's own.

Notes belong to a chain and travel with it (step/job.py): they are taken where `taking_notes` says
so, and kept of the point where the chain is, and of those that it has tried since the last draw.
"""

from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from pytensor.graph import Apply, Constant, FunctionGraph, Op
from pytensor.graph.traversal import graph_inputs
from pytensor.tensor.type import DenseTensorType

from pymc_kameleon.core.conventions import MOST_BYTES
from pymc_kameleon.model.black_boxes import has_numba_version, is_of_user
from pymc_kameleon.model.gathering import perform

OVERHEAD = 1000
"""Bytes that a note takes besides its arrays, about."""

ROUNDING = 1e-13
"""Difference of inputs that counts as none, relative to the largest: the same formula may be
compiled to other machine code in two functions."""


# ---- notes --------------------------------------------------------------------------------------


class Note(NamedTuple):
    """A call of a black box."""

    number: int  # of the black box
    inputs: tuple  # of arrays
    outputs: tuple
    size: int  # bytes that it takes

    def is_of(self, number, inputs):
        """Whether this black box was given these inputs."""
        return number == self.number and all(map(_agree, self.inputs, inputs))


class Notes:
    """What black boxes have returned at a chain's points; at `point` (n,), the Notes `known`.

    `missing` are the Recalled that had to be called, each time, as nothing was noted.
    """

    def __init__(self, point, known=()):
        self._here = point.tobytes()
        self._at = {self._here: known}  # point -> tuple of Note, the oldest first
        self._size, self.missing = 0, []

    def at(self, point):
        """Return what is known of a point, a tuple of Note."""
        return self._at.get(point.tobytes(), ())

    def add(self, point, number, inputs, outputs):
        """Note a call of which these are copies."""
        size = OVERHEAD + sum(array.nbytes for array in (*inputs, *outputs))
        new = Note(number, tuple(inputs), tuple(outputs), size)
        key = point.tobytes()
        others = [note for note in self._forget(key) if not note.is_of(number, inputs)]
        self._at[key] = (*others, new)
        self._size += sum(n.size for n in self._at[key])
        # The oldest are forgotten first, but not this point, nor where the chain is.
        while self._size > MOST_BYTES and len(self._at) > 2:
            self._forget(next(other for other in self._at if other != self._here))

    def find(self, point, number, inputs):
        """Return the note of a call, or None; a draw is here, so other points are forgotten."""
        self._here, here = point.tobytes(), self.at(point)
        self._at, self._size = {self._here: here}, sum(note.size for note in here)
        return next((note for note in here if note.is_of(number, inputs)), None)

    def _forget(self, key):
        notes = self._at.pop(key, ())
        self._size -= sum(note.size for note in notes)
        return notes


def _agree(a, b):
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.tobytes() == b.tobytes() or a.dtype.kind not in "fc":
        return a.tobytes() == b.tobytes()
    return bool(np.max(np.abs(a - b)) <= ROUNDING * np.max(np.abs(a)))


_notes = ContextVar("notes", default=None)


@contextmanager
def taking_notes(point, known=(), wanted=True):
    """Take Notes of what is called meanwhile in this thread, for a chain at a point, if wanted."""
    notes = Notes(point, known)
    token = _notes.set(notes if wanted else None)
    try:
        yield notes
    finally:
        _notes.reset(token)


# ---- black boxes in a graph ---------------------------------------------------------------------

_numbers, _new_number = WeakKeyDictionary(), count()


class Noted(Op):
    """The black box of a node that notes what it returns for points of a chain, its last input."""

    __props__ = ("number",)
    minds_turns = True  # by the black box

    def __init__(self, node):
        op = node.op
        inputs = [i if isinstance(i, Constant) else i.type() for i in node.inputs]
        self.node = node.clone_with_new_inputs(inputs)  # without the rest of its graph
        self.number = _numbers.setdefault(op, next(_new_number))
        self.destroy_map, self.view_map = op.destroy_map, op.view_map

    def __str__(self):
        return str(self.node.op)

    def make_node(self, *inputs):
        """Build a node of the black box's inputs, and the point."""
        return Apply(self, inputs, [out.type() for out in self.node.outputs])

    def perform(self, node, inputs, outputs):
        """Call the black box."""
        *own, point = inputs
        notes = _notes.get()
        given = [] if notes is None else [np.array(value) for value in own]  # it may write there
        perform(self.node.op, self.node, own, outputs)
        returned = [value for (value,) in outputs]
        if notes is not None and all(isinstance(value, np.ndarray) for value in returned):
            notes.add(point, self.number, given, list(map(_copy, returned)))


class Recalled(Noted):
    """A black box that is called only where nothing was noted."""

    def perform(self, node, inputs, outputs):
        """Return copies of what was noted, or call the black box."""
        *own, point = inputs
        notes = _notes.get()
        note = None if notes is None else notes.find(point, self.number, own)
        if note is None:
            super().perform(node, inputs, outputs)
            if notes is not None:
                notes.missing.append(self)
            return
        for storage, value in zip(outputs, note.outputs, strict=True):
            storage[0] = _copy(value)


def users_own(op):
    """Return the user's own Op, if one that notes what that returns is in its place."""
    return op.node.op if isinstance(op, Noted) else op


def with_black_boxes(kind, results, point):
    """Return `results` with Noted or Recalled black boxes, which know the chain's `point` (n,)."""
    inputs = [var for var in graph_inputs([*results, point]) if not isinstance(var, Constant)]
    graph = FunctionGraph(inputs, [*results, point], copy_inputs=False, copy_orphans=False)
    for node in filter(is_black_box, graph.toposort()):
        new = kind(node).make_node(*node.inputs, graph.outputs[-1])
        graph.replace_all(zip(node.outputs, new.outputs, strict=True), import_missing=True)
    return graph.outputs[:-1]


def _copy(array):
    return np.array(array, order="K")


def is_black_box(node):
    """Whether a node calls an Op of the user's that numba has no version of, on dense arrays.

    If it depends on no input, PyTensor calls it when it compiles, and never again.
    """
    op, arrays = node.op, (*node.inputs, *node.outputs)
    if isinstance(op, Noted) or not is_of_user(op):
        return False
    is_dense = all(isinstance(var.type, DenseTensorType) for var in arrays)
    depends = any(not isinstance(var, Constant) for var in graph_inputs(node.inputs))
    return is_dense and depends and not has_numba_version(op)
