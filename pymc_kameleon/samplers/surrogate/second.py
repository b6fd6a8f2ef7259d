"""Surrogates that have learned from draws after tuning, too, for plots and small budgets.

The surrogate of a chain is frozen when tuning ends. What all chains evaluate after that would make
it better, but the chain that moves by it inexact. So these surrogates propose nothing. That of a
chain has learned from all others, and not from the chain itself, whose own evaluations tell what
it is worth.
"""

import numpy as np

from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.archive import whitened, worth_fitting
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.effort import EXPENSIVE
from pymc_kameleon.samplers.surrogate.emulator import Emulator
from pymc_kameleon.samplers.surrogate.fit import Hyper

SECOND_EFFORT = EXPENSIVE._replace(n_scored=300)
"""What a fit may cost."""

SECOND_SEED = 22
"""Seed of the choice of points."""


def with_second_surrogates(moves):
    """Return Moves with surrogates that have learned from all other chains; and whether all have.

    One that had as many points as it may have before, or is a quadratic, remains.
    """
    parameters, log_s = list(moves.parameters), list(moves.log_s)
    for row, own in enumerate(moves.parameters):
        seen = np.delete(moves.seen, row, axis=0).reshape(-1, own.mean.size + 1)
        second = _second_surrogate(own, seen)
        if second is not None:
            names = log_s[row].coordinates
            parameters[row] = own._replace(surrogate=second)
            log_s[row] = Emulator(names, own.mean, own.factor, second, np.nan)
    learned = moves._replace(parameters=parameters, log_s=log_s)
    return learned, all(a is not b for a, b in zip(log_s, moves.log_s, strict=True))


def _second_surrogate(own, seen):
    """Return a Surrogate fitted to points (n, d + 1), their log-densities last, and own's points.

    None, if own has no kernels, or as many as there may be.
    """
    surrogate, n, d = own.surrogate, own.surrogate.n[0], own.mean.size
    seen = np.unique(seen[np.isfinite(seen).all(axis=1)], axis=0)
    if not 0 < n < SECOND_EFFORT.n_centres or len(seen) == 0:
        return None
    centres = surrogate.centres[:, :n].T / surrogate.rates
    u = np.concatenate([whitened(seen[:, :-1], own.mean, own.factor), centres])
    f = np.concatenate([seen[:, -1], fit.values(surrogate, centres)])
    level, nu = np.median(seen[:, -1]), surrogate.nu[0]
    rng = np.random.default_rng(SECOND_SEED)
    rows = rng.permutation(worth_fitting(u, f - level, SECOND_EFFORT.n_centres, rng))
    u, f, is_new = u[rows], f[rows], rows < len(seen)
    second = allocate(Surrogate, {"d": d, "m": len(rows)})
    with np.errstate(all="ignore"):
        error = fit.fit(second, u, f, is_new, Hyper.start(d), nu, SECOND_EFFORT, level)[1]
    second.bounds[0] = surrogate.bounds[0]  # as low as tuning has found tails to be
    return second if error < np.inf else None
