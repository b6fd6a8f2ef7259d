"""Figures 1, 2, 5, 8, 10, 12 and 14 of the cyclical KAM paper: scales, marginals and draws.

    python ckam_pictures.py [--output DIRECTORY]

A minute. Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". One chain of each sampler, from the
paper's starts; of its evaluations the first 20 % tune those that are tuned.
"""

import matplotlib.pyplot as plt
import numpy as np
from ckam_targets import (
    COLOURS,
    EVALUATIONS,
    EXACT,
    PUBLISHED,
    SAMPLERS,
    TARGETS,
    build,
    drive,
    run_chain,
)
from common import pictures

SEED = 1
CYCLES, CYCLE_LENGTH, RECORDED = 10, 1000, 600
"""Of figure 1: cycles, transitions in one, and draws of it."""
SHOWN = {"A.1": (0, 1), "A.2": (0, 1), "A.3": (1, 6)}
"""The coordinates that are drawn."""
N_DOTS = 2000


def draw_scales(directory):
    """Draw ν over ten cycles of cKAM, and over as many transitions of KAM's tuning."""
    target, n = TARGETS["A.1"], CYCLES * CYCLE_LENGTH
    figure, axis = plt.subplots(figsize=(9, 3.6), layout="constrained")

    step = build(target, SAMPLERS["A.1"]["KAM"], 1)
    nu = [statistics["scaling"] for _, statistics in drive(step, target, n, 0, SEED)]
    axis.plot(nu, color=COLOURS["KAM"], lw=0.8, label="KAM, tuning")

    step = build(target, SAMPLERS["A.1"][PUBLISHED], 1)
    draws = [statistics for _, statistics in drive(step, target, 0, CYCLES * RECORDED, SEED)]
    t = np.cumsum([statistics["n_logp"] for statistics in draws])
    nu = [statistics["scaling"] for statistics in draws]
    axis.plot(t, nu, ".", color=COLOURS[PUBLISHED], ms=1.5, label="cKAM, Sampling")
    first = slice(None, None, RECORDED)
    explored = [statistics["nu_exploration"] for statistics in draws[first]]
    axis.plot(t[first], explored, "o", color=COLOURS[PUBLISHED], label="cKAM, end of Exploration")

    axis.set(
        xlabel="transition", ylabel="ν", yscale="log", title="A.1: ten cycles of cKAM, and KAM"
    )
    figure.legend(loc="outside upper center", ncols=3)
    pictures.save(figure, "ckam_steps.png", directory)


def draw_marginals(directory, draws):
    """Draw the first coordinate's marginal, as it is (grey) and as the samplers have it."""
    shape = (len(COLOURS), len(TARGETS))
    figure, axes = plt.subplots(*shape, figsize=(9, 9), layout="constrained", sharex="col")
    for column, (name, target) in zip(axes.T, TARGETS.items(), strict=True):
        low, high, _ = target.bins
        grid = np.linspace(low, high, 400)
        column[0].set(title=name)
        column[-1].set(xlabel="$x_1$")
        for axis, (sampler, colour) in zip(column, COLOURS.items(), strict=True):
            axis.set(yticks=[], xlim=(low, high))
            if sampler not in draws[name]:
                axis.axis("off")
                continue
            axis.fill_between(grid, target.marginal(grid), color="0.85")
            x = draws[name][sampler][:, 0]
            axis.hist(x, np.linspace(low, high, 61), density=True, histtype="step", color=colour)
    for axis, sampler in zip(axes[:, 0], COLOURS, strict=True):
        axis.text(-0.04, 0.5, sampler, transform=axis.transAxes, ha="right", va="center")
    pictures.save(figure, "ckam_marginals.png", directory)


def draw_draws(directory, draws):
    """Draw the targets with CyclicalKAM's draws, and A.1 with those of all samplers."""
    figure = plt.figure(figsize=(9.5, 8.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1, height_ratios=(1, 1.35))
    for axis, name in zip(top.subplots(1, 3), TARGETS, strict=True):
        show(axis, name, draws[name][EXACT])
        i, j = SHOWN[name]
        axis.set(title=f"{name}, {EXACT}", xlabel=f"$x_{{{i + 1}}}$", ylabel=f"$x_{{{j + 1}}}$")
    for axis, (sampler, x) in zip(bottom.subplots(2, 4).flat, draws["A.1"].items(), strict=False):
        show(axis, "A.1", x)
        axis.set(title=f"A.1, {sampler}")
    pictures.save(figure, "ckam_draws.png", directory, shaded=True)


def show(axis, name, x):
    """Show the density of two coordinates, and some draws on it."""
    target = TARGETS[name]
    low, high, _ = target.bins
    grid = np.linspace(low, high, 250)
    if target.copies == 1:
        points = np.stack(np.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
        density = np.exp(target.log_density(points)).reshape(grid.size, -1)
    else:
        density = np.outer(target.marginal(grid), target.marginal(grid))
    chosen = x[:: len(x) // N_DOTS][:, SHOWN[name]]
    axis.plot(*chosen.T, ".", color=COLOURS[EXACT], ms=2, alpha=0.3, mew=0)
    levels = density.max() * np.array([0.02, 0.1, 0.4])
    axis.contour(grid, grid, density, levels, colors="black", linewidths=0.6, zorder=3)
    axis.set(xlim=(low, high), ylim=(low, high))


def main():
    """Run the chains, and draw all pictures."""
    directory = pictures.folder(__doc__)
    draws = {
        name: {
            sampler: run_chain(TARGETS[name], kind, EVALUATIONS[name], SEED, every=10).x
            for sampler, kind in SAMPLERS[name].items()
            if sampler in COLOURS
        }
        for name in TARGETS
    }
    draw_scales(directory)
    draw_marginals(directory, draws)
    draw_draws(directory, draws)


if __name__ == "__main__":
    main()
