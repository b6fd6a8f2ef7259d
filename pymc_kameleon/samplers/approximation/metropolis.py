"""ApproximationMetropolis: moves by an approximation of the posterior, accepted by the true one.

A chain on the approximation s leads from x to y. Walks and reference moves remain, for where s is
wrong. What s is, a fit decides (fit.py).

Symbols: as in moves.py; s the approximation, not normalised.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import Chain, Density, Trajectory, run_chain, u_of, x_of
from pymc_kameleon.approximation.modes import MODE_NU
from pymc_kameleon.approximation.searches import Searches
from pymc_kameleon.core.arrays import allocate, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.samplers.approximation import learning, moves
from pymc_kameleon.samplers.approximation.fit import Nothing
from pymc_kameleon.samplers.approximation.moves import BY_S, REFERENCE, WALK
from pymc_kameleon.samplers.approximation.step import ApproximationStep
from pymc_kameleon.step.learned import Quantity

ENOUGH_TUNING = 1
"""Transitions of tuning, below which a finding says so: the search has taught what is needed."""

State = extended(
    "State",
    moves.State,
    others=floats("stops", "d"),  # all stops of the last move's chain on s
    log_s_end=floats(1),  # log s where it led, NaN unless it was by s
    noted=floats("noted"),  # what the fit notes of the last evaluation
)


class Found(NamedTuple):
    """What the search has found out, which all chains know."""

    predicts: integers(1)  # whether s was right at its end
    searches: integers(4)  # from starts, their ends, those to the best, if in doubt; 0 before
    looked: integers(1)  # whether mirror images of the best place were looked at


Parameters = extended(
    "Parameters",
    moves.Parameters,
    shares=floats(3),  # probabilities of the kinds of moves
    n_others=integers(1),  # stops that are kept: none while tuning, then all
    look=floats("d"),  # a point to be evaluated next, while tuning
    n_looks=integers(1),  # whether there is one
    s=Chain,  # and more, of the fit
)

Tuning = extended(
    "Tuning",
    moves.Tuning,
    n_learned=integers(1),  # how many of the evaluations the last fit knew
    found=Found,
    choices=Nothing,  # or more, of the fit
    reused=floats("reused", "widest"),
)

Work = extended(
    "Work",
    moves.Work,
    at=Trajectory,
    scratch=Nothing,  # or more
    origin=floats("d"),  # where the chain on s began, in its coordinates
    end=floats("d"),  # the stop that is proposed
)

Kept = extended("Kept", moves.Kept, end_log_s=floats(1), others=floats("stops", "d"))


# ---- transition ---------------------------------------------------------------------------------


def algorithm_of(log_density, jump, note):
    """Return the Algorithm of an s, by the compiled functions of its fit."""

    @jit(inlined=False)
    def transition(target, state, parameters, work, rng):
        """Make a move of a random kind, and note what was evaluated."""
        n_before = target.count[0]
        density = Density(target, parameters.s, work.scratch)
        accept_prob, accepted = move(density, state, parameters, work, rng)
        work.evaluated[0] = target.count[0] > n_before
        if work.evaluated[0]:
            note(density, state.noted)
        else:
            state.noted[:] = np.nan
        return accept_prob, accepted

    @jit
    def move(density, state, parameters, work, rng):
        target, u, v = density.target, state.u, work.v
        state.log_s_end[0] = np.nan
        moves.begin_move(state, work)
        if parameters.n_looks[0] > 0:
            parameters.n_looks[0] = 0
            copy(parameters.look, work.y)
            return moves.look(target, state, work)
        r = rng.random()
        if r < parameters.shares[WALK]:
            work.kind[0], log_hastings, moved = WALK, 0.0, True
            work.is_short[0] = moves.walk_from(u, np.exp(parameters.log_scale[0]), v, rng)
            x_of(parameters, v, work.y)
        elif r < parameters.shares[WALK] + parameters.shares[REFERENCE]:
            work.kind[0], moved = REFERENCE, True
            moves.reference_from(u, MODE_NU, 0.5 * np.pi, v, rng)  # independent of u
            x_of(parameters, v, work.y)
            log_hastings = moves.log_t(u, MODE_NU) - moves.log_t(v, MODE_NU)
        else:
            work.kind[0] = BY_S
            log_hastings, moved = propose_by_s(density, state, parameters, work, rng)
        accept_prob, accepted = 0.0, False
        if moved:
            accept_prob, accepted = moves.accept_move(target, state, work, log_hastings, rng)
        moves.note_move(state, work, accept_prob, work.kind[0] == BY_S)
        return accept_prob, accepted

    @jit(inlined=False)
    def propose_by_s(density, state, parameters, work, rng):
        """Propose a stop of the chain on s from x, which was drawn beforehand.

        Return log s(x)/s(y), and whether the chain has moved; it does not if s(x) = 0.
        """
        s, at, moved = parameters.s, work.at, False
        u_of(s, state.x, work.origin)
        copy(work.origin, at.u)
        start, end = run_chain(
            log_density, jump, density, s, at, state.others, parameters.n_others[0], work.end, rng
        )
        for i in range(state.x.size):
            moved |= work.end[i] != work.origin[i]
        copy(state.x, work.y)
        copy(state.u, work.v)
        work.logp_y[0], state.log_s_end[0] = state.logp[0], end
        if moved:
            x_of(s, work.end, work.y)
            u_of(parameters, work.y, work.v)
        return start - end, moved

    return Algorithm(transition, adapt, derived, report)


@jit
def derived(state, parameters, work):
    """Compute u."""
    u_of(parameters, state.x, state.u)


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Remember the move, and of its evaluation also what the fit notes."""
    moves.adapt(state, parameters, tuning, work, accept_prob, rng)
    if work.evaluated[0]:
        d, last = state.x.size, (tuning.n_evaluated[0] - 1) % tuning.evaluated.shape[0]
        tuning.evaluated[last, d + 1] = state.log_s_end[0]
        copy(state.noted, tuning.evaluated[last, d + 2 :])
    return True


@jit
def report(state, parameters, stats):
    """Report the moves, and the chain on s of the last one."""
    kept = stats.kept
    kept.end_log_s[0] = state.log_s_end[0]
    for r in range(kept.others.shape[0]):
        copy(state.others[r], kept.others[r])
    return moves.report(state, parameters, stats)


# ---- the class ----------------------------------------------------------------------------------


class ApproximationMetropolis(ApproximationStep):
    """Metropolis by an approximation s; `make_fit` returns the Fit that makes it.

    The first of its statistics is the acceptance of moves by s, then come `reference_accept` and
    `kept`. The last of its three `kinds` of moves says what s is called in a result.
    """

    least_between_fits = 2
    lengths_of_run = ApproximationStep.lengths_of_run | {"reused"}

    def make_fit(self, log_density):
        """Return the Fit of s."""
        raise NotImplementedError

    def _make_log_density(self, own, region):
        log_density = self._log_density_of(own, region)
        self.fit = self.make_fit(log_density)
        self.settings = {**self.fit.sizes, "stops": self.fit.stops(self._d)}
        return log_density

    def _log_density_of(self, own, region):
        return super()._make_log_density(own, region)

    def _allocate(self, scales, n_tune):
        d, (s, choices, scratch, reused) = scales.size, self.fit.start(self, scales)
        evaluation = d + 2 + self.fit.n_noted
        sizes, of_parameters, of_tuning = self._for_moves(d, n_tune, evaluation)
        sizes |= {"noted": self.fit.n_noted, "stops": self.settings["stops"]}
        sizes["reused"], sizes["widest"] = reused.shape
        parameters = allocate(Parameters, sizes, factor=np.diag(scales), s=s, **of_parameters)
        tuning = allocate(Tuning, sizes, choices=choices, reused=reused, **of_tuning)
        tuning.worth[BY_S] = moves.EXPECTED_MOVES * np.array([2, 1])  # s is trusted at first
        state = allocate(State, sizes, others=np.nan)
        return state, parameters, tuning, allocate(Work, sizes, scratch=scratch)

    @property
    def searches(self):
        """The Searches that are known to have ended."""
        return Searches(*self.tuning.found.searches.tolist(), self.monitor.number >= 0)

    @classmethod
    def learn(cls, chains):
        """Fit s to all that the chains have evaluated."""
        learning.learn_from(chains, chains[0].rng)

    def _needed_tuning(self):
        return ENOUGH_TUNING

    def _learned(self):
        s = self.parameters.s
        return super()._learned() | {
            "n_inner": Quantity((), s.n_inner[0], "Transitions of the inner chain, M."),
            "leap": Quantity((), s.leap[0], "Length of its leaps, ε."),
        }
