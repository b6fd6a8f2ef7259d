"""How the pictures of the pages look: one palette, markers that differ, and what is not known."""

import matplotlib.pyplot as plt
import numpy as np
from benchmark import DOCS
from scipy.stats import chi2

STYLE = DOCS / "matplotlibrc"

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
