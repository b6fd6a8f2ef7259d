"""What runs say before the first draw and after the last one."""

import logging
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from models import box, normal
from runs import QUIET, codes

import pymc_kameleon as pk
from pymc_kameleon.findings.finding import finding, merged
from pymc_kameleon.findings.words import chains_named, counted, in_words
from pymc_kameleon.sampling import outcome
from pymc_kameleon.step import draw_costs
from pymc_kameleon.step import messages as step_messages
from pymc_kameleon.step.messages import say_if_compiling


@pytest.fixture
def said(caplog):
    """Return what the package has logged since the last call."""
    caplog.set_level(logging.INFO, "pymc_kameleon")

    def messages():
        found = [r.getMessage() for r in caplog.records if r.name == "pymc_kameleon"]
        caplog.clear()
        return found

    return messages


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (5e-8, "50 ns"),
        (2.14e-3, "2.1 ms"),
        (0.2149, "210 ms"),
        (0.9996, "1 s"),
        (1.249, "1.2 s"),
        (59.6, "1 min"),
        (84, "1.4 min"),
        (180, "3 min"),
        (3500, "58 min"),
        (3540, "59 min"),
        (3560, "1 h 0 min"),
        (7810, "2 h 10 min"),
        (160_000, "44 h 27 min"),
        (273_000, "3 d 4 h"),
    ],
)
def test_durations_in_words(seconds, words):
    assert in_words(seconds) == words


def test_numbers_and_chains_in_words():
    assert [counted(n, "draw") for n in (1, 1470, 12_300)] == [
        "1 draw",
        "1470 draws",
        "12 300 draws",
    ]
    assert chains_named([2], 4) == "chain 2"
    assert chains_named([0, 1, 3], 64) == "chains 0, 1, 3"
    assert chains_named([*range(61)], 64) == "61 of 64 chains (0, 1, 2, …)"
    assert chains_named([*range(64)], 64) == "all 64 chains (0, 1, 2, …)"


# ---- before the first draw ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "n", "at_once", "words"),
    [
        (
            [0.1],
            80_000,
            2,
            "At most 80 000 evaluations of 100 ms: about 1 h 7 min with 2 at a time",
        ),
        ([0.1, 0.2], 20, 1, "At most 20 evaluations of 200 ms: about 4 s with 1 at a time"),
        ([1e-4], 1000, 1, ""),
        ([0.1], 0, 1, ""),
        ([0.1, np.nan], 1000, 1, ""),  # it raised at the initial point
    ],
)
def test_what_an_expensive_run_costs(seconds, n, at_once, words):
    steps = [SimpleNamespace(seconds_per_logp=own) for own in seconds]
    assert draw_costs.what_a_run_costs(steps, n, at_once) == words


@pytest.mark.parametrize("seconds", [2, 1e-6])
def test_an_evaluation_is_timed_at_most_three_times(seconds, monkeypatch):
    now, count = [0.0], [0]

    def logp(q):
        now[0] += seconds
        count[0] += 1

    monkeypatch.setattr(draw_costs.time, "perf_counter", lambda: now[0])
    assert draw_costs.seconds_per_logp(logp, np.zeros(1), []) == pytest.approx(seconds)
    assert count == [2 if seconds > 1 else 3]


@pytest.mark.parametrize("long", [True, False])
def test_compiling_is_announced_and_its_end_told(long, said, monkeypatch):
    class Timer:
        """Fires at once, or never."""

        def __init__(self, seconds, function):
            self.function = function

        def start(self):
            if long:
                self.function()

        def cancel(self):
            pass

        join = cancel

    monkeypatch.setattr(step_messages, "Timer", Timer)
    with say_if_compiling("the transitions of KAM"):
        pass
    messages = said()
    assert len(messages) == (2 if long else 0)
    if long:
        assert messages[0] == "Compiling the transitions of KAM, once per machine and version …"
        assert messages[1].startswith("… compiling the transitions of KAM done in ")


# ---- after the last draw ------------------------------------------------------------------------


def test_a_short_run_took_some_time(said):
    model = normal(1)
    pk.sample(20, tune=50, chains=1, step=pk.baselines.RWM(model=model), model=model, **QUIET)
    took = re.search(r" evaluations in (\S+ \S+)\.", said()[-1])
    assert took[1][0] != "0"


@pytest.mark.parametrize("tune", [0, 5])
def test_all_chains_tell_together_what_they_have_in_common(tune):
    """Also if only the numbers differ; and a run that goes on tells of the whole result."""
    op, model = box()
    op.function = lambda x: 0.0 if abs(x[0] - 0.3) < 1e-9 else np.nan  # nothing is accepted
    starts = [{"x": np.array([0.3, i])} for i in range(3)]
    step = pk.baselines.RWM(model=model, steps_per_draw=10)
    options = {"chains": 3, "cores": 1, "model": model} | QUIET
    first = pk.sample(30, tune=tune, step=step, initvals=starts, **options)
    assert codes(first) == ["no_move", "short_tuning"]
    assert first["findings"]["chains"].values.tolist() == ["[]", "[]"]  # all
    assert first["findings"].attrs["verdict"] == "not usable"
    whole = pk.resume(first, 30, step=step, model=model, **QUIET)
    assert codes(whole) == codes(first)


def test_tuning_is_not_judged_until_it_is_over():
    _, model = box()
    step = pk.baselines.RWM(model=model, steps_per_draw=1)
    options = {"chains": 1, "cores": 1, "random_seed": 1, "model": model} | QUIET
    options["initvals"] = {"x": np.ones(2)}

    def stop(run, draw):
        run.stop()

    stopped = pk.sample(300, tune=50, step=step, callback=stop, **options)
    assert codes(stopped) == ["no_draws", "ended_early"]
    assert codes(pk.resume(stopped, step=step, model=model, **QUIET)) == ["short_tuning"]


def test_what_differs_in_numbers_is_told_once():
    """Where it was found is told of some of the chains, and where there are several steps."""
    stuck = [replace(finding("stuck", draws=n), chains=(i,)) for i, n in enumerate((44, 60))]
    idle = [
        replace(finding("idle_coordinates", names=name, n=9), chains=(2,)) for name in ("a", "b")
    ]
    scales = [finding("scale_at_bound", scale=own, side="upper", value=9.0) for own in "γν"]
    found = merged(stuck + idle + scales, 3)
    assert codes(found) == ["stuck", "idle_coordinates", *["scale_at_bound"] * 2]
    assert [one.chains for one in found[:2]] == [(0, 1), (2,)]
    assert str(found[0]).startswith("Chains 0, 1: A chain was stuck for 44 draws in a row.")
    assert str(found[0]).endswith("(The numbers are those of chain 0.)")
    [everywhere] = merged([stuck[0], replace(stuck[0], chains=(1,))], 2)
    assert str(everywhere).startswith("A chain was stuck for 44 draws")
    assert "chain 0" not in str(everywhere)
    of_step = [replace(one, source="GAM([x])") for one in stuck]
    assert merged(of_step, 2, several_steps=True)[0].where == "Chains 0, 1 of GAM([x])"
    assert merged(of_step[:1], 1)[0].where == ""


@pytest.mark.parametrize(
    ("tune", "ends", "words"),
    [
        (1000, [(0, 254), (0, 254)], "2 × (254 + 0) draws"),
        (1000, [(0, 254), (0, 1100)], "1254 + 100 draws"),
        (100, [(400, 400), (100, 400)], "0 + 300 draws"),
        (100, [(40, 130)], "1 × (60 + 30) draws"),
    ],
)
def test_what_was_made_is_what_this_run_made(tune, ends, words):
    """However unevenly its chains begin and end."""
    chains = [SimpleNamespace(tune=tune, begun=begun, done=done) for begun, done in ends]
    made = outcome.what_was_made([(chain, []) for chain in chains], 1.0, "40 of 50 evaluations")
    assert made == f"{words} and 40 of 50 evaluations in 1 s"
