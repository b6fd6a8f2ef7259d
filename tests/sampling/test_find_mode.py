"""The maximum of a posterior: against closed forms and other optimisers, and what is told of it."""

import logging

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from numpy.testing import assert_allclose
from scipy.optimize import minimize

import pymc_kameleon as pk
from pymc_kameleon.analysis.mode.densities import ProcessOfLogp
from pymc_kameleon.analysis.mode.maxima import SETTLED, climb, distinct, maxima
from pymc_kameleon.sampling.find_mode import _Search
from pymc_kameleon.step.groups import EVALUATIONS

TIMES = np.linspace(0.2, 5, 10)
NOISY = 1.5 * np.exp(-0.7 * TIMES) + 0.1 * np.random.default_rng(1).normal(size=10)


def codes(caplog):
    return {one.code for record in caplog.records for one in getattr(record, "findings", [])}


def decayed(rate, size):
    return size * np.exp(-rate * TIMES)


def decay(solve):
    with pm.Model() as model:
        rate, size = pm.LogNormal("rate"), pm.Normal("size", 1, 1)
        noise = pm.HalfNormal("noise", 0.3)
        pm.Normal("y", solve(rate, size), noise, observed=NOISY)
    return model


def counted():
    """Return the decay as a black box, and a list that grows with its calls."""
    calls = []

    def solve(rate, size):
        calls.append(1)
        return decayed(rate, size)

    return pk.black_box(solve), calls


def highest(model, names, starts):
    """Return the highest unconstrained point that Nelder and Mead find, and its log-density."""
    logp = model.compile_logp(jacobian=False)
    options = {"xatol": 1e-8, "fatol": 1e-11, "maxiter": 10_000, "maxfev": 10_000}
    found = [
        minimize(
            lambda z: -logp(dict(zip(names, z, strict=True))),
            start,
            method="Nelder-Mead",
            options=options,
        )
        for start in starts
    ]
    best = min(found, key=lambda one: one.fun)
    return best.x, -best.fun


@pytest.fixture(scope="module")
def simulated():
    """Return a model with a simulator, its result by 200 evaluations, and a list of its calls."""
    solve, calls = counted()
    model = decay(solve)
    dt = pk.sample(model=model, max_evaluations=200, random_seed=1, quiet=True)
    return model, dt, calls


# ---- a density that is known --------------------------------------------------------------------


class Quadratic:
    """A normal log-density, to be climbed."""

    def __init__(self, mean, precision):
        self.mean, self.precision = mean, precision

    def values(self, z):
        away = (z - self.mean) @ self.precision
        return -0.5 * np.sum(away * (z - self.mean), axis=1), -away


def test_a_climb_ends_at_the_maximum_of_a_narrow_normal():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4)) * [1, 1e-4, 1, 3]
    density = Quadratic(rng.normal(size=4), np.linalg.inv(root.T @ root))
    found = climb(density, np.zeros(4), np.eye(4))
    w = np.linalg.solve(root.T, found.z - density.mean)
    assert found.is_settled
    assert w @ w / 2 < SETTLED
    covariance = found.factor @ np.linalg.inv(found.curvature) @ found.factor.T
    assert_allclose(covariance, root.T @ root, rtol=1e-3, atol=1e-12)


def test_ends_at_one_place_count_once():
    density = Quadratic(np.ones(2), np.eye(2))
    found = maxima(density, np.random.default_rng(0).normal(size=(5, 2)), np.eye(2))
    assert len(found) == 1
    away = found[0]._replace(z=found[0].z + 1)
    assert len(distinct([*found, away])) == 2


# ---- models without black boxes -----------------------------------------------------------------


def test_a_regression_against_its_closed_form_and_pymc(caplog):
    x, y = np.random.default_rng(3).normal(size=(2, 20, 3))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=3)
        pm.Normal("y", x @ b, 0.5, observed=y[:, 0])
    precision = np.eye(3) / 4 + x.T @ x / 0.25
    b = np.random.default_rng(4).multivariate_normal(np.zeros(3), np.linalg.inv(precision), (4, 50))
    dt = xr.DataTree.from_dict({"posterior": xr.Dataset({"b": (("chain", "draw", "k"), b)})})
    mode = pk.find_mode(dt, model)
    expected = np.linalg.solve(precision, x.T @ y[:, 0] / 0.25)
    assert_allclose(mode.point["b"], expected, atol=1e-6)
    assert_allclose(mode.table["sd"], np.sqrt(np.diag(np.linalg.inv(precision))), rtol=1e-3)
    by_pymc = pm.find_MAP(model=model, jitter=False, return_inferencedata=True, progressbar=False)
    assert_allclose(mode.point["b"], by_pymc["posterior"]["b"][0, 0], atol=1e-3)
    assert mode.is_checked
    assert mode.n_evaluations == 0


def test_the_mode_is_that_of_the_natural_scale():
    with pm.Model() as model:
        pm.Gamma("g", 3, 1)
        pm.Dirichlet("p", [2.0, 3, 4])
    dt = pk.sample(model=model, draws=200, tune=200, random_seed=1, quiet=True)
    mode = pk.find_mode(dt, model)
    assert_allclose(mode.point["g"], 2, rtol=1e-4)  # with the Jacobian it would be 3
    assert_allclose(mode.point["p"], np.array([1, 2, 3]) / 6, rtol=1e-4)
    assert mode.table.index.tolist() == ["g", "p[0]", "p[1]", "p[2]"]
    assert_allclose(mode.table["sd"]["g"], np.sqrt(2), rtol=1e-2)


def test_a_density_without_maximum_is_told(caplog):
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        pm.Normal("x", 0, tau, shape=3)
    dt = pk.sample(model=model, draws=200, tune=200, random_seed=1, quiet=True)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        pk.find_mode(dt, model)
    assert "no_maximum_inside" in codes(caplog)
    assert "as tau goes to" in caplog.text


def test_a_bound_is_told(caplog):
    with pm.Model() as model:
        pm.Exponential("x", 1)
    dt = pk.sample(model=model, draws=200, tune=200, random_seed=1, quiet=True)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        mode = pk.find_mode(dt, model)
    assert "no_maximum_inside" in codes(caplog)
    assert mode.point["x"] < 1e-3


def test_another_maximum_is_told_and_the_higher_one_returned(caplog):
    with pm.Model() as model:
        pm.NormalMixture("x", [0.3, 0.7], [-3, 3], [0.2, 1])
    x = np.random.default_rng(0).normal(3, 1, (4, 50))  # no draw near the highest point, at -3
    dt = xr.DataTree.from_dict({"posterior": xr.Dataset({"x": (("chain", "draw"), x)})})
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        mode = pk.find_mode(dt, model)
    assert_allclose(mode.point["x"], -3, atol=1e-3)
    assert {"other_maxima", "mode_misses"} <= codes(caplog)


def test_without_a_result_the_model_is_sampled():
    with pm.Model(coords={"own": ["a", "b"]}) as model:
        pm.Gamma("g", 3, 1, dims="own")  # whose shape is known by the coordinates alone
    mode = pk.find_mode(model, random_seed=1)
    assert_allclose(mode.point["g"], 2, rtol=1e-4)
    assert mode.table.index.tolist() == ["g[a]", "g[b]"]


def test_a_parameter_that_no_draw_has_moved():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a + b, 0.5, observed=1.0)
    draws = {"a": np.random.default_rng(0).normal(size=(2, 50)), "b": np.zeros((2, 50))}
    dt = xr.Dataset({name: (("chain", "draw"), own) for name, own in draws.items()})
    mode = pk.find_mode(xr.DataTree.from_dict({"posterior": dt}), model)
    assert_allclose([mode.point["a"], mode.point["b"]], 4 / 9, atol=1e-4)
    assert_allclose(mode.table["sd"], (1 - 1 / (2 + 0.25)) ** 0.5, rtol=1e-3)


def test_a_bound_does_not_hide_the_curvature_of_others(caplog):
    with pm.Model() as model:
        pm.Exponential("x", 1)
        pm.Normal("other", 0, 3)
    dt = pk.sample(model=model, draws=200, tune=200, random_seed=1, quiet=True)
    sd = pk.find_mode(dt, model).table["sd"]
    assert np.isnan(sd["x"])
    assert_allclose(sd["other"], 3, rtol=1e-3)


# ---- models with black boxes --------------------------------------------------------------------


def test_a_simulator_is_not_called_unless_asked(simulated, caplog):
    model, dt, calls = simulated
    before = len(calls)
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        mode = pk.find_mode(dt, model)
    assert len(calls) == before
    assert "mode_not_evaluated" in codes(caplog)
    assert not mode.is_checked
    starts = np.random.default_rng(0).normal([0, 1, -1], 0.3, (5, 3))
    z, logp = highest(model, ["rate_log__", "size", "noise_log__"], starts)
    found = np.log(mode.point["rate"]), mode.point["size"], np.log(mode.point["noise"])
    assert_allclose(found, z, atol=0.02)
    assert_allclose(mode.logp, logp, atol=0.02)


def test_evaluations_check_the_mode(simulated):
    model, dt, calls = simulated
    before = len(calls)
    mode = pk.find_mode(dt, model, n_evaluations=15)
    assert mode.is_checked
    assert mode.n_evaluations == len(calls) - before <= 15


def spoilt(dt):
    """Return a result whose simulator has returned something else."""
    data = dt[EVALUATIONS].to_dataset()
    [name] = [name for name in data if name.endswith("_outputs")]
    data[name] = 1.1 * data[name]
    return xr.DataTree.from_dict({"posterior": dt["posterior"].to_dataset(), EVALUATIONS: data})


def test_a_wrong_approximation_does_not_pass_the_check(simulated, caplog):
    model, dt, _ = simulated
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        mode = pk.find_mode(spoilt(dt), model, n_evaluations=5)
    assert not mode.is_checked
    assert "mode_off" in codes(caplog)
    known = dt[EVALUATIONS]["logp"].values  # with the Jacobian, but it is not what was predicted
    assert np.isfinite(mode.logp)
    assert mode.logp < known.max() + 10
    assert "no maximum was confirmed" in repr(mode)


def test_a_log_likelihood():
    x = np.random.default_rng(6).normal(size=(40, 2))
    y = x @ [1.0, -0.5] + 0.3

    def logl(b):
        return -0.5 * np.sum((y - x @ b[:2] - b[2]) ** 2) / 0.5**2

    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        pm.Potential("logl", pk.black_box(logl, ndim=0)(b))
    dt = pk.sample(model=model, max_evaluations=200, random_seed=1, quiet=True)
    design = np.column_stack([x, np.ones(40)])
    precision = np.eye(3) + design.T @ design / 0.25
    expected = np.linalg.solve(precision, design.T @ y / 0.25)
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    predicted, checked = (pk.find_mode(dt, model, n_evaluations=n) for n in (0, 15))
    assert np.all(np.abs(predicted.point["b"] - expected) < 0.1 * sd)
    assert np.all(np.abs(checked.point["b"] - expected) < 0.1 * sd)
    assert checked.is_checked


class Approximate(Quadratic):
    """A normal log-density that was evaluated at some points."""

    is_exact = False

    def __init__(self, mean, precision, known):
        super().__init__(mean, precision)
        self.known, self.logp = known, self.values(known)[0]

    def fit_about(self, _):
        pass


def test_a_maximum_beyond_what_was_evaluated_is_told():
    z = np.random.default_rng(0).normal(size=(50, 2))
    for mean, is_beyond in ((0, False), (10, True)):
        search = _Search(Approximate(np.full(2, mean), np.eye(2), z), z, z[:3])
        codes = {one.code for one in search.doubts(0)}
        assert ("mode_beyond" in codes) == is_beyond


def test_a_pair_sees_a_wrong_slope():
    """An approximation with the right height, but a wrong slope, is not checked."""

    class Shifted(Approximate):
        def evaluate(self, z):  # as high at (0, 0), but it goes on rising there
            return float(self.values(z[None])[0][0] + 0.4 * z[0])

    z, n_seen = np.random.default_rng(0).normal(size=(50, 2)), 0
    for seed in range(20):
        search = _Search(Shifted(np.zeros(2), np.eye(2), z), z, z[:3])
        search.check(5, np.random.default_rng(seed))
        assert search.off < SETTLED  # so that the height alone would have passed
        n_seen += not search.is_checked
    assert n_seen >= 16  # 96 %: both directions may be across the slope


def test_a_process_is_fitted_to_one_mode():
    """Two modes of different widths do not share a frame."""
    rng = np.random.default_rng(0)
    z = np.concatenate([rng.normal(-5, 1, (60, 2)), rng.normal(5, 0.2, (60, 2))])

    def logp(z):
        parts = -0.5 * np.sum((z + 5) ** 2, axis=1), -0.5 * np.sum((z - 5) ** 2, axis=1) / 0.04
        return np.logaddexp(*parts)

    process = ProcessOfLogp(None, None, z, (z, logp(z)))
    for centre, sd in ((-5, 1), (5, 0.2)):
        start = np.full(2, centre + sd)
        process.fit_about(start)
        found = climb(process, start, sd * np.eye(2))
        assert_allclose(found.z, centre, atol=0.05 * sd)


# ---- errors -------------------------------------------------------------------------------------


def test_bad_input(simulated):
    model, dt, _ = simulated
    with pytest.raises(ValueError, match=r"n_evaluations must be 0, or at least 5"):
        pk.find_mode(dt, model, n_evaluations=2)
    with pytest.raises(ValueError, match="n_evaluations must be"):
        pk.find_mode(dt, model, n_evaluations=-1)
    with pm.Model() as discrete:
        pm.Poisson("n", 3)
    with pytest.raises(ValueError, match=r"n is discrete"):
        pk.find_mode(dt, discrete)
    with pm.Model() as other:
        pm.Normal("elsewhere")
    with pytest.raises(ValueError, match="no draws of elsewhere"):
        pk.find_mode(dt, other)
    with pytest.raises(ValueError, match="no draws to begin at"):
        pk.find_mode(xr.DataTree.from_dict({"prior": xr.Dataset()}), model)


def test_draws_without_log_densities(simulated):
    model, dt, _ = simulated
    draws = xr.DataTree.from_dict({"posterior": dt["posterior"].to_dataset()})
    with pytest.raises(ValueError, match=r"sample_stats\['lp'\]"):
        pk.find_mode(draws, model)


def test_a_result_of_an_older_version_has_no_shapes(simulated):
    model, dt, calls = simulated
    older, n = dt.copy(), len(calls)
    older["evaluations"].attrs = {k: v for k, v in dt["evaluations"].attrs.items() if k != "shapes"}
    with pytest.raises(ValueError, match=r"reuse=dt"):
        pk.find_mode(older, model)
    assert len(calls) == n
