"""Every sampler leaves the target exactly invariant after tuning, and broken twins do not."""

import numpy as np
import pytest
from invariance import TARGETS, invariance_p_value, moved, tuned

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import multiply_lower
from pymc_kameleon.core.metropolis import move_or_stay
from pymc_kameleon.samplers import kam

SMALL = {cls: {"n_subsample": 60} for cls in (pk.KAM, pk.PCAKAM, pk.CyclicalKAM)}
LEVEL = 1e-3


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("sampler", pk.SAMPLERS)
def test_exact_draws_stay_exact(sampler, target):
    step = sampler(model=target.build(), steps_per_draw=10, **SMALL.get(sampler, {}))
    tuned(step, target)
    assert invariance_p_value(lambda x: moved(step, x), target) > LEVEL


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_doing_nothing_passes(target):
    assert invariance_p_value(lambda x: x, target) > LEVEL


@jit
def drifting_transition(target, state, parameters, work, rng):
    """RWM whose proposal drifts, without the Hastings term that it would need."""
    scale = np.exp(parameters.log_scale[0])
    for i in range(state.x.size):
        work.y[i] = state.x[i] + scale * (rng.standard_normal() + 0.1)
    return move_or_stay(target, state, work.y, rng)


@jit
def local_transition(target, state, parameters, work, rng):
    """KAM that takes its local proposal for a symmetric one."""
    gamma, nu = kam.scales(parameters)
    kam.locate(state, parameters, work)
    kam.factorise(state.covariance, gamma, nu, state.factor)
    for i in range(state.x.size):
        work.xi[i] = rng.standard_normal()
    multiply_lower(state.factor, work.xi, work.step)
    multiply_lower(parameters.whitening, state.u + work.step, work.y)
    return move_or_stay(target, state, work.y, rng)


class DriftingRWM(pk.RWM):
    name = "drifting"
    algorithm = pk.RWM.algorithm._replace(transition=drifting_transition)


class LocalKAM(pk.KAM):
    name = "local"
    algorithm = pk.KAM.algorithm._replace(transition=local_transition)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
@pytest.mark.parametrize("sampler", [DriftingRWM, LocalKAM])
def test_broken_twins_fail(sampler, target):
    arguments = SMALL[pk.KAM] if sampler is LocalKAM else {}
    step = tuned(sampler(model=target.build(), steps_per_draw=50, **arguments), target)
    assert invariance_p_value(lambda x: moved(step, x), target) < LEVEL
