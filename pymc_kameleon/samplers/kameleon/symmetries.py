"""Linear maps that many posteriors with several modes are symmetric under.

Labels of a mixture's components can be exchanged, signs of loadings and scores reversed: then a
mode that is known shows where others are. A guess costs one evaluation, and is checked by it.
"""

from itertools import chain

import numpy as np

MOST_LABELS = 20
"""Length of an axis up to which its places may be labels."""


def most_maps(d):
    """Return how many of them a sampler keeps, so that they take a few megabytes at most."""
    return min(4 * d + 4, 64, max(1, 10**6 // d**2))


def symmetries(step):
    """Return matrices (d, d) that may leave the log-density of a step's coordinates as it is.

    Each is its own inverse, with determinant 1 or −1. Neighbours on an axis of the same length are
    exchanged in all variables that have one, or in one variable; signs are reversed in one
    coordinate, in one variable, or in all that have no transform. All other exchanges follow from
    repetition.
    """
    model, parts, start = step.model, [], 0
    for var in step.vars:
        shape = step.layout.shapes[var.name]
        size = int(np.prod(shape))
        transform = model.rvs_to_transforms[model.values_to_rvs[var]]
        parts.append((slice(start, start + size), shape, transform))
        start += size
    free = [slice(k, k + 1) for part, _, t in parts if t is None for k in _range(part)]
    free += [part for part, _, t in parts if t is None]
    maps = [_reversed(start, [part]) for part in free]
    maps.append(_reversed(start, [part for part, _, t in parts if t is None]))
    named = [part for part in parts if _is_simplex(part[2]) or _is_elementwise(part[2])]
    for n in sorted({n for part in named for n in _lengths(part) if n <= MOST_LABELS}):
        having = [part for part in named if n in _lengths(part)]
        for i in range(n - 1):
            maps += [_exchanged(start, some, n, i) for some in chain([having], zip(having))]
    unique = {one.tobytes(): one for one in maps if not np.array_equal(one, np.eye(start))}
    return list(unique.values())


def _range(part):
    return range(part.start, part.stop)


def _is_simplex(transform):
    return getattr(transform, "name", None) == "simplex"


def _is_elementwise(transform):
    return transform is None or getattr(transform, "ndim_supp", 1) == 0


def _lengths(part):
    """Return the lengths of a variable's axes, on its own scale, that may be labels."""
    _, shape, transform = part
    own = (*shape[:-1], shape[-1] + 1) if _is_simplex(transform) else shape
    return {n for n in own if n > 1}


def _reversed(d, parts):
    signs = np.ones(d)
    for part in parts:
        signs[part] = -1.0
    return np.diag(signs)


def _exchanged(d, parts, n, i):
    """Return the matrix that exchanges i and i + 1 on axes of length n.

    The last number of a simplex, left out by PyMC's transform, is minus the sum of the others.
    """
    order = np.arange(n)
    order[[i, i + 1]] = i + 1, i
    columns = np.eye(d)
    for part, shape, transform in parts:
        values = columns[part].reshape(*shape, d)
        if _is_simplex(transform):
            values = np.concatenate([values, -values.sum(axis=-2, keepdims=True)], axis=-2)
        for axis, length in enumerate(values.shape[:-1]):
            if length == n:
                values = np.take(values, order, axis)
        if _is_simplex(transform):
            values = values[..., :-1, :]
        columns[part] = values.reshape(-1, d)
    return columns
