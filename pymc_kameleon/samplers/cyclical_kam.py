"""CyclicalKAM: kernel adaptive Metropolis for several modes, in cycles.

Sources: Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", here [cKAM]; the mode jumps are in
the spirit of Pompe, Holmes & Łatuszyński, "A framework for adaptive MCMC targeting multimodal
distributions", Annals of Statistics 48 (2020). It builds on samplers/kam.py; the sampler as
published is in samplers/published_cyclical_kam.py.

Symbols, besides those of KAM: L the length of a cycle, β the share of it that explores, γ_hi the
widest γ there; K clusters of the past, cluster k with mean μ_k, covariance L_k L_kᵀ, weight w_k,
and responsibility r(k|x) ∝ w_k N(x; μ_k, L_k L_kᵀ); Σ the covariance of the whole past; T the
temperature at which tuning searches for modes.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import N_STATS, SCALING, Algorithm
from pymc_kameleon.core.history import History, record
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    argmax,
    copy,
    log_determinant,
    multiply_lower,
    solve_lower,
    squared_norm,
)
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.moments import Moments, update_mean_and_factor
from pymc_kameleon.core.rkhs import Kernel
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    set_scale,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.core.target import log_density
from pymc_kameleon.kernels import KNN, MEDIAN, bandwidth_rule
from pymc_kameleon.modes import (
    blended_factors,
    choose_evenly,
    find_modes,
    have_finite_width,
    median_distance_within,
    nearest_modes,
    neighbour_distance,
    shrunk_covariance,
)
from pymc_kameleon.options import checked_choice, checked_integer, checked_number
from pymc_kameleon.samplers import kam, published_cyclical_kam
from pymc_kameleon.samplers.kam import checked_settings
from pymc_kameleon.step import KameleonStep

CYCLE_LENGTH, BETA = 10, 0.3
"""L and β."""

WIDEST = 20.0
"""γ_hi over s, the scale of a whitened coordinate."""

JUMP_SHARE = 0.5
"""Of the moves of exploration, if there are two clusters."""
DIFFERENCE_SHARE, GLOBAL_SHARE = 0.6, 0.2
"""Of the other moves of exploration; the rest are KAM moves with a wide γ."""
LEARNING_JUMP_SHARE, LEARNING_DIFFERENCE_SHARE = 0.2, 0.2
"""Of the moves by which tuning learns the clusters; the rest are walks."""

MAX_MODES = 30
"""Clusters that are kept, the largest."""

WALKED, SEARCHED, LEARNED = 0.2, 0.55, 0.85
"""Ends of the phases of tuning, as shares of it; see `adapt`."""

MOST_SEARCHES = 50
"""More tuning than these need makes each search longer."""
COOLING = 0.6
"""Share of a search in which it cools down."""

NEAREST, FAR, FARTHEST, FAR_SHARE = 2.0, 32.0, 1024.0, 0.25
"""Kicks of the search, in standard deviations of the first mode: most from NEAREST to FAR."""

TINY = 1e-200
"""A kick that leads home."""

SEARCH_GAIN = 0.3
"""Step of the search's scale: it has to follow the temperature, and modes of other scales."""

# ---- state and parameters -----------------------------------------------------------------------


class State(NamedTuple):
    """What the next transition needs: as in KAM, and the place in the cycle.

    Attributes
    ----------
    position : (1,) int64
        Transitions since the cycle began.
    """

    x: np.ndarray
    u: np.ndarray
    logp: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    factor_scales: np.ndarray
    position: np.ndarray


class Clusters(NamedTuple):
    """The modes that were found.

    Attributes
    ----------
    n : (1,) int64
        K.
    log_weights : (MAX_MODES,) float64
        log w_k.
    means : (MAX_MODES, d) float64
        μ_k.
    factors : (MAX_MODES, d, d) float64
        L_k.
    """

    n: np.ndarray
    log_weights: np.ndarray
    means: np.ndarray
    factors: np.ndarray


class Parameters(NamedTuple):
    """What tuning decides: as in KAM, and for the moves between modes.

    Attributes
    ----------
    global_factor : (d, d) float64
        The factor of Σ.
    clusters : Clusters
    home : (d,) float64
        Where a kick starts.
    kick, temperature : (1,) float64
        Of the search; 0 and 1 at all other times.
    learning : (1,) bool
        Whether tuning is learning the clusters by walks and jumps.
    cycle_length, n_exploration : int
        L and ⌊βL⌋.
    """

    whitening: np.ndarray
    z: np.ndarray
    m: np.ndarray
    kernel: Kernel
    log_gamma: np.ndarray
    log_rho: np.ndarray
    nu0: np.ndarray
    global_factor: np.ndarray
    clusters: Clusters
    home: np.ndarray
    kick: np.ndarray
    temperature: np.ndarray
    learning: np.ndarray
    cycle_length: int
    n_exploration: int


class Tuning(NamedTuple):
    """What tuning remembers.

    Attributes
    ----------
    t : (1,) int64
    n : int
    n_walk, n_search, n_learning : int
        Ends of the phases; see `adapt`.
    search_length : int
        Transitions of one search for a mode.
    n_cooling : int
        … of which so many anneal.
    s : (1,) float64
        The scale of a whitened coordinate, when it has just been learned; else 0.
    gamma_scale, rho_scale : ScaleTuning
    moments : Moments
        Of the walk.
    history : History
        Rows of x and logp.
    negligible : float
        Log-densities that are so much lower are of no mode that matters.
    visits : (MAX_MODES,) float64
        Transitions in each cluster.
    home_logp : (1,) float64
        Log-density at home: where the last search ended that found a place that matters.
    log_walk, log_kick : (1,) float64
        Scale of the walk that found the first mode, and of this search's kick.
    whiten : bool
    log_nu_bounds : (2,) float64
    """

    t: np.ndarray
    n: int
    n_walk: int
    n_search: int
    n_learning: int
    search_length: int
    n_cooling: int
    s: np.ndarray
    gamma_scale: ScaleTuning
    rho_scale: ScaleTuning
    moments: Moments
    history: History
    negligible: float
    visits: np.ndarray
    home_logp: np.ndarray
    log_walk: np.ndarray
    log_kick: np.ndarray
    whiten: bool
    log_nu_bounds: np.ndarray


class Work(NamedTuple):
    """Scratch: that of KAM; responsibilities, a row of the history, and what the last move was."""

    y: np.ndarray
    u: np.ndarray
    xi: np.ndarray
    step: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    v: np.ndarray
    log_r: np.ndarray
    row: np.ndarray
    tunes: np.ndarray


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make the move that is due in the cycle.

    Each leaves π invariant. Their order is fixed, and their random choice does not depend on x, so
    the cycle leaves π invariant, too.
    """
    position = state.position[0]
    state.position[0] = (position + 1) % parameters.cycle_length
    move = choose_move(position, parameters, rng)
    work.tunes[0] = move in (LOCAL, WALK)
    gamma, nu = kam.scales(parameters)
    if move in (LOCAL, WIDE):
        if move == WIDE:
            gamma *= widening(position, parameters, state.x.size)
        return kam.move(target, state, parameters, work, rng, gamma, nu)
    log_hastings, temperature = 0.0, 1.0
    if move == JUMP:
        log_hastings = propose_jump(state, parameters, work, rng)
    elif move == DIFFERENCE:
        propose_difference(state, parameters, work, rng)
    elif move == GLOBAL:
        scale = OPTIMAL_SCALE / np.sqrt(state.x.size)
        add_normal(state.x, scale, parameters.global_factor, work, rng)
    elif move == KICK:
        temperature = np.inf
        add_normal(parameters.home, parameters.kick[0], parameters.whitening, work, rng)
    else:
        temperature = parameters.temperature[0]
        propose_walk(state, parameters, work, rng, gamma)
    return accept_or_stay(target, state, parameters, work, rng, log_hastings, temperature)


LOCAL, WIDE, JUMP, DIFFERENCE, GLOBAL, WALK, KICK = range(7)
"""Moves: KAM's, the same with a wide γ, those between modes; a walk, and a kick, while tuning."""


@jit
def choose_move(position, parameters, rng):
    """Return the move at this position of the cycle, or of the phase of tuning."""
    several = parameters.clusters.n[0] > 1
    if parameters.kick[0] > 0.0:
        return KICK
    if parameters.learning[0]:
        r = rng.random()
        if r < LEARNING_DIFFERENCE_SHARE:
            return DIFFERENCE
        return JUMP if several and r > 1.0 - LEARNING_JUMP_SHARE else WALK
    if parameters.m[0] == 0:
        return WALK
    if position >= parameters.n_exploration:
        return LOCAL
    r = rng.random()
    if several:
        if r < JUMP_SHARE:
            return JUMP
        r = (r - JUMP_SHARE) / (1.0 - JUMP_SHARE)
    if r < DIFFERENCE_SHARE:
        return DIFFERENCE
    return GLOBAL if r < DIFFERENCE_SHARE + GLOBAL_SHARE else WIDE


@jit
def widening(position, parameters, d):
    """Return the factor of γ that falls from γ_hi/γ to 1 over the exploration of a cycle."""
    left = 1.0 - position / max(parameters.n_exploration - 1, 1)
    return (WIDEST * np.sqrt(d) / (kam.EXPLORATION * OPTIMAL_SCALE)) ** left


@jit
def accept_or_stay(target, state, parameters, work, rng, log_hastings, temperature):
    """Accept work.y with min(1, (π(y)/π(x))^{1/T} exp(log_hastings)), or reject it."""
    logp_y = log_density(target, work.y)
    if logp_y == -np.inf:
        return 0.0, False
    log_ratio = (logp_y - state.logp[0]) / temperature + log_hastings
    if np.isnan(log_ratio):
        return 0.0, False
    accepted = log_uniform(rng) < log_ratio
    if accepted:
        copy(work.y, state.x)
        state.logp[0] = logp_y
        kam.derived(state, parameters, work)
    return np.exp(min(0.0, log_ratio)), accepted


@jit
def propose_walk(state, parameters, work, rng, gamma):
    """Propose y = x + √T γ C ξ, while there is no z.

    C is the factor of the cluster around x while those are learned: then, and with T ≠ 1, the walk
    does not leave π invariant.
    """
    factor = parameters.whitening
    if parameters.learning[0]:
        nearest = nearest_cluster(parameters.clusters, state.x, work.log_r, work.step)
        factor = parameters.clusters.factors[nearest]
    add_normal(state.x, np.sqrt(parameters.temperature[0]) * gamma, factor, work, rng)


@jit
def add_normal(x, scale, factor, work, rng):
    """Propose y = x + scale · factor ξ."""
    for i in range(x.size):
        work.xi[i] = scale * rng.standard_normal()
    multiply_lower(factor, work.xi, work.step)
    for i in range(x.size):
        work.y[i] = x[i] + work.step[i]


@jit
def nearest_cluster(clusters, x, log_r, scaled):
    """Return the cluster that is most responsible for x."""
    responsibilities(clusters, x, log_r, scaled)
    return argmax(log_r[: clusters.n[0]])


@jit
def propose_jump(state, parameters, work, rng):
    """Propose y = μ_j + L_j L_i⁻¹(x − μ_i), with i ~ r(·|x) and j ≠ i uniform.

    An involution on (x, i, j), with Jacobian |L_j|/|L_i|. Returns the log of
    r(j|y) |L_j| / (r(i|x) |L_i|).
    """
    clusters = parameters.clusters
    n = clusters.n[0]
    responsibilities(clusters, state.x, work.log_r, work.step)
    i = draw_index(work.log_r, n, rng)
    j = (i + 1 + int(rng.random() * (n - 1))) % n
    log_hastings = log_determinant(clusters.factors[j]) - log_determinant(clusters.factors[i])
    log_hastings -= work.log_r[i]
    for k in range(state.x.size):
        work.xi[k] = state.x[k] - clusters.means[i, k]
    solve_lower(clusters.factors[i], work.xi, work.xi)
    multiply_lower(clusters.factors[j], work.xi, work.y)
    for k in range(state.x.size):
        work.y[k] += clusters.means[j, k]
    responsibilities(clusters, work.y, work.log_r, work.step)
    return log_hastings + work.log_r[j]


@jit
def responsibilities(clusters, x, log_r, scaled):
    """Write log r(k|x) of all clusters."""
    n = clusters.n[0]
    largest = -np.inf
    for i in range(n):
        for k in range(x.size):
            scaled[k] = x[k] - clusters.means[i, k]
        factor = clusters.factors[i]
        solve_lower(factor, scaled, scaled)
        log_r[i] = clusters.log_weights[i] - 0.5 * squared_norm(scaled) - log_determinant(factor)
        largest = max(largest, log_r[i])
    total = 0.0
    for i in range(n):
        total += np.exp(log_r[i] - largest)
    for i in range(n):
        log_r[i] -= largest + np.log(total)


@jit
def draw_index(log_r, k, rng):
    """Draw from probabilities exp(log_r[:k])."""
    left = rng.random()
    for i in range(k - 1):
        left -= np.exp(log_r[i])
        if left < 0.0:
            return i
    return k - 1


@jit
def propose_difference(state, parameters, work, rng):
    """Propose y = x + B(C(z_a − z_b) + γCξ) with a ≠ b, or the same with C and B exchanged.

    B picks all coordinates or one, of x or of Cx. Symmetric, as a and b are exchangeable.
    """
    m, d = parameters.m[0], state.x.size
    gamma = np.exp(parameters.log_gamma[0])
    a = int(rng.random() * m)
    b = (a + 1 + int(rng.random() * (m - 1))) % m
    only = int(rng.random() * 3 * d)  # from d on one coordinate of Cx, from 2d on one of x
    for i in range(d):
        work.xi[i] = 0.0
        if only < d or only >= 2 * d or only == d + i:
            work.xi[i] = parameters.z[i, a] - parameters.z[i, b] + gamma * rng.standard_normal()
    multiply_lower(parameters.whitening, work.xi, work.step)
    for i in range(d):
        work.y[i] = state.x[i]
        if only < 2 * d or only == 2 * d + i:
            work.y[i] += work.step[i]


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune in four phases; before the last two, Python finds the modes and draws z (`learn`).

    Up to n_walk an adaptive random walk learns the shape of the mode where the chain begins. Up to
    n_search, kicks and annealing look for others. Up to n_learning walks, differences and jumps
    learn their means and covariances. At last the chain makes its cycles, and ρ is tuned.
    Returns whether C stayed as it was; it and z change in Python otherwise.
    """
    t, coordinates_changed = tuning.t[0], False
    parameters.kick[0] = 0.0
    if tuning.n_walk <= t < tuning.n_search:
        search(state, parameters, tuning, work, accept_prob)
    elif parameters.learning[0]:
        learn_clusters(state, parameters, tuning, work, accept_prob)
    elif parameters.m[0] > 0:
        tune_cycles(parameters, tuning, work, accept_prob)
    else:
        coordinates_changed = kam.tune_walk(state, parameters, tuning, work, accept_prob)
        if t == tuning.n_walk - 1:
            tuning.log_walk[0] = parameters.log_gamma[0]
            settle_home(state, parameters, tuning)
    if tuning.n_walk // 2 <= t < tuning.n_walk or tuning.n_search <= t < tuning.n_learning:
        archive(state, tuning, work)
    if (
        tuning.n_walk - 1 <= t < tuning.n_search - 1
        and (t + 1 - tuning.n_walk) % tuning.search_length == 0
    ):
        start_search(parameters, tuning, rng)
    tuning.t[0] = t + 1
    return not coordinates_changed


@jit
def learn_clusters(state, parameters, tuning, work, accept_prob):
    """Learn mean and covariance of the cluster where the chain is, and tune the walk."""
    t, clusters = tuning.t[0], parameters.clusters
    if work.tunes[0]:
        tune_scale(
            parameters.log_gamma, tuning.gamma_scale, accept_prob, GOOD_GUESS + t - tuning.n_search
        )
    i = nearest_cluster(clusters, state.x, work.log_r, work.step)
    tuning.visits[i] += 1.0
    eta = 1.0 / max(16.0 * state.x.size, tuning.visits[i] / 1.5)
    update_mean_and_factor(clusters.means[i], clusters.factors[i], state.x, eta, work.step)


@jit
def tune_cycles(parameters, tuning, work, accept_prob):
    """Tune ρ by KAM's moves; begin with a guess when z has just been drawn."""
    t = tuning.t[0]
    if tuning.s[0] > 0.0:
        kam.guess_scales(parameters, tuning, work, tuning.s[0])
        tuning.s[0] = 0.0
    elif work.tunes[0]:
        tune_scale(
            parameters.log_rho, tuning.rho_scale, accept_prob, GOOD_GUESS + t - tuning.n_learning
        )
    settle_scale(parameters.log_rho, tuning.rho_scale, t, kam.settling(tuning), tuning.n)


@jit
def archive(state, tuning, work):
    """Record x and its logp."""
    d = state.x.size
    copy(state.x, work.row)
    work.row[d] = state.logp[0]
    work.row[d + 1] = max(0, (tuning.t[0] - tuning.n_walk) // tuning.search_length + 1)
    record(tuning.history, work.row)


@jit
def search(state, parameters, tuning, work, accept_prob):
    """Anneal from the temperature of the kick down to 1, and stay there."""
    place = (tuning.t[0] - tuning.n_walk) % tuning.search_length
    if place > 0:
        log_gamma = parameters.log_gamma[0]
        log_gamma += SEARCH_GAIN * (accept_prob - tuning.gamma_scale.target_accept)
        set_scale(parameters.log_gamma, tuning.gamma_scale, log_gamma)
    cooled = (place + 1.0) / tuning.n_cooling * max(tuning.log_kick[0], np.log(FAR))
    parameters.temperature[0] = np.exp(2.0 * max(0.0, tuning.log_kick[0] - cooled))
    if place > (tuning.n_cooling + tuning.search_length) // 2:
        archive(state, tuning, work)
    if place == tuning.search_length - 1:
        parameters.log_gamma[0] = tuning.log_walk[0]
        settle_home(state, parameters, tuning)


@jit
def start_search(parameters, tuning, rng):
    """Draw the kick of the next transition."""
    low, high = np.log(NEAREST), np.log(FAR)
    if rng.random() < FAR_SHARE:
        low, high = high, np.log(FARTHEST)
    tuning.log_kick[0] = low + (high - low) * rng.random()
    parameters.kick[0] = np.exp(tuning.log_kick[0])


@jit
def settle_home(state, parameters, tuning):
    """Make x the home, or let the next kick lead there if the density of x is negligible."""
    if state.logp[0] > tuning.home_logp[0] - tuning.negligible:
        copy(state.x, parameters.home)
        tuning.home_logp[0] = state.logp[0]
    else:
        parameters.kick[0] = TINY


@jit(allocates=True)
def report(state, parameters, stats):
    """Report ν, the bandwidth, the number of modes, and the one where the chain is."""
    gamma, nu = kam.scales(parameters)
    k = parameters.clusters.n[0]
    stats[SCALING] = gamma if parameters.m[0] == 0 else nu
    stats[N_STATS] = parameters.kernel.bandwidth[0]
    stats[N_STATS + 1] = k
    log_r = np.zeros(max(k, 1))
    responsibilities(parameters.clusters, state.x, log_r, np.empty_like(state.x))
    stats[N_STATS + 2] = argmax(log_r)


# ---- the class ----------------------------------------------------------------------------------


class CyclicalKAM(KameleonStep):
    r"""Cyclical kernel adaptive Metropolis: KAM for posteriors with several modes.

    While tuning, the chain searches for modes. Afterwards every cycle of transitions first
    explores, with jumps between the modes found, and then moves locally, as :class:`KAM` does.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    variant : {"exact", "published"}, optional
        "exact" (default) leaves the posterior exactly invariant, and keeps every draw. "published"
        is the paper's algorithm, which is biased (docs/cyclical_kam.md): its Exploration is made
        within the draw that follows, and not recorded, and it never stops adapting.
    kernel : optional
        k: ``pk.kernels.Gaussian()`` (default), ``Matern()`` or ``Linear()``. The published variant
        needs a bandwidth that is a number; the paper's ``Matern(4, 2.0)`` is its default.
    n_subsample : int, optional
        m, the number of points of z: 25 d by default, within 50 and 1000; 50 if published.
    cycle_length : int, optional
        L, the paper's T/M, in transitions: 10, so that each draw of ten transitions has a whole
        cycle; 1000 if published.
    beta : float, optional
        β, the share of a cycle that explores: .3; .4 if published.
    nu : float, optional
        Published only: ν at the start of each cycle, :math:`2 \cdot 2.38/\sqrt d` by default.
    gamma : float or pk.Decay, optional
        Published only: γ_t over the Exploration of each cycle. The paper does not give it;
        ``pk.Decay(20, 10, 0.5)`` by default, with which chains change modes most often.
    learning_rate : float or pk.Decay, optional
        Published only: η_t of log ν over each Exploration, ``pk.Decay(1, 1, 0.75)`` by default,
        which is :math:`(1+t)^{-\varepsilon}` with the paper's ε = .75.
    redraw_decay : float, optional
        Published only: a of the probability :math:`(1+t)^{-a}` that z is redrawn; .2 by default.
    scale_bounds : (float, float), optional
        Exact only: least and largest ν of the local moves. By default within 1/1000 and 10 times
        its first guess.
    {common parameters}

    Notes
    -----
    A cycle of the exact variant, with everything fixed after tuning:

    * Of the first βL transitions half are jumps, if there are two modes or more: with i the mode of
      x, drawn by its responsibility r(i|x) under a mixture of normals, and j another one,
      :math:`y = \mu_j + L_j L_i^{-1}(x - \mu_i)` is accepted with
      :math:`\pi(y) r(j|y) |L_j| / (\pi(x) r(i|x) |L_i|)`. Of the others 60 % add a difference of
      two points of z to x, in all coordinates or in one, whitened or not; 20 % are walks with the
      covariance Σ of all modes; the rest are KAM moves with a γ that falls from 20 s to its own.
    * The rest of the cycle are KAM moves, whitened with the covariance within modes.

    Each move leaves the posterior invariant, and which is made does not depend on x. Cycles count
    transitions; they go on from draw to draw.

    Tuning: 20 % adaptive walk in the mode where the chain starts; 35 % searches, at most 50, each
    a kick of 2 to 32 standard deviations, every fourth time up to 1024, and an annealed walk back
    to the posterior; 30 % walks,
    differences and jumps that learn the modes found; 15 % tune ν. A chain knows only the modes
    that it found itself.

    ======================  ==========================================================
    Argument                Symbol of [cKAM]
    ======================  ==========================================================
    ``n_subsample``         m
    ``cycle_length``        T/M
    ``beta``                β
    ``nu``                  initial stepsize ν
    ``learning_rate``       η, with its power ε
    statistic ``scaling``   ν; published: ν_t at the end of the draw
    ======================  ==========================================================

    References
    ----------
    Li, Zeng & Guo. Cyclical kernel adaptive Metropolis.

    Pompe, Holmes & Łatuszyński (2020). A framework for adaptive MCMC targeting multimodal
    distributions. Annals of Statistics 48.
    """

    name = "cyclical_kam"
    own_stats = ("bandwidth", "n_modes", "mode")
    algorithm = Algorithm(transition, adapt, kam.derived, report)

    def __init__(
        self,
        vars=None,
        *,
        variant="exact",
        kernel=None,
        n_subsample=None,
        cycle_length=None,
        beta=None,
        nu=None,
        gamma=None,
        learning_rate=None,
        redraw_decay=None,
        scale_bounds=None,
        **common,
    ):
        checked_choice("variant", variant, ("exact", "published"))
        self.published = variant == "published"
        published_only = {
            "nu": nu,
            "gamma": gamma,
            "learning_rate": learning_rate,
            "redraw_decay": redraw_decay,
        }
        foreign = {"scale_bounds": scale_bounds} if self.published else published_only
        for name, value in foreign.items():
            if value is not None:
                raise ValueError(
                    f"{name} is an option of the other variant, not of variant={variant!r}."
                )
        if cycle_length is None:
            cycle_length = 1000 if self.published else CYCLE_LENGTH
        if beta is None:
            beta = 0.4 if self.published else BETA
        self.settings = checked_settings(kernel, n_subsample, gamma, True, scale_bounds) | {
            "variant": variant,
            "cycle_length": checked_integer("cycle_length", cycle_length, at_least=2),
            "beta": checked_number("beta", beta, 0, 1),
        }
        n_exploration = int(beta * cycle_length + 1e-9)  # .29 · 100 is 29
        if not 0 < n_exploration < cycle_length:
            raise ValueError(
                "beta * cycle_length must be at least 1, and less than cycle_length, not "
                f"{beta * cycle_length}."
            )
        self.settings["n_exploration"] = n_exploration
        if self.published:
            self.algorithm = published_cyclical_kam.PUBLISHED
            self.own_stats = ("bandwidth", "nu_exploration")
            self.settings |= published_cyclical_kam.checked_settings(
                kernel, n_subsample, **published_only
            )
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        d, settings = scales.size, self.settings
        if self.published:
            return published_cyclical_kam.allocate(d, settings, self.target_accept, n_tune)
        m = settings["n_subsample"] or min(max(25 * d, 50), 1000)
        log_gamma, gamma_scale = ScaleTuning.start(
            self.default_target_accept(d), np.log(OPTIMAL_SCALE / np.sqrt(d))
        )
        log_rho, rho_scale = ScaleTuning.start(
            self.target_accept, 0.0, np.log([kam.LEAST_RHO, kam.LARGEST_RHO])
        )
        n_walk = self._whole_draws(WALKED * n_tune)
        n_searching = int((SEARCHED - WALKED) * n_tune)
        search_length = max(least_search(d), n_searching // MOST_SEARCHES)
        search_length = self._whole_draws(search_length + self.steps_per_draw - 1)
        state = State(
            x=np.zeros(d),
            u=np.zeros(d),
            logp=np.zeros(1),
            covariance=np.zeros((d, d)),
            factor=np.zeros((d, d)),
            factor_scales=np.full(2, np.nan),
            position=np.zeros(1, np.int64),
        )
        parameters = Parameters(
            whitening=np.diag(scales),
            z=np.zeros((d, m)),
            m=np.zeros(1, np.int64),
            kernel=settings["kernel"].compiled(),
            log_gamma=log_gamma,
            log_rho=log_rho,
            nu0=np.ones(1),
            global_factor=np.diag(scales),
            clusters=Clusters(
                n=np.zeros(1, np.int64),
                log_weights=np.zeros(MAX_MODES),
                means=np.zeros((MAX_MODES, d)),
                factors=np.zeros((MAX_MODES, d, d)),
            ),
            home=np.zeros(d),
            kick=np.zeros(1),
            temperature=np.ones(1),
            learning=np.zeros(1, np.bool_),
            cycle_length=settings["cycle_length"],
            n_exploration=settings["n_exploration"],
        )
        tuning = Tuning(
            t=np.zeros(1, np.int64),
            n=n_tune,
            n_walk=n_walk,
            n_search=n_walk + n_searching // search_length * search_length,
            n_learning=self._whole_draws(LEARNED * n_tune),
            search_length=search_length,
            n_cooling=int(COOLING * search_length),
            s=np.zeros(1),
            gamma_scale=gamma_scale,
            rho_scale=rho_scale,
            moments=Moments.start(scales, n_walk),
            history=History.empty(max(2000, 8 * m), d + 2),
            negligible=10.0 + 3.0 * d,
            visits=np.zeros(MAX_MODES),
            home_logp=np.full(1, -np.inf),
            log_walk=np.zeros(1),
            log_kick=np.zeros(1),
            whiten=True,
            log_nu_bounds=settings["log_nu_bounds"],
        )
        work = Work(
            y=np.zeros(d),
            u=np.zeros(d),
            xi=np.zeros(d),
            step=np.zeros(d),
            covariance=np.zeros((d, d)),
            factor=np.zeros((d, d)),
            v=np.zeros((d + 1, m)),
            log_r=np.zeros(MAX_MODES),
            row=np.zeros(d + 2),
            tunes=np.zeros(1, np.bool_),
        )
        return state, parameters, tuning, work

    # ---- the modes, learned in Python -----------------------------------------------------------

    def _whole_draws(self, n):
        """Return the largest number of transitions up to `n` that make whole draws."""
        return int(n) // self.steps_per_draw * self.steps_per_draw

    def pauses(self):
        """Return the draws of tuning before which modes are found, and z is drawn."""
        if self.published:
            return ()
        n = self.tuning
        ends = (n.n_search, n.n_learning) if n.n_search < n.n_learning < n.n else ()
        return [end // self.steps_per_draw for end in ends]

    @classmethod
    def learn(cls, chains):
        """Find the modes, and draw z from them; later, again. Too few points leave a walk."""
        for chain in chains:
            chain._learn_alone()

    def _learn_alone(self):
        parameters, tuning = self.parameters, self.tuning
        others = self.log_density.point[self._d :].copy()

        def evaluate(x):
            return self.log_density(np.concatenate([x, others]))

        points, logps, runs = self._archived(evaluate if others.size else None)
        if len(points) >= 2 * self._d + 2 and not self._learn(points, logps, runs, evaluate):
            parameters.clusters.n[0] = parameters.m[0] = 0
        parameters.learning[0] = tuning.t[0] < tuning.n_learning and parameters.m[0] > 0
        tuning.history.counts[:] = 0, 1, 0

    def _archived(self, evaluate=None):
        """Return distinct points of the archive that are not negligible, their logp and runs.

        With `evaluate`, logp is computed anew, as other steps have moved other variables since.
        """
        history, d = self.tuning.history, self._d
        rows = history.points[: history.counts[0]]
        rows = rows[np.isfinite(rows).all(axis=1)]
        rows = rows[np.any(np.diff(rows, axis=0, prepend=np.nan) != 0, axis=1)]
        if evaluate:
            rows[:, d] = [evaluate(row[:d]) for row in rows]
        logps = rows[:, d]
        rows = rows[logps > logps.max(initial=-np.inf) - self.tuning.negligible]
        return rows[:, :d], rows[:, d], rows[:, d + 1]

    def _learn(self, points, logps, runs, evaluate):
        """Learn the clusters, unless they are known, and z; return whether that is possible.

        Nothing is caught while the modes are found: that evaluates the user's log-density.
        """
        parameters, modes = self.parameters, None
        if not have_finite_width(points, parameters.whitening):
            return False
        if parameters.clusters.n[0] == 0:
            modes = find_modes(points, logps, runs, evaluate, parameters.whitening)[:MAX_MODES]
            if not modes:
                return False
        try:
            if modes:
                self._guess_clusters([points[rows] for rows in modes])
            self._learn_kernel(points)
        except np.linalg.LinAlgError:  # rounding leaves a covariance that is not positive definite
            return False
        return True

    def _guess_clusters(self, modes):
        """Make a first guess of the clusters' moments from the points of each."""
        clusters, n = self.parameters.clusters, len(modes)
        sizes = np.array([len(points) for points in modes])
        clusters.n[0] = n
        clusters.log_weights[:n] = np.log(sizes / sizes.sum())
        clusters.means[:n] = [points.mean(axis=0) for points in modes]
        clusters.factors[:n] = blended_factors(modes)
        self.tuning.visits[:n] = sizes * self.tuning.history.counts[1]
        self.parameters.log_gamma[0] = np.log(OPTIMAL_SCALE / np.sqrt(self._d))

    def _learn_kernel(self, points):
        """Learn C from the clusters, Σ from all points; draw z evenly from the clusters."""
        parameters, clusters = self.parameters, self.parameters.clusters
        n = clusters.n[0]
        weights = self.tuning.visits[:n] / self.tuning.visits[:n].sum()
        factors = clusters.factors[:n]
        within = np.average(factors @ factors.transpose(0, 2, 1), axis=0, weights=weights)
        clusters.log_weights[:n] = np.log(weights)
        parameters.whitening[:] = np.linalg.cholesky(within)
        total = within if n == 1 else shrunk_covariance(points)
        parameters.global_factor[:] = np.linalg.cholesky(total)

        labels = nearest_modes(points, clusters.log_weights[:n], clusters.means[:n], factors)
        chosen = choose_evenly(labels, parameters.z.shape[1], self.rng)
        m = parameters.m[0] = len(chosen)
        z = np.linalg.solve(parameters.whitening, points[chosen].T)
        parameters.z[:, :m] = z
        median = median_distance_within(np.linalg.solve(parameters.whitening, points.T).T, labels)
        rule = bandwidth_rule(self.settings["kernel"])
        if rule == MEDIAN:
            parameters.kernel.bandwidth[0] = kam.BANDWIDTH_SHARE * median
        elif rule == KNN:
            neighbours = kam.n_neighbours(m, self._d)
            parameters.kernel.bandwidth[0] = neighbour_distance(z.T, neighbours) / np.sqrt(2)
        self.tuning.s[0] = median / np.sqrt(2 * self._d)

    # ---- warnings -------------------------------------------------------------------------------

    def _needed_tuning(self):
        """Return what five searches need."""
        return 0 if self.published else int(5 * least_search(self._d) / (SEARCHED - WALKED))

    def _tuned_scales(self):
        return [] if self.published else kam.tuned_scales(self)

    def _problems(self):
        if not self.published:
            return self._no_modes()
        length = self.settings["cycle_length"]
        if self.monitor.draws * self.steps_per_draw >= length - self.parameters.n_exploration:
            return []
        return [
            f"the draws are not even one cycle of {length} transitions, so there was a single "
            "Exploration. Draw more, or lower cycle_length."
        ]

    def _no_modes(self):
        if self.parameters.m[0] > 0 or self.tuning.n < self._needed_tuning():
            return []
        return [
            f"no mode could be learned, because there were fewer than {2 * self._d + 2} distinct "
            "points, or because the posterior has no finite width. So the chain is a plain random "
            "walk. Check the priors, tune longer, or start nearer to where the posterior is."
        ]


def least_search(d):
    """Return the transitions of the shortest search that finds a mode, and settles there."""
    return 60 + 36 * d
