"""Other ways at the same time, from starts near that of a search: so it may notice a second mode.

A scout has some points of each batch. What it finds is known to the search, which goes where a
scout is higher; and where a scout has come home elsewhere, to about as much mass, it learns both.
"""

import numpy as np

N_SCOUTS, SHARE, AWAY = 3, 6, 2.0
"""Of a search, at most; the part of its batches that each may have, one in so many; and how far its
start is away, in each coordinate of x, at most: twice as far as starts are jittered."""

LEAST_MASS = -7.0
"""Log mass, above that of the search, with which a place is a mode."""

LEAST_CHAINS = 4
"""Chains in each of two modes."""


class Scout:
    """A way from another start.

    Attributes
    ----------
    way : Way
    points : (k, d) float64
        What it asks for; none if it is home, or has failed.
    is_heeded : bool
        Whether the search knows that it is home.
    """

    def __init__(self, way, start):
        self.way, self._going, self.is_heeded = way, way.go(start[None]), False
        self.points = next(self._going)

    def take(self, f):
        """Go on with the log-densities (k,) of what it has asked for."""
        try:
            self.points = self._going.send(f)
            is_over = self.way.is_home
        except (StopIteration, np.linalg.LinAlgError):
            is_over = True
        if is_over:
            self.points = self.points[:0]

    @property
    def is_home(self):
        """Whether it has come to a posterior."""
        return self.way.is_home and len(self.points) == 0


def asked(scouts):
    """Return how many points scouts ask for."""
    return sum(len(scout.points) for scout in scouts)


def that_fit(scouts, room):
    """Return the scouts whose points are no more than there is room for, all together."""
    some = []
    for scout in scouts:
        if 0 < len(scout.points) <= room:
            some.append(scout)
            room -= len(scout.points)
    return some


def log_mass(way):
    """Return the log of the mass where a way is home, but for a constant."""
    return way.f.max() + np.log(np.abs(np.diag(way.factor))).sum()


def both(way, other, share):
    """Return mean and factor of two places together, the other of which has a share of the mass."""
    away = other.mean - way.mean
    covariance = (1 - share) * way.factor @ way.factor.T + share * other.factor @ other.factor.T
    covariance += share * (1 - share) * np.outer(away, away)
    return way.mean + share * away, np.linalg.cholesky(covariance)
