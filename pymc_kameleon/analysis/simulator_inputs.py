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

N_PRIOR = 2**14
"""Draws of the prior, evenly spread where PyMC knows its quantiles."""


def posterior_inputs(names, dt):
    """Return the draws (n, p) of inputs; raise a ValueError for what the result does not keep."""
    x = _inputs_of(names, draws_in(dt, "go by"))
    return x.reshape(-1, len(names))


def _inputs_of(names, posterior):
    """Return the draws (chain, draw, p) of inputs."""
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


class Posterior:
    """What inputs vary over after a run: draws `x` (n, p), or more points, and better averages.

    The emulator's chain has stopped at many points between draws. They stand for draws where the
    emulated posterior is so close to the posterior that the bias is less than the error of draws:
    χ² / n bounds both squares, relative to the variance, with χ² = 1 / share − 1 by the weights.
    """

    def __init__(self, names, dt, model):
        self._names, self._draws = names, Draws(dt, model, evaluates=False)
        posterior = self._draws.posterior
        whole = {name for name, _ in map(split_name, names)}
        whole = [name if name in posterior else natural_name(name) for name in sorted(whole)]
        own = {name: posterior[name].transpose("chain", "draw", ...) for name in whole}
        self._dims = {name: values.dims for name, values in own.items()}
        self._is_known = self._draws.can_correct(whole) == whole
        self._x = self._of({name: values.values for name, values in own.items()})
        self.x = self._x.reshape(-1, len(names))
        if self._is_known and EMULATOR_MOVES in dt.children:
            moves = moves_of(dt[EMULATOR_MOVES].to_dataset())
            if len(moves.log_w) and (1 / ess_share(moves.log_w) - 1) * len(self.x) < 1:
                self.x = self._at(moves.stops.reshape(-1, moves.stops.shape[2]))

    def averages(self, function):
        """Return means (k,) of a function of inputs (n, p), with values (n, k), and halves.

        They are corrected where the result allows that, as those of ``pk.expectation``. Halves
        (2 · chains, k) are the means of the first and the second half of each chain.
        """
        chains, n, p = self._x.shape
        values = function(self._x.reshape(-1, p)).reshape(chains, n, -1)

        def at(points):
            return function(self._at(points))

        is_known = self._is_known and self._draws.is_of_each_draw(values, at)
        found = self._draws.corrected(values, at if is_known else None)
        means, parts = values.mean(axis=(0, 1)), np.array_split(values, 2, axis=1)
        halves = np.concatenate([part.mean(axis=1) for part in parts])
        if found is None or len(found.halves) != len(halves):
            return means, halves
        return (
            np.where(found.is_better, found.mean, means),
            np.where(found.is_better, found.halves, halves),
        )

    def _of(self, variables):
        """Return inputs (chain, draw, p) of variables by name, (chain, draw, ...)."""
        data = {name: (dims, variables[name]) for name, dims in self._dims.items()}
        return _inputs_of(self._names, xr.Dataset(data))

    def _at(self, points):
        """Return inputs (n, p) at points (n, d) of the unconstrained scale."""
        return self._draws.at(points, self._of, [*self._dims])


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
    drawn = pm.draw(list(variables.values()), draws=N_PRIOR, random_seed=rng)
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
