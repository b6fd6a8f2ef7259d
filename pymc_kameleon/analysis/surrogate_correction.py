"""Averages over draws, corrected by what the surrogate of SurrogateMetropolis knows.

docs/estimates_methods.md tells why it is exact. Symbols: f a function of the state, g the same but
clipped; x, v and α the start, the end and the acceptance probability of a move by the surrogate; A
the mean of f over the draws. X has the same expectation as A:

    X = mean over moves of (1 − α)(g(x) − g(v)) + g(v) − g*(v) + k*
    T = (1 − b) A + b X

g* is g, but a constant c where s is as low as it may be, as nothing is known there, and moves are
seldom made, and rejected. k* is the mean of g* over new runs of the inner chain from x, by partners
that begin at draws of s, use the same random numbers, and end at v′:

    k* = E_s g* + mean over new runs of g*(v) − g*(v′)

E_s (f − g) is added for what is clipped, where s knows anything, up to the standard error of A.

Source, for b: Dellaportas & Kontoyiannis, "Control variates for estimation based on reversible
Markov chain Monte Carlo samplers", Journal of the Royal Statistical Society B 74 (2012), 133-161.
"""

import numpy as np

from pymc_kameleon.analysis.batches import (
    batches_of,
    coefficients,
    combined,
    means_over_moves,
    parts,
    widened_range,
)
from pymc_kameleon.analysis.corrections import Moves, NotCorrected, correction_by
from pymc_kameleon.core.conventions import NUMBERS_PER_PART
from pymc_kameleon.result.superchains import size_of_superchains
from pymc_kameleon.samplers.surrogate.moves import (
    SETS,
    Spread,
    ends_of_pairs,
    generator_of,
    log_s,
    parameters_of,
    same_surrogates,
)
from pymc_kameleon.step.groups import SURROGATE_MOVES

POINTS, RUNS = 8192, 2000
"""Points of each set for E_s g; and new runs of all moves together, but one of each at least."""

FEW_POINTS, MOST_DOUBT = 128, 4.0
"""Points of each set that tell a little of s, as its doubts; and the largest doubt that counts."""

LEAST_MOVES = 8
"""Moves of each chain, at least. With two to six, errors of a probability were 1.6 to 3.7 times too
small (150 runs of four chains on a normal), and with eight 1.1 times."""


def by_surrogate(result):
    """Return the Correction by moves of SurrogateMetropolis."""
    if result.group != SURROGATE_MOVES:
        raise NotCorrected("")
    size = size_of_superchains(result.posterior)
    moves = moves_of(result.kept, result.learned, size)
    chains = len(moves.parameters)

    def batches(values, function):
        joined = values.reshape(chains, -1, values.shape[2])
        found = corrected(joined, moves, function)
        return found._replace(is_better=found.is_better & (found.gain > 1))

    return correction_by(moves, chains, LEAST_MOVES, batches)


def moves_of(kept, learned, size=1):
    """Return the Moves of datasets of a result: what it has kept of moves, and what was learned.

    So many neighbouring chains count as one, if they do not differ in s.
    """
    accept_prob, logp, start, end = (
        kept[name].transpose("chain", "draw", ...).values
        for name in ("accept_prob", "end_logp", "start", "end")
    )
    (chains, draws), (row, draw) = accept_prob.shape, np.nonzero(~np.isnan(accept_prob))
    at = row, draw
    chosen = kept["chain"].values if len(row) else ()
    parameters = [parameters_of(learned.sel(chain=chain)) for chain in chosen]
    if all(len(same_surrogates(parameters[k : k + size])) == 1 for k in range(0, chains, size)):
        row, draw = row // size, row % size * draws + draw
        parameters = parameters[::size]
    log_w = np.empty(len(row))
    for k in np.unique(row):
        own = row == k
        log_w[own] = logp[at][own] - log_s(parameters[k], end[at][own])
    return Moves(row, draw, start[at], end[at], log_w, accept_prob[at], parameters)


def corrected(f, moves, function):
    """Return Corrected averages of f (chains, draws, q); `function` gives f (n, q) at points."""
    low, high = widened_range(f)

    def clipped(x):
        """Return g, and what it lacks of f."""
        values = function(x)
        values = np.where(np.isnan(values), low, values)
        g = np.clip(values, low, high)
        return g, values - g

    batches, centre, rng = batches_of(f, moves), f.mean(axis=(0, 1)), generator_of(moves.end)
    same = same_surrogates(moves.parameters)
    n_runs = max(1, RUNS // len(moves.row))
    each = [_Known(rows, moves, batches, clipped, centre, n_runs, rng) for rows in same]
    x = np.zeros(batches.a.shape)
    tamed = {row: one.tamed for one in each for row in one.rows}
    for row, part in parts(moves, max(1, NUMBERS_PER_PART // f.shape[2])):
        rejected = (1 - moves.accept_prob[part])[:, None]
        (start, _), (end, _) = clipped(moves.start[part]), clipped(moves.end[part])
        change = end - tamed[row](moves.end[part])[0]
        np.add.at(x[row], batches.of_moves[part], rejected * (start - end) + change)

    def total(name, b, power=1):
        """Return the sum of what all s have of this, by their shares in T, which has b."""
        return sum((b[one.rows].sum(axis=0) / len(b)) ** power * getattr(one, name) for one in each)

    for one in each:
        x[one.rows] += one.sums / n_runs + batches.n_moves[one.rows][:, :, None] * one.mean
    x = means_over_moves(x, batches)
    b = coefficients(batches.a, x, total("variance", np.ones(x[:, 0].shape), 2))
    least = sum(one.rejected(b) for one in each) / len(b) ** 2
    unseen, beyond = total("unseen", b), total("beyond", b)
    common = total("variance", b, 2)
    return combined(batches.a, x, b, batches.lengths, least, common, unseen, beyond)


class _Known:
    """The means k* of g* of the chains `rows`, which have the same s: by points of it, and runs."""

    def __init__(self, rows, moves, batches, clipped, centre, n_runs, rng):
        self.rows, self._clipped, self._centre, q = rows, clipped, centre, len(centre)
        self._size = max(1, NUMBERS_PER_PART // q)
        self._spread = spread = Spread(moves.parameters[rows[0]])
        self._n_moves = np.bincount(moves.row)[rows][:, None]
        x, w = spread.points(POINTS, rng)
        self._average(x, w)
        self.sums = np.zeros((len(rows), batches.a.shape[1], q))
        self._run(moves, batches.of_moves, x, w, n_runs, rng)
        w, x = w[:, :FEW_POINTS], x[:, :FEW_POINTS].reshape(-1, x.shape[2])
        values, shares = clipped(x)[0].reshape(*w.shape, q), w / w.sum()
        lacking = np.expm1(np.minimum(spread.doubt(x), MOST_DOUBT)).reshape(w.shape)
        lacking *= shares * SETS
        self._lacking = lacking.sum(axis=1), np.einsum("ij,ijk->ik", lacking, values)
        unknown = spread.is_lowest(x).reshape(w.shape) * shares
        self._rejections = np.einsum("ij,ijk->k", unknown, np.square(values - self.mean))

    def tamed(self, x):
        """Return g* at points x (n, d), what g lacks of f, and whether s is lowest there."""
        (g, beyond), lowest = self._clipped(x), self._spread.is_lowest(x)
        return np.where(lowest[:, None], self._centre, g), beyond, lowest

    def _average(self, x, w):
        """Sum g* over points (SETS, n, d) of s, which have weights (SETS, n)."""
        q = len(self._centre)
        self._sums, self._weights = np.zeros((SETS, q)), w.sum(axis=1)
        self._beyond, self._known_beyond = np.zeros(q), np.zeros(q)
        for i in range(SETS):
            for first in range(0, x.shape[1], self._size):
                part = slice(first, first + self._size)
                own = w[i, part]
                g, beyond, lowest = self.tamed(x[i, part])
                self._sums[i] += own @ g
                self._beyond += own @ beyond
                self._known_beyond += own[~lowest] @ beyond[~lowest]

    def _run(self, moves, of_moves, x, w, n_runs, rng):
        """Sum what pairs of runs of each move differ by; partners begin at draws of s."""
        cumulative, x = np.cumsum(w), x.reshape(-1, x.shape[2])
        for place, row in enumerate(self.rows):
            own = np.repeat(np.flatnonzero(moves.row == row), n_runs)
            chosen = rng.random(len(own)) * cumulative[-1]
            partners = x[np.searchsorted(cumulative, chosen, side="right")]
            *ends, apart = ends_of_pairs(moves.parameters[row], moves.start[own], partners, rng)
            apart = np.flatnonzero(apart)
            for first in range(0, len(apart), self._size):
                part = apart[first : first + self._size]
                difference = self.tamed(ends[0][part])[0] - self.tamed(ends[1][part])[0]
                np.add.at(self.sums[place], of_moves[own[part]], difference)

    @property
    def mean(self):
        """E_s g* (q,)."""
        return self._sums.sum(axis=0) / self._weights.sum()

    @property
    def variance(self):
        """Variance (q,) of the mean, as the sets differ."""
        residuals = self._sums - self._weights[:, None] * self.mean
        return residuals.var(axis=0, ddof=1) / SETS / self._weights.mean() ** 2

    @property
    def beyond(self):
        """What E_s g lacks of E_s f, (q,), where s knows anything."""
        return np.nan_to_num(self._known_beyond / self._weights.sum())

    @property
    def unseen(self):
        """What E_s g may be off by, (q,), as no draw has been everywhere: f − g, and a higher π."""
        mass, sums = self._lacking
        changes = sums - mass[:, None] * self.mean
        chance = changes.var(axis=0, ddof=1) / SETS
        beyond = np.nan_to_num(self._beyond / self._weights.sum(), nan=np.inf)
        return np.abs(beyond) + np.sqrt(np.maximum(changes.mean(axis=0) ** 2 - chance, 0))

    def rejected(self, b):
        """Return the variance (q,) by rare moves to where nothing is known, all rejected."""
        return (np.square(b[self.rows]) / self._n_moves).sum(axis=0) * self._rejections
