"""The normal step, and the Metropolis rule."""

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, multiply_lower
from pymc_kameleon.core.target import take_gradient

NO_CAP = np.inf
"""The cap of a log ratio that was not bounded early."""


@jit
def normal_step(scale, factor, xi, step, rng):
    """Draw ξ ~ N(0, I), and write scale · Lξ into `step`."""
    for i in range(xi.size):
        xi[i] = rng.standard_normal()
    multiply_lower(factor, xi, step)
    for i in range(step.size):
        step[i] *= scale


@jit
def log_uniform(rng):
    """Logarithm of a uniform random number."""
    return -rng.standard_exponential()


@jit
def metropolis(log_ratio, log_u, cap):
    """Metropolis rule for the log of a Metropolis-Hastings ratio, and log u; NaN rejects.

    `cap` is an upper bound of `log_ratio` with which the proposal could have been rejected early,
    but was not, or `NO_CAP`. Returns α/min(1, exp(cap)), whose mean is that of α if early
    rejections count as 0, and whether the proposal is accepted.
    """
    if np.isnan(log_ratio):
        return 0.0, False
    return np.exp(min(0.0, min(0.0, log_ratio) - min(0.0, cap))), log_u < log_ratio


@jit
def accept(target, state, y, logp_y, log_hastings, rng):
    """Accept or reject `y`, where the target was evaluated last; see `accept_capped`."""
    return accept_capped(target, state, y, logp_y, log_hastings, log_uniform(rng), NO_CAP)


@jit
def accept_capped(target, state, y, logp_y, log_hastings, log_u, cap):
    """Accept or reject y, where the target was evaluated last, if it was not rejected early.

    Position, log-density and gradient of `state` follow an accepted one. `log_hastings` is log
    q(x|y)/q(y|x), 0 for a symmetric proposal; `log_u`, `cap` and what is returned are as of
    `metropolis`.
    """
    log_ratio = logp_y - state.logp[0] + log_hastings
    accept_prob, accepted = metropolis(log_ratio, log_u, cap)
    if accepted:
        copy(y, state.x)
        state.logp[0] = logp_y
        take_gradient(target, state)
    return accept_prob, accepted
