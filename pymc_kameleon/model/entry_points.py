"""Entry points of a model's functions, by whatever PyTensor compiled them to.

Those in numba are called by their address; others, and Ops that are Python, through Python.
"""

import inspect
import warnings
from contextlib import contextmanager
from itertools import count
from types import FunctionType
from weakref import WeakValueDictionary

import numba
import numpy as np
from numba import config
from pytensor.compile import Mode

from pymc_kameleon.core import compiler, linalg, numba_calls
from pymc_kameleon.core.jit import entry_jit
from pymc_kameleon.core.target import LOGP_SIGNATURE, VECTOR
from pymc_kameleon.model.gathering import in_turn
from pymc_kameleon.model.python_calls import CheckedOp, WrongReturn

OTHER_OUTPUTS = (
    "A black box returned outputs of another length than at the model's initial point. Let it "
    "return as many at all points, as by NaN where there are none."
)

OTHER_INPUTS = (
    "The inputs of a black box have another length than when the step was made. Make another step "
    "for data of other lengths."
)

OTHER_LENGTH = (
    "What is kept of a draw has another length than at the model's initial point. Leave out what "
    "has no fixed length by var_names, or fill it up to one."
)


def python_ops(function):
    """Return the Ops of a PyTensor function that run through Python, as lists by their names."""
    found = {}
    for part, cell in _python_parts(function):
        op = getattr(cell and cell.cell_contents, "op", cell and cell.cell_contents)
        found.setdefault(str(op or part), []).extend([] if op is None else [op])
    return dict(sorted(found.items()))


def checked_ops(function):
    """Return the CheckedOps that numba calls from now on in place of those Ops."""
    cells = [cell for _, cell in _python_parts(function) if cell is not None]
    for cell in cells:
        if not isinstance(cell.cell_contents, CheckedOp):
            cell.cell_contents = CheckedOp(cell.cell_contents)
    return [cell.cell_contents for cell in cells]


def _python_parts(function):
    """Return the parts of a function that run through Python, by name, with the place of the Op."""
    if not hasattr(function.vm, "jit_fn"):
        return []
    found, seen, left = [], set(), [function.vm.jit_fn]
    while left:
        part = left.pop()
        part = getattr(part, "py_func", getattr(part, "_defn", part))
        if not isinstance(part, FunctionType) or part in seen:
            continue
        seen.add(part)
        code = part.__code__
        inside = inspect.getclosurevars(part).nonlocals
        # LAPACK and special functions ask Python once, for the pointer `ptr` to their machine code.
        if "objmode" in code.co_names and ("ptr",) not in code.co_consts:
            python = inside.get("py_perform")
            names = python.__code__.co_freevars if python else ()
            cell = python.__closure__[names.index("op")] if "op" in names else None
            found.append((part.__name__, cell))
        used = (part.__globals__.get(name) for name in code.co_names)
        left += [*used, *inside.values(), *numba_calls.overloads_of(part)]
    return found


@contextmanager
def black_box_ops_silent():
    """Suppress PyTensor's warnings of Ops that run through Python, several of each."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Numba will use object mode", UserWarning)
        yield


def python_function(model, outputs):
    """Return a function of a model's point that computes variables without numba, once or twice."""
    with model, black_box_ops_silent():
        return model.compile_fn(
            outputs,
            inputs=model.value_vars,
            point_fn=True,
            mode=Mode("py", "fast_compile"),
            on_unused_input="ignore",
        )


def _inner(function, *more):
    """Return where PyTensor's machine code is, and what calls it, for arguments of these types.

    Linked into ours it would be compiled again for each step. What it caches takes ``*arguments``.
    """
    if not in_numba(function):
        return 0, lambda address, arguments: [np.asarray(part) for part in function(*arguments)]
    if not isinstance(function.vm.jit_fn, compiler.CPUDispatcher):
        linker = type(function.maker.linker).__name__
        raise TypeError(f"{linker} compiles nothing that transitions can call, as numba does.")
    inner = compiler.as_whole(function.vm.jit_fn)
    _, taken = inner.fold_argument_types((*LOGP_SIGNATURE.args[:3], *more), {})
    address, returned = numba_calls.address_of(inner, taken)
    call = numba_calls.caller(returned, taken)
    call.inner = inner  # whose machine code lives as long as it does
    return address, call


def _entry(function, caller):
    """Return an entry point of what calls a PyTensor function, as machine code or in Python."""
    return entry_jit(caller, LOGP_SIGNATURE) if in_numba(function) else python_entry(caller)


def logp_entry(function):
    """Return an entry point that computes the log-density."""
    address, call = _inner(function)

    def logp(x, data, shapes, gradient):
        return call(address, (x, data, shapes))[0].item()

    return _entry(function, logp)


def logp_and_vector_entry(function):
    """Return one that also writes a vector: the gradient, or what black boxes have returned."""
    address, call = _inner(function)

    def logp(x, data, shapes, vector):
        value, found = call(address, (x, data, shapes))
        if found.size != vector.size:
            raise WrongReturn(OTHER_OUTPUTS)
        linalg.copy(found, vector)
        return value.item()

    return _entry(function, logp)


class _InPython:
    """A function that compiled code calls by its number: numba would call a pickled copy."""

    known, numbers = WeakValueDictionary(), count()

    def __init__(self, function):
        self.function, self.number = function, next(self.numbers)
        self.known[self.number] = self


@in_turn
def _call_in_python(number, *arguments):
    return _InPython.known[number].function(*arguments)


def python_entry(function):
    """Return an entry point that calls Python: function(x, data, shapes, last) -> float."""
    in_python = _InPython(function)
    number = in_python.number

    @numba.njit(LOGP_SIGNATURE)
    def entry(x, data, shapes, last):
        with numba.objmode(value="float64"):
            value = _call_in_python(number, x, data, shapes, last)
        return value

    entry.in_python = in_python  # which lives as long as it does
    return entry


def vector_entry(function):
    """Return a function that replaces its last argument; a graph may take that as an input."""
    address, call = _inner(function, VECTOR)

    def vector(x, data, shapes, v):
        found = call(address, (x, data, shapes, v))[0]
        if found.size != v.size:
            raise ValueError(OTHER_LENGTH)
        linalg.copy(found, v)
        return 0.0

    return _entry(function, vector)


# ---- a log-density without its black boxes: its last argument is the tape of simulator_logp.py ---


def inputs_entry(q, p, function):
    """Return an entry point that computes x of y: function(x, data, shapes, y)."""
    address, call = _inner(function, VECTOR)

    def inputs(x, data, shapes, tape):
        found = call(address, (x, data, shapes, tape[:q]))[0]
        if found.size != p:
            raise ValueError(OTHER_INPUTS)
        linalg.copy(found, tape[q : q + p])
        return 0.0

    return _entry(function, inputs)


def density_entry(q, p, function):
    """Return one that computes log π, ȳ and z̄ of y: function(x, data, shapes, y)."""
    y_bar, z_bar = q + p, 2 * (q + p)
    address, call = _inner(function, VECTOR)

    def density(x, data, shapes, tape):
        value, by_y, by_z = call(address, (x, data, shapes, tape[:q]))
        linalg.copy(by_y, tape[y_bar : y_bar + q])
        linalg.copy(by_z, tape[z_bar:])
        return value.item()

    return _entry(function, density)


def pullback_entry(q, p, function):
    """Return one that adds the pullback of x̄ to ȳ and z̄: function(x, data, shapes, y, x̄)."""
    y_bar, x_bar, z_bar = q + p, 2 * q + p, 2 * (q + p)
    address, call = _inner(function, VECTOR, VECTOR)

    def pullback(x, data, shapes, tape):
        by_y, by_z = call(address, (x, data, shapes, tape[:q], tape[x_bar:z_bar]))
        for i in range(q):
            tape[y_bar + i] += by_y[i]
        for i in range(by_z.size):
            tape[z_bar + i] += by_z[i]
        return 0.0

    return _entry(function, pullback)


def in_numba(function):
    """Return whether PyTensor compiled a function with numba."""
    return hasattr(function.vm, "jit_fn") and not config.DISABLE_JIT
