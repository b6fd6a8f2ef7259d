"""Log-densities that call Python: errors and hangs that are rejected, noise that is noticed."""

import logging
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from models import box, guarded_box, standard_normal
from pymc.exceptions import SamplingError
from runs import QUIET, assert_same, begun, job_of, messages, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.model.entry_points import black_box_ops_silent
from pymc_kameleon.model.remote import NotHere, TooLong, within
from pymc_kameleon.step.job import advance


@cache
def walk():
    return pk.baselines.RWM(model=box()[1], steps_per_draw=2)


GUARDS = "on_error", "timeout", "check_repeatable"


@cache
def guarded_walk(guards):
    _, model = guarded_box(standard_normal, **dict(guards))
    return pk.baselines.RWM(model=model, steps_per_draw=2)


def run(function, **options):
    """Sample the one black box with this function, and return the result and the Op."""
    guards = {name: options.pop(name) for name in GUARDS if name in options}
    step = guarded_walk(tuple(guards.items())) if guards else walk()  # which resets the box
    op, _ = guarded_box(function, **guards) if guards else box(function)
    return sample(step, **options), op


def counted(dt):
    return sum(int(dt[group]["n_logp"].sum()) for group in ("sample_stats", "warmup_sample_stats"))


# ---- errors -------------------------------------------------------------------------------------


def fails_right(x):
    if x[0] > 0.5:
        raise ZeroDivisionError("the solver broke down")
    return standard_normal(x)


def test_errors_are_rejected_as_nan_is_counted_and_told(caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    dt, _ = run(fails_right, on_error="reject")
    nan, _ = run(lambda x: standard_normal(x) if x[0] <= 0.5 else np.nan, check_repeatable=False)
    np.testing.assert_array_equal(dt["posterior"]["x"], nan["posterior"]["x"])
    n = dt["posterior"].attrs["rejected_errors"]
    assert n > 10
    assert dt["posterior"].attrs["rejected_late"] == 0
    assert "rejected_errors" not in nan["posterior"].attrs
    [said] = [text for text in messages(caplog) if "impossible points" in text]
    assert said.startswith(f"{n} exceptions of the likelihood counted")
    assert said.endswith("[rejected_evaluations]")
    assert "where the likelihood raised ZeroDivisionError: the solver broke down." in said
    where = said.partition("in chain 0 at x[0] = ")[2]
    assert float(where.partition(",")[0]) > 0.5


def test_an_error_goes_on_where_it_is_rejected():
    """What was made is kept on the way to the posterior, too."""
    with pytest.raises(ZeroDivisionError) as info:
        run(fails_right, initvals={"x": [0.1, 0.2]})  # from others there may be no start
    _, model = guarded_box(fails_right, on_error="reject")
    dt = resume(info.value.result, model, None)
    assert dt["posterior"].sizes["draw"] == 30
    longer = resume(dt, model, 100)
    n = [each["posterior"].attrs["rejected_errors"] for each in (dt, longer)]
    assert n[0] < n[1]


def test_an_error_on_the_way_to_the_posterior_has_a_result(tmp_path):
    op, model = box()
    step, left = pk.GAM(model=model), 20

    def fails(x):
        nonlocal left
        left -= 1
        if left < 0:
            raise ZeroDivisionError
        return standard_normal(x)

    op.function = fails
    options = {"chains": 1, "initvals": {"x": [0.1, 0.2]}, "store": tmp_path / "run.zarr"}
    with pytest.raises(ZeroDivisionError) as info:
        sample(step, **options)
    assert "of the search for the posterior" in info.value.__notes__[0]
    assert info.value.__notes__[-1].endswith("pk.resume(...) goes on from there.")
    assert not options["store"].exists()  # nothing had come back
    op.function = standard_normal
    dt = resume(info.value.result, model, None)
    assert_same(dt, sample(step, chains=1, initvals=options["initvals"]))


def test_what_never_counts_as_rejected():
    def takes_all(x):
        raise MemoryError

    def ends(x):
        raise KeyboardInterrupt

    for function, kind in (takes_all, MemoryError), (ends, KeyboardInterrupt):
        with pytest.raises(kind):
            run(function, on_error="reject")


def test_starts_that_fail_say_why():
    def fails(x):
        raise KeyError("rate")

    with pytest.raises(ValueError, match=r"No start was found: .* raised KeyError: 'rate'"):
        run(fails, on_error="reject")
    with pytest.raises(SamplingError, match="RWM cannot start: the likelihood raised KeyError"):
        run(fails, on_error="reject", initvals={"x": [0.0, 0.0]})


@pytest.mark.parametrize(
    "wrong",
    [
        {"on_error": "ignore"},
        {"timeout": 0},
        {"timeout": True},
        {"timeout": "3"},
        {"timeout": np.inf},
        {"check_repeatable": 1},
    ],
)
def test_impossible_options(wrong):
    [name] = wrong
    with pytest.raises(ValueError, match=f"{name} must be"):
        pk.black_box(standard_normal, **wrong)


def test_what_the_box_rejects_is_nan_for_others():
    """Where nobody counts, as in PyMC's own steps; before it has a shape the exception arrives."""

    @pk.black_box(on_error="reject")
    def fails(x):
        if x[0] > 0.5:
            raise ZeroDivisionError("the solver broke down")
        return 2 * x

    x = pt.dvector()
    function = pytensor.function([x], fails(x), mode="FAST_COMPILE")
    with pytest.raises(ZeroDivisionError, match="the solver broke down"):
        function([1.0, 0.0])
    assert function([0.0, 1.0]).tolist() == [0, 2]
    assert function([0.0, 1.0, 2.0]).tolist() == [0, 2, 4]
    np.testing.assert_array_equal(function([1.0, 0.0]), [np.nan] * 2)


# ---- time ---------------------------------------------------------------------------------------


def hangs_right(x):
    while x[0] > 0.5:
        time.sleep(0.001)
    return standard_normal(x)


def test_what_takes_too_long_is_rejected_and_told(caplog):
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        dt, op = run(hangs_right, timeout=0.2, draws=10, tune=10)
    n = dt["posterior"].attrs["rejected_late"]
    assert n > 0
    assert float(dt["posterior"]["x"][..., 0].max()) <= 0.5
    said = "\n".join(messages(caplog))
    assert "in a process of their own" in said
    assert f"{n} evaluation" in said
    assert "took longer than 0.2 s" in said
    assert op.count < 200  # the others are in that process


def test_a_limit_leaves_all_as_it_was():
    before = signal.getsignal(signal.SIGALRM)
    assert within(10, max, 1, 2) == 2
    with pytest.raises(TooLong):
        within(0.01, time.sleep, 10)
    with pytest.raises(ZeroDivisionError):
        within(10, divmod, 1, 0)
    assert signal.getsignal(signal.SIGALRM) == before
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)


def test_a_timer_of_somebody_else_goes_on():
    rung = []
    before = signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    try:
        signal.setitimer(signal.ITIMER_REAL, 1000)
        within(10, time.sleep, 0.01)
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] < 1000
        assert rung == []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_where_nothing_can_be_stopped_it_is_refused(monkeypatch):
    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(NotHere, match="the main thread of a process"):
            pool.submit(within, 1, max, 1, 2).result()
        with pytest.raises(ValueError, match="does its tasks in threads"):
            run(standard_normal, timeout=1, executor=pool)
    monkeypatch.delattr(signal, "setitimer")
    initvals = {"x": [0.1, 0.2]}
    with pytest.raises(ValueError, match="as Windows has none"):
        run(standard_normal, timeout=1, initvals=initvals)


# ---- the same at the same point -----------------------------------------------------------------


def warned(caplog):
    return [text for text in messages(caplog, logging.WARNING) if "evaluated there again" in text]


def test_a_repeatable_model_is_looked_at_and_draws_as_before(caplog):
    options = {"draws": 120, "tune": 30, "chains": 5}
    dt, op = run(standard_normal, **options)
    count = op.count
    without, _ = run(standard_normal, check_repeatable=False, **options)
    np.testing.assert_array_equal(dt["posterior"]["x"], without["posterior"]["x"])
    more = (dt["sample_stats"]["n_logp"] - without["sample_stats"]["n_logp"]).values
    assert np.argwhere(more).tolist() == [[k, i] for k in range(4) for i in (0, 100)]
    assert more.max() == 1
    assert count == counted(dt)
    assert warned(caplog) == []


@pytest.mark.slow
def test_it_is_the_same_wherever_chains_advance():
    options = {"draws": 110, "tune": 20}
    whole, _ = run(standard_normal, **options)
    for cores in 1, 2:
        first, _ = run(standard_normal, draws=40, tune=20, cores=cores)
        assert_same(resume(first, box(standard_normal)[1], 70, cores=cores), whole)


@pytest.mark.parametrize("side", [1, -1])
def test_noise_away_from_the_start_is_noticed(side, caplog):
    rng = np.random.default_rng(1)

    def noisy(x):
        return standard_normal(x) + (side * x[1] > 1.5) * rng.standard_normal()

    run(noisy, draws=5, tune=200, chains=4)
    said = "\n".join(warned(caplog))
    assert "The model is random, or remembers earlier calls" in said
    assert "[random_density]" in said
    assert "pk.noise_seed()" in said


def test_a_model_that_remembers_is_noticed(caplog):
    last = np.zeros(2)

    def solver(x):
        nonlocal last
        last = 0.99 * x + 0.01 * last
        return standard_normal(last)

    run(solver, draws=5, chains=1)
    assert "remembers earlier calls" in warned(caplog)[0]


def test_a_start_that_is_nan_is_evaluated_again(caplog):

    def start(n_nan):
        """Begin where the first evaluations are NaN."""
        calls = []

        def function(x):
            calls.append(1)
            return np.nan if len(calls) <= n_nan else standard_normal(x)

        caplog.clear()
        run(function, initvals={"x": [0.1, 0.2]}, chains=1, tune=0)

    start(n_nan=1)
    assert "was NaN, and finite" in warned(caplog)[0]
    assert "[random_nan]" in warned(caplog)[0]
    with pytest.raises(SamplingError, match="is not finite at the current point"):
        start(10_000)


def test_pm_sample_looks_too(caplog):
    rng = np.random.default_rng(1)
    op, model = box(standard_normal)
    step = pk.baselines.RWM(model=model)
    op.function = lambda x: standard_normal(x) + 0.01 * rng.standard_normal()
    with model:
        pm.sample(5, tune=20, chains=1, cores=1, step=step, **QUIET)
    assert "The model is random" in caplog.text


@pytest.mark.slow
def test_what_was_seen_travels():
    """Also to where the model was compiled anew."""
    _, model = box(fails_right)
    job = job_of(pk.baselines.RWM(model=model))
    job.steps[0].log_density.rejects_errors = True
    with black_box_ops_silent():
        copy = cloudpickle.loads(cloudpickle.dumps(job))
    seen = [advance(each, begun(job), 40)[0].steps[0].watch for each in (job, copy)]
    for here, there in zip(*seen, strict=True):
        np.testing.assert_array_equal(here, there)
    assert seen[0].n_rejected[0] > 0
