"""What a chain has seen: its log-densities, its rejections, its way to the posterior."""

from dataclasses import dataclass

import numpy as np

STUCK_SHARE, STUCK_TRANSITIONS = 0.1, 100
"""A run of rejections is reported if it is longer than this share of the draws, and this number."""

NO_LIMIT = int(np.iinfo(np.int64).max)
"""Evaluations of a way to the posterior that is not limited."""


def longest_rejection(accepted, before=0):
    """Return the most draws in a row without an accepted proposal; `before` came just before."""
    ends = np.concatenate(([-1 - before], accepted.nonzero()[0], [len(accepted)]))
    return int((ends[1:] - ends[:-1]).max()) - 1


@dataclass
class ChainMonitor:
    """What a chain has seen, for its warnings."""

    tune: int  # draws of tuning that PyMC announced
    draws: int  # draws after it
    done: int = 0  # draws made
    learned: int = -1  # draws made when the step last learned in Python; -1 before that
    uncounted: int = 0  # evaluations for the start, and to learn together, that no draw counts yet
    arrived: bool = False  # whether it has been on its way to the posterior, before the first draw
    common_start: bool = False  # whether the chain began at the model's initial point
    not_found: int = 0  # evaluations that have not found the posterior, if none were left
    climbing: float = 0.0  # what logp still gained when the way had no evaluations left
    noise: float = 0.0  # variance of estimates of logp where tuning ended; 0 if it is no estimate
    accepted: bool = False  # whether any proposal was accepted after tuning
    run: int = 0  # draws after tuning without an accepted proposal, now
    longest: int = 0  # the same, at most in a row
    accept_sum: float = 0.0  # of draws' acceptance probabilities; starts anew when tuning has ended
    infinite: int = 0  # proposed points at which the log-density was +inf
    most_on_the_way: int = NO_LIMIT  # evaluations for the way to the posterior, start and end too
    longest_way: int = NO_LIMIT  # the same, of any chain of the run: for so many there is room
    looks_for: int = -1  # evaluations of all chains, if others follow it; 0 if it follows; else -1
    number: int = -1  # of the chain in pk.sample
    spreads: bool = False  # whether it may begin in another mode than its search has come to
    searches: int = 0  # for the whole posterior, from different starts
    ends: int = 0  # of these searches, see approximation/searches.py
    of_prior: int = 0  # draws of the prior that were evaluated
    impossible: int = 0  # of these, where there is no finite log-density
    on_the_way: int = 0  # evaluations before the first transition
    to_tune: int = 0  # evaluations while tuning, after that
    to_draw: int = 0  # evaluations after tuning
    checks: int = 0  # evaluations by which runs that go on saw that all is as it was

    def count(self, before, n):
        """Count evaluations of draws: `before` the first transition of the chain, and in all."""
        self.on_the_way += before
        if self.done < self.tune:
            self.to_tune += n - before
        else:
            self.to_draw += n - before

    @property
    def evaluations(self):
        """Evaluations that the chain has made."""
        return self.on_the_way + self.to_tune + self.to_draw + self.uncounted

    def follow(self, accept_probs, accept_shares):
        """Take notice of draws, which are all of tuning or all after it."""
        sums = accept_probs.copy()
        if self.done != self.tune:
            sums[0] += self.accept_sum
        self.accept_sum = float(sums.cumsum()[-1])  # one by one, so equal in any portions
        n = len(accept_shares)
        self.done += n
        if self.done <= self.tune:
            return
        moves, before = accept_shares.nonzero()[0], self.run
        if moves.size == 0:
            self.run += n
        else:
            self.accepted, self.run = True, n - 1 - int(moves[-1])
        longest = longest_rejection(accept_shares, before) if n > 1 else self.run  # which is quick
        self.longest = max(self.longest, longest)

    @property
    def mean_accept(self):
        """Mean acceptance probability of the draws: after tuning, once there are some."""
        return self.accept_sum / (self.done - self.tune if self.done > self.tune else self.done)

    @property
    def finished(self):
        """Whether that was the last draw."""
        return self.done == self.tune + self.draws

    def is_stuck(self, steps_per_draw):
        """Return whether the chain did not move for long, after tuning."""
        long_enough = self.longest * steps_per_draw >= STUCK_TRANSITIONS
        return long_enough and self.longest > STUCK_SHARE * self.draws
