"""What draws make doubtful: that they are those of the prior, or that there is no posterior."""

import re

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from runs import messages

import pymc_kameleon as pk
from pymc_kameleon.analysis.doubts import are_like_prior, are_rounded, doubts, way_to

SEEDS, D = 20, 5


def draws(seed, correlation=0.0):
    """Draws of a prior in five dimensions, one of them discrete; and other ones (chains, draws)."""
    rng = np.random.default_rng(seed)
    prior, x = rng.standard_normal((300, D)), rng.standard_normal((4, 500, D))
    for k in range(1, x.shape[1]):
        x[:, k] = correlation * x[:, k - 1] + np.sqrt(1 - correlation**2) * x[:, k]
    for own in (prior, x):
        own[..., 1] = np.round(own[..., 1])
    return x, prior


@pytest.mark.parametrize("correlation", [0.0, 0.8])
def test_draws_of_the_prior_are_told(correlation):
    assert sum(are_like_prior(*draws(seed, correlation)) for seed in range(SEEDS)) == SEEDS


@pytest.mark.parametrize("k", [0, 4])
@pytest.mark.parametrize("change", [lambda x: x + 0.9, lambda x: 0.5 * x, lambda x: np.exp(x)])
def test_draws_that_differ_in_one_coordinate_are_not(change, k):
    for seed in range(SEEDS):
        x, prior = draws(seed)
        x[..., k] = change(x[..., k])
        assert not are_like_prior(x, prior)


def test_few_draws_tell_nothing():
    for seed in range(SEEDS):
        x, prior = draws(seed)
        assert not are_like_prior(x[:, :5], prior)


def test_small_scales_are_those_of_positive_variables():
    x, prior = (np.exp(part) for part in draws(1))
    assert not are_rounded(1e-9 * x, prior).any()
    assert are_rounded(1e-15 * x, prior).all()
    assert not are_rounded(-x, prior).any()
    assert not are_rounded(1e-15 * x, np.log(prior)).any()


def said_of(model, caplog, **options):
    with model:
        pk.sample(1000, tune=1000, step=pk.GAM(), random_seed=1, progressbar=False, **options)
    own = "[not_felt]", "[no_bound]"
    return [text for text in messages(caplog) if any(code in text for code in own)]


def needle(width):
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("likelihood", pt.switch(pt.abs(x[0] - 9.123) < width, 200.0, 0.0))
    return model


@pytest.mark.parametrize(("width", "is_felt"), [(1e-9, False), (8.0, True)])
def test_a_run_that_returns_the_prior_says_so(width, is_felt, caplog):
    said = said_of(needle(width), caplog)
    assert len(said) == (not is_felt)
    if said:
        assert said[0].startswith("The draws of each parameter hardly differ")


@pytest.mark.parametrize(("noise", "is_exact"), [(0.0, True), (0.1, False)])
def test_data_that_are_fitted_exactly_are_told(noise, is_exact, caplog):
    """With noise, or without data, nothing is said."""
    y = noise * np.random.default_rng(1).standard_normal(20)
    with pm.Model() as model:
        pm.Normal("y", 0.0, pm.HalfNormal("s"), observed=y)
    said = said_of(model, caplog, initvals={"s": 1e-20} if is_exact else None)
    assert len(said) == is_exact
    assert all(text.startswith("s is") for text in said)


@pytest.mark.parametrize(
    "prior", [pm.Flat.dist(), pm.InverseGamma.dist(1e-3, 1e-3)], ids=["improper", "extreme"]
)
def test_a_prior_that_cannot_be_drawn_is_not_compared(prior, caplog):
    with pm.Model() as model:
        model.register_rv(prior, "x")
        pm.Normal("y", model["x"], observed=3.0)
    assert not said_of(model, caplog)
    assert not any("failed" in text for text in messages(caplog))


def test_where_there_are_no_data_nothing_is_said(caplog):
    with pm.Model() as model:
        pm.Normal("x")
    assert not said_of(model, caplog)


# ---- a mode that draws lack ---------------------------------------------------------------------


def test_a_place_is_lacking_until_a_draw_is_nearer_to_it():
    x = np.random.default_rng(1).standard_normal((4000, 2)) * [1.0, 3.0]
    place = np.array([8.0, 9.0])
    assert abs(way_to(place, x) - 8) < 0.5
    visited = np.vstack([x, place - 1.0])
    assert way_to(place, visited) == 0
    assert way_to(x[0], x) == 0
    assert way_to(np.full(2, np.nan), x) == 0


@pytest.mark.parametrize("scale", [1.0, 1e3])
def test_a_coordinate_that_never_moves_does_not_count(scale):
    x = scale * np.random.default_rng(1).standard_normal((4000, 2)) * [1.0, 0.0]
    assert abs(way_to(scale * np.array([9.0, 5.0]), x) - 9) < 0.5


def with_a_faint_mode(far, mass):
    """Return a model of two normals, of which the other has this share of the mass, about."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, 100, shape=2)
        away = x - far * np.array([0.6, 0.8])
        modes = -x @ x / 2, np.log(mass) - away @ away / 2
        pm.Potential("modes", pm.math.logaddexp(*modes))
    return model


@pytest.mark.parametrize(
    ("sampler", "far", "mass", "is_told"),
    [
        (pk.GAM, 40, 5e-4, True),  # no chain begins there
        (pk.GAM, 9, 5e-4, False),  # it is not felt
        (pk.CyclicalKAM, 20, 1e-2, False),  # chains go there
    ],
)
def test_a_mode_that_was_found_and_where_no_draw_is_is_told(sampler, far, mass, is_told, caplog):
    with with_a_faint_mode(far, mass):
        dt = pk.sample(1000, tune=1000, step=sampler(), random_seed=1, progressbar=False)
    if sampler is pk.CyclicalKAM:
        assert (dt["posterior"]["x"].values @ [0.6, 0.8] > far / 2).any()
    said = [text for text in messages(caplog) if "where no draw is" in text]
    assert len(said) == is_told
    masses = [float(re.search(r"about (\S+) % of the mass", text)[1]) for text in said]
    np.testing.assert_allclose(masses, 100 * mass, rtol=0.2)


@pytest.mark.parametrize("finder", [0, 1])
def test_it_is_enough_that_one_chain_has_found_it(finder):
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    names = {"coordinate": ["x[0]", "x[1]"]}
    place, mass = np.full((2, 2), np.nan), np.full(2, np.nan)
    place[finder], mass[finder] = [30.0, 0.0], 1e-3
    learned = {"other_mode": (("chain", "coordinate"), place), "other_mode_mass": ("chain", mass)}
    x = np.random.default_rng(1).standard_normal((2, 500, 2))
    x = (x - x.mean(axis=(0, 1))) / x.std(axis=(0, 1))  # so that the distance is 30 with any seed
    groups = {
        "posterior": xr.Dataset({"x": (("chain", "draw", "x_dim_0"), x)}),
        "learned": xr.Dataset(learned, names),
    }
    [found] = doubts(xr.DataTree.from_dict(groups), model)
    assert found.code == "other_mode"
    assert found.what.startswith("A mode with about 0.1 % of the mass was found some 30 standard")
    with model:
        pm.Normal("y")  # of which there are no draws
    assert doubts(xr.DataTree.from_dict(groups), model) == []
