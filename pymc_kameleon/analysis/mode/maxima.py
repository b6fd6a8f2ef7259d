"""Maxima of a density, by climbs from many points.

Symbols: z a point (d,), w = L⁻¹(z − z₀) its coordinates by a factor L of the draws' covariance, H
the curvature of the negative log-density in w, g its slope there.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

SETTLED = 0.005
"""Log-density that may be missed at a maximum: that of 0.1 standard deviations of a normal."""

FLAT = 1e-4
"""Curvature in w, that is relative to the draws' inverse covariance, below which there is none."""

MOST_STEPS, MOST_NEWTON, DIFFERENCE = 2000, 20, 1e-3
"""Steps of a climb, and of Newton's method at its end; differences of slopes in w."""

OUTSIDE = 1e10
"""Loss where the density is 0."""


class Maximum(NamedTuple):
    """Where a climb has ended."""

    z: np.ndarray  # (d,)
    logp: float
    curvature: np.ndarray  # H (d, d)
    lacking: float  # ½ gᵀH⁻¹g, what a normal would gain from here; infinite without a curvature

    @property
    def is_settled(self):
        """Whether it is a maximum."""
        return self.lacking < SETTLED


def climb(density, start, factor):
    """Return the Maximum that is reached from a point."""
    (at_start,), _ = density.values(start[None])

    def loss(w):
        (logp,), (slope,) = density.values((start + factor @ w)[None])
        if not (np.isfinite(logp) and np.isfinite(slope).all()):
            return OUTSIDE, np.zeros(w.size)
        return at_start - logp, -factor.T @ slope

    options = {"maxiter": MOST_STEPS, "maxfun": 2 * MOST_STEPS, "ftol": 1e-12, "gtol": 1e-7}
    w = minimize(loss, np.zeros(start.size), jac=True, method="L-BFGS-B", options=options).x
    found = _at(density, start + factor @ w, factor)
    for _ in range(MOST_NEWTON):
        if not SETTLED * 1e-6 < found.lacking < np.inf:
            break
        slope = factor.T @ density.values(found.z[None])[1][0]
        other = _at(density, found.z + factor @ np.linalg.solve(found.curvature, slope), factor)
        if not (other.logp >= found.logp and other.lacking < found.lacking):
            break
        found = other
    return found


def _at(density, z, factor):
    """Return the Maximum that this point may be."""
    steps = DIFFERENCE * factor.T
    (logp, *_), slopes = density.values(np.concatenate([z[None], z + steps, z - steps]))
    slopes = slopes @ factor
    curvature = (slopes[z.size + 1 :] - slopes[1 : z.size + 1]) / (2 * DIFFERENCE)
    curvature = (curvature + curvature.T) / 2
    if not np.isfinite(curvature).all():
        return Maximum(z, logp, curvature, np.inf)
    values, vectors = np.linalg.eigh(curvature)
    if values[0] < FLAT:
        return Maximum(z, logp, curvature, np.inf)
    return Maximum(z, logp, curvature, 0.5 * np.sum((vectors.T @ slopes[0]) ** 2 / values))


def maxima(density, starts, factor):
    """Return distinct Maxima, the highest first, as climbs from points (k, d) find them."""
    with np.errstate(all="ignore"):
        found = sorted((climb(density, z, factor) for z in starts), key=lambda one: -one.logp)
    distinct = []
    for one in found:
        if np.isfinite(one.logp) and not any(_same(one, other, factor) for other in distinct):
            distinct.append(one)
    return distinct


def _same(one, other, factor):
    """Whether two climbs have ended at one place, or of two that run off one is enough."""
    if not (one.is_settled and other.is_settled):
        return one.is_settled == other.is_settled
    w = np.linalg.solve(factor, one.z - other.z)
    return w @ other.curvature @ w / 2 < 2 * SETTLED
