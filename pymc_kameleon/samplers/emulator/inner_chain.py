"""The chain on the emulated posterior: its density, and jumps to mirror images.

Where modes mirror one another, some transitions go to the image of z under a map G: G is its own
inverse, and keeps volumes, so that they are reversible.

Symbols: as in density.py.
"""

from functools import cache

import numpy as np

from pymc_kameleon.approximation.chain import (
    JUMP_SHARE,
    Approximation,
    Density,
    Trajectory,
    compiled_exploration,
    example_points,
    u_of,
    x_of,
)
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.core.jit import cached_jit, jit, specialise
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.target import Target
from pymc_kameleon.samplers.emulator.density import (
    INPUTS,
    DensityScratch,
    Emulated,
    call_part,
    image_of,
    log_emulated,
)
from pymc_kameleon.samplers.emulator.gaussian_process import Structure, emulate
from pymc_kameleon.step.messages import say_if_compiling


@jit
def log_emulated_model(density, u, gradient):
    """Log s at u, with its gradient in u; -inf where there is none."""
    return log_emulated(density.target, density.s, u, gradient, density.scratch)


@jit
def mirror_jump(density, at, rng):
    """Propose the image of at.u under one of the maps, at some of the transitions."""
    emulated = density.s
    if emulated.mirrors.n_maps[0] == 0 or rng.random() >= JUMP_SHARE:
        return np.nan
    k = int(rng.random() * emulated.mirrors.n_maps[0])
    x_of(emulated, at.u, at.momentum)
    image_of(emulated.mirrors.maps[k], at.momentum, at.v)
    u_of(emulated, at.v, at.v)
    return 0.0


@jit(inlined=False)
def note_calls(density, noted):
    """Note what the black boxes were given, and have returned, in the last evaluation: x and y."""
    outputs, tape = density.target.gradient, density.scratch.tape
    n = noted.size - outputs.size
    copy(outputs, noted[n:])
    copy(outputs, tape[: outputs.size])
    call_part(density.target, INPUTS, tape)
    copy(tape[outputs.size : noted.size], noted[:n])


# ---- from Python --------------------------------------------------------------------------------


class EmulatedDensity(Approximation):
    """The emulated posterior, and chains on it."""

    def __init__(self, target, emulated):
        own = target._replace(point=target.point.copy(), count=target.count.copy())
        density = Density(own, emulated, scratch_of(target, emulated))
        at = allocate(Trajectory, {"d": emulated.mean.size})
        super().__init__(density, emulated, at, exploration_of_emulated())

    def nearest_image(self, z):
        """Return points z (n, d), or of each that mirror image which is nearest to μ, in u."""
        mirrors = self.chain.mirrors
        if mirrors.n_maps[0] == 0:
            return z
        images = np.array([z, *(z @ g.T for g in mirrors.maps[: mirrors.n_products[0]])])
        distances = [np.linalg.norm(self.u_of(own), axis=1) for own in images]
        return images[np.argmin(distances, axis=0), np.arange(len(z))]

    def emulate(self, x):
        """Return outputs y (n, Q) of inputs x (n, P), flat over all applications."""
        target, emulated, scratch = self._density
        y = np.empty((len(x), target.gradient.size))
        outputs_of_emulator()(emulated, scratch, np.ascontiguousarray(x), y)
        return y


def scratch_of(target, emulated):
    """Return fresh DensityScratch for a model."""
    structure, d = emulated.structure, emulated.mean.size
    sizes = structure.sizes(emulated.emulator.u.size // emulated.emulator.centre.size)
    tape = 2 * (sizes["applied inputs"] + target.gradient.size) + d
    return allocate(DensityScratch, sizes | {"d": d, "tape": tape})


@cache
def exploration_of_emulated():
    """Return the compiled function that explores s."""
    with say_if_compiling("chains on the emulated log-density"):
        explore = compiled_exploration(log_emulated_model, mirror_jump)
        return specialise(explore, *_examples(), *example_points())


@cache
def outputs_of_emulator():
    """Return the compiled function that emulates outputs of inputs."""

    def outputs(emulated, scratch, x, y):
        for i in range(x.shape[0]):
            for k in range(emulated.structure.applications.shape[0]):
                emulate(emulated.structure, emulated.emulator, k, x[i], y[i], scratch.gaussian)

    (_, emulated, scratch), *_ = _examples()
    points = np.zeros((1, 1)), np.zeros((1, 1))
    return specialise(cached_jit(outputs, (emulate,)), emulated, scratch, *points)


def _examples():
    """Return a Density, Emulated and Trajectory of the types that all models have."""
    structure = Structure.of([[1, 1]], [[0, 0, 0, 0]])
    emulated = allocate(Emulated, structure.sizes(1) | {"d": 1, "mirrors": 1}, structure=structure)
    point, generator = np.zeros(1), np.random.default_rng(0)
    target = Target(
        0, point, point, np.zeros(0, np.int64), np.zeros((2, 1)), np.zeros(2, np.int64), point,
        np.zeros(3, np.int64), np.zeros(0), generator,
    )  # fmt: skip
    model = Density(target, emulated, scratch_of(target, emulated))
    return model, emulated, allocate(Trajectory, {"d": 1})
