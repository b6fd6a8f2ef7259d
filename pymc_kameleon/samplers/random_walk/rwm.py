"""RWM, a random walk with one scale; and the walk with a shape, too, that many samplers make.

Source: Gelman, Roberts & Gilks (1996) for the scale 2.38/√d. Symbols: those of adaptive.py, and ν
the scale.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.one_scale import OneScale, report_scale, tune_one_scale
from pymc_kameleon.step.learned import scale_of
from pymc_kameleon.step.options import checked_bool, checked_number


class State(NamedTuple):
    """What the next transition needs: the position and its log-density."""

    x: floats("d")
    logp: floats(1)


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition."""

    x: floats("d")  # before the move
    xi: floats("d")
    step: floats("d")  # √λ L ξ
    y: floats("d")
    v: floats("d")


@jit
def transition(target, state, parameters, work, rng):
    """Propose x + √λ L ξ."""
    copy(state.x, work.x)
    scale = np.exp(parameters.log_scale[0])
    return walk(target, state, scale, parameters.factor, work, rng)


@jit
def walk(target, state, scale, factor, work, rng):
    """Make a step of a random walk, x + scale · factor ξ."""
    normal_step(scale, factor, work.xi, work.step, rng)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + work.step[i]
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


# ---- RWM: L = I ---------------------------------------------------------------------------------


class RWMParameters(NamedTuple):
    """What tuning decides: log ν."""

    log_scale: floats(1)


@jit
def rwm_transition(target, state, parameters, work, rng):
    """Propose x + νξ."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * rng.standard_normal()
    return accept(target, state, work.y, log_density(target, work.y), 0.0, rng)


class RWM(OneScale):
    r"""Random-walk Metropolis with one scale.

    .. math:: y = x + \nu \xi, \qquad \xi \sim N(0, I)

    The baseline of the other samplers: it suits posteriors whose parameters have similar scales
    and hardly correlate. Otherwise prefer :class:`.GAM`.

    Parameters
    ----------
    scaling : float, optional
        ν at first, which is then tuned; by default 2.38/√d.
    tune_scaling : bool, optional
        False keeps ν fixed.
    {common parameters}

    Notes
    -----
    log ν follows [AT]'s Robbins-Monro recursion with step size :math:`(1+t)^{-0.6}` and settles at
    its mean over the second half of tuning.

    Examples
    --------
    >>> with model:
    ...     dt = pm.sample(step=pk.baselines.RWM(scaling=0.5, tune_scaling=False))  # a fixed scale
    """

    name = "rwm"
    algorithm = Algorithm(rwm_transition, tune_one_scale, nothing_derived, report_scale)

    def __init__(self, vars=None, *, scaling=None, tune_scaling=True, **common):
        if scaling is not None:
            scaling = checked_number("scaling", scaling, 0, np.inf)
        tune_scaling = checked_bool("tune_scaling", tune_scaling)
        self.settings = {"scaling": scaling, "tune_scaling": tune_scaling}
        super().__init__(vars, **common)

    def _allocate(self, scales, n_tune):
        sizes = {"d": scales.size}
        scale = self.settings["scaling"] or best_scale(scales.size)
        bounds = None if self.settings["tune_scaling"] else np.log([scale, scale])
        log_scale, tuning = self._start(scale, n_tune, bounds)
        parameters = RWMParameters(log_scale)
        return allocate(State, sizes), parameters, tuning, allocate(Work, sizes)

    def _needed_tuning(self):
        return super()._needed_tuning() if self.settings["tune_scaling"] else 0

    def _tuned_scales(self):
        return super()._tuned_scales() if self.settings["tune_scaling"] else []

    def _learned(self):
        return {"scaling": scale_of(self.parameters, "Standard deviation ν of the proposal.")}
