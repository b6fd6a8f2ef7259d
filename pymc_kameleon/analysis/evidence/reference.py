"""A mixture of t densities: what a surrogate is integrated by, and what covers its tails."""

import numpy as np
from scipy.special import gammaln
from scipy.stats import qmc

from pymc_kameleon.analysis.modes_of_draws import near_groups
from pymc_kameleon.approximation.linalg import whitened
from pymc_kameleon.approximation.records import evenly
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.samplers.surrogate.moves import SETS, points_of_t

GROUPS, N_SEEN = 15, 500
"""Groups of near draws, each of which has a t density; and draws that these are found from."""

BLEND = 20
"""Times d: points that make the covariance of a group its own."""


class Reference:
    """A mixture of t densities, all with the same share, of means (K, d) and factors (K, d, d)."""

    def __init__(self, means, factors, nu, rng):
        self._means, self._factors, self._nu, self._rng = means, factors, nu, rng
        self._inverses = np.linalg.inv(factors)
        d = means.shape[1]
        log_det = np.log(np.abs(np.diagonal(factors, axis1=1, axis2=2))).sum(axis=1)
        of_t = d / 2 * np.log(nu * np.pi) + gammaln(nu / 2) - gammaln((nu + d) / 2)
        self._log_constants = log_det + of_t + np.log(len(means))

    def log_density(self, x):
        """Return the log-density at points (n, d)."""
        found, size = np.empty(len(x)), max(1, NUMBERS_PER_PART // self._means.size)
        for start in range(0, len(x), size):
            part = slice(start, start + size)
            u = (x[part] - self._means[:, None]) @ self._inverses.transpose(0, 2, 1)
            squares = np.einsum("kni,kni->kn", u, u)
            logs = -0.5 * (self._nu + x.shape[1]) * np.log1p(squares / self._nu)
            logs -= self._log_constants[:, None]
            highest = logs.max(axis=0)
            found[part] = highest + np.log(np.exp(logs - highest).sum(axis=0))
        return found

    def draws(self, n):
        """Return n independent draws (n, d)."""
        k, d = self._rng.integers(len(self._means), size=n), self._means.shape[1]
        g = self._rng.standard_gamma(self._nu / 2, n) * 2 / self._nu
        u = self._rng.standard_normal((n, d)) / np.sqrt(g)[:, None]
        return self._means[k] + np.einsum("nij,nj->ni", self._factors[k], u)

    def even(self, n, first):
        """Return more evenly spread points (SETS, Kn, d), or the first ones; n is a power of 2."""
        if first:
            k, d = self._means.shape
            self._even = qmc.Sobol(d + 1, scramble=False)
            self._shifts = self._rng.random((SETS, k, 1, d + 1))
        u = points_of_t((self._even.random(n) + self._shifts) % 1, self._nu)
        x = self._means[:, None] + u @ self._factors.transpose(0, 2, 1)
        return x.reshape(SETS, -1, u.shape[-1])


def reference_of(mean, factor, nu, draws, rng):
    """Return the Reference of a t density, and of what draws (n, d) tell in groups."""
    some = evenly(draws, N_SEEN)
    u = whitened(some, mean, factor)
    rows = [own for own in near_groups(u, np.arange(len(u)), GROUPS) if len(own) > 1]
    groups = [u[own] for own in rows]
    means = [mean, *(some[own].mean(axis=0) for own in rows)]
    factors = [factor, *(factor @ own for own in blended_factors(groups))]
    return Reference(np.array(means), np.array(factors), nu, rng)


def blended_factors(modes):
    """Return factors of groups, given by points; few points take their shape from all."""
    d, sizes = modes[0].shape[1], [len(points) for points in modes]
    covariances = [shrunk_covariance(points) for points in modes]
    pooled = np.average(covariances, axis=0, weights=sizes)
    factors = []
    for n, covariance in zip(sizes, covariances, strict=True):
        own = n / (n + BLEND * d)
        volume = np.trace(np.linalg.solve(pooled, covariance)) / d
        volume = (n * volume + 1) / (n + 1)  # a single point has none
        factors.append(np.linalg.cholesky(own * covariance + (1 - own) * volume * pooled))
    return factors
