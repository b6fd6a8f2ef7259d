"""Several modes: a mixture of t densities, one for each, that moves between modes are drawn from.

Symbols: K modes, mode k with share w_k, mean m_k and factor L_k; ν the degrees of freedom.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.drops import NEAR, drop
from pymc_kameleon.approximation.linalg import whitened
from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import log_determinant, multiply_lower, solve_lower, squared_norm

MOST_MODES = 32
"""Modes that are known, at most: those with most mass."""

NEGLIGIBLE_MASS = np.log(1000)
"""How far below the largest log mass a mode is neglected: it has less than a thousandth of it."""

MODE_NU = 5.0
"""Degrees of freedom ν of the t densities that far moves are drawn from."""

EVEN = 0.1
"""Of the mixture, that all modes share alike."""

REACH = 3.5
"""Distance from the mean of what is normal, in its own coordinates, plus √d, within which it is."""


def reach(d):
    """Return the distance from its mean, in its own coordinates, within which a normal is."""
    return d**0.5 + REACH


class Modes(NamedTuple):
    """The mixture; of no modes if there is only one."""

    n_modes: integers(1)
    mode_shares: floats(MOST_MODES)
    mode_means: floats(MOST_MODES, "d")
    mode_factors: floats(MOST_MODES, "d", "d")


class Mode(NamedTuple):
    """A place with mass: its middle, its shape, and the log-density there, as if normal."""

    mean: np.ndarray
    factor: np.ndarray
    logp: float

    @property
    def mass(self):
        """Log of the mass, but for a constant."""
        return self.logp + np.log(np.abs(np.diag(self.factor))).sum()

    def normal(self, x):
        """Return the log-densities at points (n, d), as if normal."""
        u = whitened(x, self.mean, self.factor)
        return self.logp - np.sum(u * u, axis=1) / 2

    def holds(self, x):
        """Whether a point is within its reach."""
        return np.linalg.norm(np.linalg.solve(self.factor, x - self.mean)) < reach(len(x))

    def is_same(self, other):
        """Whether both hold the middle of the other; a wide mode may hold a narrow one alone."""
        return self.holds(other.mean) and other.holds(self.mean)

    def attracts(self, x, logp):
        """Whether a climb at x leads here: the log-density there is no higher than a normal's."""
        return self.holds(x) and logp < self.normal(x[None])[0] + drop(len(x), NEAR)


class OtherMode(NamedTuple):
    """A mode beside the one of most mass."""

    mass: float  # as a share of the largest, about
    at: np.ndarray  # (d,)


def felt(mass, far):
    """By how much the variance grows with a mode of this share of the mass, so many sds away."""
    p = mass / (1 + mass)
    return p * (1 - p) * far**2


def felt_beside(best, x, log_mass):
    """By how much the variance grows with what is at x (d,), relative to that in the best Mode."""
    far = np.linalg.norm(np.linalg.solve(best.factor, x - best.mean))
    return felt(np.exp(log_mass - best.mass), far)


def most_felt(modes):
    """Return that OtherMode which is felt most of some Modes; None if there is one alone."""
    best = max(modes, key=lambda mode: mode.mass)
    others = [one for one in modes if one is not best]
    if not others:
        return None
    one = max(others, key=lambda one: felt_beside(best, one.mean, one.mass))
    return OtherMode(float(np.exp(one.mass - best.mass)), one.mean)


@jit
def draw_of_modes(modes, out, scratch, rng):
    """Draw from the mixture."""
    r, k = rng.random(), 0
    while k < modes.n_modes[0] - 1 and r >= modes.mode_shares[k]:
        r -= modes.mode_shares[k]
        k += 1
    root = np.sqrt(rng.standard_gamma(0.5 * MODE_NU) / (0.5 * MODE_NU))
    for i in range(out.size):
        scratch[i] = rng.standard_normal() / root
    multiply_lower(modes.mode_factors[k], scratch, out)
    for i in range(out.size):
        out[i] += modes.mode_means[k, i]


@jit
def log_of_modes(modes, x, scratch):
    """Log of the mixture's density, but for a constant."""
    total, d = -np.inf, x.size
    for k in range(modes.n_modes[0]):
        for i in range(d):
            scratch[i] = x[i] - modes.mode_means[k, i]
        solve_lower(modes.mode_factors[k], scratch, scratch)
        own = np.log(modes.mode_shares[k]) - log_determinant(modes.mode_factors[k])
        own -= 0.5 * (MODE_NU + d) * np.log1p(squared_norm(scratch) / MODE_NU)
        high, low = max(total, own), min(total, own)
        total = high + np.log1p(np.exp(low - high))
    return total


def shares_in(modes):
    """Return the shares that a mixture was made of (k,), nothing if there is one mode."""
    n = modes.n_modes[0]
    return (modes.mode_shares[:n] - EVEN / max(n, 1)) / (1 - EVEN)


def mix(modes, found, shares):
    """Let the mixture be of these Modes with these shares (k,); of none if there is only one."""
    n = modes.n_modes[0] = len(found) if len(found) > 1 else 0
    for k in range(n):
        modes.mode_shares[k] = (1 - EVEN) * shares[k] + EVEN / n
        modes.mode_means[k], modes.mode_factors[k] = found[k][:2]
    modes.mode_shares[:n] /= modes.mode_shares[:n].sum()
