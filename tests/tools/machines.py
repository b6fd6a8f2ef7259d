"""Run `make test` as other machines would: on another processor, on one core, beside other work.

    python tests/tools/machines.py                                 # every kind of machine
    python tests/tools/machines.py generic "one core"              # some of them
    python tests/tools/machines.py busy --pytest "tests/core -x"   # with arguments of pytest

On another kind of machine the same code gives numbers that differ in their last bits, or takes
longer. Prints a row for each, and fails if a test failed on any. Needs Linux. `versions.py --whole`
runs the same tests with other versions of what the package needs.
"""

import argparse
import os
import re
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parents[2]
CORES = os.sched_getaffinity(0)

KINDS = {
    "this": {},
    "generic": {"NUMBA_CPU_NAME": "generic"},
    "Haswell": {"OPENBLAS_CORETYPE": "Haswell"},
    "SkylakeX": {"OPENBLAS_CORETYPE": "SkylakeX"},
    "Prescott": {"OPENBLAS_CORETYPE": "Prescott"},
    "one core": {},
    "busy": {},
}
"""Kinds of machine, and what they set in the environment."""


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--pytest", default="", help="further arguments of pytest, as one text")
    options = parser.parse_args()
    if unknown := set(options.kinds) - set(KINDS):
        parser.error(f"unknown kinds {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}")
    rows, codes = ["| machine | tests | minutes |", "| --- | --- | --- |"], []
    for kind in options.kinds or KINDS:
        print(f"== {kind}", flush=True)
        began = perf_counter()
        code, counts = tried(kind, options.pytest)
        codes.append(code)
        rows.append(f"| {kind} | {counts} | {(perf_counter() - began) / 60:.1f} |")
    print("", *rows, sep="\n")
    sys.exit(any(codes))


def tried(kind, arguments):
    """Run `make test` on a kind of machine; return the exit code and what pytest counted."""
    cores = {min(CORES)} if kind == "one core" else CORES
    with beside(len(CORES) if kind == "busy" else 0):
        running = subprocess.Popen(
            ["make", "test"],
            cwd=ROOT,
            env=os.environ | KINDS[kind] | {"PYTEST_ADDOPTS": arguments},
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, cores),
        )
        last = ""
        for line in running.stdout:
            print(line, end="", flush=True)
            last = line if " in " in line and line.startswith("=") else last
    counts = re.findall(r"\d+ (?:passed|failed|skipped|errors?)", last)
    return running.wait(), ", ".join(counts) or "crashed"


@contextmanager
def beside(n):
    """Keep so many cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(n)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()


if __name__ == "__main__":
    main()
