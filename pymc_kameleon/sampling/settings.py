"""The settings of a run of `pk.sample`: checked once, saved with its result, read back as one."""

import json
import math
from dataclasses import dataclass, fields

import numpy as np

from pymc_kameleon.analysis.evidence.draws import CHECKED
from pymc_kameleon.model.watch import Rule
from pymc_kameleon.sampling.budget import ALL_SETTLED
from pymc_kameleon.step.options import (
    checked_bool,
    checked_choice,
    checked_integer,
    checked_number,
)

CHAINS, DEFAULT_DRAWS, MOST_DRAWS = 4, 1000, 100_000
"""Chains, and draws of each, by default; and draws at most, if they are drawn until there are
enough."""

FEW_EVALUATIONS, FEW_CHAINS = (70, 5), 2
"""Evaluations of a run, and times d, with fewer than which there are fewer chains by default, if
one searches for all: what others evaluate to begin is of more use to the search."""

WITH_SURROGATE, MOST_NEW, LEAST_NEW = 200, 4000, 50
"""New points for the evidence by default, if evaluations are expensive; and of others, which are as
many as draws, at most; and at least, if somebody says how many."""

BY_DEFAULT, SHARE_OF_EVIDENCE = 1, 0.1
"""Stands for as many as by default; and of a limited number of evaluations, those for the evidence,
if no surrogate makes it cheap."""

AT_LEAST_ONE = "chains", "evaluations_at_once"
"""Numbers that cannot be 0."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What holds for a run from its first draw to its last, and when it is resumed.

    The arguments of `pk.sample` of the same names describe them; `keeps_warmup` is the opposite of
    `discard_tuned_samples`. The last ones are of a run of limited evaluations. A setting that an
    earlier version did not save has its default.
    """

    draws: int = DEFAULT_DRAWS
    tune: int = 1000
    chains: int = CHAINS
    evaluations_at_once: int = 1
    pool_tuning: bool = True
    keeps_warmup: bool = False
    keep_evaluations: bool = True
    surrogate_draws: int = 0
    var_names: list | None = None
    on_error: str = "raise"
    evaluation_timeout: float | None = None
    check_repeatable: bool = True
    evidence: int = 0  # new points for it
    evidence_draws: int = 0  # and draws at which the log-density is evaluated for it
    max_evaluations: int = 0  # 0 if they are not limited
    evaluations_before: int = 0  # of these, before there were chains, or for another evidence
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

    @property
    def for_evidence(self):
        """Evaluations of the log-density that the evidence takes, at most."""
        return self.evidence + self.evidence_draws if self.evidence else 0

    def with_evidence(self, is_expensive, keeps_logp):
        """Return settings with the numbers of evaluations for the evidence, if that is wanted.

        `is_expensive` says whether the sampler is one for expensive log-densities, and `keeps_logp`
        whether there will be the log-density of each draw.
        """
        if not self.evidence:
            return self
        n = self.evidence
        if n == BY_DEFAULT:
            n = self.chains * self.draws
            if self.max_evaluations:
                n = int(SHARE_OF_EVIDENCE * self.max_evaluations)
            n = usual_new_points(is_expensive, n)
        return self.but(evidence=n, evidence_draws=CHECKED if keeps_logp else n + self.chains)

    @property
    def rule(self):
        """What is done about evaluations that fail."""
        rejects, doubts = self.on_error == "reject", self.max_evaluations == 0
        return Rule(rejects, self.evaluation_timeout, self.check_repeatable, doubts)

    def attributes(self):
        """Return them as the attributes of a file, which are integers and text."""
        return {
            name: int(value) if isinstance(value, int) else json.dumps(value)
            for name, value in vars(self).items()
        }

    @classmethod
    def read(cls, attributes):
        """Return the settings of which these are the attributes, among others."""
        kept = {each.name: each.type for each in fields(cls) if each.name in attributes}
        return cls.checked(**{name: _read(kind, attributes[name]) for name, kind in kept.items()})


def chains_of_few(max_evaluations, d):
    """Return how many chains that follow the first one a run of so many evaluations has."""
    n, per_coordinate = FEW_EVALUATIONS
    return FEW_CHAINS if max_evaluations < n + per_coordinate * d else CHAINS


def chains_at_once(evaluations):
    """Return how many chains a run has by default that may have so many evaluations under way."""
    return max(CHAINS, evaluations)


def share_of_each(chains):
    """Return the draws of each chain with which all make as many as those of a usual run."""
    return -(-CHAINS * DEFAULT_DRAWS // checked_integer("chains", chains, at_least=1))


def usual_new_points(is_expensive, n_draws):
    """Return how many new points the evidence takes by default."""
    return WITH_SURROGATE if is_expensive else int(np.clip(n_draws, WITH_SURROGATE, MOST_NEW))


def _read(kind, value):
    return kind(value) if kind in (int, bool) else json.loads(value)


def _checked(name, kind, value):
    if name == "on_error":
        return checked_choice(name, value, ("raise", "reject"))
    if name == "evaluation_timeout":
        return checked_number(name, value, 0, math.inf)
    if kind is int:
        return checked_integer(name, value, at_least=1 if name in AT_LEAST_ONE else 0)
    return checked_bool(name, value) if kind is bool else value
