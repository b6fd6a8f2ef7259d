"""Averages over draws of any sampler, corrected by the gradient of the log-density there.

docs/estimates_methods.md has the formulas. Symbols: f a function of the state; x the position, z
the whitened one, g = ∇log π there; c = Δφ + ∇φ·g the control of φ, one of z_i, x_i²/2, x_i³/3 (of
x, as the axes of z are learned from the draws) and z_i z_j; T = mean of f − θ c. If f has two
values, u is the standardised coordinate that divides the draws best where f is the one from where
it is the other, t the point that does, and s the derivative of log π along u with all that is
uncorrelated with u fixed.

Sources: Assaraf & Caffarel, "Zero-variance principle for Monte Carlo algorithms", Physical Review
Letters 83 (1999); Mira, Solgi & Imparato, "Zero variance Markov chain Monte Carlo for Bayesian
estimators", Statistics and Computing 23 (2013); South, Oates, Mira & Drovandi, "Regularized zero-
variance control variates", Bayesian Analysis 18 (2023); for steps, Chen, Goldstein & Shao, "Normal
approximation by Stein's method" (2011), Lemma 2.2.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erfcx, ndtr, ndtri

from pymc_kameleon.analysis.batches import (
    MOST_BATCHES,
    batch_means,
    coefficients,
    combined,
    variance_of_mean,
)
from pymc_kameleon.analysis.identity import whitening
from pymc_kameleon.core.conventions import CHAINS, EPS, ROOT_EPS

MOST_CONTROLS = 700
"""Controls at most; and no more than a fold has draws."""

RIDGES = np.geomspace(ROOT_EPS, 1.0, 5)
"""Strengths of the ridge, in units of a control's variance, from rounding to that variance."""

ALL_DIVIDED = 0.999
"""Share of the draws that a coordinate divides, from which no combination is looked for."""

FARTHEST = -ndtri(EPS)
"""Standard deviations at which a step may be at most: beyond, a normal has only rounding."""


class Controls(NamedTuple):
    """Controls of all draws, each of variance 1 or so, the most useful first."""

    values: np.ndarray  # (chains, draws, k): d of g, of squares, of cubes, then those of products
    sizes: list  # how many of them may be used
    position: np.ndarray  # (chains, draws, d)
    gradient: np.ndarray  # the same of log π
    diverged: int  # draws after which there may be a part of the posterior that no draw has seen


def controls_of(position, gradient, diverged=0):
    """Return Controls, by positions and gradients (chains, draws, d) on the unconstrained scale."""
    chains, draws, d = position.shape
    most = min(MOST_CONTROLS, chains * draws // CHAINS)
    sizes = [k for k in (d, 2 * d, 3 * d, d * (d + 7) // 2) if k <= most][: 4 if d > 1 else 3]
    mean, factor = whitening(position.reshape(-1, d))
    off, g = position - mean, gradient @ factor
    parts = [g, 1 + off * gradient, 2 * off + off**2 * gradient]
    if sizes and sizes[-1] > 3 * d:
        z = off @ np.linalg.inv(factor).T
        i, j = np.triu_indices(d)
        parts.append(2.0 * (i == j) + z[..., i] * g[..., j] + z[..., j] * g[..., i])
    values = np.concatenate(parts, axis=2)
    values /= np.sqrt(np.mean(values**2, axis=(0, 1)))
    return Controls(values, sizes, position, gradient, diverged)


def zero_variance(f, controls):
    """Return Corrected averages of f (chains, draws, q), finite, of two chains or more.

    n independent draws do not see a part with 1/n of the mass, so an error is at least sd/n; with k
    draws that diverged, which say that there is such a part, (1 + k) sd/n.
    """
    chains, draws, q = f.shape
    folds = np.arange(chains) * min(CHAINS, chains) // chains
    batches = np.arange(draws) * MOST_BATCHES // draws
    c = controls.values[..., : controls.sizes[-1]]
    a, of_c = batch_means(f, batches), batch_means(c, batches)
    x = np.empty_like(a)
    low, high = f.min(axis=(0, 1)), f.max(axis=(0, 1))
    two = np.flatnonzero(((f == low) | (f == high)).all(axis=(0, 1)) & (low < high))
    centred, blocks, known = f - f.mean(axis=(0, 1)), _blocks(c, folds), {}
    for fold in range(folds[-1] + 1):
        own, others = folds == fold, [block for block in blocks if block.fold != fold]
        less = centred[..., two] - _steps(f[..., two], controls, ~own)
        targets = np.concatenate([centred, less], axis=2)
        moments = {block.number: block.moments(c, targets) for block in others}
        theta, error = _theta(moments, controls.sizes, known)
        rest = batch_means(targets[own], batches) - of_c[own] @ theta
        fits = error[q:] < error[two]
        rest[..., two[fits]] = rest[..., q:][..., fits]
        x[own] = rest[..., :q]
    x += f.mean(axis=(0, 1))
    lengths, variance = np.bincount(batches), f.var(axis=(0, 1))
    with np.errstate(divide="ignore", invalid="ignore"):
        n = np.fmin(variance / variance_of_mean(a, lengths), chains * draws)
        least = np.nan_to_num(variance * ((1 + controls.diverged) / n) ** 2)
    # of n places, the gap that a given point is in has the mean square 6/n², and the point's place
    # 1/12 of that
    n_places = min(np.unique(own).size for own in np.moveaxis(controls.position, 2, 0))
    least[two] = np.maximum(least[two], ((high - low)[two] / n_places) ** 2 / 2)
    found = combined(a, x, coefficients(a, x, 0.0), lengths, least, 0.0)
    return found._replace(is_better=found.is_better & (found.gain > 1))


# ---- steps --------------------------------------------------------------------------------------


def _steps(f, controls, learned_from):
    """Return controls (chains, draws, q) of functions of two values, learned from some chains."""
    d, q = controls.position.shape[2], f.shape[2]
    low, high = f.min(axis=(0, 1)), f.max(axis=(0, 1))
    x = controls.position[learned_from].reshape(-1, d)
    is_high = (f[learned_from] == high).reshape(len(x), q)
    mean, factor = whitening(x)
    covariance = factor @ factor.T
    with_f = (x - mean).T @ (is_high - is_high.mean(axis=0)) / len(x)
    scales = np.sqrt(np.diag(covariance))
    k = np.abs(with_f / scales[:, None]).argmax(axis=0)
    along = np.zeros((d, q))
    along[k, np.arange(q)] = 1 / scales[k]
    point, height = _best_division((x - mean) @ along, is_high)
    share = is_high.mean(axis=0)
    poor = np.flatnonzero(np.abs(height) < ALL_DIVIDED * share * (1 - share))
    other = np.linalg.solve(covariance, with_f[:, poor])
    other /= np.sqrt(np.sum(other * with_f[:, poor], axis=0))
    other_point, other_height = _best_division((x - mean) @ other, is_high[:, poor])
    better = np.abs(other_height) > np.abs(height[poor])
    along[:, poor[better]], point[poor[better]] = other[:, better], other_point[better]
    height[poor[better]] = other_height[better]
    u, s = (controls.position - mean) @ along, controls.gradient @ (covariance @ along)
    whole = np.flatnonzero(np.abs(height) >= ALL_DIVIDED * share * (1 - share))
    every = (
        part[..., whole].reshape(u.shape[0] * u.shape[1], whole.size) for part in (u, f == high)
    )
    point[whole] = _best_division(*every)[0]  # no draw is between this and where f steps
    return np.sign(height) * (high - low) * control_of_step(u, s, point)


def control_of_step(u, s, point):
    """Return the control (..., q) of [u ≤ t] for points t (q,), by u (..., q) and s there."""
    below = u <= point
    psi = np.sqrt(np.pi / 2) * erfcx(np.where(below, -u, u) / np.sqrt(2))
    psi *= ndtr(np.where(below, -point, point))
    return below - ndtr(point) + psi * (u + s)


def _best_division(u, is_high):
    """Return the points (q,) up to which most of u (n, q) are high, or low; and by how many."""
    order = np.argsort(u, axis=0)
    u, is_high = (np.take_along_axis(part, order, axis=0) for part in (u, is_high))
    excess = np.cumsum(is_high - is_high.mean(axis=0), axis=0)[:-1] / len(u)
    i, columns = np.abs(excess).argmax(axis=0), np.arange(u.shape[1])
    point = (u[i, columns] + u[i + 1, columns]) / 2
    return np.clip(point, -FARTHEST, FARTHEST), excess[i, columns]


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


class _Block(NamedTuple):
    """Draws of a fold, and the products of their controls."""

    number: int
    fold: int
    draws: tuple  # chains, and a slice of their draws
    cc: np.ndarray

    def moments(self, c, f):
        c, f = (part[self.draws].reshape(-1, part.shape[2]) for part in (c, f))
        sums = c.sum(axis=0), f.sum(axis=0)
        return _Moments(len(c), *sums, self.cc, c.T @ f, np.sum(f**2, axis=0))


def _blocks(c, folds):
    """Return _Blocks of controls (chains, draws, k): folds, or halves of these if there are two."""
    middle, blocks = c.shape[1] // 2, []
    cuts = [slice(middle), slice(middle, None)] if folds[-1] == 1 else [slice(None)]
    for fold in range(folds[-1] + 1):
        for cut in cuts:
            draws = np.flatnonzero(folds == fold), cut
            own = c[draws].reshape(-1, c.shape[2])
            blocks.append(_Block(len(blocks), fold, draws, own.T @ own))
    return blocks


def _theta(blocks, sizes, known):
    """Return θ (k, q) learned from blocks, with what is best for those left out; that error."""
    errors = 0.0
    for number, left_out in blocks.items():
        rest = {other: own for other, own in blocks.items() if other != number}
        errors = errors + left_out.n * np.array(
            [_error(theta, left_out) for theta in _regressions(rest, sizes, known)]
        )
    best = np.argmin(errors, axis=0)
    found = np.zeros((sizes[-1], best.size))
    for i, theta in enumerate(_regressions(blocks, sizes, known)):
        found[: len(theta), best == i] = theta[:, best == i]
    return found, errors.min(axis=0)


def _regressions(blocks, sizes, known):
    """Yield θ of each number of controls, and each strength of the ridge."""
    moments = _Moments(*(sum(parts) for parts in zip(*blocks.values(), strict=True)))
    for k in sizes:
        cc, cf, _ = moments.covariances(k)
        if (which := (k, *blocks)) not in known:
            known[which] = np.linalg.eigh(cc)
        values, vectors = known[which]
        along = vectors.T @ cf
        for ridge in RIDGES:
            yield vectors @ (along / (np.maximum(values, 0) + ridge)[:, None])


def _error(theta, moments):
    """Return the variance (q,) of f − θ c."""
    cc, cf, ff = moments.covariances(len(theta))
    return ff - np.sum(theta * (2 * cf - cc @ theta), axis=0)
