"""Schedules."""

import numpy as np
import pytest
import reference

import pymc_kameleon as pk
from pymc_kameleon.core.schedules import UNSET, Decay, decayed


@pytest.mark.parametrize(
    "schedule", [Decay(2.0), Decay(0.3, 10.0), Decay(5.0, 0.5, 2.0), Decay(1e-8, 1e6, 0.1)]
)
def test_decayed(schedule):
    t = np.array([0, 1, 2, 17, 100_000])
    values = np.array([decayed(schedule, i) for i in t])
    np.testing.assert_allclose(values, reference.decayed(schedule, t), rtol=1e-13)
    assert values[0] == schedule.start
    assert (np.diff(values) < 0).all()


def test_by_default_it_falls_with_the_square_root():
    assert [decayed(Decay(3.0), t) for t in (0, 3, 8)] == pytest.approx([3, 1.5, 1])


def test_it_has_halved_after_three_delays():
    assert decayed(Decay(3.0, 40.0), 120) == pytest.approx(1.5)


@pytest.mark.parametrize("t", [0, 1, 10**9])
def test_without_power_it_is_constant(t):
    assert decayed(Decay(0.7, 3.0, 0.0), t) == 0.7


def test_what_the_user_did_not_give_is_nan():
    assert np.isnan(decayed(UNSET, 5))


def test_is_public():
    assert pk.samplers.Decay is Decay
