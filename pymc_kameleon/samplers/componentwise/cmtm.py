"""CMTM: adaptive multiple-try Metropolis, one coordinate at a time.

Source: Yang, Levi, Craiu & Rosenthal, "Adaptive component-wise multiple-try Metropolis sampling",
Journal of Computational and Graphical Statistics 28 (2019), here [CMTM].

Symbols: those of sweeps.py, and m the number of tries, σ_j the scale of try j in this
coordinate (all of them are its ladder), z_j the tries, w_j = π(z_j)|z_j − x_k|^α their weights, s
the selected try, x*_j the references, f_j the frequency with which try j was selected, r the number
of adaptation points.
"""

import math
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import argmax, sum_of
from pymc_kameleon.core.scaling import LOG_RANGE
from pymc_kameleon.core.target import log_density_along
from pymc_kameleon.samplers.componentwise import sweeps
from pymc_kameleon.step.learned import COORDINATE, UNITS, Quantity
from pymc_kameleon.step.options import (
    checked_bool,
    checked_integer,
    checked_number,
    checked_scaling_bounds,
)

HOPELESS_ACCEPT = 0.05
"""Acceptance below which a single try with σ_m shows that it is too wide."""

LEAST_OBSERVED = 50
"""Steps of a coordinate, at least, before its number of tries is decided on."""

SHIFT_EVERY = 2
"""Sweeps between shifts of the ladders, per try."""


class Parameters(NamedTuple):
    """What tuning decides, and options."""

    ladders: floats("d", "m")  # σ_j, increasing in each row
    n_single: integers("d")  # single tries that replace the multiple one; 0 if it stays
    single: integers("d")  # … with the scale of this try
    alpha: float


class Tuning(NamedTuple):
    """What tuning remembers: the sweep t of n, and what it has shown of each coordinate."""

    t: integers(1)
    n: int
    n_shifting: int  # sweeps at the start in which the ladders are shifted
    adapt_every: int  # sweeps between adaptation points; 0 if the ladders stay as they are
    fewer_tries: bool  # whether single tries may replace multiple ones
    n_points: integers(1)  # r
    bounds: floats("d", 2)  # least and largest scale
    selected: integers("d", "m")  # since the last adaptation point: how often each try was
    widest: floats("d")  # … in how many sweeps, in the mean, σ_m alone would have been accepted
    squares: floats("d", "m")  # since the ladder changed: squared moves expected of each try alone
    totals: floats("d", 3)  # … squared moves that were made, steps, and their evaluations


class Work(NamedTuple):
    """Scratch, and what the last sweep did."""

    choice: integers("d")  # s; -1 if all weights were 0
    before: floats("d", 2)  # x_k, and log π there
    tries: floats("d", "m")  # z_j
    logp: floats("d", "m")  # … and log π there
    weights: floats("m")  # log w_j, and then w_j
    n_logp: integers("d")  # evaluations made


# ---- a move of one coordinate -------------------------------------------------------------------


@jit
def move(target, state, parameters, k, work, rng):
    """Make a multiple-try step in coordinate k, or some single-try steps instead."""
    if parameters.n_single[k] > 0:
        return single_tries(target, state, parameters, k, rng)
    return multiple_try(target, state, parameters, k, work, rng)


@jit
def single_tries(target, state, parameters, k, rng):
    """Make some single-try steps in coordinate k; return s, mean α and the share accepted."""
    n, s = parameters.n_single[k], parameters.single[k]
    scale = parameters.ladders[k, s]
    sum_accept_prob, n_accepted = 0.0, 0.0
    for _ in range(n):
        accept_prob, accepted = sweeps.single_try(target, state, k, scale, rng)
        sum_accept_prob += accept_prob
        n_accepted += accepted
    return s, sum_accept_prob / n, n_accepted / n


@jit
def multiple_try(target, state, parameters, k, work, rng):
    """Try m values of coordinate k, and move it to one of them or not; return s, α, 1.0 or 0.0."""
    n_before = target.count[0]
    x, ladder, tries, logp = state.x[k], parameters.ladders[k], work.tries[k], work.logp[k]
    work.before[k, 0], work.before[k, 1] = x, state.logp[0]
    for j in range(ladder.size):
        tries[j] = x + ladder[j] * rng.standard_normal()
        logp[j] = log_density_along(target, k, tries[j])
        work.weights[j] = log_weight(logp[j], tries[j] - x, parameters.alpha)
    s, log_total = select(work.weights, rng)
    work.choice[k] = s
    accept_prob, accepted = judge(target, state, parameters, k, s, tries[s], log_total, rng)
    sweeps.move_along(target, state, k, tries[s], logp[s], accepted)
    work.n_logp[k] = target.count[0] - n_before
    return s, accept_prob, 1.0 if accepted else 0.0


@jit
def log_weight(logp, distance, alpha):
    """Logarithm of π|distance|^α, never +inf; -inf where the chain already is, whatever α."""
    if logp == -np.inf or distance == 0.0:
        return -np.inf
    return logp + alpha * np.log(min(abs(distance), 1e300))


@jit
def select(weights, rng):
    """Draw an index ∝ weights, given by logs; return it, -1 if all are 0, and log Σ w."""
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
def judge(target, state, parameters, k, s, y, log_total, rng):
    """Accept the selected try y with α = min(1, Σ_j w_j(z_j|x) / Σ_j w_j(x*_j|z_s)).

    The references x*_j are drawn about z_s, but x*_s is x. Their sum only grows, so most rejections
    are certain before it is complete; the rest is not evaluated. Then α is not known, and 0 is
    reported. Otherwise it is α/cap, with cap the largest that α could be before the last
    reference, so that the mean of what is reported is that of α.
    """
    if s < 0:
        return 0.0, False
    ladder, alpha, u = parameters.ladders[k], parameters.alpha, 1.0 - rng.random()
    ratio, cap = np.exp(log_weight(state.logp[0], state.x[k] - y, alpha) - log_total), 1.0
    for j in range(ladder.size):
        if j == s:
            continue
        if u * ratio >= 1.0:
            return 0.0, False
        cap = min(1.0, 1.0 / ratio)
        z = y + ladder[j] * rng.standard_normal()
        logp = log_density_along(target, k, z)
        ratio += np.exp(log_weight(logp, z - y, alpha) - log_total)
    return min(1.0, 1.0 / ratio) / cap, u * ratio < 1.0


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Adapt the ladders, and at the end of tuning decide where single tries do as well.

    At every adapt_every-th sweep, with probability max(0.99^(r-1), r^(-1/2)), each ladder is
    widened or narrowed; one coin decides for all coordinates. Before, unless the scales were given,
    they are shifted to where the chain is.
    """
    d, m = parameters.ladders.shape
    for k in range(d):
        observe(state, tuning, work, k)
    tuning.t[0] += 1
    t, every = tuning.t[0], tuning.adapt_every
    # A ladder that changed at the end would be seen too shortly to decide on its tries.
    is_late = tuning.fewer_tries and t > tuning.n - LEAST_OBSERVED
    if t <= tuning.n_shifting:
        if t % (SHIFT_EVERY * m) == 0:
            for k in range(d):
                shift_ladder(parameters, tuning, k)
            count_anew(tuning)
    elif every > 0 and (t - tuning.n_shifting) % every == 0 and not is_late:
        tuning.n_points[0] += 1
        r = tuning.n_points[0]
        if rng.random() < max(0.99 ** (r - 1.0), r**-0.5):
            for k in range(d):
                adapt_ladder(parameters, tuning, k)
        count_anew(tuning)
    if t == tuning.n and tuning.fewer_tries:
        for k in range(d):
            decide(parameters, tuning, k)


@jit
def observe(state, tuning, work, k):
    """Record the last step of coordinate k, and what single tries would have moved at no cost."""
    x, logp = work.before[k]
    alpha = 0.0
    for j in range(work.tries.shape[1]):
        alpha = np.exp(min(0.0, work.logp[k, j] - logp))
        if alpha > 0.0:
            distance = work.tries[k, j] - x
            tuning.squares[k, j] += alpha * distance * distance
    tuning.widest[k] += alpha
    distance = state.x[k] - x
    tuning.totals[k, 0] += distance * distance
    tuning.totals[k, 1] += 1.0
    tuning.totals[k, 2] += work.n_logp[k]
    if work.choice[k] >= 0:
        tuning.selected[k, work.choice[k]] += 1


@jit
def count_anew(tuning):
    """Forget how often tries were selected, which has been acted upon."""
    tuning.selected[:] = 0
    tuning.widest[:] = 0.0


@jit
def shift_ladder(parameters, tuning, k):
    """Double all scales if σ_m is selected too often, halve them if σ_1 is."""
    ladder, bounds = parameters.ladders[k], tuning.bounds[k]
    first, last = alarms(tuning.selected[k], tuning.widest[k])
    factor = 0.5 if first > 0 else 2.0
    fits = bounds[0] <= factor * ladder[0] and factor * ladder[-1] <= bounds[1]
    if fits and (first > 0 or last > 0):
        ladder *= factor
        tuning.squares[k] = tuning.totals[k] = 0.0


@jit
def adapt_ladder(parameters, tuning, k):
    """Double or halve σ_1 and σ_m if selected too often or rarely; others are log-equidistant."""
    ladder, bounds = parameters.ladders[k], tuning.bounds[k]
    m = ladder.size
    first, last = alarms(tuning.selected[k], tuning.widest[k])
    low = max(math.ldexp(ladder[0], -first), bounds[0])
    high = min(math.ldexp(ladder[-1], last), bounds[1])
    narrower = high / low < ladder[-1] / ladder[0]
    unchanged = low == ladder[0] and high == ladder[-1]
    if unchanged or low >= high or (narrower and high < 2.0 * low):
        return
    for j in range(m):
        ladder[j] = low * (high / low) ** (j / (m - 1.0))
    ladder[-1] = high
    tuning.squares[k] = tuning.totals[k] = 0.0


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
    if last > 0 and widest < HOPELESS_ACCEPT * n:
        return 1, -1
    return first, last


@jit
def alarm(share, m):
    """1 if one of m tries is selected too often, -1 if too rarely, else 0."""
    return int(share > 2.0 / m) - int(share < 0.5 / m)


@jit
def decide(parameters, tuning, k):
    """Replace the multiple-try step of coordinate k by single tries if these cost less.

    As many as cover 1.5 times its mean squared distance, since many small moves do not add up like
    one long one; all with the scale that covers most.
    """
    squares = tuning.squares[k]
    moved, n_steps, n_logp = tuning.totals[k]
    s = argmax(squares)
    if n_steps < LEAST_OBSERVED or squares[s] == 0.0:
        return
    n_single = max(1, int(np.ceil(1.5 * moved / squares[s])))
    if n_single * n_steps < n_logp:
        parameters.n_single[k] = n_single
        parameters.single[k] = s


# ---- what PyMC sees -----------------------------------------------------------------------------


class Stats(NamedTuple):
    """What a draw tells of each coordinate: ends of its ladder, shares of tries."""

    smallest_scale: floats("d")
    largest_scale: floats("d")
    selected: floats("d", "n_tries")
    accepted: floats("d", "n_tries")


@jit
def report(state, parameters, stats):
    """Report ends of ladders, shares of tries; return the geometric mean of all scales."""
    d, m = parameters.ladders.shape
    n_sweeps = sum_of(state.tally[0, :, 0])  # the last choice is that of none
    sum_of_logs = 0.0
    for k in range(d):
        for j in range(m):
            sum_of_logs += np.log(parameters.ladders[k, j])
            stats.selected[k, j] = state.tally[k, j, 0] / n_sweeps
            stats.accepted[k, j] = state.tally[k, j, 1] / n_sweeps
        stats.smallest_scale[k] = parameters.ladders[k, 0]
        stats.largest_scale[k] = parameters.ladders[k, -1]
    return np.exp(sum_of_logs / (d * m))


class CMTM(sweeps.Componentwise):
    r"""Adaptive componentwise multiple-try Metropolis.

    .. math:: z_j \sim N(x_k, \sigma_{k,j}^2), \qquad w_j = \pi(z_j)\,|z_j - x_k|^\alpha,
        \qquad j = 1, \ldots, m

    In one coordinate k after the other, m tries of different scales compete, one is selected with
    probability proportional to its weight, and accepted or not. So the scale that suits the place
    is found anew at each move: for posteriors that are narrow here and wide there, or have several
    modes along a coordinate. Coordinates that correlate strongly need another sampler.

    Parameters
    ----------
    n_tries : int, optional
        m, at least 3. A move makes at most 2m − 1 evaluations.
    alpha : float, optional
        α, how much long jumps are preferred. 2.9 is the paper's. Tails heavier than those of a t
        with α degrees of freedom, as a Cauchy distribution's, need a smaller one; with 0 the
        narrowest try always wins.
    adapt_every : int, optional
        Sweeps between adaptation points, 200 as in the paper; None to keep the scales as they are.
    scaling : array, optional
        First σ_j, increasing: (n_tries,) for all coordinates, or (d, n_tries). All is then as in
        the paper. By default they are spread from half to eight times the scale of the log-density
        around the start, and shifted to where the chain is. After tuning a coordinate is then moved
        by single tries, where these cost fewer evaluations and move it as far.
    scaling_bounds : (float, float), optional
        Least and largest σ; by default within a factor of 1e6 of where they start.
    steps_per_draw : int, optional
        Sweeps per draw, 1 by default: a sweep makes up to (2m − 1)d evaluations.
    keep_adapting : bool, optional
        Go on adapting after tuning, ever less, with multiple tries. Then ``scaling_bounds``, and a
        ``region`` that bounds all variables, must be given: under these conditions the paper proves
        convergence.
    {common parameters}

    Notes
    -----
    At the r-th adaptation point, with probability :math:`\max(0.99^{r-1}, r^{-1/2})`, σ_m of each
    coordinate is doubled if it was selected too often, halved if too rarely, and σ_1 likewise.
    Statistics are per coordinate, and have the sampler's name: docs/statistics.md.

    Deviations from Yang, Levi, Craiu & Rosenthal (2019): first scales, shifts, single tries,
    references that cannot matter any more are not evaluated, and adaptation ends. See docs/cmtm.md.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CMTM())
    """

    name = "cmtm"
    lacks = frozenset({"target_accept"})
    stats = Stats
    algorithm = Algorithm(sweeps.sweep_by(move), adapt, nothing_derived, report)

    def __init__(
        self,
        vars=None,
        *,
        n_tries=5,
        alpha=2.9,
        adapt_every=200,
        scaling=None,
        scaling_bounds=None,
        **common,
    ):
        log_bounds = checked_scaling_bounds(scaling_bounds)
        keep_adapting = checked_bool("keep_adapting", common.get("keep_adapting", False))
        if keep_adapting and log_bounds is None:
            raise ValueError("keep_adapting needs scaling_bounds: without them scales may diverge.")
        if isinstance(alpha, bool) or alpha != 0:
            alpha = checked_number("alpha", alpha, 0, np.inf)
        if adapt_every is not None:
            adapt_every = checked_integer("adapt_every", adapt_every, at_least=1)
        self.settings = {
            "n_tries": checked_integer("n_tries", n_tries, at_least=3),
            "alpha": float(alpha),
            "adapt_every": adapt_every or 0,
            "bounds": None if log_bounds is None else np.exp(log_bounds),
        }
        super().__init__(vars, scaling=scaling, **common)
        if self.keep_adapting and not np.isfinite(self.configuration["region"]).all():
            raise ValueError(
                "keep_adapting needs a region that bounds all variables sampled here: "
                f"{list(self.var_names)}."
            )

    def _allocate(self, scales, n_tune):
        m, every = self.settings["n_tries"], self.settings["adapt_every"]
        sizes = {"d": scales.size, "m": m, "choices": m + 1}
        ladders, bounds = self._first_ladders(scales)
        tuning = allocate(
            Tuning,
            sizes,
            n=n_tune,
            n_shifting=n_tune // 2 if every > 0 and self.settings["scaling"] is None else 0,
            adapt_every=every,
            fewer_tries=self.settings["scaling"] is None and not self.keep_adapting,
            bounds=bounds,
        )
        parameters = allocate(Parameters, sizes, ladders=ladders, alpha=self.settings["alpha"])
        return allocate(sweeps.State, sizes), parameters, tuning, allocate(Work, sizes)

    def _first_ladders(self, scales):
        """Return ladders (d, m) and their bounds; raise a ValueError if they do not fit."""
        given, bounds, m = (self.settings[name] for name in ("scaling", "bounds", "n_tries"))
        least, largest = (0.0, np.inf) if bounds is None else bounds
        if given is None:
            low, high = np.clip(np.outer([0.5, 8.0], scales), least, largest)
            low = np.minimum(low, max(least, largest / 2))
            high = np.maximum(high, np.minimum(2 * low, largest))
            ladders = np.geomspace(low, high, m, axis=1)
        else:
            ladders = self._given_scales((scales.size, m))
            if not (np.diff(ladders) > 0).all():
                raise ValueError(f"scaling must increase from try to try, not {given.tolist()}.")
            if ladders.min() < least or ladders.max() > largest:
                raise ValueError(f"scaling must lie within scaling_bounds, not {given.tolist()}.")
        return ladders, ladders[:, [0, -1]] * np.exp(LOG_RANGE) if bounds is None else bounds

    def _learned(self):
        ladders, n_single, single = self.parameters[:3]
        chosen = np.where(n_single > 0, ladders[np.arange(self._d), single], np.nan)
        what = "Number of single tries instead of a multiple one; 0 if there is a multiple one."
        alone = "Standard deviation of the single tries; NaN if there is a multiple one."
        each = "Standard deviation σ of each try."
        return {
            "scaling": Quantity((COORDINATE, "trial"), ladders, each, UNITS),
            "n_single_tries": Quantity((COORDINATE,), n_single, what),
            "single_scaling": Quantity((COORDINATE,), chosen, alone, UNITS),
        }

    def _largest_n_logp(self):
        return (2 * self.settings["n_tries"] - 1) * self._d

    def _needed_tuning(self):
        return (2 if self.settings["scaling"] is None else 1) * self.settings["adapt_every"]

    def _tuned_scales(self):
        if self.settings["adapt_every"] == 0:
            return []
        log_ladders, log_bounds = np.log(self.parameters.ladders), np.log(self.tuning.bounds)
        return [
            self._nearest_to_bounds(f"The {which} try", log_ladders[:, j], log_bounds)
            for which, j in [("narrowest", 0), ("widest", -1)]
        ]
