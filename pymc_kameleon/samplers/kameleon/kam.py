"""KAM, kernel adaptive Metropolis ("MCMC Kameleon").

Source: Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive
Metropolis-Hastings", ICML 2014, here [KAM].

Symbols: x the position (d,), u = C⁻¹x the same in whitened coordinates, z = {z₁ … z_m} a subsample
of the chain's past in whitened coordinates (subsample.py), S(u) the kernel covariance of z
seen from u, γ the scale of exploration, ν = ρν₀ the scale of what was learned,
R(u) = γ²I + ν²S(u) = LLᵀ the covariance of the proposal, ξ ~ N(0, I), α the acceptance probability,
t the transition, n the number of tuning transitions.
"""

from math import ceil
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.history import recent
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    cholesky,
    copy,
    copy_matrix,
    log_determinant,
    multiply_lower,
    solve_lower,
    squared_norm,
)
from pymc_kameleon.core.metropolis import accept_capped, log_uniform, normal_step
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    OPTIMAL_SCALE,
    ScaleTuning,
    gain,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.core.target import log_density
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import grouped
from pymc_kameleon.samplers.kameleon.kernels import (
    Gaussian,
    Linear,
    Matern,
    covariance_from,
)
from pymc_kameleon.samplers.kameleon.rkhs import kernel_covariance
from pymc_kameleon.samplers.kameleon.subsample import (
    BANDWIDTH_SHARE,
    N_CENTRES,
    Subsample,
    SubsampleTuning,
    draw,
    follow,
    least_points,
    settling,
)
from pymc_kameleon.samplers.learned_shape import LearnedShape
from pymc_kameleon.samplers.random_walk import rwm as random_walk
from pymc_kameleon.step.learned import COORDINATE, UNITS, Quantity, covariance
from pymc_kameleon.step.options import (
    OPTION_TYPES,
    checked_bool,
    checked_integer,
    checked_number,
)
from pymc_kameleon.step.pooling import in_the_same_place, pool_histories

GAMMA_SHARE = 0.25
"""γ as a share of the random walk's best scale: small against what is learned, but not zero."""

LEAST_RHO, LARGEST_RHO = 1e-3, 10.0
"""Bounds of ρ. Where S vanishes, as far from z, ν has no effect, and must not run away."""

KERNELS = Gaussian, Matern, Linear
OPTION_TYPES.update({kernel.__name__: kernel for kernel in KERNELS})
"""Types of kernels."""

NU_IN_WORDS = "ν (which has no effect if the bandwidth is too small, and too much if γ is too wide)"
"""What a warning calls ν."""


# ---- state and parameters -----------------------------------------------------------------------


class Local(NamedTuple):
    """What is derived from the position; unused as long as there is no z."""

    u: floats("d")
    covariance: floats("d", "d")  # S(u)
    factor: floats("d", "d")  # L, of R(u) …
    scales: floats(2)  # … for these γ and ν; 0 if there is none yet


class State(NamedTuple):
    """What the next transition needs."""

    x: floats("d")
    logp: floats(1)
    local: Local


class Parameters(NamedTuple):
    """What tuning decides: C, γ, z and its kernel; log ρ, and ν₀."""

    subsample: Subsample
    log_rho: floats(1)
    nu0: floats(1)


class Tuning(NamedTuple):
    """What tuning remembers: the transition t of n, and how z and ρ are learned."""

    t: integers(1)
    n: int
    past: SubsampleTuning
    rho: ScaleTuning


class Work(NamedTuple):
    """Scratch: the walk's; u, S and its factor at the proposal; the kernel's work array."""

    walk: random_walk.Work
    u: floats("d")
    covariance: floats("d", "d")
    factor: floats("d", "d")
    v: floats("d + 1", "m")


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make a KAM move with the tuned scales; without a z, a step of a random walk."""
    subsample = parameters.subsample
    if subsample.m[0] == 0:
        return random_walk.transition(target, state, subsample.shape, work.walk, rng)
    gamma, nu = scales(parameters)
    return move(target, state, subsample, work, rng, gamma, nu)


@jit
def move(target, state, subsample, work, rng, gamma, nu):
    """Propose y ~ N(x, C R(x) Cᵀ) and accept with π(y) q(x|y) / (π(x) q(y|x)).

    Most rejections are seen before S(y), the costly part, is computed: log q(x|y) has an upper
    bound, and with it the log ratio. Where that bound, `cap`, already rejects, α is not known, and
    0 is reported.
    """
    local, xi, step, y = state.local, work.walk.xi, work.walk.step, work.walk.y
    if local.scales[0] != gamma or local.scales[1] != nu:
        if not factorise(local.covariance, gamma, nu, local.factor):
            return 0.0, False
        local.scales[0] = gamma
        local.scales[1] = nu
    normal_step(1.0, local.factor, xi, step, rng)
    for i in range(step.size):
        work.u[i] = local.u[i] + step[i]
    multiply_lower(subsample.shape.factor, work.u, y)

    logp_y = log_density(target, y)
    log_forward = -0.5 * squared_norm(xi) - log_determinant(local.factor)
    bound = log_reverse_bound(squared_norm(step), gamma, step.size)
    cap = logp_y - state.logp[0] + (bound - log_forward)
    log_u = log_uniform(rng)
    if log_u >= cap:
        return 0.0, False

    kernel_covariance(
        subsample.kernel, subsample.z, subsample.m[0], work.u, work.covariance, work.v
    )
    if not factorise(work.covariance, gamma, nu, work.factor):
        return 0.0, False
    log_hastings = log_normal(step, work.factor) - log_forward
    accept_prob, accepted = accept_capped(target, state, y, logp_y, log_hastings, log_u, cap)
    if accepted:
        copy(work.u, local.u)
        copy_matrix(work.covariance, local.covariance)
        copy_matrix(work.factor, local.factor)
    return accept_prob, accepted


@jit
def scales(parameters):
    """Return γ and ν."""
    gamma = np.exp(parameters.subsample.shape.log_scale[0])
    return gamma, parameters.nu0[0] * np.exp(parameters.log_rho[0])


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


@jit(inlined=False)
def derived(state, parameters, work):
    """Compute u and S(u), if there is a z; the factor follows when it is needed."""
    subsample, local = parameters.subsample, state.local
    if subsample.m[0] > 0:
        solve_lower(subsample.shape.factor, state.x, local.u)
        kernel_covariance(
            subsample.kernel, subsample.z, subsample.m[0], local.u, local.covariance, work.v
        )
        local.scales[0] = 0.0


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn C, draw z, and tune γ before there is a z, then ρ; return whether C and z stayed."""
    subsample, log_rho, t, is_new = parameters.subsample, parameters.log_rho, tuning.t[0], False
    if subsample.m[0] > 0:
        tune_scale(log_rho, tuning.rho, 0, accept_prob, gain(GOOD_GUESS + t - tuning.past.first[0]))
        settle_scale(log_rho, tuning.rho, 0, t, settling(tuning), tuning.n)
    follow(state.x, subsample, tuning, accept_prob, work.walk.v)
    if redraw_is_due(subsample, tuning, rng):
        s = draw(subsample, tuning, work.u, rng)
        is_new = s > 0.0
        if is_new:
            guess_nu(parameters, work, s)
    tuning.t[0] = t + 1
    return not is_new


@jit
def redraw_is_due(subsample, tuning, rng):
    """Whether to draw z: at first, at last, and with p_t = (1+t)^-½ between [KAM, section 4.2]."""
    t, past = tuning.t[0], tuning.past
    if t < past.n_walk or past.n_learning <= t < tuning.n:
        return False
    if t == past.n_learning - 1 or subsample.m[0] == 0:
        return True
    return rng.random() < (1.0 + t - past.first[0]) ** -0.5


@jit
def guess_nu(parameters, work, s):
    """Set ν₀ such that ν₀²S has the mean trace (2.38 s)² of the best random walk."""
    trace = mean_trace(parameters.subsample, work)  # 0 if the bandwidth is much too small
    parameters.nu0[0] = OPTIMAL_SCALE * s / np.sqrt(trace) if trace > 0.0 else 1.0


@jit
def mean_trace(subsample, work):
    """Mean of tr S at points of z."""
    m = subsample.m[0]
    n = min(m, N_CENTRES)
    total = 0.0
    for i in range(n):
        copy(subsample.z[:, i], work.u)
        kernel_covariance(subsample.kernel, subsample.z, m, work.u, work.covariance, work.v)
        trace = 0.0
        for k in range(work.u.size):
            trace += work.covariance[k, k]
        total += trace
    return total / n


class Stats(NamedTuple):
    """What a draw tells besides."""

    bandwidth: floats(1)


@jit
def report(state, parameters, stats):
    """Report ν, or the walk's γ; and the bandwidth."""
    subsample = parameters.subsample
    stats.bandwidth[0] = subsample.kernel.bandwidth[0]
    gamma, nu = scales(parameters)
    return gamma if subsample.m[0] == 0 else nu


def proposal(learned, x, options):
    """Return the covariance of the proposal from x (d,), of what a chain of a result learned."""
    root = np.linalg.cholesky(learned["covariance"].values)
    gamma, nu = (learned[name].item() for name in ("gamma", "nu"))
    spread = gamma**2 * np.eye(len(x))
    if np.isfinite(nu):
        z = np.linalg.solve(root, learned["subsample"].dropna("point").values.T)
        kernel = (options.get("kernel") or Gaussian()).compiled()
        kernel.bandwidth[0] = learned["bandwidth"].item()
        spread += nu**2 * covariance_from(kernel, z, np.linalg.solve(root, x))
    return learned["covariance"].copy(data=root @ spread @ root.T)


# ---- the classes --------------------------------------------------------------------------------


class LearnedSubsample(LearnedShape):
    """What KAM and PCAKAM share: the last z of each chain is drawn from the past of all."""

    def _shape(self):
        past = self.tuning.past
        return (self.parameters.subsample.shape, past.shape) if past.whiten else None

    def _last_draw_of_z(self):
        return max(0, self.tuning.past.n_learning - 1) // self.steps_per_draw

    def pauses(self):
        """Return the draws of tuning before which the chains pool their covariances, or pasts."""
        return sorted({*super().pauses(), self._last_draw_of_z()})

    @classmethod
    def learn(cls, chains):
        """Pool the means and covariances, or at last the past."""
        if chains[0].monitor.done == chains[0]._last_draw_of_z():
            pool_histories([chain.tuning.past.history for chain in in_the_same_place(chains)])
        else:
            super().learn(chains)


class KAM(LearnedSubsample):
    r"""Kernel adaptive Metropolis, "MCMC Kameleon".

    .. math:: y \sim N\bigl(x,\; C(\gamma^2 I + \nu^2 M_u H M_u^\top)C^\top\bigr),
        \qquad u = C^{-1}x, \quad M_u = 2[\nabla_u k(u, z_1), \ldots, \nabla_u k(u, z_m)]

    with a kernel k, H the centring matrix, and a subsample z of the chain's past. The
    proposal follows the local shape of the posterior, which the past has shown; no gradient is
    needed. On most posteriors, curved ones included, :class:`.GAM` has more effective draws per
    evaluation and per second.

    Parameters
    ----------
    kernel : optional
        k: ``Gaussian()`` (default), ``Matern()`` or ``Linear()`` of ``pk.samplers.kernels``.
    n_subsample : int, optional
        m, the number of points of z; 25 d by default, at least 50 and at most 1000. The cost of a
        transition is proportional to m d².
    gamma : float, optional
        γ, the exploration scale, in whitened coordinates, once there is a z. By default a quarter
        of the best random walk's scale, :math:`0.25 \cdot 2.38 s/\sqrt d` with s the scale of a
        whitened coordinate.
    whiten : bool, optional
        Work in coordinates C⁻¹x, with CCᵀ the covariance of the chain's past (default). Without it,
        as published, one γ cannot suit a posterior whose scales differ by orders of magnitude.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is ν; ``bandwidth`` is σ, that of the kernel. [KAM] writes n for m.
    For 70 % of tuning the chain is an adaptive Metropolis walk (:class:`.GAM`) that learns C. Up to
    85 % z is drawn from distinct states of the past, again with probability
    :math:`p_t = (1+t)^{-1/2}`, t transitions after the first z. In the rest only ν is tuned.

    Deviations from Sejdinovic et al. (2014): whitening, the walk at the start, a bandwidth of half
    the median distance, and that adaptation ends. See docs/kam.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.KAM())
    ...     dt = pk.sample(step=pk.KAM(kernel=pk.samplers.kernels.Matern(4), n_subsample=200))
    """

    name = "kam"
    stats = Stats
    proposal = staticmethod(proposal)
    algorithm = Algorithm(transition, adapt, derived, report)

    def __init__(
        self,
        vars=None,
        *,
        kernel=None,
        n_subsample=None,
        gamma=None,
        whiten=True,
        **common,
    ):
        self.settings = checked_kernel_options(kernel, n_subsample, gamma, whiten)
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes = sizes_for(self, scales.size)
        shares = GAMMA_SHARE, BANDWIDTH_SHARE
        subsample, past = SubsampleTuning.start(
            self.settings, scales, n_tune, sizes["m"], self.target_accept, *shares
        )
        return (
            allocate(State, sizes),
            allocate(Parameters, sizes, subsample=subsample, nu0=1.0),
            allocate(Tuning, sizes, n=n_tune, past=past, rho=start_rho(self)),
            allocate(Work, sizes),
        )

    def _learned(self):
        return learned(self.parameters)

    def _tuned_scales(self):
        return tuned_scales(self.parameters, self.tuning.past.shape, self.tuning.rho)

    def _findings(self):
        subsample = self.parameters.subsample
        found = [few_points(self, subsample)]
        found.append(slow_tails(self, subsample, *scales(self.parameters)))
        return list(filter(None, found))


# ---- the way back from the tails -----------------------------------------------------------------
# Away from z proposals are small, so that a chain seldom goes far out, and stays there for long. A
# run without such a stay looks as good as any; what tuning has seen tells.

OUTER_SHARE = 0.05
"""Share of the past that is outermost."""

LONG_WAY, FEW_STAYS = 80.0, 20.0
"""Transitions that the way back may always take; stays out there from which it may take more."""


def slow_tails(step, subsample, gamma, nu):
    """Tell of a chain that is outermost so seldom, and for so long, that averages are luck."""
    if subsample.m[0] == 0:
        return None
    steps_back = transitions_back(step.tuning.past.history, subsample, gamma, nu)
    n = (step.monitor.done - step.monitor.tune) * step.steps_per_draw
    if not steps_back > LONG_WAY or OUTER_SHARE * n >= FEW_STAYS * steps_back:
        return None
    needed = ceil(FEW_STAYS * steps_back / OUTER_SHARE / step.steps_per_draw)
    return finding(
        "slow_tails", share=100 * OUTER_SHARE, transitions=steps_back, needed=grouped(needed)
    )


def transitions_back(history, subsample, gamma, nu):
    """Return the mean of |u − ū|²/tr R(u) over the outermost past; NaN if nothing has moved.

    ū is the mean of the past, in whitened coordinates.
    """
    points, factor = history.points[slice(*recent(history))], np.tril(subsample.shape.factor)
    if len(points) == 0 or not factor.diagonal().min() > 0:
        return np.nan
    u = np.linalg.solve(factor, points.T)
    distances = np.square(u - u.mean(axis=1, keepdims=True)).sum(axis=0)
    outer = np.argsort(-distances, kind="stable")[: ceil(OUTER_SHARE * len(points))]
    seen = [
        covariance_from(subsample.kernel, subsample.z[:, : subsample.m[0]], u[:, i]) for i in outer
    ]
    variances = np.trace(seen, axis1=1, axis2=2)
    return np.mean(distances[outer] / (len(u) * gamma**2 + nu**2 * variances))


# ---- what relatives share -----------------------------------------------------------------------


def checked_kernel_options(kernel, n_subsample, gamma=None, whiten=True):
    """Return the options that KAM and its relatives share; raise a ValueError for a bad one."""
    if kernel is None:
        kernel = Gaussian()
    if not isinstance(kernel, KERNELS):
        raise ValueError(
            f"kernel must be one of pk.samplers.kernels, as Gaussian(), not {kernel!r}."
        )
    if n_subsample is not None:
        n_subsample = checked_integer("n_subsample", n_subsample, at_least=2)
    if gamma is not None:
        gamma = checked_number("gamma", gamma, 0, np.inf)
    whiten = checked_bool("whiten", whiten)
    return {"kernel": kernel, "n_subsample": n_subsample, "gamma": gamma, "whiten": whiten}


def checked_cycle(cycle_length, beta):
    """Return L, β and ⌊βL⌋; raise a ValueError if they are impossible."""
    cycle_length = checked_integer("cycle_length", cycle_length, at_least=2)
    beta = checked_number("beta", beta, 0, 1)
    n_exploration = int(beta * cycle_length + 1e-9)  # 0.29 · 100 is 29
    if not 0 < n_exploration < cycle_length:
        raise ValueError(
            "beta * cycle_length must be at least 1, and less than cycle_length, not "
            f"{beta * cycle_length}."
        )
    return {"cycle_length": cycle_length, "beta": beta, "n_exploration": n_exploration}


def sizes_for(step, d):
    """Return the sizes of KAM's arrays."""
    m = step.settings["n_subsample"] or min(max(25 * d, 50), 1000)
    return {"d": d, "d + 1": d + 1, "m": m}


def start_rho(step):
    """Begin to tune ρ."""
    return ScaleTuning.start(step.target_accept, 0.0, np.log([LEAST_RHO, LARGEST_RHO]))[1]


def tuned_scales(parameters, shape_tuning, rho):
    """Return the scale that KAM or a relative tunes, as a step does."""
    if parameters.subsample.m[0] == 0:
        return tuned_walk(parameters.subsample, shape_tuning)
    log_nu0 = np.log(parameters.nu0[0])
    return [(NU_IN_WORDS, log_nu0 + parameters.log_rho[0], log_nu0 + rho.bounds[0])]


def learned(parameters):
    """Return what KAM or a relative learned, as a step does."""
    subsample, (gamma, nu) = parameters.subsample, scales(parameters)
    nu = nu if subsample.m[0] > 0 else np.nan
    what = "Scale ν of what is learned from the points; NaN as long as there are none."
    return learned_subsample(subsample, gamma) | {"nu": Quantity((), nu, what)}


def learned_subsample(subsample, gamma):
    """Return γ, the bandwidth, CCᵀ and z."""
    bandwidth, whitened = subsample.kernel.bandwidth[0], "in coordinates that `covariance` whitens"
    what = f"Scale γ of exploration, {whitened}; without points, the scale of a random walk."
    spread = "Covariance that whitens the coordinates: of the chain's past, or within its modes."
    return {
        "gamma": Quantity((), gamma, what),
        "bandwidth": Quantity((), bandwidth, f"Bandwidth σ of the kernel, {whitened}."),
        **covariance(subsample.shape.factor, spread),
        **learned_points(subsample),
    }


def learned_points(subsample):
    """Return z on the scale of the variables, if there is one."""
    m = subsample.m[0]
    if m == 0:
        return {}
    points = (np.tril(subsample.shape.factor) @ subsample.z[:, :m]).T
    what = "Points of the chain's past, by which it proposes."
    return {"subsample": Quantity(("point", COORDINATE), points, what, UNITS)}


def few_points(step, subsample):
    """Tell of a Subsample that never had the points for it."""
    if subsample.m[0] > 0 or step.tuning.n < step._needed_tuning():
        return None
    return finding("few_points", least=least_points(step.layout.d))


def tuned_walk(subsample, shape_tuning):
    """Return the scale that a step tunes as long as it is a random walk."""
    return [("The walk's γ", subsample.shape.log_scale[0], shape_tuning.scale.bounds[0])]
