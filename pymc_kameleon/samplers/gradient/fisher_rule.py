"""GadMALA's default rule, which learns L from positions and gradients (not in [TD]).

For a normal target with covariance Σ the gradients have covariance Σ⁻¹, so Σ is the geometric mean
of the positions' covariance and the inverse of the gradients'. Both have the same noise, which
cancels: some d pairs are enough, where the covariance alone needs many times more.

Symbols: as in mala.py, and t the transition, n the number of tuning transitions, α the acceptance
probability and α* its target; k pairs (x, g) of d coordinates; vx, vg their variances; s_i the
scales √(vx/vg)^½; A and B the standardised positions (x − mean)/s_i and gradients (g − mean)s_i; Cx
and Cg their second moments.
"""

from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, bools, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.factor import diagonal_factor, is_diagonal
from pymc_kameleon.core.history import History, forget_older_half, record
from pymc_kameleon.core.jit import cached_jit, jit, python_or_jit, specialise
from pymc_kameleon.core.linalg import cholesky, copy, geometric_mean, second_moments
from pymc_kameleon.core.scaling import ScaleTuning, set_scale, settle_scale, tune_scale
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import some
from pymc_kameleon.samplers.gradient import mala
from pymc_kameleon.step.messages import say_if_compiling
from pymc_kameleon.step.pooling import in_the_same_place

MOST_PAIRS = 1000
"""Pairs that are kept at most; for a dense L 4d more."""

FEWEST_PAIRS = 4
"""Pairs, at least, from which L is learned."""

MOST_DENSE = MOST_PAIRS
"""Coordinates up to which L is dense by default, and GadMALA the default sampler: with more, there
would be fewer pairs than coordinates."""

FAST_GOOD_GUESS = 3
"""First step of `fast_gain` for a scale that starts from a good guess."""

SMOOTH = 0.1
"""Least vx·vg for which the gradient is believed: it is at least 1 for a smooth density [Cramér-
Rao], and tends to 0 where a density ends abruptly."""

SMOOTH_EARLY = 1e-8
"""The same while the pairs may cover a small part of the density only: s is at most 100 √vx."""


class FisherTuning(NamedTuple):
    """What tuning remembers."""

    t: integers(1)
    n: int
    end: int  # from here on L is frozen
    scale: ScaleTuning
    scale_start: integers(1)  # the transition that step 0 of s was, or would have been
    last_scale: ScaleTuning  # from `end` on
    pair: floats("2d")  # the last proposal, and the gradient there
    pairs: History  # of those that were plausible
    next_refresh: integers(1)  # number of transitions after which L is learned
    is_pooled: bools(1)  # whether that is done, from the pairs of all chains
    information: floats("d")  # variance of each coordinate times that of its gradient, at last


def start(step, scales, n_tune):
    """Return L to begin with, and its tuning."""
    d, form = scales.size, step.settings["factor"]
    is_dense = d <= MOST_DENSE if form is None else form == "dense"
    capacity = min(n_tune, MOST_PAIRS + (4 * d if is_dense else 0))
    n_leapfrog, target_accept = step._n_leapfrog(d), step.target_accept
    of_single = target_accept if n_leapfrog == 1 else mala.MALA_TARGET_ACCEPT
    _, scale = ScaleTuning.start(of_single, 0.0, (-np.inf, np.inf))
    end, last_scale = last_phase(n_tune, target_accept, n_leapfrog)
    tuning = allocate(
        FisherTuning,
        {"d": d, "2d": 2 * d},
        n=n_tune,
        end=end,
        scale=scale,
        last_scale=last_scale,
        pairs=History.empty(capacity, 2 * d),
        next_refresh=first_refresh(n_tune, d),
        information=np.nan,
    )
    return diagonal_factor(scales, is_dense), tuning


@jit
def tuning_transition(target, state, parameters, tuning, work, rng):
    """Make MALA's transition, of a single step as long as L is learned, and keep y and g′."""
    n_leapfrog = 1 if tuning.t[0] < tuning.end else parameters.n_leapfrog
    now = mala.Parameters(parameters.log_scale, parameters.factor, n_leapfrog)
    outcome = mala.transition(target, state, now, work, rng)
    copy(work.y, tuning.pair[: work.y.size])
    copy(target.gradient, tuning.pair[work.y.size :])
    return outcome


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune s, learn L at growing intervals from plausible proposals; return whether L stayed."""
    t, refreshes = tuning.t[0], False
    if t < tuning.end:
        eta = fast_gain(t - tuning.scale_start[0])
        tune_scale(parameters.log_scale, tuning.scale, 0, accept_prob, eta)
        plausible = work.logp_y[0] > state.logp[0] - 10.0 - state.x.size
        if plausible and work.log_hastings[0] > -np.inf:
            record(tuning.pairs, tuning.pair)
        refreshes = t + 1 == tuning.next_refresh[0]
        if refreshes:
            refresh(parameters, tuning)
    else:
        tune_last(parameters, tuning, accept_prob)
    tuning.t[0] = t + 1
    return not refreshes


@jit
def refresh(parameters, tuning):
    """Learn L, begin with s anew, and forget the older half of the pairs."""
    done, n_pairs = tuning.t[0] + 1, tuning.pairs.counts[0]
    if not tuning.is_pooled[0]:
        if n_pairs < FEWEST_PAIRS:
            tuning.next_refresh[0] = min(done + 11, tuning.end)
            return
        pairs, is_early = tuning.pairs.points[:n_pairs], done < tuning.n // 2
        learn_factor(pairs, is_early, parameters.factor, tuning.information)
    tuning.is_pooled[0] = False
    log_best = np.log(mala.best_langevin_scale(tuning.information.size))
    set_scale(parameters.log_scale, tuning.scale, 0, log_best)
    tuning.scale_start[0] = done - FAST_GOOD_GUESS
    forget_older_half(tuning.pairs)
    tuning.next_refresh[0] = following_refresh(done, tuning.end)


def first_refresh(n_tune, d):
    """Return when L is learned first: sooner, so few pairs would show less than the start."""
    return max(1, min(n_tune // 3, max(20, d // 4)))


@python_or_jit
def following_refresh(done, end):
    """Return when L is learned next, after `done` transitions; at `end` for the last time."""
    following = done + max(20, done // 2)
    return following if following <= end - 20 else end


# ---- L of some pairs -----------------------------------------------------------------------------


@jit(allocates=True)
def learn_factor(pairs, is_early, factor, information):
    """Set L such that x ↦ L⁻¹x whitens positions and gradients of the pairs alike.

    `pairs` (k, 2d) are positions, and gradients beside them; early ones may cover a part of the
    target only. L is (d, d), or its diagonal (d, 1), and is diagonal if moments are not finite.
    `information` (d,) becomes vx·vg.
    """
    k, d = pairs.shape[0], pairs.shape[1] // 2
    a, b, scales = np.empty((k, d)), np.empty((k, d)), np.empty(d)
    least = SMOOTH_EARLY if is_early else SMOOTH
    standardise(pairs, least, a, b, scales, information)
    if is_diagonal(factor):
        copy(scales, factor[:, 0])
        return
    cx, cg = np.empty((d, d)), np.empty((d, d))
    ridge = 0.05 / (0.05 + k * k)
    regularised_moments(a, ridge, cx)
    regularised_moments(b, ridge, cg)
    for i in range(d):  # where the gradient says nothing, let Cg be 1 as Cx is
        cg[i, i] += max(0.0, 1.0 - information[i] / least)
    if not (geometric_mean(cx, cg) and cholesky(cx, factor)):
        for i in range(d):
            for j in range(i + 1):
                factor[i, j] = 1.0 if i == j else 0.0
    for i in range(d):
        for j in range(i + 1):
            factor[i, j] *= scales[i]


@jit
def standardise(pairs, least, a, b, scales, information):
    """Write A and B (k, d), s and vx·vg (d,); s² is vx where vx·vg is less than `least`."""
    k, d = a.shape
    for i in range(d):
        mean_x = mean_g = vx = vg = 0.0
        for r in range(k):
            mean_x += pairs[r, i] / k
            mean_g += pairs[r, d + i] / k
        for r in range(k):
            x, g = pairs[r, i] - mean_x, pairs[r, d + i] - mean_g
            vx += x * x / k
            vg += g * g / k
        information[i] = vx * vg
        variance = np.sqrt(vx / vg) if vx * vg >= least else vx
        scale = np.sqrt(min(max(variance, 1e-20), 1e20)) if vx > 0.0 else 1.0
        for r in range(k):
            a[r, i] = (pairs[r, i] - mean_x) / scale
            b[r, i] = (pairs[r, d + i] - mean_g) * scale
        scales[i] = scale


@jit
def regularised_moments(rows, ridge, out):
    """Write the rows' second moments, mixed with the multiple of I that has their trace."""
    second_moments(rows, out)
    d = out.shape[0]
    trace = 0.0
    for i in range(d):
        trace += out[i, i]
    for i in range(d):
        for j in range(i + 1):
            out[i, j] *= 1.0 - ridge
        out[i, i] += ridge * trace / d + 1e-12


# ---- the end of tuning, of GadRWM too: L is frozen, and s fitted to K leapfrog steps -------------


def last_phase(n_tune, target_accept, n_leapfrog=1):
    """Return its first transition, a tenth of n or 100 before the end, and the tuning of s."""
    start = n_tune - min(max(100, n_tune // 10), n_tune // 3)
    bounds = -np.inf, longest_scale(n_leapfrog)
    return start, ScaleTuning.start(target_accept, 0.0, bounds)[1]


def longest_scale(n_leapfrog):
    """Return the largest log s: the mean trajectory is at most a quarter of a normal's period."""
    if n_leapfrog == 1:
        return np.inf
    mean_steps = (n_leapfrog // 2 + 1 + n_leapfrog) / 2
    return np.log(2 * np.sin(np.pi / (4 * mean_steps)))


@jit
def fast_gain(k):
    """Step size k of the recursions on log s, which have little time."""
    return min(0.5, 1.5 * (1.0 + k) ** -0.6)


@jit
def tune_last(parameters, tuning, accept_prob):
    """Tune log s, and settle at its mean over the last two thirds of the phase."""
    t, n, start = tuning.t[0], tuning.n, tuning.end
    eta = fast_gain(t - start + FAST_GOOD_GUESS)
    tune_scale(parameters.log_scale, tuning.last_scale, 0, accept_prob, eta)
    settled = start + (n - start) // 3
    settle_scale(parameters.log_scale, tuning.last_scale, 0, t, settled, max(n, t + 1))


# ---- chains that learn together ------------------------------------------------------------------


def pauses(step):
    """Return the draws in which L is learned, so that before them the chains pool their pairs."""
    n, end = step.tuning.n, step.tuning.end
    times = [first_refresh(n, step._d)]
    while times[-1] < end:
        times.append(following_refresh(times[-1], end))
    return sorted({(time - 1) // step.steps_per_draw for time in times} - {0})


def learn(chains):
    """Let the chains that are in the same place have the L that the pairs of all show.

    Pairs are taken about the mean of their chain, so that it does not matter if chains are in
    several modes. Little is lost: what the means differ by, the mean gradients differ by too.
    """
    together = in_the_same_place(chains)
    windows = [chain.tuning.pairs.points[: chain.tuning.pairs.counts[0]] for chain in together]
    if len(together) < 2 or sum(map(len, windows)) < FEWEST_PAIRS + len(together):
        return
    pairs = np.concatenate([window - window.mean(axis=0) for window in windows if len(window)])
    factor, tuning = together[0].parameters.factor, together[0].tuning
    is_early = bool(tuning.t[0] < tuning.n // 2)
    compiled_learning()(pairs, is_early, factor, tuning.information)
    for chain in together:
        chain.parameters.factor[:] = factor
        chain.tuning.information[:] = tuning.information
        chain.tuning.is_pooled[0] = True


@cache
def compiled_learning():
    """Return `learn_factor` for Python."""

    def learn(pairs, is_early, factor, information):
        learn_factor(pairs, is_early, factor, information)

    with say_if_compiling("what GadMALA's chains learn together"):
        entry = cached_jit(learn, (learn_factor,))
        return specialise(entry, np.zeros((1, 2)), True, np.zeros((1, 1)), np.zeros(1))


def needed_tuning(step):
    """Return how many transitions of tuning it needs."""
    return max(100, 3 * step._d)


def findings(step):
    """Tell of what was not learned."""
    tuning = step.tuning
    if tuning.n == 0:
        return []
    if np.isnan(tuning.information).any():
        return [finding("nothing_learned")]
    flat = list(compress(step.layout.coordinates(), tuning.information < SMOOTH))
    return [finding("flat_gradient", names=some(flat))] if flat else []


FISHER = Algorithm(mala.transition, adapt, mala.derived, mala.report, tuning_transition)
"""GadMALA's default algorithm."""
