"""Averages over draws of any sampler, corrected by the gradient of the log-density there.

Sources: Assaraf & Caffarel, "Zero-variance principle for Monte Carlo algorithms", Physical Review
Letters 83 (1999); Mira, Solgi & Imparato, "Zero variance Markov chain Monte Carlo for Bayesian
estimators", Statistics and Computing 23 (2013); South, Oates, Mira & Drovandi, "Regularized zero-
variance control variates", Bayesian Analysis 18 (2023).

Symbols: f a function of the state; z the whitened position, g = ∇log π there; φ a polynomial of z,
and of each draw the controls

    c = Δφ + ∇φ·g

for φ one of z_i, x_i²/2 (of the position x itself, as the axes of z are learned from the draws, and
squares along these have other means) and z_i z_j. They have the mean 0, as c π = div(π ∇φ), so

    T = mean of f − θ c

is as exact as the mean of f. If π is normal and f a polynomial of degree 2, f − θ c is constant.
θ is a ridge regression of f on c. Chains are taken for a few folds. Each fold gets θ from the
others, so that θ does not depend on what it multiplies, and so do the strength of the ridge and the
number of controls: by the errors at one of those, of a regression on the rest.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.analysis.batches import MOST_BATCHES, batch_means, coefficients, combined
from pymc_kameleon.analysis.identity import whitening

MOST_FOLDS, MOST_CONTROLS, CONTROLS_PER_DRAW = 4, 700, 0.5
"""Folds at most; controls at most, and for each draw of the folds that a regression is on."""

RIDGES = 1e-9, 1e-4, 1e-2, 1e-1, 1.0
"""Strengths of the ridge, in units of a control's variance."""

LEAST_ERROR = 1e-6
"""Standard error that is stated at least, in standard deviations: jumps that make less are not seen
by identity.py."""


class Controls(NamedTuple):
    """Controls of all draws, each of variance 1 or so, the most useful first."""

    values: np.ndarray  # (chains, draws, k): d of g, d of squares, then those of products
    sizes: list  # how many of them may be used
    are_doubtful: bool = False  # whether their means are hardly 0


def controls_of(position, gradient):
    """Return Controls, by positions and gradients (chains, draws, d) on the unconstrained scale."""
    chains, draws, d = position.shape
    learned_from = chains * draws // 2  # at least, two of four blocks
    most = min(MOST_CONTROLS, CONTROLS_PER_DRAW * learned_from)
    sizes = [k for k in (d, 2 * d, d * (d + 5) // 2) if k <= most][: 3 if d > 1 else 2]
    mean, factor = whitening(position.reshape(-1, d))
    g = gradient @ factor
    parts = [g, 1 + (position - mean) * gradient]
    if sizes and sizes[-1] > 2 * d:
        z = (position - mean) @ np.linalg.inv(factor).T
        i, j = np.triu_indices(d)
        parts.append(2.0 * (i == j) + z[..., i] * g[..., j] + z[..., j] * g[..., i])
    values = np.concatenate(parts, axis=2)
    return Controls(values / np.sqrt(np.mean(values**2, axis=(0, 1))), sizes)


def zero_variance(f, controls):
    """Average functions over the posterior.

    Parameters
    ----------
    f : (chains, draws, q) float64
        The functions at the draws, finite, of at least two chains.
    controls : Controls
        Of the same draws.

    Returns
    -------
    Corrected
        If controls are doubtful, errors are not below those of the means of θ c, which may hide as
        much.
    """
    chains, draws, _ = f.shape
    folds = np.arange(chains) * min(MOST_FOLDS, chains) // chains
    blocks = _blocks(controls.values, f - f.mean(axis=(0, 1)), folds)
    theta = np.array(
        [
            _theta([own for other, own in blocks if other != fold], controls.sizes)
            for fold in range(folds[-1] + 1)
        ]
    )
    batches = np.arange(draws) * MOST_BATCHES // draws
    a, means = batch_means(f, batches), batch_means(controls.values[..., : theta.shape[1]], batches)
    x = a - means @ theta[folds]
    least = np.square(LEAST_ERROR * f.std(axis=(0, 1)))
    if controls.are_doubtful:
        least = np.maximum(least, (a - x).reshape(-1, a.shape[2]).var(axis=0) / a[..., 0].size)
    found = combined(a, x, coefficients(a, x, 0.0), np.bincount(batches), least, 0.0)
    return found._replace(is_better=found.is_better & (found.gain > 1), by_gradients=np.True_)


# ---- θ ------------------------------------------------------------------------------------------


class _Moments(NamedTuple):
    """Sums over draws, of controls c (k,) and functions f (q,)."""

    n: int
    c: np.ndarray
    f: np.ndarray
    cc: np.ndarray
    cf: np.ndarray
    ff: np.ndarray

    def covariances(self, k):
        """Return those of the first k controls, those with functions, and these' variances."""
        c, f, n = self.c[:k] / self.n, self.f / self.n, self.n
        return (
            self.cc[:k, :k] / n - np.outer(c, c),
            self.cf[:k] / n - np.outer(c, f),
            self.ff / n - f**2,
        )


def _blocks(c, f, folds):
    """Return (fold, _Moments) of blocks of draws: folds, or halves of these if there are two."""
    middle = c.shape[1] // 2
    cuts = [slice(middle), slice(middle, None)] if folds[-1] == 1 else [slice(None)]
    return [
        (fold, _moments(c[folds == fold, cut], f[folds == fold, cut]))
        for fold in range(folds[-1] + 1)
        for cut in cuts
    ]


def _moments(c, f):
    c, f = c.reshape(-1, c.shape[2]), f.reshape(-1, f.shape[2])
    return _Moments(len(c), c.sum(axis=0), f.sum(axis=0), c.T @ c, c.T @ f, np.sum(f**2, axis=0))


def _sum(moments):
    return _Moments(*(sum(parts) for parts in zip(*moments, strict=True)))


def _theta(blocks, sizes):
    """Return θ (k, q) learned from blocks, with what is best for each that is left out."""
    errors = 0.0
    for i, left_out in enumerate(blocks):
        rest = _sum([own for j, own in enumerate(blocks) if j != i])
        errors = errors + left_out.n * np.array(
            [_error(theta, left_out) for theta in _regressions(rest, sizes)]
        )
    best = np.argmin(errors, axis=0)
    found = np.zeros((sizes[-1], best.size))
    for i, theta in enumerate(_regressions(_sum(blocks), sizes)):
        found[: len(theta), best == i] = theta[:, best == i]
    return found


def _regressions(moments, sizes):
    """Yield θ of each number of controls, and each strength of the ridge."""
    for k in sizes:
        cc, cf, _ = moments.covariances(k)
        values, vectors = np.linalg.eigh(cc)
        along = vectors.T @ cf
        for ridge in RIDGES:
            yield vectors @ (along / (np.maximum(values, 0) + ridge)[:, None])


def _error(theta, moments):
    """Return the variance (q,) of f − θ c."""
    cc, cf, ff = moments.covariances(len(theta))
    return ff - np.sum(theta * (2 * cf - cc @ theta), axis=0)
