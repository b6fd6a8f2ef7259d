"""Runs with many evaluations at a time: the same draws wherever they are made, never more."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pymc as pm
import pytest
from counted import CALLS, Switch, counting, simulated, told
from runs import DRAWN, QUIET, assert_same, job_of, messages
from simulated import banana, bend, simulator

import pymc_kameleon as pk
from pymc_kameleon.analysis.surrogate_correction import moves_of
from pymc_kameleon.model.failures import OnFailure
from pymc_kameleon.result.superchains import size_of_superchains, superchains
from pymc_kameleon.samplers.surrogate import initial_search, learning
from pymc_kameleon.sampling.chain_of_run import FirstWay
from pymc_kameleon.step import initial_search as step_search
from pymc_kameleon.step.job import evaluate

pytestmark = pytest.mark.forks

ALL = (*DRAWN, "warmup_sample_stats", "learned", "search")
AT_ONCE = {"max_concurrent": 16, "max_evaluations": 700, "random_seed": 1}


@pytest.fixture(scope="module")
def surrogate():
    return told(pk.SurrogateMetropolis(model=counting()))


@pytest.fixture
def usual():
    """Let the black box be the usual one after a test."""
    yield
    Switch.function = staticmethod(Switch.usual)


def run(step, **changes):
    options = QUIET | {"step": step, "model": step.model, "cores": 1} | AT_ONCE | changes
    return pk.sample(**options)


@pytest.fixture(scope="module")
def alone(surrogate):
    """A run whose evaluations are made one after another, and how many these were."""
    CALLS.value = 0
    return run(surrogate), CALLS.value


@pytest.mark.slow
def test_there_are_so_many_chains_and_never_more_evaluations(alone):
    dt, n = alone
    assert dt["posterior"].sizes["chain"] == 16
    assert 600 < n <= 700
    assert n == dt["sample_stats"]["n_logp"].sum() + dt["warmup_sample_stats"]["n_logp"].sum()


@pytest.mark.parametrize("cores", [3, pytest.param(16, marks=pytest.mark.slow)])
def test_draws_do_not_depend_on_the_workers(surrogate, alone, cores):
    assert_same(run(surrogate, cores=cores), alone[0], ALL)


@pytest.mark.slow
def test_nor_on_the_executor(surrogate, alone):
    with ThreadPoolExecutor(5) as executor:
        assert_same(run(surrogate, executor=executor), alone[0], ALL)


@pytest.fixture
def rounds(monkeypatch):
    """How many points a way has asked for at a time."""
    asked, goes_on = [], FirstWay.goes_on

    def noted(way):
        begins, found = not way.evaluations, goes_on(way)
        if begins and found:
            asked.append(len(way.evaluations))
        return found

    monkeypatch.setattr(FirstWay, "goes_on", noted)
    return asked


@pytest.mark.slow
def test_the_way_asks_for_many_points_at_a_time(surrogate, rounds):
    """And its evaluations are those that its chain counts."""
    dt = run(surrogate, max_evaluations=300)
    assert len(rounds) < 12
    assert max(rounds) == 16
    first = dt["warmup_sample_stats"]["n_logp"].values[:, 0]
    assert sum(rounds) + 1 < first[0] <= sum(rounds) + 3  # the start, and the first transition
    assert (first[1:] <= 2).all()


def test_the_way_goes_on_in_batches(surrogate, usual, rounds, monkeypatch):
    """For as many as it may take, though one after another these were too many evaluations."""
    Switch.function = staticmethod(
        lambda x: -0.5 * ((x[1] - x[0] ** 2) / 0.1) ** 2 - 0.5 * (x[0] - 4) ** 2
    )
    arrived = []
    learn_from = learning.learn_from

    def noted(chains, rng):
        arrived.extend(chain.tuning.has_arrived[0] for chain in chains)
        learn_from(chains, rng)

    monkeypatch.setattr(learning, "learn_from", noted)
    options = {"max_concurrent": 64, "max_evaluations": 1500}
    run(surrogate, **options)
    assert sum(rounds) > step_search.WARM_START_BUDGET * 2
    assert len(rounds) < 16
    assert min(rounds[-3:]) == max(rounds) == 64
    assert all(arrived[-64:])


@pytest.mark.slow
def test_without_a_process_what_is_fitted_is_asked_for_together(surrogate, rounds, monkeypatch):
    """As with many parameters; lines and gradients are one after another."""
    monkeypatch.setattr(initial_search, "MOST_COORDINATES", 0)
    one = run(surrogate, max_evaluations=400)
    assert max(rounds) >= 6  # the coefficients of a quadratic
    assert np.median(rounds) == 1
    assert_same(run(surrogate, cores=3, max_evaluations=400), one, DRAWN)


@pytest.mark.slow
def test_a_worker_that_dies_changes_nothing(surrogate, alone, usual, tmp_path, caplog):
    def dies_once(x):
        mark = tmp_path / "died"
        if CALLS.value > 60 and not mark.exists():
            mark.touch()
            os._exit(1)
        return Switch.usual(x)

    caplog.set_level(logging.INFO, "pymc_kameleon")
    Switch.function, CALLS.value = dies_once, 0
    assert_same(run(surrogate, cores=2), alone[0], ALL)
    assert "died" in " ".join(messages(caplog))


def test_an_exception_on_the_way_says_where(surrogate, usual):
    def fails(x):
        if CALLS.value > 40:
            raise ZeroDivisionError("as told")
        return Switch.usual(x)

    Switch.function, CALLS.value = fails, 0
    with pytest.raises(ZeroDivisionError) as raised:
        run(surrogate)
    notes = " ".join(raised.value.__notes__)
    assert "In chain 0, evaluation 41 of the search for the posterior, before the first" in notes
    assert "return NaN instead" in notes


@pytest.mark.slow
def test_points_may_be_rejected_on_the_way(surrogate, usual, caplog):
    def fails(x):
        if x[0] > 1.5:
            raise ZeroDivisionError("as told")
        return Switch.usual(x)

    Switch.function = partial(OnFailure("reject").call, fails)
    dt = run(surrogate, max_evaluations=300)
    assert dt["posterior"].attrs["rejected_errors"] > 0
    assert dt["posterior"]["x"].values[..., 0].max() <= 1.5
    assert "as told" in " ".join(messages(caplog))


def test_nothing_is_evaluated_again_on_the_way(surrogate, usual):
    """Not even NaN, or there would be more evaluations than there may be."""
    Switch.function = staticmethod(lambda x: Switch.usual(x) if x[0] < 0.5 else np.nan)
    CALLS.value = 0
    dt = run(surrogate, max_evaluations=250)
    n_logp = dt["sample_stats"]["n_logp"].sum() + dt["warmup_sample_stats"]["n_logp"].sum()
    assert CALLS.value == n_logp <= 250
    job = job_of(surrogate)
    for _ in range(2):
        row, _, n = evaluate(job, 0, np.array([1.0, 0.0]))
        assert (row.tolist(), n) == ([-np.inf], 1)


def test_a_way_that_was_stopped_goes_on(surrogate, alone, usual, tmp_path):
    """After 50 evaluations, of which those in their order are kept."""

    def interrupted(x):
        if CALLS.value == 50:
            raise KeyboardInterrupt
        return Switch.usual(x)

    Switch.function, CALLS.value, store = interrupted, 0, tmp_path / "run.zarr"
    with pytest.raises(KeyboardInterrupt, match=r"pk.resume\('.*run.zarr'\) goes on\."):
        run(surrogate, store=store)
    Switch.function = Switch.usual
    dt = pk.resume(store, step=surrogate, model=surrogate.model, cores=1, **QUIET)
    assert_same(dt, alone[0], DRAWN)
    assert CALLS.value <= 700 + 4  # and checks that the log-density is what it was


@pytest.mark.slow
def test_only_the_first_start_has_to_be_possible(surrogate, usual):
    """Others begin where its way has led, and are not evaluated at their own."""
    seen = []

    def first_only(x):
        seen.append(x.copy())
        return Switch.usual(x)

    Switch.function = first_only
    starts = [{"x": [0.3, 0.2]}, *({"x": [100.0 + k, 0]} for k in range(15))]
    dt = run(surrogate, initvals=starts, max_evaluations=300)
    assert np.max(np.abs(seen)) < 100
    assert dt["posterior"].sizes["chain"] == 16


def test_others_begin_where_the_first_one_is_if_nothing_guides_them(surrogate, usual, monkeypatch):
    """Their own starts are impossible."""
    monkeypatch.setattr(initial_search, "BUDGET", (0, 4))
    monkeypatch.setattr(initial_search, "MOST_BATCHES", 0)
    monkeypatch.setattr(step_search, "WARM_START_BUDGET", 5)

    def bounded(x):
        return Switch.usual(x) if np.abs(x[0]) < 50 else -np.inf

    Switch.function = bounded
    starts = [{"x": [30.0, 0.2]}, *({"x": [100.0 + k, 0]} for k in range(3))]
    options = {"initvals": starts, "chains": 4, "max_evaluations": 200, "max_concurrent": 4}
    one = run(surrogate, **options)
    assert_same(run(surrogate, cores=3, **options), one, DRAWN)


@pytest.mark.slow
def test_a_chain_alone_has_its_way_many_at_a_time(surrogate, rounds):
    dt = run(surrogate, chains=1, max_evaluations=150)
    assert max(rounds) == 16
    assert sum(rounds) < dt["warmup_sample_stats"]["n_logp"].values[0, 0]
    assert dt["posterior"].sizes["chain"] == 1


@pytest.fixture(scope="module")
def of_two():
    """A model of which two steps may sample a variable each."""

    with pm.Model() as model:
        x, y = pm.Normal("x", 0, 3, shape=2), pm.Normal("y")
        pm.Potential("p", simulated(x))
        pm.Potential("q", -0.1 * (y - x[0]) ** 2)
    return model


@pytest.fixture(scope="module")
def surrogate_of_x(of_two):
    return told(pk.SurrogateMetropolis([of_two["x"]], model=of_two))


@pytest.mark.parametrize(
    "other",
    [
        *(pytest.param(o, marks=pytest.mark.slow) for o in (pk.baselines.AM, pk.GadRWM)),
        pk.SurrogateMetropolis,
    ],
)
def test_other_steps_have_ways_too(of_two, surrogate_of_x, other, monkeypatch):
    """Each search is made once; and what begins by a gradient does so where it is counted."""
    monkeypatch.setattr(initial_search, "BUDGET", (0, 10))
    monkeypatch.setattr(initial_search, "MOST_BATCHES", 2)
    searches, begin = [], initial_search.Search.__init__

    def noted(search, *arguments):
        searches.append(search)
        begin(search, *arguments)

    monkeypatch.setattr(initial_search.Search, "__init__", noted)
    step = [surrogate_of_x, other([of_two["y"]], model=of_two)]
    step[1].n_trials = 0
    options = {"chains": 4, "tune": 8, "draws": 5, "max_concurrent": 4, "model": of_two}
    options |= {"random_seed": 1, "cores": 1} | QUIET
    CALLS.value = 0
    dt = pk.sample(step=step, **options)
    n_logp = dt["sample_stats"]["n_logp"].sum() + dt["warmup_sample_stats"]["n_logp"].sum()
    assert CALLS.value == n_logp
    assert len(searches) == 1 + (other is pk.SurrogateMetropolis)
    assert_same(pk.sample(step=step, **options | {"cores": 3}), dt, DRAWN)


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_lengths_are_those_of_four_chains_together(surrogate):
    dt = run(surrogate, max_evaluations=None, chains=8, max_concurrent=2)
    assert dt["posterior"].sizes == {"chain": 8, "draw": 500, "x_dim_0": 2}
    assert dt["posterior"].attrs["tuning_steps"] == 500


def test_samplers_that_search_for_themselves_have_chains_alone():
    options = {"draws": 10, "tune": 10, "random_seed": 1, "model": counting()} | QUIET
    step = pk.baselines.AM(model=counting())
    many = pk.sample(step=step, max_concurrent=5, cores=1, **options)
    assert_same(many, pk.sample(step=step, chains=5, cores=1, **options), DRAWN)
    assert "superchains" not in many["posterior"].attrs


@pytest.mark.slow
def test_values_of_starts_are_not_taken_for_those_elsewhere(monkeypatch):
    """Where another step samples, too, starts are looked at."""
    with pm.Model() as model:
        x, y = pm.Flat("x", shape=2), pm.Normal("y")
        pm.Normal("z", simulator(bend)(x), [2.0, 1.0], observed=[0.0, 0.0])
    step = [pk.EmulatorMetropolis([x], model=model), pk.baselines.AM([y], model=model)]
    search = pk.EmulatorMetropolis.initial_search
    first_point, seen = search._first_point, []

    def noted(self, draws, logp):
        def kept(z):
            value = logp(z)
            others = self.step.log_density.point[2:]
            seen.append(value - self.step.for_chain().log_density(np.concatenate([z, others])))
            return value

        return first_point(self, draws, kept)

    monkeypatch.setattr(search, "_first_point", noted)
    options = {"tune": 4, "draws": 4, "random_seed": 1, "cores": 1, "model": model} | QUIET
    pk.sample(step=step, max_concurrent=4, **options)
    assert len(seen) >= 4
    np.testing.assert_allclose(seen, 0, atol=1e-9)


@pytest.mark.slow
def test_emulators_go_many_at_a_time():
    step = pk.EmulatorMetropolis(model=banana())
    step.n_trials = 0  # which count for the first run alone
    options = {"step": step, "max_concurrent": 8, "max_evaluations": 200, "chains": 8}
    options |= {"random_seed": 1, "model": step.model} | QUIET
    one = pk.sample(cores=1, **options)
    assert one["posterior"].sizes["chain"] == 8
    assert_same(pk.sample(cores=3, **options), one, DRAWN)


def test_corrections_take_a_superchain_for_a_chain(alone):
    """Unless its chains move by surrogates that differ. Its draws are one after another."""
    dt = alone[0]
    assert dt["posterior"].attrs["superchains"] == str(superchains(16).tolist())
    assert size_of_superchains(dt["posterior"]) == 4
    assert size_of_superchains(dt["posterior"].isel(chain=slice(3))) == 1
    of = dt["surrogate_moves"].to_dataset(), dt["learned"].to_dataset()
    apart, moves = moves_of(*of), moves_of(*of, 4)
    assert len(moves.parameters) == 4
    x = dt["posterior"]["x"].transpose("chain", "draw", ...).values
    ends = x.reshape(4, -1, 2)[moves.row, moves.draw]
    accepted = (x[apart.row, apart.draw] == apart.end).all(axis=1)
    np.testing.assert_array_equal((ends == moves.end).all(axis=1), accepted)
    assert accepted.any()
    np.testing.assert_allclose(moves.log_w, apart.log_w, atol=1e-6)
    of[1]["mean"][5] += 1
    assert len(moves_of(*of, 4).parameters) == 16


@pytest.mark.parametrize("n", [1, 4, 5, 8, 10, 21, 34, 64, 100, 256])
def test_superchains_are_of_neighbours(n):
    numbers = superchains(n)
    assert numbers[0] == 0
    assert set(np.diff(numbers)) <= {0, 1}
    sizes = np.bincount(numbers)
    assert np.ptp(sizes) <= 1
    assert len(sizes) <= 16
    assert np.ptp(sizes) == 0 or n in (5, 34)


@pytest.mark.parametrize("wrong", [0, -1, 2.5, True, "many"])
def test_what_is_no_number(wrong):
    """It is refused before the model is called."""
    CALLS.value = 0
    with pytest.raises(ValueError, match="max_concurrent must be an integer from 1 on"):
        pk.sample(model=counting(), max_concurrent=wrong)
    assert CALLS.value == 0


def test_too_few_evaluations_for_so_many_chains(surrogate):
    with pytest.raises(ValueError, match=r"for 64 chains to begin"):
        run(surrogate, max_concurrent=64, max_evaluations=100)
    with pytest.raises(ValueError, match=r"fewer chains\.$"):
        run(surrogate, max_concurrent=64, chains=4, max_evaluations=10)
