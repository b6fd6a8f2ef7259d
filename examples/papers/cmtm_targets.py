"""The CMTM paper: its targets, and how a chain is run and measured.

Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling", JCGS 28,
2019, as told in Craiu's slides of the same year. The targets are mixtures of two normals without
correlations, and the banana in ten dimensions. Each has a PyMC model, a log-density and an exact
sampler. The paper does not say where its chains start; here they start at exact draws.

The other scripts import this file. Run, it checks the mixtures against their exact draws:

    python cmtm_targets.py
"""

import sys
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from kam_targets import Banana
from scipy import special

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
from benchmark import with_error

# ---- targets ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mixture:
    """½ N(μ_1, diag v_1) + ½ N(μ_2, diag v_2).

    Parameters
    ----------
    means, variances : tuple of two tuples of float
        μ and v of the components.
    """

    means: tuple
    variances: tuple

    @property
    def d(self):
        """Dimension."""
        return len(self.means[0])

    def log_terms(self, x):
        """Return the components' log-densities up to one constant; x (…, 1, d) become (…, 2)."""
        means, variances = np.array(self.means, float), np.array(self.variances, float)
        return -(((x - means) ** 2 / variances).sum(axis=-1) + np.log(variances).sum(axis=1)) / 2

    def log_density(self, x):
        """Log-density at points (n, d), up to a constant."""
        return special.logsumexp(self.log_terms(x[:, None]), axis=-1)

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=self.d)
            first, second = self.log_terms(x[None])[0], self.log_terms(x[None])[1]
            pm.Potential("mixture", pt.logaddexp(first, second))
        return model

    def first_mode(self, x):
        """Return the probability that points (n, d) are of the first component."""
        first, second = self.log_terms(x[:, None]).T
        return special.expit(first - second)

    def draw(self, rng, n):
        """Draw n exact points (n, d)."""
        k = rng.integers(2, size=n)
        noise = rng.normal(size=(n, self.d))
        return np.array(self.means, float)[k] + np.sqrt(self.variances)[k] * noise


SMALL = Mixture(((5, 0), (15, 0)), ((6.25, 6.25), (6.25, 0.25)))
"""In two dimensions: x₂ is wide where x₁ is small, and narrow where it is great."""

MEDIUM = Mixture(
    ((5, 5, 0, 0), (15, 15, 0, 0)), ((6.25, 6.25, 6.25, 0.01), (6.25, 6.25, 0.25, 0.01))
)
"""In four dimensions."""

LARGE = Mixture(
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
    """A chain after tuning.

    Attributes
    ----------
    x : (n + 1, d) float64
        Draws, and before them the last state of tuning.
    statistics : dict of str to array
        Of each draw but the first, which is of tuning.
    """

    x: np.ndarray
    statistics: dict


def run_chain(step, target, seed, tune=SWEEPS // 2, draws=SWEEPS // 2):
    """Run a chain from an exact draw of its target."""
    rng = np.random.default_rng(seed)
    point = {"x": target.draw(rng, 1)[0]}
    step.setup_chain(rng, tune, draws)
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    x, statistics = np.empty((draws + 1, target.d)), defaultdict(list)
    x[0] = point["x"]
    for i in range(draws):
        point, [row] = step.step(point)
        x[i + 1] = point["x"]
        for name, value in row.items():
            statistics[name].append(value)
    return Chain(x, {name: np.array(values) for name, values in statistics.items()})


def seconds_per_sweep(kind, target, **options):
    """Return CPU seconds of a sweep after tuning, in compiled code.

    That is the fastest of 100 draws of 1000 sweeps, for others may use the same core.
    """
    step = kind(model=target.model(), steps_per_draw=1000, **options)
    rng = np.random.default_rng(1)
    point = {"x": target.draw(rng, 1)[0]}
    step.setup_chain(rng, 5, 100)
    seconds = []
    for i in range(105):
        if i == 5:
            step.stop_tuning()
        start = time.process_time()
        point, _ = step.step(point)
        seconds.append(time.process_time() - start)
    return min(seconds[5:]) / 1000


# ---- measures -----------------------------------------------------------------------------------


def effective_sizes(chain):
    """Effective sample size of each coordinate's mean, by ArviZ, (d,)."""
    return np.array([az.ess(x[None], method="mean") for x in chain.x[1:].T])


def autocorrelation_times(chain):
    """Integrated autocorrelation time of each coordinate, draws per effective draw, (d,)."""
    return (len(chain.x) - 1) / effective_sizes(chain)


def squared_jump(chain):
    """Mean squared jump from draw to draw, mean over coordinates."""
    return np.mean(np.diff(chain.x, axis=0) ** 2)


def main():
    """Print whether exact draws, log-density and model agree."""
    n = 100_000
    print("E q/π over exact draws of π, with q the same mixture but wider, has to be 1.\n")
    print(f"{'d':<4}{'E q/π':>16}{'model - log-density':>22}")
    for target in (SMALL, MEDIUM, LARGE):
        x = target.draw(np.random.default_rng(1), n)
        wider = Mixture(target.means, tuple(1.2 * v for v in np.array(target.variances)))
        ratio = np.exp(wider.log_density(x) - target.log_density(x))
        logp = target.model().compile_logp()
        difference = max(abs(logp({"x": row}) - target.log_density(row[None])[0]) for row in x[:99])
        print(f"{target.d:<4}{with_error(ratio):>16}{difference:>22.0e}")


if __name__ == "__main__":
    main()
