"""Toys of PINTS and tasks of sbibm: what is known of them, and the page's tables."""

from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.filterwarnings("ignore:Numba will use object mode:UserWarning")

ROOT = Path(__file__).parents[2]


@pytest.fixture
def suites(script):
    """Return the script, without SciPy's solver's word on failures."""
    return script("suites")


def test_the_tables_are_those_of_the_runs(suites):
    import benchmark

    rows = benchmark.load(suites.FILE)
    [(name, own)] = suites.tables(rows).items()
    page = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert benchmark.filled(page, own) == page, "run suites.py --table"
    runs = [row for row in rows if "seed" in row]
    assert len({row["case"] for row in runs}) >= 30
    assert {row["seed"] for row in runs} == set(range(4))
    [missed] = [row for row in runs if row["case"] == "Gaussian" and row["seed"] == 2]
    missed["off"]["mean of summary"] = 0.3
    assert any("Gaussian | 2" in line for line in suites.tables(rows)["suites.md"]["silent"])


def test_a_missed_mode_is_wrong(suites):
    rng = np.random.default_rng(1)
    centres = [[0.0, 0.0], [10.0, 10.0]]
    truth = suites.normals(centres, [np.eye(2)] * 2)
    known = suites.known_of(suites.Toy(lambda: (None, None), truth, centres))
    assert known["masses"] == [0.5, 0.5]
    both, _ = truth(None, rng)
    for draws, is_right in ((both, True), (both[: len(both) // 2], False)):
        mass = suites.shares(draws, np.array(centres))
        off = {"mass": float(np.abs(mass - known["masses"]).max())}
        for what, errors in suites.errors_of(suites.moments_of(draws), known).items():
            off[what] = float(np.abs(errors).max())
        found = suites.verdict({"off": off, "told": []}, known)
        assert found == ("right" if is_right else suites.SILENT)


@pytest.mark.slow
def test_chains_find_a_normal(suites):
    covariance = np.array([[1.0, 0.8], [0.8, 1.0]])
    precision = np.linalg.inv(covariance)
    model = suites.of_density(lambda x: -(x - 3) @ precision @ (x - 3) / 2, 2)
    draws, ess = suites.by_chains(model, None, np.random.default_rng(1), (200, 1500))
    assert 500 < ess < len(draws) == 4800
    np.testing.assert_allclose(draws.mean(axis=0), 3, atol=0.2)
    np.testing.assert_allclose(np.cov(draws.T), covariance, atol=0.25)


@pytest.mark.slow
def test_either_decay_of_messenger_rna_may_be_the_faster_one(suites):
    model, calls = suites.transfection()
    logp = model.compile_logp()
    point = model.initial_point()
    values = [np.array([0.3, 0.8, a, b]) for a, b in ((-1.0, 0.0), (0.0, -1.0), (-0.5, -0.5))]
    to = model.rvs_to_transforms[model["theta"]].forward
    at = [
        float(logp(point | {"theta_interval__": to(x, *model["theta"].owner.inputs).eval()}))
        for x in values
    ]
    assert at[0] == pytest.approx(at[1], rel=1e-9)
    assert np.isfinite(at[2])  # both are the same
    assert len(calls) > 0


def test_numbers_are_read_from_matlab(suites, tmp_path):
    folder = tmp_path / "matlab" / "problems"
    folder.mkdir(parents=True)
    (folder / "infbench_lumpy.m").write_text(
        "case 3\n Mu = [9];\ncase 4\n w = [0.25;0.75];\n Mu = [1 2;3 -4e-1];\n"
        " Sigma(1,:,:) = [1 0;0 2]; Sigma(2,:,:) = [3 0;0 4];\ncase 5\n Mu = [7];\n"
    )
    [mu] = suites.matlab(tmp_path, "lumpy", "Mu")
    np.testing.assert_array_equal(mu, [[1, 2], [3, -0.4]])
    first, second = suites.matlab(tmp_path, "lumpy", "Sigma")
    np.testing.assert_array_equal(first + second, [[4, 0], [0, 6]])


@pytest.mark.slow
def test_constrained_bananas_have_the_moments_that_infbench_states(suites):
    draws, _ = suites.bananas_truth(None, np.random.default_rng(1))
    np.testing.assert_allclose(draws.mean(axis=0), [1.1027, 1.6884] * 2, atol=0.02)
    np.testing.assert_allclose(draws.var(axis=0), [0.3831, 2.1003] * 2, rtol=0.03)


@pytest.mark.slow
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
    assert suites.of_umbridge(None) == {}
    assert "pip install umbridge" in capsys.readouterr().err
    assert list(suites.of_infbench(None)) == ["constrained bananas"]


def test_a_toy_of_pints_runs(suites, tmp_path):
    pytest.importorskip("pints")
    import benchmark

    toys = suites.of_pints()
    assert len(toys) >= 30
    file = tmp_path / "suites.json"
    toy = toys["Gaussian"]._replace(budget=200)
    benchmark.measured(
        file, [({"case": "Gaussian", "what": "truth"}, lambda: suites.known_of(toy))]
    )
    row = suites.run("Gaussian", toy, 0, file)
    assert row["evaluations"] <= 200
    assert row["sampler"] == "SurrogateMetropolis"
    assert row["off"]["mean of summary"] < 0.2
