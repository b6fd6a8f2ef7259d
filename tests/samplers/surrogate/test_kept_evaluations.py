"""What results of SurrogateMetropolis keep of evaluations."""

import numpy as np
import pymc as pm
import pytest
from models import box
from runs import assert_same, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.samplers.surrogate.evaluations import _remembered

CALLS = []


def skewed(x):
    """A log-density that is -inf in places, and not normal."""
    CALLS.append(x.copy())
    if x[0] > 1:
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


def test_workers_files_and_pauses_change_nothing(step, run, tmp_path, monkeypatch):
    assert_same(sample(step, tune=30, draws=20, cores=2), run[0], ["evaluations"])
    with monkeypatch.context() as patch:
        patch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", 0)  # of the way
        assert_same(sample(step, tune=30, draws=20), run[0], ["evaluations"])
    path = tmp_path / "run.zarr"
    sample(step, tune=30, draws=12, store=path)
    dt = resume(path, step.model, draws=8, step=step)
    assert_same(dt, run[0], ["posterior", "evaluations"])
    assert_same(pk.load(path), run[0], ["evaluations"])
    sample(step, tune=30, draws=12).to_netcdf(tmp_path / "run.nc")
    dt = resume(tmp_path / "run.nc", step.model, draws=8, step=step)
    assert_same(dt, run[0], ["evaluations"])


def test_none_are_kept_if_not_wanted_or_cheap(step):
    assert "evaluations" not in sample(step, tune=8, draws=5, keep_evaluations=False).children
    with pm.Model() as model:
        pm.Normal("x", shape=2)
    for expensive, kept in {False: False, True: True}.items():
        cheap = pk.SurrogateMetropolis(model=model, expensive=expensive)
        assert ("evaluations" in sample(cheap, tune=20, draws=5).children) == kept
    with pytest.raises(ValueError, match="log-densities, and not what black boxes"):
        pk.emulator(sample(cheap, tune=20, draws=5))


def test_a_chain_remembers_the_last_ones(step):
    step.setup_chain(1, tune=8, draws=0)
    tuning = step.tuning._replace(remembered=np.arange(15.0).reshape(5, 3))
    tuning.n_remembered[0] = 3
    np.testing.assert_array_equal(_remembered(tuning)[:, 0], [0, 3, 6])
    tuning.n_remembered[0] = 7
    np.testing.assert_array_equal(_remembered(tuning)[:, 0], [6, 9, 12, 0, 3])
