"""A run that goes on: a job and chains from a result, and whether the model is still the same."""

import json
import logging
from pathlib import Path

import numpy as np
import xarray as xr

from pymc_kameleon.model.pymc_internals import coords_and_dims_for_inferencedata
from pymc_kameleon.result.columns import Columns, check_names
from pymc_kameleon.result.state import CHANGED, Saved, unpack
from pymc_kameleon.result.steps import check_same_step, rebuilt_step
from pymc_kameleon.result.store import Store, locked, saved_store
from pymc_kameleon.sampling.new_run import check_whole, checked_surrogate_draws
from pymc_kameleon.sampling.prepared import Prepared, attributes_of_run, chains_from, room_for_draws
from pymc_kameleon.step.groups import LEARNED_GROUP, STATE_GROUP, WARMUP_POSTERIOR, WARMUP_STATS
from pymc_kameleon.step.job import Job

_log = logging.getLogger("pymc_kameleon")

PLAN = (
    *("steps", "var_names", "data", "draws", "pool_tuning", "keeps_warmup"),
    *("draws_kept", "chains_kept"),
)
"""Attributes that say what a run was asked for, and what a result has of it."""


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
    surrogate_draws = checked_surrogate_draws(surrogate_draws, steps)
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
    attributes = attributes_of_run(
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
        record = room_for_draws(
            store, job, columns, saved.numbers, tune, room, attributes, states, saved
        )
    drawn = saved.draws.get("posterior", saved.draws.get(WARMUP_STATS))
    seconds = float(drawn.attrs.get("sampling_time", 0.0)) if drawn is not None else 0.0
    chains = chains_from(saved.numbers, states, steps)
    return Prepared(job, chains, record, attributes, seconds, before)


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


def saved_tree(result):
    """Return what a result of pk.sample holds of its run; raise a ValueError if it is of others."""
    if not isinstance(result, xr.DataTree):
        raise ValueError(
            "resume must be a DataTree, which xarray.load_datatree reads from a file, or the path "
            f"of a store, not {result!r}."
        )
    if STATE_GROUP not in result.children:
        raise ValueError(
            f"resume must be a result of pk.sample; this one has no group {STATE_GROUP!r}. For a "
            "store, pass its path."
        )
    result.load()
    result.close()  # so that the new result may be written over the file
    states = result[STATE_GROUP].to_dataset()
    lacking = [key for key in PLAN if key not in states.attrs]
    if lacking:
        raise ValueError(
            f"resume has no {lacking} in 'sampling_state': it was changed, or is of another "
            "version of pymc_kameleon."
        )
    if "chain" not in states.dims:
        raise ValueError("resume has no dimension chain. Select one as dt.isel(chain=[0]).")
    numbers = states["chain"].values.tolist()
    rows = range(len(numbers))
    arrays = [{name: values.values[row] for name, values in states.items()} for row in rows]
    no_draws = LEARNED_GROUP, STATE_GROUP
    draws = {name: result[name].to_dataset() for name in result.children if name not in no_draws}
    return Saved(states.attrs, numbers, arrays, draws)


def steps_and_names(plan, steps, model):
    """Return the steps of a run, those given or rebuilt, and the names that it keeps."""
    descriptions = json.loads(plan["steps"])
    if steps is None:
        steps = [rebuilt_step(description, model) for description in descriptions]
    elif len(steps) != len(descriptions):
        raise ValueError(
            f"resume needs the same steps: there were {len(descriptions)} steps, now {len(steps)}."
        )
    for step, description in zip(steps, descriptions, strict=True):
        check_same_step(step, description)
    return steps, json.loads(plan["var_names"])


def check_same_outputs(saved, outputs, model):
    """Raise a ValueError unless draws of a result and new ones have the same shape and meaning."""
    if saved.plan["data"] != outputs.digest.hex():
        raise ValueError(f"resume needs the same data: {CHANGED}.")
    if "posterior" not in saved.draws:
        return
    posterior = saved.draws["posterior"]
    for name, (shape, _) in outputs.variables.items():
        if name not in posterior or posterior[name].shape[2:] != shape:
            raise ValueError(f"resume needs the same model: {name} did not have shape {shape}.")
    for name, values in coords_and_dims_for_inferencedata(model)[0].items():
        if name in posterior.coords and list(posterior[name].values) != list(np.asarray(values)):
            raise ValueError(f"resume needs the same model: the coordinate {name} has changed.")


def check_untouched(saved, steps, outputs, states):
    """Raise a ValueError if draws were taken out of a result, or put in another order.

    Its last draws are compared with what the states of its chains give.
    """
    kept, tuned = saved.plan["draws_kept"], saved.plan["tuning_kept"]
    chains = json.loads(saved.plan["chains_kept"])
    chains = [number for number in saved.numbers if number in chains]
    lengths = {"posterior": kept, "sample_stats": kept, WARMUP_STATS: tuned}
    if saved.plan["keeps_warmup"]:
        lengths[WARMUP_POSTERIOR] = tuned
    if steps[0].kept:
        lengths[steps[0].kept_group] = kept
    for group, had in lengths.items():
        found = saved.draws.get(group)
        n = 0 if found is None else found.sizes.get("draw", 0)
        if n != had:
            raise ValueError(
                f"resume needs the whole result: its group {group} has {n} draws, and the run had "
                f"{had}. Thin or cut it after resuming."
            )
        if n > 0 and not np.array_equal(found["draw"].values, np.arange(n)):
            raise ValueError(
                "resume needs the draws as they were made: those of its group "
                f"{group} are in another order."
            )
        if found is not None and found["chain"].values.tolist() != chains:
            raise ValueError(
                f"resume needs the whole result: its group {group} has the chains "
                f"{found['chain'].values.tolist()}, and 'sampling_state' {saved.numbers}."
            )
    last = saved.draws.get("posterior")
    for number, state in zip(saved.numbers, states, strict=True):
        if number not in chains or state.monitor.done - state.monitor.tune != kept or kept == 0:
            continue
        for name, value in outputs.at(state.point).items():
            before = last[name].sel(chain=number).values[-1]
            if not np.allclose(before, value, rtol=1e-5, atol=1e-8, equal_nan=True):
                raise ValueError(
                    f"resume needs the draws as they were made: the last one of {name} in chain "
                    f"{number} is not where the chain stopped, which is at {value}. "
                    "Were draws or chains put in another order?"
                )


def check_same_density(job, state):
    """Raise a ValueError if the log-density is not what it was, and not noisy."""
    step = job.steps_at(state)[-1]
    if step.point is None or step.pseudo_marginal:
        return
    now, again = (step.log_density(state.point[step.layout.places]) for _ in range(2))
    before = step.state.logp[0]
    if now == again and not np.isclose(now, before, rtol=1e-6, atol=1e-6):
        raise ValueError(
            "resume needs the same model and data: the log-density of the last draw was "
            f"{before:.8g}, and is {now:.8g} now."
        )
