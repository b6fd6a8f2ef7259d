"""A PyMC model, and the only door into PyMC.

``pymc_internals``  all that we take from inside PyMC
``layout``          names, shapes and places of coordinates
``functions``       log-density, gradient and outputs, compiled
``black_box_calls`` calls of black boxes, each made once
``entry_points``    where their machine code is; Ops that call Python
``noise``           log-densities that are only estimated
``starts``          where chains start, ``pk.initvals``
"""
