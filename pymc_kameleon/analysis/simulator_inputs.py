"""The inputs of a simulator: what they vary over, and what it returns of others."""

from functools import partial

import numpy as np
import pymc as pm
import xarray as xr
from pytensor.compile import Mode
from pytensor.graph.traversal import ancestors

from pymc_kameleon.analysis.corrections import ess_share
from pymc_kameleon.analysis.draws_of_result import Draws
from pymc_kameleon.analysis.emulator_correction import moves_of
from pymc_kameleon.analysis.unconstrained_draws import draws_of_coordinate
from pymc_kameleon.findings.words import some
from pymc_kameleon.model.layout import split_name
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.model.simulator_logp import called
from pymc_kameleon.model.simulators import cut_of
from pymc_kameleon.result.opening import draws_in
from pymc_kameleon.samplers.emulator.evaluations import labels
from pymc_kameleon.step.groups import EMULATOR_MOVES

N_DRAWS = 16_384
"""Draws of the posterior, at most, and of the prior: evenly spread if PyMC knows its quantiles."""


def posterior_inputs(names, posterior):
    """Return the draws (chain, draw, p) of inputs; a ValueError says which are not there."""
    columns = []
    for name in names:
        try:
            columns.append(draws_of_coordinate(posterior, name))
        except ValueError:
            raise ValueError(
                f"The result has no draws of {name}, which the simulator takes. Let what it takes "
                "be parameters or a pm.Deterministic of the model, or sample with "
                'idata_kwargs={"include_transformed": True}.'
            ) from None
    return np.stack([own.transpose("chain", "draw").values for own in columns], axis=2)


def posterior_points(names, dt, model):
    """Return what inputs vary over after a run, (n, p), one chain after the other.

    The emulator's chain has stopped at many points between draws. They stand for draws where the
    emulated posterior is so close to the posterior that the bias is less than the error of draws:
    χ² / n bounds both squares, relative to the variance, with χ² = 1 / share − 1 by the weights.
    """
    x = posterior_inputs(names, draws_in(dt, "go by")).reshape(-1, len(names))
    if EMULATOR_MOVES in dt.children:
        moves = moves_of(dt[EMULATOR_MOVES].to_dataset())
        if len(moves.log_w) and (1 / ess_share(moves.log_w) - 1) * len(x) < 1:
            points = moves.stops.reshape(-1, moves.stops.shape[2])
            of_stops = _inputs_at(points, names, Draws(dt, model, evaluates=False))
            x = x if of_stops is None else of_stops
    return x[:: -(-len(x) // N_DRAWS)]


def _inputs_at(points, names, draws):
    """Return inputs (n, p) at unconstrained points (n, d), None if they are not known there."""
    whole = {name for name, _ in map(split_name, names)}
    own = [name if name in draws.posterior else natural_name(name) for name in sorted(whole)]
    if draws.can_correct(own) != own:
        return None
    dims = {name: draws.posterior[name].transpose("chain", "draw", ...).dims for name in own}

    def inputs(variables):
        data = {name: (dims[name], variables[name]) for name in own}
        return posterior_inputs(names, xr.Dataset(data))

    return draws.at(points, inputs, own)


def prior_inputs(names, model, rng):
    """Return draws (n, p) of inputs from the prior, and whether they are sure to be independent."""
    model = pm.modelcontext(model)
    elements = [split_name(name) for name in names]
    unknown = [name for name, _ in elements if natural_name(name) not in model.named_vars]
    if unknown:
        raise ValueError(
            f"The model has no variable for {some(unknown)}. Let each input be a parameter or a "
            "pm.Deterministic."
        )
    variables = {name: _variable(name, model) for name, _ in elements}
    drawn = pm.draw(list(variables.values()), draws=N_DRAWS, random_seed=rng)
    drawn = dict(zip(variables, drawn, strict=True))
    independent = _are_independent(list(variables.values()), model)
    if independent:
        drawn = {name: _stratified(variables[name], own, rng) for name, own in drawn.items()}
    x = np.stack([drawn[name][:, *index] for name, index in elements], axis=1).astype(np.float64)
    return x, independent


def _stratified(variable, drawn, rng):
    """Return draws (n, ...) of a variable that are evenly spread, or these if PyMC cannot."""
    places = np.argsort(rng.random(drawn.shape), axis=0)
    try:
        values = pm.icdf(variable, (places + 0.5) / len(drawn)).eval(mode=Mode("py", None))
    except (NotImplementedError, TypeError, ValueError):  # it is no random variable, or has no icdf
        return drawn
    return values if np.isfinite(values).all() else drawn


def _variable(name, model):
    """Return the random variable of a name, on the scale that it is sampled on if it is of that."""
    if name in model.named_vars:
        return model[name]
    rv = model[natural_name(name)]
    return model.rvs_to_transforms[rv].forward(rv, *rv.owner.inputs)


def _are_independent(variables, model):
    """Whether no two inputs depend on the same random variable, and elements of one are apart."""
    free = set(model.free_RVs)
    above = [free & set(ancestors([var])) for var in variables]
    for own, var in zip(above, variables, strict=True):
        if len(own) != 1:
            return False
        [rv] = own
        is_apart = rv is var and rv.owner.op.ndim_supp == 0
        if var.type.ndim and not is_apart:
            return False
    return all(not a & b for k, a in enumerate(above) for b in above[:k])


# ---- the simulator ------------------------------------------------------------------------------


def simulator_in(model, label, shapes=None):
    """Return a function that calls the simulator of this label, for each of inputs x (n, p).

    Without the `shapes` that a run has found, it is called once to find these.
    """
    model = pm.modelcontext(model)
    point, own = model.initial_point(), model.continuous_value_vars
    cut = cut_of(model, model.logp(), own, point, shapes)
    known = labels(cut.simulators)
    if label not in known:
        raise ValueError(f"The model calls {some(known)}, and not {label!r}.")
    return partial(called, cut.alone[known.index(label)])
