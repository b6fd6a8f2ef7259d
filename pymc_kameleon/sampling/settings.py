"""The settings of a run of `pk.sample`: checked once, saved with its result, read back as one."""

import json
from dataclasses import dataclass, fields

from pymc_kameleon.core.conventions import CHAINS
from pymc_kameleon.sampling.budget import ALL_SETTLED
from pymc_kameleon.step.base import DEFAULT_DRAWS
from pymc_kameleon.step.options import checked_bool, checked_integer

MOST_DRAWS = 100_000
"""Draws of each chain at most, if they are drawn until there are enough."""

FEW_EVALUATIONS, FEW_CHAINS = (70, 5), 2
"""Evaluations of a run, and times d, with fewer than which there are fewer chains by default, if
one searches for all: what others evaluate to begin is of more use to the search."""

AT_LEAST_ONE = "chains", "max_concurrent"
"""Numbers that cannot be 0."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for a run from its first draw to its last, and when it is resumed.

    The arguments of `pk.sample` of the same names describe them; `keeps_warmup` is the opposite of
    `discard_tuned_samples`. The last ones are of a run of limited evaluations.
    """

    draws: int = DEFAULT_DRAWS
    tune: int = DEFAULT_DRAWS
    chains: int = CHAINS
    max_concurrent: int = 1
    keeps_warmup: bool = False
    var_names: list | None = None
    max_evaluations: int = 0  # 0 if they are not limited
    evaluations_before: int = 0  # of these, before there were chains
    most_draws: int = 0  # that they may make
    settled: int = ALL_SETTLED  # which numbers of draws are those that are made; others are limits

    @classmethod
    def checked(cls, **given):
        """Return settings, with defaults for None; raise a ValueError for an impossible one."""
        kinds = {each.name: each.type for each in fields(cls)}
        given = {name: value for name, value in given.items() if value is not None}
        return cls(**{name: _checked(name, kinds[name], value) for name, value in given.items()})

    def but(self, **given):
        """Return these settings with some replaced, those that are not None."""
        return self.checked(**vars(self) | {k: v for k, v in given.items() if v is not None})

    def attributes(self):
        """Return them as the attribute of a file."""
        return {"settings": json.dumps(vars(self))}

    @classmethod
    def read(cls, attributes):
        """Return the settings that are among these attributes of a file."""
        return cls.checked(**json.loads(attributes["settings"]))


def chains_of_few(max_evaluations, d):
    """Return how many chains that follow the first one a run of so many evaluations has."""
    n, per_coordinate = FEW_EVALUATIONS
    return FEW_CHAINS if max_evaluations < n + per_coordinate * d else CHAINS


def share_of_each(chains):
    """Return the draws of each chain with which all make as many as those of a usual run."""
    return -(-CHAINS * DEFAULT_DRAWS // checked_integer("chains", chains, at_least=1))


def _checked(name, kind, value):
    if kind is int:
        return checked_integer(name, value, at_least=1 if name in AT_LEAST_ONE else 0)
    return checked_bool(name, value) if kind is bool else value
