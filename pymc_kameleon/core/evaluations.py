"""The log-density and its gradient at many points."""

from functools import cache

import numpy as np

from pymc_kameleon.core.jit import cached_jit, specialise
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.target import Target, address_array, evaluate


@cache
def compiled_evaluations():
    """Return the compiled loop over points, during which other threads run."""

    def evaluations(target, points, logp, gradients):
        """Write log π (n,) and ∇log π (n, d) at points (n, d)."""
        for i in range(logp.size):
            copy(points[i], target.point)
            logp[i] = evaluate(target)
            copy(target.gradient, gradients[i])

    one, many, none = np.zeros(1), np.zeros((1, 1)), np.zeros(0, np.int64)
    counts, rng = np.zeros(2, np.int64), np.random.default_rng(0)
    example = Target(0, one, one, none, np.zeros((2, 1)), counts, one, address_array([]), one, rng)
    return specialise(cached_jit(evaluations, (evaluate,)), example, many, one, many)
