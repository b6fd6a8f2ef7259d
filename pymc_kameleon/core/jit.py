"""Compilation with numba.

Small functions are compiled with :func:`jit` into the function that calls them. What Python calls
is compiled with :func:`cached_jit`, once per machine and version, not once per model or
process. Without numba (``NUMBA_DISABLE_JIT=1``) all of it is plain Python.
"""

import logging

from numba import config, typeof
from numba.extending import register_jitable

from pymc_kameleon.core import compiler, numba_cache
from pymc_kameleon.core.fingerprint import fingerprint

_log = logging.getLogger("pymc_kameleon")

# Sums may be reordered and fused, but NaN and inf keep their meaning: a rejected proposal is -inf.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})


def jit(function=None, *, fast=False, allocates=False, inlined=None):
    """Compile a function that compiled code calls; division by zero gives inf, as in numpy.

    Without a function, a decorator with these options is returned. If it is `fast`, loops may be
    vectorised by reordering their sums. One that makes arrays, or returns one, `allocates`. Others
    do not count references to their arguments, which the caller holds: around the log-density, that
    would cost some 50 ns at each level of calls, a third of a cheap log-density. All calls are
    `inlined`, as of a transition that tuning calls too, or none, as of what is long and called from
    several places, to compile sooner. By default LLVM decides. A call takes some 10 ns.
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
        "pipeline_class": compiler.PartCompiler,
    }


def entry_jit(function, signature=None):
    """Compile an entry point for the address of its machine code, not kept on disk."""
    if config.DISABLE_JIT:
        return function
    return compiler.compile_whole(function, signature, nogil=True)


def cached_jit(function, parts):
    """Compile an entry point, whose closure holds what it calls, and keep the machine code on disk.

    The functions `parts` make it differ from others built by the same factory; the first one names
    it. It lets other threads run Python meanwhile. The cache holds for exactly this code, here and
    in all that it calls, in this package or another. What cannot be told from others, as it depends
    on an object that is no number, text, array or function, is compiled by each process.
    """
    names = [f"{part.__module__}.{part.__qualname__}" for part in parts]
    if config.DISABLE_JIT:
        return function
    try:
        identity = fingerprint(function)
    except TypeError as error:
        _log.info(f"{names[0]} is compiled again by each process: {error}")
        function.__qualname__ = names[0]
        return compiler.compile_whole(function, nogil=True)
    function.__qualname__ = f"{names[0]}.{function.__name__}"
    dispatcher = compiler.compile_whole(function, nogil=True)
    try:
        dispatcher._cache = numba_cache.Cache(function, identity)
    except RuntimeError as error:  # no directory can be written to
        _log.info(f"{names[0]} is compiled again by each process: {error}")
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
