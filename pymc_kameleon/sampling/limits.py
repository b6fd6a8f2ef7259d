"""When a run of `pk.sample` is to end before its last draw."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pymc as pm
import xarray as xr

from pymc_kameleon.analysis.draws_of_result import side_by_side
from pymc_kameleon.analysis.limits_of_r_hat import HIGH_RHAT

LOOK_GROWTH = 1.2
"""Growth of the numbers of draws at which `target_ess` is looked at."""


@dataclass
class Limits:
    """When a run is to end, and what is called meanwhile."""

    callback: Callable | None
    max_time: float | None  # seconds
    target_ess: float | None
    parameters: list  # names of those whose ESS is meant


def next_look(look):
    """Return at which draw `target_ess` is looked at after this one."""
    return int(np.ceil(LOOK_GROWTH * look))


def has_enough(draws, target_ess):
    """Whether bulk and tail ESS of all parameters are reached, and R-hat is near 1."""
    values = xr.DataArray(side_by_side(draws), dims=("chain", "draw", "parameter"))
    for method in ("bulk", "tail"):
        ess = np.asarray(pm.stats.ess(values, method=method))
        if not (ess >= target_ess).all():
            return False
    return len(values) == 1 or bool((np.asarray(pm.stats.rhat(values)) <= HIGH_RHAT).all())
