"""Schedules."""

import numpy as np
import pytest
import reference

from pymc_kameleon.core.schedules import Decay, decayed


@pytest.mark.parametrize(
    "schedule", [Decay(2.0), Decay(0.3, 10.0), Decay(5.0, 0.5, 2.0), Decay(1e-8, 1e6, 0.1)]
)
def test_decayed(schedule):
    t = np.array([0, 1, 2, 17, 100_000])
    values = np.array([decayed(schedule, i) for i in t])
    np.testing.assert_allclose(values, reference.decayed(schedule, t), rtol=1e-13)
    assert values[0] == schedule.start
    assert (np.diff(values) < 0).all()
