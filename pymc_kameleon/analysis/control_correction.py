"""Averages over draws, corrected by the control variates that a sampler has kept of them.

docs/estimates_methods.md has the formulas; samplers/random_walk/controls.py computes the controls.
Symbols: f a function of the state; u the position, from a centre that all chains share; β and γ
from a regression of f on u and u² at the draws; c five controls of mean 0; T = mean of f − θ c.

Source: Alexopoulos, Dellaportas & Titsias, "Variance reduction for Metropolis-Hastings samplers",
Statistics and Computing 33 (2023).
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.analysis.batches import LEAST_DRAWS, MOST_BATCHES, batch_means, combined
from pymc_kameleon.analysis.corrections import Correction, NotCorrected
from pymc_kameleon.core.conventions import ROOT_EPS, TINY
from pymc_kameleon.step.groups import CONTROL_VARIATES

MOST_VARIANCE_LEFT = 0.8
"""Share of the variance of such means that is left, at most, where the controls are used."""


def by_control_variates(result):
    """Return the Correction by control variates."""
    if result.group != CONTROL_VARIATES:
        raise NotCorrected("")
    if not are_enough(kept := kept_of(result.kept, result.learned)):
        raise NotCorrected("there are too few chains or draws, or a parameter never moved")
    return Correction(lambda f: controlled(f.values, kept))


class Kept(NamedTuple):
    """What a sampler has kept of its draws: (chains, draws, 2d), and (chains, draws, 1) of r²."""

    features: np.ndarray  # u and u²
    left_out: np.ndarray  # they less their means over the draw's transitions
    controls: np.ndarray  # of u and u²
    radius: np.ndarray  # control of r²


def kept_of(kept, learned):
    """Return Kept of datasets of a result: what it has kept of draws, and what was learned."""

    def of(name):
        return kept[name].transpose("chain", "draw", ...).values

    means = learned["mean"].sel(chain=kept["chain"]).transpose("chain", ...).values
    centre = means.mean(axis=0)
    shift = (means - centre)[:, None]  # each chain has its own u
    u = of("position") - centre
    mean = of("mean") + shift
    square = of("square") + 2 * shift * of("mean") + shift**2
    control = of("mean_control")
    control_of_square = of("square_control") + 2 * shift * control
    return Kept(
        np.concatenate([u, u**2], axis=2),
        np.concatenate([u - mean, u**2 - square], axis=2),
        np.concatenate([control, control_of_square], axis=2),
        of("radius_control")[..., None],
    )


def are_enough(kept):
    """Whether there are draws enough to learn the coefficients from other chains."""
    chains, draws, n = kept.features.shape
    are_finite = all(np.isfinite(part).all() for part in kept)
    return are_finite and draws >= LEAST_DRAWS and (chains - 1) * draws > n


def controlled(f, kept):
    """Return Corrected averages of f (chains, draws, q), finite, by what was kept of the draws."""
    draws = f.shape[1]
    short = np.arange(draws) // int(np.sqrt(draws))
    long = np.arange(draws) * MOST_BATCHES // draws
    lengths = np.bincount(long)
    (a, parts), (whole, wholes) = (
        (batch_means(f, which), [batch_means(part, which) for part in kept])
        for which in (short, long)
    )
    x, left = whole.copy(), a.copy()
    for row, slopes in enumerate(_slopes(kept.features, f)):
        controls, others = _controls(parts, slopes), np.arange(len(f)) != row
        theta = _coefficients(a[others], controls[others])
        left[row] -= np.sum(theta * controls[row], axis=2)
        x[row] -= np.sum(theta * _controls([part[row] for part in wholes], slopes), axis=2)
    b = np.broadcast_to(_variance(left) < MOST_VARIANCE_LEFT * _variance(a), x[:, 0].shape)
    found = combined(whole, x, b, lengths, 0.0, 0.0)
    return found._replace(is_better=found.is_better & (found.gain > 1))


def _slopes(x, f):
    """Return β and γ (chains, 2d, q) of f on x (chains, draws, 2d), a chain's from all others."""
    scales = x.std(axis=(0, 1)) + TINY
    x = np.pad((x - x.mean(axis=(0, 1))) / scales, ((0, 0), (0, 0), (0, 1)), constant_values=1)
    transposed = x.transpose(0, 2, 1)
    own, with_f = transposed @ x, transposed @ (f - f.mean(axis=(0, 1)))
    others = np.linalg.pinv(own.sum(axis=0) - own, rcond=ROOT_EPS, hermitian=True)
    found = (others @ (with_f.sum(axis=0) - with_f))[:, :-1]
    found[np.abs(found) < ROOT_EPS * f.std(axis=(0, 1))] = 0
    return found / scales[:, None]


def _controls(means, slopes):
    """Return the five controls (..., q, 5) of functions, of means of what was kept."""
    _, left_out, controls, radius = means
    five, slopes = [radius * np.ones(slopes.shape[1])], np.split(slopes, 2)
    for many in (left_out, controls):
        five += [part @ of for part, of in zip(np.split(many, 2, axis=-1), slopes, strict=True)]
    return np.stack(five, axis=-1)


def _coefficients(a, controls):
    """Return θ (q, 5) by the means a (chains, n, q) of functions and those of their controls."""
    (q, k), a = controls.shape[2:], a - a.mean(axis=(0, 1))
    controls = controls - controls.mean(axis=(0, 1))  # else they would explain the noise of a's
    scales = np.sqrt(np.mean(controls**2, axis=(0, 1))) + TINY
    controls = (controls / scales).reshape(-1, q, k)
    products = np.einsum("nqk,nql->qkl", controls, controls) / len(controls)
    inverse = np.linalg.pinv(products, rcond=ROOT_EPS, hermitian=True)
    found = np.einsum("nqk,nq->qk", controls, a.reshape(-1, q)) / len(controls)
    return np.einsum("qkl,ql->qk", inverse, found) / scales


def _variance(means):
    """Return the variance (q,) of means (chains, n, q), about their common mean."""
    return means.reshape(-1, means.shape[2]).var(axis=0)
