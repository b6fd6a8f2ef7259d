"""The model's log-density with emulated black boxes, log s, and its gradient.

The model's graph is cut at its black boxes (model/simulators.py). Its parts share a tape,

    y (Q) | x (P) | ȳ (Q) | x̄ (P) | z̄ (d),

of inputs x and outputs y of black boxes, and derivatives of log s by y, x and the coordinates z.
Beyond what was evaluated an emulator knows nothing. There s falls as a normal does:

    log s(u) = log π(z, y(x(z))) − ½ max(0, |u| − r)²,   z = μ + Lu

Where modes mirror one another, |u| is that of the image of z which is nearest to μ.

Symbols: u the coordinates (d,) in which s is about standard normal, μ, L their mean and factor, r
the radius within which s is as the model says.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import Chain
from pymc_kameleon.core.arrays import extended, floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import (
    copy,
    multiply_lower,
    multiply_lower_transposed,
    solve_lower,
    solve_lower_transposed,
    squared_norm,
    sum_of,
)
from pymc_kameleon.core.target import call
from pymc_kameleon.samplers.emulator.gaussian_process import (
    Emulator,
    Scratch,
    Structure,
    emulate,
    pull_back,
)

INPUTS, DENSITY, PULLBACK = range(3)
"""Parts of the model, in `target.others`."""


class Mirrors(NamedTuple):
    """Linear maps G of z to modes that mirror one another (mirrors.py)."""

    maps: floats("mirrors", "d", "d")
    n_same: integers(1)  # the first ones, under which black boxes return the same
    n_maps: integers(1)  # those that chains go by, each its own inverse
    n_products: integers(1)  # these, and further products of them


Emulated = extended(  # what defines s, and a chain on it
    "Emulated", Chain, structure=Structure, emulator=Emulator, radius=floats(1), mirrors=Mirrors
)


class DensityScratch(NamedTuple):
    """Where log s is computed."""

    tape: floats("tape")
    gaussian: Scratch
    image: floats("d")  # u of a mirror image
    outward: floats("d")  # the gradient of |u| in u, times |u|


@jit(inlined=False)
def log_emulated(target, emulated, u, gradient, scratch):
    """Log s at u, with its gradient in u; -inf where there is none."""
    tape, d, n_outputs = scratch.tape, u.size, target.gradient.size
    n_inputs = (tape.size - d) // 2 - n_outputs
    multiply_lower(emulated.factor, u, gradient)
    for i in range(d):
        z = emulated.mean[i] + gradient[i]
        if not target.region[0, i] <= z <= target.region[1, i]:
            return -np.inf
        target.point[i] = z
    y, x = tape[:n_outputs], tape[n_outputs : n_outputs + n_inputs]
    levels = run_forward(target, emulated, y, x, scratch)
    logp = call_part(target, DENSITY, tape)
    if not -np.inf < logp < np.inf:
        return -np.inf
    y_bar = tape[n_outputs + n_inputs : 2 * n_outputs + n_inputs]
    x_bar = tape[2 * n_outputs + n_inputs : 2 * (n_outputs + n_inputs)]
    run_backward(target, emulated, levels, (y, x, y_bar, x_bar), scratch)
    multiply_lower_transposed(emulated.factor, tape[tape.size - d :], gradient)
    if not np.isfinite(sum_of(gradient)):
        return -np.inf
    distance = distance_from_home(target, emulated, u, scratch)
    beyond = distance - emulated.radius[0]
    if beyond > 0.0:
        logp -= 0.5 * beyond * beyond
        for i in range(d):
            gradient[i] -= beyond * scratch.outward[i] / distance
    return logp


@jit
def distance_from_home(target, emulated, u, scratch):
    """Return |u| of the nearest image of target.point; write its gradient in u, times itself."""
    mirrors, factor, d = emulated.mirrors, emulated.factor, u.size
    copy(u, scratch.outward)
    least = squared_norm(u)
    for k in range(mirrors.n_products[0]):
        image_of(mirrors.maps[k], target.point, scratch.image)
        for i in range(d):
            scratch.image[i] -= emulated.mean[i]
        solve_lower(factor, scratch.image, scratch.image)
        square = squared_norm(scratch.image)
        if square < least:
            least = square
            solve_lower_transposed(factor, scratch.image, scratch.image)
            for i in range(d):
                scratch.outward[i] = 0.0
                for j in range(d):
                    scratch.outward[i] += mirrors.maps[k, j, i] * scratch.image[j]
            multiply_lower_transposed(factor, scratch.outward, scratch.image)
            copy(scratch.image, scratch.outward)
    return np.sqrt(least)


@jit
def image_of(matrix, z, image):
    """Write the image of z, which may have further numbers."""
    for i in range(image.size):
        image[i] = 0.0
        for j in range(image.size):
            image[i] += matrix[i, j] * z[j]


@jit
def call_part(target, part, tape):
    """Call a part of the model, which reads and writes the tape."""
    return call(target.others[part], (target.point, target.data, target.shapes, tape))


@jit
def run_forward(target, emulated, y, x, scratch):
    """Fill in inputs and emulated outputs; return the number of levels."""
    applications = emulated.structure.applications
    levels, level = 1, 0
    while level < levels:
        call_part(target, INPUTS, scratch.tape)
        for k in range(applications.shape[0]):
            levels = max(levels, applications[k, 3] + 1)
            if applications[k, 3] == level:
                emulate(emulated.structure, emulated.emulator, k, x, y, scratch.gaussian)
        level += 1
    return levels


@jit
def run_backward(target, emulated, levels, parts, scratch):
    """Add to z̄ what comes by way of the black boxes."""
    y, x, y_bar, x_bar = parts
    applications = emulated.structure.applications
    for back in range(levels):
        for i in range(x_bar.size):
            x_bar[i] = 0.0
        for k in range(applications.shape[0]):
            if applications[k, 3] == levels - 1 - back:
                pull_back(
                    emulated.structure, emulated.emulator, k, x, y, y_bar, x_bar, scratch.gaussian
                )
        call_part(target, PULLBACK, scratch.tape)
