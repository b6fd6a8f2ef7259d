"""Barker's proposal against a slow version from its paper, and what it learns."""

import copy

import numpy as np
import pymc as pm
import pytest
import reference
from invariance import TARGETS, invariance_p_value, moved_fast, tuned
from models import normal_model
from pymc.exceptions import SamplingError

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy as copy_vector
from pymc_kameleon.core.linalg import multiply_lower, multiply_lower_transposed
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.target import log_density as log_density_at
from pymc_kameleon.samplers.gradient import barker

PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])
START = np.array([0.5, 1.5, -0.1])


def log_density(x):
    return -0.5 * x @ PRECISION @ x


@pytest.fixture(scope="module")
def step():
    return pk.baselines.Barker(model=normal_model(PRECISION), steps_per_draw=1)


FACTOR = [[0.8, 0, 0], [1.2, 0.4, 0], [-0.02, 0.03, 0.1]]


@pytest.mark.parametrize(("scale", "factor"), [(0.7, np.eye(3)), (2.5, FACTOR)])
def test_transitions_by_hand(step, scale, factor):
    step.setup_chain(np.random.default_rng(5), 0, 300)
    step.parameters.log_scale[0] = np.log(scale)
    step.parameters.factor[:] = factor
    by_hand = reference.Barker(step, log_density, lambda x: -PRECISION @ x)
    x, rng, point, n_moves = START, np.random.default_rng(5), {"x": START}, 0
    for _ in range(300):
        point, [stats] = step.step(point)
        new, alpha = by_hand.transition(x, rng)
        np.testing.assert_allclose(point["x"], new, rtol=1e-9, atol=1e-12)
        assert stats["accept_prob"] == pytest.approx(alpha, rel=1e-9)
        n_moves, x = n_moves + (new is not x), new
    assert 30 < n_moves < 270


@pytest.mark.slow
def test_learns_scale_and_covariance_and_freezes_them(step):
    step.setup_chain(np.random.default_rng(1), 4000, 4000)
    point, accepted = {"x": START}, []
    for i in range(8000):
        if i == 4000:
            step.stop_tuning()
            learned = copy.deepcopy(step.parameters)
        point, [stats] = step.step(point)
        accepted.append(stats["accept_prob"])
    factor = np.tril(learned.factor)
    np.testing.assert_allclose(np.linalg.eigvalsh(factor.T @ PRECISION @ factor), 1, atol=0.25)
    assert np.mean(accepted[4000:]) == pytest.approx(0.57, abs=0.04)
    for before, after in zip(learned, step.parameters, strict=True):
        np.testing.assert_array_equal(before, after)


@jit
def one_sided_transition(target, state, parameters, work, rng):
    """Barker's proposal, taken for a symmetric one."""
    for i in range(state.x.size):
        w = np.exp(parameters.log_scale[0]) * rng.standard_normal()
        uphill = -np.log(rng.random()) > barker.softplus(-w * state.u[i])
        work.w[i] = w if uphill else -w
    multiply_lower(parameters.factor, work.w, work.step)
    for i in range(state.x.size):
        work.y[i] = state.x[i] + work.step[i]
    outcome = accept(target, state, work.y, log_density_at(target, work.y), 0.0, rng)
    multiply_lower_transposed(parameters.factor, state.gradient, work.u)
    copy_vector(work.u, state.u)
    return outcome


class OneSidedBarker(pk.baselines.Barker):
    algorithm = pk.baselines.Barker.algorithm._replace(transition=one_sided_transition)


@pytest.mark.slow
def test_a_broken_twin_fails():
    target = TARGETS["normal"]
    step = tuned(OneSidedBarker(model=target.build(), steps_per_draw=50), target)
    assert invariance_p_value(lambda x: moved_fast(step, x), target) < 1e-3


def test_does_not_start_where_the_gradient_is_not_finite():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("p", -(x[0] ** 2 + abs(x[1]) ** 0.5))
    step = pk.baselines.Barker(model=model, jitter=False)
    step.approaches = False  # which would find a point with a gradient
    with pytest.raises(SamplingError, match=r"gradient.*not finite.*x\[1\]"):
        step.step({"x": np.zeros(2)})
