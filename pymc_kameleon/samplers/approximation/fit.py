"""What an ApproximationMetropolis asks of the fit that makes its approximation s.

Compiled, of a `Density`, which is a tuple of the target, arrays `s`, and scratch:

    log_density(density, u, gradient)  as in approximation/chain.py, which also has `jump`
    note(density, noted)               what the last evaluation of the log-density has shown besides
                                       its value, numbers (n,) that fits learn from

`algorithm_of` (metropolis.py) makes the sampler's compiled functions of these. All else is Python,
and in a class that derives from `Fit`. The arrays `s` have the fields of `Chain`.
"""

from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import LEAST_STOPS, MOST_STOPS, STOPS


class Nothing(NamedTuple):
    """Choices, or scratch, of a fit that needs none."""


class Arrays(NamedTuple):
    """What a fit adds to the arrays of a chain."""

    s: NamedTuple  # parameters: all that defines log s, and the chain on it
    choices: NamedTuple  # tuning: what the next fit knows of earlier ones; chains share it
    scratch: NamedTuple  # where log s is computed
    reused: np.ndarray  # what was taken up of earlier runs


class Evaluated(NamedTuple):
    """Evaluations of the log-density, one row for each."""

    z: np.ndarray  # (n, d)
    logp: np.ndarray  # (n,)
    log_s: np.ndarray  # (n,), NaN unless a move by s proposed it
    noted: np.ndarray  # (n, k), what the fit has noted

    def __getitem__(self, rows):
        return type(self)(*(part[rows] for part in self))


class Fit:
    """A fit of s. Its methods get steps, each with its `log_density`, `parameters` and `tuning`."""

    sizes = MappingProxyType({})  # of what is kept of draws, by name
    n_outputs = 0  # numbers that an evaluation leaves in ``log_density.gradient``
    n_noted = 0  # numbers that `note` writes

    def start(self, step, scales):
        """Return fresh Arrays."""
        raise NotImplementedError

    def density(self, step, rng):
        """Return the Approximation (approximation/chain.py) of a step's present arrays."""
        raise NotImplementedError

    def fit(self, chains, known, new):
        """Fit s to the Evaluated `known`; those of `new` were made since the last fit.

        What is fitted is written into the arrays of the first of the chains.
        """
        raise NotImplementedError

    def noted(self, step, z, outputs):
        """Return what `note` writes of an evaluation at z (d,)."""
        return np.zeros(0)

    def stops(self, d):
        """Return how often the chain on s stops, R."""
        return max(min(STOPS // d, MOST_STOPS), LEAST_STOPS)

    def judge(self, choices, log_w):
        """Learn from log π/s (n,) at the newest ends of moves by s."""

    def bound(self, step, density, known):
        """Settle where s ends, after the chain on it has learned its shape."""

    # ---- for the search --------------------------------------------------------------------------

    def misfit(self, step):
        """Return χ² of the best point, and of how many numbers, which tells a local mode."""
        return 0.0, 0

    def unpredicted(self, step, density, n):
        """Return the median error of the newest n evaluations, relative to how they vary."""
        return 0.0

    def is_guided(self, step):
        """Whether a coarse model tells where to climb."""
        return False

    def images(self, step):
        """Return what knows of mirror images, None where none are looked for."""

    def knows_enough(self, step):
        """Whether evaluations of earlier runs suffice for a fit."""
        return False
