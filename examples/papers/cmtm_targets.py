"""The CMTM paper: its targets, and how a chain is run and measured.

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019, as told in Craiu's slides of the same year. The targets are mixtures of two normals without
correlations (mixtures.py), and the banana in ten dimensions. The paper does not say where its
chains start; here they start at exact draws. The other scripts import this file.
"""

from itertools import islice
from typing import NamedTuple

import numpy as np
from common import benchmark
from kam_targets import Banana
from mixtures import halves

# ---- targets ------------------------------------------------------------------------------------

SMALL = halves(((5, 0), (15, 0)), ((6.25, 6.25), (6.25, 0.25)))
"""In two dimensions: x₂ is wide where x₁ is small, and narrow where it is great."""

MEDIUM = halves(
    ((5, 5, 0, 0), (15, 15, 0, 0)), ((6.25, 6.25, 6.25, 0.01), (6.25, 6.25, 0.25, 0.01))
)
"""In four dimensions."""

LARGE = halves(
    ((5, 5, 0, 0, 0, 0, 10, 15, 0, 0) * 2, (10, 10, 0, 0, 0, 0, 7, 20, 0, 0) * 2),
    (
        (16, 16, 0.25, 4, 1, 0.01, 9, 16, 9, 0.01) * 2,
        (16, 16, 6.25, 4, 1, 4.41, 9, 16, 0.25, 0.01) * 2,
    ),
)
"""In twenty dimensions: a block of ten, twice, but with one component for all."""

BANANA = Banana(-0.01, d=10)
"""x₂ + 0.01 (x₁² − 100) is normal."""

# ---- chains -------------------------------------------------------------------------------------

SWEEPS = 10_000
"""Of a chain; the first half is discarded."""


class Chain(NamedTuple):
    """A chain after tuning."""

    x: np.ndarray  # (n + 1, d), draws, and before them the last state of tuning
    statistics: dict  # arrays, of each draw but the first, which is of tuning


def run_chain(step, target, seed, tune=SWEEPS // 2, draws=SWEEPS // 2):
    """Run a chain from an exact draw of its target."""
    rng = np.random.default_rng(seed)
    start = {"x": target.draw(rng, 1)[0]}
    chain = benchmark.driven(step, start, tune, draws, rng)
    points, rows = zip(*islice(chain, tune - 1, None), strict=True)
    statistics = {name: np.array([row[name] for row in rows[1:]]) for name in rows[0]}
    return Chain(np.array([point["x"] for point in points]), statistics)


def seconds_per_sweep(kind, target, **options):
    """Return CPU seconds of a sweep after tuning, in compiled code.

    That is the fastest of 100 draws of 1000 sweeps, for others may use the same core.
    """
    step = kind(model=target.model(), steps_per_draw=1000, **options)
    rng = np.random.default_rng(1)
    chain = benchmark.driven(step, {"x": target.draw(rng, 1)[0]}, 5, 100, rng)
    return min(benchmark.seconds_of(chain)[5:]) / 1000


# ---- measures -----------------------------------------------------------------------------------


def autocorrelation_times(chain):
    """Integrated autocorrelation time of each mean, draws per effective draw by ArviZ, (d,)."""
    x = chain.x[None, 1:]
    return x.shape[1] / benchmark.ess_of_means(x)


def squared_jump(chain):
    """Mean squared jump from draw to draw, mean over coordinates."""
    return np.mean(np.diff(chain.x, axis=0) ** 2)
