"""Several modes: a mixture of t densities, one for each, from which reference moves are drawn.

What is in it was found before the first draw, see look.py. While tuning, it follows the states that
chains have been in; after that it is frozen.

Symbols: K modes, mode k with share w_k, mean m_k and factor L_k; ν the degrees of freedom.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.linalg import cholesky, whitened
from pymc_kameleon.core.arrays import copy_arrays, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import log_determinant, multiply_lower, solve_lower, squared_norm
from pymc_kameleon.samplers.approximation.moves import newest

MOST_MODES = 8
"""Modes that are known, at most: those with most mass."""

MODE_NU = 5.0
"""ν of the mixture."""

LEAST_MASS = -7.0
"""Log mass, above that of the largest mode, with which a place is a mode."""

REACH = 3.5
"""Distance from a mode's mean, in its own coordinates, plus √d, within which all is of the mode."""

LEAST_APART = 2.0
"""Distance of two means, over the sum of the standard deviations on the line that tells them apart
best, from which there are two modes."""

WORTH_OF_FOUND = 2
"""Times d: independent states that the first idea of a mode counts for."""

STATES_PER_DRAW = 0.25
"""Independent states that a state of tuning counts for."""

EVEN = 0.1
"""Of the mixture, that all modes share alike."""

EVENED = 2.0
"""Difference of log masses, at most, by which chains prefer a mode to begin in."""

UNVISITED, MATTERS = 0.002, 0.01
"""Share of the states below which a mode is not visited; and of the mass above which that is told,
as it was thought to be before."""


class Modes(NamedTuple):
    """The mixture; of no modes if there is only one."""

    n_modes: integers(1)
    mode_shares: floats(MOST_MODES)
    mode_means: floats(MOST_MODES, "d")
    mode_factors: floats(MOST_MODES, "d", "d")


class Found(NamedTuple):
    """What was found before the first draw, by a chain, and then by all of them."""

    n_found: integers(1)
    found_masses: floats(MOST_MODES)  # logs, but for a constant
    found_means: floats(MOST_MODES, "d")
    found_factors: floats(MOST_MODES, "d", "d")


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
        u = np.linalg.solve(self.factor, x - self.mean)
        return np.linalg.norm(u) < len(x) ** 0.5 + REACH


# ---- moves --------------------------------------------------------------------------------------


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


# ---- what chains have found ---------------------------------------------------------------------


def note(found, modes):
    """Write down Modes that a chain has found, those with most mass."""
    modes = sorted(modes, key=lambda mode: -mode.mass)
    modes = [mode for mode in modes if mode.mass > modes[0].mass + LEAST_MASS][:MOST_MODES]
    found.n_found[0] = len(modes)
    for k, mode in enumerate(modes):
        found.found_masses[k] = mode.mass
        found.found_means[k], found.found_factors[k] = mode.mean, mode.factor


def noted(found):
    """Return these Modes."""
    return [
        Mode(mean.copy(), factor.copy(), mass - np.log(np.diag(factor)).sum())
        for mass, mean, factor in list(zip(*found[1:], strict=True))[: found.n_found[0]]
    ]


def share_what_was_found(chains):
    """Let all chains know what each has found: if one of them looked, and they are not the same."""
    every = [mode for chain in chains for mode in noted(chain.tuning.found)]
    distinct = []
    for mode in sorted(every, key=lambda mode: -mode.mass):
        if not any(mode.holds(one.mean) or one.holds(mode.mean) for one in distinct):
            distinct.append(mode)
    for chain in chains if distinct else ():
        note(chain.tuning.found, distinct)


def learn_modes(chains):
    """Let the mixture follow the states of chains; return shares of the modes, none if one."""
    first = chains[0]
    modes, found = first.parameters.modes, noted(first.tuning.found)
    if len(found) < 2:
        return []
    newest_moves = [newest(chain.tuning.moves) for chain in chains]
    x, y, _, alpha = (np.concatenate(parts) for parts in zip(*newest_moves, strict=True))
    y = np.where(alpha[:, None] > 0, y, x)
    points, weights = np.concatenate([x, y]), np.concatenate([1 - alpha, alpha])
    merged = True
    while merged:
        mine = _nearest(points, modes if modes.n_modes[0] == len(found) else None, found)
        groups = [(points[mine == k], weights[mine == k]) for k in range(len(found))]
        learned = [_learned(mode, *own) for mode, own in zip(found, groups, strict=True)]
        merged = _merge(found, learned)
    totals = np.array([own[1].sum() for own in groups])
    shares = totals / max(totals.sum(), 1e-300)
    note(first.tuning.found, found)
    order = np.argsort([-mode.mass for mode in found], kind="stable")[:MOST_MODES]
    modes.n_modes[0] = len(order) if len(order) > 1 else 0
    for k, j in enumerate(order):
        modes.mode_shares[k] = (1 - EVEN) * shares[j] + EVEN / len(order)
        modes.mode_means[k], modes.mode_factors[k] = learned[j]
    modes.mode_shares[: len(order)] /= modes.mode_shares[: len(order)].sum()
    for chain in chains[1:]:
        copy_arrays(modes, chain.parameters.modes, Modes._fields)
        copy_arrays(first.tuning.found, chain.tuning.found, Found._fields)
    return [shares[j] for j in order] if len(order) > 1 else []


def unvisited(found, shares):
    """Return the share of the mass that is in modes which chains have not visited, about."""
    if not shares:
        return 0.0
    masses = found.found_masses[: len(shares)]
    masses = np.exp(masses - masses.max())
    missing = np.sum(masses[np.array(shares) < UNVISITED]) / masses.sum()
    return missing if missing > MATTERS else 0.0


def _nearest(points, modes, found):
    """Return to which mode each point (n, d) belongs: where its normal density is highest."""
    shapes = [mode[:2] for mode in found]
    if modes is not None:
        shapes = list(zip(modes.mode_means, modes.mode_factors, strict=True))[: len(found)]
    logs = []
    for mean, factor in shapes:
        u = whitened(points, mean, factor)
        logs.append(-0.5 * np.sum(u * u, axis=1) - np.log(np.diag(factor)).sum())
    return np.argmax(logs, axis=0)


def _learned(mode, points, weights):
    """Return mean and factor of a mode: of weighted states, and what was known before."""
    d, total = len(mode.mean), weights.sum()
    known = WORTH_OF_FOUND * d / (WORTH_OF_FOUND * d + STATES_PER_DRAW * total)
    if total < 1:
        return mode.mean, mode.factor
    own = np.average(points, axis=0, weights=weights)
    away = points - own
    covariance = (1 - known) * (away.T * weights) @ away / total
    covariance += known * mode.factor @ mode.factor.T
    return (1 - known) * own + known * mode.mean, cholesky(covariance)


def _merge(found, learned):
    """Take two modes for one that are not apart, of `found`; return whether there were any."""
    for j in range(len(found)):
        for k in range(j + 1, len(found)):
            (a, left), (b, right) = learned[j], learned[k]
            within = left @ left.T, right @ right.T
            line = np.linalg.solve(within[0] + within[1], a - b)
            widths = [np.sqrt(line @ one @ line) for one in within]
            if abs(line @ (a - b)) < LEAST_APART * sum(widths):
                lesser = j if found[j].mass < found[k].mass else k
                del found[lesser]
                return True
    return False
