"""What the author of a sampler is told when it is wrong."""

import inspect

import numpy as np
import pytest

import pymc_kameleon as pk

# ---- a gradient that nobody fills -----------------------------------------------------------


class Forgetful(pk.baselines.MALA):
    derivatives = 0


class Homeless(pk.baselines.RWM):
    derivatives = 1


class Narrow(pk.baselines.MALA):
    def _allocate(self, scales, n_tune):
        state, *others = super()._allocate(scales, n_tune)
        return state._replace(gradient=np.zeros(1)), *others


class Fickle(pk.baselines.RWM):
    def _allocate(self, scales, n_tune):
        state, *others = super()._allocate(scales, n_tune)
        kind = np.float32 if n_tune == 7 else np.float64
        return state._replace(logp=np.zeros(1, kind)), *others


def test_arrays_of_other_types_than_those_compiled_are_refused(mixed_model):
    step = Fickle(model=mixed_model, steps_per_draw=1)
    step.setup_chain(1, 8, 1)
    message = (
        r"_allocate of Fickle must return the same types.*State\.logp was array\(float64, 1d, C\)"
    )
    with pytest.raises(TypeError, match=message):
        step.setup_chain(1, 7, 1)


class Unfinished(pk.baselines.RWM):
    def _allocate(self, scales, n_tune):
        return super()._allocate(scales, n_tune)[:3]


@pytest.mark.parametrize(
    ("cls", "message"),
    [
        (Unfinished, r"_allocate of Unfinished must return \(state, parameters, tuning, work\)"),
        (Forgetful, r"Forgetful\.derivatives is 0.*Set derivatives = 1"),
        (Homeless, r"Homeless\.derivatives is 1.*must have a field `gradient`.*\(3,\)"),
        (Narrow, r"Narrow\.derivatives is 1.*must have a field `gradient`.*\(3,\)"),
    ],
)
def test_a_sampler_that_is_not_whole_is_refused(cls, message, mixed_model):
    with pytest.raises(TypeError, match=message):
        cls(model=mixed_model)


# ---- documentation --------------------------------------------------------------------------


class Terse(pk.baselines.RWM):
    """A walk.

    Parameters
    ----------
    {common parameters}
    """


def test_the_documentation_of_vars_may_be_left_out():
    said = inspect.getdoc(Terse)
    assert said.startswith("A walk.\n\nParameters\n----------\nvars : list of variables or ")
    assert said.index("own steps.\nsteps_per_draw : ") > 0
