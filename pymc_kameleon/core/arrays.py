"""Named tuples of arrays that declare their shapes, and are allocated from that."""

import sys
from typing import Annotated, NamedTuple, get_type_hints

import numpy as np


def floats(*shape):
    """Annotate a field of a named tuple as a float64 array of this shape.

    Its entries are numbers, or names of sizes that `allocate` gets, as ``floats("d", 2)``.
    """
    return Annotated[np.ndarray, np.float64, shape]


def integers(*shape):
    """Annotate a field as an int64 array."""
    return Annotated[np.ndarray, np.int64, shape]


def bools(*shape):
    """Annotate a field as an array of bools."""
    return Annotated[np.ndarray, np.bool_, shape]


def extended(name, cls, **fields):
    """Return a NamedTuple with the fields of another one, and these, as annotated."""
    both = NamedTuple(name, [*(get_type_hints(cls, include_extras=True) | fields).items()])
    both.__module__ = sys._getframe(1).f_globals["__name__"]  # where pickle looks for it
    return both


def allocate(cls, sizes, **values):
    """Make a named tuple of fresh arrays, zero unless `values` has numbers or arrays for them.

    The fields of the class are annotated with `floats`, `integers` or `bools`, with a type of
    numbers, or with another NamedTuple, which is allocated likewise, or taken from `values` as it
    is. `sizes` are those that occur in shapes, by name. Raise a TypeError for a value of no field,
    a size that is not given, or a field that has neither shape nor value.
    """
    hints = get_type_hints(cls, include_extras=True)
    unknown = sorted(set(values) - set(hints))
    if unknown:
        raise TypeError(f"{cls.__name__} has no fields {unknown}.")
    return cls(*(_leaf(cls, name, hints[name], sizes, values) for name in cls._fields))


def copy_arrays(source, out, names=None):
    """Copy arrays of a named tuple, and of those that it holds, into another one.

    Only those of the fields `names`, if there are some.
    """
    for name in names or source._fields:
        value, place = getattr(source, name), getattr(out, name)
        if isinstance(value, tuple):
            copy_arrays(value, place)
        elif isinstance(value, np.ndarray):
            place[...] = value


def copied(value):
    """Return a copy of an array, or of a named tuple of arrays, and of those that it holds."""
    if isinstance(value, tuple):
        return type(value)(*map(copied, value))
    return value.copy() if isinstance(value, np.ndarray) else value


def kinds_of(cls, sizes):
    """Return (shape, dtype) of each field of a named tuple, and a dict of those of a tuple in it.

    The shape of a number is (), be it declared by its type or, to be written to, as ``floats(1)``.
    """
    hints = get_type_hints(cls, include_extras=True)
    return {name: _kind(cls, name, hint, sizes) for name, hint in hints.items()}


def _kind(cls, name, hint, sizes):
    if hasattr(hint, "_fields"):
        return kinds_of(hint, sizes)
    if hint in (float, int):
        return (), np.dtype(hint)
    if not hasattr(hint, "__metadata__"):
        raise TypeError(f"Declare {cls.__name__}.{name} by floats, integers or bools.")
    dtype, shape = hint.__metadata__
    return () if shape == (1,) else _shape(cls, name, shape, sizes), np.dtype(dtype)


def _leaf(cls, name, hint, sizes, values):
    if hasattr(hint, "__metadata__"):
        dtype, shape = hint.__metadata__
        array = np.zeros(_shape(cls, name, shape, sizes), dtype)
        array[...] = values.get(name, 0)
        return array
    if hasattr(hint, "_fields"):
        return values[name] if name in values else allocate(hint, sizes)
    if name not in values:
        raise TypeError(f"{cls.__name__} needs {name}, which has no shape.")
    return hint(values[name])


def _shape(cls, name, shape, sizes):
    """Return the shape of a field in numbers."""
    lacking = [n for n in shape if isinstance(n, str) and n not in sizes]
    if lacking:
        raise TypeError(f"{cls.__name__}.{name} has a size {lacking[0]!r}, which was not given.")
    return tuple(sizes.get(n, n) for n in shape)
