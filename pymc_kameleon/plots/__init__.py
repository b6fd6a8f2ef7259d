"""Plots of what a run did and learned, by ArviZ's conventions.

``tuning``     how tuning went, covariances and scales
``proposals``  where proposals go
``modes``      the modes, and how chains went between them
``compare``    what ``pk.compare`` found
``common``     what they share
"""
