"""What the groups of a result are called that `pk.sample` makes: each is defined here only."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

DRAWN_GROUPS = "posterior", "sample_stats"
WARMUP_GROUPS = WARMUP_POSTERIOR, WARMUP_STATS = "warmup_posterior", "warmup_sample_stats"
"""What is kept of draws after tuning, and while tuning."""

KEPT_GROUPS = SURROGATE_MOVES, EMULATOR_MOVES = "surrogate_moves", "emulator_moves"
"""What is kept of draws after tuning, to correct averages by."""

GRADIENTS = "gradients"
"""Positions of draws on the unconstrained scale, and gradients there, of any sampler's result."""

EVALUATIONS = "evaluations"
"""All evaluations of the log-density, and what black boxes were given, and have returned."""

SEARCH = "search"
"""Rounds of the searches for the posterior."""

FINDINGS = "findings"
"""What the run has found that its user should know."""

APPROXIMATIONS = {SURROGATE_MOVES: "surrogate", EMULATOR_MOVES: "emulator"}
"""What proposed the moves of a group, by an approximation to the posterior."""


class Keeps(NamedTuple):
    """Where a sampler's `kept` is in a result, and the dimensions of what is not one row."""

    group: str = ""  # one of `KEPT_GROUPS`
    dims: Mapping = MappingProxyType({})


LEARNED_GROUP = "learned"
"""What tuning decided, for people to read."""

STATE_GROUP = "sampling_state"
"""What ``pk.resume`` goes on from, and in its attributes what the run was asked for."""

AHEAD, BEHIND = "ahead_", "behind_"
"""Prefixes of groups with draws beyond the result: of chains that made more, or too few."""
