"""Toys of PINTS and tasks of sbibm: what is known of them, and the page's tables."""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suites(monkeypatch):
    """Return the script, without SciPy's solver's word on failures."""
    monkeypatch.syspath_prepend(ROOT / "examples" / "benchmarks")
    import suites

    return suites


def test_the_tables_are_those_of_the_runs(suites):
    import pages

    rows = pages.load(suites.FILE)
    [(name, own)] = suites.tables(rows).items()
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert pages.filled(page, own) == page, "run suites.py --table"
    runs = [row for row in rows if "seed" in row]
    assert len({row["problem"] for row in runs}) >= 30
    assert {row["seed"] for row in runs} == set(range(4))
    [missed] = [row for row in runs if row["problem"] == "Gaussian" and row["seed"] == 2]
    missed["off"]["mean of summary"] = 0.3
    assert any("Gaussian | 2" in line for line in suites.tables(rows)["suites.md"]["silent"])


def test_weighted_draws_have_the_moments_of_as_many_equal_ones(suites):
    x = np.random.default_rng(1).gamma(2.0, size=(400, 2))
    n = np.random.default_rng(2).integers(1, 5, 400)
    weighted = suites.moments_of(x, n / n.sum())
    equal = suites.moments_of(np.repeat(x, n, axis=0))
    for name in ("mean", "sd"):
        np.testing.assert_allclose(weighted[name], equal[name])
    np.testing.assert_allclose(weighted["quantiles"], equal["quantiles"], rtol=0.02)


def test_a_missed_mode_is_wrong(suites):
    rng = np.random.default_rng(1)
    centres = [[0.0, 0.0], [10.0, 10.0]]
    truth = suites.normals(centres, [np.eye(2)] * 2)
    known = suites.known_of(suites.Toy(lambda: (None, None), truth, centres))
    assert known["masses"] == [0.5, 0.5]
    both, _ = truth(None, rng)
    for draws, is_right in ((both, True), (both[: len(both) // 2], False)):
        mass = suites.shares(draws, None, np.array(centres))
        off = {"mass": float(np.abs(mass - known["masses"]).max())}
        for what, errors in suites.errors_of(suites.moments_of(draws), known).items():
            off[what] = float(np.abs(errors).max())
        found = suites.verdict({"off": off, "told": []}, known)
        assert found == ("right" if is_right else suites.SILENT)


def test_importance_sampling_finds_a_normal(suites):
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    precision = np.linalg.inv(covariance)
    model = suites.of_density(lambda x: -(x - 3) @ precision @ (x - 3) / 2, 2)
    draws, w = suites.by_importance(model, None, np.random.default_rng(1), (200, 1000), 6)
    mean = w @ draws
    assert 1 / np.sum(w**2) > 300
    np.testing.assert_allclose(mean, 3, atol=0.2)
    np.testing.assert_allclose((draws - mean).T * w @ (draws - mean), covariance, atol=0.25)


def test_tasks_of_sbibm_read_what_is_stored(suites, tmp_path):
    theta = np.linspace(0.2, 0.4, 10)
    for n in range(1, suites.OBSERVATIONS + 1):
        for folder in suites.TASKS:
            own = tmp_path / "sbibm" / "tasks" / folder / "files" / f"num_observation_{n}"
            own.mkdir(parents=True)
            draws = own / "reference_posterior_samples.csv.bz2"
            np.savetxt(draws, np.array([theta, -theta]), delimiter=",", header="x", comments="")
        sizes = {"sir": 10, "lotka_volterra": 20, "slcp": 8, "gaussian_linear": 10}
        for folder, size in sizes.items():
            own = tmp_path / "sbibm" / "tasks" / folder / "files" / f"num_observation_{n}"
            np.savetxt(own / "observation.csv", np.ones((1, size)), delimiter=",", header="x")
    tasks = suites.of_sbibm(tmp_path)
    model, calls = tasks["SIR of sbibm 1"].model()
    assert np.isfinite(list(model.point_logps().values())).all()
    assert len(calls) > 0


def test_without_a_suite_its_problems_are_left_out(suites, tmp_path, capsys):
    assert suites.of_sbibm(tmp_path) == {}
    assert "git clone" in capsys.readouterr().err


def test_a_toy_of_pints_runs(suites, tmp_path):
    pytest.importorskip("pints")
    toys = suites.of_pints()
    assert len(toys) >= 30
    file = tmp_path / "suites.json"
    toy = toys["Gaussian"]._replace(budget=200)
    suites.measured(
        file, [({"problem": "Gaussian", "what": "truth"}, lambda: suites.known_of(toy))]
    )
    row = suites.run("Gaussian", toy, 0, file)
    assert row["evaluations"] <= 200
    assert row["sampler"] == "SurrogateMetropolis"
    assert row["off"]["mean of summary"] < 0.2
