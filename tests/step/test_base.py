"""What the author of a sampler is told when it is wrong."""

import inspect

import numpy as np
import pytest
from numba.core.errors import NumbaError

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.step.make_draws import compiled_run

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


# ---- what numba cannot compile --------------------------------------------------------------


@jit
def allocates(target, state, parameters, work, rng):
    y = np.zeros(3)  # here
    return y[0], False


@jit
def returns(state):
    return state.x[1:]


@jit
def returns_an_array(target, state, parameters, work, rng):
    return returns(state)[0], False  # here


@jit
def assigns_a_slice(target, state, parameters, work, rng):
    n = int(rng.random())
    work.y[n:] = state.x[n:]  # here
    return 1.0, True


@jit
def computes_an_array(target, state, parameters, work, rng):
    work.y[:] = 2 * state.x  # here
    return 1.0, True


@jit
def misses_a_field(target, state, parameters, work, rng):
    return state.gradient[0], False  # here


@jit
def replaces_a_field(target, state, parameters, work, rng):
    state.logp = 1.0
    return 1.0, False


@jit
def adds_words(target, state, parameters, work, rng):
    return 1.0 + "a", False  # here


def plain(target, state, parameters, work, rng):
    return 0.0, False


@pytest.fixture(scope="module")
def step(mixed_model):
    return pk.baselines.RWM(model=mixed_model)


LEAN = "compiled with jit can neither allocate an array nor return one"


@pytest.mark.parametrize(
    ("transition", "function", "cause"),
    [
        (allocates, "allocates", LEAN),
        (returns_an_array, "returns", LEAN),
        (assigns_a_slice, "assigns_a_slice", "slice assignment is not possible"),
        (computes_an_array, "computes_an_array", LEAN),
        (misses_a_field, "misses_a_field", "State has no field gradient"),
        (replaces_a_field, "", "State.logp cannot be replaced"),
        (adds_words, "adds_words", r"numba knows no add.*str"),
        (plain, "", r"transition is a plain function\. Decorate it with jit"),
    ],
)
def test_what_cannot_be_compiled_is_explained(transition, function, cause, step, monkeypatch):
    monkeypatch.setattr(
        step, "algorithm", pk.baselines.RWM.algorithm._replace(transition=transition)
    )
    with pytest.raises(TypeError, match=cause) as error:
        compiled_run([step])
    message = str(error.value)
    assert message.startswith("The transitions of RWM cannot be compiled")
    assert "\n" not in message
    assert isinstance(error.value.__cause__, NumbaError | NotImplementedError)
    if function:
        lines, first = inspect.getsourcelines(transition.py_func)
        here = first + next(i for i, line in enumerate(lines) if "# here" in line)
        assert f"{function} at " in message
        assert f"test_base.py, line {here}: " in message
