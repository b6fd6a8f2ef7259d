"""Simulators that are not smooth: what a run tells of that, and how far off its averages are.

    python examples/benchmarks/noise.py [--cases tolerance random] [--seeds 4]

Twelve outputs of three parameters have noise of a share of 0.3, the size of what they are. Of a
*tolerance* it is a function of the parameters, as of a solver; of a *random* function each call has
its own. Data have noise with an sd of 0.05.

A row has for each seed the noise that the run tells, relative to the right one, and the largest
error of a mean of `pk.summary`, in posterior standard deviations of the smooth simulator. "problem"
counts the runs that tell a problem. "smoothed" is the error of a second run, with ``pk.emulator``
of the first one in the simulator's place, which calls the simulator no more.
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pymc as pm
from benchmark import each, grouped, main, rounded, table

import pymc_kameleon as pk
from pymc_kameleon.findings.registry import PROBLEM

FILE = Path(__file__).with_suffix(".json")
KINDS = {"tolerance": "a tolerance", "random": "random"}
SIZES, LENGTHS = (1e-4, 1e-2, 0.1, 0.3), (200, 500)
TIMES, SIGNAL, LONG = np.linspace(0.2, 5, 12), 0.3, 2000


def smooth(a, b, c):
    """Return the outputs without noise."""
    return a * np.exp(-b * TIMES) + c * TIMES / 5


def simulator(kind, size):
    """Return a simulator with noise of a kind."""
    rng = np.random.default_rng(5)

    def rough(a, b, c):
        own = rng
        if kind == "tolerance":
            own = np.random.default_rng(np.array([a, b, c], float).view(np.uint32))
        return smooth(a, b, c) + size * SIGNAL * own.normal(size=12)

    return rough


def model_of(function):
    """Return the model of a simulator."""
    observed = smooth(2.0, 0.7, 0.5) + 0.05 * np.random.default_rng(1).normal(size=12)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0.5, 0.5), pm.LogNormal("b", -0.5, 0.5)
        c, s = pm.Normal("c", 0, 1), pm.HalfNormal("s", 0.1)
        pm.Normal("y", pk.black_box(function)(a, b, c), s, observed=observed)
    return model


def sampled(function, evaluations, seed):
    """Return a run."""
    with model_of(function):
        return pk.sample(
            max_evaluations=evaluations, random_seed=seed, progressbar=False, quiet=True
        )


@lru_cache
def known():
    """Return means and standard deviations of the smooth simulator."""
    found = pk.summary(sampled(smooth, LONG, 1), round_to="none")
    return found["mean"].to_numpy(), found["sd"].to_numpy()


def error_of(dt):
    """Return the largest error of a mean."""
    mean, sd = known()
    return np.abs((pk.summary(dt, round_to="none")["mean"].to_numpy() - mean) / sd).max()


def plan(options):
    """Return what is to be run."""
    seeds = [options.seeds]
    return each(measure, case=KINDS, size=SIZES, evaluations=LENGTHS, seeds=seeds)


def measure(case, size, evaluations, seeds):
    """Return a row."""
    told, error, smoothed, problems = [], [], [], 0
    for seed in range(seeds):
        dt = sampled(simulator(case, size), evaluations, seed)
        findings = pk.diagnose(dt).findings
        own = [one.numbers["size"] for one in findings if one.code == "rough_outputs"]
        told.append(own[0] / (size * SIGNAL) if own else np.nan)
        problems += any(one.severity == PROBLEM for one in findings)
        error.append(error_of(dt))
        emulator = pk.emulator(dt)
        again = sampled(lambda *x, of=emulator: of(np.array(x, float)), LONG, seed)
        smoothed.append(error_of(again))
    found = {"told": told, "error": error, "smoothed": smoothed}
    return {name: rounded(own) for name, own in found.items()} | {"problems": problems}


def tables(rows):
    """Return the table of docs/noise.md."""
    lines, by_place = [], grouped(rows, "case", "size", "evaluations")
    for case, title in KINDS.items():
        for size in SIZES:
            for n in LENGTHS:
                if not by_place[case, size, n]:
                    continue
                [row] = by_place[case, size, n]
                told = [one for one in row["told"] if one is not None and np.isfinite(one)]
                ratios = f"{min(told):.2f} to {max(told):.2f}" if told else "–"
                errors = [f"{max(row[name]):.2g}" for name in ("error", "smoothed")]
                problems = f"{row['problems']} of {row['seeds']}"
                count = f"{len(told)} of {row['seeds']}"
                lines.append([title, f"{size:g}", n, count, ratios, errors[0], problems, errors[1]])
    titles = ["noise", "size", "evaluations", "told", "its size over the right one"]
    titles += ["worst error", "problem told", "smoothed"]
    return {"noise.md": {"noise": table(titles, lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4)
