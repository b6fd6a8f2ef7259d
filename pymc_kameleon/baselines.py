"""Samplers to compare with: the papers' baselines, and cKAM as it was published.

On a model of your own another sampler does better: see docs/choosing.md.
"""

from pymc_kameleon.samplers.gradient.mala import MALA
from pymc_kameleon.samplers.kameleon.published_cyclical_kam import PublishedCyclicalKAM
from pymc_kameleon.samplers.random_walk.adaptive import AM, RBAM
from pymc_kameleon.samplers.random_walk.rwm import RWM

__all__ = ["AM", "MALA", "RBAM", "RWM", "PublishedCyclicalKAM"]
