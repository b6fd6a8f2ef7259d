"""Statistics of a step's draws: what there is, and where it is in a row of floats.

Compiled code writes a draw's numbers by name. They travel as a row: those of every sampler, its
own, and what is kept to correct averages by.
"""

from typing import NamedTuple, get_type_hints

import numpy as np

from pymc_kameleon.core.arrays import kinds_of
from pymc_kameleon.core.chain import CommonStats
from pymc_kameleon.core.rows import Rows
from pymc_kameleon.model import noise


class NoStats(NamedTuple):
    """A sampler's own statistics, if it has none."""


class Statistics:
    """The statistics of a step, from what its sampler declares.

    `kinds` has (shape, dtype) of each by name; `kept` those of what is kept to correct averages by,
    if the step moves all variables; `width` is how many numbers a row has.
    """

    def __init__(self, step):
        self._stats, whole = step.stats, step.layout.covers_all
        sizes = {"d": step.layout.d} | step.settings
        common, fields = kinds_of(CommonStats, {}), kinds_of(step.stats, sizes)
        kept = fields.pop("kept", {})
        wrong = [name for name, kind in fields.items() if isinstance(kind, dict)]
        if wrong or not isinstance(kept, dict):
            raise TypeError(f"Stats of {type(step).__name__}: of its fields kept alone is a tuple.")
        own = {step._stat_name(field): kind for field, kind in fields.items()}
        if taken := sorted(own.keys() & {*common, "warning"}):
            raise TypeError(f"{type(step).__name__} declares {taken}, which every sampler has.")
        if step.pseudo_marginal:
            own[noise.NOISE_STATISTIC] = (), np.float64
        self.kinds, self.kept = common | own, kept if whole else {}
        self._rows = Rows(self.kinds)
        self._fields = Rows(fields, first=len(common))
        self._kept = Rows(kept, first=self._rows.end)
        self._type_of_kept = get_type_hints(step.stats).get("kept")
        self._nothing = np.full(self._kept.end, np.nan)
        self.width = self._kept.end if whole else self._rows.end
        if not whole:
            del self.kinds["model_logp"]

    def empty(self, draws):
        """Return room for the statistics of draws, one row for each."""
        return np.full((draws, self.width), np.nan)

    def buffer(self):
        """Return a row, and the sampler's Stats as views of it."""
        row = self._nothing.copy()
        fields = self._fields.views(row)
        if self._type_of_kept:
            fields["kept"] = self._type_of_kept(**self._kept.views(row))
        return row, self._stats(**fields)

    def named(self, rows):
        """Return the statistics of draws by name, each of shape (draws, ...)."""
        named = self._rows.named(rows)
        if "model_logp" not in self.kinds:
            del named["model_logp"]
        return named

    def kept_of(self, rows):
        """Return what is kept of draws by name, each of shape (draws, ...)."""
        return self._kept.named(rows)
