"""Compiled building blocks of the samplers: numpy and numba only, nothing of PyMC."""
