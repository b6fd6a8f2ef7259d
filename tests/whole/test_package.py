"""The wheel works outside the checkout, the examples run, and the pages say what is so."""

import importlib
import logging
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import tables

from pymc_kameleon.core.arrays import floats

ROOT = Path(__file__).parents[2]

OUTSIDE = """
import sys; sys.path.insert(0, "site")
import pymc as pm, pymc_kameleon as pk
assert pk.__file__.startswith(sys.argv[1]), pk.__file__
with pm.Model():
    pm.Normal("x", shape=2)
    dt = pm.sample(draws=20, tune=20, chains=2, cores=2, step=pk.baselines.RWM(), progressbar=False,
                   compute_convergence_checks=False)
print(dt["posterior"]["x"].shape)
"""


def python(*arguments, cwd):
    """Run Python in a process of its own, and return what it printed."""
    environment = os.environ | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    result = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_a_wheel_installs_and_runs_outside_the_checkout(tmp_path):
    wheel = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    python(*wheel, "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (built,) = tmp_path.glob("*.whl")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", "site"]
    python(*install, built, cwd=tmp_path)
    assert python("-c", OUTSIDE, tmp_path, cwd=tmp_path).strip() == "(2, 20, 2)"


@pytest.fixture
def example(tmp_path, monkeypatch, capfd):
    """Return a function that runs an example as a script, and returns what it printed.

    In this process, as imports take seconds; in a directory of its own.
    """
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")

    def run(name, *arguments):
        path = str(ROOT / "examples" / f"{name}.py")
        monkeypatch.setattr(sys, "argv", [path, *map(str, arguments)])
        with warnings.catch_warnings():
            warnings.simplefilter("default")  # scripts are not stopped by warnings
            runpy.run_path(path, run_name="__main__")
        return capfd.readouterr().out

    logger = logging.getLogger("pymc")
    level = logger.level
    yield run
    logger.setLevel(level)


@pytest.mark.slow
def test_quickstart(example, tmp_path):
    printed = example("quickstart", "--draws", 20, "--tune", 20)
    assert "DEMetropolisZ" in printed
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000


@pytest.mark.slow
def test_simulators_are_emulated(example, tmp_path):
    printed = example("pharmacokinetics", "--draws", 20, "--tune", 10)
    assert re.search(r"^\d+ evaluations of", printed, re.MULTILINE)
    assert (tmp_path / "pharmacokinetics.png").stat().st_size > 10_000


@pytest.mark.slow
def test_spike_and_slab(example):
    printed = example("spike_and_slab", "--draws", 8, "--tune", 8)
    assert printed.count("probability to be free") == 2


@pytest.mark.slow
def test_logistic_regression(example):
    printed = example("logistic_regression", "--draws", 8, "--tune", 8)
    assert printed.splitlines()[1].startswith("GadMALA")


@pytest.mark.slow
def test_until_enough(example, tmp_path):
    printed = [example("until_enough", "--ess", ess, "--tune", 500) for ess in (150, 2400)]
    first, second = (int(re.search(r"(\d+) draws of each", text)[1]) for text in printed)
    assert 100 <= first < second < 100_000
    assert (tmp_path / "until_enough.zarr").exists()


def test_a_page_names_every_example():
    folders = "docs/*.md", "docs/tutorials/*.md", "examples/*/*.md"
    pages = [ROOT / "README.md", *(page for own in folders for page in ROOT.glob(own))]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    scripts = sorted(path.name for path in ROOT.glob("examples/**/*.py"))
    assert len(scripts) > 20
    assert [name for name in scripts if name not in text] == []


@pytest.mark.parametrize("name", tables.TABLES)
def test_the_tables_of_samplers_and_findings_are_those_of_the_code(name):
    page, expected = tables.with_table(name)
    assert page == expected, "run python docs/tables.py"
    assert len(tables.TABLES[name]()) > 10


def test_the_tables_of_reliability_are_those_of_its_runs(script):
    benchmark, reliability = script("benchmark"), script("reliability")
    rows = benchmark.load(reliability.FILE)
    [(name, own)] = reliability.tables(rows).items()
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert benchmark.filled(page, own) == page, "run reliability.py --table"
    assert {row["sampler"] for row in rows} == {"known", *reliability.SAMPLERS}
    assert {row["case"] for row in rows} == reliability.CASES.keys()
    run = next(row for row in rows if row["sampler"] != "known")
    run |= {"right": False, "told": []}
    lines = reliability.tables(rows)["reliability.md"]["tables"]
    assert "Wrong without a caution: 1." in lines


def test_the_tables_of_peers_are_those_of_its_runs(script):
    benchmark, peers = script("benchmark"), script("peers")
    rows = benchmark.load(peers.FILE)
    for name, own in peers.tables(rows).items():
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert benchmark.filled(page, own) == page, "run peers.py --table"
    assert {row["case"] for row in rows} == peers.CASES.keys()
    assert {row["of"] for row in rows} == peers.ALL.keys()
    gam = [row for row in rows if row["sampler"] == "GAM" and row["evaluations"] == peers.SHOWN]
    gam[0]["worst"] = 12_345
    lines = [line for line in peers.tables(rows)["../README.md"]["peers"] if "pk.GAM" in line]
    assert len(lines) == 1
    assert "**12 000**" in lines[0]
    gam[0] |= {"worst": 0, "failed": "too slow: 99 s a run"}
    changed = peers.tables(rows)["peers.md"]
    assert any("| too slow |" in line for line in changed["summary"])
    assert any("99 s a run" in line for line in changed["failures"])


@pytest.mark.parametrize(
    ("script", "number"),
    [
        ("ckam_ablations", "values"),
        ("ckam_convergence", "seconds"),
        ("ckam_weights", "estimates"),
        ("cmtm_adaptation", "act"),
        ("cmtm_comparison", "ess"),
        ("cmtm_selection", "acceptance"),
        ("discrepancy", "error"),
        ("driver", "ratio"),
        ("emulator_calls", "calls"),
        ("evaluations", "worst"),
        ("evidence", "standard_error"),
        ("expensive_peers", "errors"),
        ("gad_figure1", "deviation"),
        ("gad_mnist", "seconds"),
        ("gad_tables", "acceptance"),
        ("kam_figure5", "deviation"),
        ("kam_glass", "ess"),
        ("kam_mixture", "deviation"),
        ("kam_subsample", "deviation"),
        ("mirrored", "off"),
        ("modes", "ess"),
        ("modes", "value"),
        ("stated_errors", "z"),
    ],
)
def test_tables_are_those_of_the_runs(script, number, monkeypatch):
    for folder in ("papers", "benchmarks"):
        monkeypatch.syspath_prepend(ROOT / "examples" / folder)
    import benchmark

    module = importlib.import_module(script)
    rows = benchmark.load(module.FILE)
    for name, tables_of_page in module.tables(rows).items():
        page = (ROOT / "docs" / name).read_text(encoding="utf-8")
        assert benchmark.filled(page, tables_of_page) == page, f"run {script}.py"
        assert all(len(lines) > 3 for lines in tables_of_page.values())
    before = module.tables(rows)
    for row in rows:
        if number in row:
            row[number] = np.add(row[number], 1000).tolist()
    assert module.tables(rows) != before


def test_the_pages_name_every_sampler_and_its_statistics(monkeypatch):
    assert tables.undocumented() == []

    class Stats(NamedTuple):
        unheard_of: floats(1)

    stranger = type("Stranger", (tables.pk.baselines.RWM,), {"stats": Stats})
    monkeypatch.setattr(tables.pk.samplers, "SAMPLERS", (stranger,))
    assert tables.undocumented() == ["Stranger", "unheard_of"]
