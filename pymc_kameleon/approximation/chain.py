"""A chain on an approximation s of the posterior: Hamiltonian Monte Carlo, with stops.

Sources: Neal, "MCMC using Hamiltonian dynamics", Handbook of Markov Chain Monte Carlo (2011); Modi,
Barnett & Carpenter, "Delayed rejection Hamiltonian Monte Carlo for sampling multiscale
distributions", Bayesian Analysis 19 (2024), here [M].

Each transition draws a momentum, a length of the leap, ε times 0.7 to 1.3, and a number of leaps, 1
to `most_leaps`. If the trajectory is rejected, one of shorter leaps is tried from the same momentum
[M]: a ridge may be narrower at its ends than in the middle, for which ε is tuned. Where there are
several modes, some transitions are to a draw of their mixture (modes.py). So each is reversible
with respect to s. The chain stops after every M transitions, R times. One of its stops, drawn
beforehand, is proposed. So on average all stops have the distribution of the proposal.

An approximation has two compiled functions:

    log_density(density, u, gradient)  log s at u, and its gradient; -inf where there is none
    jump(density, at, rng)             writes another proposal into `at.v`, and returns the log of
                                       the proposal's ratio; NaN if a trajectory is to be made

`density` is a Density, and `chain` has the fields of Chain, and perhaps more.

Symbols: z the posterior's coordinates, u = L⁻¹(z − μ) those in which s is about standard normal, ε
the leap.
"""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve_triangular

from pymc_kameleon.approximation.linalg import cholesky
from pymc_kameleon.approximation.modes import Mode, Modes, draw_of_modes, log_of_modes
from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import cached_jit, jit
from pymc_kameleon.core.linalg import (
    copy,
    multiply_lower,
    solve_lower,
    solve_lower_transposed,
    squared_norm,
)
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.core.target import Target

LEAP_RANGE = 0.3
"""Share of ε by which it varies, so that no trajectory comes back to where it began."""

JUMP_SHARE = 0.3
"""Share of transitions from one mode to another, or to a mirror image, if there are any."""

LARGEST_CHANGE = 50.0
"""Range of log s − ½|p|² at which a trajectory is rejected; so is its reverse."""

SHORTER = 5.0
"""How much shorter leaps are after a trajectory that was rejected."""

STOPS, LEAST_STOPS, MOST_STOPS, FIRST_STOPS = 512, 32, 128, 12
"""Stops R of the chain, times d, and bounds: one is proposed, and by all of them averages are
corrected. In few dimensions they cost little, and so would be the only error. With 12 of them R-hat
was 1.03 of the 127 coordinates of a hierarchy, after 150 evaluations of it. While tuning nothing is
corrected, and one of the first `FIRST_STOPS` is proposed."""


class Chain(NamedTuple):
    """What a chain on s goes by."""

    mean: floats("d")  # μ
    factor: floats("d", "d")  # L
    leap: floats(1)  # ε
    most_leaps: integers(1)
    n_inner: integers(1)  # M
    modes: Modes


class Density(NamedTuple):
    """What log s is computed from, and where."""

    target: Target
    s: Chain  # and more
    scratch: tuple


class Trajectory(NamedTuple):
    """Where a chain on s is, and where it tries to go."""

    u: floats("d")
    slope: floats("d")  # gradient of log s at u
    v: floats("d")
    slope_v: floats("d")
    momentum: floats("d")
    drawn: floats("d")  # momentum at the start
    back: floats("d")  # where a trajectory from v leads, with its momentum reversed
    slope_back: floats("d")


# ---- coordinates --------------------------------------------------------------------------------


@jit
def u_of(shape, x, u):
    """Write the coordinates in which a density of this mean and factor is about standard normal."""
    for i in range(x.size):
        u[i] = x[i] - shape.mean[i]
    solve_lower(shape.factor, u, u)


@jit
def x_of(shape, u, x):
    """Write the position of coordinates u."""
    multiply_lower(shape.factor, u, x)
    for i in range(u.size):
        x[i] += shape.mean[i]


# ---- transitions --------------------------------------------------------------------------------


@jit(inlined=False)
def chain_step(log_density, jump, density, chain, at, log_s, rng):
    """Move at.u by one transition on s; return log s there, and α, which is NaN for a jump."""
    log_ratio = jump_of_modes(chain, at, rng)
    if np.isnan(log_ratio):
        log_ratio = jump(density, at, rng)
    if not np.isnan(log_ratio):
        log_s_v = log_density(density, at.v, at.slope_v)
        if log_uniform(rng) < log_ratio + log_s_v - log_s:
            log_s = accept_v(at, log_s_v)
        return log_s, np.nan
    for i in range(at.u.size):
        at.drawn[i] = rng.standard_normal()
    leap = chain.leap[0] * (1.0 + LEAP_RANGE * (2.0 * rng.random() - 1.0))
    n_leaps = 1 + int(rng.random() * chain.most_leaps[0])
    log_s_v, log_ratio = trajectory(log_density, density, at, log_s, leap, n_leaps)
    accept_prob = np.exp(min(0.0, log_ratio))
    if log_uniform(rng) < log_ratio:
        return accept_v(at, log_s_v), accept_prob
    log_s_v, log_ratio = trajectory(log_density, density, at, log_s, leap / SHORTER, n_leaps)
    if log_ratio > -np.inf:
        log_ratio -= np.log1p(-accept_prob)
        log_ratio += log_rejected_back(log_density, density, at, log_s_v, leap, n_leaps)
    if log_uniform(rng) < log_ratio:
        log_s = accept_v(at, log_s_v)
    return log_s, accept_prob


@jit
def trajectory(log_density, density, at, log_s, leap, n_leaps):
    """Move at.v from at.u, with the momentum that was drawn; return what `leapfrog` does."""
    copy(at.u, at.v)
    copy(at.slope, at.slope_v)
    copy(at.drawn, at.momentum)
    moving = at.v, at.slope_v, at.momentum
    return leapfrog(log_density, density, moving, log_s, leap, n_leaps)


@jit
def log_rejected_back(log_density, density, at, log_s_v, leap, n_leaps):
    """Log of the probability to reject a trajectory from at.v with its momentum reversed [M]."""
    copy(at.v, at.back)
    copy(at.slope_v, at.slope_back)
    for i in range(at.v.size):
        at.momentum[i] = -at.momentum[i]
    moving = at.back, at.slope_back, at.momentum
    _, log_ratio = leapfrog(log_density, density, moving, log_s_v, leap, n_leaps)
    return np.log1p(-np.exp(min(0.0, log_ratio)))


@jit(inlined=False)
def leapfrog(log_density, density, moving, log_s, leap, n_leaps):
    """Move a place with log s, its slope and a momentum; return log s there, and a log ratio.

    That is the ratio of densities, with momenta, of which -inf means that it was given up.
    """
    v, slope, momentum = moving
    energy, log_s_v = log_s - 0.5 * squared_norm(momentum), log_s
    log_ratio, least, largest = 0.0, 0.0, 0.0
    for _ in range(n_leaps):
        for i in range(v.size):
            momentum[i] += 0.5 * leap * slope[i]
            v[i] += leap * momentum[i]
        log_s_v = log_density(density, v, slope)
        if log_s_v == -np.inf:
            return log_s_v, -np.inf
        for i in range(v.size):
            momentum[i] += 0.5 * leap * slope[i]
        log_ratio = log_s_v - 0.5 * squared_norm(momentum) - energy
        least, largest = min(least, log_ratio), max(largest, log_ratio)
        if np.isnan(log_ratio) or largest - least > LARGEST_CHANGE:
            return log_s_v, -np.inf
    return log_s_v, log_ratio


@jit
def jump_of_modes(chain, at, rng):
    """Propose a draw of the mixture of modes, if there is one, at some of the transitions."""
    if chain.modes.n_modes[0] == 0 or rng.random() >= JUMP_SHARE:
        return np.nan
    z, scratch = at.momentum, at.slope_v
    x_of(chain, at.u, z)
    log_ratio = log_of_modes(chain.modes, z, scratch)
    draw_of_modes(chain.modes, z, scratch, rng)
    u_of(chain, z, at.v)
    return log_ratio - log_of_modes(chain.modes, z, scratch)


@jit
def accept_v(at, log_s_v):
    """Move to at.v; return log s there."""
    copy(at.v, at.u)
    copy(at.slope_v, at.slope)
    return log_s_v


@jit(inlined=False)
def run_chain(log_density, jump, density, chain, at, stops, n_kept, end, rng):
    """Run the chain from at.u, and keep the first `n_kept` stops, z (R, d).

    Write u of the stop that is proposed to `end`; return log s at the start, and there.
    """
    copy(at.u, end)
    start = log_s = log_s_end = log_density(density, at.u, at.slope)
    proposed = int(rng.random() * max(n_kept, FIRST_STOPS))
    for r in range(max(proposed + 1, n_kept)):
        if start > -np.inf:
            for _ in range(chain.n_inner[0]):
                log_s, _ = chain_step(log_density, jump, density, chain, at, log_s, rng)
        if r < n_kept:
            x_of(chain, at.u, stops[r])
        if r == proposed:
            copy(at.u, end)
            log_s_end = log_s
    return start, log_s_end


# ---- from Python --------------------------------------------------------------------------------

NO_DRAWS = np.random.default_rng(0)
"""Stands for a generator where nothing is drawn."""


class Approximation:
    """Log s and chains on it, as functions of points z (n, d), in arrays of their own.

    `explore` is a compiled function, as `compiled_exploration` returns.
    """

    def __init__(self, density, chain, at, explore):
        self.chain = chain
        self._density, self._at, self._explore = density, at, explore

    def u_of(self, z):
        """Return u of points z (n, d)."""
        return solve_triangular(self.chain.factor, (z - self.chain.mean).T, lower=True).T

    def z_of(self, u):
        """Return z of points u (n, d)."""
        return self.chain.mean + u @ self.chain.factor.T

    def values(self, z):
        """Return log s (n,) and its gradients in z (n, d), which are 0 where it is -inf."""
        log_s, slopes, *_ = self._run(np.ascontiguousarray(z, np.float64), 0, NO_DRAWS)
        return log_s, slopes

    def chains(self, z, n, rng):
        """Run n transitions from each point z (k, d).

        Return places (n, k, d) in z, and log s and α (n, k), which is NaN of a jump.
        """
        *_, places, log_s, accept_prob = self._run(np.ascontiguousarray(self.u_of(z)), n, rng)
        return self.z_of(places), log_s, accept_prob

    def _run(self, points, n, rng):
        k, d = points.shape
        of_points = np.empty(k), np.empty((k, d))
        of_chains = np.empty((n, k, d)), np.empty((n, k)), np.empty((n, k))
        arguments = points, *of_points, *of_chains, rng
        self._explore(self._density, self.chain, self._at, *arguments)
        return *of_points, *of_chains

    def nearest_image(self, z):
        """Return points z (n, d); where modes mirror one another, those nearest to μ."""
        return z


def compiled_exploration(log_density, jump):
    """Return a function, to be compiled, that runs chains, or computes log s and its gradients.

    It runs chains from points u, to `places` (n, k, d); or, if n is 0, it computes `values` (k,)
    and `slopes` at points z. Both are one function, as each takes seconds to compile.
    """

    def explore(density, chain, at, points, values, slopes, places, log_s, accept_prob, rng):
        n = places.shape[0]
        for k in range(points.shape[0]):
            if n == 0:
                u_of(chain, points[k], at.u)
                values[k] = log_density(density, at.u, slopes[k])
                if values[k] == -np.inf:
                    slopes[k] = 0.0
                solve_lower_transposed(chain.factor, slopes[k], slopes[k])
                continue
            copy(points[k], at.u)
            now = log_density(density, at.u, at.slope)
            for i in range(n):
                accept_prob[i, k] = 0.0
                if now > -np.inf:
                    now, accept_prob[i, k] = chain_step(
                        log_density, jump, density, chain, at, now, rng
                    )
                copy(at.u, places[i, k])
                log_s[i, k] = now

    return cached_jit(explore, (log_density, jump))


def example_points():
    """Return arguments of the types that `explore` takes after the first three."""
    points, places = np.zeros((1, 1)), np.zeros((1, 1, 1))
    return (
        *(points, np.zeros(1), points, places),
        *(points, points, np.random.default_rng(0)),
    )


# ---- learning -----------------------------------------------------------------------------------

N_CHAINS, FIRST_LENGTHS, NEXT_LENGTHS, LAST_LENGTHS = 8, (20, 40, 80, 160), (50,), (50, 150)
"""Chains on s that learn its shape, and their transitions between two updates of it: when there is
no shape yet, at later fits, and at the last one."""

MEMORY_OF_SHAPE = 100
"""Transitions that the shape counts as, which earlier fits have learned."""

TARGET_ACCEPT = 0.8
"""Acceptance probability of a transition, which the leap is tuned to."""

LONGEST, MOST_LEAPS = np.pi, 30
"""Length of a trajectory, at most, and leaps at most. On a standard normal, trajectories of lengths
from 0 to π forget on average where they began."""

FORGOTTEN, FORGOTTEN_STOPS, MOST_INNER = 0.85, 4, 6
"""Squared distances of stops from where the chain began should be this share of those of
independent points, on average over these many first stops; M at most."""


def learn_chain(s, starts, lengths, memory, rng):
    """Learn mean and factor of s, the leap, and M, by chains from points z (k, d).

    What is known of the shape counts as much as `memory` transitions. Return the chains' places
    since the last update, (n, d), without the first third of them.
    """
    chain, d = s.chain, starts.shape[1]
    log_s, _ = s.values(starts)
    starts = starts[log_s > -np.inf] if (log_s > -np.inf).any() else starts
    z = starts[np.arange(N_CHAINS) % len(starts)]
    for n in lengths:
        places = []
        for _ in range(0, n, 10):
            part, _, accept_prob = s.chains(z, 10, rng)
            z = part[-1]
            places.append(part)
            of_leaps = accept_prob[~np.isnan(accept_prob)]
            tune_leap(chain, np.mean(of_leaps) if of_leaps.size else TARGET_ACCEPT)
        places = np.concatenate(places)
        sample = places[len(places) // 3 :].reshape(-1, d)
        change_shape(chain, s.nearest_image(sample), n / (n + memory))
    every = places.reshape(-1, d)
    images = s.nearest_image(every)
    parts = [every] if images is every else [every, images]
    u = np.concatenate([s.u_of(z).reshape(places.shape) for z in parts], axis=2)
    chain.n_inner[0] = enough_transitions(u)
    return sample


def mode_at(s, z, factor, rng):
    """Return the Mode of s with its maximum at z (d,).

    Its mass is that of a normal with the covariance of draws, and their mean log s. Draws that are
    higher than z have left the mode. The curvature at z does not tell the mass: in many dimensions
    hardly a draw is near. `factor` is one of the covariance at z, about. The chain's own shape is
    left as it was.
    """
    shape = s.chain.mean, s.chain.factor, s.chain.leap, s.chain.most_leaps, s.chain.n_inner
    before = [part.copy() for part in shape]
    s.chain.mean[:], s.chain.factor[:] = z, factor
    draws = learn_chain(s, z[None], FIRST_LENGTHS, 0, rng)
    log_s, _ = s.values(np.vstack([z, draws]))
    logp = np.minimum(log_s[1:], log_s[0]).mean() + z.size / 2
    mode = Mode(s.chain.mean.copy(), s.chain.factor.copy(), logp)
    for part, old in zip(shape, before, strict=True):
        part[:] = old
    return mode


def tune_leap(chain, accept_prob):
    """Tune ε, and the number of leaps so that trajectories are long enough."""
    chain.leap[0] *= np.exp(np.clip(accept_prob - TARGET_ACCEPT, -0.5, 0.2))
    chain.leap[0] = np.clip(chain.leap[0], 1e-3, 1.5)
    chain.most_leaps[0] = min(int(np.ceil(LONGEST / chain.leap[0])), MOST_LEAPS)


def change_shape(chain, sample, weight):
    """Blend points of s into its mean and factor, if chains have moved."""
    if not np.ptp(sample, axis=0).all():
        return
    step = weight * (sample.mean(axis=0) - chain.mean)
    before = chain.factor @ chain.factor.T + np.outer(step, step) / weight
    covariance = (1 - weight) * before + weight * np.atleast_2d(shrunk_covariance(sample))
    chain.mean[:] += step
    chain.factor[:] = cholesky(covariance)


def enough_transitions(u):
    """Return M, so that chains u (n, k, d) forget where they began."""
    spread = 2 * u.reshape(-1, u.shape[2]).var(axis=0)
    lags = range(1, min(FORGOTTEN_STOPS * MOST_INNER, len(u)))
    jumps = [np.mean((u[lag:] - u[:-lag]) ** 2, axis=(0, 1)) / spread for lag in lags]
    for m in range(1, MOST_INNER):
        if np.min(np.mean(jumps[m - 1 : FORGOTTEN_STOPS * m : m], axis=0)) > FORGOTTEN:
            return m
    return MOST_INNER
