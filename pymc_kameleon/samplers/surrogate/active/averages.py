"""Averages over the posterior by a process of its log-density, and what they may be wrong by.

The process is fitted to all that was evaluated. Its mean gives a posterior s, of which any number
of draws are to be had, and its covariance says which other log-densities fit as well: paths. Each
path e_k has averages of its own,

    E_k f = Σ_i w_i exp(e_k(x_i)) f(x_i) / Σ_i w_i exp(e_k(x_i)),

at points x_i of a power of s, which is wider, with weights w_i. Their mean is the average, and
their spread is its error: what no evaluation has shown. The numbers of the process are not known
either: there are paths for several, drawn from their posterior. How far the paths can be believed
shows where values are left out, and predicted from all others.

Source: O'Hagan, "Bayes-Hermite quadrature", Journal of Statistical Planning and Inference 29
(1991); for values left out, [RW, section 5.4.2].

Symbols: as in process.py and way.py.
"""

import numpy as np

from pymc_kameleon.samplers.surrogate.active import draws
from pymc_kameleon.samplers.surrogate.active.process import Process, drawn
from pymc_kameleon.samplers.surrogate.active.way import BURN_IN, Way

N_STEPS, N_BATCHES = 2000, 20
"""Steps of the chains of s; and batches of these by which their own error is seen."""

POWER, N_WIDE = 0.5, 1200
"""Power of s that is wider; points of it."""

N_HYPER, N_PATHS = 8, 64
"""Numbers of the process, and paths of all of these together."""

HIGH = 4.0
"""How far below the typical log-density, d/2 below the top, values count that are left out."""

class Known:
    """What is known of the posterior from evaluations of its log-density.

    Parameters
    ----------
    x : (n, d) float64
        Points.
    f : (n,) float64
        Log-densities there.
    mean, covariance : (d,), (d, d) float64
        Those of the posterior, about.
    exact : (d,) bool
        Coordinates in which f is exactly quadratic.
    rng : numpy.random.Generator

    Attributes
    ----------
    plain : (N_STEPS, chains, d) float64
        Draws of s.
    wide : (N_WIDE, d) float64
        Points of its power.
    scale : float
        Root mean square of what was left out, in standard deviations of its prediction, at least 1.
    """

    def __init__(self, x, f, mean, covariance, exact, rng):
        way = Way.home(x, f, mean, covariance, exact, rng)
        density = way.settle()
        process, ones = way.process, np.ones(draws.N_CHAINS)
        found, _ = draws.run(density, way._chains, ones, N_STEPS, rng)
        wide, logs = draws.run(density, found[-1], POWER * ones, draws.N_STEPS * 4, rng)
        wide, logs = wide[BURN_IN:].reshape(-1, x.shape[1]), logs[BURN_IN:].ravel()
        rows = rng.choice(len(wide), N_WIDE, replace=False)
        wide, logs = wide[rows], logs[rows]
        self.plain = way._x(found.reshape(-1, x.shape[1])).reshape(found.shape)
        self.wide = way._x(wide)
        self._by_s = _shares((1 - POWER) * logs)
        paths = _paths(process, wide, rng)
        self._by_path = _shares(paths - POWER * logs[:, None])
        self.scale = _scale(process)

    def average(self, plain, wide):
        """Return means (q,) of functions and their errors, by values (steps, chains, q), (n, q)."""
        base = plain.mean(axis=(0, 1))
        batches = plain.reshape(N_BATCHES, -1, *plain.shape[1:]).mean(axis=(1, 2))
        of_draws = batches.var(axis=0, ddof=1) / N_BATCHES
        shifts = self._by_path.T @ wide - self._by_s @ wide
        spread = self.scale**2 * shifts.var(axis=0)
        return base + shifts.mean(axis=0), np.sqrt(of_draws + spread)


def _shares(logs):
    """Return weights (n, ...) that add up to 1, by their logarithms."""
    w = np.exp(logs - logs.max(axis=0))
    return w / w.sum(axis=0)


def _paths(process, u, rng):
    """Return log-densities (n, N_PATHS) at points u that fit as well, in pairs about a mean."""
    found = []
    for hyper in drawn(process, N_HYPER, rng):
        own = Process(process.u, process.y, hyper, process.prior)
        variances, vectors = np.linalg.eigh(own.covariance(u))
        z = rng.standard_normal((len(u), N_PATHS // N_HYPER // 2))
        e = vectors @ (np.sqrt(np.maximum(variances, 0))[:, None] * z)
        found.append(own.mean(u)[:, None] + np.concatenate([e, -e], axis=1))
    return np.concatenate(found, axis=1)


def _scale(process):
    """Return how far values are from what all others predict, in its standard deviations.

    Of those that are as high as draws are; it is at least 1.
    """
    precision = np.sum(process.inverse**2, axis=0)
    errors = process.alpha / np.sqrt(precision)
    high = process.y > -process.u.shape[1] / 2 - HIGH
    return max(1.0, np.sqrt(np.mean(errors[high] ** 2)))
