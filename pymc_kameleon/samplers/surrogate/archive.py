"""The points that a surrogate is fitted to, and which of them count.

Symbols: as in learning.py.
"""

import numpy as np

from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.core.conventions import FEW

SPARSE_DISTANCE = 3.0
"""Times d: squared distance |u|² from which on points are preferred, as they are few."""


def best_warm_start(chains):
    """Return the chain whose way led to where most mass is; one that arrived, if any did."""
    return max(chains, key=lambda chain: (chain.tuning.has_arrived[0], chain.tuning.mass[0]))


def points_of(chains):
    """Return all points (n, d) that were evaluated, each once, f there, and which were moves."""
    rows, moves = [chains[0].tuning.known], []
    for chain in chains:
        tuning, d = chain.tuning, chain.state.x.size
        rows.append(tuning.home[: tuning.n_home[0]])
        moves.append(tuning.moves.points[: tuning.moves.counts[0], d : 2 * d + 1])
    is_move = np.repeat([False, True], [sum(map(len, rows)), sum(map(len, moves))])
    rows = np.concatenate([*rows, *moves])
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])  # as they came, whatever bits
    first = first[np.isfinite(rows[first, -1])]
    return rows[first, :-1], rows[first, -1], is_move[first]


def level(chains, moves):
    """Return the median of f over the states that the moves led to, about."""
    f = np.concatenate([[chain.state.logp[0] for chain in chains], moves[2]])
    weights = np.concatenate([np.ones(len(chains)), moves[3]])
    order = np.argsort(f, kind="stable")
    total = np.cumsum(weights[order])
    return f[order[np.searchsorted(total, total[-1] / 2)]]


def worth_fitting(u, f, most, rng):
    """Return rows of the points that a surrogate is fitted to, in random order."""
    d, drops = u.shape[1], np.maximum(-f, 0)
    rows = np.flatnonzero(drops < drop(d, NEGLIGIBLE))
    if len(rows) == 0:
        return rows
    far = np.maximum(np.sum(u[rows] ** 2, axis=1) / (SPARSE_DISTANCE * d), 1)
    weights = (np.exp(-drops[rows] / 4) + 0.02) * far**2
    return rng.choice(rows, min(most, len(rows)), replace=False, p=weights / weights.sum())


def scored(is_move):
    """Return the points whose errors count: those of moves, if there are enough of them.

    Others, in lines and close together, are easy to predict.
    """
    return is_move if np.count_nonzero(is_move) >= FEW else np.ones(len(is_move), bool)
