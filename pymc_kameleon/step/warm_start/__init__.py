"""The way from a chain's start to where the posterior is.

``approach``    the whole way
``search``      budget, metric, and what was found
``lines``       along the coordinates
``quadratics``  where f is fitted by a quadratic
"""
