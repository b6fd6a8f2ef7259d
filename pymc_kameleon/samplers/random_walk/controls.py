"""Control variates of GAM: what has mean 0 while the chain moves.

Source: Alexopoulos, Dellaportas & Titsias, "Variance reduction for Metropolis-Hastings samplers",
Statistics and Computing 33 (2023), here [ADT].

Symbols: x, y = x + sLξ and α the state, the proposal and the acceptance probability, ξ ~ N(0, I);
N(μ, LLᵀ) the normal that tuning has learned, v its variances, and α̃ what α would be if it were the
posterior; u = x − μ, z = L⁻¹u and r = |z|; φ one of u_k, u_k² and r².

As the transition is reversible, α(φ(y) − φ(x)) has the mean of φ after a transition less that
before it, 0. Most of its variance comes from ξ. That goes away with

    α̃(φ(y) − φ(x)) − E α̃(φ(y) − φ(x)),    α̃ = min(1, exp(½(r² − r_y²)))

which has mean 0 given x, whatever the posterior is, as ξ does not depend on it [ADT]. By symmetry,
E is u, u², v or 1 times functions of r, which are a table. Where r is beyond that, α̃ is taken for
0.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import gammainc, gammainccinv, gammaincinv, ndtr, ndtri, roots_legendre
from scipy.stats import norm

from pymc_kameleon.core.arrays import extended, floats
from pymc_kameleon.core.conventions import EPS
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import solve_lower
from pymc_kameleon.core.shape import Shape
from pymc_kameleon.samplers.random_walk import walk

TABLE_ROWS = 128
"""Rows of the table."""

LINEAR_COLUMN, SQUARE_COLUMN, VARIANCE_COLUMN, RADIUS_COLUMN, N_COLUMNS = range(5)
"""Columns of the table, which E is made of: for u_k, what u_k is multiplied by; for u_k², what
u_k² and v_k are; and for r² itself."""

TABLE_MARGIN, N_NODES = 6.0, 32
"""Margin of the table beyond r = √d; and nodes of each part of the integral over c."""

INTEGRAL_WIDTH = -ndtri(EPS)
"""Its width in standard deviations: beyond, a normal has no more than rounding."""

LEAST_SCALE = 1e-6
"""s at least, as r is divided by it."""


class Controls(NamedTuple):
    """What the controls need to know of a frozen proposal; all zero while it is tuned."""

    mean: floats("d")  # μ
    variance: floats("d")  # v
    farthest: floats(1)  # r of the table's last row
    table: floats(TABLE_ROWS, N_COLUMNS)


class Kept(NamedTuple):
    """What is kept of each draw: x at its end, and means over its transitions."""

    position: floats("d")
    mean: floats("d")  # of u
    square: floats("d")  # of u²
    mean_control: floats("d")
    square_control: floats("d")
    radius_control: floats(1)


State = extended("State", walk.State, z=floats("d"), tally=floats("4d + 2"))
"""The tally has transitions, sums of u_k and u_k² before them, and the controls."""
Parameters = extended("Parameters", Shape, controls=Controls)
Work = extended("Work", walk.Work, expected=floats(N_COLUMNS))


class Stats(NamedTuple):
    """What a draw tells besides."""

    kept: Kept


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + sLξ, and add up control variates."""
    accept_prob, accepted = walk.transition(target, state, parameters, work, rng)
    d, controls, tally = state.x.size, parameters.controls, state.tally
    scale = np.exp(parameters.log_scale[0])
    tally[0] += 1.0
    for k in range(d):
        work.v[k] = scale * work.xi[k]
        u = work.x[k] - controls.mean[k]
        tally[1 + k] += u
        tally[1 + d + k] += u * u
    sums = tally[1 + 2 * d :]
    add_controls(controls, work.x, work.y, state.z, work.v, accept_prob, work.expected, sums)
    if accepted:
        for k in range(d):
            state.z[k] += work.v[k]
    return accept_prob, accepted


@jit
def derived(state, parameters, work):
    """Compute z."""
    for k in range(state.x.size):
        work.v[k] = state.x[k] - parameters.controls.mean[k]
    solve_lower(parameters.factor, work.v, state.z)


@jit
def add_controls(controls, x, y, z, step, accept_prob, e, sums):
    """Add the controls of u_k for all k, of u_k², and of r² to `sums` (2d + 1,).

    They are of a transition whose proposal is y, with z of x, and `step` what is added to it there;
    `e` (N_COLUMNS,) is scratch.
    """
    d = x.size
    square, square_y = 0.0, 0.0
    for k in range(d):
        square += z[k] ** 2
        square_y += (z[k] + step[k]) ** 2
    difference = accept_prob
    if look_up(controls, np.sqrt(square), e):
        difference -= np.exp(min(0.0, 0.5 * (square - square_y)))
    for k in range(d):
        u, u_y = x[k] - controls.mean[k], y[k] - controls.mean[k]
        expected = e[SQUARE_COLUMN] * u**2 + e[VARIANCE_COLUMN] * controls.variance[k]
        sums[k] += difference * (u_y - u) + e[LINEAR_COLUMN] * u
        sums[d + k] += difference * (u_y**2 - u**2) + expected
    sums[2 * d] += difference * (square_y - square) + e[RADIUS_COLUMN]


@jit
def look_up(controls, r, e):
    """Write the table's row at r into `e`, by cubic interpolation; return whether there is one."""
    e[:] = 0.0
    if not r < controls.farthest[0]:
        return False
    place = r / controls.farthest[0] * (TABLE_ROWS - 1)
    i = min(max(int(place) - 1, 0), TABLE_ROWS - 4)
    t = place - i
    weights = (
        -(t - 1) * (t - 2) * (t - 3) / 6,
        t * (t - 2) * (t - 3) / 2,
        -t * (t - 1) * (t - 3) / 2,
        t * (t - 1) * (t - 2) / 6,
    )
    for m in range(4):
        for j in range(N_COLUMNS):
            e[j] += weights[m] * controls.table[i + m, j]
    return True


@jit
def report(state, parameters, stats):
    """Report √λ; keep x, and the means of the tally over the draw's transitions."""
    kept, tally, d = stats.kept, state.tally, state.x.size
    n = max(1.0, tally[0])  # 0 while tuning
    for k in range(d):
        kept.position[k] = state.x[k]
        kept.mean[k] = tally[1 + k] / n
        kept.square[k] = tally[1 + d + k] / n
        kept.mean_control[k] = tally[1 + 2 * d + k] / n
        kept.square_control[k] = tally[1 + 3 * d + k] / n
    kept.radius_control[0] = tally[1 + 4 * d] / n
    return np.exp(parameters.log_scale[0])


# ---- the table: what a step would gain if the posterior were normal ------------------------------


def prepare(controls, mean, factor, scale):
    """Write what belongs to N(μ, LLᵀ) and a walk of scale s."""
    d = len(mean)
    controls.mean[:], controls.variance[:] = mean, np.sum(np.square(factor), axis=1)
    controls.farthest[0] = np.sqrt(d) + TABLE_MARGIN
    controls.table[:] = expectations(d, scale, np.linspace(0, controls.farthest[0], TABLE_ROWS))


def expectations(d, scale, r):
    """Return the table (len(r), N_COLUMNS) for a walk of scale s in d dimensions.

    q is the coordinate of z + sξ along z, which is N(r, s²), and s²c the square of its others,
    c ~ χ² with d − 1 degrees of freedom. α̃ is 1 where q² < r² − s²c, and elsewhere
    exp(½(r² − s²c − q²)).
    """
    r, s = np.maximum(r, r[1] / 2)[:, None], max(scale, LEAST_SCALE)  # the limit at 0, nearly
    c, weights = squares_across(d, (r / s) ** 2) if d > 1 else (np.zeros(1), np.ones(1))
    inner, narrowing = r**2 - s**2 * c, 1 + s**2
    edge, variance = np.sqrt(np.maximum(inner, 0)), s**2 / narrowing
    centre = r / narrowing
    size = np.exp(0.5 * (inner - r * centre)) / np.sqrt(narrowing)
    whole = normal_moments(centre, variance, -np.inf, np.inf)
    middle = normal_moments(centre, variance, -edge, edge)
    sure = normal_moments(r, s**2, -edge, edge)
    j0, j1, j2 = (f + size * (g - h) for f, g, h in zip(sure, whole, middle, strict=True))
    linear = (j1 - r * j0) / r
    squares = j2 - 2 * r * j1 + r**2 * j0
    across = s**2 * c * j0 / (d - 1) if d > 1 else squares
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
    mass, falls = ndtr(high) - ndtr(low), norm.pdf(low) - norm.pdf(high)
    with np.errstate(invalid="ignore"):
        ends = np.nan_to_num(low * norm.pdf(low)) - np.nan_to_num(high * norm.pdf(high))
    first = mean * mass + np.sqrt(variance) * falls
    second = mean**2 * mass + 2 * mean * np.sqrt(variance) * falls + variance * (mass + ends)
    return mass, first, second
