"""A draw: many transitions, adaptation included, in one compiled call."""

from functools import cache
from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import cached_jit
from pymc_kameleon.core.target import log_density

CURRENT, STALE, MOVED = 0, 1, 2
"""What holds of the state at the start of a draw: all of it; all but logp; the position only."""

ACCEPT_PROB, ACCEPT_SHARE, LOGP, SCALING, N_STATS = range(5)
"""Places in the statistics of a draw; a sampler's own follow from N_STATS on."""


class Algorithm(NamedTuple):
    """The compiled functions that define a sampler.

    Attributes
    ----------
    transition : (target, state, parameters, work, rng) -> (accept_prob, accepted)
        The Markov transition, exactly invariant for fixed parameters. Keeps `state` consistent.
        Of a sweep over coordinates, `accepted` is the share of them.
    adapt : (state, parameters, tuning, work, accept_prob, rng) -> None
        Called after each transition while tuning. It knows the length of the tuning phase and
        settles the parameters in its last call.
    locate : (state, parameters, work) -> None
        Recompute what `state` derives from the position, after somebody else moved it and the
        log-density was evaluated there; set that to -inf where no transition can start.
    report : (state, parameters, stats) -> None
        Write the scale and the sampler's own statistics, stats[SCALING:].
    """

    transition: object
    adapt: object
    locate: object
    report: object


@cache
def compile_draw(algorithm):
    """Build the compiled function that makes one draw with `algorithm`."""
    transition, adapt, locate, report = algorithm

    def draw(target, state, parameters, tuning, work, rng, n_transitions, tune, status, stats):
        """Run `n_transitions` and summarise them in `stats`.

        Returns False, and has done nothing, if it cannot start where it is.
        """
        if status != CURRENT:
            state.logp[0] = log_density(target, state.x)
        if status == MOVED:
            locate(state, parameters, work)
        if state.logp[0] == -np.inf:
            return False
        sum_accept_prob = 0.0
        sum_accepted = 0.0
        for _ in range(n_transitions):
            accept_prob, accepted = transition(target, state, parameters, work, rng)
            if tune:
                adapt(state, parameters, tuning, work, accept_prob, rng)
            sum_accept_prob += accept_prob
            sum_accepted += accepted
        stats[ACCEPT_PROB] = sum_accept_prob / n_transitions
        stats[ACCEPT_SHARE] = sum_accepted / n_transitions
        stats[LOGP] = state.logp[0]
        report(state, parameters, stats)
        return True

    return cached_jit(draw, algorithm)
