"""CyclicalKAM as published, which does not leave the posterior exactly invariant.

Source: Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", algorithm 2, here [cKAM]. It builds
on kam.py.

Symbols, besides those of KAM: L = T/M the length of a cycle, β the share of it that explores, t the
transition within the cycle, γ_t the schedule of γ, ν_exp and x_exp where
Exploration ends, Σ = (γ/ν_exp)²I + S(x_exp), ν₀ = 2ν_exp/(cos βπ + 1).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.history import choose
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.core.schedules import Decay, decayed
from pymc_kameleon.core.shape import Shape
from pymc_kameleon.samplers.kameleon import kam
from pymc_kameleon.samplers.kameleon.kam import checked_cycle, checked_kernel_options
from pymc_kameleon.samplers.kameleon.kernels import Matern
from pymc_kameleon.samplers.kameleon.subsample import Subsample
from pymc_kameleon.samplers.random_walk.rwm import walk
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.initial_search import NoSearch
from pymc_kameleon.step.learned import Quantity
from pymc_kameleon.step.options import checked_schedule

# ---- state and parameters -----------------------------------------------------------------------


State = extended(
    "State",
    kam.State,
    position=integers(1),  # transitions of Sampling since the last Exploration
    nu=floats(2),  # ν_t of the last transition, and ν_exp
)


class Parameters(NamedTuple):
    """What the user decides, and z, which each Exploration draws from its own past."""

    subsample: Subsample  # without whitening
    gamma: Decay  # γ_t
    target_accept: float
    beta: float
    cycle_length: int  # L
    n_exploration: int  # ⌊βL⌋


class Tuning(NamedTuple):
    """What the driver asks for: the number of tuning transitions, which are cycles like others."""

    t: integers(1)
    n: int


class Work(NamedTuple):
    """Scratch: that of KAM; the past of an Exploration, and rows of it."""

    kam: kam.Work
    past: floats("n", "d")
    rows: integers("n")


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
    return walk(target, state, state.nu[0], state.local.factor, work.kam.walk, rng)


@jit
def explore(target, state, parameters, work, rng):
    """Make KAM moves with a past, γ_t and ν_t that begin anew; then write the factor of Σ.

    The paper's p_t is (1+t)^-0.2, its learning rate (1+t)^-ε with ε = 0.75.
    """
    subsample, local = parameters.subsample, state.local
    log_nu = np.log(2.0 * best_scale(state.x.size))
    subsample.m[0] = 0
    for t in range(parameters.n_exploration):
        copy(state.x, work.past[t])
        if t == 0 or rng.random() < (1.0 + t) ** -0.2:
            draw_subsample(subsample, work, t + 1, rng)
            kam.derived(state, parameters, work.kam)
        gamma, nu = decayed(parameters.gamma, t), np.exp(log_nu)
        accept_prob, _ = kam.move(target, state, subsample, work.kam, rng, gamma, nu)
        log_nu += (1.0 + t) ** -0.75 * (accept_prob - parameters.target_accept)
    state.nu[1] = np.exp(log_nu)
    kam.factorise(local.covariance, gamma / state.nu[1], 1.0, local.factor)
    local.scales[0] = 0.0


@jit
def draw_subsample(subsample, work, n, rng):
    """Draw z from the first n states of the past."""
    m = min(n, subsample.z.shape[1])
    for i in range(n):
        work.rows[i] = i
    choose(work.rows, n, m, rng)
    for i in range(m):
        copy(work.past[work.rows[i]], subsample.z[:, i])
    subsample.m[0] = m


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Do nothing: adaptation is part of every cycle, and never ends."""
    tuning.t[0] += 1


class Stats(NamedTuple):
    """What a draw tells besides."""

    bandwidth: floats(1)
    nu_exploration: floats(1)


@jit
def report(state, parameters, stats):
    """Report ν_t, the bandwidth, and ν_exp."""
    stats.bandwidth[0] = parameters.subsample.kernel.bandwidth[0]
    stats.nu_exploration[0] = state.nu[1]
    return state.nu[0]


# ---- the class ----------------------------------------------------------------------------------


class PublishedCyclicalKAM(KameleonStep):
    r"""Cyclical kernel adaptive Metropolis as in its paper, by Li, Zeng & Guo, which is biased.

    It is there for comparison: see docs/cyclical_kam.md. The Exploration of each cycle is made
    within the draw that follows, and not recorded, and adaptation never stops.

    Parameters
    ----------
    kernel : optional
        k, with a bandwidth that is a number; by default the paper's, which is
        ``pk.samplers.kernels.Matern(4, 2.0)``.
    n_subsample : int, optional
        m, the number of points of z; 50 by default.
    cycle_length : int, optional
        L, the paper's T/M, in transitions; 1000 by default.
    beta : float, optional
        β, the share of a cycle that explores; 0.4 by default.
    gamma : float or pk.samplers.Decay, optional
        γ_t over the Exploration of each cycle. The paper does not give it; with
        ``pk.samplers.Decay(20, 10, 0.5)``, the default, chains change modes most often.
    {common parameters}

    Notes
    -----
    ν is :math:`2 \cdot 2.38/\sqrt d` at the start of each cycle. The statistic ``scaling`` is ν_t
    at the end of the draw, ``nu_exploration`` is ν_exp. Nothing is derived from the position:
    Sampling needs x alone, and Exploration begins anew.

    Examples
    --------
    >>> with model:
    ...     dt = pm.sample(step=pk.baselines.PublishedCyclicalKAM())
    """

    name = "published_cyclical_kam"
    stats = Stats
    algorithm = Algorithm(transition, adapt, nothing_derived, report)

    def __init__(
        self,
        vars=None,
        *,
        kernel=None,
        n_subsample=50,
        cycle_length=1000,
        beta=0.4,
        gamma=None,
        **common,
    ):
        kernel = Matern(4, 2.0) if kernel is None else kernel
        gamma = Decay(20.0, 10.0, 0.5) if gamma is None else gamma
        self.settings = checked_kernel_options(kernel, n_subsample, whiten=False)
        self.settings |= checked_cycle(cycle_length, beta)
        self.settings |= {"gamma": checked_schedule("gamma", gamma)}
        if kernel.bandwidth == "median":
            raise ValueError(
                f"PublishedCyclicalKAM needs a kernel whose bandwidth is a number, not {kernel}."
            )
        super().__init__(vars, **common)

    initial_search = NoSearch

    def _allocate(self, scales, n_tune):
        d, settings = scales.size, self.settings
        n = settings["n_exploration"]
        sizes = {"d": d, "d + 1": d + 1, "m": settings["n_subsample"], "n": n}
        shape = allocate(Shape, sizes, factor=np.eye(d))
        kernel = settings["kernel"].compiled()
        parameters = allocate(
            Parameters,
            sizes,
            subsample=allocate(Subsample, sizes, shape=shape, kernel=kernel),
            target_accept=self.target_accept,
            n_exploration=n,
            **{name: settings[name] for name in ("gamma", "beta", "cycle_length")},
        )
        tuning = allocate(Tuning, sizes, n=n_tune)
        return allocate(State, sizes), parameters, tuning, allocate(Work, sizes)

    def _learned(self):
        nu = Quantity((), self.state.nu[1], "Scale ν at the end of the last Exploration.")
        return {"nu": nu, **kam.learned_points(self.parameters.subsample)}

    def _needed_tuning(self):
        return 0
