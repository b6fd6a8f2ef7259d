"""Robbins-Monro on the log of a scale [Andrieu & Thoms 2008, section 4.2.2]."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit, python_or_jit

OPTIMAL_SCALE = 2.38
"""Times √(Σ/d): the random walk's best scale on a normal target [Roberts, Gelman & Gilks 1997]."""


LOG_RANGE = np.log([1e-6, 1e6])
"""A scale stays within a factor of 1e6 of its start."""


@python_or_jit
def best_scale(d):
    """Best scale of a random walk that has the target's covariance [same]."""
    return OPTIMAL_SCALE / d**0.5


def default_target_accept(d):
    """Best acceptance rate of a random walk: 0.44 in one dimension, else 0.234 [same]."""
    return 0.44 if d == 1 else 0.234


GOOD_GUESS = 10
"""First step t of a scale that starts from a good guess: early steps would throw it far away."""


class ScaleTuning(NamedTuple):
    """What tuning remembers of scales s_k, whose logs are an array (k,)."""

    target_accept: float
    bounds: np.ndarray  # (k, 2), least and largest log scale
    average: np.ndarray  # (k, 2), sum and number of the log scales that are averaged

    @classmethod
    def start(cls, target_accept, log_scales, bounds=None):
        """Begin to tune scales, by default within a factor of 1e6 of where each starts.

        `bounds` are logs of the user's, for all scales or (k, 2), or equal ones (k, 1) for scales
        that stay. Returns the log scales, moved within them, and this.
        """
        log_scales = np.atleast_1d(np.asarray(log_scales, float))
        within = log_scales[:, None] + LOG_RANGE
        if bounds is not None:
            within[:] = bounds
        return np.clip(log_scales, *within.T), cls(target_accept, within, np.zeros(within.shape))


@jit
def gain(t):
    """Step size (1+t)^-0.6 of the recursion."""
    return (1.0 + t) ** -0.6


@jit
def set_scale(log_scales, tuning, k, value):
    """Set log s_k, within bounds."""
    log_scales[k] = min(max(value, tuning.bounds[k, 0]), tuning.bounds[k, 1])


@jit
def tune_scale(log_scales, tuning, k, accept_prob, eta):
    """Make a step log s_k ← log s_k + η(α − α*), within bounds."""
    step = eta * (accept_prob - tuning.target_accept)
    set_scale(log_scales, tuning, k, log_scales[k] + step)


@jit
def settle_scale(log_scales, tuning, k, t, start, stop):
    """Settle log s_k at its mean over transitions start..stop, which has less noise than the last.

    To be called in each transition t; a `start` that never comes counts as the last one.
    """
    average = tuning.average[k]
    if t >= min(start, stop - 1):
        average[0] += log_scales[k]
        average[1] += 1.0
    if t == stop - 1:
        log_scales[k] = average[0] / average[1]
