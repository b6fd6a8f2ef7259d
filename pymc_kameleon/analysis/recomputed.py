"""Variables of a result at points that are no draws.

Each is compared with its draws first, at both positions of each draw's last move, of which the
chain stayed at one: draws, labels, model or data may have been changed since.
"""

from contextlib import suppress

import numpy as np
import pymc as pm
import xarray as xr
from scipy.special import expit

from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.model.black_boxes import dependent_on_black_boxes
from pymc_kameleon.model.functions import ModelOutputs
from pymc_kameleon.model.layout import Layout, fits, split_name
from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.result.origin import model_of

CHANGED = (
    "the draws are not what the model computes now; they, their labels, the model or its data may "
    "have been changed"
)
NO_MODEL = "only the model can compute that anew, and it is not here: pass model=... for more"
"""Why variables are not computed anew."""

INVERSES = {"": np.asarray, "_log__": np.exp, "_logodds__": expit}
"""Suffixes of coordinates whose variables need no model, and what makes these of them."""


def model_for(dt, model, coordinates):
    """Return the model of a result: as given, as remembered, of the context, or None."""
    shapes = _shapes(coordinates)
    if model is not None:
        model = pm.modelcontext(model)
        if not _has(model, shapes):
            own = [var.name for var in model.value_vars]
            raise ValueError(
                f"This is not the model that was sampled: it has {own}, and the coordinates of the "
                f"draws are {coordinates}."
            )
        return model
    known = model_of(dt), pm.Model.get_context(error_if_none=False)
    return next((own for own in known if own is not None and _has(own, shapes)), None)


def _shapes(coordinates):
    """Return the shapes of variables by name, of their elements x[0, 0] and so on."""
    shapes = {}
    for name, index in map(split_name, coordinates):
        before = shapes.get(name, index)
        shapes[name] = tuple(max(pair) for pair in zip(before, index, strict=False))
    return {name: tuple(last + 1 for last in shape) for name, shape in shapes.items()}


def _has(model, shapes):
    """Whether a model has these value variables. That evaluates nothing, as a start would."""
    static = {var.name: var.type.shape for var in model.value_vars}
    return static.keys() == shapes.keys() and all(
        fits(shapes[name], own) for name, own in static.items()
    )


class Recomputed:
    """Variables of draws, at other points; `kept` has where last moves began and ended."""

    def __init__(self, posterior, kept, model):
        coordinates = kept["coordinate"].values.tolist()
        ends = (kept[name].transpose("chain", "draw", ...).values for name in ("start", "end"))
        self._ends = [x.reshape(-1, x.shape[2]) for x in ends]
        self._source = (
            _Coordinates(coordinates)
            if model is None
            else _Model(model, coordinates, self._ends[0][0])
        )
        self._posterior = posterior.transpose("chain", "draw", ...)

    def why_not(self, names):
        """Return why some of the variables are not known at other points, by their names."""
        known = self._source.dims
        reasons = {name: self._source.reason(name) for name in names if name not in known}
        left = [name for name in names if name in known]
        try:
            found = [self._source.at(x, left) for x in self._ends if left]
        except Exception:  # whatever the model raises
            return reasons | dict.fromkeys(left, CHANGED)
        for name in left:
            try:
                values = [self._as_drawn(name, own[name]) for own in found]
            except ValueError:  # other dimensions
                reasons[name] = CHANGED
                continue
            draws = self._posterior[name]
            fits = values[0].shape[1:] == draws.shape[2:]
            if not fits or not agree(draws.values.reshape(-1, *draws.shape[2:]), values):
                reasons[name] = CHANGED
        return reasons

    def is_of_draws(self, values, function):
        """Whether values (chains, draws, ...) are those of a function of positions (n, d)."""
        flat = values.reshape(-1, *values.shape[2:])
        return agree(flat, [function(x) for x in self._ends])

    def at(self, x, names):
        """Return variables at points x (n, d), arrays (n, ...) as their draws are."""
        found = self._source.at(x, names)
        return {name: self._as_drawn(name, found[name]) for name in names}

    def _as_drawn(self, name, values):
        """Return the elements that draws have of values (n, ...) of a whole variable, by labels."""
        draws, (dims, coords) = self._posterior[name], self._source.dims[name]
        own = [dim for dim in draws.dims if dim not in ("chain", "draw")]
        if not set(own) & set(dims) and len(own) == len(dims):  # given with idata_kwargs
            dims = own
        labels = {dim: list(coords[dim]) for dim in dims if coords.get(dim) is not None}
        whole = xr.DataArray(values, labels, ["point", *dims])
        for dim in (dim for dim in dims if dim in draws.coords):
            with suppress(Exception):  # no such labels, or one twice: if all are meant, values say
                whole = whole.sel({dim: draws[dim].values})
        return whole.transpose("point", *own).values


def agree(draws, values):
    """Whether each of draws (n, ...) is one of the values, but for rounding."""
    if draws.dtype.kind not in "fiub" or values[0].dtype.kind not in "fiub":
        return False
    flat = draws.reshape(len(draws), -1).astype(np.float64)
    tolerance = 0.0
    if draws.dtype.kind == "f":
        rounding = max(ROOT_EPS, np.finfo(draws.dtype).eps) * np.abs(flat)
        with np.errstate(invalid="ignore"):
            tolerance = REPEATABLE * np.nan_to_num(flat.std(axis=0)) + rounding
    return np.any([_are_close(flat, own, tolerance) for own in values], axis=0).all()


def _are_close(flat, values, tolerance):
    values = values.reshape(flat.shape).astype(np.float64)
    with np.errstate(invalid="ignore"):
        same = (np.abs(flat - values) <= tolerance) | (flat == values)
    return (same | (np.isnan(flat) & np.isnan(values))).all(axis=1)


# ---- what computes them -------------------------------------------------------------------------


class _Model:
    """Variables as a model computes them, but for those that depend on black boxes."""

    def __init__(self, model, coordinates, position):
        self._model, self._outputs = model, None
        shapes = _shapes(coordinates)
        sizes = {var.name: np.zeros(shapes[var.name]) for var in model.value_vars}
        layout = Layout(model, list(model.value_vars), sizes)
        self._order = [coordinates.index(name) for name in layout.coordinates()]
        self._point = layout.unraveled(position[self._order])
        self._boxes = dependent_on_black_boxes(model)
        self.dims = {
            var.name: (_dims_of(var, model), model.coords)
            for var in model.unobserved_value_vars
            if var.name not in self._boxes
        }

    def reason(self, name):
        if name in self._boxes:
            called = " and ".join(self._boxes[name])
            return f"computing that anew would call {called}, so they are not corrected"
        return "the model has no such variable"

    def at(self, x, names):
        if self._outputs is None or list(self._outputs.variables) != names:
            self._outputs = ModelOutputs(self._model, names, self._point, {})
        return self._outputs.named(self._outputs.rows(x[:, self._order]))


def _dims_of(var, model):
    """Return the names of a variable's dimensions, as in a result."""
    given = model.named_vars_to_dims.get(var.name) or [None] * var.ndim
    return [dim or f"{var.name}_dim_{i}" for i, dim in enumerate(given)]


class _Coordinates:
    """Variables that are coordinates, or simple functions of one: no model is needed."""

    def __init__(self, coordinates):
        self._columns, self.dims = {}, {}
        for column, coordinate in enumerate(coordinates):
            whole, index = split_name(coordinate)
            for suffix in INVERSES:
                if whole.endswith(suffix):
                    places = self._columns.setdefault(whole.removesuffix(suffix), (suffix, {}))[1]
                    places[index] = column
        for name, (_, places) in self._columns.items():
            lengths = {len(index) for index in places}
            if len(lengths) == 1:  # else there are variables x and x[0]
                self.dims[name] = [f"{name}_dim_{i}" for i in range(*lengths)], {}

    def reason(self, name):
        return NO_MODEL

    def at(self, x, names):
        found = {}
        for name in names:
            suffix, places = self._columns[name]
            shape = np.max(list(places), axis=0).astype(int) + 1
            columns = np.array([places[index] for index in np.ndindex(*shape)], int)
            found[name] = INVERSES[suffix](x[:, columns].reshape(len(x), *shape))
        return found
