"""How the steps of a run were made, as text in its result, and the same steps again."""

import json
from dataclasses import asdict, is_dataclass

import numpy as np

from pymc_kameleon.step.base import samplers
from pymc_kameleon.step.groups import STATE_GROUP
from pymc_kameleon.step.options import OPTION_TYPES

NOT_OPTIONS = {"model", "vars", "rng", "blocked"}
"""Arguments of a step that are not options of the sampler."""


def describe(step):
    """Return sampler, variables and options of a step as JSON takes them, or options None."""
    _, arguments = step.__getnewargs_ex__()
    try:
        given = {name: value for name, value in arguments.items() if name not in NOT_OPTIONS}
        options = _all_encoded(given, tuple(OPTION_TYPES.values()))
    except TypeError:
        options = None
    return {
        "variables": list(step.var_names),
        "shapes": [list(shape) for shape in step.layout.shapes.values()],
        "configuration": json.loads(json.dumps(step.configuration, default=as_json)),
        "options": options,
    }


def sampler_of(result, variables):
    """Return name, class and options of the sampler that moved these variables.

    The class is None if it is not known here, the options if the result does not hold them.
    """
    for description in json.loads(result[STATE_GROUP].attrs["steps"]):
        if set(description["variables"]) == set(variables):
            return _class_and_options(description)
    raise ValueError(f"No step of the result moved {sorted(variables)} together.")


def restrictions(run):
    """Return regions of steps, (low, high) by value variable, of what a result says of its run."""
    found = {}
    for step in json.loads(run.get("steps", "[]")):
        low, high = np.array(step["configuration"]["region"], np.float64)
        ends = np.cumsum([int(np.prod(shape)) for shape in step["shapes"]])[:-1]
        bounds = zip(np.split(low, ends), np.split(high, ends), strict=True)
        for name, shape, own in zip(step["variables"], step["shapes"], bounds, strict=True):
            if np.isfinite(own).any():
                found[name] = tuple(side.reshape(shape) for side in own)
    return found


def variables_in_order(model, run):
    """Return all value variables of a model, in the order of the step if one has moved them."""
    own = {var.name: var for var in model.value_vars}
    steps = json.loads(run.get("steps", "[]"))
    names = steps[0]["variables"] if len(steps) == 1 else ()
    return [own[name] for name in (names if set(names) == set(own) else own)]


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
        raise ValueError(f"pk.resume needs the same model: this one has no variables {missing}.")
    variables = [own[name] for name in description["variables"]]
    return sampler(variables, model=model, **options)


def _class_and_options(description):
    """Return what `sampler_of` does, of a step that `describe` described."""
    name, options = description["configuration"]["sampler"], description["options"]
    sampler = {cls.__name__: cls for cls in samplers()}.get(name)
    if sampler is None or options is None:
        return name, sampler, None
    return name, sampler, _all_decoded(options, OPTION_TYPES)


def check_same_step(step, description):
    """Raise a ValueError unless the step is the one that was described."""
    own = describe(step)
    old, new = (d | d["configuration"] for d in (description, own))
    for what in ("sampler", "variables", "shapes", *description["configuration"]):
        if json.dumps(old[what]) != json.dumps(new.get(what)):  # a NaN equals itself
            raise ValueError(
                f"pk.resume needs the same model and step: {what} was {old[what]!r}, and is "
                f"{new.get(what)!r} now."
            )


def as_json(value):
    """Return what stands for an object that JSON does not know."""
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
