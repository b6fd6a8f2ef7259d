"""Black boxes of a model: Ops of users, which PyTensor knows nothing of, and which may be slow."""

from contextlib import suppress
from pickle import PicklingError

from pytensor.compile.ops import FromFunctionOp
from pytensor.graph import Constant, FunctionGraph
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.link.numba.dispatch.basic import numba_funcify
from pytensor.tensor.blockwise import Blockwise

from pymc_kameleon.model.black_box import Function

OWN_PACKAGES, WRAPPERS = ("pytensor", "pymc"), ("FromFunctionOp", "JAXOp")
"""Whose Ops are no user's, but for those that wrap a user's function."""


def black_boxes(results):
    """Return what users call the black boxes that variables depend on, in the order of names."""
    return sorted({name_of(op) for op in ops_of(results) if _is_black_box(op)})


def dependent_on_black_boxes(model):
    """Return the names of the variables that depend on black boxes, each with these, a dict."""
    owned = {var.name: black_boxes([var]) for var in model.unobserved_value_vars}
    return {name: boxes for name, boxes in owned.items() if boxes}


def name_of(op):
    """Return what a user calls an Op: the function that it wraps, or its class."""
    of_jax = wraps_function(op) and getattr(op, "name", None)
    named = op if hasattr(op, "__name__") else _function_of(op)
    return getattr(named, "__name__", of_jax or type(op).__name__)


def names_of(ops):
    """Return what a user calls some Ops, as text."""
    return ", ".join(sorted(f"`{name_of(op)}`" for op in ops))


def _function_of(op):
    """Return the function of a user that an Op wraps, None if it wraps none."""
    return op.function if isinstance(op, Function) else getattr(op, "_FromFunctionOp__fn", None)


def reduced(op):
    """Return how a function that PyTensor wraps is pickled: by name, or of a script as a whole."""
    function = op._FromFunctionOp__fn
    if getattr(function, "__module__", "__main__") != "__main__":
        with suppress(PicklingError, AttributeError):
            return FromFunctionOp.__reduce__(op)
    return type(op), (function, op.itypes, op.otypes, op._FromFunctionOp__infer_shape)


def _package(value):
    return (getattr(value, "__module__", None) or "").partition(".")[0]


def ops_of(results):
    """Yield the Ops of a graph, and those inside them."""
    for var in ancestors(results):
        if var.owner is not None:
            yield from ops_inside(var.owner.op)


def ops_inside(op):
    """Yield an Op, or what it applies to elements, and the Ops inside."""
    while (inner := getattr(op, "core_op", getattr(op, "scalar_op", None))) is not None:
        op = inner  # of Blockwise, Elemwise, and reductions
    yield op
    yield from ops_of(getattr(op, "inner_outputs", []))  # of Scan and OpFromGraph


def with_coarse_models(result):
    """Return a variable that is computed by the coarse models of all black boxes."""
    inputs = [var for var in graph_inputs([result]) if not isinstance(var, Constant)]
    graph = FunctionGraph(inputs, [result], clone=False)
    for node in graph.toposort():
        core = node.op.core_op if isinstance(node.op, Blockwise) else node.op
        if isinstance(core, Function) and core.coarse is not None:
            op = type(core)(core.coarse.function, core.ndim, core.on_failure, stands_for=core)
            if core is not node.op:
                op = Blockwise(op, signature=node.op.signature)
            new = op.make_node(*node.inputs)
            graph.replace_all(zip(node.outputs, new.outputs, strict=True), import_missing=True)
    return graph.outputs[0]


def boxes_of_user(op):
    """Return the names of users' black boxes that an Op is, or has inside."""
    boxes = {inner for inner in ops_inside(op) if _is_black_box(inner) and is_of_user(inner)}
    return sorted(map(name_of, boxes))


def _is_black_box(op):
    is_loop = hasattr(op, "inner_outputs")
    return not is_loop and (is_of_user(op) or not has_numba_version(op))


def is_of_user(op):
    """Whether an Op is not one of PyTensor's or PyMC's own, or wraps a function."""
    is_known = _package(type(op)) in OWN_PACKAGES
    return not is_known or wraps_function(op)


def wraps_function(op):
    """Whether an Op is ours or PyTensor's own, around a function of a user."""
    return isinstance(op, Function) or type(op).__name__ in WRAPPERS


def has_numba_version(op):
    """Whether numba compiles an Op, instead of calling Python."""
    return numba_funcify.dispatch(type(op)) is not numba_funcify.dispatch(object)
