"""Fixtures of the whole suite."""

import gc
import logging
import math
import os
import signal
from importlib import import_module
from pathlib import Path

import llvmlite.binding as llvm
import models
import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from pymc_kameleon.step import base

# PyMC reports each run at length; the tests that need its log use caplog.
logging.getLogger("pymc").setLevel(logging.WARNING)

# As many workers as cores: the threads of BLAS would only wait for each other.
threadpool_limits(1)

# A shell lets what runs in the background ignore Ctrl-C, and tests that press it would hang.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A chain that a test moves by hand has no run to take up its search after a pause, and on a machine
# that is busy any search takes long.
base.WARM_START_PATIENCE = math.inf

gc.set_threshold(50_000, 20, 20)


def pytest_report_header():
    """Say on which machine: the last bits of numbers depend on it."""
    blas = sorted({own["architecture"] for own in threadpool_info() if "architecture" in own})
    compiled_for = os.environ.get("NUMBA_CPU_NAME", "itself")
    return (
        f"processor: {llvm.get_host_cpu_name()}, compiled for {compiled_for}, "
        f"OpenBLAS for {', '.join(blas)}, {os.cpu_count()} cores"
    )


@pytest.fixture(scope="module", autouse=True)
def garbage():
    """Look for it seldom, and at what is left at the end of a file no more.

    What was compiled and imported is millions of objects, and lasts.
    """
    yield
    gc.collect()
    gc.freeze()


def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: item.get_closest_marker("forks") is None)


@pytest.fixture(scope="session")
def mixed_model():
    return models.mixed()


@pytest.fixture
def script(monkeypatch):
    """Return a function that imports a benchmark."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples" / "benchmarks")
    return import_module


@pytest.fixture
def without_search(monkeypatch):
    """Let no process search for the posterior, which takes most of the time of a short run."""
    of_search = "pymc_kameleon.samplers.surrogate.initial_search"
    monkeypatch.setattr(f"{of_search}.MOST_COORDINATES", 0)


@pytest.fixture
def begin_with(monkeypatch):
    """Return a function that lets chains begin where they are told, with these scales (d,).

    For comparisons with slow versions, which do not go to the posterior first.
    """

    # Here, for test_architecture.py must run without it.
    from pymc_kameleon.step.warm_start.search import WarmStart

    def begin(scales):
        def stay(logp, start, *how):
            x, f = start.copy(), logp(start)
            exact = np.zeros(x.size, bool)
            return WarmStart(x, f, scales, np.diag(scales), exact, 0.0, x[None], np.array([f]))

        of_search = "pymc_kameleon.step.initial_search"
        monkeypatch.setattr(f"{of_search}.InitialSearch.may_look", False)
        monkeypatch.setattr(f"{of_search}.approach", stay)
        monkeypatch.setattr(f"{of_search}.draw_near", lambda home, *_: home.x)

    return begin


@pytest.fixture
def from_start(begin_with):
    """Let chains begin where they are told, with the scales of the normal of three coordinates."""
    from componentwise import SCALES

    begin_with(SCALES)
