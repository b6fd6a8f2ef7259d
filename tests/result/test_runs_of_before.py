"""Results and stores that an earlier version of the package has left go on as they did there.

    python tests/result/test_runs_of_before.py    makes what is missing in data/runs_of_before

There are a run's file or store, NAME.tar.gz, and what that version made of it when it went on,
NAME.json.gz, as it was before files were moved into rooms. After a change of draws that is meant,
delete and make anew the second; the runs themselves stay, as users have theirs.
"""

import gzip
import json
import logging
import platform
import shutil
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory

import llvmlite.binding
import numba
import numpy as np
import pymc as pm
import pytest
import xarray as xr
from threadpoolctl import threadpool_info

import pymc_kameleon as pk

pytest.importorskip("zarr", reason="the optional requirement [save]")
# Zarr's own, of strings in its third format.
pytestmark = pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning:zarr")

TESTS = next(folder for folder in Path(__file__).parents if folder.name == "tests")
DATA = TESTS / "data" / "runs_of_before"
QUIET = {"progressbar": False, "compute_convergence_checks": False}
FEW = 5
"""New draws that any machine makes alike, but for rounding."""


def model():
    with pm.Model(coords={"city": ["A", "B"]}) as model:
        a, s = pm.Normal("a", 0, [1.0, 2.0], dims="city"), pm.HalfNormal("s")
        pm.Deterministic("scaled", a * s, dims="city")
        pm.Normal("y", a[0], s, observed=pm.Data("data", [0.5, 1.5]))
    return model


# ---- the runs: two that have ended, and one that stopped while it tuned ----------------------


def begin(step, **options):
    short = {"draws": 20, "tune": 60, "chains": 2, "cores": 1, "random_seed": 1}
    return pk.sample(step=step, discard_tuned_samples=False, **QUIET | short | options)


def two_steps(path):
    a, s = pm.modelcontext(None).value_vars
    steps = [pk.GAM([a]), pk.KAM([s], n_subsample=10, kernel=pk.kernels.Gaussian("knn"))]
    begin(steps).to_netcdf(path)


def surrogate(path):
    begin(pk.SurrogateMetropolis(expensive=True), surrogate_draws=10).to_netcdf(path)


def stopped(path):
    done = {}

    def stop(run, draw):
        done[draw.chain] = draw.draw_idx
        if len(done) == 2 and min(done.values()) >= 9:
            run.stop()

    begin(pk.GadMALA(control_variates=True), store=path, callback=stop)


RUNS = {"two_steps.nc": two_steps, "surrogate.nc": surrogate, "stopped.zarr": stopped}


# ---- how they go on -------------------------------------------------------------------------


def goes_on(path):
    """Return what a result holds when the run went on: arrays, and attributes without values."""
    dt = pk.sample(None if path.is_dir() else 10, resume=path, **QUIET)
    groups = {k: group.to_dataset() for k, group in dt.children.items() if k != "sampling_state"}
    by_moves = dt.drop_nodes("evaluations", errors="ignore")  # as that version knew no other way
    table = pk.summary(by_moves, round_to="none")
    attributes = {f"{k}.{name}": () for k, data in groups.items() for name in data.attrs}
    arrays = {f"{k}/{name}": x.values for k, data in groups.items() for name, x in data.items()}
    return attributes | arrays | {f"summary/{name}": table[name].to_numpy() for name in table}


def machine():
    """Tell what last bits depend on."""
    cpu = numba.config.CPU_NAME or llvmlite.binding.get_host_cpu_name()
    features = numba.config.CPU_FEATURES or llvmlite.binding.get_host_cpu_features().flatten()
    packages = ("numba", "llvmlite", "numpy", "scipy", "pymc", "pytensor", "arviz-stats")
    blas = sorted({lib["architecture"] for lib in threadpool_info() if "architecture" in lib})
    return " ".join([*platform.libc_ver(), cpu, features, *blas, *map(version, packages)])


def unpacked(name, folder):
    shutil.unpack_archive(DATA / f"{name}.tar.gz", folder, filter="data")
    return Path(folder) / name


LONG = "two_steps.nc", "stopped.zarr"


@pytest.fixture(
    params=[pytest.param(run, marks=[pytest.mark.slow] * (run in LONG)) for run in RUNS]
)
def run(request, tmp_path):
    """Return a run of before, what it became then, and what it becomes now."""
    path = unpacked(request.param, tmp_path)
    engine = {"engine": "zarr", "consolidated": False} if path.is_dir() else {}
    before = xr.load_datatree(path, **engine)
    then = json.loads(gzip.decompress((DATA / f"{request.param}.json.gz").read_bytes()))
    with model():
        try:
            now = goes_on(path)
        except Exception as error:
            pytest.fail(f"{request.param}, a run of before, does not go on any more: {error!r}")
    return before, then, now


def test_it_goes_on(run):
    """To the last bit where it was made; elsewhere rounding tells in the end."""
    before, then, now = run
    made_here = then.pop("machine") == machine()
    gone = sorted(set(then) - set(now))
    assert not gone, f"a result had other names before: it lacks {gone}"
    for name, values in then.items():
        assert np.shape(now[name]) == np.shape(values), name
        if made_here and name.startswith("summary/"):  # its sums depend on the threads of BLAS
            np.testing.assert_allclose(now[name], np.array(values, float), 1e-6, err_msg=name)
        elif made_here:
            np.testing.assert_array_equal(now[name], values, name)
    for group in ("warmup_posterior", "warmup_sample_stats", "posterior", "sample_stats"):
        n = draws_made(before, group)
        for name, old in before[group].data_vars.items() if n else ():
            new, expected = (np.array(of[f"{group}/{name}"]) for of in (now, then))
            np.testing.assert_array_equal(new[:, :n], old[:, :n], f"old {group}/{name}")
            new, expected = new[:, n : n + FEW], expected[:, n : n + FEW]
            np.testing.assert_allclose(new, expected, 1e-6, err_msg=f"new {group}/{name}")
    for name in ("posterior/a", "posterior/s", "warmup_posterior/a", "summary/mean"):
        assert np.isfinite(now[name]).all(), name


def draws_made(before, group):
    """Return how many draws all chains have made; a store has NaN for those that are to come."""
    probability = before[group.replace("posterior", "sample_stats")]["accept_prob"]
    return int(np.isfinite(probability).all([d for d in probability.dims if d != "draw"]).sum())


def main():
    logging.disable(logging.WARNING)
    DATA.mkdir(parents=True, exist_ok=True)
    for name, make in RUNS.items():
        with TemporaryDirectory() as folder, model():
            if not (DATA / f"{name}.tar.gz").exists():
                make(Path(folder) / name)
                shutil.make_archive(DATA / name, "gztar", folder, name)
            if not (file := DATA / f"{name}.json.gz").exists():
                found = {
                    k: np.array(v).tolist() for k, v in goes_on(unpacked(name, folder)).items()
                }
                file.write_bytes(gzip.compress(json.dumps({"machine": machine()} | found).encode()))


if __name__ == "__main__":
    main()
