"""PCAKAM: KAM along the principal directions of the past, one direction at a time.

Source: Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive
Metropolis-Hastings", ICML 2014, appendix C, here [KAM]. It builds on samplers/kam.py.

Symbols, besides those of KAM: α_j the j-th leading unit eigenvector of HKH, K the kernel matrix of
z, λ_j its eigenvalue, ω_j ∝ λ_j the probability of direction j, w_j(u) = M H α_j the direction as
seen from u, ν_j = ρ_j ν₀_j its scale.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import N_STATS, SCALING, Algorithm
from pymc_kameleon.core.history import History, record
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import (
    copy,
    leading_eigenvectors,
    multiply_lower,
    solve_lower,
    squared_norm,
    sum_of,
)
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.moments import Moments, learn_moments
from pymc_kameleon.core.rkhs import Kernel, centred_gram, gradient_weights, squared_distances
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    default_target_accept,
)
from pymc_kameleon.core.schedules import UNSET, Decay
from pymc_kameleon.core.target import log_density
from pymc_kameleon.kernels import bandwidth_rule
from pymc_kameleon.options import checked_choice, checked_integer
from pymc_kameleon.samplers.kam import (
    LARGEST_RHO,
    N_CENTRES,
    checked_settings,
    follow_gamma,
    learn,
    log_reverse_bound,
    settling,
    too_few_points,
    tune_walk,
)
from pymc_kameleon.step import KameleonStep

EXPLORATION = 0.6
"""γ as a share of the random walk's best scale: a direction moves one coordinate, γ all others."""

BANDWIDTH_SHARE = 1.0
"""σ as a share of the median distance: a wider kernel than KAM's has straighter directions."""

LEAST_RHO = 0.1
"""Below, a direction adds nothing to γ."""

FIRST_REFRESH, SPACING = 100, 1.5
"""Transitions from the first z to the second, and the ratio of the times of later ones."""

TINY = 1e-200
"""|w|² of a direction that the kernel does not see, its bandwidth being far too small."""

NEGLIGIBLE, ROUNDING = 1e-8, 1e-13
"""Share of λ₁, and of m, below which an eigenvalue is rounding."""


# ---- state and parameters -----------------------------------------------------------------------


class State(NamedTuple):
    """What the next transition needs.

    Attributes
    ----------
    x, u : (d,) float64
        Position, and the same in whitened coordinates.
    logp : (1,) float64
    weights : (m,) float64
        2c(|u − z_i|), the weights of z as seen from u.
    """

    x: np.ndarray
    u: np.ndarray
    logp: np.ndarray
    weights: np.ndarray


class Parameters(NamedTuple):
    """What tuning decides.

    Attributes
    ----------
    whitening : (d, d) float64
        C.
    z : (d, n_subsample) float64
        The subsample in its first `m` columns, in random order.
    m : (1,) int64
        0 until the chain has a past to learn from: then y ~ N(x, γ²CCᵀ), a random walk.
    kernel : Kernel
    log_gamma : (1,) float64
    directions : (n_components, n_subsample) float64
        α_j in the first m columns.
    probabilities : (n_components,) float64
        ω_j; 0 for directions that do not exist.
    log_rho, log_nu0 : (n_components,) float64
    mixture : bool
        Whether the proposal density is that of the mixture over j.
    """

    whitening: np.ndarray
    z: np.ndarray
    m: np.ndarray
    kernel: Kernel
    log_gamma: np.ndarray
    directions: np.ndarray
    probabilities: np.ndarray
    log_rho: np.ndarray
    log_nu0: np.ndarray
    mixture: bool


class Tuning(NamedTuple):
    """What tuning remembers: as in KAM, and for each direction.

    Attributes
    ----------
    refresh : (1,) int64
        Transition in which z is drawn next.
    target_accept : float
    counts : (n_components,) int64
        Times that each direction was tried.
    averages : (n_components, 2) float64
        Sum and number of the log ρ_j that are averaged.
    """

    t: np.ndarray
    n: int
    n_walk: int
    n_learning: int
    first: np.ndarray
    refresh: np.ndarray
    gamma_scale: ScaleTuning
    moments: Moments
    history: History
    gamma: Decay
    bandwidth_rule: int
    bandwidth_share: float
    whiten: bool
    target_accept: float
    log_nu_bounds: np.ndarray
    counts: np.ndarray
    averages: np.ndarray


class Work(NamedTuple):
    """Scratch: the proposal, its weights, the step, directions at both ends, and the last j."""

    y: np.ndarray
    u: np.ndarray
    step: np.ndarray
    weights: np.ndarray
    here: np.ndarray
    there: np.ndarray
    chosen: np.ndarray


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Draw j ~ ω, propose u + γξ + ν_j w_j(u) ε, and accept with π(y) q(x|y) / (π(x) q(y|x)).

    q is q_j, the density given j, or that of the mixture over all j. Either leaves π invariant: j
    is drawn independently of x, and each q_j alone satisfies detailed balance. Hopeless
    proposals are rejected early, as in KAM.
    """
    d = state.x.size
    gamma = np.exp(parameters.log_gamma[0])
    j = draw_direction(parameters, rng)
    work.chosen[0] = j
    look(parameters, state.weights, state.u, j, work.here)
    length = np.exp(log_nu(parameters, j)) * rng.standard_normal()
    for i in range(d):
        work.step[i] = gamma * rng.standard_normal() + length * work.here[i]
        work.u[i] = state.u[i] + work.step[i]
    multiply_lower(parameters.whitening, work.u, work.y)

    logp_y = log_density(target, work.y)
    log_forward = log_proposal(parameters, state.weights, state.u, work.step, j, gamma, work.here)
    log_ratio = logp_y - state.logp[0] - log_forward
    cap = log_ratio + log_reverse_bound(squared_norm(work.step), gamma, d)
    log_u = log_uniform(rng)
    if log_u >= cap:
        return 0.0, False

    weigh(parameters, work.u, work.weights)
    look(parameters, work.weights, work.u, j, work.there)
    log_ratio += log_proposal(parameters, work.weights, work.u, work.step, j, gamma, work.there)
    if np.isnan(log_ratio):
        return 0.0, False
    accepted = log_u < log_ratio
    if accepted:
        copy(work.y, state.x)
        copy(work.u, state.u)
        copy(work.weights, state.weights)
        state.logp[0] = logp_y
    return np.exp(min(0.0, min(0.0, log_ratio) - min(0.0, cap))), accepted


@jit
def draw_direction(parameters, rng):
    """Draw j ~ ω."""
    left = rng.random()
    last = 0
    for j in range(parameters.probabilities.size):
        if parameters.probabilities[j] > 0.0:
            last = j
            left -= parameters.probabilities[j]
            if left < 0.0:
                break
    return last


@jit
def no_directions(parameters):
    """Whether the proposal is a plain random walk of scale γ."""
    most = 0.0
    for probability in parameters.probabilities:
        most = max(most, probability)
    return most == 0.0


@jit
def log_nu(parameters, j):
    """Log ν_j."""
    return parameters.log_nu0[j] + parameters.log_rho[j]


@jit
def weigh(parameters, u, weights):
    """Write the weights of z as seen from u."""
    squared_distances(parameters.z, parameters.m[0], u, weights)
    gradient_weights(parameters.kernel, weights, parameters.m[0])


@fast_jit
def look(parameters, weights, u, j, direction):
    """Write w_j(u) = Σ_i 2c_i (z_i − u) α_ji; α_j sums to 0, so H changes nothing."""
    z, alpha = parameters.z, parameters.directions[j]
    for k in range(u.size):
        s = 0.0
        for i in range(parameters.m[0]):
            s += weights[i] * alpha[i] * (z[k, i] - u[k])
        direction[k] = s


@jit
def log_proposal(parameters, weights, u, step, j, gamma, direction):
    """Log q of `step` from u, without the factor (2π)^(-d/2).

    `direction` is w_j(u); for the mixture it is overwritten.
    """
    if not parameters.mixture or no_directions(parameters):
        return log_normal(step, direction, gamma, np.exp(log_nu(parameters, j)))
    total = -np.inf
    for i in range(parameters.probabilities.size):
        if parameters.probabilities[i] > 0.0:
            look(parameters, weights, u, i, direction)
            log_q = log_normal(step, direction, gamma, np.exp(log_nu(parameters, i)))
            total = np.logaddexp(total, np.log(parameters.probabilities[i]) + log_q)
    return total


@jit
def log_normal(step, direction, gamma, nu):
    """Log density of N(0, γ²I + ν²wwᵀ) at `step`, likewise: a rank-one determinant and inverse."""
    d = step.size
    ratio = nu / gamma
    excess = ratio * ratio * squared_norm(direction)
    along = 0.0
    for k in range(d):
        along += step[k] * direction[k]
    along *= nu / gamma
    distance2 = (squared_norm(step) - along * along / (1.0 + excess)) / (gamma * gamma)
    return -0.5 * distance2 - d * np.log(gamma) - 0.5 * np.log1p(excess)


@jit
def derived(state, parameters, work):
    """Compute u and the weights of z from x."""
    solve_lower(parameters.whitening, state.x, state.u)
    weigh(parameters, state.u, state.weights)


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn C, draw z and its directions from the past; tune γ while there are none, ν_j then.

    Returns whether C, z and the bandwidth stayed as they were.
    """
    t = tuning.t[0]
    if parameters.m[0] == 0:
        coordinates_changed = tune_walk(state, parameters, tuning, work, accept_prob)
    else:
        tune_direction(parameters, tuning, work.chosen[0], accept_prob)
        learn_moments(tuning.moments, state.x, t, work.step)
        coordinates_changed = False
    if t < tuning.n_learning or t >= tuning.n:
        record(tuning.history, state.x)
        if refresh_is_due(parameters, tuning):
            s = learn(parameters, tuning, work, rng)
            if s > 0.0:
                learn_directions(parameters, tuning, work, s)
                coordinates_changed = True
    follow_gamma(parameters, tuning)
    tuning.t[0] = t + 1
    return not coordinates_changed


@jit
def tune_direction(parameters, tuning, j, accept_prob):
    """Robbins-Monro on log ρ_j, by its own count; it settles at its mean over the end.

    What would bring ν_j below its bound is taken from γ instead.
    """
    log_rho, sums, t = parameters.log_rho, tuning.averages, tuning.t[0]
    gain = (1.0 + GOOD_GUESS + tuning.counts[j]) ** -0.6
    wanted = log_rho[j] + gain * (accept_prob - tuning.target_accept)
    log_rho[j] = within(tuning, parameters, j, wanted)
    parameters.log_gamma[0] += min(0.0, wanted - log_rho[j])
    tuning.counts[j] += 1
    if settling(tuning) <= t < tuning.n:
        sums[j, 0] += log_rho[j]
        sums[j, 1] += 1.0
    if t == tuning.n - 1:
        for i in range(log_rho.size):
            if sums[i, 1] > 0.0:
                log_rho[i] = sums[i, 0] / sums[i, 1]


@jit
def within(tuning, parameters, j, log_rho):
    """Move log ρ_j within the bounds of ν_j."""
    low, high = log_nu_bounds(tuning, parameters, j)
    return min(max(log_rho, low - parameters.log_nu0[j]), high - parameters.log_nu0[j])


@jit
def log_nu_bounds(tuning, parameters, j):
    """Return the bounds of log ν_j: the user's, or about its first guess."""
    if np.isnan(tuning.log_nu_bounds[0]):
        log_nu0 = parameters.log_nu0[j]
        return log_nu0 + np.log(LEAST_RHO), log_nu0 + np.log(LARGEST_RHO)
    return tuning.log_nu_bounds[0], tuning.log_nu_bounds[1]


@jit
def refresh_is_due(parameters, tuning):
    """Whether to draw z: at first, at last, and at times that are spaced geometrically."""
    t = tuning.t[0]
    if t < tuning.n_walk:
        return False
    if parameters.m[0] > 0 and t != tuning.n_learning - 1 and t < tuning.refresh[0]:
        return False
    since_first = t - tuning.first[0] if parameters.m[0] > 0 else 0
    tuning.refresh[0] = t + max(FIRST_REFRESH, int((SPACING - 1.0) * since_first))
    return True


@jit(allocates=True)
def learn_directions(parameters, tuning, work, s):
    """Find the leading directions of z, set γ, and for each the ν₀_j of a walk in one dimension.

    ν₀_j² times the mean of |w_j|² over points of z is (2.38 s)². ρ_j stays, by rank.
    """
    m, d = parameters.m[0], work.u.size
    parameters.log_gamma[0] = np.log(EXPLORATION * OPTIMAL_SCALE * s / np.sqrt(d))
    gram = centred_gram(parameters.kernel, parameters.z, m)
    leading_eigenvectors(gram, parameters.directions, parameters.probabilities)
    floor = max(NEGLIGIBLE * parameters.probabilities[0], ROUNDING * m)
    for j in range(parameters.probabilities.size):
        if j >= m or not parameters.probabilities[j] > floor:
            parameters.probabilities[j] = 0.0
            parameters.directions[j, :] = 0.0
    n = min(m, N_CENTRES)
    lengths2 = np.zeros(parameters.probabilities.size)
    for i in range(n):
        copy(parameters.z[:, i], work.u)
        weigh(parameters, work.u, work.weights)
        for j in range(lengths2.size):
            look(parameters, work.weights, work.u, j, work.here)
            lengths2[j] += squared_norm(work.here) / n
    for j in range(lengths2.size):
        if lengths2[j] > TINY:
            parameters.log_nu0[j] = np.log(OPTIMAL_SCALE * s) - 0.5 * np.log(lengths2[j])
            parameters.log_rho[j] = within(tuning, parameters, j, parameters.log_rho[j])
        else:
            parameters.probabilities[j] = 0.0
            parameters.directions[j, :] = 0.0
    total = sum_of(parameters.probabilities)
    if total > 0.0:
        for j in range(lengths2.size):
            parameters.probabilities[j] /= total


@jit(allocates=True)
def report(state, parameters, stats):
    """Report the mean scale, Σ ω_j ν_j, and the bandwidth."""
    scale = np.exp(parameters.log_gamma[0])
    if not no_directions(parameters):
        scale = np.sum(parameters.probabilities * np.exp(parameters.log_nu0 + parameters.log_rho))
    stats[SCALING] = scale
    stats[N_STATS] = parameters.kernel.bandwidth[0]


# ---- the class ----------------------------------------------------------------------------------


class PCAKAM(KameleonStep):
    r"""Kernel adaptive Metropolis along principal directions, "MCMC PCA-Kameleon".

    .. math:: y \sim N\big(x,\; C(\gamma^2 I + \nu_j^2 w_j w_j^\top)C^\top\big),
        \qquad w_j = M_u H \alpha_j, \quad j \sim \omega

    with α_j the leading eigenvectors of the centred kernel matrix of z, a subsample of the chain's
    past, and the other symbols as for :class:`KAM`. Its transitions cost O(m d), those of KAM
    O(m d²).

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    n_components : int, optional
        Number of directions, 10 by default.
    acceptance : {"direction", "mixture"}, optional
        Whether the proposal density is that given the direction drawn (default), or that of the
        mixture over all of them, as in the paper. Both leave the posterior exactly invariant; the
        mixture costs `n_components` times as much.
    kernel : optional
        k: ``pk.kernels.Gaussian()`` (default), ``pk.kernels.Matern()`` or ``pk.kernels.Linear()``.
    n_subsample : int, optional
        m, the number of points of z; 25 d by default, at least 50 and at most 200.
    gamma : float or pk.Decay, optional
        γ, the exploration scale; as for :class:`KAM`, but .6 of the best random walk's
        scale by default: it alone moves the coordinates across the direction drawn.
    whiten : bool, optional
        Work in coordinates C⁻¹x; as for :class:`KAM`.
    scale_bounds : (float, float), optional
        Least and largest ν_j. By default within 1/10 and 10 times its first guess.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is :math:`\sum_j \omega_j \nu_j`. Tuning has the phases of
    :class:`KAM`. z and its directions are learned at times at least 1.5 times apart, since that
    takes an eigenvalue problem of size m, which is solved by subspace iteration. ω_j is
    proportional to the eigenvalue; each ν_j is tuned by its own acceptance, and carried over by
    rank. Where it is at its lower bound, and acceptance still too low, γ gives way, unless it was
    given. The default of ``target_accept`` is .44, as in one dimension, which is what ν_j moves.
    The walk before has that of :class:`GAM`.

    References
    ----------
    Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (2014). Kernel adaptive
    Metropolis-Hastings. ICML, appendix C.
    """

    name = "pca_kam"
    own_stats = ("bandwidth",)
    default_target_accept = staticmethod(lambda d: 0.44)
    algorithm = Algorithm(transition, adapt, derived, report)

    def __init__(
        self,
        vars=None,
        *,
        n_components=10,
        acceptance="direction",
        kernel=None,
        n_subsample=None,
        gamma=None,
        whiten=True,
        scale_bounds=None,
        **common,
    ):
        self.settings = checked_settings(kernel, n_subsample, gamma, whiten, scale_bounds)
        n_components = checked_integer("n_components", n_components, at_least=1)
        checked_choice("acceptance", acceptance, ("direction", "mixture"))
        self.settings |= {"n_components": n_components, "acceptance": acceptance}
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        d = scales.size
        settings = self.settings
        m = settings["n_subsample"] or min(max(25 * d, 50), 200)
        n_components = settings["n_components"]
        log_gamma, gamma_scale = ScaleTuning.start(
            default_target_accept(d), np.log(OPTIMAL_SCALE / np.sqrt(d))
        )
        state = State(x=np.zeros(d), u=np.zeros(d), logp=np.zeros(1), weights=np.zeros(m))
        parameters = Parameters(
            whitening=np.diag(scales) if settings["whiten"] else np.eye(d),
            z=np.zeros((d, m)),
            m=np.zeros(1, np.int64),
            kernel=settings["kernel"].compiled(),
            log_gamma=log_gamma,
            directions=np.zeros((n_components, m)),
            probabilities=np.zeros(n_components),
            log_rho=np.zeros(n_components),
            log_nu0=np.zeros(n_components),
            mixture=settings["acceptance"] == "mixture",
        )
        tuning = Tuning(
            t=np.zeros(1, np.int64),
            n=n_tune,
            n_walk=n_tune * (7 if settings["whiten"] else 1) // 10,
            n_learning=n_tune - n_tune * 3 // 20,
            first=np.zeros(1, np.int64),
            refresh=np.zeros(1, np.int64),
            gamma_scale=gamma_scale,
            moments=Moments.start(scales, n_tune),
            history=History.empty(max(2000, 8 * m), d),
            gamma=settings["gamma"] or UNSET,
            bandwidth_rule=bandwidth_rule(settings["kernel"]),
            bandwidth_share=BANDWIDTH_SHARE,
            whiten=settings["whiten"],
            target_accept=self.target_accept,
            log_nu_bounds=settings["log_nu_bounds"],
            counts=np.zeros(n_components, np.int64),
            averages=np.zeros((n_components, 2)),
        )
        work = Work(
            y=np.zeros(d),
            u=np.zeros(d),
            step=np.zeros(d),
            weights=np.zeros(m),
            here=np.zeros(d),
            there=np.zeros(d),
            chosen=np.zeros(1, np.int64),
        )
        return state, parameters, tuning, work

    def _tuned_scales(self):
        parameters, tuning = self.parameters, self.tuning
        if parameters.m[0] == 0:
            return [("The walk's γ", parameters.log_gamma[0], tuning.gamma_scale.bounds)]
        if np.isnan(tuning.log_nu_bounds[0]) or no_directions(parameters):
            return []
        bounds = log_nu_bounds(tuning, parameters, 0)
        return [("ν of the leading direction", log_nu(parameters, 0), bounds)]

    def _problems(self):
        if self.parameters.m[0] > 0 and no_directions(self.parameters):
            return [
                "the kernel finds no principal directions among the points of the past, so the "
                "sampler is a plain random walk. Its bandwidth is far too small, or far too wide."
            ]
        return too_few_points(self)
