"""The end of tuning of GadRWM and GadMALA: L is frozen, and s fitted to K leapfrog steps.

Symbols as in mala.py, and: t the transition, n the number of tuning transitions.
"""

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.scaling import ScaleTuning, settle_scale, tune_scale

FAST_GOOD_GUESS = 3
"""First step of `fast_gain` for a scale that starts from a good guess."""


def last_phase(n_tune, target_accept, n_leapfrog=1):
    """Return its first transition, a tenth of n or 100 before the end, and the tuning of s."""
    start = n_tune - min(max(100, n_tune // 10), n_tune // 3)
    bounds = -np.inf, longest_scale(n_leapfrog)
    return start, ScaleTuning.start(target_accept, 0.0, bounds)[1]


def longest_scale(n_leapfrog):
    """Return the largest log s: the mean trajectory is at most a quarter of a normal's period."""
    if n_leapfrog == 1:
        return np.inf
    mean_steps = (n_leapfrog // 2 + 1 + n_leapfrog) / 2
    return np.log(2 * np.sin(np.pi / (4 * mean_steps)))


@jit
def fast_gain(k):
    """Step size k of the recursions on log s, which have little time."""
    return min(0.5, 1.5 * (1.0 + k) ** -0.6)


@jit
def tune_last(parameters, tuning, accept_prob):
    """Tune log s, and settle at its mean over the last two thirds of the phase."""
    t, n, start = tuning.t[0], tuning.n, tuning.end
    eta = fast_gain(t - start + FAST_GOOD_GUESS)
    tune_scale(parameters.log_scale, tuning.last_scale, 0, accept_prob, eta)
    settled = start + (n - start) // 3
    settle_scale(parameters.log_scale, tuning.last_scale, 0, t, settled, max(n, t + 1))
