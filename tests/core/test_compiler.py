"""What we use of numba's internals: if a test here fails, core/compiler.py has to follow numba."""

import os
import subprocess
import sys
from enum import Enum
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import numpy as np
import pytest
from numba import config, float64, int64, njit, typeof, types, vectorize
from numba.core.runtime import _nrt_python, rtsys
from numba.extending import overload

from pymc_kameleon.core import compiler, numba_cache, numba_calls
from pymc_kameleon.core.fingerprint import _described, fingerprint
from pymc_kameleon.core.jit import cached_jit, entry_jit, jit

ROOT = Path(__file__).parents[2]
VECTORS = (float64[::1], float64[::1])


@jit
def add(x, y):
    """Add the sum of y to x."""
    for i in range(x.size):
        x[i] += total(y)


@jit
def total(y):
    if y.size == 0:
        raise ValueError("nothing to add")
    s = 0.0
    for i in range(y.size):
        s += y[i]
    return s


def test_parts_are_no_machine_code_and_a_whole_has_one_function():
    entry = entry_jit(lambda x, y: add(x, y))
    x = np.ones(2)
    entry(x, np.array([1.0, 2.0]))
    np.testing.assert_array_equal(x, [4.0, 4.0])
    parts = [part.overloads[part.signatures[0]].library for part in (add, total)]
    assert all(type(part) is compiler.Part for part in parts)
    assert not any(part._codegen._engine.is_symbol_defined(part.name) for part in parts)
    [compiled] = entry.overloads.values()
    assert type(compiled.library) is compiler.Whole
    visible = [
        function.name
        for function in compiled.library.get_defined_functions()
        if function.linkage.name not in ("internal", "private")
    ]
    assert set(visible) == {
        compiled.fndesc.llvm_func_name,
        compiled.fndesc.llvm_cpython_wrapper_name,
    }


def test_python_can_call_a_part():
    assert total(np.arange(4.0)) == 6.0
    assert total(np.arange(4)) == 6  # of other types too


def test_a_part_has_no_entry_point():
    with pytest.raises(TypeError, match=r"is a part.*use entry_jit"):
        compiler.entry_point(total, (float64[::1],))


def test_exceptions_of_parts_arrive():
    with pytest.raises(ValueError, match="nothing to add"):
        add(np.ones(2), np.ones(0))


def test_a_function_called_by_address_returns_what_it_allocated_and_raises():
    @njit
    def pair(*arguments):
        if arguments[0].size == 0:
            raise ValueError("empty")
        return arguments[0] + arguments[1], arguments[0].sum()

    taken = (types.StarArgTuple(VECTORS),)
    address, returned = numba_calls.address_of(compiler.as_whole(pair), taken)
    call = numba_calls.caller(returned, taken)

    @entry_jit
    def outer(address, x, y):
        both, s = call(address, (x, y))
        return both[0] + s

    x = np.array([1.0, 2.0])
    assert outer(address, x, x) == 5.0
    _nrt_python.memsys_enable_stats()
    before = rtsys.get_allocation_stats()
    for _ in range(100):
        outer(address, x, x)
    after = rtsys.get_allocation_stats()
    _nrt_python.memsys_disable_stats()
    assert after.alloc - before.alloc == after.free - before.free >= 100
    with pytest.raises(ValueError, match="empty"):
        outer(address, np.ones(0), np.ones(0))


def test_arguments_of_other_types_are_refused_when_compiled():
    call = numba_calls.caller(float64, VECTORS)

    @entry_jit
    def wrong(address, x):
        return call(address, (x, 1))

    with pytest.raises(Exception, match="must be"):
        wrong(0, np.ones(1))


def test_garbage_is_collected_again_after_compiling():
    import gc

    dispatcher = entry_jit(lambda n: n + 1)
    assert gc.isenabled()
    assert compiler.entry_point(dispatcher, (int64,))(1) == 2
    assert gc.isenabled()


# ---- the cache on disk --------------------------------------------------------------------------


def scaled(factor, call):
    """Build an entry point from closures, as a sampler's factory would."""

    @jit
    def inner(x):
        return call(x) * factor

    def entry(x):
        return inner(x)

    return cached_jit(entry, (inner,))


@jit
def plus_one(x):
    return x + 1


@jit
def plus_two(x):
    return x + 2


def test_closures_of_one_factory_do_not_share_code(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    for _ in range(2):
        results = [scaled(f, part)(1) for f in (3, 5) for part in (plus_one, plus_two)]
        assert results == [6, 9, 10, 15]
    again = scaled(3, plus_two)
    assert again(1) == 9
    assert sum(again.stats.cache_hits.values()) == 1


@pytest.mark.parametrize("how", ["global", "module", "overload"])
def test_what_is_called_in_any_way_is_part_of_the_identity(how):
    def identity(factor):
        @jit
        def scale(x):
            return x * factor

        def scaled_in_python(x):
            raise NotImplementedError

        @overload(scaled_in_python)
        def _scaled(x):
            return lambda x: scale(x)

        module = ModuleType("theirs")
        module.scale = scale
        known = {"scale": scale, "theirs": module, "scaled_in_python": scaled_in_python}
        call = {
            "global": "scale(x)",
            "module": "theirs.scale(x)",
            "overload": "scaled_in_python(x)",
        }
        exec(f"def entry(x): return {call[how]}", known)
        return fingerprint(known["entry"])

    assert identity(2) == identity(2)
    assert identity(2) != identity(3)


class Pair(NamedTuple):
    x: int
    y: int = 1


class OtherPair(NamedTuple):
    x: int
    y: int = 2


class Colour(Enum):
    RED = 1


OtherPair.__qualname__ = "Pair"


def with_keyword(value):
    def function(x, *, c=value):
        return x * c

    return function


DIFFERENT = {
    "defaults of a tuple": (Pair, OtherPair),
    "defaults of keywords": (with_keyword(1), with_keyword(2)),
    "kinds of arguments": (eval("lambda x, b: b"), eval("lambda x, *b: b")),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENT.values(), ids=DIFFERENT)
def test_what_differs_has_another_identity(one, other):
    assert fingerprint(lambda: one) == fingerprint(lambda: one)
    one, other = (list(_described(value, set())) for value in (one, other))
    assert one != other


@pytest.mark.parametrize("value", [Colour.RED, Colour, vectorize(lambda x: x), object()])
def test_what_cannot_be_told_from_others_has_no_identity(value):
    with pytest.raises(TypeError, match="of which nothing is known"):
        fingerprint(lambda: value)


def test_attributes_of_arguments_are_no_globals():
    known = {"data": object()}
    exec("def entry(state): return state.data", known)
    fingerprint(known["entry"])


def test_what_nothing_is_known_of_is_not_cached(caplog):
    class Odd:
        pass

    with caplog.at_level("INFO", logger="pymc_kameleon"):
        odd = scaled(Odd(), plus_one)
    assert "compiled again by each process" in caplog.text
    assert "Odd" in caplog.text
    assert not isinstance(odd._cache, numba_cache.Cache)


AFTERWARDS = """
import numpy as np, pymc as pm, pymc_kameleon as pk, pytensor
with pm.Model() as model:
    pm.Dirichlet("p", np.ones((2, 3)))
    x = np.array([[0.3, -0.2], [0.5, 1.0]])
    p, slow = model.unobserved_value_vars[-1], pytensor.compile.Mode("py", "fast_compile")
    expected = pytensor.function(model.value_vars, p, mode=slow)(x)
    pk.GAM()
    *_, found = model.compile_fn(model.unobserved_value_vars, point_fn=True)({"p_simplex__": x})
np.testing.assert_allclose(found, expected)
"""


@pytest.mark.slow
def test_what_pytensor_compiles_after_a_step_is_not_linked_with_it(tmp_path):
    """With a cache of its own: what is in the usual one does not meet the step's functions."""
    environment = os.environ | {"PYTENSOR_FLAGS": f"cxx=,base_compiledir={tmp_path}"}
    done = subprocess.run(
        [sys.executable, "-c", AFTERWARDS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


class Swapped(NamedTuple):
    y: int
    x: int


Swapped.__qualname__ = "Pair"


def test_fields_in_another_order_are_another_type_although_the_class_has_the_same_name():
    one, other = (numba_cache._fields((typeof((pair(1, 2), 3)),)) for pair in (Pair, Swapped))
    assert one != other


def test_a_place_that_cannot_be_written_to_is_told_once_and_numba_finds_another(
    tmp_path, monkeypatch, caplog
):
    def entry():
        pass

    file = tmp_path / "file"
    file.touch()
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(
        numba_cache.SharedPlace, "get_cache_path", lambda place: str(file / "inside")
    )
    with caplog.at_level("INFO", logger="pymc_kameleon"):
        caches = [numba_cache.Cache(entry, "identity") for _ in range(2)]
    assert caplog.text.count(f"cannot be kept in {file}") == 1
    assert all(cache.cache_path == str(Path(__file__).parent / "__pycache__") for cache in caches)


def test_without_any_place_each_process_compiles(monkeypatch, caplog):
    monkeypatch.setattr(numba_cache.SharedImplementation, "_locator_classes", ())
    caplog.set_level("INFO", logger="pymc_kameleon")
    assert scaled(11, plus_one)(1) == 22
    assert "compiled again by each process" in caplog.text


class Gone:
    """What an older version has cached."""


def test_what_is_cached_of_a_class_that_is_gone_is_passed_over(tmp_path, monkeypatch):
    def entry():
        pass

    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    file = numba_cache.Cache(entry, "identity")._cache_file
    file._save_index({Gone: "code"})
    assert file._load_index() == {Gone: "code"}
    monkeypatch.delattr(f"{__name__}.Gone")
    assert file._load_index() == {}  # the code is the same, as it does not name the class
