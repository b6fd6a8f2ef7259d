"""Samplers that use the gradient: MALA, Barker, and GadRWM and GadMALA in ``gad``."""
