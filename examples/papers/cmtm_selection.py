"""Which tries CMTM selects, by where it is, and the role of α.

    python cmtm_selection.py [--full] [--plot-dir DIRECTORY]

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019. A mixture in two dimensions, of which x₂ is wide where x₁ < 10 and narrow elsewhere; five
tries with scales 1, 2, 4, 8, 16 that stay as they are. Three minutes: 8 chains of 20 000 sweeps;
`--full`, 40 chains.

1. How often each try is selected, and how often it is accepted if selected, beside the paper's
   figures. A sweep moves x₁ first. The paper does not say whether the region is that of x₁ before
   the sweep or at the move; for x₂ this makes a difference, and the table has both.
2. Acceptance and jumps of a sweep over α, of which the paper has a picture only and concludes 2.9;
   and autocorrelation times, which it leaves out.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from cmtm_targets import SMALL, autocorrelation_times, run_chain, squared_jump, with_error
from kam_pictures import save

import pymc_kameleon as pk

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SCALES = np.array([1, 2, 4, 8, 16])
BURN_IN, SWEEPS = 1000, 20_000
BORDER = 10
REGIONS = {"x₁ < 10": "tab:blue", "x₁ ≥ 10": "tab:red"}
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

ALPHAS = [0, 0.5, 1, 1.5, 2, 2.5, 2.9, 3.5, 4, 5, 7, 10]
PUBLISHED_ALPHA = 2.9


def run_chains(n_chains, alpha=PUBLISHED_ALPHA):
    """Run chains with one α."""
    step = pk.CMTM(model=SMALL.model(), scales=SCALES, adapt_every=None, alpha=alpha)
    return [run_chain(step, SMALL, seed, BURN_IN, SWEEPS) for seed in range(n_chains)]


def frequencies(chain, x1):
    """Return how often tries are selected, and accepted if selected, (2, coordinates, regions, m).

    Parameters
    ----------
    chain : Chain
    x1 : (n,) float64
        The value of x₁ that gives each sweep its region.
    """
    regions = [x1 < BORDER, x1 >= BORDER]
    selected, accepted = (
        np.array([chain.statistics[f"cmtm_{name}"][region].mean(axis=0) for region in regions])
        for name in ("selected", "accepted")
    )
    return np.stack([selected, accepted / selected]).swapaxes(1, 2)


def print_frequencies(before, moving):
    """Print the tables: means over chains, with x₁ before the sweep and at the move, and errors."""
    head = "".join(f"{scale:>6}" for scale in SCALES)
    titles = ["selected", "accepted, if selected"]
    for title, paper, *ours in zip(titles, PAPER.values(), before, moving, strict=True):
        print(f"\n{title:<34}{head}")
        for k in range(2):
            for r, region in enumerate(REGIONS):
                rows = {"paper": (paper[k, r], None), "region before the sweep": ours[0][k, r]}
                if k == 1:
                    rows["region at the move"] = ours[1][k, r]
                for name, (values, error) in rows.items():
                    cells = "".join(f"{value:>6.2f}" for value in values)
                    end = "" if error is None else f"   (≤ {error.max():.3f})"
                    print(f"x{'₁₂'[k]}, {region}, {name:<23}{cells}{end}")


def summarise(chains, shift):
    """Return mean and standard error over chains of `frequencies`, (2, coordinates, regions, 2, m).

    `shift` is 0 to take the region from before a sweep, 1 to take it from after the move of x₁.
    """
    n = len(chains[0].x) - 1
    all_ = np.array([frequencies(chain, chain.x[shift : shift + n, 0]) for chain in chains])
    return np.stack([all_.mean(axis=0), all_.std(axis=0, ddof=1) / np.sqrt(len(chains))], axis=3)


def draw_frequencies(directory, selected):
    """Draw the selection frequencies, by the region at the move, and the paper's as lines."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained", sharey=True)
    place, width = np.arange(len(SCALES)), 0.4
    for k, axis in enumerate(axes):
        for r, (region, colour) in enumerate(REGIONS.items()):
            at = place + (r - 0.5) * width
            axis.bar(at, selected[k, r, 0], width, color=colour, alpha=0.6, label=region)
            paper = PAPER["selected"][k, r]
            label = "paper" if r == 1 else None
            axis.hlines(paper, at - width / 2, at + width / 2, color="black", label=label)
        axis.set(xlabel="scale σ of the try", title=f"moves of $x_{k + 1}$")
        axis.set_xticks(place, SCALES)
    axes[0].set(ylabel="selected")
    axes[0].legend(frameon=False)
    save(figure, directory, "cmtm_selection.png")


MEASURES = {
    "acceptance": (lambda chain: chain.statistics["accept_share"].mean(), 3),
    "|jump|": (lambda chain: np.abs(np.diff(chain.x, axis=0)).mean(), 3),
    "squared jump": (squared_jump, 2),
    "ACT of x₁": (lambda chain: autocorrelation_times(chain)[0], 2),
    "ACT of x₂": (lambda chain: autocorrelation_times(chain)[1], 2),
}
"""Of a chain, with their digits. Jumps are means over sweeps and coordinates."""


def measure_alphas(n_chains):
    """Print a table over α, and return its measures, (α, measure, chain)."""
    print(f"\n{'α':<5}" + "".join(f"{name:>16}" for name in MEASURES))
    table = []
    for alpha in ALPHAS:
        chains = run_chains(n_chains, alpha)
        rows = [[measure(chain) for chain in chains] for measure, _ in MEASURES.values()]
        cells = map(with_error, rows, [digits for _, digits in MEASURES.values()])
        print(f"{alpha:<5g}" + "".join(f"{cell:>16}" for cell in cells), flush=True)
        table.append(rows)
    return np.array(table)


def draw_alphas(directory, table):
    """Draw acceptance, squared jump and autocorrelation times over α."""
    mean, error = table.mean(axis=2), table.std(axis=2, ddof=1) / np.sqrt(table.shape[2])
    figure, axes = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained")
    names = list(MEASURES)
    shown = [["acceptance"], ["squared jump"], ["ACT of x₁", "ACT of x₂"]]
    for axis, group in zip(axes, shown, strict=True):
        for name, marker in zip(group, "os", strict=False):
            i = names.index(name)
            axis.errorbar(ALPHAS, mean[:, i], error[:, i], marker=marker, ms=4, label=name)
        axis.axvline(PUBLISHED_ALPHA, color="0.6", ls=":")
        axis.set(xlabel="α", ylim=(0, None), title=group[0] if len(group) == 1 else "")
    axes[-1].set(title="autocorrelation time")
    axes[-1].legend(frameon=False)
    save(figure, directory, "cmtm_alpha.png")


def main():
    """Print the tables, and draw the pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 8")
    parser.add_argument("--plot-dir", default=IMAGES, help="docs/images by default")
    options = parser.parse_args()
    n_chains = 40 if options.full else 8

    print(f"{n_chains} chains of {SWEEPS:,} sweeps; means over chains (standard errors).")
    chains = run_chains(n_chains)
    before, moving = summarise(chains, 0), summarise(chains, 1)
    print_frequencies(before, moving)
    draw_frequencies(options.plot_dir, np.stack([before[0][0], moving[0][1]]))
    draw_alphas(options.plot_dir, measure_alphas(n_chains))


if __name__ == "__main__":
    main()
