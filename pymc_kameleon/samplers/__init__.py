"""The samplers, a folder for each family."""

from pymc_kameleon.core.schedules import Decay  # noqa: F401
from pymc_kameleon.samplers.componentwise.cmh import CMH
from pymc_kameleon.samplers.componentwise.cmtm import CMTM
from pymc_kameleon.samplers.emulator.metropolis import EmulatorMetropolis
from pymc_kameleon.samplers.gradient.gad import GadMALA, GadRWM
from pymc_kameleon.samplers.gradient.mala import MALA
from pymc_kameleon.samplers.kameleon import kernels  # noqa: F401
from pymc_kameleon.samplers.kameleon.cyclical_kam import CyclicalKAM
from pymc_kameleon.samplers.kameleon.kam import KAM
from pymc_kameleon.samplers.kameleon.pca_kam import PCAKAM
from pymc_kameleon.samplers.random_walk.adaptive import AM, GAM, RBAM
from pymc_kameleon.samplers.random_walk.rwm import RWM
from pymc_kameleon.samplers.surrogate.metropolis import SurrogateMetropolis

SAMPLERS = (
    *(RWM, AM, RBAM, GAM),
    *(KAM, PCAKAM, CyclicalKAM),
    *(CMH, CMTM),
    *(MALA, GadRWM, GadMALA),
    *(SurrogateMetropolis, EmulatorMetropolis),
)  # family by family

BASELINES = (RWM, AM, RBAM, MALA)
"""Those that the others are compared with, which are in `pk.baselines`."""

__all__ = [sampler.__name__ for sampler in SAMPLERS if sampler not in BASELINES]
