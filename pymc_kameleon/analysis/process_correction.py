"""Averages by a Gaussian process of the log-density, where evaluations are few.

docs/estimates_methods.md explains them; samplers/surrogate/active/averages.py has the process.
"""

from contextlib import suppress
from functools import lru_cache

import numpy as np

from pymc_kameleon.analysis.batches import Corrected
from pymc_kameleon.analysis.corrections import Correction, NotCorrected
from pymc_kameleon.approximation.linalg import linear_algebra
from pymc_kameleon.approximation.records import MANY_DRAWS, MOST_REMEMBERED, evenly
from pymc_kameleon.core.conventions import FEW, NUMBERS_PER_PART
from pymc_kameleon.samplers.surrogate.active.averages import ProcessPosterior
from pymc_kameleon.samplers.surrogate.active.star import least_exact
from pymc_kameleon.samplers.surrogate.active.way import MOST_FOR_ALL, Known
from pymc_kameleon.samplers.surrogate.initial_search import suits
from pymc_kameleon.samplers.surrogate.moves import each_once, generator_of
from pymc_kameleon.step.groups import APPROXIMATIONS, EVALUATIONS
from pymc_kameleon.step.learned import COORDINATE

MOST_EVALUATIONS, LEAST_EVALUATIONS = 500, (10, 3)
"""Evaluations that a process is fitted to, at most; and at least, and times d."""

MOST_WITH_EXACT = MOST_REMEMBERED
"""Evaluations up to which there is one if the log-density is exactly quadratic in most coordinates;
it is fitted to as many of these as otherwise, those of the search, and then others."""

LEAST_COVERED, MOST_SCALE = 0.8, 4.0
"""Share of the draws of each chain that are where the process knows a posterior, at least; and by
how much its errors may be too small, at values that were left out. Else it is not believed, nor if
a path's averages rest on few points."""

MOST_OUTSIDE = 0.003
"""Share of its draws near its wall up to which it is believed: others are cut off."""

ATTEMPTS, GOOD_ERROR = 3, 0.2
"""Sets of paths, at most, until their averages rest on enough points, and the errors of all
coordinates' means and standard deviations are less than this, in standard deviations."""

NOTHING = object()
"""Stands for what a process knows that is not to be believed."""


def by_process(result):
    """Return the Correction by a process, which has no error if it is not to be believed."""
    if result.group not in APPROXIMATIONS or EVALUATIONS not in result.dt.children:
        raise NotCorrected("")
    known = known_of(result.dt[EVALUATIONS].to_dataset(), result.kept)
    is_believed = known is not NOTHING

    def batches(values, function):
        q = values.shape[2]
        mean, error, sd = np.zeros(q), np.full(q, np.inf), np.zeros(q)
        if is_believed:
            with np.errstate(all="ignore"):
                mean, error, sd = known.averages(function, max(1, NUMBERS_PER_PART // q))
        one, halves = np.ones(q), np.full((2, q), np.nan)
        return Corrected(mean, error, one, np.full(q, is_believed), halves, sd=sd)

    draws = evenly(known.draws, MANY_DRAWS) if is_believed else None
    return Correction(batches, is_anew=True, is_approximate=True, draws=draws)


def known_of(data, kept):
    """Return what a process knows of the posterior, by Datasets of evaluations and of moves.

    It is NOTHING if it is not to be believed. Raise NotCorrected with too many, or too few.
    """
    d = data.sizes[COORDINATE]
    rows = np.column_stack([data[name].values.astype(np.float64) for name in ("z", "logp")])
    rows = each_once(rows, d)  # calls that were taken up of earlier runs have no place
    n, z, logp = len(rows), rows[:, :-1], np.where(rows[:, -1] < np.inf, rows[:, -1], -np.inf)
    exact = data["exact"].values.astype(bool) if "exact" in data else np.zeros(d, bool)
    least = LEAST_EVALUATIONS[0] + LEAST_EVALUATIONS[1] * d
    most = MOST_WITH_EXACT if exact.sum() >= least_exact(d) else MOST_EVALUATIONS
    if not suits(d) or not least <= max(n, data.attrs["n_evaluations"]) <= most:
        raise NotCorrected("")
    if n > MOST_EVALUATIONS:
        others = evenly(np.arange(MOST_FOR_ALL, n), MOST_EVALUATIONS - MOST_FOR_ALL)
        some = np.concatenate([np.arange(MOST_FOR_ALL), others])
        z, logp = z[some], logp[some]
    posterior = _posterior(z.tobytes(), logp.tobytes(), exact.tobytes())
    if posterior is NOTHING or posterior.scale > MOST_SCALE or posterior.outside > MOST_OUTSIDE:
        return NOTHING
    draws = kept["start"].transpose("chain", "draw", ...).values
    covered = min(map(posterior.covers, draws))
    is_known = posterior.n_effective >= FEW and covered >= LEAST_COVERED
    return posterior if is_known else NOTHING


@lru_cache(4)
def _posterior(z, logp, exact):
    """Return the ProcessPosterior of arrays, as bytes; NOTHING if there is none."""
    logp, exact = np.frombuffer(logp), np.frombuffer(exact, bool)
    z = np.frombuffer(z).reshape(len(logp), len(exact))
    known = Known(z, logp, exact)
    if not known.is_enough:
        return NOTHING
    rng, found, best, least = generator_of(z), None, NOTHING, np.inf
    for _ in range(ATTEMPTS):
        with suppress(np.linalg.LinAlgError), linear_algebra().limit(limits=1):
            found = found.again(rng) if found else ProcessPosterior(known, rng)
            error = _largest_error(found) if found.n_effective >= FEW else np.inf
            if error < least or best is NOTHING:
                best, least = found, error
            if error < GOOD_ERROR:
                break
    return best


def _largest_error(posterior):
    """Return the largest error of the mean or sd of a coordinate, in its standard deviations."""
    mean, _, sd = posterior.averages(lambda x: x, NUMBERS_PER_PART)

    def of_both(x):
        z = (x - mean) / sd
        return np.concatenate([z, z**2 / 2], axis=1)

    _, error, _ = posterior.averages(of_both, NUMBERS_PER_PART)
    return float(np.nan_to_num(error, nan=np.inf).max())
