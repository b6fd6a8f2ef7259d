"""Named tuples that are allocated from their declared shapes."""

from typing import NamedTuple

import numpy as np
import pytest

from pymc_kameleon.core.arrays import allocate, bools, copied, floats, integers


class Inner(NamedTuple):
    factor: floats("d", "d")
    count: integers(1)


class Outer(NamedTuple):
    x: floats("d", 2)
    seen: bools("m")
    inner: Inner
    n: int
    share: float


SIZES = {"d": 3, "m": 4}


def test_arrays_are_zero_and_have_the_declared_shapes():
    made = allocate(Outer, SIZES, n=7, share=1)
    for array, dtype, shape in [
        (made.x, np.float64, (3, 2)),
        (made.seen, np.bool_, (4,)),
        (made.inner.factor, np.float64, (3, 3)),
        (made.inner.count, np.int64, (1,)),
    ]:
        assert array.dtype == dtype
        assert array.shape == shape
        assert not array.any()
        assert array.flags.c_contiguous
    assert type(made.inner) is Inner
    assert (type(made.n), type(made.share)) == (int, float)


def test_values_are_copied_and_tuples_taken_as_they_are():
    x, inner = np.arange(6.0).reshape(3, 2), allocate(Inner, SIZES, count=2)
    made = allocate(Outer, SIZES, x=x, seen=True, inner=inner, n=1, share=0.5)
    np.testing.assert_array_equal(made.x, x)
    assert not np.shares_memory(made.x, x)
    assert made.seen.all()
    assert made.inner is inner
    assert inner.count[0] == 2
    assert not np.shares_memory(made.x, allocate(Outer, SIZES, n=1, share=0.5).x)


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"n": 1, "share": 0.5, "y": 0}, TypeError, r"Outer has no fields \['y'\]"),
        ({"n": 1}, TypeError, "Outer needs share, which has no shape"),
        ({"n": 1, "share": 0.5, "x": np.zeros((2, 2))}, ValueError, "broadcast"),
    ],
)
def test_impossible_values(values, error, message):
    with pytest.raises(error, match=message):
        allocate(Outer, SIZES, **values)


def test_a_size_that_is_not_given():
    with pytest.raises(TypeError, match=r"Outer\.seen has a size 'm'"):
        allocate(Outer, {"d": 3}, n=1, share=0.5)


def test_a_copy_shares_no_array():
    made = allocate(Outer, SIZES, n=7, share=1)
    other = copied(made)
    made.x[:], made.inner.factor[:] = 1, 1
    assert [type(other), type(other.inner)] == [Outer, Inner]
    assert not other.x.any()
    assert not other.inner.factor.any()
    assert other.n == 7
