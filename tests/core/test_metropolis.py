"""The Metropolis rule."""

import numpy as np
import pytest

from pymc_kameleon.core.metropolis import NO_CAP, metropolis


@pytest.mark.parametrize(
    ("log_ratio", "log_u", "expected"),
    [
        (-1.0, -1.1, (np.exp(-1), True)),
        (-1.0, -1.0, (np.exp(-1), False)),
        (-1.0, -0.9, (np.exp(-1), False)),
        (2.0, -0.1, (1.0, True)),
        (np.inf, -0.1, (1.0, True)),
        (-np.inf, -50.0, (0.0, False)),
        (np.nan, -50.0, (0.0, False)),
    ],
)
def test_the_rule(log_ratio, log_u, expected):
    assert metropolis(log_ratio, log_u, NO_CAP) == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize(
    ("log_ratio", "cap"), [(-3.0, -0.5), (-1.0, 0.7), (1.0, 2.0), (-1.0, -1.0)]
)
def test_with_what_is_rejected_early_the_mean_is_that_of_the_rule(log_ratio, cap):
    """P(not rejected early) times what is then reported, and the same decision."""
    alpha, _ = metropolis(log_ratio, -0.1, NO_CAP)
    reported, _ = metropolis(log_ratio, -0.1, cap)
    assert min(1.0, np.exp(cap)) * reported == pytest.approx(alpha, rel=1e-12)
    assert reported <= 1.0
    for log_u in (-4.0, -2.0, -0.6):
        assert metropolis(log_ratio, log_u, cap)[1] == metropolis(log_ratio, log_u, NO_CAP)[1]
