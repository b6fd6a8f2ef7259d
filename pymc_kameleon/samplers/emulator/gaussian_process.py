"""The emulator of black boxes, compiled: outputs from inputs, and the derivative back.

    y_j = h_j(t_j),  t_j = m_j + b_j·u + Σ_i c_i α_ij
    u = A (g(x) − c),  c_i = 1 / (1 + |u − u_i|²/4)²

Symbols: x (p,) and y (q,) the inputs and outputs of a box; g and h the identity, or logarithm and
exponential, by coordinate; u the inputs of the kernel, in its own lengths; u_i those of the n
points that it was fitted to; α their weights. The kernel's constant and linear part are summed over
the points once, in m and b, so that they are not rounded at each prediction. The rational quadratic
kernel of index 2 needs no exponentials, so that all loops over points are vectorised. Hundreds of
outputs move together: a box may have a *basis* B of r of their directions; b and α are then those
of r numbers τ, and t = m + Bτ.

A bar is the derivative of a number with respect to what it stands on, as ȳ of log π in y.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import fast_jit, jit


class Structure(NamedTuple):
    """The boxes of a model and their applications, which never change."""

    boxes: integers("boxes", 2)  # p, q
    applications: integers("applications", 4)  # box, places of its first input and output, level
    input_places: integers("boxes")  # where a box begins in arrays over the inputs of all boxes
    output_places: integers("boxes")
    square_places: integers("boxes")  # the same where it has p² numbers
    slope_places: integers("boxes")  # and where it has p q

    @classmethod
    def of(cls, boxes, applications):
        """Return the structure of boxes, rows of (p, q), and of their applications."""
        boxes = np.array(boxes, np.int64).reshape(-1, 2)
        p, q = boxes.T
        places = (np.cumsum(sizes) - sizes for sizes in (p, q, p * p, p * q))
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
            "slopes": (p * q).sum(),
            "m inputs": m * p.sum(),
            "m outputs": m * q.sum(),
            "half m outputs": m // 2 * q.sum(),
            "applications": len(self.applications),
            "applied inputs": p[box].sum(),
            "applied outputs": q[box].sum(),
            "m": m,
        }
        return {name: int(size) for name, size in sizes.items()}


class Emulator(NamedTuple):
    """What a fit decides, of all boxes one after the other."""

    n: integers("boxes")  # points in use
    log_inputs: integers("inputs")  # whether g is the logarithm
    log_outputs: integers("outputs")  # whether h is the exponential
    centre: floats("inputs")  # c
    transform: floats("squares")  # A by rows
    u: floats("m inputs")  # u_i by coordinate: the k-th of a box begins at k m
    mean: floats("outputs")  # m
    slopes: floats("slopes")  # b by outputs
    weights: floats("m outputs")  # α by output, or by τ
    rank: integers("boxes")  # r, 0 without a basis
    basis: floats("half m outputs")  # B by τ: r is at most half of n


class Scratch(NamedTuple):
    """What outputs leave to their derivative, of each application; and room for both."""

    u: floats("applied inputs")  # where x is
    near: floats("applications", "m")  # 1 / (1 + |u − u_i|²/4)
    c: floats("m")
    u_bar: floats("applied inputs")
    t_bar: floats("applied outputs")  # where y is
    tau: floats("m")  # or its derivative


@jit(inlined=False)
def emulate(structure, emulator, k, x, y, scratch):
    """Write the outputs of application k into `y`, from `x`; both are of all applications."""
    box, at_x = structure.applications[k, 0], structure.applications[k, 1]
    at_y, at_q = structure.applications[k, 2], structure.output_places[box]
    p, q = structure.boxes[box, 0], structure.boxes[box, 1]
    n, m, r = emulator.n[box], scratch.c.size, emulator.rank[box]
    t = y[at_y : at_y + q]
    tau = scratch.tau[:r] if r > 0 else t
    for j in range(tau.size):
        tau[j] = 0.0
    if n > 0:
        u = scratch.u[at_x : at_x + p]
        at_u = structure.input_places[box] * m
        _transform(structure, emulator, box, x, at_x, u)
        _compare(emulator.u, at_u, m, n, u, scratch.near[k], scratch.c)
        _add_products(emulator.slopes, structure.slope_places[box], p, p, u, tau)
        _add_products(emulator.weights, at_q * m, m, n, scratch.c, tau)
    if r > 0:
        _sum_of_rows(emulator.basis, at_q * (m // 2), q, q, tau, t)
    for j in range(q):
        t[j] += emulator.mean[at_q + j]
        if emulator.log_outputs[at_q + j]:
            y[at_y + j] = np.exp(y[at_y + j])


@jit(inlined=False)
def pull_back(structure, emulator, k, x, y, y_bar, x_bar, scratch):
    """Write x̄ of application k, from the ȳ of its outputs alone, after `emulate` at this `x`."""
    box, at_x = structure.applications[k, 0], structure.applications[k, 1]
    at_y, at_q = structure.applications[k, 2], structure.output_places[box]
    p, q, at_p = structure.boxes[box, 0], structure.boxes[box, 1], structure.input_places[box]
    n, m, r, c = emulator.n[box], scratch.c.size, emulator.rank[box], scratch.c
    t_bar = scratch.t_bar[at_y : at_y + q]
    for j in range(q):
        slope = y[at_y + j] if emulator.log_outputs[at_q + j] else 1.0
        t_bar[j] = slope * y_bar[at_y + j]
    tau_bar = scratch.tau[:r] if r > 0 else t_bar
    if r > 0:
        for j in range(r):
            tau_bar[j] = 0.0
        _add_products(emulator.basis, at_q * (m // 2), q, q, t_bar, tau_bar)
    _sum_of_rows(emulator.weights, at_q * m, m, n, tau_bar, c)
    u_bar = scratch.u_bar[at_x : at_x + p]
    if n > 0:
        _sum_of_rows(emulator.slopes, structure.slope_places[box], p, p, tau_bar, u_bar)
    else:
        for a in range(p):
            u_bar[a] = 0.0
    total = _weights_of_points(n, scratch.near[k], c)
    for a in range(p if n > 0 else 0):
        u_bar[a] -= total * scratch.u[at_x + a]
    _add_products(emulator.u, at_p * m, m, n, c, u_bar)
    at_s = structure.square_places[box]
    for b in range(p):
        g_bar = 0.0
        for a in range(p):
            g_bar += emulator.transform[at_s + a * p + b] * u_bar[a]
        x_bar[at_x + b] = g_bar / x[at_x + b] if emulator.log_inputs[at_p + b] else g_bar


@jit
def _transform(structure, emulator, box, x, at_x, u):
    """Write u."""
    at_p, at_s, p = structure.input_places[box], structure.square_places[box], u.size
    for a in range(p):
        u[a] = 0.0
    for b in range(p):
        g = x[at_x + b]
        if emulator.log_inputs[at_p + b]:
            g = np.log(g) if g > 0.0 else np.nan
        g -= emulator.centre[at_p + b]
        for a in range(p):
            u[a] += emulator.transform[at_s + a * p + b] * g


@fast_jit
def _compare(points, at, m, n, u, near, c):
    """Write 1 / (1 + |u − u_i|²/4), and c, its square."""
    for i in range(n):
        near[i] = 4.0
    for a in range(u.size):
        here, row = u[a], points[at + a * m :][:n]
        for i in range(n):
            difference = here - row[i]
            near[i] += difference * difference
    for i in range(n):
        near[i] = 4.0 / near[i]
        c[i] = near[i] * near[i]


@fast_jit
def _weights_of_points(n, near, c):
    """Turn c̄_i into the weights of u_i in ū; return their sum, which is that of −u."""
    total = 0.0
    for i in range(n):
        c[i] *= near[i] * near[i] * near[i]
        total += c[i]
    return total


@fast_jit
def _add_products(values, at, m, n, factors, out):
    """Add to each number of `out` the product of the factors and its row of values."""
    for j in range(out.size):
        row, total = values[at + j * m :][:n], 0.0
        for i in range(n):
            total += row[i] * factors[i]
        out[j] += total


@fast_jit
def _sum_of_rows(values, at, m, n, factors, out):
    """Write the sum of factors times their rows of values: four at a time, as `out` is loaded."""
    for i in range(n):
        out[i] = 0.0
    whole = factors.size - factors.size % 4
    for j in range(0, whole, 4):
        first, second = values[at + j * m :][:n], values[at + (j + 1) * m :][:n]
        third, fourth = values[at + (j + 2) * m :][:n], values[at + (j + 3) * m :][:n]
        f, g, h, k = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        for i in range(n):
            out[i] += (f * first[i] + g * second[i]) + (h * third[i] + k * fourth[i])
    for j in range(whole, factors.size):
        row, f = values[at + j * m :][:n], factors[j]
        for i in range(n):
            out[i] += f * row[i]
