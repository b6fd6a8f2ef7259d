"""The option `control_variates`, for samplers that have it: GAM and GadMALA."""

import numpy as np

from pymc_kameleon.samplers.control_variates.table import prepare
from pymc_kameleon.samplers.control_variates.tally import standardise
from pymc_kameleon.step.base import KameleonStep
from pymc_kameleon.step.groups import CONTROL_VARIATES
from pymc_kameleon.step.learned import COORDINATE, UNITS, Quantity
from pymc_kameleon.step.options import checked_bool


class KeepsControls(KameleonStep):
    """What a sampler needs to keep control variates, if its settings say so; its first base.

    Its algorithm reports them in a field `kept` of its Stats; its state has z, its parameters have
    `controls`.
    """

    kept_group = CONTROL_VARIATES

    def __init__(self, vars=None, *, keep_adapting=False, **common):
        wanted = checked_bool("control_variates", self.settings["control_variates"])
        if wanted and keep_adapting:
            raise ValueError(
                "control_variates is impossible with keep_adapting: their mean is 0 only while the "
                "proposal stays as it is."
            )
        super().__init__(vars, keep_adapting=keep_adapting, **common)
        if wanted and not self.layout.covers_all:
            raise ValueError(
                f"control_variates needs {type(self).__name__} to move all variables, not only "
                f"{list(self.var_names)}: leave it out beside other steps."
            )

    def _normal(self):
        """Return the mean μ that was learned, and the Proposal (table.py)."""
        raise NotImplementedError

    def _learned_mean(self):
        """Return μ as a part of `_learned`."""
        if not self.settings["control_variates"]:
            return {}
        mean = self.parameters.controls.mean
        return {"mean": Quantity((COORDINATE,), mean, "Of the posterior.", UNITS)}

    def stop_tuning(self):
        """Freeze the proposal, and prepare the control variates that belong to it."""
        super().stop_tuning()
        if self.settings["control_variates"]:
            x, factor, controls = self.state.x, self.parameters.factor, self.parameters.controls
            mean, proposal = self._normal()
            prepare(controls, mean, factor, proposal)
            with np.errstate(divide="ignore", invalid="ignore"):  # of what never moves
                standardise(controls, factor, x, np.empty(self._d), self.state.z)
