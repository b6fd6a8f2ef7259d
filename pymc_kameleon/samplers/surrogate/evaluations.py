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


def dataset_of(coordinates, tunings, numbers, kept):
    """Return the evaluations that chains have made, each point once, as a Dataset.

    Parameters
    ----------
    coordinates : list of str
        Their names.
    tunings : list of Tuning
        Of each chain.
    numbers : list of int
        Of the chains.
    kept : list of Dataset
        What each chain has kept of its draws, empty if that is nothing.
    """
    parts = [_remembered(tuning) for tuning in tunings]
    parts += [np.column_stack([moves["end"], moves["end_logp"]]) for moves in kept]
    lengths, n_tuning = [len(part) for part in parts], sum(map(len, parts[: len(tunings)]))
    of_chain = np.repeat([*numbers, *numbers][: len(parts)], lengths)
    rows = np.column_stack([np.concatenate(parts), of_chain, np.arange(sum(lengths)) < n_tuning])
    rows = each_once(rows, len(coordinates))
    z, (logp, of_chain, tuning) = rows[:, :-3], rows[:, -3:].T
    shown = thinned(len(rows), 8 * rows.shape[1])
    arrays = {
        "z": ((EVALUATION, COORDINATE), z[shown]),
        "logp": (EVALUATION, np.where(np.isnan(logp), -np.inf, logp)[shown]),
        "of_chain": (EVALUATION, of_chain.astype(int)[shown]),
        "tuning": (EVALUATION, tuning.astype(bool)[shown]),
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


def thinned(n, size):
    """Return which of n rows of so many bytes are kept."""
    most = max(1, min(MOST_ROWS, MOST_BYTES // size))
    return np.unique(np.linspace(0, n - 1, min(n, most)).astype(int))
