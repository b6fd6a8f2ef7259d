"""Models of other packages, and a simulator of its own process: examples/clients."""

import re
import runpy
import subprocess
import sys
import tempfile

import numpy as np
import pytest
from test_package import ROOT, example  # noqa: F401  (a fixture)

CLIENTS = ROOT / "examples" / "clients"


@pytest.fixture(scope="module")
def simulator():
    """Return what the example of a simulator defines."""
    return runpy.run_path(str(CLIENTS / "subprocess_simulator.py"), run_name="simulator")


def test_only_the_failure_of_parameters_is_a_rejection(simulator, monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    simulate = simulator["rod"].function
    seen = simulate(simulator["TRUTH"])
    assert seen.shape == simulator["SHAPE"]
    assert np.all(np.diff(seen, axis=0) > 0)  # it warms up
    assert np.all(np.isnan(simulate(np.array([60.0, 0.15, 60.0]))))
    monkeypatch.setitem(simulate.__globals__, "PROGRAM", [sys.executable, "-c", "raise OSError"])
    with pytest.raises(subprocess.CalledProcessError):
        simulate(simulator["TRUTH"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_simulator_that_is_a_program(example, tmp_path, monkeypatch):  # noqa: F811
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    arguments = ["--draws", 3, "--tune", 8, "--store", tmp_path / "rod.zarr"]
    printed = [example("clients/subprocess_simulator", *arguments) for _ in range(2)]
    first, again = (text[re.search(r"\d+ runs of", text).start() :] for text in printed)
    assert again == first  # read from the store
    assert [path.name for path in tmp_path.glob("rod-*")] == []


@pytest.mark.slow
def test_bambi_predicts_from_what_we_draw(example):  # noqa: F811
    pytest.importorskip("bambi", reason="Bambi is not installed: pip install bambi")
    printed = example("clients/bambi_model", "--draws", 300, "--tune", 300)
    mean, predicted = map(int, re.search(r"(\d+) ms, predicted (\d+) ms", printed).groups())
    assert abs(predicted - mean) < 8
    slopes = [float(mean) for mean in re.findall(r"^day +([\d.]+)", printed, re.MULTILINE)]
    np.testing.assert_allclose(*slopes, atol=1)  # of GadMALA, and of NUTS by pk.summary


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["blackbox", "analytical"])
def test_hssm_takes_our_steps(example, likelihood):  # noqa: F811
    pytest.importorskip("hssm", reason="HSSM is not installed: pip install hssm")
    arguments = ["--likelihood", likelihood, "--draws", 100, "--tune", 100]
    printed = example("clients/hssm_model", *arguments)
    means = [float(mean) for mean in re.findall(r"^a +([\d.]+)", printed, re.MULTILINE)]
    np.testing.assert_allclose(means, 1.16, atol=0.05)
    assert len(means) == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "package"), [("sundials", "sundials4py"), ("diffrax", "diffrax")]
)
def test_stiff_solvers(example, solver, package):  # noqa: F811
    pytest.importorskip(package, reason=f"pip install {package}")
    printed = example("clients/stiff_solvers", solver, "--evaluations", 300)
    means = [
        float(mean) for mean in re.findall(r"^rates\[\d\] +([\d.e+-]+)", printed, re.MULTILINE)
    ]
    np.testing.assert_allclose(means, [0.0411, 2.906e7, 1.0117e4], rtol=0.01)


@pytest.mark.slow
def test_a_state_space_model(example):  # noqa: F811
    pytest.importorskip("pymc_extras", reason="pymc-extras is not installed")
    printed = example("clients/pymc_extras_model", "--draws", 300, "--tune", 300)
    found = re.findall(r"^(?:ar_params\[.*?\]|sigma_state\S*) +([-\d.]+)", printed, re.MULTILINE)
    np.testing.assert_allclose([float(mean) for mean in found], [0.67, -0.33, 0.49], atol=0.08)


@pytest.mark.slow
@pytest.mark.parametrize("model", ["ParetoNBDModel", "BetaGeoModel"])
def test_customers(example, model):  # noqa: F811
    pytest.importorskip("pymc_marketing", reason="PyMC-Marketing is not installed")
    printed = example("clients/pymc_marketing_model", "--model", model, "--draws", 200)
    [r] = re.findall(r"^r +([\d.]+)", printed, re.MULTILINE)
    assert 0.1 < float(r) < 1.5
    assert 1 < int(re.search(r"(\d+)% of the customers", printed)[1]) < 99


@pytest.mark.parametrize("name", ["pymc_extras_model", "pymc_marketing_model"])
def test_a_missing_package_is_named(name, monkeypatch):
    main = runpy.run_path(str(CLIENTS / f"{name}.py"), run_name="client")["main"]
    monkeypatch.setitem(main.__globals__, "find_spec", lambda package: None)
    with pytest.raises(SystemExit, match="is not installed: pip install"):
        main([])


@pytest.mark.slow
def test_a_simulator_behind_a_network(example):  # noqa: F811
    pytest.importorskip("umbridge", reason="UM-Bridge is not installed: pip install umbridge")
    printed = example("clients/umbridge_simulator", "--evaluations", 300)
    rate, capacity = (
        float(re.search(rf"^{name} +([\d.]+)", printed, re.MULTILINE)[1])
        for name in ("rate", "capacity")
    )
    assert abs(rate - 1.30) < 0.02
    assert abs(capacity - 41.2) < 1
