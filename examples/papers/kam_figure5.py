"""Figure 5 of the KAM paper: random walks and KAM on two bananas and a flower.

    python kam_figure5.py           4 chains each, a minute or two on two cores
    python kam_figure5.py --full    20 chains each, as in the paper; some ten minutes

Each row of the full table is added to kam_figure5.json as it ends; what is in there is not run
again. kam.md and docs/kam.md have it.

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014. The paper shows bars only, no figures; what stands beside ours was measured with an
independent prototype before this package was written.

Iterations and burn-in are the paper's. It does not say where its chains start; here they start at
N(0, I), which is in the bend of the bananas and in the middle of the flower. Of the states after
the burn-in, one in ten is kept, which is faster than keeping all, as the paper does. It does not
matter: on B(0.03, 100) the deviations of KAM and of AM that stops changed by -0.01 (0.06) and -0.03
(0.04). --every 1 keeps all.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import numpy as np
from kam_targets import TARGETS, deviations

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from benchmark import load, paper, save, when_and_where, write

FILE = Path(__file__).with_suffix(".json")
CORES = 2
D = 8
ITERATIONS = {"B(0.03, 100)": 40_000, "B(0.1, 100)": 80_000, "F(10, 6, 6, 1)": 120_000}
"""The first half is burn-in."""

# AM has its first covariance after 160 transitions, so that rates differ only from there on.
SQUARE_ROOT = pk.Decay(0.5, delay=4, power=0.5)
"""1/√(t + 4)."""
THREE_QUARTERS = pk.Decay(0.5, delay=2 ** (4 / 3), power=0.75)
"""(t + 2.5)^-3/4."""
INVERSE = pk.Decay(0.5, delay=2, power=1)
"""1/(t + 2): the plain mean and covariance of the past."""

PAPER = {"whiten": False, "gamma": 0.2, "n_subsample": 1000}
"""KAM's settings in the paper."""
KAM = "KAM, as in the paper"

SAMPLERS = {
    "SM": (pk.RWM, {"scaling": 2.38 / np.sqrt(D)}),
    "AM-FS, never stops, t^-1/2": (pk.AM, {"learning_rate": SQUARE_ROOT, "keep_adapting": True}),
    "AM-LS, never stops, t^-1/2": (pk.GAM, {"learning_rate": SQUARE_ROOT, "keep_adapting": True}),
    "AM-FS, never stops, t^-3/4": (pk.AM, {"learning_rate": THREE_QUARTERS, "keep_adapting": True}),
    "AM-LS, never stops, t^-3/4": (
        pk.GAM,
        {"learning_rate": THREE_QUARTERS, "keep_adapting": True},
    ),
    "AM-FS, stops, 1/t": (pk.AM, {"learning_rate": INVERSE}),
    "AM-LS, stops, 1/t": (pk.GAM, {"learning_rate": INVERSE}),
    "GAM, default arguments": (pk.GAM, {}),
    KAM: (pk.KAM, PAPER),
    "KAM, default arguments": (pk.KAM, {}),
}

REFERENCE = {
    "B(0.03, 100)": {
        "SM": "3.77 (0.81) / 2.57",
        "AM-FS, never stops, t^-1/2": "3.68 (0.35) / 1.11",
        "AM-LS, never stops, t^-1/2": "3.01 (0.28) / 1.03",
        "AM-FS, stops, 1/t": "1.94",
        "AM-LS, stops, 1/t": "1.93",
        KAM: "1.07 (0.13) / 1.02",
    },
    "B(0.1, 100)": {
        "SM": "6.35 (1.7) / 9.8",
        "AM-FS, never stops, t^-1/2": "4.60 (0.33) / 3.8",
        "AM-LS, never stops, t^-1/2": "5.83 (0.25) / 4.6",
        "AM-FS, stops, 1/t": "2.44",
        "AM-LS, stops, 1/t": "2.99",
        KAM: "1.81 (0.32) / 3.3",
    },
    "F(10, 6, 6, 1)": {
        "SM": "0.67 (0.08) / 5.7",
        "AM-FS, never stops, t^-1/2": "2.23 (0.19) / 0.58",
        "AM-LS, never stops, t^-1/2": "3.69 (0.38) / 1.3",
        "AM-FS, stops, 1/t": "1.16",
        "AM-LS, stops, 1/t": "1.31",
        KAM: "0.65 (0.08) / 1.1",
    },
}
"""Prototype: deviation (standard error) / |mean|, as far as they were noted."""


@lru_cache
def build(target, sampler, every=10, **options):
    """Build a step; `options` replace some of the sampler's."""
    kind, own = SAMPLERS[sampler]
    return kind(model=TARGETS[target].model(), steps_per_draw=every, **own | options)


def run_chain(step, target, seed):
    """Run a chain by hand.

    Returns
    -------
    x : (n, 8) float64
        The states kept after the burn-in.
    acceptance : float
        Share of proposals accepted there.
    seconds : float
        What a transition took there; the median, for others may use the same core.
    """
    rng = np.random.default_rng(seed)
    n = ITERATIONS[target] // 2 // step.steps_per_draw
    point = {"x": rng.normal(size=D)}
    step.setup_chain(rng, n, n)
    x, accepted, seconds = np.empty((n, D)), 0.0, np.empty(n)
    for i in range(2 * n):
        if i == n:
            step.stop_tuning()
        start = time.perf_counter()
        point, [stats] = step.step(point)
        if i >= n:
            seconds[i - n] = time.perf_counter() - start
            x[i - n] = point["x"]
            accepted += stats["accept_share"]
    return x, accepted / n, np.median(seconds) / step.steps_per_draw


def measure(target, sampler, every, seed):
    """Return acceptance, |mean| and the mean deviation of the quantiles in % of one chain."""
    x, acceptance, _ = run_chain(build(target, sampler, every), target, seed)
    deviation = np.abs(deviations(TARGETS[target].level(x))).mean()
    return acceptance, np.linalg.norm(x.mean(axis=0)), 100 * deviation


def print_row(target, sampler, chains):
    """Print a row of the table, from acceptance, |mean| and deviation of each chain."""
    acceptance, norm, deviation = chains.T
    error = deviation.std(ddof=1) / np.sqrt(len(deviation))
    reference = REFERENCE[target].get(sampler, "")
    print(
        f"{sampler:<28}{acceptance.mean():>10.3f}{norm.mean():>8.2f}"
        f"{f'{deviation.mean():.2f} ({error:.2f})':>15}{np.median(deviation):>8.2f}"
        f"{deviation.max():>7.1f}   {reference}",
        flush=True,
    )


def summary(chains):
    """Return means over chains, and the standard error of the deviation."""
    acceptance, norm, deviation = chains.mean(axis=0)
    error = chains[:, 2].std(ddof=1) / np.sqrt(len(chains))
    found = {"acceptance": acceptance, "mean": norm, "deviation": deviation, "error": error}
    return {name: round(float(value), 4) for name, value in found.items()}


def tables(rows):
    """Return the tables of the pages: all, and the quantiles of KAM and of others that stop."""
    by_place = {(row["target"], row["sampler"]): row for row in rows}
    titles = [f"{target}: quantiles | mean" for target in TARGETS]
    long = [f"| sampler | {' | '.join(titles)} |", "|---" * 7 + "|"]
    short = [f"| sampler | {' | '.join(TARGETS)} |", "|---" * 4 + "|"]
    for sampler in SAMPLERS:
        own = [by_place[target, sampler] for target in TARGETS]
        quantiles = [f"{row['deviation']:.2f} ({row['error']:.2f})" for row in own]
        both = [f"{cell} | {row['mean']:.1f}" for cell, row in zip(quantiles, own, strict=True)]
        long.append(f"| {sampler} | {' | '.join(both)} |")
        if "never stops" not in sampler:
            short.append(f"| {sampler} | {' | '.join(quantiles)} |")
    return {paper("kam"): {"figure 5": long}, "kam.md": {"figure 5": short}}


def main():
    """Print a table for each target."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="20 chains instead of 4")
    parser.add_argument("--every", type=int, default=10, help="keep one state in so many")
    parser.add_argument("--target", choices=TARGETS, help="only this one")
    options = parser.parse_args()
    n_chains = 20 if options.full else 4
    stored = options.full and options.every == 10 and not options.target
    rows = load(FILE) if stored else []
    done = {(row["target"], row["sampler"]) for row in rows}

    print(
        f"{n_chains} chains. Deviation: of the quantile regions 0.1 … 0.9, mean |share − p| in %,"
    )
    print("mean over chains (standard error), median and worst chain.")
    print("Prototype: deviation (standard error) / |mean|. The paper gives bars only.")
    with ProcessPoolExecutor(CORES) as pool:
        for target in [options.target] if options.target else TARGETS:
            half = ITERATIONS[target] // 2
            print(f"\n{target} in {D} dimensions; {half:,} iterations after {half:,} of burn-in")
            print(
                f"{'sampler':<28}{'acceptance':>10}{'|mean|':>8}{'deviation':>15}{'median':>8}"
                f"{'worst':>7}   prototype"
            )
            for sampler in SAMPLERS:
                if (target, sampler) in done:
                    continue
                jobs = [(target, sampler, options.every, seed) for seed in range(n_chains)]
                chains = np.array(list(pool.map(measure, *zip(*jobs, strict=True))))
                print_row(target, sampler, chains)
                rows.append({"target": target, "sampler": sampler} | summary(chains))
                rows[-1] |= when_and_where()
                if stored:
                    save(FILE, rows)
    if stored:
        write(tables(rows))


if __name__ == "__main__":
    main()
