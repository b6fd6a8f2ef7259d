"""What a random walk would gain of u, u² and r² if the posterior were normal: a table.

Symbols: as in core/controls.py; q the proposal's coordinate along z, which is N(r, s²), and s²c the
square of its others, c ~ χ² with d − 1 degrees of freedom. α̃ is 1 where q² < r² − s²c, and
exp((r² − s²c − q²)/2) elsewhere.
"""

import numpy as np
from scipy.special import gammainc, gammainccinv, gammaincinv, ndtr, ndtri, roots_legendre

from pymc_kameleon.core.controls import COLUMNS, GRID, LINEAR, RADIUS, SQUARE, VARIANCE

BEYOND, NODES, WIDEST = 6.0, 32, 8.0
"""The table goes from r = 0 to √d plus so much; nodes of both parts of the integral over c, which
goes to so many standard deviations."""


def prepare(controls, mean, factor, scale):
    """Write what belongs to N(μ, LLᵀ) and the scale of a walk."""
    d = len(mean)
    controls.mean[:], controls.variance[:] = mean, np.sum(np.square(factor), axis=1)
    controls.farthest[0] = np.sqrt(d) + BEYOND
    controls.table[:] = expectations(d, scale, np.linspace(0, controls.farthest[0], GRID))


def expectations(d, s, r):
    """Return the table (len(r), COLUMNS) for a walk of scale s in d dimensions."""
    r = np.maximum(r, r[1] / 2)[:, None]  # the limit at 0, nearly
    c, weights = squares_across(d, (r / s) ** 2) if d > 1 else (np.zeros(1), np.ones(1))
    inner = r**2 - s**2 * c
    edge, variance = np.sqrt(np.maximum(inner, 0)), s**2 / (1 + s**2)
    centre = r / (1 + s**2)
    size = np.exp((inner - r * centre) / 2) / np.sqrt(1 + s**2)
    whole = normal_moments(centre, variance, -np.inf, np.inf)
    middle = normal_moments(centre, variance, -edge, edge)
    sure = normal_moments(r, s**2, -edge, edge)
    j0, j1, j2 = (a + size * (b - c) for a, b, c in zip(sure, whole, middle, strict=True))
    linear = (j1 - r * j0) / r
    squares = j2 - 2 * r * j1 + r**2 * j0
    across = s**2 * c * j0 / (d - 1) if d > 1 else squares
    columns = {
        LINEAR: linear,
        SQUARE: 2 * linear + (squares - across) / r**2,
        VARIANCE: across,
        RADIUS: j2 - inner * j0,
    }
    return np.stack([np.sum(columns[k] * weights, axis=1) for k in range(COLUMNS)], axis=1)


def squares_across(d, kink):
    """Return nodes and weights (n, 2 NODES) of χ² with d − 1 degrees of freedom.

    For functions that have a kink, like that of a root, at `kink` (n, 1). The χ² is taken as a
    function of a normal variable.
    """
    half = (d - 1) / 2
    middle = np.clip(ndtri(gammainc(half, kink / 2)), -WIDEST, WIDEST)
    nodes, weights = roots_legendre(NODES)
    nodes, weights = (nodes + 1) / 2, weights / 2
    w, steps = (
        np.concatenate([value(-WIDEST), value(WIDEST)], axis=1)
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
    """Return that of N(0, 1)."""
    return np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
