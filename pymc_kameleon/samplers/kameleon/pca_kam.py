"""PCAKAM: KAM along the principal directions of the past, one direction at a time.

Source: [KAM], appendix C. It builds on kam.py.

Symbols, besides those of KAM: α_j the j-th leading unit eigenvector of HKH, K the kernel matrix of
z, λ_j its eigenvalue, ω_j ∝ λ_j the probability of direction j, w_j(u) = M H α_j the direction as
seen from u, ν_j = ρ_j ν₀_j its scale.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.conventions import EPS, ROOT_EPS, TINY
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import (
    copy,
    leading_eigenvectors,
    multiply_lower,
    solve_lower,
    squared_norm,
    sum_of,
)
from pymc_kameleon.core.metropolis import accept_capped, log_uniform
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    default_target_accept,
    gain,
    set_scale,
    settle_scale,
)
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon import kam
from pymc_kameleon.samplers.kameleon.rkhs import centred_gram, gradient_weights, squared_distances
from pymc_kameleon.samplers.kameleon.subsample import (
    N_CENTRES,
    Subsample,
    SubsampleTuning,
    draw,
    follow,
    settling,
)
from pymc_kameleon.samplers.random_walk import rwm as random_walk
from pymc_kameleon.step.learned import Quantity
from pymc_kameleon.step.options import checked_integer

PCA_GAMMA_SHARE = 0.6
"""γ as a share of the random walk's best scale: a direction moves one coordinate, γ all others."""

PCA_BANDWIDTH_SHARE = 1.0
"""σ as a share of the median distance: a wider kernel than KAM's has straighter directions."""

FIRST_REFRESH, REFRESH_SPACING = 100, 1.5
"""Transitions from the first z to the second, and the ratio of the times of later ones."""


# ---- state and parameters -----------------------------------------------------------------------


class Local(NamedTuple):
    """What is derived from the position; unused as long as there is no z."""

    u: floats("d")
    weights: floats("m")  # 2c(|u − z_i|), the weights of z as seen from u


class State(NamedTuple):
    """What the next transition needs."""

    x: floats("d")
    logp: floats(1)
    local: Local


class Parameters(NamedTuple):
    """What tuning decides: C, γ, z and its kernel, and the directions j."""

    subsample: Subsample
    directions: floats("k", "m")  # α_j in the first columns
    probabilities: floats("k")  # ω_j; 0 for directions that do not exist
    log_rho: floats("k")
    log_nu0: floats("k")


class Tuning(NamedTuple):
    """What tuning remembers: the transition t of n, and how z and each ρ_j are learned."""

    t: integers(1)
    n: int
    past: SubsampleTuning
    rho: ScaleTuning
    refresh: integers(1)  # transition in which z is drawn next
    counts: integers("k")  # times that each direction was tried


class Work(NamedTuple):
    """Scratch: the walk's; u and its weights at the proposal; w_j at both ends, and the last j."""

    walk: random_walk.Work
    u: floats("d")
    weights: floats("m")
    here: floats("d")
    there: floats("d")
    chosen: integers(1)


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Draw j ~ ω, propose u + γξ + ν_j w_j(u) ε, and accept with π(y) q_j(x|y) / (π(x) q_j(y|x)).

    That leaves π invariant: j is drawn independently of x, and given j detailed balance holds.
    Hopeless proposals are rejected early, as in KAM. Without a z, it is a step of a random walk.
    """
    subsample = parameters.subsample
    if subsample.m[0] == 0:
        return random_walk.transition(target, state, subsample.shape, work.walk, rng)
    local, step, y = state.local, work.walk.step, work.walk.y
    gamma = np.exp(subsample.shape.log_scale[0])
    j = draw_direction(parameters, rng)
    work.chosen[0] = j
    propose(parameters, local, j, gamma, work, rng)

    logp_y = log_density(target, y)
    nu = np.exp(log_nu(parameters, j))
    log_forward = log_normal(step, work.here, gamma, nu)
    bound = kam.log_reverse_bound(squared_norm(step), gamma, step.size)
    cap = logp_y - state.logp[0] + (bound - log_forward)
    log_u = log_uniform(rng)
    if log_u >= cap:
        return 0.0, False

    weigh(subsample, work.u, work.weights)
    look(subsample, parameters.directions[j], work.weights, work.u, work.there)
    log_hastings = log_normal(step, work.there, gamma, nu) - log_forward
    accept_prob, accepted = accept_capped(target, state, y, logp_y, log_hastings, log_u, cap)
    if accepted:
        copy(work.u, local.u)
        copy(work.weights, local.weights)
    return accept_prob, accepted


@jit
def propose(parameters, local, j, gamma, work, rng):
    """Write w_j(u), the step γξ + ν_j w_j(u) ε, and where it leads."""
    subsample, step = parameters.subsample, work.walk.step
    look(subsample, parameters.directions[j], local.weights, local.u, work.here)
    length = np.exp(log_nu(parameters, j)) * rng.standard_normal()
    for i in range(step.size):
        step[i] = gamma * rng.standard_normal() + length * work.here[i]
        work.u[i] = local.u[i] + step[i]
    multiply_lower(subsample.shape.factor, work.u, work.walk.y)


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
def log_nu(parameters, j):
    """Log ν_j."""
    return parameters.log_nu0[j] + parameters.log_rho[j]


@jit
def weigh(subsample, u, weights):
    """Write the weights of z as seen from u."""
    squared_distances(subsample.z, subsample.m[0], u, weights)
    gradient_weights(subsample.kernel, weights, subsample.m[0])


@fast_jit
def look(subsample, alpha, weights, u, direction):
    """Write w_j(u) = Σ_i 2c_i (z_i − u) α_ji; α_j sums to 0, so H changes nothing."""
    z = subsample.z
    for k in range(u.size):
        s = 0.0
        for i in range(subsample.m[0]):
            s += weights[i] * alpha[i] * (z[k, i] - u[k])
        direction[k] = s


@jit
def log_normal(step, direction, gamma, nu):
    """Log density of N(0, γ²I + ν²wwᵀ) at `step`, a rank-one change, without (2π)^(-d/2)."""
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
    """Compute u, and the weights of z, if there is one."""
    subsample, local = parameters.subsample, state.local
    if subsample.m[0] > 0:
        solve_lower(subsample.shape.factor, state.x, local.u)
        weigh(subsample, local.u, local.weights)


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn C, draw z and its directions; tune γ before, then ν_j; return whether C, z stayed."""
    subsample, is_new = parameters.subsample, False
    if subsample.m[0] > 0:
        tune_direction(parameters, tuning, work.chosen[0], accept_prob)
    follow(state.x, subsample, tuning, accept_prob, work.walk.v)
    if refresh_is_due(subsample, tuning):
        s = draw(subsample, tuning, work.u, rng)
        is_new = s > 0.0
        if is_new:
            find_directions(parameters)
            guess_nu(parameters, work, s)
    tuning.t[0] += 1
    return not is_new


@jit
def tune_direction(parameters, tuning, j, accept_prob):
    """Tune log ρ_j by its own count, and settle; what is below its bound is taken from γ."""
    log_rho, scale, t = parameters.log_rho, tuning.rho, tuning.t[0]
    eta = gain(GOOD_GUESS + tuning.counts[j])
    wanted = log_rho[j] + eta * (accept_prob - scale.target_accept)
    set_scale(log_rho, scale, j, wanted)
    if np.isnan(tuning.past.gamma):
        parameters.subsample.shape.log_scale[0] += min(0.0, wanted - log_rho[j])
    tuning.counts[j] += 1
    for i in range(log_rho.size):
        settle_scale(log_rho, scale, i, t, settling(tuning), tuning.n)


@jit
def refresh_is_due(subsample, tuning):
    """Whether to draw z: at first, at last, and at times that are spaced geometrically."""
    t, past, has_z = tuning.t[0], tuning.past, subsample.m[0] > 0
    if t < past.n_walk or past.n_learning <= t < tuning.n:
        return False
    if has_z and t != past.n_learning - 1 and t < tuning.refresh[0]:
        return False
    since_first = t - past.first[0] if has_z else 0
    tuning.refresh[0] = t + max(FIRST_REFRESH, int((REFRESH_SPACING - 1.0) * since_first))
    return True


@jit(allocates=True)
def find_directions(parameters):
    """Find the leading directions of z, and ω."""
    subsample, probabilities = parameters.subsample, parameters.probabilities
    m = subsample.m[0]
    gram = centred_gram(subsample.kernel.bandwidth[0], subsample.z, m)
    leading_eigenvectors(gram, parameters.directions, probabilities)
    floor = max(ROOT_EPS * probabilities[0], EPS * m * m)  # below, eigenvalues are rounding
    for j in range(probabilities.size):
        if j >= m or not probabilities[j] > floor:
            give_up(parameters, j)


@jit
def give_up(parameters, j):
    """Never choose direction j."""
    parameters.probabilities[j] = 0.0
    parameters.directions[j, :] = 0.0


@jit(allocates=True)
def guess_nu(parameters, work, s):
    """Set ν₀_j so that ν₀_j² times the mean of |w_j|² over points of z is (2.38 s)²; ρ_j stays."""
    subsample, probabilities = parameters.subsample, parameters.probabilities
    m, log_nu0 = subsample.m[0], parameters.log_nu0
    n = min(m, N_CENTRES)
    lengths2 = np.zeros(probabilities.size)
    for i in range(n):
        copy(subsample.z[:, i], work.u)
        weigh(subsample, work.u, work.weights)
        for j in range(lengths2.size):
            look(subsample, parameters.directions[j], work.weights, work.u, work.here)
            lengths2[j] += squared_norm(work.here) / n
    for j in range(lengths2.size):
        if lengths2[j] > TINY:  # else the bandwidth is far too small to see it
            log_nu0[j] = np.log(OPTIMAL_SCALE * s) - 0.5 * np.log(lengths2[j])
        else:
            give_up(parameters, j)
    total = sum_of(probabilities)
    if total > 0.0:
        for j in range(probabilities.size):
            probabilities[j] /= total


@jit
def report(state, parameters, stats):
    """Report the mean scale, Σ ω_j ν_j, or the walk's γ; and the bandwidth."""
    stats.bandwidth[0] = parameters.subsample.kernel.bandwidth[0]
    if parameters.subsample.m[0] == 0:
        return np.exp(parameters.subsample.shape.log_scale[0])
    scale = 0.0
    for j in range(parameters.probabilities.size):
        scale += parameters.probabilities[j] * np.exp(log_nu(parameters, j))
    return scale


# ---- the class ----------------------------------------------------------------------------------


class PCAKAM(kam.LearnedSubsample):
    r"""Kernel adaptive Metropolis along principal directions, "MCMC PCA-Kameleon".

    .. math:: y \sim N\bigl(x,\; C(\gamma^2 I + \nu_j^2 w_j w_j^\top)C^\top\bigr),
        \qquad w_j = M_u H \alpha_j, \quad j \sim \omega

    with α_j the leading eigenvectors of the centred kernel matrix of z, a subsample of the chain's
    past, by a Gaussian kernel, and the other symbols as for :class:`.KAM`. Its transitions cost
    O(m d), those of KAM O(m d²).

    Parameters
    ----------
    n_components : int, optional
        Number of directions, 10 by default.
    n_subsample : int, optional
        m, the number of points of z; 25 d by default, at least 50 and at most 200.
    gamma : float, optional
        γ, the exploration scale; as for :class:`.KAM`, but 0.6 of the best random walk's
        scale by default: it alone moves the coordinates across the direction drawn.
    whiten : bool, optional
        Work in coordinates C⁻¹x; as for :class:`.KAM`.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is :math:`\sum_j \omega_j \nu_j`. Tuning has the phases of
    :class:`.KAM`. ω_j is proportional to the eigenvalue; each ν_j is tuned by its own acceptance to
    ``target_accept``, 0.44 by default, as in one dimension. Where it is at its lower bound, and
    acceptance still too low, γ gives way, unless it was given.

    Deviation from Sejdinovic et al. (2014), appendix C: the proposal density in the acceptance
    ratio is that given the direction drawn. That of the mixture takes longer; see docs/kam.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.PCAKAM())
    """

    name = "pca_kam"
    stats = kam.Stats
    default_target_accept = staticmethod(lambda d: 0.44)
    algorithm = Algorithm(transition, adapt, derived, report)

    def __init__(
        self,
        vars=None,
        *,
        n_components=10,
        n_subsample=None,
        gamma=None,
        whiten=True,
        **common,
    ):
        self.settings = kam.checked_kernel_options(None, n_subsample, gamma, whiten)
        n_components = checked_integer("n_components", n_components, at_least=1)
        self.settings["n_components"] = n_components
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        d, settings = scales.size, self.settings
        m = settings["n_subsample"] or min(max(25 * d, 50), 200)
        sizes = {"d": d, "m": m, "k": settings["n_components"]}
        accept = min(self.target_accept, default_target_accept(d))  # of the walk
        shares = PCA_GAMMA_SHARE, PCA_BANDWIDTH_SHARE
        subsample, past = SubsampleTuning.start(settings, scales, n_tune, m, accept, *shares)
        bounds = np.log([1 / kam.LARGEST_RHO, kam.LARGEST_RHO])  # below, it adds nothing to γ
        _, rho = ScaleTuning.start(self.target_accept, np.zeros(sizes["k"]), bounds)
        return (
            allocate(State, sizes),
            allocate(Parameters, sizes, subsample=subsample),
            allocate(Tuning, sizes, n=n_tune, past=past, rho=rho),
            allocate(Work, sizes),
        )

    def _learned(self):
        parameters, subsample = self.parameters, self.parameters.subsample
        gamma, probabilities = np.exp(subsample.shape.log_scale[0]), parameters.probabilities
        quantities = kam.learned_subsample(subsample, gamma)
        if subsample.m[0] == 0:
            return quantities
        nu = np.exp(parameters.log_nu0 + parameters.log_rho)
        directions = parameters.directions[:, : subsample.m[0]]
        nus = "Scale ν of each direction; NaN for those that do not exist."
        weights = "Principal directions, as weights of the points: eigenvectors of their kernel."
        return quantities | {
            "nu": Quantity(("direction",), np.where(probabilities > 0, nu, np.nan), nus),
            "probability": Quantity(("direction",), probabilities, "Of choosing each direction."),
            "direction_weight": Quantity(("direction", "point"), directions, weights),
        }

    def _tuned_scales(self):
        subsample = self.parameters.subsample
        return kam.tuned_walk(subsample, self.tuning.past.shape) if subsample.m[0] == 0 else []

    def _findings(self):
        return list(filter(None, [kam.few_points(self, self.parameters.subsample)]))
