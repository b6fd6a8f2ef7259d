"""A DataTree from draws, and chains that can go on from a DataTree.

The group ``learned`` holds the parameters that tuning decided, one row for each chain;
``sampling_state`` holds the rest: positions, what tuning remembers, random generators, and how the
steps were made. Both are arrays, numbers and text, so they survive a file.
"""

import json
from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import version

import numpy as np
import xarray as xr
from arviz_base import dict_to_dataset

from pymc_kameleon.core.schedules import Decay
from pymc_kameleon.host import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc_kameleon.kernels import Gaussian, Linear, Matern
from pymc_kameleon.step import KameleonStep, Watch

LEARNED, STATE = "learned", "sampling_state"

RENAMED = {"model_logp": "lp"}
"""Statistics that PyMC renames."""

CHANGED = "pm.Data, or the length of a dimension, was changed since"

OPTION_TYPES = {cls.__name__: cls for cls in (Decay, Gaussian, Matern, Linear)}
"""Types of options, besides numbers, text, arrays, and lists and dicts of them."""

ELSEWHERE = {"model", "vars", "rng", "blocked"}
"""Arguments of a step that are no options of it."""

# ---- draws --------------------------------------------------------------------------------------


class Draws:
    """Room for what is kept of some draws of each chain.

    Parameters
    ----------
    chains, draws : int
    outputs : ModelOutputs
    steps : list of KameleonStep
        A statistic that several of them have gets one more dimension, as in PyMC.

    Attributes
    ----------
    posterior, stats : dict of arrays (chains, draws, ...)
    data : str
        Fingerprint of the data that the outputs depend on.
    """

    def __init__(self, chains, draws, outputs, steps):
        self.draws, self.data = draws, outputs.digest.hex()
        self.posterior = {
            name: np.empty((chains, draws, *shape), dtype)
            for name, (shape, dtype) in outputs.variables.items()
        }
        kinds = [step.kept_stats() for step in steps]
        self._owners = {
            name: [k for k, own in enumerate(kinds) if name in own]
            for name in dict.fromkeys(name for own in kinds for name in own)
        }
        self.stats = {}
        for name, owners in self._owners.items():
            dtype, shape = kinds[owners[0]][name]
            several = (len(owners),) if len(owners) > 1 else ()
            self.stats[name] = np.empty((chains, draws, *several, *shape), dtype)

    def write(self, chain, start, outputs, stats):
        """Write outputs, and the statistics of each step, of draws from `start` on."""
        for name, values in outputs.items():
            self.posterior[name][chain, start : start + len(values)] = values
        for name, owners in self._owners.items():
            for place, k in enumerate(owners):
                rows = self.stats[name][chain, start : start + len(stats[k][name])]
                (rows[:, place] if len(owners) > 1 else rows)[...] = stats[k][name]


def data_tree(model, chains, draws, warmup, seconds, idata_kwargs):
    """Return the result of a run.

    Parameters
    ----------
    model : pm.Model
    chains : list of Chain
        Those that are kept, to the length of the shortest.
    draws, warmup : Draws
    seconds : float
        What sampling took.
    idata_kwargs : dict
        ``coords`` and ``dims`` besides those of the model.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    coords, dims = coords | idata_kwargs.get("coords", {}), dims | idata_kwargs.get("dims", {})
    attributes = {"sampling_time": seconds, "tuning_steps": chains[0].tune}
    length = min(chain.made for chain in chains)
    rows, numbers = [chain.row for chain in chains], [chain.number for chain in chains]

    def dataset(arrays, n, dims):
        """Return n draws of the chains, without a copy if these are all chains."""
        kept = {
            RENAMED.get(name, name): (array if len(rows) == len(array) else array[rows])[:, :n]
            for name, array in arrays.items()
        }
        # ArviZ gives each variable draw numbers of its own, and merges them: of one draw only.
        like = dict_to_dataset(
            {name: array[:, :1] for name, array in kept.items()},
            coords=coords | {"chain": numbers},
            dims=dims,
            attrs=_attributes() | attributes,
            check_conventions=False,
        )
        return xr.Dataset(
            {name: (like[name].dims, array) for name, array in kept.items()},
            like.drop_vars("draw").coords,
            like.attrs,
        ).assign_coords(draw=np.arange(n))

    groups = {}
    if length > 0:
        groups["posterior"] = dataset(draws.posterior, length, dims)
        groups["sample_stats"] = dataset(draws.stats, length, {})
    if warmup.draws > 0:
        groups["warmup_posterior"] = dataset(warmup.posterior, warmup.draws, dims)
        groups["warmup_sample_stats"] = dataset(warmup.stats, warmup.draws, {})
    found = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    for group, arrays in found.items():
        if arrays:
            groups[group] = dict_to_dataset(
                arrays, coords=coords, dims=dims, sample_dims=[], attrs=_attributes()
            )
    learned, states = pack([chain.steps for chain in chains])
    states.attrs |= {"var_names": json.dumps(list(draws.posterior)), "data": draws.data}
    groups[LEARNED] = learned.assign_coords(chain=numbers).assign_attrs(_attributes())
    groups[STATE] = states.assign_coords(chain=numbers)
    return xr.DataTree.from_dict(groups)


def _attributes():
    return {
        "inference_library": "pymc_kameleon",
        "inference_library_version": version("pymc_kameleon"),
    }


def joined(old, new):
    """Return a result with the draws of an earlier one before its own."""
    groups = {name: new[name].to_dataset() for name in new.children}
    chain = groups[STATE]["chain"]
    for name in ("warmup_posterior", "warmup_sample_stats"):
        if name in old.children:
            groups[name] = old[name].to_dataset().sel(chain=chain)
    for name in ("posterior", "sample_stats"):
        if name in old.children:
            before = old[name].to_dataset().sel(chain=chain)
            seconds = before.attrs["sampling_time"] + groups[name].attrs["sampling_time"]
            after = xr.Dataset(  # with the dimensions and coordinates of then
                {key: (before[key].dims, groups[name][key].values) for key in before},
                {key: value for key, value in before.coords.items() if key != "draw"},
                groups[name].attrs,
            )
            parts = [before.drop_vars("draw"), after]
            both = xr.concat(parts, "draw", data_vars="minimal", join="exact")
            groups[name] = both.assign_coords(draw=np.arange(both.sizes["draw"])).assign_attrs(
                after.attrs | {"sampling_time": seconds}
            )
    return xr.DataTree.from_dict(groups)


def steps_and_names(result, steps, model):
    """Return the steps of a result, those given or rebuilt, and the names that it keeps."""
    if not isinstance(result, xr.DataTree):
        raise ValueError(
            "resume must be a DataTree, which xarray.load_datatree reads from a file, not "
            f"{result!r}."
        )
    if STATE not in result.children or LEARNED not in result.children:
        raise ValueError(
            "resume must be a result of pk.sample; this one has no groups 'learned' and "
            "'sampling_state'."
        )
    states = result[STATE]
    descriptions = json.loads(states.attrs["steps"])
    if steps is None:
        steps = [rebuilt_step(description, model) for description in descriptions]
    elif len(steps) != len(descriptions):
        raise ValueError(
            f"resume needs the same steps: there were {len(descriptions)} steps, now {len(steps)}."
        )
    for step, description in zip(steps, descriptions, strict=True):
        check_same_step(step, description)
    return steps, json.loads(states.attrs["var_names"])


def check_same_outputs(result, outputs, model):
    """Raise a ValueError unless draws of a result and new ones have the same shape and meaning."""
    if result[STATE].attrs["data"] != outputs.digest.hex():
        raise ValueError(f"resume needs the same data: {CHANGED}.")
    if "posterior" not in result.children:
        return
    posterior = result["posterior"]
    for name, (shape, _) in outputs.variables.items():
        if name not in posterior or posterior[name].shape[2:] != shape:
            raise ValueError(f"resume needs the same model: {name} had not the shape {shape}.")
    for name, values in coords_and_dims_for_inferencedata(model)[0].items():
        if name in posterior.coords and list(posterior[name].values) != list(np.asarray(values)):
            raise ValueError(f"resume needs the same model: the coordinate {name} has changed.")


# ---- steps --------------------------------------------------------------------------------------


def describe(step):
    """Return sampler, variables and options of a step as JSON takes them.

    The options are None if some of them are objects that cannot be stored.
    """
    _, arguments = step.__getnewargs_ex__()
    try:
        options = {k: _encoded(v) for k, v in arguments.items() if k not in ELSEWHERE}
    except TypeError:
        options = None
    return {
        "variables": list(step.var_names),
        "shapes": [list(shape) for shape in step.shapes().values()],
        "configuration": json.loads(json.dumps(step.configuration, default=_as_json)),
        "options": options,
    }


def rebuilt_step(description, model):
    """Make the step that `describe` described, for the same variables of `model`."""
    sampler = description["configuration"]["sampler"]
    classes = {cls.__name__: cls for cls in _subclasses(KameleonStep)}
    options = description["options"]
    if sampler not in classes or options is None:
        raise ValueError(
            f"The step, {sampler}, cannot be made again from what the result holds, as it is not "
            "known here, or has options that cannot be stored. Pass step=, made as the first time."
        )
    own = {var.name: var for var in model.value_vars}
    missing = [name for name in description["variables"] if name not in own]
    if missing:
        raise ValueError(f"resume needs the same model: this one has no variables {missing}.")
    variables = [own[name] for name in description["variables"]]
    return classes[sampler](variables, model=model, **{k: _decoded(v) for k, v in options.items()})


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


def _subclasses(cls):
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


def _as_json(value):
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return repr(value)


def _encoded(value):
    """Return an option as JSON takes it; raise a TypeError if it is an unknown object."""
    name = type(value).__name__
    if OPTION_TYPES.get(name) is type(value):
        parts = asdict(value) if is_dataclass(value) else value._asdict()
        return {"type": name, "value": {k: _encoded(v) for k, v in parts.items()}}
    if isinstance(value, np.ndarray):
        return {"type": "array", "value": value.tolist()}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, dict):
        return {"type": "dict", "value": {k: _encoded(v) for k, v in value.items()}}
    if isinstance(value, list | tuple):
        return [_encoded(v) for v in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(v) for v in value]
    if not isinstance(value, dict):
        return value
    kind, value = value["type"], value["value"]
    if kind == "array":
        return np.array(value)
    parts = {k: _decoded(v) for k, v in value.items()}
    return parts if kind == "dict" else OPTION_TYPES[kind](**parts)


# ---- chains -------------------------------------------------------------------------------------


def pack(chains):
    """Return the datasets ``learned`` and ``sampling_state`` of chains, each a list of steps."""
    learned, states = {}, {}
    for k in range(len(chains[0])):
        steps = [chain[k] for chain in chains]
        prefix = _prefix(k, len(chains[0]))
        _stack(learned, prefix, [step.parameters for step in steps])
        _stack(states, f"{prefix}state_", [step.state for step in steps])
        _stack(states, f"{prefix}tuning_", [step.tuning for step in steps])
        _stack_leaves(states, f"{prefix}point", [step.point for step in steps])
        for field in fields(Watch):
            values = [getattr(step.watch, field.name) for step in steps]
            _stack_leaves(states, f"{prefix}watch_{field.name}", values)
        _stack_leaves(states, f"{prefix}data", [step.data.hex() for step in steps])
        _stack_leaves(states, f"{prefix}rng", [_generator_as_text(step.rng) for step in steps])
    descriptions = json.dumps([describe(step) for step in chains[0]])
    return xr.Dataset(learned), xr.Dataset(states, attrs={"steps": descriptions})


def unpack(steps, learned, states):
    """Set the steps of a chain up to go on where it stopped; the datasets are of that chain."""
    try:
        for k, step in enumerate(steps):
            _unpack_step(step, learned, states, _prefix(k, len(steps)))
    except KeyError as missing:
        raise ValueError(
            f"resume has no {missing}: it was changed, or is of another version of pymc_kameleon."
        ) from None


def _unpack_step(step, learned, states, prefix):
    watch = {f.name: states[f"{prefix}watch_{f.name}"].item() for f in fields(Watch)}
    step.setup_chain(0, watch["tune"], watch["draws"])
    step.parameters = _refill(step.parameters, prefix, learned)
    step.state = _refill(step.state, f"{prefix}state_", states)
    step.tuning = _refill(step.tuning, f"{prefix}tuning_", states)
    step.point = states[f"{prefix}point"].values
    if states[f"{prefix}data"].item() != step.data.hex():
        raise ValueError(f"resume needs the same data: {CHANGED}.")
    step.rng = _generator_from_text(str(states[f"{prefix}rng"].item()))
    step.watch = Watch(**watch)
    step.stop_tuning()


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
            leaves.append(np.array(arrays[prefix + name].values, leaf.dtype, order="C"))
            if leaves[-1].shape != leaf.shape:
                raise ValueError(f"{prefix + name} has another shape in this version.")
    return type(template)(*leaves)


def _generator_as_text(rng):
    return json.dumps(rng.bit_generator.state, default=_as_json)


def _generator_from_text(text):
    state = json.loads(text, object_hook=_with_arrays)
    bit_generator = getattr(np.random, state["bit_generator"])()
    bit_generator.state = state
    return np.random.Generator(bit_generator)


def _with_arrays(state):
    lists = {k: np.array(v, np.uint64) for k, v in state.items() if isinstance(v, list)}
    return state | lists
