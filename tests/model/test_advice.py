"""Advice that fits the model."""

import numpy as np
import pymc as pm
from models import Blind, black_box, normal
from runs import codes

from pymc_kameleon.model.advice import what_may_help


def test_advice_goes_by_the_model():
    assert codes(what_may_help(normal(2))) == ["has_gradient"]
    assert what_may_help(black_box(Blind())) == []
    with pm.Model() as hierarchy:
        mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
        pm.Normal("theta", mu, tau, shape=3)
    assert codes(what_may_help(hierarchy)) == ["hierarchy", "has_gradient"]
    with pm.Model() as non_centred:
        tau, z = pm.HalfNormal("tau"), pm.Normal("z", shape=3)
        pm.Normal("y", tau * z, observed=np.zeros(3))
    assert codes(what_may_help(non_centred)) == ["hierarchy", "has_gradient"]
    with pm.Model() as curve:
        a, b = pm.Normal("a"), pm.HalfNormal("b")
        pm.Normal("y", a * np.ones(3), b, observed=np.zeros(3))
    assert codes(what_may_help(curve)) == ["has_gradient"]
