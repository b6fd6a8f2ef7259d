"""Barker's proposal: a random walk whose steps prefer, coordinate by coordinate, to go uphill.

Source: Livingstone & Zanella, "The Barker proposal: combining robustness and efficiency in
gradient-based MCMC", JRSS B 84 (2022), here [LZ]. Scale and covariance are learned as in GAM.

Symbols: x the position (d,), y the proposal, g the gradient of the log-density at x, L the factor
and s the scale of the proposal, u = Lᵀg and u′ the same at y, ξ ~ N(0, I), w the signed step.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, multiply_lower, multiply_lower_transposed
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.scaling import settle_scale
from pymc_kameleon.core.shape import ShapeTuning, learn_shape
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.gradient.mala import State, derived
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.one_scale import report_scale, tuned_scale
from pymc_kameleon.step.learned import learned_walk

BARKER_TARGET_ACCEPT = 0.57
"""About the best acceptance rate in many dimensions [LZ, section 6.1]."""


class Tuning(NamedTuple):
    """What tuning remembers: the transition t of n, and how the Shape is learned."""

    t: integers(1)
    n: int
    shape: ShapeTuning


class Work(NamedTuple):
    """Scratch: w, Lw, y, u′, and a vector for the moments."""

    w: floats("d")
    step: floats("d")
    y: floats("d")
    u: floats("d")
    v: floats("d")


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + Lw; w_i is ±sξ_i, and +sξ_i with probability 1/(1 + exp(−sξ_i u_i))."""
    scale, d = np.exp(parameters.log_scale[0]), state.x.size
    for i in range(d):
        w = scale * rng.standard_normal()
        work.w[i] = w if -np.log(rng.random()) > softplus(-w * state.u[i]) else -w
    multiply_lower(parameters.factor, work.w, work.step)
    for i in range(d):
        work.y[i] = state.x[i] + work.step[i]
    logp_y = log_density(target, work.y)
    log_hastings = -np.inf
    if logp_y > -np.inf:
        multiply_lower_transposed(parameters.factor, target.gradient, work.u)
        log_hastings = 0.0
        for i in range(d):
            log_hastings += softplus(-work.w[i] * state.u[i]) - softplus(work.w[i] * work.u[i])
    accept_prob, accepted = accept(target, state, work.y, logp_y, log_hastings, rng)
    if accepted:
        copy(work.u, state.u)
    return accept_prob, accepted


@jit
def softplus(a):
    """Log(1 + exp(a)), which is −log of the probability 1/(1 + exp(a))."""
    return max(a, 0.0) + np.log1p(np.exp(-abs(a)))


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ and s as GAM does; s settles at its mean over the second half of tuning."""
    t, n = tuning.t[0], tuning.n
    learn_shape(parameters, tuning.shape, state.x, accept_prob, t, work.v)
    settle_scale(parameters.log_scale, tuning.shape.scale, 0, t, n - n // 2, n)
    tuning.t[0] = t + 1


class Barker(LearnedShape):
    r"""Random walk with Barker's proposal, which the gradient turns uphill, and cannot mislead.

    .. math:: y = x + L w, \qquad w_i = \pm s\xi_i, \qquad
        P(w_i = s\xi_i) = \frac{1}{1 + \exp(-s\xi_i u_i)}, \quad u = L^\top \nabla\log\pi(x)

    The gradient decides on directions only, not on lengths, so that steep places, heavy tails and
    badly chosen scales do little harm. Where the posterior is well behaved :class:`.GadMALA` moves
    farther per gradient.

    Parameters
    ----------
    target_accept : float, optional
        Acceptance rate that s is tuned to; 0.57, about the best in many dimensions.
    {common parameters}

    Notes
    -----
    With u′ the same as u at y, y is accepted with

    .. math:: \min\Bigl(1, \frac{\pi(y)}{\pi(x)}
        \prod_i \frac{1 + \exp(-w_i u_i)}{1 + \exp(w_i u'_i)}\Bigr)

    [LZ, equation 17]. The statistic ``scaling`` is s. LLᵀ is the covariance of the past, learned
    as by :class:`.GAM`; a transition evaluates the log-density and its gradient once. Deviation:
    [LZ] learn the covariance by the recursion alone.

    References
    ----------
    Livingstone & Zanella (2022). The Barker proposal: combining robustness and efficiency in
    gradient-based MCMC. Journal of the Royal Statistical Society B 84.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.baselines.Barker())
    """

    name = "barker"
    derivatives = 1
    default_target_accept = staticmethod(lambda d: BARKER_TARGET_ACCEPT)
    algorithm = Algorithm(transition, adapt, derived, report_scale)
    _learned = learned_walk

    def _allocate(self, scales, n_tune):
        d = scales.size
        sizes, best = {"d": d}, 2.4 * d ** (-1 / 6)
        shape, tuning = ShapeTuning.start(scales, n_tune, self.target_accept, best)
        tuning = allocate(Tuning, sizes, n=n_tune, shape=tuning)
        return allocate(State, sizes), shape, tuning, allocate(Work, sizes)

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning.shape)
