"""Parts and wholes: how entry points and what they call are compiled, by numba's internals.

Numba optimises each function and turns it into machine code on its own, and once more in each
function that calls it. Here, a function that only compiled code calls is a :class:`Part`, which is
neither: the :class:`Whole`, an entry point, links all parts that it needs, once each, and is then
optimised and turned into machine code. That takes less than half the time, and what was compiled
and what is loaded from disk are the same code to the last bit.

If numba has changed inside, tests/core/test_compiler.py says so; numba_*.py know its inside, too.
"""

import gc
import os
import sys
import threading
from uuid import uuid4

from numba import _dynfunc, njit
from numba.core.caching import NullCache
from numba.core.codegen import JITCodeLibrary, RuntimeLinker
from numba.core.compiler import CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import LoweringPass, register_pass
from numba.core.environment import lookup_environment
from numba.core.registry import CPUDispatcher
from numba.core.typed_passes import NativeLowering

from pymc_kameleon.core.numba_cache import WholeCache

one_thread_compiles = threading.RLock()
"""Held while we compile: neither PyTensor's settings nor numba's lists of types have a lock.

Forks wait for it: a child would wait for ever where another thread of its parent holds it.
"""
os.register_at_fork(
    before=one_thread_compiles.acquire,
    after_in_parent=one_thread_compiles.release,
    after_in_child=one_thread_compiles.release,
)


class Part(JITCodeLibrary):
    """The code of a function that only compiled code calls."""

    inlining = None
    """LLVM's attribute that says whether calls are inlined; without one, it decides."""

    def add_ir_module(self, ir_module):
        """Say in the text whether calls are inlined, as llvmlite 0.47 says it in a wrong place."""
        for function in ir_module.functions:
            if self.inlining and not function.is_declaration:
                function.attributes.add(self.inlining)
        super().add_ir_module(ir_module)

    def finalize(self):
        """Be ready to be linked, and no more."""
        self._finalized = True

    def _optimize_functions(self, ll_module):
        """Leave optimisation to the whole."""
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


def compile_part(function, **options):
    """Return a function that compiled code calls; `options` are numba's."""
    pipeline_class = options.pop("pipeline_class")
    options |= {"nopython": True, "boundscheck": None}
    return PartDispatcher(function, targetoptions=options, pipeline_class=pipeline_class)


def compile_whole(function, signature=None, **options):
    """Return an entry point, which Python calls, or compiled code by its address."""
    options |= {"error_model": "numpy", "no_cfunc_wrapper": True, "pipeline_class": WholeCompiler}
    with one_thread_compiles:
        return njit(signature, **options)(function)


def as_whole(dispatcher):
    """Return the function of another dispatcher as a whole, with a cache on disk if that has one.

    So all processes compute the same, whether they compiled it or loaded it.
    """
    options = dispatcher.targetoptions | {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    function = dispatcher.py_func
    whole = CPUDispatcher(function, targetoptions=options, pipeline_class=WholeCompiler)
    if not isinstance(dispatcher._cache, NullCache):
        whole._cache = WholeCache(function)
    return whole


def entry_point(dispatcher, signature):
    """Compile `dispatcher` for these types, or load it; return what Python calls, unchecked."""
    if isinstance(dispatcher, PartDispatcher):
        raise TypeError(f"{dispatcher} is a part, which only compiled code calls: use entry_jit.")
    collects = gc.isenabled()
    gc.disable()  # numba makes much garbage at once: a tenth of the time
    try:
        with one_thread_compiles:
            dispatcher.compile(signature)
    finally:
        if collects:
            gc.enable()
    return dispatcher.overloads[signature].entry_point
