"""``pk.black_box``: a function in a model, of one evaluation or with a row for each of many."""

import doctest
import pickle
import threading
from dataclasses import dataclass
from functools import partial, wraps

import cloudpickle
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.gathering import Gathering, RunEnded, in_turn, out_of_turn
from pymc_kameleon.model.python_calls import WrongReturn


@pk.black_box
def growth(rate, capacity):
    """Sizes of a colony."""
    return capacity / (1 + (capacity - 1) * np.exp(-rate * np.arange(3.0)))


class Unhashable(list):
    def __call__(self, x):
        return x


@dataclass(frozen=True)
class Frozen:
    """It seems to have a hash, which is that of its field."""

    times: np.ndarray

    def __call__(self, x):
        return x * self.times


def with_rate(function):
    @wraps(function)
    def inner(capacity):
        return function(0.5, capacity)

    return inner


def seeded(function):
    @wraps(function)
    def inner(a, b):
        return function(a, b, 0.0)

    return inner


@pk.black_box(ndim=(1, 0), batched=True)
def two(x, k):
    return k[:, None] * x, x.sum(axis=1)


batched = partial(pk.black_box, batched=True)
evaluated = partial(pytensor.function, mode="FAST_COMPILE")


def value_of(op, *inputs):
    storage = [[None]]
    op.perform(None, [np.asarray(value) for value in inputs], storage)
    return storage[0][0]


# ---- a function ---------------------------------------------------------------------------------


def test_a_decorator_may_change_what_a_function_takes():
    @pk.black_box
    @seeded
    def line(a, b, seed):
        return np.atleast_1d(a + b + seed)

    assert evaluated([], line(1.0, b=2.0))() == [3.0]
    with pytest.raises(TypeError, match=r"`line` .*seed"):
        line(1.0, 2.0, seed=3.0)


def test_the_example_of_its_docstring():
    found = doctest.DocTestFinder().find(pk.black_box, globs={"np": np, "pk": pk, "pm": pm})
    assert all(doctest.DocTestRunner().run(own).failed == 0 for own in found)


@pytest.mark.parametrize(
    "call",
    [
        lambda rate: growth(rate, 4.0),
        lambda rate: growth(capacity=4, rate=rate),
        lambda rate: growth(rate, np.array(4.0)),
        lambda rate: growth(rate, pt.constant(4.0)),
        lambda rate: pk.black_box(lambda x, *, k=0: growth.function(*x))([rate, 4.0]),
        lambda rate: pk.black_box(lambda a, b=4.0, c=9.0: growth.function(a, b))(rate, c=1),
    ],
)
def test_it_takes_variables_arrays_and_numbers_by_position_or_by_name(call):
    rate = pt.dscalar("rate")
    out = call(rate)
    assert (out.type.ndim, out.type.dtype) == (1, "float64")
    value = evaluated([rate], out)(0.5)
    np.testing.assert_array_equal(value, growth.function(0.5, 4.0))


@pytest.mark.parametrize(
    ("inputs", "named", "says"),
    [
        ((1.0,), {}, "`growth` missing a required argument: 'capacity'"),
        ((1.0, 2.0, 3.0), {}, "`growth` too many positional arguments"),
        ((1.0,), {"size": 2.0}, "`growth` missing a required argument: 'capacity'"),
        ((1.0, "abc"), {}, "takes random variables, arrays, and numbers, not 'abc'"),
        ((1.0, {"a": 1}), {}, "takes random variables, arrays, and numbers, not {'a': 1}"),
    ],
)
def test_how_it_is_called_is_looked_at(inputs, named, says):
    with pytest.raises(TypeError, match=says):
        growth(*inputs, **named)


def test_what_is_passed_by_name_alone_is_refused():
    with pytest.raises(TypeError, match="`<lambda>` takes k by name alone"):
        pk.black_box(lambda x, *, k: k * x)(1.0, k=2.0)


def test_names_are_not_lost_where_nobody_knows_them():
    """Of a function in C, which may not say what it takes."""
    assert value_of(pk.black_box(max, ndim=0), [1.0, 2.0]) == 2.0
    with pytest.raises(TypeError, match=r"`max` does not say .* pass nonsense by position"):
        pk.black_box(max, ndim=0)(pt.dvector(), nonsense=1.0)


def test_what_is_masked_is_nan():
    masked = np.ma.masked_array([1, 2, 3], [0, 1, 0])
    np.testing.assert_array_equal(value_of(pk.black_box(lambda: masked)), [1, np.nan, 3])


def test_what_it_returns_may_be_used_by_it_again():
    buffer, x = np.zeros(1), pt.dvector("x")

    @pk.black_box
    def reused(x):
        buffer[:] = x
        return buffer

    first, second = evaluated([x], [reused(x), reused(x + 1)])([1.0])
    assert (first.tolist(), second.tolist()) == ([1.0], [2.0])


def test_it_is_named_and_described_as_the_function():
    assert black_boxes([growth(1.0, pt.dscalar())]) == ["growth"]
    assert (growth.__name__, growth.__doc__, str(growth)) == (
        "growth",
        "Sizes of a colony.",
        "growth",
    )
    assert str(pk.black_box(partial(np.power, 2.0))) == "partial"


def test_it_may_return_several_arrays():
    x = pt.dvector("x")
    outputs = pk.black_box(lambda x: (x.sum(), np.outer(x, x), [1, 2]), ndim=(0, 2, 1))(x)
    assert [out.type.ndim for out in outputs] == [0, 2, 1]
    total, outer, numbers = evaluated([x], outputs)([1.0, 2.0])
    assert (total, outer.tolist(), numbers.tolist()) == (3.0, [[1, 2], [2, 4]], [1.0, 2.0])


@pytest.mark.parametrize("returned", [2, 2.0, np.float32(2), np.array([2]), True + True])
def test_a_number_is_one_of_any_kind(returned):
    value = value_of(pk.black_box(lambda: returned, ndim=0))
    assert (value.dtype, value.shape, float(value)) == (np.float64, (), 2.0)


@pytest.mark.parametrize(
    ("returned", "options", "says"),
    [
        (np.ones((2, 3)), {}, r"shape \(2, 3\). .* shape \(\?,\), or .* @pk.black_box\(ndim=2\)"),
        (1.0, {}, r"shape \(\). .* @pk.black_box\(ndim=0\)"),
        ([1.0, 2.0], {"ndim": 0}, r"shape \(2,\). .* @pk.black_box\(ndim=1\)"),
        (np.ones(2, complex), {}, "returned complex128. Let it return real numbers"),
        (None, {}, "`<lambda>` returned NoneType. Let it return real numbers"),
        ([[1.0], [1.0, 2.0]], {}, "returned what is no array: .*inhomogeneous"),
        (np.nan, {}, r"shape \(\?,\), with NaN everywhere, as by np.full"),
        (np.ones(2), {"ndim": (1, 1)}, r"1 array, but declares ndim=\(1, 1\)"),
        ((np.ones(2),) * 3, {"ndim": (1, 1)}, "3 arrays, but declares"),
    ],
)
def test_what_it_returns_is_looked_at(returned, options, says):
    with pytest.raises(WrongReturn, match=says):
        value_of(pk.black_box(lambda: returned, **options))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"function": 3.0}, "takes a function, not 3.0"),
        ({"function": np.copy, "ndim": -1}, "must be a number of dimensions, .* not -1"),
        ({"function": np.copy, "ndim": (1, "0")}, r"not \(1, '0'\)"),
        ({"function": np.copy, "ndim": ()}, r"not \(\)"),
        ({"function": pt.sin, "ndim": 0}, "Of an Op it takes what pytensor.function compiles"),
        ({"function": growth}, "`growth` is a black box already"),
        ({"function": np.copy, "batched": "yes"}, "batched of black_box must be True or False"),
        ({"function": Unhashable()}, "takes what has a hash, .* and Unhashable has none"),
        ({"function": Frozen(np.ones(2))}, "takes what has a hash, .* and Frozen has none"),
    ],
)
def test_what_it_takes_is_looked_at(arguments, says):
    with pytest.raises(TypeError, match=says):
        pk.black_box(**arguments)


def test_it_travels():
    """By its name in a module, or by value."""
    for own in (growth, two):
        assert pickle.loads(pickle.dumps(own)) is own
    factor = 3.0
    power = batched(partial(np.power, 2.0))  # which has no name
    assert value_of(cloudpickle.loads(cloudpickle.dumps(power)), [3.0]).tolist() == [8.0]
    for options in ({}, {"batched": True}, {"ndim": (1,)}):
        own = pk.black_box(lambda x: factor * x, **options)
        copy = cloudpickle.loads(cloudpickle.dumps(own))
        assert (type(copy), copy.ndim) == (type(own), own.ndim)
        assert value_of(copy, [1.0]).tolist() == [3.0]


@pytest.mark.slow
@pytest.mark.parametrize("cores", [1, 2])
def test_it_is_in_a_posterior_beside_nuts(cores):
    """The data are of rate 0.5; PyMC's own steps move what the black box does not know."""
    data = growth.function(0.5, 4.0)
    with pm.Model() as model:
        rate, noise = pm.LogNormal("rate", -1, 0.5), pm.HalfNormal("noise", 0.1)
        pm.Normal("y", growth(rate, capacity=4.0), 0.02 + noise, observed=data)
        steps = [pk.GAM([rate]), pm.Metropolis([noise])]
        dt = pm.sample(
            500,
            step=steps,
            chains=2,
            cores=cores,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
        predicted = pm.sample_posterior_predictive(dt, progressbar=False, random_seed=1)
    assert abs(dt["posterior"]["rate"].mean() - 0.5) < 0.1
    assert predicted["posterior_predictive"]["y"].shape[-1] == 3
    with pm.do(model, {rate: 0.5}) as fixed:
        drawn = pm.draw(fixed["y"], draws=400, random_seed=1)
    np.testing.assert_allclose(drawn.mean(axis=0), data, atol=0.1)


# ---- of many rows -------------------------------------------------------------------------------


def test_it_is_an_op_of_one_evaluation():
    x = pt.dvector("x")
    outputs = two(x, 2.0)
    assert [out.type.ndim for out in outputs] == [1, 0]
    long, total = evaluated([x], outputs)([1.0, 2.0])
    np.testing.assert_array_equal(long, [2.0, 4.0])
    assert total == 3.0
    assert total.shape == ()


def test_outputs_are_converted_where_that_loses_nothing():
    single = batched(lambda x: x.astype(np.float32))
    assert value_of(single, [1.5]).dtype == np.float64
    assert value_of(batched(lambda x: x.astype(int)), [1.0]).dtype == np.float64


def test_a_function_may_write_into_its_inputs():
    def doubled(x):
        x *= 2
        return x

    x = np.array([1.0, 2.0])
    assert value_of(batched(doubled), x).tolist() == [2.0, 4.0]
    assert x.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (lambda x: x[0], r"shape \(2,\) for 1 evaluation. .* of shape \(1, \?\)"),
        (lambda x: x.sum(axis=1), r"shape \(1,\) for 1 evaluation"),
        (lambda x: (x, x), r"shape \(2, 1, 2\) for 1 evaluation"),
        (lambda x: x.astype(complex), "complex128. Let it return real numbers"),
    ],
)
def test_its_rows_are_looked_at(function, says):
    with pytest.raises(WrongReturn, match=says):
        value_of(batched(function), [1.0, 2.0])


def test_a_number_for_all_rows_is_seen():
    of_all = batched(lambda x: np.array([x.sum()]), ndim=0)
    assert of_all.rows([[np.ones(2)]])[0][0] == 2.0
    first, second = of_all.outcomes([[np.ones(2)]] * 2)
    assert "shape (1,) for 2 evaluations. Let it return one of shape (2,):" in str(first)
    assert first is not second  # each chain says where it was


def test_an_exception_is_that_of_its_row():
    def half(x):
        if (x < 0).any():
            raise ValueError(f"{len(x)} rows")
        return x / 2

    first, second, third = batched(half).outcomes([[np.array([k])] for k in (2.0, -1.0, 4.0)])
    assert [first[0], third[0]] == [1.0, 2.0]
    assert str(second) == "1 rows"


# ---- in one call --------------------------------------------------------------------------------


class Tasks:
    """Tasks in threads, each of which calls a black box some times, one after another."""

    def __init__(self, op, *values):
        self.gathering, self.op = Gathering({op}), op
        self.found, self.errors = [[] for _ in values], []
        self.threads = [
            threading.Thread(target=self._call, args=(own, found), daemon=True)
            for own, found in zip(values, self.found, strict=True)
        ]
        for thread in self.threads:
            thread.start()

    def _call(self, values, found):
        try:
            with self.gathering:
                for value in values:
                    storage = [[None]]
                    self.op.perform(None, [np.array(value)], storage)
                    found.append(storage[0][0].tolist())
        except BaseException as error:
            self.errors.append(error)

    def wait(self):
        """Wait for them as a run does."""
        while left := [thread for thread in self.threads if thread.is_alive()]:
            with self.gathering.of(len(left)):
                left[0].join(0.01)


def test_calls_of_all_tasks_are_made_in_one():
    """As long as these go on."""
    sizes = []

    def plus_one(x):
        sizes.append(len(x))
        return x + 1.0

    tasks = Tasks(batched(plus_one), ([1], [2], [3]), ([4], [5]), ([6],))
    tasks.wait()
    assert tasks.found == [[[2], [3], [4]], [[5], [6]], [[7]]]
    assert sizes[0] == 3
    assert sum(sizes) == 6
    assert not tasks.errors


def test_calls_by_inputs_of_other_shapes_are_made_apart():
    shapes = []

    def same(x):
        shapes.append(x.shape)
        return x

    tasks = Tasks(batched(same), ([1, 2],), ([3],), ([4, 5],))
    tasks.wait()
    assert tasks.found == [[[1, 2]], [[3]], [[4, 5]]]
    assert sorted(shapes) == [(1, 1), (2, 2)]


def test_nothing_is_called_while_the_run_may_begin_other_tasks():
    calls = []
    tasks = Tasks(batched(lambda x: calls.append(len(x)) or x), ([1],), ([2],))
    with tasks.gathering.of(None):
        tasks.threads[0].join(0.05)
    assert not calls
    tasks.wait()
    assert calls == [2]


def test_machine_code_runs_out_of_turn_and_calls_python_in_turn():
    turns, seen = Gathering(set()), []

    @in_turn
    def called():
        seen.append(turns.is_mine)

    @out_of_turn
    def machine_code():
        seen.append(turns.is_mine)
        called()

    with turns:
        machine_code()
        called()
    machine_code()
    assert seen == [False, True, True, False, False]


def test_tasks_do_not_wait_for_a_run_that_has_ended():
    tasks = Tasks(batched(lambda x: x), ([1], [2]), ([3],))
    tasks.gathering.end()
    for thread in tasks.threads:
        thread.join(10)
    assert [type(error) for error in tasks.errors] == [RunEnded] * 2


def test_what_it_returns_wrongly_is_told_at_the_first_call(caplog):
    calls = []

    @pk.black_box
    def total(x):
        calls.append(x)
        return float(x.sum())

    with pm.Model():
        pm.Normal("y", total(pm.Normal("x", shape=2)), 1, observed=np.ones(3))
        with pytest.raises(WrongReturn, match=r"declare @pk\.black_box\(ndim=0\)"):
            pk.sample(progressbar=False)
    assert len(calls) == 1
    assert "Sampling with" not in caplog.text
