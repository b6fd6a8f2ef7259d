"""What PyMC sees of a sampler, and how a chain of steps advances."""

from pymc_kameleon.step.base import KameleonStep

__all__ = ["KameleonStep"]
