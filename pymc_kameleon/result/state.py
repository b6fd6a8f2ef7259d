"""States of chains as a result holds them, and back.

The group ``sampling_state`` holds all of it: positions, parameters, what tuning remembers, random
generators, and how the steps were made, as arrays, numbers and text, which survive a file. The
group ``learned`` tells people what tuning decided; nobody reads it back.
"""

import json
from dataclasses import fields
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.result.steps import as_json, describe
from pymc_kameleon.step.job import ChainState
from pymc_kameleon.step.learned import learned_dataset
from pymc_kameleon.step.monitor import ChainMonitor

STEP_TUPLES = ("parameters", "state", "tuning", "guide", "watch")
"""Fields of a step's state that are named tuples of arrays."""

DATA_CHANGED = "pm.Data, or the length of a dimension, was changed since"  # in errors


class Saved(NamedTuple):
    """A saved run that can go on."""

    plan: dict  # what it was asked for
    numbers: list  # of its chains
    arrays: list  # of dict: what `unpack` makes the state of each chain from
    draws: dict  # of Dataset: what is kept of its draws, by group


def pack(steps, states):
    """Return the datasets ``learned`` and ``sampling_state`` of the states of chains."""
    chains = [list(map(_informed, steps, state.steps)) for state in states]
    return learned_dataset(chains), xr.Dataset(stacked(steps, states))


def identity(job):
    """Return how the steps of a run were made, and a digest of its data, as text."""
    descriptions = json.dumps([describe(step) for step in job.steps])
    return {"steps": descriptions, "data": job.outputs.digest.hex()}


def _informed(step, state):
    """Return a copy of a step that knows what a chain has learned."""
    copy = step.for_chain()
    copy.parameters, copy.state = state.parameters, state.state
    copy.other_mode = state.other_mode
    return copy


def stacked(steps, states):
    """Return the states of chains as arrays: name -> (dimensions, values)."""
    arrays = {}
    _stack_leaves(arrays, "point", [state.point for state in states])
    for k in range(len(steps)):
        own, prefix = [state.steps[k] for state in states], _prefix(k, len(steps))
        for name in STEP_TUPLES:
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
        trails = [state.trail for state in own]
        if not all(np.isnan(trail).all() for trail in trails):  # some are on their way
            _stack_leaves(arrays, f"{prefix}trail", trails)
        _stack_leaves(arrays, f"{prefix}rounds", [state.rounds for state in own])
        _stack_leaves(arrays, f"{prefix}other_mode", [state.other_mode for state in own])
        _stack_leaves(arrays, f"{prefix}data", [state.data.hex() for state in own])
        generators = [json.dumps(s.rng.bit_generator_state, default=as_json) for s in own]
        _stack_leaves(arrays, f"{prefix}rng", generators)
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
            f"The result has no {missing}: it was changed, or is of another version."
        ) from None
    return ChainState(point, [step.sampling_state for step in copies])


def _unpack_step(step, arrays, prefix):
    names = [field.name for field in fields(ChainMonitor)]
    monitor = {name: arrays[f"{prefix}monitor_{name}"].item() for name in names}
    step.setup_chain(0, monitor["tune"], monitor["draws"])
    for name in STEP_TUPLES:
        template, free = getattr(step, name), step.lengths_of_run
        setattr(step, name, _refill(template, f"{prefix}{name}_", arrays, free))
    if arrays[f"{prefix}begun"].item():
        step.point = np.array(arrays[f"{prefix}own_point"])
    if arrays[f"{prefix}data"].item() != step.data.hex():
        raise ValueError(f"pk.resume needs the same data: {DATA_CHANGED}.")
    if f"{prefix}trail" in arrays:
        step.trail = np.array(arrays[f"{prefix}trail"]).reshape(-1, *step.trail.shape[1:])
    if step.rounds.size:
        step.rounds = np.array(arrays[f"{prefix}rounds"])
    step.other_mode = np.array(arrays[f"{prefix}other_mode"])
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


def _refill(template, prefix, arrays, free):
    """Return a NamedTuple like `template`, with leaves from `arrays`; `free` ones of any shape."""
    leaves = []
    for name, leaf in zip(template._fields, template, strict=True):
        if isinstance(leaf, tuple):
            leaves.append(_refill(leaf, f"{prefix}{name}_", arrays, free))
        elif not isinstance(leaf, np.ndarray):
            leaves.append(type(leaf)(arrays[prefix + name].item()))
        elif prefix + name not in arrays and (leaf.size == 0 or name in free):
            leaves.append(leaf)
        else:
            leaves.append(np.array(arrays[prefix + name], leaf.dtype, order="C"))
            if leaves[-1].shape != leaf.shape and name not in free:
                raise ValueError(f"{prefix + name} has another shape in this version.")
    return type(template)(*leaves)


def _generator_from_text(text):
    state = json.loads(text, object_hook=_with_arrays)
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _with_arrays(state):
    lists = {k: np.array(v, np.uint64) for k, v in state.items() if isinstance(v, list)}
    return state | lists
