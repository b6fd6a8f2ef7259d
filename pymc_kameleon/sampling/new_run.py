"""A new run: its steps, and the first states of its chains, from the user's arguments."""

import numpy as np
from pytensor.graph import Variable

from pymc_kameleon.model.pymc_internals import (
    coords_and_dims_for_inferencedata,
    get_default_varnames,
    get_random_generator,
    make_initial_point_fns_per_chain,
)
from pymc_kameleon.model.starts import finite_point, jittered
from pymc_kameleon.step.job import ChainState


class NewRun:
    """A run that begins afresh.

    Parameters
    ----------
    steps : list of KameleonStep
        They move all variables of their model.
    settings : Settings
    random_seed, initvals
        As of `pk.sample`.
    labels : dict
        Coordinates and dimensions of the user's own, ``coords`` and ``dims``.
    """

    before, seconds = 0, 0.0  # draws after tuning that there are, and what they took
    n_checks = 0  # evaluations of the log-density that no draw counts
    lock = None  # of the store that a run goes on in

    def __init__(self, steps, settings, random_seed, initvals, labels):
        if settings.draws + settings.tune == 0:
            raise ValueError("draws and tune are 0: there is nothing to do.")
        self.steps, self.settings, self.numbers = steps, settings, list(range(settings.chains))
        self._random_seed, self._initvals, self._labels = random_seed, initvals, labels

    def labels(self, outputs):
        """Return coordinates and dimensions of what is kept of draws."""
        coords, dims = coords_and_dims_for_inferencedata(self.steps[0].model)
        return coords | self._labels.get("coords", {}), dims | self._labels.get("dims", {})

    def begin(self, job):
        """Return the states of chains before their first draw, and the settings."""
        return first_states(job, self.settings, self._random_seed, self._initvals), self.settings

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


def first_states(job, settings, random_seed, initvals):
    """Return the states of chains before their first draw, as pm.sample begins with them."""
    steps = job.steps
    rngs = get_random_generator(random_seed).spawn(settings.chains)
    starts = _starts(steps, [rng.integers(2**30) for rng in rngs], initvals)
    states = []
    for rng, (point, evaluated) in zip(rngs, starts, strict=True):
        own = [step.for_chain() for step in steps]
        step_rngs = rng.spawn(len(own)) if len(own) > 1 else [rng]
        for step, step_rng in zip(own, step_rngs, strict=True):
            step.setup_chain(step_rng, settings.tune, settings.draws)
        for step, (n, logp) in zip(own, evaluated, strict=True):
            step.start_known(n, logp)
        states.append(
            ChainState(steps[0].layout.raveled(point), [step.sampling_state for step in own])
        )
    return states


def _check_initvals(initvals, model):
    """Raise a ValueError if initial values are not by name, or not of the model's variables."""
    every = [initvals] if isinstance(initvals, dict) else initvals
    if not isinstance(every, list | tuple) or any(not isinstance(d or {}, dict) for d in every):
        raise ValueError(
            "initvals must be a dict, {name: value}, or a list with one for each chain, not "
            f"{initvals!r}."
        )
    known = {var.name: var.type.shape for var in (*model.free_RVs, *model.value_vars)}
    for values in every:
        values = {name: v for name, v in (values or {}).items() if isinstance(name, str)}
        unknown = [name for name in values if name not in known]
        if unknown:
            raise ValueError(f"initvals names {unknown}; the model has {', '.join(known)}.")
        for name, value in values.items():
            if not isinstance(value, str | Variable):
                _check_shape(name, np.shape(value), known[name])


def _check_shape(name, found, shape):
    """Raise a ValueError if a start has another shape, in which None is any length."""
    if len(found) != len(shape) or any(
        n not in (None, own) for n, own in zip(shape, found, strict=True)
    ):
        raise ValueError(f"The start of {name} has shape {found}, not {shape}.")


def _starts(steps, seeds, initvals):
    """Return a point on the unconstrained scale for each chain, and what was evaluated for it.

    That is, of each step, how often its log-density, and what it is there; None if it was not.
    """
    model = steps[0].model
    if initvals is None:
        copies = [step.for_chain() for step in steps]
        for step in copies:  # data may have been set since it was made
            step.log_density.read_data()

        def logp(point):
            """Be -inf outside the region of any step."""
            q = steps[0].layout.raveled(point)
            try:
                values[:] = [step.log_density(q[step.layout.places]) for step in copies]
            except Exception as error:
                advice = copies[0].log_density.advice(error)
                error.add_note(f"In chain {len(starts)}, looking for a start, at {point}{advice}")
                raise
            return min(values)

        draw, starts, values = jittered(model), [], []
        for seed in seeds:
            for step in copies:
                step.log_density.count[0] = 0
            point = finite_point(draw, logp, np.random.default_rng(seed), "jitter", model)
            counts = [int(step.log_density.count[0]) for step in copies]
            starts.append((point, list(zip(counts, values, strict=True))))
        return starts
    _check_initvals(initvals, model)
    functions = make_initial_point_fns_per_chain(
        model=model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    points = [function(seed) for function, seed in zip(functions, seeds, strict=True)]
    for step in steps:
        for name, shape in step.layout.shapes.items():
            for point in points:
                _check_shape(name, np.shape(point[name]), shape)
    return [(point, [(0, None)] * len(steps)) for point in points]
