"""Many maxima that are as high: people report that one or a few are found, and an R-hat of 1.00."""

import numpy as np
import pymc as pm
import pytest
from reports import told

import pymc_kameleon as pk


def waves(z):
    return (1.5 + np.cos(0.6 * z[0]) * np.cos(0.6 * z[1])) ** 4


@pytest.mark.parametrize("evaluations", [300, 1000])
def test_all_are_found_or_the_verdict_says_that_there_may_be_another(evaluations):
    with pm.Model():
        z = pm.Uniform("z", 0, 20, shape=2)
        pm.Potential("waves", pk.black_box(waves, ndim=0)(z))
        dt = pk.sample(max_evaluations=evaluations, random_seed=1, cores=1, progressbar=False)
    sds = dt["posterior"]["z"].std(["chain", "draw"]).values  # 5.8 in all, by symmetry about 10
    assert np.all(np.abs(sds / 5.8 - 1) < 0.25) or told(dt)
