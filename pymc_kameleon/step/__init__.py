"""What PyMC sees of a sampler, and how a chain of steps advances.

``base``        the class that samplers derive from
``options``     options that all share
``unbound``     steps that know no model yet
``make_draws``  draws with steps, for both drivers
``job``         a chain's progress as a pure function
``warm_start``  the way to the posterior
``pooling``     what chains share that learn together
``learned``     what tuning decided, for people
``monitor``     what a chain has seen
``statistics``  statistics of draws, by name
``problems``    what went wrong, in words
``draw_costs``  what a draw costs
``messages``    numbers and lists in words
``groups``      names of the groups of a result
"""

from pymc_kameleon.step.base import KameleonStep

__all__ = ["KameleonStep"]
