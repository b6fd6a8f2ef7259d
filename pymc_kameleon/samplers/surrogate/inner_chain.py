"""The inner chain on s, by which SurrogateMetropolis proposes; and, tried, how low s may be.

Symbols: as in metropolis.py and learning.py.
"""

import numpy as np

from pymc_kameleon.approximation.modes import Modes
from pymc_kameleon.core.arrays import extended, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.samplers.approximation import moves
from pymc_kameleon.samplers.approximation.moves import (
    SHORT_SHARE,
    SHORTEST_STEP,
    log_t,
    reference_from,
    walk_from,
)
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate, log_surrogate

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

MOST_LOOKS = 50
"""Points that a chain looks at after a fit, at most."""

Parameters = extended(
    "Parameters",
    moves.Parameters,
    shares=floats(4),  # probabilities of the kinds of moves
    n_inner=integers(1),  # M
    power=floats(1),  # β of a wide move
    surrogate=Surrogate,
    modes=Modes,
    error=floats(1),  # of the surrogate, left out; NaN before there is one
    looks=floats(MOST_LOOKS, "d"),  # points u to be evaluated while tuning, the last one next
    n_looks=integers(1),
)


@jit
def inner_proposal(parameters, v, w, rng):
    """Propose a step of the inner chain from v; return whether it is a draw of t."""
    if rng.random() < 0.5:
        reference_from(v, parameters.surrogate.nu[0], 0.5 * np.pi, w, rng)
        return True
    walk_from(v, best_scale(v.size), w, rng)
    return False


@jit
def inner_chain(parameters, work, log_s, power, rng):
    """Move work.v by M Metropolis steps on s^β, where s is `log_s`; return log s at their end."""
    surrogate = parameters.surrogate
    for _ in range(parameters.n_inner[0]):
        log_ratio = -power * log_s
        if inner_proposal(parameters, work.v, work.w, rng):
            log_ratio += log_t(work.v, surrogate.nu[0]) - log_t(work.w, surrogate.nu[0])
        log_s_w = log_surrogate(surrogate, work.w, work.distances)
        if log_uniform(rng) < log_ratio + power * log_s_w:
            copy(work.w, work.v)
            log_s = log_s_w
    return log_s


# ---- tried, in Python ---------------------------------------------------------------------------


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
        log_ratio = log_s_v - log_s + by_reference * (fit.log_t(u, nu) - fit.log_t(v, nu))
        accepted = np.log(rng.random(k)) < log_ratio
        u, log_s = np.where(accepted[:, None], v, u), np.where(accepted, log_s_v, log_s)
        yield u, log_s


def power(d):
    """Return β of wide moves: so that the mean of log s falls by as much as it varies, about."""
    return 1 / (1 + WIDE_DROP * np.sqrt(2 / d))
