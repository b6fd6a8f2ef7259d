"""Maxima of a density, by climbs from many points.

Symbols: z a point (d,); w = L⁻¹(z − z₀) its coordinates, by a factor L of a covariance, which is at
first that of draws; H the curvature of the negative log-density in w, g its slope there.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from pymc_kameleon.approximation.linalg import cholesky
from pymc_kameleon.approximation.search import DIFFERENCE, LOSS_OUTSIDE, TOLERANCE
from pymc_kameleon.core.moments import shrunk_covariance

SETTLED = 0.005
"""Log-density that may be missed at a maximum: that of 0.1 standard deviations of a normal."""

FLAT = 1e-4
"""Curvature in w, that is relative to the draws' inverse covariance, below which there is none."""

MOST_CLIMBS = 20
"""Climbs from where the last one has ended, at most."""


class Maximum(NamedTuple):
    """Where a climb has ended."""

    z: np.ndarray  # (d,)
    logp: float
    factor: np.ndarray  # L (d, d), of coordinates w
    curvature: np.ndarray  # H (d, d)
    lacking: float  # ½ gᵀH⁻¹g, what a normal would gain from here; infinite without a curvature

    @property
    def is_settled(self):
        """Whether it is a maximum."""
        return self.lacking < SETTLED


def climb(density, start, factor):
    """Return the Maximum that is reached from a point.

    Climbs go on in coordinates in which the density is about standard normal where the last one
    has ended: in the neck of a funnel those of the draws are of no use.
    """
    found = _at(density, start, factor)
    for _ in range(MOST_CLIMBS):
        end = _at(density, _top(density, found.z, factor), factor)
        if not end.logp > found.logp + TOLERANCE:
            break
        found = end
        values, vectors = np.linalg.eigh(end.curvature)
        factor = factor @ (vectors / np.sqrt(np.maximum(np.abs(values), 1.0)))
    return found


def _top(density, start, factor):
    """Return where a climb in coordinates w ends."""
    (at_start,), _ = density.values(start[None])

    def loss(w):
        (logp,), (slope,) = density.values((start + factor @ w)[None])
        if not (np.isfinite(logp) and np.isfinite(slope).all()):
            return LOSS_OUTSIDE, np.zeros(w.size)
        return at_start - logp, -factor.T @ slope

    options = {"ftol": 1e-12, "gtol": 1e-7}
    w = minimize(loss, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options).x
    return start + factor @ w


def _at(density, z, factor):
    """Return the Maximum that this point may be."""
    steps = DIFFERENCE * factor.T
    (logp, *_), slopes = density.values(np.concatenate([z[None], z + steps, z - steps]))
    slopes = slopes @ factor
    curvature = (slopes[z.size + 1 :] - slopes[1 : z.size + 1]) / (2 * DIFFERENCE)
    curvature = np.nan_to_num((curvature + curvature.T) / 2, posinf=0.0, neginf=0.0)
    values, vectors = np.linalg.eigh(curvature)
    lacking = 0.5 * np.sum((vectors.T @ slopes[0]) ** 2 / values) if values[0] > FLAT else np.inf
    return Maximum(z, logp, factor, curvature, lacking)


def factor_of(points):
    """Return a factor (d, d) of the covariance of points, those that are equal counted once.

    Coordinates that do not vary count as if they had the standard deviation 1.
    """
    covariance = shrunk_covariance(np.unique(points, axis=0))
    covariance[np.diag_indices(len(covariance))] += np.diag(covariance) == 0
    return cholesky(covariance)


def maxima(density, starts, factor):
    """Return distinct Maxima, the highest first, as climbs from points (k, d) find them."""
    kept = []
    with np.errstate(all="ignore"):
        tops = np.array([_top(density, z, factor) for z in starts])
        logp, _ = density.values(tops)
        for z in tops[_from_the_highest(logp)]:
            if not any(_is_at(one, z) for one in kept):
                kept.append(climb(density, z, factor))
    return distinct(kept)


def distinct(found):
    """Return different ones of some Maxima, the highest first, and of those that run off one."""
    kept = []
    for one in [found[k] for k in _from_the_highest([one.logp for one in found])]:
        runs_off = not one.is_settled and not all(other.is_settled for other in kept)
        if np.isfinite(one.logp) and not runs_off and not any(_is_at(k, one.z) for k in kept):
            kept.append(one)
    return kept


def _from_the_highest(logp):
    """Return the order of log-densities; among equal ones, those that draws have led to first."""
    return np.argsort(-np.round(np.divide(logp, TOLERANCE)), kind="stable")


def _is_at(found, z):
    """Whether a point is at a Maximum: what a normal there would gain is negligible."""
    w = np.linalg.solve(found.factor, found.z - z)
    return found.is_settled and w @ found.curvature @ w / 2 < 2 * SETTLED
