"""A new run: its steps, and the first states of its chains, from the user's arguments."""

import numpy as np

from pymc_kameleon.model.pymc_internals import (
    coords_and_dims_for_inferencedata,
    get_default_varnames,
    get_random_generator,
)
from pymc_kameleon.model.watch import LOOKING_CHAINS
from pymc_kameleon.sampling.budget import NOTHING_SETTLED, Budget
from pymc_kameleon.sampling.starts_of_run import starts
from pymc_kameleon.step.job import ChainState
from pymc_kameleon.step.monitor import NO_LIMIT


class NewRun:
    """A run that begins afresh, with steps that move all variables of their model.

    `labels` has the user's ``coords`` and ``dims``, `evaluations` the Datasets of earlier runs that
    the steps are to reuse.
    """

    before, seconds = 0, 0.0  # draws after tuning that there are, and what they took
    n_checks = 0  # evaluations of the log-density that no draw counts
    lock = None  # of the store that a run goes on in

    def __init__(self, steps, settings, random_seed, initvals, labels, evaluations=()):
        if settings.draws + settings.tune == 0:
            raise ValueError("draws and tune are 0: there is nothing to do.")
        self.steps, self.numbers, self.settings = steps, list(range(settings.chains)), settings
        self._random_seed, self._initvals, self._labels = random_seed, initvals, labels
        self._evaluations = evaluations

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

    def release(self):
        """Release the store: there is none."""


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
        raise ValueError(
            "evaluations are for pk.EmulatorMetropolis, or for a pk.SurrogateMetropolis that moves "
            f"all variables, not {', '.join(map(repr, steps))}."
        )
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
        settings = settings.but(settled=settled, most_draws=draws)
        if settled > NOTHING_SETTLED:
            settings = settings.but(tune=tune)
    ways = ways or [[NO_LIMIT] * len(steps)] * len(found)
    longest = [max(own) for own in zip(*ways, strict=True)]
    for k, (rng, (point, evaluated)) in enumerate(zip(rngs, found, strict=True)):
        own = job.copies()
        step_rngs = rng.spawn(len(own)) if len(own) > 1 else [rng]
        for step, step_rng, before, way in zip(own, step_rngs, known, longest, strict=True):
            step.known_before, step.search.longest_way = before, way
            step.setup_chain(step_rng, tune, draws)
            step.watch.turn(k if k < LOOKING_CHAINS else -1)
        for step, (n, noted) in zip(own, evaluated, strict=True):
            begins_elsewhere = step.pool_tuning and k > 0 and step.search.is_one_of_many
            step.search.know_start(n, None if begins_elsewhere else noted)
        for step, way in zip(own, ways[k], strict=True):
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
