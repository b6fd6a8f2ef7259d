"""A black box that counts its calls, in all processes, and returns what a test lets it return."""

from functools import cache
from multiprocessing import Value

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor import wrap_py

CALLS = Value("q", 0)


class Switch:
    """What the black box returns, which a test may change."""

    @staticmethod
    def usual(x):
        return -0.5 * x @ x - 0.1 * (x[0] - x[1] ** 2) ** 2

    function = usual


@wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])
def simulated(x):
    with CALLS.get_lock():
        CALLS.value += 1
    return np.asarray(Switch.function(x))


@cache
def counting():
    """Return a model of it."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 3, shape=2)
        pm.Potential("p", simulated(x))
    return model


def told(step):
    """Return a step whose own evaluations were told, and are over."""
    step.n_trials = CALLS.value = 0
    return step
