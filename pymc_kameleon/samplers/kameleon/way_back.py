"""How long KAM takes to come back from where its past is outermost, and what it tells then.

Away from z proposals are small, so that a chain seldom goes far out, and stays there for long. A
run without such a stay looks as good as any; what tuning has seen tells.

Symbols: as in kam.py; ū the mean of the past, in whitened coordinates.
"""

from math import ceil

import numpy as np

from pymc_kameleon.core.history import recent
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import grouped
from pymc_kameleon.samplers.kameleon.kernels import covariance_from

OUTER_SHARE = 0.05
"""Share of the past that is outermost."""

LONG_WAY, FEW_STAYS = 80.0, 20.0
"""Transitions that the way back may always take; stays out there from which it may take more."""


def slow_tails(step, subsample, gamma, nu):
    """Tell of a chain that is outermost so seldom, and for so long, that averages are luck."""
    if subsample.m[0] == 0:
        return None
    steps_back = transitions_back(step.tuning.past.history, subsample, gamma, nu)
    n = (step.monitor.done - step.monitor.tune) * step.steps_per_draw
    if not steps_back > LONG_WAY or OUTER_SHARE * n >= FEW_STAYS * steps_back:
        return None
    needed = ceil(FEW_STAYS * steps_back / OUTER_SHARE / step.steps_per_draw)
    return finding(
        "slow_tails", share=100 * OUTER_SHARE, transitions=steps_back, needed=grouped(needed)
    )


def transitions_back(history, subsample, gamma, nu):
    """Return the mean of |u − ū|²/tr R(u) over the outermost past; NaN if nothing has moved."""
    points, factor = history.points[slice(*recent(history))], np.tril(subsample.shape.factor)
    if len(points) == 0 or not factor.diagonal().min() > 0:
        return np.nan
    u = np.linalg.solve(factor, points.T)
    distances = np.square(u - u.mean(axis=1, keepdims=True)).sum(axis=0)
    outer = np.argsort(-distances, kind="stable")[: ceil(OUTER_SHARE * len(points))]
    seen = [
        covariance_from(subsample.kernel, subsample.z[:, : subsample.m[0]], u[:, i]) for i in outer
    ]
    variances = np.trace(seen, axis1=1, axis2=2)
    return np.mean(distances[outer] / (len(u) * gamma**2 + nu**2 * variances))
