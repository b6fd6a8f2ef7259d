"""Fives and sixes of MNIST: a logistic regression in 785 dimensions.

    python gad_mnist.py --path PATH [--full]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019, supplement
E. PATH is a CSV file with a header, one row for each image: 784 pixels from 0 to 255, row by row,
and y, 1 for a five and 0 for a six. Pixels are divided by 255 and not standardised; there is a
bias, and all coefficients are N(0, 1). In the paper they are the 11 339 training images; a smaller
set, as the 1850 test images, works too, but is another posterior.

GadMALA as in the paper, with η = 1e-5, 50 000 iterations of adaptation and 20 000 that are kept;
MALA; and this package's default. Without `--full`, 15 000 and 5000, in which η = 1e-5 does not come
far: L may move by 0.15. CPU minutes with 1850 images: two; `--full`, seven.

gad.md has what was run with `--full` and the test images.
"""

from functools import partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from common import benchmark, pictures
from gad_targets import effective_sizes, learned_diagonal, load_digits, run_chain

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
FULL = [50_000, 20_000]
"""Iterations of adaptation, and those that are kept."""
SAMPLERS = {
    "gadMALAf, η = 1e-5": (pk.GadMALA, {"adaptation": "published", "learning_rate": 1e-5}),
    "MALA": (pk.baselines.MALA, {"target_accept": 0.55}),
    "default": (pk.GadMALA, {}),
}


def measure(name, target, tune, draws):
    """Run a chain and return its row; of the default's, draw L."""
    kind, arguments = SAMPLERS[name]
    step = kind(model=target.model(), **arguments)
    chain = run_chain(step, target.d, 1, tune, draws)
    diagonal, kept = learned_diagonal(step), chain.logp[tune:]
    if name == "default":
        draw(diagonal, chain.x)
    return {
        "ess": np.quantile(effective_sizes(chain.x), [0, 0.5, 1]).round(1).tolist(),
        "seconds": round(chain.seconds, 1),
        "acceptance": round(float(chain.acceptance), 4),
        "log-density": [round(float(half.mean()), 2) for half in np.split(kept, 2)],
        "diagonal": [round(float(end), 3) for end in (diagonal.min(), diagonal.max())],
    }


def tables(rows):
    """Return the table of the page."""
    titles = ["", "least ESS", "median", "largest", "CPU s", "least ESS per s", "accepted"]
    titles += ["log-density of the two halves", "diagonal of sL"]
    cells = [
        [
            row["sampler"],
            *[benchmark.spaced(round(ess)) for ess in row["ess"]],
            round(row["seconds"]),
            f"{row['ess'][0] / row['seconds']:.2g}",
            f"{row['acceptance']:.3f}",
            ", ".join(f"−{-mean:.1f}" for mean in row["log-density"]),
            " … ".join(f"{end:.2f}" for end in row["diagonal"]),
        ]
        for row in rows
        if row["images"] == 1850 and row["iterations"] == FULL
    ]
    return {benchmark.paper("gad"): {"MNIST": benchmark.table(titles, cells)}}


def draw(diagonal, x):
    """Draw the diagonal of the default's L, and the standard deviations, without the bias."""
    images = {"learned, $L_{ii}$": diagonal, "standard deviations of the draws": x.std(axis=0)}
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for axis, (title, values) in zip(axes, images.items(), strict=True):
        shown = axis.imshow(values[:784].reshape(28, 28), cmap="viridis")
        figure.colorbar(shown, ax=axis, shrink=0.9)
        axis.set(title=title, xticks=[], yticks=[])
    pictures.save(figure, "gad_mnist.png", shaded=True)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--path", help="CSV file of fives and sixes")
    parser.add_argument("--full", action="store_true", help="50 000 + 20 000 iterations")


def plan(options):
    """Yield what is to be run."""
    target = load_digits(options.path)
    lengths = FULL if options.full else [15_000, 5000]
    what = {"images": len(target.labels), "iterations": lengths}
    for name in SAMPLERS:
        yield {"sampler": name} | what, partial(measure, name, target, *lengths)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, add_options=add_options)
