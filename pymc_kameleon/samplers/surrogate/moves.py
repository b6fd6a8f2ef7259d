"""Points of the surrogate of SurrogateMetropolis, and new runs of its inner chain, which are free.

Averages are corrected by them, and draws of the surrogate itself are made by them.

Symbols: as in metropolis.py.
"""

from functools import cache
from hashlib import sha256
from typing import NamedTuple

import numpy as np
from scipy.linalg import cholesky, solve_triangular
from scipy.special import gammaincinv, ndtri
from scipy.stats import qmc

from pymc_kameleon.approximation.chain import u_of, x_of
from pymc_kameleon.approximation.linalg import squared_distances, whitened
from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.conventions import EPS, ROOT_EPS
from pymc_kameleon.core.jit import cached_jit, jit, specialise
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import log_uniform
from pymc_kameleon.samplers.approximation.moves import log_t
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate, log_surrogate
from pymc_kameleon.samplers.surrogate.emulator import surrogate_from
from pymc_kameleon.samplers.surrogate.proposal import Parameters, inner_proposal
from pymc_kameleon.step.messages import say_if_compiling


def parameters_of(own):
    """Return the Parameters of one chain, with what its inner chain needs."""
    surrogate = surrogate_from(own)
    sizes = {"d": surrogate.linear.size, "m": surrogate.weights.size}
    return allocate(
        Parameters,
        sizes,
        mean=own["mean"].values,
        factor=own["surrogate_factor"].values,
        n_inner=own["n_inner"].values,
        surrogate=allocate(Surrogate, sizes, **surrogate._asdict()),
    )


def same_surrogates(parameters):
    """Return lists of numbers of chains, those with the same s, by the Parameters of each."""
    same = {}
    for row, own in enumerate(parameters):
        key = b"".join(part.tobytes() for part in (own.mean, own.factor, *own.surrogate))
        same.setdefault(key, []).append(row)
    return list(same.values())


# ---- the distribution s --------------------------------------------------------------------------


class Spread:
    """Points of s, with weights: those of t, spread evenly, which have weights s/t."""

    def __init__(self, parameters, rng):
        self._parameters, self._most = parameters, None
        self._even = qmc.Sobol(parameters.mean.size + 1, scramble=False)
        self._shifts = rng.random((SETS, 1, parameters.mean.size + 1))

    def more(self, n):
        """Return more points (SETS, n, d), in independent sets, and weights; n is a power of 2."""
        p, even = self._parameters, (self._even.random(n) + self._shifts) % 1
        u = points_of_t(even, p.surrogate.nu[0])
        log_w = self._log_weights(u.reshape(-1, u.shape[2]))
        self._most = log_w.max() if self._most is None else self._most
        return p.mean + u @ np.tril(p.factor).T, np.exp(log_w - self._most).reshape(u.shape[:2])

    def is_lowest(self, x):
        """Whether s is as low as it may be at points x (n, d), where nothing is known."""
        p = self._parameters
        u = whitened(x, p.mean, p.factor)
        return fit.are_lowest(p.surrogate, u, fit.values(p.surrogate, u))

    def _log_weights(self, u):
        """Return log s/t at points u (n, d), which is h."""
        surrogate = self._parameters.surrogate
        return fit.values(surrogate, u) - fit.log_t(u, surrogate.nu[0])

    def doubt(self, x):
        """Return sds (n,) by which log π may differ from log s: of a process with its kernels."""
        p, n = self._parameters.surrogate, self._parameters.surrogate.n[0]
        if n == 0:
            return np.zeros(len(x))
        u = whitened(x, self._parameters.mean, self._parameters.factor)
        centres = p.centres[:, :n].T
        covariance = 1 / (1 + squared_distances(centres, centres))
        values = covariance @ p.weights[:n]
        root = cholesky(covariance + ROOT_EPS * np.eye(n), lower=True)
        amplitude = np.square(solve_triangular(root, values, lower=True)).mean()
        cross = 1 / (1 + squared_distances(centres, u * p.rates))
        known = np.square(solve_triangular(root, cross, lower=True)).sum(axis=0)
        return np.sqrt(amplitude * np.maximum(1 - known, 0))


def points_of_t(even, nu):
    """Return points (..., d) of t by probabilities (..., d + 1), that of its scale first."""
    even = np.clip(even, EPS, 1 - EPS)
    g = gammaincinv(nu / 2, even[..., 0]) * 2 / nu
    return ndtri(even[..., 1:]) / np.sqrt(g)[..., None]


SETS = 8
"""Sets of points, by which it is seen how far off their averages are."""


# ---- new runs -----------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Where two inner chains move."""

    v: floats("d")
    w: floats("d")
    other: floats("d")
    other_w: floats("d")
    distances: floats("m")


@jit
def meet(parameters, scratch, rng):
    """Move v and other by M steps each, with the same random numbers, or until they meet.

    Return whether they met, and how often s was evaluated.
    """
    surrogate, distances = parameters.surrogate, scratch.distances
    nu = surrogate.nu[0]
    v, w, other, other_w = scratch.v, scratch.w, scratch.other, scratch.other_w
    log_s = log_surrogate(surrogate, v, distances)
    log_s_other = log_surrogate(surrogate, other, distances)
    evaluated = 2
    for _ in range(parameters.n_inner[0]):
        log_ratio, log_ratio_other = -log_s, -log_s_other
        is_same = inner_proposal(parameters, v, w, rng)
        if is_same:
            copy(w, other_w)
            log_ratio += log_t(v, nu) - log_t(w, nu)
            log_ratio_other += log_t(other, nu) - log_t(other_w, nu)
        else:
            for i in range(v.size):
                other_w[i] = other[i] + (w[i] - v[i])
        log_s_w = log_s_other_w = log_surrogate(surrogate, w, distances)
        if not is_same:
            log_s_other_w = log_surrogate(surrogate, other_w, distances)
        evaluated += 1 if is_same else 2
        bound = log_uniform(rng)
        accepted = bound < log_ratio + log_s_w
        other_accepted = bound < log_ratio_other + log_s_other_w
        if accepted and other_accepted and is_same:
            return True, evaluated
        if accepted:
            copy(w, v)
            log_s = log_s_w
        if other_accepted:
            copy(other_w, other)
            log_s_other = log_s_other_w
    return False, evaluated


@cache
def compiled_runs():
    """Return the compiled function that runs pairs of inner chains."""

    def new_runs(parameters, scratch, start, others, apart, rng):
        """Replace starts x and others (n, d) by ends; return how often s was evaluated."""
        total = 0
        for i in range(start.shape[0]):
            for points, u in ((start, scratch.v), (others, scratch.other)):
                u_of(parameters, points[i], u)
            met, evaluated = meet(parameters, scratch, rng)
            apart[i], total = not met, total + evaluated
            for points, u in ((start, scratch.v), (others, scratch.other)):
                x_of(parameters, u, points[i])
        return total

    sizes = {"d": 1, "m": 1}
    parameters, scratch = allocate(Parameters, sizes), allocate(Scratch, sizes)
    arguments = parameters, scratch, np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1, np.bool_)
    with say_if_compiling("new runs of the inner chain"):
        return specialise(cached_jit(new_runs, (meet,)), *arguments, np.random.default_rng(0))


def ends_of_pairs(parameters, start, others, rng):
    """Run inner chains from x and from others (n, d), each pair with the same random numbers.

    Return where each ends, whether the pair did not meet (n,), and how often s was evaluated.
    """
    scratch = allocate(Scratch, {"d": start.shape[1], "m": parameters.surrogate.weights.size})
    ends, others = (np.array(points, np.float64, order="C") for points in (start, others))
    apart = np.empty(len(ends), np.bool_)
    evaluated = compiled_runs()(parameters, scratch, ends, others, apart, rng)
    return ends, others, apart, evaluated


def new_ends(parameters, start, rng):
    """Return where inner chains from x (n, d) end; their partners never move, so that none meet."""
    return ends_of_pairs(parameters, start, np.full(start.shape, np.nan), rng)[0]


def generator_of(points):
    """Return a Generator that has its seed from points: the same ones give the same numbers."""
    digest = sha256(np.ascontiguousarray(points)).digest()
    return np.random.default_rng(np.frombuffer(digest, np.uint32))
