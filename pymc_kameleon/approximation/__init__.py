"""Approximations of a posterior from evaluations: what both kinds of them share.

``linalg``   factors, whitened coordinates, distances
``drops``    how far below the best point something still counts
``records``  which evaluations are kept
``batches``  a search in batches, which can be interrupted
``rounds``   what a search has done, round by round
``chain``    a chain on an approximation, by its gradient, and what it learns
"""
