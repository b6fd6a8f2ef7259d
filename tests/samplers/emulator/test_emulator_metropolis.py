"""EmulatorMetropolis: its transition against plain numpy, exactness, and how it runs."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pymc as pm
import pytest
from invariance import TARGETS, Target, invariance_p_value, log_banana, moved_fast
from models import Blind, black_box, normal
from pymc.exceptions import SamplingError
from runs import DRAWN, QUIET, WARMUP, assert_same, resume, sample
from simulated import (
    ManyChains,
    Switch,
    banana,
    bend,
    density_of,
    emulate_by,
    growth,
    logistic,
    make_arbitrary,
    set_mirrors,
    slow_chain,
)

import pymc_kameleon as pk
from pymc_kameleon.model.failures import OnFailure
from pymc_kameleon.samplers.emulator.outputs_fit import OutputsFit

BANANA = Target(banana, TARGETS["banana"].sample)


def wrong(x):
    """What a bad emulator takes the simulator for."""
    return np.array([0.8 * x[0] + 0.3, x[1] - 0.3 * (x[0] ** 2 - 4) + 0.4 * np.sin(2 * x[0])])


@pytest.fixture(scope="module")
def step():
    step = pk.EmulatorMetropolis(model=banana(), steps_per_draw=1)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    return step


def set_shape(parameters, share=1.0):
    """Set parameters to what tuning would not lead to, but for the emulator."""
    emulated = parameters.s
    parameters.shares[:] = 0.6 * (1 - share), 0.4 * (1 - share), share
    parameters.n_others[0], parameters.log_scale[0] = 2, 0.0
    parameters.mean[:], parameters.factor[:] = [0.2, 0.1], [[0.9, 0], [0.4, 0.7]]
    emulated.mean[:], emulated.factor[:] = [0.3, -0.4], [[1.5, 0], [0.4, 0.9]]
    emulated.radius[0], emulated.leap[0] = 2.0, 0.6
    emulated.most_leaps[0], emulated.n_inner[0] = 4, 3


# ---- by hand --------------------------------------------------------------------------------


@pytest.mark.slow
def test_moves_by_hand(step):
    """With two stops kept, by arbitrary emulators; one evaluation each, or none."""
    n_moves = sum(moves_by_hand(step, seed) for seed in (7, 8, 9))
    assert 20 < n_moves < 240


def moves_by_hand(step, seed):
    """Compare a chain with one by hand; return how often it moved in 90 draws."""
    step.setup_chain(np.random.default_rng(seed), 0, 90)
    make_arbitrary(step.parameters.s.emulator)
    set_shape(step.parameters)
    emulated, density = step.parameters.s, density_of(step)

    def log_s(u):
        [value], [slope] = density.values(density.z_of(u)[None])
        return value, slope @ np.tril(emulated.factor)

    by_hand, rng = slow_chain(emulated, log_s), np.random.default_rng(seed)
    x, n_moves = np.array([0.4, -1.0]), 0
    for k in range(90):
        assert rng.random() < 1  # the kind of the move
        new, alpha, others = by_hand.move(x, 2, log_banana, rng)
        start = step.model.initial_point() | {"x": x}
        point, [stats] = step.step(start)
        np.testing.assert_allclose(point["x"], new, rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(step.state.others[:2], others, rtol=1e-6, atol=1e-8)
        expected = 0.0 if alpha is None else alpha
        assert stats["accept_prob"] == pytest.approx(expected, rel=1e-5)
        assert stats["emulator_accept"] == pytest.approx(expected, rel=1e-5)
        assert stats["n_logp"] == (alpha is not None) + (k == 0)
        n_moves, x = n_moves + (new is not x), point["x"]
    return n_moves


@pytest.mark.slow
def test_what_a_move_leaves_for_corrections(step):
    """Where it began and led, log π and log s there, and the simulator's inputs and outputs."""
    step.setup_chain(np.random.default_rng(8), 0, 50)
    make_arbitrary(step.parameters.s.emulator)
    set_shape(step.parameters, share=0.7)
    density, x, kinds = density_of(step), np.array([0.4, -1.0]), set()
    for _ in range(50):
        point, [stats] = step.step({"x": x})
        state = step.state
        start, end = state.move[:2], state.move[2:4]
        by_emulator, evaluated = ~np.isnan(stats["emulator_accept"]), stats["n_logp"] > 0
        kinds.add((bool(by_emulator), bool(evaluated)))
        np.testing.assert_array_equal(start, x)
        assert np.isnan(state.log_s_end[0]) != by_emulator
        if by_emulator:
            [log_s], _ = density.values(end[None])
            assert state.log_s_end[0] == pytest.approx(log_s, rel=1e-8)
        if evaluated:
            assert state.move[4] == pytest.approx(step.log_density(end), rel=1e-12)
            np.testing.assert_allclose(state.noted, [*end, *bend(end)], rtol=1e-12)
        else:
            assert np.isnan(state.noted).all()
        x = point["x"]
    assert {(True, True), (False, True)} <= kinds


# ---- exactness ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def spoilt():
    """A step that is frozen, with a bad emulator."""
    step = pk.EmulatorMetropolis(model=banana(), steps_per_draw=2)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    emulate_by(step, [wrong], width=3.0)
    return step


ROTATION = np.array([[0.0, -1.0], [1.0, 0.0]])
"""Not its own inverse."""


@pytest.mark.parametrize(
    ("share", "maps", "is_exact"),
    [
        (1.0, [], True),
        (0.6, [], True),
        (0.6, [np.eye(2)[::-1], np.diag([-1.0, 1.0])], True),
        (1.0, [ROTATION], False),
    ],
)
def test_exact_draws_stay_exact_by_a_bad_emulator(spoilt, share, maps, is_exact):
    """Also if inner chains go to mirror images, where π is another one."""
    set_shape(spoilt.parameters, share)
    set_mirrors(spoilt.parameters.s, maps)
    spoilt.parameters.n_others[0] = 0
    p_value = invariance_p_value(lambda x: moved_fast(spoilt, x), BANANA, n=6000)
    set_mirrors(spoilt.parameters.s, [])
    assert (p_value > 1e-3) == is_exact


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rule", "is_exact"), [("exact", True), ("without s", False), ("without accepting", False)]
)
def test_broken_twins_do_not(spoilt, rule, is_exact):
    """Moves that forget s, and inner chains that s is not invariant under."""
    set_shape(spoilt.parameters)
    twin, rng = ManyChains(density_of(spoilt), rule), np.random.default_rng(3)

    def transform(x):
        with np.errstate(over="ignore", invalid="ignore"):  # where nothing is rejected
            for _ in range(2):
                x = twin.move(x, log_banana, rng)
        return x

    assert (invariance_p_value(transform, BANANA, n=6000) > 1e-3) == is_exact


@pytest.mark.parametrize(
    ("d", "q", "stops"),
    [(1, 1, 128), (5, 14, 102), (5, 50, 40), (5, 400, 32), (26, 60, 32), (127, 5000, 32)],
)
def test_there_are_fewer_stops_of_many_outputs(d, q, stops):
    """As each of them takes longer."""
    simulators = SimpleNamespace(sizes=[[1, q]], applications=[[0, 0, 0, 0]], p=1, q=q)
    assert OutputsFit(SimpleNamespace(simulators=simulators), 0).stops(d) == stops


@pytest.mark.slow
@pytest.mark.parametrize(("stops", "is_exact"), [(slice(None), True), (slice(1), False)])
def test_stops_are_on_average_as_the_end(step, stops, is_exact):
    """Given x; not so the first of them alone, while the chain is slow."""
    n, x = 1500, np.array([3.0, 2.0])
    step.setup_chain(np.random.default_rng(9), 0, n)
    emulate_by(step, [wrong], width=3.0)
    set_shape(step.parameters)
    step.parameters.n_others[0] = len(step.state.others)
    step.parameters.s.leap[0], step.parameters.s.n_inner[0] = 0.2, 1
    differences = np.empty((n, 2))
    for k in range(n):
        step.step({"x": x})
        differences[k] = step.state.move[2:4] - step.state.others[stops].mean(axis=0)
    z = differences.mean(axis=0) / (differences.std(axis=0) / np.sqrt(n))
    largest = np.abs(z).max()
    assert largest < 4 if is_exact else largest > 6


# ---- what is refused ------------------------------------------------------------------------


def test_models_that_it_is_not_for_are_refused():
    for model, said in [
        (black_box(Blind()), "returns the log-likelihood"),
        (normal(2), "calls no black box"),
    ]:
        with pytest.raises(ValueError, match=said):
            pk.EmulatorMetropolis(model=model)
    for option in ("keep_adapting", "pseudo_marginal"):
        with pytest.raises(TypeError, match=f"EmulatorMetropolis has no option '{option}'"):
            pk.EmulatorMetropolis(model=banana(), **{option: True})


# ---- runs -----------------------------------------------------------------------------------

ALL = *DRAWN, *WARMUP, "emulator_moves", "learned", "search"
OPTIONS = {"discard_tuned_samples": False, "tune": 20, "draws": 20}


@pytest.fixture(scope="module")
def grown():
    return pk.EmulatorMetropolis(model=growth())


@pytest.fixture(scope="module")
def run(grown):
    return sample(grown, **OPTIONS)


def test_a_run(grown, run):
    """Most moves are by the emulator and accepted; each costs one evaluation, or none."""
    stats, moves = run["sample_stats"], run["emulator_moves"].to_dataset()
    by_emulator = np.isfinite(stats["emulator_accept"].values)
    assert by_emulator.mean() > 0.6
    assert np.nanmean(stats["emulator_accept"]) > 0.9
    assert stats["n_logp"].values[:, 1:].max() == 1  # a black box is looked at in the first draw
    np.testing.assert_array_equal(by_emulator, np.isfinite(moves["end_log_s"].values))
    evaluated = np.isfinite(moves["inputs"].values[..., 0])
    x, y = moves["inputs"].values[evaluated], moves["outputs"].values[evaluated]
    np.testing.assert_allclose(y, [logistic(row) for row in x], rtol=1e-12)
    np.testing.assert_allclose(np.log(x), moves["end"].values[evaluated][:, :2], rtol=1e-9)
    log_w = (moves["end_logp"] - moves["end_log_s"]).values[by_emulator]
    assert np.std(log_w) < 0.5
    others = moves["others"].values[by_emulator]
    assert np.isfinite(others).all()
    size = run["posterior"]["size"].values
    rate, capacity = (run["posterior"][name].values for name in ("rate", "capacity"))
    np.testing.assert_allclose(size[1, 3], logistic([rate[1, 3], capacity[1, 3]]), rtol=1e-12)


@pytest.mark.slow
def test_moves_of_all_kinds_are_accepted(grown, run):
    """Walks and reference moves remain, for where the emulator is wrong."""
    stats = sample(grown, **OPTIONS | {"draws": 150})["sample_stats"]
    assert np.nanmean(stats["reference_accept"]) > 0.3
    assert np.isfinite(run["emulator_moves"]["end"].values).all()


@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_a_step_that_was_used_travels(grown):
    """Its search for the posterior is over, takes no memory, and would not travel."""
    pm.sample(2, tune=3, chains=1, step=grown, model=growth(), random_seed=1, **QUIET)
    assert grown.search._by_s is None
    grown.search._by_s = (one for one in ())
    try:
        assert grown.__getstate__()["search"] is type(grown.search)
    finally:
        grown.search._by_s = None


@pytest.mark.slow  # two steps together are compiled
def test_evaluations_beside_another_step_are_what_was_called():
    """Also on the way to the posterior, and where a region leaves points out."""
    model = growth()
    with model:
        own = pk.EmulatorMetropolis(["rate", "noise"], region={"rate_log__": (-0.6, 0.1)})
        options = {"random_seed": 1, "initvals": {"capacity": 80.0, "rate": 0.8}}
        result = sample([own, pk.GAM(["capacity"])], tune=15, draws=5, **options)
    known = result["evaluations"].to_dataset()
    x, y = known["logistic_inputs"].values[:, 0], known["logistic_outputs"].values[:, 0]
    there = np.isfinite(y).all(axis=1)
    assert there.sum() > 30
    np.testing.assert_allclose(y[there], [logistic(row) for row in x[there]], rtol=1e-12)


@pytest.mark.slow
def test_the_same_seed_draws_the_same(grown, run):
    """By as many workers as you like, but not with another seed."""
    assert_same(sample(grown, cores=2, **OPTIONS), run, ALL)
    other = sample(grown, random_seed=8, **OPTIONS)
    assert (other["posterior"]["rate"].values != run["posterior"]["rate"].values).all()


@pytest.mark.slow
def test_a_run_goes_on_as_if_it_had_not_been_interrupted(grown, run, tmp_path):
    """While tuning, when that has ended, and later; from memory, a file and a store."""

    def stop_at(k):
        return lambda trace, draw: trace.stop() if draw.draw_idx >= k else None

    model, store = growth(), tmp_path / "run.zarr"
    half = sample(grown, callback=stop_at(9), **OPTIONS)
    assert half["warmup_posterior"].sizes["draw"] < 20
    assert_same(resume(half, model, 20), run, ALL)
    sample(grown, **OPTIONS | {"draws": 0}).to_netcdf(tmp_path / "tuned.nc")
    assert_same(resume(pk.load(tmp_path / "tuned.nc"), model, 20), run, ALL)
    sample(grown, store=store, callback=stop_at(27), **OPTIONS)
    assert_same(resume(store, model, None).load(), run, ALL)


def test_without_tuning_it_walks(grown):
    result = sample(grown, tune=0, draws=30)
    assert np.isnan(result["sample_stats"]["emulator_accept"]).all()
    assert np.ptp(result["posterior"]["rate"].values, axis=1).min() > 0


@pytest.mark.slow
def test_new_data_are_followed(grown):
    """Without compiling anew; the emulator learns the same simulator."""
    old = growth()["data"].get_value()
    with growth():
        pm.set_data({"data": 2 * logistic([0.8, 50.0])})
    try:
        result = sample(grown, **OPTIONS)
    finally:
        with growth():
            pm.set_data({"data": old})
    assert abs(np.log(result["posterior"]["capacity"].values / 100)).mean() < 0.3
    assert np.nanmean(result["sample_stats"]["emulator_accept"]) > 0.8


# ---- simulators that fail -------------------------------------------------------------------


def cut(value):
    """Return a simulator that fails in a part of the space: raises an exception, or returns NaN."""

    def function(x):
        if x[0] > 1:
            if value is None:
                raise ZeroDivisionError("the solver broke down")
            return np.array([x[0], value])
        return bend(x)

    return staticmethod(function)


@pytest.mark.slow
@pytest.mark.parametrize(
    "value", [pytest.param(np.nan, id="nan"), pytest.param(np.inf, id="inf"), None]
)
def test_a_region_without_outputs_cuts_the_posterior(monkeypatch, step, value):
    """Draws beyond are rejected; on this side they are right."""
    function = partial(OnFailure("reject").call, cut(value))
    monkeypatch.setattr(Switch, "function", staticmethod(function))
    start = {"x": np.zeros(2)}
    dt = sample(step, initvals=start, tune=60, draws=150)
    x = dt["posterior"]["x"].values
    assert x[..., 0].max() <= 1
    assert np.nanmean(dt["sample_stats"]["emulator_accept"]) > 0.3
    exact = BANANA.sample(np.random.default_rng(1), 100_000)
    exact = exact[exact[:, 0] <= 1]
    error = (x.mean(axis=(0, 1)) - exact.mean(axis=0)) / exact.std(axis=0)
    assert (np.abs(error) < 0.5).all()


def test_an_exception_arrives_as_it_is(monkeypatch, step):
    monkeypatch.setattr(Switch, "function", cut(None))
    with pytest.raises(ZeroDivisionError, match="the solver broke down"):
        sample(step, initvals={"x": np.zeros(2)})
    monkeypatch.setattr(Switch, "function", staticmethod(lambda x: np.full(2, np.nan)))
    with pytest.raises(SamplingError):
        sample(step, initvals={"x": np.zeros(2)})
