"""Ops that run through Python: what they return, what they write, and what they raise."""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from models import box, standard_normal
from pytensor import wrap_py
from runs import sample

import pymc_kameleon as pk
from pymc_kameleon.model.python_calls import WrongReturn


def after(n, fails):
    """Return a log-density that fails from its n-th evaluation on."""
    left = n

    def function(x):
        nonlocal left
        left -= 1
        return standard_normal(x) if left > 0 else fails(x)

    return function


RAISED = ArithmeticError, LookupError, AssertionError, np.linalg.LinAlgError, RuntimeError


def note(fails, **options):
    """Return what is said of an exception, and the exception."""
    _, model = box(after(30, fails))
    with pytest.raises(RAISED) as info:
        sample(pk.baselines.RWM(model=model), chains=1, **options)
    return "".join(getattr(info.value, "__notes__", ["?"])[:1]), info.value


def looks_up(x):
    return {}["rate"]


def asserts(x):
    raise AssertionError  # as of a bare assert, to which pytest would add a text


def says_no_more(x):
    raise RuntimeError("code 7")


@pytest.mark.parametrize("fails", [looks_up, asserts, says_no_more])
def test_the_line_is_named(fails):
    said, error = note(fails)
    line = fails.__code__.co_firstlineno + 1
    where = f"line {line} of test_python_calls.py, in {fails.__name__}. If that is no mistake"
    assert f". The {type(error).__name__} was raised by {where}" in said
    assert 'let it return NaN instead, or pass on_error="reject"' in said


# ---- what is returned ---------------------------------------------------------------------------


def vector_of(function):
    """Build a model of five data around a function that is called through Python."""
    with pm.Model() as model:
        op = wrap_py(itypes=[pt.dscalar], otypes=[pt.dvector])(function)
        pm.Normal("y", op(pm.Normal("a")), observed=np.zeros(5))
    return model


class Switch:
    """What the black box of `returning` returns."""

    returned = None


@cache
def returning():
    return vector_of(lambda a: Switch.returned)


def test_another_shape_is_named():
    shapes = iter([5] * 20)

    def mean(a):
        return np.zeros(next(shapes, 4))

    with pytest.raises((ValueError, AssertionError), match="shape") as info:
        sample(pk.baselines.RWM(model=vector_of(mean)), chains=1)
    assert (
        "(FromFunctionOp{mean} returned shape (4,)): do the shapes fit" in info.value.__notes__[0]
    )


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (np.zeros((5, 1)), r"returned an array of shape \(5, 1\), but declares 1 dimension\."),
        (np.float64(1), "returned a number, no array, of float64"),
        (None, "returned NoneType, but declares float64"),
    ],
)
def test_what_numba_would_misread_is_refused(returned, message):
    """An array of more dimensions ended Python."""
    Switch.returned = returned
    with pytest.raises(WrongReturn, match=message):
        pk.baselines.RWM(model=returning())


def test_one_number_is_one_however_many_dimensions():
    with pm.Model() as model:
        op = wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])(lambda x: np.array([-x @ x]))
        pm.Potential("p", op(pm.Flat("x", shape=2)))
    assert pk.baselines.RWM(model=model).log_density(np.array([1.0, 2.0])) == -5


# ---- what is written ----------------------------------------------------------------------------


def test_an_op_that_writes_into_its_input_changes_nothing():
    def writes(x):
        x += x[1] > 2
        return x[:1].reshape(())

    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        op = wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])(writes)
        pm.Potential("p", op(x) - x[1])
    logp, q = pk.baselines.RWM(model=model).log_density, np.array([1.0, 3.0])
    assert [logp(q), logp(q)] == [-1, -1]  # x[0] + 1 - x[1]
    assert list(q) == [1, 3]
