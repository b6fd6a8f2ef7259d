"""CMH and CMTM: Metropolis and adaptive multiple-try Metropolis, one coordinate at a time.

Source: Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling",
Journal of Computational and Graphical Statistics 28 (2019), here [CMTM].

Symbols: k a coordinate, x_k its value, m the number of tries, σ_j the scale of try j in this
coordinate, z_j the tries, w_j = π(z_j)|z_j − x_k|^α their weights, s the selected try, x*_j the
references, f_j the frequency with which try j was selected, r the number of adaptation points.
A transition is a sweep over all coordinates, t counts sweeps, n is the number of those that tune.
"""

import math
from typing import ClassVar, NamedTuple

import numpy as np

from pymc_kameleon.core.chain import N_STATS, SCALING, Algorithm, nothing_derived
from pymc_kameleon.core.history import History, recent, record
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import argmax, copy, sum_of
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    LOG_RANGE,
    OPTIMAL_SCALE,
    ScaleTuning,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.core.target import log_density_along
from pymc_kameleon.monitor import STUCK_SHARE, STUCK_TRANSITIONS, some
from pymc_kameleon.options import (
    checked_bool,
    checked_choice,
    checked_integer,
    checked_number,
    checked_scale_bounds,
)
from pymc_kameleon.step import KameleonStep

CMH_TARGET_ACCEPT = 0.44
"""Best acceptance rate in one dimension [Roberts & Rosenthal 2001]."""

LADDER = np.array([0.5, 8.0])
"""First σ_1 and σ_m, in scales of the coordinate around the start."""

HOPELESS = 0.05
"""Acceptance below which a single try with σ_m shows that it is too wide."""

LEAST_OBSERVED = 50
"""Steps of a coordinate without which its number of tries is not decided on."""

SHIFT_EVERY = 2
"""Sweeps between shifts of the ladders, per try."""

SLOW = 20
"""Sweeps per independent draw from which the user is told that the coordinates correlate."""


class State(NamedTuple):
    """What the next transition needs, and what happened since the draw began.

    Attributes
    ----------
    x : (d,) float64
    logp : (1,) float64
    n_sweeps : (1,) int64
    selected, accepted : (d, m) float64
        Sweeps in which each try was selected, and then accepted.
    idle : (d,) int64
        Sweeps since the coordinate last moved, in this draw or earlier ones.
    """

    x: np.ndarray
    logp: np.ndarray
    n_sweeps: np.ndarray
    selected: np.ndarray
    accepted: np.ndarray
    idle: np.ndarray

    @classmethod
    def empty(cls, d, m):
        """Allocate it."""
        counts = np.zeros(1, np.int64), *np.zeros((2, d, m)), np.zeros(d, np.int64)
        return cls(np.zeros(d), np.zeros(1), *counts)


class Work(NamedTuple):
    """Scratch, and what the last sweep did.

    Attributes
    ----------
    order : (d,) int64
        Coordinates in the order of their moves.
    accept_prob : (d,) float64
        α of each.
    choice : (d,) int64
        The selected try; -1 if all had probability 0.
    before : (d, 2) float64
        x_k, and log π there, before the move.
    tries, logp : (d, m) float64
        z_j, and log π there.
    weights : (m,) float64
        log w_j, and then w_j.
    n_logp : (d,) int64
        Evaluations made.
    """

    order: np.ndarray
    accept_prob: np.ndarray
    choice: np.ndarray
    before: np.ndarray
    tries: np.ndarray
    logp: np.ndarray
    weights: np.ndarray
    n_logp: np.ndarray

    @classmethod
    def empty(cls, d, m):
        """Allocate it."""
        order, choice, n_logp = np.zeros((3, d), np.int64)
        tries, logp = np.zeros((2, d, m))
        before = np.zeros((d, 2))
        return cls(order, np.zeros(d), choice, before, tries, logp, np.zeros(m), n_logp)


# ---- a sweep ------------------------------------------------------------------------------------


@jit
def begin_sweep(target, state, random_order, work, rng):
    """Put the target where the chain is, and decide on the order of the coordinates."""
    copy(state.x, target.point)
    order = work.order
    for i in range(order.size):
        order[i] = i
    if random_order:
        for i in range(order.size - 1, 0, -1):
            j = int(rng.random() * (i + 1))
            order[i], order[j] = order[j], order[i]
    state.n_sweeps[0] += 1


@jit
def single_try(target, x, logp, k, scale, rng):
    """Make a Metropolis step x_k + σξ; return α, and whether it was accepted."""
    y = x[k] + scale * rng.standard_normal()
    logp_y = log_density_along(target, k, y)
    log_ratio = logp_y - logp[0]
    accepted = log_uniform(rng) < log_ratio
    move_or_stay(target.point, x, logp, k, y, logp_y, accepted)
    return np.exp(min(0.0, log_ratio)), accepted


@jit
def move_or_stay(point, x, logp, k, y, logp_y, accepted):
    """Move coordinate k to y, or leave it where it is."""
    if accepted:
        x[k] = y
        logp[0] = logp_y
    point[k] = x[k]


@jit
def write_shares(counts, n_sweeps, stats):
    """Write counts (d, m) as shares of the sweeps, and start to count anew."""
    d, m = counts.shape
    for k in range(d):
        for j in range(m):
            stats[k * m + j] = counts[k, j] / n_sweeps
            counts[k, j] = 0


# ---- CMH ----------------------------------------------------------------------------------------


class CMHParameters(NamedTuple):
    """What tuning decides, log σ_k (d,), and the order of a sweep."""

    log_scales: np.ndarray
    random_order: bool


class CMHTuning(NamedTuple):
    """What tuning remembers: the sweep t (1,) of n, a ScaleTuning per coordinate, and the past."""

    t: np.ndarray
    n: int
    target_accept: float
    bounds: np.ndarray
    averages: np.ndarray
    history: History


@jit
def cmh_transition(target, state, parameters, work, rng):
    """Make a Metropolis step in each coordinate."""
    d = state.x.size
    begin_sweep(target, state, parameters.random_order, work, rng)
    sum_accept_prob, n_accepted = 0.0, 0
    for i in range(d):
        k = work.order[i]
        scale = np.exp(parameters.log_scales[k])
        accept_prob, accepted = single_try(target, state.x, state.logp, k, scale, rng)
        state.accepted[k, 0] += accepted
        state.idle[k] = 0 if accepted else state.idle[k] + 1
        work.accept_prob[k] = accept_prob
        sum_accept_prob += accept_prob
        n_accepted += accepted
    return sum_accept_prob / d, n_accepted / d


@jit
def cmh_adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune each log σ_k to the target acceptance; settle at its mean over the second half.

    In the first quarter the steps are 1: far from the posterior every other move is accepted,
    whatever the scale, so that it grows slowly.
    """
    t, n = tuning.t[0], tuning.n
    time = GOOD_GUESS + t - n // 4 if t >= n // 4 else 0
    for k in range(state.x.size):
        log_scale = parameters.log_scales[k : k + 1]
        scale = ScaleTuning(tuning.target_accept, tuning.bounds[k], tuning.averages[k])
        tune_scale(log_scale, scale, work.accept_prob[k], time)
        settle_scale(log_scale, scale, t, n // 2, n)
    record(tuning.history, state.x)
    tuning.t[0] = t + 1


@jit
def cmh_report(state, parameters, stats):
    """Report the scales and the shares of accepted moves."""
    d = state.x.size
    stats[SCALING] = np.exp(sum_of(parameters.log_scales) / parameters.log_scales.size)
    for k in range(d):
        stats[N_STATS + k] = np.exp(parameters.log_scales[k])
    write_shares(state.accepted, state.n_sweeps[0], stats[N_STATS + d :])
    state.n_sweeps[0] = 0


# ---- CMTM ---------------------------------------------------------------------------------------


class Parameters(NamedTuple):
    """What tuning decides.

    Attributes
    ----------
    scales : (d, m) float64
        σ of each try, increasing in each row.
    n_single : (d,) int64
        Moves of a single try each that coordinate k makes instead of one of m tries; 0 if none.
    single : (d,) int64
        … with the scale of this try.
    alpha : float
    random_order : bool
    """

    scales: np.ndarray
    n_single: np.ndarray
    single: np.ndarray
    alpha: float
    random_order: bool


class Tuning(NamedTuple):
    """What tuning remembers.

    Attributes
    ----------
    t : (1,) int64
    n : int
    n_shifting : int
        Sweeps at the start in which the ladders are shifted.
    adapt_every : int
        Sweeps between adaptation points; 0 if the scales stay as they are.
    fewer_tries : bool
        Whether single tries may replace multiple ones.
    n_points : (1,) int64
        r.
    selected : (d, m) int64
        How often each try was selected since the last adaptation point.
    widest : (d,) float64
        How often a single try with σ_m would have been accepted since then, in the mean.
    squares : (d, m + 1) float64
        Squared distances since a ladder was last changed: expected of each try alone, and moved.
    costs : (d, 2) int64
        Moves since then, and their evaluations.
    bounds : (d, 2) float64
        Least and largest scale.
    history : History
    """

    t: np.ndarray
    n: int
    n_shifting: int
    adapt_every: int
    fewer_tries: bool
    n_points: np.ndarray
    selected: np.ndarray
    widest: np.ndarray
    squares: np.ndarray
    costs: np.ndarray
    bounds: np.ndarray
    history: History


@jit
def transition(target, state, parameters, work, rng):
    """Make a multiple-try step in each coordinate, or some single-try steps instead."""
    d = state.x.size
    begin_sweep(target, state, parameters.random_order, work, rng)
    sum_accept_prob, sum_accepted = 0.0, 0.0
    for i in range(d):
        k = work.order[i]
        if parameters.n_single[k] > 0:
            accept_prob, accepted = single_tries(target, state, parameters, k, rng)
        else:
            accept_prob, accepted = multiple_try(target, state, parameters, k, work, rng)
        state.idle[k] = 0 if accepted > 0.0 else state.idle[k] + 1
        sum_accept_prob += accept_prob
        sum_accepted += accepted
    return sum_accept_prob / d, sum_accepted / d


@jit
def single_tries(target, state, parameters, k, rng):
    """Make some single-try steps in coordinate k; return the mean α and the share accepted."""
    n, s = parameters.n_single[k], parameters.single[k]
    scale = parameters.scales[k, s]
    sum_accept_prob, n_accepted = 0.0, 0
    for _ in range(n):
        accept_prob, accepted = single_try(target, state.x, state.logp, k, scale, rng)
        sum_accept_prob += accept_prob
        n_accepted += accepted
    state.selected[k, s] += 1.0
    state.accepted[k, s] += n_accepted / n
    return sum_accept_prob / n, n_accepted / n


@jit
def multiple_try(target, state, parameters, k, work, rng):
    """Try m values of coordinate k, and move it to one of them or not; return α and 1.0 or 0.0."""
    n_before = target.count[0]
    x, scales, tries, logp = state.x[k], parameters.scales[k], work.tries[k], work.logp[k]
    work.before[k, 0], work.before[k, 1] = x, state.logp[0]
    for j in range(scales.size):
        tries[j] = x + scales[j] * rng.standard_normal()
        logp[j] = log_density_along(target, k, tries[j])
        work.weights[j] = log_weight(logp[j], tries[j] - x, parameters.alpha)
    s, log_total = select(work.weights, rng)
    work.choice[k] = s
    accept_prob, accepted = 0.0, False
    if s >= 0:
        accept_prob, accepted = judge(
            target, state, k, s, tries[s], log_total, scales, parameters.alpha, rng
        )
        state.selected[k, s] += 1.0
        state.accepted[k, s] += accepted
    move_or_stay(target.point, state.x, state.logp, k, tries[s], logp[s], accepted)
    work.n_logp[k] = target.count[0] - n_before
    return accept_prob, 1.0 if accepted else 0.0


@jit
def log_weight(logp, distance, alpha):
    """Logarithm of π|distance|^α, never +inf; -inf where the chain already is, whatever α."""
    if logp == -np.inf or distance == 0.0:
        return -np.inf
    return logp + alpha * np.log(min(abs(distance), 1e300))


@jit
def select(weights, rng):
    """Draw an index with probability ∝ its weight, given by its logarithm; -1 if all are 0.

    Returns the logarithm of their sum, too. `weights` become weights relative to the largest.
    """
    largest = -np.inf
    for weight in weights:
        largest = max(largest, weight)
    if largest == -np.inf:
        return -1, largest
    total = 0.0
    for j in range(weights.size):
        weights[j] = np.exp(weights[j] - largest)
        total += weights[j]
    left, s = total * rng.random(), -1
    for j in range(weights.size):
        if weights[j] > 0.0 and left >= 0.0:
            s = j
        left -= weights[j]
    return s, largest + np.log(total)


@jit
def judge(target, state, k, s, y, log_total, scales, alpha, rng):
    """Accept the selected try with α = min(1, Σ_j w_j(z_j|x) / Σ_j w_j(x*_j|z_s)).

    The references x*_j are drawn about z_s, but x*_s is x. Their sum only grows, so most rejections
    are certain before it is complete; the rest is not evaluated. Then α is not known, and 0 is
    reported. Otherwise it is α/cap, with cap the largest that α could be before the last
    reference, so that the mean of what is reported is that of α.
    """
    x, u = state.x[k], 1.0 - rng.random()
    ratio, cap = np.exp(log_weight(state.logp[0], x - y, alpha) - log_total), 1.0
    for j in range(scales.size):
        if j == s:
            continue
        if u * ratio >= 1.0:
            return 0.0, False
        cap = min(1.0, 1.0 / ratio)
        z = y + scales[j] * rng.standard_normal()
        logp = log_density_along(target, k, z)
        ratio += np.exp(log_weight(logp, z - y, alpha) - log_total)
    return min(1.0, 1.0 / ratio) / cap, u * ratio < 1.0


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Adapt the ladders, and at the end of tuning decide where single tries do as well.

    At every adapt_every-th sweep, with probability max(.99^(r-1), r^(-1/2)), each ladder is widened
    or narrowed; one coin decides for all coordinates. Before, unless the scales were given, they
    are shifted to where the chain is.
    """
    d = state.x.size
    for k in range(d):
        observe(state, tuning, work, k)
    record(tuning.history, state.x)
    t = tuning.t[0] + 1
    tuning.t[0] = t
    if t <= tuning.n_shifting:
        if t % (SHIFT_EVERY * parameters.scales.shape[1]) == 0:
            change_ladders(parameters, tuning, True)
    elif tuning.adapt_every > 0 and (t - tuning.n_shifting) % tuning.adapt_every == 0:
        tuning.n_points[0] += 1
        r = tuning.n_points[0]
        if rng.random() < max(0.99 ** (r - 1.0), r**-0.5):
            change_ladders(parameters, tuning, False)
        tuning.selected[:] = 0
        tuning.widest[:] = 0.0
    if t == tuning.n and tuning.fewer_tries:
        for k in range(d):
            decide(parameters, tuning, k)


@jit
def observe(state, tuning, work, k):
    """Take down what the last multiple-try step of coordinate k shows.

    Each of its tries tells what a single one with this scale would have moved, at no cost.
    """
    m = work.tries.shape[1]
    x, logp = work.before[k]
    alpha = 0.0
    for j in range(m):
        alpha = np.exp(min(0.0, work.logp[k, j] - logp))
        if alpha > 0.0:
            move = work.tries[k, j] - x
            tuning.squares[k, j] += alpha * move * move
    tuning.widest[k] += alpha
    move = state.x[k] - x
    tuning.squares[k, m] += move * move
    tuning.costs[k, 0] += 1
    tuning.costs[k, 1] += work.n_logp[k]
    if work.choice[k] >= 0:
        tuning.selected[k, work.choice[k]] += 1


@jit
def decide(parameters, tuning, k):
    """Replace the multiple-try step of coordinate k by single tries if these cost less.

    As many as cover 1.5 times its mean squared distance, since many small moves do not add up like
    one long one; all with the scale that covers most.
    """
    m = parameters.scales.shape[1]
    squares, n_steps, n_logp = tuning.squares[k], tuning.costs[k, 0], tuning.costs[k, 1]
    s = argmax(squares[:m])
    if n_steps < LEAST_OBSERVED or squares[s] == 0.0:
        return
    n_single = max(1, int(np.ceil(1.5 * squares[m] / squares[s])))
    if n_single * n_steps < n_logp:
        parameters.n_single[k] = n_single
        parameters.single[k] = s


@jit
def change_ladders(parameters, tuning, shift):
    """Shift or adapt the ladders, and observe anew those that change."""
    for k in range(parameters.n_single.size):
        scales, selected, bounds = parameters.scales[k], tuning.selected[k], tuning.bounds[k]
        low, high = scales[0], scales[-1]
        if shift:
            shift_ladder(scales, selected, tuning.widest[k], bounds)
            selected[:] = 0
            tuning.widest[k] = 0.0
        else:
            adapt_ladder(scales, selected, tuning.widest[k], bounds)
        if scales[0] != low or scales[-1] != high:
            tuning.squares[k] = 0.0
            tuning.costs[k] = 0


@jit
def shift_ladder(scales, selected, widest, bounds):
    """Double all scales if σ_m is selected too often, halve them if σ_1 is."""
    first, last = alarms(selected, widest)
    factor = 0.5 if first > 0 else (2.0 if last > 0 else 1.0)
    if bounds[0] <= factor * scales[0] and factor * scales[-1] <= bounds[1]:
        scales *= factor


@jit
def adapt_ladder(scales, selected, widest, bounds):
    """Double or halve σ_1 and σ_m if they are selected too often or too rarely.

    They stay a factor of 2 apart, and the others are equidistant between them on the log scale.
    """
    m = scales.size
    first, last = alarms(selected, widest)
    low = max(math.ldexp(scales[0], -first), bounds[0])
    high = min(math.ldexp(scales[-1], last), bounds[1])
    narrower = high / low < scales[-1] / scales[0]
    unchanged = low == scales[0] and high == scales[-1]
    if unchanged or low >= high or (narrower and high < 2.0 * low):
        return
    for j in range(m):
        scales[j] = low * (high / low) ** (j / (m - 1.0))
    scales[-1] = high


@jit
def alarms(selected, widest):
    """Whether the first and the last try are selected too often (1), too rarely (-1), or neither.

    (1, -1), all are too wide, if none was ever selected, or the last one often although by itself
    it is hopeless: in tails heavier than |x|^-(1+α) the widest try wins, however wide.
    """
    m, n = selected.size, sum_of(selected)
    if n == 0:
        return 1, -1
    first, last = alarm(selected[0] / n, m), alarm(selected[-1] / n, m)
    if last > 0 and widest < HOPELESS * n:
        return 1, -1
    return first, last


@jit
def alarm(share, m):
    """1 if one of m tries is selected too often, -1 if too rarely, else 0."""
    return int(share > 2.0 / m) - int(share < 0.5 / m)


@jit
def report(state, parameters, stats):
    """Report the least and largest scales, and the shares of tries selected and accepted."""
    scales = parameters.scales
    d, m = scales.shape
    sum_of_logs = 0.0
    for k in range(d):
        for j in range(m):
            sum_of_logs += np.log(scales[k, j])
        stats[N_STATS + k] = scales[k, 0]
        stats[N_STATS + d + k] = scales[k, -1]
    stats[SCALING] = np.exp(sum_of_logs / scales.size)
    write_shares(state.selected, state.n_sweeps[0], stats[N_STATS + 2 * d :])
    write_shares(state.accepted, state.n_sweeps[0], stats[N_STATS + 2 * d + d * m :])
    state.n_sweeps[0] = 0


# ---- the classes --------------------------------------------------------------------------------


class Componentwise(KameleonStep):
    """What CMH and CMTM share: a transition is a sweep over the coordinates."""

    default_steps_per_draw = staticmethod(lambda d: 1)
    sweeps_per_draw: ClassVar[float]
    """Sweeps per independent draw of a normal, times the least eigenvalue of its precision matrix
    scaled to a diagonal of 1; measured for correlations from .5 to .95."""

    def __init__(self, vars=None, *, order, **common):
        checked_choice("order", order, ("systematic", "random"))
        self.settings |= {"random_order": order == "random"}
        super().__init__(vars, **common)

    def _stat_name(self, name):
        """Return a statistic's name, with the variables unless these are all continuous ones.

        Two steps must not share a name: PyMC would try to stack arrays of different shapes.
        """
        covers_all = len(self.vars) == len(self.model.continuous_value_vars)
        return "_".join([self.name, name, *([] if covers_all else self.var_names)])

    def _problems(self):
        return [self._explain_idle(), self._explain_correlation()]

    def _explain_idle(self):
        """Name the coordinates that do not move; the base class sees only if none does."""
        n = max(STUCK_TRANSITIONS, int(STUCK_SHARE * self.monitor.draws * self.steps_per_draw))
        idle = [name for name, i in zip(self._coordinates(), self.state.idle, strict=True) if i > n]
        if not idle or not self.monitor.accepted:
            return ""
        return (
            f"{some(idle)} did not move in the last {n} sweeps. Look there for a narrow part of "
            "the posterior; tune longer, give scales, or reparametrise."
        )

    def _explain_correlation(self):
        """Warn if the past shows correlations that moves along the axes cannot follow."""
        start, stop = recent(self.tuning.history)
        points = self.tuning.history.points[start:stop]
        d = self._d
        if d == 1 or len(points) < max(100, 10 * d) or not (np.ptp(points, axis=0) > 0).all():
            return ""
        correlation = np.corrcoef(points.T)
        precision = np.linalg.pinv(correlation, hermitian=True)
        precision /= np.sqrt(np.outer(np.diag(precision), np.diag(precision)))
        values, vectors = np.linalg.eigh(precision)
        sweeps = self.sweeps_per_draw / max(values[0], 1e-9)
        if sweeps < SLOW:
            return ""
        i, j = np.sort(np.argsort(-np.abs(vectors[:, 0]))[:2])
        names = self._coordinates()
        return (
            f"coordinates correlate too much to be moved one by one, most of all {names[i]} and "
            f"{names[j]} (by {correlation[i, j]:.2g} while tuning): about {sweeps:.0f} sweeps per "
            "independent draw. Use pk.GAM, or reparametrise."
        )


class CMH(Componentwise):
    r"""Componentwise Metropolis-Hastings: a random walk in one coordinate after the other.

    .. math:: z \sim N(x_k, \sigma_k^2), \qquad k = 1, \dots, d

    The baseline of :class:`CMTM`, and often as good per evaluation: for posteriors whose
    coordinates hardly correlate, whatever their scales.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    scales : float or array, optional
        σ_k, one number or (d,), to be kept fixed. By default they are tuned.
    order : {"systematic", "random"}, optional
        Of the coordinates in a sweep: always the same (default), or a random permutation.
    scale_bounds : (float, float), optional
        Least and largest σ_k; by default within a factor of 1e6 of where each starts.
    steps_per_draw : int, optional
        Sweeps per draw, 1 by default: a sweep makes d evaluations. Even without correlations an
        independent draw takes 4.5 sweeps, so 5 are good where the log-density is cheap.
    target_accept : float, optional
        Acceptance rate that each σ_k is tuned to; .44, the best in one dimension.
    {common parameters}

    Notes
    -----
    Each σ_k starts at 2.38 times the scale of the log-density around the start. log σ_k follows
    Robbins-Monro with steps 1 in the first quarter of tuning, which leaves far starts behind, then
    :math:`(11+t)^{-0.6}` counted from there, and settles at its mean over the second half.

    The statistic ``scaling`` is the geometric mean of all σ_k; ``cmh_scales`` and
    ``cmh_accepted``, the share of accepted moves, are per coordinate. If other steps sample other
    continuous variables, their names end with those of this step's variables.

    References
    ----------
    Roberts & Rosenthal (2001). Optimal scaling for various Metropolis-Hastings algorithms.
    Statistical Science 16.
    """

    name = "cmh"
    sweeps_per_draw = 4.5
    default_target_accept = staticmethod(lambda d: CMH_TARGET_ACCEPT)
    algorithm = Algorithm(cmh_transition, cmh_adapt, nothing_derived, cmh_report)

    def __init__(self, vars=None, *, scales=None, order="systematic", scale_bounds=None, **common):
        bounds = checked_scale_bounds(scale_bounds)
        if scales is not None and bounds is not None:
            raise ValueError("Give scales, which are fixed, or scale_bounds; not both.")
        self.settings = {"scales": checked_scales(scales), "log_bounds": bounds}
        super().__init__(vars, order=order, **common)

    def _own_stats(self):
        return {self._stat_name(name): (self._d,) for name in ("scales", "accepted")}

    def _allocate(self, scales, n_tune):
        d = scales.size
        fixed, log_bounds = self.settings["scales"], self.settings["log_bounds"]
        if fixed is None:
            start = np.log(OPTIMAL_SCALE * scales)
            bounds = (
                start[:, None] + LOG_RANGE if log_bounds is None else np.tile(log_bounds, (d, 1))
            )
        else:
            start = np.log(broadcast_scales(fixed, (d,)))
            bounds = np.stack([start, start], axis=1)
        return (
            State.empty(d, 1),
            CMHParameters(np.clip(start, *bounds.T), self.settings["random_order"]),
            CMHTuning(
                np.zeros(1, np.int64),
                n_tune,
                self.target_accept,
                bounds,
                np.zeros((d, 2)),
                History.empty(max(400, 40 * d), d),
            ),
            Work.empty(d, 1),
        )

    def _largest_n_logp(self):
        return self._d

    def _needed_tuning(self):
        return 0 if self.settings["scales"] is not None else 100

    def _tuned_scales(self):
        if self.settings["scales"] is not None:
            return []
        log_scales, bounds = self.parameters.log_scales, self.tuning.bounds
        distances = np.minimum(log_scales - bounds[:, 0], bounds[:, 1] - log_scales)
        there = distances <= 0.01 * np.ptp(bounds, axis=1)
        names = [name for name, at in zip(self._coordinates(), there, strict=True) if at]
        worst = np.argmin(distances)
        return [(f"The scale of {some(names)}", log_scales[worst], bounds[worst])]


class CMTM(Componentwise):
    r"""Adaptive componentwise multiple-try Metropolis.

    .. math:: z_j \sim N(x_k, \sigma_{k,j}^2), \qquad w_j = \pi(z_j)\,|z_j - x_k|^\alpha,
        \qquad j = 1, \dots, m

    In one coordinate k after the other, m tries of different scales compete, one is selected with
    probability proportional to its weight, and accepted or not. So the scale that suits the place
    is found anew at each move: for posteriors that are narrow here and wide there, or have several
    modes along a coordinate. Coordinates that correlate strongly need another sampler.

    Parameters
    ----------
    vars : list of variables, optional
        What to sample: continuous free variables of the model. All of them by default; discrete
        ones are left to PyMC's own steps.
    n_tries : int, optional
        m, at least 3. A move makes at most 2m − 1 evaluations.
    alpha : float, optional
        α, how much long jumps are preferred. 2.9 is the paper's. Tails heavier than |x|^-(1+α), as
        those of a Cauchy distribution, need a smaller one; with 0 the narrowest try always wins.
    adapt_every : int, optional
        Sweeps between adaptation points, 200 as in the paper; None to keep the scales as they are.
    scales : array, optional
        First σ_j, increasing: (n_tries,) for all coordinates, or (d, n_tries). By default they
        are spread from half to eight times the scale of the log-density around the start.
    fewer_tries : bool, optional
        After tuning, move a coordinate by single tries where these cost fewer evaluations and move
        it as far. By default, unless scales are given, with which all is as in the paper, or
        ``keep_adapting=True``.
    order : {"systematic", "random"}, optional
        Of the coordinates in a sweep: always the same (default), or a random permutation.
    scale_bounds : (float, float), optional
        Least and largest σ; by default within a factor of 1e6 of where they start.
    steps_per_draw : int, optional
        Sweeps per draw, 1 by default: a sweep makes up to (2m − 1)d evaluations.
    keep_adapting : bool, optional
        Go on adapting after tuning, ever less. Then ``scale_bounds``, and a ``region`` that bounds
        all variables, must be given: under these conditions the paper proves convergence.
    {common parameters}

    Notes
    -----
    ================  =================================
    Argument          Symbol of [CMTM]
    ================  =================================
    ``n_tries``       m
    ``alpha``         α
    ``scales``        :math:`\sigma_j^{(k)}`
    ================  =================================

    At the r-th adaptation point, with probability :math:`\max(.99^{r-1}, r^{-1/2})`, σ_m of each
    coordinate is doubled if it was selected in more than 2/m of the moves since the last one,
    halved if in less than 1/2m; σ_1 is halved and doubled likewise. They stay at least a factor of
    2 apart; the others are equidistant on the log scale. Before, in the first half of tuning and
    unless ``scales`` are given, the ladders are shifted to where the chain is: every 2m sweeps
    doubled if σ_m was selected in more than 2/m of them, halved if σ_1 was.

    With ``fewer_tries`` the tries of tuning also tell how far single ones of each scale would have
    moved. In the end a coordinate whose mean squared distance, 1.5 times over, is covered by n
    single tries of one scale, at fewer evaluations than one move of m tries makes, is moved by
    these. After tuning all is constant, and the chain leaves the posterior exactly invariant.

    Statistics, per coordinate and with the sampler's name: ``cmtm_smallest_scale`` and
    ``cmtm_largest_scale`` (d,); ``cmtm_selected`` and ``cmtm_accepted`` (d, m), shares of the
    draw's sweeps in which try j was selected, and accepted. If other steps sample other continuous
    variables, the names end with those of this step's variables.

    Deviations from the paper: first scales from the log-density around the start, shifts, single
    tries, references that cannot matter any more are not evaluated, and adaptation ends. See
    docs/cmtm.md.

    References
    ----------
    Yang, Levi, Craiu & Rosenthal (2019). Adaptive component-wise multiple-try Metropolis sampling.
    Journal of Computational and Graphical Statistics 28.
    """

    name = "cmtm"
    sweeps_per_draw = 1.6
    tunes_acceptance = False
    algorithm = Algorithm(transition, adapt, nothing_derived, report)

    def __init__(
        self,
        vars=None,
        *,
        n_tries=5,
        alpha=2.9,
        adapt_every=200,
        scales=None,
        fewer_tries=None,
        order="systematic",
        scale_bounds=None,
        **common,
    ):
        bounds = checked_scale_bounds(scale_bounds)
        keep_adapting = checked_bool("keep_adapting", common.get("keep_adapting", False))
        if fewer_tries is None:
            fewer_tries = scales is None and not keep_adapting
        if keep_adapting and bounds is None:
            raise ValueError("keep_adapting needs scale_bounds, without which it may diverge.")
        if keep_adapting and fewer_tries:
            raise ValueError(
                "fewer_tries are decided on when tuning ends; with keep_adapting, never."
            )
        if isinstance(alpha, bool) or alpha != 0:
            alpha = checked_number("alpha", alpha, 0, np.inf)
        self.settings = {
            "n_tries": checked_integer("n_tries", n_tries, at_least=3),
            "alpha": float(alpha),
            "adapt_every": (
                0
                if adapt_every is None
                else checked_integer("adapt_every", adapt_every, at_least=1)
            ),
            "scales": checked_scales(scales),
            "fewer_tries": checked_bool("fewer_tries", fewer_tries),
            "bounds": None if bounds is None else np.exp(bounds),
        }
        super().__init__(vars, order=order, **common)
        if self.keep_adapting and not np.isfinite(self.configuration["region"]).all():
            raise ValueError(
                "keep_adapting needs a region that bounds all variables sampled here: "
                f"{list(self.var_names)}."
            )

    def _own_stats(self):
        d, m = self._d, self.settings["n_tries"]
        shapes = [(d,), (d,), (d, m), (d, m)]
        names = ["smallest_scale", "largest_scale", "selected", "accepted"]
        return dict(zip(map(self._stat_name, names), shapes, strict=True))

    def _allocate(self, scales, n_tune):
        d, settings = scales.size, self.settings
        m = settings["n_tries"]
        ladder, bounds = first_ladders(scales, settings["scales"], settings["bounds"], m)
        return (
            State.empty(d, m),
            Parameters(
                ladder,
                np.zeros(d, np.int64),
                np.zeros(d, np.int64),
                settings["alpha"],
                settings["random_order"],
            ),
            Tuning(
                np.zeros(1, np.int64),
                n_tune,
                n_tune // 2 if settings["scales"] is None and settings["adapt_every"] > 0 else 0,
                settings["adapt_every"],
                settings["fewer_tries"],
                np.zeros(1, np.int64),
                np.zeros((d, m), np.int64),
                np.zeros(d),
                np.zeros((d, m + 1)),
                np.zeros((d, 2), np.int64),
                bounds,
                History.empty(max(400, 40 * d), d),
            ),
            Work.empty(d, m),
        )

    def _largest_n_logp(self):
        return (2 * self.settings["n_tries"] - 1) * self._d

    def _needed_tuning(self):
        return (2 if self.settings["scales"] is None else 1) * self.settings["adapt_every"]

    def _problems(self):
        return [*super()._problems(), self._explain_bounds()]

    def _explain_bounds(self):
        """Name the coordinates whose ladder ends at a bound while it is adapted."""
        if self.tuning.n == 0 or self.settings["adapt_every"] == 0:
            return ""
        names, scales, bounds = self._coordinates(), self.parameters.scales, self.tuning.bounds
        low = [name for name, at in zip(names, scales[:, 0] <= bounds[:, 0], strict=True) if at]
        high = [name for name, at in zip(names, scales[:, -1] >= bounds[:, 1], strict=True) if at]
        problems = []
        if low:
            problems.append(
                f"the scales of {some(low)} ended at their lower bound. Widen scale_bounds, or "
                "rescale."
            )
        if high:
            problems.append(
                f"the scales of {some(high)} ended at their upper bound. Widen scale_bounds; if "
                "tails are heavy, lower alpha, or use pk.CMH; the posterior may be improper."
            )
        return " ".join(problems)


def first_ladders(scales, given, bounds, m):
    """Return ladders (d, m) and their bounds (d, 2); raise a ValueError if they do not fit.

    `scales` (d,) are those of the coordinates; `given` and `bounds` the user's, or None.
    """
    d = scales.size
    least, largest = (0.0, np.inf) if bounds is None else bounds
    if given is None:
        low, high = np.clip(np.outer(LADDER, scales), least, largest)
        low = np.minimum(low, max(least, largest / 2))
        high = np.maximum(high, np.minimum(2 * low, largest))
        ladder = np.ascontiguousarray(np.geomspace(low, high, m, axis=1))
    else:
        ladder = broadcast_scales(given, (d, m))
        if not (np.diff(ladder) > 0).all():
            raise ValueError(f"scales must increase from try to try, not {given.tolist()}.")
        if ladder.min() < least or ladder.max() > largest:
            raise ValueError(f"scales must lie within scale_bounds, not {given.tolist()}.")
    if bounds is None:
        return ladder, np.column_stack([ladder[:, 0], ladder[:, -1]]) * np.exp(LOG_RANGE)
    return ladder, np.tile(bounds, (d, 1))


def checked_scales(scales):
    """Return the user's scales as an array, or None; raise a ValueError unless all are positive."""
    if scales is None:
        return None
    try:
        array = np.array(scales)
    except ValueError:  # rows of different lengths
        array = np.array("")
    if array.dtype.kind not in "iuf" or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"scales must be positive numbers, not {scales!r}.")
    return array.astype(float)


def broadcast_scales(scales, shape):
    """Return scales of this shape; raise a ValueError if that is impossible."""
    try:
        return np.broadcast_to(scales, shape).copy()
    except ValueError:
        raise ValueError(
            f"scales must have shape {shape} or {shape[1:]}, not {scales.shape}."
        ) from None
