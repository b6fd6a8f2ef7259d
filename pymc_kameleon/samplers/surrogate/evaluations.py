"""Evaluations of the log-density: what a result keeps of them, and what a run takes up of these."""

import logging
from typing import NamedTuple

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.records import (
    EVALUATION,
    MOST_REUSED,
    OF_BEFORE,
    evenly,
    thinned,
)
from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.step.learned import COORDINATE

_log = logging.getLogger("pymc_kameleon")


def dataset_of(coordinates, tunings, exact, numbers, kept):
    """Return the evaluations that chains of these numbers have made, each point once, as a Dataset.

    Those of earlier runs come first. `exact` (d,) are coordinates in which log π is quadratic;
    `kept` has what each chain has kept of its draws, empty if that is nothing.
    """
    tuned = [tunings[0].known, *map(_remembered, tunings)]
    drawn = [np.column_stack([moves["end"], moves["end_logp"]]) for moves in kept]
    parts, n_tuning = [*tuned, *drawn], sum(map(len, tuned))
    of_chain = np.repeat([OF_BEFORE, *numbers, *numbers][: len(parts)], [*map(len, parts)])
    is_tuning = np.arange(len(of_chain)) < n_tuning
    rows = np.column_stack([np.concatenate(parts), of_chain, is_tuning])
    rows = each_once(rows, len(coordinates))
    z, (logp, of_chain, tuning) = rows[:, :-3], rows[:, -3:].T
    shown, n = thinned(len(rows), 8 * rows.shape[1]), np.count_nonzero(of_chain != OF_BEFORE)
    arrays = {
        "z": ((EVALUATION, COORDINATE), z[shown]),
        "logp": (EVALUATION, np.where(logp < np.inf, logp, -np.inf)[shown]),
        "of_chain": (EVALUATION, of_chain.astype(int)[shown]),
        "tuning": (EVALUATION, tuning.astype(bool)[shown]),
        "exact": (COORDINATE, exact),
    }
    return xr.Dataset(arrays, {COORDINATE: coordinates}, {"n_evaluations": n})


def _remembered(tuning):
    """Return the evaluations that a chain remembers, in their order: x and log π."""
    rows, n = tuning.remembered, tuning.n_remembered[0]
    return rows[:n] if n <= len(rows) else np.roll(rows, -(n % len(rows)), axis=0)


def each_once(rows, d):
    """Return rows whose first d numbers, a point, are finite, and of each point the first one."""
    rows = rows[np.isfinite(rows[:, :d]).all(axis=1)]
    return rows[np.sort(np.unique(rows[:, :d], axis=0, return_index=True)[1])]


# ---- what a run takes up ------------------------------------------------------------------------


class Reused(NamedTuple):
    """What a step takes up of earlier runs."""

    rows: np.ndarray  # (n, d + 1): x and log π
    exact: np.ndarray  # (d,) bool, coordinates in which log π is exactly quadratic
    n_calls: int = 0  # evaluations to see that log π is the same

    @classmethod
    def nothing(cls, d):
        """Return what a step takes up without earlier runs."""
        return cls(np.zeros((0, d + 1)), np.zeros(d, bool))


def reused_by(step, datasets):
    """Return the Reused of Datasets of evaluations; a ValueError says why they are of no use."""
    own, d = step.layout.coordinates(), step.layout.d
    for data in datasets:
        names = data[COORDINATE].values.tolist()
        if names != list(own):
            raise ValueError(
                f"evaluations are of the coordinates {', '.join(names)}, and this model has "
                f"{', '.join(own)}. pk.SurrogateMetropolis takes up those of the same model alone."
            )
    rows = [np.column_stack([data["z"], data["logp"]]) for data in datasets]
    rows = each_once(np.concatenate(rows), d)
    rows = rows[~np.isnan(rows[:, d])]
    if not np.isfinite(rows[:, d]).any():
        raise ValueError("evaluations have no finite log-density: there is nothing to take up.")
    best = rows[np.argmax(rows[:, d])]  # it, and some that are evenly spaced
    rows = rows[evenly(np.arange(len(rows)), MOST_REUSED)]
    rows = each_once(np.concatenate([best[None], rows]), d)
    exact = [data["exact"].values.astype(bool) for data in datasets if "exact" in data]
    return Reused(rows, np.any([np.zeros(d, bool), *exact], axis=0), _check_values(step, rows))


def _check_values(step, rows):
    """Raise a ValueError if log π is not what it was at two points; return how many there are."""
    order = np.argsort(-rows[:, -1], kind="stable")[: np.isfinite(rows[:, -1]).sum()]
    chosen = rows[np.unique(order[[0, len(order) // 2]])]
    _log.info(
        "Evaluating the log-density %s at points of evaluations that are reused, to see that it is "
        "the same. n_logp does not count this.",
        "once" if len(chosen) == 1 else "twice",
    )
    log_density = step.log_density.copy()
    log_density.read_data()
    for row in chosen:
        x, before = row[:-1].copy(), row[-1]
        now = log_density(x)
        if not np.isclose(now, before, rtol=REPEATABLE, atol=REPEATABLE):
            where = ", ".join(
                f"{k} = {v:.6g}" for k, v in zip(step.layout.coordinates(), x, strict=True)
            )
            raise ValueError(
                f"The log-density is not what it was in evaluations: at {where} it was "
                f"{before:.8g}, and is {now:.8g} now. Leave them out of reuse, or take those "
                "of this model, with the same data and priors."
            )
    return len(chosen)
