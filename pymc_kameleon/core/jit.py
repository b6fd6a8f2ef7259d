"""Compilation with numba.

Small functions are compiled with :func:`jit` into the function that calls them. What Python calls
is compiled with :func:`cached_jit`, once per machine and version, not once per model or
process.
"""

import hashlib
import sys
from functools import cache
from pathlib import Path

from numba import config, njit, typeof
from numba.core.caching import FunctionCache
from numba.extending import register_jitable

# Sums may be reordered and fused, but NaN and inf keep their meaning: a rejected proposal is -inf.
FASTMATH = frozenset({"reassoc", "contract", "arcp", "nsz"})


def jit(function, **options):
    """Compile a function that compiled code calls; division by zero gives inf, as in numpy.

    It is always inlined. Otherwise the machine code that runs where an entry point was compiled is
    not the same as where it was loaded from disk, and workers would differ in the last bit. Without
    a wrapper for C, which nothing needs, a fifth of the compilation time is saved.
    """
    return njit(function, error_model="numpy", forceinline=True, no_cfunc_wrapper=True, **options)


def lean_jit(function):
    """Compile a function that allocates no array and returns none.

    It does not count references to its arguments, which the caller holds. Otherwise each level of
    calls around the log-density costs some 50 ns, a third of a cheap log-density.
    """
    return jit(function, _nrt=False)


def allocating_jit(function):
    """Compile a function that allocates arrays, and that a lean function may call."""
    return jit(function, _nrt=True)


def fast_jit(function):
    """Compile a function whose loops may be vectorised by reordering their sums."""
    return jit(function, fastmath=set(FASTMATH))


def pasted(function):
    """Paste a function into the compiled one that calls it, instead of compiling both.

    For what contains a whole sampler, whose compilation takes seconds.
    """
    return njit(function, inline="always")


def python_or_jit(function):
    """Leave a function to Python, and compile it where compiled code calls it."""
    return register_jitable(error_model="numpy", forceinline=True)(function)


def cached_jit(function, parts):
    """Compile an entry point, and keep the machine code on disk.

    Parameters
    ----------
    function : callable
        A function whose closure holds `parts`.
    parts : tuple of callable
        The compiled functions that make this entry point differ from others built by the same
        factory. The first one names it.

    Notes
    -----
    It lets other threads run Python meanwhile.
    """
    module = parts[0].__module__
    function.__qualname__ = f"{module}.{parts[0].__name__}.{function.__name__}"
    dispatcher = jit(function, nogil=True)
    if not config.DISABLE_JIT and all(
        _package(part.__module__) == _package(__name__) for part in parts
    ):
        dispatcher._cache = _SourceCache(function, parts)
    return dispatcher


def _package(module):
    return module.partition(".")[0]


def specialise(dispatcher, *arguments):
    """Compile `dispatcher` for these arguments, or load it, and return the bare entry point.

    The entry point skips numba's inspection of its arguments at each call. It takes arguments of
    exactly these types.
    """
    if config.DISABLE_JIT:
        return dispatcher
    signature = tuple(typeof(argument) for argument in arguments)
    dispatcher.compile(signature)
    return dispatcher.overloads[signature].entry_point


@cache
def _source_stamp():
    """Identify the code of the whole package, which an entry point contains."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(Path(__file__).parents[1].rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()


class _SourceCache(FunctionCache):
    """Numba's disk cache, valid for exactly this source of the package.

    Numba itself looks only at the file of the entry point, so an edit in another file would go
    unnoticed, and it keys closures by a pickle that differs in each process, so it would never hit.
    """

    def __init__(self, function, parts):
        super().__init__(function)
        self._parts = tuple(f"{part.__module__}.{part.__qualname__}" for part in parts)
        self._cache_file._source_stamp = _source_stamp()

    def _index_key(self, sig, codegen):
        return (sig, codegen.magic_tuple(), self._parts)
