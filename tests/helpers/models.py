"""Models that several tests use.

Those of ``@cache`` are made once, as a second step on the same model takes over what was compiled
for the first one.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph import Apply, Op

import pymc_kameleon as pk


@cache
def mixed():
    """Continuous variables of different shapes and supports, a discrete one, and data."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, [1.0, 2.0])
        b = pm.Gamma("b", 2, 1)
        k = pm.Poisson("k", 3)
        data = pm.Data("data", [0.5, 1.5, 1.0])
        pm.Normal("y", a[0] + 0.1 * k, b, observed=data)
    return model


@cache
def normal(shape=()):
    """Independent standard normals "x"."""
    with pm.Model() as model:
        pm.Normal("x", shape=shape)
    return model


@cache
def pair():
    """Two standard normals with correlation 0.9."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", 0.9 * x, np.sqrt(0.19))
    return model


def normal_model(precision):
    """Build a model without matrix products, which take PyTensor seconds to compile."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=len(precision))
        pm.Potential("p", -0.5 * (x[:, None] * precision * x).sum())
    return model


def standard_normal(x):
    return -0.5 * x @ x


class Counting(Op):
    """A black-box log-density of one vector, which counts its evaluations in this process."""

    def __init__(self, function=standard_normal):
        self.function = function
        self.count = 0

    def __getstate__(self):
        return vars(self) | {"count": 0}

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        self.count += 1
        outputs[0][0] = np.array(self.function(inputs[0]), dtype=np.float64)

    def pullback(self, inputs, outputs, cotangents):
        return [cotangents[0] * Slope()(*inputs)]


class Slope(Op):
    """The gradient of most black boxes here, and for the others one that is as good as any."""

    factor = 1.0

    def make_node(self, x):
        return Apply(self, [pt.as_tensor(x)], [pt.dvector()])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = -inputs[0] * self.factor


def black_box(op, d=2):
    with pm.Model() as model:
        x = pm.Flat("x", shape=d)
        pm.Potential("black_box", op(x))
    return model


@cache
def _box():
    op = Counting()
    return op, black_box(op)


def box(function=standard_normal):
    """Return the one black box that all tests use, now with this function, and its model."""
    op, model = _box()
    op.function, op.count = function, 0
    return op, model


class Counted:
    """A function for `pk.black_box` that counts its calls in this process."""

    def __init__(self):
        self.function, self.count = standard_normal, 0

    def __call__(self, x):
        self.count += 1
        return self.function(x)


@cache
def _guarded_box(options):
    counted = Counted()
    return counted, black_box(pk.black_box(counted, ndim=0, **dict(options)))


def guarded_box(function=standard_normal, **options):
    """Return a function of `pk.black_box`, with options of that, and its model."""
    counted, model = _guarded_box(tuple(options.items()))
    counted.function, counted.count = function, 0
    return counted, model


class Blind(Counting):
    """A black box without a gradient."""

    def pullback(self, inputs, outputs, cotangents):
        raise NotImplementedError
