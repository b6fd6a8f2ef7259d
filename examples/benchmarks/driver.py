"""Draws per second of pk.sample over those of pm.sample with the same step.

    python examples/benchmarks/driver.py    about a minute

Writes a table of docs/performance.md: GAM on a banana in 8 dimensions. Steps are built before the
clock starts. Ratios are of runs side by side, medians of several.
"""

from pathlib import Path
from statistics import median
from time import perf_counter

import pymc as pm
from benchmark import each, main, table
from problems import BANANA

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
DRAWS, REPEATS = {pk.sample: 500_000, pm.sample: 20_000}, 5


def plan(options):
    """Return what is measured, and how."""
    return each(ratio, steps_per_draw=(1, 10))


def ratio(steps_per_draw):
    """Return draws per second of pk.sample over those of pm.sample."""
    step, ratios = pk.GAM(model=BANANA.model(), steps_per_draw=steps_per_draw), []
    for _ in range(REPEATS):
        ours, theirs = (seconds_of_draw(sample, step) for sample in DRAWS)
        ratios.append(theirs / ours)
    return {"ratio": round(median(ratios), 1)}


def seconds_of_draw(sample, step):
    """Return the seconds of a draw of one chain."""
    options = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}
    began = perf_counter()
    sample(DRAWS[sample], tune=100, chains=1, cores=1, step=step, model=step.model, **options)
    return (perf_counter() - began) / DRAWS[sample]


def tables(rows):
    """Return the table of the page."""
    lines = [[row["steps_per_draw"], f"{row['ratio']:.0f}"] for row in rows]
    titles = ["`steps_per_draw`", "draws per second, over `pm.sample`"]
    return {"performance.md": {"pk.sample": table(titles, lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables)
