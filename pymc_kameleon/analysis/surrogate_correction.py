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
    NUMBERS_PER_PART,
    batches_of,
    coefficients,
    combined,
    means_over_moves,
    parts,
    widened_range,
)
from pymc_kameleon.samplers.surrogate.moves import SETS, Spread, ends_of_pairs, generator_of

FIRST_POINTS, FIRST_RUNS, MOST_RANDOMNESS = 1024, 2000, 0.2
"""Points of each set for E_s g, and new runs of all moves together, to begin with. They are doubled
while their randomness has more than this share of a variance."""

DOUBT_POINTS, MOST_DOUBT = 128, 4.0
"""Points of each set at which log s is doubted, and the largest doubt that counts."""

MOST_WORK, OVERHEAD_CENTRES = 1.5e8, 300
"""Coordinates of differences to centres that may be computed at a time for that, in some 0.1 s; and
so many centres take as long as all else."""


def corrected(f, moves, function, n_decisive=None):
    """Return Corrected averages of f (chains, draws, q); `function` gives f (n, q) at points.

    The first `n_decisive` functions decide on the numbers of points and new runs; by default all.
    """
    low, high = widened_range(f)

    def clipped(x):
        """Return g, and what it lacks of f."""
        values = function(x)
        values = np.where(np.isnan(values), low, values)
        g = np.clip(values, low, high)
        return g, values - g

    def g(x):
        return clipped(x)[0]

    batches = batches_of(f, moves)
    a, lengths = batches.a, batches.lengths
    inner = _Inner(moves, batches.of_moves, clipped, f.mean(axis=(0, 1)), a.shape)
    known = _known(moves, batches.of_moves, g, inner, a.shape)
    while True:
        x = means_over_moves(known + inner.sums(batches.n_moves), batches)
        b = coefficients(a, x, inner.variance_under_s(np.ones(a[:, 0].shape)))
        variances = inner.rejections(b), inner.variance_under_s(b)
        found = combined(a, x, b, lengths, *variances)
        with np.errstate(divide="ignore", invalid="ignore"):
            points, runs = (
                np.nan_to_num(variance(b) / np.square(found.mcse))[:n_decisive].max()
                for variance in (inner.variance_under_s, inner.variance_of_runs)
            )
        if max(points, runs) < MOST_RANDOMNESS or not inner.double(points > runs):
            return combined(a, x, b, lengths, *variances, inner.unseen(b), inner.beyond(b))


def _known(moves, batches, g, inner, shape):
    """Return sums over batches of (1 − α)(g(x) − g(v)) + g(v) − g*(v)."""
    sums = np.zeros(shape)
    for row, part in parts(moves, max(1, NUMBERS_PER_PART // shape[2])):
        rejected, end = (1 - moves.accept_prob[part])[:, None], g(moves.end[part])
        change = end - inner.tamed(row, moves.end[part])
        np.add.at(sums[row], batches[part], rejected * (g(moves.start[part]) - end) + change)
    return sums


# ---- k ------------------------------------------------------------------------------------------


class _UnderSurrogate:
    """E_s g* by weighted points, for the chains `rows`, which have the same s."""

    def __init__(self, rows, spread, clipped, centre, q):
        self.rows, self._spread, self._clipped, self.n = rows, spread, clipped, 0
        self._centre = centre
        self._sums, self._weights = np.zeros((SETS, q)), np.zeros(SETS)
        self._beyond, self._known_beyond = np.zeros(q), np.zeros(q)
        self.double()
        w, x = self._w[:, :DOUBT_POINTS], self._x[:, :DOUBT_POINTS].reshape(-1, self._x.shape[2])
        values, shares = clipped(x)[0].reshape(*w.shape, q), w / w.sum()
        lacking = np.expm1(np.minimum(spread.doubt(x), MOST_DOUBT)).reshape(w.shape)
        lacking *= shares * SETS
        self._lacking = lacking.sum(axis=1), np.einsum("ij,ijk->ik", lacking, values)
        unknown = spread.is_lowest(x).reshape(w.shape) * shares
        self.rejections = np.einsum("ij,ijk->k", unknown, np.square(values - self.mean))
        """Variance (q,) of a move's correction by ends where nothing is known, all rejected."""

    def tamed(self, x):
        """Return g* at points x (n, d), what g lacks of f, and whether s is lowest there."""
        (g, beyond), lowest = self._clipped(x), self._spread.is_lowest(x)
        return np.where(lowest[:, None], self._centre, g), beyond, lowest

    def double(self):
        """Have twice as many points."""
        n, size = self.n or FIRST_POINTS, max(1, NUMBERS_PER_PART // self._sums.shape[1])
        self._x, self._w = self._spread.more(n)
        for i in range(SETS):
            for first in range(0, n, size):
                part = slice(first, first + size)
                x, w = self._x[i, part], self._w[i, part]
                g, beyond, lowest = self.tamed(x)
                self._sums[i] += w @ g
                self._beyond += w @ beyond
                self._known_beyond += w[~lowest] @ beyond[~lowest]
        self._weights += self._w.sum(axis=1)
        self.n += n

    @property
    def mean(self):
        return self._sums.sum(axis=0) / self._weights.sum()

    @property
    def variance(self):
        """Variance (q,) of the mean, as the sets differ."""
        residuals = self._sums - self._weights[:, None] * self.mean
        return residuals.var(axis=0, ddof=1) / SETS / self._weights.mean() ** 2

    @property
    def beyond(self):
        """What E_s g lacks of E_s f, (q,), where s knows anything."""
        return self._known_beyond / self._weights.sum()

    @property
    def unseen(self):
        """What E_s g may be off by, (q,), as no draw has been everywhere: f − g, and a higher π."""
        mass, sums = self._lacking
        changes = sums - mass[:, None] * self.mean
        chance = changes.var(axis=0, ddof=1) / SETS
        beyond = np.nan_to_num(self._beyond / self._weights.sum(), nan=np.inf)
        return np.abs(beyond) + np.sqrt(np.maximum(changes.mean(axis=0) ** 2 - chance, 0))

    def draws(self, n, rng):
        """Return n draws of s (n, d)."""
        cumulative = np.cumsum(self._w)
        chosen = np.searchsorted(cumulative, rng.random(n) * cumulative[-1], side="right")
        return self._x.reshape(-1, self._x.shape[2])[chosen]


def _work(parameters):
    """Return what an evaluation of s takes."""
    return parameters.mean.size * (float(parameters.surrogate.n[0]) + OVERHEAD_CENTRES)


class _Inner:
    """The means k* of g* over inner chains from the start of each move, by `batches` (n,)."""

    def __init__(self, moves, batches, clipped, centre, shape):
        self._moves, self._batches = moves, batches
        self._rng, self._n_runs, self._work = generator_of(moves.end), 0, 0.0
        chains, _, q = shape
        self._sums, self._squares = np.zeros(shape), np.zeros((chains, q))
        same = {}
        for row, own in enumerate(moves.parameters):
            key = b"".join(part.tobytes() for part in (own.mean, own.factor, *own.surrogate))
            same.setdefault(key, []).append(row)
        self._under_s = [
            _UnderSurrogate(rows, Spread(moves.parameters[rows[0]], self._rng), clipped, centre, q)
            for rows in same.values()
        ]
        self._run(max(1, FIRST_RUNS // len(moves.row)))

    def _run(self, n_runs):
        """Make so many more pairs of runs of each move."""
        moves, size = self._moves, max(1, NUMBERS_PER_PART // self._sums.shape[2])
        for one in self._under_s:
            for row in one.rows:
                own = np.repeat(np.flatnonzero(moves.row == row), n_runs)
                pairs = moves.start[own], one.draws(len(own), self._rng)
                *ends, apart, evaluated = ends_of_pairs(moves.parameters[row], *pairs, self._rng)
                self._work += evaluated * _work(moves.parameters[row])
                apart = np.flatnonzero(apart)
                for first in range(0, len(apart), size):
                    part = apart[first : first + size]
                    difference = one.tamed(ends[0][part])[0] - one.tamed(ends[1][part])[0]
                    np.add.at(self._sums[row], self._batches[own[part]], difference)
                    self._squares[row] += np.square(difference).sum(axis=0)
        self._n_runs += n_runs

    def tamed(self, row, x):
        """Return g* of a chain at points x (n, d)."""
        return next(one for one in self._under_s if row in one.rows).tamed(x)[0]

    def sums(self, n_moves):
        """Return sums of k over batches, by how many moves they have (chains, batches)."""
        sums = self._sums / self._n_runs
        for one in self._under_s:
            sums[one.rows] += n_moves[one.rows][:, :, None] * one.mean
        return sums

    def variance_under_s(self, b):
        """Return the variance of T (q,) by E_s g, which batches do not show; b is (chains, q)."""
        return sum(self._share(one, b) ** 2 * one.variance for one in self._under_s)

    def unseen(self, b):
        """Return what T (q,) may be wrong by as nobody has been everywhere."""
        return sum(self._share(one, b) * one.unseen for one in self._under_s)

    def beyond(self, b):
        """Return what T (q,) lacks as g is clipped, by s."""
        return sum(self._share(one, b) * np.nan_to_num(one.beyond) for one in self._under_s)

    def rejections(self, b):
        """Return the variance of T (q,) by rare moves to where nothing is known, seen or not."""
        squares = np.square(b) / np.bincount(self._moves.row)[:, None]
        parts = (squares[one.rows].sum(axis=0) * one.rejections for one in self._under_s)
        return sum(parts) / len(b) ** 2

    def _share(self, one, b):
        return b[one.rows].sum(axis=0) / len(b)

    def variance_of_runs(self, b):
        """Return the variance of T (q,) by new runs, which batches do show."""
        n = self._n_runs * np.bincount(self._moves.row)[:, None]
        variance = self._squares / n - np.square(self._sums.sum(axis=1) / n)
        return np.sum(np.square(b / len(b)) * variance / n, axis=0)

    def double(self, points):
        """Have twice as many points for E_s g, or else runs; return whether work allows it."""
        if points:
            of = self._moves.parameters
            more = sum(SETS * one.n * _work(of[one.rows[0]]) for one in self._under_s)
        else:
            more = self._work
        if more > MOST_WORK:
            return False
        if points:
            for one in self._under_s:
                one.double()
        else:
            self._run(self._n_runs)
        return True
