"""KAM, kernel adaptive Metropolis ("MCMC Kameleon").

Source: Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive
Metropolis-Hastings", ICML 2014, here [KAM].

Symbols: x the position (d,), u = C⁻¹x the same in whitened coordinates, z = {z₁ … z_m} a subsample
of the chain's past in whitened coordinates, S(u) the kernel covariance of z seen from u, γ the
scale of exploration, ν = ρν₀ the scale of what was learned, R(u) = γ²I + ν²S(u) = LLᵀ the
covariance of the proposal, ξ ~ N(0, I), α the acceptance probability, t the transition, n the
number of tuning transitions.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.chain import N_STATS, SCALING, Algorithm
from pymc_kameleon.core.history import History, choose, distinct_rows, recent, record
from pymc_kameleon.core.jit import jit, python_or_jit
from pymc_kameleon.core.linalg import (
    cholesky,
    copy,
    copy_matrix,
    log_determinant,
    multiply_lower,
    solve_lower,
    squared_norm,
)
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.moments import Moments, learn_moments, scale_step
from pymc_kameleon.core.rkhs import (
    Kernel,
    kernel_covariance,
    median_distance,
    neighbour_distance,
)
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    set_scale,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.core.schedules import UNSET, Decay, decayed
from pymc_kameleon.core.target import log_density
from pymc_kameleon.kernels import KNN, MEDIAN, Gaussian, Linear, Matern, bandwidth_rule
from pymc_kameleon.options import (
    checked_bool,
    checked_integer,
    checked_number,
    checked_scale_bounds,
    checked_schedule,
)
from pymc_kameleon.step import KameleonStep

EXPLORATION = 0.25
"""γ as a share of the random walk's best scale: small against what is learned, but not zero."""

BANDWIDTH_SHARE = 0.5
"""σ as a share of the median distance, with which KAM does best (docs/kam.md)."""

LEAST_RHO, LARGEST_RHO = 1e-3, 10.0
"""Where S vanishes, as far from z, ν has no effect; it must not run away there."""

NU = "ν (which has no effect if the bandwidth is too small, and too much if γ is too wide)"
"""How a warning calls it."""

N_PAIRS = 2000
"""Pairs of points from which a median distance is estimated, to some 2 %."""
N_CENTRES = 50
"""Points of z at which tr S is averaged."""


# ---- state and parameters -----------------------------------------------------------------------


class State(NamedTuple):
    """What the next transition needs.

    Attributes
    ----------
    x, u : (d,) float64
        Position, and the same in whitened coordinates.
    logp : (1,) float64
    covariance : (d, d) float64
        S(u).
    factor : (d, d) float64
        L, the factor of R(u) = γ²I + ν²S(u) …
    factor_scales : (2,) float64
        … for these γ and ν; NaN if there is none yet.
    """

    x: np.ndarray
    u: np.ndarray
    logp: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    factor_scales: np.ndarray


class Parameters(NamedTuple):
    """What tuning decides.

    Attributes
    ----------
    whitening : (d, d) float64
        C.
    z : (d, n_subsample) float64
        The subsample in its first `m` columns, in random order.
    m : (1,) int64
        0 until the chain has a past to learn from: then R = γ²I, a random walk.
    kernel : Kernel
        Its bandwidth is NaN until there is a z, unless it was given.
    log_gamma, log_rho : (1,) float64
    nu0 : (1,) float64
    """

    whitening: np.ndarray
    z: np.ndarray
    m: np.ndarray
    kernel: Kernel
    log_gamma: np.ndarray
    log_rho: np.ndarray
    nu0: np.ndarray


class Tuning(NamedTuple):
    """What tuning remembers.

    Attributes
    ----------
    t : (1,) int64
    n : int
    n_walk, n_learning : int
        Before `n_walk` the chain is an adaptive random walk; until `n_learning` z is redrawn; in
        the rest only ρ is tuned.
    first : (1,) int64
        Transition in which z was drawn for the first time.
    gamma_scale, rho_scale : ScaleTuning
    moments : Moments
    history : History
    gamma : Decay
        As given by the user, or UNSET.
    log_nu_bounds : (2,) float64
        The same; NaN by default.
    redraw_decay : float
    bandwidth_rule : int
    bandwidth_share : float
    whiten : bool
    """

    t: np.ndarray
    n: int
    n_walk: int
    n_learning: int
    first: np.ndarray
    gamma_scale: ScaleTuning
    rho_scale: ScaleTuning
    moments: Moments
    history: History
    gamma: Decay
    log_nu_bounds: np.ndarray
    redraw_decay: float
    bandwidth_rule: int
    bandwidth_share: float
    whiten: bool


class Work(NamedTuple):
    """Scratch: the proposal, its S and factor, ξ, the step L ξ, and the kernel's work array."""

    y: np.ndarray
    u: np.ndarray
    xi: np.ndarray
    step: np.ndarray
    covariance: np.ndarray
    factor: np.ndarray
    v: np.ndarray


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make a KAM move with the tuned scales."""
    gamma, nu = scales(parameters)
    return move(target, state, parameters, work, rng, gamma, nu)


@jit
def move(target, state, parameters, work, rng, gamma, nu):
    """Propose y ~ N(x, C R(x) Cᵀ) and accept with π(y) q(x|y) / (π(x) q(y|x)).

    Most rejections are seen before S(y), the costly part, is computed: log q(x|y) has an upper
    bound, and with it the log ratio. Where that bound, `cap`, already rejects, α is not known, and
    0 is reported; elsewhere α/min(1, exp(cap)), so that the mean of what is reported is that of α.
    """
    if state.factor_scales[0] != gamma or state.factor_scales[1] != nu:
        if not factorise(state.covariance, gamma, nu, state.factor):
            return 0.0, False
        state.factor_scales[0] = gamma
        state.factor_scales[1] = nu
    d = state.x.size
    for i in range(d):
        work.xi[i] = rng.standard_normal()
    multiply_lower(state.factor, work.xi, work.step)
    for i in range(d):
        work.u[i] = state.u[i] + work.step[i]
    multiply_lower(parameters.whitening, work.u, work.y)

    logp_y = log_density(target, work.y)
    log_forward = -0.5 * squared_norm(work.xi) - log_determinant(state.factor)
    log_ratio = logp_y - state.logp[0] - log_forward
    cap = log_ratio + log_reverse_bound(squared_norm(work.step), gamma, d)
    log_u = log_uniform(rng)
    if log_u >= cap:
        return 0.0, False

    kernel_covariance(
        parameters.kernel, parameters.z, parameters.m[0], work.u, work.covariance, work.v
    )
    if not factorise(work.covariance, gamma, nu, work.factor):
        return 0.0, False
    log_ratio += log_normal(work.step, work.factor)
    if np.isnan(log_ratio):
        return 0.0, False
    accepted = log_u < log_ratio
    if accepted:
        copy(work.y, state.x)
        copy(work.u, state.u)
        state.logp[0] = logp_y
        copy_matrix(work.covariance, state.covariance)
        copy_matrix(work.factor, state.factor)
    return np.exp(min(0.0, min(0.0, log_ratio) - min(0.0, cap))), accepted


@jit
def scales(parameters):
    """Return γ and ν."""
    return np.exp(parameters.log_gamma[0]), parameters.nu0[0] * np.exp(parameters.log_rho[0])


@jit
def factorise(covariance, gamma, nu, factor):
    """Write the factor of R = γ²I + ν²S; return whether rounding leaves R positive definite."""
    d = covariance.shape[0]
    for i in range(d):
        for j in range(i + 1):
            factor[i, j] = nu * nu * covariance[i, j]
        factor[i, i] += gamma * gamma
    return cholesky(factor, factor)


@jit(allocates=True)
def log_normal(step, factor):
    """Log density of N(0, LLᵀ) at `step`, without the factor (2π)^(-d/2)."""
    scaled = np.empty_like(step)
    solve_lower(factor, step, scaled)
    return -0.5 * squared_norm(scaled) - log_determinant(factor)


@jit
def log_reverse_bound(distance2, gamma, d):
    """Upper bound of `log_normal` over all R ≥ γ²I, for a step of this squared length.

    The largest is R = γ²I but for the direction of the step, in which its variance is λ.
    """
    variance = max(gamma * gamma, distance2)
    return -(d - 1) * np.log(gamma) - 0.5 * np.log(variance) - 0.5 * distance2 / variance


@jit
def derived(state, parameters, work):
    """Compute u and S(u); the factor follows when it is needed."""
    solve_lower(parameters.whitening, state.x, state.u)
    kernel_covariance(
        parameters.kernel, parameters.z, parameters.m[0], state.u, state.covariance, work.v
    )
    state.factor_scales[0] = np.nan


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn C, draw z from the past, and tune γ while there is no z, ρ from then on.

    Returns whether C, z and the bandwidth stayed as they were.
    """
    t = tuning.t[0]
    if parameters.m[0] == 0:
        coordinates_changed = tune_walk(state, parameters, tuning, work, accept_prob)
    else:
        step = GOOD_GUESS + t - tuning.first[0]
        tune_scale(parameters.log_rho, tuning.rho_scale, accept_prob, step)
        settle_scale(parameters.log_rho, tuning.rho_scale, t, settling(tuning), tuning.n)
        learn_moments(tuning.moments, state.x, t, work.step)
        coordinates_changed = False
    if t < tuning.n_learning or t >= tuning.n:
        record(tuning.history, state.x)
        if redraw_is_due(parameters, tuning, rng):
            s = learn(parameters, tuning, work, rng)
            if s > 0.0:
                guess_scales(parameters, tuning, work, s)
                coordinates_changed = True
    follow_gamma(parameters, tuning)
    tuning.t[0] = t + 1
    return not coordinates_changed


@jit
def tune_walk(state, parameters, tuning, work, accept_prob):
    """Adapt the random walk y = x + γCξ that KAM is while there is no z: GAM's adaptation.

    Returns whether C may have changed.
    """
    t = tuning.t[0]
    step = scale_step(tuning.moments, t) if tuning.whiten else t
    tune_scale(parameters.log_gamma, tuning.gamma_scale, accept_prob, step)
    seeded = learn_moments(tuning.moments, state.x, t, work.step)
    if tuning.whiten:
        if seeded:
            best = np.log(OPTIMAL_SCALE / np.sqrt(state.x.size))
            set_scale(parameters.log_gamma, tuning.gamma_scale, best)
        copy_matrix(tuning.moments.factor, parameters.whitening)
    settle_scale(parameters.log_gamma, tuning.gamma_scale, t, settling(tuning), tuning.n)
    return tuning.whiten


@jit
def settling(tuning):
    """First transition whose scale counts: half of the last phase."""
    return (tuning.n_learning + tuning.n) // 2


@jit
def redraw_is_due(parameters, tuning, rng):
    """Whether to draw z: at first, at last, and with probability p_t in between.

    p_t = (1+t)^-a at the t-th transition since the first z, so that p_t → 0 and Σ p_t = ∞ [KAM,
    section 4.2].
    """
    t = tuning.t[0]
    if t < tuning.n_walk:
        return False
    if t == tuning.n_learning - 1 or parameters.m[0] == 0:
        return True
    return rng.random() < (1.0 + t - tuning.first[0]) ** -tuning.redraw_decay


@jit
def follow_gamma(parameters, tuning):
    """Set γ to the user's, once there is a z."""
    if parameters.m[0] > 0 and tuning.gamma.start > 0.0:
        parameters.log_gamma[0] = np.log(decayed(tuning.gamma, tuning.t[0] - tuning.first[0]))


@jit(allocates=True)
def learn(parameters, tuning, work, rng):
    """Draw z from the newest half of the past, and with it C and the bandwidth.

    Returns s, the scale of one whitened coordinate: the median distance between points of z over
    √(2d). It is 0, and nothing was done, without 2d+2 distinct points to learn from.
    """
    points = tuning.history.points
    d = points.shape[1]
    start, stop = recent(tuning.history)
    rows = np.empty(stop - start, np.int64)
    n = distinct_rows(points, start, stop, rows)
    if n < 2 * d + 2:
        return 0.0
    if parameters.m[0] == 0:
        tuning.first[0] = tuning.t[0]
    m = min(n, parameters.z.shape[1])
    choose(rows, n, m, rng)

    if tuning.whiten:
        copy_matrix(tuning.moments.factor, parameters.whitening)
    for i in range(m):
        solve_lower(parameters.whitening, points[rows[i]], work.u)
        copy(work.u, parameters.z[:, i])
    parameters.m[0] = m

    distance = median_distance(parameters.z, m, N_PAIRS)
    if tuning.bandwidth_rule == MEDIAN:
        parameters.kernel.bandwidth[0] = tuning.bandwidth_share * distance
    elif tuning.bandwidth_rule == KNN:
        nearest = neighbour_distance(parameters.z, m, n_neighbours(m, d), N_CENTRES)
        parameters.kernel.bandwidth[0] = nearest / np.sqrt(2.0)
    return distance / np.sqrt(2.0 * d)


@python_or_jit
def n_neighbours(m, d):
    """Return the number of the neighbour whose distance sets the bandwidth: a quarter of z."""
    return min(m - 1, max(2 * d + 2, m // 4))


@jit
def guess_scales(parameters, tuning, work, s):
    """Set γ, and ν₀ such that ν₀²S has the mean trace (2.38 s)² of the best random walk."""
    d = work.u.size
    parameters.log_gamma[0] = np.log(EXPLORATION * OPTIMAL_SCALE * s / np.sqrt(d))
    trace = mean_trace(parameters, work)  # 0 if the bandwidth is much too small
    parameters.nu0[0] = OPTIMAL_SCALE * s / np.sqrt(trace) if trace > 0.0 else 1.0
    if not np.isnan(tuning.log_nu_bounds[0]):
        for i in range(2):
            tuning.rho_scale.bounds[i] = tuning.log_nu_bounds[i] - np.log(parameters.nu0[0])
        set_scale(parameters.log_rho, tuning.rho_scale, parameters.log_rho[0])


@jit
def mean_trace(parameters, work):
    """Mean of tr S at points of z."""
    m = parameters.m[0]
    n = min(m, N_CENTRES)
    total = 0.0
    for i in range(n):
        copy(parameters.z[:, i], work.u)
        kernel_covariance(parameters.kernel, parameters.z, m, work.u, work.covariance, work.v)
        trace = 0.0
        for k in range(work.u.size):
            trace += work.covariance[k, k]
        total += trace
    return total / n


@jit
def report(state, parameters, stats):
    """Report ν and the bandwidth."""
    gamma, nu = scales(parameters)
    stats[SCALING] = gamma if parameters.m[0] == 0 else nu
    stats[N_STATS] = parameters.kernel.bandwidth[0]


# ---- the class ----------------------------------------------------------------------------------


class KAM(KameleonStep):
    r"""Kernel adaptive Metropolis, "MCMC Kameleon".

    .. math:: y \sim N\big(x,\; C(\gamma^2 I + \nu^2 M_u H M_u^\top)C^\top\big),
        \qquad u = C^{-1}x, \quad M_u = 2[\nabla_u k(u, z_1), \dots, \nabla_u k(u, z_m)]

    with a kernel k, H the centring matrix, and a subsample z of the chain's past. The
    proposal follows the local shape of the posterior, which the past has shown; no gradient is
    needed. For curved posteriors and black-box likelihoods.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    kernel : optional
        k: ``pk.kernels.Gaussian()`` (default), ``pk.kernels.Matern()`` or ``pk.kernels.Linear()``.
    n_subsample : int, optional
        m, the number of points of z; 25 d by default, at least 50 and at most 1000. The cost of a
        transition is proportional to m d².
    gamma : float or pk.Decay, optional
        γ, the exploration scale, in whitened coordinates, once there is a z; a schedule is counted
        from there. By default a quarter of the best random walk's scale,
        :math:`.25 \cdot 2.38 s/\sqrt d` with s the scale of a whitened coordinate.
    whiten : bool, optional
        Work in coordinates C⁻¹x, with CCᵀ the covariance of the chain's past (default). Without it,
        as published, one γ cannot suit a posterior whose scales differ by orders of magnitude.
    redraw_decay : float, optional
        a: while tuning, z is redrawn with probability :math:`p_t = (1+t)^{-a}`, t transitions after
        the first z. In (0, 1], so that p_t → 0 and Σ p_t = ∞; .5 by default.
    scale_bounds : (float, float), optional
        Least and largest ν. By default within 1/1000 and 10 times its first guess.
    {common parameters}

    Notes
    -----
    ======================  ==========================================================
    Argument                Symbol of [KAM]
    ======================  ==========================================================
    ``n_subsample``         n
    ``gamma``               γ
    statistic ``scaling``   ν
    statistic ``bandwidth`` σ of :math:`k(u, z) = \exp(-|u-z|^2/2\sigma^2)`
    ======================  ==========================================================

    Tuning has three phases. For 70 % of it the chain is an adaptive Metropolis walk (:class:`GAM`)
    that learns C; without whitening, for 10 %. Then, up to 85 %, z is drawn from distinct states of
    the newest half of the past, and redrawn with probability :math:`p_t`. In the last 15 % z is
    fixed and only ν is tuned. After tuning all parameters are constant, and the chain leaves the
    posterior exactly invariant. Memory is bounded: max(2000, 8 m) states of the past.

    Deviations from the paper: whitening, the walk at the start, bandwidth half the median distance
    (with the usual 1/√2 of it the effective sample size on normal targets of 10 and 20 dimensions
    halves), and that adaptation ends. See docs/kam.md.

    References
    ----------
    Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton (2014). Kernel adaptive
    Metropolis-Hastings. ICML.
    """

    name = "kam"
    own_stats = ("bandwidth",)
    algorithm = Algorithm(transition, adapt, derived, report)

    def __init__(
        self,
        vars=None,
        *,
        kernel=None,
        n_subsample=None,
        gamma=None,
        whiten=True,
        redraw_decay=0.5,
        scale_bounds=None,
        **common,
    ):
        self.settings = checked_settings(kernel, n_subsample, gamma, whiten, scale_bounds)
        self.settings["redraw_decay"] = checked_redraw_decay(redraw_decay)
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        d = scales.size
        settings = self.settings
        m = settings["n_subsample"] or min(max(25 * d, 50), 1000)
        log_gamma, gamma_scale = ScaleTuning.start(
            self.target_accept, np.log(OPTIMAL_SCALE / np.sqrt(d))
        )
        log_rho, rho_scale = ScaleTuning.start(
            self.target_accept, 0.0, np.log([LEAST_RHO, LARGEST_RHO])
        )
        state = State(
            x=np.zeros(d),
            u=np.zeros(d),
            logp=np.zeros(1),
            covariance=np.zeros((d, d)),
            factor=np.zeros((d, d)),
            factor_scales=np.full(2, np.nan),
        )
        parameters = Parameters(
            whitening=np.diag(scales) if settings["whiten"] else np.eye(d),
            z=np.zeros((d, m)),
            m=np.zeros(1, np.int64),
            kernel=settings["kernel"].compiled(),
            log_gamma=log_gamma,
            log_rho=log_rho,
            nu0=np.ones(1),
        )
        tuning = Tuning(
            t=np.zeros(1, np.int64),
            n=n_tune,
            n_walk=n_tune * (7 if settings["whiten"] else 1) // 10,
            n_learning=n_tune - n_tune * 3 // 20,
            first=np.zeros(1, np.int64),
            gamma_scale=gamma_scale,
            rho_scale=rho_scale,
            moments=Moments.start(scales, n_tune),
            history=History.empty(max(2000, 8 * m), d),
            gamma=settings["gamma"] or UNSET,
            log_nu_bounds=settings["log_nu_bounds"],
            redraw_decay=settings["redraw_decay"],
            bandwidth_rule=bandwidth_rule(settings["kernel"]),
            bandwidth_share=BANDWIDTH_SHARE,
            whiten=settings["whiten"],
        )
        work = Work(
            y=np.zeros(d),
            u=np.zeros(d),
            xi=np.zeros(d),
            step=np.zeros(d),
            covariance=np.zeros((d, d)),
            factor=np.zeros((d, d)),
            v=np.zeros((d + 1, m)),
        )
        return state, parameters, tuning, work

    def _tuned_scales(self):
        return tuned_scales(self)

    def _problems(self):
        return too_few_points(self)


def checked_settings(kernel, n_subsample, gamma, whiten, scale_bounds):
    """Return the options of KAM and its relatives; raise a ValueError if one is impossible."""
    if kernel is None:
        kernel = Gaussian()
    if not isinstance(kernel, Gaussian | Matern | Linear):
        raise ValueError(f"kernel must be one of pk.kernels, as Gaussian(), not {kernel!r}.")
    if n_subsample is not None:
        n_subsample = checked_integer("n_subsample", n_subsample, at_least=2)
    log_bounds = checked_scale_bounds(scale_bounds)
    return {
        "kernel": kernel,
        "n_subsample": n_subsample,
        "gamma": None if gamma is None else checked_schedule("gamma", gamma),
        "whiten": checked_bool("whiten", whiten),
        "log_nu_bounds": np.full(2, np.nan) if log_bounds is None else log_bounds,
    }


def checked_redraw_decay(redraw_decay):
    """Return a as a float; raise a ValueError unless p_t → 0 and Σ p_t = ∞."""
    redraw_decay = checked_number("redraw_decay", redraw_decay, 0, np.inf)
    if redraw_decay > 1:
        raise ValueError(f"redraw_decay must be at most 1, not {redraw_decay!r}.")
    return redraw_decay


def tuned_scales(step):
    """Return the scale that KAM or a relative tunes, as a step does."""
    parameters, tuning = step.parameters, step.tuning
    if parameters.m[0] == 0:
        return [("The walk's γ", parameters.log_gamma[0], tuning.gamma_scale.bounds)]
    log_nu0 = np.log(parameters.nu0[0])
    return [(NU, log_nu0 + parameters.log_rho[0], log_nu0 + tuning.rho_scale.bounds)]


def too_few_points(step):
    """Return a list with the warning that there never was a z, or an empty one."""
    if step.parameters.m[0] > 0 or step.tuning.n < step._needed_tuning():
        return []
    needed = 2 * step._d + 2
    return [
        f"while tuning the chain had fewer than {needed} distinct points to learn from, so it is "
        "a plain random walk. Tune longer, or start nearer to where the posterior is."
    ]
