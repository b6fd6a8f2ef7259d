"""Figures 11 and 13 of the cyclical KAM paper, and what it leaves open: kernels, cycles, bias.

    python ckam_ablations.py [--seeds 4]

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". Four chains, some six minutes on two cores:

1. Effective sample size on A.1, as ArviZ has it, per second (figure 11); beside it the weight of
   the first mode, which is 0.5.
2. Kernels on A.1 (figure 13), by symmetric KL. The linear kernel has S = 4 m Cov(z) everywhere: it
   is the cyclical schedule with a global covariance, the ablation that the paper proposes.
3. The bias of cKAM, which learns anew in every cycle, by the length L of a cycle: on a normal of
   variance 1, and on two modes of unequal width near enough for Sampling to jump between them.
   With γ₀ = 1, near these targets' scale; with 20 short Explorations accept and learn nothing.
"""

from functools import partial
from pathlib import Path
from typing import NamedTuple

import arviz as az
import numpy as np
from ckam_targets import (
    EVALUATIONS,
    EXACT,
    KERNEL,
    SAMPLERS,
    TARGETS,
    Sampler,
    normal,
    published,
    run_chain,
)
from common import benchmark
from mixtures import Mixture

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
BIMODAL = TARGETS["A.1"]
NORMAL = normal((0, 0), bins=(-5, 5, 50))
NEAR_MODES = Mixture(
    (0.2, 0.8), ((-3, 0), (3, 0)), ((0.25, 0.25), (2, 2)), start=(-3, 0), bins=(-8, 8, 64)
)
BIAS_EVALUATIONS = 500_000


def exact(**options):
    """Return CyclicalKAM with some arguments."""
    return Sampler(pk.CyclicalKAM, options=options)


KERNELS = {
    "Gaussian": (
        published(kernel=pk.samplers.kernels.Gaussian(2.0)),
        exact(kernel=pk.samplers.kernels.Gaussian()),
    ),
    "Matérn": (published(kernel=KERNEL), exact(kernel=pk.samplers.kernels.Matern(4))),
    "linear": (
        published(kernel=pk.samplers.kernels.Linear()),
        exact(kernel=pk.samplers.kernels.Linear()),
    ),
}
LENGTHS = {
    length: (published(cycle_length=length, start=1), exact(cycle_length=length))
    for length in (20, 50, 100, 1000)
}
"""cKAM and CyclicalKAM."""


def measure_ess(sampler, seed):
    """Return the least ESS of a coordinate, the same per second, and the first mode's weight."""
    chain = run_chain(BIMODAL, sampler, EVALUATIONS["A.1"], seed, every=10)
    ess = min(az.ess(x[None]) for x in chain.x.T)
    return ess, ess / chain.seconds, np.mean(chain.x[:, 0] < 0)


def measure_kl(sampler, seed):
    """Return the symmetric KL on A.1."""
    return [BIMODAL.symmetric_kl(run_chain(BIMODAL, sampler, EVALUATIONS["A.1"], seed).x)]


def measure_bias(sampler, seed):
    """Return the normal's variance, and the share of the narrow one of the near modes."""
    normal, modes = (
        run_chain(target, sampler, BIAS_EVALUATIONS, seed, every=10).x
        for target in (NORMAL, NEAR_MODES)
    )
    return np.mean(normal**2), np.mean(modes[:, 0] < 0)


class Table(NamedTuple):
    """What is measured for a table: its head, the samplers in each of its rows, and a function."""

    head: list
    samplers: dict
    measure: callable


ALONE = {name: (sampler,) for name, sampler in SAMPLERS["A.1"].items()}
ESS = ["sampler", "ESS", "per second", "weight, exact 0.5"]
BIAS = ["L", "cKAM: variance", "side", f"{EXACT}: variance", "side"]
TABLES = {
    "samplers on A.1": Table(ESS, ALONE, measure_ess),
    "kernels": Table(["kernel", "cKAM", EXACT], KERNELS, measure_kl),
    "cycles": Table(BIAS, LENGTHS, measure_bias),
}


def measure_row(table, row, seed):
    """Return the measures of one chain of each sampler in a row of a table."""
    _, samplers, measure_chain = TABLES[table]
    return [value for sampler in samplers[row] for value in measure_chain(sampler, seed)]


def measure(table, row, seeds):
    """Return the measures of all chains, (measures, chains)."""
    chains = benchmark.in_processes(measure_row, table, row, seeds=seeds)
    return {"values": benchmark.rounded(list(zip(*chains, strict=True)))}


def plan(options):
    """Yield what is to be run."""
    for table, (_, samplers, _) in TABLES.items():
        for row in samplers:
            what = {"table": table, "row": row}
            yield what, partial(measure, **what, seeds=range(options.seeds))


def tables(rows):
    """Return the tables of the pages: all, and the bias of cKAM by the length of a cycle."""
    found = {name: [] for name in TABLES}
    for row in rows:
        found[row["table"]].append([row["row"], *map(benchmark.with_error, row["values"])])
    bias = benchmark.table(["L", "cKAM", EXACT], [cells[::2] for cells in found["cycles"]])
    found = {name: benchmark.table(table.head, found[name]) for name, table in TABLES.items()}
    return {
        benchmark.paper("cyclical_kam"): found,
        "cyclical_kam.md": {"bias of short cycles": bias},
    }


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=4)
