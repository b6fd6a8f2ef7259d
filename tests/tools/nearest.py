"""Find the test files that are nearest to a function, by imports and by names.

Coverage cannot tell which tests run a function, because it does not see compiled code.
"""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS = ROOT / "pymc_kameleon", ROOT / "tests"

PUBLIC = ("pymc_kameleon", "pymc_kameleon.samplers")
"""Modules that re-export what others define."""

FAR = 99
"""The distance of tests that use no module from which imports lead to the function."""


def module_name(path):
    """Return the name of a module from its path."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in sorted(PACKAGE.rglob("*.py"))}

# Tests of the whole package are not near any function.
FILES = [path for path in sorted(TESTS.rglob("test_*.py")) if path.parent.name != "whole"]


@cache
def nodes(path):
    """Return all nodes of a file's syntax."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


@cache
def words(path):
    """Return the words of a file."""
    return set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


@cache
def imported(path):
    """Return the modules of the package that a file imports."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            submodules = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= (submodules & MODULES.keys()) or {node.module}
    return found & MODULES.keys() - set(PUBLIC)


DEFINED_IN = {
    alias.name: node.module
    for module in PUBLIC
    for node in nodes(MODULES[module])
    if isinstance(node, ast.ImportFrom)
    for alias in node.names
}
"""The modules that define the public names of the package."""


@cache
def used(path):
    """Return the modules that a file of tests imports, or uses as `pk.name`."""
    attributes = [node for node in nodes(path) if isinstance(node, ast.Attribute)]
    public = {a.attr for a in attributes if getattr(a.value, "id", "") == "pk"}
    return imported(path) | {DEFINED_IN[name] for name in public & DEFINED_IN.keys()}


@cache
def distances(module, name):
    """Return the number of imports that lead from each module to one that uses `module.name`."""
    found, front = {module: 0}, {module}
    while front:
        front = {
            user
            for user in MODULES.keys() - found.keys() - set(PUBLIC)
            if imported(MODULES[user]) & front
            if front != {module} or name in words(MODULES[user])
        }
        found |= dict.fromkeys(front, max(found.values()) + 1)
    return found


@cache
def nearest_tests(file, function, n):
    """Return the paths of the `n` nearest test files.

    Parameters
    ----------
    file : str
        Inside the package.
    function : str
        Its qualified name.
    n : int
    """
    module = module_name(PACKAGE / file)
    *_, package, name = module.split(".")
    names = function.split(".")
    distance = distances(module, names[0])

    def nearness(path):
        subject = path.stem.removeprefix("test_")
        of_subject = 3 * (subject == name) + 2 * (subject == package)
        same_room = path.relative_to(TESTS).parts[0] == file.split("/")[0]
        named = len(words(path) & set(names))
        steps = min((distance.get(module, FAR) for module in used(path)), default=FAR)
        return of_subject + same_room + named - steps, path.stat().st_size  # long ones see more

    return sorted(FILES, key=nearness, reverse=True)[:n]
