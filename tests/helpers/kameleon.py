"""Targets of the tests of KAM and its relatives, and what these report and redraw."""

from functools import cache

import numpy as np
import pymc as pm


def banana(x):
    return -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.3 * (x[0] ** 2 - 9)) ** 2)


@cache
def banana_model():
    with pm.Model() as model:
        pm.Potential("p", banana(pm.Flat("x", shape=2)))
    return model


@cache
def line_model():
    with pm.Model() as model:
        pm.Normal("x", [5.0], 0.01)
    return model


def redraws(kept):
    """Transitions after which there is a new z."""
    z = [p.subsample.z for p in kept]
    return [t for t in range(1, len(z)) if not np.array_equal(z[t], z[t - 1])]


def z_score(difference):
    return difference.mean() / (difference.std() / np.sqrt(len(difference)))
