"""Samplers that use the gradient: MALA, and GadRWM and GadMALA in ``gad``."""
