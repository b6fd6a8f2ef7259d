"""What samplers with a single scale share: they tune it, report it, and warn of its bounds."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.scaling import ScaleTuning, gain, settle_scale, tune_scale
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.initial_search import NoSearch
from pymc_kameleon.step.options import checked_bool, checked_number, checked_scaling_bounds


class OneScaleTuning(NamedTuple):
    """What tuning remembers: the transition t of n, and the scale's averages."""

    t: integers(1)
    n: int
    scale: ScaleTuning


@jit
def tune_one_scale(state, parameters, tuning, work, accept_prob, rng):
    """Tune the log of the scale to the target acceptance [Andrieu & Thoms 2008, section 4.2.2]."""
    t = tuning.t[0]
    tune_scale(parameters.log_scale, tuning.scale, 0, accept_prob, gain(t))
    settle_scale(parameters.log_scale, tuning.scale, 0, t, tuning.n // 2, tuning.n)
    tuning.t[0] = t + 1


@jit
def report_scale(state, parameters, stats):
    """Report the scale."""
    return np.exp(parameters.log_scale[0])


def tuned_scale(parameters, tuning):
    """Return the one scale that is tuned, as a step does."""
    return [("The scale", parameters.log_scale[0], tuning.scale.bounds[0])]


class OneScale(KameleonStep):
    """A sampler that tunes one scale, by `tune_one_scale`."""

    initial_search = NoSearch

    def __init__(
        self, vars=None, *, scaling=None, tune_scaling=True, scaling_bounds=None, **common
    ):
        self.settings = checked_scaling(scaling, tune_scaling, scaling_bounds)
        super().__init__(vars, **common)

    def _start(self, scale, n_tune):
        """Return the log of the first scale, by default of this one, and its tuning."""
        settings = self.settings
        start = np.log(scale if settings["scaling"] is None else settings["scaling"])
        bounds = settings["scaling_bounds"] if settings["tune_scaling"] else np.full(2, start)
        log_scale, tuning = ScaleTuning.start(self.target_accept, start, bounds)
        return log_scale, allocate(OneScaleTuning, {}, n=n_tune, scale=tuning)

    def _needed_tuning(self):
        return super()._needed_tuning() if self.settings["tune_scaling"] else 0

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning) if self.settings["tune_scaling"] else []


def checked_scaling(scaling, tune_scaling, bounds):
    """Return settings of a sampler with one scale: its start, whether it is tuned, its bounds."""
    log_bounds = checked_scaling_bounds(bounds)
    if scaling is not None:
        scaling = checked_number("scaling", scaling, 0, np.inf)
    if not checked_bool("tune_scaling", tune_scaling):
        if bounds is not None:
            raise ValueError("Give tune_scaling=False, or scaling_bounds; not both.")
    elif None not in (scaling, bounds) and not bounds[0] <= scaling <= bounds[1]:
        raise ValueError(f"scaling must lie within scaling_bounds, {bounds!r}, not be {scaling!r}.")
    return {"scaling": scaling, "tune_scaling": bool(tune_scaling), "scaling_bounds": log_bounds}
