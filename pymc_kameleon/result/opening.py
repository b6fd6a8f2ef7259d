"""Results as users name them: a tree, a file or a store, opened."""

import json
import os
from pathlib import Path

import numpy as np
import pymc as pm
import xarray as xr
from arviz_base import convert_to_dataset

from pymc_kameleon.result.store import zarr_module
from pymc_kameleon.step.groups import (
    DRAWN_GROUPS,
    EVALUATIONS,
    KEPT_GROUPS,
    LEARNED_GROUP,
    STATE_GROUP,
    WARMUP_GROUPS,
    WARMUP_POSTERIOR,
)


def as_path(argument, value):
    """Return the path that an argument names; raise a ValueError if it is none."""
    if not isinstance(value, str | os.PathLike) or value == "":
        raise ValueError(f"{argument} must be a path, as 'run.zarr', not {value!r}.")
    return Path(value).expanduser()


def as_saved(result):
    """Return the path of a store that exists, or a result, also one that is read from a file."""
    is_path = isinstance(result, str | os.PathLike)
    if is_path and (path := as_path("result", result)).is_dir():
        return path
    return opened(result)


def evaluations_given(results):
    """Return the Datasets of evaluations that one result, several, or none hold."""
    if results is None:
        return []
    several = results if isinstance(results, list | tuple) else [results]
    return [evaluations_in(opened(each)) for each in several]


def evaluations_in(tree):
    """Return the evaluations that a result holds; raise a ValueError if it has none."""
    if not isinstance(tree, xr.DataTree):
        raise ValueError(f"reuse takes results of pk.sample, or their paths, not {tree!r}.")
    if EVALUATIONS not in tree.children:
        raise ValueError(
            f"The result has no group {EVALUATIONS!r}. pk.sample keeps it of "
            "pk.EmulatorMetropolis; pm.sample does not."
        )
    return tree[EVALUATIONS].to_dataset()


def load(path):
    """Read the result of a run from the file or the store that it was written to.

    Nothing is compiled, and no model is needed.

    Parameters
    ----------
    path : str or path
        A netCDF file, as of ``dt.to_netcdf("run.nc")``, or a store, of
        ``pk.sample(store="run.zarr")``. Also one that another program wrote.

    Returns
    -------
    DataTree
        As `pk.sample` returned it, but for the states of the chains, if it was a store. A file is
        read whole, and closed. A store is read where draws are needed, so that it has to stay.

    Raises
    ------
    ValueError
        If there is nothing at `path`, or no result; or if the run in the store has not ended.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(store="run.zarr")
    >>> dt = pk.load("run.zarr")
    """
    return opened(as_path("path", path))


def opened(dt, model=None):
    """Return a result, also that in the file or store at a path, or of a MultiTrace of a model."""
    if isinstance(dt, pm.backends.base.MultiTrace):
        return pm.to_inference_data(dt, model=model)
    if not isinstance(dt, str | os.PathLike):
        return dt
    path = as_path("dt", dt)
    if not path.exists():
        raise ValueError(f"{path} does not exist: give a result of pk.sample, or the path of one.")
    if not path.is_dir():
        return _read(path, xr.load_datatree)
    zarr_module()
    tree = _read(path, xr.open_datatree, engine="zarr", consolidated=False)
    if "draws_kept" not in tree.attrs:  # a result that was written to it as a whole
        return tree
    if tree.attrs["draws_kept"] < 0:
        raise ValueError(
            f"The run in {path} has not ended, or was killed: pk.resume({str(path)!r}) goes "
            "on with it."
        )
    return _as_returned(tree)


def draws_in(dt, to):
    """Return the draws of a result, or of a group of one, a Dataset; `to` says what they are for.

    Raises a ValueError if there are none, or without the dimensions chain and draw.
    """
    if isinstance(dt, xr.DataTree) and not dt.children:  # a group, which need not be posterior
        dt = dt.to_dataset()
    elif isinstance(dt, xr.DataTree) and "posterior" not in dt.children:
        raise ValueError(f"There are no draws to {to}: the result lacks the group posterior.")
    posterior = convert_to_dataset(dt, group="posterior")
    if not {"chain", "draw"} <= set(posterior.dims):
        raise ValueError(
            f"The draws need the dimensions chain and draw, and have {list(posterior.dims)}. "
            "az.extract stacks them, and dt.isel(chain=0) drops one: pass the whole result, or "
            "dt.isel(chain=[0])."
        )
    if not all(posterior.sizes[dim] for dim in ("chain", "draw")):
        raise ValueError(f"There are no draws to {to}: chain or draw has the length 0.")
    return posterior


def statistics_in(dt):
    """Return the statistics of a result's draws by name, none of a result that has none."""
    return dt["sample_stats"] if "sample_stats" in getattr(dt, "children", ()) else {}


def known_logp(dt, names=("lp",)):
    """Return the log-densities (chains, draws) of a result's draws, None if it has none."""
    statistics = statistics_in(dt)
    logp = next((statistics[name] for name in names if name in statistics), None)
    if logp is None or dict(logp.sizes) != {
        dim: dt["posterior"].sizes.get(dim) for dim in ("chain", "draw")
    }:
        return None
    return np.ascontiguousarray(logp.transpose("chain", "draw").values, np.float64)


def learned_in(dt):
    """Return what a result says that tuning has learned, a Dataset; floats are doubles."""
    learned = dt[LEARNED_GROUP].to_dataset()
    return learned.map(lambda own: own.astype(float) if own.dtype.kind == "f" else own)


def _as_returned(tree):
    """Return what a run has returned of all that is in its store."""
    kept, groups = tree.attrs, {}
    chains, names = json.loads(kept["chains_kept"]), json.loads(kept["settings"])["var_names"]
    every = [*DRAWN_GROUPS, *(name for name in tree.children if name not in DRAWN_GROUPS)]
    for group in (name for name in every if name in tree.children):
        data = tree[group].to_dataset()
        if group in (*DRAWN_GROUPS, *WARMUP_GROUPS, *KEPT_GROUPS):
            n = kept["tuning_kept" if group in WARMUP_GROUPS else "draws_kept"]
            data = data.sel(chain=chains).isel(draw=slice(n))
        if group in (DRAWN_GROUPS[0], WARMUP_POSTERIOR):
            data = data[[name for name in names if name in data]]  # Zarr has the disk's order
        if data.sizes.get("draw") != 0 or group in DRAWN_GROUPS:
            groups[group] = data
    return xr.DataTree.from_dict(groups | {STATE_GROUP: xr.Dataset(attrs=kept)})


def _read(path, read, **options):
    try:
        return read(path, **options)
    except (OSError, ValueError) as error:
        what = "store" if path.is_dir() else "file"
        raise ValueError(f"{path} is not a {what} that xarray can read ({error}).") from None
