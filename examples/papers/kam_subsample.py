"""How large a subsample does KAM need? Accuracy and cost against m; the paper leaves it open.

    python kam_subsample.py [--chains 20]

Some five minutes on two cores; with 20 chains it writes the table of kam.md. B(0.1, 100) and the
flower in 8 dimensions, KAM with the settings and the protocol of figure 5 of Sejdinovic,
Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings", ICML 2014, but
for m, which is 1000 there. Seconds are those of the sampling after the burn-in, in the fastest
chain: others may have had to share their core.
"""

import argparse
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path

import numpy as np
from kam_figure5 import CORES, ITERATIONS, KAM, build, run_chain
from kam_targets import TARGETS, deviations

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from benchmark import paper, save, when_and_where, write

FILE = Path(__file__).with_suffix(".json")
CHAINS = 20
"""Of the table."""
NAMES = ["B(0.1, 100)", "F(10, 6, 6, 1)"]
SIZES = [50, 100, 200, 500, 1000, 2000]


def measure(name, m, seed):
    """Return acceptance, mean deviation of the quantiles in %, and seconds of one chain."""
    step = build(name, KAM, n_subsample=m)
    x, acceptance, seconds = run_chain(step, name, seed)
    deviation = 100 * np.abs(deviations(TARGETS[name].level(x))).mean()
    return acceptance, deviation, seconds * ITERATIONS[name] / 2


def main():
    """Print a table, and write that of the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chains", type=int, default=CHAINS)
    seeds, rows = range(parser.parse_args().chains), []

    print(f"{len(seeds)} chains; deviation of the quantiles in %, mean over chains")
    print(f"{'target':<16}{'m':>6}{'acceptance':>12}{'deviation':>15}{'median':>8}{'seconds':>9}")
    with ProcessPoolExecutor(CORES) as pool:
        for name, m in product(NAMES, SIZES):
            jobs = [(name, m, seed) for seed in seeds]
            chains = list(pool.map(measure, *zip(*jobs, strict=True)))
            acceptance, deviation, seconds = np.array(chains).T
            error = deviation.std(ddof=1) / np.sqrt(len(deviation))
            found = {"deviation": deviation.mean(), "error": error, "worst": deviation.max()}
            found = {key: round(float(value), 4) for key, value in found.items()}
            rows.append({"target": name, "points": m} | found | when_and_where())
            print(
                f"{name:<16}{m:>6}{acceptance.mean():>12.3f}"
                f"{f'{deviation.mean():.2f} ({error:.2f})':>15}{np.median(deviation):>8.2f}"
                f"{seconds.min():>9.2f}",
                flush=True,
            )
    if len(seeds) == CHAINS:
        save(FILE, rows)
        write(tables(rows))


def tables(rows):
    """Return the table of the page: deviations, and that of the worst chain."""
    lines = [f"| points | {' | worst | '.join(NAMES)} | worst |", "|---" * 5 + "|"]
    for m in SIZES:
        own = [row for row in rows if row["points"] == m]
        cells = [f"{row['deviation']:.2f} ({row['error']:.2f}) | {row['worst']:.1f}" for row in own]
        lines.append(f"| {m} | {' | '.join(cells)} |")
    return {paper("kam"): {"points": lines}}


if __name__ == "__main__":
    main()
