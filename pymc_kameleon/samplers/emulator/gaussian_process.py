"""The emulator of black boxes, compiled: outputs from inputs, and the derivative back.

    y_j = h_j(t_j),  t_j = m_j + Σ_i c_i α_ij
    c_i = a₁ v·v_i + a₂ (v·v_i)² + exp(−|u − u_i|²/2)
    v = W (g(x) − c),  u = T v

Symbols: x (p,) and y (q,) the inputs and outputs of a box; g and h the identity, or logarithm and
exponential, by coordinate; v the whitened inputs; u the inputs of the kernel, in its own lengths;
v_i, u_i those of the n points that it was fitted to; α their weights, m the constants. The kernel
of the fit has a constant, too. It is the same for all points, so it is in m, where nothing is lost
to rounding.

A bar is the derivative of a number with respect to what it stands on, as ȳ of log π in y.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import fast_jit, jit

FARTHEST = 80.0
"""|u − u_i|²/2 at most: beyond, a kernel is as good as zero."""


class Structure(NamedTuple):
    """The boxes of a model and their applications, which never change."""

    boxes: integers("boxes", 2)  # p, q
    applications: integers("applications", 4)  # box, places of its first input and output, level
    input_places: integers("boxes")  # where a box begins in arrays over the inputs of all boxes
    output_places: integers("boxes")
    square_places: integers("boxes")  # the same where it has p² numbers

    @classmethod
    def of(cls, boxes, applications):
        """Return the structure of boxes, rows of (p, q), and of their applications."""
        boxes = np.array(boxes, np.int64).reshape(-1, 2)
        p, q = boxes.T
        places = (np.cumsum(sizes) - sizes for sizes in (p, q, p * p))
        return cls(boxes, np.array(applications, np.int64).reshape(-1, 4), *places)

    def sizes(self, m):
        """Return the sizes of arrays for at most `m` points of a box."""
        p, q = self.boxes.T
        box = self.applications[:, 0]
        sizes = {
            "boxes": len(self.boxes),
            "inputs": p.sum(),
            "outputs": q.sum(),
            "squares": (p * p).sum(),
            "m inputs": m * p.sum(),
            "m outputs": m * q.sum(),
            "applications": len(self.applications),
            "applied inputs": p[box].sum(),
            "m": m,
        }
        return {name: int(size) for name, size in sizes.items()}


class Emulator(NamedTuple):
    """What a fit decides, of all boxes one after the other."""

    n: integers("boxes")  # points in use
    log_inputs: integers("inputs")  # whether g is the logarithm
    log_outputs: integers("outputs")  # whether h is the exponential
    centre: floats("inputs")  # c
    whiten: floats("squares")  # W by rows
    rotate: floats("squares")  # T by rows
    trends: floats("boxes", 2)  # a₁, a₂
    v: floats("m inputs")  # v_i by coordinate: the k-th of a box begins at k m
    u: floats("m inputs")
    mean: floats("outputs")  # m
    weights: floats("m outputs")  # α by output


class Scratch(NamedTuple):
    """What outputs leave to their derivative, of each application, and room for that."""

    v: floats("applied inputs")  # where x is
    u: floats("applied inputs")
    dots: floats("applications", "m")  # v·v_i
    kernel: floats("applications", "m")  # exp(−|u − u_i|²/2)
    c: floats("m")
    c_bar: floats("m")
    u_bar: floats("applied inputs")


@jit
def emulate(structure, emulator, k, x, y, scratch):
    """Write the outputs of application k into `y`, from `x`; both hold those of all applications.

    The outputs are NaN where an input is not positive whose logarithm is taken. Those of a box
    without points are its means.
    """
    box, at_x, at_y = (
        structure.applications[k, 0],
        structure.applications[k, 1],
        structure.applications[k, 2],
    )
    p, q = structure.boxes[box, 0], structure.boxes[box, 1]
    at_p, at_q = structure.input_places[box], structure.output_places[box]
    n, m, c = emulator.n[box], scratch.c.size, scratch.c
    if n > 0:
        dots, kernel = scratch.dots[k], scratch.kernel[k]
        v, u = scratch.v[at_x : at_x + p], scratch.u[at_x : at_x + p]
        _whiten(structure, emulator, box, x[at_x : at_x + p], v, u)
        _compare(emulator.v, emulator.u, at_p * m, m, n, v, u, dots, kernel)
        _combine(emulator.trends[box], n, dots, kernel, c)
    for j in range(q):
        t = emulator.mean[at_q + j]
        if n > 0:
            t += _dot(emulator.weights, (at_q + j) * m, c, n)
        y[at_y + j] = np.exp(t) if emulator.log_outputs[at_q + j] else t


@jit
def pull_back(structure, emulator, k, x, y, y_bar, x_bar, scratch):
    """Write x̄ of application k, from the ȳ of its outputs alone, after `emulate` at this `x`."""
    box, at_x, at_y = (
        structure.applications[k, 0],
        structure.applications[k, 1],
        structure.applications[k, 2],
    )
    p, q = structure.boxes[box, 0], structure.boxes[box, 1]
    at_p, at_q, at_s = (
        structure.input_places[box],
        structure.output_places[box],
        structure.square_places[box],
    )
    n, m, c_bar, c = emulator.n[box], scratch.c.size, scratch.c_bar, scratch.c
    for a in range(p):
        x_bar[at_x + a] = 0.0
    if n == 0:
        return
    for i in range(n):
        c_bar[i] = 0.0
    for j in range(q):
        t_bar = y_bar[at_y + j]
        if emulator.log_outputs[at_q + j]:
            t_bar *= y[at_y + j]
        _add(t_bar, emulator.weights, (at_q + j) * m, n, c_bar)
    total = _split(emulator.trends[box], n, scratch.dots[k], scratch.kernel[k], c_bar, c)
    u_bar = scratch.u_bar
    for a in range(p):
        u_bar[at_x + a] = _dot(emulator.u, (at_p + a) * m, c, n) - total * scratch.u[at_x + a]
    for a in range(p):
        v_bar = _dot(emulator.v, (at_p + a) * m, c_bar, n)
        for b in range(p):
            v_bar += emulator.rotate[at_s + b * p + a] * u_bar[at_x + b]
        for b in range(p):
            x_bar[at_x + b] += emulator.whiten[at_s + a * p + b] * v_bar
    for a in range(p):
        if emulator.log_inputs[at_p + a]:
            x_bar[at_x + a] /= x[at_x + a]


@jit
def _whiten(structure, emulator, box, x, v, u):
    """Write v and u of inputs `x` (p,)."""
    at_p, at_s, p = structure.input_places[box], structure.square_places[box], x.size
    for a in range(p):
        v[a] = 0.0
        u[a] = 0.0
    for b in range(p):
        g = x[b]
        if emulator.log_inputs[at_p + b]:
            g = np.log(g) if g > 0.0 else np.nan
        g -= emulator.centre[at_p + b]
        for a in range(p):
            v[a] += emulator.whiten[at_s + a * p + b] * g
    for a in range(p):
        for b in range(p):
            u[a] += emulator.rotate[at_s + a * p + b] * v[b]


@fast_jit
def _compare(all_v, all_u, at, m, n, v, u, dots, kernel):
    """Write v·v_i and exp(−|u − u_i|²/2) of each point."""
    for i in range(n):
        dots[i] = 0.0
        kernel[i] = 0.0
    for a in range(v.size):
        row = at + a * m
        va, ua = v[a], u[a]
        for i in range(n):
            dots[i] += va * all_v[row + i]
            difference = ua - all_u[row + i]
            kernel[i] += difference * difference
    for i in range(n):
        kernel[i] = _exp_of_minus(0.5 * kernel[i])


@fast_jit
def _exp_of_minus(r):
    """Return exp(−r), to 3e-14: a series for exp(−r/128), squared seven times.

    Loops over it are vectorised, other than those over numpy's.
    """
    z = min(r, FARTHEST) * (-1.0 / 128.0)
    e = 1.0 + z / 15.0
    e = 1.0 + z / 14.0 * e
    e = 1.0 + z / 13.0 * e
    e = 1.0 + z / 12.0 * e
    e = 1.0 + z / 11.0 * e
    e = 1.0 + z / 10.0 * e
    e = 1.0 + z / 9.0 * e
    e = 1.0 + z / 8.0 * e
    e = 1.0 + z / 7.0 * e
    e = 1.0 + z / 6.0 * e
    e = 1.0 + z / 5.0 * e
    e = 1.0 + z / 4.0 * e
    e = 1.0 + z / 3.0 * e
    e = 1.0 + z / 2.0 * e
    e = 1.0 + z * e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    e *= e
    return e


@fast_jit
def _combine(trends, n, dots, kernel, c):
    """Write c."""
    linear, quadratic = trends[0], trends[1]
    for i in range(n):
        c[i] = (linear + quadratic * dots[i]) * dots[i] + kernel[i]


@fast_jit
def _split(trends, n, dots, kernel, c_bar, of_kernel):
    """Turn c̄_i into the weights of v_i in v̄, and write those of u_i in ū; return their sum."""
    linear, quadratic, total = trends[0], 2.0 * trends[1], 0.0
    for i in range(n):
        w = c_bar[i] * kernel[i]
        of_kernel[i] = w
        total += w
        c_bar[i] *= linear + quadratic * dots[i]
    return total


@fast_jit
def _dot(values, at, c, n):
    """Return the sum of c_i times the n values from `at` on."""
    total = 0.0
    for i in range(n):
        total += values[at + i] * c[i]
    return total


@fast_jit
def _add(factor, values, at, n, out):
    """Add to `out` a factor times the n values from `at` on."""
    for i in range(n):
        out[i] += factor * values[at + i]
