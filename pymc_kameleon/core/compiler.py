"""What we use of numba's and LLVM's internals; tests/core/test_compiler.py says if it has changed.

Numba optimises each function and turns it into machine code on its own, and once more in each
function that calls it. Here, a function that only compiled code calls is a :class:`Part`, which is
neither: the :class:`Whole`, an entry point, links all parts that it needs, once each, and is then
optimised and turned into machine code. That takes less than half the time, and what was compiled
and what is loaded from disk are the same code to the last bit.

With a version of numba that this was not tried with, numba compiles everything in its own way.
"""

import gc
import logging
import os
import pickle
import sys
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import numba
from filelock import FileLock
from numba import _dynfunc, config, njit, types
from numba.core import cgutils
from numba.core.caching import (
    CompileResultCacheImpl,
    FunctionCache,
    IndexDataCacheFile,
    NullCache,
    _CacheLocator,
)
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.environment import lookup_environment
from numba.core.imputils import impl_ret_new_ref
from numba.core.registry import CPUDispatcher, cpu_target
from numba.core.typed_passes import NativeLowering
from numba.extending import intrinsic
from numba.misc.appdirs import AppDirs

_log = logging.getLogger("pymc_kameleon")

SOURCE = sha256(Path(__file__).read_bytes()).hexdigest()
"""What is on disk was compiled by this version of this file."""

VERSIONS = (sys.version, numba.__version__, version("llvmlite"), version("numpy"), SOURCE)
"""What compiled code depends on beside its own source."""

KNOWN_VERSIONS = ("0.66", "0.67", "0.68")
"""Of numba. LLVM aborts with 0.65, whose llvmlite gives ``Part.inlining`` to what is returned."""

IS_KNOWN = numba.__version__.rpartition(".")[0] in KNOWN_VERSIONS
if not IS_KNOWN:
    _log.warning(
        "pymc_kameleon was not tried with numba %s, so the first compilation of a sampler takes "
        "two to three times as long as with numba %s.",
        numba.__version__,
        KNOWN_VERSIONS[-1],
    )

# ---- parts and wholes ---------------------------------------------------------------------------


class Part(JITCodeLibrary):
    """The code of a function that only compiled code calls."""

    inlining = None
    """LLVM's attribute that says whether calls are inlined; without one, it decides."""

    def finalize(self):
        """Be ready to be linked; nothing else."""
        for function in self._final_module.functions:
            if self.inlining and not function.is_declaration:
                function.add_function_attribute(self.inlining)
        self._finalized = True

    def _optimize_functions(self, ll_module):
        """Leave that to the whole."""
        ll_module.data_layout = self._codegen._data_layout


class Whole(JITCodeLibrary):
    """The code of an entry point, and of all parts that it calls."""

    def finalize(self):
        """Link, optimise, and turn into machine code."""
        self._linking_libraries = _callers_first(self._linking_libraries)
        super().finalize()

    def _optimize_final_module(self):
        prefix = RuntimeLinker.PREFIX  # of functions that call themselves, by an outer pointer
        by_name = {v.name.removeprefix(prefix) for v in self._final_module.global_variables}
        own = uuid4().hex
        for function in self._final_module.functions:
            is_ours = function.linkage.name == "linkonce_odr" and not function.is_declaration
            if is_ours and function.name not in by_name:
                # The linker must not take another whole's version, which may round differently;
                # nor may others take this one, of which LLVM may change the arguments. They find
                # it by its name, which an object from disk may share, even though it is internal.
                function.linkage = "internal"
                function.name = f"{function.name}.{own}"
        super()._optimize_final_module()

    def _finalize_specific(self):
        super()._finalize_specific()
        for variable in self._final_module.global_variables:  # numba does it part by part
            environment = lookup_environment(variable.name)
            if environment is not None:
                self._codegen.set_env(variable.name, environment)


def _callers_first(libraries):
    """Sort libraries, and all that they call, so that LLVM's linker finds what is called."""
    called_first, seen = [], set()

    def visit(library):
        if library not in seen:
            seen.add(library)
            if isinstance(library, Part):
                for called in library._linking_libraries:
                    visit(called)
            called_first.append(library)

    for library in libraries:
        visit(library)
    return called_first[::-1]


@register_pass(mutates_CFG=False, analysis_only=True)
class _MakeCallable(LoweringPass):
    """Make a part known to those who call it, by a handle that cannot be called from Python."""

    _name = "make_part_callable"

    def __init__(self):
        LoweringPass.__init__(self)

    def run_pass(self, state):
        lowered, library = state["cr"], state.library
        module, no_code = lowered.fndesc.lookup_module(), 0
        handle = _dynfunc.make_function(module, "part", "", no_code, lowered.env, (library,))
        state.targetctx.insert_user_function(handle, lowered.fndesc, [library])
        state["cr"] = lowered._replace(cfunc=handle)
        return True


class PartCompiler(CompilerBase):
    """Compiles a function into a part."""

    def define_pipelines(self):
        """Stop where LLVM's work would begin."""
        state = self.state
        state.flags.no_compile = state.flags.no_cpython_wrapper = True
        state.library = Part(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.inlining = getattr(state.func_id.func, INLINING, None)
        passes = DefaultPassBuilder.define_nopython_pipeline(state)
        passes.add_pass_after(_MakeCallable, NativeLowering)
        passes.finalize()
        return [passes]


class WholeCompiler(CompilerBase):
    """Compiles an entry point together with its parts."""

    def define_pipelines(self):
        """Put the code into a library of our own."""
        state = self.state
        state.library = Whole(state.targetctx.codegen(), state.func_id.func_qualname)
        state.library.enable_object_caching()
        return [DefaultPassBuilder.define_nopython_pipeline(state)]


INLINING = "inlining"
"""Attribute of a function that says "noinline" or "alwaysinline"."""


class PartDispatcher(CPUDispatcher):
    """A part; where Python calls it, as tests do, it becomes a whole of its own."""

    def __call__(self, *arguments):
        """Compile the function as an entry point, and call that."""
        if not hasattr(self, "_whole"):
            self._whole = compile_whole(self.py_func, fastmath=self.targetoptions["fastmath"])
        return self._whole(*arguments)

    def __reduce__(self):
        """Travel by name: a copy would be compiled again, by each worker process."""
        module, name = self.__module__, self.__qualname__
        if module != "__main__" and getattr(sys.modules.get(module), name, None) is self:
            return name
        return super().__reduce__()

    @classmethod
    def _rebuild(cls, **states):
        """Make a copy where there is no name, such as from a notebook, and compile it as a part."""
        part = super()._rebuild(**states)
        part._compiler.pipeline_class = PartCompiler
        return part


PART = {"pipeline_class": PartCompiler} if IS_KNOWN else {"forceinline": True}
"""Options of a part besides its own. Inlined everywhere, it is the same code in all processes."""

WHOLE = {"pipeline_class": WholeCompiler} if IS_KNOWN else {}
"""Options of a whole besides its own."""


def compile_part(function, **options):
    """Return a function that compiled code calls; `options` are numba's, and PART."""
    if not IS_KNOWN:
        return njit(**options)(function)
    pipeline_class = options.pop("pipeline_class")
    options |= {"nopython": True, "boundscheck": None}
    return PartDispatcher(function, targetoptions=options, pipeline_class=pipeline_class)


def compile_whole(function, signature=None, **options):
    """Return an entry point, which Python calls, or compiled code by its address."""
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True} | WHOLE
    return njit(**options)(function) if signature is None else njit(signature, **options)(function)


def as_whole(dispatcher):
    """Return the function of another dispatcher as a whole, with a cache on disk if that has one.

    So all processes compute the same, whether they compiled it or loaded it.
    """
    if not IS_KNOWN:
        return dispatcher
    options = dispatcher.targetoptions | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    function = dispatcher.py_func
    whole = CPUDispatcher(function, targetoptions=options, pipeline_class=WholeCompiler)
    if not isinstance(dispatcher._cache, NullCache):
        whole._cache = WholeCache(function)
    return whole


class WholeCache(FunctionCache):
    """Numba's cache on disk, apart from what numba itself compiled of the same function."""

    def __init__(self, function):
        super().__init__(function)
        name = f"{self._impl.filename_base}-{SOURCE[:16]}"
        self._cache_file = CacheFile(self._cache_path, name, self._impl.locator.get_source_stamp())

    def save_overload(self, signature, data):
        """Keep code on disk, if that can be written to."""
        _save_if_possible(super().save_overload, signature, data)


def entry_point(dispatcher, signature):
    """Compile `dispatcher` for these types, or load it; return what Python calls, unchecked."""
    if isinstance(dispatcher, PartDispatcher):
        raise TypeError(f"{dispatcher} is a part, which only compiled code calls: use entry_jit.")
    collects = gc.isenabled()
    gc.disable()  # numba makes much garbage at once: a tenth of the time
    try:
        with _one_process_compiles(dispatcher._cache, signature):
            dispatcher.compile(signature)
    finally:
        if collects:
            gc.enable()
    return dispatcher.overloads[signature].entry_point


# ---- the cache on disk --------------------------------------------------------------------------


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
        """Return nothing, either."""
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


def _save_if_possible(save, *arguments):
    try:
        save(*arguments)
    except OSError as error:
        _say_once(f"Compiled code cannot be kept ({error}), so each process compiles it again.")


class Cache(FunctionCache):
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
        self.lock = os.path.join(self._cache_path, f"{name}.lock")

    def _index_key(self, signature, codegen):
        return signature, _fields(signature), codegen.magic_tuple(), self._identity

    def save_overload(self, signature, data):
        """Keep code on disk, if that can be written to."""
        _save_if_possible(super().save_overload, signature, data)

    def holds(self, signature):
        """Return whether the code for these types is on disk."""
        index = self._cache_file._load_index()
        return self._index_key(signature, cpu_target.target_context.codegen()) in index


def _fields(kinds):
    """Return the names of the fields of named tuples, which another version may have reordered."""
    tuples = [kind for kind in kinds if isinstance(kind, types.BaseTuple)]
    return tuple((getattr(kind, "fields", ()), _fields(kind)) for kind in tuples)


PATIENCE = 600
"""Seconds after which a process no longer waits for another that compiles the same."""


@contextmanager
def _one_process_compiles(cache, signature):
    """Let one process compile what others, which need the same, then load."""
    lock = None
    if isinstance(cache, Cache) and not cache.holds(signature):
        lock = FileLock(cache.lock, timeout=PATIENCE)
        try:
            lock.acquire()
        except (OSError, NotImplementedError) as error:  # no locks there, or the other one hangs
            _log.info("This process compiles by itself, as it cannot wait for others: %s", error)
            lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()


def overloads_of(function):
    """Return the functions that give numba a plain function's implementation, if there are any."""
    context = cpu_target.typing_context
    context.refresh()
    try:
        kind = context.resolve_value_type(function)
    except ValueError:
        return []
    templates = getattr(kind, "templates", ())
    return [
        template._overload_func for template in templates if hasattr(template, "_overload_func")
    ]


# ---- calls by address ---------------------------------------------------------------------------


def address_of(dispatcher, signature):
    """Return where the machine code of `dispatcher` is, and what it returns.

    It is the entry with numba's own calling convention, so that an exception raised inside reaches
    the caller. Valid as long as `dispatcher` lives.
    """
    if signature not in dispatcher.overloads:
        dispatcher.compile(signature)
    compiled = dispatcher.overloads[signature]
    address = compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name)
    return address, compiled.signature.return_type


def caller(returned, taken):
    """Return what calls machine code from compiled code: call(address, arguments).

    Parameters
    ----------
    returned : numba type
    taken : tuple of numba types
        Of the arguments, which are passed as a tuple. A function of ``*arguments`` takes one
        argument, a `StarArgTuple`.
    """
    packed = len(taken) == 1 and isinstance(taken[0], types.StarArgTuple | types.StarArgUniTuple)

    @intrinsic
    def call(typing_context, address, arguments):
        expected = taken[0] if packed else taken
        if tuple(arguments) != tuple(expected):
            raise TypeError(f"The arguments are {arguments}, and must be {expected}.")

        def generate(context, builder, signature, values):
            function_type = context.call_conv.get_function_type(returned, taken)
            function = builder.inttoptr(values[0], function_type.as_pointer())
            passed = [values[1]] if packed else cgutils.unpack_tuple(builder, values[1])
            status, result = context.call_conv.call_function(
                builder, function, returned, taken, passed
            )
            with cgutils.if_unlikely(builder, status.is_error):
                context.call_conv.return_status_propagate(builder, status)
            return impl_ret_new_ref(context, builder, returned, result)

        return returned(types.int64, arguments), generate

    return call
