"""Fixtures of the whole suite."""

import logging

import pymc as pm
import pytest
from threadpoolctl import threadpool_limits

# PyMC reports each run at length; the tests that need its log use caplog.
logging.getLogger("pymc").setLevel(logging.WARNING)

# As many workers as cores: the threads of BLAS would only wait for each other.
threadpool_limits(1)


@pytest.fixture(scope="session")
def mixed_model():
    """Continuous variables of different shapes and supports, a discrete one, and data."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, [1.0, 2.0])
        b = pm.Gamma("b", 2, 1)
        k = pm.Poisson("k", 3)
        data = pm.Data("data", [0.5, 1.5, 1.0])
        pm.Normal("y", a[0] + 0.1 * k, b, observed=data)
    return model
