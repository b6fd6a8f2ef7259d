"""Plots of what a run did and learned, by ArviZ's conventions."""

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
