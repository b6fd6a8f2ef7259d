"""How fast one version of the package is beside another, both in one run.

    python tests/tools/compare_speed.py CHECKOUT OTHER                some 25 minutes
    python tests/tools/compare_speed.py CHECKOUT OTHER --only import  "compile GAM", "run KAM" …

The versions take turns in fresh processes, on one core, in seconds of the processor. Printed are
the least figures of both, their ratio, OTHER over CHECKOUT, and the median ratio of neighbours with
its standard error. Leave the other cores alone meanwhile: what they share tells, too.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from statistics import median, stdev
from tempfile import TemporaryDirectory
from time import process_time

COMPILED = ("GAM", "KAM", "GadMALA", "SurrogateMetropolis")
TRANSITIONS = {"RWM": 2_000_000, "GAM": 1_000_000, "KAM": 200_000, "GadMALA": 500_000}
TRANSITIONS |= {"SurrogateMetropolis": 300_000}
KINDS = ("import", *(f"compile {name}" for name in COMPILED), *(f"run {n}" for n in TRANSITIONS))
STEPS_PER_DRAW, TUNE, PM_DRAWS = 10, 200, 5000
BUDGET, REPEATS = 2.0, 3  # of a figure in a process: seconds in all, and calls at least
LITTLE = {"progressbar": False, "compute_convergence_checks": False, "cores": 1}


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="*", type=Path)
    parser.add_argument("--only", default="", help="kinds that begin so")
    parser.add_argument("--rounds", type=int, default=8, help="processes of each version")
    parser.add_argument("--measure", choices=KINDS, help="for itself")
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(*options.measure.split())))
        return
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    one, other = (checkout.resolve() for checkout in options.checkouts)
    for kind in KINDS:
        if kind.startswith(options.only):
            found = {"one": [], "other": []}
            for k in range(options.rounds + 1):  # the first fills the caches of both
                turn = [("one", one), ("other", other)][:: (-1) ** k]
                for name, checkout in turn:
                    found[name].append(in_fresh_process(checkout, kind))
            report(found["one"][1:], found["other"][1:])


def in_fresh_process(checkout, kind):
    with TemporaryDirectory() as folder:
        environment = os.environ | {"PYTHONPATH": str(checkout), "PYTHONHASHSEED": "0"}
        environment |= {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if kind.startswith("compile"):
            environment["NUMBA_CACHE_DIR"] = folder
        command = [sys.executable, __file__, "--measure", kind]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def report(one, other):
    for name in one[0]:
        a, b = ([row[name] for row in rows] for rows in (one, other))
        ratios = [y / x for x, y in zip(a, b, strict=True)]
        error = 1.25 * stdev(ratios) / len(ratios) ** 0.5
        found = f"least {min(b) / min(a):.3f}, median {median(ratios):.3f} ± {error:.3f}"
        print(f"{name:53} {min(a):9.4g} {min(b):9.4g}   {found}", flush=True)


def measure(kind, sampler=None):
    import pymc as pm

    if kind == "import":
        return {
            "import after pymc, s": once(imported),
            "of its own modules, s": seconds(imported),
        }
    with pm.Model():
        pm.Normal("x", range(10), 2.0)
        return {"compile": compiled, "run": run}[kind](sampler)


def imported():
    """Import the package; what it needs is imported the first time only."""
    for name in [name for name in sys.modules if name.startswith("pymc_kameleon")]:
        del sys.modules[name]
    import pymc_kameleon  # noqa: F401


def seconds(function, budget=BUDGET, repeats=REPEATS):
    """Return the least seconds of the processor that a call takes."""
    found = []
    while len(found) < repeats or sum(found) < budget:
        gc.collect()
        start = process_time()
        function()
        found.append(process_time() - start)
    return min(found)


def once(function):
    return seconds(function, 0.0, 1)


def compiled(sampler):
    """Time a step and its first draw, with an empty cache."""
    import pymc as pm

    import pymc_kameleon as pk

    def first_draw():
        step = getattr(pk, sampler)()
        step.setup_chain(1, 0, 1)
        step.step(pm.modelcontext(None).initial_point())

    return {f"first compilation of {sampler}, s": once(first_draw)}


def run(sampler):
    """Time tuning, a run of one draw, transitions, and draws through pm.sample."""
    import logging

    import pymc as pm

    import pymc_kameleon as pk

    logging.disable(logging.WARNING)
    step = getattr(pk, sampler)(steps_per_draw=STEPS_PER_DRAW)
    alone = getattr(pk, sampler)(steps_per_draw=1)

    def tuned():
        return pk.sample(0, tune=TUNE, step=step, random_seed=1, chains=1, **LITTLE)

    def goes_on(draws):
        return seconds(lambda: pk.resume(start, draws, **LITTLE))

    def through_pymc(draws):
        return seconds(
            lambda: pm.sample(draws, tune=TUNE, step=alone, random_seed=1, chains=1, **LITTLE)
        )

    start = tuned()
    tuning, one, n = seconds(tuned), goes_on(1), TRANSITIONS[sampler]
    transition = (goes_on(1 + n // STEPS_PER_DRAW) - one) / n
    draw = (through_pymc(1 + PM_DRAWS) - through_pymc(1)) / PM_DRAWS
    return {
        f"{sampler}: {TUNE * STEPS_PER_DRAW} transitions of tuning, s": tuning,
        f"{sampler}: a run of one draw, resumed, s": one,
        f"{sampler}: a transition in pk.sample, µs": 1e6 * transition,
        f"{sampler}: a draw of pm.sample, µs": 1e6 * draw,
    }


if __name__ == "__main__":
    main()
