"""The synthetic targets of the KAM paper: bananas, the flower and the ring.

Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014, section 5.2 and appendix B. Each target has a PyMC model, a log-density, an exact
sampler, and quantile regions: nested sets, one for each probability, that follow its curved shape.
A sampler is good if a share p of its draws lies within the region of probability p, for every p.
All means are 0.

The other scripts import this file; tests/whole/test_paper_targets.py checks the quantile regions
against exact draws.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import stats

LEVELS = np.arange(1, 10) / 10
"""The probabilities of the paper's quantile regions."""


@dataclass(frozen=True)
class Banana:
    """B(b, v): x₂ of a normal with variances (v, 1, 1, …) is curved to x₂ + b(x₁² − v)."""

    b: float
    v: float = 100.0
    d: int = 8

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=self.d)
            straight = x[1] - self.b * (x[0] ** 2 - self.v)
            squares = x[0] ** 2 / self.v + straight**2 + pt.sum(x[2:] ** 2)
            pm.Potential("banana", -squares / 2)
        return model

    def squared_radius(self, x):
        """Straighten points (n, d), and return their squared lengths in units of the normal."""
        x1, x2, rest = x[:, 0], x[:, 1], x[:, 2:]
        straight = x2 - self.b * (x1**2 - self.v)
        return x1**2 / self.v + straight**2 + np.sum(rest**2, axis=1)

    def log_density(self, x):
        """Log-density at points (n, d), up to a constant."""
        return -self.squared_radius(x) / 2

    def level(self, x):
        """Probability of the smallest quantile region that contains x, for points (n, d).

        The straightened target is normal, so its squared radius is χ² with d degrees of freedom.
        """
        return stats.chi2.cdf(self.squared_radius(x), self.d)

    def draw(self, rng, n):
        """Draw n exact points (n, d)."""
        x = rng.normal(size=(n, self.d))
        x[:, 0] *= np.sqrt(self.v)
        x[:, 1] += self.b * (x[:, 0] ** 2 - self.v)
        return x


@dataclass(frozen=True)
class Flower:
    """F(r₀, A, ω, σ): a band of width σ around the curve ρ = r₀ + A cos ωθ; normal otherwise.

    The density is exp(−(ρ − r₀ − A cos ωθ)²/2σ²) in the Cartesian coordinates x₁ = ρ cos θ, x₂ = ρ
    sin θ, times a standard normal in x₃ … x_d. The text of the paper lacks the square. With A = 0
    it is the ring.
    """

    r0: float = 10.0
    amplitude: float = 6.0
    frequency: int = 6
    sigma: float = 1.0
    d: int = 8

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=self.d)
            curve = self.curve(pt.arctan2(x[1], x[0]), pt.cos)
            deviation = (pt.sqrt(x[0] ** 2 + x[1] ** 2) - curve) / self.sigma
            pm.Potential("flower", -(deviation**2 + pt.sum(x[2:] ** 2)) / 2)
        return model

    def curve(self, theta, cos=np.cos):
        """Radius at which the density is largest in the direction θ."""
        return self.r0 + self.amplitude * cos(self.frequency * theta)

    def squared_radius(self, x):
        """Squared distance of points (n, d) from the curve along ρ, in units of σ, plus |x₃…|²."""
        x1, x2, rest = x[:, 0], x[:, 1], x[:, 2:]
        deviation = (np.hypot(x1, x2) - self.curve(np.arctan2(x2, x1))) / self.sigma
        return deviation**2 + np.sum(rest**2, axis=1)

    def log_density(self, x):
        """Log-density at points (n, d), up to a constant."""
        return -self.squared_radius(x) / 2

    def level(self, x):
        """Probability of the smallest quantile region that contains x, for points (n, d).

        Given θ, the deviation e = (ρ − r)/σ from the curve's radius r has a density proportional
        to (r + σe) exp(−e²/2), where r + σe is the ρ of ρ dρ dθ. That is not normal, but at e and
        −e the factors r ± σe add up to 2r, so |e| is distributed as that of a standard normal,
        whatever θ. Hence e² + |x₃…|² is χ² with d − 1 degrees of freedom. The only error is that
        ρ ≥ 0: from e < −r/σ on, −e has no counterpart. Where the flower is nearest to the origin,
        r/σ is 4, and one in 16000 of a normal's |e| is greater.
        """
        return stats.chi2.cdf(self.squared_radius(x), self.d - 1)

    def draw(self, rng, n):
        """Draw n exact points (n, d), by rejection.

        θ uniform and e normal, accepted with a probability proportional to ρ = r + σe. That is at
        most r₀ + |A| + 8σ but for once in 1e15.
        """
        x = rng.normal(size=(n, self.d))
        missing = np.arange(n)
        while missing.size:
            theta = rng.uniform(-np.pi, np.pi, missing.size)
            rho = self.curve(theta) + self.sigma * rng.normal(size=missing.size)
            largest = self.r0 + abs(self.amplitude) + 8 * self.sigma
            found = largest * rng.random(missing.size) < rho
            x[missing, 0] = rho * np.cos(theta)
            x[missing, 1] = rho * np.sin(theta)
            missing = missing[~found]
        return x


TARGETS = {"B(0.03, 100)": Banana(0.03), "B(0.1, 100)": Banana(0.1), "F(10, 6, 6, 1)": Flower()}
"""Those of figure 5, in 8 dimensions."""


def deviations(levels):
    """Return shares of draws, of these levels (n,), within the regions of LEVELS, minus LEVELS."""
    return np.searchsorted(np.sort(levels), LEVELS, side="right") / levels.size - LEVELS
