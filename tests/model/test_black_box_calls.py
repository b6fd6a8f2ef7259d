"""Calls of black boxes: those that n_logp counts, and no others that are not told of."""

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from models import Counting
from pytensor.graph import Apply, Op
from pytensor.tensor.blockwise import Blockwise
from runs import assert_same, messages, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.model import black_box_calls
from pymc_kameleon.model.black_box_calls import Notes
from pymc_kameleon.step.draw_costs import say_what_a_draw_costs

TRIALS = 3
"""Evaluations when a step is made."""


class Simulator(Op):
    """A black box of two outputs, which reuses their memory, and of which others have the name."""

    def __init__(self, factor):
        self.factor, self.calls = factor, 0
        self.path, self.path_sum = np.zeros(3), np.zeros(())

    def __str__(self):
        return "Simulator"

    def make_node(self, theta, times):
        inputs = [pt.as_tensor(theta), pt.as_tensor(times)]
        return Apply(self, inputs, [pt.dvector(), pt.dscalar()])

    def simulate(self, theta, times):
        return self.factor * theta[0] * np.exp(-((theta[1] * times) ** 2))

    def perform(self, node, inputs, outputs):
        self.calls += 1
        self.path[:] = self.simulate(*inputs)
        self.path_sum[...] = self.path.sum()
        outputs[0][0], outputs[1][0] = self.path, self.path_sum


TIMES = np.array([0.0, 1.0, 2.0])


@cache
def two_boxes():
    """Return two black boxes of the same name, inputs and shapes, and their model."""
    one, other = Simulator(1.0), Simulator(-2.0)
    with pm.Model() as model:
        theta = pm.LogNormal("theta", shape=2)
        times = pm.Data("times", TIMES)
        path, total = one(theta, times)
        opposite, _ = other(theta, times)
        pm.Deterministic("path", path)
        pm.Deterministic("total", total)
        pm.Deterministic("opposite", opposite + 1.0)
        pm.Deterministic("future", one(theta, times + 5.0)[0])
        pm.Normal("y", path - 0.1 * opposite, 0.3, observed=[1.0, 0.5, 0.2])
    return one, other, model


@pytest.fixture
def said(caplog):
    caplog.set_level("INFO", "pymc_kameleon")
    return lambda: messages(caplog)


NAMES = ["theta", "path", "total", "opposite"]


def counted_run(make_run):
    """Return a run's result, and how often each black box was called."""
    one, other, _ = two_boxes()
    one.calls = other.calls = 0
    dt = make_run()
    return dt, (one.calls, other.calls)


def n_logp(dt):
    groups = [dt[name] for name in ("warmup_sample_stats", "sample_stats") if name in dt.children]
    return int(sum(group["n_logp"].sum() for group in groups))


def assert_right(dt):
    """Compare what is kept with a simulation of it."""
    one, other, _ = two_boxes()
    posterior = dt["posterior"]
    for theta, path, total, opposite in zip(
        *(posterior[name].values.reshape(-1, *posterior[name].shape[2:]) for name in NAMES),
        strict=True,
    ):
        np.testing.assert_allclose(path, one.simulate(theta, TIMES), rtol=1e-12)
        np.testing.assert_allclose(total, path.sum(), rtol=1e-12)
        np.testing.assert_allclose(opposite, other.simulate(theta, TIMES) + 1.0, rtol=1e-12)


def run(step=pk.baselines.RWM, **kwargs):
    *_, model = two_boxes()
    return sample(step, model=model, **{"draws": 20, "tune": 20, "var_names": NAMES} | kwargs)


@pytest.mark.parametrize(
    ("step", "kwargs"),
    [
        (pk.baselines.RWM, {}),
        (pk.baselines.RWM.options(steps_per_draw=1), {}),  # stays for long where it is
        (pk.baselines.RWM.options(steps_per_draw=1), {"discard_tuned_samples": False}),
        pytest.param(pk.GAM, {"tune": 0}, marks=pytest.mark.slow),
        pytest.param(pk.CMTM, {}, marks=pytest.mark.slow),
        (pk.SurrogateMetropolis, {"chains": 1}),
    ],
)
def test_calls_are_evaluations(step, kwargs):
    dt, calls = counted_run(lambda: run(step, **kwargs))
    assert calls == (n_logp(dt) + TRIALS,) * 2
    assert_right(dt)


@pytest.mark.slow
def test_calls_of_two_steps_in_turn():
    with pm.Model() as model:
        op = Simulator(1.0)
        a, b = pm.Normal("a"), pm.Normal("b")
        total = pm.Deterministic("total", op(pt.stack([b, a]), TIMES)[1])
        pm.Normal("y", total, observed=1.0)
    dt = sample(
        [pk.baselines.RWM([b], model=model), pk.baselines.RWM([a], model=model)], draws=20, tune=10
    )
    assert op.calls == n_logp(dt) + 2 * TRIALS
    a, b = (dt["posterior"][name].values for name in "ab")
    expected = b * np.exp(-((a[..., None] * TIMES) ** 2)).sum(-1)
    np.testing.assert_allclose(dt["posterior"]["total"], expected, rtol=1e-12)


def test_calls_in_threads():
    *_, model = two_boxes()
    with ThreadPoolExecutor(2) as threads:
        dt, calls = counted_run(lambda: run(pk.baselines.RWM(model=model), executor=threads))
    assert calls == (n_logp(dt) + TRIALS,) * 2
    assert_right(dt)
    assert_same(run(pk.baselines.RWM(model=model)), dt, ("posterior",))


@pytest.mark.slow
def test_calls_of_a_run_that_goes_on(said):
    *_, model = two_boxes()
    first = run()
    dt, calls = counted_run(lambda: resume(first, model, 10, cores=1))
    assert calls == (n_logp(dt) - n_logp(first) + TRIALS + 2,) * 2
    assert_right(dt)
    assert any(
        "evaluated 3 times to see how long it takes and whether it repeats itself, and 2 times to "
        "see that the model is what it was" in line
        for line in said()
    )
    whole = run(draws=30)
    assert_same(whole, dt, ("posterior",))


@pytest.mark.slow
def test_calls_of_a_run_that_goes_on_in_a_store(tmp_path):
    pytest.importorskip("zarr")
    *_, model = two_boxes()
    store = tmp_path / "run.zarr"
    before = n_logp(run(store=store))
    dt, calls = counted_run(lambda: resume(store, model, 10, cores=1))
    assert calls == (n_logp(dt) - before + TRIALS + 2,) * 2
    assert_right(dt.load())


@pytest.mark.slow
@pytest.mark.forks
def test_calls_in_processes(tmp_path):
    log = tmp_path / "calls"

    class Logged(Simulator):
        def perform(self, node, inputs, outputs):
            with open(log, "ab") as file:
                file.write(b".")
            super().perform(node, inputs, outputs)

    with pm.Model() as model:
        theta = pm.LogNormal("theta", shape=2)
        path = pm.Deterministic("path", Logged(1.0)(theta, TIMES)[0])
        pm.Normal("y", path, 0.3, observed=[1.0, 0.5, 0.2])
    step = pk.baselines.RWM(model=model, steps_per_draw=1)
    dt = sample(step, draws=60, tune=20, cores=2)
    assert os.path.getsize(log) == n_logp(dt) + TRIALS
    assert_same(sample(step, draws=60, tune=20), dt, ("posterior",))


@pytest.mark.slow
def test_what_the_likelihood_does_not_call_is_told(said):
    dt, (one, other) = counted_run(lambda: run(var_names=None, chains=2, draws=20))
    theta = dt["posterior"]["theta"].values
    n = len(np.unique(theta.reshape(-1, 2), axis=0))  # of draws, some are the same
    assert (one, other) == (n_logp(dt) + TRIALS + 1 + n, n_logp(dt) + TRIALS)
    lines = said()
    assert any(line.startswith("future: black boxes are called again") for line in lines)
    kept = f"What is kept of draws took {n} calls that n_logp does not count. [uncounted_calls]"
    assert kept in lines
    expected = theta[..., :1] * np.exp(-((theta[..., 1:] * (TIMES + 5)) ** 2))
    np.testing.assert_allclose(dt["posterior"]["future"], expected, rtol=1e-12)


def test_starts_that_are_no_good_are_counted():
    op = Simulator(1.0)
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        path = pm.Deterministic("path", op(x, TIMES)[0])
        pm.Potential("half", pt.switch(path[0] > 0, -((path - 1) ** 2).sum(), -np.inf))
    for step in (
        pk.baselines.RWM(model=model, steps_per_draw=1),
        pk.GAM(model=model, steps_per_draw=1),
    ):
        for tune in (0, 20):
            op.calls = 0
            dt = sample(step, tune=tune, draws=5, chains=4)
            assert op.calls == n_logp(dt)


def test_a_black_box_that_writes_into_its_input():
    class Writing(Simulator):
        def perform(self, node, inputs, outputs):
            super().perform(node, inputs, outputs)
            inputs[0][:] = 7.0

    op = Writing(1.0)
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        path = pm.Deterministic("path", op(x * 1.5, TIMES)[0])
        pm.Potential("p", -path.sum())
    dt = sample(pk.baselines.RWM(model=model, steps_per_draw=1), draws=10, tune=10)
    assert op.calls == n_logp(dt) + TRIALS


@pytest.mark.slow
def test_black_boxes_in_loops_are_told(said):
    op = Counting()
    with pm.Model() as model:
        x = pm.Normal("x", shape=(2, 3))
        f = pm.Deterministic("f", Blockwise(op, signature="(n)->()")(x))
        pm.Potential("p", -f.sum())
    sample(pk.baselines.RWM(model=model), draws=5, tune=5, chains=1)
    assert any("Counting" in line and "again for each of 5 draws" in line for line in said())


def test_what_pm_sample_calls_is_told(said, monkeypatch):
    *_, model = two_boxes()
    step = pk.baselines.RWM(model=model)
    monkeypatch.setattr(step, "seconds_per_logp", 0.1)
    said()
    say_what_a_draw_costs(step)
    cost = said()[-1]
    assert cost.startswith("One logp evaluation takes 100 ms, a draw of RWM")


@pytest.mark.slow
def test_a_black_box_may_fail_at_the_models_initial_point():
    def fails(x):
        if x[0] < 1.0:
            raise ZeroDivisionError
        return -(x**2).sum()

    op = Counting(fails)
    with pm.Model() as model:
        pm.Normal("x", shape=2)
        pm.Deterministic("f", op(model["x"]))
        pm.Deterministic("g", op(model["x"] + 1.0))
        pm.Potential("p", op(model["x"]))
    step = pk.baselines.RWM(model=model, steps_per_draw=1, region={"x": (1.0, 9.0)}, jitter=False)
    assert step.n_trials == op.count == 0  # it is outside of the region
    assert pk.baselines.RWM(model=model).n_trials == 1
    starts = {"x": np.full(2, 2.0)}
    dt = sample(step, tune=0, draws=5, chains=1, initvals=starts, var_names=["x", "f"])
    np.testing.assert_allclose(dt["posterior"]["f"], -(dt["posterior"]["x"] ** 2).sum("x_dim_0"))


def test_no_notes_where_nobody_looks(monkeypatch):
    *_, model = two_boxes()
    step = pk.baselines.RWM(model=model)
    monkeypatch.setattr(Notes, "add", None)
    run(step, var_names=["theta"])


# ---- notes --------------------------------------------------------------------------------------


def noted(*points, size=1):
    notes = Notes(np.zeros(1))
    for point in points:
        notes.add(np.array([point]), 0, [np.array(point)], [np.full(size, point)])
    return notes


def found(notes, point, value=None, number=0):
    value = np.array(point if value is None else value)
    note = notes.find(np.array([point]), number, [value])
    return None if note is None else note.outputs[0][0]


def test_notes_are_found_by_point_black_box_and_inputs():
    def notes():
        return noted(1.0, 2.0)

    assert found(notes(), 1.0) == 1.0
    assert found(notes(), 2.0) == 2.0
    assert found(notes(), 3.0, 1.0) is None
    assert found(notes(), 1.0, 2.0) is None
    assert found(notes(), 1.0, number=1) is None
    assert notes().find(np.ones(1), 0, [np.array([1.0])]) is None
    assert notes().find(np.ones(1), 0, [np.array(1)]) is None


def test_inputs_that_differ_by_rounding_are_the_same():
    """Another function may have computed them by other machine code."""
    assert found(noted(1.0), 1.0, 1.0 + 2e-16) == 1.0
    assert found(noted(1.0), 1.0, 1.0 + 1e-9) is None  # finite differences


def test_a_draw_lets_other_points_be_forgotten():
    notes = noted(1.0, 2.0)
    assert found(notes, 2.0) == 2.0
    assert found(notes, 2.0) == 2.0
    assert found(notes, 1.0) is None


def test_memory_is_bounded(monkeypatch):
    monkeypatch.setattr(black_box_calls, "MOST_BYTES", 50_000)
    notes = noted(*np.arange(100.0), size=1000)
    assert notes.at(np.zeros(1)), "where the chain is"
    assert notes.at(np.array([99.0])), "where it was last"
    assert not notes.at(np.array([50.0]))
    assert sum(bool(notes.at(np.array([float(x)]))) for x in range(100)) == 5


@pytest.mark.slow
def test_data_that_are_passed_each_time_are_kept_once():
    notes, data = Notes(np.zeros(1)), np.ones(1000)
    for x in (1.0, 2.0):
        notes.add(np.array([x]), 0, [np.array(x), data.copy()], [np.zeros(1)])
    [one], [other] = notes.at(np.array([1.0])), notes.at(np.array([2.0]))
    assert one.inputs[1] is other.inputs[1]
    assert other.size < 2000 < one.size
