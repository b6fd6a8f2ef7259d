"""Fives and sixes of MNIST: a logistic regression in 785 dimensions.

    python gad_mnist.py PATH [--full] [--plot-dir DIRECTORY]

Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019, supplement
E. PATH is a CSV file with a header, one row for each image: 784 pixels from 0 to 255, row by row,
and y, 1 for a five and 0 for a six. Pixels are divided by 255 and not standardised; there is a
bias, and all coefficients are N(0, 1). In the paper they are the 11 339 training images; a smaller
set, as the 1850 test images, works too, but is another posterior.

GadMALA as in the paper, with η = 1e-5, 50 000 iterations of adaptation and 20 000 that are kept;
MALA; and this package's default, "fisher". Without `--full`, 15 000 and 5000, in which η = 1e-5
does not come far: L may move by 0.15. Minutes with 1850 images: ten; `--full`, half an hour.
"""

import argparse

import matplotlib.pyplot as plt
import numpy as np
from gad_targets import NoData, effective_sizes, load_digits, run_chain
from kam_pictures import IMAGES, save

import pymc_kameleon as pk

SAMPLERS = {
    "gadMALAf": (pk.GadMALA, {"adaptation": "published", "learning_rate": 1e-5}),
    "MALA": (pk.MALA, {"target_accept": 0.55}),
    "fisher": (pk.GadMALA, {}),
}


def learned_diagonal(step):
    """Return the diagonal of sL, (d,)."""
    return np.exp(step.parameters.log_scale[0]) * np.diag(step.parameters.factor)


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
    """Run a chain of each sampler, print its ESS, and draw L."""
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
    tune, draws = (50_000, 20_000) if options.full else (15_000, 5000)
    model = target.model()
    print(f"{len(target.labels)} images; {tune} + {draws} iterations; one chain each")
    print(f"{'':<10}{'s':>7}{'accepted':>10}{'least ESS':>11}{'median':>8}{'largest':>9}", end="")
    print(f"{'least / s':>11}{'log-density':>20}")
    for name, (kind, arguments) in SAMPLERS.items():
        step = kind(model=model, **arguments)
        chain = run_chain(step, target.d, 1, tune, draws)
        ess, kept = effective_sizes(chain.x), chain.logp[tune:]
        print(f"{name:<10}{chain.seconds:>7.0f}{chain.acceptance:>10.3f}{ess.min():>11.0f}", end="")
        print(f"{np.median(ess):>8.0f}{ess.max():>9.0f}{ess.min() / chain.seconds:>11.3f}", end="")
        halves = f"{kept[: draws // 2].mean():.1f}, {kept[draws // 2 :].mean():.1f}"
        print(f"{halves:>20}", flush=True)
    print("log-density: means of the two halves, which should agree")
    draw(options.plot_dir, learned_diagonal(step), chain.x)  # of the last one, the default


if __name__ == "__main__":
    main()
