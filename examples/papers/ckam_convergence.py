"""Figures 3, 4, 6, 7 and 9 of the cyclical KAM paper: convergence of all samplers.

    python ckam_convergence.py [--full] [--output FILE]

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". Four chains of each sampler, some two
minutes, which writes the table of cyclical_kam.md; `--full`, 40 chains and a quarter of an hour.
Symmetric Kullback-Leibler divergence of the draws so far, against evaluations, which include
tuning; the table has seconds, too. The paper has pictures only, against seconds only, of one chain
each. What stands beside our figures was measured with an independent prototype before this package
was written.

All chains start where the paper's do, and all states are kept. AM, RBAM, GAM and KAM are tuned for
20 % of the evaluations and then stop; "never stops" is the paper's way and has its learning rates.
Seconds are those of a further chain that returns one state in a hundred: they are the sampler's
own, not those of a PyMC step for each state, which takes some 40 µs.
"""

import argparse
import logging
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from ckam_targets import (
    COLOURS,
    EVALUATIONS,
    EXACT,
    PUBLISHED,
    SAMPLERS,
    TARGETS,
    run_chain,
)
from kam_pictures import save
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import benchmark

FILE = Path(__file__).with_suffix(".json")
OUTPUT = Path(__file__).resolve().parents[2] / "docs" / "images" / "ckam_kl.png"
SHARES = np.geomspace(0.01, 1, 40)
"""Of the evaluations, at which to look."""
LEAST_DRAWS = 10
STYLES = {
    "AM": {"lw": 3, "alpha": 0.5, "zorder": 1},
    "RBAM": {"ls": (0, (1, 2)), "zorder": 4},
    "GAM": {"lw": 2, "ls": (0, (4, 4)), "zorder": 3},
}
"""Of lines that are upon each other: on A.1 those of AM, RBAM, GAM and KAM."""

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


def measure(name, sampler, n_chains):
    """Return symmetric KL when SHARES of the evaluations were made, (chains, shares)."""
    target, kind, evaluations = TARGETS[name], SAMPLERS[name][sampler], EVALUATIONS[name]
    step = kind.kind(model=target.model(), steps_per_draw=1, **kind.options)
    tune = int(kind.tuned * evaluations)
    dt = pk.sample(
        evaluations - tune,
        tune=tune,
        chains=n_chains,
        step=step,
        model=step.model,
        initvals={"x": np.array(target.start, float)},
        pool_tuning=False,
        random_seed=1,
        discard_tuned_samples=False,
        compute_convergence_checks=False,
        quiet=True,
    )
    used = dt["sample_stats"]["n_logp"].values.cumsum(axis=1)
    if tune:
        used += dt["warmup_sample_stats"]["n_logp"].values.sum(axis=1)[:, None]
    ends = [np.searchsorted(own, SHARES * evaluations) for own in used]
    return np.array(
        [
            [target.symmetric_kl(x[:n]) if n >= LEAST_DRAWS else np.nan for n in own]
            for x, own in zip(dt["posterior"]["x"].values, ends, strict=True)
        ]
    )


def measure_seconds(name, sampler):
    """Return the seconds that all evaluations take."""
    target, kind = TARGETS[name], SAMPLERS[name][sampler]
    return run_chain(target, kind, EVALUATIONS[name], 0, every=100).seconds[-1]


def follow(name, n_chains, rows):
    """Print a target's table, add its rows, and return each sampler's curves over chains."""
    print(f"\n{name}, {EVALUATIONS[name]:,} evaluations")
    print(f"{'sampler':<19}{'symmetric KL':>16}{'median':>9}{'worst':>9}{'s':>7}   prototype")
    curves = {}
    for sampler in SAMPLERS[name]:
        seconds = measure_seconds(name, sampler)
        kl = measure(name, sampler, n_chains)
        end = kl[:, -1]
        error = benchmark.with_error(end, 4)
        print(
            f"{sampler:<19}{error:>16}{np.median(end):>9.4f}{end.max():>9.4f}"
            f"{seconds:>7.2f}   {PROTOTYPE[name].get(sampler, '')}",
            flush=True,
        )
        curves[sampler] = kl
        ends = {"kl": end.round(5).tolist(), "seconds": round(float(seconds), 3)}
        rows.append({"target": name, "sampler": sampler} | ends | benchmark.when_and_where())
    return curves


def tables(rows):
    """Return the table of the page: symmetric KL with two digits, or three from 1 on."""
    by_place = {(row["target"], row["sampler"]): row for row in rows}
    titles = [f"{target}: KL | seconds" for target in SAMPLERS]
    lines = [f"| sampler | {' | '.join(titles)} |", "|---" * 7 + "|"]
    for sampler in SAMPLERS["A.3"]:
        cells = [sampler]
        for target in SAMPLERS:
            row, kl, seconds = by_place.get((target, sampler)), "", ""
            if row:
                digits = max(2, 1 - int(np.floor(np.log10(np.mean(row["kl"])))))
                kl, seconds = benchmark.with_error(row["kl"], digits), f"{row['seconds']:.1f}"
            cells += [kl, seconds]
        lines.append(f"| {' | '.join(cells)} |")
    return {benchmark.paper("cyclical_kam"): {"convergence": lines}}


def draw(path, curves):
    """Draw the mean curves of each target, in bands from the best chain to the worst."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained")
    for axis, (name, ours) in zip(axes, curves.items(), strict=True):
        for sampler, colour in COLOURS.items():
            if sampler in ours:
                style = {"color": colour, "lw": 1.5, "label": sampler} | STYLES.get(sampler, {})
                kl, x = ours[sampler], SHARES * EVALUATIONS[name]
                axis.plot(x, kl.mean(axis=0), **style)
                ends = kl.min(axis=0), kl.max(axis=0)
                axis.fill_between(x, *ends, color=colour, alpha=0.12, lw=0)
        axis.set(title=name, xlabel="evaluations", xscale="log", yscale="log")
        axis.yaxis.set(
            major_locator=LogLocator(subs=(1, 3)),
            major_formatter=StrMethodFormatter("{x:g}"),
            minor_formatter=NullFormatter(),
        )
    axes[0].set(ylabel="symmetric KL")
    # Only A.3 has the other walk, and so all labels.
    figure.legend(*axes[2].get_legend_handles_labels(), loc="outside upper center", ncols=5)
    save(figure, path.parent, path.name)


def main():
    """Run the chains, print where they end, and draw how they got there."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 4")
    parser.add_argument("--output", default=OUTPUT, help="docs/images/ckam_kl.png by default")
    options = parser.parse_args()
    n_chains = 40 if options.full else 4

    print(f"{n_chains} chains. Symmetric KL: mean over chains (standard error), median, worst.")
    logging.getLogger("pymc_kameleon").setLevel(logging.ERROR)  # that chains are bad is the point
    rows = []
    draw(Path(options.output), {name: follow(name, n_chains, rows) for name in TARGETS})
    if not options.full:
        benchmark.save(FILE, rows)
        benchmark.write(tables(rows))


if __name__ == "__main__":
    main()
