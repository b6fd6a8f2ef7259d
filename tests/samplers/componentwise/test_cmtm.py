"""CMTM against a slow version from its definition, on the same random numbers."""

from functools import cache

import numpy as np
import pytest
import reference
from componentwise import (
    SCALES,
    START,
    STARTS,
    LogDensity,
    cmtm_chain,
    correlated_normal,
    holes,
    ladders,
    log_density,
    mixture,
    normal,
    pair_model,
    point_in_a_plane,
    run,
    two_modes,
)
from runs import last_warning
from scipy import stats

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.componentwise import cmtm
from pymc_kameleon.samplers.componentwise.sweeps import State

# ---- a sweep of CMTM ------------------------------------------------------------------------


def compare_sweeps(logp, m, n, power=2.9, seed=1, slow_power=None, single=()):
    """Make n sweeps of the compiled chain and of the slow one; return the latter."""
    scales = ladders(logp, m)
    singles = dict(zip(("n_single", "single"), single, strict=False))
    chain = cmtm_chain(logp, scales, power, **singles)
    log_density, idle = LogDensity(logp), np.zeros(len(STARTS[logp]), int)
    power = power if slow_power is None else slow_power
    expected_chain = reference.CMTM(log_density, STARTS[logp], scales, power)
    for name, value in singles.items():
        setattr(expected_chain, name, np.array(value))
    log_density.count = 0  # where it starts is known
    rng, other = np.random.default_rng(seed), np.random.default_rng(seed)
    for _ in range(n):
        accept_prob, share = chain.sweep(rng)
        before, moves = expected_chain.x, expected_chain.sweep(other)
        idle = np.where(expected_chain.x != before, 0, idle + 1)
        np.testing.assert_allclose(chain.state.x, expected_chain.x, rtol=1e-10, atol=1e-13)
        np.testing.assert_allclose(
            chain.state.logp[0], expected_chain.log_p, rtol=1e-10, atol=1e-10
        )
        expected = np.mean([move.reported for move in moves])
        np.testing.assert_allclose(accept_prob, expected, rtol=1e-10)
        assert share == pytest.approx(np.mean([move.accepted for move in moves]), rel=1e-12)
        if not single:
            assert list(chain.work.choice) == [move.selected for move in moves]
            np.testing.assert_array_equal(chain.state.idle, idle)
    np.testing.assert_array_equal(chain.selected, expected_chain.selected)
    np.testing.assert_allclose(chain.accepted, expected_chain.accepted, rtol=1e-12)
    np.testing.assert_array_equal(chain.state.tally[:, :, 0].sum(axis=1), n)
    assert chain.target.count[0] == log_density.count
    assert rng.random() == other.random()
    return expected_chain


@pytest.mark.parametrize("m", [3, 5, 20])
@pytest.mark.parametrize("logp", [normal, mixture, two_modes, holes], ids=lambda f: f.__name__)
def test_sweeps_by_hand(logp, m):
    n = 60 if m == 20 else 200
    expected_chain = compare_sweeps(logp, m, n)
    d = len(STARTS[logp])
    assert 0.2 * n < expected_chain.accepted.sum() / d < n
    assert (expected_chain.selected > 0).sum() > d * m / 2
    n_evaluated = expected_chain.n_evaluated  # most rejections come early
    assert d * m * n < n_evaluated < d * (2 * m - 1) * n


@pytest.mark.slow
@pytest.mark.parametrize("n_single", [[0, 1], [3, 0], [2, 7]])
@pytest.mark.parametrize("logp", [mixture, holes], ids=lambda f: f.__name__)
def test_sweeps_with_single_tries(logp, n_single):
    expected_chain = compare_sweeps(logp, 4, 400, single=(n_single, [2, 3]))
    for k in np.flatnonzero(n_single):
        s = [2, 3][k]
        assert expected_chain.selected[k, s] == expected_chain.selected[k].sum() == 400
        assert 0 < expected_chain.accepted[k, s] < 400


@pytest.mark.parametrize("slow_power", [2.8, 0.0])
def test_the_power_of_the_distance_matters(slow_power):
    with pytest.raises(AssertionError):
        compare_sweeps(normal, 4, 200, slow_power=slow_power)


# ---- early rejection ------------------------------------------------------------------------


@cache
def replayed(logp, m):
    """Make many moves from all over the place, and again with all references evaluated.

    Returns, of each move, the accept_prob that is reported, α, and both new positions.
    """
    scales, log_density = ladders(logp, m, 0.2, 10.0), LogDensity(logp)
    chain = cmtm_chain(logp, scales)
    rng, again, other = (np.random.default_rng(seed) for seed in (3, 3, 4))
    rows = []
    for _ in range(4000):
        x = np.array([other.choice([other.normal(), 4 + 0.1 * other.normal()])])
        log_p = log_density(x)
        chain.move_to(x, log_p)
        again.bit_generator.state = rng.bit_generator.state
        accept_prob, _ = chain.sweep(rng)
        full = reference.multiple_try(log_density, x, log_p, 0, scales[0], 2.9, again, patient=True)
        assert full.n_evaluated == 2 * m - 1
        rows.append((accept_prob, full.alpha, chain.state.x[0], full.x[0]))
    return np.array(rows).T


@pytest.mark.slow
@pytest.mark.parametrize("m", [3, 6])
def test_early_rejection_never_changes_the_decision(m):
    reported, _, found, expected = replayed(two_modes, m)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (reported == 0).mean() > 0.1


def standard_errors(difference):
    return difference.mean() / (difference.std() / np.sqrt(len(difference)))


@pytest.mark.slow
@pytest.mark.parametrize("m", [3, 6])
def test_reported_acceptance_has_the_mean_of_the_true_one(m):
    reported, alpha, *_ = replayed(two_modes, m)
    assert ((reported >= 0) & (reported <= 1)).all()
    assert abs(standard_errors(reported - alpha)) < 4
    # Neither does that hold for α where it is known, and 0 elsewhere, …
    assert standard_errors(np.where(reported > 0, alpha, 0) - alpha) < -10
    # … nor for the mean of those that are known.
    known = alpha[reported > 0]
    assert known.mean() - alpha.mean() > 10 * alpha.std() / np.sqrt(len(known))


# ---- extreme densities and scales -----------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-1e4, 1e5])
@pytest.mark.parametrize("power", [0.0, 2.9])
@pytest.mark.parametrize("logp", [normal, mixture, holes], ids=lambda f: f.__name__)
def test_a_constant_in_the_log_density_changes_nothing(logp, power, offset):
    scales = ladders(logp, 5)
    chains = [cmtm_chain(logp, scales, power, offset=o) for o in (0.0, offset)]
    rngs = [np.random.default_rng(5) for _ in chains]
    for _ in range(200):
        reports = [chain.sweep(rng) for chain, rng in zip(chains, rngs, strict=True)]
        np.testing.assert_allclose(chains[1].state.x, chains[0].state.x, rtol=1e-12)
        np.testing.assert_allclose(*reports, rtol=1e-9)
    assert (chains[0].accepted.sum(axis=1) > 20).all()


@pytest.mark.slow
@pytest.mark.parametrize("scales", [[0.1, 0.2, 0.4], [1.0, 10.0, 100.0]])
def test_from_where_the_density_is_zero_in_floating_point(scales):
    """From 1e3 standard deviations away, log-density -5e5, all of the way back."""
    chain = cmtm_chain(normal, scales, start=[500.0, -1000.0, 100.0])
    rng, seen = np.random.default_rng(0), []
    for _ in range(20_000):
        seen.append(chain.sweep(rng))
    assert np.isfinite(seen).all()
    assert chain.state.logp[0] > -20


def test_where_nothing_else_is_possible_the_chain_stays():
    """The other coordinate goes on."""
    chain, rng = cmtm_chain(point_in_a_plane, [0.5, 1.0, 2.0]), np.random.default_rng(0)
    for t in range(1, 101):
        accept_prob, share = chain.sweep(rng)
        assert chain.work.choice[0] == -1
        assert 0 <= accept_prob <= 0.5
        assert share in (0, 0.5)
        assert chain.state.x[0] == 1
        assert np.isfinite(chain.state.logp[0])
        assert chain.state.idle[0] == t
    assert chain.selected[0].sum() == chain.accepted[0].sum() == 0
    assert chain.selected[1].sum() == 100
    assert chain.state.idle[1] < 10


@pytest.mark.slow
@pytest.mark.parametrize("power", [0.0, 2.9, 50.0])
@pytest.mark.parametrize("scales", [[1e-30] * 3, [1e-300] * 3, [1e-30, 1e-30, 1.0]], ids=str)
def test_tries_that_rounding_leaves_where_the_chain_is(scales, power):
    chain, rng = cmtm_chain(normal, scales, power), np.random.default_rng(0)
    start = chain.state.x.copy()
    seen = np.array([chain.sweep(rng) for _ in range(300)])
    assert ((seen >= 0) & (seen <= 1)).all()
    assert chain.state.logp[0] == pytest.approx(log_density(chain.state.x), rel=1e-12)
    if scales[-1] < 1:
        np.testing.assert_array_equal(chain.state.x, start)
    elif power > 0:  # a long jump is always better than none
        assert chain.selected[:, :2].sum() == 0
        assert (chain.accepted[:, 2] > 20).all()


@pytest.mark.parametrize("scales", [[1e150, 1e200, 1e308], [1.0, 2.0, 1e308]], ids=str)
def test_tries_that_leave_the_floating_point_numbers(scales):
    chain, rng = cmtm_chain(normal, scales), np.random.default_rng(0)
    seen = np.array([chain.sweep(rng) for _ in range(300)])
    assert ((seen >= 0) & (seen <= 1)).all()
    assert np.isfinite(chain.state.x).all()
    assert np.isfinite(chain.state.logp[0])


# ---- selection ------------------------------------------------------------------------------

LOG_WEIGHTS = {
    "many": np.log([0.1, 0.3, 1e-9, 0.4, 0.2]),
    "some of them 0": np.array([-np.inf, 0.3, -np.inf, -1.0, 0.0, -np.inf]),
    "one": np.array([0.7]),
    "tiny and huge": np.array([-1e5, -1e5 + 1, -1e5 - 1]),
    "one among zeros": np.array([-np.inf, 3.0, -np.inf]),
    "that underflow": np.array([-800.0, 0.0, -800.0]),
    "that rounding leaves a rest of": np.array([-0.9, 0.0, -0.6, -np.inf]),
}


@pytest.mark.slow
@pytest.mark.parametrize("log_w", LOG_WEIGHTS.values(), ids=LOG_WEIGHTS)
def test_selection_follows_the_weights(log_w):
    rng, n = np.random.default_rng(0), 20_000
    chosen, log_sums = zip(*(cmtm.select(log_w.copy(), rng) for _ in range(n)), strict=True)
    expected = np.exp(log_w - np.logaddexp.reduce(log_w))
    np.testing.assert_allclose(log_sums, np.logaddexp.reduce(log_w), rtol=1e-12, atol=1e-14)
    counts = np.bincount(chosen, minlength=log_w.size)
    assert (counts[expected == 0] == 0).all()
    likely = n * expected > 5
    if likely.sum() > 1:
        chi2 = np.sum((counts - n * expected)[likely] ** 2 / (n * expected)[likely])
        assert stats.chi2.sf(chi2, likely.sum() - 1) > 1e-3
        assert not np.allclose(counts[likely] / n, 1 / likely.sum(), atol=0.01)


@pytest.mark.parametrize("m", [1, 3, 20])
def test_selection_of_nothing(m):
    s, log_sum = cmtm.select(np.full(m, -np.inf), np.random.default_rng(0))
    assert s == -1
    assert log_sum == -np.inf


# ---- ladders --------------------------------------------------------------------------------

BOUNDS = {"wide": (1e-6, 1e6), "low end": (0.7, 1e6), "high end": (1e-6, 30.0), "tight": (1, 16)}

LADDERS = {
    3: [(1.0, 16.0), (1.0, 7.9), (1.0, 4.0), (1.0, 3.9), (1.0, 2.0), (1.0, 1.5)],
    5: [(1.0, 16.0), (1.5, 6.0), (1.5, 5.0), (3.0, 6.5)],
    20: [(1.0, 16.0), (2.0, 5.0)],
}
FEW_LADDERS = [pytest.param(m, marks=[pytest.mark.slow] * (m > 3)) for m in LADDERS]

SHARES = [0.0, 0.3, 0.5, 0.7, 1.0, 1.9, 2.0, 2.1, 2.6]


def ladder_cases(m):
    """Yield σ_1 and σ_m of ladders, and how often each of m tries is selected of 1000 m times.

    The shares of the first and the last are in units of 1/m: 1/2 and 2 are the limits.
    """
    n = 1000
    for ends in LADDERS[m]:
        yield ends, np.zeros(m, int)
        for first in SHARES:
            for last in SHARES:
                counts = np.zeros(m, int)
                counts[[0, -1]] = int(first * n), int(last * n)
                counts[1] = m * n - counts.sum()
                if counts[1] >= 0:
                    yield ends, counts


def changed(change, ladder, counts, widest, bounds):
    """Return the ladder after a change by the compiled function."""
    adapting = Adapting(d=1, m=ladder.size, bounds=bounds)
    adapting.parameters.ladders[0] = ladder
    adapting.tuning.selected[0], adapting.tuning.widest[0] = counts, widest
    change(adapting.parameters, adapting.tuning, 0)
    return adapting.parameters.ladders[0]


def compare_ladders(change, slow_change, m, bounds):
    """Change many ladders with the compiled function and the slow one; yield (old, counts, new)."""
    for ends, counts in ladder_cases(m):
        for widest in (counts.sum(), 0.051 * counts.sum(), 0.049 * counts.sum()):
            old = np.geomspace(*ends, m)
            new = changed(change, old, counts, widest, bounds)
            expected = slow_change(old, counts, widest, bounds)
            np.testing.assert_allclose(new, expected, rtol=1e-13, err_msg=f"{old} {counts}")
            assert (new >= bounds[0]).all()
            assert (new <= bounds[1]).all()
            if widest == counts.sum():
                yield old, counts, new


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("m", FEW_LADDERS)
def test_adapted_ladders(m, bounds):
    kinds = set()
    for old, counts, new in compare_ladders(cmtm.adapt_ladder, reference.adapted_ladder, m, bounds):
        assert counts.sum() in (0, 1000 * m)
        np.testing.assert_allclose(np.diff(np.log(new), 2), 0, atol=1e-12)
        ratio, before = new[-1] / new[0], old[-1] / old[0]
        assert ratio >= min(2, before) * (1 - 1e-12)
        kinds.add((np.sign(new[0] - old[0]), np.sign(new[-1] - old[-1])))
    if bounds == BOUNDS["wide"]:  # but that both ends rise happens only with two very often used
        assert len(kinds) >= 8


@pytest.mark.slow
@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("m", FEW_LADDERS)
def test_shifted_ladders(m, bounds):
    factors = set()
    for old, _, new in compare_ladders(cmtm.shift_ladder, reference.shifted_ladder, m, bounds):
        factors.add(new[0] / old[0])
        np.testing.assert_allclose(new / old, new[0] / old[0], rtol=1e-14)
    assert factors == {0.5, 1.0, 2.0} or bounds != BOUNDS["wide"]


# ---- single tries ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("squares", "moved", "n_steps", "n_logp", "expected"),
    [
        ([10, 40, 20], 50, 100, 500, (2, 1)),  # 1.5 · 50/40, up; 2 · 100 < 500
        ([10, 40, 20], 50, 100, 201, (2, 1)),
        ([10, 40, 20], 50, 100, 200, (0, 0)),  # no gain
        ([10, 20, 50], 1, 100, 500, (1, 2)),
        ([10, 20, 50], 0, 100, 500, (1, 2)),
        ([10, 20, 50], 100, 100, 500, (3, 2)),
        ([10, 20, 50], 101, 100, 500, (4, 2)),
        ([10, 20, 50], 101, 100, 400, (0, 0)),
        ([50, 20, 10], 10, 50, 500, (1, 0)),
        ([50, 20, 10], 10, 49, 500, (0, 0)),  # too few steps to decide
        ([0, 0, 0], 0, 100, 500, (0, 0)),
    ],
)
def test_decision_on_single_tries_by_hand(squares, moved, n_steps, n_logp, expected):
    parameters, tuning = Adapting(d=2).parameters, Adapting(d=2).tuning
    tuning.squares[1] = squares
    tuning.totals[1] = moved, n_steps, n_logp
    cmtm.decide(parameters, tuning, 1)
    assert (parameters.n_single[1], parameters.single[1]) == expected
    assert reference.single_tries(squares, moved, n_steps, n_logp) == expected
    assert parameters.n_single[0] == parameters.single[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize("logp", [mixture, holes], ids=lambda f: f.__name__)
def test_multiple_tries_tell_what_single_ones_would_move(logp):
    """The expected squared distance of each, against chains of single tries."""
    m, n, rng, scales = 4, 10_000, np.random.default_rng(0), ladders(logp, 4, 0.3, 8)
    chain, tuning = cmtm_chain(logp, scales), tuning_of(2, m)
    for _ in range(n):
        chain.sweep(rng)
        for k in range(2):
            cmtm.observe(chain.state, tuning, chain.work, k)
    np.testing.assert_array_equal(tuning.totals[:, 1], n)
    assert tuning.totals[:, 2].sum() == chain.target.count[0]
    for s in range(m):
        singles = cmtm_chain(logp, scales, n_single=1, single=s)
        x = np.array([(singles.sweep(rng), singles.state.x.copy())[1] for _ in range(n)])
        moved = (np.diff(x, axis=0) ** 2).mean(axis=0)
        np.testing.assert_allclose(tuning.squares[:, s] / n, moved, rtol=0.25)


# ---- adaptation in time ---------------------------------------------------------------------


def tuning_of(d, m, n=10_000, bounds=(1e-300, 1e300), **options):
    return allocate(
        cmtm.Tuning,
        {"d": d, "m": m},
        n=n,
        bounds=bounds,
        **{"n_shifting": 0, "adapt_every": 1, "fewer_tries": False} | options,
    )


class Adapting:
    """Calls of `adapt`, with tries that are selected by hand."""

    def __init__(self, d=3, m=3, seed=0, **kwargs):
        sizes, ladder = {"d": d, "m": m, "choices": m + 1}, np.geomspace(1, 4, m)
        self.state, self.work = allocate(State, sizes), allocate(cmtm.Work, sizes)
        self.parameters = allocate(cmtm.Parameters, sizes, ladders=ladder, alpha=2.9)
        self.tuning = tuning_of(d, m, **kwargs)
        self.rng = np.random.default_rng(seed)

    def adapt(self, choice):
        """Tell it what was selected in a sweep; return whether the scales of each changed."""
        before = self.parameters.ladders.copy()
        self.work.choice[:] = choice
        cmtm.adapt(self.state, self.parameters, self.tuning, self.work, 0.5, self.rng)
        return (self.parameters.ladders != before).any(axis=1)


# ---- tuning of whole chains -----------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return correlated_normal()


CMTM_RUNS = {
    "default": {},
    "20 tries": {"n_tries": 20},
    "another power": {"alpha": 1.0},
    "scales too small": {"scaling": np.geomspace(1e-4, 1e-2, 5)},
    "scales too large": {"scaling": np.outer([1, 2, 3], np.geomspace(1e2, 1e3, 5))},
    "scales of three tries": {"n_tries": 3, "scaling": [1e-2, 1e-1, 10.0]},
    "bounds": {"scaling_bounds": (0.2, 3.0), "scaling": np.geomspace(0.3, 2.0, 5)},
}


@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize(("n", "adapt_every"), [(1, 1), (25, 3), (200, 7), (350, 100)])
@pytest.mark.parametrize("options", CMTM_RUNS.values(), ids=CMTM_RUNS)
def test_cmtm_with_adaptation(model, options, n, adapt_every):
    """And some sweeps after it, in which single tries may have replaced multiple ones."""
    step = pk.CMTM(model=model, adapt_every=adapt_every, **options)
    positions, found = run(step, n + 20, tune=n, seed=4)
    m, shifts = options.get("n_tries", 5), "scaling" not in options
    first = np.outer(SCALES, np.geomspace(0.5, 8, m)) if shifts else options["scaling"]
    chain = reference.CMTM(
        log_density,
        START,
        np.broadcast_to(first, (3, m)),
        options.get("alpha", 2.9),
    )
    bounds = [options["scaling_bounds"]] * 3 if "scaling_bounds" in options else None
    rng, n_shifting = np.random.default_rng(4), n // 2 if shifts else 0
    expected, path = chain.tune(n, rng, adapt_every, n_shifting, bounds, fewer_tries=shifts)
    np.testing.assert_allclose(positions[:n], expected, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(step.parameters.ladders, path[-1], rtol=1e-12)
    np.testing.assert_array_equal(step.parameters.n_single, chain.n_single)
    np.testing.assert_array_equal(step.parameters.single, chain.single)
    np.testing.assert_allclose(found["cmtm_smallest_scale"][:n], path[:, :, 0], rtol=1e-12)
    np.testing.assert_allclose(found["cmtm_largest_scale"][:n], path[:, :, -1], rtol=1e-12)
    geometric = np.exp(np.log(path).mean(axis=(1, 2)))
    np.testing.assert_allclose(found["scaling"][:n], geometric, rtol=1e-12)
    for i in range(n, n + 20):
        chain.sweep(rng)
        np.testing.assert_allclose(positions[i], chain.x, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(found["cmtm_selected"].sum(axis=0), chain.selected)
    np.testing.assert_allclose(found["cmtm_accepted"].sum(axis=0), chain.accepted)
    assert n < 200 or len(np.unique(path.reshape(n, -1), axis=0)) > 1
    assert (chain.n_single > 0).any() == shifts or n < 350


def test_cmtm_without_adaptation(model):
    scales = np.geomspace(0.01, 100, 4)
    step = pk.CMTM(model=model, n_tries=4, scaling=scales, adapt_every=None)
    _, found = run(step, 400, tune=300)
    np.testing.assert_array_equal(step.parameters.ladders, np.tile(scales, (3, 1)))
    assert len(np.unique(found["scaling"])) == 1
    assert found["warning"][-1] is None


@pytest.mark.usefixtures("from_start")
def test_keep_adapting_is_the_same_rule_without_an_end(model):
    bounds = (1e-3, 1e3)
    step = pk.CMTM(
        model=model,
        scaling=np.geomspace(0.1, 10, 5),
        adapt_every=5,
        keep_adapting=True,
        scaling_bounds=bounds,
        region={"x": (-50, 50)},
    )
    _, found = run(step, 600, tune=200, seed=1)
    chain = reference.CMTM(log_density, START, np.tile(np.geomspace(0.1, 10, 5), (3, 1)))
    _, path = chain.tune(600, np.random.default_rng(1), 5, bounds=[bounds] * 3)
    np.testing.assert_allclose(found["cmtm_largest_scale"], path[:, :, -1], rtol=1e-12)
    assert len(np.unique(path[200:], axis=0)) > 5


# ---- statistics -----------------------------------------------------------------------------


def test_statistics_are_of_the_draw(model):
    """Shares of its sweeps, and the number of its evaluations."""
    scaling = np.outer(SCALES, np.geomspace(0.5, 8, 4))
    step = pk.CMTM(model=model, n_tries=4, steps_per_draw=6, scaling=scaling)
    positions, found = run(step, 200, tune=100)
    selected, accepted = found["cmtm_selected"], found["cmtm_accepted"]
    assert selected.shape == accepted.shape == (200, 3, 4)
    assert (accepted >= 0).all()
    assert (accepted <= selected).all()
    np.testing.assert_allclose(selected.sum(axis=2), 1)
    np.testing.assert_allclose(selected * 6, np.round(selected * 6), atol=1e-12)
    share = accepted.sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(found["accept_share"], share)
    n_logp = found["n_logp"][1:]  # the first draw looks around before
    assert 6 * 3 * 4 <= n_logp.min() < n_logp.max() <= 6 * 3 * 7
    moved = np.diff(positions, axis=0) != 0
    np.testing.assert_array_equal(moved, accepted[1:].sum(axis=2) > 0)


def test_statistics_of_single_tries(model):
    """They are selected in all sweeps, and the share of them that is accepted is reported."""
    step = pk.CMTM(model=model)
    positions, found = run(step, 900, tune=500)
    n_single, single = step.parameters.n_single, step.parameters.single
    assert (n_single > 0).any()
    for k in np.flatnonzero(n_single):
        chosen = np.arange(5) == single[k]
        np.testing.assert_array_equal(found["cmtm_selected"][500:, k], np.tile(chosen, (400, 1)))
        shares = found["cmtm_accepted"][500:, k]
        assert (shares[:, ~chosen] == 0).all()
        possible = np.arange(n_single[k] + 1) / n_single[k]
        np.testing.assert_allclose(np.unique(shares[:, chosen]), possible)
        moved = np.diff(positions[499:, k]) != 0
        np.testing.assert_array_equal(moved, shares[:, chosen][:, 0] > 0)
    share = found["cmtm_accepted"].sum(axis=2).mean(axis=1)
    np.testing.assert_allclose(found["accept_share"], share)
    assert found["n_logp"][500:].mean() < found["n_logp"][1:500].mean()
    if (n_single > 0).all():
        assert (found["n_logp"][500:] == n_single.sum()).all()


# ---- ladders and bounds ---------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(1e-3, 0.1), (1.5, 2.0), (0.5, 0.6), (20, 1e3), (0.1, 100)])
def test_first_ladders_are_as_wide_as_bounds_allow(bounds):
    """At least a factor of 2, unless the bounds are closer, and increasing."""
    step = pk.CMTM(model=pair_model(), scaling_bounds=bounds)
    _, parameters, tuning, _ = step._allocate(np.array([0.7, 1.0]), 0)
    ladders, limits = parameters.ladders, tuning.bounds
    np.testing.assert_allclose(limits, [bounds, bounds], rtol=1e-14)
    assert (ladders >= bounds[0] * (1 - 1e-12)).all()
    assert (ladders <= bounds[1] * (1 + 1e-12)).all()
    assert (np.diff(ladders) > 0).all()
    assert (ladders[:, -1] / ladders[:, 0] > min(2, bounds[1] / bounds[0]) - 1e-9).all()


@pytest.mark.parametrize(("bounds", "warns"), [((1e-3, 0.1), True), ((1e-3, 1e3), False)])
def test_a_ladder_that_ends_at_a_bound_is_named(bounds, warns):
    message = last_warning(pk.CMTM(model=pair_model(), scaling_bounds=bounds), 600, 100)
    assert ("The widest try of x[0], x[1] ended at its upper bound, 0.1" in message) == warns
    assert ("[scale_at_bound]" in message) == warns
    assert warns or message == ""


def test_without_an_alarm_a_ladder_stays_as_it_was_given():
    """Also if its scales are not equidistant."""
    ladder = changed(cmtm.adapt_ladder, np.array([1, 2, 8]), 10, 30, (1e-3, 1e3))
    np.testing.assert_array_equal(ladder, [1, 2, 8])


@pytest.mark.slow
def test_keep_adapting_adapts_with_default_arguments(model):
    options = {"scaling_bounds": (1e-3, 1e3), "region": {"x": (-50, 50)}}
    step = pk.CMTM(model=model, keep_adapting=True, adapt_every=20, **options)
    _, found = run(step, 2000, tune=400)
    assert len(np.unique(found["cmtm_largest_scale"][400:], axis=0)) > 1
