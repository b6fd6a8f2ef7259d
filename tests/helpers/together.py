"""Batched black boxes that count their calls."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk

DAYS = np.linspace(0.5, 5, 6)
OBSERVED = np.array([1.4, 3.1, 5.6, 9.2, 11.8, 14.1])


class Growth:
    """A simulator of many evaluations at once, which knows how many each call had."""

    def __init__(self, fails=lambda theta: False):
        self.fails, self.sizes = fails, []
        self.op = pk.black_box(self.function, batched=True)

    @property
    def function(self):
        def growth(theta):
            self.sizes.append(len(theta))
            if any(map(self.fails, theta)):
                raise ArithmeticError("no solution")
            rate, capacity = theta[:, 0, None], theta[:, 1, None]
            return capacity / (1 + (capacity - 1) * np.exp(-rate * DAYS))

        return growth

    def model(self):
        """Return a model of it, that keeps what it returns, and calls it for a forecast besides."""
        with pm.Model() as model:
            theta = pm.LogNormal("theta", [0.0, 3.0], 0.5, shape=2)
            mu = pm.Deterministic("mu", self.op(theta))
            pm.Deterministic("forecast", self.op(theta * [1.1, 1.0])[-1])
            pm.LogNormal("y", pt.log(mu), 0.1, observed=OBSERVED)
        return model
