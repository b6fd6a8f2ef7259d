"""RAM: a random walk whose covariance follows the acceptance in each direction.

Source: Vihola, "Robust adaptive Metropolis algorithm with coerced acceptance rate", Statistics and
Computing 22 (2012), here [V]. Symbols: those of adaptive.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    copy_matrix,
    log_determinant,
    multiply_lower,
    rank_one_downdate,
    rank_one_update,
    squared_norm,
)
from pymc_kameleon.core.moments import multiply_factor
from pymc_kameleon.core.scaling import ScaleTuning, set_scale
from pymc_kameleon.core.shape import ShapeTuning, learn_shape
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.one_scale import report_scale, tuned_scale
from pymc_kameleon.samplers.random_walk.walk import State, Work, start_walk, transition
from pymc_kameleon.step.learned import learned_walk, proposal_of_walk
from pymc_kameleon.step.options import checked_scaling_bounds


class RAMTuning(NamedTuple):
    """What tuning remembers: GAM's for three quarters of n transitions, and the bounds of |L|."""

    t: integers(1)
    n: int
    walk: ShapeTuning
    scale: ScaleTuning


RAMWork = extended("RAMWork", Work, factor=floats("d", "d"))
"""Scratch: the walk's, and a factor."""


@jit
def ram_adapt(state, parameters, tuning, work, accept_prob, rng):
    """LLᵀ ← L(I + η(α − α*)ξξᵀ/|ξ|²)Lᵀ with η = min(1, d t^-2/3) [V, section 2].

    L is kept as a scale, which has bounds, and a factor of determinant 1. For three
    quarters of tuning this is GAM, which finds the posterior and its shape much sooner.
    """
    t, d = tuning.t[0], state.x.size
    tuning.t[0] = t + 1
    if t < tuning.n - tuning.n // 4:
        learn_shape(parameters, tuning.walk, state.x, accept_prob, t, work.v)
        return
    eta = min(1.0, d * (t + 1) ** (-2.0 / 3.0)) * (accept_prob - tuning.scale.target_accept)
    multiply_lower(parameters.factor, work.xi, work.v)
    length = (abs(eta) / squared_norm(work.xi)) ** 0.5
    for i in range(d):
        work.v[i] *= length
    copy_matrix(parameters.factor, work.factor)
    positive = True
    if eta >= 0.0:
        rank_one_update(work.factor, work.v)
    else:
        positive = rank_one_downdate(work.factor, work.v)
    if positive:
        copy_matrix(work.factor, parameters.factor)
    log_size = log_determinant(parameters.factor) / d
    multiply_factor(parameters.factor, np.exp(-log_size))
    set_scale(parameters.log_scale, tuning.scale, 0, parameters.log_scale[0] + log_size)


class RAM(LearnedShape):
    r"""Robust adaptive Metropolis: a random walk that learns its shape from the acceptance rate.

    .. math:: y = x + L\xi, \qquad \xi \sim N(0, I)

    The recursion needs no second moments, so it suits posteriors with heavy tails. Otherwise
    :class:`.GAM` learns faster.

    Parameters
    ----------
    scaling_bounds : (float, float), optional
        Least and largest :math:`|L|^{1/d}`, which is the statistic ``scaling`` in the last
        quarter of tuning and after it; by default within a factor of 1e6 of its start.
    {common parameters}

    Notes
    -----
    .. math:: LL^\top \leftarrow L\Bigl(I + \eta_t(\alpha - \alpha^*)
        \frac{\xi\xi^\top}{|\xi|^2}\Bigr)L^\top, \qquad \eta_t = \min(1, d\,t^{-2/3})

    by a rank-one update or downdate in O(d²), in the last quarter of tuning. Deviation: before, the
    sampler is :class:`.GAM`, without which a far start, or a posterior of high condition number, is
    learned too slowly.

    References
    ----------
    Vihola (2012). Robust adaptive Metropolis algorithm with coerced acceptance rate. Statistics
    and Computing 22.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.baselines.RAM())
    ...     dt = pk.sample(step=pk.baselines.RAM(region={"a": (-10, 10)}))  # the posterior in a box
    """

    name = "ram"
    algorithm = Algorithm(transition, ram_adapt, nothing_derived, report_scale)
    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, scaling_bounds=None, **common):
        self.settings = {"log_bounds": checked_scaling_bounds(scaling_bounds)}
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        shape, walk = start_walk(self, scales, n_tune)
        log_start = shape.log_scale[0] + np.log(scales).mean()
        _, scale = ScaleTuning.start(self.target_accept, log_start, self.settings["log_bounds"])
        tuning = allocate(RAMTuning, sizes, n=n_tune, walk=walk, scale=scale)
        return allocate(State, sizes), shape, tuning, allocate(RAMWork, sizes)

    def _shape(self):
        return self.parameters, self.tuning.walk

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning)
