"""Pictures of adaptation on Neal's normal: traces, and the learned diagonals of L.

    python gad_pictures.py [--output DIRECTORY]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019, figures 2
and 3. The target's standard deviations are 0.01, 0.02 … 1, so the diagonal of a good L rises on a
straight line. One chain of each sampler, by the paper's protocol: 20 000 iterations of adaptation,
20 000 that are kept, from N(0, I). A minute.
"""

import matplotlib.pyplot as plt
import numpy as np
from common import pictures
from gad_tables import SAMPLERS
from gad_targets import NEAL, TUNE, learned_diagonal, run_chain

SHOWN = {
    "AM": "AM",
    "gadRWM": "gadRWM",
    "gadMALAe": "gadMALAe",
    "gadMALAf": "gadMALAf",
    "default": "GadMALA, default",
}
"""Samplers, and what they are called."""

TRUTH = np.arange(1, 101) / 100


def run():
    """Run a chain of each sampler; return chains and diagonals."""
    chains, diagonals = {}, {}
    for name in SHOWN:
        sampler = SAMPLERS[name]
        step = sampler.kind(model=NEAL.model(), **sampler.options)
        chains[name] = run_chain(step, NEAL.d, seed=1)
        diagonals[name] = learned_diagonal(step)
    return chains, diagonals


def draw_traces(directory, chains):
    """Draw the log-density during adaptation, and the last coordinate all along."""
    figure, axes = plt.subplots(
        2, len(SHOWN), figsize=(11, 4.4), layout="constrained", sharey="row"
    )
    exact = -np.log(TRUTH).sum() - NEAL.d / 2 * (1 + np.log(2 * np.pi))
    spread = np.sqrt(NEAL.d / 2)
    for (above, below), (name, chain) in zip(axes.T, chains.items(), strict=True):
        above.plot(np.arange(1, TUNE + 1), chain.logp[:TUNE], lw=0.5, color=pictures.BLUE)
        above.axhspan(exact - 2 * spread, exact + 2 * spread, color="0.8", zorder=0)
        above.set(title=SHOWN[name], xscale="log", xlabel="iteration", ylim=(-600, 80))
        below.plot(chain.last[::10], lw=0.4, color=pictures.BLUE)
        below.axvline(TUNE / 10, color=pictures.RED, ls=":", lw=1)
        below.set(xlabel="iteration", ylim=(-4.2, 4.2))
        below.set_xticks([0, 2000, 4000], ["0", "20 000", "40 000"])
    axes[0, 0].set(ylabel="log-density, adaptation")
    axes[1, 0].set(ylabel="$x_{100}$")
    pictures.save(figure, "gad_traces.png", directory)


def draw_diagonals(directory, diagonals):
    """Draw the learned diagonals over the straight lines that they should be, on one scale."""
    size = {"figsize": (11, 2.8), "layout": "constrained"}
    figure, axes = plt.subplots(1, len(SHOWN), sharex=True, sharey=True, **size)
    for axis, (name, diagonal) in zip(axes, diagonals.items(), strict=True):
        slope = diagonal @ TRUTH / (TRUTH @ TRUTH)
        axis.axhline(1, color="0.6", lw=1)
        axis.plot(TRUTH, diagonal / (slope * TRUTH), ".", color=pictures.BLUE, ms=5)
        axis.set(title=f"{SHOWN[name]}\n$c$ = {slope:.2f}", xlabel="$σ_i$", xlim=(0, 1.03))
        axis.set(yscale="log", yticks=[0.5, 1, 2], yticklabels=["0.5", "1", "2"], ylim=(0.4, 4))
        axis.minorticks_off()
    axes[0].set(ylabel="$L_{ii} / (c\\, σ_i)$")
    pictures.save(figure, "gad_diagonals.png", directory)


def main():
    """Run the chains, and draw the pictures."""
    directory = pictures.folder(__doc__)
    chains, diagonals = run()
    draw_traces(directory, chains)
    draw_diagonals(directory, diagonals)


if __name__ == "__main__":
    main()
