"""Compilation: the disk cache, and that the compiled code is what the Python code says."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import pymc_kameleon
from pymc_kameleon.core import jit

PACKAGE = Path(pymc_kameleon.__file__).parent


def python(script, **environment):
    """Run a script in a fresh process and return what it prints, which is JSON."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", script],
        env=inherited | {k: str(v) for k, v in environment.items()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ---- the cache on disk ----------------------------------------------------------------------

LOAD = """
import json
import pymc as pm
import pymc_kameleon as pk
from pymc_kameleon.core.chain import compile_draws

with pm.Model():
    pm.Normal("x")
    pk.baselines.RWM(compile_kwargs={"mode": "FAST_COMPILE"})
stats = compile_draws((pk.baselines.RWM.algorithm,)).stats
counts = [pk.__file__, sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]
print(json.dumps(counts))
"""


def package_in(place):
    """Copy the package, as into another environment; return the copy."""
    copy = place / "pymc_kameleon"
    shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


@pytest.mark.slow
def test_other_processes_load_what_one_compiled_until_the_code_changes(tmp_path, monkeypatch):
    """In another environment of the same user, too."""
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    one, other = (package_in(tmp_path / name) for name in ("one", "other"))
    environment = {
        "PYTENSOR_FLAGS": f"linker=py,cxx=,base_compiledir={tmp_path / 'pytensor'}",
        "HOME": tmp_path / "home",
    }

    def counts(copy):
        imported, *counts = python(LOAD, PYTHONPATH=copy.parent, **environment)
        assert imported == str(copy / "__init__.py")
        return counts

    assert counts(one) == [0, 1]
    source = other / "core" / "metropolis.py"
    text = source.read_text()
    source.write_text(text + "# a comment\n")
    assert counts(other) == [1, 0]
    changed = text.replace("-rng.standard_exponential()", "-1.0 * rng.standard_exponential()")
    assert changed != text
    source.write_text(changed)
    assert counts(other) == [0, 1]
    assert counts(one) == [1, 0]  # another version does not replace it


@pytest.mark.slow
def test_a_second_environment_finds_what_the_first_one_compiled_where_numba_is_told_to(tmp_path):
    for name, counts in {"one": [0, 1], "other": [1, 0]}.items():
        imported = package_in(tmp_path / name) / "__init__.py"
        environment = {
            "PYTHONPATH": imported.parents[1],
            "PYTENSOR_FLAGS": "linker=py,cxx=",
            "NUMBA_CACHE_DIR": tmp_path / "cache",
        }
        assert python(LOAD, **environment) == [str(imported), *counts]


DRAW = """
import json
import numpy as np
import pymc as pm
import pymc_kameleon as pk

with pm.Model() as model:
    pm.Normal("x", [1, 2], [1, 3])
    step = getattr(pk, NAME)()
step.setup_chain(np.random.default_rng(1), 60, 1)
point = model.initial_point()
for _ in range(60):
    point, _ = step.step(point)
print(json.dumps([*point["x"], *step._learned_factor().ravel()]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["GAM", "PCAKAM"])
def test_what_was_compiled_and_what_was_loaded_agree_to_the_last_bit(name, tmp_path):
    """The model's log-density too, which PyTensor compiles."""
    environment = {
        "PYTENSOR_FLAGS": f"base_compiledir={tmp_path / 'pytensor'}",
        "NUMBA_CACHE_DIR": tmp_path / "numba",
    }
    compiled, loaded = (python(f"NAME = {name!r}" + DRAW, **environment) for _ in range(2))
    assert compiled == loaded


ORDER = """
import json
import numpy as np
import pymc as pm
import pymc_kameleon as pk
with pm.Model() as model:
    pm.Normal("x", [1, 2], [1, 3])
    draws = {}
    for name in NAMES:
        step = getattr(pk, name)(compile_kwargs={"mode": "FAST_COMPILE"})
        step.setup_chain(np.random.default_rng(1), 60, 1)
        point = model.initial_point()
        for _ in range(60):
            point, _ = step.step(point)
        draws[name] = point["x"].tolist()
print(json.dumps(draws))
"""


@pytest.mark.slow
def test_the_order_of_compilation_changes_no_bit(tmp_path):
    """Numba compiles some functions of its own once, with the options of who calls them first."""
    names = ["GadMALA", "CMTM", "KAM"]
    flags = {"PYTENSOR_FLAGS": "linker=py,cxx="}
    first, last = (
        python(f"NAMES = {order}" + ORDER, NUMBA_CACHE_DIR=tmp_path / str(order[0]), **flags)
        for order in (names, names[::-1])
    )
    assert first == last


THEIRS = """
import numpy as np
import pymc as pm
from pymc_kameleon.core import jit, metropolis
from pymc_kameleon.core.chain import compile_draws
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.random_walk.rwm import RWM

@jit.jit
def transition(target, state, parameters, work, rng):
    for i in range(state.x.size):
        work.y[i] = state.x[i] + STEP * rng.standard_normal()
    logp_y = log_density(target, work.y)
    return metropolis.accept(target, state, work.y, logp_y, 0.0, rng)

class Theirs(RWM):
    name = "theirs"
    algorithm = RWM.algorithm._replace(transition=transition)

with pm.Model():
    pm.Normal("x")
    Theirs(compile_kwargs={"mode": "FAST_COMPILE"})
stats = compile_draws((Theirs.algorithm,)).stats
counts = [sum(stats.cache_hits.values()), sum(stats.cache_misses.values())]
"""


def compiled_theirs(*steps):
    """Return the script that prints, for samplers that differ in a constant, hits and misses."""
    return f"""
import json
found = []
for step in {steps}:
    known = {{"__name__": "__main__", "STEP": step}}
    exec({THEIRS!r}, known)
    found.append(known["counts"])
print(json.dumps(found))
"""


@pytest.mark.slow
def test_samplers_outside_the_package_are_cached_too(tmp_path):
    environment = {"NUMBA_CACHE_DIR": tmp_path, "PYTENSOR_FLAGS": "linker=py,cxx="}
    assert python(compiled_theirs(1.0), **environment) == [[0, 1]]
    assert python(compiled_theirs(1.0, 2.0), **environment) == [[1, 0], [0, 1]]


def test_specialise_returns_an_entry_point_for_these_types():
    @jit.entry_jit
    def twice(x):
        return 2 * x

    fast = jit.specialise(twice, np.ones(3))
    np.testing.assert_array_equal(fast(np.arange(3.0)), [0, 2, 4])
    assert len(twice.signatures) == 1


# ---- arithmetic -----------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", [jit.entry_jit, jit.jit, jit.fast_jit])
def test_nan_and_infinity_keep_their_meaning(compiler):
    @compiler
    def facts(x):
        return (
            np.isnan(x[0]),
            x[0] == x[0],
            x[0] < 1.0,
            x[1] < np.inf,
            x[2] > -np.inf,
            1.0 / x[3],
            max(x[2], 1.0),
        )

    x = np.array([np.nan, np.inf, -np.inf, 0.0])
    assert facts(x) == (True, False, False, False, False, np.inf, 1.0)


# ---- compiled equals plain Python -----------------------------------------------------------

SAMPLE = """
import json
import numba
import numpy as np
import pymc as pm
import pymc_kameleon as pk
from pymc_kameleon.samplers.surrogate.fit import LEVELS, Hyper

# Without noise a Gaussian process amplifies the last bit, in which the two may differ, to 1e-3.
LEVELS.update(length=(0.7,), amplitude=(0.3,), noise=(0.3,))
Hyper.start = classmethod(lambda cls, d: cls(True, 0.7, 0.3, 0.3, (1.0,) * d))
with pm.Model() as model:
    pm.Normal("a", 0, [1, 2, 30.0])
    pm.Gamma("b", 2, 1)
draws = {}
compiled = set(pk.samplers.SAMPLERS) - {pk.EmulatorMetropolis}  # needs a black box
for sampler in compiled:
    step = sampler(model=model, steps_per_draw=5, compile_kwargs={"mode": "FAST_COMPILE"})
    step.setup_chain(np.random.default_rng(1), 40, 20)
    point, rows = model.initial_point(), []
    for i in range(60):
        if i == 40:
            step.stop_tuning()
        point, [stats] = step.step(point)
        stats.pop("warning")
        rows.append(np.hstack([point["a"], point["b_log__"], *map(np.ravel, stats.values())]))
    draws[sampler.__name__] = np.array(rows).tolist()
print(json.dumps([bool(numba.config.DISABLE_JIT), draws]))
"""


@pytest.mark.slow
def test_compiled_equals_plain_python():
    flags = {"PYTENSOR_FLAGS": "linker=py,cxx="}
    [no_jit, compiled] = python(SAMPLE, **flags)
    assert not no_jit
    [no_jit, plain] = python(SAMPLE, **flags, NUMBA_DISABLE_JIT=1)
    assert no_jit
    every = {sampler.__name__ for sampler in pymc_kameleon.samplers.SAMPLERS}
    assert set(compiled) == every - {"EmulatorMetropolis"}
    for name, rows in compiled.items():
        np.testing.assert_allclose(rows, plain[name], rtol=1e-8, atol=1e-10, err_msg=name)
        assert len(np.unique(np.array(rows)[:, 0])) > 20
