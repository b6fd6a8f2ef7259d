"""The wheel works outside the checkout, and the examples run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import tables

ROOT = Path(__file__).parents[1]

OUTSIDE = """
import sys; sys.path.insert(0, "site")
import pymc as pm, pymc_kameleon as pk
assert pk.__file__.startswith(sys.argv[1]), pk.__file__
with pm.Model():
    pm.Normal("x", shape=2)
    dt = pm.sample(draws=20, tune=20, chains=2, cores=2, step=pk.RWM(), progressbar=False,
                   compute_convergence_checks=False)
print(dt["posterior"]["x"].shape)
"""


def python(*arguments, cwd):
    """Run Python in a process of its own, and return what it printed."""
    environment = os.environ | {"MPLBACKEND": "Agg", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
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


def test_a_wheel_installs_and_runs_outside_the_checkout(tmp_path):
    wheel = ["-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    python(*wheel, "--wheel-dir", tmp_path, ROOT, cwd=tmp_path)
    (built,) = tmp_path.glob("*.whl")
    install = ["-m", "pip", "install", "--quiet", "--no-deps", "--target", "site"]
    python(*install, built, cwd=tmp_path)
    assert python("-c", OUTSIDE, tmp_path, cwd=tmp_path).strip() == "(2, 20, 2)"


def test_quickstart(tmp_path):
    arguments = ["--draws", "20", "--tune", "20"]
    printed = python(ROOT / "examples" / "quickstart.py", *arguments, cwd=tmp_path)
    assert "DEMetropolisZ" in printed
    assert (tmp_path / "quickstart.png").stat().st_size > 10_000


def test_spike_and_slab(tmp_path):
    arguments = ["--draws", "20", "--tune", "20"]
    printed = python(ROOT / "examples" / "spike_and_slab.py", *arguments, cwd=tmp_path)
    assert printed.count("probability to be free") == 2


def test_logistic_regression(tmp_path):
    arguments = ["--draws", "20", "--tune", "20"]
    printed = python(ROOT / "examples" / "logistic_regression.py", *arguments, cwd=tmp_path)
    assert printed.splitlines()[1].startswith("GadMALA")


def test_until_enough(tmp_path):
    example = ROOT / "examples" / "until_enough.py"
    printed = [python(example, "--ess", ess, cwd=tmp_path) for ess in (150, 2000)]
    first, second = (int(re.search(r"(\d+) draws of each", text)[1]) for text in printed)
    assert 100 <= first < second < 100_000
    assert (tmp_path / "until_enough.zarr").exists()


def test_a_page_names_every_example():
    pages = [ROOT / "README.md", *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*/*.md")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    scripts = sorted(path.name for path in ROOT.glob("examples/**/*.py"))
    assert len(scripts) > 20
    assert [name for name in scripts if name not in text] == []


def test_the_table_of_samplers_is_that_of_the_classes():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert tables.with_table(readme) == readme, "run python docs/tables.py"
    assert tables.with_table(readme.replace("pk.GAM`", "pk.MAG`")) == readme
    assert "evaluations per draw" in readme


def test_the_pages_name_every_sampler_and_its_statistics(monkeypatch):
    assert tables.undocumented() == []
    stranger = type("Stranger", (tables.pk.RWM,), {"own_stats": ("unheard_of",)})
    monkeypatch.setattr(tables.pk, "SAMPLERS", (stranger,))
    assert tables.undocumented() == ["Stranger", "unheard_of"]
