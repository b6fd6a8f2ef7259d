"""Checks of the options that KAM and its relatives share."""

import numpy as np

from pymc_kameleon.samplers.kameleon.kernels import Gaussian, Linear, Matern
from pymc_kameleon.step.options import (
    checked_bool,
    checked_integer,
    checked_number,
    checked_scaling_bounds,
    checked_schedule,
)

KERNELS = Gaussian, Matern, Linear
"""Types of kernels."""


def checked_kernel_options(kernel, n_subsample, gamma, whiten, scaling_bounds):
    """Return the options that KAM and its relatives share; raise a ValueError for a bad one."""
    if kernel is None:
        kernel = Gaussian()
    if not isinstance(kernel, KERNELS):
        raise ValueError(
            f"kernel must be one of pk.samplers.kernels, as Gaussian(), not {kernel!r}."
        )
    if n_subsample is not None:
        n_subsample = checked_integer("n_subsample", n_subsample, at_least=2)
    log_bounds = checked_scaling_bounds(scaling_bounds)
    return {
        "kernel": kernel,
        "n_subsample": n_subsample,
        "gamma": None if gamma is None else checked_schedule("gamma", gamma),
        "whiten": checked_bool("whiten", whiten),
        "log_nu_bounds": np.full(2, np.nan) if log_bounds is None else log_bounds,
    }


def checked_redraw_decay(redraw_decay):
    """Return a as a float; raise a ValueError unless p_t → 0 and Σ p_t = ∞."""
    redraw_decay = checked_number("redraw_decay", redraw_decay, 0, np.inf)
    if redraw_decay > 1:
        raise ValueError(f"redraw_decay must be at most 1, not {redraw_decay!r}.")
    return redraw_decay


def checked_cycle(cycle_length, beta):
    """Return L, β and ⌊βL⌋; raise a ValueError if they are impossible."""
    cycle_length = checked_integer("cycle_length", cycle_length, at_least=2)
    beta = checked_number("beta", beta, 0, 1)
    n_exploration = int(beta * cycle_length + 1e-9)  # 0.29 · 100 is 29
    if not 0 < n_exploration < cycle_length:
        raise ValueError(
            "beta * cycle_length must be at least 1, and less than cycle_length, not "
            f"{beta * cycle_length}."
        )
    return {"cycle_length": cycle_length, "beta": beta, "n_exploration": n_exploration}
