"""CyclicalKAM: kernel adaptive Metropolis for several modes, in cycles.

Source: Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", here [cKAM]. It builds on
kam.py and mode_moves.py; how modes are found is in mode_search.py, the
sampler as published in published_cyclical_kam.py.

Symbols, besides those of KAM and of the moves between modes: L the length of a cycle, β the share
of it that explores, γ_hi the widest γ there; Σ the covariance of the whole past.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import argmax, multiply_lower, solve_lower, squared_norm
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    best_scale,
    gain,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.samplers.kameleon import kam, mode_search
from pymc_kameleon.samplers.kameleon.learn_modes import learn_modes
from pymc_kameleon.samplers.kameleon.mode_moves import (
    ALL_DIFFERENCE,
    GLOBAL_WALK,
    JUMP,
    LOCAL_MOVE,
    MIRROR,
    WIDE_KAM,
    Clusters,
    Work,
    difference,
    jump,
    mirror,
    responsibilities,
    walk_step,
)
from pymc_kameleon.samplers.kameleon.mode_search import (
    Search,
    learning_move,
    learns,
    search_and_learn,
    search_move,
    searches,
)
from pymc_kameleon.samplers.kameleon.subsample import (
    Subsample,
    guess_gamma,
    least_points,
)
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.symmetries import most_maps
from pymc_kameleon.step.learned import (
    BIS,
    COORDINATE,
    PRODUCT,
    UNITS,
    Quantity,
    covariance,
    product,
)
from pymc_kameleon.step.monitor import STUCK_TRANSITIONS

WIDEST_GAMMA = 20.0
"""γ_hi over s, the scale of a whitened coordinate."""

JUMP_SHARE = 0.5
"""Share of jumps among the moves of exploration, if there are two clusters."""
MIRROR_SHARE = 0.3
"""Share of mirror images among the others, if there are symmetries."""
LEAST_SHARE = 0.04
"""Share that each of the five kinds of the rest keeps, whatever it is worth."""
PRIOR_MOVES = 5.0
"""Moves of average worth that are added to those of each kind."""


# ---- state and parameters -----------------------------------------------------------------------


State = extended(
    "State",
    kam.State,
    position=integers(1),  # transitions since the cycle began
    jumps=integers(2),  # since tuning has ended: how many there were, and how many were accepted
)


class Parameters(NamedTuple):
    """What tuning decides, and the cycle: L and ⌊βL⌋."""

    kam: kam.Parameters
    global_factor: floats("d", "d")  # of Σ
    clusters: Clusters
    maps: floats("maps", "d", "d")  # symmetries
    n_maps: integers(1)
    shares: floats(5)  # of the moves ALL_DIFFERENCE to WIDE_KAM among these
    cycle_length: int
    n_exploration: int


class Tuning(NamedTuple):
    """What tuning remembers."""

    t: integers(1)
    n: int
    search: Search
    nu: kam.NuTuning
    s: floats(1)  # the scale of a whitened coordinate, when z has just been drawn; else 0
    tried: floats(5)  # moves ALL_DIFFERENCE to WIDE_KAM of the last phase
    worth: floats(5)  # sums of α|δ|² of their steps δ, in units of Σ


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make the move that is due in the cycle; without modes, a step of a random walk.

    Each leaves π invariant. Their order is fixed, and their random choice does not depend on x, so
    the cycle leaves π invariant, too.
    """
    subsample = parameters.kam.subsample
    if subsample.m[0] == 0:
        return kam.transition(target, state, parameters.kam, work.kam, rng)
    position = state.position[0]
    state.position[0] = (position + 1) % parameters.cycle_length
    move = LOCAL_MOVE if position >= parameters.n_exploration else draw_move(parameters, rng)
    work.move[0] = move
    if move == JUMP:
        accept_prob, accepted = jump(target, state, parameters, work, rng)
        state.jumps[0] += 1
        state.jumps[1] += accepted
        return accept_prob, accepted
    if move == MIRROR:
        return mirror(target, state, parameters, work, rng)
    if move < GLOBAL_WALK:
        return difference(target, state, parameters, work, move, rng)
    if move == GLOBAL_WALK:
        scale = best_scale(state.x.size)
        return walk_step(target, state, parameters, scale, parameters.global_factor, work, rng)
    gamma, nu = kam.scales(parameters.kam)
    if move == WIDE_KAM:
        gamma *= widening(position, parameters, state.x.size)
    return kam.move(target, state, subsample, work.kam, rng, gamma, nu)


@jit
def draw_move(parameters, rng):
    """Draw a move of exploration."""
    r = rng.random()
    if parameters.clusters.n[0] > 1:
        if r < JUMP_SHARE:
            return JUMP
        r = (r - JUMP_SHARE) / (1.0 - JUMP_SHARE)
    if parameters.n_maps[0] > 0:
        if r < MIRROR_SHARE:
            return MIRROR
        r = (r - MIRROR_SHARE) / (1.0 - MIRROR_SHARE)
    move = ALL_DIFFERENCE
    while move < WIDE_KAM and r >= parameters.shares[move]:
        r -= parameters.shares[move]
        move += 1
    return move


@jit
def widening(position, parameters, d):
    """Return the factor of γ that falls from γ_hi/γ to 1 over the exploration of a cycle."""
    left = 1.0 - position / max(parameters.n_exploration - 1, 1)
    return (WIDEST_GAMMA * np.sqrt(d) / (kam.GAMMA_SHARE * OPTIMAL_SCALE)) ** left


@jit
def derived(state, parameters, work):
    """Compute what KAM derives."""
    kam.derived(state, parameters.kam, work.kam)


# ---- tuning -------------------------------------------------------------------------------------


@jit
def tuning_transition(target, state, parameters, tuning, work, rng):
    """Make the move that the phase of tuning takes: at last, those of the cycle."""
    search, t = tuning.search, tuning.t[0]
    if search.kick[0] > 0.0 or searches(search, t):
        return search_move(target, state, parameters, search, work, t, rng)
    if learns(parameters, search, t):
        return learning_move(target, state, parameters, work, rng)
    return transition(target, state, parameters, work, rng)


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Find and learn the modes; in the last phase tune ρ, or settle the walk that there is.

    At last the shares of the moves of exploration follow from what those of the last phase were
    worth.

    z, C and the bandwidth change in Python only.
    """
    t, n, start = tuning.t[0], tuning.n, tuning.search.learning_end
    subsample, scale = parameters.kam.subsample, tuning.nu.scale
    if subsample.m[0] > 0 and t >= start:
        tune_cycles(parameters.kam, tuning, work, accept_prob)
        if ALL_DIFFERENCE <= work.move[0] <= WIDE_KAM:
            appraise(parameters, tuning, work, accept_prob)
        if t == n - 1:
            share_exploration(parameters.shares, tuning)
        settle_scale(parameters.kam.log_rho, scale, 0, t, (start + n) // 2, n)
    else:
        search_and_learn(state, parameters, tuning.search, work, accept_prob, t, rng)
        walk = tuning.search.shape.scale
        settle_scale(subsample.shape.log_scale, walk, 0, t, (start + n) // 2, n)
    tuning.t[0] = t + 1
    if t == n - 1:
        state.jumps[:] = 0
    return True


@jit
def tune_cycles(parameters, tuning, work, accept_prob):
    """Tune ρ by KAM's moves; begin with a guess when z has just been drawn."""
    s = tuning.s[0]
    if s > 0.0:
        guess_gamma(parameters.subsample, kam.GAMMA_SHARE, s)
        kam.guess_nu(parameters, tuning.nu, work.kam, s)
        tuning.s[0] = 0.0
    elif work.move[0] == LOCAL_MOVE:
        eta = gain(GOOD_GUESS + tuning.t[0] - tuning.search.learning_end)
        tune_scale(parameters.log_rho, tuning.nu.scale, 0, accept_prob, eta)


@jit
def appraise(parameters, tuning, work, accept_prob):
    """Add what a move of exploration was worth: α|δ|², as Σ measures its step δ."""
    move, walk = work.move[0], work.kam.walk
    if move == WIDE_KAM:
        multiply_lower(parameters.kam.subsample.shape.factor, walk.step, walk.v)
        solve_lower(parameters.global_factor, walk.v, walk.v)
    else:
        solve_lower(parameters.global_factor, walk.step, walk.v)
    tuning.tried[move] += 1.0
    tuning.worth[move] += accept_prob * squared_norm(walk.v)


@jit
def share_exploration(shares, tuning):
    """Make each kind of moves of exploration as often as it was worth, but never give one up."""
    worth, tried, n = 0.0, 0.0, shares.size
    for k in range(n):
        worth += tuning.worth[k]
        tried += tuning.tried[k]
    if not 0.0 < worth < np.inf:
        return
    total = 0.0
    for k in range(n):
        prior = PRIOR_MOVES * worth / tried
        shares[k] = (tuning.worth[k] + prior) / (tuning.tried[k] + PRIOR_MOVES)
        total += shares[k]
    for k in range(n):
        shares[k] = LEAST_SHARE + (1.0 - n * LEAST_SHARE) * shares[k] / total


class Stats(NamedTuple):
    """What a draw tells besides."""

    bandwidth: floats(1)
    n_modes: floats(1)
    mode: floats(1)


@jit(allocates=True)
def report(state, parameters, stats):
    """Report ν, or the walk's γ; the bandwidth, the number of modes, and the one at x."""
    k = parameters.clusters.n[0]
    stats.n_modes[0] = k
    log_r = np.zeros(max(k, 1))
    responsibilities(parameters.clusters, state.x, log_r, np.empty_like(state.x))
    stats.mode[0] = argmax(log_r)
    return kam.report(state, parameters.kam, stats)


# ---- the class ----------------------------------------------------------------------------------


class CyclicalKAM(LearnedShape):
    r"""Cyclical kernel adaptive Metropolis: KAM for posteriors with several modes.

    While tuning, the chain searches for modes. Afterwards every cycle of transitions first
    explores, with jumps between the modes found, and then moves locally, as :class:`.KAM` does.

    Parameters
    ----------
    kernel : optional
        k: ``Gaussian()`` (default), ``Matern()`` or ``Linear()`` of ``pk.samplers.kernels``.
    n_subsample : int, optional
        m, the number of points of z: 25 d by default, at least 50 and at most 1000.
    cycle_length : int, optional
        L, the paper's T/M, in transitions: 10 by default, so that each draw of ten transitions has
        a whole cycle.
    beta : float, optional
        β, the share of a cycle that explores: 0.3 by default.
    scaling_bounds : (float, float), optional
        Least and largest ν of the local moves. By default within 1/1000 and 10 times its first
        guess.
    {common parameters}

    Notes
    -----
    Everything is fixed after tuning. In the first βL transitions of a cycle, half are jumps between
    modes, if there are two or more. The others are exchanges of labels or reversals of signs, if
    the posterior is symmetric under these, differences of two points of z, walks with the
    covariance of all modes, and KAM moves with a wide γ, with shares by the distance that each
    moved while tuning. The rest of the cycle are KAM moves, whitened with the covariance within
    modes. Each move leaves the posterior invariant, and which is made does not depend on x.

    Tuning searches for modes along rays, and by kicks and an annealed walk back. It then learns
    the modes found, and ν, the statistic ``scaling``. In ``pk.sample`` each chain gets the modes
    that any of them found. See docs/cyclical_kam.md.

    References
    ----------
    Li, Zeng & Guo. Cyclical kernel adaptive Metropolis.

    Pompe, Holmes & Łatuszyński (2020). A framework for adaptive MCMC targeting multimodal
    distributions. Annals of Statistics 48.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CyclicalKAM(), initvals=pk.initvals(4, how="prior"))
    ...     occupancy = pk.mode_occupancy(dt)
    """

    name = "cyclical_kam"
    learns = "both"
    stats = Stats
    proposal = staticmethod(kam.proposal)
    algorithm = Algorithm(transition, adapt, derived, report, tuning_transition)

    def __init__(
        self,
        vars=None,
        *,
        kernel=None,
        n_subsample=None,
        cycle_length=10,
        beta=0.3,
        scaling_bounds=None,
        **common,
    ):
        self.settings = kam.checked_kernel_options(kernel, n_subsample, None, True, scaling_bounds)
        self.settings |= kam.checked_cycle(cycle_length, beta)
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        settings, sizes = self.settings, kam.sizes_for(self, scales.size)
        shape, search = mode_search.start_search(self, scales, n_tune, sizes["m"])
        kernel = settings["kernel"].compiled()
        subsample = allocate(Subsample, sizes, shape=shape, kernel=kernel)
        parameters = allocate(
            Parameters,
            sizes | {"maps": most_maps(scales.size)},
            kam=allocate(kam.Parameters, sizes, subsample=subsample, nu0=1.0),
            global_factor=np.diag(scales),
            shares=0.2,
            cycle_length=settings["cycle_length"],
            n_exploration=settings["n_exploration"],
        )
        tuning = allocate(Tuning, sizes, n=n_tune, search=search, nu=kam.start_nu(self))
        return kam.allocate_state(State, sizes), parameters, tuning, allocate(Work, sizes)

    def _shape(self):
        return self.parameters.kam.subsample.shape, self.tuning.search.shape

    def pauses(self):
        """Return the draws of tuning before which modes are found, and z is drawn."""
        search, n = self.tuning.search, self.tuning.n
        ends = (search.search_end, search.learning_end)
        return [end // self.steps_per_draw for end in ends] if ends[0] < ends[1] < n else ()

    @classmethod
    def learn(cls, chains):
        """Find the modes, and draw z from them; later, again."""
        learn_modes(chains)

    def _learned(self):
        clusters, n = self.parameters.clusters, self.parameters.clusters.n[0]
        everywhere = covariance(self.parameters.global_factor, "Covariance of the whole past.")
        quantities = kam.learned(self.parameters.kam) | {
            "global_covariance": everywhere["covariance"],
            "n_modes": Quantity((), n, "Number of modes that the chain knows."),
        }
        if n == 0:
            return quantities
        weights, spread = np.exp(clusters.log_weights[:n]), product(clusters.factors[:n])
        each = ("mode", COORDINATE)
        return quantities | {
            "mode_weight": Quantity(("mode",), weights, "Weight of each mode; they sum to 1."),
            "mode_mean": Quantity(each, clusters.means[:n], "Mean of each mode.", UNITS),
            "mode_covariance": Quantity((*each, BIS), spread, "Covariance of each mode.", PRODUCT),
        }

    def _needed_tuning(self):
        searching = mode_search.SEARCH_END - mode_search.WALK_END
        return int(5 * mode_search.least_search(self._d) / searching)  # for five searches

    def _tuned_scales(self):
        tuning = self.tuning
        return kam.tuned_scales(self.parameters.kam, tuning.search.shape, tuning.nu)

    def _findings(self):
        if self.parameters.kam.subsample.m[0] > 0 or self.tuning.n < self._needed_tuning():
            return no_jump(self)
        return [finding("no_modes_learned", least=least_points(self._d))]


def no_jump(step):
    """Tell if jumps to other modes are made, and none is ever accepted."""
    tried, accepted = step.state.jumps
    if tried < STUCK_TRANSITIONS or accepted > 0:
        return []
    return [finding("no_jump", modes=step.parameters.clusters.n[0], tried=tried)]
