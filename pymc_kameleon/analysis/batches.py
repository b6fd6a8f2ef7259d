"""The best weight of a control variate, from means over batches of each chain; and R-hat.

Source and symbols: as in surrogate_correction.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.analysis.limits_of_r_hat import LEAST_ESS

LEAST_BATCHES, MOST_BATCHES = 2, 10
"""Batches of each chain. In the one with the fewest moves a batch has two, too, on average."""

RANGE_FACTOR = 1.3
"""What is outside the range of f over the draws, times this, is beyond all that is known."""

LEAST_DRAWS = LEAST_ESS
"""Draws, at least, from which tails or an evidence are learned; of each chain, from which the
coefficients of controls are, and R-hat and ESS are looked at. Fewer are not worth as many."""

ROUNDING = 1e-12
"""What rounding makes of values that are equal, at most, as a share of their mean."""


class Batches(NamedTuple):
    """Batches of the draws of each chain, and which of them moves are in."""

    a: np.ndarray  # (chains, batches, q), means of functions over them
    lengths: np.ndarray  # (batches,), draws
    of_moves: np.ndarray  # (n,), the batch of each move
    n_moves: np.ndarray  # (chains, batches)


class Corrected(NamedTuple):
    """Corrected averages of q functions, (q,) each."""

    mean: np.ndarray  # T
    mcse: np.ndarray  # its standard error
    gain: np.ndarray  # variance of A over that of T, both as estimated here
    is_better: np.ndarray  # whether any b is above 0, and the error is known; if not, A is as good
    halves: np.ndarray  # (2 · chains, q), T of the first halves of all chains, and of the second
    by: np.ndarray = ""  # which correction it is by, as rows of a summary are called
    sd: np.ndarray = np.nan  # the standard deviation of f where an average is approximate

    @property
    def is_approximate(self):
        """Whether no chain tells how good an average is."""
        return ~np.isnan(self.sd)


def coefficients(a, x, common):
    """Return b (chains, q), a chain's from the means (chains, batches, q) over others' batches."""
    b, n = np.empty((len(a), a.shape[2])), a[..., 0].size
    for row in range(len(a)):
        one, difference = (
            np.delete(part, row, axis=0).reshape(-1, a.shape[2]) for part in (a, a - x)
        )
        difference = difference - difference.mean(axis=0)
        variance = np.square(difference).sum(axis=0) + n * (len(one) - 1) * common
        covariance = (one * difference).sum(axis=0)
        b[row] = np.clip(covariance / np.where(variance > 0, variance, np.inf), 0, 1)
    return b


def batches_of(f, moves):
    """Return Batches of functions f (chains, draws, q), as many as there are moves for."""
    n_batches = np.bincount(moves.row).min() // LEAST_BATCHES
    n_batches = min(max(n_batches, LEAST_BATCHES), MOST_BATCHES, f.shape[1])
    batches = np.arange(f.shape[1]) * n_batches // f.shape[1]
    a, of_moves = batch_means(f, batches), batches[moves.draw]
    n_moves = np.zeros(a.shape[:2])
    np.add.at(n_moves, (moves.row, of_moves), 1.0)
    return Batches(a, np.bincount(batches), of_moves, n_moves)


def widened_range(f):
    """Return the range (q,) of f (chains, draws, q) over the draws, widened."""
    low, high = f.min(axis=(0, 1)), f.max(axis=(0, 1))
    middle, half = (low + high) / 2, RANGE_FACTOR * (high - low) / 2
    return middle - half, middle + half


def means_over_moves(sums, batches):
    """Return batch means of what there is of moves only, which a batch may have none of."""
    n_moves, lengths = batches.n_moves, batches.lengths
    n = n_moves.sum(axis=1)[:, None, None]
    mean = sums.sum(axis=1, keepdims=True) / n
    share = (lengths / lengths.sum())[:, None]
    return mean + (sums - n_moves[:, :, None] * mean) / n / share


def parts(moves, size):
    """Yield chains, and up to so many of their moves at a time."""
    for row in range(moves.row.max() + 1):
        own = np.flatnonzero(moves.row == row)
        for start in range(0, len(own), size):
            yield row, own[start : start + size]


def batch_means(f, batches):
    """Return the means of f (chains, draws, q) over batches, (chains, batches, q)."""
    starts = np.flatnonzero(np.diff(batches, prepend=-1))
    return np.add.reduceat(f, starts, axis=1) / np.bincount(batches)[:, None]


def combined(a, x, b, lengths, least, common, unseen=0.0, beyond=0.0):
    """Return T of batch means of A and X (chains, batches, q).

    Its variance is at least `least` (q,), by rare moves. Batches do not show the variance `common`,
    nor `unseen`, by which T may be wrong, and `beyond`, which it lacks, up to the standard error of
    A.
    """
    mixed = (1 - b)[:, None] * a + b[:, None] * x
    chains = np.average(mixed, axis=1, weights=lengths)
    before = variance_of_mean(a, lengths)
    shown = np.maximum(variance_of_mean(mixed, lengths), least)
    variance = shown + common + np.minimum(unseen**2, before)
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = before / variance
    mean = chains.mean(axis=0) + np.clip(beyond, -np.sqrt(before), np.sqrt(before))
    mcse, halves = np.sqrt(variance), np.array_split(np.arange(len(lengths)), [len(lengths) // 2])
    halves = [np.average(mixed[:, own], axis=1, weights=lengths[own]) for own in halves]
    is_better = (b > 0).any(axis=0) & (mcse > ROUNDING * np.abs(mean))
    return Corrected(mean, mcse, gain, is_better, np.concatenate(halves))


def r_hat(halves, f):
    """Return R-hat, by averages over halves of chains, of functions f (chains, draws, ...)."""
    with np.errstate(divide="ignore", invalid="ignore"):  # of what does not vary
        within = f.var(axis=1, ddof=1).mean(axis=0)
        return np.sqrt(1 + halves.var(axis=0, ddof=1) / within)


def variance_of_mean(batches, lengths):
    """Return the variance (q,) of the mean: by means of batches or of chains, the larger one."""
    chains = np.average(batches, axis=1, weights=lengths)
    n = batches.shape[0] * batches.shape[1]
    within = batches.reshape(n, -1).var(axis=0, ddof=1) / n
    return np.maximum(within, chains.var(axis=0, ddof=1) / len(chains))
