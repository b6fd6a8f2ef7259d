"""What SurrogateMetropolis has kept of its moves, and new runs of its inner chain, which are free.

Averages are corrected by them, and draws of the surrogate itself are made by them.

Symbols: as in surrogate.py; w = π/s, at the ends of moves.
"""

from functools import cache
from hashlib import sha256
from math import ceil
from typing import NamedTuple

import numpy as np
from arviz_stats.base import array_stats

from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.jit import cached_jit, specialise
from pymc_kameleon.core.linalg import copy, multiply_lower, solve_lower
from pymc_kameleon.core.surrogate import Surrogate, log_surrogate
from pymc_kameleon.monitor import say_if_compiling
from pymc_kameleon.samplers.surrogate import Parameters, inner_chain
from pymc_kameleon.samplers.surrogate_emulator import emulator_from, surrogate_from


class Moves(NamedTuple):
    """The moves by the surrogate of all chains, in the order of chains and draws.

    Attributes
    ----------
    row, draw : (n,) int64
        Which chain made them, and for which of its draws, from 0.
    start, end : (n, d) float64
        Where they began, and what they proposed, unconstrained.
    end_logp : (n,) float64
        log π there.
    accept_prob : (n,) float64
        α.
    parameters : list of Parameters
        Those of each chain, as far as the inner chain needs them.
    log_s : list of callable
        The fitted log-density of each chain.
    """

    row: np.ndarray
    draw: np.ndarray
    start: np.ndarray
    end: np.ndarray
    end_logp: np.ndarray
    accept_prob: np.ndarray
    parameters: list
    log_s: list


def moves_of(kept, learned):
    """Return the Moves of datasets of a result: what it has kept of moves, and what was learned."""
    accept_prob = kept["accept_prob"].transpose("chain", "draw").values
    row, draw = np.nonzero(~np.isnan(accept_prob))

    def of(name):
        return kept[name].transpose("chain", "draw", ...).values[row, draw]

    chains = kept["chain"].values if len(row) else []
    return Moves(
        row,
        draw,
        of("start"),
        of("end"),
        of("end_logp"),
        accept_prob[row, draw],
        [_parameters(learned.sel(chain=chain)) for chain in chains],
        [emulator_from(learned.sel(chain=chain)) for chain in chains],
    )


def _parameters(own):
    """Return the Parameters of one chain, with what its inner chain needs."""
    surrogate = surrogate_from(own)
    sizes = {"d": surrogate.linear.size, "m": surrogate.weights.size}
    return allocate(
        Parameters,
        sizes,
        mean=own["mean"].values,
        factor=own["surrogate_factor"].values,
        angle=own["angle"].values,
        reference_share=own["reference_share"].values,
        n_inner=own["n_inner"].values,
        surrogate=allocate(Surrogate, sizes, **surrogate._asdict()),
    )


# ---- new runs -----------------------------------------------------------------------------------


class Scratch(NamedTuple):
    """Where an inner chain moves."""

    u: floats("d")
    v: floats("d")
    w: floats("d")
    distances: floats("m")


@cache
def compiled_runs():
    """Return the compiled function that runs inner chains."""

    def new_runs(parameters, scratch, start, ends, rng):
        """Run the inner chain from x (n, d), and write where it ends, (n, runs, d)."""
        surrogate, u, d = parameters.surrogate, scratch.u, start.shape[1]
        for i in range(start.shape[0]):
            for j in range(d):
                u[j] = start[i, j] - parameters.mean[j]
            solve_lower(parameters.factor, u, u)
            log_s = log_surrogate(surrogate, u, scratch.distances)
            for k in range(ends.shape[1]):
                copy(u, scratch.v)
                inner_chain(parameters, scratch, log_s, 1.0, rng)
                multiply_lower(parameters.factor, scratch.v, ends[i, k])
                for j in range(d):
                    ends[i, k, j] += parameters.mean[j]

    sizes = {"d": 1, "m": 1}
    parameters, scratch = allocate(Parameters, sizes), allocate(Scratch, sizes)
    arguments = parameters, scratch, np.zeros((1, 1)), np.zeros((1, 1, 1))
    with say_if_compiling("new runs of the inner chain"):
        return specialise(
            cached_jit(new_runs, (inner_chain,)), *arguments, np.random.default_rng(0)
        )


def new_ends(parameters, start, n_runs, rng):
    """Return the ends (n, n_runs, d) of new inner chains from x (n, d)."""
    n, d = start.shape
    scratch = allocate(Scratch, {"d": d, "m": parameters.surrogate.weights.size})
    ends = np.empty((n, n_runs, d))
    compiled_runs()(parameters, scratch, np.ascontiguousarray(start), ends, rng)
    return ends


# ---- draws of s ---------------------------------------------------------------------------------


LONG, PER_COORDINATE = 10, 20
"""Steps of an inner chain from a draw of the posterior to one of the surrogate: so many times M,
and so many times d, at least."""


def draws_of_surrogate(parameters, start, n):
    """Return draws (n, d) of s, the ends of long inner chains from draws `start` (m, d) of π.

    Their randomness is that of the start, so that the same draws give the same ones.
    """
    d, n_inner = start.shape[1], parameters.n_inner[0]
    seed = np.frombuffer(sha256(np.ascontiguousarray(start)).digest(), np.uint32)
    rng, x = np.random.default_rng(seed), start[np.arange(n) * len(start) // n]
    for _ in range(max(LONG, ceil(PER_COORDINATE * d / n_inner))):
        x = new_ends(parameters, x, 1, rng)[:, 0]
    return x


# ---- how close s is -----------------------------------------------------------------------------


PERFECT = 1e-3
"""Standard deviation of log w up to which there is no tail to speak of."""


class Certificate(NamedTuple):
    """How close the surrogate is to the posterior at the ends of its moves, by w = π/s.

    Attributes
    ----------
    ess_share : float
        (Σw)²/(nΣw²), of n moves: 1 if s is the posterior.
    pareto_k : float
        Shape of the tail of w, by Pareto-smoothed importance sampling; NaN if all are equal.
    sd_log_w : float
        Standard deviation of log w, where it is finite.
    accept_prob : float
        Mean of α.
    """

    ess_share: float
    pareto_k: float
    sd_log_w: float
    accept_prob: float

    def in_words(self):
        """Say all of it."""
        return (
            f"effective share of the weights π/s {self.ess_share:.2f}, their Pareto k "
            f"{self.pareto_k:.2f}, sd of log(π/s) {self.sd_log_w:.2f}, mean acceptance "
            f"{self.accept_prob:.2f}"
        )


def certificate(moves):
    """Return how close s is to π, a Certificate, of one move at least."""
    log_w = np.empty(len(moves.row))
    for row, log_s in enumerate(moves.log_s):
        own = moves.row == row
        log_w[own] = moves.end_logp[own] - log_s(moves.end[own])
    finite = np.isfinite(log_w)
    if not finite.any():
        return Certificate(0.0, np.nan, np.nan, float(moves.accept_prob.mean()))
    w = np.exp(log_w - log_w[finite].max())
    k = array_stats.psislw(log_w[finite])[1] if log_w[finite].std() > PERFECT else np.nan
    return Certificate(
        float(w.sum() ** 2 / (len(w) * np.square(w).sum())),
        float(k),
        float(log_w[finite].std()),
        float(moves.accept_prob.mean()),
    )
