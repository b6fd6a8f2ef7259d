"""The log-density that transitions call."""

import numba
import numpy as np
import pytest

from pymc_kameleon.core.target import LOGP_SIGNATURE, Target, function_address, log_density


@numba.njit(LOGP_SIGNATURE)
def first_coordinate(x, data, shapes, gradient):
    return x[0]


@numba.njit(LOGP_SIGNATURE)
def weighted_sum(x, data, shapes, gradient):
    total = 1000.0 * shapes[0]
    for i in range(x.size):
        total += data[i] * x[i]
    return total


def target(logp, point, data=(), shapes=(), region=None):
    if region is None:
        region = [np.full(len(point), -np.inf), np.full(len(point), np.inf)]
    return Target(
        function_address(logp),
        np.array(point, np.float64),
        np.array(data, np.float64),
        np.array(shapes, np.int64),
        np.array(region, np.float64),
        np.zeros(2, np.int64),
        np.zeros(0),
        np.zeros(0, np.int64),
        np.zeros(0),
        np.random.default_rng(0),
    )


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_counts_as_minus_infinity(value):
    assert log_density(target(first_coordinate, [0.0]), np.array([value])) == -np.inf


@pytest.mark.parametrize("value", [0.0, -3.5, 1e308, -1e308, 5e-324])
def test_what_is_finite_arrives_as_it_is(value):
    assert log_density(target(first_coordinate, [0.0]), np.array([value])) == value


@pytest.mark.parametrize("x", [[-1.0, 2.0], [1.0, 3.0], [0.0, 2.5], [-1.0, 3.0]])
def test_a_region_contains_its_boundary(x):
    t = target(first_coordinate, [9.0, 9.0], region=[[-1.0, 2.0], [1.0, 3.0]])
    assert log_density(t, np.array(x)) == x[0]


@pytest.mark.parametrize(
    "x", [[np.nextafter(-1, -2), 2.5], [1.1, 2.5], [0.0, 1.9], [0.0, np.inf], [0.0, np.nan]]
)
def test_outside_a_region_nothing_is_evaluated(x):
    t = target(first_coordinate, [9.0, 9.0], region=[[-1.0, 2.0], [1.0, 3.0]])
    assert log_density(t, np.array(x)) == -np.inf
    np.testing.assert_array_equal(t.point, [9, 9])
    assert t.count[0] == 0


def test_counts_its_evaluations():
    """Whatever they give."""
    t = target(first_coordinate, [0.0], region=[[-1.0], [np.inf]])
    for x in [0.0, 0.5, np.inf, -2.0, np.nan]:
        log_density(t, np.array([x]))
    assert t.count[0] == 3


def test_counts_what_is_plus_infinity():
    t = target(first_coordinate, [0.0])
    for x in [0.0, np.inf, -np.inf, np.inf]:
        log_density(t, np.array([x]))
    assert t.count.tolist() == [4, 2]
    nan = target(weighted_sum, [0.0, 0.0], data=[np.nan, 1.0], shapes=[0])
    log_density(nan, np.array([0.5]))
    assert nan.count.tolist() == [1, 0]


def test_a_region_concerns_the_own_variables_only():
    t = target(weighted_sum, [0.0, 7.0], data=[1.0, 1.0], shapes=[0], region=[[-1.0], [1.0]])
    assert log_density(t, np.array([0.5])) == 7.5


def test_moves_the_own_variables_only():
    region = np.array([[-np.inf, -np.inf], [np.inf, np.inf]])
    t = target(weighted_sum, [0.0, 0.0, 5.0], [1.0, 10.0, 100.0], [3], region)
    assert log_density(t, np.array([2.0, 3.0])) == 3000 + 2 + 30 + 500
    np.testing.assert_array_equal(t.point, [2, 3, 5])


def test_two_models_share_the_compiled_code():
    """The address is a value, not a type: nothing is compiled anew for another function."""
    log_density(target(first_coordinate, [0.0]), np.zeros(1))
    before = len(log_density.signatures)
    log_density(target(weighted_sum, [1.0], data=[2.0], shapes=[0]), np.zeros(1))
    assert len(log_density.signatures) == before
