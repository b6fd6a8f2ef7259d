"""A sampler by an approximation s of the posterior, and what it asks of a fit.

``metropolis``         the sampler: its moves, and how they adapt
``fit``                what a fit has, so that s may be of any kind
``learning``           when s is fitted, the chain on it, and the shares of moves
``moves``, ``step``    what other samplers by an approximation share with it
"""
