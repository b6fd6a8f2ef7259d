"""What a run takes up of the log-densities that earlier ones have evaluated."""

import logging
from typing import NamedTuple

import numpy as np

from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.samplers.surrogate.evaluations import each_once, evenly
from pymc_kameleon.step.learned import COORDINATE

_log = logging.getLogger("pymc_kameleon")

MOST_REUSED = 2000
"""Evaluations that a chain takes up, at most; of more, the best one and some that are evenly
spaced."""


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
    """Return what the step takes up of Datasets of evaluations, a Reused.

    A ValueError says that they are of other coordinates, or another log-density, or none is finite.
    """
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
    best = rows[np.argmax(rows[:, d])]
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
                f"{before:.8g}, and is {now:.8g} now. Leave evaluations out, or take those of this "
                "model, with the same data and priors."
            )
    return len(chosen)
