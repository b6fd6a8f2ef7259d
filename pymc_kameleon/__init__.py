"""Adaptive Metropolis samplers for PyMC: ``pm.sample(step=pk.KAM())``."""

from importlib.metadata import version

from pymc_kameleon import baselines, samplers
from pymc_kameleon.analysis.diagnose import diagnose
from pymc_kameleon.analysis.emulator import emulator
from pymc_kameleon.analysis.expectation import expectation
from pymc_kameleon.analysis.identifiability import identifiability
from pymc_kameleon.analysis.mode_occupancy import mode_occupancy
from pymc_kameleon.analysis.sensitivity import sensitivity
from pymc_kameleon.analysis.summary import summary
from pymc_kameleon.analysis.where_next import where_next
from pymc_kameleon.model.black_box import black_box
from pymc_kameleon.model.noise import noise_seed
from pymc_kameleon.model.starts import initvals
from pymc_kameleon.plots.emulator import plot_emulator
from pymc_kameleon.plots.modes import plot_modes
from pymc_kameleon.plots.proposals import plot_proposals
from pymc_kameleon.plots.search import plot_search
from pymc_kameleon.plots.sensitivity import plot_sensitivity
from pymc_kameleon.plots.tables import plot_compare, plot_evidence
from pymc_kameleon.plots.tuning import plot_adaptation, plot_learned
from pymc_kameleon.result.opening import load
from pymc_kameleon.samplers import *  # noqa: F403
from pymc_kameleon.sampling.compare import compare_samplers
from pymc_kameleon.sampling.evidence import compare_models, evidence
from pymc_kameleon.sampling.find_mode import find_mode
from pymc_kameleon.sampling.sample import resume, sample

__version__ = version("pymc_kameleon")

# In the order in which a user needs them.
__all__ = ["sample", "resume", "black_box", "diagnose", "summary", "load"]  # noqa: RUF022
__all__ += samplers.__all__
__all__ += ["initvals", "expectation", "evidence", "compare_models"]  # noqa: RUF022
__all__ += [
    "emulator",
    "find_mode",
    "identifiability",
    "mode_occupancy",
    "sensitivity",
    "where_next",
]
__all__ += ["compare_samplers", "noise_seed"]
__all__ += ["plot_adaptation", "plot_learned", "plot_proposals", "plot_modes"]  # noqa: RUF022
__all__ += ["plot_search", "plot_emulator", "plot_sensitivity", "plot_evidence", "plot_compare"]  # noqa: RUF022
__all__ += ["baselines"]


def __dir__():
    """Return what users need, not the packages that it is from."""
    return __all__
