"""Faults of every kind: no hang, no draw lost, and never a wrong number in silence.

docs/faults.md lists them, with the tests of the other files that look at each.
"""

import errno
import faulthandler
import logging
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import nullcontext, suppress
from functools import cache, partial
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path

import faults
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from boxed import SAMPLERS
from core.test_compiler import plus_one, scaled
from hypothesis import given, settings
from hypothesis import strategies as st
from models import Counting, guarded_box, normal
from numba import config, int64
from pytensor.compile import Mode
from runs import (
    DRAWN,
    QUIET,
    assert_same,
    begun,
    codes,
    done_of,
    job_of,
    joined,
    messages,
    resume,
    same,
    sample,
    unpooled,
)
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.core import compiler, numba_cache
from pymc_kameleon.model import functions
from pymc_kameleon.step.job import advance

pytestmark = pytest.mark.forks

ALL = (*DRAWN, "warmup_sample_stats", "learned")

PACKAGE = str(Path(pk.__file__).parent)


@pytest.fixture(autouse=True)
def watch():
    """A test that hangs ends with a traceback of each thread."""
    faulthandler.dump_traceback_later(3 * faults.HANGING, exit=True)
    yield
    faulthandler.cancel_dump_traceback_later()


@pytest.fixture(scope="module")
def walk():
    return made("walk")


@pytest.fixture(scope="module")
def plane():
    return pk.baselines.RWM(model=normal(2), steps_per_draw=2)


@pytest.fixture(scope="module")
def black_walk():
    """Of a black box."""
    return made("box")


# ---- Ctrl-C at random moments ---------------------------------------------------------------


def press_here():
    signal.raise_signal(signal.SIGINT)


class Press:
    """Presses Ctrl-C when this package has begun to run its line number `at`, in this thread.

    `press` does so, by default in this process alone.

    Attributes
    ----------
    lines : int
        Lines run.
    """

    def __init__(self, at=None, press=press_here):
        self.lines, self._at, self._press, self._home = 0, at, press, os.getpid()

    def __enter__(self):
        self._before = sys.gettrace()
        sys.settrace(self._follow)
        return self

    def __exit__(self, *error):
        sys.settrace(self._before)

    def _follow(self, frame, event, argument):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self._at and os.getpid() == self._home:  # not in a fork
                self._press()
        return self._follow


def moments(call, n, seed):
    """Return n random lines at which to interrupt a call."""
    with Press() as press:
        call()
    return np.random.default_rng(seed).integers(1, press.lines, n)


def is_part_of(result, whole, renumbered=False):
    """Check that draws are the first ones of the whole run; return how many there are."""
    n, draws = result["posterior"].sizes["draw"], whole["posterior"]["x"].values
    for chain, own in zip(result["posterior"]["chain"], result["posterior"]["x"], strict=True):
        chains = range(len(draws)) if renumbered else [int(chain)]
        assert any(np.array_equal(own, draws[number, :n]) for number in chains)
    return own.sizes["draw"] * len(result["posterior"]["x"])


def pools(kind):
    return {
        "threads": lambda: ThreadPoolExecutor(2),
        "pool": lambda: ProcessPoolExecutor(2, multiprocessing.get_context("fork")),
    }[kind]()


def few_and_many(counts):
    """Two moments of the first case in the fast suite, and all in the slow one."""
    first = next(iter(counts))
    return [pytest.param(first, 2, id=f"{first}-few")] + [
        pytest.param(where, n, id=f"{where}-many", marks=pytest.mark.slow)
        for where, n in counts.items()
    ]


@pytest.fixture
def done(monkeypatch):
    return one_by_one(monkeypatch)


def one_by_one(monkeypatch):
    """Return chains and how many draws they had made, as they come back, one by one."""
    done, take = [], pk.sampling.chain_of_run.Chain.take

    def note(self, state, *others):
        take(self, state, *others)
        done.append((self.number, self.done))

    monkeypatch.setattr(pk.sampling.chain_of_run.Chain, "take", note)
    monkeypatch.setattr(pk.sampling.chain_of_run.Chain, "next_portion", lambda self, pauses: 1)
    return done


CASES = {"in turn": 40, "own threads": 40, "threads": 30, "own processes": 25, "pool": 25}


@pytest.mark.slow
@pytest.mark.parametrize(("where", "n"), few_and_many(CASES))
def test_ctrl_c_at_a_random_moment(where, n, walk, black_walk, done):
    """What is returned are the first draws of an undisturbed run; going on gives the others."""
    options, step = {"tune": 4, "draws": 6, "cores": 1}, walk
    if where in ("own processes", "pool"):
        guarded_box(faults.wells)
        options["initvals"], step = {"x": np.array([0.1, 0.2])}, black_walk
    whole = sample(step, **options)

    def run():
        if where in ("threads", "pool"):
            with pools(where) as executor:
                return sample(step, **options | {"executor": executor})
        return sample(step, **options | {"cores": 2 if where.startswith("own") else 1})

    kept = 0
    for at in moments(run, n, seed=1):
        done.clear()
        try:
            with Press(at):
                result = run()
        except KeyboardInterrupt:
            assert not done
            continue
        kept += is_part_of(result, whole)
        made = dict(enumerate(done_of(result)))
        assert all(made[chain] >= n for chain, n in done)
        if min(made.values()) < 10:
            result = resume(result, step.model, None)
        assert_same(result, whole, ALL)
    assert kept > 0


class Cluster:
    """Two worker processes of Dask, as an executor."""

    def __enter__(self):
        from distributed import Client, LocalCluster

        options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": "127.0.0.1:0"}
        self._client = Client(LocalCluster(**options))
        return self._client.get_executor()

    def __exit__(self, *error):
        self._client.cluster.close()
        self._client.close()


def afresh(where):
    """Return a pool of processes that begin afresh."""
    if where == "loky":
        from loky import ProcessPoolExecutor as Loky

        return Loky(2)
    if where == "dask":
        return Cluster()
    return ProcessPoolExecutor(2, multiprocessing.get_context(where))


def press_in_a_terminal():
    """Press Ctrl-C where it comes to the workers, too."""
    os.killpg(0, signal.SIGINT)


def interrupt(where, n, seed=1):
    """Interrupt n runs of one pool, here and in a terminal by turns, and print how much they kept.

    If they all came before the first draws, up to nine more follow. This process leads a group of
    its own.
    """
    _, model = guarded_box(faults.wells)
    step = pk.baselines.RWM(model=model, steps_per_draw=2)
    options = {"tune": 4, "draws": 6, "quiet": True, "initvals": {"x": np.array([0.1, 0.2])}}
    whole, kept = sample(step, **options), 0
    done = one_by_one(pytest.MonkeyPatch())
    with afresh(where) as executor:
        run = partial(sample, step, executor=executor, **options)
        run()  # its workers begin
        presses = zip(moments(run, n + 9, seed), cycle([press_in_a_terminal, press_here]))
        for count, (at, press) in enumerate(presses):
            if count >= n and kept:
                break
            done.clear()
            try:
                with Press(at, press):
                    result = run()
            except KeyboardInterrupt:
                assert not done
                continue
            kept += is_part_of(result, whole)
            made = dict(enumerate(done_of(result)))
            assert all(made[chain] >= n for chain, n in done)
            if min(made.values()) < 10:
                result = resume(result, model, None, cores=1, quiet=True)
            assert_same(result, whole, ALL)
        assert executor.submit(int).result() == 0
    print(where, kept, flush=True)


INTERRUPTED = """
import faulthandler, sys
from faults import HANGING
from test_faults import interrupt

if __name__ == "__main__":
    for where in sys.argv[2:]:
        faulthandler.dump_traceback_later(HANGING, exit=True)
        interrupt(where, int(sys.argv[1]))
"""


@pytest.mark.slow
def test_ctrl_c_in_a_terminal():
    """It comes to all processes of the terminal; workers leave it to the one that samples."""
    installed = {"spawn": True, "loky": find_spec("loky"), "dask": find_spec("distributed")}
    where = [name for name, found in installed.items() if found]
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, "1", *where],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        printed, errors = child.communicate(timeout=2 * faults.HANGING)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
    assert child.returncode == 0, errors
    kept = dict(line.split() for line in printed.splitlines())
    assert [*kept] == where
    assert all(int(n) > 0 for n in kept.values())


@pytest.mark.filterwarnings("ignore:.*Could not extract data")
@pytest.mark.parametrize(("cores", "n"), few_and_many({1: 20, 2: 20}))
def test_ctrl_c_at_a_random_moment_of_pm_sample(cores, n, walk):
    """It returns the first draws, and leaves the step as it was."""
    model = walk.model

    def run():
        options = {"chains": 2, "cores": cores, "random_seed": 7}
        return pm.sample(6, tune=4, step=walk, model=model, **QUIET, **options)

    whole, kept = run(), 0
    for at in moments(run, n, seed=2):
        try:
            with Press(at):
                result = run()
        except KeyboardInterrupt:
            continue
        except ValueError as error:
            if "Not enough samples" not in str(error):  # as PyMC says if there are no draws
                raise
            continue
        kept += is_part_of(result, whole, renumbered=True)
    assert kept > 0
    assert_same(run(), whole)


@pytest.mark.parametrize("where", ["in turn", "threads"])
def test_a_likelihood_may_press_ctrl_c_itself(where, black_walk, caplog):
    """As a solver does that is interrupted: the run says so, and has the draws until then."""
    guarded_box()
    options = {"tune": 4, "draws": 6, "initvals": {"x": np.array([0.1, 0.2])}}
    whole = sample(black_walk, **options)
    guarded_box(Disturbed(30, KeyboardInterrupt))
    with pools(where) if where == "threads" else nullcontext() as executor:
        result = sample(black_walk, executor=executor, **options)
    assert "ended_early" in codes(result)
    guarded_box()
    is_part_of(result, whole)
    assert_same(resume(result, black_walk.model, None), whole, ALL)


# ---- memory that is used up -----------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("executor", [None, partial(pools, "pool")], ids=["own", "callable"])
def test_a_likelihood_that_leaks_until_its_workers_are_killed(executor, black_walk, caplog):
    """Though no worker survives what takes half a second: new ones make fewer draws at a time."""
    guarded_box(faults.wells)
    options = {"tune": 40, "draws": 100, "initvals": {"x": np.array([0.1, 0.2])}}
    whole = sample(black_walk, **options)
    guarded_box(faults.Leaks(60))
    result = sample(black_walk, **options | {"cores": 2, "executor": executor})
    assert_same(result, whole, ALL)
    assert len(messages(caplog)) > 4
    assert not messages(caplog, logging.ERROR)


@cache
def broad():
    """Return a black box whose draws are large, and a step."""
    op = Counting(faults.wells)
    with pm.Model() as model:
        x = pm.Flat("x", shape=2, initval=np.array([0.1, 0.2]))
        pm.Deterministic("broad", pt.repeat(x, 1000))
        pm.Potential("p", op(x))
    return op, pk.baselines.RWM(model=model, steps_per_draw=2)


def without_memory(whole, options, n):
    """Interrupt n runs by an evaluation that takes all memory; return how many draws they kept."""
    import resource

    op, step = broad()
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    kept, room = 0, whole["posterior"].nbytes + 30_000_000
    for at in np.random.default_rng(1).integers(1, 4 * options["draws"], n):
        op.function = takes = faults.TakesAll(at)
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        most = pages * resource.getpagesize() + room
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        try:
            sample(step, **options)
            pytest.fail("there was memory")
        except MemoryError as error:
            takes.kept.clear()
            resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
            op.function = faults.wells
            if not hasattr(error, "result"):
                assert at < 40  # before the first draws of a chain have come back
                continue
            kept += is_part_of(error.result, whole)
            again = resume(error.result, step.model, None, cores=1)
            assert_same(again, whole, ALL)
    return kept


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not limit memory so")
def test_a_likelihood_that_takes_all_memory(monkeypatch):
    """The draws until then are there, though there is no memory to copy them."""
    usual = pk.sampling.chain_of_run.Chain.next_portion
    monkeypatch.setattr(
        pk.sampling.chain_of_run.Chain, "next_portion", lambda *own: min(500, usual(*own))
    )
    op, step = broad()
    op.function = faults.wells
    options = {"tune": 4, "draws": 1000, "cores": 1}
    whole = sample(step, **options)
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as limited:
        assert limited.submit(without_memory, whole, options, 8).result() > 0


def test_draws_that_cannot_be_put_together_are_told(black_walk, monkeypatch):
    def fail(*arguments):
        raise MemoryError

    monkeypatch.setattr(pk.sampling.run, "data_tree", fail)
    guarded_box(Disturbed(30, MemoryError))
    with pytest.raises(MemoryError, match="the solver broke down") as error:
        sample(black_walk)
    guarded_box()
    where, lost = error.value.__notes__
    assert "Look for a likelihood that keeps some memory" in where
    assert lost == "The draws until then could not be put together: MemoryError()"


# ---- results that could not be made ---------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dims": {"x": ["k"]}, "coords": {"k": [1, 2, 3]}}, "could not be returned: .*'k'"),
        ({"dims": {"x": ["chain"]}}, "could not be returned"),
        ({"dims": {"x": ["k", "l"]}}, "could not be returned"),
        ({"dims": {"x": ["x"]}}, r"Dimensions of the result are called \['x'\]"),
        ({"log_prior": ["y"]}, r"log_prior must be True, or some of \['x'\]"),
        ({"log_likelihood": ["x"]}, r"log_likelihood must be True, or some of \[\]"),
    ],
)
def test_a_result_that_could_not_be_made_is_refused_before_sampling(options, message, plane, done):
    """It would lose the draws."""
    with pytest.raises(ValueError, match=message):
        sample(plane, idata_kwargs=options)
    assert not done


@pytest.fixture(scope="module")
def odd():
    """Of a model with names that are taken, and with variables that have no elements."""
    with pm.Model() as model:
        x, empty = pm.Normal("x", shape=2), pm.Normal("empty", shape=(3, 0))
        pm.Deterministic("draw", 3 * x)
        pm.Deterministic("x_dim_0", 2 * x)
        pm.Deterministic("both", x[0] * empty)
    return pk.baselines.RWM(model=model, steps_per_draw=1)


def test_variables_are_not_called_as_dimensions(odd, done):
    with pytest.raises(ValueError, match=r"called \['draw', 'x_dim_0'\]"):
        sample(odd)
    assert not done


def test_what_is_computed_besides_needs_all_variables(odd, done):
    options = {"var_names": ["both", "empty"], "idata_kwargs": {"log_prior": True}}
    with pytest.raises(ValueError, match=r"log_prior needs \['x'\], which var_names leaves out"):
        sample(odd, **options)
    assert not done


def test_a_step_of_no_elements_is_refused(odd):
    with pytest.raises(ValueError, match=r"RWM has nothing to move: \['empty'\] have no elements"):
        pk.baselines.RWM(["empty"], model=odd.model)


@pytest.mark.slow
def test_variables_without_elements(odd, tmp_path):
    """They are there, in a store too."""
    result = sample(odd, var_names=["both", "empty"], store=tmp_path / "run.zarr")
    assert result["posterior"]["empty"].shape == result["posterior"]["both"].shape == (2, 30, 3, 0)
    assert resume(tmp_path / "run.zarr", odd.model, 5)["posterior"].sizes["draw"] == 35


def test_what_is_computed_besides_may_fail(walk, monkeypatch, caplog):
    """Also of a run that was stopped while tuning."""

    def fail(*arguments, **options):
        raise ZeroDivisionError("the solver broke down")

    expected = sample(walk)
    monkeypatch.setitem(pk.sampling.sample.COMPUTED_GROUPS, "log_prior", fail)
    assert_same(sample(walk, idata_kwargs={"log_prior": True}), expected, ALL)
    assert "The log_prior failed; the draws are returned." in caplog.text
    caplog.clear()
    stop = {"callback": lambda run, draw: run.stop()}
    stopped = sample(walk, idata_kwargs={"log_prior": True}, **stop)
    assert stopped["posterior"].sizes["draw"] == 0
    assert "failed" not in caplog.text


def test_one_chain_may_have_ended_before_a_run_is_interrupted(walk, monkeypatch):
    """The others make what is left of theirs, and none makes more."""
    whole = sample(walk)
    can_advance = pk.sampling.chain_of_run.Chain.can_advance.fget
    behind = property(lambda self: can_advance(self) and (self.row == 0 or self.done < 60))
    monkeypatch.setattr(pk.sampling.chain_of_run.Chain, "can_advance", behind)
    half = sample(walk, callback=lambda run, draw: run.stop() if draw.draw_idx == 79 else None)
    monkeypatch.undo()
    assert done_of(half) == [80, 50]
    assert half["posterior"].sizes["chain"] == 1
    assert_same(resume(half, walk.model, None), whole, ALL)


# ---- compiled code on disk ------------------------------------------------------------------


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    return tmp_path


def cached(identity="identity"):
    """Return a file of code, and of other code under another key; both of another process."""

    def entry():
        pass

    return numba_cache.Cache(entry, identity)._cache_file


def test_code_that_was_damaged_on_disk_is_none(place):
    """Cut off, or changed, at any byte; what is saved again is there."""
    code, rng = {"code": bytes(range(256)) * 4}, np.random.default_rng(1)
    file = cached()
    file.save("key", code)
    assert cached().load("key") == code
    assert cached().load("other key") is None
    for path in place.rglob("*.nb?"):
        whole = path.read_bytes()
        for at in (0, *rng.integers(1, len(whole), 30)):
            changed = bytearray(whole)
            changed[at] ^= 255
            for content in (whole[:at], bytes(changed)):
                path.write_bytes(content)
                assert cached().load("key") in (None, code)
                if path.suffix == ".nbc":
                    assert cached().load("key") is None
        path.unlink()
        assert cached().load("key") is None
        cached().save("key", code)
        assert cached().load("key") == code


def test_code_of_another_key_is_none(place):
    """Two processes that write at once may leave the index of one, and the code of the other."""
    cached().save("key", {"code": 1})
    index = next(place.rglob("*.nbi"))
    of_one = index.read_bytes()
    index.unlink()
    cached().save("other key", {"code": 2})
    index.write_bytes(of_one)
    assert cached().load("key") is None


def test_code_that_cannot_be_kept_is_used_all_the_same(place, monkeypatch, caplog):
    """On a full disk."""

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numba_cache.CacheFile, "_open_for_write", fail)
    numba_cache._say_once.cache_clear()
    with caplog.at_level("INFO", logger="pymc_kameleon"):
        assert compiler.entry_point(scaled(17, plus_one), (int64,))(1) == 34
    assert "cannot be kept ([Errno 28] No space left on device)" in caplog.text


# ---- a store that was cut off ---------------------------------------------------------------


@pytest.mark.parametrize("n", [2, pytest.param(60, marks=pytest.mark.slow)])
def test_a_store_cut_off_at_a_random_byte(n, walk, tmp_path, monkeypatch):
    """It is refused, or goes on as if it were whole."""
    whole, rng = sample(walk, draws=10, tune=6), np.random.default_rng(3)
    made = tmp_path / "made.zarr"
    sample(walk, draws=6, tune=6, store=made)
    files = sorted(path.relative_to(made) for path in made.rglob("*") if path.is_file())
    refused = 0
    for i in range(n):
        path = tmp_path / f"{i}.zarr"
        shutil.copytree(made, path)
        file = path / files[rng.integers(len(files))]
        file.write_bytes(file.read_bytes()[: rng.integers(file.stat().st_size)])
        try:
            result = resume(path, walk.model, 4)
        except ValueError as error:
            if str(path) not in str(error):
                raise
            refused += 1
        else:
            assert_same(result, whole, ALL)
    assert refused > 0


# ---- linkers --------------------------------------------------------------------------------


class Jitted:
    """Machine code that is not numba's."""


@pytest.mark.slow
def test_a_linker_that_is_neither_numbas_nor_c_nor_python_is_replaced(monkeypatch, caplog):
    """As JAX's, by C's, which is said."""
    caplog.set_level(logging.INFO, "pymc_kameleon")
    step, make = pk.baselines.RWM(model=normal(), steps_per_draw=2), functions.pymc_compile

    def compile_as_jax_would(*arguments, **options):
        function = make(*arguments, **options)
        if "mode" not in options:
            function.vm.jit_fn = Jitted()
        return function

    expected = sample(step)
    monkeypatch.setattr(functions, "pymc_compile", compile_as_jax_would)
    monkeypatch.setattr(
        functions, "Mode", lambda *names: Mode("py", "fast_compile")
    )  # sooner than C
    with pm.Model() as model:
        pm.Normal("x")
    result = sample(pk.baselines.RWM(model=model, steps_per_draw=2))
    said = "log-density runs through Python, which is slower: NumbaLinker compiles nothing that"
    [text] = [text for text in messages(caplog) if "[runs_in_python]" in text]
    assert said in text
    np.testing.assert_allclose(result["posterior"]["x"], expected["posterior"]["x"], rtol=1e-6)


@cache
def regression():
    with pm.Model() as model:
        data = pm.Data("data", [0.5, 1.0, 3.0])
        pm.Normal("y", pm.Normal("x", 0, 10), pm.HalfNormal("s"), observed=data)
    return model


@pytest.fixture(scope="module")
def fit():
    return pk.GAM(model=regression(), steps_per_draw=2)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["C", "JAX"])
@pytest.mark.parametrize("cls", [pk.GAM, pk.GadMALA])
def test_other_linkers_give_the_same_log_density(cls, mode, caplog):
    if mode == "JAX":
        pytest.importorskip("jax", reason="JAX, whose linker PyTensor uses")
    step = cls(model=regression(), compile_kwargs={"mode": mode})
    result = sample(step, tune=100)
    draws, log_density = result["posterior"], regression().compile_logp()
    expected = [
        log_density({"x": x, "s_log__": np.log(s)})
        for x, s in zip(draws["x"].values[0], draws["s"].values[0], strict=True)
    ]
    np.testing.assert_allclose(result["sample_stats"]["lp"][0], expected, rtol=1e-9)
    assert ("JAXLinker compiles nothing" in caplog.text) == (mode == "JAX")


def test_linkers_that_are_not_installed_are_refused():
    if find_spec("jax"):
        pytest.skip("JAX is installed")
    with pytest.raises(ModuleNotFoundError, match="jax"):
        pk.baselines.RWM(model=regression(), compile_kwargs={"mode": "JAX"})


# ---- transforms -----------------------------------------------------------------------------


@cache
def transformed():
    """A variable with each transform of PyMC, and two with those that are given by functions."""
    transforms = pm.distributions.transforms
    with pm.Model() as model:
        pm.HalfNormal("log")
        free = {"default_transform": None, "transform": transforms.log_exp_m1}
        pm.Gamma("log_exp_m1", 2, 1, **free)
        pm.Beta("logodds", 2, 3)
        place = pm.Normal("place", 0, 0.1)
        pm.Uniform("interval", place - 1, place + 2)
        pm.TruncatedNormal("half_open", 0, 1, lower=0.5)
        pm.VonMises("circular", 0.5, 2)
        pm.Normal("ordered", shape=3, transform=transforms.ordered, initval=np.arange(3.0))
        both = transforms.Chain([transforms.log, transforms.ordered])
        free = {"default_transform": None, "transform": both, "initval": np.arange(1.0, 4)}
        pm.Gamma("chained", 2, 1, shape=3, **free)
        pm.Dirichlet("simplex", np.array([1.0, 2, 3]))
        pm.ZeroSumNormal("zerosum", shape=(2, 3), n_zerosum_axes=2)
        pm.LKJCholeskyCov("cov", n=2, eta=2, sd_dist=pm.Exponential.dist(1), compute_corr=False)
        pm.LKJCorr("corr", n=3, eta=2)
    return model


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PyTensor could not link to a BLAS")
def test_every_transform():
    """Draws are where PyMC says, and have its log-density."""
    model = transformed()
    step = pk.CMH(model=model, steps_per_draw=1)  # some coordinates move in each draw
    options = {"idata_kwargs": {"include_transformed": True}, "tune": 20, "draws": 20}
    result = sample(step, **options)
    draws = result["posterior"].to_dataset().isel(chain=1)
    assert len(np.unique(draws["place"])) > 3
    natural = model.compile_fn(
        [*model.replace_rvs_by_values(model.free_RVs), model.logp()],
        inputs=model.value_vars,
        mode="FAST_COMPILE",
    )
    for i in range(20):
        *expected, lp = natural({v.name: draws[v.name].values[i] for v in model.value_vars})
        for rv, values in zip(model.free_RVs, expected, strict=True):
            np.testing.assert_allclose(draws[rv.name][i], values, rtol=1e-9, err_msg=rv.name)
        np.testing.assert_allclose(result["sample_stats"]["lp"][1, i], lp, rtol=1e-9)


def test_every_transform_of_pymc_has_a_variable():
    transforms = pm.distributions.transforms
    used = [transform for transform in transformed().rvs_to_transforms.values() if transform]
    used += transformed().rvs_to_transforms[transformed()["chained"]].transform_list
    # The first one is abstract, the second in no distribution, and the third is deprecated.
    for name in set(transforms.__all__) - {"Transform", "CholeskyCovTransform", "sum_to_1"}:
        kind = getattr(transforms, name)
        kind = kind if isinstance(kind, type) else type(kind)
        assert any(issubclass(kind, type(one)) or isinstance(one, kind) for one in used), name


# ---- numbers --------------------------------------------------------------------------------

SCALES = 10.0 ** np.arange(-12, 13, 4)


@cache
def wide():
    with pm.Model() as model:
        x = pm.Flat("x", shape=len(SCALES))
        pm.Potential("p", -0.5 * ((x / SCALES) ** 2).sum())
    return model


@pytest.mark.slow
@pytest.mark.parametrize("cls", SAMPLERS)
def test_scales_from_1e_12_to_1e12(cls, caplog):
    """Either they are right, or the log says that something is wrong."""
    step = cls(model=wide())
    draws = sample(step, draws=1000, tune=1000, initvals={"x": SCALES})["posterior"]["x"]
    sds = draws.std(("chain", "draw")).values / SCALES
    assert (abs(sds - 1) < 0.25).all() or messages(caplog, logging.WARNING)


@pytest.mark.slow
@pytest.mark.parametrize("cls", [pk.baselines.RWM, pk.GAM, pk.GadMALA])
@pytest.mark.parametrize("d", [1, 500])
def test_one_and_500_dimensions(cls, d):
    step = cls(model=normal(d), steps_per_draw=10)
    result = sample(step, tune=20, draws=20)
    draws = result["posterior"]["x"].values
    np.testing.assert_allclose(
        result["sample_stats"]["lp"],
        -0.5 * (draws**2).sum(axis=2) - d / 2 * np.log(2 * np.pi),
        rtol=1e-10,
    )
    assert_same(resume(sample(step, tune=20, draws=5), step.model, 15), result, ALL)


@cache
def bounded():
    with pm.Model() as model:
        pm.HalfNormal("x", shape=2, default_transform=None)
    return model


@pytest.mark.parametrize("cls", [pk.GAM, pytest.param(pk.GadMALA, marks=pytest.mark.slow)])
def test_a_start_on_the_boundary(cls):
    step = cls(model=bounded())
    options = {"initvals": {"x": np.zeros(2)}, "tune": 500, "draws": 2000}
    draws = sample(step, **options)["posterior"]["x"]
    np.testing.assert_allclose(draws.mean(("chain", "draw")), np.sqrt(2 / np.pi), atol=0.07)


@pytest.mark.slow
def test_a_start_on_the_boundary_of_a_transform(fit):
    """Where its coordinate is infinite."""
    with pytest.raises(pm.exceptions.SamplingError, match=r"(?s)not finite at .*'s_log__': .*-inf"):
        sample(fit, initvals={"x": 0.0, "s": 0.0})


@pytest.mark.slow
@pytest.mark.parametrize("at", [0.0, -1.0])
def test_a_jump_of_the_log_density(at, black_walk):
    """A draw is beyond it as often as it should be."""
    guarded_box(lambda x: -0.5 * x @ x - 3 * (x[0] > at))
    options = {"tune": 300, "draws": 3000, "initvals": {"x": np.zeros(2)}}
    beyond = sample(black_walk, **options)["posterior"]["x"][..., 0] > at
    below, above = norm.cdf(at), np.exp(-3) * norm.cdf(-at)
    assert float(beyond.mean()) == pytest.approx(above / (above + below), abs=0.05)


@pytest.mark.slow
def test_a_model_of_float32():
    """Its log-density is as exact as that allows, and runs go on exactly."""
    with pytensor.config.change_flags(floatX="float32"):
        with pm.Model() as model:
            x, s = pm.Normal("x", 1, 2, shape=2), pm.HalfNormal("s")
            pm.Normal("y", x[0], 1 + s, observed=[0.5, 1.5, 2.0])
        step = pk.GAM(model=model, steps_per_draw=2)
        result, log_density = sample(step), model.compile_logp()
        draws = result["posterior"].to_dataset().isel(chain=0)
        assert {str(values.dtype) for values in draws.values()} == {"float32"}
        expected = [
            log_density({"x": x, "s_log__": np.log(s)})
            for x, s in zip(draws["x"].values, draws["s"].values, strict=True)
        ]
        np.testing.assert_allclose(result["sample_stats"]["lp"][0], expected, rtol=1e-5)
        assert_same(resume(sample(step, draws=10), model, 20), result, ALL)


# ---- data, and several runs at once ---------------------------------------------------------


@pytest.mark.slow
def test_data_may_change_between_runs(fit):
    """In number, too; each run is that of a step which knows no other data."""
    results = []
    for data in ([0.5, 1.0, 3.0], [5.0, 5.5], [0.5, 1.0, 3.0]):
        pm.set_data({"data": data}, model=fit.model)
        results.append(sample(fit))
        np.testing.assert_array_equal(results[-1]["constant_data"]["data"], data)
        if len(data) == 2:
            assert_same(results[1], sample(pk.GAM(model=fit.model, steps_per_draw=2)), ALL)
    assert_same(results[0], results[2], ALL)
    assert float(results[1]["posterior"]["x"].mean()) > 3


def test_data_that_change_during_a_run_are_told(fit):
    def change(run, draw):
        pm.set_data({"data": [5.0, 5.5, 5.0]}, model=fit.model)

    assert "changed_data" not in codes(sample(fit))
    assert "changed_data" in codes(sample(fit, callback=change))
    pm.set_data({"data": [0.5, 1.0, 3.0]}, model=fit.model)


@pytest.mark.slow
def test_runs_in_threads():
    """Their steps are made at once; test_run.py shares one step."""
    models = [normal(2), normal(2)]

    def run(seed):
        return sample(pk.GAM(model=models[seed], steps_per_draw=2), random_seed=seed)

    with ThreadPoolExecutor(2) as threads:
        results = [*threads.map(run, range(2))]
    for seed, result in enumerate(results):
        assert_same(result, run(seed), ALL)


# ---- anything at any time -------------------------------------------------------------------

STEPS = {
    "walk": lambda: pk.baselines.RWM(model=normal(), steps_per_draw=2),
    "gam": lambda: pk.GAM(model=normal(2), steps_per_draw=2),
    "kam": lambda: pk.KAM(model=normal(2), steps_per_draw=3),
    "mala": lambda: pk.GadMALA(model=normal(2), steps_per_draw=2),
    "modes": lambda: pk.CyclicalKAM(model=normal(2), steps_per_draw=2),
    "box": lambda: pk.baselines.RWM(model=guarded_box()[1], steps_per_draw=2),
    "box by gam": lambda: pk.GAM(model=guarded_box()[1], steps_per_draw=1),
}
FEW = ("walk", "box")
"""Those that the fast suite has made anyway."""

DRAWS = 8
"""Of a whole run, after tuning."""


@cache
def made(name):
    return STEPS[name]()


@cache
def undisturbed(name, tune, pool):
    if name.startswith("box"):
        guarded_box()
    return sample(unpooled(made(name), pool), tune=tune, draws=DRAWS)


class Disturbed:
    """A black box with which something happens at its evaluation number `at`."""

    def __init__(self, at, what):
        self.left, self.what = at, what

    def __call__(self, x):
        self.left -= 1
        if self.left == 0:
            if self.what == "Ctrl-C":
                signal.raise_signal(signal.SIGINT)
            elif isinstance(self.what, type):
                raise self.what("the solver broke down")
            elif isinstance(self.what, float):
                return self.what
        return -0.5 * x @ x


ERRORS, JUMP = [ZeroDivisionError, MemoryError, SystemExit, OSError], 1e3
"""What a likelihood may raise; and a value that no other one comes near."""


@st.composite
def interrupted_runs(draw, names=tuple(STEPS)):
    """Draw a run, and what happens to it: a line or an evaluation, and there Ctrl-C or an error."""
    name = draw(st.sampled_from(names))
    faults = [*ERRORS, "Ctrl-C", np.nan, np.inf, -np.inf, JUMP] if name.startswith("box") else []
    return {
        "name": name,
        "tune": draw(st.sampled_from([0, 3, 6])),
        "draws": draw(st.integers(1, DRAWS)),
        "pool": draw(st.booleans()),
        "cores": 1 if name.startswith("box") else draw(st.integers(1, 2)),
        "portion": draw(st.integers(1, 4)),
        "fault": draw(st.sampled_from([*faults, "line", "stop", "callback"])),
        "at": draw(st.integers(1, 60)),
    }


def disturb(run):
    """Return what a run gives, None if nothing, and whether its likelihood was another one."""
    fault, at = run["fault"], run["at"]
    step = unpooled(made(run["name"]), run["pool"])
    options = {"tune": run["tune"], "draws": run["draws"], "cores": run["cores"]}
    if run["name"].startswith("box"):
        guarded_box(Disturbed(at, fault))
    if fault in ("stop", "callback"):
        calls = iter(range(at % 12, -1, -1))

        def look(run, draw):
            if next(calls, None) == 0:
                run.stop()
                if fault == "callback":
                    raise ZeroDivisionError("in the callback")

        options["callback"] = look
    try:
        with Press(100 * at) if fault == "line" else nullcontext():
            return sample(step, **options)
    except (KeyboardInterrupt, RuntimeError, *ERRORS) as error:
        return getattr(error, "result", None)
    finally:
        if run["name"].startswith("box"):
            guarded_box()


def check_run(run):
    """See that what was drawn is right, and that going on gives the rest."""
    step, is_box = made(run["name"]), run["name"].startswith("box")
    whole = undisturbed(run["name"], run["tune"], run["pool"])
    with pytest.MonkeyPatch.context() as patch:
        usual = pk.sampling.chain_of_run.Chain.next_portion

        def few(self, pauses):
            return min(run["portion"], usual(self, pauses))

        patch.setattr(pk.sampling.chain_of_run.Chain, "next_portion", few)
        result = disturb(run)
    if result is None or run["fault"] == JUMP:
        return
    if result["posterior"].sizes["draw"] > 0:
        x = result["posterior"]["x"].values.reshape(*result["posterior"]["x"].shape[:2], -1)
        lp = -0.5 * (x**2).sum(axis=2) - (0 if is_box else x.shape[2] / 2 * np.log(2 * np.pi))
        np.testing.assert_allclose(result["sample_stats"]["lp"], lp, rtol=1e-9, atol=1e-9)
    if isinstance(run["fault"], float):
        return
    is_part_of(result, whole)
    left = DRAWS - int(result["sampling_state"].attrs["draws_kept"])
    if left > 0:
        groups = [name for name in ALL if name in whole]
        assert_same(resume(result, step.model, left), whole, groups)


def examples(n):
    """The same cases each time."""
    return settings(max_examples=n, deadline=None, derandomize=True, database=None)


@examples(3)
@given(interrupted_runs(FEW))
def test_few_disturbances_change_no_draw(run):
    check_run(run)


@pytest.mark.slow
@examples(150)
@given(interrupted_runs())
def test_no_disturbance_changes_a_draw_or_loses_one(run):
    check_run(run)


@cache
def job(name):
    return job_of(made(name))


@cache
def at_once(name, tune):
    """Return the state and what was made of a chain that nothing disturbs."""
    if name.startswith("box"):
        guarded_box()
    state, portions = begun(job(name), tune=tune, draws=DRAWS), []
    while left := to_the_next_stop(name, state):
        state, portion = advance(job(name), state, left)
        portions.append(portion)
    return state, joined(*portions)


def to_the_next_stop(name, state):
    """Return how many draws may be made at once."""
    chain = pk.sampling.chain_of_run.Chain(0, 0, state, job(name).steps)
    chain._n = 99
    steps = job(name).steps_at(state)
    job(name).leave(steps, state.point)
    return chain.next_portion(steps[0].pauses()) if chain.done < chain.total else 0


@st.composite
def disturbed_chains(draw, names=tuple(STEPS)):
    """Draw a chain, and at which evaluations its likelihood fails."""
    name = draw(st.sampled_from(names))
    failures = st.lists(st.integers(1, 40), max_size=3) if name.startswith("box") else st.just([])
    return {
        "name": name,
        "tune": draw(st.sampled_from([0, 3, 8])),
        "portions": draw(st.lists(st.integers(1, 5), min_size=1)),
        "travels": draw(st.integers(1, 5)),
        "others": draw(st.integers(1, 5)),
        "failures": draw(failures),
        "error": draw(st.sampled_from(ERRORS)),
    }


def check_chain(case):
    """Let a chain advance, and fail, with another one between its advances, as in a worker."""
    name, tune, failures = case["name"], case["tune"], [*case["failures"]]
    mine, portions = begun(job(name), tune=tune, draws=DRAWS), []
    other = begun(job(name), seed=2, tune=tune + 1, draws=99)
    for k, most in enumerate(cycle(case["portions"])):
        n = min(most, to_the_next_stop(name, mine))
        if n == 0:
            break
        before = pickle.dumps(mine)
        while failures:
            guarded_box(Disturbed(failures.pop(), case["error"]))
            with suppress(*ERRORS):
                advance(job(name), mine, n)
            guarded_box()
        assert pickle.dumps(mine) == before
        if k % case["travels"] == 0:
            mine = pickle.loads(before)
        mine, portion = advance(job(name), mine, n)
        portions.append(portion)
        if k % case["others"] == 0:
            other, _ = advance(job(name), other, 1)
    state, whole = at_once(name, tune)
    assert same(mine, state)
    assert same(joined(*portions), whole)


@examples(10)
@given(disturbed_chains(FEW))
def test_few_disturbances_change_no_chain(case):
    check_chain(case)


@pytest.mark.slow
@examples(850)
@given(disturbed_chains())
def test_no_disturbance_changes_a_chain(case):
    check_chain(case)
