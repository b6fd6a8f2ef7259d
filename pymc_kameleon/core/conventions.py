"""Numbers that several rooms share: what rounding makes of floats, and usual sizes."""

import numpy as np

EPS, TINY = np.finfo(float).eps, np.finfo(float).tiny
"""Relative distance of neighbouring floats near 1, and the least normal float."""

ROOT_EPS = np.sqrt(EPS)
"""Relative size below which what long computations leave of a number is rounding."""

CHAINS = 4
"""Chains of a usual run, on every machine, so that results are the same everywhere."""

FEW = 30
"""Independent values from which a mean is nearly normal, and a variance known to a quarter."""

MOST_BYTES = 2**26
"""Memory for what waits to be written, may be asked for again, or is kept of evaluations."""

NUMBERS_PER_PART = 2**21
"""Numbers that are computed at a time, or that a chain keeps of evaluations, at most."""
