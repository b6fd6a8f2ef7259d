"""Schedules: positive numbers that decrease with the transition t."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.jit import jit


class Decay(NamedTuple):
    """A schedule start · ((delay + t)/delay)^-power over the transitions t = 0, 1, 2, and so on.

    Parameters
    ----------
    start : float
        Value at t = 0.
    delay : float, optional
        Transitions until it begins to fall.
    power : float, optional
        How fast it falls in the end; 0 for a constant.

    Examples
    --------
    >>> with model:
    ...     step = pk.GAM(learning_rate=pk.samplers.Decay(0.5, delay=100))  # halved at t = 300
    """

    start: float
    delay: float = 1.0
    power: float = 0.5


UNSET = Decay(np.nan)
"""Stands for a schedule that the user did not give."""


@jit
def decayed(schedule, t):
    """Value of a schedule at transition t."""
    return schedule.start * ((schedule.delay + t) / schedule.delay) ** -schedule.power
