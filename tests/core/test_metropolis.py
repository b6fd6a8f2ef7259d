"""The Metropolis rule."""

from typing import NamedTuple

import numpy as np
import pytest
from test_target import first_coordinate, target

from pymc_kameleon.core.metropolis import NO_CAP, accept, accept_capped, metropolis, normal_step


@pytest.mark.parametrize(
    ("log_ratio", "log_u", "expected"),
    [
        (-1.0, -1.1, (np.exp(-1), True)),
        (-1.0, -1.0, (np.exp(-1), False)),
        (-1.0, -0.9, (np.exp(-1), False)),
        (2.0, -0.1, (1.0, True)),
        (np.inf, -0.1, (1.0, True)),
        (-np.inf, -50.0, (0.0, False)),
        (np.nan, -50.0, (0.0, False)),
    ],
)
def test_the_rule(log_ratio, log_u, expected):
    assert metropolis(log_ratio, log_u, NO_CAP) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("log_ratio", "cap"), [(-3.0, -0.5), (-1.0, 0.7), (1.0, 2.0), (-1.0, -1.0)]
)
def test_with_what_is_rejected_early_the_mean_is_that_of_the_rule(log_ratio, cap):
    """P(not rejected early) times what is then reported, and the same decision."""
    alpha, _ = metropolis(log_ratio, -0.1, NO_CAP)
    reported, _ = metropolis(log_ratio, -0.1, cap)
    assert min(1.0, np.exp(cap)) * reported == pytest.approx(alpha, rel=1e-12)
    assert reported <= 1.0
    for log_u in (-4.0, -2.0, -0.6):
        assert metropolis(log_ratio, log_u, cap)[1] == metropolis(log_ratio, log_u, NO_CAP)[1]


class Plain(NamedTuple):
    x: np.ndarray
    logp: np.ndarray


class Steep(NamedTuple):
    x: np.ndarray
    logp: np.ndarray
    gradient: np.ndarray


@pytest.mark.parametrize("has_gradient", [False, True])
@pytest.mark.parametrize("accepted", [False, True])
def test_the_state_follows_an_accepted_proposal(accepted, has_gradient):
    """With the gradient, if it has one, and the Hastings term that decides."""
    at = target(first_coordinate, [0.0, 0.0])._replace(gradient=np.array([5.0, 6.0]))
    values = [np.zeros(2), np.zeros(1), np.full(2, -1.0)]
    state = Steep(*values) if has_gradient else Plain(*values[:2])
    log_hastings = 2.5 if accepted else -1.5
    found = accept_capped(at, state, np.array([3.0, 4.0]), -2.0, log_hastings, -1.0, NO_CAP)
    assert found == pytest.approx((min(1.0, np.exp(-2.0 + log_hastings)), accepted))
    np.testing.assert_array_equal(state.x, [3, 4] if accepted else [0, 0])
    assert state.logp[0] == (-2.0 if accepted else 0.0)
    if has_gradient:
        np.testing.assert_array_equal(state.gradient, [5, 6] if accepted else [-1, -1])


def test_accept_draws_an_exponential():
    at, rng, other = target(first_coordinate, [0.0]), *map(np.random.default_rng, (1, 1))
    for _ in range(20):
        state = Plain(np.zeros(1), np.zeros(1))
        _, accepted = accept(at, state, np.ones(1), -0.7, 0.0, rng)
        assert accepted == (-other.standard_exponential() < -0.7)


def test_normal_step():
    factor, xi, step = np.array([[2.0, 99.0], [3.0, 4.0]]), np.empty(2), np.empty(2)
    normal_step(0.5, factor, xi, step, np.random.default_rng(1))
    np.testing.assert_array_equal(xi, np.random.default_rng(1).standard_normal(2))
    np.testing.assert_allclose(step, 0.5 * np.tril(factor) @ xi, rtol=1e-15)
