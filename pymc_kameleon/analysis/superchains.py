"""Superchains: groups of chains that begin at the same point, and nested R-hat, which uses them.

Source: Margossian, Hoffman, Sountsov, Riou-Durand, Vehtari & Gelman, "Nested R-hat: assessing the
convergence of Markov chain Monte Carlo when running many short chains", Bayesian Analysis 20
(2025).
"""

import numpy as np

SIZE, LEAST, MOST = 4, 4, 16
"""Chains of a superchain, about; and superchains, at least and at most."""


def superchains(n):
    """Return the number of the superchain of each of n chains, (n,) int64."""
    k = int(np.clip(n // SIZE, min(LEAST, n), MOST))
    return np.arange(n) * k // n
