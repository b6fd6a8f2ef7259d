"""CMTM against CMH, fixed and adaptive: the banana, and the mixture in twenty dimensions.

    python cmtm_comparison.py [--picture]    some three minutes

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019; of these experiments the slides have pictures only. 10 000 sweeps, half of them discarded.

CMTM has five tries, with scales 0.1, 0.2, 0.4, 0.8, 1.6 at first, as in the paper on the banana;
for the mixture it does not say. CMH with fixed scales, which it does not give, has σ = 1
everywhere. `CMTM, wide` has fixed scales from 0.1 to 16. `CMTM, default` is the package's, which
chooses its first scales, and makes single tries where these cost less.
Adaptation ends with the half that is discarded. Effective sample sizes (ESS) are of a chain, but
ArviZ has them from all together (for means): a chain that does not leave a mode of the mixture
would look good by itself. Errors are by jackknife over chains. Per CPU second and per 1000
evaluations is of the draws that are kept; a sweep's seconds are those of compiled code. If
evaluations take long, ESS per evaluation is what counts.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from cmtm_targets import BANANA, LARGE, SWEEPS, run_chain, seconds_per_sweep
from common import benchmark, pictures

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
CHAINS, DRAWS = 40, SWEEPS // 2
FIRST = [0.1, 0.2, 0.4, 0.8, 1.6]
WIDE = np.geomspace(0.1, 16, 5)

SAMPLERS = {
    "CMH, σ = 1": (pk.CMH, {"scaling": 1.0}),
    "CMH, tuned": (pk.CMH, {}),
    "CMTM, fixed": (pk.CMTM, {"scaling": FIRST, "adapt_every": None}),
    "CMTM, wide": (pk.CMTM, {"scaling": WIDE, "adapt_every": None}),
    "CMTM, adaptive": (pk.CMTM, {"scaling": FIRST}),
    "CMTM, default": (pk.CMTM, {}),
}
COLOURS = ["0.5", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"]
TARGETS = {"banana": BANANA, "mixture": LARGE}
SHOWN = {
    "banana": {
        "x₁": lambda ess: ess[0],
        "x₂": lambda ess: ess[1],
        "rest, median": lambda ess: np.median(ess[2:]),
    },
    "mixture": {
        "least": np.min,
        "median": np.median,
        "largest": np.max,
        "x₆": lambda ess: ess[5],
    },
}
"""Which effective sample sizes of (d,) are in the tables."""
COSTS = {"seconds": "µs per sweep", "evaluations": "evaluations per sweep"}
TRUTH = {
    "banana": {"banana, E x₁² = 100": lambda x: np.mean(x[:, 0] ** 2)},
    "mixture": {
        "mixture, first mode 0.5": lambda x: LARGE.first_mode(x).mean(),
        f"passages between modes in {DRAWS} draws": lambda x: np.sum(
            np.diff(LARGE.first_mode(x) > 0.5)
        ),
    },
}
"""Estimates of what is known: an ESS says nothing of where a chain was not."""


def measure(target, sampler):
    """Run the chains of a sampler, and return what they gave.

    `ess` has the effective draws of a chain for each coordinate, `errors` the standard errors of
    those that are in the table; `seconds` and `evaluations` are of a sweep.
    """
    name, target, (kind, options) = target, TARGETS[target], SAMPLERS[sampler]
    step = kind(model=target.model(), **options)
    chains = [run_chain(step, target, seed) for seed in range(CHAINS)]
    x = np.array([chain.x[1:] for chain in chains])
    without = [effective_sizes(np.delete(x, i, axis=0)) for i in range(CHAINS)]
    errors = [jackknife([shown(ess) for ess in without]) for shown in SHOWN[name].values()]
    return {
        "ess": benchmark.rounded(effective_sizes(x)),
        "errors": benchmark.rounded(errors),
        "seconds": benchmark.rounded(seconds_per_sweep(kind, target, **options)),
        "evaluations": benchmark.rounded(
            np.mean([chain.statistics["n_logp"].mean() for chain in chains])
        ),
        "truth": benchmark.rounded([[float(f(own)) for own in x] for f in TRUTH[name].values()]),
    }


def effective_sizes(x):
    """Effective draws of one chain, (d,), for the means of chains x (chains, n, d)."""
    return benchmark.ess_of_means(x) / len(x)


def jackknife(values):
    """Return the standard error, from the values without one chain each."""
    return np.sqrt((len(values) - 1) * np.var(values))


def tables(rows):
    """Return the tables of the page: effective draws, what they cost, and what is known."""
    found, truth = {}, {sampler: [sampler] for sampler in SAMPLERS}
    for name, columns in SHOWN.items():
        draws, per_second, per_evaluation = [], [], []
        for row in (row for row in rows if row["target"] == name):
            sampler, seconds, evaluations = (row[key] for key in ("sampler", *COSTS))
            ess = [shown(row["ess"]) for shown in columns.values()]
            cells = [benchmark.estimate(*pair, 0) for pair in zip(ess, row["errors"], strict=True)]
            draws.append([sampler, *cells, f"{1e6 * seconds:.1f}", f"{evaluations:.0f}"])
            cells = [benchmark.spaced(round(n / DRAWS / seconds)) for n in ess]
            per_second.append([sampler, *cells])
            cells = [f"{1000 * n / DRAWS / evaluations:.2g}" for n in ess]
            per_evaluation.append([sampler, *cells])
            truth[sampler] += map(benchmark.with_error, row["truth"])
        head = ["sampler", *columns]
        found |= {
            f"{name}: draws": benchmark.table([*head, *COSTS.values()], draws),
            f"{name}: seconds": benchmark.table(head, per_second),
            f"{name}: evaluations": benchmark.table(head, per_evaluation),
        }
    head = ["", *(title for estimates in TRUTH.values() for title in estimates)]
    return {benchmark.paper("cmtm"): found | {"known": benchmark.table(head, truth.values())}}


def draw(rows):
    """Draw the ESS of all coordinates of the mixture, of the draws and per evaluation."""
    rows = [row for row in rows if row["target"] == "mixture"]
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained", sharey=True)
    for i, row in enumerate(rows):
        ess = np.array(row["ess"])
        per_evaluation = 1000 * ess / (DRAWS * row["evaluations"])
        for axis, values in zip(axes, (ess, per_evaluation), strict=True):
            axis.plot(values, np.full(LARGE.d, i), "o", color=COLOURS[i], ms=6, alpha=0.4)
            axis.plot(np.median(values), i, "|", color="black", ms=16, mew=2)
    for axis, title in zip(
        axes, (f"ESS of {DRAWS} draws", "ESS per 1000 evaluations"), strict=True
    ):
        axis.set(xscale="log", xlabel=title)
        axis.grid(axis="x", alpha=0.3)
    axes[0].set_yticks(range(len(rows)), [row["sampler"] for row in rows])
    axes[0].set(ylim=(len(rows) - 0.5, -0.5))
    pictures.save(figure, "cmtm_mixture20.png")


def plan(options):
    """Return what is to be run."""
    return benchmark.each(measure, target=TARGETS, sampler=SAMPLERS)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, draw=draw)
