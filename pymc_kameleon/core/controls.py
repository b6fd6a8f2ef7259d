"""Control variates of a random walk: what has mean 0 while the chain moves, and is known.

Source: Alexopoulos, Dellaportas & Titsias, "Variance reduction for Metropolis-Hastings samplers",
Statistics and Computing 33 (2023), here [ADT].

Symbols: x, y and α the state, the proposal and the acceptance probability; N(μ, LLᵀ) the normal
that tuning has learned; u = x − μ, z = L⁻¹u and r = |z|; s the scale of the walk, so that
z + sξ belongs to y; v the variances of the normal; φ one of u_k, u_k² and r².

As the transition is reversible, α(φ(y) − φ(x)) has the mean of φ after a transition less that
before it, 0. Most of its variance comes from which y was proposed. That goes away with

    α̃(φ(y) − φ(x)) − E_y α̃(φ(y) − φ(x)),    α̃ = min(1, exp((r² − r_y²)/2))

which has mean 0 given x, whatever the posterior is, and where α̃ would be α if it were the normal
[ADT]. By symmetry, E_y is u, u², v or 1 times functions of r, which are a table
(samplers/control_table.py). Where r is beyond that, α̃ is taken for 0.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats
from pymc_kameleon.core.jit import jit

GRID = 128
"""Rows of the table."""

LINEAR, SQUARE, VARIANCE, RADIUS, COLUMNS = range(5)
"""Columns of the table, which E_y is made of: for u_k, what u_k is multiplied by; for u_k², what
u_k² and v_k are; and for r² itself."""


class Controls(NamedTuple):
    """What the controls need to know of a frozen walk; all zero while it is tuned."""

    mean: floats("d")  # μ
    variance: floats("d")  # v
    farthest: floats(1)  # r of the table's last row
    table: floats("grid", COLUMNS)


@jit
def add_controls(controls, x, y, z, step, accept_prob, e, sums):
    """Add the controls of a transition.

    Parameters
    ----------
    controls : Controls
    x, y : (d,) float64
    z, step : (d,) float64
        Of x, and sξ.
    accept_prob : float
    e : (COLUMNS,) float64
        Scratch.
    sums : (2d + 1,) float64
        Those of u_k for all k, of u_k², and of r².
    """
    d = x.size
    square, square_y = 0.0, 0.0
    for k in range(d):
        square += z[k] ** 2
        square_y += (z[k] + step[k]) ** 2
    difference = accept_prob
    if look_up(controls, np.sqrt(square), e):
        difference -= np.exp(min(0.0, (square - square_y) / 2))
    for k in range(d):
        u, u_y = x[k] - controls.mean[k], y[k] - controls.mean[k]
        expected = e[SQUARE] * u**2 + e[VARIANCE] * controls.variance[k]
        sums[k] += difference * (u_y - u) + e[LINEAR] * u
        sums[d + k] += difference * (u_y**2 - u**2) + expected
    sums[2 * d] += difference * (square_y - square) + e[RADIUS]


@jit
def look_up(controls, r, e):
    """Write the table's row at r into `e`, by cubic interpolation; return whether there is one."""
    e[:] = 0.0
    if not r < controls.farthest[0]:
        return False
    place = r / controls.farthest[0] * (GRID - 1)
    i = min(max(int(place) - 1, 0), GRID - 4)
    t = place - i
    weights = (
        -(t - 1) * (t - 2) * (t - 3) / 6,
        t * (t - 2) * (t - 3) / 2,
        -t * (t - 1) * (t - 3) / 2,
        t * (t - 1) * (t - 2) / 6,
    )
    for m in range(4):
        for j in range(COLUMNS):
            e[j] += weights[m] * controls.table[i + m, j]
    return True
