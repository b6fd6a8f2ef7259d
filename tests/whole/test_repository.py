"""What the files around the package name is there: targets, paths, versions, requirements."""

import json
import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
PYTHONS = [name.rpartition(" ")[2] for name in PROJECT["classifiers"] if "Python :: 3." in name]
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))

WORDS = ["CONTRIBUTING.md", "CODE_OF_CONDUCT.md", "RELEASING.md", "README.md", "docs/install.md"]
WORDS += [".ci/run", *(str(path.relative_to(ROOT)) for path in ROOT.glob("community/*"))]
SETTINGS = [".pre-commit-config.yaml", ".readthedocs.yaml", "CITATION.cff", "community/recipe.yaml"]
SETTINGS += [str(path.relative_to(ROOT)) for path in ROOT.glob(".github/**/*.yml")]
OTHERS = [".zenodo.json", ".github/pull_request_template.md", "docs/llms.txt"]
TEXTS = {n: (ROOT / n).read_text(encoding="utf-8") for n in {*WORDS, *SETTINGS, *OTHERS}}
PARSED = {name: yaml.safe_load(TEXTS[name]) for name in SETTINGS}
WORKFLOWS = {name: found for name, found in PARSED.items() if "workflows" in name}


def steps(*workflows):
    """Steps of the jobs of workflows."""
    return [s for workflow in workflows for job in workflow["jobs"].values() for s in job["steps"]]


# ---- targets and paths ----------------------------------------------------------------------


def made(text):
    """Targets of `make` that a text names, as code or on a line of its own."""
    runs = re.findall(r"(?:`|^\s*(?:- )?(?:run: |entry: )?)make ([\w -]+)", text, re.M)
    return {target for run in runs for target in run.split()}


def test_targets_are_those_of_the_makefile():
    assert {"lint", "test", "test-all", "docs-fast", "coverage", "canary"} <= TARGETS
    named = {name: made(text) for name, text in TEXTS.items()}
    assert {name: wrong for name, found in named.items() if (wrong := found - TARGETS)} == {}
    assert named[".ci/run"] == {"lint", "test", "docs-fast"}
    assert named[".github/workflows/ci.yml"] >= named[".ci/run"] | {"test-all"}
    assert made("`make tset`\n      - run: make docs dist\n") == {"tset", "docs", "dist"}
    weekly = WORKFLOWS[".github/workflows/weekly.yml"]["jobs"]["weekly"]
    assert set(weekly["strategy"]["matrix"]["target"]) <= TARGETS


def paths(text):
    """Files of the repository that a text names as code."""
    code = re.findall(r"`((?:[\w.-]+/)*[\w.-]+)`", text)
    return {name for name in code if "/" in name or name.endswith((".md", ".toml", ".cff"))}


def test_paths_are_there():
    named = {path for name in WORDS for path in paths(TEXTS[name])}
    for text in TEXTS.values():
        named |= set(re.findall(r"\b(?:docs|tests)/\S+?\.\w+\b", text))
    made_there = {"docs/_build/html", "docs/_build/fast"}
    assert {name for name in named - made_there if not (ROOT / name).exists()} == set()
    assert "tests/tools/same_draws.py" in named
    assert paths("`docs/none.md` and `make test`") == {"docs/none.md"}


def test_the_index_for_language_models_names_pages():
    """And the pages that a user reads first."""
    sources = re.findall(r"\]\(_sources/(\S+)\.txt\)", TEXTS["docs/llms.txt"])
    assert len(sources) == TEXTS["docs/llms.txt"].count("](") > 15
    assert [name for name in sources if not (ROOT / name).exists()] == []


def test_each_word_that_stands_for_an_address_is_listed():
    listed = set(re.findall(r"^\| `([A-Z0-9_]+)` \|", TEXTS["RELEASING.md"], re.M))
    apart = {"GITHUB_REF_NAME", "GITHUB_STEP_SUMMARY", "READTHEDOCS_OUTPUT"}  # variables
    used = {
        word
        for name, text in TEXTS.items()
        if name != "RELEASING.md"
        for word in re.findall(r"\b(?:MAINTAINER|[A-Z][A-Z0-9]*_[A-Z0-9_]+)\b", text)
    }
    files = {Path(name).stem for name in TEXTS}
    assert used - apart - files == listed


# ---- versions -------------------------------------------------------------------------------


def test_pythons_are_those_of_the_package():
    jobs = WORKFLOWS[".github/workflows/ci.yml"]["jobs"]
    assert jobs["test"]["strategy"]["matrix"]["python"] == PYTHONS
    used = [*(ROOT / ".python-version").read_text().split()]
    used += [PARSED[".readthedocs.yaml"]["build"]["tools"]["python"]]
    for step in steps(*WORKFLOWS.values()):
        if "setup-python" in step.get("uses", ""):
            used.append(step["with"]["python-version"])
    assert len(used) > 8
    assert set(used) - {"${{ matrix.python }}"} <= set(PYTHONS)
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    assert PARSED["community/recipe.yaml"]["context"]["python_min"] == PYTHONS[0]


def test_the_recipe_requires_what_the_package_requires():
    conda = {"matplotlib": "matplotlib-base"}
    wanted = {}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        wanted[conda.get(requirement.name, requirement.name)] = requirement.specifier
    recipe = PARSED["community/recipe.yaml"]
    python, *listed = (line.split() for line in recipe["requirements"]["run"])
    assert {name: SpecifierSet(bounds) for name, bounds in listed} == wanted
    assert python[0] == "python"


def test_what_the_package_is_called_and_its_version_are_said_once():
    recipe, cited = PARSED["community/recipe.yaml"], PARSED["CITATION.cff"]
    zenodo = json.loads(TEXTS[".zenodo.json"])
    assert {PROJECT["version"], recipe["context"]["version"]} == {cited["version"]}
    assert recipe["context"]["name"] == PROJECT["name"]
    assert recipe["about"]["summary"] == PROJECT["description"]
    assert {PROJECT["license"], recipe["about"]["license"], zenodo["license"]} == {cited["license"]}
    assert zenodo["title"] == cited["title"]
    assert zenodo["keywords"] == PROJECT["keywords"]
    assert [one["name"] for one in zenodo["creators"]] == [one["name"] for one in cited["authors"]]
    assert cited["authors"] == PROJECT["authors"]


def test_extras_that_are_named_are_there():
    named = {name for text in TEXTS.values() for name in re.findall(r"\.\[(\w+)\]", text)}
    assert named
    assert named <= PROJECT["optional-dependencies"].keys()


# ---- workflows ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKFLOWS)
def test_workflows_may_read_and_nothing_else(name):
    """But the one job that publishes may say who it is."""
    assert WORKFLOWS[name]["permissions"] == {"contents": "read"}
    jobs = WORKFLOWS[name]["jobs"]
    more = {job: jobs[job]["permissions"] for job in jobs if "permissions" in jobs[job]}
    assert more == ({"publish": {"id-token": "write"}} if "release" in name else {})


def test_only_a_tag_publishes():
    release = WORKFLOWS[".github/workflows/release.yml"]
    assert release[True] == {"push": {"tags": ["v*"]}}  # YAML takes `on` for True
    assert release["jobs"]["publish"]["needs"] == "build"
    publishing = [
        name
        for name, workflow in WORKFLOWS.items()
        if any("pypi-publish" in step.get("uses", "") for step in steps(workflow))
    ]
    assert publishing == [".github/workflows/release.yml"]


def test_the_tag_has_to_be_the_version():
    [check] = (s["run"] for s in steps(*WORKFLOWS.values()) if "REF_NAME" in s.get("run", ""))
    for version, passes in (PROJECT["version"], True), ("0.0.99", False):
        environment = os.environ | {"GITHUB_REF_NAME": f"v{version}"}
        done = subprocess.run(["bash", "-c", check], cwd=ROOT, env=environment, check=False)
        assert (done.returncode == 0) == passes
