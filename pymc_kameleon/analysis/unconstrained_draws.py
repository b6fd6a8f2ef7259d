"""Draws of any result on the unconstrained scale of its model: where its log-density is smooth."""

import numpy as np
import pymc as pm
from pytensor.compile import Mode
from pytensor.graph.replace import clone_replace, vectorize_graph
from scipy.special import logit

from pymc_kameleon.model.layout import Layout, fits, split_name
from pymc_kameleon.model.pymc_internals import natural_name

TRANSFORMS = {"_log__": np.log, "_logodds__": logit}
"""Transforms of PyMC that need no bounds, by what they add to a variable's name."""


class NotMapped(Exception):
    """Why draws are not known on the unconstrained scale: the end of a sentence."""


def variables_lacking(posterior, model):
    """Return the names of the variables of a model that draws do not have."""
    return [
        rv.name
        for rv in model.free_RVs
        if rv.name not in posterior and model.rvs_to_values[rv].name not in posterior
    ]


def on_unconstrained_scale(posterior, model):
    """Return draws x (chains, draws, d) on the scale that samplers move on, Layout, first point.

    They are taken as they are if the posterior has them, or else made by the transforms of the
    model, whose variables are continuous. Raise NotMapped if elements are lacking, or a draw is on
    a bound.
    """
    sizes = posterior.sizes["chain"], posterior.sizes["draw"]
    names = [var.name for var in model.value_vars]
    if all(name in posterior for name in names):
        kept = {name: posterior[name].transpose("chain", "draw", ...).values for name in names}
    else:
        natural = {rv: draws_of(rv, posterior, model) for rv in model.free_RVs}
        kept = transformed(natural, model)
    values = {name: kept[name].reshape(-1, *kept[name].shape[2:]) for name in names}
    point = {name: own[0] for name, own in values.items()}
    layout = Layout(model, list(model.value_vars), point)
    flat = np.concatenate([own.reshape(len(own), -1) for own in values.values()], axis=1)
    if not np.isfinite(flat).all():
        name = next(name for name, own in values.items() if not np.isfinite(own).all())
        raise NotMapped(
            f"draws of {name} are not finite: NaN, on a bound, or rounded to it (sample with "
            'idata_kwargs={"include_transformed": True})'
        )
    return flat.astype(np.float64).reshape(*sizes, -1), layout, point


def draws_of(rv, posterior, model):
    """Return the draws (chain, draw, ...) of a free variable, all elements in the model's order."""
    own = posterior[rv.name].transpose("chain", "draw", ...)
    dims = model.named_vars_to_dims.get(rv.name) or ()
    try:
        if dims and set(dims) <= set(own.dims):
            own = own.transpose("chain", "draw", *dims)
            labels = {dim: list(model.coords[dim]) for dim in dims if model.coords.get(dim)}
            own = own.sel({dim: known for dim, known in labels.items() if dim in own.coords})
    except (KeyError, ValueError):
        own = None
    if own is None or not fits(own.shape[2:], rv.type.shape):
        raise NotMapped(f"the draws do not have all elements of {rv.name}")
    return own.values


def transformed(natural, model):
    """Return draws of free variables on the unconstrained scale, by name, transformed at once."""
    given = {rv: rv.type(f"{rv.name}_given") for rv in natural}
    transforms = {rv: model.rvs_to_transforms[rv] for rv in natural}
    forward = [
        rv if transform is None else transform.forward(rv, *rv.owner.inputs)
        for rv, transform in transforms.items()
    ]
    forward = clone_replace(forward, given, rebuild_strict=False)
    flat = [own.reshape(-1, *own.shape[2:]).astype(rv.dtype) for rv, own in natural.items()]
    many = [one.type.clone(shape=(None, *one.type.shape))() for one in given.values()]
    batched = vectorize_graph(forward, dict(zip(given.values(), many, strict=True)))
    function = pm.compile(many, batched, mode=Mode("py", "fast_compile"), on_unused_input="ignore")
    with np.errstate(all="ignore"):
        found = function(*flat)
    names = [model.rvs_to_values[rv].name for rv in natural]
    chains, draws = next(iter(natural.values())).shape[:2]
    return {
        name: np.broadcast_to(own, (chains * draws, *own.shape[1:])).reshape(
            chains, draws, *own.shape[1:]
        )
        for name, own in zip(names, found, strict=True)
    }


def draws_of_coordinate(posterior, coordinate):
    """Return the draws (chain, draw) of a coordinate of the unconstrained scale, by its name.

    Those of logarithms and logits need no model; raise a ValueError for others that are not kept.
    """
    name, index = split_name(coordinate)
    natural, into = name, None
    if name not in posterior:
        natural = natural_name(name)
        into = next((TRANSFORMS[end] for end in TRANSFORMS if name == natural + end), None)
        if into is None or natural not in posterior:
            raise ValueError(
                f"The draws of {name}, on the scale that it is sampled on, are not in the result. "
                'Sample with idata_kwargs={"include_transformed": True} and all var_names, or '
                "leave it out here, with var_names or coords."
            )
    values = posterior[natural].transpose("chain", "draw", ...)[(..., *index)].astype(float)
    values = values.drop_vars([c for c in values.coords if c not in ("chain", "draw")])
    return values if into is None else into(values)
