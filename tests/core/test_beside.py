"""Compilation in another process, beside what this one does meanwhile."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from numba import config, typeof

from pymc_kameleon.core import beside
from pymc_kameleon.core.beside import compiled_beside
from pymc_kameleon.core.jit import cached_jit, jit, specialise

VECTOR = np.ones(3)


@jit
def doubled(x):
    return 2.0 * x[0]


@pytest.fixture
def entry(tmp_path, monkeypatch):
    """Return an entry point that is not on disk yet, and have two processors, and one thread."""
    monkeypatch.setattr(config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1}, raising=False)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # pytest-xdist has others
    return new_entry()


def new_entry():
    def call(x):
        return doubled(x)

    return cached_jit(call, (doubled,))


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="nothing is forked elsewhere")


@linux_only
def test_what_the_child_compiled_is_loaded(entry):
    with compiled_beside(entry, VECTOR) as is_beside:
        assert is_beside
        until = time.monotonic() + 60
        while not entry._cache.holds((typeof(VECTOR),)) and time.monotonic() < until:
            time.sleep(0.02)
        time.sleep(0.2)  # the index is written before the code
    loaded = new_entry()
    assert specialise(loaded, VECTOR)(VECTOR) == 2.0
    assert sum(loaded.stats.cache_hits.values()) == 1
    with compiled_beside(new_entry(), VECTOR) as is_beside:
        assert not is_beside  # it is on disk


@linux_only
def test_who_needs_it_meanwhile_gets_it(entry):
    with compiled_beside(entry, VECTOR) as is_beside:
        assert is_beside
        assert specialise(entry, VECTOR)(VECTOR) == 2.0


@linux_only
def test_an_error_in_the_block_ends_the_child(entry, monkeypatch):
    fork, children = beside._fork, []
    monkeypatch.setattr(beside, "_fork", lambda work: children.append(fork(work)) or children[0])
    monkeypatch.setattr(beside, "entry_point", lambda *arguments: time.sleep(600))
    with pytest.raises(KeyboardInterrupt), compiled_beside(entry, VECTOR):
        raise KeyboardInterrupt
    with pytest.raises(ProcessLookupError):
        os.kill(children[0], 0)


@linux_only
def test_where_no_process_can_be_made_it_is_compiled_here(entry, monkeypatch):
    def fails():
        raise BlockingIOError("Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fails)
    with compiled_beside(entry, VECTOR) as is_beside:
        assert not is_beside


@linux_only
def test_signals_of_the_program_are_not_handled_in_the_child(entry, monkeypatch, tmp_path):
    def seen(*arguments):
        (tmp_path / "seen").write_text(str(signal.getsignal(signal.SIGTERM)))

    monkeypatch.setattr(beside, "entry_point", seen)
    before = signal.signal(signal.SIGTERM, lambda *arguments: None)
    try:
        with compiled_beside(entry, VECTOR):
            until = time.monotonic() + 20
            while not (tmp_path / "seen").exists() and time.monotonic() < until:
                time.sleep(0.02)
            time.sleep(0.2)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert (tmp_path / "seen").read_text() == str(signal.SIG_DFL)


@linux_only
def test_an_error_of_the_child_comes_again_here(entry, monkeypatch, capfd):
    def fails(*arguments):
        raise RuntimeError("of the child")

    monkeypatch.setattr(beside, "entry_point", fails)
    with compiled_beside(entry, VECTOR):
        time.sleep(0.5)
    assert capfd.readouterr().err == ""
    assert specialise(entry, VECTOR)(VECTOR) == 2.0
    assert sum(entry.stats.cache_misses.values()) == 1


@pytest.mark.parametrize(
    ("where", "name", "value"), [(os, "sched_getaffinity", {0}), (threading, "active_count", 2)]
)
def test_one_processor_and_threads_compile_alone(entry, monkeypatch, where, name, value):
    monkeypatch.setattr(where, name, lambda *arguments: value, raising=False)
    with compiled_beside(entry, VECTOR) as is_beside:
        assert not is_beside
