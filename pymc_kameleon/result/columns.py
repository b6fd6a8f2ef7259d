"""Which columns are kept of draws, and as what they are in a result."""

import numpy as np
from arviz_base import dict_to_dataset

from pymc_kameleon.model.pymc_internals import find_constants, find_observations
from pymc_kameleon.step.groups import (
    DRAWN_GROUPS,
    KEPT_GROUPS,
    WARMUP_GROUPS,
    WARMUP_POSTERIOR,
    WARMUP_STATS,
)
from pymc_kameleon.step.learned import COORDINATE

RENAMED = {"model_logp": "lp"}
"""Statistics that PyMC renames."""


class Columns:
    """What is kept of each draw, and how it is called: `groups` of names with (shape, dtype)."""

    def __init__(self, outputs, steps, keeps_warmup, coords, dims):
        self._outputs, self._steps, self.coords, self.dims = outputs, steps, coords, dims
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
        if steps[0].statistics.kept:
            self.groups[steps[0].keeps.group] = steps[0].statistics.kept

    def named(self, portion, tuning):
        """Yield group, name and values (n, ...) of draws that an advance has made."""
        posterior, stats = WARMUP_GROUPS if tuning else DRAWN_GROUPS
        if posterior in self.groups:
            for name, values in self._outputs.named(portion.outputs).items():
                yield posterior, name, values
        pairs = zip(self._steps, portion.stats, strict=True)
        named = [step.statistics.named(own) for step, own in pairs]
        for name, owners in self._owners.items():
            parts = [named[k][name] for k in owners]
            values = parts[0] if len(parts) == 1 else np.stack(parts, axis=1)
            yield stats, RENAMED.get(name, name), values
        if (first := self._steps[0]).statistics.kept and not tuning:
            for name, values in first.statistics.kept_of(portion.stats[0]).items():
                yield first.keeps.group, name, values

    def like(self, group, numbers):
        """Return a dataset of a group with one draw of each of the chains `numbers`."""
        coords, dims = {}, {}
        if group.endswith("posterior"):
            coords, dims = self.coords, self.dims
        elif group in KEPT_GROUPS:
            coords = {COORDINATE: self._steps[0].layout.coordinates()}
            own = self._steps[0].keeps.dims
            shaped = [name for name, (shape, _) in self.groups[group].items() if shape]
            dims = {name: own.get(name, [COORDINATE]) for name in shaped}
        return dict_to_dataset(
            {
                name: np.zeros((len(numbers), 1, *shape), dtype)
                for name, (shape, dtype) in self.groups[group].items()
            },
            coords=coords | {"chain": numbers},
            dims=dims,
            check_conventions=False,
        )


def data_of(model, columns):
    """Return the model's data, as a dataset for each group that there is."""
    found = {"observed_data": find_observations(model), "constant_data": find_constants(model)}
    return {
        group: dict_to_dataset(arrays, coords=columns.coords, dims=columns.dims, sample_dims=[])
        for group, arrays in found.items()
        if arrays
    }


def check_names(model, columns, numbers):
    """Raise a ValueError if there could be no result, or one that lacks a variable."""
    try:
        dims = columns.like("posterior", numbers).dims
        data_of(model, columns)
    except ImportError:  # of a part that PyMC does not have
        raise
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
