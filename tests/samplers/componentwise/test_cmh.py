"""CMH against a slow version from its definition, on the same random numbers."""

import numpy as np
import pytest
import reference
from componentwise import (
    ILL_SCALES,
    SCALES,
    START,
    correlated_normal,
    ill_scaled_normal,
    log_density,
    pair_model,
    run,
)
from runs import last_warning

import pymc_kameleon as pk


@pytest.fixture(scope="module")
def model():
    return correlated_normal()


@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize("n", [1, 2, 3, 7, 600])
def test_cmh_with_adaptation(model, n):
    step = pk.CMH(model=model, target_accept=0.3)
    positions, found = run(step, n, tune=n, seed=2)
    expected, path = reference.tuned_cmh(
        log_density,
        START,
        n,
        np.log(2.38 * SCALES),
        np.random.default_rng(2),
        target=0.3,
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["cmh_scaling"], np.exp(path), rtol=1e-9)
    np.testing.assert_allclose(found["scaling"], np.exp(path.mean(axis=1)), rtol=1e-9)
    moved = np.diff([START, *positions], axis=0) != 0
    np.testing.assert_array_equal(found["cmh_accepted"], moved)


@pytest.mark.usefixtures("from_start")
def test_cmh_within_bounds(model):
    bounds = (0.3, 1.5)
    step = pk.CMH(model=model, scaling_bounds=bounds)
    positions, found = run(step, 300, tune=300, seed=2)
    expected, path = reference.tuned_cmh(
        log_density,
        START,
        300,
        np.log(np.clip(2.38 * SCALES, *bounds)),
        np.random.default_rng(2),
        bounds=np.tile(np.log(bounds), (3, 1)),
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["cmh_scaling"], np.exp(path), rtol=1e-9)
    assert bounds[0] * (1 - 1e-12) <= found["cmh_scaling"].min() <= 0.31
    assert 1.4 < found["cmh_scaling"].max() <= bounds[1] * (1 + 1e-12)


@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize("scales", [0.3, [0.3, 1.0, 0.05]])
def test_cmh_with_scales_of_the_user_is_never_tuned(model, scales):
    step = pk.CMH(model=model, scaling=scales)
    positions, found = run(step, 200, tune=100, seed=5)
    fixed = np.log(np.broadcast_to(scales, 3))
    expected, _ = reference.tuned_cmh(
        log_density, START, 200, fixed, np.random.default_rng(5), bounds=np.stack([fixed] * 2, 1)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["cmh_scaling"], np.tile(np.exp(fixed), (200, 1)), rtol=1e-12)
    assert found["warning"][-1] is None


@pytest.mark.slow
@pytest.mark.parametrize("target", [0.44, 0.2])
def test_tuned_acceptance_of_cmh(target):
    """In each coordinate, and whatever its scale."""
    options = {} if target == 0.44 else {"target_accept": target}
    step = pk.CMH(model=ill_scaled_normal(), **options)
    _, found = run(step, 5000, tune=2500, seed=3, x=ILL_SCALES)
    accepted = found["cmh_accepted"][2500:].mean(axis=0)
    np.testing.assert_allclose(accepted, target, atol=0.06)
    best = {0.44: 2.4, 0.2: 6.1}[target]  # on a standard normal density, α = 2/π arctan(2/σ)
    np.testing.assert_allclose(found["cmh_scaling"][-1] / ILL_SCALES, best, rtol=0.2)


def test_evaluations_of_cmh(model):
    _, found = run(pk.CMH(model=model, steps_per_draw=2), 50, tune=20)
    assert (found["n_logp"][1:] == 6).all()
    shares = found["cmh_accepted"]
    assert shares.shape == (50, 3)
    assert set(np.unique(shares)) == {0, 0.5, 1}
    np.testing.assert_allclose(found["accept_share"], shares.mean(axis=1))


def test_a_scale_of_cmh_at_its_bound_is_named():
    step = pk.CMH(model=pair_model(), scaling_bounds=(1e-3, 0.1))
    message = last_warning(step, 1000, 500)
    assert "The scale of x[0], x[1] ended at its upper bound, 0.1" in message
