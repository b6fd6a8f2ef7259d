"""Black boxes of a model: Ops of users, which PyTensor knows nothing of, and which may be slow."""

from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch.basic import numba_funcify

OWN_PACKAGES, WRAPPERS = ("pytensor", "pymc"), ("FromFunctionOp", "JAXOp")
"""Whose Ops are no user's, but for those that wrap a user's function."""


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
    if is_of_user(op) or not has_numba_version(op):
        found[name_of(op)] = op
    return None


def is_of_user(op):
    """Whether an Op is not one of PyTensor's or PyMC's own, or wraps a function."""
    kind = type(op)
    is_known = kind.__module__.partition(".")[0] in OWN_PACKAGES
    return not is_known or kind.__name__ in WRAPPERS


def has_numba_version(op):
    """Whether numba compiles an Op, instead of calling Python."""
    return numba_funcify.dispatch(type(op)) is not numba_funcify.dispatch(object)
