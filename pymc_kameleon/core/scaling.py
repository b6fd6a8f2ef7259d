"""Robbins-Monro on the log of a scale [Andrieu & Thoms 2008, section 4.2.2]."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit

OPTIMAL_SCALE = 2.38
"""Times √(Σ/d): the random walk's best scale on a normal target [Roberts, Gelman & Gilks 1997]."""


LOG_RANGE = np.log([1e-6, 1e6])
"""A scale stays within a factor of 1e6 of its start."""


def default_target_accept(d):
    """Best acceptance rate of a random walk: .44 in one dimension, else .234 [same]."""
    return 0.44 if d == 1 else 0.234


GOOD_GUESS = 10
"""First step t of a scale that starts from a good guess: early steps would throw it far away."""


class ScaleTuning(NamedTuple):
    """What tuning remembers of a scale.

    Attributes
    ----------
    target_accept : float
    bounds : (2,) float64
        Least and largest log scale.
    average : (2,) float64
        Sum and number of the log scales that are averaged.
    """

    target_accept: float
    bounds: np.ndarray
    average: np.ndarray

    @classmethod
    def start(cls, target_accept, log_scale, bounds=None):
        """Begin to tune a scale from `log_scale`, by default within a factor of 1e6 of it.

        `bounds` are logs of the user's. Returns the log scale (1,), moved within them, and this.
        """
        bounds = log_scale + LOG_RANGE if bounds is None else np.asarray(bounds, float)
        return np.clip([log_scale], *bounds), cls(target_accept, bounds, np.zeros(2))


@jit
def set_scale(log_scale, tuning, value):
    """Set log s, within bounds."""
    log_scale[0] = min(max(value, tuning.bounds[0]), tuning.bounds[1])


@jit
def tune_scale(log_scale, tuning, accept_prob, t):
    """Make step t of log s ← log s + (1+t)^-0.6 (α − α*), within bounds."""
    step = (1.0 + t) ** -0.6 * (accept_prob - tuning.target_accept)
    set_scale(log_scale, tuning, log_scale[0] + step)


@jit
def settle_scale(log_scale, tuning, t, start, stop):
    """Settle log s at its mean over transitions start..stop, which has less noise than the last.

    Called in each transition t while the scale is tuned; acts within start..stop.
    """
    start = min(start, stop - 1)
    if t == start:
        tuning.average[0] = tuning.average[1] = 0.0
    if t >= start:
        tuning.average[0] += log_scale[0]
        tuning.average[1] += 1.0
    if t == stop - 1:
        log_scale[0] = tuning.average[0] / tuning.average[1]


def coordinate_scales(logp, x, start=0.1, widest=1e6):
    """Guess the scale of each coordinate from the log-density around x.

    The scale of a coordinate is the step h at which the log-density, averaged over x ± h, has
    fallen by 1/2: its conditional standard deviation, exactly so for a normal target, wherever x
    lies. It is found by doubling or halving h, so that no point lies much farther out.

    Parameters
    ----------
    logp : callable
        Maps a point (d,) to a log-density; NaN counts as -inf.
    x : (d,) float64
        A point where it is finite.
    start, widest : float
        First h, and about the scale of a coordinate that the log-density does not depend on.

    Returns
    -------
    scales : (d,) float64
    """
    here = logp(x)

    def fall(k, h):
        total = 0.0
        for sign in (-1.0, 1.0):
            y = x.copy()
            y[k] += sign * h
            there = logp(y)
            total += (here - there) / 2 if there > -np.inf else np.inf
        return total

    scales = np.empty(x.size)
    for k in range(x.size):
        h = start
        drop = fall(k, h)
        too_small = drop < 0.5
        while (drop < 0.5) == too_small and 1 / widest < h < widest:
            h *= 2.0 if too_small else 0.5
            drop = fall(k, h)
        # The scale now lies between the last two h, and a normal target falls by h²/2σ².
        scales[k] = h * np.clip(np.sqrt(0.5 / drop), 0.5, 2.0) if 0 < drop < np.inf else h
    return scales
