"""Unbound steps as the samplers that PyMC plans, as its drafts describe them.

pymc-devs/pymc #7880, #8353 and #8358, none of which is in a release: the constructor takes what
belongs to the algorithm, and knows no model. ``pm.sample(sampler=...)`` hands it the model and what
belongs to the run, by the method `sample_from_init`, whose arguments are keywords of ``pm.sample``
and no others. An argument that a sampler cannot do anything about is refused, not ignored.
"""

import inspect
import pickle
from abc import ABC, abstractmethod

import models
import numpy as np
import pymc as pm
import pytest

import pymc_kameleon as pk
from pymc_kameleon.model.pymc_internals import Sampler
from pymc_kameleon.sampling import planned_sampler
from pymc_kameleon.step.unbound import UnboundStep

SHORT = {"draws": 20, "tune": 20, "chains": 2, "random_seed": 1, "progressbar": False}
SHORT |= {"compute_convergence_checks": False}

RUN = {
    "model",
    "draws",
    "tune",
    "chains",
    "cores",
    "initvals",
    "random_seed",
    "progressbar",
    "quiet",
    "discard_tuned_samples",
    "keep_warning_stat",
    "var_names",
    "idata_kwargs",
    "compute_convergence_checks",
}
"""What belongs to a run in every draft."""

UNDECIDED = {"compile_kwargs", "blas_cores"}
"""What belongs to it in one draft and not in another."""


class Planned(ABC):
    """The base class that PyMC plans."""

    @abstractmethod
    def sample_from_init(self, *, model, **run): ...


def planned_sample(draws=1000, *, sampler, model=None, tune=None, **run):
    """What ``pm.sample(sampler=...)`` is to do."""
    assert set(run) <= RUN | UNDECIDED
    return sampler.sample_from_init(model=pm.modelcontext(model), draws=draws, tune=tune, **run)


@pytest.mark.slow
@pytest.mark.parametrize("step", [pk.GAM.options(steps_per_draw=3), pk.MALA.options("x")])
def test_a_sampler_is_made_without_a_model_and_serves_several(step):
    for model in models.normal(2), models.normal(3):
        with model:
            found = planned_sample(sampler=step, **SHORT)
        expected = pk.sample(step=step, model=model, **SHORT)
        np.testing.assert_array_equal(found["posterior"]["x"], expected["posterior"]["x"])
    assert "methods" not in vars(step)  # it is bound to none of them
    assert repr(pickle.loads(pickle.dumps(step))) == repr(step)


def test_it_takes_what_belongs_to_the_run_and_nothing_else():
    parameters = inspect.signature(UnboundStep.sample_from_init).parameters
    assert set(parameters) - {"self"} == RUN | UNDECIDED
    kinds = {parameter.kind for name, parameter in parameters.items() if name != "self"}
    assert kinds == {inspect.Parameter.KEYWORD_ONLY}  # and so no **others
    assert not (RUN | UNDECIDED) - inspect.signature(pm.sample).parameters.keys()
    ours = inspect.signature(pk.sample).parameters
    for name in set(parameters) & set(ours):
        assert parameters[name].default == ours[name].default, name


def test_everything_that_it_is_given_reaches_the_run(monkeypatch):
    given = {}

    def sample(draws, **run):
        given.update(run, draws=draws)

    monkeypatch.setattr(planned_sampler, "sample", sample)
    step, values = pk.GAM.options(), {name: object() for name in RUN | {"compile_kwargs"}}
    step.sample_from_init(**values)
    assert given == values | {"step": step}
    with pytest.raises(ValueError, match="blas_cores=4 is impossible: each chain has one thread"):
        step.sample_from_init(model=models.normal(2), blas_cores=4)


def test_it_is_an_instance_of_what_pymc_will_ask_for():
    assert isinstance(pk.GAM.options(), Sampler)
    assert not isinstance(pk.GAM(model=models.normal(2)), Sampler)  # has a model
    Planned.register(UnboundStep)
    assert isinstance(pk.GAM.options(), Planned)
    assert not Planned.__abstractmethods__ - set(dir(UnboundStep))
