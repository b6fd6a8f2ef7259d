"""The way of the first chain to the posterior, whose evaluations are made many at a time.

The other chains wait for it. So it asks for points, which workers evaluate, and gets their values
in the order in which it asked. It depends on nothing else.
"""

from dataclasses import dataclass
from typing import Any

from pymc_kameleon.step.job import ask, evaluate, told


@dataclass
class Evaluation:
    """A point that is evaluated: its task, and what has come back."""

    task: tuple
    future: Any = None
    failures: int = 0
    found: tuple | None = None


class FirstWay:
    """The way of the first chain; `evaluations` is what it has asked for, and not been told yet."""

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
