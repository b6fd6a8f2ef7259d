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


class EssTarget:
    """Whether bulk and tail ESS of all parameters are reached, and R-hat is near 1.

    The parameter that lacked most is looked at first, and alone, as all of many take a while.
    """

    def __init__(self, target_ess):
        self._target_ess, self._worst = target_ess, None

    def reached(self, draws):
        """Look at draws (chain, draw) of parameters."""
        values = side_by_side(draws)
        if self._worst is not None and self._lack(values[..., [self._worst]])[0] > 0:
            return False
        lack = self._lack(values)
        self._worst = int(np.argmax(lack))
        return bool((lack <= 0).all())

    def _lack(self, values):
        """Return what each parameter lacks, 0 if it has enough."""
        draws = xr.DataArray(values, dims=("chain", "draw", "parameter"))
        ess = [np.asarray(pm.stats.ess(draws, method=method)) for method in ("bulk", "tail")]
        lack = np.maximum(0, 1 - np.nan_to_num(np.minimum(*ess)) / self._target_ess)
        if len(values) > 1:
            rhat = np.asarray(pm.stats.rhat(draws))
            lack = np.where(rhat <= HIGH_RHAT, lack, np.maximum(lack, 1e-9))
        return lack
