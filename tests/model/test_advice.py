"""Advice that fits the model."""

import numpy as np
import pymc as pm
from models import Blind, black_box, normal

from pymc_kameleon.model.advice import HIERARCHY, NUTS, what_may_help


def test_advice_goes_by_the_model():
    assert what_may_help(normal(2)) == NUTS
    assert what_may_help(black_box(Blind())) == ""
    with pm.Model() as hierarchy:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        pm.Normal("theta", mu, tau, shape=3)
    assert what_may_help(hierarchy) == f"{HIERARCHY} {NUTS}"
    with pm.Model() as non_centred:
        tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=3)
        pm.Normal("y", tau * z, observed=np.zeros(3))
    assert what_may_help(non_centred) == f"{HIERARCHY} {NUTS}"
    with pm.Model() as curve:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        pm.Normal("y", a * np.ones(3), b, observed=np.zeros(3))
    assert what_may_help(curve) == NUTS
