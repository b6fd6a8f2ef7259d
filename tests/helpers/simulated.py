"""Models with simulators, emulators of our choice, and EmulatorMetropolis in plain numpy."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from slow_chain import SlowChain

import pymc_kameleon as pk
from pymc_kameleon.approximation.chain import JUMP_SHARE, LEAP_RANGE, SHORTER
from pymc_kameleon.samplers.emulator import fit
from pymc_kameleon.samplers.emulator.inner_chain import EmulatedDensity


def simulator(function):
    """Return a black box that takes a vector and returns one, as users write it."""
    return pk.black_box(function)


# ---- models -------------------------------------------------------------------------------------


def bend(x):
    """Straighten a banana."""
    return np.array([x[0], x[1] - 0.5 * (x[0] ** 2 - 4)])


class Switch:
    """The simulator of `banana`, which a test may change."""

    function = staticmethod(bend)


@cache
def banana():
    """A model whose posterior is the banana of the invariance harness, by way of a simulator."""

    def bent(x):
        return Switch.function(x)

    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Normal("y", simulator(bent)(x), [2.0, 1.0], observed=[0.0, 0.0])
    return model


def one(x):
    return np.array([x[0] * x[1], x[0] + x[1] ** 2, np.sin(x[0])])


def two(x):
    return np.array([x[0] - 0.5 * x[1] ** 2])


OBSERVED = np.array([0.3, 1.2, 0.1, -0.7, 0.9, -0.5, 0.2])


@cache
def nested():
    """Two simulators: one of two subjects, and another one of what it returns.

    "b" is left to another step.
    """
    first, second = simulator(one), simulator(two)
    with pm.Model() as model:
        a, s, b = pm.Normal("a", 0, [1.0, 2.0]), pm.HalfNormal("s"), pm.Normal("b")
        of = [first(pt.stack([a[k], s])) for k in range(2)]
        last = second(pt.stack([of[0][0] * b, of[1][1] + a[0]]))
        pm.Normal("y", pt.concatenate([*of, last]), 0.5 + s, observed=OBSERVED)
    return model


DAYS = np.linspace(0.5, 10, 10)
RATE, CAPACITY, NOISE = 0.8, 50.0, 0.1
"""With which the data of `growth` are made."""


def logistic(x):
    """Return the size of a population that grows from 1, on ten days."""
    return x[1] / (1 + (x[1] - 1) * np.exp(-x[0] * DAYS))


@cache
def growth():
    """A curve with an unknown rate, capacity and noise."""
    with pm.Model() as model:
        rate, capacity = pm.LogNormal("rate", 0, 1), pm.LogNormal("capacity", 3, 1)
        noise = pm.HalfNormal("noise", 0.5)
        size = pm.Deterministic("size", simulator(logistic)(pt.stack([rate, capacity])))
        data = logistic([RATE, CAPACITY])
        data = data * np.exp(NOISE * np.random.default_rng(1).standard_normal(len(data)))
        pm.LogNormal("y", pt.log(size), noise, observed=pm.Data("data", data))
    return model


GROWTH = np.log([RATE, CAPACITY, NOISE])
"""The truth, in the model's coordinates."""


TIMES = np.linspace(0.1, 6, 8)


def two_decays(x):
    """Return a sum of two exponentials, of two rates."""
    return np.exp(-np.multiply.outer(TIMES, x)).sum(axis=1)


@cache
def decays():
    """Two rates that can be exchanged, but for their priors: two modes mirror one another."""
    with pm.Model() as model:
        fast, slow = pm.LogNormal("fast", 0.15, 0.7), pm.LogNormal("slow", -0.15, 0.7)
        pm.Normal("y", simulator(two_decays)(pt.stack([fast, slow])), 0.05, observed=DECAYED)
    return model


DECAYED = two_decays([2.0, 0.3]) + 0.05 * np.random.default_rng(1).standard_normal(8)


def two_parts(x):
    """Return a sum of two exponentials, of two amplitudes and two rates."""
    return x[:2] @ np.exp(-np.multiply.outer(x[2:], TIMES))


@cache
def parts():
    """Amplitudes can be exchanged along with rates, and not alone; all are in one vector."""
    with pm.Model() as model:
        x = pm.LogNormal("x", 0, 1, shape=4)
        data = two_parts(np.array([1, 2, 0.3, 2.0]))
        data = data + 0.05 * np.random.default_rng(1).standard_normal(8)
        pm.Normal("y", simulator(two_parts)(x), 0.05, observed=data)
    return model


def wave(x):
    """Return a damped oscillation of amplitude 1 at 30 times, of frequency and phase."""
    times = np.linspace(0, 12, 30)
    return np.sin(x[0] * times + x[1]) * np.exp(-0.05 * times)


@cache
def oscillation():
    """A wave with an unknown frequency, phase and noise: a wrong frequency is a mode of its own."""
    with pm.Model() as model:
        frequency, phase = pm.LogNormal("frequency", 0.5, 0.7), pm.Normal("phase")
        noise = pm.HalfNormal("noise", 1)
        data = wave([FREQUENCY, PHASE])
        data = data + NOISE * np.random.default_rng(1).standard_normal(len(data))
        pm.Normal("y", simulator(wave)(pt.stack([frequency, phase])), noise, observed=data)
    return model


FREQUENCY, PHASE = 3.0, 0.4
OSCILLATION = np.array([np.log(FREQUENCY), PHASE, np.log(NOISE)])
"""The truth, in the model's coordinates."""


# ---- emulators ----------------------------------------------------------------------------------


def make_arbitrary(emulator, n=5, seed=1):
    """Set an emulator to what no fit would lead to: nothing in it is lost to rounding."""
    rng = np.random.default_rng(seed)
    for array in emulator:
        array[...] = 0.4 * rng.standard_normal(array.shape) if array.dtype == float else 0
    emulator.n[:] = n


def emulate_by(step, functions, width=1.5, n=30, seed=1):
    """Fit the emulators of a step to functions, which may be others than the simulators."""
    emulated, rng = step.parameters.s, np.random.default_rng(seed)
    for box, function in enumerate(functions):
        p, q = emulated.structure.boxes[box]
        x = width * rng.standard_normal((n, p))
        y = np.array([function(row) for row in x])
        found = fit.fit_box(x, y, np.zeros(n), step._d, np.ones(q), m=n)
        found.write(emulated.structure, emulated.emulator, box)


def set_mirrors(emulated, maps):
    """Let chains on s go by these maps, under which outputs need not be the same."""
    mirrors = emulated.mirrors
    mirrors.n_same[0], mirrors.n_maps[0], mirrors.n_products[0] = 0, len(maps), len(maps)
    mirrors.maps[: len(maps)] = np.reshape(maps, (len(maps), *mirrors.maps.shape[1:]))


def density_of(step, rng=None):
    """Return the EmulatedDensity of a step, with what its parameters are now."""
    rng = np.random.default_rng(0) if rng is None else rng
    return EmulatedDensity(step.log_density.target(rng), step.parameters.s)


# ---- in plain numpy -----------------------------------------------------------------------------


def slow_chain(emulated, log_s):
    """Return the SlowChain of an emulated posterior, which jumps to mirror images."""
    maps = emulated.mirrors.maps[: emulated.mirrors.n_maps[0]]
    mean, factor = emulated.mean, np.tril(emulated.factor)

    def jump(u, rng):
        if len(maps) and rng.random() < JUMP_SHARE:
            image = maps[int(rng.random() * len(maps))] @ (mean + factor @ u)
            return np.linalg.solve(factor, image - mean), 0.0

    return SlowChain(emulated, log_s, jump)


class ManyChains:
    """The inner chain of many points at once, in plain numpy.

    rule : str
        What is done; "exact" is the sampler's own, others are broken.
    """

    def __init__(self, density, rule="exact"):
        self.density, self.rule, self.chain = density, rule, density.chain
        self.factor = np.tril(self.chain.factor)

    def log_s(self, u):
        """Return log s (n,) and its gradient in u."""
        log_s, slopes = self.density.values(self.density.z_of(u))
        return log_s, slopes @ self.factor

    def transition(self, u, rng):
        """Return where transitions from u (n, d) lead."""
        p = rng.standard_normal(u.shape)
        leap = self.chain.leap[0] * rng.uniform(1 - LEAP_RANGE, 1 + LEAP_RANGE, (len(u), 1))
        n_leaps = rng.integers(1, self.chain.most_leaps[0] + 1, len(u))
        v, _, change = self.trajectory(u, p, leap, n_leaps)
        at_once = -rng.standard_exponential(len(u)) < change
        if self.rule == "without accepting":
            at_once[:] = True
        w, q, change_w = self.trajectory(u, p, leap / SHORTER, n_leaps)
        _, _, back = self.trajectory(w, -q, leap, n_leaps)
        if self.rule != "without the way back":
            with np.errstate(divide="ignore", invalid="ignore"):
                change_w += np.log1p(-np.exp(np.minimum(0, back)))
                change_w -= np.log1p(-np.exp(np.minimum(0, change)))
        then = -rng.standard_exponential(len(u)) < change_w
        return np.where(at_once[:, None], v, np.where(then[:, None], w, u))

    def trajectory(self, v, p, leap, n_leaps):
        """Return places, momenta, and logs of ratios, after leaps from places with momenta."""
        now, slope = self.log_s(v)
        energy = now - (p * p).sum(axis=1) / 2
        for k in range(n_leaps.max()):
            goes = (k < n_leaps)[:, None]
            half = p + leap / 2 * slope
            w = np.where(goes, v + leap * half, v)
            log_s, new = self.log_s(w)
            slope = np.where(goes, new, slope)
            last = half if self.rule == "without the last half step" else half + leap / 2 * new
            v, p, now = w, np.where(goes, last, p), np.where(goes[:, 0], log_s, now)
        return v, p, now - (p * p).sum(axis=1) / 2 - energy

    def run(self, u, rng):
        """Return where M transitions lead."""
        for _ in range(self.chain.n_inner[0]):
            u = self.transition(u, rng)
        return u

    def move(self, x, log_pi, rng):
        """Return where moves of x (n, d) lead, accepted by log π."""
        u = self.density.u_of(x)
        v = self.run(u, rng)
        y = self.density.z_of(v)
        change = log_pi(y) - log_pi(x)
        if self.rule != "without s":
            change += self.log_s(u)[0] - self.log_s(v)[0]
        return np.where((-rng.standard_exponential(len(x)) < change)[:, None], y, x)
