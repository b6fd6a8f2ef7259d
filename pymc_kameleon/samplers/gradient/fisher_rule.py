"""GadMALA's default rule, which learns L from positions and gradients (not in [TD]).

Symbols: as in mala.py, and t the transition, n the number of tuning transitions, α the acceptance
probability and α* its target.
"""

from functools import cache
from itertools import compress
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, bools, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.factor import diagonal_factor
from pymc_kameleon.core.history import History, forget_older_half, record
from pymc_kameleon.core.jit import cached_jit, jit, python_or_jit, specialise
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.scaling import ScaleTuning, set_scale, settle_scale, tune_scale
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import some
from pymc_kameleon.samplers.gradient import mala
from pymc_kameleon.samplers.gradient.fisher import SMOOTH, learn_factor
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
