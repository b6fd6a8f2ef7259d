"""What samplers with a single scale share: they tune it, report it, and warn of its bounds."""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.scaling import ScaleTuning, gain, settle_scale, tune_scale
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.initial_search import NoSearch


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

    def _start(self, scale, n_tune, bounds=None):
        """Return the log of the first scale, and its tuning."""
        log_scale, tuning = ScaleTuning.start(self.target_accept, np.log(scale), bounds)
        return log_scale, allocate(OneScaleTuning, {}, n=n_tune, scale=tuning)

    def _tuned_scales(self):
        return tuned_scale(self.parameters, self.tuning)
