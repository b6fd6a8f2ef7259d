"""The draws of a run, in memory."""

import numpy as np
import xarray as xr

from pymc_kameleon.step.groups import WARMUP_GROUPS


class Memory:
    """The draws of all chains, with these `numbers`, in arrays."""

    def __init__(self, columns, numbers):
        self.columns, self._numbers = columns, numbers

    def create(self, tune, draws, plan, states):
        """Make room for so many draws of each chain; plan and states are kept elsewhere."""
        lengths = draws, tune
        self._arrays = {
            group: {
                name: np.zeros((len(self._numbers), lengths[group in WARMUP_GROUPS], *shape), dtype)
                for name, (shape, dtype) in variables.items()
            }
            for group, variables in self.columns.groups.items()
        }

    def write(self, row, start, portion, tuning):
        """Keep draws of a chain, the first of which is its draw `start` of its group."""
        for group, name, values in self.columns.named(portion, tuning):
            self.put(row, start, group, name, values)

    def put(self, row, start, group, name, values):
        """Keep values (n, ...) of one variable."""
        self._arrays[group][name][row, start : start + len(values)] = values

    def _nothing(self, *arguments):
        """Do nothing: only a store has to."""

    save = settle = flush = flush_if_due = finish = close = discard = _nothing

    def dataset(self, group, rows, start, stop):
        """Return some draws of some chains, without a copy if these are neighbours."""
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
