"""What results of SurrogateMetropolis keep of evaluations."""

import numpy as np
import pytest
from models import box
from runs import assert_same, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.approximation.records import some_of_each
from pymc_kameleon.samplers.approximation.moves import remembered

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
    monkeypatch.setattr("pymc_kameleon.samplers.surrogate.initial_search.BUDGET", (1, 5))
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
    tuning = step.tuning._replace(evaluated=np.arange(15.0).reshape(5, 3))
    tuning.n_evaluated[0] = 3
    np.testing.assert_array_equal(remembered(tuning)[:, 0], [0, 3, 6])
    tuning.n_evaluated[0] = 7
    np.testing.assert_array_equal(remembered(tuning)[:, 0], [6, 9, 12, 0, 3])


def test_they_are_not_taken_up_by_another_run(step, run):
    with pytest.raises(ValueError, match=r"reuse is for pk\.EmulatorMetropolis, not"):
        sample(step, reuse=run[0])


def test_some_of_each_kind_are_chosen():
    rows = some_of_each(np.arange(10) % 2 == 0, 6)
    np.testing.assert_array_equal(rows, [0, 4, 8, 1, 5, 9])
