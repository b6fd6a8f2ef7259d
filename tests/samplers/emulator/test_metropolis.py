"""EmulatorMetropolis: its transition against plain numpy, exactness, and how it runs."""

import multiprocessing
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from invariance import TARGETS, Target, invariance_p_value, moved_fast
from models import Blind, black_box
from pytensor import wrap_py
from runs import QUIET, assert_same, resume, sample
from simulated import (
    ManyChains,
    SlowChain,
    banana,
    bend,
    density_of,
    emulate_by,
    make_arbitrary,
    simulator,
)

import pymc_kameleon as pk

BANANA = Target(banana, TARGETS["banana"].sample)


def log_banana(x):
    """Log π, but for a constant."""
    return -0.5 * (x[..., 0] ** 2 / 4 + (x[..., 1] - 0.5 * (x[..., 0] ** 2 - 4)) ** 2)


def wrong(x):
    """What a bad emulator takes the simulator for."""
    return np.array([0.8 * x[0] + 0.3, x[1] - 0.3 * (x[0] ** 2 - 4) + 0.4 * np.sin(2 * x[0])])


@pytest.fixture(scope="module")
def step():
    step = pk.EmulatorMetropolis(model=banana(), steps_per_draw=1)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    return step


def set_shape(parameters, share=1.0):
    """Set parameters to what tuning would not lead to, but for the emulator."""
    emulated = parameters.emulated
    parameters.emulated_share[0], parameters.n_others[0] = share, 2
    parameters.shares[:] = 0.6, 0.4, 0, 0
    parameters.log_scale[0], parameters.surrogate.nu[0] = 0.0, 6.0
    parameters.mean[:], parameters.factor[:] = [0.2, 0.1], [[0.9, 0], [0.4, 0.7]]
    emulated.mean[:], emulated.factor[:] = [0.3, -0.4], [[1.5, 0], [0.4, 0.9]]
    emulated.radius[0], emulated.leap[0] = 2.0, 0.6
    emulated.most_leaps[0], emulated.n_inner[0] = 4, 3


# ---- by hand --------------------------------------------------------------------------------


def test_moves_by_hand(step):
    """With further ends, by arbitrary emulators; one evaluation each, or none."""
    step.setup_chain(np.random.default_rng(7), 0, 90)
    make_arbitrary(step.parameters.emulated.emulator)
    set_shape(step.parameters)
    emulated, density = step.parameters.emulated, density_of(step)

    def log_s(u):
        [value], [slope] = density.values(density.z_of(u)[None])
        return value, slope @ np.tril(emulated.factor)

    by_hand, rng = SlowChain(emulated, log_s, log_banana), np.random.default_rng(7)
    x, n_moves = np.array([0.4, -1.0]), 0
    for k in range(90):
        assert rng.random() < 1  # the kind of the move
        new, alpha, others = by_hand.move(x, 2, rng)
        start = step.model.initial_point() | {"x": x}
        point, [stats] = step.step(start)
        np.testing.assert_allclose(point["x"], new, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(step.state.others[:2], others, rtol=1e-6, atol=1e-8)
        expected = 0.0 if alpha is None else alpha
        assert stats["accept_prob"] == pytest.approx(expected, rel=1e-5)
        assert stats["emulator_accept"] == pytest.approx(expected, rel=1e-5)
        assert np.isnan(stats["surrogate_accept"])
        assert stats["n_logp"] == (alpha is not None) + (k == 0)
        n_moves, x = n_moves + (new is not x), point["x"]
    assert 20 < n_moves < 80


def test_what_a_move_leaves_for_corrections(step):
    """Where it began and led, log π and log s there, and the simulator's inputs and outputs."""
    step.setup_chain(np.random.default_rng(8), 0, 50)
    make_arbitrary(step.parameters.emulated.emulator)
    set_shape(step.parameters, share=0.7)
    density, x, kinds = density_of(step), np.array([0.4, -1.0]), set()
    for _ in range(50):
        point, [stats] = step.step({"x": x})
        state = step.state
        start, end = state.move[:2], state.move[2:4]
        by_emulator, evaluated = ~np.isnan(stats["emulator_accept"]), stats["n_logp"] > 0
        kinds.add((bool(by_emulator), bool(evaluated)))
        np.testing.assert_array_equal(start, x)
        assert np.isnan(state.log_s_end[0]) != by_emulator
        if by_emulator:
            [log_s], _ = density.values(end[None])
            assert state.log_s_end[0] == pytest.approx(log_s, rel=1e-8)
        if evaluated:
            assert state.move[4] == pytest.approx(step.log_density(end), rel=1e-12)
            np.testing.assert_allclose(state.inputs, end, rtol=1e-12)
            np.testing.assert_allclose(state.outputs, bend(end), rtol=1e-12)
        else:
            assert np.isnan([*state.inputs, *state.outputs]).all()
        x = point["x"]
    assert {(True, True), (False, True)} <= kinds


# ---- exactness ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt():
    """A step that is frozen, with a bad emulator."""
    step = pk.EmulatorMetropolis(model=banana(), steps_per_draw=2)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    emulate_by(step, [wrong], width=3.0)
    return step


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_exact_draws_stay_exact_by_a_bad_emulator(spoilt, share):
    set_shape(spoilt.parameters, share)
    spoilt.parameters.n_others[0] = 0
    p_value = invariance_p_value(lambda x: moved_fast(spoilt, x), BANANA, n=6000)
    assert p_value > 1e-3


@pytest.mark.parametrize(
    ("rule", "is_exact"),
    [
        pytest.param("exact", True, marks=pytest.mark.slow),
        ("without s", False),
        ("without accepting", False),
    ],
)
def test_broken_twins_do_not(spoilt, rule, is_exact):
    """Moves that forget s, and inner chains that s is not invariant under."""
    set_shape(spoilt.parameters)
    twin, rng = ManyChains(density_of(spoilt), rule), np.random.default_rng(3)

    def transform(x):
        with np.errstate(over="ignore", invalid="ignore"):  # where nothing is rejected
            for _ in range(2):
                x = twin.move(x, log_banana, rng)
        return x

    assert (invariance_p_value(transform, BANANA, n=6000) > 1e-3) == is_exact


def further_ends(step, x, n, chained=False):
    """Return ends v (n, d) and further ends (n, d) of inner chains from x."""
    ends, others, rng = np.empty((n, 2)), np.empty((n, 2)), np.random.default_rng(9)
    step.setup_chain(rng, 0, n)
    emulate_by(step, [wrong], width=3.0)
    set_shape(step.parameters)
    if chained:
        twin = ManyChains(density_of(step))
        u = twin.run(twin.density.u_of(np.tile(x, (n, 1))), rng)
        return twin.density.z_of(twin.run(u, rng)), twin.density.z_of(u)
    for k in range(n):
        step.step({"x": x})
        ends[k], others[k] = step.state.move[2:4], step.state.others[1]
    return ends, others


@pytest.mark.parametrize("chained", [False, True])
def test_further_ends_do_not_know_where_the_move_leads(step, chained):
    """Given x they are independent of it, and as it is; not if one chain went through both."""
    n = 1500
    ends, others = further_ends(step, np.array([3.0, 2.0]), n, chained)
    correlations = [np.corrcoef(ends[:, i], others[:, j])[0, 1] for i in (0, 1) for j in (0, 1)]
    difference = ends.mean(axis=0) - others.mean(axis=0)
    z = difference / np.sqrt((ends.var(axis=0) + others.var(axis=0)) / n)
    largest = max(np.abs(correlations).max() * np.sqrt(n), np.abs(z).max())
    assert largest > 6 if chained else largest < 4
