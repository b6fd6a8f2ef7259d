"""Averages over draws, corrected by where chains on the emulated posterior have stopped.

Source, for the coefficient b, and symbols: as in surrogate_correction.py. But the new runs are the
stops of the inner chain from x, which EmulatorMetropolis has kept; v is one of them, drawn
beforehand. g is f, or the mean of f over the draws where f is not finite, as it may be where no
draw comes. Far from all that the chains have seen the emulator is often wrong, and moves to there
are rare and rejected. So g* is that mean there, too, and else g:

    X = mean over moves of (1 − α)(g(x) − g(v)) + g(v) − g*(v) + mean of g* over the stops
    T = (1 − b) A + b X

As the moves are reversible with respect to π, E α(g(v) − g(x)) = 0, and given x the mean of g* over
the stops is the expectation of g*(v), as v may be each of them. So E X = E g, whatever the emulator
is, and whatever g* is. Nothing of the emulator is evaluated.

b is near 0 where X is of no use. So T stands even if it is said to be no better than A, which says
so of itself when its few draws lack a tail: then both A and its error are too small.
"""

import numpy as np

from pymc_kameleon.analysis.batches import (
    NUMBERS_PER_PART,
    batches_of,
    coefficients,
    combined,
    means_over_moves,
    parts,
    widened_range,
)

FAR = 1.75
"""A stop is far off if a coordinate is outside the range where moves have begun, times this."""


def corrected(f, moves, function):
    """Average functions over the posterior.

    Parameters
    ----------
    f : (chains, draws, q) float64
        The functions at the draws, finite.
    moves : EmulatorMoves
        Some of each of the chains, of which there are at least two.
    function : callable
        Points (n, d) -> what the functions are there, (n, q).

    Returns
    -------
    Corrected
    """
    batches, centre = batches_of(f, moves), f.mean(axis=(0, 1))
    (chains, _, q), n_stops = batches.a.shape, moves.stops.shape[1]
    low, high = widened_range(f)
    sums, beyond = np.zeros(batches.a.shape), np.zeros((chains, q))
    for row, part in parts(moves, max(1, NUMBERS_PER_PART // (q * n_stops))):
        points = np.stack([moves.start[part], moves.end[part], *moves.stops[part].swapaxes(0, 1)])
        values = function(points.reshape(-1, points.shape[2])).reshape(*points.shape[:2], q)
        values = np.where(np.isfinite(values), values, centre)
        start, end = values[:2]
        tamed = np.where(_are_far(points[1:], moves.start)[..., None], centre, values[1:])
        known = (1 - moves.accept_prob[part])[:, None] * (start - end) + end - tamed[0]
        k = tamed[1:]
        np.add.at(sums[row], batches.of_moves[part], known + k.mean(axis=0))
        is_beyond = (k < low) | (k > high)
        beyond[row] += np.square((k - centre) * is_beyond).mean(axis=0).sum(axis=0)
    x = means_over_moves(sums, batches)
    b = coefficients(batches.a, x, 0.0)
    least = _rejections(b, beyond, batches.n_moves.sum(axis=1)[:, None])
    return combined(batches.a, x, b, batches.lengths, least, 0.0)


def _are_far(points, seen):
    """Whether points (..., d) are far from all that was seen, (n, d)."""
    low, high = seen.min(axis=0), seen.max(axis=0)
    return (np.abs(points - (low + high) / 2) > FAR * (high - low) / 2).any(axis=-1)


def _rejections(b, beyond, n):
    """Return the variance of T (q,) by rare moves to beyond all draws, all rejected.

    There are several times as many stops as there are moves. So these may have been where no move
    has been, and batches do not show what the one that is lacking would have made.
    """
    return np.sum(np.square(b / (len(b) * n)) * beyond, axis=0)
