"""Averages by a Gaussian process of the log-density, where evaluations are few.

docs/estimates_methods.md explains them. Each average is the one of two, by moves and by the process
(samplers/surrogate/active/averages.py), that has the smaller error.
"""

from contextlib import suppress
from functools import lru_cache

import numpy as np

from pymc_kameleon.analysis.batches import NUMBERS_PER_PART, Corrected
from pymc_kameleon.approximation.linalg import linear_algebra
from pymc_kameleon.approximation.records import evenly
from pymc_kameleon.samplers.surrogate.active.averages import ProcessPosterior
from pymc_kameleon.samplers.surrogate.active.search import suits
from pymc_kameleon.samplers.surrogate.active.star import least_exact
from pymc_kameleon.samplers.surrogate.active.way import Known
from pymc_kameleon.samplers.surrogate.evaluations import each_once
from pymc_kameleon.samplers.surrogate.moves import generator_of
from pymc_kameleon.step.learned import COORDINATE

MOST_EVALUATIONS, LEAST_EVALUATIONS = 500, (10, 3)
"""Evaluations that a process is fitted to, at most; and at least, and times d."""

MOST_WITH_EXACT, FIRST_WITH_EXACT = 3000, 400
"""Evaluations up to which there is one if the log-density is exactly quadratic in most coordinates;
it is fitted to so many of these as otherwise, the first ones, of the search, and then others."""

LEAST_COVERED, MOST_SCALE, LEAST_EFFECTIVE = 0.8, 4.0, 30
"""Share of the draws of each chain that are where the process knows a posterior, at least; by how
much its errors may be too small, at values that were left out; and points that a path's averages
rest on, at least. Else it is not believed."""

MOST_OUTSIDE = 0.003
"""Share of its draws near its wall up to which it is believed: others are cut off."""

ATTEMPTS, GOOD_ERROR = 3, 0.2
"""Sets of paths, at most, until their averages rest on enough points, and the errors of all
coordinates' means and standard deviations are less than this, in standard deviations."""

ROUNDING = 1e-12
"""Error, by the average, that rounding has where a function is the same everywhere."""

NOTHING = object()
"""Stands for what a process knows that is not to be believed."""


def known_of(data, kept):
    """Return what a process knows of the posterior, by Datasets of evaluations and of moves.

    It is NOTHING if it is not to be believed, None with too many evaluations for one, or too few.
    """
    d = data.sizes[COORDINATE]
    rows = np.column_stack([data[name].values.astype(np.float64) for name in ("z", "logp")])
    rows = each_once(rows, d)  # calls that were taken up of earlier runs have no place
    n, z, logp = len(rows), rows[:, :-1], np.where(rows[:, -1] < np.inf, rows[:, -1], -np.inf)
    exact = data["exact"].values.astype(bool) if "exact" in data else np.zeros(d, bool)
    least = LEAST_EVALUATIONS[0] + LEAST_EVALUATIONS[1] * d
    most = MOST_WITH_EXACT if exact.sum() >= least_exact(d) else MOST_EVALUATIONS
    if not suits(d) or not least <= max(n, data.attrs["n_evaluations"]) <= most:
        return None
    if n > MOST_EVALUATIONS:
        others = evenly(np.arange(FIRST_WITH_EXACT, n), MOST_EVALUATIONS - FIRST_WITH_EXACT)
        some = np.concatenate([np.arange(FIRST_WITH_EXACT), others])
        z, logp = z[some], logp[some]
    posterior = _posterior(z.tobytes(), logp.tobytes(), exact.tobytes())
    if posterior is NOTHING or posterior.scale > MOST_SCALE or posterior.outside > MOST_OUTSIDE:
        return NOTHING
    draws = kept["start"].transpose("chain", "draw", ...).values
    covered = min(map(posterior.covers, draws))
    is_known = posterior.n_effective >= LEAST_EFFECTIVE and covered >= LEAST_COVERED
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
            error = _largest_error(found) if found.n_effective >= LEAST_EFFECTIVE else np.inf
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


def with_process(found, values, known, function):
    """Return Corrected averages of functions, each by the process if its error is smaller.

    `found` are those by moves, or None; `function` gives values (n, q) at points. The error by
    moves is no smaller than that of as many independent draws, by the sd that the process knows.
    Without moves the draws of each chain count as one. Where neither has an error, it is NaN.
    """
    q, of_draws = values.shape[2], values.mean(axis=(0, 1))
    mean, error, sd = np.zeros(q), np.full(q, np.inf), np.zeros(q)
    with np.errstate(all="ignore"):
        if known is not NOTHING:
            mean, error, sd = known.averages(function, max(1, NUMBERS_PER_PART // q))
        is_alone = found is None and known is not NOTHING
        if found is None:
            of_one = values.std(axis=(0, 1)) / np.sqrt(len(values))
            mcse = of_one if is_alone else np.full(q, np.inf)
            if is_alone:
                error = np.fmin(error, np.hypot(of_one, mean - of_draws))
            halves = np.full((2, q), np.nan)
            found = Corrected(of_draws, mcse, np.ones(q), True, np.ones(q), halves)
        mcse = found.mcse * np.where(found.is_better, 1, np.sqrt(found.gain))
        # Draws that have missed a tail agree too well.
        counted = values.shape[0] * values.shape[1] * np.where(found.is_better, found.gain, 1)
        mcse = np.fmax(mcse, np.where(mcse > 0, sd / np.sqrt(counted), 0))
        is_known = (mcse > 0) & (np.ptp(values, axis=(0, 1)) > 0)
        is_told = error > ROUNDING * np.abs(mean)
        mcse, error = np.where(is_known, mcse, np.inf), np.where(is_told, error, np.inf)
        other = np.where(found.is_better, found.mean, of_draws)
        by_process = (error < mcse) | (is_alone & (error < np.inf))
        beyond_errors = np.square(mean - other) - mcse**2 - error**2
        variance = np.where(by_process, error, mcse) ** 2 + np.fmax(beyond_errors, 0)
        gain = found.gain * found.mcse**2 / variance
        return found._replace(
            mean=np.where(by_process, mean, other),
            mcse=np.where(variance < np.inf, np.sqrt(variance), np.nan),
            gain=np.where(np.isfinite(gain) & (gain > 0), gain, 1),
            is_better=by_process | found.is_better,
            disagreement=np.where(by_process, 1, found.disagreement),
            by_process=by_process,
            sd=sd,
        )
