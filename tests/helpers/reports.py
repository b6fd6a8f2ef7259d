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
    """Whether the verdict on a run is bad, and one of the causes is among its findings."""
    found = dt["findings"]
    return found.attrs["verdict"] != "usable" and bool(causes & set(found["code"].values.tolist()))
