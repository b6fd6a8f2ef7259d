"""GadRWM and GadMALA: gradient-based adaptive MCMC, which learns from rejected proposals too.

Source: Titsias & Dellaportas, "Gradient-based adaptive Markov chain Monte Carlo", NeurIPS 2019,
here [TD]. It maximises the generalised speed measure, E[min(0, log r)] + β Σ log L_ii: acceptance
against entropy of the proposal. Each proposal, accepted or not, gives an unbiased estimate of its
gradient with respect to L, which is triangular.

Symbols as in mala.py, and: r the Metropolis-Hastings ratio, β the weight of the entropy, α the
acceptance probability and α* its target, η the learning rate, t the transition, n the number of
tuning transitions; −tril(abᵀ) is the gradient of log r.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.factor import Factor, multiply
from pymc_kameleon.core.fisher import SMOOTH, learn_factor
from pymc_kameleon.core.history import History, forget_older_half, record
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.core.linalg import add_multiple, copy, multiply_lower_transposed, squared_norm
from pymc_kameleon.core.schedules import UNSET, Decay, decayed
from pymc_kameleon.core.target import log_density, multiply_by_hessian
from pymc_kameleon.monitor import some
from pymc_kameleon.options import checked_choice, checked_integer, checked_schedule
from pymc_kameleon.samplers import mala
from pymc_kameleon.samplers.mala import (
    MALA_TARGET_ACCEPT,
    Parameters,
    State,
    accept_or_not,
    best_langevin_scale,
)
from pymc_kameleon.step import KameleonStep


class Work(NamedTuple):
    """Scratch.

    Attributes
    ----------
    move : mala.Work
        Of the transition.
    left, right : (1 or 3, d) float64
        The gradient of min(0, log r) with respect to L is −tril(Σ left[q] right[q]ᵀ). The first
        term is abᵀ. There are two more, ½k hᵀ and ¼g (Lᵀk)ᵀ with k = H(y) L(h + ½u′), if the
        gradient at y is not held constant.
        The transition writes ½k into left[1].
    row : (d,) float64
    pair : (2d,) float64
    """

    move: mala.Work
    left: np.ndarray
    right: np.ndarray
    row: np.ndarray
    pair: np.ndarray

    @classmethod
    def empty(cls, d, factor, n_terms):
        """Allocate it."""
        left, right = np.zeros((2, n_terms, d))
        move = mala.Work.empty(d, factor)
        return cls(move, left, right, np.zeros(d), np.zeros(2 * d))


class Tuning(NamedTuple):
    """What tuning remembers.

    Attributes
    ----------
    t : (1,) int64
        The transition.
    n : int
        Number of tuning transitions.
    end : int
        From here on only s moves, and K leapfrog steps are made.
    n_leapfrog : int
        K.
    targets : (2,) float64
        α* before and from `end` on.
    longest : float
        Largest log s from `end` on.
    is_walk : bool
        Whether the proposal is a random walk.
    rate : Decay
        η of the published rule.
    beta : (1,) float64
        β.
    squares : (d, d) or (0, 0) float64
        G of the published rule: running means of the squared gradient, element by element.
    scale : (3,) float64
        Steps of s since it began anew; sum and number of the log s that it settles at.
    pairs : History
        Positions, and gradients beside them, (capacity, 2d).
    next_refresh : (1,) int64
        Number of transitions after which L is learned from the pairs.
    information : (d,) float64
        Variance of each coordinate times that of its gradient, when L was learned last.
    """

    t: np.ndarray
    n: int
    end: int
    n_leapfrog: int
    targets: np.ndarray
    longest: float
    is_walk: bool
    rate: Decay
    beta: np.ndarray
    squares: np.ndarray
    scale: np.ndarray
    pairs: History
    next_refresh: np.ndarray
    information: np.ndarray


# ---- transitions: MALA's, with or without k, and a random walk's ---------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make MALA's transition."""
    return mala.transition(target, state, parameters, work.move, rng)


@jit
def transition_with_hessian(target, state, parameters, work, rng):
    """Make MALA's transition, and compute ½k while that is wanted [TD, section 2.3]."""
    move = work.move
    outcome = mala.transition(target, state, parameters, move, rng)
    if parameters.wants_hessian[0] and -np.inf < move.log_ratio[0] < 0.0:
        k = work.left[1]
        for i in range(k.size):
            work.row[i] = move.h[i] + 0.5 * move.uy[i]
        multiply(parameters.factor, work.row, k, move.small)
        multiply_by_hessian(target, move.y, k)
        for i in range(k.size):
            k[i] *= 0.5
    return outcome


@jit
def walk_transition(target, state, parameters, work, rng):
    """Propose x + sLξ [TD, section 2.2]."""
    move = work.move
    for i in range(state.x.size):
        move.xi[i] = rng.standard_normal()
    multiply(parameters.factor, move.xi, move.step, move.small)
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        move.y[i] = state.x[i] + scale * move.step[i]
    move.logp_y[0] = log_density(target, move.y)
    return accept_or_not(target, state, move, move.logp_y[0] - state.logp[0], rng)


@jit
def derived(state, parameters, work):
    """Compute u."""
    mala.derived(state, parameters, work.move)


# ---- adaptation: by the gradient of the objective ------------------------------------------------

BETA_RATE, LEAST_BETA = 0.02, 1e-4
"""How fast β follows the acceptance, and its least value [TD, algorithm 1]."""

LEAST_DIAGONAL = 1e-3
"""Least L_ii of the published rule, as in the code of [TD]."""


@jit
def published_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Climb the objective with RMSprop's steps [TD, section 2.1 and algorithm 1]."""
    t, factor = tuning.t[0], parameters.factor.dense
    if objective_slope(factor, tuning.is_walk, work):
        rate = decayed(tuning.rate, t)
        if t >= tuning.n:  # the user keeps adapting
            rate *= tuning.n / t
        rms_step(factor, tuning, work, rate, t == 0)
    elif not tuning.is_walk:
        shrink(factor)
    follow_acceptance(tuning, work)
    tuning.t[0] = t + 1
    parameters.wants_hessian[0] &= t + 1 < tuning.n


@jit
def objective_slope(factor, is_walk, work):
    """Write the gradient of min(0, log r) into `left` and `right`; return whether it is finite.

    Both proposals have s = 1. [TD, appendix B; section 2.2 for the random walk]
    """
    move, left, right = work.move, work.left, work.right
    log_ratio = move.log_ratio[0]
    if log_ratio == -np.inf or not squared_norm(move.gradient_y) < np.inf:
        return False
    slope = 1.0 if log_ratio < 0.0 else 0.0
    for i in range(move.h.size):
        if is_walk:
            left[0, i] = -slope * move.gradient_y[i]
            right[0, i] = move.xi[i]
        else:
            left[0, i] = 0.5 * slope * (move.old_gradient[i] - move.gradient_y[i])
            right[0, i] = move.h[i] - 0.5 * move.uy[i]
    if left.shape[0] > 1:
        if slope == 0.0:
            left[1] = 0.0
        if not squared_norm(left[1]) < np.inf:
            return False
        for i in range(move.h.size):
            left[2, i] = 0.5 * move.old_gradient[i]
        copy(move.h, right[1])
        multiply_lower_transposed(factor, left[1], right[2])
    return True


@fast_jit
def rms_step(factor, tuning, work, rate, is_first):
    """L ← L + η∇/(1 + √G), with G the running mean of ∇², which begins at the first one."""
    forget = 1.0 if is_first else 0.1
    for i in range(work.row.size):
        row, squares = work.row[: i + 1], tuning.squares[i]
        row[:] = 0.0
        for q in range(work.left.shape[0]):
            add_multiple(-work.left[q, i], work.right[q, : i + 1], row)
        row[i] += tuning.beta[0] / factor[i, i]
        for j in range(i + 1):
            squares[j] += forget * (row[j] * row[j] - squares[j])
            factor[i, j] += rate * row[j] / (1.0 + np.sqrt(squares[j]))
        factor[i, i] = max(factor[i, i], LEAST_DIAGONAL)


@jit
def whitened_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Climb the objective in the coordinates L⁻¹x, which makes it free of scales.

    Returns whether L stayed as it was.
    """
    t, factor = tuning.t[0], parameters.factor.dense
    if t < tuning.end:
        if objective_slope(factor, tuning.is_walk, work):
            relative_step(factor, tuning, work)
        else:
            shrink(factor)
        follow_acceptance(tuning, work)
    else:
        tune_scale_alone(parameters, tuning, accept_prob)
    if t + 1 == tuning.end:
        begin_last_phase(parameters, tuning)
    tuning.t[0] = t + 1
    return t >= tuning.end


@fast_jit
def relative_step(factor, tuning, work):
    """L ← L(I + ρA), A = βI − tril(Lᵀa bᵀ), with ρ so small that the diagonal stays positive."""
    a, b, beta, d = work.row, work.right[0], tuning.beta[0], work.row.size
    multiply_lower_transposed(factor, work.left[0], a)
    longest = beta * np.sqrt(d) + np.sqrt(squared_norm(a) * squared_norm(b))
    decay = 1.0 + tuning.t[0] / (0.15 * tuning.n)
    rate = min(1.0 / (d * decay), 0.3 / longest)
    for i in range(d):
        sum_la = 0.0
        for j in range(i, -1, -1):  # (L tril(abᵀ))_ij = b_j Σ_{k=j..i} L_ik a_k
            sum_la += factor[i, j] * a[j]
            factor[i, j] += rate * (beta * factor[i, j] - sum_la * b[j])


@jit
def follow_acceptance(tuning, work):
    """β ← β(1 + .02(accepted − α*)) [TD, algorithm 1]."""
    change = BETA_RATE * (work.move.accepted[0] - tuning.targets[0])
    tuning.beta[0] = max(LEAST_BETA, tuning.beta[0] * (1.0 + change))


@jit
def shrink(factor):
    """L ← .9L, after a proposal where nothing is finite."""
    for i in range(factor.shape[0]):
        for j in range(i + 1):
            factor[i, j] *= 0.9


# ---- adaptation: by positions and gradients ------------------------------------------------------


@jit
def fisher_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Learn L from pairs of positions and gradients, at growing intervals (not in [TD]).

    Returns whether it stayed as it was.
    """
    t, refreshes = tuning.t[0], False
    if t < tuning.end:
        step_scale(parameters, tuning, tuning.targets[0], accept_prob)
        keep_pair(state, tuning, work)
        refreshes = t + 1 == tuning.next_refresh[0]
        if refreshes:
            refresh(parameters, tuning)
    else:
        tune_scale_alone(parameters, tuning, accept_prob)
    if t + 1 == tuning.end:
        begin_last_phase(parameters, tuning)
    tuning.t[0] = t + 1
    return not refreshes


@jit
def step_scale(parameters, tuning, target_accept, accept_prob):
    """Make step k of log s ← log s + min(½, 1.5k^-.6)(α − α*)."""
    tuning.scale[0] += 1.0
    step = min(0.5, 1.5 * tuning.scale[0] ** -0.6)
    parameters.log_scale[0] += step * (accept_prob - target_accept)


@jit
def keep_pair(state, tuning, work):
    """Keep y and g′ unless y was rejected, and its density is implausibly low."""
    move, d = work.move, state.x.size
    plausible = move.logp_y[0] > state.logp[0] - 10.0 - d
    if plausible and move.log_ratio[0] > -np.inf:
        copy(move.y, work.pair[:d])
        copy(move.gradient_y, work.pair[d:])
        record(tuning.pairs, work.pair)


@jit
def refresh(parameters, tuning):
    """Learn L, begin with s anew, and forget the older half of the pairs."""
    done, n_pairs = tuning.t[0] + 1, tuning.pairs.counts[0]
    if n_pairs < FEWEST_PAIRS:
        tuning.next_refresh[0] = min(done + 11, tuning.end)
        return
    pairs, is_early = tuning.pairs.points[:n_pairs], done < tuning.n // 2
    learn_factor(pairs, is_early, parameters.factor, tuning.information)
    parameters.log_scale[0] = np.log(best_langevin_scale(tuning.information.size))
    tuning.scale[0] = 3.0
    forget_older_half(tuning.pairs)
    following = done + max(20, done // 2)
    tuning.next_refresh[0] = following if following <= tuning.end - 20 else tuning.end


FEWEST_PAIRS = 4
"""From which L is learned."""


# ---- adaptation: of s, at the end ----------------------------------------------------------------


@jit
def begin_last_phase(parameters, tuning):
    """From now on L is frozen: make K leapfrog steps, and fit s to them."""
    parameters.n_leapfrog[0] = tuning.n_leapfrog
    tuning.scale[0] = 3.0


@jit
def tune_scale_alone(parameters, tuning, accept_prob):
    """Tune log s, and settle at its mean over the last two thirds of this phase."""
    t, log_scale = tuning.t[0], parameters.log_scale
    step_scale(parameters, tuning, tuning.targets[1], accept_prob)
    log_scale[0] = min(log_scale[0], tuning.longest)
    if t >= tuning.end + (tuning.n - tuning.end) // 3:
        tuning.scale[1] += log_scale[0]
        tuning.scale[2] += 1.0
    if t + 1 >= tuning.n:
        log_scale[0] = tuning.scale[1] / tuning.scale[2]


# ---- the classes ---------------------------------------------------------------------------------

FISHER = Algorithm(transition, fisher_adapt, derived, mala.report)
WHITENED = Algorithm(transition, whitened_adapt, derived, mala.report)
PUBLISHED = Algorithm(transition, published_adapt, derived, mala.report)
PUBLISHED_EXACT = Algorithm(transition_with_hessian, published_adapt, derived, mala.report)
WALK_WHITENED = Algorithm(walk_transition, whitened_adapt, nothing_derived, mala.report)
WALK_PUBLISHED = Algorithm(walk_transition, published_adapt, nothing_derived, mala.report)

PUBLISHED_RATE, PUBLISHED_WALK_RATE = 1.5e-4, 5e-5
"""η of gadMALA and gadRWM in the experiments of [TD]."""

PUBLISHED_ACCEPT, WALK_ACCEPT = 0.55, 0.25
"""α* of gadMALA and gadRWM [TD, section 4]."""

LEAPFROG_ACCEPT = 0.75
"""α* of more than one leapfrog step."""


def default_leapfrog(d):
    """Return K, about d^¼ as for Hamiltonian Monte Carlo: best for the lesser ESS of x and x²."""
    return max(2, math.ceil(d**0.25))


DENSE_UP_TO = 1000
"""Dimension up to which L is dense by default."""

MOST_PAIRS = 1000
"""Pairs that are kept at most; for a dense L 4d more."""

RANK = 32
"""Directions of a low-rank L."""


def last_phase(n_tune):
    """Return the transition from which only s is tuned."""
    return n_tune - min(max(100, n_tune // 10), n_tune // 3)


def longest_scale(n_leapfrog):
    """Return the largest log s: the mean trajectory is at most a quarter of a normal's period."""
    if n_leapfrog == 1:
        return np.inf
    mean_steps = (n_leapfrog // 2 + 1 + n_leapfrog) / 2
    return np.log(2 * np.sin(np.pi / (4 * mean_steps)))


def start_scales(gradient):
    """Return L_ii to begin with, |g_i|^-½, and 1 where the gradient vanishes."""
    size = np.abs(gradient)
    return np.where(np.isfinite(size) & (size > 1e-10), size, 1.0) ** -0.5


class GradientAdaptive(KameleonStep):
    """What GadRWM and GadMALA share: arrays, and the settings' adaptation and learning rate."""

    derivatives = 1
    is_walk: ClassVar[bool]

    def _scout(self, q):
        """Begin with scales from the gradient, which takes one evaluation."""
        if np.isfinite(self.log_density(q)):
            self._fill(start_scales(self.log_density.gradient), self.tuning.n)

    def _allocate(self, scales, n_tune):
        d, adaptation = scales.size, self.settings["adaptation"]
        published, learns_pairs = adaptation == "published", adaptation == "fisher"
        rank = {"dense": None, "low_rank": RANK, "diagonal": 0}[self._form(d)]
        factor = Factor.diagonal(np.full(d, 0.1 / np.sqrt(d)) if published else scales, rank)
        capacity = min(n_tune, MOST_PAIRS + (4 * d if rank is None else 0)) if learns_pairs else 0
        n_leapfrog, is_exact = self._n_leapfrog(d), self.derivatives > 1
        first_target = self.target_accept if n_leapfrog == 1 else MALA_TARGET_ACCEPT
        tuning = Tuning(
            t=np.zeros(1, np.int64),
            n=n_tune,
            end=n_tune if published else last_phase(n_tune),
            n_leapfrog=n_leapfrog,
            targets=np.array([first_target, self.target_accept]),
            longest=longest_scale(n_leapfrog),
            is_walk=self.is_walk,
            rate=self.settings["learning_rate"] or UNSET,
            beta=np.ones(1),
            squares=np.zeros((d, d) if published else (0, 0)),
            scale=np.zeros(3),
            pairs=History.empty(capacity, 2 * d),
            next_refresh=np.array([max(1, min(n_tune // 10, max(20, d // 4)))]),
            information=np.full(d, np.nan),
        )
        return (
            State.empty(d),
            Parameters(
                np.zeros(1),
                factor,
                np.array([1 if n_tune > 0 else n_leapfrog]),
                np.array([is_exact and n_tune > 0]),
            ),
            tuning,
            Work.empty(d, factor, 3 if is_exact else 1),
        )

    def _form(self, d):
        return "dense"

    def _n_leapfrog(self, d):
        return 1


class GadRWM(GradientAdaptive):
    r"""Random walk whose covariance is learned from the gradients at all proposals.

    .. math:: y = x + s L \xi, \qquad \xi \sim N(0, I)

    L climbs the objective :math:`E[\min(0, \log r)] + \beta \sum_i \log L_{ii}`. After tuning the
    gradient is of no use to it, so :class:`GadMALA` is better where there is one.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    adaptation : {"whitened", "published"}, optional
        How L climbs: in the coordinates :math:`L^{-1}x`, which needs no knowledge of the scales
        (default), or by the paper's RMSprop from :math:`L = 0.1\, d^{-1/2} I`, with s = 1.
    learning_rate : float or pk.Decay, optional
        η of ``"published"``, 5e-5 by default, as in the paper. It has the unit of x.
    target_accept : float, optional
        Acceptance rate that β, and in the end s, is tuned to; .25, as in the paper.
    {common parameters}

    Notes
    -----
    Per proposal y with r < 1, :math:`\nabla_L \log r = \mathrm{tril}(\nabla\log\pi(y)\, \xi^\top)`,
    and :math:`\beta \leftarrow \beta (1 + 0.02 (\mathrm{accepted} - \alpha^*))`. ``"whitened"``
    takes steps :math:`L \leftarrow L(I + \rho_t(\beta I + \mathrm{tril}(L^\top \nabla\log\pi(y)\,
    \xi^\top)))` with :math:`\rho_t = 1/(d(1 + t/(0.15n)))` or less, and tunes s alone in the last
    tenth of tuning. Deviation: the paper has the published rule only.

    References
    ----------
    Titsias & Dellaportas (2019). Gradient-based adaptive Markov chain Monte Carlo. NeurIPS.
    """

    name = "gad_rwm"
    is_walk = True
    default_target_accept = staticmethod(lambda d: WALK_ACCEPT)

    def __init__(self, vars=None, *, adaptation="whitened", learning_rate=None, **common):
        checked_choice("adaptation", adaptation, ("whitened", "published"))
        self.algorithm = {"whitened": WALK_WHITENED, "published": WALK_PUBLISHED}[adaptation]
        self.settings = {
            "adaptation": adaptation,
            "learning_rate": checked_rate(learning_rate, adaptation, PUBLISHED_WALK_RATE),
        }
        super().__init__(vars, **common)


class GadMALA(GradientAdaptive):
    r"""Adaptive MALA, which learns from the gradients at all proposals.

    .. math:: y = x + L(s h), \qquad h = \xi + \tfrac{1}{2} s L^\top \nabla\log\pi(x),
        \qquad \xi \sim N(0, I)

    The first choice where the model has gradients and its posterior is not strongly curved: it finds
    scales and correlations in some hundred transitions. A transition costs what ``n_leapfrog``
    gradients cost, and hardly more.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    adaptation : {"fisher", "whitened", "published"}, optional
        How L is learned. ``"fisher"`` (default, not in the paper): as the factor that whitens
        positions and gradients alike. ``"whitened"``: by climbing the paper's objective in the
        coordinates :math:`L^{-1}x`. ``"published"``: by the paper's RMSprop from
        :math:`L = 0.1\, d^{-1/2} I`, with s = 1; the scales of the variables should be near 1.
    gradient : {"fast", "exact"}, optional
        With ``"published"``, whether the objective's derivative takes the gradient at y for
        constant (default), or not, which needs a product with the Hessian, and is not better.
    n_leapfrog : int, optional
        K: a transition makes k leapfrog steps, k uniform in ⌊K/2⌋ + 1 … K. By default ⌈d^¼⌉, but
        at least 2, which is best per gradient where both x and x² matter. 1 is MALA, as in the
        paper, and the only choice of ``"published"``.
    factor : {"dense", "low_rank", "diagonal"}, optional
        Form of L with ``"fisher"``: up to 1000 dimensions dense, beyond a diagonal and what 32
        directions, those of largest and least variance, add to it.
    learning_rate : float or pk.Decay, optional
        η of ``"published"``, 1.5e-4 by default, as in the paper. It has the unit of x.
    steps_per_draw : int, optional
        Transitions per draw, 1 by default.
    target_accept : float, optional
        Acceptance rate that s is tuned to: .574 for one leapfrog step; .75 for more, or what is
        higher with s as great as makes sense, in few dimensions. With ``"published"`` what β is
        tuned to, .55, as in the paper.
    {common parameters}

    Notes
    -----
    The statistic ``scaling`` is s, and ``n_logp`` counts evaluations of the log-density together
    with its gradient. See docs/gad.md for the three adaptations, and the deviations.

    References
    ----------
    Titsias & Dellaportas (2019). Gradient-based adaptive Markov chain Monte Carlo. NeurIPS.
    """

    name = "gad_mala"
    is_walk = False
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
        checked_choice("adaptation", adaptation, ("fisher", "whitened", "published"))
        checked_choice("gradient", gradient, ("fast", "exact"))
        checked_choice("factor", factor, (None, "dense", "low_rank", "diagonal"))
        published, exact = adaptation == "published", gradient == "exact"
        if exact and (not published or common.get("keep_adapting")):
            raise ValueError(
                'gradient="exact" belongs to adaptation="published", and ends with tuning.'
            )
        if factor is not None and adaptation != "fisher":
            raise ValueError(f'factor={factor!r} needs adaptation="fisher", not {adaptation!r}.')
        if n_leapfrog is not None:
            n_leapfrog = checked_integer("n_leapfrog", n_leapfrog, at_least=1)
        if published and n_leapfrog not in (None, 1):
            raise ValueError(f'n_leapfrog={n_leapfrog} is impossible with adaptation="published".')
        if published:
            n_leapfrog = 1
        self.algorithm = {"fisher": FISHER, "whitened": WHITENED, "published": PUBLISHED}[
            adaptation
        ]
        if exact:
            self.algorithm, self.derivatives = PUBLISHED_EXACT, 2
        self.settings = {
            "adaptation": adaptation,
            "gradient": gradient,
            "n_leapfrog": n_leapfrog,
            "factor": factor,
            "learning_rate": checked_rate(learning_rate, adaptation, PUBLISHED_RATE),
        }
        super().__init__(vars, **common)

    def default_target_accept(self, d):
        """Return α*."""
        if self.settings["adaptation"] == "published":
            return PUBLISHED_ACCEPT
        return LEAPFROG_ACCEPT if self._n_leapfrog(d) > 1 else MALA_TARGET_ACCEPT

    def _form(self, d):
        if self.settings["adaptation"] != "fisher":
            return "dense"
        return self.settings["factor"] or ("dense" if d <= DENSE_UP_TO else "low_rank")

    def _n_leapfrog(self, d):
        return self.settings["n_leapfrog"] or default_leapfrog(d)

    def _largest_n_logp(self):
        return self._n_leapfrog(self._d)

    def _needed_tuning(self):
        if self.settings["adaptation"] == "fisher":
            return max(100, 3 * self._d)
        return super()._needed_tuning()

    def _problems(self):
        if self.settings["adaptation"] != "fisher" or self.tuning.n == 0:
            return []
        if np.isnan(self.tuning.information).any():
            return [
                "nothing was learned: hardly a proposal of tuning was plausible and had a finite "
                "gradient. Start elsewhere, or tune longer."
            ]
        blunt = self.tuning.information < SMOOTH
        names = [
            name for name, is_blunt in zip(self._coordinates(), blunt, strict=True) if is_blunt
        ]
        if not names:
            return []
        return [
            f"the gradient says little of {some(names)}: a density that ends abruptly, or has a "
            "constant slope? Transform it, or use pk.GAM."
        ]


def checked_rate(rate, adaptation, default):
    """Return η as a Decay, None if it is not used; raise a ValueError if it is impossible."""
    if adaptation != "published":
        if rate is not None:
            raise ValueError(f'learning_rate needs adaptation="published", not {adaptation!r}.')
        return None
    return checked_schedule("learning_rate", default if rate is None else rate)
