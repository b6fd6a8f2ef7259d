"""A stand-in for a log-density that costs microseconds: a quadratic or a t density, and kernels.

    log s(u) = lt(u) + h(u), with h within bounds,
    h(u) = c + k(u)                        on a t density
    h(u) = c + gᵀu + ½uᵀHu − lt(u) + k(u)  on a quadratic
    k(u) = Σ_j a_j / (1 + |r·(u − c_j)|²)

Symbols: u the coordinates (d,), lt the log of a t density with ν degrees of freedom, c_j the m
centres, a_j their weights, and r the rates (d,) at which k changes along the coordinates. Where h
is at its bounds, beyond all that it was fitted to, s falls as the t density does: so there are no
traps far out.
"""

from typing import NamedTuple

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import fast_jit, jit
from pymc_kameleon.samplers.approximation.moves import log_t


class Surrogate(NamedTuple):
    """The function, as it was fitted last."""

    nu: floats(1)
    is_quadratic: integers(1)
    constant: floats(1)
    linear: floats("d")  # g
    quadratic: floats("d", "d")  # H below its diagonal, H/2 on it
    bounds: floats(2)  # of h
    n: integers(1)  # centres in use
    centres: floats("d", "m")  # r·c_j
    weights: floats("m")
    rates: floats("d")


@jit
def log_surrogate(surrogate, u, distances):
    """Log s(u), not normalised: near what it was fitted to; `distances` (m,) is scratch."""
    base = log_t(u, surrogate.nu[0])
    h = surrogate.constant[0]
    if surrogate.is_quadratic[0]:
        h += quadratic_form(surrogate.linear, surrogate.quadratic, u) - base
    if surrogate.n[0] > 0:
        h += sum_of_kernels(surrogate, u, distances)
    return base + min(max(h, surrogate.bounds[0]), surrogate.bounds[1])


@fast_jit
def quadratic_form(linear, quadratic, u):
    """Return gᵀu + ½uᵀHu."""
    total = 0.0
    for i in range(u.size):
        s = linear[i]
        for k in range(i + 1):
            s += quadratic[i, k] * u[k]
        total += s * u[i]
    return total


@fast_jit
def sum_of_kernels(surrogate, u, distances):
    """Return k(u), by loops over centres, which are vectorised."""
    centres, weights, n = surrogate.centres, surrogate.weights, surrogate.n[0]
    for j in range(n):
        distances[j] = 1.0
    for i in range(u.size):
        w = surrogate.rates[i] * u[i]
        for j in range(n):
            v = w - centres[i, j]
            distances[j] += v * v
    total = 0.0
    for j in range(n):
        total += weights[j] / distances[j]
    return total
