"""Names, shapes and places: value variables <-> raveled point <-> coordinates."""

import re
from collections.abc import Mapping
from difflib import get_close_matches

import numpy as np

from pymc_kameleon.findings.words import MOST_IN_WORDS


class Layout:
    """Which number is which, for a step that moves some variables of a model, its `own`.

    A chain's point has all value variables, raveled in the model's order. The step has an order of
    its own: first the variables that it moves, with these `shapes`, whose d numbers are its
    coordinates, then the others; `places` tells where these numbers are in the chain's point.
    """

    def __init__(self, model, own, initial_point):
        others = [var for var in model.value_vars if var not in own]
        self.covers_all = not others
        self.covers_all_continuous = len(own) == len(model.continuous_value_vars)
        self._names = [var.name for var in model.value_vars]
        places, end = {}, 0
        for name in self._names:
            start, end = end, end + initial_point[name].size
            places[name] = np.arange(start, end)
        self._parts, end = [], 0
        for var in (*own, *others):
            value = initial_point[var.name]
            start, end = end, end + value.size
            self._parts.append((var.name, slice(start, end), value.shape, np.dtype(var.dtype)))
        self.places = np.concatenate([places[name] for name, *_ in self._parts])
        self._own = self._parts[: len(own)]
        self.d = self._own[-1][1].stop
        self.shapes = {name: shape for name, _, shape, _ in self._own}
        self._low_precision = [
            (part, dtype) for _, part, _, dtype in self._own if dtype != "float64"
        ]

    def raveled(self, point):
        """Return the chain's point (n,), raveled in the model's order, from values by name."""
        return np.concatenate([np.ravel(point[name]) for name in self._names], dtype=np.float64)

    def unraveled(self, q):
        """Return values by name of numbers in the step's order: coordinates (d,), or all (n,)."""
        parts = self._own if q.size == self.d else self._parts
        return {name: q[part].reshape(shape).astype(dtype) for name, part, shape, dtype in parts}

    def in_words(self, q):
        """Return a point (n,) in the step's order as text: x[0] = 1.2, x[1] = -0.3."""
        values = [
            f"{name} = {value:.6g}"
            for variable, array in self.unraveled(q).items()
            for name, value in zip(elements(variable, array.shape), array.ravel(), strict=True)
        ]
        left = f" and {len(values) - MOST_IN_WORDS} others" if len(values) > MOST_IN_WORDS else ""
        return ", ".join(values[:MOST_IN_WORDS]) + left

    def round(self, q):
        """Give coordinates the precision of their variables, as PyMC hands them on."""
        for part, dtype in self._low_precision:
            q[part] = q[part].astype(dtype)

    def coordinates(self):
        """Return the names of the coordinates, x[0] and so on."""
        return [name for variable in self.shapes.items() for name in elements(*variable)]

    def region_array(self, region):
        """Return least and largest value of each coordinate, (2, d), by a user's `region`."""
        if not isinstance(region, dict):
            raise ValueError(f"region must be a dict of names and (low, high), not {region!r}.")
        unknown = [name for name in region if name not in self.shapes]
        if unknown:
            raise ValueError(
                f"region names {unknown}; the variables sampled here are {list(self.shapes)}. A "
                "transformed variable is bounded on the scale that it is sampled on."
            )
        bounds = np.empty((2, self.d))
        for name, part, shape, _ in self._own:
            try:
                low, high = region.get(name, (-np.inf, np.inf))
                for side, value in zip(bounds, (low, high), strict=True):
                    side[part] = np.broadcast_to(np.asarray(value, float), shape).ravel()
            except (TypeError, ValueError):
                raise ValueError(
                    f"region[{name!r}] must be a pair (low, high), each a number or of shape "
                    f"{shape}, not {region[name]!r}."
                ) from None
        if not np.all(bounds[0] < bounds[1]):
            raise ValueError(f"region must have low < high everywhere, not {region}.")
        return bounds


def elements(name, shape):
    """Return the names of a variable's elements: b[0, 1] and so on, b if it is a scalar."""
    return [f"{name}{list(index) or ''}" for index in np.ndindex(shape)]


def fits(shape, declared):
    """Whether a shape is one that is declared, in which lengths may be None."""
    return len(shape) == len(declared) and all(
        n in (None, own) for n, own in zip(declared, shape, strict=True)
    )


def split_name(element):
    """Return the variable and the index of an element: b and (0, 1) of b[0, 1]."""
    name, index = re.fullmatch(r"(.*?)(?:\[([\d, ]+)\])?", element).groups()
    return name, tuple(map(int, index.split(","))) if index else ()


def own_variables(sampler, vars, model):
    """Return the value variables that a step moves: the user's `vars`, or all continuous ones."""
    if vars is None:
        own = list(model.continuous_value_vars)
        if not own:
            names = [var.name for var in model.value_vars]
            raise ValueError(
                f"{sampler} samples continuous variables, and the model has none; its free "
                f"variables {names} are discrete. Leave them to PyMC's own steps."
            )
        return own
    own = [
        _value_variable(sampler, var, model)
        for var in (vars if isinstance(vars, list | tuple) else [vars])
    ]
    if len(set(own)) < len(own):
        raise ValueError(f"A variable is named twice: {[var.name for var in own]}.")
    discrete = [var.name for var in own if var not in model.continuous_value_vars]
    if discrete:
        raise ValueError(
            f"{sampler} samples continuous variables, but {discrete} are discrete. "
            "Leave them out: pm.sample assigns a step of its own to what is left."
        )
    return own


def _value_variable(sampler, var, model):
    """Return the value variable that is meant by a variable or its name, s or s_log__."""
    known = {var.name: var for var in model.value_vars}
    known |= {rv.name: model.rvs_to_values[rv] for rv in model.free_RVs}
    value = known.get(var) if isinstance(var, str) else model.rvs_to_values.get(var, var)
    if value in model.value_vars:
        return value
    name = getattr(var, "name", None) or var
    if name in known:
        hint = " This variable belongs to another model."
    else:
        near = get_close_matches(str(name), known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
    raise ValueError(
        f"{sampler} cannot sample {name!r}.{hint} The model's free variables are "
        f"{[rv.name for rv in model.free_RVs]}."
    )


def checked_point(point, model):
    """Return an initial point as arrays by name; raise a ValueError for an impossible one."""
    if not isinstance(point, Mapping):
        raise ValueError(f"initial_point must be a dict of names and values, not {point!r}.")
    missing = [var.name for var in model.value_vars if var.name not in point]
    if missing:
        raise ValueError(f"initial_point lacks {missing}; it has {list(point)}.")
    arrays = {}
    for var in model.value_vars:
        value = point[var.name]
        try:
            arrays[var.name] = array = np.asarray(value, dtype=var.dtype)
        except (TypeError, ValueError):
            raise ValueError(f"initial_point[{var.name!r}] is not a number: {value!r}.") from None
        shape = var.type.shape
        if not fits(array.shape, shape):
            raise ValueError(
                f"initial_point[{var.name!r}] must have shape {shape}, not {array.shape}."
            )
    return arrays
