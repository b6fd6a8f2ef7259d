"""The mixture of modes, in plain numpy, with the random numbers of the compiled one."""

import numpy as np
from scipy.special import logsumexp
from scipy.stats import multivariate_t


class SlowModes:
    """A mixture of t densities with 5 degrees of freedom, one for each of the modes."""

    def __init__(self, modes):
        n, shares, means, factors = modes
        self.n, self.shares = n[0], shares[: n[0]]
        self.means, self.factors = means[: n[0]], np.tril(factors[: n[0]])

    def draw(self, rng):
        """Return a point (d,)."""
        k = np.searchsorted(np.cumsum(self.shares), rng.random(), side="right")
        g = rng.standard_gamma(2.5) / 2.5
        return self.means[k] + self.factors[k] @ (
            rng.standard_normal(self.means[k].size) / np.sqrt(g)
        )

    def log_density(self, z):
        """Return that of points z (..., d)."""
        parts = zip(self.shares, self.means, self.factors, strict=True)
        logs = [np.log(w) + multivariate_t.logpdf(z, m, f @ f.T, 5) for w, m, f in parts]
        return logsumexp(logs, axis=0)


def set_modes(modes, n):
    """Set a mixture of so many modes, one of them wide, to what tuning would not lead to."""
    d = modes.mode_means.shape[1]
    modes.n_modes[0] = n
    modes.mode_shares[:2], modes.mode_means[:2] = (0.7, 0.3), [[0.3] * d, [-1.0] * d]
    modes.mode_factors[:2] = [np.eye(d) + 0.3 * np.tri(d, k=-1), 2 * np.eye(d)]
