"""CyclicalKAM as published, which does not leave the posterior exactly invariant.

Source: Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", algorithm 2, here [cKAM]. It builds
on samplers/kam.py.

Symbols, besides those of KAM: L = T/M the length of a cycle, β the share of it that explores, t the
transition within the cycle, η_t the learning rate, γ_t the schedule of γ, ν_exp and x_exp where
Exploration ends, Σ = (γ/ν_exp)²I + S(x_exp), ν₀ = 2ν_exp/(cos βπ + 1).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import N_STATS, SCALING, Algorithm, nothing_derived
from pymc_kameleon.core.history import choose
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, multiply_lower
from pymc_kameleon.core.metropolis import move_or_stay
from pymc_kameleon.core.rkhs import Kernel
from pymc_kameleon.core.scaling import OPTIMAL_SCALE
from pymc_kameleon.core.schedules import Decay, decayed
from pymc_kameleon.kernels import FIXED, Matern, bandwidth_rule
from pymc_kameleon.options import checked_number, checked_schedule
from pymc_kameleon.samplers import kam

GAMMA = Decay(20.0, 10.0, 0.5)
"""γ_t, which the paper does not give; of those tried, the one that changes modes most often."""

LEARNING_RATE = Decay(1.0, 1.0, 0.75)
"""η_t = (1+t)^-ε with the paper's ε."""

# ---- state and parameters -----------------------------------------------------------------------


class State(NamedTuple):
    """What the next transition needs: as in KAM, and the cycle.

    Attributes
    ----------
    position : (1,) int64
        Transitions of Sampling since the last Exploration.
    nu : (2,) float64
        ν_t of the last transition, and ν_exp.
    """

    x: np.ndarray
    u: np.ndarray
    logp: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    factor_scales: np.ndarray
    position: np.ndarray
    nu: np.ndarray


class Parameters(NamedTuple):
    """What the user decides, and z, which each Exploration draws from its own past.

    Attributes
    ----------
    whitening : (d, d) float64
        I: KAM's moves without whitening.
    z, m : as in KAM
    kernel : Kernel
    initial_nu : float
        ν at the start of each cycle.
    gamma, learning_rate : Decay
        γ_t and η_t.
    redraw_decay : float
        a of p_t = (1+t)^-a.
    target_accept, beta : float
    cycle_length, n_exploration : int
        L and ⌊βL⌋.
    """

    whitening: np.ndarray
    z: np.ndarray
    m: np.ndarray
    kernel: Kernel
    initial_nu: float
    gamma: Decay
    learning_rate: Decay
    redraw_decay: float
    target_accept: float
    beta: float
    cycle_length: int
    n_exploration: int


class Tuning(NamedTuple):
    """What the driver asks for: the number of tuning transitions, which are cycles like others."""

    t: np.ndarray
    n: int


class Work(NamedTuple):
    """Scratch: that of KAM; the past of an Exploration, and rows of it."""

    y: np.ndarray
    u: np.ndarray
    xi: np.ndarray
    step: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    v: np.ndarray
    past: np.ndarray
    rows: np.ndarray


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make a transition of Sampling; the first of a cycle makes its Exploration before."""
    position, n_exploration = state.position[0], parameters.n_exploration
    if position == 0:
        explore(target, state, parameters, work, rng)
    phase = np.pi * (n_exploration + position) / parameters.cycle_length
    nu0 = 2.0 * state.nu[1] / (np.cos(np.pi * parameters.beta) + 1.0)
    state.nu[0] = 0.5 * nu0 * (np.cos(phase) + 1.0)
    state.position[0] = (position + 1) % (parameters.cycle_length - n_exploration)
    for i in range(state.x.size):
        work.xi[i] = rng.standard_normal()
    multiply_lower(state.factor, work.xi, work.step)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + state.nu[0] * work.step[i]
    return move_or_stay(target, state, work.y, rng)


@jit
def explore(target, state, parameters, work, rng):
    """Make KAM moves with a past, γ_t and ν_t that begin anew; then write the factor of Σ."""
    log_nu = np.log(parameters.initial_nu)
    parameters.m[0] = 0
    for t in range(parameters.n_exploration):
        copy(state.x, work.past[t])
        if t == 0 or rng.random() < (1.0 + t) ** -parameters.redraw_decay:
            draw_subsample(parameters, work, t + 1, rng)
            kam.derived(state, parameters, work)
        gamma, nu = decayed(parameters.gamma, t), np.exp(log_nu)
        accept_prob, _ = kam.move(target, state, parameters, work, rng, gamma, nu)
        eta = decayed(parameters.learning_rate, t)
        log_nu += eta * (accept_prob - parameters.target_accept)
    state.nu[1] = np.exp(log_nu)
    kam.factorise(state.covariance, gamma / state.nu[1], 1.0, state.factor)
    state.factor_scales[0] = np.nan


@jit
def draw_subsample(parameters, work, n, rng):
    """Draw z from the first n states of the past."""
    m = min(n, parameters.z.shape[1])
    for i in range(n):
        work.rows[i] = i
    choose(work.rows, n, m, rng)
    for i in range(m):
        copy(work.past[work.rows[i]], parameters.z[:, i])
    parameters.m[0] = m


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Do nothing: adaptation is part of every cycle, and never ends."""
    tuning.t[0] += 1


@jit
def report(state, parameters, stats):
    """Report ν_t, the bandwidth, and ν_exp."""
    stats[SCALING] = state.nu[0]
    stats[N_STATS] = parameters.kernel.bandwidth[0]
    stats[N_STATS + 1] = state.nu[1]


PUBLISHED = Algorithm(transition, adapt, nothing_derived, report)
"""Nothing is derived: Sampling needs x alone, and Exploration begins anew."""


def checked_settings(kernel, n_subsample, nu, gamma, learning_rate, redraw_decay):
    """Return the options of this variant; raise a ValueError if one is impossible."""
    kernel = Matern(4, 2.0) if kernel is None else kernel
    if bandwidth_rule(kernel) != FIXED:
        raise ValueError(
            f"variant='published' needs a kernel with a number as bandwidth: {kernel}."
        )
    redraw_decay = 0.2 if redraw_decay is None else redraw_decay
    learning_rate = LEARNING_RATE if learning_rate is None else learning_rate
    return {
        "kernel": kernel,
        "n_subsample": n_subsample or 50,
        "nu": None if nu is None else checked_number("nu", nu, 0, np.inf),
        "gamma": checked_schedule("gamma", GAMMA if gamma is None else gamma),
        "learning_rate": checked_schedule("learning_rate", learning_rate),
        "redraw_decay": kam.checked_redraw_decay(redraw_decay),
    }


def allocate(d, settings, target_accept, n_tune):
    """Return fresh (state, parameters, tuning, work)."""
    m, n_exploration = settings["n_subsample"], settings["n_exploration"]
    nu = settings["nu"] or 2 * OPTIMAL_SCALE / np.sqrt(d)
    state = State(
        x=np.zeros(d),
        u=np.zeros(d),
        logp=np.zeros(1),
        covariance=np.zeros((d, d)),
        factor=np.zeros((d, d)),
        factor_scales=np.full(2, np.nan),
        position=np.zeros(1, np.int64),
        nu=np.full(2, nu),
    )
    parameters = Parameters(
        whitening=np.eye(d),
        z=np.zeros((d, m)),
        m=np.zeros(1, np.int64),
        kernel=settings["kernel"].compiled(),
        initial_nu=nu,
        gamma=settings["gamma"],
        learning_rate=settings["learning_rate"],
        redraw_decay=settings["redraw_decay"],
        target_accept=target_accept,
        beta=settings["beta"],
        cycle_length=settings["cycle_length"],
        n_exploration=n_exploration,
    )
    work = Work(
        y=np.zeros(d),
        u=np.zeros(d),
        xi=np.zeros(d),
        step=np.zeros(d),
        covariance=np.zeros((d, d)),
        factor=np.zeros((d, d)),
        v=np.zeros((d + 1, m)),
        past=np.zeros((n_exploration, d)),
        rows=np.zeros(n_exploration, np.int64),
    )
    return state, parameters, Tuning(np.zeros(1, np.int64), n_tune), work
