"""Ops that numba calls through Python: what they return is looked at, what they raise explained.

numba looks at sizes alone: it would read the bits of an integer as a float. And an Op that writes
into its input would change what other parts of the model compute from it, so it gets copies.
"""

import traceback
from pathlib import Path

import numpy as np
from pytensor.tensor import TensorType

from pymc_kameleon.model.gathering import in_turn, perform
from pymc_kameleon.model.layout import fits
from pymc_kameleon.model.remote import NotHere

PACKAGE = str(Path(__file__).parent.parent)
"""Where our own files are."""


class WrongReturn(TypeError):
    """An Op has returned what it does not declare."""


class WorkerTraceback(Exception):
    """The traceback of another process, as text."""

    def __str__(self):
        return f"\n{self.args[0]}"


class CheckedOp:
    """An Op in whose place numba calls this, with the same results; `shapes` are the last ones."""

    def __init__(self, op):
        self.op, self.shapes = op, ()

    def __str__(self):
        """Return the Op's own name."""
        return str(self.op)

    @in_turn
    def perform(self, node, inputs, storage):
        """Compute the results of the Op, of copies: it may write into its inputs."""
        own = [np.copy(value) if isinstance(value, np.ndarray) else value for value in inputs]
        perform(self.op, node, own, storage)
        for out, place in zip(node.outputs, storage, strict=True):
            declared, value = out.type, place[0]
            if not isinstance(declared, TensorType):
                continue
            is_array = value.__class__ is np.ndarray and value.dtype == declared.numpy_dtype
            if not (is_array and value.shape == declared.shape):
                place[0] = self._checked(declared, value)
        self.shapes = tuple([np.shape(place[0]) for place in storage])

    def _checked(self, declared, value):
        """Return a result; raise a WrongReturn if it is not what is declared."""
        is_array = isinstance(value, np.ndarray)
        if is_array and value.dtype == declared.numpy_dtype:
            if declared.ndim == 0 and value.size == 1:
                return value.reshape(())
            if fits(value.shape, declared.shape):
                return value
            raise WrongReturn(
                f"{self} returned an array of shape {value.shape}, but declares "
                f"{_in_words(declared)}. Let it return one of that shape."
            )
        found = str(value.dtype) if hasattr(value, "dtype") else type(value).__name__
        what = "a number, no array, of " if found == declared.dtype else ""
        raise WrongReturn(
            f"{self} returned {what}{found}, but declares {declared.dtype}. Let its perform "
            "convert what it returns, for example by np.asarray(..., dtype=...)."
        )


def _in_words(declared):
    if None in declared.shape:
        return f"{declared.ndim} dimension{'s' * (declared.ndim != 1)}"
    return f"{declared.shape}"


# ---- what an Op raises --------------------------------------------------------------------------


def advice(error, ops):
    """Return what helps against an exception of a likelihood, after a sentence that says where."""
    if not isinstance(error, Exception) or isinstance(error, WrongReturn | NotHere):
        return ""
    if isinstance(error, MemoryError):
        return ". Look for a likelihood that keeps some memory with each evaluation"
    kind, place = type(error).__name__, _place(error)
    if place is None:
        shapes = [f"{op} returned shape {shape}" for op in ops for shape in op.shapes]
        known = f" ({', '.join(shapes)})" if shapes else ""
        return (
            f". The {kind} comes from the model around what Python computes{known}: do the shapes "
            "fit there?"
        )
    return (
        f". The {kind} was raised by {place}. If that is no mistake, and these parameters are to "
        'blame, let it return NaN instead, or pass on_error="reject" to pk.black_box: then the '
        "point is rejected"
    )


def _place(error):
    """Return in words which line raised an exception, None if it was compiled code."""
    # PyTensor's generated code has no suffix; what has no file is of an interpreter.
    frames = traceback.extract_tb(error.__traceback__)
    lines = [line for line in frames if line.filename.endswith((".py", ">"))]
    own = [line.filename.startswith(PACKAGE) for line in lines]
    called = lines[max(np.flatnonzero(own), default=-1) + 1 :]
    if not called:
        return None
    users = [line for line in called if "site-packages" not in line.filename]
    line = (users or called)[-1]
    return f"line {line.lineno} of {Path(line.filename).name}, in {line.name}"
