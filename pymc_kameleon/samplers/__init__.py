"""The samplers: state, parameters, transition, adaptation and class of each."""

from pymc_kameleon.samplers.barker import Barker
from pymc_kameleon.samplers.cmh import CMH
from pymc_kameleon.samplers.cmtm import CMTM
from pymc_kameleon.samplers.cyclical_kam import CyclicalKAM
from pymc_kameleon.samplers.gad import GadMALA, GadRWM
from pymc_kameleon.samplers.kam import KAM
from pymc_kameleon.samplers.mala import MALA
from pymc_kameleon.samplers.pca_kam import PCAKAM
from pymc_kameleon.samplers.random_walk import AM, GAM, RAM, RBAM, RWM
from pymc_kameleon.samplers.surrogate import SurrogateMetropolis

SAMPLERS = (
    *(RWM, AM, RBAM, GAM, RAM),
    *(KAM, PCAKAM, CyclicalKAM),
    *(CMH, CMTM),
    *(MALA, GadRWM, GadMALA, Barker),
    SurrogateMetropolis,
)

__all__ = [sampler.__name__ for sampler in SAMPLERS]
