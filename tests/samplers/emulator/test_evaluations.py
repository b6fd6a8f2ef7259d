"""What is kept of evaluations, and what other runs, and pk.emulator, make of it."""

import logging

import matplotlib as mpl
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py
from runs import assert_same, messages, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.analysis.emulator import SimulatorEmulator
from pymc_kameleon.approximation import records
from pymc_kameleon.samplers.emulator import evaluations as reuse
from pymc_kameleon.samplers.emulator.evaluations import calls_in

mpl.use("Agg")
TIMES = np.arange(1.0, 7.0)


def decay(theta):
    """Return what is left of a dose at TIMES, of its amount and rate."""
    decay.calls.append(theta.copy())
    return theta[0] * np.exp(-theta[1] * TIMES)


decay.calls = CALLS = []
decay_op = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(decay)


def other_decay(theta):
    return 1.001 * theta[0] * np.exp(-theta[1] * TIMES)


other_decay.__name__ = "decay"
other_op = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(other_decay)


def longer_decay(theta):
    return theta[0] * np.exp(-theta[1] * np.arange(1.0, 9.0))


longer_decay.__name__ = "decay"
longer_op = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(longer_decay)


def model_of(op=decay_op, subjects=2, scale=1.0, n=6):
    """Return a model of some subjects, with a call for each; `scale` moves data and priors."""
    rng = np.random.default_rng(int(10 * scale))
    with pm.Model() as model:
        amount = pm.LogNormal("amount", np.log(3.0), 0.5 * scale, shape=subjects)
        rate = pm.LogNormal("rate", np.log(0.3), 0.5)
        for i in range(subjects):
            mean = op(pt.stack([amount[i], rate]))
            data = scale * (3 + 0.5 * i) * np.exp(-0.3 * np.arange(1.0, n + 1)) + 0.05 * rng.normal(
                size=n
            )
            pm.Normal(f"y_{i}", mean, 0.1, observed=data)
    return model


@pytest.fixture(scope="module")
def step():
    return pk.EmulatorMetropolis(model=model_of())


@pytest.fixture(scope="module")
def run(step):
    """A result, and the inputs of all calls that it took."""
    CALLS.clear()
    dt = sample(step, tune=15, draws=20)
    return dt, np.array(CALLS)


@pytest.fixture(scope="module")
def elsewhere():
    """A model with other data, other priors, and a subject more."""
    return pk.EmulatorMetropolis(model=model_of(subjects=3, scale=1.2))


# ---- what is kept -------------------------------------------------------------------------------


@pytest.mark.slow
def test_every_evaluation_is_there(run):
    dt, inputs = run
    own = dt["evaluations"]
    x, y = own["decay_inputs"].values, own["decay_outputs"].values
    assert x.shape[1:] == (2, 2)
    assert y.shape[1:] == (2, 6)
    np.testing.assert_allclose(y, x[..., :1] * np.exp(-x[..., 1:] * TIMES), rtol=1e-12)
    kept = {tuple(row) for row in x.reshape(-1, 2)}
    made = {tuple(row) for row in inputs}
    assert made == kept
    assert own.attrs["n_evaluations"] == len(x)
    assert set(own["of_chain"].values) == {0, 1}
    after = own.to_dataset().isel(evaluation=~own["tuning"].values)
    assert len(after["logp"]) <= 40


@pytest.mark.slow
def test_log_densities_are_those_of_the_model(run, step):
    own = run[0]["evaluations"]
    log_density = step.log_density
    values = [log_density(z) for z in own["z"].values[::7]]
    np.testing.assert_allclose(values, own["logp"].values[::7], rtol=1e-12)


@pytest.mark.slow
def test_bounded(step, run, monkeypatch):
    monkeypatch.setattr(records, "MOST_ROWS", 17)
    own = sample(step, tune=15, draws=20)["evaluations"]
    assert own.sizes["evaluation"] == 17
    assert own.attrs["n_evaluations"] == run[0]["evaluations"].attrs["n_evaluations"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["store", "file"])
def test_files_and_resume(step, run, tmp_path, how):
    path = tmp_path / how
    if how == "store":
        dt = sample(step, tune=15, draws=12, store=path)
    else:
        dt = sample(step, tune=15, draws=12)
        dt.to_netcdf(path)
    again = pk.load(path)
    assert_same(dt, again, ["evaluations"])
    whole = resume(path, step.model, draws=8, step=step)
    assert_same(whole, run[0], ["posterior", "evaluations"])
    if how == "store":
        assert_same(pk.load(path), run[0], ["evaluations"])


# ---- used again ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_reuse_takes_fewer_calls(run, elsewhere, caplog, tmp_path):
    CALLS.clear()
    fresh = sample(elsewhere, tune=12, draws=8)
    n_fresh = len(CALLS)
    CALLS.clear()
    caplog.set_level(logging.INFO, "pymc_kameleon")
    path = tmp_path / "first.nc"
    run[0].to_netcdf(path)
    dt = sample(elsewhere, tune=12, draws=8, reuse=[path])
    assert any("Calling `decay` twice" in text for text in messages(caplog))
    assert len(CALLS) < n_fresh - 3 * 5  # without the design, and rounds
    assert dt["evaluations"].attrs["n_evaluations"] < fresh["evaluations"].attrs["n_evaluations"]
    accept = dt["sample_stats"]["emulator_accept"].mean().item()
    assert accept > 0.9
    # What was taken up is kept, so that a third run has it too.
    own = dt["evaluations"].to_dataset()
    before = own.isel(evaluation=own["of_chain"].values == records.OF_BEFORE)
    old = run[0]["evaluations"]["decay_inputs"].values.reshape(-1, 2)
    x = before["decay_inputs"].values.reshape(-1, 2)
    x = x[np.isfinite(x[:, 0])]
    assert {tuple(row) for row in x} == {tuple(row) for row in old}
    assert before["logp"].isnull().all()


@pytest.mark.slow
def test_reuse_gives_the_same_posterior(run, elsewhere):
    fresh = sample(elsewhere, tune=40, draws=250, random_seed=1)
    reused = sample(elsewhere, tune=20, draws=250, random_seed=2, reuse=run[0])
    for name in ("amount", "rate"):
        a, b = (dt["posterior"][name].values.reshape(500, -1) for dt in (fresh, reused))
        z = (a.mean(axis=0) - b.mean(axis=0)) / (a.std(axis=0) * np.sqrt(2 / 150))
        assert np.abs(z).max() < 4


def test_reuse_resumes_to_the_last_bit(run, elsewhere, tmp_path):
    whole = sample(elsewhere, tune=12, draws=8, reuse=run[0])
    path = tmp_path / "run.zarr"
    sample(elsewhere, tune=12, draws=3, reuse=run[0], store=path)
    again = resume(path, elsewhere.model, draws=5)
    assert_same(again, whole, ["posterior", "evaluations"])
    dt = sample(elsewhere, tune=12, draws=3, reuse=run[0])
    assert_same(resume(dt, elsewhere.model, draws=5), whole)
    # A step is not changed by it.
    assert len(elsewhere.tuning.reused) == 0


def test_another_function_is_refused(run):
    other = pk.EmulatorMetropolis(model=model_of(other_op))
    with pytest.raises(ValueError, match=r"`decay` is not what it was .* its output 0 was"):
        sample(other, reuse=run[0])


@pytest.mark.slow
def test_other_shapes_are_refused(run):
    longer = pk.EmulatorMetropolis(model=model_of(longer_op, n=8))
    with pytest.raises(ValueError, match=r"2 inputs .* 6 outputs, and .* 8 outputs"):
        sample(longer, reuse=run[0])


@pytest.mark.slow
def test_another_name_and_step_are_refused(run, step):
    def growth(theta):
        return decay(theta)

    op = wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(growth)
    other = pk.EmulatorMetropolis(model=model_of(op))
    with pytest.raises(ValueError, match="are of `decay`, and this model calls `growth`"):
        sample(other, reuse=run[0])
    with pytest.raises(ValueError, match=r"reuse is for pk\.EmulatorMetropolis, not GAM"):
        sample(pk.GAM(model=step.model), reuse=run[0])


def test_chosen_calls(run, monkeypatch):
    monkeypatch.setattr(reuse, "MOST_REUSED", 30)
    [calls] = calls_in(run[0]["evaluations"].to_dataset())
    rows = reuse._chosen([calls])
    assert len(rows.x) in (30, 31)
    assert rows.logp[0] == np.nanmax(calls.logp)
    assert np.count_nonzero(rows.tuning) >= 14


# ---- the emulator as a function -----------------------------------------------------------------


@pytest.fixture(scope="module")
def emulator(run):
    return pk.emulator(run[0])


def test_emulator_predicts(run, emulator, tmp_path):
    assert emulator.inputs in (["amount[0]", "rate"], ["amount[1]", "rate"])  # of either call
    assert "decay: 2 inputs" in repr(emulator)
    rng = np.random.default_rng(3)
    x = np.column_stack([rng.uniform(2.8, 3.5, 200), rng.uniform(0.27, 0.33, 200)]).reshape(
        4, 50, 2
    )
    y, truth = emulator(x), x[..., :1] * np.exp(-x[..., 1:] * TIMES)
    assert y.shape == (4, 50, 6)
    np.testing.assert_allclose(y, truth, atol=0.01)  # the noise is 0.1
    z = (y - truth) / emulator.error(x)
    assert np.sqrt(np.mean(z**2)) < 6  # by the order of magnitude
    far = emulator.error([9.0, 2.0])
    assert (far > 10 * np.median(emulator.error(x).reshape(-1, 6), axis=0)).all()
    path = tmp_path / "run.nc"
    run[0].to_netcdf(path)
    np.testing.assert_allclose(pk.emulator(path, "decay")(x), y, rtol=1e-9)


def test_emulator_errors_hold_far_from_the_posterior(emulator):
    """By the order of magnitude, where those of the Gaussian process alone are too small."""
    rng, middle = np.random.default_rng(4), np.log([3.1, 0.3])
    x = np.exp(middle + rng.uniform(-0.7, 0.7, (200, 2)))
    off = emulator(x) - x[:, :1] * np.exp(-x[:, 1:] * TIMES)
    alone = emulator._factor * emulator._uncertainty.of(emulator._fit, x)
    rms = [np.sqrt(np.mean((off / sd) ** 2)) for sd in (emulator.error(x), alone)]
    assert rms[0] < 10
    assert rms[1] > 2 * rms[0]


def test_emulator_errors(run, emulator):
    with pytest.raises(ValueError, match=r"takes 2 inputs.*amount\[.\], rate.*shape \(3,\)"):
        emulator([1.0, 2.0, 3.0])
    with pytest.raises(ValueError, match=r"name must be one of \['decay'\]"):
        pk.emulator(run[0], "growth")


def test_plot_emulator(run, emulator):
    plots = pk.plot_emulator(run[0])
    axes = plots.viz["figure"].item().axes
    assert [ax.get_xlabel() for ax in axes[:2]] == emulator.inputs
    x, y = axes[1].lines[0].get_data()
    at = np.column_stack([np.full(len(x), emulator.best[0]), x])
    np.testing.assert_allclose(y, emulator(at)[:, 0], rtol=1e-6)
    plots = pk.plot_emulator(emulator, coords={"input": ["rate"], "output": [0, 5]})
    assert (
        len(
            [line for line in plots.viz["figure"].item().axes[0].lines if len(line.get_xdata()) > 2]
        )
        == 2
    )
    with pytest.raises(ValueError, match=r"coords: .*'k'"):
        pk.plot_emulator(emulator, coords={"input": "k"})
    assert isinstance(emulator, SimulatorEmulator)


def test_what_cannot_be_reused(step, run):
    with pytest.raises(ValueError, match="reuse takes results"):
        sample(step, reuse=3)
    del (without := run[0].copy())["evaluations"]
    with pytest.raises(ValueError, match="no group 'evaluations'"):
        sample(step, reuse=without)
