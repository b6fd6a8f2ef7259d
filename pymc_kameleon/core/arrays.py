"""Named tuples of arrays that declare their shapes, and are allocated from that."""

from typing import Annotated, get_type_hints

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


def allocate(cls, sizes, **values):
    """Make a named tuple of fresh arrays.

    Parameters
    ----------
    cls : type
        A NamedTuple. Its fields are annotated with `floats`, `integers` or `bools`, with a type
        of numbers, or with another NamedTuple.
    sizes : dict of int
        By name, as they occur in the shapes.
    **values
        Of fields: numbers, arrays, and named tuples, which are taken as they are. Arrays without
        one are zero, and named tuples allocated likewise.

    Raises
    ------
    TypeError
        For a value of no field, a size that is not given, or a field that has neither shape nor
        value.
    ValueError
        For a value of another shape.
    """
    kinds = get_type_hints(cls, include_extras=True)
    strangers = sorted(set(values) - set(kinds))
    if strangers:
        raise TypeError(f"{cls.__name__} has no fields {strangers}.")
    return cls(*(_leaf(cls, name, kinds[name], sizes, values) for name in cls._fields))


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


def _leaf(cls, name, kind, sizes, values):
    if hasattr(kind, "__metadata__"):
        dtype, shape = kind.__metadata__
        lacking = [n for n in shape if isinstance(n, str) and n not in sizes]
        if lacking:
            raise TypeError(
                f"{cls.__name__}.{name} has a size {lacking[0]!r}, which was not given."
            )
        array = np.zeros([sizes.get(n, n) for n in shape], dtype)
        array[...] = values.get(name, 0)
        return array
    if hasattr(kind, "_fields"):
        return values[name] if name in values else allocate(kind, sizes)
    if name not in values:
        raise TypeError(f"{cls.__name__} needs {name}, which has no shape.")
    return kind(values[name])
