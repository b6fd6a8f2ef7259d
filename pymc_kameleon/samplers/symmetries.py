"""Linear maps that many posteriors with several modes are symmetric under.

Labels of a mixture's components can be exchanged, signs of loadings and scores reversed: then a
mode that is known shows where others are. A guess costs one evaluation, and is checked by it.
"""

import re
from itertools import combinations, zip_longest
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

MOST_ALIKE, MOST_COORDINATES = 8, 100
"""Length of an axis, and number of coordinates, up to which any two places may be exchanged, or a
sign reversed."""

MIDDLES = 0.0, 0.5
"""Middles about which numbers may be reversed: those of numbers with a sign, and of weights."""


class Part(NamedTuple):
    """Coordinates of a variable, or of scalars that are numbered."""

    places: np.ndarray  # of its shape
    transform: object
    middle: float = np.nan  # about which its range is symmetric, if that is one of `MIDDLES`


def likely_symmetries(step):
    """Return matrices (d, d) that may leave the log-density of a step's coordinates as it is.

    Each is its own inverse, with determinant 1 or −1, and the likeliest ones come first. Any two
    places of a short axis are exchanged, neighbours first, in all variables that have one and in
    each alone, and any two scalars of the same transform. Scalars whose names differ by a number,
    like k1 and k2, are as one variable, so that they are exchanged along with a1 and a2. Signs are
    reversed; a number between 0 and 1 is reversed as one that has a sign: w becomes 1 − w.
    """
    d, by_name = step.layout.d, _parts(step)
    if d > MOST_COORDINATES:
        return []
    named = {name: part for name, part in by_name.items() if _has_labels(part)}
    scalars = {name: part for name, part in named.items() if not _lengths(part)}
    named = [part for part in named.values() if _lengths(part)] + _numbered(scalars)
    every, alone = [], []
    for n in sorted({n for part in named for n in _lengths(part) if n <= MOST_ALIKE}):
        having = [part for part in named if n in _lengths(part)]
        pairs = sorted(combinations(range(n), 2), key=lambda pair: pair[1] - pair[0])
        every += [_exchanged(d, having, n, pair) for pair in pairs]
        alone += [
            _exchanged(d, [part], n, pair, axes)
            for part in having
            for axes in _choices_of_axes(part, n)
            for pair in pairs
        ]
    scalar_pairs = [
        _exchanged(d, [_joined(pair)], 2, (0, 1))
        for pair in combinations(scalars.values(), 2)
        if type(pair[0].transform) is type(pair[1].transform)
    ]
    mixed = zip_longest([*every, *alone, *scalar_pairs], _reversals(d, by_name.values()))
    return _unique(one for pair in mixed for one in pair if one is not None)


def _parts(step):
    """Return the Part of each of a step's variables, by its name in the model."""
    parts, start = {}, 0
    for var in step.vars:
        rv, shape = step.model.values_to_rvs[var], step.layout.shapes[var.name]
        places = np.arange(start, start + int(np.prod(shape))).reshape(shape)
        transform = step.model.rvs_to_transforms[rv]
        parts[rv.name] = Part(places, transform, _middle(transform, rv))
        start += places.size
    return parts


def _numbered(scalars):
    """Return a Part for each group of scalars whose names differ by a number at their end."""
    groups = {}
    for name, part in scalars.items():
        if stem := re.fullmatch(r"(.*?)_?\d+", name):
            groups.setdefault((stem[1], type(part.transform)), []).append(part)
    return [_joined(group) for group in groups.values() if len(group) > 1]


def _joined(scalars):
    return Part(np.array([part.places for part in scalars]), scalars[0].transform)


def _unique(maps):
    """Return each of these once, without the identity."""
    return list({one.tobytes(): one for one in maps if (one != np.eye(len(one))).any()}.values())


def _middle(transform, rv):
    """Return the middle of a variable's range, if it is one of `MIDDLES` for sure; else NaN."""
    if transform is None:
        return MIDDLES[0]
    if getattr(transform, "name", None) == "logodds":
        return MIDDLES[1]
    if isinstance(transform, pm.distributions.transforms.Interval):
        low, high = map(_constant, transform.args_fn(*rv.owner.inputs))
        return next((one for one in MIDDLES if np.all((low + high) / 2 == one)), np.nan)
    return np.nan


def _constant(end):
    """Return the value of a bound, NaN if there is none or it depends on others."""
    if end is None:
        return np.nan
    value = pt.get_underlying_scalar_constant_value(end, raise_not_constant=False)
    value = getattr(value, "value", value)  # of a constant that is no scalar
    return np.nan if isinstance(value, pt.TensorVariable) else np.asarray(value, float)


def _is_simplex(transform):
    return getattr(transform, "name", None) == "simplex"


def _has_labels(part):
    """Whether a part's places are numbers of its own, one to one or as of a simplex."""
    transform = part.transform
    return transform is None or getattr(transform, "ndim_supp", 1) == 0 or _is_simplex(transform)


def _lengths(part):
    """Return the lengths of a variable's axes, on its own scale, that may be labels."""
    shape = part.places.shape
    own = (*shape[:-1], shape[-1] + 1) if _is_simplex(part.transform) else shape
    return {n for n in own if n > 1}


def _reversals(d, parts):
    """Return maps that reverse signs, the likeliest first: of columns, variables, coordinates."""
    own = [part.places for part in parts if part.middle in MIDDLES]
    columns = []
    for n in sorted({n for places in own for n in places.shape if n <= MOST_ALIKE}):
        having = [places for places in own if n in places.shape]
        if len(having) > 1 and any(places.ndim > 1 for places in having):
            columns += [
                [places.take(j, places.shape.index(n)) for places in having] for j in range(n)
            ]
    each = [one for places in own if places.size <= MOST_ALIKE for one in places.ravel()]
    together = [*columns, *([places] for places in own), *([one] for one in each), own]
    return [
        _reversed(d, np.concatenate([np.ravel(one) for one in some])) for some in together if some
    ]


def _reversed(d, places):
    signs = np.ones(d)
    signs[places] = -1.0
    return np.diag(signs)


def _choices_of_axes(part, n):
    """Return axes on which a part's places are exchanged: all, and each alone if several have n."""
    axes = [axis for axis, length in enumerate(part.places.shape) if length == n]
    return [None, *([axis] for axis in axes)] if len(axes) > 1 else [None]


def _exchanged(d, parts, n, pair, axes=None):
    """Return the matrix that exchanges a pair of places on axes of length n, or on some of them.

    The last number of a simplex, left out by PyMC's transform, is minus the sum of the others.
    """
    order = np.arange(n)
    order[list(pair)] = pair[::-1]
    columns = np.eye(d)
    for part in parts:
        values = columns[part.places]
        if _is_simplex(part.transform):
            values = np.concatenate([values, -values.sum(axis=-2, keepdims=True)], axis=-2)
        for axis, length in enumerate(values.shape[:-1]):
            if length == n and (axes is None or axis in axes):
                values = np.take(values, order, axis)
        if _is_simplex(part.transform):
            values = values[..., :-1, :]
        columns[part.places] = values
    return columns
