"""Results in files: what ``pip install '.[save]'`` brings, and writing over a file."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import xarray as xr
from models import normal
from runs import QUIET, sample

import pymc_kameleon as pk

ROOT = Path(__file__).parents[2]

WRITES_AND_READS = """
import sys; sys.path.pop(0)  # the package that is installed, not the checkout
import pymc as pm, xarray as xr, pymc_kameleon as pk
quiet = {"progressbar": False, "compute_convergence_checks": False}
with pm.Model():
    pm.Normal("x", shape=2)
    dt = pk.sample(20, tune=20, chains=2, step=pk.baselines.RWM(), store="run.zarr", **quiet)
    dt.to_netcdf("run.nc")
    loaded = xr.load_datatree("run.nc")
    assert loaded["posterior"].equals(dt["posterior"].load())
    again = pk.resume("run.zarr", 10, **quiet)
    both = pk.resume(loaded, 10, **quiet)
assert both["posterior"].equals(again["posterior"].load())
print(pk.__file__, both["posterior"]["x"].shape)
"""


def run(*command, cwd):
    """Run a command apart from this environment's packages."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    return subprocess.run(
        list(map(str, command)),
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def saved():
    return sample(pk.baselines.RWM(model=normal()), draws=20, tune=20)


@pytest.mark.slow
def test_what_saving_needs_is_installed_with_it(tmp_path):
    assert run(sys.executable, "-m", "venv", "venv", cwd=tmp_path).returncode == 0
    python = tmp_path / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--retries", "1", "install"]
    reached = run(*pip, "--dry-run", "--no-deps", "packaging", cwd=tmp_path)
    if reached.returncode != 0:
        pytest.skip(f"pip reaches no package index: {reached.stderr.strip().splitlines()[-1]}")
    installed = run(*pip, "--quiet", f"{ROOT}[save]", cwd=tmp_path)
    assert installed.returncode == 0, installed.stderr
    done = run(python, "-c", WRITES_AND_READS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(tmp_path))
    assert done.stdout.strip().endswith("(2, 30, 2)")


@pytest.mark.slow
def test_a_result_is_written_over_the_file_that_it_goes_on_from(saved, tmp_path):
    file = tmp_path / "run.nc"
    saved.to_netcdf(file)
    longer = pk.resume(xr.open_datatree(file), 10, model=normal(), **QUIET)
    longer.to_netcdf(file)
    longest = pk.resume(xr.load_datatree(file), 10, model=normal(), **QUIET)
    longest.to_netcdf(file)
    assert xr.load_datatree(file)["posterior"].sizes["draw"] == 40


def test_xarray_reads_a_store(saved, tmp_path):
    store = tmp_path / "run.zarr"
    sample(pk.baselines.RWM(model=normal()), draws=20, tune=20, store=store)
    with xr.open_datatree(store, engine="zarr", consolidated=False) as stored:
        assert stored["posterior"].equals(saved["posterior"])
