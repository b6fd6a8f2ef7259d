"""Averages over draws, corrected by where chains on the emulated posterior have stopped.

docs/estimates_methods.md tells why it is exact. Symbols: as in surrogate_correction.py, but the new
runs are the stops of the inner chain from x, of which v is one, drawn beforehand. g is f, or the
mean of f over the draws where f is not finite. g* is that mean far from all that chains have seen,
where the emulator is often wrong and moves are rare and rejected; else it is g:

    X = mean over moves of (1 − α)(g(x) − g(v)) + g(v) − g*(v) + mean of g* over the stops
    T = (1 − b) A + b X
"""

import numpy as np

from pymc_kameleon.analysis.batches import (
    LEAST_BATCHES,
    batches_of,
    coefficients,
    combined,
    means_over_moves,
    parts,
    widened_range,
)
from pymc_kameleon.analysis.corrections import Moves, NotCorrected, correction_by
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.step.groups import EMULATOR_MOVES

FAR = 6.5
"""A stop is far off if a coordinate is so many standard deviations from the middle of where moves
have begun, as their range tells these: that of n normal draws has √(2 log n) on each side, about.
"""

LEAST_MOVES = LEAST_BATCHES
"""Moves of each chain, at least. With two of 128 stops each, averages were worth 1.0 to 2.7 times
the draws (200 runs of four chains, three emulators). Errors of means hold: rms z is 0.9 to 1.4."""


def by_emulator(result):
    """Return the Correction by moves of EmulatorMetropolis.

    It counts though the draws' own error may be said to be smaller, as it is without a tail.
    """
    if result.group != EMULATOR_MOVES:
        raise NotCorrected("")
    moves, chains = moves_of(result.kept), result.kept.sizes["chain"]
    return correction_by(
        moves, chains, LEAST_MOVES, lambda values, function: corrected(values, moves, function)
    )


def moves_of(kept):
    """Return the Moves of a dataset of a result, of those whose stops were kept."""
    start, end, stops, accept_prob, logp, log_s = (
        kept[name].transpose("chain", "draw", ...).values
        for name in ("start", "end", "others", "accept_prob", "end_logp", "end_log_s")
    )
    at = row, draw = np.nonzero(~np.isnan(log_s) & np.isfinite(stops).all(axis=(2, 3)))
    log_w = logp[at] - log_s[at]
    return Moves(row, draw, start[at], end[at], log_w, accept_prob[at], stops=stops[at])


def corrected(f, moves, function):
    """Return Corrected averages of f (chains, draws, q); `function` gives f (n, q) at points."""
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
    n = batches.n_moves.sum(axis=1)[:, None]
    # The variance of T by rare moves, to stops beyond all draws, all rejected.
    least = np.sum(np.square(b / (len(b) * n)) * beyond, axis=0)
    return combined(batches.a, x, b, batches.lengths, least, 0.0)


def _are_far(points, seen):
    """Whether points (..., d) are far from all that was seen, (n, d)."""
    low, high = seen.min(axis=0), seen.max(axis=0)
    sd = (high - low) / 2 / np.sqrt(2 * np.log(len(seen)))
    return (np.abs(points - (low + high) / 2) > FAR * sd).any(axis=-1)
