"""EmulatorMetropolis for models without a simulator: their parameters go through a black box.

So the suites that run all samplers on the same models have it, too.
"""

import math
from unittest.mock import patch

import numpy as np
import pytensor.tensor as pt
from pytensor.graph import Apply, Op
from pytensor.graph.replace import clone_replace

import pymc_kameleon as pk
from pymc_kameleon.model import simulators
from pymc_kameleon.model.black_boxes import black_boxes
from pymc_kameleon.model.simulator_logp import SimulatorLogp

STOPS = 6
"""Stops of inner chains: fewer than there are by default, as these would take most of the time."""


class Same(Op):
    """A simulator that returns its inputs."""

    __props__ = ()

    def make_node(self, x):
        return Apply(self, [x], [pt.vector(dtype="float64", shape=x.type.shape)])

    def perform(self, node, inputs, outputs):
        outputs[0][0] = np.array(inputs[0], np.float64)


def through_a_box(logp, own, initial_point):
    """Return a log-density that depends on variables by way of a black box, which returns them."""
    shapes = [initial_point[var.name].shape for var in own]
    returned = Same()(pt.concatenate([var.ravel().astype("float64") for var in own]))
    parts, end = {}, 0
    for var, shape in zip(own, shapes, strict=True):
        begin, end = end, end + math.prod(shape)
        parts[var] = returned[begin:end].reshape(shape).astype(var.dtype)
    return clone_replace(logp, parts, rebuild_strict=False)


class BoxedEmulator(pk.EmulatorMetropolis):
    # Of all models, even where the log-density is what is emulated.

    __doc__ = pk.EmulatorMetropolis.__doc__

    def _make_log_density(self, own, region):
        logp = self.model.logp()
        if not black_boxes([logp]):
            logp = through_a_box(logp, own, self._initial_point)
        with (
            patch.object(self.model, "logp", lambda: logp),
            patch.object(simulators, "_is_linear_in", lambda logp, outputs: False),
        ):
            log_density = super()._make_log_density(own, region)
        self.settings["stops"] = STOPS
        return log_density

    def _compile(self):
        with patch.object(SimulatorLogp, "_check_outputs"):
            super()._compile()


SAMPLERS = tuple(
    BoxedEmulator if cls is pk.EmulatorMetropolis else cls for cls in pk.samplers.SAMPLERS
)
"""All samplers, for any model."""
