"""Figures of the package's structure, read from its source.

    python tests/tools/structure.py [CHECKOUT]                       of this checkout by default
    python tests/tools/structure.py [CHECKOUT] --option pool_tuning  where a name is mentioned

A room is a file or folder at the top of the package, its ``__init__.py`` too. An arrow is an
import, at whatever depth in a file. A room stands one floor above the highest that it imports; a
circle is an error. A constant is a name in capitals to which a module assigns at its top. A place
is a line that mentions a name as variable, argument, attribute or text, not in prose.
"""

import argparse
import ast
from collections import Counter
from graphlib import TopologicalSorter
from pathlib import Path

NAME = "pymc_kameleon"


def imported(tree, modules):
    """Return the modules that a tree imports; `from a import b` may mean a.b."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in modules else node.module for name in names}
    return found & set(modules)


def number_of_floors(graph):
    found = {}
    for room in TopologicalSorter(graph).static_order():
        found[room] = 1 + max((found[below] for below in graph[room]), default=0)
    return max(found.values())


def rooms_of(graph):
    rooms = {name: ".".join(name.split(".")[:2]) for name in graph}
    found = {room: set() for room in rooms.values()}
    for name, below in graph.items():
        found[rooms[name]] |= {rooms[other] for other in below} - {rooms[name]}
    return found


def constants(tree):
    targets = [t for node in tree.body if isinstance(node, ast.Assign) for t in node.targets]
    names = [n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)]
    return {name for name in names if name.isupper()}


def places(tree, name):
    kinds = ("id", "arg", "attr", "value")
    return {
        node.lineno for node in ast.walk(tree) if name in [getattr(node, k, None) for k in kinds]
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", nargs="?", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--option", metavar="NAME")
    options = parser.parse_args()
    texts = {}
    for path in sorted((options.checkout / NAME).rglob("*.py")):
        name = ".".join(path.relative_to(options.checkout).with_suffix("").parts)
        texts[name.removesuffix(".__init__")] = path.read_text(encoding="utf-8")
    trees = {name: ast.parse(text) for name, text in texts.items()}
    if options.option:
        found = {name: places(tree, options.option) for name, tree in trees.items()}
        print(*(f"{name}: {sorted(lines)}" for name, lines in found.items() if lines), sep="\n")
        print(sum(map(len, found.values())), "places in", sum(map(bool, found.values())), "files")
        return
    graph = {name: imported(tree, trees) - {name} for name, tree in trees.items()}
    for what, rooms in (("rooms at the top", rooms_of(graph)), ("files", graph)):
        arrows = sum(map(len, rooms.values()))
        print(f"{len(rooms)} {what}, {number_of_floors(rooms)} floors, {arrows} arrows")
    names = Counter(name for tree in trees.values() for name in constants(tree))
    shared = sorted(name for name, n in names.items() if n > 1)
    print(f"{names.total()} constants, {len(shared)} names in several files:", *shared)
    print(sum(len(text.splitlines()) for text in texts.values()), "lines")


if __name__ == "__main__":
    main()
