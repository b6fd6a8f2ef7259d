"""Robbins-Monro against a slow version, and the guess of the coordinates' scales."""

import numpy as np
import pytest

from pymc_kameleon.core.scaling import (
    ScaleTuning,
    coordinate_scales,
    default_target_accept,
    gain,
    set_scale,
    settle_scale,
    tune_scale,
)

# ---- one scale ------------------------------------------------------------------------------


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


# ---- the scales of the coordinates ----------------------------------------------------------


class Counted:
    """A log-density that remembers where it was evaluated."""

    def __init__(self, logp):
        self.logp = logp
        self.points = []

    def __call__(self, x):
        self.points.append(x.copy())
        return self.logp(x)


def normal(precision, mean=0.0):
    return Counted(lambda x: -0.5 * (x - mean) @ precision @ (x - mean) + 17.0)


@pytest.mark.parametrize("far", [0.0, 3.0, 1e3])
@pytest.mark.parametrize("decades", [0, 4])
def test_exact_on_a_normal_target_anywhere(far, decades):
    """The conditional standard deviations, `far` of them away from the mode."""
    rng = np.random.default_rng(0)
    d = 6
    units = 10.0 ** np.linspace(-decades, decades, d)
    root = rng.standard_normal((d, 2 * d))
    precision = root @ root.T / np.outer(units, units)
    logp = normal(precision, mean=units)
    x = units + far * units * rng.choice([-1, 1], d)
    start = x.copy()
    scales = coordinate_scales(logp, x)
    np.testing.assert_allclose(scales, np.diag(precision) ** -0.5, rtol=1e-7)
    np.testing.assert_array_equal(x, start)


@pytest.mark.parametrize("scale", [1e-4, 1e-2, 0.1, 0.3, 1.0, 1e4])
def test_one_coordinate_at_a_time_and_no_farther_than_it_says(scale):
    logp = normal(np.diag([scale**-2, 1.0]))
    scales = coordinate_scales(logp, np.zeros(2))
    np.testing.assert_allclose(scales, [scale, 1], rtol=1e-10)
    points = np.array(logp.points)
    assert len(points) <= 2 * (2 + abs(np.log2(scale / 0.1)) + 2 + np.log2(10)) + 1
    assert ((points != 0).sum(axis=1) <= 1).all()
    assert (np.abs(points) <= 2 * np.maximum(scales, 0.1)).all()


@pytest.mark.parametrize("outside", [-np.inf, np.nan])
@pytest.mark.parametrize("edge", [1e-3, 0.5, 30.0])
def test_bounded_support(outside, edge):
    """An exponential density, `edge` from its end: steps that leave the support are too long."""
    logp = Counted(lambda x: -x[0] - 0.5 * x[1] ** 2 if x[0] >= 0 else outside)
    scales = coordinate_scales(logp, np.array([edge, 0.2]))
    assert edge / 4 <= scales[0] <= edge * 2
    assert scales[1] == pytest.approx(1, rel=1e-10)


@pytest.mark.parametrize(
    "logp",
    [
        lambda x: 0.0,
        lambda x: 2 * x.sum(),
        lambda x: 0.5 * x @ x,
        lambda x: 0.0 if (x == 1).all() else -np.inf,
    ],
    ids=["flat", "slope", "valley", "point"],
)
def test_terminates(logp):
    """Whatever the log-density: after some fifty evaluations of a coordinate."""
    counted = Counted(logp)
    scales = coordinate_scales(counted, np.ones(2))
    assert len(counted.points) <= 101
    assert (scales >= 1e-7).all()
    assert (scales <= 1e7).all()


def test_a_flat_direction_does_not_disturb_the_others():
    scales = coordinate_scales(lambda x: -0.5 * x[1] ** 2, np.zeros(2))
    assert scales[0] >= 1e6
    assert scales[1] == pytest.approx(1)
