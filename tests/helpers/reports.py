"""Whether a run is right, or a warning names the cause."""

import numpy as np

import pymc_kameleon as pk


def off_by(dt, name, mean, sd):
    """Return how far means by pk.summary are off, in posterior standard deviations."""
    found = pk.summary(dt, name, round_to="none")["mean"].to_numpy(float)
    return np.abs(found - mean) / sd


def told(said, *causes):
    """Whether a message names one of the causes."""
    return any(cause in text for text in said for cause in causes)
