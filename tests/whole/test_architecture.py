"""The shape of the package, read from its source; `make lint` sees who imports whom."""

import ast
import importlib
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pymc as pm

# Read, not imported: what we use of PyMC may be gone, and then a test below says so.
PACKAGE = Path(find_spec("pymc_kameleon").origin).parent


def module_name(path):
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


TREES = {
    module_name(path): ast.parse(path.read_text(encoding="utf-8"))
    for path in sorted(PACKAGE.rglob("*.py"))
}


def imports(tree):
    """Every module that a tree imports, at whatever depth; `from a import b` may mean a.b."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (submodules & set(TREES)) or {node.module}
    return found


IMPORTS = {name: imports(tree) for name, tree in TREES.items()}


def imported_by(prefix):
    """Name and imports of each module in a part of the package."""
    return [
        (name, found)
        for name, found in IMPORTS.items()
        if name == prefix or name.startswith(prefix + ".")
    ]


def top(module):
    return module.partition(".")[0]


def test_the_source_was_found():
    expected = {"core.linalg", "core.jit", "samplers.kameleon.kam", "step.base", "model.layout"}
    assert {f"pymc_kameleon.{name}" for name in expected} <= set(TREES)
    assert len(imported_by("pymc_kameleon.core")) > 8
    assert "pymc_kameleon.core.linalg" in IMPORTS["pymc_kameleon.core.moments"]


def test_core_knows_numpy_and_numba_only():
    """And what its cache on disk is locked with."""
    allowed = {"numpy", "numba"} | sys.stdlib_module_names
    for name, found in imported_by("pymc_kameleon.core"):
        for module in found:
            assert module.startswith("pymc_kameleon.core.") or top(module) in allowed, name


def test_nothing_inside_imports_the_package_itself():
    for name, found in IMPORTS.items():
        assert "pymc_kameleon" not in found, name


def test_few_files_know_what_numba_is_like_inside():
    """What is on disk is told by them from what other versions of them have compiled."""
    from pymc_kameleon.core.numba_cache import SOURCES

    known = {f"pymc_kameleon.core.{path.stem}" for path in SOURCES}
    assert len(known) == 3
    for name, found in IMPORTS.items():
        inside = {module for module in found if module.startswith(("numba.core", "numba.np"))}
        assert not inside or name in known, name


def test_samplers_use_each_others_functions_and_not_their_classes():
    import pymc_kameleon

    classes = {sampler.__name__ for sampler in pymc_kameleon.samplers.SAMPLERS}
    for name, _ in imported_by("pymc_kameleon.samplers"):
        taken = {
            alias.name
            for node in ast.walk(TREES[name])
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }
        if name not in ("pymc_kameleon.samplers", "pymc_kameleon.samplers.choice"):  # lists them
            assert not taken & classes, name


def test_the_package_offers_its_samplers_and_nothing_else():
    import pymc_kameleon

    for sampler in pymc_kameleon.samplers.SAMPLERS:
        is_baseline = sampler in pymc_kameleon.samplers.BASELINES
        room = pymc_kameleon.baselines if is_baseline else pymc_kameleon
        assert getattr(room, sampler.__name__) is sampler
        assert is_baseline != (sampler.__name__ in pymc_kameleon.__all__)
    assert all(hasattr(pymc_kameleon, name) for name in pymc_kameleon.__all__)


def test_a_user_who_looks_around_sees_functions_and_classes():
    """And none of the modules that these are from, which can be imported all the same."""
    import pymc_kameleon

    seen = dir(pymc_kameleon)
    assert set(seen) == set(pymc_kameleon.__all__)
    assert all(callable(getattr(pymc_kameleon, name)) for name in set(seen) - {"baselines"})
    assert len(seen) <= 38
    assert importlib.import_module("pymc_kameleon.plots") is pymc_kameleon.plots


def test_importing_changes_nothing_in_pymc():
    script = """
import logging
import pymc
from pymc.step_methods import STEP_METHODS
before = list(STEP_METHODS), set(vars(pymc)), list(logging.root.handlers)
import pymc_kameleon
assert before == (list(STEP_METHODS), set(vars(pymc)), list(logging.root.handlers))
assert not any(method.__module__.startswith("pymc_kameleon") for method in STEP_METHODS)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


# ---- what we use of PyMC that it does not document ------------------------------------------

HOST = "pymc_kameleon.model.pymc_internals"

OVERRIDDEN = {
    "_make_progressbar_update_functions",
    "_progressbar_config",
    "_state_class",
    "__getnewargs_ex__",
    "sampling_state",
    "stats_dtypes_shapes",
    "stop_tuning",
}
"""What a step of ours has to do with in PyMC's base class, besides `step` and `astep`."""


def taken_from_pymc(tree):
    """Yield module and name of what is imported from inside PyMC; of modules without a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("pymc."):
            yield from ((node.module, alias.name) for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from ((a.name, None) for a in node.names if a.name.startswith("pymc."))
        elif isinstance(node, ast.Call) and getattr(node.func, "id", None) == "part":
            match node.args:  # with a fourth argument, what is there otherwise, it may be missing
                case [_, ast.Constant(module), ast.Constant(name)]:
                    yield module, name


def missing_in_pymc(tree):
    missing = []
    for module, name in taken_from_pymc(tree):
        try:
            found = importlib.import_module(module)
            assert name is None or hasattr(found, name)
        except (ImportError, AssertionError):
            missing.append(f"{module}.{name}")
    return missing


def private_names(tree):
    """Return the names of PyMC that a tree uses as pm._name."""
    return [
        node.attr
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and (node.value.id, node.attr[0]) == ("pm", "_")
    ]


def test_pymc_has_what_host_takes_from_it():
    gone = "from pymc.util import gone\nfrom pymc.gone import here\npart('it', 'pymc', 'gone')"
    found = missing_in_pymc(ast.parse(gone))
    assert found == ["pymc.util.gone", "pymc.gone.here", "pymc.gone"]
    assert len(list(taken_from_pymc(TREES[HOST]))) > 20
    missing = missing_in_pymc(TREES[HOST])
    assert not missing, (
        f"PyMC {pm.__version__} has no {missing}: mend pymc_kameleon/model/pymc_internals.py"
    )


def test_pymc_has_the_members_that_steps_rely_on():
    from pymc.step_methods.arraystep import ArrayStepShared

    missing = {name for name in OVERRIDDEN if not hasattr(ArrayStepShared, name)}
    assert not missing, f"PyMC {pm.__version__} has no members {missing}"


def test_only_host_knows_the_inside_of_pymc():
    """The others use ``import pymc as pm``, and of that what is public."""
    for name, tree in TREES.items():
        if name != HOST:
            assert not list(taken_from_pymc(tree)), name
        assert not private_names(tree), name
    assert private_names(ast.parse("pm._secret + pm.public")) == ["_secret"]


# ---- documentation --------------------------------------------------------------------------


def public_definitions(node, prefix):
    """Public functions, classes and methods; not what is defined inside functions."""
    for child in node.body:
        if isinstance(child, ast.FunctionDef | ast.ClassDef) and not child.name.startswith("_"):
            yield f"{prefix}.{child.name}", child
            if isinstance(child, ast.ClassDef):
                yield from public_definitions(child, f"{prefix}.{child.name}")


def undocumented(trees):
    missing = [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)]
    for module, tree in trees.items():
        for name, node in public_definitions(tree, module):
            if not ast.get_docstring(node):
                missing.append(name)
    return missing


def test_everything_public_has_a_docstring():
    assert undocumented(TREES) == []
    bare = ast.parse(
        '"""m"""\nclass A:\n    """a"""\n    def f(self): pass\n    def _g(self): pass'
    )
    assert undocumented({"m": bare}) == ["m.A.f"]
