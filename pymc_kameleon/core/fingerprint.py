"""What makes compiled code what it is: a digest of a function and of all that it refers to."""

import dis
import hashlib
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, ModuleType

import numpy as np
from numba.types import Type

from pymc_kameleon.core import compiler, numba_cache, numba_calls

LIBRARIES = {"numba", "numpy", "llvmlite", "math", "builtins"}
"""Packages whose functions are told from others by their names, and the packages' versions."""

PLAIN = (str, bytes, int, float, complex, frozenset, type(None), type(...), BuiltinFunctionType)
PLAIN = (*PLAIN, np.generic, np.dtype, np.ufunc, Type)
"""Of these objects, `repr` tells all."""


def fingerprint(function):
    """Return a digest of a function's code and of all that it calls and refers to.

    Raise a TypeError if that is not possible.
    """
    digest = hashlib.sha256(repr(numba_cache.VERSIONS).encode())
    for text in _described(function, set()):
        digest.update(text)
    return digest.hexdigest()


def _described(value, seen):
    """Yield what tells a value that compiled code refers to from others."""
    if isinstance(value, compiler.CPUDispatcher):
        yield repr(sorted((k, _ordered(v)) for k, v in value.targetoptions.items())).encode()
        yield from _described(value.py_func, seen)
    elif hasattr(value, "_defn"):  # an intrinsic
        yield from _described(value._defn, seen)
    elif isinstance(value, FunctionType):
        yield f"{value.__module__}.{value.__qualname__}".encode()
        if id(value) not in seen and _package(value) not in LIBRARIES:
            seen.add(id(value))
            overloads = numba_calls.overloads_of(value)
            for used in (value.__code__, *_used_by(value), *overloads):
                yield from _described(used, seen)
    elif isinstance(value, CodeType):
        kind = (value.co_flags, value.co_argcount, value.co_kwonlyargcount)
        yield repr((kind, value.co_code, value.co_names, value.co_varnames)).encode()
        yield from _described(value.co_consts, seen)
    elif isinstance(value, tuple | list):
        yield f"{type(value).__name__} of {len(value)}".encode()
        for part in value:
            yield from _described(part, seen)
    elif isinstance(value, MappingProxyType):
        yield from _described(tuple(value.items()), seen)
    elif isinstance(value, np.ndarray):
        yield repr((value.dtype, value.shape)).encode() + value.tobytes()
    elif isinstance(value, type) and (hasattr(value, "_fields") or _package(value) in LIBRARIES):
        yield repr((value.__module__, value.__qualname__, getattr(value, "_fields", ()))).encode()
        for default in getattr(value, "_field_defaults", {}).values():
            yield from _described(default, seen)
    elif isinstance(value, ModuleType):
        yield value.__name__.encode()
    elif isinstance(value, PLAIN):
        yield repr(_ordered(value)).encode()
    else:
        raise TypeError(f"it refers to {value!r}, of which nothing is known.")


def _ordered(value):
    """Return a set as a list, as its own order differs in each process."""
    return sorted(map(repr, value)) if isinstance(value, set | frozenset) else value


def _used_by(function):
    """Return what a function refers to: by closure, default, global name, or name in a module."""
    global_names, names = _names(function.__code__)
    known = function.__globals__
    named = [known[name] for name in sorted(global_names) if name in known]
    in_modules = [
        getattr(module, name)
        for module in named
        if isinstance(module, ModuleType) and module.__name__.partition(".")[0] not in LIBRARIES
        for name in sorted(names)
        if hasattr(module, name)
    ]
    closure = [cell.cell_contents for cell in function.__closure__ or ()]
    defaults = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    return [*closure, *defaults, *named, *in_modules]


def _names(code):
    """Return the global names that a code object uses, and all names; functions inside it too."""
    instructions = dis.get_instructions(code)
    global_names = {i.argval for i in instructions if i.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    names = set(code.co_names)
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            inner_globals, inner_names = _names(inner)
            global_names, names = global_names | inner_globals, names | inner_names
    return global_names, names


def _package(value):
    return (value.__module__ or "").partition(".")[0]
