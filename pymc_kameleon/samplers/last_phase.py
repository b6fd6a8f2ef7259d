"""The end of tuning of GadRWM and GadMALA: L is frozen, and s fitted to K leapfrog steps.

Symbols: as in mala.py, and t the transition, n the number of tuning transitions, α* the target of
the acceptance probability.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.scaling import ScaleTuning, settle_scale, tune_scale

GOOD_START = 3
"""First k of a recursion that starts from a good guess."""


@jit
def fast_gain(k):
    """Step k of the recursion on log s; it moves fast, as it has little time."""
    return min(0.5, 1.5 * (1.0 + k) ** -0.6)


class LastPhase(NamedTuple):
    """What is known of it: the first of its transitions, and the tuning of s in it."""

    start: int
    scale: ScaleTuning


def last_phase(n_tune, target_accept, n_leapfrog=1):
    """Return the last tenth of tuning, or a hundred transitions, but at most a third."""
    start = n_tune - min(max(100, n_tune // 10), n_tune // 3)
    bounds = -np.inf, longest_scale(n_leapfrog)
    return LastPhase(start, ScaleTuning.start(target_accept, 0.0, bounds)[1])


def longest_scale(n_leapfrog):
    """Return the largest log s: the mean trajectory is at most a quarter of a normal's period."""
    if n_leapfrog == 1:
        return np.inf
    mean_steps = (n_leapfrog // 2 + 1 + n_leapfrog) / 2
    return np.log(2 * np.sin(np.pi / (4 * mean_steps)))


@jit
def leapfrog_steps(parameters, tuning):
    """Return K in the last phase; before, when L is learned from single steps, 1."""
    return parameters.n_leapfrog if tuning.t[0] >= tuning.last.start else 1


@jit
def tune_last(parameters, tuning, accept_prob):
    """Tune log s, and settle at its mean over the last two thirds of the phase."""
    t, n, last = tuning.t[0], tuning.n, tuning.last
    tune_scale(
        parameters.log_scale, last.scale, 0, accept_prob, fast_gain(t - last.start + GOOD_START)
    )
    settled = last.start + (n - last.start) // 3
    settle_scale(parameters.log_scale, last.scale, 0, t, settled, max(n, t + 1))
