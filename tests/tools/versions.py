"""Try the package with the oldest and the newest versions that pyproject.toml allows.

    python tests/tools/versions.py                # on every Python of pyproject.toml
    python tests/tools/versions.py 3.13 3.14      # on these
    python tests/tools/versions.py --with oldest  # without the newest
    python tests/tools/versions.py --with 6.3     # with this minor version of PyMC
    python tests/tools/versions.py --with canary  # the newest pre-releases, beyond upper bounds
    python tests/tools/versions.py 3.13 --whole   # all tests that are not slow

Each row of the table that it prints, docs/versions.md, is an environment of its own: the wheel, and
what it needs, as wheels too. There the tests below run, which use most of what may move, or all of
them. Needs uv, which looks for the Pythons, and fetches those that are not there. A Python that is
not to be had is no failure.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
REQUIREMENTS = PROJECT["dependencies"] + [
    requirement
    for extra in ("dask", "examples", "save")
    for requirement in PROJECT["optional-dependencies"][extra]
]
DEVELOPING = [
    requirement
    for requirement in PROJECT["optional-dependencies"]["dev"]
    if not requirement.startswith(PROJECT["name"])
]
COLUMNS = ("pymc", "pytensor", "numba", "numpy", "scipy", "arviz", "xarray", "pandas")

# Oldest: of what is named in pyproject.toml; what that needs is the newest that goes with it. What
# it has deprecated of what the old ones use is named there, too, in filterwarnings.
RESOLUTION = {"oldest": ["--resolution=lowest-direct"], "canary": ["--prerelease=allow"]}

TESTS = [
    "whole/test_architecture.py",
    "model/test_pymc_internals.py",
    "core/test_compiler.py",
    "whole/test_contract.py::test_conforms",
    "sampling/test_sample.py::test_draws_what_pm_sample_draws",
    "sampling/test_sample.py::test_resumed_draws_are_those_of_one_run",
    "sampling/test_sample.py::test_options_survive",
    "sampling/test_sample.py::test_arviz_works_on_it",
    "sampling/test_workers.py::test_a_dask_cluster_gives_the_same_draws",
    "result/test_store.py::test_a_store_changes_nothing",
    "plots/test_plots.py::test_adaptation",
]
SAMPLERS = "[GAM or [GadMALA or not (test_conforms or test_draws_what or test_resumed_draws)"
"""Of the tests that run all samplers, those of one without a gradient and of one with."""

CHOSEN = f"({SAMPLERS}) and (not slow or test_a_dask or test_a_store_changes)"
"""Of slow tests those of what is told nowhere else."""


def run(*command, **options):
    """Run a program; return its exit code and what it printed."""
    done = subprocess.run(
        [str(part) for part in command],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **options,
    )
    return done.returncode, done.stdout


class Failed(Exception):
    """An environment that cannot be made."""


def uv(*arguments):
    """Run uv; return what it printed."""
    code, printed = run(sys.executable, "-m", "uv", *arguments)
    if code:
        raise Failed(printed)
    return printed


def without_upper_bounds(requirement):
    """Return a requirement without what it excludes."""
    return re.sub(r",?<[^,]*", "", requirement)


def install(python, versions, wheel):
    """Install the wheel and what it needs into the environment of `python`."""
    wanted = REQUIREMENTS
    if versions == "canary":
        wanted = [without_upper_bounds(requirement) for requirement in wanted]
    if versions[0].isdigit():
        wanted = [*wanted, f"pymc=={versions}.*"]
    pip = ("pip", "install", "--quiet", "--python", python)
    uv(*pip, "--no-build", *RESOLUTION.get(versions, ()), *wanted)
    uv(*pip, *DEVELOPING)
    uv(*pip, "--no-deps", wheel)


def run_tests(python, folder, whole):
    """Run the tests on the installed wheel, with empty caches; return exit code and output."""
    environment = os.environ | {
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "PYTENSOR_FLAGS": f"base_compiledir={folder / 'pytensor'}",
    }
    environment.pop("PYTHONPATH", None)
    # If PyMC has moved a part, nothing else can be collected, but test_architecture.py names it.
    options = ["-q", "--continue-on-collection-errors"]
    tests = [ROOT / "tests" / test for test in TESTS]
    if whole:
        options += ["-m", "not slow", "-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
        tests = [ROOT / "tests"]
    else:
        options += ["-k", CHOSEN]
    pytest = [python.with_name("pytest"), "--config-file", ROOT / "pyproject.toml", *options]
    pytest += ["-p", "no:cacheprovider"]
    return run(*pytest, *tests, cwd=folder, env=environment)


def try_out(name, versions, wheel, folder, whole):
    """Return a row of the table, and whether nothing failed."""
    python = folder / "env" / "bin" / "python"
    try:
        uv("venv", "--quiet", "--python", name, folder / "env")
    except Failed as error:
        print(f"Skipped, as there is no Python {name} here, nor can uv get one:\n{error}")
        return [name, versions, *[""] * len(COLUMNS), "no such Python here"], True
    try:
        install(python, versions, wheel)
    except Failed as error:
        print(error)
        return [name, versions, *[""] * len(COLUMNS), "cannot be installed"], False
    code, printed = run_tests(python, folder, whole)
    print(printed)
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", printed.splitlines()[-1])
    listed = json.loads(uv("pip", "list", "--quiet", "--format=json", "--python", python))
    found = {package["name"]: package["version"] for package in listed}
    full = run(python, "--version")[1].split()[1]
    return [full, versions, *(found[c] for c in COLUMNS), ", ".join(counts) or "crashed"], not code


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pythons", nargs="*", default=PYTHONS, metavar="3.x")
    parser.add_argument("--with", dest="versions", metavar="oldest, newest, canary or 6.x")
    parser.add_argument("--whole", action="store_true", help="run all tests that are not slow")
    options = parser.parse_args()
    tried = (options.versions,) if options.versions else ("oldest", "newest")
    rows, passed = [["Python", "versions", *COLUMNS, "tests"]], []
    rows.append(["---"] * len(rows[0]))
    with TemporaryDirectory() as folder:
        uv("build", "--quiet", "--wheel", "--python", sys.executable, "--out-dir", folder, ROOT)
        (wheel,) = Path(folder).glob("*.whl")
        for name in options.pythons:
            for versions in tried:
                print(f"== Python {name}, {versions}", flush=True)
                with TemporaryDirectory() as own:
                    row, good = try_out(name, versions, wheel, Path(own), options.whole)
                rows.append(row)
                passed.append(good)
                print(f"| {' | '.join(row)} |", flush=True)
    print("", *(f"| {' | '.join(row)} |" for row in rows), sep="\n")
    sys.exit(not all(passed))


if __name__ == "__main__":
    main()
