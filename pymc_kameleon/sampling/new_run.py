"""A new run: a job and the first states of its chains, from the user's arguments."""

import numpy as np
from pytensor.graph import Variable

from pymc_kameleon.model.pymc_internals import (
    coords_and_dims_for_inferencedata,
    get_default_varnames,
    get_random_generator,
    make_initial_point_fns_per_chain,
)
from pymc_kameleon.model.starts import finite_point, jittered
from pymc_kameleon.result.columns import Columns, check_names
from pymc_kameleon.samplers.choice import bound_steps
from pymc_kameleon.sampling.prepared import Prepared, attributes_of_run, chains_from, room_for_draws
from pymc_kameleon.step.groups import SURROGATE_MOVES
from pymc_kameleon.step.job import ChainState, Job
from pymc_kameleon.step.options import checked_integer


def new_run(
    model,
    steps,
    *,
    draws,
    tune,
    chains,
    random_seed,
    initvals,
    var_names,
    pool_tuning,
    keeps_warmup,
    idata_kwargs,
    store,
    surrogate_draws,
):
    """Return a run that begins."""
    if draws + tune == 0:
        raise ValueError("draws and tune are 0: there is nothing to do.")
    surrogate_draws = checked_surrogate_draws(surrogate_draws, steps)
    names = names_to_keep(model, var_names, idata_kwargs)
    outputs = steps[0].outputs(names)
    coords, dims = coords_and_dims_for_inferencedata(model)
    columns = Columns(
        outputs,
        steps,
        keeps_warmup,
        coords | idata_kwargs.get("coords", {}),
        dims | idata_kwargs.get("dims", {}),
    )
    numbers = list(range(chains))
    check_names(model, columns, numbers)
    states = _first_states(model, steps, chains, tune, draws, random_seed, initvals)
    job = Job(steps, outputs, keeps_warmup)
    attributes = attributes_of_run(
        steps, names, outputs, draws, pool_tuning, keeps_warmup, surrogate_draws
    )
    record = room_for_draws(store, job, columns, numbers, tune, draws, attributes, states)
    return Prepared(job, chains_from(numbers, states, steps), record, attributes)


def checked_surrogate_draws(n, steps):
    """Return how many draws of the surrogate are wanted; raise a ValueError if it has none."""
    checked_integer("surrogate_draws", n, at_least=0)
    if n > 0 and not (steps[0].kept and steps[0].kept_group == SURROGATE_MOVES):
        raise ValueError(
            "surrogate_draws needs a surrogate of the whole posterior, which step="
            "pk.SurrogateMetropolis() fits if it moves all variables, not "
            f"{', '.join(map(repr, steps))}."
        )
    return n


def check_whole(steps, model):
    """Raise a ValueError unless each variable of the model is moved by one of the steps."""
    for each in steps:
        if each.model is not model:
            raise ValueError(f"{each!r} was made for another model.")
    moved = [var for each in steps for var in each.vars]
    left = [var.name for var in model.value_vars if var not in moved]
    if left:
        raise ValueError(
            f"No step moves {left}. pk.sample needs steps of pymc_kameleon for all variables, "
            "which have to be continuous; pm.sample(step=...) leaves others to PyMC's own steps."
        )
    twice = sorted({var.name for var in moved if moved.count(var) > 1})
    if twice:
        raise ValueError(f"{twice} are moved by two steps. Leave each variable to one.")


def checked_steps(step, model, compile_kwargs):
    """Return the steps as a list; raise a ValueError unless each variable is moved by one."""
    steps = bound_steps(step, model, compile_kwargs)
    check_whole(steps, model)
    return steps


def names_to_keep(model, var_names, idata_kwargs):
    """Return the names of what is kept of each draw, in PyMC's order."""
    every = [var.name for var in model.unobserved_value_vars]
    if var_names is None:
        return get_default_varnames(every, idata_kwargs.get("include_transformed", False))
    if isinstance(var_names, str):
        raise ValueError(f"var_names must be a list of names, as [{var_names!r}].")
    unknown = [name for name in var_names if name not in every]
    if unknown or len(var_names) == 0:
        raise ValueError(f"var_names must be some of {every}, not {unknown}.")
    return [name for name in every if name in var_names]


def _first_states(model, steps, chains, tune, draws, random_seed, initvals):
    """Return the states of chains before their first draw, as pm.sample begins with them."""
    rngs = get_random_generator(random_seed).spawn(chains)
    points = _starts(model, steps, [rng.integers(2**30) for rng in rngs], initvals)
    states = []
    for rng, point in zip(rngs, points, strict=True):
        own = [step.for_chain() for step in steps]
        step_rngs = rng.spawn(len(own)) if len(own) > 1 else [rng]
        for step, step_rng in zip(own, step_rngs, strict=True):
            step.setup_chain(step_rng, tune, draws)
        states.append(
            ChainState(steps[0].layout.raveled(point), [step.sampling_state for step in own])
        )
    return states


def _check_initvals(initvals, model):
    """Raise a ValueError if initial values are not by name, or not of the model's variables."""
    every = [initvals] if isinstance(initvals, dict) else initvals
    if not isinstance(every, list | tuple) or any(not isinstance(d or {}, dict) for d in every):
        raise ValueError(
            "initvals must be a dict, {name: value}, or a list with one for each chain, not "
            f"{initvals!r}."
        )
    known = {var.name: var.type.shape for var in (*model.free_RVs, *model.value_vars)}
    for values in every:
        values = {name: v for name, v in (values or {}).items() if isinstance(name, str)}
        strangers = [name for name in values if name not in known]
        if strangers:
            raise ValueError(f"initvals names {strangers}; the model has {', '.join(known)}.")
        for name, value in values.items():
            if not isinstance(value, str | Variable):
                _check_shape(name, np.shape(value), known[name])


def _check_shape(name, found, shape):
    """Raise a ValueError if a start has another shape, in which None is any length."""
    if len(found) != len(shape) or any(
        n not in (None, own) for n, own in zip(shape, found, strict=True)
    ):
        raise ValueError(f"The start of {name} has shape {found}, not {shape}.")


def _starts(model, steps, seeds, initvals):
    """Return a point on the unconstrained scale for each chain."""
    if initvals is None:
        copies = [step.for_chain() for step in steps]

        def logp(point):
            """Be -inf outside the region of any step."""
            q = steps[0].layout.raveled(point)
            try:
                return min(step.log_density(q[step.layout.places]) for step in copies)
            except Exception as error:
                advice = copies[0].log_density.advice(error)
                error.add_note(f"In chain {len(points)}, looking for a start, at {point}{advice}")
                raise

        draw, points = jittered(model), []
        for seed in seeds:
            points.append(finite_point(draw, logp, np.random.default_rng(seed), "jitter", model))
        return points
    _check_initvals(initvals, model)
    functions = make_initial_point_fns_per_chain(
        model=model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    points = [function(seed) for function, seed in zip(functions, seeds, strict=True)]
    for step in steps:
        for name, shape in step.layout.shapes.items():
            for point in points:
                _check_shape(name, np.shape(point[name]), shape)
    return points
