"""What a chain has seen: its log-densities, its rejections, its way to the posterior."""

from dataclasses import dataclass

import numpy as np

STUCK_SHARE, STUCK_TRANSITIONS = 0.1, 100
"""A run of rejections is reported if it is longer than this share of the draws, and this number."""


def longest_rejection(accepted, before=0):
    """Return the most draws in a row without an accepted proposal; `before` came just before."""
    ends = np.concatenate(([-1 - before], accepted.nonzero()[0], [len(accepted)]))
    return int((ends[1:] - ends[:-1]).max()) - 1


@dataclass
class ChainMonitor:
    """What a chain has seen, for its warnings.

    Attributes
    ----------
    tune, draws : int
        Draws of tuning and after it, as PyMC announced them.
    done : int
        Draws made.
    learned : int
        Draws made when the step learned in Python for the last time; -1 before that.
    uncounted : int
        Evaluations by which the chains learned together, which no draw has counted yet.
    common_start : bool
        Whether the chain began at the model's initial point.
    climbing : float
        What the log-density still gained when the way to the posterior ended for want of
        evaluations.
    noise : float
        Variance of estimates of the log-density where tuning ended; 0 if it is no estimate.
    accepted : bool
        Whether any proposal was accepted after tuning.
    run, longest : int
        Draws after tuning without an accepted proposal: now, and at most in a row.
    accept_sum : float
        Sum of the draws' acceptance probabilities; it starts anew when tuning has ended.
    infinite : int
        Proposed points at which the log-density was +inf.
    """

    tune: int
    draws: int
    done: int = 0
    learned: int = -1
    uncounted: int = 0
    common_start: bool = False
    climbing: float = 0.0
    noise: float = 0.0
    accepted: bool = False
    run: int = 0
    longest: int = 0
    accept_sum: float = 0.0
    infinite: int = 0

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
