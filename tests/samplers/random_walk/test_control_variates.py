"""Control variates of GAM: their means are 0, and averages gain by them."""

from functools import partial

import arviz as az
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from noisy import toy
from runs import messages, sample
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.analysis import control_correction as averages
from pymc_kameleon.analysis.batches import LEAST_DRAWS
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.model.noise import NOISE_STATISTIC
from pymc_kameleon.samplers.random_walk import controls

# ---- the controls of one transition -------------------------------------------------------------

MEAN = np.array([1.0, -2.0, 0.5])
FACTOR = np.array([[1.5, 0, 0], [0.7, 0.4, 0], [-0.3, 0.2, 2.0]])


def by_definition(mean, factor, x, y, accept_prob, scale):
    """Return the controls by their definition, with E over the points of a fine grid."""

    def functions(points):
        """Return u, u² and r² of points (n, d)."""
        z = np.linalg.solve(factor, (points - mean).T).T
        return np.column_stack([points - mean, (points - mean) ** 2, np.sum(z**2, axis=1)])

    def change(points):
        """Return α̃(φ(y) − φ(x))."""
        gained = functions(points) - functions(x[None])
        return np.minimum(1, np.exp(-gained[:, -1] / 2))[:, None] * gained

    one = np.linspace(-7, 7, 2001 if x.size == 1 else 601)
    grid = np.stack(np.meshgrid(*[one] * x.size), axis=-1).reshape(-1, x.size)
    weights = np.prod(norm.pdf(grid), axis=1)
    expected = weights / weights.sum() @ change(x + scale * grid @ factor.T)
    [gained] = functions(y[None]) - functions(x[None])
    return accept_prob * gained - change(y[None])[0] + expected


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2])
def test_they_are_what_they_are_defined_to_be(d):
    rng, scale, factor = np.random.default_rng(1), 1.3, FACTOR[:d, :d]
    own = allocate(controls.Controls, {"d": d})
    controls.prepare(own, MEAN[:d], factor, scale)
    for length in (0.05, 0.5, 2.0, 4.0):
        z, xi = rng.standard_normal((2, d))
        z *= length / np.linalg.norm(z)
        x, sums = MEAN[:d] + factor @ z, np.zeros(2 * d + 1)
        y = x + scale * factor @ xi
        scratch = np.empty(controls.N_COLUMNS)
        controls.add_controls(own, x, y, z, scale * xi, 0.3, scratch, sums)
        expected = by_definition(MEAN[:d], factor, x, y, 0.3, scale)
        np.testing.assert_allclose(sums, expected, rtol=2e-4, atol=2e-4)


@pytest.fixture(scope="module")
def banana():
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1)
        pm.Normal("y", x**2, 1)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("d", [3, 40])
def test_the_table_in_many_dimensions(d):
    """By random proposals."""
    rng, scale, n = np.random.default_rng(2), 2.4 / d**0.5, 200_000
    [row] = controls.expectations(d, scale, np.array([0.5, 0.8]) * d**0.5)[1:]
    z = np.full((1, d), 0.8)
    z_y = z + scale * rng.standard_normal((n, d))
    gained = np.sum(z_y**2, axis=1) - np.sum(z**2)
    alpha = np.minimum(1, np.exp(-gained / 2))
    first = row[controls.SQUARE_COLUMN] * 0.8**2 + row[controls.VARIANCE_COLUMN]
    for sampled, expected in [
        (z_y[:, 0] - 0.8, row[controls.LINEAR_COLUMN] * 0.8),
        (z_y[:, 0] ** 2 - 0.8**2, first),
        (gained, row[controls.RADIUS_COLUMN]),
    ]:
        error = np.mean(alpha * sampled) - expected
        assert abs(error) < 4 * np.std(alpha * sampled) / n**0.5


def test_beyond_the_table_there_is_no_second_part():
    own = allocate(controls.Controls, {"d": 1})
    controls.prepare(own, MEAN[:1], FACTOR[:1, :1], 2.0)
    sums, far, step = np.zeros(3), np.array([9.0]), np.array([-1.0])
    x = MEAN[:1] + 1.5 * far
    controls.add_controls(own, x, x - 1.5, far, step, 0.5, np.empty(controls.N_COLUMNS), sums)
    np.testing.assert_allclose(sums, [-0.75, 0.5 * 1.5**2 * (64 - 81), 0.5 * (64 - 81)])


# ---- those that a chain keeps -------------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    with pm.Model() as model:
        x = pm.MvNormal("x", mu=[1, -1], cov=[[1, 0.7], [0.7, 1]])
        t = pm.Gamma("t", 9, 3)
        pm.Deterministic("y", x[0] * t)
    return model


@pytest.fixture(scope="module")
def step(model):
    return pk.GAM(model=model, control_variates=True)


@pytest.fixture
def again(step):
    """The same sampler with other options."""
    return partial(pk.GAM, model=step.model)


OPTIONS = {"draws": 500, "tune": 400, "chains": 4}


@pytest.fixture(scope="module")
def result(step):
    return sample(step, **OPTIONS)


NAMES = "mean_control", "square_control", "radius_control"


def largest_z(dt):
    """Return the largest |mean| of the controls, in standard errors."""
    kept = dt["control_variates"].to_dataset()[list(NAMES)]
    z = kept.mean(["chain", "draw"]) / az.mcse(kept, method="mean")
    return max(float(np.abs(z[name]).max()) for name in NAMES)


def test_their_means_are_zero(banana, monkeypatch):
    """However far from normal the posterior is; but not with a wrong table."""
    one = pk.GAM(model=banana, control_variates=True, steps_per_draw=10)
    long = OPTIONS | {"draws": 6000, "chains": 2}
    assert largest_z(sample(one, **long)) < 4

    prepare = controls.prepare

    def wrong(own, *arguments):
        prepare(own, *arguments)
        own.table[:, controls.VARIANCE_COLUMN] *= 0.8

    monkeypatch.setattr(controls, "prepare", wrong)
    assert largest_z(sample(one, **long)) > 10


@pytest.mark.slow
def test_a_density_may_end_abruptly():
    """Where the mean of its gradient is not 0."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("end", pm.math.switch(x[0] < 1, 0.0, -np.inf))
    step = pk.GAM(model=model, control_variates=True, steps_per_draw=10)
    dt = sample(step, draws=3000, tune=200, chains=2)
    assert largest_z(dt) < 4
    found = pk.expectation(dt, lambda v: v["x"])
    z = (found.mean - [-norm.pdf(1) / norm.cdf(1), 0]) / found.mcse
    assert (np.abs(z) < 4).all()
    assert found.gain[1] > 1  # the other coordinate has no end


@pytest.mark.slow
def test_they_change_no_draw(again, result):
    plain = sample(again(), **OPTIONS)
    xr.testing.assert_equal(plain["posterior"].to_dataset(), result["posterior"].to_dataset())
    assert set(result.children) - set(plain.children) == {"control_variates"}
    x = np.concatenate(
        [result["posterior"]["x"], np.log(result["posterior"]["t"].values)[..., None]], axis=2
    )
    np.testing.assert_allclose(result["control_variates"]["position"], x, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("each", [1, 10])
def test_each_draw_has_means_over_its_transitions(again, each):
    """From one transition on they are those of the state before."""
    dt = sample(again(control_variates=True, steps_per_draw=each), draws=50, tune=100, chains=1)
    kept, mean = dt["control_variates"].to_dataset(), dt["learned"]["mean"].values
    before = kept["position"].values[0, :-1] - mean
    means, squares = (kept[name].values[0, 1:] for name in ("mean", "square"))
    assert (squares >= means**2 - 1e-12).all()
    is_same = np.isclose(means, before).all(axis=1) & np.isclose(squares, before**2).all(axis=1)
    assert is_same.all() == (each == 1)


@pytest.mark.slow
def test_averages_are_worth_more_than_the_draws(step, result, caplog):
    """Without the model, in units of what is asked for."""

    def everything(v):
        return np.concatenate([v["x"], v["x"] ** 2, v["t"][..., None], v["y"][..., None]], axis=2)

    found = pk.expectation(result, everything)
    plain = pk.expectation(result["posterior"], everything)
    true = np.array([1, -1, 2, 2, 3, 3])
    assert (np.abs(found.mean - true) < 4 * found.mcse).all()
    assert (found.gain[:4] > 10).all()
    assert (found.mcse < plain.mcse).all()
    table = pk.summary(result)
    assert (table.loc[["x[0]", "x[1]"], "gain"] > 10).all()
    error = found.mcse[2] / 2 + found.mcse[0]  # that of the sd, to first order
    assert table.loc["x[0]", "sd"] == pytest.approx(1, abs=4 * error)
    assert "certificate" not in table.attrs
    assert messages(caplog) == []
    assert pk.expectation(result, lambda v: v["t"] * 0 + 1).gain == 1


def test_chains_share_a_centre(result):
    """Whatever each has learned as the mean, which changes the controls of u² as it has to."""
    kept, learned = result["control_variates"].to_dataset(), result["learned"].to_dataset()
    before, shift = averages.kept_of(kept, learned), np.array([[1.0], [0], [0], [-1.0]])
    moved = learned.assign(mean=learned["mean"] + shift)
    shift = xr.DataArray(shift[:, 0], dims="chain")
    other = kept.assign(
        mean=kept["mean"] - shift,
        square=kept["square"] - 2 * shift * kept["mean"] + shift**2,
        square_control=kept["square_control"] - 2 * shift * kept["mean_control"],
    )
    for own, same in zip(before, averages.kept_of(other, moved), strict=True):
        np.testing.assert_allclose(own, same, atol=1e-10)


def test_what_is_only_noise_is_not_corrected(result):
    kept, learned = result["control_variates"].to_dataset(), result["learned"].to_dataset()
    noise = np.random.default_rng(1).standard_normal((4, 500, 200))
    found = averages.controlled(noise, averages.kept_of(kept, learned))
    assert found.is_better.mean() < 0.05


def test_a_stuck_chain_is_not_made_worse(result):
    """Coefficients from the others do not suit it, which it shows itself."""
    kept = result["control_variates"].to_dataset().copy(deep=True)
    f, learned = result["posterior"]["x"].values, result["learned"].to_dataset()
    found = averages.controlled(f, averages.kept_of(kept, learned))
    assert found.is_better.all()
    kept["mean_control"][0] *= 100
    found = averages.controlled(f, averages.kept_of(kept, learned))
    assert not found.is_better.any()


def test_rounding_makes_no_controls(result):
    """Of a coordinate itself only its own controls are of use."""
    kept, learned = result["control_variates"].to_dataset(), result["learned"].to_dataset()
    kept = averages.kept_of(kept, learned)
    slopes = averages._slopes(kept.features, result["posterior"]["x"].values)
    assert np.count_nonzero(slopes) == slopes.shape[0] * slopes.shape[2]


def test_controls_that_are_nearly_the_same_explain_no_noise():
    rng = np.random.default_rng(5)
    control, noise = rng.normal(size=(2, 3, 15, 1))
    nearly = control + 1e-4 * rng.normal(size=(3, 1, 1))  # as chains have different centres
    controls_of = np.stack([control, nearly], axis=-1)

    def error(theta):
        return abs(theta.sum() - 1) + abs(theta).max()

    found = averages._coefficients(control + 0.01 * noise, controls_of)
    assert error(found) < 1
    flat = controls_of.reshape(-1, 2)
    uncentred = np.linalg.lstsq(flat, (control + 0.01 * (noise + 1)).ravel(), rcond=None)[0]
    assert error(uncentred) > 3


@pytest.mark.slow
def test_what_never_moves_costs_no_run(caplog):
    caplog.set_level("INFO", logger="pymc")
    with pm.Model():
        pm.Normal("x")
        pm.Potential("p", pm.math.switch(pm.math.eq(pm.Flat("c"), 0.5), 0.0, -np.inf))
        step = pk.GAM(control_variates=True, learning_rate=0.9, jitter=False)
    dt = sample(step, draws=100, tune=3000, chains=2, initvals={"x": 0.0, "c": 0.5})
    assert pk.expectation(dt, lambda v: v["x"]).gain == 1
    assert any("a parameter never moved" in message for message in messages(caplog))


def test_z_follows_moves_of_somebody_else(step):
    step.setup_chain(np.random.default_rng(1), 100, 10)
    point = step.model.initial_point()
    for _ in range(100):
        point, _ = step.step(point)
    step.stop_tuning()
    for move in (0.0, 0.3, -0.3) * 10:  # an accepted proposal brings its own z
        point, _ = step.step(point | {"x": point["x"] + move})
        u = step.state.x - step.parameters.controls.mean
        np.testing.assert_allclose(step.parameters.factor @ step.state.z, u, rtol=1e-6, atol=1e-9)


def test_few_draws_are_not_corrected(result):
    few = result.isel(draw=slice(LEAST_DRAWS - 1))
    assert pk.expectation(few, lambda v: v["t"]).gain == 1
    assert pk.expectation(result.isel(draw=slice(200)), lambda v: v["t"]).gain > 1
    assert pk.expectation(result.isel(chain=[0]), lambda v: v["t"]).gain == 1


def test_a_part_of_the_variables_is_refused(again):
    with pytest.raises(ValueError, match=r"needs GAM to move all variables, not only \['x'\]"):
        again(["x"], control_variates=True)


def test_without_tuning_they_are_poor_but_right(step):
    dt = sample(step, draws=4000, tune=0, chains=2)
    assert largest_z(dt) < 4


@pytest.mark.slow
def test_with_an_estimated_likelihood():
    """The statistic of the noise is beside them."""
    with toy(0.5):
        one = pk.GAM(control_variates=True, pseudo_marginal=True)
    dt = sample(one, draws=6000, tune=400, chains=2)
    noise = dt["sample_stats"][NOISE_STATISTIC].values
    assert (noise == noise[:, :1]).all()
    assert (np.abs(noise - 0.25) < 0.1).all()
    assert largest_z(dt) < 4


def test_a_proposal_that_changes_is_refused(again):
    with pytest.raises(ValueError, match="control_variates is impossible with keep_adapting"):
        again(control_variates=True, keep_adapting=True)
    with pytest.raises(ValueError, match="control_variates must be True or False"):
        again(control_variates="yes")
