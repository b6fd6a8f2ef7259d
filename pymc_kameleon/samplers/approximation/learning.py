"""How an ApproximationMetropolis learns: s, the chain on it, shares of moves; in Python, tuning.

Symbols: as in metropolis.py; Δ how far a log-density is below the best, but for what is usual; w =
π/s at the ends of moves.
"""

import numpy as np

from pymc_kameleon.approximation.chain import (
    LAST_LENGTHS,
    MEMORY_OF_SHAPE,
    NEXT_LENGTHS,
    learn_chain,
)
from pymc_kameleon.approximation.linalg import linear_algebra
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.samplers.approximation.fit import Evaluated
from pymc_kameleon.samplers.approximation.moves import (
    LEAST_SHARE,
    moments,
    newest,
    remembered,
    shares_of,
)

USUAL_DROP = 2, 5
"""Times d, and plus: so far below the best a draw of the posterior may be."""

N_TAIL, TAIL_FACTORS, TAIL_DROP = 64, (1.2, 2.0), 12.0
"""Points in tails that are thought of; how far from the mean they are, relative to draws; how far
log s may be below its median there."""


# ---- evaluations --------------------------------------------------------------------------------


def evaluations_of(chains, since_fit=False):
    """Return the Evaluated of chains, or those since the last fit."""
    parts, d = [], chains[0].state.x.size
    for chain in chains:
        rows, n_learned = remembered(chain.tuning), chain.tuning.n_learned[0] * since_fit
        n = min(chain.tuning.n_evaluated[0] - n_learned, len(rows))
        parts.append(rows[len(rows) - n :])
    rows = np.concatenate(parts)
    return Evaluated(rows[:, :d], rows[:, d], rows[:, d + 1], rows[:, d + 2 :])


def note(step, z, logp, outputs):
    """Add an evaluation at z (d,), which has left some outputs, to those that a step has made."""
    tuning = step.tuning
    row = np.concatenate([z, [logp, np.nan], step.fit.noted(step, z, outputs)])
    tuning.evaluated[tuning.n_evaluated[0] % len(tuning.evaluated)] = row
    tuning.n_evaluated[0] += 1


def best_of(step):
    """Return the best point that a step has evaluated, with finite numbers, and log π there."""
    known = evaluations_of([step])
    usable = np.isfinite(known.logp) & np.isfinite(known.noted).all(axis=1)
    best = np.argmax(np.where(usable, known.logp, -np.inf))
    return known.z[best], known.logp[best]


def drops(logp, d):
    """Return Δ of log-densities (n,), infinite where they are not finite."""
    logp = np.where(np.isfinite(logp), logp, -np.inf)
    return np.maximum(0, logp.max() - logp - USUAL_DROP[0] * d - USUAL_DROP[1])


# ---- s ------------------------------------------------------------------------------------------


def refit(chains, n=0):
    """Fit s to all that chains have evaluated, or to so many, the newest."""
    known, new = evaluations_of(chains)[-n:], evaluations_of(chains, since_fit=True)
    if np.isfinite(known.logp).any():
        chains[0].fit.fit(chains, known, new)
    for chain in chains:
        chain.tuning.n_learned[0] = chain.tuning.n_evaluated[0]


def learn_s(chains, rng, lengths=NEXT_LENGTHS, memory=MEMORY_OF_SHAPE, modes=()):
    """Fit s to what all chains have evaluated; learn its shape, and its end; return draws of s.

    Chains on s begin at `modes` (k, d), or at the states.
    """
    first = chains[0]
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        refit(chains)
        density = first.fit.density(first, rng)
        known = evaluations_of(chains)
        starts = modes if len(modes) else np.array([chain.state.x for chain in chains])
        if memory == 0:
            log_s, _ = density.values(starts)
            density.chain.mean[:] = starts[np.argmax(log_s > -np.inf)]  # of several modes, in one
        draws = learn_chain(density, starts, lengths, memory, rng)
        first.fit.bound(first, density, known)
    for chain in chains[1:]:
        copy_arrays(first.parameters, chain.parameters, ("s",))
        copy_arrays(first.tuning, chain.tuning, ("choices",))
    return draws


# ---- the moves ----------------------------------------------------------------------------------


def learn_from(chains, rng):
    """Let chains learn what all have evaluated, and how often to make each kind of move."""
    first = chains[0]
    is_last = first.monitor.done >= first.monitor.tune - 1
    new = evaluations_of(chains, since_fit=True)
    log_w = (new.logp - new.log_s)[~np.isnan(new.log_s)]
    if len(log_w) > 0:
        first.fit.judge(first.tuning.choices, log_w)
    draws = learn_s(chains, rng, LAST_LENGTHS if is_last else NEXT_LENGTHS)
    settle_moves(chains)
    for chain in chains:
        chain.tuning.worth[:] /= 2
        chain.parameters.n_others[0] = len(chain.state.others) if is_last else 0
        chain.parameters.n_looks[0] = 0
    if not is_last:
        look_into_tails(chains, draws, rng)


def settle_moves(chains):
    """Let walks and reference moves go by the shape of s, and of moves; settle all shares."""
    s, worth = chains[0].parameters.s, sum(chain.tuning.worth for chain in chains)
    mean, factor = moments(s.mean, s.factor, newest(chains))
    for chain in chains:
        parameters = chain.parameters
        parameters.mean[:], parameters.factor[:] = mean, factor
        least = np.full(len(worth), LEAST_SHARE)
        parameters.shares[:] = shares_of(worth, least)


def look_into_tails(chains, draws, rng):
    """Let each chain evaluate a point in a tail next, and stay where it is.

    Where s is too low a chain would be stuck later. The points are draws of s, moved away from its
    mean.
    """
    first = chains[0]
    density, mean = first.fit.density(first, rng), first.parameters.s.mean
    some = density.nearest_image(draws[rng.integers(len(draws), size=N_TAIL)])
    z = mean + rng.uniform(*TAIL_FACTORS, (N_TAIL, 1)) * (some - mean)
    (log_s, _), (usual, _) = density.values(z), density.values(some)
    likely = z[log_s > np.median(usual) - TAIL_DROP]
    for chain, point in zip(chains, likely, strict=False):
        chain.parameters.n_looks[0], chain.parameters.look[:] = 1, point
