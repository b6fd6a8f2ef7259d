"""Averages over the posterior by a process of its log-density, and what they may be wrong by.

The process is fitted to all that was evaluated. Its mean gives a posterior s, and its covariance
says which other log-densities fit as well: paths. Each path e has averages of its own,

    E_e f = Σ_i w_i exp(e(x_i)) f(x_i) / Σ_i w_i exp(e(x_i)),

at points x_i of a power of s, which is wider. Their median is the average, and their spread is its
error, scaled by how far values are from what all others predict.

Source: O'Hagan, "Bayes-Hermite quadrature", Journal of Statistical Planning and Inference 29
(1991); for values left out, [RW, section 5.4.2]. Symbols: as in process.py and way.py.
"""

from copy import copy

import numpy as np

from pymc_kameleon.approximation.drops import NEAR, TYPICAL, drop
from pymc_kameleon.approximation.linalg import factorised
from pymc_kameleon.approximation.search import spread_of
from pymc_kameleon.samplers.surrogate.active import draws
from pymc_kameleon.samplers.surrogate.active.draws import MOST_SD, POWER, Density
from pymc_kameleon.samplers.surrogate.active.way import BURN_IN, N_ERRORS, Way
from pymc_kameleon.samplers.surrogate.fit import N_CENTRES

N_WIDE = N_CENTRES
"""Points of the power of s, which is wider, by few chains and long: they begin at draws of s, and
early points would be too few in the tails."""

N_CHAINS, N_STEPS, THINNING = 96, 500, 5
"""Chains of s; their steps, unless some coordinates are drawn anew; and of these one in so many
counts. Their own error is seen by what they differ by. They begin at points that chains of the
power, as long, give by their weights: from where a search has ended, chains as short would lack the
tails of a bent posterior, and not differ by that."""

N_PATHS = 64
"""Paths, in pairs about the mean."""

FARTHER = 2.0
"""How much larger the radius of s is than where points are chosen: tails go on."""


class ProcessPosterior:
    """What evaluations of a log-density tell of its posterior.

    A LinAlgError says that rounding forbids it, or that draws of s do not come to rest.

    Attributes
    ----------
    draws : (m, d) float64
        Draws of s, chain by chain.
    n_effective : float
        Effective number of points by which a path has its averages, the median.
    scale : float
        How far values that are left out are from what all others predict, in its standard
        deviations, at least 1.
    outside : float
        Share of the draws near the wall of s, if f is exactly quadratic in some coordinates: the
        mouth of a funnel is cut off there. The tail of a half-normal scale, to 0, ends before.
    """

    @np.errstate(all="ignore")
    def __init__(self, known, rng):
        way = Way.knowing(known, rng)
        if not way.is_home:
            raise np.linalg.LinAlgError("Draws of the process do not come to rest.")
        density = Density(way.process, rng)
        density.radius += FARTHER
        n_steps = draws.N_STEPS_ALONE if density.n_held else N_STEPS
        u = _starts(density, way.chains, n_steps, rng)
        found, _ = draws.run(density, u, np.ones(N_CHAINS), n_steps, rng)
        outside = np.linalg.norm(found, axis=2) > density.radius - FARTHER / 2
        self.outside = float(np.mean(outside)) if density.n_held else 0.0
        self.draws = way.x_of(found[::THINNING].swapaxes(0, 1).reshape(-1, found.shape[2]))
        self.scale = _scale(way.process)
        self._way, self._density = way, density
        self._last = found[-1, : draws.N_CHAINS]
        self._draw_paths(rng)

    @np.errstate(all="ignore")
    def _draw_paths(self, rng):
        density, process, ones = self._density, self._way.process, np.ones(draws.N_CHAINS)
        wider = _wider(process, density)
        wide, logs = draws.run(density, self._last, ones, draws.N_STEPS_ALONE, rng, wider)
        wide, logs = wide[BURN_IN:].reshape(-1, wide.shape[2]), logs[BURN_IN:].ravel()
        rows = rng.choice(len(wide), N_WIDE, replace=False)
        wide, logs = wide[rows], logs[rows]
        self._wide, self._by_s = self._way.x_of(wide), _shares(density(wide) - logs)
        paths = _paths(process, wide, rng)
        if density.n_held:
            # In a far neck or mouth a path may be anything, as nothing there was evaluated.
            paths -= density.unknown(process.mean_and_sd(wide)[1])[:, None]
        self._by_path = _shares(paths - logs[:, None])
        self.n_effective = np.median(1 / np.sum(self._by_path**2, axis=0))

    def again(self, rng):
        """Return the same with other paths, and with other points for their averages."""
        other = copy(self)
        other._draw_paths(rng)
        return other

    def averages(self, function, size=N_WIDE):
        """Return means (q,), errors and sds of a function of points, at most `size` at a time."""
        of_chains = [
            sum(function(x).sum(axis=0) for x in _parts(own, size)) / len(own)
            for own in np.split(self.draws, N_CHAINS)
        ]
        mean, of_draws = np.mean(of_chains, axis=0), np.var(of_chains, axis=0, ddof=1)
        of_draws = of_draws / N_CHAINS
        by_path = by_s = 0
        for part in _parts(np.arange(N_WIDE), size):
            values, w = function(self._wide[part]) - mean, self._by_s[part]
            by_path = by_path + (self._by_path[part] - w[:, None]).T @ values
            by_s = by_s + np.array([w @ values, w @ np.square(values)])
        error = np.sqrt(of_draws + np.square(self.scale * spread_of(by_path)))
        middle = np.median(by_path, axis=0)  # some averages have no variance
        return mean + middle, error, np.sqrt(np.maximum(by_s[1] - by_s[0] ** 2, 0))

    def covers(self, x):
        """Whether s has some mass at points x (n, d): share of those that are within its radius."""
        return np.mean(np.linalg.norm(self._way.u_of(x), axis=1) < self._density.radius)


def _starts(density, u, n_steps, rng):
    """Return N_CHAINS draws of s, by weights, from chains of a power of it that go on from u."""
    found, logs = draws.run(density, u, np.full(len(u), POWER), n_steps, rng)
    found, logs = (each[n_steps // 2 :].reshape(-1, *each.shape[2:]) for each in (found, logs))
    shares = _shares((1 - POWER) * (logs - density.given(found).size))
    if not np.isfinite(shares).all():
        raise np.linalg.LinAlgError("The process is not finite where draws of it begin.")
    return found[rng.choice(len(found), N_CHAINS, p=shares)]


def _wider(process, density):
    """Return the log of a density that has more mass than s where less is known."""

    def log_density(u, _least, size):
        mean, sd = process.mean_and_sd(u)
        log_s = POWER * density.of(u, mean, sd) + (1 - POWER) * size
        return log_s + 0.5 * np.minimum(sd, MOST_SD) ** 2

    return log_density


def _parts(rows, size):
    """Yield so many rows at a time."""
    for first in range(0, len(rows), size):
        yield rows[first : first + size]


def _shares(logs):
    """Return weights (n, ...) that add up to 1, by their logarithms."""
    w = np.exp(logs - logs.max(axis=0))
    return w / w.sum(axis=0)


def _paths(process, u, rng):
    """Return log-densities (n, N_PATHS) at points u that fit as well, in pairs about the mean."""
    z = rng.standard_normal((len(u), N_PATHS // 2))
    e = np.tril(factorised(process.covariance(u))) @ z
    return process.mean(u)[:, None] + np.concatenate([e, -e], axis=1)


def _scale(process):
    """Return how far off values are predicted, in sds: of near ones or tails, at least 1."""
    errors, sds = process.left_out()
    near, tail = (-drop(process.u.shape[1], probability) for probability in (NEAR, TYPICAL))
    are_near, predicted = process.y > near, process.y - errors
    kinds = are_near, ~are_near & ((process.y > tail) | (predicted > near))
    z = [(errors / sds)[own] for own in kinds if own.sum() >= N_ERRORS]
    return max([1.0, *(np.sqrt(np.mean(own**2)) for own in z)])
