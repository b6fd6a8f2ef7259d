"""What the control variates of GAM gain: a table of docs/estimates_results.md.

    python examples/benchmarks/walk_controls.py      some minutes

Runs of four chains from dispersed starts, with 1000 draws of tuning and 1000 after it, of ten
transitions each. A quantity's gain is the variance over the runs of its mean over the draws, over
that of its corrected average. Quantities are each x_k, x_k² and
whether x_k is below its median, on the unconstrained scale.
"""

from pathlib import Path

import numpy as np
from benchmark import each, main, sample, table
from problems import NAMES, Problem

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
DRAWS, RUNS = 1000, 16
CASES = ("AR5", "log regression", "26 coefficients", "schools", "GARCH", "banana")
LABELS = NAMES | {"26 coefficients": "26 coefficients"}
KINDS = ("means", "mean squares", "probabilities")


def plan(options):
    """Return what is to be run."""
    return each(run, case=CASES)


def run(case):
    """Return gains of all quantities by kind, and the root mean square of error / standard error.

    Errors are those from the mean over the runs.
    """
    problem = Problem(case)
    step = pk.GAM(model=problem.model, control_variates=True, steps_per_draw=10)
    medians = None

    def quantities(variables):
        x = problem.coordinates(variables)
        return np.concatenate([x, (x - medians) ** 2, x < medians], axis=2)

    plain, corrected, errors = [], [], []
    for seed in range(RUNS):
        starts = problem.initvals(seed)
        dt = sample(step, DRAWS, tune=DRAWS, initvals=starts, random_seed=seed)
        if medians is None:
            medians = np.median(problem.coordinates(dt["posterior"]), axis=(0, 1))
        found = pk.expectation(dt, quantities)
        plain.append(pk.expectation(dt["posterior"], quantities).mean)
        corrected.append(found.mean)
        errors.append(found.mcse)
    gains = np.var(plain, axis=0) / np.var(corrected, axis=0)
    z = (corrected - np.mean(corrected, axis=0)) / np.array(errors)
    by_kind = zip(KINDS, np.split(gains.round(2), 3), strict=True)
    rms = round(float(np.sqrt(np.mean(z**2))), 2)
    return {"d": problem.d} | {kind: own.tolist() for kind, own in by_kind} | {"z": rms}


def tables(rows):
    """Return the table of the page: the least and the median gain over the coordinates."""
    lines = []
    for row in rows:
        cells = [f"{of(row[kind]):.2g}" for kind in KINDS for of in (np.min, np.median)]
        name = LABELS.get(row["case"], row["case"])
        lines.append([name, row["d"], *cells, row["z"]])
    titles = ["case", "d", *(f"{kind}, least | median" for kind in KINDS), "z"]
    return {"estimates_results.md": {"gains of control variates": table(titles, lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables)
