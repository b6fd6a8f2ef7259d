"""Numbers and arrays by name in rows of floats."""

import numpy as np
import pytest

from pymc_kameleon.core.rows import Rows

KINDS = {
    "number": ((), np.float64),
    "count": ((), np.int64),
    "array": ((2,), np.float64),
    "matrix": ((2, 3), np.float32),
    "flag": ((), np.bool_),
    "nothing": ((0,), np.float64),
}


def test_parts_lie_one_after_the_other():
    rows = Rows(KINDS, first=3)
    assert rows.end == 3 + 1 + 1 + 2 + 6 + 1
    values = np.arange(28.0).reshape(2, 14)
    named = rows.named(values)
    assert list(named) == list(KINDS)
    for name, (shape, dtype) in KINDS.items():
        assert named[name].shape == (2, *shape)
        assert named[name].dtype == dtype
    assert named["number"].tolist() == [3, 17]
    assert named["count"].tolist() == [4, 18]
    assert named["array"].tolist() == [[5, 6], [19, 20]]
    assert named["matrix"][1].tolist() == [[21, 22, 23], [24, 25, 26]]


def test_floats_are_views():
    rows, values = Rows(KINDS), np.zeros((2, 11))
    named = rows.named(values)
    named["number"][:], named["array"][:] = 1, 2
    assert values[:, 0].tolist() == [1, 1]
    assert values[:, 2:4].tolist() == [[2, 2], [2, 2]]


def test_what_is_written_into_views_of_a_row_is_read_by_name():
    rows, row = Rows(KINDS), np.zeros(11)
    views = rows.views(row)
    for k, name in enumerate(KINDS):
        assert views[name].flags.c_contiguous
        assert views[name].shape == (KINDS[name][0] or (1,))
        views[name][:] = k
    for k, (name, values) in enumerate(rows.named(row[None]).items()):
        assert (values == (k if values.dtype != bool else True)).all(), name


@pytest.mark.parametrize("kinds", [{}, KINDS])
def test_no_rows(kinds):
    rows = Rows(kinds)
    named = rows.named(np.zeros((0, rows.end)))
    assert {name: values.shape for name, values in named.items()} == {
        name: (0, *shape) for name, (shape, _) in kinds.items()
    }
