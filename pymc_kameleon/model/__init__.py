"""A PyMC model, and the only door into PyMC."""
