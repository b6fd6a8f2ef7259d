"""Mixtures of normals, the targets of the papers on cyclical KAM and on CMTM.

Each has a PyMC model, a log-density, an exact sampler, and the symmetric Kullback-Leibler
divergence between draws and truth.
"""

from dataclasses import dataclass

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy import special, stats


@dataclass(frozen=True)
class Mixture:
    """Σ w_k N(μ_k, diag v_k), once or for several blocks of coordinates independently."""

    weights: tuple  # w_k
    means: tuple  # μ_k
    variances: tuple  # v_k
    start: tuple = ()  # where the paper's chains start, if it says so
    bins: tuple = ()  # from, to, and number of those of every coordinate; the outer ones are open
    copies: int = 1  # blocks

    @property
    def d(self):
        """Dimension."""
        return self.copies * len(self.means[0])

    def log_terms(self, blocks):
        """Return log w_k N(x; μ_k, diag v_k) up to a constant; blocks (…, 1, d) become (…, K)."""
        means, variances = np.array(self.means, float), np.array(self.variances, float)
        constants = np.log(self.weights) - np.log(variances).sum(axis=1) / 2
        return constants - ((blocks - means) ** 2 / variances).sum(axis=-1) / 2

    def log_density(self, x):
        """Log-density at points (n, d), up to a constant."""
        terms = self.log_terms(np.reshape(x, (len(x), self.copies, 1, -1)))
        return special.logsumexp(terms, axis=-1).sum(axis=-1)

    def symbolic_log_density(self, x):
        """Log-density of a PyTensor vector, up to a constant."""
        terms = self.log_terms(x.reshape((self.copies, 1, self.d // self.copies)))
        return pt.sum(pt.logsumexp(terms, axis=-1))

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=self.d)
            pm.Potential("mixture", self.symbolic_log_density(x))
        return model

    def draw(self, rng, n):
        """Draw n exact points (n, d)."""
        k = rng.choice(len(self.weights), (n, self.copies), p=self.weights)
        noise = rng.normal(size=(n, self.copies, self.d // self.copies))
        x = np.array(self.means)[k] + np.sqrt(self.variances)[k] * noise
        return x.reshape(n, self.d)

    def first_mode(self, x):
        """Return the probability that points (n, d) of one block are of the first component."""
        return special.softmax(self.log_terms(x[:, None]), axis=1)[:, 0]

    def marginal(self, x):
        """Density of the first coordinate at points (n,)."""
        means, variances = np.array(self.means)[:, 0], np.array(self.variances)[:, 0]
        return stats.norm.pdf(x[:, None], means, np.sqrt(variances)) @ self.weights

    def bin_probabilities(self):
        """Exact probabilities of the bins, (d, B)."""
        means, scales = (
            np.tile(np.array(own), self.copies).T[..., None]
            for own in (self.means, np.sqrt(self.variances))
        )
        inner = np.linspace(*self.bins[:2], self.bins[2] + 1)[1:-1]
        below = self.weights @ stats.norm.cdf(inner, means, scales)
        above = self.weights @ stats.norm.sf(inner, means, scales)
        from_below = np.diff(below, prepend=0.0, append=1.0)
        from_above = -np.diff(above, prepend=1.0, append=0.0)
        # Differences of numbers near 1 would be 0 far out.
        return np.where(np.cumsum(from_below, axis=1) < 0.5, from_below, from_above)

    def symmetric_kl(self, x):
        """Return Σ_b (p_b − q_b) log(p_b/q_b) of draws x (N, d), mean over coordinates.

        Of B bins one with n_b draws has q_b = (n_b + 1/2)/(N + B/2).
        """
        low, high, n_bins = self.bins
        p = self.bin_probabilities()
        places = ((x - low) * (n_bins / (high - low))).clip(0, n_bins - 1).astype(int)
        places += n_bins * np.arange(self.d)
        counts = np.bincount(places.ravel(), minlength=p.size).reshape(p.shape)
        q = (counts + 0.5) / (len(x) + n_bins / 2)
        return np.sum((p - q) * np.log(p / q), axis=1).mean()


def halves(means, variances):
    """Return a mixture of two components of equal weight."""
    return Mixture((0.5, 0.5), means, variances)
