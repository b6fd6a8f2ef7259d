"""MALA: a Langevin proposal, or a few leapfrog steps, and the baseline with one scale.

Sources: Roberts & Tweedie, "Exponential convergence of Langevin distributions and their discrete
approximations", Bernoulli 2 (1996); Roberts & Rosenthal, JRSS B 60 (1998), here [RR], for the scale
1.65 d^-1/6 and the acceptance .574; Neal, "MCMC using Hamiltonian dynamics" (2010), for leapfrog.

Symbols: x the position (d,), y the proposal, g the gradient of the log-density at x and g′ at y,
L the factor and s the scale of the proposal, u = Lᵀg, ξ ~ N(0, I), h = ξ + ½su, K the largest
number of leapfrog steps and k that of a transition.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import SCALING, Algorithm
from pymc_kameleon.core.factor import Factor, multiply, multiply_transposed
from pymc_kameleon.core.jit import jit, python_or_jit
from pymc_kameleon.core.linalg import copy, squared_norm
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.scaling import ScaleTuning
from pymc_kameleon.core.target import log_density
from pymc_kameleon.options import checked_scaling
from pymc_kameleon.samplers.random_walk import RWMTuning, rwm_adapt
from pymc_kameleon.step import KameleonStep

MALA_TARGET_ACCEPT = 0.574
"""The best acceptance rate of one Langevin step in many dimensions [RR]."""


@python_or_jit
def best_langevin_scale(d):
    """Return the best s on a normal target whose covariance is LLᵀ [RR]."""
    return 1.65 * d ** (-1.0 / 6.0)


class State(NamedTuple):
    """What the next transition needs: x (d,), its log-density (1,), `gradient` g (d,), u (d,)."""

    x: np.ndarray
    logp: np.ndarray
    gradient: np.ndarray
    u: np.ndarray

    @classmethod
    def empty(cls, d):
        """Allocate it."""
        return cls(np.zeros(d), np.zeros(1), np.zeros(d), np.zeros(d))


class Parameters(NamedTuple):
    """What tuning decides: log s (1,), L, K (1,), and whether it wants Hessian products (1,)."""

    log_scale: np.ndarray
    factor: Factor
    n_leapfrog: np.ndarray
    wants_hessian: np.ndarray


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition.

    Attributes
    ----------
    xi, h, y, uy, step : (d,) float64
        ξ, h, y, Lᵀg′, and Lh.
    old_gradient, gradient_y : (d,) float64
        g before the move, and g′.
    logp_y, log_ratio : (1,) float64
        Log-density at y; log of the Metropolis-Hastings ratio, -inf if anything is not finite.
    accepted : (1,) bool
    small : (2, m) float64
        Scratch of the factor.
    """

    xi: np.ndarray
    h: np.ndarray
    y: np.ndarray
    uy: np.ndarray
    step: np.ndarray
    old_gradient: np.ndarray
    gradient_y: np.ndarray
    logp_y: np.ndarray
    log_ratio: np.ndarray
    accepted: np.ndarray
    small: np.ndarray

    @classmethod
    def empty(cls, d, factor):
        """Allocate it."""
        vectors = np.zeros((7, d))
        scalars = np.zeros(1), np.zeros(1), np.zeros(1, bool)
        return cls(*vectors, *scalars, np.zeros((2, factor.basis.shape[0])))


@jit
def transition(target, state, parameters, work, rng):
    """Make k leapfrog steps of length s with momentum ξ, in the coordinates L⁻¹x.

    A single one proposes y = x + L(sh), and k is then not random.
    """
    d = state.x.size
    scale = np.exp(parameters.log_scale[0])
    n_steps = number_of_steps(parameters.n_leapfrog[0], rng)
    for i in range(d):
        work.xi[i] = rng.standard_normal()
    for i in range(d):
        work.h[i] = work.xi[i] + 0.5 * scale * state.u[i]
        work.y[i] = state.x[i]
    work.logp_y[0] = leapfrog(target, parameters.factor, scale, n_steps, work)
    log_ratio = -np.inf
    if work.logp_y[0] > -np.inf:
        for i in range(d):
            work.step[i] = work.h[i] + 0.5 * scale * work.uy[i]
        log_ratio = work.logp_y[0] - state.logp[0]
        log_ratio += 0.5 * (squared_norm(work.xi) - squared_norm(work.step))
        if not log_ratio > -np.inf:  # a gradient that is not finite
            log_ratio = -np.inf
    return accept_or_not(target, state, work, log_ratio, rng)


@jit
def number_of_steps(largest, rng):
    """Draw k uniformly from ⌊K/2⌋ + 1 … K, whatever the state."""
    if largest == 1:
        return 1
    return largest // 2 + 1 + int(rng.random() * (largest - largest // 2))


@jit
def leapfrog(target, factor, scale, n_steps, work):
    """Move `work.y` along; return its log-density, -inf if the way leaves the support.

    `work.h` is the momentum half a step before the end, `work.uy` is Lᵀg there.
    """
    d = work.y.size
    logp = -np.inf
    for step in range(n_steps):
        multiply(factor, work.h, work.step, work.small)
        for i in range(d):
            work.y[i] += scale * work.step[i]
        logp = log_density(target, work.y)
        if logp == -np.inf:
            break
        multiply_transposed(factor, target.gradient, work.uy, work.small)
        if step < n_steps - 1:
            for i in range(d):
                work.h[i] += scale * work.uy[i]
    return logp


@jit
def accept_or_not(target, state, work, log_ratio, rng):
    """Accept or reject `work.y`, where the target was evaluated last; remember both gradients."""
    accepted = log_uniform(rng) < log_ratio
    work.log_ratio[0], work.accepted[0] = log_ratio, accepted
    copy(state.gradient, work.old_gradient)
    copy(target.gradient, work.gradient_y)
    if accepted:
        copy(work.y, state.x)
        state.logp[0] = work.logp_y[0]
        copy(work.gradient_y, state.gradient)
        copy(work.uy, state.u)
    return np.exp(min(0.0, log_ratio)), accepted


@jit
def derived(state, parameters, work):
    """Compute u; g has to be finite."""
    if not squared_norm(state.gradient) < np.inf:
        state.logp[0] = -np.inf
    multiply_transposed(parameters.factor, state.gradient, state.u, work.small)


@jit
def report(state, parameters, stats):
    """Report the scale s."""
    stats[SCALING] = np.exp(parameters.log_scale[0])


# ---- MALA: L = I --------------------------------------------------------------------------------


class MALA(KameleonStep):
    r"""Metropolis-adjusted Langevin algorithm with one scale.

    .. math:: y = x + \tfrac{1}{2} s^2 \nabla \log \pi(x) + s \xi, \qquad \xi \sim N(0, I)

    The baseline of :class:`GadMALA`, which learns the scales and correlations of the variables:
    prefer that one unless they are all alike.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    scaling : float, optional
        s, to be kept fixed. By default it is tuned.
    scale_bounds : (float, float), optional
        Least and largest s; by default within a factor of 1e6 of :math:`1.65\, d^{-1/6}`, where it
        starts.
    steps_per_draw : int, optional
        Transitions per draw, 1 by default. Each evaluates the log-density and its gradient once.
    target_accept : float, optional
        Acceptance rate that s is tuned to; .574, which is best for normal targets.
    {common parameters}

    Notes
    -----
    log s follows a Robbins-Monro recursion with step size :math:`(1+t)^{-0.6}` and settles at its
    mean over the second half of tuning.

    References
    ----------
    Roberts & Rosenthal (1998). Optimal scaling of discrete approximations to Langevin diffusions.
    Journal of the Royal Statistical Society B 60.
    """

    name = "mala"
    scale_free = False
    derivatives = 1
    default_target_accept = staticmethod(lambda d: MALA_TARGET_ACCEPT)
    default_steps_per_draw = staticmethod(lambda d: 1)
    algorithm = Algorithm(transition, rwm_adapt, derived, report)

    def __init__(self, vars=None, *, scaling=None, scale_bounds=None, **common):
        self.settings = checked_scaling(scaling, scale_bounds)
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        d = scales.size
        log_scale, scale = ScaleTuning.start(
            self.target_accept, np.log(best_langevin_scale(d)), self.settings["scale_bounds"]
        )
        factor = Factor.diagonal(np.ones(d), rank=0)
        return (
            State.empty(d),
            Parameters(log_scale, factor, np.ones(1, np.int64), np.zeros(1, bool)),
            RWMTuning(np.zeros(1, np.int64), n_tune, scale),
            Work.empty(d, factor),
        )

    def _needed_tuning(self):
        return 0 if self.settings["fixed"] else 100

    def _tuned_scales(self):
        if self.settings["fixed"]:
            return []
        return [("The scale", self.parameters.log_scale[0], self.tuning.scale.bounds)]
