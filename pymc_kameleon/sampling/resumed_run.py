"""A run that goes on: steps and chains from a result, and whether the model is what it was."""

import json
import logging
from pathlib import Path

import numpy as np
import xarray as xr

from pymc_kameleon.findings.words import counted, grouped
from pymc_kameleon.model.black_box_calls import taking_notes
from pymc_kameleon.model.noise import REPEATABLE
from pymc_kameleon.model.pymc_internals import coords_and_dims_for_inferencedata
from pymc_kameleon.result.state import DATA_CHANGED, UNREADABLE, Saved, arrays_in, unpack
from pymc_kameleon.result.steps import check_same_step, rebuilt_step
from pymc_kameleon.result.store import locked, saved_store
from pymc_kameleon.samplers.choice import check_whole
from pymc_kameleon.sampling.budget import (
    ALL_SETTLED,
    LEAST_DRAWS,
    NOTHING_SETTLED,
    TUNING_SETTLED,
    Budget,
    with_lengths,
)
from pymc_kameleon.sampling.settings import Settings
from pymc_kameleon.step.groups import (
    AHEAD,
    BEHIND,
    LEARNED_GROUP,
    STATE_GROUP,
    WARMUP_POSTERIOR,
    WARMUP_STATS,
)

_log = logging.getLogger("pymc_kameleon")

NEEDED_ATTRIBUTES = "settings", "steps", "data", "draws_kept", "tuning_kept", "chains_kept"
"""Attributes without which a run cannot go on: what it was told, and what a result has of it."""


class ResumedRun:
    """A run that resumes an earlier one. It has what a `NewRun` has.

    `result` is a DataTree, or the Path of a store in which the run goes on. `steps`, `draws` and
    `evaluations` are as of `pk.resume`. By default, `most` draws are added to a run that has made
    all. It may end before them if it goes on `until_enough`. `store` is the Path of a new one.
    """

    def __init__(self, model, result, steps, draws, most, until_enough, evaluations, store):
        self._asked, self._most, self._until_enough = draws, most, until_enough
        self._evaluations, self.store = evaluations, store
        self.path = result if isinstance(result, Path) else None
        self.lock = None if self.path is None else locked(self.path)
        try:
            self._saved = saved = saved_tree(result) if self.path is None else saved_store(result)
            before = Settings.read(saved.plan)
            self.steps, self.numbers = _steps_of_run(saved.plan, steps, model), saved.numbers
            self.settings = before.but(max_evaluations=evaluations)
        except BaseException:
            if self.lock is not None:
                self.lock.release()
            raise
        drawn = saved.draws.get("posterior", saved.draws.get(WARMUP_STATS))
        self.seconds = 0.0 if drawn is None else float(drawn.attrs.get("sampling_time", 0.0))

    @property
    def before(self):
        """Draws after tuning that there are, to which more are added."""
        if self._saved.plan["draws_kept"] >= 0:
            return int(self._saved.plan["draws_kept"])
        return max(max(0, state.monitor.done - state.monitor.tune) for state in self._states)

    def labels(self, outputs):
        """Return coordinates and dimensions of the draws so far, or the model's.

        Raises a ValueError unless draws so far and new ones have the same shape and meaning.
        """
        model_coords, model_dims = coords_and_dims_for_inferencedata(self.steps[0].model)
        self._check_same(outputs, model_coords)
        for group in ("posterior", WARMUP_POSTERIOR):
            if group in self._saved.draws:
                found = self._saved.draws[group]
                kept = {k: v.values for k, v in found.coords.items() if k not in ("chain", "draw")}
                own = {name: list(found[name].dims[2:]) for name in found.data_vars}
                return model_coords | kept, model_dims | own
        return model_coords, model_dims

    def begin(self, job):
        """Return the states where the chains stopped, and the settings from now on."""
        self._states = states = [unpack(self.steps, arrays) for arrays in self._saved.arrays]
        settings, self.n_checks = self._with_limit(job).but(chains=len(states)), 0
        budget = Budget.of(job, settings)
        is_free = budget is None or not job.holds_gil
        if is_free or budget.left(states) >= len(states):  # else no chain makes a draw either
            for state in states:
                n = _check_same_density(job, state)
                state.monitor.checks += n if job.holds_gil else 0
                self.n_checks += n
            if self.path is None:
                _check_untouched(self._saved, job, states)
        tune = states[0].monitor.tune
        if budget is None:
            draws = self.before + (self._draws_left() if self._asked is None else self._asked)
            settings = settings.but(draws=draws, tune=tune)
        else:
            settings, tune, draws = self._limited(budget, settings, tune)
        return [with_lengths(job.steps, state, tune, draws) for state in states], settings

    def _with_limit(self, job):
        """Return the settings with the evaluations that may be made, those before too."""
        settings = self.settings
        if self._evaluations is not None:
            spent = sum(state.evaluations + state.checks for state in self._states)
            spent += settings.evaluations_before
            settings = settings.but(max_evaluations=spent + self._evaluations)
        if settings.max_evaluations and job.holds_gil:  # steps may have been made again
            self._states[0].monitor.checks += sum(step.n_trials for step in job.steps)
        return settings

    def _limited(self, budget, settings, tune):
        """Return settings, and draws of tuning and after it, of a run of limited evaluations."""
        states, before, settled = self._states, self.before, settings.settled
        goes_on = self._asked is None and self._evaluations is None  # with what is left
        if settled > NOTHING_SETTLED:
            tune = settings.tune
        if self._asked is not None:
            budget.draws = before + self._asked
        elif self._evaluations is not None:
            budget.draws = before + budget.room(self._evaluations)
        settings = settings.but(most_draws=budget.draws)
        least = tune if settled > NOTHING_SETTLED else min(tune, LEAST_DRAWS)
        affordable = budget.draws_to_the_end(states, states, least)
        if affordable <= before and not goes_on:
            n, left = counted(len(states), "chain"), grouped(max(0, budget.left(states)))
            raise ValueError(
                f"The evaluations do not suffice for a draw of each of {n}: {left} are left, "
                "beside those that show that the model is what it was. Pass a larger "
                "max_evaluations=, which counts from now on."
            )
        tuned = all(state.monitor.done >= tune for state in states)
        if settled == NOTHING_SETTLED or (settled == TUNING_SETTLED and not tuned):
            return settings, tune, budget.draws
        if goes_on and settled == ALL_SETTLED:
            affordable = min(settings.draws, affordable)
        draws = max(before, affordable)
        if draws == before:
            _log.info(
                "The run has made its evaluations: pass max_evaluations= to let it make more."
            )
        return settings.but(draws=draws, tune=tune, settled=ALL_SETTLED), tune, draws

    def _draws_left(self):
        """Return how many draws to add by default, and log why if none were left."""
        before, planned = self.before, self.settings.draws
        monitors = [state.monitor for state in self._states]
        ended = all(monitor.done >= monitor.tune + planned for monitor in monitors)
        if before < planned or not (ended or self._until_enough):
            return max(0, planned - before)
        # A script that is started again is to finish, and not to add.
        draws = self._most if self.path is None or self._until_enough else 0
        at_most = "at most " if self._until_enough else ""
        _log.info(
            f"The run had already made all its draws, {grouped(before)} of each chain. It makes "
            f"{at_most}{grouped(draws)} more; draws= sets another number."
        )
        return draws

    def put_draws_into(self, record):
        """Keep the draws so far."""
        saved = self._saved
        for group, variables in record.columns.groups.items():
            for part in (group, AHEAD + group, BEHIND + group):
                found = saved.draws.get(part)
                if found is not None and found.sizes["draw"] > 0:
                    start = int(found["draw"].values[0])
                    rows = [saved.numbers.index(number) for number in found["chain"].values]
                    for name in variables:
                        for row, values in zip(rows, found[name].values, strict=True):
                            record.put(row, start, group, name, values)

    def _check_same(self, outputs, coords):
        saved = self._saved
        if saved.plan["data"] != outputs.digest.hex():
            raise ValueError(f"pk.resume needs the same data: {DATA_CHANGED}.")
        if "posterior" not in saved.draws:
            return
        posterior = saved.draws["posterior"]
        for name, (shape, _) in outputs.variables.items():
            if name not in posterior or posterior[name].shape[2:] != shape:
                raise ValueError(
                    f"pk.resume needs the same model: {name} did not have shape {shape}."
                )
        for name, values in coords.items():
            here = posterior.coords.get(name)
            if here is not None and list(here.values) != list(np.asarray(values)):
                raise ValueError(
                    f"pk.resume needs the same model: the coordinate {name} has changed."
                )


# ---- what a result has of its run ---------------------------------------------------------------


def saved_tree(result):
    """Return what a result of pk.sample holds of its run; raise a ValueError if it is of others."""
    if not isinstance(result, xr.DataTree):
        raise ValueError(
            "pk.resume takes a DataTree, which xarray.load_datatree reads from a file, or the path "
            f"of a store, not {result!r}."
        )
    if STATE_GROUP not in result.children:
        raise ValueError(
            f"pk.resume takes a result of pk.sample; this one has no group {STATE_GROUP!r}. For a "
            "store, pass its path."
        )
    result.load()
    result.close()  # so that the new result may be written over the file
    states = result[STATE_GROUP].to_dataset()
    if not states.data_vars:
        raise ValueError(
            "The result was read from a store, which alone has the states of the chains: pass its "
            "path to pk.resume."
        )
    lacking = [key for key in NEEDED_ATTRIBUTES if key not in states.attrs]
    if lacking:
        raise ValueError(
            f"The result has no {lacking} in 'sampling_state': it was changed, or is of another "
            "version of pymc_kameleon."
        )
    if "chain" not in states.dims:
        raise ValueError("The result has no dimension chain. Select one as dt.isel(chain=[0]).")
    numbers = states["chain"].values.tolist()
    try:
        arrays = [arrays_in(room) for room in states["state"].values]
    except UNREADABLE as error:
        raise ValueError(
            f"The states in 'sampling_state' cannot be read ({error}): they were changed, or are "
            "of another version of pymc_kameleon."
        ) from None
    no_draws = LEARNED_GROUP, STATE_GROUP
    draws = {name: result[name].to_dataset() for name in result.children if name not in no_draws}
    return Saved(states.attrs, numbers, arrays, draws)


def _steps_of_run(plan, steps, model):
    """Return the steps of a run, those given or rebuilt."""
    descriptions = json.loads(plan["steps"])
    if steps is None:
        steps = [rebuilt_step(description, model) for description in descriptions]
    elif len(steps) != len(descriptions):
        raise ValueError(
            f"pk.resume needs the same steps: there were {len(descriptions)}, and now {len(steps)}."
        )
    for step, description in zip(steps, descriptions, strict=True):
        check_same_step(step, description)
    check_whole(steps, model)
    return steps


# ---- whether all is as it was -------------------------------------------------------------------


def _check_untouched(saved, job, states):
    """Raise a ValueError if draws or chains were taken out of a result, moved, or changed.

    The last draws are compared with what the states of their chains give.
    """
    kept, tuned = saved.plan["draws_kept"], saved.plan["tuning_kept"]
    chains = json.loads(saved.plan["chains_kept"])
    chains = [number for number in saved.numbers if number in chains]
    lengths = {"posterior": kept, "sample_stats": kept, WARMUP_STATS: tuned}
    if job.keeps_warmup:
        lengths[WARMUP_POSTERIOR] = tuned
    if (first := job.steps[0]).statistics.kept:
        lengths[first.keeps.group] = kept
    for group, had in lengths.items():
        found = saved.draws.get(group)
        draws, numbers = np.arange(0), chains
        if found is not None:
            draws, numbers = np.atleast_1d(found["draw"]), np.atleast_1d(found["chain"]).tolist()
        if not np.array_equal(draws, np.arange(had)) or numbers != chains:
            raise ValueError(
                f"pk.resume needs the whole result, in its order: its group {group} has "
                f"{draws.size} draws of the chains {numbers}, and the run had {had} of {chains}. "
                "Thin, cut or sort it after resuming."
            )
    last = saved.draws.get("posterior")
    for number, state in zip(saved.numbers, states, strict=True):
        if number not in chains or state.monitor.done - state.monitor.tune != kept or kept == 0:
            continue
        with taking_notes(state.point, state.noted):
            values = job.outputs.at(state.point)
        for name, value in values.items():
            before = last[name].sel(chain=number).values[-1]
            if not np.allclose(before, value, rtol=1e-5, atol=1e-8, equal_nan=True):
                raise ValueError(
                    f"pk.resume needs the draws as they were made: the last one of {name} in chain "
                    f"{number} is not where the chain stopped, which is at {value}. "
                    "Were draws or chains changed, or put in another order?"
                )


def _check_same_density(job, state):
    """Raise a ValueError if the log-density is not what it was, and not noisy.

    Returns the evaluations that this took. The state knows what black boxes return there.
    """
    step = job.steps_at(state)[-1]
    if step.point is None or step.pseudo_marginal:
        return 0
    q, before = state.point[step.layout.places], step.state.logp[0]
    with taking_notes(state.point) as notes:
        now = step.log_density(q)
    state.noted = notes.at(state.point)
    if np.isclose(now, before, rtol=REPEATABLE, atol=REPEATABLE):
        return 1
    if now == step.log_density(q):
        raise ValueError(
            "pk.resume needs the same model and data: the log-density of the last draw was "
            f"{before:.8g}, and is {now:.8g} now."
        )
    return 2
