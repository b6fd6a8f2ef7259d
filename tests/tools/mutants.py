"""Break the package in one place at a time, and check that a test fails.

    python tests/tools/mutants.py                          # 50 mutants of the whole package
    python tests/tools/mutants.py --sample 20 --seed 3     # 20 others
    python tests/tools/mutants.py core/linalg              # 50 of those that match a pattern
    python tests/tools/mutants.py acceptance               # a group of patterns, see GROUPS
    python tests/tools/mutants.py core/linalg --list       # show all that match, run nothing

A pattern is a regular expression. It is searched for in a mutant's address and in the expression
that is replaced, such as `core/linalg.py:dot term 2: a + b`.

mutations.py makes the mutants. For each one, the nearest test files (--files) run one after the
other until a test fails. A file has to pass without mutants first. Slow tests are left out. A
mutant takes from ten seconds to minutes, because what it changes is compiled again.

A survivor is a finding. A test is missing, the code has no effect, or the mutant is equivalent, as
is common for tuned numbers. Neither pytest nor CI runs this file.
"""

import argparse
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from os import environ, killpg
from pathlib import Path
from tempfile import TemporaryDirectory

from mutations import mutants_of

ROOT = Path(__file__).parents[2]
PACKAGE, TESTS = ROOT / "pymc_kameleon", ROOT / "tests"

GROUPS = {
    "acceptance": r" (term|sign|arithmetic|statement) \d+: .*(hastings|log_ratio|accept_prob)",
    "volume": r" (term|sign|arithmetic|statement|constant) \d+: .*(log_det|jacobian|log_r\b)",
    "tuning": r" (condition|logic) \d+: .*(\btun|adapt|stop)",
}
"""Patterns for mistakes that leave draws plausible and wrong: an acceptance ratio without a term, a
missing change of volume, tuning that never ends."""

SLACK = 120, 5
"""Tests hang if they take longer than these seconds, plus this multiple of their usual time."""

DECIDES_CACHE = r"core/(compiler|fingerprint|jit|numba_\w+)\.py"
"""Files whose mutants may break the cache of machine code, so that they get one of their own."""

PASSES = 0, 5
"""Pytest's exit codes if no test fails; 5 if all of them are slow."""


# ---- which mutants ------------------------------------------------------------------------------


def matching(patterns):
    """Return the mutants that match any of the patterns; a pattern without a match is an error."""
    found = {}
    paths = sorted(PACKAGE.rglob("*.py"))
    mutants = [m for p in paths for m in mutants_of(str(p.relative_to(PACKAGE)), p.read_bytes())]
    for pattern in patterns or [""]:
        wanted = re.compile(GROUPS.get(pattern, pattern))
        chosen = [m for m in mutants if wanted.search(f"{m.address}: {m.old}")]
        if not chosen:
            sys.exit(f"No mutant matches {pattern!r}: see --list.")
        found |= {mutant.address: mutant for mutant in chosen}
    return list(found.values())


def drawn(mutants, n, seed):
    """Return `n` mutants at random, in the original order."""
    numbers = range(len(mutants))
    return [mutants[i] for i in sorted(random.Random(seed).sample(numbers, min(n, len(numbers))))]


def described(mutant):
    """Return where a mutant is, its address, and what it does."""
    where = f"pymc_kameleon/{mutant.file}:{mutant.line}"
    name = f"{mutant.function} {mutant.operator} {mutant.number}"
    return f"{where}  {name}\n    {shortened(mutant.old)}  ->  {shortened(mutant.new)}"


def shortened(text, most=120):
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 2]} …"


# ---- tests --------------------------------------------------------------------------------------


@cache
def words(path):
    """Return the words of a file."""
    return set(re.findall(r"\w+", path.read_text(encoding="utf-8")))


def nearest_tests(mutant, n):
    """Return the `n` test files, as paths from the root, that are nearest to a mutant by names.

    Coverage cannot tell which tests run a function, because it does not see compiled code.
    """
    *rooms, module = Path(mutant.file).with_suffix("").parts
    names = set(mutant.function.split("."))

    def nearness(path):
        subject, own_rooms = path.stem.removeprefix("test_"), path.relative_to(TESTS).parts[:-1]
        of_subject = 3 * (subject == module) + 2 * (subject in rooms)
        named = len(words(path) & names) + (module in words(path))
        near = of_subject + 2 * len({*rooms} & {*own_rooms}) + named
        return near, path.stat().st_size  # long ones see more

    # Tests of the whole package are not near any function.
    files = [path for path in TESTS.rglob("test_*.py") if path.parent.name != "whole"]
    found = sorted(files, key=nearness, reverse=True)[:n]
    return [str(path.relative_to(ROOT)) for path in found]


@contextmanager
def copied(mutant=None):
    """Copy the package and its tests, perhaps with a mutant, and remove the copy at the end."""
    with TemporaryDirectory() as directory:
        root, unused = Path(directory), shutil.ignore_patterns("__pycache__", "_build")
        for name in ("pymc_kameleon", "tests", "examples", "docs"):
            shutil.copytree(ROOT / name, root / name, ignore=unused)
        shutil.copy(ROOT / "pyproject.toml", root)
        if mutant is not None:
            path = root / "pymc_kameleon" / mutant.file
            path.write_bytes(mutant.applied(path.read_bytes()))
        yield root


def run(root, tests, cache, timeout=None):
    """Run tests in a copy; return pytest's exit code, None if they hang, and what it printed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    process = subprocess.Popen(
        [*command, "-m", "not slow", tests],
        cwd=root,
        env=environ | {"PYTHONPATH": str(root), "NUMBA_CACHE_DIR": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # so that the processes of a test end with it
    )
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        killpg(process.pid, signal.SIGKILL)
        return None, process.communicate()[0]
    return process.returncode, output


@cache
def seconds_without_mutants(tests, machine_code):
    """Return how long tests take without mutants, or None if they fail."""
    start = time.time()
    with copied() as root:
        code, output = run(root, tests, machine_code)
    seconds = time.time() - start
    passes = code in PASSES
    print(f"{'passes' if passes else 'FAILS'} without mutants: {tests}, {seconds:.0f} s")
    print(end="" if passes else output, flush=True)
    return seconds if passes else None


def judged(mutant, all_tests, machine_code):
    """Return the verdict on a mutant, and which tests killed it or missed it."""
    with copied(mutant) as root:
        decides = re.fullmatch(DECIDES_CACHE, mutant.file)
        own_code = root / "cache" if decides else machine_code
        for tests in all_tests:
            seconds = seconds_without_mutants(tests, machine_code)
            if seconds is None:
                return "NOT TESTED", f"because {tests} fails without it"
            timeout = SLACK[0] + SLACK[1] * seconds
            code, output = run(root, tests, own_code, timeout)
            if code is None:
                return "timed out", f"after {timeout:.0f} s of {tests}"
            if code not in PASSES:
                failed = re.findall(r"^(?:FAILED|ERROR) (\S*)", output, re.MULTILINE)
                return "killed", f"by {failed[0] if failed else f'a crash of {tests}'}"
    return "SURVIVED", f"missed by {' '.join(all_tests)}"


# ---- the program --------------------------------------------------------------------------------


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("patterns", nargs="*", help="regular expressions, or names of groups")
    parser.add_argument("--sample", type=int, default=50, help="number of mutants to draw")
    parser.add_argument("--seed", type=int, default=0, help="of the draw")
    parser.add_argument("--list", action="store_true", help="show all that match, run nothing")
    parser.add_argument("--files", type=int, default=4, help="test files for each mutant")
    return parser.parse_args()


def report(verdicts):
    """Print the survivors again, and the number of mutants for each verdict."""
    survivors = [described(mutant) for mutant in verdicts if verdicts[mutant] == "SURVIVED"]
    print(*["\nSurvivors:", *survivors] if survivors else [], sep="\n")
    counts = Counter(verdicts.values())
    print(f"{len(verdicts)} mutants:", ", ".join(f"{n} {verdict}" for verdict, n in counts.items()))


def main():
    told, verdicts = arguments(), {}
    mutants = matching(told.patterns)
    print(f"{len(mutants)} mutants match", flush=True)
    if told.list:
        print(*map(described, mutants), sep="\n")
        return 0
    with TemporaryDirectory() as machine_code:
        for mutant in drawn(mutants, told.sample, told.seed):
            verdict, details = judged(mutant, nearest_tests(mutant, told.files), machine_code)
            verdicts[mutant] = verdict
            print(f"{verdict}: {described(mutant)}\n    {details}", flush=True)
    report(verdicts)
    return 2 if "NOT TESTED" in verdicts.values() else int("SURVIVED" in verdicts.values())


if __name__ == "__main__":
    sys.exit(main())
