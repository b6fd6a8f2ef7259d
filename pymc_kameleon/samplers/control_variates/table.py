"""What a transition would gain of u, u² and r² if the posterior were normal: a table.

Symbols: as in tally.py; q the coordinate of az + bξ along z, which is N(ar, b²), and b²c
the square of its others, c ~ χ² with d − 1 degrees of freedom. α̃ is 1 where q² < r² − b²c, and
exp(τ(r² − b²c − q²)) elsewhere.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammainccinv, gammaincinv, ndtr, ndtri, roots_legendre

from pymc_kameleon.samplers.control_variates.tally import (
    LINEAR_COLUMN,
    N_COLUMNS,
    RADIUS_COLUMN,
    SQUARE_COLUMN,
    TABLE_ROWS,
    VARIANCE_COLUMN,
    leapfrog_of_normal,
)

TABLE_MARGIN, N_NODES, INTEGRAL_WIDTH = 6.0, 32, 8.0
"""Margin of the table beyond r = √d; nodes of each part of the integral over c; its width, sd."""

LEAST_B = 1e-6
"""Least |b|: leapfrog steps may have gone half a period."""


class Proposal(NamedTuple):
    """What proposals would be if the posterior were normal: (a, b), each as likely; and τ."""

    ways: tuple
    steepness: float


def walk(scale):
    """Return the Proposal of a random walk."""
    return Proposal(((1.0, scale),), 0.5)


def leapfrog(scale, numbers):
    """Return the Proposal of leapfrog steps, whose number is one of `numbers`."""
    return Proposal(tuple(leapfrog_of_normal(scale, n) for n in numbers), scale**2 / 8)


def prepare(controls, mean, factor, proposal):
    """Write what belongs to N(μ, LLᵀ) and a Proposal."""
    d = len(mean)
    controls.mean[:], controls.variance[:] = mean, np.sum(np.square(factor), axis=1)
    controls.steepness[0], controls.farthest[0] = proposal.steepness, np.sqrt(d) + TABLE_MARGIN
    controls.table[:] = expectations(d, proposal, np.linspace(0, controls.farthest[0], TABLE_ROWS))


def expectations(d, proposal, r):
    """Return the table (len(r), N_COLUMNS) for a Proposal in d dimensions."""
    r = np.maximum(r, r[1] / 2)[:, None]  # the limit at 0, nearly
    tables = [expectations_of(d, a, b, proposal.steepness, r) for a, b in proposal.ways]
    return np.mean(tables, axis=0)


def expectations_of(d, a, b, tau, r):
    """Return the table for az + bξ; `r` (n, 1)."""
    b = max(abs(b), LEAST_B)
    c, weights = squares_across(d, (r / b) ** 2) if d > 1 else (np.zeros(1), np.ones(1))
    inner, narrowing = r**2 - b**2 * c, 1 + 2 * tau * b**2
    edge, variance = np.sqrt(np.maximum(inner, 0)), b**2 / narrowing
    centre = a * r / narrowing
    size = np.exp(tau * (inner - a * r * centre)) / np.sqrt(narrowing)
    whole = normal_moments(centre, variance, -np.inf, np.inf)
    middle = normal_moments(centre, variance, -edge, edge)
    sure = normal_moments(a * r, b**2, -edge, edge)
    j0, j1, j2 = (f + size * (g - h) for f, g, h in zip(sure, whole, middle, strict=True))
    linear = (j1 - r * j0) / r
    squares = j2 - 2 * r * j1 + r**2 * j0
    across = b**2 * c * j0 / (d - 1) if d > 1 else squares
    columns = {
        LINEAR_COLUMN: linear,
        SQUARE_COLUMN: 2 * linear + (squares - across) / r**2,
        VARIANCE_COLUMN: across,
        RADIUS_COLUMN: j2 - inner * j0,
    }
    return np.stack([np.sum(columns[k] * weights, axis=1) for k in range(N_COLUMNS)], axis=1)


def squares_across(d, kink):
    """Return nodes and weights (n, 2 N_NODES) of χ² with d − 1 degrees of freedom.

    They are for functions with a kink at `kink` (n, 1); χ² is taken as a function of a normal.
    """
    half = (d - 1) / 2
    middle = np.clip(ndtri(gammainc(half, kink / 2)), -INTEGRAL_WIDTH, INTEGRAL_WIDTH)
    nodes, weights = roots_legendre(N_NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    w, steps = (
        np.concatenate([value(-INTEGRAL_WIDTH), value(INTEGRAL_WIDTH)], axis=1)
        for value in (
            lambda end: middle + (end - middle) * nodes**2,
            lambda end: np.abs(end - middle) * 2 * nodes * weights,
        )
    )
    c = 2 * np.where(w < 0, gammaincinv(half, ndtr(w)), gammainccinv(half, ndtr(-w)))
    steps *= np.exp(-(w**2) / 2)
    return c, steps / steps.sum(axis=1, keepdims=True)


def normal_moments(mean, variance, low, high):
    """Return the integrals of 1, q and q² over N(mean, variance) between two bounds."""
    low, high = (low - mean) / np.sqrt(variance), (high - mean) / np.sqrt(variance)
    mass, falls = ndtr(high) - ndtr(low), density(low) - density(high)
    with np.errstate(invalid="ignore"):
        ends = np.nan_to_num(low * density(low)) - np.nan_to_num(high * density(high))
    first = mean * mass + np.sqrt(variance) * falls
    second = mean**2 * mass + 2 * mean * np.sqrt(variance) * falls + variance * (mass + ends)
    return mass, first, second


def density(x):
    """Return the density of N(0, 1)."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
