"""Averages over draws, corrected by what the surrogate of SurrogateMetropolis knows.

Source, for the coefficient b: Dellaportas & Kontoyiannis, "Control variates for estimation based on
reversible Markov chain Monte Carlo samplers", Journal of the Royal Statistical Society B 74 (2012),
133-161.

Symbols: f a function of the state, g the same but clipped; x, v and α the start, the end and the
acceptance probability of a move by the surrogate, k the mean of g over new runs of the inner chain
from x. A is the mean of f over the draws, and X another average with the same expectation:

    X = mean over moves of (1 − α)(g(x) − g(v)) + k
    T = (1 − b) A + b X

As the moves are reversible with respect to π, E α(g(v) − g(x)) = 0, and as v and the new runs have
the same distribution given x, E k = E g(v). So E X = E g, whatever the surrogate is; and g is f at
all draws, and as far beyond them as it is not clipped.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.samplers.surrogate_moves import new_ends

MOST_BATCHES, PER_BATCH = 10, 2
"""Batches of each chain, for b and for standard errors, and moves of a batch on average, at least
in the chain that has the fewest."""

WIDENED = 1.3
"""g is f, clipped to the range that it has over the draws, times this."""

RUNS, NEGLIGIBLE, MOST_RUNS = 30_000, 0.1, 240_000
"""New inner runs, about, of all moves together, two of each at least. They are doubled while their
randomness has more than this share of a variance, up to so many."""

MOST_WORK = 6e9
"""Coordinates of differences to centres that are computed for new runs, which takes seconds."""

MOST_NUMBERS = 2**21
"""Values of functions that are computed at a time."""

SEED = 21
"""Of the new runs, so that the same result gives the same averages."""


class Corrected(NamedTuple):
    """Corrected averages of q functions.

    Attributes
    ----------
    mean, mcse : (q,) float64
        T and its standard error.
    gain : (q,) float64
        Variance of A over that of T, both as estimated here.
    is_better : (q,) bool
        Whether any b is above 0, and the standard error is known. If not, A is as good.
    disagreement : (q,) float64
        Variance of T between chains over that within them; about 1 if all is well.
    """

    mean: np.ndarray
    mcse: np.ndarray
    gain: np.ndarray
    is_better: np.ndarray
    disagreement: np.ndarray


def corrected(f, moves, function, n_decisive=None):
    """Average functions over the posterior.

    Parameters
    ----------
    f : (chains, draws, q) float64
        The functions at the draws, finite.
    moves : Moves
        Some of each of the chains, of which there are at least two.
    function : callable
        Points (n, d) -> what the functions are there, (n, q).
    n_decisive : int, optional
        So many of the functions, the first ones, decide on the number of new runs; by default all.

    Returns
    -------
    Corrected
    """
    low, high = _range(f)

    def g(x):
        values = function(x)
        return np.clip(np.where(np.isnan(values), low, values), low, high)

    n_batches = min(MOST_BATCHES, np.bincount(moves.row).min() // PER_BATCH)
    batches = np.arange(f.shape[1]) * n_batches // f.shape[1]
    a = _batch_means(f, batches)
    batches_of_moves = batches[moves.draw]
    known = _known(moves, batches_of_moves, g, a.shape)
    n_moves = np.zeros(a.shape[:2])
    np.add.at(n_moves, (moves.row, batches_of_moves), 1.0)
    lengths = np.bincount(batches)
    most = min(MOST_RUNS, MOST_WORK / _work(moves))
    rng, n_runs = np.random.default_rng(SEED), max(2, int(min(RUNS, most) / len(moves.row)))
    k, noise = _new_runs(moves, batches_of_moves, g, a.shape, n_runs, rng)
    while True:
        x = _means_over_moves(known + k, n_moves, lengths)
        b = coefficients(a, x)
        found = _combined(a, x, b, lengths)
        own_noise = np.mean(np.square(b / n_moves.sum(axis=1)[:, None]) * noise, axis=0) / len(b)
        noisy = own_noise > NEGLIGIBLE * np.square(found.mcse)
        if 2 * n_runs * len(moves.row) > most or not noisy[:n_decisive].any():
            return found
        more, more_noise = _new_runs(moves, batches_of_moves, g, a.shape, n_runs, rng)
        k, noise, n_runs = (k + more) / 2, (noise + more_noise) / 4, 2 * n_runs


def coefficients(a, x):
    """Return b (chains, q) of batch means (chains, batches, q), a chain's from all others'."""
    b = np.empty((len(a), a.shape[2]))
    for row in range(len(a)):
        one, difference = (
            np.delete(part, row, axis=0).reshape(-1, a.shape[2]) for part in (a, a - x)
        )
        difference = difference - difference.mean(axis=0)
        variance = np.square(difference).sum(axis=0)
        covariance = (one * difference).sum(axis=0)
        b[row] = np.clip(covariance / np.where(variance > 0, variance, np.inf), 0, 1)
    return b


def _work(moves):
    """Return what one of the new runs takes."""
    own = moves.parameters[0]
    return own.n_inner[0] * own.mean.size * max(own.surrogate.n[0], 10)


def _range(f):
    """Return the range of f (chains, draws, q) over the draws, widened."""
    low, high = f.min(axis=(0, 1)), f.max(axis=(0, 1))
    middle, half = (low + high) / 2, WIDENED * (high - low) / 2
    return middle - half, middle + half


# ---- sums over batches --------------------------------------------------------------------------


def _batch_means(f, batches):
    """Return the means of f (chains, draws, q) over batches, (chains, batches, q)."""
    starts = np.flatnonzero(np.diff(batches, prepend=-1))
    return np.add.reduceat(f, starts, axis=1) / np.bincount(batches)[:, None]


def _means_over_moves(sums, n_moves, lengths):
    """Return batch means of what there is of moves only, which a batch may have none of.

    Weighted with the batches' lengths they give the mean over a chain's moves.
    """
    n = n_moves.sum(axis=1)[:, None, None]
    mean = sums.sum(axis=1, keepdims=True) / n
    share = (lengths / lengths.sum())[:, None]
    return mean + (sums - n_moves[:, :, None] * mean) / n / share


def _parts(moves, size):
    """Yield chains, and up to so many of their moves at a time."""
    for row in range(len(moves.parameters)):
        own = np.flatnonzero(moves.row == row)
        for start in range(0, len(own), size):
            yield row, own[start : start + size]


def _known(moves, batches, g, shape):
    """Return sums over batches of (1 − α)(g(x) − g(v))."""
    sums = np.zeros(shape)
    for row, part in _parts(moves, max(1, MOST_NUMBERS // shape[2])):
        rejected = (1 - moves.accept_prob[part])[:, None]
        np.add.at(sums[row], batches[part], rejected * (g(moves.start[part]) - g(moves.end[part])))
    return sums


def _new_runs(moves, batches, g, shape, n_runs, rng):
    """Return sums over batches of k, and the variance of its sums that the new runs have made."""
    sums, noise = np.zeros(shape), np.zeros((shape[0], shape[2]))
    for row, part in _parts(moves, max(1, MOST_NUMBERS // (shape[2] * n_runs))):
        ends = new_ends(moves.parameters[row], moves.start[part], n_runs, rng)
        values = g(ends.reshape(-1, ends.shape[2])).reshape(*ends.shape[:2], -1)
        np.add.at(sums[row], batches[part], values.mean(axis=1))
        noise[row] += values.var(axis=1, ddof=1).sum(axis=0) / n_runs
    return sums, noise


# ---- the average --------------------------------------------------------------------------------


def _combined(a, x, b, lengths):
    """Return T of batch means of A and X (chains, batches, q)."""
    mixed = (1 - b)[:, None] * a + b[:, None] * x
    chains = np.average(mixed, axis=1, weights=lengths)
    within, between = _variances(mixed, chains)
    variance = np.maximum(within, between)
    before = np.maximum(*_variances(a, np.average(a, axis=1, weights=lengths)))
    with np.errstate(divide="ignore", invalid="ignore"):
        gain, disagreement = before / variance, between / within
    is_better = (b > 0).any(axis=0) & (variance > 0)
    return Corrected(chains.mean(axis=0), np.sqrt(variance), gain, is_better, disagreement)


def _variances(batches, chains):
    """Return the variances of the mean by batch means and by chains' means, each (q,)."""
    n = batches.shape[0] * batches.shape[1]
    within = batches.reshape(n, -1).var(axis=0, ddof=1) / n
    return within, chains.var(axis=0, ddof=1) / len(chains)
