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


def test_a_region_concerns_the_own_variables_only():
    t = target(weighted_sum, [0.0, 7.0], data=[1.0, 1.0], shapes=[0], region=[[-1.0], [1.0]])
    assert log_density(t, np.array([0.5])) == 7.5
