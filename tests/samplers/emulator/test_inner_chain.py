"""The chain on s: against plain numpy, and that it leaves s as it is."""

import numpy as np
import pytest
from invariance import Target, invariance_p_value
from simulated import (
    ManyChains,
    banana,
    density_of,
    emulate_by,
    make_arbitrary,
    set_mirrors,
    slow_chain,
)
from slow_modes import SlowModes, set_modes

import pymc_kameleon as pk

SLOPES, SHIFT = np.array([[1.5, 0.5], [-0.4, 0.8]]), np.array([0.3, -0.6])
"""Of a linear simulator, Cx + e."""

PRECISION = SLOPES.T @ np.diag([0.25, 1.0]) @ SLOPES
"""Of s then: the model's noise has standard deviations of 2 and 1."""


@pytest.fixture(scope="module")
def step():
    step = pk.EmulatorMetropolis(model=banana())
    step.setup_chain(np.random.default_rng(0), 0, 1)
    return step


EXCHANGE, REVERSAL = np.eye(2)[::-1], np.diag([-1.0, 1.0])


def set_shape(emulated, leap=0.5, most_leaps=4, maps=(), n_modes=0):
    emulated.mean[:], emulated.factor[:] = [0.2, 0.1], [[0.9, 0], [0.4, 0.7]]
    emulated.radius[0], emulated.leap[0], emulated.most_leaps[0] = np.inf, leap, most_leaps
    set_mirrors(emulated, maps)
    set_modes(emulated.modes, n_modes)


# ---- by hand --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    ("maps", "n_modes"), [([], 0), ([EXCHANGE, REVERSAL], 0), ([], 2), ([EXCHANGE], 2)]
)
@pytest.mark.parametrize(("leap", "most_leaps"), [(0.5, 5), (1.5, 3), (30.0, 2)])
def test_transitions_by_hand(step, leap, most_leaps, maps, n_modes):
    """With arbitrary emulators, a wall, trajectories that are given up, and jumps."""
    emulated = step.parameters.s
    make_arbitrary(emulated.emulator)
    set_shape(emulated, leap, most_leaps, maps, n_modes)
    emulated.radius[0] = 1.5
    density = density_of(step)

    def log_s(u):
        [value], [slope] = density.values(density.z_of(u)[None])
        return value, slope @ np.tril(emulated.factor)

    by_hand, rng = slow_chain(emulated, log_s), np.random.default_rng(4)
    z = np.random.default_rng(3).standard_normal((4, 2))
    places, found_log_s, accept_prob = density.chains(z, 8, np.random.default_rng(4))
    n_moves = n_jumps = 0
    for k, u in enumerate(density.u_of(z)):
        for i in range(8):
            new, alpha = by_hand.transition(u, rng)
            is_jump = np.isnan(alpha)
            n_jumps += is_jump and new is not u
            n_moves, u = n_moves + (new is not u and not is_jump), new
            np.testing.assert_allclose(places[i, k], density.z_of(u), rtol=1e-6, atol=1e-8)
            assert accept_prob[i, k] == pytest.approx(alpha, rel=1e-5, abs=1e-300, nan_ok=True)
            assert found_log_s[i, k] == pytest.approx(log_s(u)[0], rel=1e-7)
    assert (n_moves > 5) == (leap < 10)
    assert (n_jumps > 0) == (len(maps) + n_modes > 0)


def test_where_s_is_nothing_a_chain_stays(step):
    set_shape(step.parameters.s)
    make_arbitrary(step.parameters.s.emulator)
    step.log_density.region[:, 0] = -0.5, 0.5
    z = np.array([[1.0, 0.0], [0.0, 0.0]])
    try:
        places, log_s, accept_prob = density_of(step).chains(z, 20, np.random.default_rng(1))
    finally:
        step.log_density.region[:, 0] = -np.inf, np.inf
    assert (log_s[:, 0] == -np.inf).all()
    assert (accept_prob[:, 0] == 0).all()
    np.testing.assert_allclose(places[:, 0], np.tile(z[0], (20, 1)), atol=1e-12)
    assert np.ptp(places[:, 1, 0]) > 0
    assert np.abs(places[:, 1, 0]).max() <= 0.5  # there it never leaves the region


# ---- it leaves s as it is -------------------------------------------------------------------


def exact_draws(rng, n):
    """Return draws of s, which is normal where the emulator is linear."""
    mean = -np.linalg.solve(SLOPES, SHIFT)
    return mean + np.linalg.solve(np.linalg.cholesky(PRECISION).T, rng.standard_normal((2, n))).T


NORMAL = Target(banana, exact_draws)


@pytest.fixture(scope="module")
def linear(step):
    """The density of a linear emulator, and leaps that are often rejected."""
    emulate_by(step, [lambda x: SLOPES @ x + SHIFT], width=4.0)
    set_shape(step.parameters.s, leap=1.3, most_leaps=3)
    density = density_of(step)
    z = exact_draws(np.random.default_rng(5), 50)
    y = (z @ SLOPES.T + SHIFT) / [2, 1]
    expected = -np.sum(y * y, axis=1) / 2
    np.testing.assert_allclose(np.diff(density.values(z)[0]), np.diff(expected), atol=1e-4)
    return density


ROTATION = np.array([[0.0, -1.0], [1.0, 0.0]])
"""Not its own inverse."""


@pytest.mark.parametrize(
    ("maps", "is_exact"),
    [
        ([], True),
        ([EXCHANGE, REVERSAL], True),
        ([ROTATION], False),
        ([np.diag([1.5, 1 / 1.5])], False),
    ],
)
def test_draws_of_s_stay_draws_of_s(linear, maps, is_exact):
    """Also where maps are no symmetries of s; not so if a map is not its own inverse."""
    set_shape(linear.chain, leap=1.3, most_leaps=3, maps=maps)
    share = []

    def transform(z):
        places, _, accept_prob = linear.chains(z, 3, np.random.default_rng(6))
        share.append(np.nanmean(accept_prob))
        return places[-1]

    assert (invariance_p_value(transform, NORMAL) > 1e-3) == is_exact
    assert 0.3 < share[0] < 0.95


@pytest.mark.parametrize("maps", [[], [EXCHANGE, REVERSAL]])
def test_so_they_do_where_chains_jump_between_modes(linear, maps):
    """Whatever the mixture; not so if its density does not count."""
    set_shape(linear.chain, leap=1.3, most_leaps=3, maps=maps, n_modes=2)
    slow, rng = SlowModes(linear.chain.modes), np.random.default_rng(6)

    def transform(z):
        places, _, accept_prob = linear.chains(z, 3, rng)
        assert 0.2 < np.isnan(accept_prob).mean() < 0.6  # jumps
        return places[-1]

    def broken(z):
        drawn = np.array([slow.draw(rng) for _ in z])
        log_ratio = linear.values(drawn)[0] - linear.values(z)[0]
        return np.where((np.log(rng.random(len(z))) < log_ratio)[:, None], drawn, z)

    assert invariance_p_value(transform, NORMAL) > 1e-3
    assert invariance_p_value(broken, NORMAL) < 1e-3


@pytest.mark.parametrize(
    ("rule", "leap", "is_exact"),
    [
        ("exact", 1.3, True),
        ("exact", 1.8, True),
        ("without the last half step", 1.3, False),
        ("without accepting", 1.3, False),
        ("without the way back", 1.8, False),
    ],
)
def test_broken_twins_do_not(linear, rule, leap, is_exact):
    set_shape(linear.chain, leap=leap, most_leaps=3)
    twin = ManyChains(linear, rule)
    linear.chain.n_inner[0] = 10

    def transform(z):
        return linear.z_of(twin.run(linear.u_of(z), np.random.default_rng(6)))

    assert (invariance_p_value(transform, NORMAL) > 1e-3) == is_exact
