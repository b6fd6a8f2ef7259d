"""Black boxes of a model: Ops of users, which PyTensor knows nothing of, and which may be slow."""

from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import numba_funcify

OWN_PACKAGES = "pytensor", "pymc"
"""Whose Ops are known, unless numba has no version of them, as of those that wrap a function."""


def black_boxes(results):
    """Return what users call the black boxes that variables depend on, in the order of names."""
    found = {}
    _collect(results, found)
    return sorted(found)


def dependent_on_black_boxes(model):
    """Return the names of the variables that depend on black boxes, each with these, a dict."""
    owned = {var.name: black_boxes([var]) for var in model.unobserved_value_vars}
    return {name: boxes for name, boxes in owned.items() if boxes}


def name_of(op):
    """Return what a user calls an Op: the function that it wraps, or its class."""
    function = getattr(op, "_FromFunctionOp__fn", None)
    return getattr(function, "__name__", type(op).__name__)


def _collect(results, found):
    for var in ancestors(results):
        if var.owner is not None:
            _look_into(var.owner.op, found)


def _look_into(op, found):
    for part in ("core_op", "scalar_op"):  # of Blockwise, Elemwise, and reductions
        if (inner := getattr(op, part, None)) is not None:
            return _look_into(inner, found)
    if (inner := getattr(op, "inner_outputs", None)) is not None:  # of Scan and OpFromGraph
        return _collect(inner, found)
    if _is_black_box(op):
        found[name_of(op)] = op
    return None


def _is_black_box(op):
    kind = type(op)
    is_theirs = kind.__module__.partition(".")[0] not in OWN_PACKAGES
    has_version = numba_funcify.dispatch(kind) is not numba_funcify.dispatch(object)
    return is_theirs or not has_version
