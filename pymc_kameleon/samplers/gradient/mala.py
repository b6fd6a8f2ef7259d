"""MALA: a Langevin proposal, or a few leapfrog steps, and the baseline with one scale.

Sources: Roberts & Tweedie, "Exponential convergence of Langevin distributions and their discrete
approximations", Bernoulli 2 (1996); Roberts & Rosenthal, JRSS B 60 (1998), here [RR], for the scale
1.65 d^-1/6 and the acceptance 0.574; Neal, "MCMC using Hamiltonian dynamics" (2010), for leapfrog.

Symbols: x the position (d,), y the proposal, g the gradient of the log-density at x and g′ at y,
L the factor and s the scale of the proposal, u = Lᵀg, ξ ~ N(0, I), h = ξ + ½su, K the largest
number of leapfrog steps and k that of a transition.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, bools, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.factor import diagonal_factor, multiply, multiply_transposed
from pymc_kameleon.core.jit import jit, python_or_jit
from pymc_kameleon.core.linalg import copy, squared_norm
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.one_scale import OneScale, tune_one_scale
from pymc_kameleon.step.learned import scale_of

MALA_TARGET_ACCEPT = 0.574
"""The best acceptance rate of one Langevin step in many dimensions [RR]."""

LARGEST_ENERGY_ERROR = 1000.0
"""Beyond it a trajectory diverges, as in PyMC's NUTS."""

N_STEPS, ENERGY, DIVERGING, N_TALLY = range(4)
"""Places in a tally: evaluations, the last energy, and how many trajectories diverged."""


@python_or_jit
def best_langevin_scale(d):
    """Return the best s on a normal target whose covariance is LLᵀ [RR]."""
    return 1.65 * d ** (-1.0 / 6.0)


class State(NamedTuple):
    """What the next transition needs: the position, its log-density and gradient, and u."""

    x: floats("d")
    logp: floats(1)
    gradient: floats("d")
    u: floats("d")


TrajectoryState = extended("TrajectoryState", State, tally=floats(N_TALLY))
"""The same, and what happened on the trajectories of a draw."""


class Parameters(NamedTuple):
    """What tuning decides; K is given."""

    log_scale: floats(1)  # log s
    factor: np.ndarray  # L, (d, d) or (d, 1): see core/factor.py
    n_leapfrog: int  # K


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition."""

    xi: floats("d")
    h: floats("d")  # the momentum half a step before the end
    step: floats("d")  # Lh, and then the momentum at the end, h + ½su′
    y: floats("d")
    uy: floats("d")  # u′ = Lᵀg′
    logp_y: floats(1)
    log_hastings: floats(1)  # of no meaning if logp_y is -inf


@jit(inlined=True)
def transition(target, state, parameters, work, rng):
    """Make k leapfrog steps of length s with momentum ξ, in the coordinates L⁻¹x.

    A single one proposes y = x + L(sh), and k is then not random.
    """
    n_steps = number_of_steps(parameters.n_leapfrog, rng)
    d, count = state.x.size, target.count[0]
    scale = np.exp(parameters.log_scale[0])
    for i in range(d):
        work.xi[i] = rng.standard_normal()
    for i in range(d):
        work.h[i] = work.xi[i] + 0.5 * scale * state.u[i]
        work.y[i] = state.x[i]
    logp_y = leapfrog(target, parameters.factor, scale, n_steps, work)
    for i in range(d):
        work.step[i] = work.h[i] + 0.5 * scale * work.uy[i]
    kinetic, kinetic_y = 0.5 * squared_norm(work.xi), 0.5 * squared_norm(work.step)
    energy, energy_y = kinetic - state.logp[0], kinetic_y - logp_y
    log_hastings = kinetic - kinetic_y
    work.logp_y[0], work.log_hastings[0] = logp_y, log_hastings
    accept_prob, accepted = accept(target, state, work.y, logp_y, log_hastings, rng)
    if accepted:
        copy(work.uy, state.u)
    state.tally[N_STEPS] += target.count[0] - count
    state.tally[ENERGY] = energy_y if accepted else energy
    if not energy_y - energy <= LARGEST_ENERGY_ERROR:  # nor if it is NaN
        state.tally[DIVERGING] += 1.0
    return accept_prob, accepted


@jit
def number_of_steps(largest, rng):
    """Draw k uniformly from ⌊K/2⌋ + 1 … K, whatever the state."""
    if largest == 1:
        return 1
    return largest // 2 + 1 + int(rng.random() * (largest - largest // 2))


@jit
def leapfrog(target, factor, scale, n_steps, work):
    """Move `work.y` along, and the momentum `work.h`; return the log-density, -inf outside."""
    d = work.y.size
    logp = -np.inf
    for step in range(n_steps):
        multiply(factor, work.h, work.step)
        for i in range(d):
            work.y[i] += scale * work.step[i]
        logp = log_density(target, work.y)
        if logp == -np.inf:
            break
        multiply_transposed(factor, target.gradient, work.uy)
        if step < n_steps - 1:
            for i in range(d):
                work.h[i] += scale * work.uy[i]
    return logp


@jit
def derived(state, parameters, work):
    """Compute u; g has to be finite."""
    if not squared_norm(state.gradient) < np.inf:
        state.logp[0] = -np.inf
    multiply_transposed(parameters.factor, state.gradient, state.u)


class Stats(NamedTuple):
    """What happened on the trajectories, as PyMC and ArviZ know it from NUTS."""

    step_size: floats(1)
    n_steps: integers(1)
    energy: floats(1)
    diverging: bools(1)


@jit
def report(state, parameters, stats):
    """Report s, and what happened on the trajectories."""
    scale = np.exp(parameters.log_scale[0])
    stats.step_size[0] = scale
    stats.n_steps[0] = state.tally[N_STEPS]
    stats.energy[0] = state.tally[ENERGY]
    stats.diverging[0] = state.tally[DIVERGING]
    return scale


def stat_name(step, field):
    """Return a statistic's name, after the sampler's if other steps may be like NUTS, too."""
    return field if step.layout.covers_all_continuous else f"{step.name}_{field}"


# ---- MALA: L = I --------------------------------------------------------------------------------


class MALA(OneScale):
    r"""Metropolis-adjusted Langevin algorithm with one scale.

    .. math:: y = x + \tfrac{1}{2} s^2 \nabla \log \pi(x) + s \xi, \qquad \xi \sim N(0, I)

    The baseline of :class:`.GadMALA`, which learns the scales and correlations of the variables:
    prefer that one unless they are all alike.

    Parameters
    ----------
    steps_per_draw : int, optional
        Transitions per draw, 1 by default. Each evaluates the log-density and its gradient once.
    target_accept : float, optional
        Acceptance rate that s is tuned to; 0.574, which is best for normal targets.
    {common parameters}

    Notes
    -----
    s is :math:`1.65\, d^{-1/6}` at first. log s follows a Robbins-Monro recursion with step size
    :math:`(1+t)^{-0.6}` and settles at its mean over the second half of tuning.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.baselines.MALA())
    """

    name = "mala"
    derivatives = 1
    default_target_accept = staticmethod(lambda d: MALA_TARGET_ACCEPT)
    default_steps_per_draw = staticmethod(lambda d: 1)
    stats = Stats
    algorithm = Algorithm(transition, tune_one_scale, derived, report)
    _stat_name = stat_name

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        log_scale, tuning = self._start(best_langevin_scale(scales.size), n_tune)
        factor = diagonal_factor(np.ones(scales.size), is_dense=False)
        parameters = Parameters(log_scale, factor, n_leapfrog=1)
        return allocate(TrajectoryState, sizes), parameters, tuning, allocate(Work, sizes)

    def _learned(self):
        return {"scaling": scale_of(self.parameters, "Length s of a step.")}

    def _needed_tuning(self):
        return min(100, super()._needed_tuning())
