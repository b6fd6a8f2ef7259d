"""CMH: componentwise Metropolis-Hastings, with one scale per coordinate.

Source: Roberts & Rosenthal, "Optimal scaling for various Metropolis-Hastings algorithms",
Statistical Science 16 (2001).

Symbols: those of sweeps.py, and σ_k the scale of coordinate k, α* the target acceptance.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.chain import Algorithm, nothing_derived
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import sum_of
from pymc_kameleon.core.scaling import (
    GOOD_GUESS,
    ScaleTuning,
    best_scale,
    default_target_accept,
    gain,
    settle_scale,
    tune_scale,
)
from pymc_kameleon.samplers.componentwise import sweeps
from pymc_kameleon.step.learned import COORDINATE, UNITS, Quantity
from pymc_kameleon.step.options import checked_scaling_bounds


class Parameters(NamedTuple):
    """What tuning decides."""

    log_scales: floats("d")  # log σ_k


class Tuning(NamedTuple):
    """What tuning remembers: the sweep t of n, and the scales' averages."""

    t: integers(1)
    n: int
    scale: ScaleTuning


class Work(NamedTuple):
    """What the last sweep did."""

    accept_prob: floats("d")  # of each coordinate


@jit
def move(target, state, parameters, k, work, rng):
    """Make a Metropolis step in coordinate k."""
    scale = np.exp(parameters.log_scales[k])
    work.accept_prob[k], accepted = sweeps.single_try(target, state, k, scale, rng)
    return 0, work.accept_prob[k], accepted


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Tune each log σ_k to the target acceptance; settle at its mean over the second half.

    In the first quarter the steps are 1: far from the posterior every other move is accepted,
    whatever the scale, so that it grows slowly.
    """
    t, n = tuning.t[0], tuning.n
    eta = gain(GOOD_GUESS + t - n // 4) if t >= n // 4 else 1.0
    for k in range(state.x.size):
        tune_scale(parameters.log_scales, tuning.scale, k, work.accept_prob[k], eta)
        settle_scale(parameters.log_scales, tuning.scale, k, t, n // 2, n)
    tuning.t[0] = t + 1


class Stats(NamedTuple):
    """What a draw tells of each coordinate: σ_k, and the share of accepted moves."""

    scaling: floats("d")
    accepted: floats("d")


@jit
def report(state, parameters, stats):
    """Report the scales and the shares of accepted moves; return the scales' geometric mean."""
    log_scales = parameters.log_scales
    d = log_scales.size
    for k in range(d):
        stats.scaling[k] = np.exp(log_scales[k])
        stats.accepted[k] = state.tally[k, 0, 1] / state.tally[0, 0, 0]
    return np.exp(sum_of(log_scales) / d)


class CMH(sweeps.Componentwise):
    r"""Componentwise Metropolis-Hastings: a random walk in one coordinate after the other.

    .. math:: z \sim N(x_k, \sigma_k^2), \qquad k = 1, \ldots, d

    The baseline of :class:`.CMTM`, and often as good per evaluation: for posteriors whose
    coordinates hardly correlate, whatever their scales.

    Parameters
    ----------
    scaling : float or array, optional
        σ_k, one number or (d,), to be kept fixed. By default they are tuned.
    scaling_bounds : (float, float), optional
        Least and largest σ_k; by default within a factor of 1e6 of where each starts.
    steps_per_draw : int, optional
        Sweeps per draw, 1 by default: a sweep makes d evaluations. Even without correlations an
        independent draw takes 4.5 sweeps, so 5 are good where the log-density is cheap.
    target_accept : float, optional
        Acceptance rate that each σ_k is tuned to; 0.44, the best in one dimension.
    {common parameters}

    Notes
    -----
    Each σ_k starts at 2.38 times the scale of the log-density around the start. log σ_k follows
    Robbins-Monro. The steps are 1 in the first quarter of tuning, which leaves far starts behind,
    and :math:`(11+t)^{-0.6}` counted from there. It settles at its mean over the second half.

    The statistic ``scaling`` is the geometric mean of all σ_k; ``cmh_scaling`` and
    ``cmh_accepted``, the share of accepted moves, are per coordinate. If other steps sample other
    continuous variables, their names end with those of this step's variables.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.CMH(steps_per_draw=5))  # a draw is five sweeps
    """

    name = "cmh"
    default_target_accept = staticmethod(lambda d: default_target_accept(1))
    stats = Stats
    algorithm = Algorithm(sweeps.sweep_by(move), adapt, nothing_derived, report)

    def __init__(self, vars=None, *, scaling=None, scaling_bounds=None, **common):
        log_bounds = checked_scaling_bounds(scaling_bounds)
        if scaling is not None and log_bounds is not None:
            raise ValueError("Give scaling, which is fixed, or scaling_bounds; not both.")
        self.settings = {"log_bounds": log_bounds}
        super().__init__(vars, scaling=scaling, **common)

    def _allocate(self, scales, n_tune):
        sizes, log_bounds = {"d": scales.size, "choices": 1}, self.settings["log_bounds"]
        if self.settings["scaling"] is None:
            start = np.log(best_scale(1) * scales)
        else:
            start = np.log(self._given_scales(scales.shape))
            log_bounds = start[:, None]
        log_scales, scale = ScaleTuning.start(self.target_accept, start, log_bounds)
        parameters = Parameters(log_scales)
        tuning = allocate(Tuning, sizes, n=n_tune, scale=scale)
        return allocate(sweeps.State, sizes), parameters, tuning, allocate(Work, sizes)

    def _learned(self):
        scales, what = np.exp(self.parameters.log_scales), "Standard deviation σ of each walk."
        return {"scaling": Quantity((COORDINATE,), scales, what, UNITS)}

    def _largest_n_logp(self):
        return self._d

    def _needed_tuning(self):
        return 0 if self.settings["scaling"] is not None else 100

    def _tuned_scales(self):
        if self.settings["scaling"] is not None:
            return []
        log_scales, bounds = self.parameters.log_scales, self.tuning.scale.bounds
        return [self._nearest_to_bounds("The scale", log_scales, bounds)]
