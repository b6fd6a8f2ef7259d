"""The result of a run: a DataTree."""

import json
import logging
from functools import cache
from importlib.metadata import version

import numpy as np
import xarray as xr

from pymc_kameleon.approximation.rounds import search_dataset
from pymc_kameleon.result.columns import data_of
from pymc_kameleon.result.origin import MODEL_ID, id_of
from pymc_kameleon.result.state import pack
from pymc_kameleon.result.superchains import ATTRIBUTE, superchains
from pymc_kameleon.step.groups import (
    AHEAD,
    BEHIND,
    DRAWN_GROUPS,
    EVALUATIONS,
    LEARNED_GROUP,
    SEARCH,
    STATE_GROUP,
    WARMUP_GROUPS,
)

_log = logging.getLogger("pymc_kameleon")

version_of = cache(version)  # it reads a file each time


def data_tree(job, all_chains, chains, length, record, plan, seconds):
    """Return the result of a run, of `length` draws of `chains`; `all_chains` can be resumed."""
    rows, numbers = [chain.row for chain in chains], [chain.number for chain in chains]
    attributes = attributes_of(job.steps) | {
        "sampling_time": seconds,
        "tuning_steps": chains[0].tune,
    }
    if job.at_once > 1 and all(step.pool_tuning and step.search.follows for step in job.steps):
        numbers_of_all = superchains(len(all_chains))
        attributes[ATTRIBUTE] = json.dumps(numbers_of_all[rows].tolist())
    watches = [own.watch for chain in all_chains for own in chain.state.steps]
    errors, late = map(int, np.sum([watch.n_rejected for watch in watches], axis=0))
    if errors or late:
        attributes |= {"rejected_errors": errors, "rejected_late": late}
    tuned = min(min(chain.done, chain.tune) for chain in chains)
    groups = {}
    for group in record.columns.groups:
        n = tuned if group in WARMUP_GROUPS else length
        if n > 0 or group in DRAWN_GROUPS:  # which may have no draws yet
            groups[group] = record.dataset(group, rows, 0, n).assign_attrs(attributes)
    for group, data in data_of(job.steps[0].model, record.columns).items():
        groups[group] = data.assign_attrs(attributes)
    learned, states = pack(job.steps, [chain.state for chain in all_chains])
    kept = {"draws_kept": length, "tuning_kept": tuned, "chains_kept": json.dumps(numbers)}
    all_numbers = [chain.number for chain in all_chains]
    learned = learned.assign_coords(chain=all_numbers).sel(chain=numbers)
    groups[LEARNED_GROUP] = learned.assign_attrs(attributes)
    states = states.assign_coords(chain=all_numbers)
    groups[STATE_GROUP] = states.assign_attrs(plan | kept)
    groups |= _evaluations(job, all_chains, record)
    rounds = {chain.number: [own.rounds for own in chain.state.steps] for chain in all_chains}
    if (search := search_dataset(rounds)) is not None:
        groups[SEARCH] = search.assign_attrs(attributes)
    groups |= _draws_beyond(record, AHEAD, chains, length, tuned)
    groups |= _draws_beyond(record, BEHIND, [c for c in all_chains if c not in chains], 0, 0)
    return xr.DataTree.from_dict(groups)


def _evaluations(job, chains, record):
    """Return what black boxes have returned, by the first step that knows."""
    numbers, group = [chain.number for chain in chains], job.steps[0].keeps.group
    for k, step in enumerate(job.steps):
        kept = []
        if k == 0 and group in record.columns.groups:
            made = [chain.made for chain in chains]
            of_all = record.dataset(group, [chain.row for chain in chains], 0, max(made))
            kept = [of_all.isel(chain=i, draw=slice(n), drop=True) for i, n in enumerate(made)]
        try:
            found = step.evaluations([chain.state.steps[k] for chain in chains], numbers, kept)
        except Exception:  # the draws are worth more
            _log.exception(f"There are no {EVALUATIONS}, as this failed; the draws are returned.")
            return {}
        if found is not None:
            return {EVALUATIONS: found.assign_attrs(attributes_of(job.steps) | found.attrs)}
    return {}


def _draws_beyond(record, prefix, chains, length, tuned):
    """Return the draws of chains beyond some, for ``pk.resume``."""
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
    return {
        "inference_library": "pymc_kameleon",
        "inference_library_version": version_of("pymc_kameleon"),
        "samplers": json.dumps([repr(step) for step in steps]),
        MODEL_ID: id_of(steps[0].model),
    }
