"""Compilation with numba.

Small functions are compiled with :func:`jit` into the function that calls them. What Python calls
is compiled with :func:`cached_jit`, once per machine and version, not once per model or
process. Without numba (``NUMBA_DISABLE_JIT=1``) all of it is plain Python.
"""

import dis
import hashlib
import logging
from types import BuiltinFunctionType, CodeType, FunctionType, MappingProxyType, ModuleType

import numpy as np
from numba import config, typeof
from numba.extending import register_jitable
from numba.types import Type

from pymc_kameleon.core import compiler

_log = logging.getLogger("pymc_kameleon")

# Sums may be reordered and fused, but NaN and inf keep their meaning: a rejected proposal is -inf.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})


def jit(function=None, *, fast=False, allocates=False, inlined=None):
    """Compile a function that compiled code calls; division by zero gives inf, as in numpy.

    Parameters
    ----------
    function : callable, optional
        Without one, a decorator with these options is returned.
    fast : bool
        Whether loops may be vectorised by reordering their sums.
    allocates : bool
        Whether the function makes arrays, or returns one. Others do not count references to their
        arguments, which the caller holds: around the log-density, that would cost some 50 ns at
        each level of calls, a third of a cheap log-density.
    inlined : bool, optional
        Whether to inline all calls, as of a transition that tuning calls too, or none, as of what
        is long and called from several places, to compile sooner. By default LLVM decides. A call
        takes some 10 ns.
    """
    if function is None:
        return lambda function: jit(function, fast=fast, allocates=allocates, inlined=inlined)
    if config.DISABLE_JIT:
        return function
    if inlined is not None:
        setattr(function, compiler.INLINING, "alwaysinline" if inlined else "noinline")
    return compiler.compile_part(function, **part_options(fast, allocates))


def fast_jit(function):
    """Compile a function whose loops may be vectorised by reordering their sums."""
    return jit(function, fast=True)


def not_inlined(part):
    """Compile calls of a part as calls."""
    setattr(getattr(part, "py_func", part), compiler.INLINING, "noinline")


def python_or_jit(function):
    """Leave a function to Python, and compile it where compiled code calls it."""
    return register_jitable(**part_options())(function)


def part_options(fast=False, allocates=False):
    """Return numba's options of a part: those left out would be taken from the first caller."""
    return {
        "error_model": "numpy",
        "fastmath": set(FASTMATH) if fast else False,
        "_nrt": allocates,
        "no_cfunc_wrapper": True,
        **compiler.PART,
    }


def entry_jit(function, signature=None):
    """Compile an entry point for the address of its machine code, not kept on disk."""
    return function if config.DISABLE_JIT else compiler.compile_whole(function, signature)


def cached_jit(function, parts):
    """Compile an entry point, and keep the machine code on disk.

    Parameters
    ----------
    function : callable
        Its closure holds what it calls.
    parts : tuple of callable
        The functions that make this entry point differ from others built by the same factory. The
        first one names it.

    Notes
    -----
    It lets other threads run Python meanwhile. The cache holds for exactly this code, here and in
    all that it calls, in this package or another. What cannot be told from others, as it depends
    on an object that is no number, text, array or function, is compiled by each process.
    """
    names = [f"{part.__module__}.{part.__qualname__}" for part in parts]
    if config.DISABLE_JIT:
        return function
    try:
        identity = fingerprint(function)
    except TypeError as error:
        _log.info("%s is compiled again by each process: %s", names[0], error)
        function.__qualname__ = names[0]
        return compiler.compile_whole(function, nogil=True)
    function.__qualname__ = f"{names[0]}.{function.__name__}"
    dispatcher = compiler.compile_whole(function, nogil=True)
    try:
        dispatcher._cache = compiler.Cache(function, identity)
    except RuntimeError as error:  # no directory can be written to
        _log.warning("%s is compiled again by each process: %s", names[0], error)
    return dispatcher


def specialise(dispatcher, *arguments):
    """Compile `dispatcher` for these arguments, or load it, and return the bare entry point.

    The entry point skips numba's inspection of its arguments at each call. It takes arguments of
    exactly these types; others corrupt memory.
    """
    if config.DISABLE_JIT:
        return dispatcher
    return compiler.entry_point(dispatcher, tuple(typeof(argument) for argument in arguments))


def leaf_types(values, name=""):
    """Return numba's types of all that nested tuples hold, by name."""
    if not isinstance(values, tuple):
        return {name: str(typeof(values))}
    names = getattr(values, "_fields", None) or [type(value).__name__ for value in values]
    types = {}
    for field, value in zip(names, values, strict=True):
        types |= leaf_types(value, f"{name}.{field}" if name else field)
    return types


# ---- what makes compiled code what it is --------------------------------------------------------

LIBRARIES = {"numba", "numpy", "llvmlite", "math", "builtins"}
"""Packages whose functions are told from others by their names, and the packages' versions."""

PLAIN = (str, bytes, int, float, complex, frozenset, type(None), type(...), BuiltinFunctionType)
PLAIN = (*PLAIN, np.generic, np.dtype, np.ufunc, Type)
"""Of these objects, `repr` tells all."""


def fingerprint(function):
    """Return a digest of a function's code and of all that it calls and refers to.

    Raises
    ------
    TypeError
        If that is not possible.
    """
    digest = hashlib.sha256(repr(compiler.VERSIONS).encode())
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
            for used in (value.__code__, *_used_by(value), *compiler.overloads_of(value)):
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
