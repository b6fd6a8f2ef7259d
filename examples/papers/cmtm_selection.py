"""Which tries CMTM selects, by where it is, and the role of α.

    python cmtm_selection.py [--seeds 8] [--picture]

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019. A mixture in two dimensions, of which x₂ is wide where x₁ < 10 and narrow elsewhere; five
tries with scales 1, 2, 4, 8, 16 that stay as they are. Four minutes: 8 chains of 20 000 sweeps.

1. How often each try is selected, and how often it is accepted if selected, beside the paper's
   figures. A sweep moves x₁ first. The paper does not say whether the region is that of x₁ before
   the sweep or at the move; for x₂ this makes a difference. The table has the latter.
2. Acceptance and jumps of a sweep over α, of which the paper has a picture only and concludes 2.9;
   and autocorrelation times, which it leaves out.
"""

from functools import cache, partial
from itertools import product
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from cmtm_targets import SMALL, autocorrelation_times, run_chain, squared_jump
from common import benchmark, pictures

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SCALES = np.array([1, 2, 4, 8, 16])
BURN_IN, SWEEPS = 1000, 20_000
BORDER = 10
REGIONS = {"x₁ < 10": "#0072B2", "x₁ ≥ 10": "#D55E00"}
"""And their colours."""

PAPER = {
    "selected": np.array(
        [
            [[0.05, 0.15, 0.28, 0.31, 0.22], [0.04, 0.12, 0.25, 0.34, 0.25]],
            [[0.06, 0.19, 0.33, 0.26, 0.16], [0.37, 0.29, 0.19, 0.11, 0.05]],
        ]
    ),
    "accepted": np.array(
        [
            [[0.39, 0.50, 0.51, 0.53, 0.50], [0.40, 0.44, 0.44, 0.45, 0.38]],
            [[0.46, 0.52, 0.50, 0.47, 0.44], [0.44, 0.41, 0.30, 0.28, 0.28]],
        ]
    ),
}
"""By coordinate, region and try."""

ALPHAS = [0, 1, 1.5, 2, 2.5, 2.9, 3.5, 4, 5, 10]
PUBLISHED_ALPHA = 2.9


@cache
def run_chains(n_chains, alpha=PUBLISHED_ALPHA):
    """Run chains with one α."""
    step = pk.CMTM(model=SMALL.model(), scaling=SCALES, adapt_every=None, alpha=alpha)
    return [run_chain(step, SMALL, seed, BURN_IN, SWEEPS) for seed in range(n_chains)]


def frequencies(n_chains):
    """Return how often tries are selected, and accepted if selected: (coordinates, regions, m).

    A sweep's region is by x₁ after its own move. Beside these stand the largest standard errors,
    and how often the first try is selected for x₂ if regions are by x₁ before the sweep.
    """
    means, errors = shares(n_chains)
    first = shares(n_chains, shift=0)[0, 0, 1, :, 0]
    others = {"errors": errors.max(axis=(1, 2, 3)), "first try before": first}
    found = dict(zip(PAPER, means, strict=True)) | others
    return {name: benchmark.rounded(own) for name, own in found.items()}


def shares(n_chains, shift=1):
    """Return means over chains and standard errors, (2, 2, coordinates, regions, m)."""
    found = []
    for x, statistics in run_chains(n_chains):
        x1 = x[shift : shift + len(x) - 1, 0]
        regions = [x1 < BORDER, x1 >= BORDER]
        selected, accepted = (
            np.array([statistics[f"cmtm_{name}"][region].mean(axis=0) for region in regions])
            for name in ("selected", "accepted")
        )
        found.append(np.stack([selected, accepted / selected]).swapaxes(1, 2))
    return np.stack([np.mean(found, axis=0), np.std(found, axis=0, ddof=1) / len(found) ** 0.5])


MEASURES = {
    "acceptance": lambda chain: chain.statistics["accept_share"].mean(),
    "squared jump": squared_jump,
    "ACT of x₁": lambda chain: autocorrelation_times(chain)[0],
    "ACT of x₂": lambda chain: autocorrelation_times(chain)[1],
}
"""Of a chain. Jumps are means over sweeps and coordinates."""


def measure(alpha, n_chains):
    """Return a row of the table over α."""
    chains = run_chains(n_chains, alpha)
    return {name: benchmark.rounded([f(one) for one in chains]) for name, f in MEASURES.items()}


def plan(options):
    """Yield what is to be run."""
    for alpha in ALPHAS:
        yield {"α": alpha}, partial(measure, alpha, options.seeds)
    yield {"scales": SCALES.tolist()}, partial(frequencies, options.seeds)


def tables(rows):
    """Return the tables of the page: selected and accepted, beside the paper's, and over α."""
    found = {}
    for name, paper in PAPER.items():
        [ours] = [row[name] for row in rows if name in row]
        lines = []
        for k, (r, region) in product(range(2), enumerate(REGIONS)):
            move = f"x{'₁₂'[k]}, {region}"
            lines.append([move, "paper", *(f"{value:.2f}" for value in paper[k][r])])
            lines.append(["", "ours", *(f"{value:.2f}" for value in ours[k][r])])
        found[name] = benchmark.table(["move", "", *map(str, SCALES)], lines)
    lines = [
        [row["α"], *(benchmark.with_error(row[name]) for name in MEASURES)]
        for row in rows
        if "α" in row
    ]
    return {benchmark.paper("cmtm"): found | {"alpha": benchmark.table(["α", *MEASURES], lines)}}


def draw(rows):
    """Draw both pictures."""
    [frequent] = [row for row in rows if "selected" in row]
    draw_frequencies(frequent["selected"])
    draw_alphas([row for row in rows if "α" in row])


def draw_frequencies(selected):
    """Draw the selection frequencies, by the region at the move, and the paper's as lines."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    place, width = np.arange(len(SCALES)), 0.4
    for k, axis in enumerate(axes):
        for r, (region, colour) in enumerate(REGIONS.items()):
            at = place + (r - 0.5) * width
            axis.bar(at, selected[k][r], width, color=colour, alpha=0.6, label=region)
            paper = PAPER["selected"][k, r]
            label = "paper" if r == 1 else None
            axis.hlines(paper, at - width / 2, at + width / 2, color="black", label=label)
        axis.set(xlabel="scale σ of the try", title=f"moves of $x_{k + 1}$")
        axis.set_xticks(place, SCALES)
    axes[0].set(ylabel="selected")
    axes[0].legend(frameon=False)
    pictures.save(figure, "cmtm_selection.png")


def draw_alphas(rows):
    """Draw acceptance, squared jump and autocorrelation times over α."""
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    shown = [["acceptance"], ["squared jump"], ["ACT of x₁", "ACT of x₂"]]
    for axis, group in zip(axes, shown, strict=True):
        for name, marker in zip(group, "os", strict=False):
            values = np.array([row[name] for row in rows])
            error = values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
            axis.errorbar(ALPHAS, values.mean(axis=1), error, marker=marker, ms=4, label=name)
        axis.axvline(PUBLISHED_ALPHA, color="0.6", ls=":")
        axis.set(xlabel="α", ylim=(0, None), title=group[0] if len(group) == 1 else "")
    axes[-1].set(title="autocorrelation time")
    axes[-1].legend(frameon=False)
    pictures.save(figure, "cmtm_alpha.png")


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=8, draw=draw)
