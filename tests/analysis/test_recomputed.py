"""Averages mix draws and what is computed anew: only where both are the same quantity.

Selections, other orders, labels and units, edited models, black boxes, and results without a model.
"""

import gc
import logging

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from pytensor.compile.ops import wrap_py
from runs import messages, sample
from scipy.stats import gamma, norm

import pymc_kameleon as pk
from pymc_kameleon.analysis import draws_of_result, recomputed, summary
from pymc_kameleon.analysis.surrogate_correction import by_surrogate
from pymc_kameleon.samplers.surrogate import initial_search

calls = []


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def simulator(x):
    calls.append(x)
    return 2 * x


def schools(bound=3.0, shift=1.0, others="abc"):
    with pm.Model(coords={"school": list(others), "k": [0, 1]}) as model:
        x = pm.Normal("x", [1.0, 2.0, 4.0], 0.5, dims="school")
        t = pm.Gamma("t", 4, 4)
        pm.Uniform("w", 0, bound)
        pm.Deterministic("sum", x[:2] + t + pm.Data("shift", shift), dims="k")
        pm.Deterministic("mu", simulator(x))
        pm.Normal("two", 0, 1, dims="k")
    return model


MODEL = schools()
MEANS = {"x[a]": 1, "x[b]": 2, "x[c]": 4, "t": 1, "w": 1.5, "sum[0]": 3, "sum[1]": 4}


@pytest.fixture(scope="module", autouse=True)
def by_moves_alone():
    """Averages are corrected by what is computed anew, alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws_of_result, "KINDS", [by_surrogate])
        patch.setattr(initial_search, "MOST_COORDINATES", 0)  # it would take most of the time
        yield


@pytest.fixture(scope="module")
def result():
    """A run whose surrogate is good: gains were at least 50 with each of fifteen seeds."""
    step = pk.SurrogateMetropolis(model=MODEL)
    dt = sample(step, draws=250, tune=600, chains=4, random_seed=7)
    assert pk.summary(dt, ["x", "t", "w", "sum"], model=MODEL)["gain"].min() > 10
    return dt


def with_posterior(result, change):
    changed = result.copy()
    changed["posterior"] = xr.DataTree(change(result["posterior"].to_dataset()))
    return changed


def is_right(table, means=MEANS, most=4.5):
    rows = [name for name in means if name in table.index]
    z = (table.loc[rows, "mean"] - [means[name] for name in rows]) / table.loc[rows, "mcse_mean"]
    return rows and (z.abs() < most).all()


@pytest.mark.slow
def test_the_model_is_remembered(result, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    table = pk.summary(result, round_to="none")
    assert is_right(table)
    assert (table["gain"].drop(["mu[0]", "mu[1]", "mu[2]"]) > 1.5).all()
    assert pk.expectation(result, lambda v: v["sum"]).gain.min() > 1.5
    found, given = (pk.summary(result, model=model) for model in (None, MODEL))
    assert found.equals(given)


def test_a_black_box_is_not_called_again(result, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    calls.clear()
    table = pk.summary(result, round_to="none")
    plain = pk.expectation(result["posterior"], lambda v: v["mu"])
    found = pk.expectation(result, lambda v: v["mu"])
    assert calls == []
    np.testing.assert_array_equal(found, plain)
    assert (table.loc[["mu[0]", "mu[1]", "mu[2]"], "gain"] == 1).all()
    said = (
        "Averages of mu are those of the draws: computing that anew would call simulator, so they "
        "are not corrected. [plain_averages]"
    )
    assert [text for text in messages(caplog, logging.INFO) if "mu" in text] == [said] * 2


@pytest.mark.slow
def test_without_its_model_there_are_coordinates(result, caplog, monkeypatch):
    """A file knows no model, but the coordinates x, and log t."""
    monkeypatch.setattr(recomputed, "model_of", lambda dt: None)
    caplog.set_level(logging.INFO, "pymc_kameleon")
    table = pk.summary(result, round_to="none")
    assert is_right(table)
    assert (table.loc[["x[a]", "x[b]", "x[c]", "t"], "gain"] > 1.5).all()
    assert (table.loc[["w", "sum[0]", "sum[1]"], "gain"] == 1).all()
    said = "Averages of w, sum, mu are those of the draws: only the model can compute that anew"
    assert any(text.startswith(said) for text in messages(caplog, logging.INFO))
    with schools():
        assert pk.expectation(result, lambda v: v["sum"]).gain.min() > 1.5
    with pm.Model():
        pm.Normal("z")
        assert (pk.expectation(result, lambda v: v["sum"]).gain == 1).all()


@pytest.mark.slow
def test_a_model_that_is_gone_is_forgotten():
    with pm.Model() as model:
        pm.Normal("x")
        dt = sample(pk.SurrogateMetropolis(), draws=20, tune=50)
    assert recomputed.model_of(dt["posterior"]) is model
    del model
    gc.collect()
    pk.summary(dt)


SELECTIONS = {
    "two": (lambda d: d.sel(school=["b", "c"]), ["x[b]", "x[c]"]),
    "reversed": (lambda d: d.isel(school=slice(None, None, -1)), ["x[c]", "x[b]", "x[a]"]),
    "one, as a list": (lambda d: d.sel(school=["c"]), ["x[c]"]),
    "every second draw": (lambda d: d.isel(draw=slice(None, None, 2)), ["x[a]", "x[b]"]),
    "sorted by draws": (lambda d: d.isel(draw=slice(None, None, -1)), ["x[a]", "x[b]"]),
    "transposed": (lambda d: d.transpose("school", "draw", "k", "chain", ...), ["x[a]", "x[c]"]),
    "integers": (lambda d: d.sel(k=[1]), ["sum[1]"]),
    "both": (lambda d: d.sel(k=[1, 0], school=["c", "a"]), ["sum[1]", "sum[0]", "x[c]", "x[a]"]),
}


@pytest.mark.parametrize("name", SELECTIONS)
def test_elements_are_found_by_their_labels(name, result, caplog):
    change, rows = SELECTIONS[name]
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    table = pk.summary(with_posterior(result, change), ["x", "sum"], round_to="none")
    assert is_right(table)
    assert (table.loc[rows, "gain"] > 1.5).all()
    assert not [text for text in messages(caplog, logging.WARNING) if "are those" in text]


@pytest.mark.slow
def test_one_element_has_no_dimension(result):
    dt = with_posterior(result, lambda d: d.sel(school="c", k=1))
    table = pk.summary(dt, round_to="none")
    assert is_right(table, {"x": 4, "sum": 4, "two": 0})
    assert (table.loc[["x", "sum", "two"], "gain"] > 1.5).all()
    found = pk.expectation(dt, lambda v: v["x"] + v["two"])
    assert abs(found.mean - 4) < 4 * found.mcse
    assert found.gain > 1.5


CHANGES = {
    "labels that were exchanged": lambda d: d.assign_coords(school=["c", "b", "a"]),
    "labels that were sorted by": lambda d: d.assign(x=d["x"].copy(data=np.sort(d["x"], axis=2))),
    "another unit": lambda d: d.assign(x=d["x"] * 1000, t=d["t"] / 60),
    "standardised": lambda d: d.assign(x=(d["x"] - d["x"].mean()) / d["x"].std()),
    "numbered anew": lambda d: d.isel(draw=slice(100, None)).assign_coords(draw=np.arange(150)),
    "chains in another order": lambda d: d.isel(chain=[1, 0, 2, 3]).assign_coords(chain=range(4)),
    "one draw": lambda d: d.assign(x=d["x"].where(d["draw"] != 17, 50.0)),
    "shuffled": lambda d: d.assign(x=d["x"].copy(data=d["x"].values[:, ::-1])),
    "another variable": lambda d: d.assign(x=d["x"] * 0 + d["t"]),
    "another shape": lambda d: d.assign(x=d["x"].expand_dims("size", 2).drop_vars("school")),
    "text": lambda d: d.assign(x=d["x"].astype(str)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_draws_that_were_changed_have_their_own_averages(name, result, caplog):
    changed = with_posterior(result, CHANGES[name])
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    if name != "text":
        table = pk.summary(changed, ["x"], round_to="none")
        means = changed["posterior"]["x"].mean(["chain", "draw"]).values.ravel()
        np.testing.assert_allclose(table["mean"], means, rtol=1e-12)
        assert (table["gain"] == 1).all()
        said = " ".join(messages(caplog, logging.WARNING))
        assert "not what the model computes" in said
        assert "[changed_variables]" in said
    caplog.clear()
    found = pk.expectation(changed, lambda v: v["x"].astype(float))
    assert (found.gain == 1).all()
    assert "not what the model computes" in " ".join(messages(caplog, logging.WARNING))


def test_values_count_where_labels_are_new(result):
    renamed = with_posterior(result, lambda d: d.assign_coords(school=["Eton", "Rugby", "York"]))
    table = pk.summary(renamed, ["x"], round_to="none")
    assert is_right(table, {"x[Eton]": 1, "x[Rugby]": 2, "x[York]": 4})
    assert (table["gain"] > 1.5).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("edited", "wrong"),
    [({"bound": 4.0}, "w"), ({"shift": 2.0}, "sum"), ({"others": "cba"}, "x")],
    ids=["a bound", "data", "labels"],
)
def test_models_that_were_edited_compute_nothing(edited, wrong, result, caplog):
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    with schools(**edited) as model:
        table = pk.summary(result, round_to="none", model=model)
    assert is_right(table)
    own = table.index.str.startswith(wrong)
    assert (table["gain"][own] == 1).all()
    assert table["gain"]["t"] > 1.5
    assert any(f"Averages of {wrong}" in text for text in messages(caplog, logging.WARNING))


def test_draws_selected_by_their_values_are_not_those_of_the_posterior(result, caplog):
    """A correction would give back the whole posterior."""
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    few = np.flatnonzero((result["posterior"]["t"] < 1.5).all("chain"))
    assert 20 < len(few) < 200
    chosen = with_posterior(result, lambda d: d.isel(draw=few))
    found = pk.expectation(chosen, lambda v: v["t"])
    assert found.mean == pytest.approx(float(chosen["posterior"]["t"].mean()))
    assert found.gain == 1
    [said] = [text for text in messages(caplog) if "[changed_draws]" in text]
    assert "perhaps by their values" in said


def test_numbers_that_are_not_those_of_the_run_are_told(result, caplog):
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    twice = with_posterior(result, lambda d: xr.concat([d, d], "draw"))
    other = with_posterior(result, lambda d: d.assign_coords(draw=np.arange(250) + 1000))
    for changed in (twice, other):
        caplog.clear()
        assert (pk.summary(changed)["gain"] == 1).all()
        [said] = [text for text in messages(caplog) if "[changed_draws]" in text]
        assert "have been renumbered since sampling" in said


MIXING = {
    "mean and sd": lambda v: v["t"] > v["t"].mean() + 2.5 * v["t"].std(),
    "a quantile": lambda v: v["x"] > np.quantile(v["x"], 0.999, axis=(0, 1)),
    "the largest": lambda v: v["t"] > 0.98 * v["t"].max(),
    "ranks": lambda v: np.argsort(np.argsort(v["t"], axis=None)).reshape(v["t"].shape),
    "two variables": lambda v: (s := v["t"] ** 3 + v["w"]) > s.mean() + 3 * s.std(),
    "the median of a chain": lambda v: v["t"] > np.median(v["t"], axis=1, keepdims=True),
    "the draw before": lambda v: v["t"] > np.roll(v["t"], 1, axis=1),
    "the number of the draw": lambda v: v["t"] * (np.arange(v["t"].shape[1]) < 100),
    "one that is far away": lambda v: np.abs((s := v["t"] ** 3) - s.mean()) > 4 * s.std(),
    "on another scale": lambda v: 1e-9 * v["t"] / v["t"].max(),
    "with an offset": lambda v: 101325 + (v["t"] > v["t"].mean()),
    "standardised": lambda v: (v["x"] - v["x"].mean(axis=(0, 1))) / v["x"].std(axis=(0, 1)),
}


@pytest.mark.parametrize("name", MIXING)
def test_a_function_that_looks_at_other_draws_is_refused(name, result):
    with pytest.raises(ValueError, match="must treat each draw for itself"):
        pk.expectation(result, MIXING[name])


@pytest.mark.slow
@pytest.mark.parametrize(
    "function",
    [
        lambda v: v["t"] > 4,
        lambda v: np.where(v["x"] > 3, np.nan, 1) > 0,
        lambda v: np.sort(v["x"], axis=2),
        lambda v: np.stack(list(dict(v).values())[:1])[0],
        lambda v: np.ones_like(v["t"]),
        lambda v: sum(own.reshape(*own.shape[:2], -1).sum(axis=2) for own in v.values()),
    ],
)
def test_a_function_of_each_draw_passes(function, result):
    pk.expectation(result, function)


def test_a_function_that_goes_by_the_variables_has_all_of_them(result):
    """Of which a black box cannot be computed anew."""
    n = len(result["posterior"])
    for function in (lambda v: v["t"] * len(v), lambda v: v["t"] * n * ("mu" in v)):
        found = pk.expectation(result, function)
        assert found.mean == pytest.approx(n * result["posterior"]["t"].values.mean())
        assert found.gain == 1


def test_a_function_may_write_into_what_it_gets(result):
    def clipped(v):
        v["t"][v["t"] > 1] = 1
        return v["t"]

    before = result["posterior"]["t"].values.copy()
    found = pk.expectation(result, clipped)
    expected = gamma.cdf(1, 5, scale=1 / 4) + gamma.sf(1, 4, scale=1 / 4)
    assert abs(found.mean - expected) < 4 * found.mcse
    np.testing.assert_array_equal(result["posterior"]["t"], before)


def test_a_function_that_changes_has_the_average_of_the_draws(result, caplog):
    caplog.set_level(logging.WARNING, "pymc_kameleon")
    found = pk.expectation(result, lambda v: v["t"] * (1 if v["t"].shape[0] == 4 else 1 + 1e-10))
    assert found.gain > 1.5
    found = pk.expectation(result, lambda v: v["t"] + (v["t"].shape[1] == 1000) * (len(calls) < 0))
    assert found.gain > 1.5
    monkey = iter([0, 0, 0, 0, 1, 1, 1])
    found = pk.expectation(result, lambda v: v["t"] + next(monkey))
    assert found.gain == 1
    assert any("[changing_function]" in text for text in messages(caplog, logging.WARNING))


@pytest.mark.slow
def test_a_prior_by_a_black_box_calls_nothing():
    with pm.Model():
        a = pm.Normal("a", shape=2)
        pm.Normal("b", simulator(a), 0.5)
        dt = sample(pk.SurrogateMetropolis(), draws=40, tune=100, chains=2)
        calls.clear()
        pk.summary(dt)
        pk.expectation(dt, lambda v: v["a"])
    assert calls == []


def test_precision_of_draws_is_theirs(result):
    """Of single precision, an offset of many standard deviations is one all the same."""
    draws = 1000 + 0.004 * np.random.default_rng(1).standard_normal((500, 1))
    single = draws.astype("float32")
    assert recomputed.agree(single, [draws])
    assert not recomputed.agree(single + np.float32(0.005), [draws])
    assert not recomputed.agree(np.round(draws).astype(int), [np.round(draws).astype(int) + 1])


def test_steps_have_the_interval_of_the_draws(result):
    steps = with_posterior(result, lambda d: d.assign(t=np.floor(d["t"])))
    assert summary.has_atoms(steps["posterior"]["t"].values)
    assert not summary.has_atoms(result["posterior"]["t"].values)


def test_rows_may_have_the_same_label(result):
    values = np.random.default_rng(1).standard_normal((4, 100, 2)) * [1e-4, 1e4]
    own = {"x": (("chain", "draw", "city"), values)}
    table = pk.summary(xr.Dataset(own, {"city": ["A", "A"]}))
    assert 5e-5 < table["sd"].iloc[0] < 2e-4
    assert 5e3 < table["sd"].iloc[1] < 2e4


@pytest.mark.slow
def test_the_interval_of_a_row_holds_its_mean(result, monkeypatch):
    """A mean that is put far away by its correction goes back, and a long tail is told."""
    correct = pk.analysis.summary._correct

    def wrongly(table, *others):
        told = correct(table, *others)
        table.loc["t", "mean"] += 100
        return told

    monkeypatch.setattr(pk.analysis.summary, "_correct", wrongly)
    table = pk.summary(result, ["t", "w"], round_to="none")
    assert table["gain"]["t"] == 1 < table["gain"]["w"]
    assert table["mean"].between(table.iloc[:, 2], table.iloc[:, 3]).all()


def test_a_mean_outside_its_interval_is_told(caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    x = np.exp(5 * norm.ppf((np.arange(4000) + 0.5) / 4000)).reshape(4, 1000)
    pk.summary(xr.Dataset({"x": (("chain", "draw"), x)}))
    said = " ".join(messages(caplog, logging.INFO))
    assert "The mean of x lies outside the interval" in said
    assert "[mean_outside_interval]" in said
