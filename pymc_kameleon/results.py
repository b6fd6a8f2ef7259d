"""The result of a run: a DataTree from draws."""

import json
from importlib.metadata import version

import numpy as np
import xarray as xr
from arviz_base import dict_to_dataset

from pymc_kameleon.host import coords_and_dims_for_inferencedata, find_constants, find_observations
from pymc_kameleon.resume import LEARNED, STATE, pack

RENAMED = {"model_logp": "lp"}
"""Statistics that PyMC renames."""


class Draws:
    """Room for what is kept of some draws of each chain.

    Parameters
    ----------
    chains, draws : int
    outputs : ModelOutputs
    steps : list of KameleonStep
        A statistic that several of them have gets one more dimension, as in PyMC.

    Attributes
    ----------
    posterior, stats : dict of arrays (chains, draws, ...)
    data : str
        Fingerprint of the data that the outputs depend on.
    """

    def __init__(self, chains, draws, outputs, steps):
        self.draws, self.data = draws, outputs.digest.hex()
        self.posterior = {
            name: np.empty((chains, draws, *shape), dtype)
            for name, (shape, dtype) in outputs.variables.items()
        }
        kinds = [dict(step.stats_dtypes_shapes) for step in steps]
        for kind in kinds:
            del kind["warning"]
        self._owners = {
            name: [k for k, own in enumerate(kinds) if name in own]
            for name in dict.fromkeys(name for own in kinds for name in own)
        }
        self.stats = {}
        for name, owners in self._owners.items():
            dtype, shape = kinds[owners[0]][name]
            several = (len(owners),) if len(owners) > 1 else ()
            self.stats[name] = np.empty((chains, draws, *several, *shape), dtype)

    def write(self, chain, start, outputs, stats):
        """Write outputs, and the statistics of each step, of draws from `start` on."""
        for name, values in outputs.items():
            self.posterior[name][chain, start : start + len(values)] = values
        for name, owners in self._owners.items():
            for place, k in enumerate(owners):
                rows = self.stats[name][chain, start : start + len(stats[k][name])]
                (rows[:, place] if len(owners) > 1 else rows)[...] = stats[k][name]


def data_tree(model, chains, draws, warmup, seconds, idata_kwargs):
    """Return the result of a run.

    Parameters
    ----------
    model : pm.Model
    chains : list of Chain
        Those that are kept, to the length of the shortest.
    draws, warmup : Draws
    seconds : float
        What sampling took.
    idata_kwargs : dict
        ``coords`` and ``dims`` besides those of the model.
    """
    coords, dims = coords_and_dims_for_inferencedata(model)
    coords, dims = coords | idata_kwargs.get("coords", {}), dims | idata_kwargs.get("dims", {})
    attributes = {"sampling_time": seconds, "tuning_steps": chains[0].tune}
    length = min(chain.made for chain in chains)
    rows, numbers = [chain.row for chain in chains], [chain.number for chain in chains]

    def dataset(arrays, n, dims):
        """Return n draws of the chains, without a copy if these are all chains."""
        kept = {
            RENAMED.get(name, name): (array if len(rows) == len(array) else array[rows])[:, :n]
            for name, array in arrays.items()
        }
        # ArviZ gives each variable draw numbers of its own, and merges them: of one draw only.
        like = dict_to_dataset(
            {name: array[:, :1] for name, array in kept.items()},
            coords=coords | {"chain": numbers},
            dims=dims,
            attrs=_attributes() | attributes,
            check_conventions=False,
        )
        return xr.Dataset(
            {name: (like[name].dims, array) for name, array in kept.items()},
            like.drop_vars("draw").coords,
            like.attrs,
        ).assign_coords(draw=np.arange(n))

    groups = {}
    if length > 0:
        groups["posterior"] = dataset(draws.posterior, length, dims)
        groups["sample_stats"] = dataset(draws.stats, length, {})
    if warmup.draws > 0:
        groups["warmup_posterior"] = dataset(warmup.posterior, warmup.draws, dims)
        groups["warmup_sample_stats"] = dataset(warmup.stats, warmup.draws, {})
    found = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    for group, arrays in found.items():
        if arrays:
            groups[group] = dict_to_dataset(
                arrays, coords=coords, dims=dims, sample_dims=[], attrs=_attributes()
            )
    learned, states = pack([chain.steps for chain in chains])
    states.attrs |= {"var_names": json.dumps(list(draws.posterior)), "data": draws.data}
    groups[LEARNED] = learned.assign_coords(chain=numbers).assign_attrs(_attributes())
    groups[STATE] = states.assign_coords(chain=numbers)
    return xr.DataTree.from_dict(groups)


def _attributes():
    return {
        "inference_library": "pymc_kameleon",
        "inference_library_version": version("pymc_kameleon"),
    }


def joined(old, new):
    """Return a result with the draws of an earlier one before its own."""
    groups = {name: new[name].to_dataset() for name in new.children}
    chain = groups[STATE]["chain"]
    for name in ("warmup_posterior", "warmup_sample_stats"):
        if name in old.children:
            groups[name] = old[name].to_dataset().sel(chain=chain)
    for name in ("posterior", "sample_stats"):
        if name in old.children:
            before = old[name].to_dataset().sel(chain=chain)
            seconds = before.attrs["sampling_time"] + groups[name].attrs["sampling_time"]
            after = xr.Dataset(  # with the dimensions and coordinates of then
                {key: (before[key].dims, groups[name][key].values) for key in before},
                {key: value for key, value in before.coords.items() if key != "draw"},
                groups[name].attrs,
            )
            parts = [before.drop_vars("draw"), after]
            both = xr.concat(parts, "draw", data_vars="minimal", join="exact")
            groups[name] = both.assign_coords(draw=np.arange(both.sizes["draw"])).assign_attrs(
                after.attrs | {"sampling_time": seconds}
            )
    return xr.DataTree.from_dict(groups)
