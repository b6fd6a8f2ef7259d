"""Chains that can go on: what a result holds of them, and chains from it.

The group ``sampling_state`` holds all of it: positions, parameters, what tuning remembers, random
generators, and how the steps were made, as arrays, numbers and text, which survive a file. The
group ``learned`` tells people what tuning decided; nobody reads it back.
"""

import json
from dataclasses import asdict, fields, is_dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.advance import ChainState
from pymc_kameleon.groups import LEARNED_GROUP, STATE_GROUP, WARMUP_POSTERIOR, WARMUP_STATS
from pymc_kameleon.host import coords_and_dims_for_inferencedata
from pymc_kameleon.learned import learned_dataset
from pymc_kameleon.monitor import ChainMonitor
from pymc_kameleon.step import samplers

PLAN = (
    *("steps", "var_names", "data", "draws", "pool_tuning", "keeps_warmup"),
    *("draws_kept", "chains_kept"),
)
"""Attributes that say what a run was asked for, and what a result has of it."""

TUPLES = ("parameters", "state", "tuning", "guide")
"""Of a step, as arrays."""

CHANGED = "pm.Data, or the length of a dimension, was changed since"

ELSEWHERE = {"model", "vars", "rng", "blocked"}
"""Arguments of a step that are no options of it."""


class Saved(NamedTuple):
    """A run to go on with.

    Attributes
    ----------
    plan : dict
        What it was asked for.
    numbers : list of int
        Of its chains.
    arrays : list of dict
        What `unpack` makes the state of each chain from.
    draws : dict of Dataset
        What is kept of its draws, by group.
    """

    plan: dict
    numbers: list
    arrays: list
    draws: dict


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


# ---- steps --------------------------------------------------------------------------------------


def describe(step):
    """Return sampler, variables and options of a step as JSON takes them.

    The options are None if some of them are objects that cannot be stored.
    """
    _, arguments = step.__getnewargs_ex__()
    try:
        given = {name: value for name, value in arguments.items() if name not in ELSEWHERE}
        options = _all_encoded(given, step.option_types)
    except TypeError:
        options = None
    return {
        "variables": list(step.var_names),
        "shapes": [list(shape) for shape in step.layout.shapes.values()],
        "configuration": json.loads(json.dumps(step.configuration, default=_as_json)),
        "options": options,
    }


def sampler_of(result, variables):
    """Return name and class of the sampler that moved these variables, and its options.

    The class is None if it is not known here, the options if the result does not hold them.
    """
    for description in json.loads(result[STATE_GROUP].attrs["steps"]):
        if set(description["variables"]) == set(variables):
            return _class_and_options(description)
    raise ValueError(f"No step of the result moved {sorted(variables)} together.")


def rebuilt_step(description, model):
    """Make the step that `describe` described, for the same variables of `model`."""
    name, sampler, options = _class_and_options(description)
    if options is None:
        raise ValueError(
            f"The step, {name}, cannot be made again from what the result holds, as it is not "
            "known here, or has options that cannot be stored. Pass step=, made as the first time."
        )
    own = {var.name: var for var in model.value_vars}
    missing = [name for name in description["variables"] if name not in own]
    if missing:
        raise ValueError(f"resume needs the same model: this one has no variables {missing}.")
    variables = [own[name] for name in description["variables"]]
    return sampler(variables, model=model, **options)


def _class_and_options(description):
    """Return what `sampler_of` does, of a step that `describe` described."""
    name, options = description["configuration"]["sampler"], description["options"]
    sampler = {cls.__name__: cls for cls in samplers()}.get(name)
    if sampler is None or options is None:
        return name, sampler, None
    return name, sampler, _all_decoded(options, {cls.__name__: cls for cls in sampler.option_types})


def check_same_step(step, description):
    """Raise a ValueError unless the step is the one that was described."""
    own = describe(step)
    old, new = (d | d["configuration"] for d in (description, own))
    for what in ("sampler", "variables", "shapes", *description["configuration"]):
        if json.dumps(old[what]) != json.dumps(new.get(what)):  # a NaN equals itself
            raise ValueError(
                f"resume needs the same model and step: {what} was {old[what]!r}, and is "
                f"{new.get(what)!r} now."
            )


def _as_json(value):
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return repr(value)


def _encoded(value, types):
    """Return an option as JSON takes it; raise a TypeError if it is an unknown object."""
    if type(value) in types:
        parts = asdict(value) if is_dataclass(value) else value._asdict()
        return {"type": type(value).__name__, "value": _all_encoded(parts, types)}
    if isinstance(value, np.ndarray):
        return {"type": "array", "value": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"type": "dict", "value": _all_encoded(value, types)}
    if isinstance(value, list | tuple):
        return [_encoded(v, types) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError


def _all_encoded(values, types):
    return {name: _encoded(value, types) for name, value in values.items()}


def _all_decoded(options, types):
    return {name: _decoded(value, types) for name, value in options.items()}


def _decoded(value, types):
    """Return what `_encoded` has encoded; `types` are the classes by name."""
    if isinstance(value, list):
        return [_decoded(v, types) for v in value]
    if not isinstance(value, dict):
        return value
    kind, value = value["type"], value["value"]
    if kind == "array":
        return np.array(value)
    parts = _all_decoded(value, types)
    return parts if kind == "dict" else types[kind](**parts)


# ---- chains -------------------------------------------------------------------------------------


def pack(steps, states):
    """Return the datasets ``learned`` and ``sampling_state`` of the states of chains."""
    chains = [list(map(_informed, steps, state.steps)) for state in states]
    descriptions = json.dumps([describe(step) for step in steps])
    arrays = stacked(steps, states)
    return learned_dataset(chains), xr.Dataset(arrays, attrs={"steps": descriptions})


def _informed(step, state):
    """Return a copy of a step that knows what a chain has learned."""
    copy = step.for_chain()
    copy.parameters, copy.state = state.parameters, state.state
    return copy


def stacked(steps, states):
    """Return the states of chains as arrays: name -> (dimensions, values)."""
    arrays = {}
    _stack_leaves(arrays, "point", [state.point for state in states])
    for k in range(len(steps)):
        own, prefix = [state.steps[k] for state in states], _prefix(k, len(steps))
        for name in TUPLES:
            _stack(arrays, f"{prefix}{name}_", [getattr(state, name) for state in own])
        for field in fields(ChainMonitor):
            values = [getattr(state.monitor, field.name) for state in own]
            _stack_leaves(arrays, f"{prefix}monitor_{field.name}", values)
        points = [state.point for state in own]
        begun = [point is not None for point in points]
        nowhere = np.zeros(steps[k].layout.places.size)
        _stack_leaves(arrays, f"{prefix}begun", begun)
        points = [p if b else nowhere for p, b in zip(points, begun, strict=True)]
        _stack_leaves(arrays, f"{prefix}own_point", points)
        _stack_leaves(arrays, f"{prefix}tunes", [state.tune for state in own])
        _stack_leaves(arrays, f"{prefix}trail", [state.trail for state in own])
        _stack_leaves(arrays, f"{prefix}data", [state.data.hex() for state in own])
        _stack_leaves(arrays, f"{prefix}rng", [_generator_as_text(state.rng) for state in own])
    return arrays


def unpack(steps, arrays):
    """Return the state of a chain, from what `pack` made of that chain alone."""
    copies = [step.for_chain() for step in steps]
    try:
        for k, step in enumerate(copies):
            _unpack_step(step, arrays, _prefix(k, len(copies)))
        point = np.array(arrays["point"])
    except KeyError as missing:
        raise ValueError(
            f"resume has no {missing}: it was changed, or is of another version of pymc_kameleon."
        ) from None
    return ChainState(point, [step.sampling_state for step in copies])


def _unpack_step(step, arrays, prefix):
    monitor = {f.name: arrays[f"{prefix}monitor_{f.name}"].item() for f in fields(ChainMonitor)}
    step.setup_chain(0, monitor["tune"], monitor["draws"])
    for name in TUPLES:
        setattr(step, name, _refill(getattr(step, name), f"{prefix}{name}_", arrays))
    if arrays[f"{prefix}begun"].item():
        step.point = np.array(arrays[f"{prefix}own_point"])
    if arrays[f"{prefix}data"].item() != step.data.hex():
        raise ValueError(f"resume needs the same data: {CHANGED}.")
    if step.trail.size:
        step.trail = np.array(arrays[f"{prefix}trail"])
    step.rng = _generator_from_text(str(arrays[f"{prefix}rng"].item()))
    step.monitor, step.tune = ChainMonitor(**monitor), bool(arrays[f"{prefix}tunes"].item())


def _prefix(k, n_steps):
    """Return what the names of the k-th step's arrays begin with, if there are several."""
    return f"step_{k}_" if n_steps > 1 else ""


def _stack(arrays, prefix, values):
    """Put NamedTuples of all chains into `arrays`, leaf by leaf."""
    for i, name in enumerate(values[0]._fields):
        parts = [value[i] for value in values]
        if isinstance(parts[0], tuple):
            _stack(arrays, f"{prefix}{name}_", parts)
        else:
            _stack_leaves(arrays, prefix + name, parts)


def _stack_leaves(arrays, name, leaves):
    stacked = np.stack([np.asarray(leaf) for leaf in leaves])
    if stacked.size:  # files have no arrays of length 0
        arrays[name] = (("chain", *(f"{name}_dim_{i}" for i in range(stacked.ndim - 1))), stacked)


def _refill(template, prefix, arrays):
    """Return a NamedTuple like `template`, with leaves from `arrays`."""
    leaves = []
    for name, leaf in zip(template._fields, template, strict=True):
        if isinstance(leaf, tuple):
            leaves.append(_refill(leaf, f"{prefix}{name}_", arrays))
        elif not isinstance(leaf, np.ndarray):
            leaves.append(type(leaf)(arrays[prefix + name].item()))
        elif leaf.size == 0:
            leaves.append(leaf)
        else:
            leaves.append(np.array(arrays[prefix + name], leaf.dtype, order="C"))
            if leaves[-1].shape != leaf.shape:
                raise ValueError(f"{prefix + name} has another shape in this version.")
    return type(template)(*leaves)


def _generator_as_text(state):
    return json.dumps(state.bit_generator_state, default=_as_json)


def _generator_from_text(text):
    state = json.loads(text, object_hook=_with_arrays)
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _with_arrays(state):
    lists = {k: np.array(v, np.uint64) for k, v in state.items() if isinstance(v, list)}
    return state | lists
