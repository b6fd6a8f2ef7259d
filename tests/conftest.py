"""Fixtures of the whole suite."""

import logging

import models
import pytest
from threadpoolctl import threadpool_limits

# PyMC reports each run at length; the tests that need its log use caplog.
logging.getLogger("pymc").setLevel(logging.WARNING)

# As many workers as cores: the threads of BLAS would only wait for each other.
threadpool_limits(1)


@pytest.fixture(scope="session")
def mixed_model():
    return models.mixed()
