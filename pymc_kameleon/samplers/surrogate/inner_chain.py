"""The inner chain, tried: how low s may be where nothing is known.

Symbols: as in metropolis.py and learning.py.
"""

import numpy as np

from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.samplers.approximation.moves import SHORT_SHARE, SHORTEST_STEP
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.fit import log_t

N_INNER = 64
"""M: with fewer steps chains would stay in tails for long."""

N_STARTS = 200
"""Inner chains that are tried."""

WIDE_DROP = 1.5
"""Standard deviations of log s by which it is lower, typically, where wide moves go."""

DEPTHS, LOW_SHARE = (0.0, 3.0, 6.0), 0.1
"""By how much the lower bound of h is lowered, and the share of the inner chain's steps where h may
be at it before it is lowered further. The higher the bound, the sooner chains come to tails that
tuning has not seen, and leave them again; where tuning has seen that nothing is there, such steps
are in vain."""


def lower_bound(surrogate, u, least_depth, rng):
    """Lower the bound of h, by `least_depth` or more, until chains from u are seldom there.

    In a thin, curved posterior most of the volume is beyond all that is known, and could hold most
    of the mass of s. Return the depth.
    """
    fitted = surrogate.bounds[0]
    for depth in DEPTHS:
        if depth >= least_depth:
            surrogate.bounds[0] = fitted - depth
            starts = u[rng.integers(len(u), size=N_STARTS)]
            if low_share(surrogate, starts, N_INNER, rng) <= LOW_SHARE:
                break
    return depth


def low_share(surrogate, u, n, rng):
    """Return the share of n steps of inner chains from u (k, d) where h is lowest."""
    steps = steps_from(surrogate, u, n, rng)
    return np.mean([fit.are_lowest(surrogate, *step) for step in steps])


def steps_from(surrogate, u, n, rng):
    """Yield where n steps of inner chains lead from u (k, d), and log s there."""
    (k, d), nu, log_s = u.shape, surrogate.nu[0], fit.values(surrogate, u)
    for _ in range(n):
        z, by_reference = rng.standard_normal((k, d)), rng.random(k) < 0.5
        far = z / np.sqrt(rng.standard_gamma(nu / 2, k) * 2 / nu)[:, None]
        shortened = np.maximum(0, 1 - rng.random(k) / SHORT_SHARE)
        scale = best_scale(d) * SHORTEST_STEP**shortened
        v = np.where(by_reference[:, None], far, u + scale[:, None] * z)
        log_s_v = fit.values(surrogate, v)
        log_ratio = log_s_v - log_s + by_reference * (log_t(u, nu) - log_t(v, nu))
        accepted = np.log(rng.random(k)) < log_ratio
        u, log_s = np.where(accepted[:, None], v, u), np.where(accepted, log_s_v, log_s)
        yield u, log_s


def power(d):
    """Return β of wide moves: so that the mean of log s falls by as much as it varies, about."""
    return 1 / (1 + WIDE_DROP * np.sqrt(2 / d))
