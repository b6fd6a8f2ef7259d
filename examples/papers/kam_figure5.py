"""Figure 5 of the KAM paper: random walks and KAM on two bananas and a flower.

    python kam_figure5.py    20 chains each, as in the paper; some ten minutes on two cores

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014. The paper shows bars only, no figures. Deviation is of the quantile regions 0.1 … 0.9,
mean |share − p| in %.

Iterations and burn-in are the paper's. It does not say where its chains start; here they start at
N(0, I), which is in the bend of the bananas and in the middle of the flower. Of the states after
the burn-in, one in ten is kept, which is faster than keeping all, as the paper does. It does not
matter: on B(0.03, 100) the deviations of KAM and of AM that stops changed by -0.01 (0.06) and -0.03
(0.04).
"""

from functools import lru_cache, partial
from itertools import islice
from pathlib import Path

import numpy as np
from common import benchmark
from kam_targets import TARGETS, deviations

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
D = 8
ITERATIONS = {"B(0.03, 100)": 40_000, "B(0.1, 100)": 80_000, "F(10, 6, 6, 1)": 120_000}
"""The first half is burn-in."""

# AM has its first covariance after 160 transitions, so that rates differ only from there on.
SQUARE_ROOT = pk.samplers.Decay(0.5, delay=4, power=0.5)
"""1/√(t + 4)."""
THREE_QUARTERS = pk.samplers.Decay(0.5, delay=2 ** (4 / 3), power=0.75)
"""(t + 2.5)^-3/4."""
INVERSE = pk.samplers.Decay(0.5, delay=2, power=1)
"""1/(t + 2): the plain mean and covariance of the past."""

PAPER = {"whiten": False, "gamma": 0.2, "n_subsample": 1000}
"""KAM's settings in the paper."""
KAM = "KAM, as in the paper"

SAMPLERS = {
    "SM": (pk.baselines.RWM, {"scaling": 2.38 / np.sqrt(D)}),
    "AM-FS, never stops, t^-1/2": (
        pk.baselines.AM,
        {"learning_rate": SQUARE_ROOT, "keep_adapting": True},
    ),
    "AM-LS, never stops, t^-1/2": (pk.GAM, {"learning_rate": SQUARE_ROOT, "keep_adapting": True}),
    "AM-FS, never stops, t^-3/4": (
        pk.baselines.AM,
        {"learning_rate": THREE_QUARTERS, "keep_adapting": True},
    ),
    "AM-LS, never stops, t^-3/4": (
        pk.GAM,
        {"learning_rate": THREE_QUARTERS, "keep_adapting": True},
    ),
    "AM-FS, stops, 1/t": (pk.baselines.AM, {"learning_rate": INVERSE}),
    "AM-LS, stops, 1/t": (pk.GAM, {"learning_rate": INVERSE}),
    "GAM, default arguments": (pk.GAM, {}),
    KAM: (pk.KAM, PAPER),
    "KAM, default arguments": (pk.KAM, {}),
}


def plan(options):
    """Yield what is to be run."""
    for what, run in benchmark.each(measure, target=TARGETS, sampler=SAMPLERS):
        yield what, partial(run, seeds=range(options.seeds))


@lru_cache
def build(target, sampler, **options):
    """Build a step; `options` replace some of the sampler's."""
    kind, own = SAMPLERS[sampler]
    return kind(model=TARGETS[target].model(), steps_per_draw=10, **own | options)


def run_chain(step, target, seed):
    """Run a chain; return the states kept after the burn-in, (n, 8), and the acceptance there."""
    rng = np.random.default_rng(seed)
    n = ITERATIONS[target] // 2 // step.steps_per_draw
    chain = islice(benchmark.driven(step, {"x": rng.normal(size=D)}, n, n, rng), n, None)
    x, accepted = zip(*((point["x"], stats["accept_share"]) for point, stats in chain), strict=True)
    return np.array(x), np.mean(accepted)


def measure_chain(target, sampler, seed):
    """Return acceptance, |mean| and the mean deviation of the quantiles in % of one chain."""
    x, acceptance = run_chain(build(target, sampler), target, seed)
    return acceptance, np.linalg.norm(x.mean(axis=0)), deviation(TARGETS[target], x)


def deviation(target, x):
    """Return the mean deviation of the quantiles in %."""
    return 100 * np.abs(deviations(target.level(x))).mean()


def measure(target, sampler, seeds=()):
    """Return means over chains, and the standard error of the deviation."""
    chains = np.array(benchmark.in_processes(measure_chain, target, sampler, seeds=seeds))
    acceptance, norm, deviation = chains.mean(axis=0)
    error = chains[:, 2].std(ddof=1) / np.sqrt(len(chains))
    found = {"acceptance": acceptance, "mean": norm, "deviation": deviation, "error": error}
    return {name: round(float(value), 4) for name, value in found.items()}


def tables(rows):
    """Return the tables of the pages: all, and the quantiles of KAM and of others that stop."""
    found, long, short = benchmark.grouped(rows, "target", "sampler"), [], []
    for sampler in SAMPLERS:
        own = [found[target, sampler][0] for target in TARGETS]
        quantiles = [benchmark.estimate(row["deviation"], row["error"], 2) for row in own]
        both = zip(quantiles, own, strict=True)
        long.append([sampler, *(x for cell, row in both for x in (cell, f"{row['mean']:.1f}"))])
        if "never stops" not in sampler:
            short.append([sampler, *quantiles])
    titles = ["sampler", *(f"{target}: quantiles | mean" for target in TARGETS)]
    return {
        benchmark.paper("kam"): {"figure 5": benchmark.table(titles, long)},
        "kam.md": {"figure 5": benchmark.table(["sampler", *TARGETS], short)},
    }


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=20)
