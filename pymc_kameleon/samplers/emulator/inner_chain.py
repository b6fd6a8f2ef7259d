"""The inner chain: Hamiltonian Monte Carlo on s, by its gradient.

Source: Neal, "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo (2011).

Each transition draws a momentum, a length of the leap, ε times 0.7 to 1.3, and a number of leaps, 1
to `most_leaps`. Where modes mirror one another, some go to the image of z under a map G instead: G
is its own inverse, and keeps volumes. So each is reversible with respect to s. The chain stops
after every M transitions, R times, and leads to one of its stops, drawn beforehand, so that all
stops have on average the distribution of the one that it leads to.

Symbols: as in density.py; p the momentum (d,), ε the leap, R the stops.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.jit import cached_jit, jit, specialise
from pymc_kameleon.core.linalg import copy, solve_lower_transposed, squared_norm
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.target import Target
from pymc_kameleon.samplers.emulator.density import DensityScratch, Emulated, image_of, log_emulated
from pymc_kameleon.samplers.emulator.gaussian_process import Structure, emulate
from pymc_kameleon.samplers.surrogate.proposal import u_of, x_of
from pymc_kameleon.step.messages import say_if_compiling

LEAP_RANGE = 0.3
"""Share of ε by which it varies, so that no trajectory comes back to where it began."""

MIRROR_SHARE = 0.3
"""Share of transitions that go to a mirror image, if there are any."""

LARGEST_CHANGE = 50.0
"""Range of log s − ½|p|² from which a trajectory is given up: the way back is, too."""


class Trajectory(NamedTuple):
    """Where a chain on s is, and where it tries to go."""

    u: floats("d")
    slope: floats("d")  # gradient of log s at u
    v: floats("d")
    slope_v: floats("d")
    momentum: floats("d")
    density: DensityScratch


@jit(inlined=False)
def hamiltonian_step(target, emulated, at, log_s, rng):
    """Move at.u by one transition; return log s there, and α, which is NaN for a mirror image."""
    d, n_mirrors = at.u.size, emulated.mirrors.n_maps[0]
    if n_mirrors > 0 and rng.random() < MIRROR_SHARE:
        return mirror_step(target, emulated, at, log_s, rng), np.nan
    copy(at.u, at.v)
    copy(at.slope, at.slope_v)
    for i in range(d):
        at.momentum[i] = rng.standard_normal()
    energy = log_s - 0.5 * squared_norm(at.momentum)
    leap = emulated.leap[0] * (1.0 + LEAP_RANGE * (2.0 * rng.random() - 1.0))
    n_leaps = 1 + int(rng.random() * emulated.most_leaps[0])
    log_s_v, log_ratio, least, largest = log_s, 0.0, 0.0, 0.0
    for _ in range(n_leaps):
        for i in range(d):
            at.momentum[i] += 0.5 * leap * at.slope_v[i]
            at.v[i] += leap * at.momentum[i]
        log_s_v = log_emulated(target, emulated, at.v, at.slope_v, at.density)
        if log_s_v == -np.inf:
            return log_s, 0.0
        for i in range(d):
            at.momentum[i] += 0.5 * leap * at.slope_v[i]
        log_ratio = log_s_v - 0.5 * squared_norm(at.momentum) - energy
        least, largest = min(least, log_ratio), max(largest, log_ratio)
        if np.isnan(log_ratio) or largest - least > LARGEST_CHANGE:
            return log_s, 0.0
    if log_uniform(rng) < log_ratio:
        copy(at.v, at.u)
        copy(at.slope_v, at.slope)
        log_s = log_s_v
    return log_s, np.exp(min(0.0, log_ratio))


@jit
def mirror_step(target, emulated, at, log_s, rng):
    """Move at.u to its image under one of the maps, if s accepts; return log s where it is."""
    k = int(rng.random() * emulated.mirrors.n_maps[0])
    x_of(emulated, at.u, at.momentum)
    image_of(emulated.mirrors.maps[k], at.momentum, at.v)
    u_of(emulated, at.v, at.v)
    log_s_v = log_emulated(target, emulated, at.v, at.slope_v, at.density)
    if log_uniform(rng) < log_s_v - log_s:
        copy(at.v, at.u)
        copy(at.slope_v, at.slope)
        return log_s_v
    return log_s


@jit(inlined=False)
def run_inner_chain(target, emulated, at, log_s, rng):
    """Move at.u by M transitions, to the next stop; return log s there."""
    for _ in range(emulated.n_inner[0]):
        log_s, _ = hamiltonian_step(target, emulated, at, log_s, rng)
    return log_s


# ---- from Python --------------------------------------------------------------------------------


class EmulatedDensity:
    """Log s and chains on it, as functions of points z (n, d), in arrays of their own."""

    def __init__(self, target, emulated):
        self.emulated, self.n_evaluated = emulated, 0
        self._target = target._replace(point=target.point.copy(), count=target.count.copy())
        self._at = trajectory_of(target, emulated)

    def u_of(self, z):
        """Return u of points z (n, d)."""
        return solve_triangular(self.emulated.factor, (z - self.emulated.mean).T, lower=True).T

    def z_of(self, u):
        """Return z of points u (n, d)."""
        return self.emulated.mean + u @ self.emulated.factor.T

    def at_home(self, z):
        """Return points z (n, d), or of each that mirror image which is nearest to μ, in u."""
        mirrors = self.emulated.mirrors
        images = np.array([z, *(z @ g.T for g in mirrors.maps[: mirrors.n_products[0]])])
        distances = [np.linalg.norm(self.u_of(own), axis=1) for own in images]
        return images[np.argmin(distances, axis=0), np.arange(len(z))]

    def values(self, z):
        """Return log s (n,) and its gradients in z (n, d), which are 0 where it is -inf."""
        z = np.ascontiguousarray(z, np.float64)
        log_s, slopes = np.empty(len(z)), np.empty(z.shape)
        compiled_values()(self._target, self.emulated, self._at, z, log_s, slopes)
        self.n_evaluated += len(z)
        return log_s, slopes

    def chains(self, z, n, rng):
        """Run n transitions of Hamiltonian Monte Carlo from each point z (k, d).

        Return places (n, k, d) in z, and log s and α (n, k), which is NaN of a mirror image.
        """
        u = np.ascontiguousarray(self.u_of(z))
        places = np.empty((n, *u.shape))
        log_s, accept_prob = np.empty((2, n, len(u)))
        arguments = u, places, log_s, accept_prob, rng
        self.n_evaluated += compiled_chains()(self._target, self.emulated, self._at, *arguments)
        return self.z_of(places), log_s, accept_prob

    def emulate(self, x):
        """Return outputs y (n, Q) of inputs x (n, P), flat over all applications."""
        y = np.empty((len(x), self._target.gradient.size))
        compiled_outputs()(self.emulated, self._at, np.ascontiguousarray(x), y)
        return y


def trajectory_of(target, emulated):
    """Return a fresh Trajectory for a model."""
    structure, d = emulated.structure, emulated.mean.size
    sizes = structure.sizes(emulated.emulator.u.size // emulated.emulator.centre.size)
    tape = 2 * (sizes["applied inputs"] + target.gradient.size) + d
    return allocate(Trajectory, sizes | {"d": d, "tape": tape})


@cache
def compiled_values():
    """Return the compiled function that computes log s and its gradient at points z."""

    def values(target, emulated, at, z, log_s, slopes):
        for i in range(z.shape[0]):
            u_of(emulated, z[i], at.u)
            log_s[i] = log_emulated(target, emulated, at.u, slopes[i], at.density)
            if log_s[i] == -np.inf:
                for k in range(at.u.size):
                    slopes[i, k] = 0.0
            solve_lower_transposed(emulated.factor, slopes[i], slopes[i])

    z = np.zeros((1, 1))
    with say_if_compiling("the emulated log-density"):
        return specialise(
            cached_jit(values, (log_emulated,)), *_examples(), z, np.zeros(1), np.zeros((1, 1))
        )


@cache
def compiled_chains():
    """Return the compiled function that runs chains on s; it returns how often s was evaluated."""

    def chains(target, emulated, at, u, places, log_s, accept_prob, rng):
        for k in range(u.shape[0]):
            copy(u[k], at.u)
            now = log_emulated(target, emulated, at.u, at.slope, at.density)
            for i in range(places.shape[0]):
                accept_prob[i, k] = 0.0
                if now > -np.inf:
                    now, accept_prob[i, k] = hamiltonian_step(target, emulated, at, now, rng)
                copy(at.u, places[i, k])
                log_s[i, k] = now
        return places.shape[0] * u.shape[0] * (1 + emulated.most_leaps[0]) // 2

    parts, numbers = np.zeros((1, 1)), (np.zeros((1, 1)), np.zeros((1, 1)))
    arguments = parts, np.zeros((1, 1, 1)), *numbers, np.random.default_rng(0)
    with say_if_compiling("chains on the emulated log-density"):
        return specialise(cached_jit(chains, (hamiltonian_step,)), *_examples(), *arguments)


@cache
def compiled_outputs():
    """Return the compiled function that emulates outputs of inputs."""

    def outputs(emulated, at, x, y):
        for i in range(x.shape[0]):
            for k in range(emulated.structure.applications.shape[0]):
                emulate(emulated.structure, emulated.emulator, k, x[i], y[i], at.density.gaussian)

    arguments = _examples()[1:], np.zeros((1, 1)), np.zeros((1, 1))
    return specialise(cached_jit(outputs, (emulate,)), *arguments[0], *arguments[1:])


def _examples():
    """Return a Target, Emulated and Trajectory of the types that all models have."""
    structure = Structure.of([[1, 1]], [[0, 0, 0, 0]])
    emulated = allocate(Emulated, structure.sizes(1) | {"d": 1, "mirrors": 1}, structure=structure)
    point, generator = np.zeros(1), np.random.default_rng(0)
    target = Target(
        0, point, point, np.zeros(0, np.int64), np.zeros((2, 1)), np.zeros(2, np.int64), point,
        np.zeros(3, np.int64), np.zeros(0), generator,
    )  # fmt: skip
    return target, emulated, trajectory_of(target, emulated)
