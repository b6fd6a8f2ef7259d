"""Draws of the posterior that a process knows: many short chains, which go on from fit to fit."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.modes import reach
from pymc_kameleon.core.scaling import OPTIMAL_SCALE

N_CHAINS, N_STEPS, N_STEPS_ALONE = 48, 60, 250
"""Chains, steps of each between two batches of evaluations, and steps for what has been learned."""

N_TEMPERED, POWER = 16, 0.5
"""Chains whose density has this power, and so is wider."""

MOST_SD, SMALL_SD = 3.0, 1.0
"""The usual standard deviation of the process, at most; and what is small: how much more of it is
no reason to stay away, and up to which the average of exp f is above exp of the average of f."""

ABOVE, WALL = 3.0, 4.0
"""How far above the best value s may be; and how steep its wall is."""


class Density:
    """log s(u): log of the expected posterior, less where the process knows little; in a radius.

    If f is normal with mean μ and standard deviation σ, exp f is exp(μ + σ²/2) on average. So tails
    that are not known well are not taken for thinner than they are. A standard deviation up to
    `usual` is no reason to stay away; the rest counts with the power `steepness`, 2 where f is
    quadratic in some coordinates, as it has no bound where the sign of a curvature is not known.
    """

    def __init__(self, process, rng, centre=None, radius=None):
        d = process.u.shape[1]
        self.process, self.centre = process, centre
        self.radius = reach(d) if radius is None else radius
        self.n_held = process.prior.n_held if centre is None else 0
        # A funnel has no highest value, but is known where f is quadratic.
        self.highest = np.inf if self.n_held else process.y.max() + ABOVE
        self.steepness = 2 if process.prior.n_held else 1
        if radius is None:
            _, sd = process.mean_and_sd(rng.standard_normal((100, d)))
            self.usual = min(np.median(sd), MOST_SD) + SMALL_SD

    def __call__(self, u, least=-np.inf, _size=None):
        """Return it at points (m, d), −inf where the mean tells that it is below `least` (m,)."""
        if self.centre is not None:
            inside = np.sum((u - self.centre) ** 2, axis=1) <= self.radius**2
            return np.where(inside, self.process.mean(u), -np.inf)
        mean, sd = self.process.mean_and_sd(u, lambda mean: self.of(u, mean, SMALL_SD) >= least)
        return np.where(np.isnan(sd), -np.inf, self.of(u, mean, sd))

    def of(self, u, mean, sd):
        """Return it, by the mean and the sd of y there; it is most where the sd is SMALL_SD."""
        beyond = np.maximum(np.linalg.norm(u, axis=1) - self.radius, 0)
        expected = mean + 0.5 * np.minimum(sd, SMALL_SD) ** 2
        return np.minimum(expected, self.highest) - self.unknown(sd) - WALL * beyond**2

    def unknown(self, sd):
        """Return what log s is less, where y has these standard deviations (m,)."""
        return np.maximum(sd - self.usual, 0) ** self.steepness

    def given(self, u):
        """Return what I is Given J, at points u (m, d)."""
        if not self.n_held:
            return Given.nothing(len(u))
        mean, vectors, sds = self.process.given_held(u[:, : self.n_held])
        return Given(-np.log(sds).sum(axis=1), mean, vectors, sds)

    def steps_together(self, u, given, others, powers, rng):
        """Return proposals, of J by a step and of I given J; what is Given there; log ratios."""
        n, z = self.n_held, rng.standard_normal(u.shape)
        a, b = others[rng.integers(len(others), size=(2, len(u)))][..., :n]
        is_difference = rng.random((len(u), 1)) < 0.5
        held = u[:, :n] + OPTIMAL_SCALE / n**0.5 * np.where(
            is_difference, (a - b) / 2**0.5, z[:, :n]
        )
        new = self.given(held)
        z, roots = z[:, n:], powers[:, None] ** 0.5
        rest = new.mean + np.einsum("mij,mj->mi", new.vectors, new.sds * z / roots)
        back = np.einsum("mij,mi->mj", given.vectors, u[:, n:] - given.mean) / given.sds * roots
        ratio = np.log(new.sds / given.sds).sum(axis=1) + 0.5 * np.sum(z * z - back * back, axis=1)
        return np.concatenate([held, rest], axis=1), new, ratio


class Given(NamedTuple):
    """The normal of I given J at m points, by its principal axes; no I if f is not exact."""

    size: np.ndarray  # (m,), log |A|^½, A the curvature: less is there the larger it is
    mean: np.ndarray  # (m, |I|)
    vectors: np.ndarray  # (m, |I|, |I|)
    sds: np.ndarray  # (m, |I|)

    @classmethod
    def nothing(cls, m):
        """Return that of a density without I."""
        return cls(np.zeros(m), np.zeros((m, 0)), np.zeros((m, 0, 0)), np.zeros((m, 0)))


def run(density, u, powers, n_steps, rng, wider=None):
    """Run a chain from each point u (m, d) on a power of a density, or on another one.

    Where f is quadratic in I, J has the same power of its own density, and a funnel the same neck.
    Kinds of steps are equally likely: along the difference of two other chains that stand still
    [ter Braak 2006], or one that leaves a normal as it is; there, also I anew given J. Whether it
    is accepted is drawn first: where the mean alone forbids it, no more is computed. Return draws
    (n_steps, m, d), and log s there.
    """
    u, (m, d), log_density = u.copy(), u.shape, wider or density
    given = density.given(u)
    log_s = log_density(u, -np.inf, given.size)
    log_p = powers * log_s + (1 - powers) * given.size
    draws, logs = np.empty((n_steps, m, d)), np.empty((n_steps, m))
    for t in range(n_steps):
        order = rng.permutation(m)
        for moving, still in (order[: m // 2], order[m // 2 :]), (order[m // 2 :], order[: m // 2]):
            power, old = powers[moving], Given(*(part[moving] for part in given))
            if density.n_held and rng.random() < 0.5:
                w, new, log_ratio = density.steps_together(u[moving], old, u[still], power, rng)
            else:
                w, log_ratio = proposals(u[moving], u[still], rng)
                new = density.given(w)
            size = (1 - power) * new.size
            bound = np.log(rng.random(len(moving))) - log_ratio + log_p[moving]
            log_new = log_density(w, (bound - size) / power, new.size)
            new_p = power * log_new + size
            accepted = bound < new_p
            rows = moving[accepted]
            u[rows], log_s[rows], log_p[rows] = w[accepted], log_new[accepted], new_p[accepted]
            for part, own in zip(given, new, strict=True):
                part[rows] = own[accepted]
        draws[t], logs[t] = u, log_s
    return draws, logs


def proposals(u, others, rng):
    """Return a proposal from each point u (m, d), and the log of its Hastings ratio."""
    m, d = u.shape
    z, turned = rng.standard_normal((m, d)), rng.random(m) < 0.5
    a, b = others[rng.integers(len(others), size=(2, m))]
    angle = rng.uniform(0, np.pi / 2, (m, 1))  # at π/2 it does not depend on where the chain is
    along = u + OPTIMAL_SCALE / (2 * d) ** 0.5 * (a - b) + 1e-3 * z
    w = np.where(turned[:, None], np.cos(angle) * u + np.sin(angle) * z, along)
    return w, np.where(turned, 0.5 * np.sum(w * w - u * u, axis=1), 0.0)
