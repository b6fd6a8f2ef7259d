"""The scale and the shape of a proposal, learned together from a chain as it runs.

Source: Andrieu & Thoms, "A tutorial on adaptive MCMC", Statistics and Computing 18 (2008), here
[AT]. Any sampler whose proposal takes the shape of the target can learn it in this way.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy_matrix
from pymc_kameleon.core.moments import Moments, learn_moments, scale_step
from pymc_kameleon.core.scaling import ScaleTuning, gain, set_scale, tune_scale
from pymc_kameleon.core.schedules import UNSET


class Shape(NamedTuple):
    """What tuning decides: the proposal has the covariance s²Σ, with Σ = LLᵀ."""

    log_scale: floats(1)  # log s
    factor: floats("d", "d")  # L


class ShapeTuning(NamedTuple):
    """What tuning remembers of them."""

    scale: ScaleTuning
    moments: Moments  # μ and Σ
    log_best: float  # log of the best scale if Σ is the target's covariance

    @classmethod
    def start(cls, scales, n_tune, target_accept, best_scale, bounds=None, rate=UNSET):
        """Return a Shape and its ShapeTuning, of n_tune transitions; L is diag(scales) at first.

        s is tuned to `target_accept`. It begins at `best_scale`, and again with each new Σ, and
        stays within `bounds` of its log, by default within a factor of 1e6. `rate` is a user's, of
        Σ.
        """
        log_best = np.log(best_scale)
        log_scale, scale = ScaleTuning.start(target_accept, log_best, bounds)
        moments = Moments.start(scales, n_tune, rate)
        return Shape(log_scale, np.diag(scales)), cls(scale, moments, float(log_best))


@jit
def set_to_best(shape, tuning):
    """Set s to the best scale for a target with covariance Σ."""
    set_scale(shape.log_scale, tuning.scale, 0, tuning.log_best)


@jit
def tune_scale_of(shape, tuning, accept_prob, t):
    """Tune log s, by a recursion that begins anew with each new Σ."""
    eta = gain(scale_step(tuning.moments, t))
    tune_scale(shape.log_scale, tuning.scale, 0, accept_prob, eta)


@jit
def learn_shape(shape, tuning, x, accept_prob, t, v):
    """Learn Σ from x, the state after transition t, and tune log s [AT, algorithm 4].

    Until Σ is seeded, only s is tuned, with the scales of the coordinates. `v` (d,) is scratch.
    """
    tune_scale_of(shape, tuning, accept_prob, t)
    if learn_moments(tuning.moments, x, t, v):
        set_to_best(shape, tuning)
    copy_matrix(tuning.moments.factor, shape.factor)
