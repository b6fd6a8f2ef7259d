"""What samplers share that move one coordinate at a time: CMH and CMTM.

Symbols: k a coordinate, x_k its value, σ a scale in this coordinate, ξ ~ N(0, 1), α the acceptance
probability. A transition is a sweep over all coordinates, t counts sweeps, n is the number of those
that tune.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import NO_CAP, log_uniform, metropolis
from pymc_kameleon.core.target import log_density_along
from pymc_kameleon.findings.finding import finding
from pymc_kameleon.findings.words import some
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.monitor import STUCK_SHARE, STUCK_TRANSITIONS


class State(NamedTuple):
    """What the next transition needs, and what happened since the draw began."""

    x: floats("d")
    logp: floats(1)
    idle: integers("d")  # sweeps since x_k last moved, in this draw or earlier ones
    tally: floats("d", "choices", 2)  # in this draw: how often each try was chosen, and accepted


# ---- a sweep ------------------------------------------------------------------------------------


def sweep_by(move):
    """Build the transition that moves one coordinate after the other.

    `move` maps (target, state, parameters, k, work, rng) to (choice, accept_prob, share accepted),
    and leaves the target where the chain is. The choice is a row of ``state.tally[k]``: the try
    that was selected; -1, thus the last row, may stand for none.
    """

    @jit
    def transition(target, state, parameters, work, rng):
        d = state.x.size
        copy(state.x, target.point)
        sum_accept_prob, sum_accepted = 0.0, 0.0
        for k in range(d):
            choice, accept_prob, accepted = move(target, state, parameters, k, work, rng)
            state.tally[k, choice, 0] += 1.0
            state.tally[k, choice, 1] += accepted
            state.idle[k] = 0 if accepted > 0.0 else state.idle[k] + 1
            sum_accept_prob += accept_prob
            sum_accepted += accepted
        return sum_accept_prob / d, sum_accepted / d

    return transition


@jit
def single_try(target, state, k, scale, rng):
    """Make a Metropolis step x_k + σξ; return α, and 1.0 if it was accepted, else 0.0."""
    y = state.x[k] + scale * rng.standard_normal()
    logp_y = log_density_along(target, k, y)
    accept_prob, accepted = metropolis(logp_y - state.logp[0], log_uniform(rng), NO_CAP)
    move_along(target, state, k, y, logp_y, accepted)
    return accept_prob, 1.0 if accepted else 0.0


@jit
def move_along(target, state, k, y, logp_y, accepted):
    """Move x_k to y if that was accepted, and the target to where the chain is."""
    if accepted:
        state.x[k] = y
        state.logp[0] = logp_y
    target.point[k] = state.x[k]


# ---- the class ----------------------------------------------------------------------------------


class Componentwise(KameleonStep):
    """What CMH and CMTM share: options, statistics and warnings per coordinate."""

    default_steps_per_draw = staticmethod(lambda d: 1)

    def __init__(self, vars=None, *, scaling, **common):
        self.settings |= {"scaling": checked_scaling(scaling)}
        super().__init__(vars, **common)

    def _given_scales(self, shape):
        """Return the user's scales in this shape; raise a ValueError if that is impossible."""
        given = self.settings["scaling"]
        try:
            return np.broadcast_to(given, shape).copy()
        except ValueError:
            raise ValueError(
                f"scaling must have shape {shape} or {shape[1:]}, not {given.shape}."
            ) from None

    def _stat_name(self, field):
        """Name the sampler, and its variables if others move more: PyMC stacks equal names."""
        names = [] if self.layout.covers_all_continuous else self.var_names
        return "_".join([self.name, field, *names])

    def _some(self, where):
        """Name coordinates, given by a mask."""
        return some([name for name, at in zip(self.layout.coordinates(), where, strict=True) if at])

    def _nearest_to_bounds(self, what, log_scales, bounds):
        """Return the scale (d,) that is nearest to one of its bounds, as `_tuned_scales` does."""
        distances = np.minimum(log_scales - bounds[:, 0], bounds[:, 1] - log_scales)
        names = self._some(distances <= 0.01 * np.ptp(bounds, axis=1))
        k = np.argmin(distances)
        return f"{what} of {names}", log_scales[k], bounds[k]

    def _findings(self):
        n = max(STUCK_TRANSITIONS, int(STUCK_SHARE * self.monitor.draws * self.steps_per_draw))
        are_idle = self.state.idle > n
        if not are_idle.any() or not self.monitor.accepted:
            return []
        return [finding("idle_coordinates", names=self._some(are_idle), n=n)]


def checked_scaling(scaling):
    """Return the user's scales as an array, or None; raise a ValueError unless all are positive."""
    if scaling is None:
        return None
    try:
        array = np.array(scaling)
    except ValueError:  # rows of different lengths
        array = np.array("")
    if array.dtype.kind not in "iuf" or not (np.isfinite(array) & (array > 0)).all():
        raise ValueError(f"scaling must be positive numbers, not {scaling!r}.")
    return array.astype(float)
