"""Results that are read from files and stores, without a model."""

import warnings

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from runs import QUIET, assert_same, resume, sample

import pymc_kameleon as pk
from pymc_kameleon.core import jit
from pymc_kameleon.result.store import Store

pytest.importorskip("zarr", reason="the optional requirement [save]")


@pytest.fixture(scope="module")
def step():
    """Of a model with labels, and names that are not in the order of the alphabet."""
    with pm.Model(coords={"city": ["Bergen", "Aarhus"]}) as model:
        s = pm.HalfNormal("s")
        a = pm.Normal("a", 0, 1, dims="city")
        pm.Deterministic("c", a * s, dims="city")
        pm.Deterministic("b", a + s, dims="city")
        pm.Normal("y", a, s, observed=[1.0, 2.0])
    return pk.GAM(model=model, steps_per_draw=1)


@pytest.fixture(scope="module")
def written(step, tmp_path_factory):
    """A result, and its store."""
    path = tmp_path_factory.mktemp("store") / "run.zarr"
    return sample(step, store=path, discard_tuned_samples=False), path


def test_a_result_is_read_as_it_was_returned(written, tmp_path):
    result, path = written
    result.to_netcdf(tmp_path / "run.nc")
    groups = [name for name in result.children if name != "sampling_state"]
    names = list(result["posterior"].data_vars)
    for where in (path, str(path), tmp_path / "run.nc"):
        loaded = pk.load(where)
        assert_same(loaded, result, groups)
        assert list(loaded["posterior"].data_vars) == names
        assert list(loaded.children)[:2] == ["posterior", "sample_stats"]
        assert loaded["posterior"].attrs["samplers"] == result["posterior"].attrs["samplers"]


def test_nothing_is_compiled_to_read(written, monkeypatch):
    """Nor any model looked for."""

    def refuse(*arguments, **options):
        raise AssertionError("compiled")

    monkeypatch.setattr(pm, "modelcontext", refuse)
    monkeypatch.setattr(pm.Model, "compile_fn", refuse)
    monkeypatch.setattr(jit, "entry_jit", refuse)
    assert pk.load(written[1])["posterior"].sizes["draw"] == 30


def test_xarray_reads_a_store_without_a_warning(written, step, tmp_path):
    """Also after the run went on; while it does, nothing is told of the end before."""
    result, path = written
    for engine in ({"engine": "zarr"}, {}):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert xr.open_datatree(path, **engine)["posterior"].equals(result["posterior"])
    other = tmp_path / "other.zarr"
    sample(step, store=other)
    longer = resume(other, step.model, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert xr.open_datatree(other)["posterior"].equals(longer["posterior"])
    assert longer["posterior"].sizes["draw"] == 35


def test_a_run_that_goes_on_removes_what_was_told_of_its_end(step, tmp_path, monkeypatch):
    """Then xarray reads the draws that are there, and not as many as there were."""
    path = tmp_path / "run.zarr"
    sample(step, store=path)
    monkeypatch.setattr(Store, "finish", lambda self, tree, longest: None)  # as if it were killed
    resume(path, step.model, 5)
    with pytest.warns(RuntimeWarning, match="non-consolidated"):
        assert xr.open_datatree(path, engine="zarr")["posterior"].sizes["draw"] == 35
    with pytest.raises(ValueError, match=r"not ended, .* goes on with it"):
        pk.load(path)
    monkeypatch.undo()
    resume(path, step.model, 1)
    assert pk.load(path)["posterior"].sizes["draw"] == 36


def test_a_result_without_draws(step, tmp_path):
    """Of a run that was interrupted while it tuned: it has the groups, and nothing in them."""
    path = tmp_path / "run.zarr"
    stopped = sample(step, store=path, callback=lambda run, draw: run.stop())
    stopped.to_netcdf(tmp_path / "run.nc")
    for result in (stopped, pk.load(path), pk.load(tmp_path / "run.nc")):
        posterior = result["posterior"]
        assert posterior["a"].shape == (2, 0, 2)
        assert posterior["city"].values.tolist() == ["Bergen", "Aarhus"]
        assert result["sample_stats"]["lp"].shape == (2, 0)
        for function in (pk.mode_occupancy, pk.plot_modes, pk.plot_learned, pk.plot_proposals):
            with pytest.raises(ValueError, match=r"no draws after tuning: go on with pk\.resume"):
                function(result)
        for function in (pk.summary, lambda dt: pk.expectation(dt, lambda v: v["s"])):
            with pytest.raises(ValueError, match="no draws"):
                function(result)
    whole = sample(step)
    for source in (stopped, tmp_path / "run.nc", path):
        assert_same(pk.resume(source, model=step.model, **QUIET), whole)


def test_what_cannot_be_read(written, step, tmp_path):
    with pytest.raises(ValueError, match=r"no\.zarr does not exist"):
        pk.load(tmp_path / "no.zarr")
    with pytest.raises(ValueError, match=r"path must be a path, as 'run\.zarr', not <xarray"):
        pk.load(written[0])
    (tmp_path / "run.nc").write_text("nothing")
    with pytest.raises(ValueError, match="is not a file that xarray can read"):
        pk.load(tmp_path / "run.nc")
    with pytest.raises(ValueError, match="which alone has the states of the chains: pass its path"):
        resume(pk.load(written[1]), step.model)


def test_draws_are_read_when_they_are_needed(written):
    """A store may be larger than memory."""
    loaded = pk.load(written[1])["posterior"]["a"]
    assert not isinstance(loaded.variable._data, np.ndarray)
    np.testing.assert_array_equal(loaded, written[0]["posterior"]["a"])
