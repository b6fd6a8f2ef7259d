"""What runs say before the first draw and after the last one."""

import logging
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from models import box, normal
from runs import QUIET, codes

import pymc_kameleon as pk
from pymc_kameleon.findings.finding import finding, merged
from pymc_kameleon.findings.words import chains_named, counted, in_words
from pymc_kameleon.sampling import outcome
from pymc_kameleon.sampling.run_costs import what_a_run_costs
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


def with_costs(step, seconds, monkeypatch):
    monkeypatch.setattr(step, "seconds_per_logp", seconds)
    return step


def test_what_an_expensive_run_costs(monkeypatch):
    """Nothing is called for a message: it might crash, and here that is the user's own process."""
    op, model = box()
    step = with_costs(pk.baselines.RWM(model=model, steps_per_draw=10), 0.1, monkeypatch)
    op.count = 0
    assert what_a_run_costs([step], 4, 2000, 2) == (
        "4 chains × 2000 draws × 10 transitions of RWM = 80 000 evaluations of 100 ms: about "
        "1 h 7 min with 2 at a time; steps_per_draw=1 makes 8000."
    )
    step.steps_per_draw = 1
    assert what_a_run_costs([step], 1, 20, 1) == (
        "1 chain × 20 draws × 1 transition of RWM = 20 evaluations of 100 ms: about 2 s with 1 at "
        "a time."
    )
    assert op.count == 0


def test_what_a_run_with_two_steps_costs(monkeypatch):
    with pm.Model() as model:
        x, y = pm.Normal("x"), pm.Normal("y", shape=3)
    walk = with_costs(pk.baselines.RWM([x], model=model, steps_per_draw=5), 0.2, monkeypatch)
    tries = with_costs(pk.CMH([y], model=model, steps_per_draw=1), 0.1, monkeypatch)
    assert what_a_run_costs([walk, tries], 2, 50, 1) == (
        "2 chains × 50 draws × 5 transitions of RWM = 500 evaluations of 200 ms, and × 1 transition"
        " of CMH = at most 300 evaluations of 100 ms: about 2.2 min at most with 1 at a time; "
        "steps_per_draw=1 makes 400."
    )


def test_looking_for_scales_counts_too(said, monkeypatch):
    """As pk.sample does before the first draw, if the chain tunes; and not when it goes on."""
    op, model = box()
    step = with_costs(pk.GAM(model=model, steps_per_draw=1), 0.1, monkeypatch)
    options = {"chains": 1, "cores": 1, "step": step, "model": model} | QUIET
    said()
    op.count = 0
    first = pk.sample(1, tune=1, initvals={"x": np.zeros(2)}, **options)
    cost = "= 2 evaluations of 100 ms, and about 60 to find the posterior: about 6.2 s"
    assert cost in " ".join(said())
    assert 2 + 3 + 10 < op.count <= 2 + 3 + 2 * 60  # three where it starts
    pk.resume(first, 1, step=step, model=model, **QUIET)
    assert "= 1 evaluation" in (found := " ".join(said()))
    assert "scales" not in found
    pk.sample(1, tune=0, **options)
    assert "scales" not in " ".join(said())


@pytest.mark.parametrize(("pools", "n"), [(False, 180), (True, 105)])
def test_one_chain_looks_for_the_posterior_where_others_follow(pools, n, monkeypatch):
    step = with_costs(pk.SurrogateMetropolis(model=box()[1]), 1.0, monkeypatch)
    said = what_a_run_costs([step], 4, 10, 2, 4, pools)
    assert f"about {n} to find the posterior: about {in_words((n + 40) / 2)} with 2" in said


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
