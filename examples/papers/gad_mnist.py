"""Fives and sixes of MNIST: a logistic regression in 785 dimensions.

    python gad_mnist.py PATH [--full] [--plot-dir DIRECTORY]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019, supplement
E. PATH is a CSV file with a header, one row for each image: 784 pixels from 0 to 255, row by row,
and y, 1 for a five and 0 for a six. Pixels are divided by 255 and not standardised; there is a
bias, and all coefficients are N(0, 1). In the paper they are the 11 339 training images; a smaller
set, as the 1850 test images, works too, but is another posterior.

GadMALA as in the paper, with η = 1e-5, 50 000 iterations of adaptation and 20 000 that are kept;
MALA; and this package's default. Without `--full`, 15 000 and 5000, in which η = 1e-5 does not come
far: L may move by 0.15. CPU minutes with 1850 images: two; `--full`, seven.

With `--full` and 1850 images each row is added to gad_mnist.json as it ends; what is in there is
not run again. README.md has it.
"""

import argparse
import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from gad_targets import NoData, effective_sizes, load_digits, run_chain
from kam_pictures import IMAGES, save

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
import pages

FILE = Path(__file__).with_suffix(".json")
N_TEST = 1850
SAMPLERS = {
    "gadMALAf, η = 1e-5": (pk.GadMALA, {"adaptation": "published", "learning_rate": 1e-5}),
    "MALA": (pk.MALA, {"target_accept": 0.55}),
    "default": (pk.GadMALA, {}),
}


def learned_diagonal(step):
    """Return the diagonal of sL, (d,)."""
    return np.exp(step.parameters.log_scale[0]) * np.diag(step.parameters.factor)


def measure(name, target, tune, draws, plot_dir):
    """Run a chain and return its row; of the default's, draw L."""
    kind, arguments = SAMPLERS[name]
    step = kind(model=target.model(), **arguments)
    chain = run_chain(step, target.d, 1, tune, draws)
    diagonal, kept = learned_diagonal(step), chain.logp[tune:]
    if name == "default":
        draw(plot_dir, diagonal, chain.x)
    return {
        "sampler": name,
        "iterations": [tune, draws],
        "ess": np.quantile(effective_sizes(chain.x), [0, 0.5, 1]).round(1).tolist(),
        "seconds": round(chain.seconds, 1),
        "acceptance": round(float(chain.acceptance), 4),
        "log-density": [round(float(half.mean()), 2) for half in np.split(kept, 2)],
        "diagonal": [round(float(end), 3) for end in (diagonal.min(), diagonal.max())],
    } | pages.when_and_where()


def tables(rows):
    """Return the table of the page."""
    titles = ["least ESS", "median", "largest", "CPU s", "least ESS / s", "accepted"]
    titles += ["log-density of the two halves", "diagonal of sL"]
    lines = [f"| | {' | '.join(titles)} |", "|---" * 9 + "|"]
    for row in rows:
        cells = [pages.spaced(round(ess)) for ess in row["ess"]]
        cells += [f"{row['seconds']:.0f}", f"{row['ess'][0] / row['seconds']:.2g}"]
        cells += [f"{row['acceptance']:.3f}", ", ".join(f"−{-x:.1f}" for x in row["log-density"])]
        cells += [" … ".join(f"{end:.2f}" for end in row["diagonal"])]
        lines.append(f"| {row['sampler']} | {' | '.join(cells)} |")
    return {pages.PAPERS: {"MNIST": lines}}


def draw(directory, diagonal, x):
    """Draw the diagonal of the default's L, and the standard deviations, without the bias."""
    images = {"learned, $L_{ii}$": diagonal, "standard deviations of the draws": x.std(axis=0)}
    figure, axes = plt.subplots(1, 2, figsize=(8, 3.6), layout="constrained")
    for axis, (title, values) in zip(axes, images.items(), strict=True):
        shown = axis.imshow(values[:784].reshape(28, 28), cmap="viridis")
        figure.colorbar(shown, ax=axis, shrink=0.9)
        axis.set(title=title, xticks=[], yticks=[])
    save(figure, directory, "gad_mnist.png", shaded=True)


def main():
    """Run a chain of each sampler, draw L, and write the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("path", help="CSV file of fives and sixes")
    parser.add_argument("--full", action="store_true", help="50 000 + 20 000 iterations")
    parser.add_argument("--plot-dir", default=IMAGES, help="docs/images by default")
    options = parser.parse_args()
    try:
        target = load_digits(options.path)
    except NoData as reason:
        print(reason)
        return
    lengths = (50_000, 20_000) if options.full else (15_000, 5000)
    stored = options.full and len(target.labels) == N_TEST
    rows = pages.load(FILE) if stored else []
    for name in list(SAMPLERS)[len(rows) :]:
        rows.append(measure(name, target, *lengths, options.plot_dir))
        print(rows[-1], flush=True)
        if stored:
            pages.save(FILE, rows)
    if stored:
        pages.write(tables(rows))


if __name__ == "__main__":
    main()
