"""Whether a run is right, or its findings name the cause."""

import numpy as np

import pymc_kameleon as pk


def off_by(dt, name, mean, sd):
    """Return how far means by pk.summary are off, in posterior standard deviations."""
    found = pk.summary(dt, name, round_to="none")["mean"].to_numpy(float)
    return np.abs(found - mean) / sd


MISSED_MODE = {"no_search", "few_searches", "other_ends", "blind_search", "modes_apart"}
"""Findings that name a mode that was missed, or whose weight is not known."""


def told(dt, causes=frozenset(MISSED_MODE)):
    """Whether one of the causes is among the findings of a run."""
    return bool(causes & set(dt["findings"]["code"].values.tolist()))
