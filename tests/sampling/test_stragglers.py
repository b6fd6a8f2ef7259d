"""Runs in which an evaluation takes much longer than others: who waits for it, and who does not."""

import shutil
import time
from multiprocessing import Value

import numpy as np
import pytest
from counted import CALLS, Switch, counting, told
from runs import DRAWN, QUIET, assert_same, sample

import pymc_kameleon as pk
from pymc_kameleon.samplers.surrogate import metropolis
from pymc_kameleon.sampling.chain_of_run import Chain
from pymc_kameleon.sampling.run import Run
from pymc_kameleon.step import pooling

pytestmark = pytest.mark.forks

ALL = (*DRAWN, "warmup_posterior", "warmup_sample_stats", "learned")
CHAINS = 8
REACHED = Value("b", False)
"""Whether there were enough evaluations while one waited."""


class Straggler:
    """The evaluation that takes long, at `x`: until there are `enough`, or for so many seconds."""

    x, enough, seconds = None, 0, 60.0

    @classmethod
    def function(cls, x):
        if np.array_equal(x, cls.x):
            cls.waits()
        return Switch.usual(x)

    @classmethod
    def waits(cls):
        end = time.monotonic() + cls.seconds
        while CALLS.value < cls.enough and time.monotonic() < end:
            time.sleep(0.01)
        REACHED.value = CALLS.value >= cls.enough


@pytest.fixture(scope="module")
def surrogate():
    return told(pk.SurrogateMetropolis(model=counting()))


@pytest.fixture
def straggler(monkeypatch):
    monkeypatch.setattr(Switch, "function", Straggler.function)
    return Straggler


def run(step, **changes):
    """Without a search, which ends before chains advance."""
    options = {"tune": 20, "draws": 5, "max_concurrent": CHAINS, "chains": CHAINS}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.samplers.surrogate.active.search.MOST_COORDINATES", 0)
        return sample(step, **options | {"discard_tuned_samples": False} | changes)


@pytest.fixture(scope="module")
def alone(surrogate):
    """A run whose chains learn after 1, 2, 3, 4, 5, 7, 9, 11, 14, 17 and 19 draws."""
    return run(surrogate)


def made_meanwhile(step, dt, straggler, seconds):
    """Let the eighth draw of a chain take long; return whether others come beyond the ninth."""
    x, n_logp = dt["warmup_posterior"]["x"].values, dt["warmup_sample_stats"]["n_logp"].values
    chain = next(k for k in range(CHAINS) if (x[k, 7] != x[k, 6]).all())
    straggler.x, straggler.seconds = x[chain, 7], seconds
    straggler.enough = int(n_logp[:, :9].sum()) + 2
    CALLS.value, REACHED.value = 0, False
    assert_same(run(step, cores=CHAINS), dt, ALL)
    return bool(REACHED.value)


def test_chains_go_on_while_one_takes_long(surrogate, alone, straggler):
    """With the same draws."""
    assert made_meanwhile(surrogate, alone, straggler, 60.0)


@pytest.mark.slow
def test_the_broken_twin_waits(surrogate, straggler, monkeypatch):
    monkeypatch.setattr(pooling, "MANY", 1000)
    assert not made_meanwhile(surrogate, run(surrogate), straggler, 0.3)


def test_chains_take_up_what_was_learned_a_pause_ago(surrogate, monkeypatch):
    """Each learning goes on from the one before, with random numbers of its own."""
    before, learned, in_use, generators, own = [], {}, {}, [], []
    learn_from, keep = metropolis.learning.learn_from, Run._keep

    def noted(chains, rng):
        error = chains[0].parameters.error
        before.append(error[0])
        generators.append(chains[0].rng.bit_generator.state["state"]["state"])
        learn_from(chains, rng)
        learned[chains[0].monitor.done] = error[0]

    def kept(run, chain, state, portion):
        in_use[state.monitor.done] = state.steps[0].parameters.error[0]
        own.append(state.steps[0].rng.bit_generator_state["state"]["state"])
        keep(run, chain, state, portion)

    monkeypatch.setattr(metropolis.learning, "learn_from", noted)
    monkeypatch.setattr(Run, "_keep", kept)
    run(surrogate)
    assert [*learned] == [1, 2, 3, 4, 5, 7, 9, 11, 14, 17, 19]
    assert before[1:] == [*learned.values()][:-1]
    assert [in_use[done] for done in (9, 11, 14)] == [learned[done] for done in (5, 7, 9)]
    assert in_use[25] == learned[19]
    assert not set(generators[1:-1]) & set(own)


# ---- a run that goes on where some chains have come to a pause, and others not ------------------


@pytest.fixture
def behind(monkeypatch):
    """Let one chain advance only when no other can, and all by a draw at a time."""
    ready = Run._ready.fget

    def others_first(run):
        chains = ready(run)
        return [chain for chain in chains if chain.number != 3] or chains

    monkeypatch.setattr(Run, "_ready", property(others_first))
    monkeypatch.setattr(Chain, "next_portion", lambda chain, pauses: 1)


MOMENTS = (2, 1), (3, 1), (4, 3), (11, 8), (14, 11), (17, 12), (19, 18)
"""Draws that chains have made, and that one has which is behind: others may be two pauses ahead."""


def is_at(moment, run):
    done = [chain.done for chain in run._chains]
    last = done.pop(3)
    return (min(done), last) == moment


def go_on(half, step):
    return pk.resume(half, step=step, model=step.model, cores=1, **QUIET)


@pytest.mark.parametrize("moment", [(11, 8), pytest.param((17, 12), marks=pytest.mark.slow)])
def test_a_result_goes_on_from_any_moment(surrogate, alone, behind, moment):
    half = run(surrogate, callback=lambda run, draw: is_at(moment, run) and run.stop())
    assert half["sampling_state"]["late_monitor_done"].values.tolist() != [0] * CHAINS
    assert_same(go_on(half, surrogate), alone, ALL)


@pytest.mark.slow
def test_a_store_goes_on_from_any_moment(surrogate, alone, behind, tmp_path):
    """As after a kill: it has what was there at that moment."""
    stores = {}

    def copies(run, draw):
        for moment in MOMENTS:
            if moment not in stores and is_at(moment, run):
                run._flush()
                stores[moment] = tmp_path / f"{moment}.zarr"
                shutil.copytree(tmp_path / "run.zarr", stores[moment])

    assert_same(run(surrogate, store=tmp_path / "run.zarr", callback=copies), alone, ALL)
    assert set(stores) == set(MOMENTS)
    for store in stores.values():
        assert_same(go_on(store, surrogate), alone, ALL)
