"""What data tell of parameters: against closed forms, and where they tell nothing."""

import logging

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose

import pymc_kameleon as pk
from pymc_kameleon.analysis.identifiability import log_priors

SD = np.array([1.0, 2.0, 0.5])
ROWS = np.array([[0.35, 0.82, 0.33], [-1.3, 0.91, 0.45], [-0.54, 0.58, 0.36], [0.29, 0.03, 0.55]])
NOISE = 0.8


def regression(rows=ROWS):
    """Return a model of a linear regression, and draws of its posterior, which are exact."""
    y = rows @ [1, -1, 0.5]
    precision = np.diag(SD**-2) + rows.T @ rows / NOISE**2
    covariance = np.linalg.inv(precision)
    mean = covariance @ rows.T @ y / NOISE**2
    with pm.Model() as model:
        b = pm.Normal("b", 0, SD)
        pm.Normal("y", rows @ b, NOISE, observed=y)
    x = np.random.default_rng(2).multivariate_normal(mean, covariance, (4, 2000))
    lp = model.compile_logp()
    logps = np.array([[lp({"b": row}) for row in chain] for chain in x])
    posterior = xr.Dataset({"b": (("chain", "draw", "b_dim_0"), x)})
    stats = xr.Dataset({"lp": (("chain", "draw"), logps)})
    return model, xr.DataTree.from_dict({"posterior": posterior, "sample_stats": stats}), covariance


def codes(caplog):
    return [one.code for record in caplog.records for one in getattr(record, "findings", [])]


def test_a_linear_regression(caplog):
    model, dt, covariance = regression()
    found = pk.identifiability(dt, model, random_seed=1)
    assert_allclose(found.parameters["narrowed"], np.sqrt(np.diag(covariance)) / SD, rtol=0.08)
    alone = np.diag(np.linalg.inv(covariance)) ** -0.5 / SD
    assert_allclose(found.parameters["given_others"], alone, rtol=0.08)
    values = np.linalg.eigvalsh(covariance / np.outer(SD, SD))[::-1]
    assert_allclose(found.combinations["narrowed"], np.sqrt(values), rtol=0.08)
    assert found.parameters.index.tolist() == ["b[0]", "b[1]", "b[2]"]
    assert len(found.sensitivity) == 3
    assert "unidentified_combination" not in codes(caplog)


def test_the_prior_and_the_likelihood_make_the_log_density():
    model, dt, _ = regression()
    posterior = dt["posterior"].to_dataset()
    own = log_priors(posterior, model)
    b = posterior["b"].values
    expected = np.sum(-0.5 * (b / SD) ** 2 - np.log(SD) - 0.5 * np.log(2 * np.pi), axis=2)
    assert_allclose(own, expected)


def test_a_ridge_is_named(caplog):
    """Only b[0] + 2 b[1], in units of the prior, is measured."""
    caplog.set_level(logging.INFO, "pymc_kameleon")
    model, dt, _ = regression(np.array([[1.0, 1.0, 0.0], [0.0, 0.0, 1.0]]))
    found = pk.identifiability(dt, model, random_seed=1)
    first = found.combinations.iloc[0]
    assert first["narrowed"] == pytest.approx(1, rel=0.08)
    weights = {
        word: float(v) for v, word in zip(*[iter(first["combination"].split())] * 2, strict=True)
    }
    assert weights.keys() == {"b[0]", "b[1]"}
    assert weights["b[1]"] / weights["b[0]"] == pytest.approx(-0.5, abs=0.1)
    assert found.parameters.loc["b[0]", "tied_to"] == "b[1]"
    assert found.parameters["given_others"].iloc[:2].max() < 0.7
    assert "unidentified_combination" in codes(caplog)


def test_what_no_datum_depends_on_is_named(caplog):
    model, dt, _ = regression(np.array([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]))
    pk.identifiability(dt, model, random_seed=1)
    [one] = [one for record in caplog.records for one in getattr(record, "findings", [])]
    assert one.code == "unidentified_parameter"
    assert one.numbers["name"] == "b[2]"


def test_on_transformed_scales_and_in_one_dimension():
    with pm.Model() as model:
        s = pm.HalfNormal("s", 1)
        pm.Normal("y", 0, s, observed=[0.3, -0.2, 0.1, 0.4])
        dt = pk.sample(draws=500, tune=500, random_seed=1, progressbar=False, step=pk.GAM())
    found = pk.identifiability(dt, model, random_seed=1)
    assert found.parameters.index.tolist() == ["s_log__"]
    assert 0.1 < found.parameters["narrowed"].iloc[0] < 0.6
    assert list(found.parameters.columns) == ["narrowed", "given_others"]
    assert "s_log__" in repr(found)


def test_without_log_densities_there_is_no_power_scaling(caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    model, dt, _ = regression()
    found = pk.identifiability(
        xr.DataTree.from_dict({"posterior": dt["posterior"].to_dataset()}), model
    )
    assert found.sensitivity.empty
    assert "no_power_scaling" in codes(caplog)


def test_a_flat_prior_cannot_be_narrowed():
    with pm.Model() as model:
        pm.Flat("a")
    dt = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"a": (("chain", "draw"), np.ones((2, 5)))})}
    )
    with pytest.raises(ValueError, match="no proper prior"):
        pk.identifiability(dt, model)


def test_draws_of_another_model():
    model, _, _ = regression()
    dt = xr.DataTree.from_dict(
        {"posterior": xr.Dataset({"b": (("chain", "draw"), np.ones((2, 5)))})}
    )
    with pytest.raises(ValueError, match="is it another model"):
        pk.identifiability(dt, model)


def test_few_draws_of_many_parameters_show_no_ridge(caplog):
    """The widest of 20 directions of 40 draws seems 1.7 times as wide as the prior, and is not."""
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=20)
    x = np.random.default_rng(1).normal(size=(4, 10, 20))
    dt = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw", "k"), x)})})
    widest = pk.identifiability(dt, model, random_seed=1).combinations["narrowed"]
    covariance = np.cov(x.reshape(-1, 20).T)
    assert np.sqrt(np.linalg.eigvalsh(covariance)[-1]) > 1.4
    assert widest.max() < 1.25


def test_too_few_draws_and_other_variables():
    model, dt, _ = regression()
    with pytest.raises(ValueError, match="4 draws at least"):
        pk.identifiability(dt.isel(draw=slice(2)), model)
    with pm.Model() as other:
        pm.Normal("elsewhere")
    with pytest.raises(ValueError, match="no draws of elsewhere"):
        pk.identifiability(dt, other)
