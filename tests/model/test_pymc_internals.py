"""What we take from PyMC: parts that may be missing, and the log."""

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location

import pytest
from models import normal

import pymc_kameleon as pk
from pymc_kameleon.model import pymc_internals
from pymc_kameleon.model.pymc_internals import Missing, part
from pymc_kameleon.result import columns
from pymc_kameleon.sampling import progress

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


# ---- parts that PyMC does not have ----------------------------------------------------------

SMALL = {"tune": 10, "draws": 10, "chains": 1, "compute_convergence_checks": False}


@pytest.mark.parametrize(
    "use",
    [
        lambda gone: gone("x"),
        lambda gone: gone.attribute,
        lambda gone: isinstance("x", gone),
        lambda gone: isinstance("x", gone | int),
        lambda gone: isinstance("x", int | gone),
    ],
)
def test_a_missing_part_is_told_with_its_feature_when_it_is_used(use, monkeypatch):
    assert part("x", "pymc.logprob.transforms", "CircularTransform").__name__ == "CircularTransform"
    monkeypatch.delattr("pymc.logprob.transforms.CircularTransform")
    gone = part("the evidence", "pymc.logprob.transforms", "CircularTransform")
    with pytest.raises(ImportError, match=r"CircularTransform, which is needed for the evidence\."):
        use(gone)


def test_a_run_says_before_it_draws_what_it_misses(monkeypatch):
    gone = Missing("pymc.backends.arviz.find_constants", "data in results")
    monkeypatch.setattr(columns, "find_constants", gone)
    with pytest.raises(ImportError, match="find_constants, which is needed for data in results"):
        pk.sample(model=normal(), step=pk.GAM, progressbar=False, **SMALL)


def test_without_its_parts_the_bar_is_turned_off(monkeypatch, caplog):
    caplog.set_level("INFO", "pymc_kameleon")
    gone = Missing("pymc.progress_bar.gone", "the progress bar")
    monkeypatch.setattr(progress, "MarkerProgressBar", gone)
    dt = pk.sample(model=normal(), step=pk.GAM, **SMALL)
    assert dt["posterior"].sizes["draw"] == 10
    [said] = [record.message for record in caplog.records if "progress bar" in record.message]
    assert "has no pymc.progress_bar.gone" in said
    assert "turned off" in said


def test_without_what_all_samplers_need_nothing_is_imported(monkeypatch):
    monkeypatch.delattr("pymc.step_methods.arraystep.ArrayStepShared")
    spec = spec_from_file_location("fresh", pymc_internals.__file__)
    said = r"all samplers need: .*ArrayStepShared.*Install an older PyMC, from 6\.3 on"
    with pytest.raises(ImportError, match=said):
        spec.loader.exec_module(module_from_spec(spec))
