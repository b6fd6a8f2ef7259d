"""What we take from PyMC, and the log."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest

from pymc_kameleon.model import pymc_internals

SCRIPT = """
import logging
import pymc_kameleon
from pymc.sampling.mcmc import _quiet_logging

ours, theirs = logging.getLogger("pymc_kameleon"), logging.getLogger("pymc")

def say(where):
    ours.info("ours %s", where)
    theirs.info("theirs %s", where)

say("at first")
theirs.setLevel("WARNING")
say("hidden")
ours.setLevel("INFO")
ours.info("ours alone")
with _quiet_logging(True):
    say("quietly")
ours.setLevel("NOTSET")
theirs.setLevel("INFO")
logging.basicConfig(format="%(name)s: %(message)s")
say("configured")
"""


@pytest.mark.slow
def test_messages_are_shown_once_where_and_when_those_of_pymc_are():
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    lines = result.stderr.splitlines()
    assert lines[:3] == ["ours at first", "theirs at first", "ours alone"]
    # PyMC itself says it twice.
    assert [line for line in lines[3:] if "ours" in line] == ["pymc_kameleon: ours configured"]


def test_without_what_all_samplers_need_nothing_is_imported(monkeypatch):
    monkeypatch.delattr("pymc.step_methods.arraystep.ArrayStepShared")
    spec = spec_from_file_location("fresh", pymc_internals.__file__)
    said = r"lacks a part that it needs: .*ArrayStepShared.*Install an older PyMC, from 6\.3 on"
    with pytest.raises(ImportError, match=said):
        spec.loader.exec_module(module_from_spec(spec))
