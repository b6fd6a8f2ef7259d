"""Figures 3, 4, 6, 7 and 9 of the cyclical KAM paper: convergence of all samplers.

    python ckam_convergence.py [--full] [--output FILE]

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". Four chains of each sampler, some five
minutes on two cores; `--full`, 40 chains and three quarters of an hour. Symmetric Kullback-Leibler
divergence of the draws so far, against evaluations and seconds; both include tuning. The paper has
pictures only, against seconds only, of one chain each. What stands beside our figures was measured
with an independent prototype before this package was written.

All chains start where the paper's do, and all states are kept. AM, RBAM, GAM and KAM are tuned for
20 % of the evaluations and then stop; "never stops" is the paper's way and has its learning rates.
Seconds are those of a further chain that returns one state in a hundred: they are the sampler's
own, not those of a PyMC step for each state, which takes some 40 µs.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from ckam_targets import (
    COLOURS,
    CORES,
    EVALUATIONS,
    EXACT,
    PUBLISHED,
    SAMPLERS,
    TARGETS,
    run_chain,
    with_error,
)
from kam_pictures import save

OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "ckam_kl.png"
SHARES = np.geomspace(0.01, 1, 40)
"""Of the evaluations, at which to look."""
LEAST_DRAWS = 10

PROTOTYPE = {
    "A.1": {
        "RW": "0.027",
        "AM": "2.4-2.7",
        "RBAM": "2.4-2.7",
        "GAM": "2.4-2.7",
        "KAM": "2.4-2.7",
        "cKAM, γ₀ = 10": "0.054",
        PUBLISHED: "0.019",
        EXACT: "0.006 (0.001)",
    },
    "A.2": {
        "RW": "0.005",
        "AM": "0.004",
        "RBAM": "0.004",
        "GAM": "0.006",
        "KAM": "0.006",
        PUBLISHED: "0.017",
        EXACT: "0.007",
    },
    "A.3": {
        "RW": "1.3",
        "RW, ν = 1.6": "0.11",
        "AM, never stops": "8.0",
        "GAM": "1.3",
        PUBLISHED: "3.0",
        EXACT: "0.19-0.64",
    },
}


def measure(name, sampler, seed):
    """Return symmetric KL of one chain when it had made SHARES of its evaluations."""
    target, evaluations = TARGETS[name], EVALUATIONS[name]
    chain = run_chain(target, SAMPLERS[name][sampler], evaluations, seed)
    ends = np.searchsorted(chain.evaluations, SHARES * evaluations)
    return [target.symmetric_kl(chain.x[:n]) if n >= LEAST_DRAWS else np.nan for n in ends]


def measure_seconds(name, sampler):
    """Return the seconds that SHARES of the evaluations take."""
    chain = run_chain(TARGETS[name], SAMPLERS[name][sampler], EVALUATIONS[name], 0, every=100)
    return np.interp(SHARES * EVALUATIONS[name], chain.evaluations, chain.seconds)


def follow(name, column, pool, n_chains):
    """Print a target's table, and draw its two panels."""
    print(f"\n{name}, {EVALUATIONS[name]:,} evaluations")
    print(f"{'sampler':<19}{'symmetric KL':>16}{'median':>9}{'worst':>9}{'s':>7}   prototype")
    evaluations = SHARES * EVALUATIONS[name]
    for sampler in SAMPLERS[name]:
        seconds = measure_seconds(name, sampler)
        chains = pool.map(measure, [name] * n_chains, [sampler] * n_chains, range(n_chains))
        kl = np.array(list(chains))
        end = kl[:, -1]
        print(
            f"{sampler:<19}{with_error(end):>16}{np.median(end):>9.4f}{end.max():>9.4f}"
            f"{seconds[-1]:>7.2f}   {PROTOTYPE[name].get(sampler, '')}",
            flush=True,
        )
        if sampler in COLOURS:
            style = {"color": COLOURS[sampler], "label": sampler, "lw": 1.5}
            for axis, x in zip(column, (evaluations, seconds), strict=True):
                axis.plot(x, kl.mean(axis=0), **style)
    column[0].set(title=name, xlabel="evaluations", xscale="log", yscale="log")
    column[1].set(xlabel="seconds", xscale="log", yscale="log")


def main():
    """Run the chains, print where they end, and draw how they got there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 4")
    parser.add_argument("--output", default=OUTPUT, help="docs/images/ckam_kl.png by default")
    options = parser.parse_args()
    n_chains = 40 if options.full else 4

    figure, axes = plt.subplots(2, 3, figsize=(11, 6.6), layout="constrained", sharey="col")
    print(f"{n_chains} chains. Symmetric KL: mean over chains (standard error), median, worst.")
    with ProcessPoolExecutor(CORES) as pool:
        for name, column in zip(TARGETS, axes.T, strict=True):
            follow(name, column, pool, n_chains)
    for axis in axes[:, 0]:
        axis.set(ylabel="symmetric KL")
    # Only A.3 has the other walk, and so all labels.
    figure.legend(*axes[0, 2].get_legend_handles_labels(), loc="outside upper center", ncols=9)
    path = Path(options.output)
    save(figure, path.parent, path.name)


if __name__ == "__main__":
    main()
