"""What adaptation of CMTM's scales is worth, in four dimensions; and what early rejection saves.

    python cmtm_adaptation.py [--seeds 20]

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019: twenty tries, with scales 2⁻¹⁰ … 2⁹ at first, 10 000 sweeps, half of them discarded. Two
minutes. Prototype: an implementation that came
before this package. Three variants:

1. none: the scales stay as they are.
2. stops: adaptation in the half that is discarded, as the package does by default.
3. goes on: as in the paper, ever less, within |x| < 10⁶ and scales from 10⁻⁶ to 10⁶.

Autocorrelation times (ACT) are draws per effective draw, by ArviZ for means.
"""

from functools import partial
from pathlib import Path

import numpy as np
from cmtm_targets import (
    BANANA,
    LARGE,
    MEDIUM,
    SMALL,
    autocorrelation_times,
    run_chain,
    squared_jump,
)
from common import benchmark

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
FIRST = 2.0 ** np.arange(-10, 10)
"""The scales σ_1 … σ_20 at first."""

VARIANTS = {
    "none": {"adapt_every": None},
    "stops": {},
    "goes on": {
        "keep_adapting": True,
        "region": {"x": (-1e6, 1e6)},
        "scaling_bounds": (1e-6, 1e6),
    },
}

REFERENCE = {
    "none": {
        "paper": "41.96 | 41.25 | 1.64 | 1.64 | 6.62 | 6.20, 6.62, 7.07",
        "prototype": "41.6 | 40.7 | 1.75 | 1.68 | 6.62 | ",
    },
    "goes on": {
        "paper": "22.55 | 22.46 | 1.43 | 1.00 | 10.04 | 8.88, 10.15, 10.76",
        "prototype": "23.9 | 23.5 | 1.3 | 0.7 | 9.96 | ",
    },
}
"""ACTs and squared jump; the latter's least, median and largest of the chains."""

SCALES = [(4, 8), (4, 8), (2, 4), (0.12, 0.50)]
"""The paper's final σ_1 and σ_20 of each coordinate, with adaptation."""

SELECTED = {"paper": (0.20, 0.24, 0.20, 0.13)}
"""How often it selects four tries of x₃ without adaptation, 2⁻¹ … 2²."""

TARGETS = {"d = 2": SMALL, "d = 4": MEDIUM, "d = 20": LARGE, "banana": BANANA}
"""On which early rejection is measured."""


def measure(variant, n_chains):
    """Run the chains of a variant, and return a row.

    It has ACTs, squared jumps and evaluations per sweep of the chains; the medians over chains of
    the least and the largest scale at the end; how often each try was selected, and was selected
    and accepted.
    """
    step = pk.CMTM(model=MEDIUM.model(), n_tries=20, scaling=FIRST, **VARIANTS[variant])
    chains = [run_chain(step, MEDIUM, seed) for seed in range(n_chains)]

    def mean(name):
        return np.array([chain.statistics[name].mean(axis=0) for chain in chains])

    ends = [
        np.median([chain.statistics[f"cmtm_{which}_scale"][-1] for chain in chains], axis=0)
        for which in ("smallest", "largest")
    ]
    found = {
        "act": np.transpose([autocorrelation_times(chain) for chain in chains]),
        "jump": [squared_jump(chain) for chain in chains],
        "evaluations": mean("n_logp"),
        "scales": np.transpose(ends),
        "selected": mean("cmtm_selected").mean(axis=0),
        "accepted": mean("cmtm_accepted").mean(axis=0),
    }
    return {name: benchmark.rounded(values) for name, values in found.items()}


def measure_savings(m):
    """Return evaluations per sweep as shares of (2m−1)d, of one chain on each target."""
    shares = []
    for target in TARGETS.values():
        step = pk.CMTM(model=target.model(), n_tries=m, scaling=np.geomspace(0.5, 8, m))
        evaluations = run_chain(step, target, seed=1).statistics["n_logp"].mean()
        shares.append(evaluations / ((2 * m - 1) * target.d))
    return {"shares": benchmark.rounded(shares)}


def tables(rows):
    """Return the tables of the page."""
    variants = {row["adaptation"]: row for row in rows if "adaptation" in row}
    times, scales = [], [["paper", *map(interval, SCALES)]]
    for name, row in variants.items():
        times += [[name, *pair] for pair in REFERENCE.get(name, {}).items()]
        jumps = [f"{f(row['jump']):.2f}" for f in (np.min, np.median, np.max)]
        cells = map(benchmark.with_error, [*row["act"], row["jump"]])
        times.append([name, "ours", *cells, ", ".join(jumps)])
        if name != "none":
            scales.append([f"{name}, medians", *map(interval, row["scales"])])
    third = SELECTED | {"ours": variants["none"]["selected"][2][9:13]}
    third = [[name, *(f"{value:.2f}" for value in own)] for name, own in third.items()]
    savings = [
        [row["tries"], *(f"{share:.2f}" for share in row["shares"])]
        for row in rows
        if "tries" in row
    ]
    coordinates = ["x₁", "x₂", "x₃", "x₄"]
    heads = {
        "adaptation": [
            "adaptation",
            "",
            "ACT of x₁",
            *coordinates[1:],
            "squared jump",
            "of the chains",
        ],
        "scales": ["scales at the end", *coordinates],
        "frequencies of x₃": ["scale", "2⁻¹", "2⁰", "2¹", "2²"],
        "early rejection": ["tries", *TARGETS],
    }
    bodies = (times, scales, third, savings)
    return {
        benchmark.paper("cmtm"): dict(
            zip(heads, map(benchmark.table, heads.values(), bodies), strict=True)
        )
    }


def interval(ends):
    """Write least and largest."""
    return " … ".join(f"{end:.3g}" for end in ends)


def plan(options):
    """Yield what is to be run."""
    for variant in VARIANTS:
        yield {"adaptation": variant}, partial(measure, variant, options.seeds)
    for m in (3, 5, 10, 20):
        yield {"tries": m}, partial(measure_savings, m)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=20)
