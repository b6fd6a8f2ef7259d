"""Results as users name them: a tree, a file or a store, opened."""

import json
import os
from pathlib import Path

import xarray as xr

from pymc_kameleon.step.groups import DRAWN_GROUPS, KEPT_GROUPS, STATE_GROUP, WARMUP_GROUPS


def zarr_module():
    """Return zarr, which is an optional requirement."""
    try:
        import zarr
    except ImportError:
        raise ImportError(
            "A store needs zarr, which is not installed: pip install '.[save]' in the checkout."
        ) from None
    return zarr


def as_path(argument, value):
    """Return the path that an argument names; raise a ValueError if it is none."""
    if not isinstance(value, str | os.PathLike) or value == "":
        raise ValueError(f"{argument} must be a path, as 'run.zarr', not {value!r}.")
    return Path(value).expanduser()


def as_saved(resume):
    """Return the path of a store that exists, or a result, also one that is read from a file."""
    if not isinstance(resume, str | os.PathLike):
        return resume
    path = as_path("resume", resume)
    if not path.exists():
        raise ValueError(f"{path} does not exist, so there is no run to go on with.")
    return path if path.is_dir() else _read(path)


def opened(dt):
    """Return a result, also that in the file or the store whose path is given."""
    if not isinstance(dt, str | os.PathLike):
        return dt
    path = as_path("dt", dt)
    if not path.exists():
        raise ValueError(f"{path} does not exist: give a result of pk.sample, or the path of one.")
    if not path.is_dir():
        return _read(path)
    zarr_module()
    tree = _read(path, engine="zarr", consolidated=False)
    if "draws_kept" not in tree.attrs:  # a result that was written to it as a whole
        return tree
    if tree.attrs["draws_kept"] < 0:
        raise ValueError(
            f"The run in {path} has not ended, or was killed: pk.sample(resume={str(path)!r}) goes "
            "on with it."
        )
    return _as_returned(tree)


def _as_returned(tree):
    """Return what a run has returned of all that is in its store."""
    kept, groups = tree.attrs, {STATE_GROUP: xr.Dataset(attrs=tree.attrs)}
    chains = json.loads(kept["chains_kept"])
    for name, group in tree.children.items():
        data = group.to_dataset()
        if name in (*DRAWN_GROUPS, *WARMUP_GROUPS, *KEPT_GROUPS):
            n = kept["tuning_kept" if name in WARMUP_GROUPS else "draws_kept"]
            data = data.sel(chain=chains).isel(draw=slice(n))
        if data.sizes.get("draw") != 0:
            groups[name] = data
    return xr.DataTree.from_dict(groups)


def _read(path, **options):
    try:
        return xr.load_datatree(path, **options)
    except (OSError, ValueError) as error:
        what = "store" if path.is_dir() else "file"
        raise ValueError(f"{path} is not a {what} that xarray can read ({error}).") from None
