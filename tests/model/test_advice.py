"""Advice that fits the model."""

import pymc as pm
from models import Blind, Counting, black_box, normal

from pymc_kameleon.model.advice import centred, what_may_help


def hierarchy(theta, likelihood):
    """Build mu, tau and what `theta` makes of them, with a likelihood of that."""
    with pm.Model() as model:
        mu = pm.Normal("mu")
        tau = pm.HalfNormal("tau")
        pm.Potential("likelihood", likelihood(theta(mu, tau)))
    return model


def test_what_is_centred_is_named():
    kinds = {
        "normal": lambda mu, tau: pm.Normal("theta", mu, tau, shape=3),
        "lognormal": lambda mu, tau: pm.LogNormal("theta", mu, tau, shape=3),
        "t": lambda mu, tau: pm.StudentT("theta", 4, mu, sigma=tau, shape=3),
    }
    found = {
        name: centred(hierarchy(theta, Counting(lambda x: x.sum())))
        for name, theta in kinds.items()
    }
    [(name, parents, other)] = found["normal"]
    assert (name, parents) == ("theta", ["mu", "tau"])
    assert other == "location + scale * z, z ~ N(0, 1)"
    assert found["lognormal"][0][2].startswith("exp(location")
    assert "prior of z" in found["t"][0][2]


def test_only_parents_are_named():
    with pm.Model() as model:
        tau = pm.HalfNormal("tau")
        mu = pm.Normal("mu", 0, tau)
        pm.Normal("theta", mu, 1.0)
        pm.Uniform("u", 0, tau)  # which has no location and scale
    assert [found[:2] for found in centred(model)] == [("mu", ["tau"]), ("theta", ["mu"])]


def test_what_is_not_centred_is_told_in_general():
    def theta(mu, tau):
        return mu + tau * pm.Normal("z", shape=3)

    model = hierarchy(theta, Blind(lambda x: x.sum()))
    assert centred(model) == []
    advice = what_may_help(model)
    assert advice.startswith("If the model is a hierarchy, write it the other way: centred")
    assert "NUTS" not in advice


def test_advice_goes_by_the_gradient():
    model = hierarchy(lambda mu, tau: pm.Normal("theta", mu, tau, shape=3), Blind(lambda x: 0.0))
    assert what_may_help(model).startswith(
        "theta is written centred: its prior depends on mu, tau. That is right where the data say "
        "much about each element of theta. Where they say little, write theta = location + scale"
    )
    assert "NUTS" not in what_may_help(model)
    assert what_may_help(normal(2)) == (
        "The log-density has a gradient: try NUTS, which pm.sample() takes."
    )
    assert what_may_help(black_box(Blind())) == ""
