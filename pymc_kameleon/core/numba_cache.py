"""The cache of compiled code on disk: numba's, in a place that all environments of a user share."""

import logging
import os
import pickle
import sys
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path

import numba
from numba import config, types
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    _CacheLocator,
)
from numba.misc.appdirs import AppDirs

_log = logging.getLogger("pymc_kameleon")

HERE = Path(__file__).parent  # the folder of this file

SOURCES = (HERE / "compiler.py", *sorted(HERE.glob("numba_*.py")))
"""The files that know what numba is like inside."""

SOURCE = sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()
"""What is on disk was compiled by these versions of them."""

VERSIONS = (sys.version, numba.__version__, version("llvmlite"), version("numpy"), SOURCE)
"""What compiled code depends on beside its own source."""


class WholeCache(FunctionCache):
    """Numba's cache on disk, apart from what numba itself compiled of the same function."""

    def __init__(self, function):
        super().__init__(function)
        name = f"{self._impl.filename_base}-{SOURCE[:16]}"
        self._cache_file = CacheFile(self._cache_path, name, self._impl.locator.get_source_stamp())

    def save_overload(self, signature, data):
        """Keep code on disk, if that can be written to."""
        try:
            super().save_overload(signature, data)
        except OSError as error:
            _say_once(f"Compiled code cannot be kept ({error}), so each process compiles it again.")


class SharedPlace(_CacheLocator):
    """Where numba keeps the code of entry points: one place for all environments of a user.

    Numba's own places go by the path of the source. What is kept here is told apart by its content.
    """

    def get_cache_path(self):
        """Return the directory: inside the one that the user gave to numba, or of the user."""
        inside = config.CACHE_DIR or AppDirs("pymc_kameleon", appauthor=False).user_cache_dir
        return os.path.join(inside, "pymc_kameleon" if config.CACHE_DIR else "compiled")

    def get_source_stamp(self):
        """Return nothing: the content is in the name."""

    def get_disambiguator(self):
        """Return nothing here, too."""
        return ""

    @classmethod
    def from_function(cls, function, file):
        """Return the place, or None if it cannot be written to; then numba looks for another."""
        place = cls()
        try:
            place.ensure_cache_path()
        except OSError as error:
            _say_once(
                f"Compiled transitions cannot be kept in {place.get_cache_path()} ({error}), where "
                "all environments would find them. NUMBA_CACHE_DIR names another directory."
            )
            return None
        return place


@cache
def _say_once(message):
    _log.info(message)


class SharedImplementation(CompileResultCacheImpl):
    """Numba's way to write and read compiled code, in the shared place if possible."""

    _locator_classes = (SharedPlace, *CompileResultCacheImpl._locator_classes)


class CacheFile(IndexDataCacheFile):
    """What is on disk; what is damaged, of other arguments, or of types that are gone, is not."""

    def _load_index(self):
        try:
            return super()._load_index()
        except Exception:  # whatever unpickling raises
            return {}

    def save(self, key, data):
        """Keep code with its key, as processes that write at once may mix up index and code."""
        code = self._dump((key, data))
        super().save(key, (sha256(code).digest(), code))

    def load(self, key):
        """Return the code for a key, None if it is not there or not whole."""
        try:
            digest, code = super().load(key)
            if sha256(code).digest() != digest:
                return None
            found, data = pickle.loads(code)
        except Exception:  # whatever unpickling raises
            return None
        return data if found == key else None


class Cache(WholeCache):
    """Numba's cache on disk, for entry points that `identity` tells from others of the same name.

    Numba itself looks only at the file of the entry point, so an edit in another file would go
    unnoticed, and it keys closures by a pickle that differs in each process, so it would never hit.
    Each identity has a file, so that environments with other versions do not replace each other's.
    """

    _impl_class = SharedImplementation

    def __init__(self, function, identity):
        super().__init__(function)
        self._identity = identity
        name = f"{self._impl.filename_base}-{identity[:16]}"
        self._cache_file = CacheFile(self._cache_path, name, identity)

    def _index_key(self, signature, codegen):
        return signature, _fields(signature), codegen.magic_tuple(), self._identity


def _fields(kinds):
    """Return the names of the fields of named tuples, which another version may have reordered."""
    tuples = [kind for kind in kinds if isinstance(kind, types.BaseTuple)]
    return tuple((getattr(kind, "fields", ()), _fields(kind)) for kind in tuples)
