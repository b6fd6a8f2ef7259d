"""What SurrogateMetropolis has learned of a banana after 100 and after 300 evaluations.

    python examples/surrogate_banana.py [--output FILE]

Draws the log-density beside the surrogates, with where these propose to go from one point.
"""

import argparse
import logging
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
from PIL import Image

import pymc_kameleon as pk
from pymc_kameleon.approximation.linalg import whitened
from pymc_kameleon.samplers.surrogate import fit, inner_chain, learning

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "surrogate_banana.png"
TUNE = (55, 273)
"""Draws of tuning; with the way to the posterior that makes about 100 and 300 evaluations."""
N_PROPOSALS = 150
BEND, VARIANCE = 0.03, 100.0
START = np.array([-8.0, BEND * (8.0**2 - VARIANCE)])
"""Where the proposals that are shown come from."""
BOX = (-27, 27, -9, 19)
DROPS = (-8.0, -4.6, -2.3, -0.7, 0.0)
"""Contours of the log-density below its maximum: 50, 90 and 99 % lie within the last three."""
COLOURS = 128
SEED = 2


def log_density(x1, x2):
    """Log-density of the banana up to a constant, of arrays or of variables."""
    return -(x1**2 / VARIANCE + (x2 - BEND * (x1**2 - VARIANCE)) ** 2) / 2


def tuned(n):
    """Return a step tuned for n draws, the points that it evaluated, and how many these were."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("banana", log_density(x[0], x[1]))
    step = pk.SurrogateMetropolis(model=model)
    step.setup_chain(np.random.default_rng(SEED), n, 0)
    point, n_evaluations = {"x": np.zeros(2)}, 0
    for _ in range(n):
        point, (stats, *_) = step.step(point)
        n_evaluations += stats["n_logp"]
    step.stop_tuning()
    points, _, _ = learning.points_of([step])
    return step, points, n_evaluations


def main():
    """Draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--output", default=OUTPUT, help="docs/images/surrogate_banana.png by default"
    )
    output = Path(parser.parse_args().output)
    logging.getLogger("pymc_kameleon").setLevel(logging.ERROR)

    x1, x2 = np.meshgrid(np.linspace(*BOX[:2], 200), np.linspace(*BOX[2:], 200))
    options = {"layout": "constrained", "sharex": True, "sharey": True}
    figure, axes = plt.subplots(1, 3, figsize=(10, 3.4), **options)
    show(axes[0], x1, x2, log_density(x1, x2))
    axes[0].set_title("log-density")
    for axis, n in zip(axes[1:], TUNE, strict=True):
        step, points, n_evaluations = tuned(n)
        parameters = step.parameters
        u = whitened(np.column_stack([x1.ravel(), x2.ravel()]), parameters.mean, parameters.factor)
        show(axis, x1, x2, fit.values(parameters.surrogate, u).reshape(x1.shape))
        axis.plot(*points.T, ".", color="black", ms=2.5, label="evaluated")
        axis.plot(*proposals(parameters).T, ".", color="#D55E00", ms=4, label="proposed")
        axis.plot(*START, "*", color="white", mec="black", ms=13, label="from here")
        axis.set_title(f"surrogate after {n_evaluations} evaluations")
        axis.legend(loc="upper center", ncols=3, fontsize=7, columnspacing=0.8, handletextpad=0.2)
    save(figure, output)


def proposals(parameters):
    """Return where inner chains of the surrogate end that begin at START, (n, 2)."""
    rng = np.random.default_rng(SEED)
    u = whitened(START[None], parameters.mean, parameters.factor)
    starts = np.repeat(u, N_PROPOSALS, axis=0)
    *_, (ends, _) = inner_chain.steps_from(parameters.surrogate, starts, parameters.n_inner[0], rng)
    return parameters.mean + ends @ parameters.factor.T


def show(axis, x1, x2, values):
    """Draw contours of a log-density, relative to its maximum."""
    drops = values - values.max()
    axis.contourf(x1, x2, drops, DROPS, cmap="Blues", alpha=0.8)
    axis.contour(x1, x2, drops, DROPS[:-1], colors="0.35", linewidths=0.6, linestyles="solid")
    axis.set(xlabel="$x_1$", xlim=BOX[:2], ylim=BOX[2:])
    if axis.get_subplotspec().is_first_col():
        axis.set(ylabel="$x_2$")


def save(figure, path):
    """Write the picture in few colours, which makes it small."""
    figure.set_dpi(200)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    picture = picture.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    plt.close(figure)


if __name__ == "__main__":
    main()
