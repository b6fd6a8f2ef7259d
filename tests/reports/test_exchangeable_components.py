"""Components that can be exchanged begin at the same values: a saddle, on which searches may end.

People report two exponentials with one rate, an R-hat of 1.00, and a noise that is much too large.
"""

import numpy as np
import pymc as pm
import pytest
from reports import off_by, told

import pymc_kameleon as pk

TIMES = np.linspace(0, 30, 60)


def curve(amplitudes, times):
    return np.exp(-TIMES[:, None] / times) @ amplitudes


@pytest.mark.parametrize("seed", [1, 2])
def test_it_is_left_or_the_verdict_says_that_there_may_be_another_mode(seed):
    y = curve(np.array([2.0, -4.0]), np.array([1.5, 8.0]))
    y += 0.1 * np.random.default_rng(3).standard_normal(len(TIMES))
    with pm.Model():
        amplitudes, times = pm.Normal("a", 0, 10, shape=2), pm.HalfNormal("t", 30, shape=2)
        sd = pm.HalfNormal("sd", 1)
        pm.Normal("y", pk.black_box(curve)(amplitudes, times), sd, observed=y)
        dt = pk.sample(max_evaluations=300, random_seed=seed, cores=1, progressbar=False)
    is_right = off_by(dt, "sd", 0.1, 0.01).max() < 3  # its posterior sd is .1/√120
    assert is_right or told(dt)
