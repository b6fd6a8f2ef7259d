"""A chain's progress is a pure function: wherever it is computed, the draws are the same."""

import logging
import multiprocessing
import os
import pickle
import signal
import sys
import threading
import time
from concurrent.futures import (
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
)
from pathlib import Path

import cloudpickle
import faults
import numpy as np
import pymc as pm
import pytest
from models import box, guarded_box, normal
from pymc.exceptions import SamplingError
from runs import QUIET, assert_same, begun, job_of, joined, messages, resume, same, sample, unpooled
from test_contract import ROWS

import pymc_kameleon as pk
from pymc_kameleon.model.python_calls import WorkerTraceback
from pymc_kameleon.model.remote import NotHere
from pymc_kameleon.sampling import (
    chain_of_run,
    run,
)
from pymc_kameleon.sampling import (
    ctrl_c as sampling_ctrl_c,
)
from pymc_kameleon.sampling import (
    workers as sampling_workers,
)
from pymc_kameleon.step.job import advance

pytestmark = pytest.mark.forks

ALL = ("posterior", "sample_stats", "warmup_sample_stats", "learned")


# ---- advance --------------------------------------------------------------------------------


LONG = "KAM", "CyclicalKAM", "CMTM", "GadMALA"


@pytest.fixture(
    scope="module", params=["GAM", *(pytest.param(name, marks=pytest.mark.slow) for name in LONG)]
)
def job(request):
    cls, options = ROWS[request.param]
    return job_of(cls(model=normal(2), steps_per_draw=3, **options))


def test_an_advance_is_a_pure_function(job):
    """Of a state, which it leaves alone; in any portions; from what was pickled, too."""
    first = begun(job)
    before = pickle.dumps(first)
    at_once, ten = advance(job, first, 10)
    assert pickle.dumps(first) == before
    again, portion = advance(job, first, 10)
    assert same(again, at_once)
    assert same(joined(portion), joined(ten))
    assert len(np.unique(ten.outputs[:, 0])) > 3
    half, five = advance(job, first, 5)
    there, rest = advance(*cloudpickle.loads(cloudpickle.dumps((job, half))), 5)
    assert same(there, at_once)
    assert same(joined(five, rest), joined(ten))
    assert same(rest.last, ten.last)
    arrived = pickle.loads(pickle.dumps(rest))
    assert same(joined(arrived), joined(rest))
    assert arrived.last[0].mean_accept == rest.last[0].mean_accept


# ---- the same draws everywhere --------------------------------------------------------------


@pytest.fixture(scope="module")
def step():
    """Of a black box."""
    return pk.baselines.RWM(model=guarded_box()[1], steps_per_draw=3)


@pytest.fixture
def black_box(step):
    """Return a function that gives the black box another function, and samples."""
    op, model = guarded_box(faults.wells)

    def run(function=faults.wells, step=step, wait=False, **options):
        op.function = function
        n = options.setdefault("chains", 3)
        options.setdefault("initvals", [faults.well(i) for i in range(n)])
        return sample(step, tune=40, draws=20, model=model, **options)

    yield run
    op.function = faults.wells


@pytest.fixture(scope="module")
def expected(step):
    guarded_box(faults.wells)
    return {
        n: sample(step, tune=40, draws=20, chains=n, initvals=[faults.well(i) for i in range(n)])
        for n in (2, 3)
    }


@pytest.fixture
def late(expected):
    """Return where a chain comes in the midst of its draws, and not before."""

    def where(chain, n=3, first=8):
        xs = expected[n]["posterior"]["x"].values[chain, :, 0]
        (there, *_) = (i for i in range(first, 20) if xs[i] != xs[i - 1])
        return xs[there] - 1e-9, xs[there] + 1e-9

    return where


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    """Wait no longer than that for the rest of what a worker was sending that died."""
    monkeypatch.setattr("pymc_kameleon.sampling.workers.DEATH_WAIT", 0.1)


def forked():
    return ProcessPoolExecutor(2, multiprocessing.get_context("fork"))


def loky():
    module = pytest.importorskip("loky", reason="loky, in which workers begin afresh")
    return module.ProcessPoolExecutor(1)


def spawned():
    return ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))


@pytest.mark.parametrize(
    "made",
    [
        lambda: ThreadPoolExecutor(2),
        forked,
        pytest.param(spawned, marks=pytest.mark.slow),
        pytest.param(loky, marks=pytest.mark.slow),
    ],
    ids=["threads", "fork", "spawn", "loky"],
)
def test_any_executor_gives_the_same_draws(made, black_box, expected):
    with made() as executor:
        assert_same(black_box(executor=executor), expected[3], ALL)
        assert_same(black_box(executor=executor, chains=2), expected[2], ALL)
        assert executor.submit(int).result() == 0  # it is the user's


class LikeLoky(ProcessPoolExecutor):
    """Processes that are forked; they cannot be told to cancel what waits, as loky's cannot."""

    def __init__(self):
        super().__init__(2, multiprocessing.get_context("fork"))

    def shutdown(self, wait=True, kill_workers=False):
        super().shutdown(wait)


def test_own_processes_and_a_callable_give_the_same_draws(black_box, expected):
    assert_same(black_box(cores=2), expected[3], ALL)
    assert_same(black_box(executor=LikeLoky), expected[3], ALL)


@pytest.mark.skipif(
    multiprocessing.get_start_method() != "fork", reason="processes are not forked here by default"
)
def test_where_jax_is_in_use_chains_are_sampled_in_turn(monkeypatch, caplog):
    """What it computes may wait for threads that a forked process does not have."""
    options = {"step": pk.baselines.RWM(model=box(faults.wells)[1]), "cores": 2}
    expected = sample(**options)
    monkeypatch.setattr(sampling_workers, "_jax_is_in_use", lambda: True)
    caplog.set_level(logging.INFO, "pymc_kameleon")
    assert_same(sample(**options, quiet=False), expected, ALL)
    [warning] = [text for text in messages(caplog) if "[jax_in_turn]" in text]
    assert "hang in processes that are forked" in warning
    assert any("in turn" in message for message in messages(caplog))


@pytest.fixture(scope="module")
def cluster():
    """Two worker processes of Dask."""
    distributed = pytest.importorskip("distributed", reason="Dask, with workers of its own")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Dask's own
def test_a_dask_cluster_gives_the_same_draws(cluster, black_box, expected, late, caplog, tmp_path):
    """Also when a worker dies, which Dask begins anew."""
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        assert_same(black_box(executor=cluster.get_executor()), expected[3], ALL)
    assert "Sampling by ClientExecutor, which calls `Counted` (3 chains)" in caplog.text
    # A handler of asyncio, of a worker without a job so far, cannot be sent.
    assert any(cluster.run(lambda: signal.getsignal(signal.SIGINT) is signal.SIG_IGN).values())
    killer = faults.Kills(late(1), tmp_path / "killed")
    assert_same(black_box(killer, executor=cluster.get_executor()), expected[3], ALL)
    assert (tmp_path / "killed").exists()
    with pytest.raises(ZeroDivisionError, match="broke down") as error:
        black_box(faults.Raises(late(1)), executor=cluster.get_executor())
    assert error.value.__notes__[0].startswith("In chain 1, draw ")
    with pytest.raises(ValueError, match=r"client\.get_executor\(\)"):
        black_box(executor=cluster)


@pytest.mark.parametrize("home", ["__main__", pytest.param(__name__, marks=pytest.mark.slow)])
def test_a_function_of_a_notebook_is_the_one_of_now(home, monkeypatch):
    """And one inside a function travels, too."""

    def model(centre):
        def well(x):
            return np.array(-0.5 * (x - centre) ** 2)

        well.__module__ = home
        op = pk.black_box(well, ndim=0)
        if home == "__main__":
            monkeypatch.setattr(sys.modules["__main__"], "well", op, raising=False)
        with pm.Model() as model:
            pm.Potential("logp", op(pm.Flat("x")))
        return model

    def found(model, **options):
        return sample(pk.baselines.RWM(model=model), tune=20, draws=10, **options)

    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        for centre in (0.0, 30.0):  # the worker knows the first one by this name
            here = model(centre)
            assert_same(found(here, executor=pool), found(here), ALL)


def test_what_cannot_travel_is_said():
    lock = threading.Lock()

    @pk.black_box(ndim=0)
    def locked(x):
        with lock:
            return np.array(-0.5 * x**2)

    with pm.Model() as model:
        pm.Potential("logp", locked(pm.Flat("x")))
    with forked() as executor, pytest.raises(TypeError, match="lock") as info:
        sample(pk.baselines.RWM(model=model), executor=executor)
    assert any("to travel to workers" in note for note in info.value.__notes__)


def test_an_executor_without_black_boxes_is_not_used(line_walk, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    with forked() as executor:
        assert_same(sample(line_walk, executor=executor), sample(line_walk), ALL)
    [said] = [text for text in messages(caplog) if "[idle_executor]" in text]
    assert said.startswith("The executor is not used, because the model calls no function of")


# ---- workers that die -----------------------------------------------------------------------


def test_a_worker_that_dies_once_changes_nothing(black_box, expected, late, tmp_path, caplog):
    with caplog.at_level(logging.INFO, "pymc_kameleon"):
        result = black_box(faults.Kills(late(1), tmp_path / "killed"), cores=2)
    assert (tmp_path / "killed").exists()
    assert_same(result, expected[3], ALL)
    [said] = [text for text in messages(caplog) if "[worker_died]" in text]
    assert "A worker of chain 1 died" in said


def test_a_pool_that_breaks_is_made_again(black_box, expected, late, tmp_path, caplog):
    made = []
    result = black_box(
        faults.Kills(late(1), tmp_path / "killed"),
        executor=lambda: made.append(forked()) or made[-1],
    )
    assert (tmp_path / "killed").exists()
    assert_same(result, expected[3], ALL)
    assert len(made) == 2
    assert messages(caplog, logging.WARNING) == []


@pytest.mark.slow
def test_a_worker_that_dies_while_it_sends_changes_nothing(black_box, expected, late, tmp_path):
    """Python's pool waits for the rest for ever, and all other workers for their turn."""
    result = black_box(faults.KillsSending(late(1), tmp_path / "killed"), cores=2)
    assert (tmp_path / "killed").exists()
    assert_same(result, expected[3], ALL)


def test_an_executor_that_breaks_ends_the_run(black_box, late, tmp_path):
    killed = tmp_path / "killed"
    with (
        ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as executor,
        pytest.raises(NotHere, match=r"is broken .* executor=lambda: Proc") as raised,
    ):
        black_box(faults.Kills(late(1), killed), executor=executor)
    assert killed.exists()
    assert "posterior" in raised.value.result


@pytest.mark.slow
def test_a_chain_that_kills_its_workers_is_given_up(black_box, expected, late, caplog):
    """The other chains, which died with it, are whole."""
    with caplog.at_level(logging.WARNING, "pymc_kameleon"):
        result = black_box(faults.Kills(late(1)), cores=2)
    (lost,) = [m for m in messages(caplog, logging.ERROR)]
    assert lost.startswith("Chain 1 is given up at draw ")
    assert "as 4 workers died of it in a row" in lost
    assert "Look for parameter values" in lost
    assert result["posterior"]["chain"].values.tolist() == [0, 2]
    assert_same(result, expected[3].sel(chain=[0, 2]), ALL)


def test_of_two_chains_the_whole_one_is_returned(black_box, expected, late, caplog, monkeypatch):
    """Though both together have more draws."""
    monkeypatch.setattr(chain_of_run.Chain, "next_portion", lambda self, pauses: 1)
    result = black_box(faults.Kills(late(1, 2, first=12)), cores=2, chains=2)
    assert "Chain 1 is given up" in caplog.text
    assert_same(result, expected[2].sel(chain=[0]), ALL)


@pytest.mark.slow
def test_if_all_chains_are_given_up_what_there_is_is_returned(black_box, caplog, monkeypatch):
    with pytest.raises(SamplingError, match="no draws: workers died"):
        black_box(faults.Kills((-np.inf, np.inf)), cores=2, chains=2)
    assert len(messages(caplog, logging.ERROR)) == 2
    monkeypatch.setattr(chain_of_run.Chain, "next_portion", lambda self, pauses: 1)
    result = black_box(faults.Kills((3.0, 50)), cores=2, chains=2, initvals=faults.well(0))
    assert len(messages(caplog, logging.ERROR)) == 4
    assert result["learned"].sizes["chain"] == 2


# ---- exceptions -----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_an_exception_of_a_black_box_arrives(cores, black_box, expected, late, monkeypatch):
    """In turn it is the exception itself; from elsewhere its traceback is its cause."""
    monkeypatch.setattr(chain_of_run.Chain, "next_portion", lambda self, pauses: 1)
    with pytest.raises(ZeroDivisionError, match="the solver broke down") as error:
        black_box(faults.Raises(late(1)), cores=cores)
    first, last = error.value.__notes__[0], error.value.__notes__[-1]
    assert first.startswith("In chain 1, draw ")
    assert "attribute `result` of this exception" in last
    cause = error.value.__cause__
    if cores == 2:
        assert isinstance(cause, WorkerTraceback)
        assert "in happen" in str(cause)
    guarded_box(faults.wells)
    whole = pk.resume(error.value.result, model=guarded_box()[1], cores=1, **QUIET)
    assert_same(whole, expected[3], ALL)


def test_an_exception_that_cannot_be_unpickled_arrives(black_box, late):
    with pytest.raises(RuntimeError, match=r"^Stubborn: the solver broke down \(7\)") as error:
        black_box(faults.RaisesStubborn(late(1)), cores=2)
    assert error.value.__notes__[0].startswith("In chain 1, draw ")
    assert "faults.Stubborn: the solver" in str(error.value.__cause__)


# ---- learning together ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def line_walk():
    return pk.baselines.RWM(model=normal(), steps_per_draw=5)


@pytest.fixture(scope="module")
def gentle():
    """Of a function."""
    with pm.Model() as model:
        pm.Potential("logp", pk.black_box(faults.wells, ndim=0)(pm.Flat("x", shape=2)))
    return pk.baselines.RWM(model=model, steps_per_draw=3)


@pytest.fixture(scope="module")
def herd():
    return faults.Herd(model=normal(), steps_per_draw=2)


@pytest.fixture
def calls(monkeypatch):
    made = []
    monkeypatch.setattr(faults.Herd, "calls", made)
    return made


@pytest.mark.slow
def test_chains_learn_together_where_all_have_come(herd, calls):
    alone = sample(herd, chains=3, tune=40)
    assert calls == [(3, [n] * 3) for n in (0, 10, 25)]
    for options in ({"cores": 2}, {"cores": 3}):
        calls.clear()
        assert_same(sample(herd, chains=3, tune=40, **options), alone, ALL)
    other = sample(faults.Loner(model=herd.model, steps_per_draw=2), chains=3, tune=40)
    assert not np.array_equal(other["learned"]["scaling"], alone["learned"]["scaling"])


def test_chains_that_are_not_pooled_learn_alone(herd, calls, tmp_path):
    """At the same pauses, as the broken twin does, and when they go on, too."""
    pooled = sample(herd, chains=3, tune=40)
    calls.clear()
    alone = sample(unpooled(herd), chains=3, tune=40)
    assert sorted(calls) == sorted([(1, [n]) for n in (0, 10, 25)] * 3)
    with pytest.raises(AssertionError):
        assert_same(alone, pooled, ALL)
    loner = faults.Loner(model=herd.model, steps_per_draw=2)
    assert_same(sample(loner, chains=3, tune=40), alone, ALL)
    path = tmp_path / "run.zarr"
    for options in ({"cores": 2}, {"store": path}):
        same_run = sample(unpooled(herd), chains=3, tune=40, **options)
        assert_same(same_run, alone, ALL)
    begun = sample(unpooled(herd), chains=3, tune=40, callback=lambda run, draw: run.stop())
    assert_same(pk.resume(begun, model=herd.model, **QUIET), alone, ALL)


def test_chains_that_learn_together_are_one_in_pm_sample(herd, calls):
    pm.sample(5, tune=40, chains=2, cores=1, step=herd, model=herd.model, **QUIET)
    assert calls == [(1, [n]) for n in (0, 10, 25)] * 2


@pytest.mark.slow
def test_chains_that_learn_together_resume(herd, monkeypatch):
    whole = sample(herd, chains=3, tune=40)
    for stop in (4, 10, 24, 25, 26, 40, 50):

        def stops(run, draw, stop=stop):
            if draw.draw_idx + 1 >= stop:
                run.stop()

        with monkeypatch.context() as patch:
            patch.setattr(chain_of_run.Chain, "next_portion", lambda self, pauses: 1)
            half = sample(herd, chains=3, tune=40, callback=stops)
        assert len(half["learned"]["chain"]) == 3
        again = pk.resume(half, model=herd.model, **QUIET)
        assert_same(again, whole, ALL)


def test_gad_mala_pools_wherever_it_runs():
    with pm.Model() as model:
        pm.StudentT("x", nu=4, sigma=[1.0, 2.0, 4.0])
    step = pk.GadMALA(model=model)
    pooled = sample(step, chains=3, tune=100)
    assert len(np.unique(pooled["learned"]["covariance"][:, 0, 0])) == 1
    assert_same(sample(step, chains=3, tune=100, cores=2), pooled, ALL)
    half = sample(step, chains=3, tune=100, callback=lambda run, draw: run.stop())
    assert_same(pk.resume(half, model=model, **QUIET), pooled, ALL)
    alone = sample(unpooled(step), chains=3, tune=100)
    assert len(np.unique(alone["learned"]["covariance"][:, 0, 0])) == 3
    first = sample(step, chains=1, tune=100)
    assert_same(first, alone.isel(chain=[0]), ALL)
    stats = first["warmup_sample_stats"].isel(draw=slice(1, None))
    np.testing.assert_array_equal(stats["n_logp"], stats["n_steps"])  # no pause costs anything


class Loses(ThreadPoolExecutor):
    """Loses its second task."""

    def __init__(self, *arguments):
        super().__init__(1)
        self.left = 2

    def submit(self, function, *arguments):
        self.left -= 1
        if self.left:
            return super().submit(function, *arguments)
        future = Future()
        future.set_exception(ConnectionError("gone"))
        return future


def test_a_chain_that_was_given_up_learns_later(herd, calls, monkeypatch):
    """Alone, as the others have gone on; it does not wait for them for ever."""
    with monkeypatch.context() as patch:
        patch.setattr(run, "MOST_DEATHS", 0)
        patch.setattr(sampling_workers, "ThreadPoolExecutor", Loses)
        rest = sample(herd, chains=3, tune=40, cores=2)
    assert rest["posterior"]["chain"].values.tolist() == [0, 2]
    assert calls == [(3, [0] * 3), (2, [10] * 2), (2, [25] * 2)]
    calls.clear()
    whole = resume(rest, herd.model, 10, max_time=faults.HANGING)
    assert [whole["posterior"].sizes[dim] for dim in ("chain", "draw")] == [3, 40]
    assert calls == [(1, [10]), (1, [25])]


def test_a_second_step_may_learn_together(calls):
    """Though the first one has no pauses."""
    with pm.Model() as model:
        x, y = pm.Normal("x"), pm.Normal("y")
    steps = [pk.baselines.RWM([x], model=model), faults.Herd([y], model=model)]
    one, two = (sample(steps, model=model, chains=2, tune=40, cores=n) for n in (1, 2))
    assert_same(one, two, ALL)
    assert calls == [(2, [n] * 2) for n in (0, 10, 25)] * 2


# ---- Ctrl-C, kill -9 ------------------------------------------------------------------------


def test_a_second_ctrl_c_right_after_the_first_is_not_lost():
    """It comes while nothing can be left; what is done next is left."""
    stops = []
    with sampling_ctrl_c.CtrlC(lambda: stops.append(1)) as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        with ctrl_c.interruptible():
            pass
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt), ctrl_c.interruptible():
            pytest.fail("it was lost")
    assert len(stops) == 2


def test_workers_leave_ctrl_c_to_their_parent(black_box):
    """A terminal sends it to all processes of a group."""
    context, job = multiprocessing.get_context("fork"), sampling_workers.Packed(None)
    with ProcessPoolExecutor(1, context, sampling_workers.set_up_process, (job,)) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


def test_workers_that_began_before_leave_it_once_they_have_the_function(black_box):
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        assert pool.submit(signal.getsignal, signal.SIGINT).result() != signal.SIG_IGN
        black_box(executor=pool, chains=1)
        assert pool.submit(signal.getsignal, signal.SIGINT).result() == signal.SIG_IGN


class Interrupted(ThreadPoolExecutor):
    """Its fourth call is interrupted."""

    left = 4

    def submit(self, function, *arguments):
        self.left -= 1
        if self.left:
            return super().submit(function, *arguments)
        future = Future()
        future.set_exception(KeyboardInterrupt())
        return future


def test_a_call_that_is_interrupted_costs_no_other_its_draws(gentle, caplog):
    with Interrupted(1) as threads:
        result = sample(gentle, tune=0, chains=2, executor=threads)
    assert "Sampling was interrupted" in caplog.text
    assert_same(resume(result, gentle.model, None), sample(gentle, tune=0, chains=2), ALL[:2])


class Deserted(Executor):
    """A cluster of Dask whose workers end with Ctrl-C, which is seen a bit later."""

    def __init__(self):
        self._client, self.seen = self, [{}, {"last": 1}, {"one": 1, "last": 1}]

    def nthreads(self):
        return self.seen.pop() if self.seen else {}

    def submit(self, function, *arguments):
        future = Future()
        if threading.current_thread() is threading.main_thread():
            future.set_result(function(*arguments))  # before the run
        else:
            signal.raise_signal(signal.SIGINT)
        return future


def test_ctrl_c_waits_for_no_cluster_where_nobody_is_left(gentle):
    with pytest.raises(KeyboardInterrupt, match="no draws"):
        sample(gentle, chains=2, executor=Deserted())


class Tells(faults.Hangs):
    """Tells by files which processes hang: all but the one that it is made in."""

    def __init__(self, folder):
        super().__init__((-1e9, 1e9))
        self.folder = folder

    def _first(self):
        if os.getpid() == self.home:
            return False
        (self.folder / str(os.getpid())).touch()
        return True


def hang_in_workers(step, folder):
    guarded_box(Tells(folder))
    sample(step, cores=2, initvals={"x": [0.1, 0.2]})


def test_workers_end_when_their_parent_is_killed(step, tmp_path):
    """While they compute."""
    forked = multiprocessing.get_context("fork")
    parent = forked.Process(target=hang_in_workers, args=(step, tmp_path))
    parent.start()
    try:
        until(lambda: len(list(tmp_path.iterdir())) == 2 or not parent.is_alive())
        workers = [int(path.name) for path in tmp_path.iterdir()]
        assert len(workers) == 2
    finally:
        parent.kill()
        parent.join()
    until(lambda: not any(is_alive(pid) for pid in workers))


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def until(holds):
    """Wait until something holds in another process."""
    end = time.monotonic() + faults.HANGING
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- impossible -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"executor": 3}, "executor must be a concurrent.futures.Executor, or a callable .* not 3"),
        ({"executor": "dask"}, "executor must be"),
        ({"quiet": None}, "quiet must be True or False"),
        ({"max_time": -1}, "max_time must be .*-1"),
        ({"max_time": 0}, "max_time must be"),
        ({"max_time": "1h"}, "max_time must be"),
        ({"target_ess": 0}, "target_ess must be .*0"),
        ({"target_ess": np.inf}, "target_ess must be"),
        ({"target_ess": True}, "target_ess must be"),
        ({"callback": 3}, "callback must be"),
        ({"cores": 2.0}, "cores must be an integer"),
    ],
)
def test_impossible_options(options, message, line_walk):
    with pytest.raises(ValueError, match=message):
        sample(line_walk, **options)


def test_an_executor_that_cannot_be_made_says_so(line_walk):
    def make():
        raise OSError("no such cluster")

    with pytest.raises(OSError, match="no such cluster"):
        sample(line_walk, executor=make)
    with pytest.raises(ValueError, match=r"executor\(\) must return .*Executor, not {}"):
        sample(line_walk, executor=dict)
    assert_same(sample(line_walk), sample(line_walk), ALL)  # nothing is left behind
