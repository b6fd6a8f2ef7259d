"""What tuning decided, for people: in words, with the coordinates' names, on the variables' scale.

A sampler says it by `_learned`, a dict of names and `Quantity`, in the dimensions below and others
of its own; here that becomes a dataset over all chains.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.core.factor import is_diagonal

COORDINATE, BIS = "coordinate", "coordinate_bis"
"""The dimension of coordinates, and its name where a variable has two of them."""

OTHER_MODE = "other_mode"
"""What begins the names of what is known of a mode that draws may lack."""

UNITS = "the coordinate's"
"""The units of a scale, or a point, of each coordinate."""

PRODUCT = "product of the two coordinates'"
"""The units of a covariance."""

SHAPE_TEXT = "Covariance that gives the proposal its shape: an estimate of the posterior's."
"""What a covariance of the whole posterior is for."""


class Quantity(NamedTuple):
    """One thing that a chain learned; `labels` are those of dimensions of its own, by name."""

    dims: tuple
    values: object
    description: str
    units: str | None = None
    labels: Mapping = MappingProxyType({})


def learned_dataset(chains):
    """Return what tuning decided in each chain, a list of steps, as a Dataset.

    With several steps, names and dimensions begin with that of the sampler, as ``gam_scaling``, and
    a number if it is not unique. Where chains differ in length, shorter ones end in NaN.
    """
    arrays, coords = {}, {}
    for prefix, steps in zip(_prefixes(chains[0]), zip(*chains, strict=True), strict=True):
        learned = [step._learned() | _other_mode(step) for step in steps]
        for name in dict.fromkeys(name for own in learned for name in own):
            quantities = [own.get(name) for own in learned]
            one = next(filter(None, quantities))
            dims = [prefix + dim for dim in one.dims]
            attrs = {"description": one.description}
            if one.units is not None:
                attrs["units"] = one.units
            arrays[prefix + name] = (["chain", *dims], _stacked(quantities), attrs)
            for dim, full in zip(one.dims, dims, strict=True):
                if dim in (COORDINATE, BIS):
                    coords[full] = steps[0].layout.coordinates()
                elif dim in one.labels:
                    coords[full] = list(one.labels[dim])
    return xr.Dataset(arrays, coords)


def _other_mode(step):
    """Return what a search knows of that OtherMode than the largest which is felt most, if any."""
    mass, *at = step.other_mode
    if np.isnan(mass):
        return {}
    where = "Where a mode is, besides the one of most mass: that which averages need most."
    return {
        OTHER_MODE: Quantity((COORDINATE,), at, where, UNITS),
        f"{OTHER_MODE}_mass": Quantity((), mass, "Its mass over the largest, about."),
    }


def _prefixes(steps):
    """Return what the names of each step begin with."""
    if len(steps) == 1:
        return [""]
    names = [step.name for step in steps]
    several = {name for name, count in Counter(names).items() if count > 1}
    return [
        f"{name}_{names[:k].count(name)}_" if name in several else f"{name}_"
        for k, name in enumerate(names)
    ]


def _stacked(quantities):
    """Return the values of all chains, None for those without, in one array that NaN fills up."""
    values = [None if one is None else np.asarray(one.values) for one in quantities]
    shapes = {None if value is None else value.shape for value in values}
    if len(shapes) == 1:
        return np.stack(values)
    largest = np.max([shape for shape in shapes if shape is not None], axis=0)
    stacked = np.full((len(values), *largest), np.nan)
    for k, value in enumerate(values):
        if value is not None:
            stacked[k, *map(slice, value.shape)] = value
    return stacked


# ---- what several samplers learn ----------------------------------------------------------------


def learned_walk(step):
    """Return what a step learned whose proposal has the covariance s²LLᵀ: s and LLᵀ."""
    description = "Scale of the proposal: its steps have the covariance scaling² · `covariance`."
    scale = scale_of(step.parameters, description)
    return {"scaling": scale, **covariance(step.parameters.factor, SHAPE_TEXT)}


def proposal_of_walk(learned, x, options):
    """Return the covariance of such a step's proposal, of what a chain of a result learned."""
    return learned["scaling"] ** 2 * learned["covariance"]


def scale_of(parameters, description):
    """Return the one scale of a proposal."""
    return Quantity((), np.exp(parameters.log_scale[0]), description)


def covariance(factor, description):
    """Return LLᵀ, or its diagonal if nothing else is learned."""
    if is_diagonal(factor):
        description += " Only its diagonal is learned."
        values = factor[:, 0] ** 2
        return {"variance": Quantity((COORDINATE,), values, description, f"{UNITS}, squared")}
    return {"covariance": Quantity((COORDINATE, BIS), product(factor), description, PRODUCT)}


def product(factor):
    """Return LLᵀ of triangular matrices (..., d, d), whatever is above their diagonals."""
    lower = np.tril(factor)
    return lower @ np.swapaxes(lower, -1, -2)
