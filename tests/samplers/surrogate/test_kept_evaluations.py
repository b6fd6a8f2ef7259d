"""What results of SurrogateMetropolis keep of evaluations, and what other runs make of it."""

import numpy as np
import pymc as pm
import pytest
from models import box
from runs import assert_same, messages, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.approximation.records import OF_BEFORE, some_of_each
from pymc_kameleon.samplers.surrogate import evaluations as reuse
from pymc_kameleon.samplers.surrogate.evaluations import _remembered

CALLS = []


def skewed(x):
    """A log-density that is -inf in places, and not normal."""
    CALLS.append(x.copy())
    if x[0] > 2:
        return -np.inf
    return float(np.sum(2 * x - np.exp(x)) - np.sum(np.diff(x) ** 2) / 2)


@pytest.fixture(scope="module")
def step():
    return pk.SurrogateMetropolis(model=box(skewed)[1])


@pytest.fixture(scope="module")
def run(step):
    """A result, and all points that it evaluated."""
    CALLS.clear()
    dt = sample(step, tune=30, draws=20)
    return dt, np.array(CALLS)


@pytest.mark.slow
def test_all_that_was_evaluated_is_there(run):
    """Also where the log-density is not finite."""
    dt, points = run
    own = dt["evaluations"]
    assert {tuple(z) for z in own["z"].values} == {tuple(x) for x in points}
    assert own.attrs["n_evaluations"] == len(own["z"])
    np.testing.assert_array_equal(own["logp"], [skewed(z) for z in own["z"].values])
    assert np.isinf(own["logp"]).any()
    assert own["coordinate"].values.tolist() == ["x[0]", "x[1]"]
    n_after = np.count_nonzero(~own["tuning"].values)
    assert 20 < n_after <= 2 * 20
    assert set(own["of_chain"].values) == {0, 1}


def test_long_way_is_there(step, monkeypatch):
    """That of a process which has not come home, and of line searches after it."""
    monkeypatch.setattr("pymc_kameleon.samplers.surrogate.active.search.BUDGET", (1, 5))
    CALLS.clear()
    own = sample(step, tune=8, draws=10)["evaluations"]
    assert {tuple(z) for z in own["z"].values} == {tuple(x) for x in CALLS}


@pytest.mark.slow
def test_files_and_pauses_change_nothing(step, run, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", 0)  # of the way
        assert_same(sample(step, tune=30, draws=20), run[0], ["evaluations", "search"])
    path = tmp_path / "run.zarr"
    sample(step, tune=30, draws=12, store=path)
    dt = resume(path, step.model, draws=8, step=step)
    assert_same(dt, run[0], ["posterior", "evaluations"])
    assert_same(pk.load(path), run[0], ["evaluations"])


def test_a_chain_remembers_the_last_ones(step):
    step.setup_chain(1, tune=8, draws=0)
    tuning = step.tuning._replace(remembered=np.arange(15.0).reshape(5, 3))
    tuning.n_remembered[0] = 3
    np.testing.assert_array_equal(_remembered(tuning)[:, 0], [0, 3, 6])
    tuning.n_remembered[0] = 7
    np.testing.assert_array_equal(_remembered(tuning)[:, 0], [6, 9, 12, 0, 3])


# ---- used again ---------------------------------------------------------------------------------


def n_calls(step, **options):
    CALLS.clear()
    return sample(step, **options), len(CALLS)


@pytest.mark.slow
def test_a_run_begins_where_another_one_has_come(step, run, caplog, tmp_path):
    """The process then knows the posterior: it takes a start, and few evaluations more."""
    caplog.set_level("INFO", "pymc_kameleon")
    run[0].to_netcdf(tmp_path / "first.nc")
    reused, ways = {"reuse": [tmp_path / "first.nc"]}, []
    for seed in range(3, 7):
        options = {"tune": 10, "draws": 20, "random_seed": seed}
        fresh = sample(step, **options)
        CALLS.clear()
        dt = sample(step, **options, **reused)
        ways.append([one["warmup_sample_stats"]["n_logp"].values[0, 0] for one in (fresh, dt)])
    assert any("twice at points of evaluations that are reused" in m for m in messages(caplog))
    # The search is always shorter; moves afterwards cost as much.
    saved = -np.diff(ways, axis=1)
    assert saved.min() > 0
    assert saved.mean() > 5
    # What was taken up is kept, so that a third run has it too.
    own, before = dt["evaluations"].to_dataset(), run[0]["evaluations"]
    is_old = own["of_chain"].values == OF_BEFORE
    assert {tuple(z) for z in own["z"].values[is_old]} == {tuple(z) for z in before["z"].values}
    assert own.attrs["n_evaluations"] == np.count_nonzero(~is_old)
    assert {tuple(x) for x in CALLS} >= {tuple(z) for z in own["z"].values[~is_old]}
    found = dt["posterior"]["x"].values.reshape(-1, 2)
    np.testing.assert_allclose(found.mean(axis=0), exact_mean(), atol=0.4)
    assert dt["sample_stats"]["surrogate_accept"].mean() > 0.5


def exact_mean():
    """The mean of the density, by quadrature."""
    x = np.stack(np.meshgrid(*[np.linspace(-6, 4, 401)] * 2, indexing="ij"), axis=-1)
    logp = np.sum(2 * x - np.exp(x), axis=-1) - (x[..., 1] - x[..., 0]) ** 2 / 2
    w = np.where(x[..., 0] > 2, 0, np.exp(logp))
    return np.tensordot(w, x, 2) / w.sum()


@pytest.mark.slow
def test_it_is_the_same_whatever_is_done(step, run, tmp_path, monkeypatch):
    options = {"tune": 10, "reuse": run[0]}
    groups = ["posterior", "sample_stats", "evaluations"]
    whole = sample(step, **options, draws=8)
    assert_same(sample(step, **options, draws=8, cores=2), whole, groups)
    path = tmp_path / "run.zarr"
    sample(step, **options, draws=3, store=path)
    assert_same(resume(path, step.model, draws=5), whole, groups)
    with monkeypatch.context() as patch:
        patch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", 0)
        assert_same(sample(step, **options, draws=8), whole, groups)
    assert len(step.tuning.known) == 0  # a step is not changed by it


@pytest.mark.parametrize("n", [60, 100])
def test_limited_evaluations(step, run, n):
    step.n_trials = 0
    dt, n_made = n_calls(step, tune=None, draws=None, max_evaluations=n, reuse=run[0])
    assert n - 10 < n_made <= n
    assert dt["posterior"].sizes["draw"] > 2


def test_without_a_process_the_surrogate_knows_them(step, run, monkeypatch):
    monkeypatch.setattr("pymc_kameleon.samplers.surrogate.active.search.MOST_COORDINATES", 1)
    dt, _ = n_calls(step, tune=5, draws=5, reuse=run[0])
    assert dt["learned"]["n_centres"].values.min() > 50


def test_others_are_refused(step, run, monkeypatch):
    op = box(skewed)[0]
    with monkeypatch.context() as patch:
        patch.setattr(op, "function", lambda x: skewed(x) - 0.01 * x[0])
        with pytest.raises(ValueError, match=r"was in evaluations: at x\[0\] = .* Leave"):
            sample(step, reuse=run[0])
    with pm.Model() as model:
        y, z = pm.Normal("y", shape=2), pm.Normal("z")
    other = pk.SurrogateMetropolis(model=model)
    with pytest.raises(ValueError, match=r"coordinates x\[0\], x\[1\], and this model has y"):
        sample(other, reuse=run[0])
    beside = [pk.SurrogateMetropolis([y], model=model), pk.GAM([z], model=model)]
    with pytest.raises(ValueError, match="moves all variables, not"):
        sample(beside, reuse=run[0])


def test_more_than_enough_is_thinned(step, run, monkeypatch):
    monkeypatch.setattr(reuse, "MOST_REUSED", 30)
    own = run[0]["evaluations"].to_dataset()
    known = reuse.reused_by(step, [own, own])
    assert 30 <= len(known.rows) <= 31
    assert known.rows[0, -1] == own["logp"].values.max()
    assert known.n_calls == 2
    rows = some_of_each(np.arange(10) % 2 == 0, 6)
    np.testing.assert_array_equal(rows, [0, 4, 8, 1, 5, 9])
