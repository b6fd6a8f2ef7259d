"""The settings of the inner chain, chosen by trying it.

Symbols: as in metropolis.py and learning.py.
"""

import numpy as np
from scipy.special import gammaln

from pymc_kameleon.approximation.chain import FORGOTTEN
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.samplers.approximation.moves import SHORT_SHARE, SHORTEST_STEP
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.fit import log_t

LEAST_INNER, MOST_INNER = 32, 64
"""M at least, as with fewer chains would stay in tails for long; and at most."""

N_STARTS = 200
"""Inner chains that are tried."""

ANGLES = (np.pi / 2, 1.1, 0.7, 0.35)
"""The angles that θ is chosen from."""

NUS = (4.0, 8.0)
"""The degrees of freedom that ν is chosen from."""

WIDE_DROP = 1.5
"""Standard deviations of log s by which it is lower, typically, where wide moves go."""

DEPTHS, LOW_SHARE = (0.0, 3.0, 6.0), 0.1
"""By how much the lower bound of h is lowered, and the share of the inner chain's steps where h may
be at it before it is lowered further. The higher the bound, the sooner chains come to tails that
tuning has not seen, and leave them again; where tuning has seen that nothing is there, such steps
are in vain."""


def best_nu(u):
    """Return the ν with which the states are the likeliest."""
    return max(NUS, key=lambda nu: log_likelihood(u, nu))


def log_likelihood(u, nu):
    """Return the mean log density of states under t."""
    d = u.shape[1]
    squares = np.sum(u * u, axis=1)
    constant = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu)
    return constant - np.mean((nu + d) / 2 * np.log1p(squares / nu))


def inner_settings(surrogate, u, rng):
    """Return (θ, share, M) by chains from u (n, d), and the share of steps where h is lowest."""
    starts = u[rng.integers(len(u), size=N_STARTS)]

    def jump(angle, share):
        return np.mean((moved(surrogate, starts, 2, angle, share, rng)[0][-1] - starts) ** 2)

    jumps = [jump(angle, 1.0) for angle in ANGLES]
    angle, reference, walk = ANGLES[np.argmax(jumps)], max(jumps), jump(0.0, 0.0)
    share = np.clip(reference / (reference + walk), 0.25, 0.75)
    places, log_s = moved(surrogate, starts, MOST_INNER, angle, share, rng)
    low = [np.mean(fit.are_lowest(surrogate, *own)) for own in zip(places, log_s, strict=True)]
    spread = 2 * np.maximum(np.var(starts, axis=0), 1e-10)
    far = np.array([np.min(np.mean((v - starts) ** 2, axis=0) / spread) for v in places])
    tried = range(LEAST_INNER, MOST_INNER, 4)
    n_inner = next((m for m in tried if far[m - 1] > FORGOTTEN), MOST_INNER)
    return (angle, share, n_inner), np.mean(low)


def settle_inner(surrogate, u, least_depth, rng):
    """Lower the bound of h, by `least_depth` or more, until the inner chain is seldom there.

    In a thin, curved posterior most of the volume is beyond all that is known, and could hold most
    of the mass of s. Return the depth, and θ, share and M.
    """
    fitted = surrogate.bounds[0]
    for depth in DEPTHS:
        if depth >= least_depth:
            surrogate.bounds[0] = fitted - depth
            settings, low = inner_settings(surrogate, u, rng)
            if low <= LOW_SHARE:
                break
    return depth, settings


def moved(surrogate, u, n, angle, share, rng):
    """Return where n steps of the inner chain lead from u (k, d), and log s: lists of n arrays."""
    (k, d), nu, places, logs = u.shape, surrogate.nu[0], [], []
    log_s = fit.values(surrogate, u)
    for _ in range(n):
        z = rng.standard_normal((k, d))
        if angle < np.pi / 2:
            g = rng.standard_gamma((nu + d) / 2, k) / ((nu + np.sum(u * u, axis=1)) / 2)
        else:
            g = rng.standard_gamma(nu / 2, k) / (nu / 2)
        far = np.cos(angle) * u + np.sin(angle) * z / np.sqrt(g)[:, None]
        by_reference = rng.random(k) < share
        shortened = np.maximum(0, 1 - rng.random(k) / SHORT_SHARE)
        scale = best_scale(d) * SHORTEST_STEP**shortened
        v = np.where(by_reference[:, None], far, u + scale[:, None] * z)
        log_s_v = fit.values(surrogate, v)
        log_ratio = log_s_v - log_s + by_reference * (log_t(u, nu) - log_t(v, nu))
        accepted = np.log(rng.random(k)) < log_ratio
        u, log_s = np.where(accepted[:, None], v, u), np.where(accepted, log_s_v, log_s)
        places.append(u)
        logs.append(log_s)
    return places, logs


def power(d):
    """Return β of wide moves: so that the mean of log s falls by as much as it varies, about."""
    return 1 / (1 + WIDE_DROP * np.sqrt(2 / d))
