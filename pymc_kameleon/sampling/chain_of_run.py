"""A chain of a run, and the way of the first one, as the run sees them: what is being made."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pymc_kameleon.sampling.budget import with_lengths
from pymc_kameleon.step.job import ask, evaluate, told

NUMBERS_PER_ADVANCE = 200_000
"""Numbers of its draws that an advance may make."""


class Chain:
    """One chain of a run: its last ChainState, and the advance that is being made.

    `row` is its row in the arrays of draws, `number` its number in the result. The job's `steps`
    are needed for their names.
    """

    def __init__(self, row, number, state, steps):
        self.row, self.number, self.state, self.steps = row, number, state, steps
        self.tune, self.begun = state.monitor.tune, state.monitor.done
        self.total = self.tune + state.monitor.draws
        self.last_stats, self.seconds, self.evaluations, self.n_calls = None, 0.0, 0, 0
        self.future, self.failures, self.lost, self._n = None, 0, False, 1

    def settle(self, tune, draws):
        """Let it make so many draws, of tuning and after it."""
        self.state = with_lengths(self.steps, self.state, tune, draws)
        self.tune, self.total = tune, tune + draws

    @property
    def done(self):
        """Draws made, of tuning and before the run was resumed too."""
        return self.state.monitor.done

    @property
    def has_arrived(self):
        """Whether it has been on its way to the posterior."""
        return all(own.monitor.arrived for own in self.state.steps)

    @property
    def is_on_its_way(self):
        """Whether it has made evaluations on its way to the posterior, besides its start's."""
        trails = [own.trail[:, 0] for own in self.state.steps]
        return any(np.count_nonzero(~np.isnan(trail)) > 1 for trail in trails)

    @property
    def made(self):
        """Draws made after tuning."""
        return max(0, self.done - self.tune)

    @property
    def n_tune(self):
        """Draws of tuning in this run."""
        return max(0, self.tune - self.begun)

    @property
    def can_advance(self):
        """Whether it could go on if there were a worker."""
        return self.future is None and not self.lost and self.done < self.total

    def next_portion(self, pauses):
        """Return how many draws to make now, of which Python has to see nothing in between."""
        stops = (*pauses, self.tune, self.total)
        left = min(stop for stop in stops if stop > self.done) - self.done
        return left if left < 2 * self._n else self._n  # a few draws are not worth a trip

    def shorten_advances(self):
        """Make fewer draws at a time, as a likelihood that leaks may not get through so many."""
        self._n = max(1, self._n // 4)

    def take(self, state, portion, seconds, width):
        """Take what has come back; the next advance should take so many seconds."""
        n = state.monitor.done - self.done
        self.state, self.failures = state, 0
        self.seconds += portion.seconds
        self.evaluations += portion.n_logp
        self.n_calls += portion.n_calls
        if n == 0:
            return
        self.last_stats = portion.last
        most = min(10 * n, max(1, NUMBERS_PER_ADVANCE // width))
        self._n = int(np.clip(n * seconds / max(portion.seconds, 1e-9), 1, most))


@dataclass
class Evaluation:
    """A point that is evaluated: its task, and what has come back."""

    task: tuple
    future: Any = None
    failures: int = 0
    found: tuple | None = None


class FirstWay:
    """The way of the first chain to the posterior, whose evaluations are made many at a time.

    The other chains wait for it. It asks for points, which workers evaluate, and gets their values
    in the order in which it asked. `evaluations` is what it has asked for, and not been told yet.
    """

    def __init__(self, job, chain):
        self._job, self._chain, self._steps = job, chain, job.idle_steps()
        self.evaluations, self._asked = [], None

    def goes_on(self):
        """Ask for points if all are evaluated; return whether there are any."""
        if not self.evaluations:
            self._chain.state, self._asked = ask(self._job, self._steps, self._chain.state)
            if self._asked is None:
                self._job.give_back(self._steps)
                return False
            k, points = self._asked
            self.evaluations = [Evaluation((evaluate, k, q)) for q in points]
        return True

    @property
    def under_way(self):
        """The evaluations that are being made."""
        return [each for each in self.evaluations if each.future is not None]

    def next_ones(self, n):
        """Return at most n evaluations to begin with now; one that killed its worker alone."""
        left = [e for e in self.evaluations if e.future is None and e.found is None]
        suspects = [e for e in left if e.failures]
        n = min(n, 1) if suspects else n
        return (suspects or left)[: max(0, n - len(self.under_way))]

    def take(self, evaluation, found):
        """Take what was found, and tell the chain as much as it is its turn."""
        evaluation.found = found
        self._chain.evaluations += found[-1]
        while self.evaluations and self.evaluations[0].found is not None:
            done = self.evaluations.pop(0)
            self._chain.state = told(self._chain.state, self._asked.k, *done.found)

    def where(self, evaluation):
        """Say which evaluation it is, for an exception."""
        known = self._chain.state.search.evaluations + self.evaluations.index(evaluation)
        return f"evaluation {known + 1} of the search for the posterior, before the first draw"
