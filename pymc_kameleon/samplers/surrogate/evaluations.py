"""Evaluations of the log-density: what a result keeps of them."""

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.records import EVALUATION, thinned
from pymc_kameleon.step.learned import COORDINATE


def dataset_of(coordinates, tunings, exact, numbers, kept):
    """Return the evaluations that chains of these numbers have made, each point once, as a Dataset.

    `exact` (d,) are coordinates in which log π is quadratic; `kept` has what each chain has kept of
    its draws, empty if that is nothing.
    """
    tuned = [*map(_remembered, tunings)]
    drawn = [np.column_stack([moves["end"], moves["end_logp"]]) for moves in kept]
    parts, n_tuning = [*tuned, *drawn], sum(map(len, tuned))
    of_chain = np.repeat([*numbers, *numbers][: len(parts)], [*map(len, parts)])
    is_tuning = np.arange(len(of_chain)) < n_tuning
    rows = np.column_stack([np.concatenate(parts), of_chain, is_tuning])
    rows = each_once(rows, len(coordinates))
    z, (logp, of_chain, tuning) = rows[:, :-3], rows[:, -3:].T
    shown = thinned(len(rows), 8 * rows.shape[1])
    arrays = {
        "z": ((EVALUATION, COORDINATE), z[shown]),
        "logp": (EVALUATION, np.where(logp < np.inf, logp, -np.inf)[shown]),
        "of_chain": (EVALUATION, of_chain.astype(int)[shown]),
        "tuning": (EVALUATION, tuning.astype(bool)[shown]),
        "exact": (COORDINATE, exact),
    }
    return xr.Dataset(arrays, {COORDINATE: coordinates}, {"n_evaluations": len(rows)})


def _remembered(tuning):
    """Return the evaluations that a chain remembers, in their order: x and log π."""
    rows, n = tuning.remembered, tuning.n_remembered[0]
    return rows[:n] if n <= len(rows) else np.roll(rows, -(n % len(rows)), axis=0)


def each_once(rows, d):
    """Return rows whose first d numbers, a point, are finite, and of each point the first one."""
    rows = rows[np.isfinite(rows[:, :d]).all(axis=1)]
    return rows[np.sort(np.unique(rows[:, :d], axis=0, return_index=True)[1])]
