"""Control variates of a walk or of leapfrog steps: what has mean 0 while the chain moves.

Source: Alexopoulos, Dellaportas & Titsias, "Variance reduction for Metropolis-Hastings samplers",
Statistics and Computing 33 (2023), here [ADT].

Symbols: x, y and α the state, the proposal and the acceptance probability; N(μ, LLᵀ) the normal
that tuning has learned; u = x − μ, z = L⁻¹u and r = |z|; s the scale of the proposal, made with
ξ ~ N(0, I); ỹ what it would be if the posterior were the normal, r_ỹ and α̃ likewise; v the
variances of the normal; φ one of u_k, u_k² and r².

As the transition is reversible, α(φ(y) − φ(x)) has the mean of φ after a transition less that
before it, 0. Most of its variance comes from ξ. That goes away with

    α̃(φ(ỹ) − φ(x)) − E α̃(φ(ỹ) − φ(x)),    α̃ = min(1, exp(τ(r² − r_ỹ²)))

which has mean 0 given x, whatever the posterior is, as ξ does not depend on it [ADT]. To ỹ belongs
az + bξ. For a walk, ỹ is y, a = 1, b = s and τ = ½. Leapfrog steps with the momentum ξ are linear,
too; they conserve (1 − s²/4)r² + |momentum|², so that τ = s²/8. By symmetry, E is u, u², v or 1
times functions of r, which are a table (table.py). Where r is beyond that, α̃ is
taken for 0.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats
from pymc_kameleon.core.factor import solve
from pymc_kameleon.core.jit import jit, python_or_jit

TABLE_ROWS = 128
"""Rows of the table."""

LINEAR_COLUMN, SQUARE_COLUMN, VARIANCE_COLUMN, RADIUS_COLUMN, N_COLUMNS = range(5)
"""Columns of the table, which E is made of: for u_k, what u_k is multiplied by; for u_k², what
u_k² and v_k are; and for r² itself."""


class Controls(NamedTuple):
    """What the controls need to know of a frozen proposal; all zero while it is tuned."""

    mean: floats("d")  # μ
    variance: floats("d")  # v
    steepness: floats(1)  # τ
    farthest: floats(1)  # r of the table's last row
    table: floats("grid", N_COLUMNS)


class Kept(NamedTuple):
    """What is kept of each draw: x at its end, and means over its transitions."""

    position: floats("d")
    mean: floats("d")  # of u
    square: floats("d")  # of u²
    mean_control: floats("d")
    square_control: floats("d")
    radius_control: floats(1)


def tally_size(d):
    """Return the length of a draw's tally.

    It has the number of transitions; the sums of u_k and u_k² before them; and those of the
    controls of u_k for all k, of u_k², and of r².
    """
    return 4 * d + 2


@python_or_jit
def leapfrog_of_normal(scale, n_steps):
    """Return a and b of leapfrog steps."""
    a, b, momentum_a, momentum_b = 1.0, 0.0, 0.0, 1.0
    for _ in range(n_steps):
        momentum_a -= 0.5 * scale * a
        momentum_b -= 0.5 * scale * b
        a += scale * momentum_a
        b += scale * momentum_b
        momentum_a -= 0.5 * scale * a
        momentum_b -= 0.5 * scale * b
    return a, b


@jit
def standardise(controls, factor, x, scratch, z):
    """Write L⁻¹(x − μ) into `z`."""
    for k in range(x.size):
        scratch[k] = x[k] - controls.mean[k]
    solve(factor, scratch, z)


@jit
def add_state(controls, x, tally):
    """Add a transition from x to a tally, whose end is for the controls."""
    d = x.size
    tally[0] += 1.0
    for k in range(d):
        u = x[k] - controls.mean[k]
        tally[1 + k] += u
        tally[1 + d + k] += u * u


@jit
def add_controls(controls, x, y, z, step, accept_prob, e, sums):
    """Add the controls of a transition whose proposal y is ỹ.

    With α = 0, they are what is to be added to the rest if y is not ỹ: see `add_change`.

    Parameters
    ----------
    controls : Controls
    x, y : (d,) float64
    z, step : (d,) float64
        z of x, and what is added to it for ỹ.
    accept_prob : float
    e : (N_COLUMNS,) float64
        Scratch.
    sums : (2d + 1,) float64
        Sums of the controls of u_k for all k, of u_k², and of r².
    """
    d = x.size
    square, square_y = 0.0, 0.0
    for k in range(d):
        square += z[k] ** 2
        square_y += (z[k] + step[k]) ** 2
    difference = accept_prob
    if look_up(controls, np.sqrt(square), e):
        difference -= np.exp(min(0.0, controls.steepness[0] * (square - square_y)))
    for k in range(d):
        u, u_y = x[k] - controls.mean[k], y[k] - controls.mean[k]
        expected = e[SQUARE_COLUMN] * u**2 + e[VARIANCE_COLUMN] * controls.variance[k]
        sums[k] += difference * (u_y - u) + e[LINEAR_COLUMN] * u
        sums[d + k] += difference * (u_y**2 - u**2) + expected
    sums[2 * d] += difference * (square_y - square) + e[RADIUS_COLUMN]


@jit
def add_change(controls, x, y, z, z_y, accept_prob, sums):
    """Add α(φ(y) − φ(x)); arguments as of `add_controls`, and z_y of y."""
    d = x.size
    for k in range(d):
        u, u_y = x[k] - controls.mean[k], y[k] - controls.mean[k]
        sums[k] += accept_prob * (u_y - u)
        sums[d + k] += accept_prob * (u_y**2 - u**2)
        sums[2 * d] += accept_prob * (z_y[k] ** 2 - z[k] ** 2)


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
def report_controls(x, tally, kept):
    """Write x, and the means of a tally over its transitions, into a Kept."""
    d, n = x.size, max(1.0, tally[0])  # 0 while tuning
    for k in range(d):
        kept.position[k] = x[k]
        kept.mean[k] = tally[1 + k] / n
        kept.square[k] = tally[1 + d + k] / n
        kept.mean_control[k] = tally[1 + 2 * d + k] / n
        kept.square_control[k] = tally[1 + 3 * d + k] / n
    kept.radius_control[0] = tally[1 + 4 * d] / n
