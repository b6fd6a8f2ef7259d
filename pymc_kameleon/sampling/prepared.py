"""What a run of `pk.sample` begins with: a job, states of chains, and room for draws.

A new run and one that goes on differ in where these come from: a `NewRun` or a `ResumedRun`.
"""

from dataclasses import dataclass, replace

import numpy as np

from pymc_kameleon.model.pymc_internals import (
    coords_and_dims_for_inferencedata,
    get_default_varnames,
    get_random_generator,
)
from pymc_kameleon.model.watch import LOOKING_CHAINS
from pymc_kameleon.result.columns import Columns, check_names
from pymc_kameleon.result.memory import Memory
from pymc_kameleon.result.state import identity
from pymc_kameleon.result.store import Store, new_store
from pymc_kameleon.sampling.budget import NOTHING_SETTLED, Budget
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.sampling.settings import Settings
from pymc_kameleon.sampling.starts_of_run import starts
from pymc_kameleon.step.job import ChainState, Job
from pymc_kameleon.step.monitor import NO_LIMIT


@dataclass
class Prepared:
    """A run before its first draw."""

    job: Job
    chains: list
    record: object  # Memory or Store, where draws go
    settings: Settings
    identity: dict  # what steps and data were, as attributes
    origin: object  # a NewRun or ResumedRun

    def attributes(self, draws=None):
        """Return by what `resume` goes on; the run may have ended with fewer draws."""
        return self.settings.but(draws=draws).attributes() | self.identity


def prepare(origin):
    """Return the run of a NewRun or ResumedRun before its first draw."""
    steps, settings = origin.steps, origin.settings
    try:
        outputs = steps[0].outputs(settings.var_names)
        columns = Columns(outputs, steps, settings.keeps_warmup, *origin.labels(outputs))
        check_names(steps[0].model, columns, origin.numbers)
        job = Job(steps, outputs, settings.keeps_warmup, settings.max_concurrent)
        states, settings = origin.begin(job)
        numbered = enumerate(zip(origin.numbers, states, strict=True))
        chains = [Chain(row, number, state, steps) for row, (number, state) in numbered]
        run = Prepared(job, chains, None, settings, identity(job), origin)
        run.record = _record(origin, columns, states, settings, run.attributes())
    except BaseException:
        if origin.lock is not None:
            origin.lock.release()
        raise
    return run


def _record(origin, columns, states, settings, attributes):
    """Return where draws go, with those of an earlier run, and with the first states."""
    plan = attributes | {"draws_kept": -1}  # until it has ended
    monitors = [state.monitor for state in states]
    room = max(settings.most_draws, *(max(own.draws, own.done - own.tune) for own in monitors))
    if origin.lock is not None:
        record = Store(origin.path, origin.lock, columns, origin.numbers)
        return record.extend(monitors[0].tune, room, plan, states)
    if origin.store is None:
        record = Memory(columns, origin.numbers)
    else:
        record = new_store(origin.store, columns, origin.numbers)
    try:
        record.create(monitors[0].tune, room, plan, states)
        origin.put_draws_into(record)
        for row, state in enumerate(states):
            record.save(row, state)
        record.flush()
    except BaseException:
        record.discard()
        raise
    return record


# ---- a new run ----------------------------------------------------------------------------------


class NewRun:
    """A run that begins afresh, with steps that move all variables of their model.

    `labels` has the user's ``coords`` and ``dims``, `evaluations` the Datasets of earlier runs that
    the steps are to reuse, and `store` is the Path of a new one.
    """

    before, seconds = 0, 0.0  # draws after tuning that there are, and what they took
    n_checks = 0  # evaluations of the log-density that no draw counts
    lock = None  # of the store that a run goes on in

    def __init__(self, steps, settings, random_seed, initvals, labels, evaluations, store):
        if settings.draws + settings.tune == 0:
            raise ValueError("draws and tune are 0: there is nothing to do.")
        self.steps, self.numbers, self.settings = steps, list(range(settings.chains)), settings
        self._random_seed, self._initvals, self._labels = random_seed, initvals, labels
        self._evaluations, self.store = evaluations, store

    def labels(self, outputs):
        """Return coordinates and dimensions of what is kept of draws."""
        coords, dims = coords_and_dims_for_inferencedata(self.steps[0].model)
        return coords | self._labels.get("coords", {}), dims | self._labels.get("dims", {})

    def begin(self, job):
        """Return the states of chains before their first draw, and the settings."""
        known, settings = reused(job.steps, self._evaluations), self.settings
        if settings.max_evaluations and job.holds_gil:
            n_calls = sum(own.n_calls for own in known if own is not None)
            n = n_calls + sum(step.n_trials for step in job.steps)
            settings = settings.but(evaluations_before=n)
        return first_states(job, settings, self._random_seed, self._initvals, known)

    def put_draws_into(self, record):
        """Keep the draws of an earlier run: there are none."""


def names_to_keep(model, var_names, idata_kwargs):
    """Return the names of what is kept of each draw, in PyMC's order."""
    every = [var.name for var in model.unobserved_value_vars]
    if var_names is None:
        return get_default_varnames(every, idata_kwargs.get("include_transformed", False))
    if isinstance(var_names, str):
        raise ValueError(f"var_names must be a list of names, as [{var_names!r}].")
    unknown = [name for name in var_names if name not in every]
    if unknown or len(var_names) == 0:
        raise ValueError(f"var_names must be some of {every}, not {unknown}.")
    return [name for name in every if name in var_names]


def reused(steps, evaluations):
    """Return what each step takes up of the evaluations of earlier runs."""
    if not evaluations:
        return [None] * len(steps)
    found = [step.reused(evaluations) for step in steps]
    if all(own is None for own in found):
        raise ValueError(f"reuse is for pk.EmulatorMetropolis, not {', '.join(map(repr, steps))}.")
    return found


def first_states(job, settings, random_seed, initvals, known):
    """Return the states of chains before their first draw, as pm.sample begins with them.

    And the settings, with what is settled of a run of limited evaluations. `known` is what each
    step takes up of earlier runs.
    """
    steps, budget = job.steps, Budget.of(job, settings)
    rngs = get_random_generator(random_seed).spawn(settings.chains)
    most = None if budget is None else budget.most
    if budget is not None:
        budget.first_lengths(0)  # raises if there are too few, before starts are evaluated
    follow = all(step.pool_tuning and step.search.follows for step in steps)
    n = 1 if follow and settings.max_concurrent > 1 else None  # as others begin elsewhere
    found = starts(job, [rng.integers(2**30) for rng in rngs], initvals, most, n)
    if all(step.pool_tuning and step.search.leads_from_best for step in steps):
        found = _best_first(found)
    tune, draws, ways, states = settings.tune, settings.draws, None, []
    if budget is not None:
        n_failed = sum(max(0, n - 1) for _, evaluated in found for n, _ in evaluated)
        tune, draws, settled, ways = budget.first_lengths(n_failed)
        settled_tune = tune if settled > NOTHING_SETTLED else None
        settings = settings.but(settled=settled, most_draws=draws, tune=settled_tune)
    ways = ways or [[NO_LIMIT] * len(steps)] * len(found)
    longest = [max(own) for own in zip(*ways, strict=True)]
    for k, (rng, (point, evaluated)) in enumerate(zip(rngs, found, strict=True)):
        own = job.copies()
        step_rngs = rng.spawn(len(own)) if len(own) > 1 else [rng]
        parts = zip(own, step_rngs, known, longest, ways[k], evaluated, strict=True)
        for step, step_rng, before, room, way, (n_made, noted) in parts:
            step.of_run = replace(step.of_run, known_before=before)
            step.search.longest_way = room
            step.setup_chain(step_rng, tune, draws)
            step.watch.turn(k if k < LOOKING_CHAINS else -1)
            begins_elsewhere = step.pool_tuning and k > 0 and step.search.is_one_of_many
            step.search.know_start(n_made, None if begins_elsewhere else noted)
            step.monitor.most_on_the_way, step.monitor.number = way, k
            step.monitor.spreads = initvals is None
            if budget is not None and (follow or settings.chains == 1):
                step.monitor.looks_for = most // len(own) if k == 0 else 0
        states.append(
            ChainState(steps[0].layout.raveled(point), [step.sampling_state for step in own])
        )
    return states, settings


def _best_first(found):
    """Return starts with the one first from which the way of all chains is shortest, as it seems.

    They are as they were where their log-densities are not known.
    """
    if any(noted is None for _, evaluated in found for _, noted in evaluated):
        return found
    logps = [sum(noted[0] for _, noted in evaluated) for _, evaluated in found]
    best, others = int(np.argmax(logps)), found.copy()
    return [others.pop(best), *others]
