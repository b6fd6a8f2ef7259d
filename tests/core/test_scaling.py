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


@pytest.mark.parametrize(("start", "stop"), [(0, 500), (250, 500), (499, 500), (250, 400)])
@pytest.mark.parametrize("k", [0, 1])
def test_tune_and_settle(start, stop, k):
    """One of two scales; the other stays."""
    rng = np.random.default_rng(0)
    log_scales, tuning = ScaleTuning.start(0.234, [0.3, 0.3], [-49.7, 50.3])
    slow, path = 0.3, []
    for t in range(stop):
        accept_prob = rng.random()
        tune_scale(log_scales, tuning, k, accept_prob, gain(t))
        settle_scale(log_scales, tuning, k, t, start, stop)
        slow += (accept_prob - 0.234) / (1 + t) ** 0.6
        path.append(slow)
        if t < stop - 1:
            assert log_scales[k] == pytest.approx(slow, rel=1e-12)
    assert log_scales[k] == pytest.approx(np.mean(path[start:]), rel=1e-12)
    assert log_scales[1 - k] == 0.3


@pytest.mark.parametrize("stop", [1, 2])
def test_settle_needs_one_transition(stop):
    """A `start` that never comes, as in a very short tuning phase, counts as the last one."""
    log_scale, tuning = ScaleTuning.start(0.4, 0.0, [-5.0, 5.0])
    for t in range(stop):
        tune_scale(log_scale, tuning, 0, 1.0, gain(t))
        last = log_scale[0]
        settle_scale(log_scale, tuning, 0, t, stop, stop)
    assert log_scale[0] == last


@pytest.mark.parametrize(("accept_prob", "bound"), [(0.0, 1.0), (1.0, 3.0)])
def test_bounds(accept_prob, bound):
    log_scale, tuning = ScaleTuning.start(0.5, 2.0, [1.0, 3.0])
    for t in range(1000):
        tune_scale(log_scale, tuning, 0, accept_prob, gain(t))
        assert 1.0 <= log_scale[0] <= 3.0
    assert log_scale[0] == bound
    tune_scale(log_scale, tuning, 0, 1 - accept_prob, gain(0))
    assert log_scale[0] == pytest.approx(2 + (bound - 2) / 2)


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


@pytest.mark.parametrize(("value", "expected"), [(-9.0, 1.0), (1.0, 1.0), (2.5, 2.5), (9.0, 3.0)])
def test_set_scale(value, expected):
    log_scale, tuning = ScaleTuning.start(0.3, 2.0, [1.0, 3.0])
    set_scale(log_scale, tuning, 0, value)
    assert log_scale[0] == expected


@pytest.mark.parametrize("value", [-np.inf, np.inf])
def test_set_scale_keeps_what_is_infinite_within_bounds(value):
    log_scale, tuning = ScaleTuning.start(0.3, 2.0, [1.0, 3.0])
    set_scale(log_scale, tuning, 0, value)
    assert log_scale[0] == (1.0 if value < 0 else 3.0)


@pytest.mark.parametrize("target", [0.234, 0.44])
def test_tunes_to_the_target(target):
    """For α(s) = exp(-s), s* = -log α*; a wrong target is seen."""
    rng = np.random.default_rng(0)
    log_scale, tuning = ScaleTuning.start(target, 3.0, [-7.0, 13.0])
    n = 20_000
    for t in range(n):
        # a noisy acceptance probability with mean exp(-s)
        accept_prob = float(rng.random() < np.exp(-np.exp(log_scale[0])))
        tune_scale(log_scale, tuning, 0, accept_prob, gain(t))
        settle_scale(log_scale, tuning, 0, t, n // 2, n)
    reached = np.exp(-np.exp(log_scale[0]))
    assert reached == pytest.approx(target, abs=0.02)
    assert reached != pytest.approx(target + 0.04, abs=0.02)


def test_default_target():
    assert [default_target_accept(d) for d in (1, 2, 50)] == [0.44, 0.234, 0.234]
