"""Plots of what a run did and learned, by ArviZ's conventions.

``tuning``     how tuning went, covariances and scales
``proposals``  where proposals go
``modes``      the modes, and how chains went between them
``compare``    what ``pk.compare`` found
``common``     what they share
"""

from pymc_kameleon.plots.modes import plot_modes
from pymc_kameleon.plots.proposals import plot_proposals
from pymc_kameleon.plots.tuning import plot_adaptation, plot_factor, plot_learned, plot_scales

__all__ = [
    "plot_adaptation",
    "plot_factor",
    "plot_learned",
    "plot_modes",
    "plot_proposals",
    "plot_scales",
]
