"""What a run of `pk.sample` begins with: a job, states of chains, and room for draws.

They are made from the user's arguments, or from a run to go on with.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from pytensor.graph import Variable

from pymc_kameleon.advance import ChainState, Job
from pymc_kameleon.choice import bound_steps
from pymc_kameleon.groups import AHEAD, BEHIND, SURROGATE_MOVES, WARMUP_POSTERIOR, WARMUP_STATS
from pymc_kameleon.host import (
    coords_and_dims_for_inferencedata,
    get_default_varnames,
    get_random_generator,
    make_initial_point_fns_per_chain,
)
from pymc_kameleon.initvals import finite_point, jittered
from pymc_kameleon.options import checked_integer
from pymc_kameleon.results import Columns, Memory, check_names
from pymc_kameleon.resume import (
    check_same_density,
    check_same_outputs,
    check_untouched,
    describe,
    saved_tree,
    steps_and_names,
    unpack,
)
from pymc_kameleon.run import Chain
from pymc_kameleon.store import Store, locked, refuse_existing, saved_store

_log = logging.getLogger("pymc_kameleon")


@dataclass
class Prepared:
    """A run before its first draw.

    Attributes
    ----------
    job : Job
    chains : list of Chain
    record : Memory or Store
        Where draws go.
    attributes : dict
        What the run is asked for, as `resume` needs to know it.
    seconds : float
        What it took before.
    before : int
        Draws after tuning that it had.
    """

    job: Job
    chains: list
    record: object
    attributes: dict
    seconds: float = 0.0
    before: int = 0


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
    surrogate_draws = _checked_surrogate_draws(surrogate_draws, steps)
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
    attributes = _attributes(
        steps, names, outputs, draws, pool_tuning, keeps_warmup, surrogate_draws
    )
    record = _room(store, job, columns, numbers, tune, draws, attributes, states)
    return Prepared(job, _chains(numbers, states, steps), record, attributes)


def resumed_run(model, step, *, resume, store, draws, default_draws, until_enough, surrogate_draws):
    """Return a run that goes on, with the steps that are given, or as they were."""
    path = resume if isinstance(resume, Path) else None
    if path is not None and store is not None and store != path:
        raise ValueError(
            f"A run that is resumed from a store goes on in it, {path}: leave out store=."
        )
    lock = None if path is None else locked(path)
    try:
        saved = saved_tree(resume) if path is None else saved_store(path)
        options = {"draws": draws, "default_draws": default_draws, "until_enough": until_enough}
        options["surrogate_draws"] = surrogate_draws
        return _resumed(model, step, saved, path, lock, store, **options)
    except BaseException:
        if lock is not None:
            lock.release()
        raise


def _resumed(
    model,
    steps,
    saved,
    path,
    lock,
    store,
    *,
    draws,
    default_draws,
    until_enough,
    surrogate_draws,
):
    steps, names = steps_and_names(saved.plan, steps, model)
    check_whole(steps, model)
    if surrogate_draws is None:
        surrogate_draws = int(saved.plan.get("surrogate_draws", 0))
    surrogate_draws = _checked_surrogate_draws(surrogate_draws, steps)
    outputs = steps[0].outputs(names)
    check_same_outputs(saved, outputs, model)
    states = [unpack(steps, arrays) for arrays in saved.arrays]
    keeps_warmup = bool(saved.plan["keeps_warmup"])
    job = Job(steps, outputs, keeps_warmup)
    for state in states:
        check_same_density(job, state)
    if path is None:
        check_untouched(saved, steps, outputs, states)
    before = _draws_before(saved, states, path)
    if draws is None:
        planned = int(saved.plan["draws"])
        draws = max(0, planned - before)
        ended = all(state.monitor.done >= state.monitor.tune + planned for state in states)
        if draws == 0 and (ended or until_enough):
            # A script that is started again is to finish, and not to add.
            draws = default_draws if path is None or until_enough else 0
            _log.info(
                "The run had already made all its draws, %s of each chain. %s",
                f"{before:_}",
                f"It makes {'at most ' * until_enough}{draws:_} more; draws= sets another number."
                if draws
                else "Pass draws= to add to the store.",
            )
    total = before + draws
    for state in states:
        for step in state.steps:
            step.monitor.draws = total
    pool_tuning = bool(saved.plan["pool_tuning"])
    attributes = _attributes(
        steps, names, outputs, total, pool_tuning, keeps_warmup, surrogate_draws
    )
    coords, dims = _coords_and_dims_then(saved, model)
    columns = Columns(outputs, steps, keeps_warmup, coords, dims)
    check_names(model, columns, saved.numbers)
    room = max(total, *(state.monitor.done - state.monitor.tune for state in states))
    if path is not None:
        record = Store(path, lock, steps, columns, saved.numbers).extend(room, attributes, states)
    else:
        tune = states[0].monitor.tune
        record = _room(store, job, columns, saved.numbers, tune, room, attributes, states, saved)
    drawn = saved.draws.get("posterior", saved.draws.get(WARMUP_STATS))
    seconds = float(drawn.attrs.get("sampling_time", 0.0)) if drawn is not None else 0.0
    chains = _chains(saved.numbers, states, steps)
    return Prepared(job, chains, record, attributes, seconds, before)


def _room(store, job, columns, numbers, tune, draws, attributes, states, saved=None):
    """Return where draws go, with those of an earlier run, and with the first states."""
    if store is None:
        record = Memory(columns, numbers, tune, draws)
        _fill(record, states, saved)
        return record
    refuse_existing(store)
    lock = locked(store)
    try:
        refuse_existing(store)  # another run may have made it while this one waited for the lock
    except ValueError:
        lock.release()
        raise
    record = Store(store, lock, job.steps, columns, numbers)
    try:
        record.create(tune, draws, attributes, states)
        _fill(record, states, saved)
    except BaseException:
        record.discard()
        raise
    return record


def _fill(record, states, saved):
    """Keep the draws of an earlier run, if there is one, and the states that chains begin with."""
    if saved is not None:
        _take_over(record, saved)
    for row, state in enumerate(states):
        record.save(row, state)
    record.flush()


def _take_over(record, saved):
    """Keep the draws of an earlier run."""
    for group, variables in record.columns.groups.items():
        for part in (group, AHEAD + group, BEHIND + group):
            if part in saved.draws:
                found = saved.draws[part]
                start = int(found["draw"].values[0])
                rows = [saved.numbers.index(number) for number in found["chain"].values]
                for name in variables:
                    for row, values in zip(rows, found[name].values, strict=True):
                        record.put(row, start, group, name, values)


def _checked_surrogate_draws(n, steps):
    """Return how many draws of the surrogate are wanted; raise a ValueError if it has none."""
    checked_integer("surrogate_draws", n, at_least=0)
    if n > 0 and not (steps[0].kept and steps[0].kept_group == SURROGATE_MOVES):
        raise ValueError(
            "surrogate_draws needs a surrogate of the whole posterior, which step="
            "pk.SurrogateMetropolis() fits if it moves all variables, not "
            f"{', '.join(map(repr, steps))}."
        )
    return n


def _attributes(steps, names, outputs, draws, pool_tuning, keeps_warmup, surrogate_draws):
    return {
        "steps": json.dumps([describe(step) for step in steps]),
        "var_names": json.dumps(names),
        "data": outputs.digest.hex(),
        "draws": draws,
        "pool_tuning": int(pool_tuning),
        "keeps_warmup": int(keeps_warmup),
        "surrogate_draws": surrogate_draws,
        "draws_kept": -1,  # until it has ended
    }


def _chains(numbers, states, steps):
    pairs = zip(numbers, states, strict=True)
    return [Chain(row, number, state, steps) for row, (number, state) in enumerate(pairs)]


def _draws_before(saved, states, path):
    """Return the draws after tuning that a run has, to which more are added."""
    if saved.plan["draws_kept"] >= 0:
        return int(saved.plan["draws_kept"])
    return max(max(0, state.monitor.done - state.monitor.tune) for state in states)


def _coords_and_dims_then(saved, model):
    """Return coordinates and dimensions of the draws so far, or the model's."""
    coords, dims = coords_and_dims_for_inferencedata(model)
    for group in ("posterior", WARMUP_POSTERIOR):
        if group in saved.draws:
            found = saved.draws[group]
            kept = {k: v.values for k, v in found.coords.items() if k not in ("chain", "draw")}
            own = {name: list(found[name].dims[2:]) for name in found.data_vars}
            return coords | kept, dims | own
    return coords, dims


# ---- a first run --------------------------------------------------------------------------------


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
