"""Figures 3, 4, 6, 7 and 9 of the cyclical KAM paper: convergence of all samplers.

    python ckam_convergence.py [--seeds 4]
    python ckam_convergence.py --picture    runs four chains of each, and draws them

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". Four chains of each sampler, some two
minutes. Symmetric Kullback-Leibler divergence of the draws so far, against evaluations, which
include tuning; the table has seconds, too. The paper has pictures only, against seconds only, of
one chain each.

All chains start where the paper's do, and all states are kept. AM, RBAM, GAM and KAM are tuned for
20 % of the evaluations and then stop; "never stops" is the paper's way and has its learning rates.
Seconds are those of a further chain that returns one state in a hundred: they are the sampler's
own, not those of a PyMC step for each state, which takes some 40 µs.
"""

from functools import cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from ckam_targets import COLOURS, EVALUATIONS, SAMPLERS, TARGETS, run_chain
from common import benchmark, pictures
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

FILE = Path(__file__).with_suffix(".json")
SHARES = np.geomspace(0.01, 1, 40)
"""Of the evaluations, at which to look."""
LEAST_DRAWS = 10
STYLES = {
    "AM": {"lw": 3, "alpha": 0.5, "zorder": 1},
    "RBAM": {"ls": (0, (1, 2)), "zorder": 4},
    "GAM": {"lw": 2, "ls": (0, (4, 4)), "zorder": 3},
}
"""Of lines that are upon each other: on A.1 those of AM, RBAM, GAM and KAM."""


def plan(options):
    """Yield what is to be run."""
    for target, samplers in SAMPLERS.items():
        for sampler in samplers:
            what = {"target": target, "sampler": sampler}
            yield what, partial(measure, target, sampler, options.seeds)


def measure(target, sampler, n_chains):
    """Return symmetric KL at the end, and the seconds that all evaluations take."""
    end = follow(target, sampler, n_chains)[:, -1]
    kind = SAMPLERS[target][sampler]
    seconds = run_chain(TARGETS[target], kind, EVALUATIONS[target], 0, every=100).seconds
    return {"kl": end.round(5).tolist(), "seconds": round(float(seconds), 3)}


@cache
def follow(name, sampler, n_chains):
    """Return symmetric KL when SHARES of the evaluations were made, (chains, shares)."""
    target, kind, evaluations = TARGETS[name], SAMPLERS[name][sampler], EVALUATIONS[name]
    alone = {"pool_tuning": False} if kind.kind.learns != "alone" else {}
    step = kind.kind(model=target.model(), steps_per_draw=1, **alone, **kind.options)
    tune = int(kind.tuned * evaluations)
    dt = benchmark.sample(
        step,
        evaluations - tune,
        tune=tune,
        chains=n_chains,
        cores=None,
        initvals={"x": np.array(target.start, float)},
        random_seed=1,
        discard_tuned_samples=False,
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


def tables(rows):
    """Return the table of the page: symmetric KL with two digits, or three from 1 on."""
    found, lines = benchmark.grouped(rows, "sampler", "target"), []
    for sampler in SAMPLERS["A.3"]:
        lines.append([sampler])
        for target in SAMPLERS:
            kl = seconds = None
            for row in found[sampler, target]:
                digits = max(2, 1 - int(np.floor(np.log10(np.mean(row["kl"])))))
                kl, seconds = benchmark.with_error(row["kl"], digits), f"{row['seconds']:.1f}"
            lines[-1] += [kl, seconds]
    titles = ["sampler", *(f"{target}: KL | seconds" for target in SAMPLERS)]
    table = benchmark.table(titles, lines)
    return {benchmark.paper("cyclical_kam"): {"convergence": table}}


def draw(rows):
    """Draw the mean curves of each target, in bands from the best chain to the worst."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 4.2), layout="constrained")
    for axis, name in zip(axes, TARGETS, strict=True):
        for sampler, colour in COLOURS.items():
            if sampler in SAMPLERS[name]:
                style = {"color": colour, "lw": 1.5, "label": sampler} | STYLES.get(sampler, {})
                kl, x = follow(name, sampler, 4), SHARES * EVALUATIONS[name]
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
    pictures.save(figure, "ckam_kl.png")


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=4, draw=draw)
