"""``pk.compare_models``: evidences side by side."""

from numbers import Real

import numpy as np
import pandas as pd
from scipy.special import logsumexp

from pymc_kameleon.approximation.records import MANY_DRAWS


def table_of(evidences, prior=None):
    """Return the table of ``pk.compare_models`` of named evidences, with prior odds of models."""
    names = list(evidences)
    log_z = np.array([evidences[name].log_evidence for name in names])
    errors = np.array([evidences[name].standard_error for name in names])
    odds = np.array([1.0 if prior is None else float(prior[name]) for name in names])
    log_odds = np.log(odds / odds.sum())
    draws = log_z + errors * np.random.default_rng(0).standard_normal((MANY_DRAWS, len(names)))
    best = int(np.nanargmax(log_z)) if np.isfinite(log_z).any() else 0
    probability = _probabilities(log_z + log_odds)
    with np.errstate(invalid="ignore"):
        table = pd.DataFrame(
            {
                "log_evidence": log_z,
                "standard_error": errors,
                "log_bayes_factor": log_z - log_z[best],
                "log_bayes_factor_error": np.where(
                    np.arange(len(names)) == best, 0.0, np.hypot(errors, errors[best])
                ),
                "probability": probability,
                "probability_error": _probabilities(draws + log_odds).std(axis=0),
                "evaluations": [evidences[name].evaluations for name in names],
            },
            index=pd.Index(names, name="model"),
        )
    return table.sort_values("log_evidence", ascending=False, kind="stable")


def differing_data(results):
    """Return two names of results that have observed different numbers, sorted, or None."""
    known = {name: _numbers_observed(dt) for name, dt in results.items()}
    known = {name: numbers for name, numbers in known.items() if numbers.size}
    first = next(iter(known), None)
    for name, numbers in known.items():
        if not np.array_equal(numbers, known[first], equal_nan=True):
            return first, name
    return None


def _numbers_observed(dt):
    """Return all numbers that a result has observed, sorted."""
    data = dt["observed_data"].data_vars.values() if "observed_data" in dt.children else ()
    numbers = [own.values.ravel() for own in data if own.dtype.kind in "biuf"]
    return np.sort(np.concatenate([np.zeros(0), *numbers]))


def _probabilities(logs):
    """Return probabilities (..., models) of their logarithms, but for a constant."""
    return np.exp(logs - logsumexp(logs, axis=-1, keepdims=True))


def checked_prior(prior, names):
    """Raise a ValueError unless there is a positive number for each model."""
    if prior is None:
        return
    if not isinstance(prior, dict) or set(prior) != set(names):
        raise ValueError(f"prior must be a dict with a number for each of {list(names)}.")
    if not all(isinstance(own, Real) and 0 < own < np.inf for own in prior.values()):
        raise ValueError(f"prior must be positive numbers, not {prior}.")
