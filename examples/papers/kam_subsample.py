"""How large a subsample does KAM need? Accuracy and cost against m; the paper leaves it open.

    python kam_subsample.py [--seeds 20]

Some five minutes on two cores. B(0.1, 100) and the flower in 8 dimensions, KAM with the settings
and the protocol of figure 5 of Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel
adaptive Metropolis-Hastings", ICML 2014, but for m, which is 1000 there.
"""

from functools import partial
from pathlib import Path

import numpy as np
from common import benchmark
from kam_figure5 import KAM, build, deviation, run_chain
from kam_targets import TARGETS

FILE = Path(__file__).with_suffix(".json")
NAMES = ["B(0.1, 100)", "F(10, 6, 6, 1)"]
SIZES = [50, 100, 200, 500, 1000, 2000]


def plan(options):
    """Yield what is to be run."""
    for what, run in benchmark.each(measure, target=NAMES, points=SIZES):
        yield what, partial(run, seeds=range(options.seeds))


def measure_chain(target, points, seed):
    """Return the mean deviation of the quantiles in % of one chain."""
    x, _ = run_chain(build(target, KAM, n_subsample=points), target, seed)
    return deviation(TARGETS[target], x)


def measure(target, points, seeds=()):
    """Return the deviation, mean over chains, its standard error, and the largest one."""
    chains = np.array(benchmark.in_processes(measure_chain, target, points, seeds=seeds))
    error = chains.std(ddof=1) / np.sqrt(len(chains))
    found = {"deviation": chains.mean(), "error": error, "worst": chains.max()}
    return {key: round(float(value), 4) for key, value in found.items()}


def tables(rows):
    """Return the table of the page: deviations, and that of the worst chain."""
    lines = []
    for points, own in benchmark.grouped(rows, "points").items():
        lines.append([points])
        for row in own:
            mean = benchmark.estimate(row["deviation"], row["error"], 2)
            lines[-1] += [mean, f"{row['worst']:.1f}"]
    titles = ["points", *(f"{name} | worst" for name in NAMES)]
    return {benchmark.paper("kam"): {"points": benchmark.table(titles, lines)}}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=20)
