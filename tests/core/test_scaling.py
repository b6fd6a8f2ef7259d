"""Robbins-Monro against a slow version."""

import numpy as np
import pytest

from pymc_kameleon.core.scaling import (
    ScaleTuning,
    default_target_accept,
    gain,
    set_scale,
    settle_scale,
    tune_scale,
)


@pytest.mark.parametrize("stop", [1, 2])
def test_settle_needs_one_transition(stop):
    """A `start` that never comes, as in a very short tuning phase, counts as the last one."""
    log_scale, tuning = ScaleTuning.start(0.4, 0.0, [-5.0, 5.0])
    for t in range(stop):
        tune_scale(log_scale, tuning, 0, 1.0, gain(t))
        last = log_scale[0]
        settle_scale(log_scale, tuning, 0, t, stop, stop)
    assert log_scale[0] == last


@pytest.mark.parametrize("k", range(3))
def test_a_scale_stays_within_a_factor_of_a_million_of_its_start(k):
    starts = [-40.0, 0.0, 3.0]
    log_scales, tuning = ScaleTuning.start(0.3, starts)
    np.testing.assert_array_equal(log_scales, starts)
    for value, sign in [(1e3, 1), (-1e3, -1)]:
        set_scale(log_scales, tuning, k, value)
        assert log_scales[k] == pytest.approx(starts[k] + sign * 6 * np.log(10), rel=1e-12)


@pytest.mark.parametrize(("start", "moved"), [(-3.0, -1.0), (0.5, 0.5), (7.0, 2.0)])
def test_a_start_outside_the_bounds_of_the_user_is_moved_to_them(start, moved):
    log_scale, tuning = ScaleTuning.start(0.3, start, (-1, 2))
    np.testing.assert_array_equal(log_scale, [moved])
    assert tuning.bounds.dtype == float
    np.testing.assert_array_equal(tuning.bounds, [[-1, 2]])


@pytest.mark.parametrize(
    ("value", "expected"), [(-9, 1), (1, 1), (2.5, 2.5), (9, 3), (-np.inf, 1), (np.inf, 3)]
)
def test_set_scale(value, expected):
    log_scale, tuning = ScaleTuning.start(0.3, 2.0, [1.0, 3.0])
    set_scale(log_scale, tuning, 0, value)
    assert log_scale[0] == expected


def test_default_target():
    assert [default_target_accept(d) for d in (1, 2, 50)] == [0.44, 0.234, 0.234]
