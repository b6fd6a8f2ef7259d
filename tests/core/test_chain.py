"""What an algorithm's functions are called for."""

import numpy as np
import pytest
from models import normal

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.target import log_density


@jit
def leap(target, state, parameters, tuning, work, rng):
    """Go farther than any transition does, by what tuning knows."""
    state.x[0] = 100.0 + tuning.t[0]
    state.logp[0] = log_density(target, state.x)
    return 1.0, True


class Leaping(pk.baselines.RWM):
    name = "leaping"
    algorithm = pk.baselines.RWM.algorithm._replace(tuning_transition=leap)


@pytest.mark.parametrize("tune", [0, 5])
def test_a_tuning_transition_is_made_while_tuning_only(tune):
    step, positions = Leaping(model=normal((1,)), steps_per_draw=2), []
    step.setup_chain(np.random.default_rng(1), tune, 200)
    point = {"x": np.zeros(1)}
    for i in range(tune + 200):
        if i == tune:
            step.stop_tuning()
            point = {"x": np.zeros(1)}
        point, _ = step.step(point)
        positions.append(point["x"][0])
    np.testing.assert_array_equal(positions[:tune], 101.0 + 2 * np.arange(tune))
    after = np.array(positions[tune:])
    assert np.abs(after).max() < 10 * 2.38
    assert len(np.unique(after)) > 3
