"""A run in a Zarr store: the draws of one without, whenever it was interrupted, and however."""

import errno
import logging
import multiprocessing
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faults
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from models import normal
from runs import DRAWN, QUIET, WARMUP, assert_same, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.result import opening, store
from pymc_kameleon.result.store import Store, locked
from pymc_kameleon.sampling import chain_of_run, run

zarr = pytest.importorskip("zarr", reason="the optional requirement [save]")
# Zarr's own, of strings in its third format.
pytestmark = [
    pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:zarr"),
    pytest.mark.forks,
]

ALL = (*DRAWN, *WARMUP, "learned", "observed_data", "search")


@pytest.fixture(scope="module")
def model():
    """Integers in the statistics, float32, coordinates, data, and two steps."""
    with pm.Model(coords={"city": ["A", "B"]}) as model:
        a = pm.Normal("a", dims="city", dtype="float32")
        s = pm.Normal("s")
        pm.Deterministic("scaled", a * s, dims="city")
        pm.Normal("y", s, observed=[0.5, 1.0])
    return model


@pytest.fixture(scope="module")
def steps(model):
    return [
        pk.baselines.RWM([model["a"]], model=model),
        pk.baselines.RWM([model["s"]], model=model),
    ]


@pytest.fixture(scope="module")
def walk():
    return pk.baselines.RWM(model=normal(), steps_per_draw=2)


@pytest.fixture(scope="module")
def whole(walk):
    return sample(walk, discard_tuned_samples=False)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.zarr"


def resume(source, model, draws=None, **options):
    return pk.resume(source, draws, model=model, **QUIET | options)


def one_by_one(monkeypatch):
    """Make one draw at a time."""
    monkeypatch.setattr(chain_of_run.Chain, "next_portion", lambda self, pauses: 1)


# ---- what it holds --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("discard", [True, False])
def test_a_store_changes_nothing(discard, steps, model, path):
    options = {"discard_tuned_samples": discard, "model": model, "chains": 3}
    expected, result = (sample(steps, store=where, **options) for where in (None, path))
    groups = [name for name in expected.children if name not in ("sampling_state", "learned")]
    assert set(result.children) == set(expected.children)
    assert_same(result, expected, [*groups, "learned"])
    assert result["posterior"]["a"].dtype == np.float32
    assert result["sample_stats"]["n_logp"].dtype == np.int64
    assert ("warmup_posterior" in groups) == (not discard)
    stored = xr.open_datatree(path, engine="zarr", consolidated=False)
    assert_same(stored, expected, [*groups, "learned"])
    for name in groups:
        found, own = stored[name].attrs, expected[name].attrs
        assert set(own) - set(found) <= {"sampling_time"}, name
    assert stored["posterior"]["city"].values.tolist() == ["A", "B"]


def test_a_store_keeps_the_order_of_variables(path):
    names = ["second", "b", "first", "a"]
    with pm.Model():
        for name in names:
            pm.Normal(name)
        step = pk.baselines.RWM()
        made = [sample(step, store=path, draws=4, tune=4)]
        made.append(pk.resume(path, **QUIET))
    for result in made:
        assert list(result["posterior"].data_vars) == names


@pytest.mark.slow
def test_a_store_of_a_run_without_tuning_or_draws(walk, path, tmp_path):
    for options, where in (({"tune": 0}, path), ({"draws": 0}, tmp_path / "b.zarr")):
        assert_same(sample(walk, store=where, **options), sample(walk, **options), ["learned"])
    assert_same(resume(tmp_path / "b.zarr", walk.model, 30), sample(walk), DRAWN)


@pytest.mark.parametrize("where", ["run.zarr", "~/run.zarr"])
def test_paths_may_be_text(where, walk, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    result = sample(walk, store=where, draws=10)
    more = resume(where, walk.model, 20)
    assert more["posterior"].sizes["draw"] == 30
    assert result["posterior"].sizes["draw"] == 10
    assert (tmp_path / "run.zarr").is_dir()


@pytest.mark.slow
def test_resumes_the_path_of_a_file(walk, whole, tmp_path):
    sample(walk, draws=10, discard_tuned_samples=False).to_netcdf(tmp_path / "run.nc")
    assert_same(resume(tmp_path / "run.nc", walk.model, 20), whole, (*DRAWN, *WARMUP))


def test_draws_are_not_kept_in_memory(walk, path, monkeypatch):
    """They are written when there are so many."""
    seen, save = [], Store.flush_if_due
    monkeypatch.setattr(store, "MOST_BYTES", 20_000)
    monkeypatch.setattr(store, "INTERVAL", 1e9)

    def look(self):
        save(self)
        seen.append(sum(values.nbytes for _, parts in self._draws.values() for values in parts))

    monkeypatch.setattr(Store, "flush_if_due", look)
    monkeypatch.setattr(chain_of_run, "NUMBERS_PER_ADVANCE", 200)
    result = sample(walk, store=path, tune=0, draws=3000)
    assert result["posterior"].nbytes > 48_000
    assert 5_000 < max(seen) <= 20_000


# ---- going on -------------------------------------------------------------------------------


@pytest.mark.slow
def test_more_draws(walk, whole, path):
    """Of the store, of its result, and of that in another store; each as often as one likes."""
    expected = sample(walk, draws=50, discard_tuned_samples=False)
    half = sample(walk, draws=30, discard_tuned_samples=False, store=path)
    assert_same(half, whole, (*DRAWN, *WARMUP))
    assert_same(resume(half, walk.model, 20), expected, (*DRAWN, *WARMUP))
    other = path.with_name("other.zarr")
    both = resume(half, walk.model, 15, store=other)
    assert both["posterior"].sizes["draw"] == 45
    assert_same(resume(other, walk.model, 5), expected, (*DRAWN, *WARMUP))
    assert_same(resume(path, walk.model, 20), expected, (*DRAWN, *WARMUP))
    in_a_tree = xr.open_datatree(path, engine="zarr", consolidated=False)
    assert_same(in_a_tree, expected, (*DRAWN, *WARMUP))


@pytest.mark.parametrize("when", [50, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 70))])
def test_resumes_after_a_stop(when, walk, whole, path, monkeypatch):
    """The store goes on, and its result, which is then in memory, and in another store."""
    one_by_one(monkeypatch)

    def stop(run, draw):
        if draw.draw_idx == when:
            raise KeyboardInterrupt

    half = sample(walk, callback=stop, store=path, discard_tuned_samples=False)
    there = xr.open_datatree(path, engine="zarr", consolidated=False)
    assert (half["posterior"].sizes["draw"] > 0) == (when >= 50)
    assert_same(opening.opened(path), half, [name for name in half.children if name in ALL])
    if when >= 50:
        n = half["posterior"].sizes["draw"]
        assert there["posterior"].sizes["draw"] >= n
        expected = whole["posterior"]["x"].sel(chain=half["posterior"]["chain"])[:, :n]
        np.testing.assert_array_equal(half["posterior"]["x"], expected)
    monkeypatch.undo()
    other = path.with_name("other.zarr")
    for source, options in ((half, {}), (half, {"store": other})):
        resumed = resume(source, walk.model, **options)
        assert_same(resumed, whole, (*DRAWN, *WARMUP))
    assert_same(resume(path, walk.model), whole, (*DRAWN, *WARMUP))


KILLED = """
import sys
sys.path.insert(0, sys.argv[1])
import os, pymc_kameleon as pk
from models import normal
from pymc_kameleon.sampling import chain_of_run, run
from pymc_kameleon.result import store
from zarr.storage import LocalStore

left = 0
def three(chain, pauses):
    return min(3, (chain.tune if chain.done < chain.tune else chain.total) - chain.done)
chain_of_run.Chain.next_portion = three
store.MOST_BYTES = 0
write = LocalStore.set
async def set_or_die(self, key, *arguments, **options):
    global left
    left -= RUNS
    if left < 0:
        os.kill(os.getpid(), 9)
    await write(self, key, *arguments, **options)
LocalStore.set = set_or_die
RUNS = False
drive = run.Run._drive
def begin(self, *arguments):
    global RUNS
    RUNS = True
    drive(self, *arguments)
run.Run._drive = begin
step = pk.baselines.RWM(model=normal(), steps_per_draw=2)
for n in sys.argv[3:]:
    child = os.fork()  # imports take seconds
    if child == 0:
        left, path = int(n), f"{sys.argv[2]}/{n}.zarr"
        break
    print(os.waitpid(child, 0)[1])
else:
    sys.exit()
options = {"progressbar": False, "compute_convergence_checks": False}
pk.sample(30, tune=50, chains=2, cores=1, random_seed=7, step=step, model=step.model, store=path,
          discard_tuned_samples=False, **options)
"""


@pytest.mark.slow
def test_resumes_after_kill_9(walk, whole, tmp_path):
    """After so many files were written, in the midst of a flush."""
    writes = (0, 1, 3, 7, 12, 40, 90, 201, 333, 350)
    arguments = [str(Path(__file__).parents[1] / "helpers"), str(tmp_path), *map(str, writes)]
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, *arguments], capture_output=True, text=True, check=False
    )
    assert ended.stdout.split() == ["9"] * len(writes), ended.stderr
    for n in writes:
        said = r"not ended, or was killed: pk\.resume\('.* goes on"
        with pytest.raises(ValueError, match=said):
            pk.load(tmp_path / f"{n}.zarr")
        assert_same(resume(tmp_path / f"{n}.zarr", walk.model), whole, (*DRAWN, *WARMUP))


# ---- a full disk ----------------------------------------------------------------------------


@pytest.fixture
def disk(monkeypatch):
    """Return a function after which a disk is full when so many more arrays were written to."""
    from zarr.storage import LocalStore

    write = LocalStore.set

    def full_after(n):
        left = [n]

        async def set_or_fail(self, *arguments, **options):
            left[0] -= 1
            if left[0] < 0:
                raise OSError(errno.ENOSPC, "No space left on device")
            await write(self, *arguments, **options)

        monkeypatch.setattr(LocalStore, "set", set_or_fail)

    return full_after


@pytest.mark.parametrize("writes", [0, 5, pytest.param(20, marks=pytest.mark.slow)])
def test_a_full_disk_loses_nothing(writes, walk, whole, path, disk, monkeypatch, caplog):
    one_by_one(monkeypatch)
    monkeypatch.setattr(store, "MOST_BYTES", 2000)
    drive = run.Run._drive
    monkeypatch.setattr(run.Run, "_drive", lambda self, *a: (disk(writes), drive(self, *a))[1])
    with caplog.at_level(logging.ERROR, "pymc_kameleon"):
        result = sample(walk, store=path, discard_tuned_samples=False)
    (message,) = messages(caplog, logging.ERROR)
    assert "No space left on device" in message
    assert "Sampling stops; the result has what is in memory, too" in message
    monkeypatch.undo()
    for source in (result, path):
        more = resume(source, walk.model, 30)
        assert_same(more, whole, WARMUP)
        xr.testing.assert_equal(
            more["posterior"].to_dataset().isel(draw=slice(30)), whole["posterior"].to_dataset()
        )


def test_a_disk_that_is_full_at_the_end(walk, whole, path, disk, monkeypatch, caplog):
    """When the first draws are written that have waited, or the other groups."""
    for writes, kept in ((0, path), (37, path.with_name("b.zarr"))):
        caplog.clear()
        drive = run.Run._drive
        with monkeypatch.context() as patch:
            patch.setattr(store, "INTERVAL", 1e9)

            def fill(self, *arguments, writes=writes, drive=drive):
                drive(self, *arguments)
                disk(writes)

            patch.setattr(run.Run, "_drive", fill)
            with caplog.at_level(logging.ERROR, "pymc_kameleon"):
                result = sample(walk, store=kept, discard_tuned_samples=False)
        monkeypatch.undo()
        assert "No space left on device" in caplog.text
        assert_same(result, whole, (*DRAWN, *WARMUP))
        more = resume(kept, walk.model, 5)
        n = more["posterior"].sizes["draw"]
        expected = sample(walk, draws=35)["posterior"]["x"].isel(draw=slice(n))
        np.testing.assert_array_equal(more["posterior"]["x"], expected)


@pytest.mark.parametrize("writes", [5, 25])
def test_a_disk_that_is_full_at_the_beginning(writes, walk, path, disk, monkeypatch):
    """Nothing is left of the files that were made."""
    disk(writes)
    with pytest.raises(OSError, match="No space left on device"):
        sample(walk, store=path)
    assert not path.exists()
    monkeypatch.undo()
    assert sample(walk, store=path)["posterior"].sizes["draw"] == 30


def test_a_run_that_is_refused_leaves_no_store(walk, path):
    """But one that it was to go on with stays."""
    with pytest.raises(ValueError, match="progressbar must be"):
        sample(walk, store=path, progressbar="long")
    assert not path.exists()
    sample(walk, store=path)
    with pytest.raises(ValueError, match="progressbar must be"):
        resume(path, walk.model, progressbar="long")
    assert pk.load(path)["posterior"].sizes["draw"] == 30
    with pytest.raises(ValueError, match="log_likelihood must be"):
        resume(path, walk.model, 5, idata_kwargs={"log_likelihood": ["nope"]})
    assert pk.load(path)["posterior"].sizes["draw"] == 30
    assert resume(path, walk.model)["posterior"].sizes["draw"] == 30


def test_ctrl_c_on_a_full_disk(walk, whole, path, disk, monkeypatch, caplog):
    """What one chain has ahead of the other is in memory, and nowhere else."""
    one_by_one(monkeypatch)
    limits = (75, 62)
    can_advance = chain_of_run.Chain.can_advance.fget
    monkeypatch.setattr(
        chain_of_run.Chain,
        "can_advance",
        property(lambda self: can_advance(self) and self.done < limits[self.row]),
    )

    def stop(run, draw):
        if draw.chain == 1 and draw.draw_idx == 55:
            disk(0)
        if draw.chain == 0 and draw.draw_idx == 60:
            run.stop()

    monkeypatch.setattr(Store, "flush_if_due", lambda self: None)
    result = sample(walk, callback=stop, store=path, discard_tuned_samples=False)
    monkeypatch.undo()
    assert "No space left on device" in caplog.text
    n = result["posterior"].sizes["draw"]
    np.testing.assert_array_equal(result["posterior"]["x"], whole["posterior"]["x"][:, :n])
    assert_same(resume(result, walk.model), whole, (*DRAWN, *WARMUP))


def test_what_waits_is_part_of_the_draws(walk, path):
    """Wherever these begin."""
    sample(walk, store=path)
    lock = locked(path)
    held = Store(path, lock, _columns(walk), [0, 1]).extend(0, 30, {}, [])
    stored = held.dataset("posterior", [0, 1], 0, 30).load()
    held._draws[1, "posterior", "x"] = (10, [np.arange(5.0), np.arange(5.0, 20.0)])
    expected = stored["x"].values.copy()
    expected[1, 10:30] = np.arange(20.0)
    for start in (0, 4, 10, 13, 29):
        for stop in (5, 10, 12, 14, 30):
            for rows in ([0, 1], [1], [0]):
                got = held.dataset("posterior", rows, start, max(start, stop))["x"].values
                np.testing.assert_array_equal(got, expected[rows, start : max(start, stop)])
    held.close()


def _columns(step):
    from pymc_kameleon.result.columns import Columns

    return Columns(step.outputs(["x"]), [step], False, {}, {})


# ---- refusals -------------------------------------------------------------------------------


def test_a_store_that_exists_is_refused(walk, path):
    sample(walk, store=path, draws=5)
    half = sample(walk, draws=5)
    with pytest.raises(ValueError, match=r"run\.zarr exists. pk\.resume\('.*run\.zarr'\)"):
        sample(walk, store=path)
    with pytest.raises(ValueError, match="exists"):
        resume(half, walk.model, 5, store=path)
    with pytest.raises(ValueError, match=r"in its own store, .*run\.zarr: leave out store="):
        resume(path, walk.model, 5, store=path.with_name("other.zarr"))
    assert resume(path, walk.model, 5, store=path)["posterior"].sizes["draw"] == 10


def test_a_store_that_is_made_meanwhile_is_refused(walk, path, monkeypatch):
    """By a run that began at the same time, and held the lock."""

    def make_it(own):
        path.mkdir()
        return locked(own)

    monkeypatch.setattr(store, "locked", make_it)
    with pytest.raises(ValueError, match=r"run\.zarr exists"):
        sample(walk, store=path)
    assert not list(path.iterdir())
    locked(path).release()  # nobody holds it any more


@pytest.mark.parametrize("where", [3, ""])
def test_what_is_no_path_is_refused(where, walk):
    with pytest.raises(ValueError, match=r"store must be a path, as 'run\.zarr', not"):
        sample(walk, store=where)


def test_a_folder_that_cannot_be_written(walk, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"run\.zarr cannot be written: "):
        sample(walk, store=tmp_path / "file" / "run.zarr")


def hold(path, end):
    """Hold the lock of a store for ever; tell so."""
    lock = locked(path)
    end.send(lock.is_locked)
    end.recv()


@pytest.mark.slow
def test_a_store_that_another_process_writes_is_refused(walk, path, monkeypatch):
    monkeypatch.setattr(store, "DEATH_WAIT", 0.1)
    sample(walk, store=path, draws=5)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    holder = context.Process(target=hold, args=(path, there))
    holder.start()
    try:
        assert here.recv()
        with pytest.raises(ValueError, match=r"Another run writes to .*: wait for its end"):
            resume(path, walk.model, 5)
    finally:
        holder.kill()
        holder.join()
    assert resume(path, walk.model, 5)["posterior"].sizes["draw"] == 10


def test_a_store_that_another_run_writes_is_refused(walk, path, monkeypatch):
    monkeypatch.setattr(store, "DEATH_WAIT", 0.1)
    arrived, refused = threading.Event(), threading.Event()

    def wait(run, draw):
        arrived.set()
        refused.wait(faults.HANGING)

    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(sample, walk, store=path, callback=wait)
        try:
            assert arrived.wait(faults.HANGING)
            with pytest.raises(ValueError, match="Another run writes"):
                resume(path, walk.model)
        finally:
            refused.set()
    assert_same(resume(path, walk.model, 5).isel(draw=slice(30)), running.result())


def test_whatever_is_no_store_is_refused(walk, path, tmp_path):
    with pytest.raises(ValueError, match=r"run\.zarr does not exist"):
        resume(path, walk.model)
    assert not list(tmp_path.iterdir())
    zarr.open_group(path, mode="w")
    with pytest.raises(ValueError, match=r"not a store of pk\.sample"):
        resume(path, walk.model)
    (tmp_path / "result.nc").write_text("nothing")
    with pytest.raises(ValueError, match=r"result\.nc is not a file that xarray can read"):
        resume(tmp_path / "result.nc", walk.model)
    assert locked(path).is_locked  # nobody holds it any more


@pytest.mark.slow
def test_settled_and_finished(walk, path, caplog):
    """A script that is started again finishes, and adds nothing unless it is asked."""
    caplog.set_level(logging.INFO, "pymc_kameleon")
    whole = sample(walk, store=path)
    assert_same(resume(path, walk.model), whole)
    assert any("30 of each chain. It makes 0 more; draws= sets" in one for one in caplog.messages)
    result = resume(sample(walk), walk.model)
    assert result["posterior"].sizes["draw"] == 1030
    assert any("It makes 1000 more; draws=" in one for one in caplog.messages)
    assert resume(path, walk.model, draws=5)["posterior"].sizes["draw"] == 35


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    ("file", "damage", "message"),
    [
        ("checkpoints/c/1/0", cut, "the state of chain 1 cannot be read"),
        ("posterior/x/zarr.json", cut, "posterior.x.zarr.json cannot be read"),
        ("posterior/chain/c/0", cut, "posterior cannot be read"),
        ("sample_stats/lp/zarr.json", Path.unlink, "it lacks sample_stats/lp"),
        ("posterior/x/c/1/0", cut, "posterior/x of chain 1 lacks draws that its state has made"),
        ("posterior/x/c/1/0", Path.unlink, "posterior/x of chain 1 lacks draws"),
        ("warmup_sample_stats/lp/c/0/0", Path.unlink, "warmup_sample_stats/lp of chain 0 lacks"),
    ],
)
def test_a_damaged_store_is_refused(file, damage, message, made, walk, path):
    shutil.copytree(made, path)
    damage(path / file)
    with pytest.raises(ValueError, match=rf"run\.zarr is damaged: {message}"):
        resume(path, walk.model, 5)


@pytest.fixture(scope="module")
def made(walk, tmp_path_factory):
    """A store whose run has ended."""
    path = tmp_path_factory.mktemp("store") / "run.zarr"
    sample(walk, store=path)
    return path


def test_draws_that_are_all_nan_or_0_are_there(path):
    """Of both runs: whoever goes on writes them, too."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Deterministic("nothing", x * np.nan)
        pm.Deterministic("zero", pm.math.switch(x > 1e9, 1, 0))
    step = pk.baselines.RWM(model=model)
    sample(step, store=path, draws=10)
    resume(path, model, 10)
    assert resume(path, model, 10)["posterior"].sizes["draw"] == 30


# ---- a result that was changed --------------------------------------------------------------


def replaced(result, **groups):
    """Return a copy of a result with some groups changed by functions of a dataset."""
    return xr.DataTree.from_dict(
        {
            name: groups.get(name, lambda dataset: dataset)(result[name].to_dataset())
            for name in result.children
        }
    )


def thinned(dataset):
    return dataset.isel(draw=slice(None, None, 2))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            dict.fromkeys(DRAWN, thinned),
            "posterior has 15 draws of .* run had 30",
        ),
        ({"sample_stats": thinned}, "its group sample_stats has 15 draws"),
        (dict.fromkeys(DRAWN, lambda d: d.isel(draw=slice(10, None))), "posterior has 20 draws"),
        ({"posterior": lambda d: d.isel(draw=slice(0, 29))}, "posterior has 29 draws"),
        ({"posterior": lambda d: d.isel(draw=slice(None, None, -1))}, "in its order"),
        ({"posterior": lambda d: 2 * d}, "is not where the chain stopped"),
        ({"posterior": lambda d: d.isel(draw=np.roll(np.arange(30), 7))}, "in its order"),
        (dict.fromkeys(DRAWN, lambda d: d.isel(draw=np.r_[5, 0:5, 6:30])), "in its order"),
        ({"posterior": lambda d: d.isel(chain=[1, 0])}, r"30 draws of the chains \[1, 0\]"),
        ({"sampling_state": lambda d: d.isel(chain=[0])}, r"the chains \[0, 1\], and .* \[0\]"),
        ({"warmup_sample_stats": thinned}, "warmup_sample_stats has 25 draws"),
        ({"warmup_posterior": lambda d: d.isel(draw=slice(5, None))}, "warmup_posterior has 45"),
    ],
)
def test_a_result_that_was_changed_is_refused(change, message, walk, whole):
    with pytest.raises(ValueError, match=message):
        resume(replaced(whole, **change), walk.model, 5)


def test_chains_that_have_learned_together_are_written_together(tmp_path, monkeypatch):
    written, mixed, save = {}, [], Store.save

    def kept(self, row, state):
        written[row] = state.steps[0].monitor
        save(self, row, state)

    def may_write(self):
        learned = {}
        for monitor in written.values():
            learned.setdefault(monitor.done, set()).add(monitor.learned)
        mixed.append(any(len(own) > 1 for own in learned.values()))

    monkeypatch.setattr(Store, "save", kept)
    monkeypatch.setattr(Store, "flush_if_due", may_write)
    step = pk.GAM(model=normal())
    sample(step, chains=3, tune=200, draws=20, store=tmp_path / "run.zarr")
    assert not any(mixed)
    assert {monitor.learned for monitor in written.values()} != {0}
