"""Log s and its gradient, against the model in plain numpy with the same emulators."""

import numpy as np
import pytest
from scipy import stats
from simulated import (
    OBSERVED,
    density_of,
    emulate_by,
    make_arbitrary,
    nested,
    one,
    set_mirrors,
    two,
)

import pymc_kameleon as pk

B = 0.7
"""The variable of another step."""

FACTOR = np.array([[0.8, 0, 0], [0.3, 0.5, 0], [-0.2, 0.1, 0.4]])
MEAN = np.array([0.2, -0.3, -0.4])


@pytest.fixture(scope="module")
def step():
    model = nested()
    step = pk.EmulatorMetropolis([model["a"], model["s"]], model=model)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    step.log_density.point[3] = B
    emulated = step.parameters.s
    emulated.mean[:], emulated.factor[:] = MEAN, FACTOR
    make_arbitrary(emulated.emulator)
    return step


@pytest.fixture
def density(step):
    step.parameters.s.radius[0] = 1.5
    return density_of(step)


MAPS = np.eye(3)[[1, 0, 2]], np.diag([1.0, -1, 1])
"""Mirror images."""


def by_hand(density, z, radius=1.5, maps=()):
    """Return log s at z (3,), with the emulators' own predictions."""
    a, s = z[:2], np.exp(z[2])
    x = np.array([a[0], s, a[1], s, 0.0, 0.0])
    y = density.emulate(x[None])[0]
    x[4:] = y[0] * B, y[4] + a[0]  # of what the first simulator returns
    y = density.emulate(x[None])[0]
    logp = stats.norm.logpdf(a, 0, [1, 2]).sum() + stats.norm.logpdf(B)
    logp += stats.halfnorm.logpdf(s) + z[2]
    logp += stats.norm.logpdf(OBSERVED, y, 0.5 + s).sum()
    images = [z, *(one @ z for one in maps)]
    distance = min(np.linalg.norm(np.linalg.solve(FACTOR, image - MEAN)) for image in images)
    return logp - 0.5 * max(0, distance - radius) ** 2


def points(n=25, seed=2):
    rng = np.random.default_rng(seed)
    return MEAN + rng.standard_normal((n, 3)) @ FACTOR.T


@pytest.mark.slow
def test_the_simulators_are_where_they_should_be(step):
    assert step.fit.structure.boxes.tolist() == [[2, 3], [2, 1]]
    assert step.fit.structure.applications.tolist() == [[0, 0, 0, 0], [0, 2, 3, 0], [1, 4, 6, 1]]


@pytest.mark.parametrize("maps", [(), MAPS], ids=len)
def test_log_s_and_its_gradient(step, density, maps):
    """By way of all applications, levels, the wall and the model's own parameters.

    Around a point and its mirror images there is one radius, beyond which s falls.
    """
    set_mirrors(step.parameters.s, maps)
    z, h = points(12) @ (MAPS[0] if maps else np.eye(3)), 1e-5
    try:
        log_s, slopes = density.values(z)
        home = density.nearest_image(z)
    finally:
        set_mirrors(step.parameters.s, [])
    np.testing.assert_allclose(log_s, [by_hand(density, row, maps=maps) for row in z], rtol=1e-10)
    is_image = (home != z).any(axis=1)
    beyond = np.linalg.norm(density.u_of(home), axis=1) > 1.5
    assert is_image.any() == (len(maps) > 0)
    for side in (beyond, ~beyond):
        assert (side & (is_image == is_image.any())).sum() > 1
    for row, slope in zip(z, slopes, strict=True):
        ends = [
            [by_hand(density, row + sign * step, maps=maps) for step in h * np.eye(3)]
            for sign in (1, -1)
        ]
        np.testing.assert_allclose(slope, np.subtract(*ends) / (2 * h), rtol=2e-6, atol=1e-6)


def test_it_is_the_log_density_where_emulators_are_right(step, density):
    """But for the wall; it takes the model's own other variables, and no evaluation."""
    before = step.log_density.count.copy()
    emulated, z = step.parameters.s, points()
    emulate_by(step, (one, two))
    emulated.radius[0] = np.inf
    log_s, _ = density_of(step).values(z)
    assert (step.log_density.count == before).all()
    logp = [step.log_density(np.append(row, B)) for row in z]
    make_arbitrary(emulated.emulator)
    wrong, _ = density_of(step).values(z)
    assert np.median(np.abs(log_s - logp)) < 0.01
    assert np.median(np.abs(wrong - logp)) > 0.1


def test_another_step_moves_its_variable(step, density):
    z = points(3)
    before, _ = density.values(z)
    step.log_density.point[3] = -1.0
    try:
        np.testing.assert_array_equal(density.values(z)[0], before)  # it has a copy
        assert (np.abs(density_of(step).values(z)[0] - before) > 0.01).all()
    finally:
        step.log_density.point[3] = B


@pytest.mark.parametrize(("low", "high"), [(-0.5, np.inf), (-np.inf, -0.1)])
def test_outside_the_region_there_is_nothing(step, low, high):
    z = points()
    step.log_density.region[:, 1] = low, high
    try:
        log_s, slopes = density_of(step).values(z)
    finally:
        step.log_density.region[:, 1] = -np.inf, np.inf
    inside = (low <= z[:, 1]) & (z[:, 1] <= high)
    assert 3 < inside.sum() < 22
    assert (np.isfinite(log_s) == inside).all()
    assert (slopes[~inside] == 0).all()


def test_no_logarithm_no_density(step, density):
    """An emulator by logarithms knows nothing where an input is negative."""
    emulator, z = step.parameters.s.emulator, points()
    emulator.log_inputs[0] = 1  # a, in both applications
    try:
        log_s, _ = density.values(z)
    finally:
        emulator.log_inputs[0] = 0
    assert (np.isfinite(log_s) == (z[:, :2] > 0).all(axis=1)).all()
    assert np.isfinite(log_s).sum() > 0


def test_points_and_coordinates(density):
    z = points()
    np.testing.assert_allclose(density.u_of(z), np.linalg.solve(FACTOR, (z - MEAN).T).T)
    np.testing.assert_allclose(density.z_of(density.u_of(z)), z)
