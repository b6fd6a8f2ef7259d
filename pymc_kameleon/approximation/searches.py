"""How many searches from different starts there were, where they ended, and what that tells.

Source: Boender & Rinnooy Kan, "Bayesian stopping rules for multistart global optimization methods",
Mathematical Programming 37 (1987). Of n searches from independent starts with w ends, the expected
number of ends is w(n − 1)/(n − w − 2), and the expected share of starts that end elsewhere
w(w + 1)/(n(n − 1)).
"""

from typing import NamedTuple

ENOUGH_CAME = 3
"""Searches that came to the best place, and so end a doubt."""

SHARES = 0.1, 0.5
"""Shares of all evaluations that searches from other starts may take: at first, and as long as more
ends are expected."""

SELDOM = 0.01
"""Share of the starts that may end elsewhere, up to which searches go on within their first share
of the evaluations: of runs that stop where no more ends are expected, a quarter miss a place to
which a sixth of the starts lead."""


class Searches(NamedTuple):
    """Searches that have ended, from the start of a chain and from others."""

    n: int
    n_ends: int  # ends that are negligible beside the best place count as one
    n_best: int = 0  # how many came to the best place
    fails: int = 0  # 1 if s does not predict far away, or the best place does not fit the data; 2
    # if climbs went by a coarse model that does not predict there, so that they end no doubt
    are_all: bool = False  # whether other chains have made none of their own

    @property
    def expects_more(self):
        """Whether more ends than these are to be expected."""
        n, w = self.n, self.n_ends
        return n <= w + 2 or w * (n - 1) / (n - w - 2) >= w + 0.5

    @property
    def share_elsewhere(self):
        """The share of starts that are expected to end where none has."""
        n, w = self.n, self.n_ends
        return min(1.0, w * (w + 1) / (n * (n - 1))) if n > 1 else 1.0

    @property
    def is_doubtful(self):
        """Whether there is a reason to search on, besides the ends."""
        return self.fails > 1 or (self.fails > 0 and self.n_best < ENOUGH_CAME)
