"""Adaptive Metropolis samplers for PyMC: ``pm.sample(step=pk.KAM())``."""

import logging

from pymc_kameleon.samplers.kam import KAM
from pymc_kameleon.samplers.random_walk import GAM, RWM

__all__ = ["GAM", "KAM", "RWM", "SAMPLERS"]

SAMPLERS = (RWM, GAM, KAM)

_log = logging.getLogger("pymc_kameleon")
if not logging.root.handlers:
    _log.setLevel(logging.INFO)
    if not _log.handlers:
        _log.addHandler(logging.StreamHandler())
