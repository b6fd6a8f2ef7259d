"""Evaluations of the log-density, as a result keeps them: a Dataset, a row for each."""

import numpy as np
import xarray as xr

from pymc_kameleon.step.learned import COORDINATE

MOST_ROWS, MOST_BYTES = 20_000, 2**27
"""What a result keeps of evaluations, at most; of more, some that are evenly spaced."""

MOST_REMEMBERED = 3000
"""Evaluations of tuning, and before it, that a chain remembers, at most."""

OF_BEFORE = -1
"""Stands for the chain where an evaluation was taken up."""

EVALUATION = "evaluation"
"""The dimension of rows."""


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


def some_of_each(first, most):
    """Return at most so many rows, the `first` ones first; of more, half of each, evenly spaced."""
    own, others = np.flatnonzero(first), np.flatnonzero(~first)
    if len(first) > most:
        own = evenly(own, max(most // 2, most - len(others)))
        others = evenly(others, most - len(own))
    return np.concatenate([own, others])


def evenly(rows, n):
    """Return at most n rows, evenly spaced."""
    if len(rows) <= n:
        return rows
    return rows[np.linspace(0, len(rows) - 1, n).astype(int)]


def thinned(n, size):
    """Return which of n rows of so many bytes are kept."""
    most = max(1, min(MOST_ROWS, MOST_BYTES // size))
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
