"""Numbers and arrays by name in rows of floats."""

import numpy as np

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
