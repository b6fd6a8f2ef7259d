"""Coordinates in which a curved or funnel-shaped posterior is nearly normal.

    u_k = (z_k − m_k(z_before)) / exp(a_k(z_before))

z are coordinates in units of their standard deviations, in an order in which the ones before tell
most of those after; m is linear with some squares and products, and a, the logarithm of a scale, is
linear. Terms besides a linear m are there if the draws tell them beyond doubt.
"""

from itertools import combinations_with_replacement

import numpy as np

from pymc_kameleon.analysis.evidence.bridge import ROUNDS
from pymc_kameleon.core.conventions import ROOT_EPS

CLEAR = 25.0
"""What share of a variance a term has to explain, times the draws: 5² standard errors."""


class Warp:
    """The map that is fitted to draws x (n, d)."""

    def __init__(self, x):
        self._mean, self._sd = x.mean(axis=0), x.std(axis=0)
        self._sd[self._sd == 0] = 1
        z = (x - self._mean) / self._sd
        self._order = _order(z)
        self._parts = [_Part(z, k, self._order[:i]) for i, k in enumerate(self._order)]

    def to(self, x):
        """Return u (n, d) of points x (n, d), and log |du/dx| there."""
        z = (x - self._mean) / self._sd
        u, log_det = np.empty_like(z), np.full(len(z), -np.log(self._sd).sum())
        for k, part in zip(self._order, self._parts, strict=True):
            mean, log_scale = part(z)
            u[:, k] = (z[:, k] - mean) * np.exp(-log_scale)
            log_det -= log_scale
        return u, log_det

    def back(self, u):
        """Return x (n, d) of points u (n, d)."""
        z = np.empty_like(u)
        for k, part in zip(self._order, self._parts, strict=True):
            mean, log_scale = part(z)
            z[:, k] = mean + u[:, k] * np.exp(log_scale)
        return self._mean + z * self._sd


class Warped:
    """A density in the coordinates of a warp."""

    def __init__(self, warp, density):
        self._warp, self._density = warp, density

    def log_density(self, x):
        """Return the log-density at points (n, d)."""
        u, log_det = self._warp.to(x)
        return self._density.log_density(u) + log_det

    def draws(self, n):
        """Return n independent draws (n, d)."""
        return self._warp.back(self._density.draws(n))


class Unwarped:
    """The map that changes nothing."""

    def to(self, x):
        """Return points, and 0."""
        return x, np.zeros(len(x))

    def back(self, u):
        """Return points."""
        return u


class _Part:
    """m and a of one coordinate, by those before it."""

    def __init__(self, z, k, before):
        y, log_scale = z[:, k], np.zeros(len(z))
        self._before = before
        pairs = list(combinations_with_replacement(before, 2))
        products = [z[:, i] * z[:, j] for i, j in pairs]
        for _ in range(ROUNDS):
            w = np.exp(-log_scale)
            chosen = _chosen(self._linear(z) * w[:, None], [own * w for own in products], y * w)
            self._pairs = [pairs[c] for c in chosen]
            of_mean = self._of_mean(z)
            self._m = np.linalg.lstsq(of_mean * w[:, None], y * w, rcond=None)[0]
            residual = y - of_mean @ self._m
            log_size = np.log(np.maximum(np.abs(residual), ROOT_EPS))
            chosen = _chosen(np.ones((len(z), 1)), [z[:, j] for j in before], log_size)
            self._scales = [before[c] for c in chosen]
            of_scale = self._of_scale(z)
            self._a = np.linalg.lstsq(of_scale, log_size, rcond=None)[0]
            squares = np.square(residual * np.exp(-of_scale @ self._a))
            self._a[0] += np.log(squares.mean()) / 2
            log_scale = of_scale @ self._a
        self._range = log_scale.min(), log_scale.max()

    def __call__(self, z):
        """Return m and a (n,) at points z (n, d); a stays in the range that it had."""
        return self._of_mean(z) @ self._m, np.clip(self._of_scale(z) @ self._a, *self._range)

    def _linear(self, z):
        return np.column_stack([np.ones(len(z)), z[:, self._before]])

    def _of_mean(self, z):
        return np.column_stack([self._linear(z), *(z[:, i] * z[:, j] for i, j in self._pairs)])

    def _of_scale(self, z):
        return np.column_stack([np.ones(len(z)), z[:, self._scales]])


def _chosen(base, candidates, y):
    """Return which candidates (n,) explain y (n,) beyond the base (n, m), one after the other."""
    found = []
    if not candidates:
        return found
    q, c = np.linalg.qr(base)[0], np.column_stack(candidates)
    y, c = y - q @ (q.T @ y), c - q @ (q.T @ c)
    for _ in candidates:
        squares = np.maximum(np.square(c).sum(axis=0), ROOT_EPS)
        shares = np.square(c.T @ y) / squares / max(y @ y, ROOT_EPS)
        best = shares.argmax()
        if shares[best] * len(y) < CLEAR:
            break
        found.append(best)
        e = c[:, best] / np.sqrt(squares[best])
        y, c = y - e * (e @ y), c - np.outer(e, e @ c)
    return found


def _order(z):
    """Return coordinates in the order in which those before tell most of those after."""
    n, d = z.shape
    told = np.zeros((d, d))
    for j in range(d):
        q = np.linalg.qr(np.column_stack([np.ones(n), z[:, j]]))[0]
        square = z[:, j] ** 2
        square = square - q @ (q.T @ square)
        square /= np.sqrt(square @ square)
        straight = z - q @ (q.T @ z)
        curved = straight - np.outer(square, square @ straight)
        before, after = np.square(straight).sum(axis=0), np.square(curved).sum(axis=0)
        log_size = np.log(np.maximum(np.abs(curved), ROOT_EPS))
        log_size = (log_size - log_size.mean(axis=0)) / np.maximum(log_size.std(axis=0), ROOT_EPS)
        told[j] = np.log(np.maximum(before, ROOT_EPS) / np.maximum(after, ROOT_EPS))
        told[j] += 2 * np.square(z[:, j] @ log_size / n)
        told[j, j] = 0
    return np.argsort(told.sum(axis=0) - told.sum(axis=1), kind="stable").tolist()
