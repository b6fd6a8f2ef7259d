"""GadRWM and GadMALA: gradient-based adaptive MCMC, which learns from rejected proposals too.

Source: Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019,
here [TD]. It maximises the generalised speed measure, E[min(0, log r)] + β Σ log L_ii: acceptance
against entropy of the proposal. Each proposal, accepted or not, gives an unbiased estimate of its
gradient with respect to L, which is triangular. GadMALA's default rule is in fisher_rule.py.

Symbols as in mala.py, and: r the Metropolis-Hastings ratio, β the weight of the entropy, α the
acceptance probability and α* its target, η the learning rate, t the transition, n the number of
tuning transitions; −tril(abᵀ) is the gradient of log r.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, bools, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import (
    add_multiple,
    copy,
    multiply_lower,
    multiply_lower_transposed,
    squared_norm,
)
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.scaling import ScaleTuning
from pymc_kameleon.core.shape import Shape
from pymc_kameleon.core.target import log_density, multiply_by_hessian
from pymc_kameleon.samplers.gradient import fisher_rule, mala
from pymc_kameleon.samplers.gradient.mala import MALA_TARGET_ACCEPT, State, Work
from pymc_kameleon.samplers.one_scale import report_scale
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.initial_search import InitialSearch
from pymc_kameleon.step.learned import (
    SHAPE_TEXT,
    Quantity,
    covariance,
    learned_walk,
    proposal_of_walk,
    scale_of,
)
from pymc_kameleon.step.monitor import NO_LIMIT
from pymc_kameleon.step.options import checked_choice, checked_integer, checked_number
from pymc_kameleon.step.warm_start.approach import scales_of
from pymc_kameleon.step.warm_start.search import MOST_FITTED


class Objective(NamedTuple):
    """What is known of the objective, and the gradient −tril(Σ left[q] right[q]ᵀ) of min(0, log r).

    The first term is abᵀ. If the gradient at y is not held constant, there are ½k hᵀ and ¼g (Lᵀk)ᵀ
    with k = H(y) L(h + ½u′), too.
    """

    target_accept: float
    beta: floats(1)
    left: floats("terms", "d")
    right: floats("terms", "d")
    is_finite: bools(1)  # whether these are
    accepted: bools(1)


class PublishedTuning(NamedTuple):
    """What tuning by the published rule remembers."""

    t: integers(1)
    n: int
    objective: Objective
    rate: float  # η
    squares: floats("d", "d")  # G: running means of the squared gradient
    retreats: bool  # whether L shrinks where nothing is finite


class WhitenedTuning(NamedTuple):
    """What tuning by the whitened rule remembers."""

    t: integers(1)
    n: int
    end: int  # from here on L is frozen
    objective: Objective
    last_scale: ScaleTuning  # from `end` on


# ---- transitions: while tuning, they find the gradient of min(0, log r) --------------------------


@jit
def walk_transition(target, state, parameters, work, rng):
    """Propose x + sLξ [TD, section 2.2]."""
    scale = np.exp(parameters.log_scale[0])
    normal_step(scale, parameters.factor, work.xi, work.step, rng)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + work.step[i]
    work.logp_y[0] = log_density(target, work.y)
    return accept(target, state, work.y, work.logp_y[0], 0.0, rng)


@jit
def walk_with_slope(target, state, parameters, tuning, work, rng):
    """Make a walk's transition; a = −g′ and b = ξ where r < 1 [TD, section 2.2]."""
    objective = tuning.objective
    accept_prob, accepted = walk_transition(target, state, parameters, work, rng)
    slope = 1.0 if accept_prob < 1.0 else 0.0
    for i in range(state.x.size):
        objective.left[0, i] = -slope * target.gradient[i]
        objective.right[0, i] = work.xi[i]
    judge(objective, target, work, accepted)
    return accept_prob, accepted


@jit
def langevin_with_slope(target, state, parameters, tuning, work, rng):
    """Make MALA's transition; a = ½(g − g′) and b = h − ½u′ where r < 1 [TD, appendix B]."""
    objective = tuning.objective
    copy(state.gradient, objective.left[0])
    accept_prob, accepted = mala.transition(target, state, parameters, work, rng)
    slope = 0.5 if accept_prob < 1.0 else 0.0
    for i in range(state.x.size):
        objective.left[0, i] = slope * (objective.left[0, i] - target.gradient[i])
        objective.right[0, i] = work.h[i] - 0.5 * work.uy[i]
    judge(objective, target, work, accepted)
    return accept_prob, accepted


@jit
def judge(objective, target, work, accepted):
    """Note whether the proposal was accepted, and whether all was finite there."""
    is_inside = work.logp_y[0] + work.log_hastings[0] > -np.inf
    objective.is_finite[0] = is_inside and squared_norm(target.gradient) < np.inf
    objective.accepted[0] = accepted


@jit
def exact_transition(target, state, parameters, tuning, work, rng):
    """Add what comes of a gradient at y that is not held constant [TD, section 2.3]."""
    objective, factor = tuning.objective, parameters.factor
    left, right = objective.left, objective.right
    for i in range(state.x.size):
        left[1, i] = 0.0
        left[2, i] = 0.5 * state.gradient[i]
    outcome = langevin_with_slope(target, state, parameters, tuning, work, rng)
    if outcome[0] < 1.0 and objective.is_finite[0]:
        multiply_lower(factor, work.step, left[1])
        multiply_by_hessian(target, work.y, left[1])
        for i in range(state.x.size):
            left[1, i] *= 0.5
        objective.is_finite[0] = squared_norm(left[1]) < np.inf
    copy(work.h, right[1])
    multiply_lower_transposed(factor, left[1], right[2])
    return outcome


# ---- adaptation: by the gradient of the objective ------------------------------------------------

BETA_RATE, LEAST_BETA = 0.02, 1e-4
"""How fast β follows the acceptance, and its least value [TD, algorithm 1]."""

LEAST_DIAGONAL = 1e-3
"""Least L_ii of the published rule, as in the code of [TD]."""


@jit
def published_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Climb the objective with RMSprop's steps [TD, section 2.1 and algorithm 1]."""
    t, objective = tuning.t[0], tuning.objective
    if objective.is_finite[0]:
        rate = tuning.rate
        if t >= tuning.n:  # the user keeps adapting
            rate *= tuning.n / t
        rms_step(parameters.factor, objective, tuning.squares, rate, t == 0, work.step)
    elif tuning.retreats:
        retreat(parameters.factor)
    follow_acceptance(objective)
    tuning.t[0] = t + 1


@fast_jit
def rms_step(factor, objective, squares, rate, is_first, row):
    """L ← L + η∇/(1 + √G), with G the running mean of ∇², which begins at the first one."""
    forget = 1.0 if is_first else 0.1
    for i in range(row.size):
        row[: i + 1] = 0.0
        for q in range(objective.left.shape[0]):
            add_multiple(-objective.left[q, i], objective.right[q, : i + 1], row)
        row[i] += objective.beta[0] / factor[i, i]
        for j in range(i + 1):
            squares[i, j] += forget * (row[j] * row[j] - squares[i, j])
            factor[i, j] += rate * row[j] / (1.0 + np.sqrt(squares[i, j]))
        factor[i, i] = max(factor[i, i], LEAST_DIAGONAL)


@jit
def whitened_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Climb in the coordinates L⁻¹x, free of scales; return whether L stayed as it was."""
    t, objective = tuning.t[0], tuning.objective
    is_last = t >= tuning.end
    if is_last:
        fisher_rule.tune_last(parameters, tuning, accept_prob)
    else:
        if objective.is_finite[0]:
            decay = 1.0 + t / (0.15 * tuning.n)
            relative_step(parameters.factor, objective, decay, work.step)
        else:
            retreat(parameters.factor)
        follow_acceptance(objective)
    tuning.t[0] = t + 1
    return is_last


@fast_jit
def relative_step(factor, objective, decay, a):
    """L ← L(I + ρA), A = βI − tril(Lᵀa bᵀ), ρ so small that the diagonal stays positive."""
    b, beta, d = objective.right[0], objective.beta[0], a.size
    multiply_lower_transposed(factor, objective.left[0], a)
    longest = beta * np.sqrt(d) + np.sqrt(squared_norm(a) * squared_norm(b))
    rate = min(1.0 / (d * decay), 0.3 / longest)
    for i in range(d):
        sum_la = 0.0
        for j in range(i, -1, -1):  # (L tril(abᵀ))_ij = b_j Σ_{k=j..i} L_ik a_k
            sum_la += factor[i, j] * a[j]
            factor[i, j] += rate * (beta * factor[i, j] - sum_la * b[j])


@jit
def follow_acceptance(objective):
    """β ← β(1 + 0.02(accepted − α*)) [TD, algorithm 1]."""
    change = BETA_RATE * (objective.accepted[0] - objective.target_accept)
    objective.beta[0] = max(LEAST_BETA, objective.beta[0] * (1.0 + change))


@jit
def retreat(factor):
    """L ← 0.9L, after a proposal where nothing is finite."""
    for i in range(factor.shape[0]):
        for j in range(i + 1):
            factor[i, j] *= 0.9


# ---- how L is learned ----------------------------------------------------------------------------

WALK_WHITENED = Algorithm(
    walk_transition, whitened_adapt, nothing_derived, report_scale, walk_with_slope
)  # GadRWM's algorithm
WALK_PUBLISHED = WALK_WHITENED._replace(adapt=published_adapt)  # as published
PUBLISHED = Algorithm(
    mala.transition, published_adapt, mala.derived, mala.report, langevin_with_slope
)  # GadMALA's algorithm as published
EXACT = PUBLISHED._replace(tuning_transition=exact_transition)  # with the exact gradient

PUBLISHED_RATE, PUBLISHED_WALK_RATE = 1.5e-4, 5e-5
"""η of gadMALA and gadRWM in the experiments of [TD]."""

PUBLISHED_ACCEPT, WALK_ACCEPT = 0.55, 0.25
"""α* of gadMALA and gadRWM [TD, section 4]."""


def start_whitened(step, scales, n_tune):
    """Return L and its tuning, which begins with these scales."""
    sizes = {"d": scales.size, "terms": 1}
    objective = allocate(Objective, sizes, target_accept=step.target_accept, beta=1.0)
    end, last_scale = fisher_rule.last_phase(n_tune, step.target_accept)
    own = {"n": n_tune, "end": end, "objective": objective, "last_scale": last_scale}
    return np.diag(scales), allocate(WhitenedTuning, sizes, **own)


def start_published(step, scales, n_tune):
    """Return L and its tuning, which begins with the same L whatever the scales."""
    d = scales.size
    sizes = {"d": d, "terms": 3 if step.derivatives > 1 else 1}
    objective = allocate(Objective, sizes, target_accept=step.target_accept, beta=1.0)
    tuning = allocate(
        PublishedTuning,
        sizes,
        n=n_tune,
        objective=objective,
        rate=step.settings["learning_rate"],
        retreats=isinstance(step, GadMALA),
    )
    return np.diag(np.full(d, 0.1 / np.sqrt(d))), tuning


# ---- the classes ---------------------------------------------------------------------------------

LEAPFROG_ACCEPT = 0.75
"""α* of more than one leapfrog step."""


class LookByGradient(InitialSearch):
    """Chains begin where they are told, with scales from the gradient.

    In ``pk.sample`` they look for other modes before, if they may begin there and evaluations are
    not limited.
    """

    searches = False
    has_gradient = True

    def __init__(self, step):
        super().__init__(step)
        self.n_noted = self.d

    @property
    def may_look(self):
        """Whether it looks for other modes: not as published, nor in many dimensions."""
        return super().may_look and not self.step.is_published and self.d <= MOST_FITTED

    def usual_budget(self):
        """Return the evaluations of the way to a first mode, as many as a look has at first."""
        return self.budget_of_look[0]

    def begin(self, q, asks):
        """Move `q` (n,) to another mode if there are several; learn the scales there."""
        step, log_density, monitor = self.step, self.step.log_density, self.step.monitor
        is_limited = monitor.most_on_the_way < NO_LIMIT
        if self.budget() > 0 and monitor.spreads and not is_limited:
            super().begin(q, asks)
            monitor.climbing = 0.0  # that way need not end
        else:
            log_density.count[0] += np.count_nonzero(~np.isnan(step.trail[:, 0]))  # the start's
        if np.isfinite(log_density(q)):
            step._fill(scales_of(log_density.gradient[: self.d]), step.tuning.n)

    def begin_near(self, found, q, logp):
        """Move `q` (n,) to a draw near a WarmStart, if there are several modes."""
        if self.step.monitor.ends > 1:
            super().begin_near(found, q, logp)


class GradientAdaptive(KameleonStep):
    """What GadRWM and GadMALA share."""

    derivatives = 1
    initial_search = LookByGradient

    @property
    def is_published(self):
        """Whether L is learned as in the paper."""
        return self.settings["adaptation"] == "published"


class GadRWM(GradientAdaptive):
    r"""Random walk whose covariance is learned from the gradients at all proposals.

    .. math:: y = x + s L \xi, \qquad \xi \sim N(0, I)

    L climbs the objective :math:`E[\min(0, \log r)] + \beta \sum_i \log L_{ii}`. After tuning the
    gradient is of no use to it, so :class:`.GadMALA` is better where there is one.

    Parameters
    ----------
    adaptation : {"whitened", "published"}, optional
        How L climbs: in the coordinates :math:`L^{-1}x`, which needs no knowledge of the scales
        (default), or by the paper's RMSprop from :math:`L = 0.1\, d^{-1/2} I`, with s = 1.
    learning_rate : float, optional
        η of ``"published"``, 5e-5 by default, as in the paper. It has the unit of x.
    target_accept : float, optional
        Acceptance rate that β, and in the end s, is tuned to; 0.25, as in the paper.
    {common parameters}

    Notes
    -----
    ``"whitened"`` takes steps :math:`L \leftarrow L(I + \rho_t(\beta I + \mathrm{tril}(L^\top
    \nabla\log\pi(y)\, \xi^\top)))`, and tunes s alone in the last tenth of tuning. Titsias &
    Dellaportas (2019) have the published rule only. See docs/gad.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GadRWM())
    """

    name = "gad_rwm"
    default_target_accept = staticmethod(lambda d: WALK_ACCEPT)
    proposal = staticmethod(proposal_of_walk)
    _learned = learned_walk

    def __init__(self, vars=None, *, adaptation="whitened", learning_rate=None, **common):
        checked_choice("adaptation", adaptation, ("whitened", "published"))
        rate = checked_learning_rate(learning_rate, adaptation, PUBLISHED_WALK_RATE)
        self.settings = {"adaptation": adaptation, "learning_rate": rate}
        self.algorithm = WALK_PUBLISHED if self.is_published else WALK_WHITENED
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        start = start_published if self.is_published else start_whitened
        factor, tuning = start(self, scales, n_tune)
        return allocate(State, sizes), Shape(np.zeros(1), factor), tuning, allocate(Work, sizes)


class GadMALA(GradientAdaptive):
    r"""Adaptive MALA, which learns from the gradients at all proposals.

    .. math:: y = x + L(s h), \qquad h = \xi + \tfrac{1}{2} s L^\top \nabla\log\pi(x),
        \qquad \xi \sim N(0, I)

    The first choice where the model has gradients and its posterior is not strongly curved: it
    finds scales and correlations in some hundred transitions. A transition costs what
    ``n_leapfrog`` gradients cost, and hardly more.

    Parameters
    ----------
    adaptation : {"fisher", "published"}, optional
        How L is learned. ``"fisher"`` (default, not in the paper): as the factor that whitens
        positions and gradients alike. ``"published"``: by the paper's RMSprop from
        :math:`L = 0.1\, d^{-1/2} I`, with s = 1; the scales of the variables should be near 1.
    gradient : {"fast", "exact"}, optional
        With ``"published"``, whether the objective's derivative takes the gradient at y for
        constant (default), or not, which needs a product with the Hessian, and is not better.
    n_leapfrog : int, optional
        K: a transition makes k leapfrog steps, k uniform in ⌊K/2⌋ + 1 … K. By default ⌈d^¼⌉, but
        at least 2, which is best per gradient where both x and x² matter. 1 is MALA, as in the
        paper, and the only choice of ``"published"``.
    factor : {"dense", "diagonal"}, optional
        Form of L with ``"fisher"``: by default dense up to 1000 dimensions, where it is always
        better, and diagonal beyond, where it takes less time and memory.
    learning_rate : float, optional
        η of ``"published"``, 1.5e-4 by default, as in the paper. It has the unit of x.
    steps_per_draw : int, optional
        Transitions per draw, 1 by default.
    target_accept : float, optional
        Acceptance rate that s is tuned to: 0.574 for one leapfrog step; 0.75 for more, or what is
        higher with s as great as makes sense, in few dimensions. With ``"published"`` what β is
        tuned to, 0.55, as in the paper.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is s, and ``n_logp`` counts evaluations of the log-density together
    with its gradient. ``energy`` and ``diverging`` mean what they do for NUTS. See docs/gad.md for
    both adaptations, and the deviations from Titsias & Dellaportas (2019).

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.GadMALA())
    ...     dt = pm.sample(step=pk.GadMALA(n_leapfrog=1))  # one leapfrog step: MALA
    """

    name = "gad_mala"
    algorithm = fisher_rule.FISHER
    learns = "together"
    stats = mala.Stats
    _stat_name = mala.stat_name
    default_steps_per_draw = staticmethod(lambda d: 1)

    def __init__(
        self,
        vars=None,
        *,
        adaptation="fisher",
        gradient="fast",
        n_leapfrog=None,
        factor=None,
        learning_rate=None,
        **common,
    ):
        checked_choice("adaptation", adaptation, ("fisher", "published"))
        checked_choice("gradient", gradient, ("fast", "exact"))
        checked_choice("factor", factor, (None, "dense", "diagonal"))
        if n_leapfrog is not None:
            n_leapfrog = checked_integer("n_leapfrog", n_leapfrog, at_least=1)
        is_published, is_exact = adaptation == "published", gradient == "exact"
        if is_exact and (not is_published or common.get("keep_adapting")):
            raise ValueError(
                'gradient="exact" belongs to adaptation="published", and ends with tuning.'
            )
        if is_published and factor is not None:
            raise ValueError(f'factor={factor!r} needs adaptation="fisher", not {adaptation!r}.')
        if is_published and n_leapfrog not in (None, 1):
            raise ValueError(f'n_leapfrog={n_leapfrog} is impossible with adaptation="published".')
        if is_published:
            self.algorithm = EXACT if is_exact else PUBLISHED
        self.derivatives = 2 if is_exact else 1
        self.settings = {
            "adaptation": adaptation,
            "gradient": gradient,
            "n_leapfrog": 1 if is_published else n_leapfrog,
            "factor": factor,
            "learning_rate": checked_learning_rate(learning_rate, adaptation, PUBLISHED_RATE),
        }
        super().__init__(vars, **common)

    def default_target_accept(self, d):
        """Return α*."""
        if self.is_published:
            return PUBLISHED_ACCEPT
        return LEAPFROG_ACCEPT if self._n_leapfrog(d) > 1 else MALA_TARGET_ACCEPT

    def _n_leapfrog(self, d):
        """Return K, by default about d^¼, as for HMC: best for the lesser ESS of x and x²."""
        return self.settings["n_leapfrog"] or max(2, math.ceil(d**0.25))

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        start = start_published if self.is_published else fisher_rule.start
        factor, tuning = start(self, scales, n_tune)
        parameters = mala.Parameters(np.zeros(1), factor, self._n_leapfrog(scales.size))
        return allocate(mala.TrajectoryState, sizes), parameters, tuning, allocate(Work, sizes)

    def pauses(self):
        """Return the draws of tuning before which the chains pool what they know of L."""
        return () if self.is_published else fisher_rule.pauses(self)

    learn = staticmethod(fisher_rule.learn)

    def _needed_tuning(self):
        if self.is_published:
            return super()._needed_tuning()
        return fisher_rule.needed_tuning(self)

    def _findings(self):
        return super()._findings() if self.is_published else fisher_rule.findings(self)

    def _learned(self):
        p, most = self.parameters, "Largest number of leapfrog steps of a trajectory."
        length = "Length s of a leapfrog step, in coordinates that the covariance whitens."
        return {
            "scaling": scale_of(p, length),
            "n_leapfrog": Quantity((), p.n_leapfrog, most),
            **covariance(p.factor, SHAPE_TEXT),
        }

    def _largest_n_logp(self):
        return self._n_leapfrog(self._d)


def checked_learning_rate(rate, adaptation, default):
    """Return η, None if it is not used; raise a ValueError if it is impossible."""
    if adaptation == "published":
        return checked_number("learning_rate", default if rate is None else rate, 0, np.inf)
    if rate is not None:
        raise ValueError(f'learning_rate needs adaptation="published", not {adaptation!r}.')
    return None
