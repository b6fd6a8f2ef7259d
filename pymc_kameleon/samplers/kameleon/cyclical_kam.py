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
from pymc_kameleon.core.history import History, record
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import argmax, copy
from pymc_kameleon.core.moments import update_mean_and_factor
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    best_scale,
    gain,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.core.shape import ShapeTuning, learn_shape
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.samplers.kameleon import kam
from pymc_kameleon.samplers.kameleon.learn_modes import learn_modes
from pymc_kameleon.samplers.kameleon.mode_moves import (
    GLOBAL_WALK,
    JUMP,
    LOCAL_MOVE,
    MIRROR,
    MOST_MODES,
    SINGLE_DIFFERENCE,
    WIDE_KAM,
    Clusters,
    Work,
    difference,
    jump,
    mirror,
    nearest_cluster,
    responsibilities,
    walk_step,
)
from pymc_kameleon.samplers.kameleon.mode_search import LookingForModes
from pymc_kameleon.samplers.kameleon.subsample import (
    Subsample,
    guess_gamma,
    least_points,
)
from pymc_kameleon.samplers.learned_shape import LearnedShape
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

WALK_END, LEARNING_END = 0.3, 0.85
"""Ends of the phases of tuning, as shares of it; see `adapt`."""

LEARNING_SHARE = 0.2
"""Share of jumps, and of differences, while tuning learns the clusters; the rest are walks."""

MOST_MAPS = 64
"""Symmetries that are kept, at most."""

WIDEST_GAMMA = 20.0
"""γ_hi over s, the scale of a whitened coordinate."""

JUMP_SHARE = 0.5
"""Share of jumps among the moves of exploration, if there are two clusters."""
MIRROR_SHARE = 0.3
"""Share of mirror images among the others, if there are symmetries. The rest are equally often."""

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
    cycle_length: int
    n_exploration: int


class Tuning(NamedTuple):
    """What tuning remembers."""

    t: integers(1)
    n: int
    walk_end: int  # the phases end at these transitions
    learning_end: int
    shape: ShapeTuning  # of the walk in the first mode; its scale is that of all walks
    history: History  # rows of x and logp
    visits: floats(MOST_MODES)  # transitions in each cluster
    floor: floats(1)  # log-density below which a state teaches nothing about the clusters
    rho: ScaleTuning
    s: floats(1)  # the scale of a whitened coordinate, when z has just been drawn; else 0
    row: floats("d + 1")  # scratch


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
    if parameters.clusters.n[0] > 1 and rng.random() < JUMP_SHARE:
        return JUMP
    if parameters.n_maps[0] > 0 and rng.random() < MIRROR_SHARE:
        return MIRROR
    return int(rng.random() * (WIDE_KAM + 1))


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
def learns(parameters, tuning):
    """Whether the clusters are learned by the transition that is due."""
    has_z = parameters.kam.subsample.m[0] > 0
    return has_z and tuning.walk_end <= tuning.t[0] < tuning.learning_end


@jit
def tuning_transition(target, state, parameters, tuning, work, rng):
    """Make the move that the phase of tuning takes: at last, those of the cycle."""
    if learns(parameters, tuning):
        return learning_move(target, state, parameters, work, rng)
    return transition(target, state, parameters, work, rng)


@jit
def learning_move(target, state, parameters, work, rng):
    """Make a difference, a jump, or a step of a walk with the covariance of the cluster at x."""
    clusters, r = parameters.clusters, rng.random()
    if r < LEARNING_SHARE:
        work.move[0] = int(rng.random() * (SINGLE_DIFFERENCE + 1))
        return difference(target, state, parameters, work, work.move[0], rng)
    if clusters.n[0] > 1 and r > 1.0 - LEARNING_SHARE:
        work.move[0] = JUMP
        return jump(target, state, parameters, work, rng)
    work.move[0] = LOCAL_MOVE
    nearest = nearest_cluster(clusters, state.x, work.log_r, work.kam.walk.v)
    scale = np.exp(parameters.kam.subsample.shape.log_scale[0])
    return walk_step(target, state, parameters, scale, clusters.factors[nearest], work, rng)


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn the modes; in the last phase tune ρ, or settle the walk that there is.

    Up to walk_end an adaptive random walk learns the shape of the mode where the chain begins. Then
    Python finds the modes (`learn_modes`), and up to learning_end walks, differences and jumps
    learn their means and covariances. Without modes the walk goes on.

    z, C and the bandwidth change in Python only.
    """
    t, n, start = tuning.t[0], tuning.n, tuning.learning_end
    subsample, walk = parameters.kam.subsample, tuning.shape
    if subsample.m[0] > 0 and t >= start:
        tune_cycles(parameters.kam, tuning, work, accept_prob)
        settle_scale(parameters.kam.log_rho, tuning.rho, 0, t, (start + n) // 2, n)
    else:
        if learns(parameters, tuning):
            learn_clusters(state, parameters, tuning, work, accept_prob)
        else:
            learn_shape(subsample.shape, walk, state.x, accept_prob, t, work.kam.walk.v)
        if tuning.walk_end // 2 <= t < start:
            archive(state, tuning)
        settle_scale(subsample.shape.log_scale, walk.scale, 0, t, (start + n) // 2, n)
    tuning.t[0] = t + 1
    if t == n - 1:
        state.jumps[:] = 0
    return True


@jit
def archive(state, tuning):
    """Record x and its logp."""
    copy(state.x, tuning.row)
    tuning.row[state.x.size] = state.logp[0]
    record(tuning.history, tuning.row)


@jit
def learn_clusters(state, parameters, tuning, work, accept_prob):
    """Learn mean and covariance of the cluster where the chain is, and tune the walk."""
    clusters, v = parameters.clusters, work.kam.walk.v
    if work.move[0] == LOCAL_MOVE:
        log_scale = parameters.kam.subsample.shape.log_scale
        eta = gain(GOOD_GUESS + tuning.t[0] - tuning.walk_end)
        tune_scale(log_scale, tuning.shape.scale, 0, accept_prob, eta)
    if state.logp[0] < tuning.floor[0]:
        return
    i = nearest_cluster(clusters, state.x, work.log_r, v)
    tuning.visits[i] += 1.0
    eta = 1.0 / max(16.0 * state.x.size, tuning.visits[i] / 1.5)
    update_mean_and_factor(clusters.means[i], clusters.factors[i], state.x, eta, v)


@jit
def tune_cycles(parameters, tuning, work, accept_prob):
    """Tune ρ by KAM's moves; begin with a guess when z has just been drawn."""
    s = tuning.s[0]
    if s > 0.0:
        guess_gamma(parameters.subsample, kam.GAMMA_SHARE, s)
        kam.guess_nu(parameters, work.kam, s)
        tuning.s[0] = 0.0
    elif work.move[0] == LOCAL_MOVE:
        eta = gain(GOOD_GUESS + tuning.t[0] - tuning.learning_end)
        tune_scale(parameters.log_rho, tuning.rho, 0, accept_prob, eta)


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
    {common parameters}

    Notes
    -----
    Everything is fixed after tuning. In the first βL transitions of a cycle, half are jumps between
    modes, if there are two or more. The others are exchanges of labels or reversals of signs, if
    the posterior is symmetric under these, differences of two points of z, walks with the
    covariance of all modes, and KAM moves with a wide γ. The rest of the cycle are KAM moves,
    whitened with the covariance within modes. Each move leaves the posterior invariant, and which
    is made does not depend on x.

    Besides the modes that any sampler looks for before its first draw, tuning searches for modes
    along rays. It then learns the modes found, and ν, the statistic ``scaling``. In ``pk.sample``
    each chain gets the modes that any of them found. Unlike the cycles of Li, Zeng & Guo, these are
    exact: see docs/cyclical_kam.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CyclicalKAM(), initvals=pk.initvals(4, how="prior"))
    ...     occupancy = pk.mode_occupancy(dt)
    """

    name = "cyclical_kam"
    learns = "both"
    stats = Stats
    initial_search = LookingForModes
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
        **common,
    ):
        self.settings = kam.checked_kernel_options(kernel, n_subsample)
        self.settings |= kam.checked_cycle(cycle_length, beta)
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        settings, sizes, d = self.settings, kam.sizes_for(self, scales.size), scales.size
        walk_end, learning_end = (
            int(end * n_tune) // self.steps_per_draw * self.steps_per_draw
            for end in (WALK_END, LEARNING_END)
        )
        accept = self.default_target_accept(d)
        shape, shape_tuning = ShapeTuning.start(scales, walk_end, accept, best_scale(d))
        kernel = settings["kernel"].compiled()
        subsample = allocate(Subsample, sizes, shape=shape, kernel=kernel)
        parameters = allocate(
            Parameters,
            sizes | {"maps": min(4 * d + 4, MOST_MAPS)},
            kam=allocate(kam.Parameters, sizes, subsample=subsample, nu0=1.0),
            global_factor=np.diag(scales),
            cycle_length=settings["cycle_length"],
            n_exploration=settings["n_exploration"],
        )
        tuning = allocate(
            Tuning,
            sizes,
            n=n_tune,
            walk_end=walk_end,
            learning_end=learning_end,
            shape=shape_tuning,
            history=History.empty(max(2000, 8 * sizes["m"]), d + 1),
            floor=-np.inf,
            rho=kam.start_rho(self),
        )
        return allocate(State, sizes), parameters, tuning, allocate(Work, sizes)

    def _shape(self):
        return self.parameters.kam.subsample.shape, self.tuning.shape

    def pauses(self):
        """Return the draws of tuning before which modes are found, and z is drawn."""
        ends, n = (self.tuning.walk_end, self.tuning.learning_end), self.tuning.n
        return [end // self.steps_per_draw for end in ends] if 0 < ends[0] < ends[1] < n else ()

    learn = staticmethod(learn_modes)

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
        return 1000 + 600 * self._d

    def _tuned_scales(self):
        return kam.tuned_scales(self.parameters.kam, self.tuning.shape, self.tuning.rho)

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
