"""How the pictures of the pages look: one palette, markers that differ, and what is not known."""

from argparse import ArgumentParser
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from benchmark import DOCS
from PIL import Image
from scipy.stats import chi2

STYLE = DOCS / "matplotlibrc"
IMAGES = DOCS / "images"

BLUE, RED = "#0072B2", "#D55E00"
"""Of the palette of Okabe and Ito, which people tell apart who do not see red or green."""

MARKERS = "osD^vP"
"""As many as colours, for those who do not see these."""


def use_style():
    """Draw as the pages do."""
    plt.style.use(STYLE)


def known_to(runs):
    """Return the factors (2,) from the root mean square of so many errors to the ends of a bar.

    It is the 90 % confidence interval of the true one, where the errors are normal.
    """
    return np.sqrt(runs / chi2.ppf([0.95, 0.05], runs))


def bars(values, factors):
    """Return what ``yerr`` takes: how far the ends of intervals are from the values (n,).

    The factors are (n, 2) or (2,).
    """
    values = np.asarray(values)[:, None]
    return np.abs(values * factors - values).T


def draw_errors(axis, x, error, runs, **style):
    """Draw root mean squares of so many errors each over x, with their intervals."""
    factors = np.array([known_to(n) for n in runs]).reshape(-1, 2)
    axis.errorbar(x, error, bars(error, factors), ms=5, elinewidth=1, capsize=2, **style)


def folder(about):
    """Return where a script writes its pictures, by its only option; `about` is its docstring."""
    parser = ArgumentParser(description=about.partition("\n")[0])
    parser.add_argument("--output", default=IMAGES, help="where to write; docs/images by default")
    return parser.parse_args().output


DPI = 200
"""Twice the pixels that pages show pictures with, so that they are sharp on fine screens."""


def save(figure, name, directory=IMAGES, *, shaded=False):
    """Write a picture in few colours, which makes it small, and say how large it is.

    Lines and dots keep their colours; of a `shaded` picture the smooth shades are kept instead.
    """
    path = Path(directory) / name
    figure.set_dpi(DPI)
    figure.canvas.draw()
    picture = Image.fromarray(np.asarray(figure.canvas.buffer_rgba())).convert("RGB")
    colours, method = (
        (128, Image.Quantize.MEDIANCUT) if shaded else (256, Image.Quantize.MAXCOVERAGE)
    )
    picture = picture.quantize(colours, method, dither=Image.Dither.NONE)
    picture.save(path, optimize=True)
    plt.close(figure)
    print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB")
