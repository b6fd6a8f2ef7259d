"""A search in batches, which can be interrupted after each evaluation, and go on.

What is searched by is a generator: it yields points (k, d), and is sent their log-densities (k,).
So it does not know whether they were evaluated one after another, or are from an interrupted run.
"""

import numpy as np

from pymc_kameleon.approximation.linalg import linear_algebra


class BatchSearch:
    """The way of a chain from its start, by a generator that `begin` is given.

    It draws from `rng`. `rows` are the points that were evaluated, with their log-densities, (d +
    1,).
    """

    def __init__(self, start, seed):
        self.start, self._seed = start.copy(), seed
        self.rng = np.random.default_rng(seed)
        self.rows, self._found = [], None

    def begin(self, going):
        """Take the generator, and what it asks for first."""
        self._going, self._points, self._values = going, next(going), []

    @property
    def n(self):
        """How many evaluations it has made."""
        return len(self.rows)

    @property
    def has_ended(self):
        """Whether it asks for nothing any more."""
        return self._points is None

    @property
    def is_between_batches(self):
        """Whether all that it has asked for so far is evaluated."""
        return not self._values

    def is_of(self, start, seed, trail):
        """Whether it is the search from this start, and has come as far as a trail (n,) of logp."""
        same = seed == self._seed and np.array_equal(start, self.start)
        return same and np.array_equal([row[-1] for row in self.rows], trail[: self.n])

    def evaluate(self, logp, most):
        """Evaluate the next point, of at most so many; return it, and its log-density."""
        logp.announce(self._points[len(self._values) :][: most - self.n])
        point = self._points[len(self._values)]
        value = logp(point)
        self._values.append(value)
        self.rows.append(np.append(point, value))
        return point, value

    def advance(self):
        """Let the generator go on if its batch is evaluated."""
        if len(self._values) < len(self._points):
            return
        values, self._values = np.array(self._values), []
        try:
            with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
                self._points = self._going.send(values)
        except (StopIteration, np.linalg.LinAlgError):
            self._points = None

    def settled(self, n):
        """Return what it has found, with n points where chains may begin, settled once for all."""
        if self._found is None:
            with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
                self._found = self._settle(n)
        return self._found


def noting(logp, note):
    """Return a log-density that has each point noted, and its value."""

    def noted(x):
        value = logp(x)
        note(x, value)
        return value

    noted.announce = logp.announce
    return noted
