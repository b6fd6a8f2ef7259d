"""``pk.batched``: an Op as others are, but that its function has a row for each evaluation."""

import pickle
import threading
from functools import partial

import cloudpickle
import numpy as np
import pytensor
import pytensor.tensor as pt
import pytest

import pymc_kameleon as pk
from pymc_kameleon.model.gathering import NEVER, Gathering, RunEnded, in_turn, out_of_turn
from pymc_kameleon.model.python_calls import WrongReturn


@pk.batched(itypes=[pt.dvector, pt.dscalar], otypes=[pt.dvector, pt.dscalar])
def two(x, k):
    return k[:, None] * x, x.sum(axis=1)


def batched(function, itypes=(pt.dvector,), otypes=(pt.dvector,)):
    return pk.batched(itypes=list(itypes), otypes=list(otypes))(function)


def value_of(op, *inputs):
    storage = [[None]]
    op.perform(None, [np.asarray(value) for value in inputs], storage)
    return storage[0][0]


def test_it_is_an_op_of_one_evaluation():
    x = pt.dvector("x")
    outputs = two(x, pt.constant(2.0, dtype="float64"))
    assert [out.type.ndim for out in outputs] == [1, 0]
    long, total = pytensor.function([x], outputs, mode="FAST_COMPILE")([1.0, 2.0])
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
        (lambda x: (x, x), "2 arrays, but declares 1"),
        (lambda x: x.astype(complex), "complex128, but declares float64"),
    ],
)
def test_what_it_returns_is_looked_at(function, says):
    with pytest.raises(WrongReturn, match=says):
        value_of(batched(function), [1.0, 2.0])


def test_a_number_for_all_rows_is_seen():
    of_all = batched(lambda x: np.array([x.sum()]), otypes=[pt.dscalar])
    assert of_all.rows([[np.ones(2)]])[0][0] == 2.0
    first, second = of_all.outcomes([[np.ones(2)]] * 2)
    assert "shape (1,) for 2 evaluations. Let it return one of shape (2,):" in str(first)
    assert first is not second  # each chain says where it was


def test_types_are_those_of_pytensor():
    with pytest.raises(TypeError, match="itypes has to be a list of PyTensor types"):
        pk.batched(itypes=[float], otypes=[pt.dvector])


def test_it_travels():
    """By its name in a module, or by value."""
    assert pickle.loads(pickle.dumps(two)) is two
    factor = 3.0
    power = batched(partial(np.power, 2.0))  # which has no name
    assert value_of(cloudpickle.loads(cloudpickle.dumps(power)), [3.0]).tolist() == [8.0]
    assert [str(two), str(power)] == ["two", "Batched"]
    own = cloudpickle.loads(cloudpickle.dumps(batched(lambda x: factor * x)))
    assert value_of(own, [1.0]).tolist() == [3.0]


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
    with tasks.gathering.of(NEVER):
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
