"""The Metropolis rule."""

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.target import log_density


@jit
def log_uniform(rng):
    """Logarithm of a uniform random number."""
    return -rng.standard_exponential()


@jit
def move_or_stay(target, state, y, rng):
    """Accept or reject `y`, drawn from a symmetric proposal: one evaluation.

    Returns
    -------
    accept_prob : float
        min(1, π(y)/π(x)).
    accepted : bool
    """
    logp_y = log_density(target, y)
    log_ratio = logp_y - state.logp[0]
    accepted = log_uniform(rng) < log_ratio
    if accepted:
        copy(y, state.x)
        state.logp[0] = logp_y
    return np.exp(min(0.0, log_ratio)), accepted
