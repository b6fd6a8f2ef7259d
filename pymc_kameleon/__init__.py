"""Adaptive Metropolis samplers for PyMC: ``pm.sample(step=pk.KAM())``."""

from importlib.metadata import version

from pymc_kameleon.analysis.emulator import emulator
from pymc_kameleon.analysis.expectation import expectation
from pymc_kameleon.analysis.mode_occupancy import mode_occupancy
from pymc_kameleon.analysis.summary import summary
from pymc_kameleon.core.schedules import Decay
from pymc_kameleon.model.black_box import black_box
from pymc_kameleon.model.noise import noise_seed
from pymc_kameleon.model.starts import initvals
from pymc_kameleon.plots.compare import plot_compare
from pymc_kameleon.plots.emulator import plot_emulator
from pymc_kameleon.plots.evidence import plot_evidence
from pymc_kameleon.plots.modes import plot_modes
from pymc_kameleon.plots.proposals import plot_proposals
from pymc_kameleon.plots.tuning import plot_adaptation, plot_factor, plot_learned, plot_scales
from pymc_kameleon.result.opening import load
from pymc_kameleon.samplers import *  # noqa: F403
from pymc_kameleon.samplers import SAMPLERS
from pymc_kameleon.samplers.choice import registered
from pymc_kameleon.samplers.kameleon import kernels
from pymc_kameleon.sampling.compare import compare
from pymc_kameleon.sampling.evidence import compare_models, evidence
from pymc_kameleon.sampling.sample import sample

__version__ = version("pymc_kameleon")

__all__ = [
    "SAMPLERS",
    "Decay",
    "black_box",
    "compare",
    "compare_models",
    "emulator",
    "evidence",
    "expectation",
    "initvals",
    "kernels",
    "load",
]
__all__ += ["mode_occupancy", "noise_seed", "plot_adaptation", "plot_compare", "plot_emulator"]
__all__ += ["plot_evidence", "plot_factor"]
__all__ += ["plot_learned", "plot_modes", "plot_proposals", "plot_scales", "registered", "sample"]
__all__ += ["summary", *(sampler.__name__ for sampler in SAMPLERS)]


def __dir__():
    """Return the functions and classes, not the modules that they are from."""
    return sorted(name for name in __all__ if callable(globals()[name]))
