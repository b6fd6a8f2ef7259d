"""States of chains as a result holds them, and back.

The group ``sampling_state`` holds all of it: positions, parameters, what tuning remembers, and
random generators. Of each chain that is a file of numpy's, as bytes, which a store holds, too. How
the steps were made is in its attributes. The group ``learned`` tells people what tuning decided;
nobody reads it back.
"""

import io
import json
from dataclasses import fields
from typing import NamedTuple
from zipfile import BadZipFile

import numpy as np
import xarray as xr

from pymc_kameleon.result.steps import as_json, describe
from pymc_kameleon.step.job import ChainState
from pymc_kameleon.step.learned import learned_dataset
from pymc_kameleon.step.monitor import ChainMonitor

STEP_TUPLES = ("parameters", "state", "tuning", "guide", "watch")
"""Fields of a step's state that are named tuples of arrays."""

DATA_CHANGED = "pm.Data, or the length of a dimension, was changed since"  # in errors

UNREADABLE = (BadZipFile, EOFError, KeyError, OSError, RuntimeError, ValueError)
"""Exceptions that files raise which were cut or changed."""


class Saved(NamedTuple):
    """A saved run that can go on."""

    plan: dict  # what it was asked for
    numbers: list  # of its chains
    arrays: list  # of dict: what `unpack` makes the state of each chain from
    draws: dict  # of Dataset: what is kept of its draws, by group


def pack(steps, states):
    """Return the datasets ``learned`` and ``sampling_state`` of the states of chains."""
    chains = [list(map(_informed, steps, state.steps)) for state in states]
    contents = [as_bytes(state) for state in states]
    rows = np.stack([in_room(content, max(map(len, contents))) for content in contents])
    return learned_dataset(chains), xr.Dataset({"state": (("chain", "byte"), rows)})


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


def as_bytes(state):
    """Return the state of a chain as the content of a file."""
    arrays = {"point": state.point}
    for k, own in enumerate(state.steps):
        for name in STEP_TUPLES:
            arrays |= _leaves(f"{k}.{name}", getattr(own, name))
        arrays |= {f"{k}.monitor.{name}": value for name, value in vars(own.monitor).items()}
        begun = own.point is not None
        arrays |= {} if begun else {f"{k}.trail": own.trail}
        arrays[f"{k}.own_point"] = own.point if begun else np.zeros_like(state.point)
        arrays[f"{k}.tunes"] = own.tune
        arrays[f"{k}.rounds"], arrays[f"{k}.other_mode"] = own.rounds, own.other_mode
        arrays[f"{k}.data"] = own.data.hex()
        arrays[f"{k}.rng"] = json.dumps(own.rng.bit_generator_state, default=as_json)
    content = io.BytesIO()
    np.savez(content, **arrays)
    return content.getbuffer()


def in_room(content, size):
    """Return the content of a file as an array (size,) that ends in zeros."""
    room = np.zeros(size, np.uint8)
    room[: len(content)] = np.frombuffer(content, np.uint8)
    return room


def arrays_in(room):
    """Return what `unpack` needs, from what `in_room` returned; if damaged, raise an UNREADABLE."""
    end = bytes(22)  # which zip looks for in the last 64 kB
    with np.load(io.BytesIO(room.tobytes().rstrip(b"\0") + end)) as arrays:
        return dict(arrays)


def unpack(steps, arrays):
    """Return the state of a chain, from the arrays that `as_bytes` made of it."""
    copies = [step.for_chain() for step in steps]
    try:
        for k, step in enumerate(copies):
            own = {n.removeprefix(f"{k}."): v for n, v in arrays.items() if n.startswith(f"{k}.")}
            _unpack_step(step, own)
        return ChainState(arrays["point"], [step.leave() for step in copies])
    except KeyError as missing:
        raise ValueError(
            f"The result has no {missing}: it was changed, or is of another version."
        ) from None


def _unpack_step(step, arrays):
    names = [field.name for field in fields(ChainMonitor)]
    monitor = ChainMonitor(**{name: arrays[f"monitor.{name}"].item() for name in names})
    step.setup_chain(0, monitor.tune, monitor.draws)
    for name in STEP_TUPLES:
        setattr(step, name, _refill(getattr(step, name), name, arrays, step.lengths_of_run))
    if arrays["data"].item() != step.data.hex():
        raise ValueError(f"pk.resume needs the same data: {DATA_CHANGED}.")
    if "trail" in arrays:
        step.trail = arrays["trail"]
    else:
        step.point = arrays["own_point"]
    step.rounds, step.other_mode = arrays["rounds"], arrays["other_mode"]
    step.rng = _generator_from_text(arrays["rng"].item())
    step.monitor, step.tune = monitor, arrays["tunes"].item()


def _leaves(prefix, values):
    """Return the leaves of a NamedTuple by name."""
    leaves = {}
    for name, leaf in zip(values._fields, values, strict=True):
        own = f"{prefix}.{name}"
        leaves |= _leaves(own, leaf) if isinstance(leaf, tuple) else {own: leaf}
    return leaves


def _refill(template, prefix, arrays, free):
    """Return a NamedTuple like `template`, with leaves from `arrays`; `free` ones of any shape."""
    leaves = []
    for name, leaf in zip(template._fields, template, strict=True):
        own = f"{prefix}.{name}"
        if isinstance(leaf, tuple):
            leaves.append(_refill(leaf, own, arrays, free))
        elif not isinstance(leaf, np.ndarray):
            leaves.append(type(leaf)(arrays[own].item()))
        else:
            leaves.append(np.array(arrays[own], leaf.dtype, order="C"))
            if leaves[-1].shape != leaf.shape and name not in free:
                raise ValueError(f"{own} has another shape in this version.")
    return type(template)(*leaves)


def _generator_from_text(text):
    state = json.loads(text, object_hook=_with_arrays)
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _with_arrays(state):
    lists = {k: np.array(v, np.uint64) for k, v in state.items() if isinstance(v, list)}
    return state | lists
