"""Random-walk Metropolis: RWM with one scale, GAM with a learned covariance.

Sources: Andrieu & Thoms, "A tutorial on adaptive MCMC", Statistics and Computing 18 (2008),
here [AT]; Gelman, Roberts & Gilks (1996) for the scale 2.38/√d.

Symbols: x the position (d,), y the proposal, ξ ~ N(0, I), ν the scale of RWM, λ the scale and
Σ = LLᵀ the covariance of GAM, μ the mean that Σ is taken about, α the acceptance probability and
α* its target, t the transition, n the number of tuning transitions.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import SCALING, Kernel
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy_matrix, multiply_lower
from pymc_kameleon.core.metropolis import move_or_stay
from pymc_kameleon.core.moments import Moments, learn_moments, scale_step
from pymc_kameleon.core.scaling import (
    LOG_RANGE,
    OPTIMAL_SCALE,
    ScaleTuning,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.step import KameleonStep


class State(NamedTuple):
    """What the next transition needs: position (d,) and its log-density (1,)."""

    x: np.ndarray
    logp: np.ndarray


class Work(NamedTuple):
    """Scratch: the proposal y (d,), and a vector (d,)."""

    y: np.ndarray
    v: np.ndarray


@jit
def nothing_to_locate(state, parameters, work):
    """Do nothing: the state holds nothing that is derived from the position."""


@jit
def report_scale(parameters, stats):
    """Report the scale ν, or √λ."""
    stats[SCALING] = np.exp(parameters.log_scale[0])


# ---- RWM: y = x + νξ ----------------------------------------------------------------------------


class RWMParameters(NamedTuple):
    """What tuning decides: log ν (1,)."""

    log_scale: np.ndarray


class RWMTuning(NamedTuple):
    """What tuning remembers: the transition t (1,) of n, and the scale's averages."""

    t: np.ndarray
    n: int
    scale: ScaleTuning


@jit
def rwm_transition(target, state, parameters, work, rng):
    """Propose x + νξ."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * rng.standard_normal()
    return move_or_stay(target, state, work.y, rng)


@jit
def rwm_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune log ν to the target acceptance [AT, section 4.2.2]."""
    t = tuning.t[0]
    tune_scale(parameters.log_scale, tuning.scale, accept_prob, t)
    settle_scale(parameters.log_scale, tuning.scale, t, tuning.n // 2, tuning.n)
    tuning.t[0] = t + 1


class RWM(KameleonStep):
    r"""Random-walk Metropolis with one tuned scale.

    .. math:: y = x + \nu \xi, \qquad \xi \sim N(0, I)

    The baseline of the other samplers: it suits posteriors whose parameters have similar scales
    and hardly correlate. Otherwise prefer :class:`GAM`.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    steps_per_draw : int, optional
        Transitions per draw, max(10, d) by default: neighbouring states of a random walk hardly
        differ, and compiled transitions cost little. It multiplies the number of logp evaluations:
        where one takes milliseconds, ``steps_per_draw=1`` makes a draw cheap.
    target_accept : float, optional
        Acceptance rate that the scale is tuned to; .234, or .44 in one dimension, which are best
        for normal targets.
    model : pm.Model, optional
        Taken from the context by default.
    rng : int or numpy.random.Generator, optional
        Only for use outside ``pm.sample``, which gives each chain its own.
    initial_point : dict, optional
        Gives the shapes of the variables; ``model.initial_point()`` by default.
    compile_kwargs : dict, optional
        Passed to PyTensor. A mode that does not use numba makes the sampler slower.
    blocked : bool, optional
        Only True is possible: the variables are moved together.

    Raises
    ------
    ValueError
        For discrete variables, a model without continuous ones, or an impossible option.

    Notes
    -----
    log ν follows [AT]'s Robbins-Monro recursion with step size :math:`(1+t)^{-0.6}` and settles at
    its mean over the second half of tuning.
    """

    name = "rwm"
    scale_free = False
    kernel = Kernel(rwm_transition, rwm_adapt, nothing_to_locate, report_scale)

    def _allocate(self, scales, n_tune):
        d = scales.size
        log_scale = np.log(OPTIMAL_SCALE / np.sqrt(d))
        scale = ScaleTuning.start(self.target_accept, log_scale + LOG_RANGE)
        return (
            State(np.zeros(d), np.zeros(1)),
            RWMParameters(np.array([log_scale])),
            RWMTuning(np.zeros(1, np.int64), n_tune, scale),
            Work(np.zeros(d), np.zeros(d)),
        )


# ---- GAM: y = x + √λ L ξ ------------------------------------------------------------------------


class GAMParameters(NamedTuple):
    """What tuning decides: log √λ (1,) and the factor L (d, d)."""

    log_scale: np.ndarray
    factor: np.ndarray


class GAMTuning(NamedTuple):
    """What tuning remembers: the transition t (1,) of n, averages of the scale, μ and Σ."""

    t: np.ndarray
    n: int
    scale: ScaleTuning
    moments: Moments


@jit
def gam_transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ."""
    d = state.x.size
    for i in range(d):
        work.v[i] = rng.standard_normal()
    multiply_lower(parameters.factor, work.v, work.y)
    scale = np.exp(parameters.log_scale[0])
    for i in range(d):
        work.y[i] = state.x[i] + scale * work.y[i]
    return move_or_stay(target, state, work.y, rng)


@jit
def gam_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn Σ from the state after the move, and tune log λ [AT, algorithm 4].

    Until Σ is seeded, this is RWM with the scales of the coordinates.
    """
    t = tuning.t[0]
    step = scale_step(tuning.moments, t)
    tune_scale(parameters.log_scale, tuning.scale, accept_prob, step)
    if learn_moments(tuning.moments, state.x, t, work.v):
        parameters.log_scale[0] = np.log(OPTIMAL_SCALE / np.sqrt(state.x.size))
    copy_matrix(tuning.moments.factor, parameters.factor)
    settle_scale(parameters.log_scale, tuning.scale, t, tuning.n - tuning.n // 2, tuning.n)
    tuning.t[0] = t + 1


class GAM(KameleonStep):
    r"""Global adaptive Metropolis: a random walk with the posterior's own covariance.

    .. math:: y = x + \sqrt{\lambda}\, L \xi, \qquad \xi \sim N(0, I), \quad LL^\top = \Sigma

    Σ is learned from the chain and λ tuned to the acceptance rate. The first choice where the
    posterior is not strongly bent and has one mode.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    steps_per_draw : int, optional
        Transitions per draw, max(10, d) by default: neighbouring states of a random walk hardly
        differ, and compiled transitions cost little. It multiplies the number of logp evaluations:
        where one takes milliseconds, ``steps_per_draw=1`` makes a draw cheap.
    target_accept : float, optional
        Acceptance rate that the scale is tuned to; .234, or .44 in one dimension, which are best
        for normal targets.
    model : pm.Model, optional
        Taken from the context by default.
    rng : int or numpy.random.Generator, optional
        Only for use outside ``pm.sample``, which gives each chain its own.
    initial_point : dict, optional
        Gives the shapes of the variables; ``model.initial_point()`` by default.
    compile_kwargs : dict, optional
        Passed to PyTensor. A mode that does not use numba makes the sampler slower.
    blocked : bool, optional
        Only True is possible: the variables are moved together.

    Raises
    ------
    ValueError
        For discrete variables, a model without continuous ones, or an impossible option.

    Notes
    -----
    The statistic ``scaling`` is √λ. L starts from the scales of the coordinates, found by some ten
    evaluations each around the start; a first phase tunes λ alone. μ and Σ are seeded from the
    newest half of the past, at doubling times up to half of tuning, and λ then restarts from
    2.38²/d. In between and afterwards they follow [AT], algorithm 4,
    :math:`\mu \leftarrow \mu + \eta v`, :math:`\Sigma \leftarrow \Sigma + \eta(vv^\top - \Sigma)`
    with :math:`v = x - \mu` for the state after the move, on the factor L in O(d²).

    Deviations: [AT] leaves :math:`\eta` open, here it is :math:`1/\max(16d, t/3)`; and has no
    seeding, without which the way from a far start stays in Σ. See docs/random_walk.md.
    """

    name = "gam"
    kernel = Kernel(gam_transition, gam_adapt, nothing_to_locate, report_scale)

    def _allocate(self, scales, n_tune):
        d = scales.size
        log_scale = np.log(OPTIMAL_SCALE / np.sqrt(d))
        scale = ScaleTuning.start(self.target_accept, log_scale + LOG_RANGE)
        return (
            State(np.zeros(d), np.zeros(1)),
            GAMParameters(np.array([log_scale]), np.diag(scales)),
            GAMTuning(np.zeros(1, np.int64), n_tune, scale, Moments.start(scales, n_tune)),
            Work(np.zeros(d), np.zeros(d)),
        )
