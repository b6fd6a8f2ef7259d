"""What is kept of the draws of a run, in memory, and the result: a DataTree."""

import json
import platform
from importlib.metadata import version

import numpy as np
import xarray as xr
from arviz_base import dict_to_dataset

from pymc_kameleon.groups import (
    AHEAD,
    BEHIND,
    DRAWN_GROUPS,
    KEPT_GROUPS,
    LEARNED_GROUP,
    STATE_GROUP,
    WARMUP_GROUPS,
    WARMUP_POSTERIOR,
    WARMUP_STATS,
)
from pymc_kameleon.host import find_constants, find_observations
from pymc_kameleon.learned import COORDINATE
from pymc_kameleon.resume import pack

RENAMED = {"model_logp": "lp"}
"""Statistics that PyMC renames."""

VERSIONS = ("pymc", "pytensor", "numba", "numpy")


class Columns:
    """What is kept of each draw, and how it is called.

    Parameters
    ----------
    outputs : ModelOutputs
    steps : list of KameleonStep
        A statistic that several of them have gets one more dimension, as in PyMC.
    keeps_warmup : bool
        Whether the outputs are kept while tuning, too; statistics always are.
    coords, dims : dict
        Of the outputs.

    Attributes
    ----------
    groups : dict
        Group -> name -> (shape, dtype).
    """

    def __init__(self, outputs, steps, keeps_warmup, coords, dims):
        self._outputs, self._steps, self.coords, self.dims = outputs, steps, coords, dims
        self._likes = {}
        kinds = [dict(step.stats_dtypes_shapes) for step in steps]
        for kind in kinds:
            del kind["warning"]
        self._owners = {
            name: [k for k, own in enumerate(kinds) if name in own]
            for name in dict.fromkeys(name for own in kinds for name in own)
        }
        stats = {}
        for name, owners in self._owners.items():
            dtype, shape = kinds[owners[0]][name]
            several = (len(owners),) if len(owners) > 1 else ()
            stats[RENAMED.get(name, name)] = (*several, *shape), np.dtype(dtype)
        self.groups = {"posterior": outputs.variables, "sample_stats": stats}
        if keeps_warmup:
            self.groups[WARMUP_POSTERIOR] = outputs.variables
        self.groups[WARMUP_STATS] = stats
        if steps[0].kept:
            self.groups[steps[0].kept_group] = steps[0].kept

    def named(self, portion, tuning):
        """Yield group, name and values (n, ...) of draws that an advance has made."""
        posterior, stats = WARMUP_GROUPS if tuning else DRAWN_GROUPS
        if posterior in self.groups:
            for name, values in self._outputs.named(portion.outputs).items():
                yield posterior, name, values
        pairs = zip(self._steps, portion.stats, strict=True)
        named = [step.named(own) for step, own in pairs]
        for name, owners in self._owners.items():
            parts = [named[k][name] for k in owners]
            values = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
            yield stats, RENAMED.get(name, name), values
        if (first := self._steps[0]).kept and not tuning:
            for name, values in first.kept_of(portion.stats[0]).items():
                yield first.kept_group, name, values

    def like(self, group, numbers):
        """Return a dataset of a group with one draw of each of the chains `numbers`."""
        if (known := self._likes.get((group, *numbers))) is not None:  # ArviZ takes a while
            return known
        coords, dims = {}, {}
        if group.endswith("posterior"):
            coords, dims = self.coords, self.dims
        elif group in KEPT_GROUPS:
            coords = {COORDINATE: self._steps[0].layout.coordinates()}
            dims = {name: [COORDINATE] for name, (shape, _) in self.groups[group].items() if shape}
        self._likes[group, *numbers] = like = dict_to_dataset(
            {
                name: np.zeros((len(numbers), 1, *shape), dtype)
                for name, (shape, dtype) in self.groups[group].items()
            },
            coords=coords | {"chain": numbers},
            dims=dims,
            check_conventions=False,
        )
        return like


class Memory:
    """The draws of all chains, in arrays.

    Parameters
    ----------
    columns : Columns
    numbers : list of int
        Of the chains.
    tune, draws : int
        The most draws of each chain.
    """

    def __init__(self, columns, numbers, tune, draws):
        self.columns, self._numbers = columns, numbers
        lengths = draws, tune
        self._arrays = {
            group: {
                name: np.zeros((len(numbers), lengths[group in WARMUP_GROUPS], *shape), dtype)
                for name, (shape, dtype) in variables.items()
            }
            for group, variables in columns.groups.items()
        }

    def write(self, row, start, portion, tuning):
        """Keep draws of a chain, the first of which is its draw `start` of its group."""
        for group, name, values in self.columns.named(portion, tuning):
            self.put(row, start, group, name, values)

    def put(self, row, start, group, name, values):
        """Keep values (n, ...) of one variable."""
        self._arrays[group][name][row, start : start + len(values)] = values

    def _nothing(self, *arguments):
        """Do nothing: that is for what is kept elsewhere."""

    save = flush = flush_if_due = finish = close = discard = _nothing

    def dataset(self, group, rows, start, stop):
        """Return some draws of some chains, without a copy if these are neighbours.

        Memory may be full when a likelihood that took all of it has ended a run.
        """
        like = self.columns.like(group, [self._numbers[row] for row in rows])
        neighbours = slice(rows[0], rows[-1] + 1)
        own = neighbours if rows == list(range(len(self._numbers)))[neighbours] else rows
        arrays = {
            name: (like[name].dims, array[:, start:stop][own])
            for name, array in self._arrays[group].items()
        }
        return xr.Dataset(arrays, like.drop_vars("draw").coords).assign_coords(
            draw=np.arange(start, stop)
        )


def data_tree(model, job, everyone, chains, length, record, plan, seconds):
    """Return the result of a run.

    Parameters
    ----------
    model : pm.Model
    job : Job
    everyone, chains : list of Chain
        All that can go on, and those whose draws are the result.
    length : int
        How many draws after tuning.
    record : Memory or Store
    plan : dict
        What the run was asked for, which `resume` goes by.
    seconds : float
        What sampling took, before it was resumed too.
    """
    rows, numbers = [chain.row for chain in chains], [chain.number for chain in chains]
    attributes = attributes_of(job.steps) | {
        "sampling_time": seconds,
        "tuning_steps": chains[0].tune,
        "pool_tuning": plan["pool_tuning"],
    }
    tuned = min(min(chain.done, chain.tune) for chain in chains)
    groups = {}
    for group in record.columns.groups:
        n = tuned if group in WARMUP_GROUPS else length
        if n > 0:
            groups[group] = record.dataset(group, rows, 0, n).assign_attrs(attributes)
    for group, data in _data_of(model, record.columns).items():
        groups[group] = data.assign_attrs(attributes)
    learned, states = pack(job.steps, [chain.state for chain in everyone])
    kept = {"draws_kept": length, "tuning_kept": tuned, "chains_kept": json.dumps(numbers)}
    all_numbers = [chain.number for chain in everyone]
    learned = learned.assign_coords(chain=all_numbers).sel(chain=numbers)
    groups[LEARNED_GROUP] = learned.assign_attrs(attributes)
    groups[STATE_GROUP] = states.assign_coords(chain=all_numbers).assign_attrs(plan | kept)
    groups |= _more(record, AHEAD, chains, length, tuned)
    groups |= _more(record, BEHIND, [c for c in everyone if c not in chains], 0, 0)
    return xr.DataTree.from_dict(groups)


def _data_of(model, columns):
    """Return the model's data, as a dataset for each group that there is."""
    found = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    return {
        group: dict_to_dataset(arrays, coords=columns.coords, dims=columns.dims, sample_dims=[])
        for group, arrays in found.items()
        if arrays
    }


def check_names(model, columns, numbers):
    """Raise a ValueError if there could be no result, or one that lacks a variable.

    After sampling it would be too late: the draws would be lost.
    """
    try:
        dims = columns.like("posterior", numbers).dims
        _data_of(model, columns)
    except Exception as error:  # ArviZ and xarray raise several kinds
        raise ValueError(
            f"These draws could not be returned: {error}. Look at the names, dims and coords of "
            "the model's variables and data, and of idata_kwargs."
        ) from error
    if taken := [name for name in columns.groups["posterior"] if name in dims]:
        raise ValueError(
            f"Dimensions of the result are called {taken}. Give these variables other names, or "
            "leave them to var_names."
        )


def with_warnings(tree, warnings):
    """Add the statistic ``warning``, as PyMC keeps it: of the last draw, by chain and step."""
    stats = tree["sample_stats"].to_dataset()
    values = np.full((stats.sizes["chain"], stats.sizes["draw"], len(warnings[0])), None)
    values[:, -1] = warnings
    dims = ("chain", "draw", "warning_dim_0")
    if len(warnings[0]) == 1:
        values, dims = values[..., 0], dims[:2]
    tree["sample_stats"] = xr.DataTree(stats.assign(warning=(dims, values)))
    return tree


def _more(record, prefix, chains, length, tuned):
    """Return what chains have made beyond some draws, which `resume` takes up."""
    if not chains:
        return {}
    rows = [chain.row for chain in chains]
    ends = {True: max(min(c.done, c.tune) for c in chains), False: max(c.made for c in chains)}
    return {
        f"{prefix}{group}": record.dataset(group, rows, start, ends[group in WARMUP_GROUPS])
        for group in record.columns.groups
        if (start := tuned if group in WARMUP_GROUPS else length) < ends[group in WARMUP_GROUPS]
    }


def attributes_of(steps):
    """Return what the groups of a result say of how it was made."""
    versions = {"python": platform.python_version()} | {name: version(name) for name in VERSIONS}
    return {
        "inference_library": "pymc_kameleon",
        "inference_library_version": version("pymc_kameleon"),
        "samplers": json.dumps([repr(step) for step in steps]),
        "versions": json.dumps(versions),
    }
