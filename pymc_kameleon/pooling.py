"""Which chains learn together."""

import numpy as np


def in_the_same_place(chains):
    """Return the chains whose log-densities are not far below that of the best.

    A chain that has not come home yet, or sits in a place that does not count, is more than
    10 + 2d below: it learns alone, and does not spoil what the others learn.
    """
    logps = np.array([chain.state.logp[0] for chain in chains])
    least = logps.max() - 10 - 2 * chains[0].state.x.size
    return [chain for chain, logp in zip(chains, logps, strict=True) if logp >= least]
