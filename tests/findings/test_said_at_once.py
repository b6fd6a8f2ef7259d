"""What is said while a run is prepared, or goes on, of states that are made to be so."""

import logging
from concurrent.futures import Executor
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from models import normal
from runs import codes, messages, sample

import pymc_kameleon as pk
from pymc_kameleon.analysis.corrections import Correction, best_of
from pymc_kameleon.analysis.evidence.draws import say_what_counts
from pymc_kameleon.model.evaluators import Evaluators
from pymc_kameleon.sampling import bridging, outcome, starts_of_run, workers
from pymc_kameleon.sampling.outcome import Finish


@pytest.fixture
def said(caplog):
    """Return the codes of what was logged."""
    caplog.set_level(logging.INFO, "pymc_kameleon")
    return lambda: [text.rpartition("[")[2].rstrip("]") for text in messages(caplog)]


def test_an_executor_that_has_to_wait(said):
    job = SimpleNamespace(users_ops=[pk.black_box(np.copy)], in_numba=False)
    assert workers._has_calls(job, Evaluators(Executor()))
    assert said() == ["executor_in_turn"]


def test_starts_that_were_rejected(said):
    starts_of_run.Density.say_what_was_rejected(SimpleNamespace(failures=["raised an error"] * 2))
    assert said() == ["rejected_starts"]


def test_evaluations_for_the_evidence_that_were_rejected(said):
    watch = SimpleNamespace(
        n_rejected=np.array([3, 0]), points=np.ones((9, 2)), error=["raised an error"]
    )
    bridging.Evaluating._say_what_was_rejected(SimpleNamespace(_watch=watch))
    assert said() == ["evidence_of_rejections"]


def test_what_an_evidence_depends_on(said):
    with pm.Model() as model:
        pm.Flat("x")
        pm.Potential("p", -(model["x"] ** 2))
    say_what_counts(model, {"x": (0, 1)})
    assert said() == ["evidence_of_region", "evidence_of_flat_prior", "evidence_of_potentials"]


def test_a_correction_that_raises():
    def raises(values, function):
        raise ArithmeticError("no solution")

    found, values = [], np.random.default_rng(1).standard_normal((4, 100, 1))
    assert best_of({"by_it": Correction(raises, True)}, values, abs, found) is None
    assert codes(found) == ["failed_correction"]
    assert "ArithmeticError: no solution" in found[0].what


def test_a_run_that_is_interrupted_while_its_draws_are_judged(said, monkeypatch):
    def interrupted(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(Finish, "conclude", interrupted)
    result = sample(pk.GAM(model=normal(2)))
    assert result["posterior"].sizes["draw"] == 30
    assert said()[-1] == "unchecked"


def test_findings_that_a_full_disk_does_not_take(said, monkeypatch, tmp_path):
    def full(*arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(outcome, "add_group", full)
    result = sample(pk.GAM(model=normal(2)), store=tmp_path / "run.zarr")
    assert said()[-1] == "findings_not_kept"
    assert "findings" in result.children
