"""Draws of a chain: many transitions each, adaptation included, in one compiled call."""

from functools import cache
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from pymc_kameleon.core.jit import cached_jit, jit, not_inlined
from pymc_kameleon.core.target import (
    Outputs,
    Target,
    clear_tally,
    log_density,
    take_gradient,
    write_outputs,
)

CURRENT, STALE_LOGP, STALE_DERIVED = range(3)
"""What holds of the state at the start of a draw: all; all but logp; all but what is derived."""
MOVED = STALE_LOGP | STALE_DERIVED
"""Only the position holds."""

DRAWS_MADE, AT_STEP, N_PROGRESS = range(3)
"""Places in what an exception leaves behind: draws made in this call, and the step at work."""


class CommonStats(NamedTuple):
    """The statistics of every sampler: the first numbers in the row of a draw.

    To add one takes a line here, and one where a draw is summarised.
    """

    accept_prob: float
    accept_share: float
    n_logp: int
    scaling: float
    model_logp: float


N_COMMON = len(CommonStats._fields)
COMMON = CommonStats(*range(N_COMMON))
"""Their places in that row."""


class Algorithm(NamedTuple):
    """The compiled functions that define a sampler.

    Attributes
    ----------
    transition : (target, state, parameters, work, rng) -> (accept_prob, accepted)
        The Markov transition, exactly invariant for fixed parameters. Keeps `state` consistent:
        what it derived at an accepted proposal it hands over, instead of deriving it again. Of a
        sweep over coordinates, `accepted` is the share of them.
    adapt : (state, parameters, tuning, work, accept_prob, rng) -> bool or None
        Called after each transition while tuning. It knows the length of the tuning phase and
        settles the parameters in its last call. Unless it returns True, which says that nothing
        changed that `derived` depends on, `derived` is called next.
    derived : (state, parameters, work) -> None
        Compute whatever `state` derives from the position, the gradient and the parameters. Called
        after `adapt`, and where somebody else moved the position; the log-density and, in
        ``state.gradient``, its gradient are known there. It sets the log-density to -inf where no
        transition can start.
    report : (state, parameters, stats) -> scale
        Write the sampler's own statistics into the fields of `stats`; change nothing else.
    tuning_transition : (target, state, parameters, tuning, work, rng) -> (accept_prob, accepted)
        Made instead of the transition while tuning, where that does something else, as a search
        for modes. It need not leave the posterior invariant. None if the transition is the same.
    """

    transition: object
    adapt: object
    derived: object
    report: object
    tuning_transition: object = None


@jit
def nothing_derived(state, parameters, work):
    """Do nothing: the state holds nothing that is derived."""


class Block(NamedTuple):
    """One step's part in the draws of a chain."""

    target: Target
    state: NamedTuple
    parameters: NamedTuple
    tuning: NamedTuple
    work: NamedTuple
    rng: Generator
    places: np.ndarray  # where the variables of the target are in the chain's point
    n_transitions: int  # for each draw
    tune: bool
    status: int  # CURRENT, STALE_LOGP, STALE_DERIVED or MOVED, at the start of the first draw
    stats: NamedTuple  # the sampler's own, views of `row`: those of the draw at work
    row: np.ndarray  # (n_stats,), all numbers of that draw; NaN where nothing was written
    rows: np.ndarray  # (draws, ...), where they go; shorter, if what comes last is not kept


@cache
def compile_draws(algorithms):
    """Build the compiled function that makes draws with the steps of `algorithms` in turn."""
    make_draw = _compile_draw(algorithms)

    def draws(blocks, point, outputs: Outputs, progress):
        """Make as many draws as the blocks have rows.

        `point` (n,) moves along. Returns False if a step cannot start where it is.
        """
        for i in range(blocks[0].rows.shape[0]):
            progress[DRAWS_MADE] = i
            progress[AT_STEP] = 0
            if not make_draw(blocks, i, point, progress):
                return False
            progress[AT_STEP] = len(blocks)
            write_outputs(outputs, i, point)
        return True

    parts = tuple(part for algorithm in algorithms for part in algorithm if part is not None)
    return cached_jit(draws, parts)


def _compile_draw(algorithms):
    """Build the function that makes a draw with each of the steps, by recursion over them."""
    (transition, adapt, derived, report, tuning_transition), *others = algorithms
    make_others = _compile_draw(tuple(others)) if others else None
    not_inlined(adapt)  # a tenth of the compilation time, and no cost after tuning
    if tuning_transition is None:

        @jit
        def move(target, state, parameters, tuning, work, rng, tune):
            return transition(target, state, parameters, work, rng)

    else:
        not_inlined(tuning_transition)

        @jit
        def move(target, state, parameters, tuning, work, rng, tune):
            if tune:
                return tuning_transition(target, state, parameters, tuning, work, rng)
            return transition(target, state, parameters, work, rng)

    @jit
    def own_draw(block, i, point):
        """Make the transitions of one step, and summarise them."""
        target, state, parameters = block.target, block.state, block.parameters
        tuning, work, rng = block.tuning, block.work, block.rng
        places, d = block.places, state.x.size
        n_transitions, tune, status = block.n_transitions, block.tune, block.status
        count = target.count[0]
        if i > 0:
            status = CURRENT
        for j in range(d, places.size):
            value = point[places[j]]
            if target.point[j] != value:  # NaN is never what it was
                target.point[j] = value
                # with derivatives, the state is more than logp
                status |= MOVED if target.gradient.size > 0 else STALE_LOGP
        if status & STALE_LOGP:
            state.logp[0] = log_density(target, state.x)
            take_gradient(target, state)
        if status & STALE_DERIVED:
            derived(state, parameters, work)
        if state.logp[0] == -np.inf:
            return False
        sum_accept_prob = 0.0
        sum_accepted = 0.0
        clear_tally(state)
        for _ in range(n_transitions):
            accept_prob, accepted = move(target, state, parameters, tuning, work, rng, tune)
            if tune and not adapt(state, parameters, tuning, work, accept_prob, rng):
                derived(state, parameters, work)
            sum_accept_prob += accept_prob
            sum_accepted += accepted
        for j in range(d):
            point[places[j]] = state.x[j]
        row = block.rows[i]
        row[COMMON.accept_prob] = sum_accept_prob / n_transitions
        row[COMMON.accept_share] = sum_accepted / n_transitions
        row[COMMON.n_logp] = target.count[0] - count
        row[COMMON.scaling] = report(state, parameters, block.stats)
        row[COMMON.model_logp] = state.logp[0]
        for k in range(N_COMMON, row.size):
            row[k] = block.row[k]
            block.row[k] = np.nan
        return True

    if make_others is None:

        @jit
        def make_draw(blocks, i, point, progress):
            return own_draw(blocks[0], i, point)

    else:

        @jit
        def make_draw(blocks, i, point, progress):
            if not own_draw(blocks[0], i, point):
                return False
            progress[AT_STEP] += 1
            return make_others(blocks[1:], i, point, progress)

    return make_draw
