"""What the tests of corrected averages share: a banana with known averages, and batches by hand."""

import numpy as np
from scipy.signal import lfilter
from scipy.stats import norm


def autoregressive(rng, shape, correlation):
    """Return chains (chains, draws, ...) of standard normals, by AR(1)."""
    noise = rng.standard_normal(shape)
    noise[:, 1:] *= np.sqrt(1 - correlation**2)
    return lfilter([1], [1, -correlation], noise, axis=1)


BEND = 0.5


def log_banana(x):
    """x₀ ~ N(0, 1), x₁ ~ N(b(x₀² − 1), 1)."""
    return -(x[..., 0] ** 2) / 2 - (x[..., 1] - BEND * (x[..., 0] ** 2 - 1)) ** 2 / 2


def draws_of_banana(n, rng):
    x = rng.standard_normal((n, 2))
    x[:, 1] += BEND * (x[:, 0] ** 2 - 1)
    return x


def functions(x):
    """Return (n, 5), of which E is known."""
    return np.column_stack([x, x**2, x[:, 0] <= 0.5])


TRUE = np.array([0, 0, 1, 1 + 2 * BEND**2, norm.cdf(0.5)])


def at_draws(x):
    return functions(x.reshape(-1, 2)).reshape(*x.shape[:2], -1)


def whole(a, x, common):
    """Let T be X, which is then tested alone."""
    return np.ones(a[:, 0].shape)


class Batches:
    """Averages of f (chains, n), and the terms of its moves, in batches; by their definitions.

    `a` (chains, batches) has those of draws.
    """

    def __init__(self, f, moves):
        self.f, self.moves, (self.n_chains, self.n) = f, moves, f.shape
        self.nb = min(10, min(np.sum(moves.row == c) for c in range(self.n_chains)) // 2)
        self.of_draws = np.array([i * self.nb // self.n for i in range(self.n)])
        self.sizes = np.array([np.sum(self.of_draws == b) for b in range(self.nb)])
        self.a = np.array([[own[self.of_draws == b].mean() for b in range(self.nb)] for own in f])

    def _of_moves(self, g, tamed, k):
        """Return X, of which k(i) is that of a move."""
        moves, x = self.moves, np.zeros(self.a.shape)
        start, end, tamed = (
            np.array([of(point) for point in points])
            for of, points in ((g, moves.start), (g, moves.end), (tamed, moves.end))
        )
        every = (1 - moves.accept_prob) * (start - end) + end - tamed
        every += [k(i) for i in range(len(every))]
        for c in range(self.n_chains):
            terms, batch = every[moves.row == c], self.of_draws[moves.draw[moves.row == c]]
            for b in range(self.nb):
                inside = terms[batch == b] - terms.mean()
                x[c, b] = terms.mean() + inside.sum() / len(terms) * self.n / self.sizes[b]
        return x

    def mix(self, g, tamed, k, common):
        """Return A + b(X − A), and b of each chain, which is that of the others."""
        x, used = self._of_moves(g, tamed, k), np.zeros(self.n_chains)
        for c in range(self.n_chains):
            others = [i for i in range(self.n_chains) if i != c]
            difference = (self.a - x)[others].ravel()
            variance = np.var(difference, ddof=1) + self.a.size * common
            b = np.cov(self.a[others].ravel(), difference)[0, 1] / variance
            used[c] = np.clip(b, 0, 1)
        return self.a + used[:, None] * (x - self.a), used

    def mean(self, batches):
        return np.mean(batches @ self.sizes / self.n)

    def variance(self, batches):
        """Return that of the mean of batches: by these or by chains, whichever is larger."""
        chains = batches @ self.sizes / self.n
        by_batches = np.var(batches, ddof=1) / batches.size
        return max(by_batches, np.var(chains, ddof=1) / self.n_chains)
