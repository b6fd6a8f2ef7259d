"""Where the chains of a new run start: what ``initvals`` of ``pk.sample`` may be."""

import numpy as np
from pytensor.graph import Variable

from pymc_kameleon.findings.finding import say
from pymc_kameleon.model.pymc_internals import make_initial_point_fns_per_chain
from pymc_kameleon.model.starts import (
    finite_point,
    jittered,
    starts_from_prior,
)


def starts(job, seeds, initvals, most=None, n_looked_at=None):
    """Return a point on the unconstrained scale for each chain, and what was evaluated for it.

    That is values by name; and of each step, how often its log-density, and what it is there, with
    what the way to the posterior notes besides, None if it was not.

    There is a seed for each chain. `most` limits the evaluations, those that chains are to make
    included. The first `n_looked_at` starts, by default all, are drawn until the log-density is
    finite there.
    """
    steps, model = job.steps, job.steps[0].model
    if initvals is None:
        return _finite_points(job, seeds, "jitter", jittered(model), most, n_looked_at)
    if isinstance(initvals, str) and initvals == "prior":
        return _finite_points(job, seeds, "prior", starts_from_prior(model), most, n_looked_at)
    points = _as_told(steps, seeds, _known(initvals, model))
    return [(point, _not_looked_at(job)) for point in points]


def _finite_points(job, seeds, how, draw, most=None, n=None):
    """Return starts that a function of a seed draws, the first n where logp is finite, or all."""
    model, logp, found = job.steps[0].model, Density(job, most), []
    for chain, seed in enumerate(seeds[:n]):
        logp.where = f"In chain {chain}, looking for a start"
        point = finite_point(draw, logp, np.random.default_rng(seed), how, model, logp.failures)
        found.append((point, logp.take_evaluated()))
    logp.say_what_was_rejected()
    others = [] if n is None else map(draw, seeds[n:])
    return found + [(point, _not_looked_at(job)) for point in others]


def _not_looked_at(job):
    return [(0, None)] * len(job.steps)


class Density:
    """The log-density at points that are values by name: -inf outside the region of any step."""

    def __init__(self, job, most=None):
        self._steps, self._layout, self.where = job.copies(), job.steps[0].layout, ""
        self._values, self.failures, self._left = [], [], most
        for step in self._steps:
            step.log_density.read_data()

    def __call__(self, point):
        """Return it."""
        q = self._layout.raveled(point)
        if self._left is not None:
            self._left -= len(self._steps)
            if self._left < 0:
                raise ValueError("max_evaluations are too few: not all chains have a start.")
        try:
            self._values = [step.log_density(q[step.layout.places]) for step in self._steps]
        except Exception as error:
            advice = self._steps[0].log_density.advice(error)
            error.add_note(f"{self.where}, at {point}{advice}")
            raise
        self.failures += filter(None, (step.log_density.failure for step in self._steps))
        return min(self._values)

    def say_what_was_rejected(self):
        """Warn of points that were rejected, as the likelihood raised or took too long."""
        if n := len(self.failures):
            points = "1 point was" if n == 1 else f"{n} points were"
            say("rejected_starts", points=points, failure=self.failures[0])

    def take_evaluated(self):
        """Return how often each step's was evaluated since the last time, and what it is now.

        With what the way to the posterior notes besides.
        """
        counts, noted = [], []
        for step, value in zip(self._steps, self._values, strict=True):
            counts.append(int(step.log_density.count[0]))
            step.log_density.count[0] = 0
            noted.append(np.append(value, step.log_density.gradient[: step.search.n_noted]))
        return list(zip(counts, noted, strict=True))


# ---- values -------------------------------------------------------------------------------------


def _as_told(steps, seeds, initvals):
    """Return the points of values by name, as pm.sample begins with them."""
    functions = make_initial_point_fns_per_chain(
        model=steps[0].model, overrides=initvals, jitter_rvs=set(), chains=len(seeds)
    )
    points = [function(seed) for function, seed in zip(functions, seeds, strict=True)]
    for step in steps:
        for name, shape in step.layout.shapes.items():
            for point in points:
                _check_shape(name, np.shape(point[name]), shape)
    return points


def _known(initvals, model):
    """Return initial values without deterministics, which follow from the others."""
    every = [initvals] if isinstance(initvals, dict) else initvals
    if not isinstance(every, list | tuple) or any(not isinstance(d or {}, dict) for d in every):
        raise ValueError(
            "initvals must be a dict, {name: value}, or a list with one for each chain, or "
            f'"prior", not {initvals!r}.'
        )
    shapes = {name: tuple(map(int, shape)) for name, shape in model.eval_rv_shapes().items()}
    follow = {*model.deterministics, *(var.name for var in model.deterministics)}
    every = [{k: v for k, v in (own or {}).items() if k not in follow} for own in every]
    for values in every:
        _check_values(values, shapes)
    return every[0] if isinstance(initvals, dict) else every


def _check_values(values, shapes):
    values = {name: value for name, value in values.items() if isinstance(name, str)}
    if unknown := [name for name in values if name not in shapes]:
        raise ValueError(f"initvals names {unknown}; the model has {', '.join(shapes)}.")
    for name, value in values.items():
        if not isinstance(value, str | Variable):
            _check_shape(name, np.shape(value), shapes[name])


def _check_shape(name, found, shape):
    """Raise a ValueError if a start has another shape."""
    if found != shape:
        raise ValueError(f"The start of {name} has shape {found}, not {shape}.")
