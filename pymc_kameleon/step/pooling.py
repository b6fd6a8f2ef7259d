"""What chains share that learn together, and which of them do."""

import numpy as np

from pymc_kameleon.core.history import recent


def in_the_same_place(chains):
    """Return the chains whose log-densities are not far, 10 + 2d, below that of the best.

    Others have not arrived, or sit in a mode that does not count: they learn alone.
    """
    logps = np.array([chain.state.logp[0] for chain in chains])
    least = logps.max() - 10 - 2 * chains[0].state.x.size
    return [chain for chain, logp in zip(chains, logps, strict=True) if logp >= least]


def pool_histories(histories):
    """Let each record be of the newest half of all, as many states of each, in their order."""
    if len(histories) < 2:
        return
    parts = []
    for history in histories:
        rows = history.points[slice(*recent(history))]
        rows = rows[np.any(np.diff(rows, axis=0, prepend=np.nan) != 0, axis=1)]
        n = min(len(rows), len(history.points) // len(histories))
        parts.append(rows[np.linspace(0, len(rows) - 1, n).astype(int)])
    places = np.concatenate([np.linspace(0, 1, len(part)) for part in parts])
    pooled = np.concatenate(parts)[np.argsort(places, kind="stable")]
    for history in histories:
        history.points[: len(pooled)] = pooled
        history.counts[[0, 2]] = len(pooled), 0
