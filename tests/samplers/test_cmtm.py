"""CMH and CMTM against slow versions from their definitions, on the same random numbers."""

import copy
from functools import cache

import arviz as az
import numba
import numpy as np
import pymc as pm
import pytest
import reference
from models import normal_model
from scipy import stats

import pymc_kameleon as pk
from pymc_kameleon.core.target import LOGP_SIGNATURE, Target, function_address
from pymc_kameleon.samplers import cmtm

# ---- targets --------------------------------------------------------------------------------
# data[0] is added to each log-density.

PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])


@numba.njit(LOGP_SIGNATURE)
def normal(x, data, shapes, gradient):
    total = data[0]
    for i in range(3):
        for j in range(3):
            total -= 0.5 * x[i] * PRECISION[i, j] * x[j]
    return total


@numba.njit(LOGP_SIGNATURE)
def mixture(x, data, shapes, gradient):
    """The two dimensions of the paper, of which the second is wide in one mode."""
    left = -0.5 * ((x[0] - 5) ** 2 / 6.25 + x[1] ** 2 / 6.25)
    right = np.log(5.0) - 0.5 * ((x[0] - 15) ** 2 / 6.25 + x[1] ** 2 / 0.25)
    return data[0] + np.logaddexp(left, right)


@numba.njit(LOGP_SIGNATURE)
def two_modes(x, data, shapes, gradient):
    """In one dimension, and one of them narrow."""
    return data[0] + np.logaddexp(-0.5 * x[0] ** 2, np.log(10.0) - 50 * (x[0] - 4) ** 2)


@numba.njit(LOGP_SIGNATURE)
def holes(x, data, shapes, gradient):
    """A gamma and a normal density; around them, and in the midst, there is nothing."""
    if x[0] < 0:
        return -np.inf
    if x[1] > 1:
        return np.nan
    if 1 < x[0] < 1.5 or x[1] < -2:
        return np.inf
    return data[0] + np.log(x[0]) - x[0] - 0.5 * x[1] ** 2


@numba.njit(LOGP_SIGNATURE)
def point_in_a_plane(x, data, shapes, gradient):
    """A normal density along the second coordinate, where the first is exactly 1."""
    return data[0] - 0.5 * x[1] ** 2 if x[0] == 1 else -np.inf


STARTS = {
    normal: [0.5, 1.5, -0.1],
    mixture: [5.0, 1.0],
    two_modes: [0.3],
    holes: [0.7, 0.2],
    point_in_a_plane: [1.0, 0.3],
}
REGIONS = {mixture: [[-2.0, -1.5], [30.0, np.inf]]}


def target_of(logp, offset=0.0):
    d = len(STARTS[logp])
    region = REGIONS.get(logp, [[-np.inf] * d, [np.inf] * d])
    data, shapes = np.array([offset]), np.array([1])
    address = function_address(logp)
    count, gradient = np.zeros(1, np.int64), np.zeros(0)
    return Target(address, np.zeros(d), data, shapes, np.array(region), count, gradient, 0)


class LogDensity:
    """A target in plain Python, which counts its evaluations within the region."""

    def __init__(self, logp, offset=0.0):
        self.logp, self.target = logp, target_of(logp, offset)
        self.count = 0

    def __call__(self, x):
        low, high = self.target.region
        if not ((low <= x) & (x <= high)).all():
            return -np.inf
        self.count += 1
        value = self.logp.py_func(x, self.target.data, self.target.shapes, self.target.gradient)
        return value if value < np.inf else -np.inf


# ---- compiled transitions -------------------------------------------------------------------


class Chain:
    """Sweeps of a compiled transition."""

    def __init__(self, transition, logp, parameters, m=1, offset=0.0, start=None):
        self.transition, self.target = transition, target_of(logp, offset)
        start = STARTS[logp] if start is None else start
        self.state, self.work = cmtm.State.empty(len(start), m), cmtm.Work.empty(len(start), m)
        self.parameters = parameters
        self.move_to(start, LogDensity(logp, offset)(np.array(start)))

    def move_to(self, x, log_p):
        self.state.x[:] = x
        self.state.logp[0] = log_p

    def sweep(self, rng):
        """Make a transition; return what it returns: mean accept_prob and share accepted."""
        return self.transition(self.target, self.state, self.parameters, self.work, rng)


def cmtm_chain(logp, scales, power=2.9, random_order=False, n_single=0, single=0, **kwargs):
    d = len(STARTS[logp])
    scales = np.broadcast_to(scales, (d, np.shape(scales)[-1])).astype(float, order="C")
    n_single, single = (np.broadcast_to(value, d).copy() for value in (n_single, single))
    parameters = cmtm.Parameters(scales, n_single, single, float(power), random_order)
    return Chain(cmtm.transition, logp, parameters, m=scales.shape[1], **kwargs)


def cmh_chain(logp, scales, random_order=False):
    log_scales = np.log(np.broadcast_to(scales, len(STARTS[logp])))
    return Chain(cmtm.cmh_transition, logp, cmtm.CMHParameters(log_scales, random_order))


def ladders(logp, m, low=0.05, high=20.0):
    """Scales that differ from coordinate to coordinate."""
    d = len(STARTS[logp])
    return np.geomspace(low, high, m) * np.linspace(1, 2, d)[:, None]


def generator_of(uniform):
    """Return a generator whose uniform numbers are all this one."""
    bits, integer = np.random.MT19937(0), int(uniform * 2**53)
    words = [untempered(integer >> 26 << 5), untempered((integer & (2**26 - 1)) << 6)]
    state = {"key": np.tile(np.array(words, np.uint32), 312), "pos": 0}
    bits.state = {"bit_generator": "MT19937", "state": state}
    return np.random.Generator(bits)


def untempered(y):
    """Return the word of a Mersenne Twister's state that it returns as y."""
    y ^= y >> 18
    y ^= (y << 15) & 0xEFC60000
    x = y
    for _ in range(5):
        x = y ^ ((x << 7) & 0x9D2C5680)
    y = x & 0xFFFFFFFF
    x = y
    for _ in range(3):
        x = y ^ (x >> 11)
    return x


@pytest.mark.parametrize("uniform", [0, 2**-53, 0.3, 0.5, 1 - 2**-53])
def test_generator_of_a_number(uniform):
    assert generator_of(uniform).random(5) == pytest.approx([uniform] * 5, abs=2**-53)
    assert (generator_of(uniform).random() == 0) == (uniform == 0)


# ---- a sweep of CMTM ------------------------------------------------------------------------


def compare_sweeps(logp, m, n, random_order=False, power=2.9, seed=1, slow_power=None, single=()):
    """Make n sweeps of the compiled chain and of the slow one; return the latter."""
    scales = ladders(logp, m)
    singles = dict(zip(("n_single", "single"), single, strict=False))
    chain = cmtm_chain(logp, scales, power, random_order, **singles)
    log_density, idle = LogDensity(logp), np.zeros(len(STARTS[logp]), int)
    power = power if slow_power is None else slow_power
    expected_chain = reference.CMTM(
        log_density, STARTS[logp], scales, power, random_order=random_order
    )
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
    np.testing.assert_array_equal(chain.state.selected, expected_chain.selected)
    np.testing.assert_allclose(chain.state.accepted, expected_chain.accepted, rtol=1e-12)
    assert chain.state.n_sweeps[0] == n
    assert chain.target.count[0] == log_density.count
    assert rng.random() == other.random()
    return expected_chain


@pytest.mark.parametrize("random_order", [False, True])
@pytest.mark.parametrize("m", [3, 5, 20])
@pytest.mark.parametrize("logp", [normal, mixture, two_modes, holes], ids=lambda f: f.__name__)
def test_sweeps_by_hand(logp, m, random_order):
    n = 60 if m == 20 else 200
    expected_chain = compare_sweeps(logp, m, n, random_order)
    d = len(STARTS[logp])
    assert 0.2 * n < expected_chain.accepted.sum() / d < n
    assert (expected_chain.selected > 0).sum() > d * m / 2
    assert (
        d * m * n < expected_chain.n_evaluated < d * (2 * m - 1) * n
    )  # most rejections come early


@pytest.mark.parametrize("random_order", [False, True])
@pytest.mark.parametrize("n_single", [[0, 1], [3, 0], [2, 7]])
@pytest.mark.parametrize("logp", [mixture, holes], ids=lambda f: f.__name__)
def test_sweeps_with_single_tries(logp, n_single, random_order):
    expected_chain = compare_sweeps(logp, 4, 200, random_order, single=(n_single, [2, 3]))
    for k in np.flatnonzero(n_single):
        s = [2, 3][k]
        assert expected_chain.selected[k, s] == expected_chain.selected[k].sum() == 200
        assert 2 < expected_chain.accepted[k, s] < 180


@pytest.mark.parametrize("power", [0.0, 0.5, 10.0])
def test_sweeps_with_other_powers(power):
    compare_sweeps(normal, 4, 200, power=power)


@pytest.mark.parametrize("slow_power", [2.8, 0.0])
def test_the_power_of_the_distance_matters(slow_power):
    with pytest.raises(AssertionError):
        compare_sweeps(normal, 4, 200, slow_power=slow_power)


def test_a_sweep_leaves_the_target_where_the_chain_is():
    chain, rng = cmtm_chain(mixture, ladders(mixture, 3)), np.random.default_rng(0)
    for _ in range(50):
        chain.sweep(rng)
        np.testing.assert_array_equal(chain.target.point, chain.state.x)
        assert chain.state.logp[0] == LogDensity(mixture)(chain.state.x)


@pytest.mark.parametrize("random_order", [False, True])
def test_the_order_of_the_coordinates(random_order):
    chain, rng = cmtm_chain(normal, [0.5, 1, 2], 2.9, random_order), np.random.default_rng(0)
    orders = []
    for _ in range(600):
        chain.sweep(rng)
        orders.append(tuple(chain.work.order))
    counts = np.unique(orders, axis=0, return_counts=True)[1]
    assert len(counts) == (6 if random_order else 1)
    assert orders[0] == (0, 1, 2) or random_order
    assert counts.min() > 70


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


@pytest.mark.parametrize("m", [3, 6])
def test_early_rejection_never_changes_the_decision(m):
    reported, _, found, expected = replayed(two_modes, m)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert (reported == 0).mean() > 0.1


def standard_errors(difference):
    return difference.mean() / (difference.std() / np.sqrt(len(difference)))


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


# ---- one try --------------------------------------------------------------------------------


def by_two_uniforms(log_ratio, rng):
    """Decide as CMTM does: the first one selects, unless there is nothing to select."""
    if log_ratio == -np.inf:
        return False
    rng.random()
    return np.log(1 - rng.random()) < log_ratio


@pytest.mark.parametrize(
    ("chain", "accepts"),
    [(cmtm_chain, by_two_uniforms), (cmh_chain, reference.by_exponential)],
    ids=["cmtm", "cmh"],
)
@pytest.mark.parametrize("random_order", [False, True])
@pytest.mark.parametrize("logp", [two_modes, mixture, holes, normal], ids=lambda f: f.__name__)
def test_cmh_is_componentwise_metropolis_and_so_is_cmtm_with_one_try(
    logp, random_order, chain, accepts
):
    """Whatever the power of the distance, which is the same both ways."""
    d, log_density = len(STARTS[logp]), LogDensity(logp)
    scales = np.linspace(1, 3, d)
    column = scales[:, None] if chain is cmtm_chain else scales
    chain = chain(logp, column, random_order=random_order)
    x, log_p = np.array(STARTS[logp]), log_density(np.array(STARTS[logp]))
    log_density.count = n_accepted = 0
    rng, other = np.random.default_rng(2), np.random.default_rng(2)
    for _ in range(250):
        accept_prob, share = chain.sweep(rng)
        moves = []
        for k in reference.order_of_sweep(d, random_order, other):
            move = reference.metropolis(log_density, x, log_p, k, scales[k], other, accepts)
            x, log_p = move.x, move.log_p
            moves.append(move)
        np.testing.assert_allclose(chain.state.x, x, rtol=1e-12, atol=1e-14)
        assert accept_prob == pytest.approx(np.mean([move.alpha for move in moves]), rel=1e-12)
        assert share == np.mean([move.accepted for move in moves])
        n_accepted += share
    assert 25 < n_accepted < 225
    assert chain.state.accepted.sum() == pytest.approx(d * n_accepted)
    assert chain.target.count[0] == log_density.count


def test_one_try_of_cmtm_and_cmh_accept_the_same_proposal_alike():
    one, cmh = cmtm_chain(two_modes, [2.0]), cmh_chain(two_modes, [2.0])
    for seed in range(300):
        accept_probs = [chain.sweep(np.random.default_rng(seed))[0] for chain in (one, cmh)]
        assert accept_probs[0] == pytest.approx(accept_probs[1], rel=1e-12)
        cmh.move_to(one.state.x, one.state.logp[0])


# ---- extreme densities and scales -----------------------------------------------------------


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
    assert (chains[0].state.accepted.sum(axis=1) > 20).all()


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
    assert chain.state.selected[0].sum() == chain.state.accepted[0].sum() == 0
    assert chain.state.selected[1].sum() == 100
    assert chain.state.idle[1] < 10


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
        assert chain.state.selected[:, :2].sum() == 0
        assert (chain.state.accepted[:, 2] > 20).all()


@pytest.mark.parametrize("scales", [[1e150, 1e200, 1e308], [1.0, 2.0, 1e308]], ids=str)
def test_tries_that_leave_the_floating_point_numbers(scales):
    chain, rng = cmtm_chain(normal, scales), np.random.default_rng(0)
    seen = np.array([chain.sweep(rng) for _ in range(300)])
    assert ((seen >= 0) & (seen <= 1)).all()
    assert np.isfinite(chain.state.x).all()
    assert np.isfinite(chain.state.logp[0])


def test_what_is_no_density_is_never_selected():
    """Nor does it get a weight as a reference: `test_sweeps_by_hand` would see that."""
    chain, rng = cmtm_chain(holes, [0.5, 1.0, 4.0]), np.random.default_rng(0)
    for _ in range(2000):
        chain.sweep(rng)
        x = chain.state.x
        assert 0 <= x[0] <= 1 or x[0] >= 1.5
        assert -2 <= x[1] <= 1
        assert np.isfinite(chain.state.logp[0])
    assert (chain.state.accepted > 50).all()


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


@pytest.mark.parametrize("log_w", LOG_WEIGHTS.values(), ids=LOG_WEIGHTS)
def test_selection_at_the_ends_of_the_uniform_distribution(log_w):
    """The first or the last try whose weight is not 0, and no other."""
    possible = np.flatnonzero(np.exp(log_w - log_w.max()) > 1e-15)
    assert cmtm.select(log_w.copy(), generator_of(0))[0] == possible[0]
    assert cmtm.select(log_w.copy(), generator_of(1 - 2**-53))[0] == possible[-1]


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


def compare_ladders(change, slow_change, m, bounds):
    """Change many ladders with the compiled function and the slow one; yield (old, counts, new)."""
    for ends, counts in ladder_cases(m):
        for widest in (counts.sum(), 0.051 * counts.sum(), 0.049 * counts.sum()):
            old = np.geomspace(*ends, m)
            new = old.copy()
            change(new, counts, widest, np.array(bounds, float))
            expected = slow_change(old, counts, widest, bounds)
            np.testing.assert_allclose(new, expected, rtol=1e-13, err_msg=f"{old} {counts}")
            assert (new >= bounds[0]).all()
            assert (new <= bounds[1]).all()
            if widest == counts.sum():
                yield old, counts, new


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("m", LADDERS)
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


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ([40, 20, 20, 20, 0], (0.5, 16)),  # not more than 2/5, but none
        ([41, 20, 20, 19, 0], (0.5, 8)),
        ([41, 0, 0, 18, 41], (0.5, 32)),
        ([9, 41, 41, 9, 0], (2, 8)),
        ([10, 40, 40, 0, 10], (1, 16)),  # not less than 1/10
        ([9, 41, 40, 0, 10], (2, 16)),
        ([0, 0, 0, 59, 41], (2, 32)),
        ([0, 0, 0, 0, 0], (0.5, 8)),
    ],
)
def test_the_rule_of_the_ladders_by_hand(selected, expected):
    if selected == [40, 20, 20, 20, 0]:
        expected = (1, 8)
    scales = np.geomspace(1, 16, 5)
    cmtm.adapt_ladder(scales, np.array(selected), sum(selected), np.array([1e-3, 1e3]))
    np.testing.assert_allclose(scales, np.geomspace(*expected, 5), rtol=1e-14)


@pytest.mark.parametrize("bounds", BOUNDS.values(), ids=BOUNDS)
@pytest.mark.parametrize("m", LADDERS)
def test_shifted_ladders(m, bounds):
    factors = set()
    for old, _, new in compare_ladders(cmtm.shift_ladder, reference.shifted_ladder, m, bounds):
        factors.add(new[0] / old[0])
        np.testing.assert_allclose(new / old, new[0] / old[0], rtol=1e-14)
    assert factors == {0.5, 1.0, 2.0} or bounds != BOUNDS["wide"]


@pytest.mark.parametrize("m", [3, 5, 20, 49])
def test_alarm(m):
    n = 100 * m
    found = [cmtm.alarm(i / n, m) for i in range(n + 1)]
    expected = [1 if i > 200 else -1 if i < 50 else 0 for i in range(n + 1)]
    assert found == expected


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
    tuning.squares[1] = [*squares, moved]
    tuning.costs[1] = n_steps, n_logp
    cmtm.decide(parameters, tuning, 1)
    assert (parameters.n_single[1], parameters.single[1]) == expected
    assert reference.single_tries(squares, moved, n_steps, n_logp) == expected
    assert parameters.n_single[0] == parameters.single[0] == 0


@pytest.mark.parametrize("logp", [mixture, holes], ids=lambda f: f.__name__)
def test_multiple_tries_tell_what_single_ones_would_move(logp):
    """The expected squared distance of each, against chains of single tries."""
    m, n, rng, scales = 4, 10_000, np.random.default_rng(0), ladders(logp, 4, 0.3, 8)
    chain, tuning = cmtm_chain(logp, scales), tuning_of(2, m)
    for _ in range(n):
        chain.sweep(rng)
        for k in range(2):
            cmtm.observe(chain.state, tuning, chain.work, k)
    np.testing.assert_array_equal(tuning.costs[:, 0], n)
    assert tuning.costs[:, 1].sum() == chain.target.count[0]
    for s in range(m):
        singles = cmtm_chain(logp, scales, n_single=1, single=s)
        x = np.array([(singles.sweep(rng), singles.state.x.copy())[1] for _ in range(n)])
        moved = (np.diff(x, axis=0) ** 2).mean(axis=0)
        np.testing.assert_allclose(tuning.squares[:, s] / n, moved, rtol=0.25)


# ---- adaptation in time ---------------------------------------------------------------------


def tuning_of(d, m, n_shifting=0, adapt_every=1, bounds=(1e-300, 1e300), fewer_tries=False):
    return cmtm.Tuning(
        np.zeros(1, np.int64),
        10_000,
        n_shifting,
        adapt_every,
        fewer_tries,
        np.zeros(1, np.int64),
        np.zeros((d, m), np.int64),
        np.zeros(d),
        np.zeros((d, m + 1)),
        np.zeros((d, 2), np.int64),
        np.tile(bounds, (d, 1)).astype(float),
        cmtm.History.empty(40, d),
    )


class Adapting:
    """Calls of `adapt`, with tries that are selected by hand."""

    def __init__(self, d=3, m=3, seed=0, **kwargs):
        self.state, self.work = cmtm.State.empty(d, m), cmtm.Work.empty(d, m)
        scales, none = np.tile(np.geomspace(1, 4, m), (d, 1)), np.zeros(d, np.int64)
        self.parameters = cmtm.Parameters(scales, none, none.copy(), 2.9, False)
        self.tuning = tuning_of(d, m, **kwargs)
        self.rng = np.random.default_rng(seed)

    def adapt(self, choice):
        """Tell it what was selected in a sweep; return whether the scales of each changed."""
        before = self.parameters.scales.copy()
        self.work.choice[:] = choice
        cmtm.adapt(self.state, self.parameters, self.tuning, self.work, 0.5, self.rng)
        return (self.parameters.scales != before).any(axis=1)


def test_one_coin_for_all_coordinates():
    """Adaptation draws no other random numbers."""
    adapting, other = Adapting(), np.random.default_rng(0)
    changes = []
    for r in range(1, 501):
        # σ_1 and σ_3 in turn, so that the ladders do not leave for infinity
        changed = adapting.adapt(2 * (r % 2))
        coin = other.random() < max(0.99 ** (r - 1), r**-0.5)
        assert (changed == coin).all(), r
        changes.append(coin)
    assert adapting.rng.random() == other.random()
    assert changes[0]
    assert 0 < np.mean(changes[-100:]) < 0.15 < np.mean(changes[:100]) < 1


@pytest.mark.parametrize("r", [1, 2, 3, 30, 250, 300, 10_000])
def test_probability_of_adaptation(r):
    """The greater of .99^(r-1) and r^-½ at the r-th point; the latter is from about 284 on."""
    p = max(0.99 ** (r - 1), r**-0.5)
    assert (p == r**-0.5) == (r in (1, 300, 10_000))
    for uniform in [0, p * (1 - 1e-12), p * (1 + 1e-12), 1 - 2**-53]:
        if uniform < 1:
            adapting = Adapting()
            adapting.tuning.n_points[0] = r - 1
            adapting.rng = generator_of(uniform)
            assert (adapting.adapt(0) == (uniform < p)).all()


@pytest.mark.parametrize("adapt_every", [1, 7, 200])
def test_adapts_at_points_only(adapt_every):
    adapting = Adapting(adapt_every=adapt_every)
    for t in range(1, 3 * adapt_every + 1):
        changed = adapting.adapt(0)
        assert not changed.any() or t % adapt_every == 0
        assert changed.all() or t != adapt_every  # at the first point the coin is certain
        assert adapting.tuning.n_points[0] == t // adapt_every


def test_counts_begin_anew_at_each_point_whatever_the_coin():
    adapting, other = Adapting(d=1, m=3, adapt_every=4, seed=1), np.random.default_rng(1)
    missed = 0
    for r in range(1, 200):
        missed += other.random() >= max(0.99 ** (r - 1), r**-0.5)
        for i in range(1, 5):
            adapting.adapt(1 if r % 2 else i % 3)
            assert adapting.tuning.selected.sum() == i % 4
    assert missed > 50


def test_a_sweep_that_selects_nothing_is_not_counted():
    adapting = Adapting(d=2, m=3, adapt_every=10)
    for _ in range(9):
        adapting.adapt([-1, 2])
    np.testing.assert_array_equal(adapting.tuning.selected, [[0, 0, 0], [0, 0, 9]])
    adapting.adapt([-1, 2])
    np.testing.assert_allclose(adapting.parameters.scales, [[0.5, 1, 2], [2, 4, 8]])


def test_ladders_are_shifted_first():
    """Without a coin; points of adaptation are counted from the end of it."""
    adapting = Adapting(d=3, m=3, n_shifting=45, adapt_every=20)
    for t in range(1, 46):
        changed = adapting.adapt([2, 1, 0])
        assert list(changed) == ([True, False, True] if t % 6 == 0 else [False] * 3)
    np.testing.assert_array_equal(adapting.parameters.scales[:, 0], [128, 1, 1 / 128])
    assert adapting.rng.random() == np.random.default_rng(0).random()
    ends = []
    for t in range(46, 86):
        assert adapting.adapt([2, 1, 0]).any() == (t in (65, 85))
        ends.append(adapting.parameters.scales[:, [0, -1]].copy())
    np.testing.assert_array_equal(ends[-1], [[512, 2048], [1, 4], [1 / 512, 1 / 128]])


# ---- tuning of whole chains -----------------------------------------------------------------


@pytest.fixture(scope="module")
def model():
    return normal_model(PRECISION)


@pytest.fixture(scope="module")
def ill_scaled():
    return normal_model(np.diag(ILL_SCALES**-2))


ILL_SCALES = np.array([1e-4, 1e4])

START = np.array(STARTS[normal])
SCALES = np.diag(PRECISION) ** -0.5
"""The conditional ones, which are exact where π is normal."""


def log_density(x):
    return -0.5 * x @ PRECISION @ x


def run(step, n, tune=0, seed=0, x=START, draws=None):
    """Run n draws; return positions and statistics."""
    step.setup_chain(np.random.default_rng(seed), tune, n - tune if draws is None else draws)
    point, positions, rows = {"x": np.array(x)}, [], []
    for i in range(n):
        if i == tune:
            step.stop_tuning()
        point, [row] = step.step(point)
        positions.append(point["x"])
        rows.append(row)
    return np.array(positions), {name: np.array([row[name] for row in rows]) for name in rows[0]}


@pytest.mark.parametrize("order", ["systematic", "random"])
@pytest.mark.parametrize("n", [1, 2, 3, 7, 600])
def test_cmh_with_adaptation(model, n, order):
    step = pk.CMH(model=model, target_accept=0.3, order=order)
    positions, found = run(step, n, tune=n, seed=2)
    expected, path = reference.tuned_cmh(
        log_density,
        START,
        n,
        np.log(2.38 * SCALES),
        np.random.default_rng(2),
        target=0.3,
        random_order=order == "random",
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(found["cmh_scales"], np.exp(path), rtol=1e-9)
    np.testing.assert_allclose(found["scaling"], np.exp(path.mean(axis=1)), rtol=1e-9)
    moved = np.diff([START, *positions], axis=0) != 0
    np.testing.assert_array_equal(found["cmh_accepted"], moved)


def test_cmh_within_bounds(model):
    bounds = (0.3, 1.5)
    step = pk.CMH(model=model, scale_bounds=bounds)
    positions, found = run(step, 300, tune=300, seed=2)
    expected, path = reference.tuned_cmh(
        log_density,
        START,
        300,
        np.log(np.clip(2.38 * SCALES, *bounds)),
        np.random.default_rng(2),
        bounds=np.tile(np.log(bounds), (3, 1)),
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["cmh_scales"], np.exp(path), rtol=1e-9)
    assert bounds[0] * (1 - 1e-12) <= found["cmh_scales"].min() <= 0.31
    assert 1.4 < found["cmh_scales"].max() <= bounds[1] * (1 + 1e-12)


@pytest.mark.parametrize("scales", [0.3, [0.3, 1.0, 0.05]])
def test_cmh_with_scales_of_the_user_is_never_tuned(model, scales):
    step = pk.CMH(model=model, scales=scales)
    positions, found = run(step, 200, tune=100, seed=5)
    fixed = np.log(np.broadcast_to(scales, 3))
    expected, _ = reference.tuned_cmh(
        log_density, START, 200, fixed, np.random.default_rng(5), bounds=np.stack([fixed] * 2, 1)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found["cmh_scales"], np.tile(np.exp(fixed), (200, 1)), rtol=1e-12)
    assert found["warning"][-1] is None


CMTM_RUNS = {
    "default": {},
    "20 tries": {"n_tries": 20},
    "always multiple": {"fewer_tries": False},
    "random order": {"order": "random"},
    "another power": {"alpha": 1.0},
    "scales too small": {"scales": np.geomspace(1e-4, 1e-2, 5)},
    "scales too large": {"scales": np.outer([1, 2, 3], np.geomspace(1e2, 1e3, 5))},
    "scales of three tries": {"n_tries": 3, "scales": [1e-2, 1e-1, 10.0]},
    "three tries or single ones": {"n_tries": 3, "scales": [0.1, 1.0, 10.0], "fewer_tries": True},
    "bounds": {"scale_bounds": (0.2, 3.0), "scales": np.geomspace(0.3, 2.0, 5)},
}


@pytest.mark.parametrize(("n", "adapt_every"), [(1, 1), (25, 3), (200, 7), (350, 100)])
@pytest.mark.parametrize("options", CMTM_RUNS.values(), ids=CMTM_RUNS)
def test_cmtm_with_adaptation(model, options, n, adapt_every):
    """And some sweeps after it, in which single tries may have replaced multiple ones."""
    step = pk.CMTM(model=model, adapt_every=adapt_every, **options)
    positions, found = run(step, n + 20, tune=n, seed=4)
    m, shifts = options.get("n_tries", 5), "scales" not in options
    first = np.outer(SCALES, np.geomspace(0.5, 8, m)) if shifts else options["scales"]
    random_order = options.get("order") == "random"
    chain = reference.CMTM(
        log_density,
        START,
        np.broadcast_to(first, (3, m)),
        options.get("alpha", 2.9),
        random_order=random_order,
    )
    bounds = [options["scale_bounds"]] * 3 if "scale_bounds" in options else None
    rng, n_shifting = np.random.default_rng(4), n // 2 if shifts else 0
    fewer_tries = options.get("fewer_tries", shifts)
    expected, path = chain.tune(n, rng, adapt_every, n_shifting, bounds, fewer_tries)
    np.testing.assert_allclose(positions[:n], expected, rtol=1e-8, atol=1e-11)
    np.testing.assert_allclose(step.parameters.scales, path[-1], rtol=1e-12)
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
    assert (chain.n_single > 0).any() == fewer_tries or n < 350


def test_cmtm_without_adaptation(model):
    scales = np.geomspace(0.01, 100, 4)
    step = pk.CMTM(model=model, n_tries=4, scales=scales, adapt_every=None)
    _, found = run(step, 400, tune=300)
    np.testing.assert_array_equal(step.parameters.scales, np.tile(scales, (3, 1)))
    assert len(np.unique(found["scaling"])) == 1
    assert found["warning"][-1] is None


@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_scales_are_constant_after_tuning(model, sampler):
    options = {"adapt_every": 5} if sampler is pk.CMTM else {}
    step = sampler(model=model, **options)
    step.setup_chain(np.random.default_rng(0), 300, 200)
    point, kept = {"x": START}, []
    for i in range(500):
        if i == 300:
            step.stop_tuning()
        point, _ = step.step(point)
        kept.append(copy.deepcopy(step.parameters[0]))
    assert all(np.array_equal(scales, kept[299]) for scales in kept[300:])
    assert len(np.unique(kept[:300], axis=0)) > (5 if sampler is pk.CMTM else 290)


def test_keep_adapting_is_the_same_rule_without_an_end(model):
    bounds = (1e-3, 1e3)
    step = pk.CMTM(
        model=model,
        scales=np.geomspace(0.1, 10, 5),
        adapt_every=5,
        keep_adapting=True,
        scale_bounds=bounds,
        region={"x": (-50, 50)},
    )
    _, found = run(step, 600, tune=200, seed=1)
    chain = reference.CMTM(log_density, START, np.tile(np.geomspace(0.1, 10, 5), (3, 1)))
    _, path = chain.tune(600, np.random.default_rng(1), 5, bounds=[bounds] * 3)
    np.testing.assert_allclose(found["cmtm_largest_scale"], path[:, :, -1], rtol=1e-12)
    assert len(np.unique(path[200:], axis=0)) > 5


# ---- what tuning reaches --------------------------------------------------------------------


@pytest.mark.parametrize("target", [0.44, 0.2])
def test_tuned_acceptance_of_cmh(ill_scaled, target):
    """In each coordinate, and whatever its scale."""
    options = {} if target == 0.44 else {"target_accept": target}
    step = pk.CMH(model=ill_scaled, **options)
    _, found = run(step, 5000, tune=2500, seed=3, x=ILL_SCALES)
    accepted = found["cmh_accepted"][2500:].mean(axis=0)
    np.testing.assert_allclose(accepted, target, atol=0.06)
    best = {0.44: 2.4, 0.2: 6.1}[target]  # on a standard normal density, α = 2/π arctan(2/σ)
    np.testing.assert_allclose(found["cmh_scales"][-1] / ILL_SCALES, best, rtol=0.2)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_a_far_start_of_an_ill_scaled_model_is_left_behind(ill_scaled, sampler, seed):
    """From 1 off the mean, thus 10 000 standard deviations, in tuning of default length."""
    positions, found = run(sampler(model=ill_scaled), 2000, tune=1000, seed=seed, x=np.ones(2))
    z = positions[1000:] / ILL_SCALES
    assert (np.abs(z) < 5).all()
    np.testing.assert_allclose(z.std(axis=0), 1, atol=0.35)
    assert found["accept_share"][1000:].mean() > 0.3


# ---- options --------------------------------------------------------------------------------

IMPOSSIBLE = [
    *(
        (pk.CMH, {"scales": value}, "scales must be positive numbers")
        for value in (0, -1, np.nan, np.inf, [1, 1, 0], "a", ["a", 1, 1], [None, 1, 1], {})
    ),
    (pk.CMH, {"scales": [1, 2]}, r"scales must have shape \(3,\)"),
    (pk.CMH, {"scales": np.ones((2, 3))}, r"scales must have shape \(3,\)"),
    (pk.CMH, {"scales": 1.0, "scale_bounds": (0.1, 2)}, "not both"),
    *(
        (sampler, {"order": "x"}, "order must be one of 'systematic'")
        for sampler in (pk.CMH, pk.CMTM)
    ),
    *(
        (pk.CMTM, {"scales": value}, "scales must be positive numbers")
        for value in (-1, [0, 1, 2, 3, 4], [1, 2, 3, 4, np.inf], "a", [[1, 2, 3, 4, np.nan]] * 3)
    ),
    *(
        (pk.CMTM, {"scales": value}, r"scales must have shape \(3, 5\) or \(5,\)")
        for value in ([1, 2, 3], np.ones((2, 5)), np.ones((3, 3)), np.ones((5, 3)))
    ),
    (pk.CMTM, {"scales": [1, 2, 4, 3, 5]}, "scales must increase"),
    (pk.CMTM, {"scales": [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [5, 4, 3, 2, 1]]}, "must increase"),
    *((pk.CMTM, {"n_tries": value}, "n_tries must be an integer from 3") for value in (2, 0, 5.0)),
    *((pk.CMTM, {"alpha": value}, "alpha must be") for value in (-1, np.nan, np.inf, "a", None)),
    *(
        (pk.CMTM, {"adapt_every": value}, "adapt_every must be an integer from 1")
        for value in (0, -1, 2.5, "a", True)
    ),
    *((pk.CMTM, {"fewer_tries": value}, "fewer_tries must be") for value in (1, "a", np.nan)),
    (pk.CMTM, {"keep_adapting": True}, "keep_adapting needs scale_bounds"),
    (pk.CMTM, {"keep_adapting": "no"}, "keep_adapting must be True or False"),
    (
        pk.CMTM,
        {"keep_adapting": True, "scale_bounds": (0.1, 9), "fewer_tries": True},
        "fewer_tries are decided on when tuning ends",
    ),
    (pk.CMTM, {"keep_adapting": True, "scale_bounds": (0.1, 9)}, "region that bounds all"),
    (
        pk.CMTM,
        {"keep_adapting": True, "scale_bounds": (0.1, 9), "region": {"x": ([-1, -1, -np.inf], 1)}},
        "region that bounds all",
    ),
]


@pytest.mark.parametrize(("sampler", "options", "message"), IMPOSSIBLE, ids=str)
def test_impossible_options(model, sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=model, **options)


def test_cmtm_has_no_target_accept(model):
    with pytest.raises(TypeError, match="CMTM has no target_accept"):
        pk.CMTM(model=model, target_accept=0.4)


# ---- statistics -----------------------------------------------------------------------------


@cache
def two_variables():
    with pm.Model() as model:
        pm.Normal("a", 0, 1, shape=(2, 2))
        pm.Normal("b", 0, 1)
    return model


SHAPES = {
    pk.CMH: {"scales": (), "accepted": ()},
    pk.CMTM: {"smallest_scale": (), "largest_scale": (), "selected": (5,), "accepted": (5,)},
}


@pytest.mark.parametrize("sampler", SHAPES)
def test_statistics_of_steps_with_other_numbers_of_coordinates(sampler):
    """Names end with the variables, so that PyMC has no arrays of different shapes to stack."""
    with two_variables() as model:
        steps = [sampler([model["a"]]), sampler([model["b"]])]
        dt = pm.sample(
            draws=20, tune=20, chains=2, cores=1, step=steps, progressbar=False, random_seed=1
        )
    found = dt["sample_stats"]
    for name, shape in SHAPES[sampler].items():
        for var, d in [("a", 4), ("b", 1)]:
            values = found[f"{sampler.name}_{name}_{var}"].values
            assert values.shape == (2, 20, d, *shape)
            assert np.isfinite(values).all()
            if "scale" not in name:
                assert ((values == 0) | (values == 1)).all()
                assert 0.1 * d < values.sum(axis=tuple(range(2, values.ndim))).mean() <= d
    assert found["accept_share"].shape == (2, 20, 2)


@pytest.mark.parametrize("sampler", SHAPES)
def test_statistics_of_a_step_of_all_variables(sampler):
    model = two_variables()
    with model:
        dt = pm.sample(
            draws=20, tune=20, chains=2, cores=1, step=sampler(), progressbar=False, random_seed=1
        )
    for name, shape in SHAPES[sampler].items():
        assert dt["sample_stats"][f"{sampler.name}_{name}"].shape == (2, 20, 5, *shape)
    own = {name for name in dt["sample_stats"] if name.startswith(f"{sampler.name}_")}
    assert own == {f"{sampler.name}_{name}" for name in SHAPES[sampler]}


def test_statistics_are_of_the_draw(model):
    """Shares of its sweeps, and the number of its evaluations."""
    step = pk.CMTM(model=model, n_tries=4, steps_per_draw=6, fewer_tries=False)
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


def test_evaluations_of_cmh(model):
    _, found = run(pk.CMH(model=model, steps_per_draw=2), 50, tune=20)
    assert (found["n_logp"][1:] == 6).all()
    shares = found["cmh_accepted"]
    assert shares.shape == (50, 3)
    assert set(np.unique(shares)) == {0, 0.5, 1}
    np.testing.assert_allclose(found["accept_share"], shares.mean(axis=1))


# ---- warnings -------------------------------------------------------------------------------


@cache
def correlated_model(rho):
    """Of two variables; a[1] and b correlate."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        pm.Normal("b", rho * a[1], np.sqrt(1 - rho**2))
    return model


def last_warning(step, tune=1000, draws=500, seed=1):
    """Run a chain by hand; only the last draw may have a warning: return its message, or ''."""
    step.setup_chain(np.random.default_rng(seed), tune, draws)
    point = {name: value + 0.3 for name, value in step.model.initial_point().items()}
    warnings = []
    for i in range(tune + draws):
        if i == tune:
            step.stop_tuning()
        point, [row] = step.step(point)
        warnings.append(row["warning"])
    assert set(warnings[:-1]) == {None}
    return "" if warnings[-1] is None else warnings[-1].message


@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
@pytest.mark.parametrize(("rho", "warns"), [(0.99, True), (-0.99, True), (0.7, False)])
def test_strong_correlation(sampler, rho, warns):
    step = sampler(model=correlated_model(rho))
    message = last_warning(step)
    assert ("coordinates correlate too much" in message) == warns
    if not warns:
        assert message == ""
        return
    assert "most of all a[1] and b (by " in message
    assert float(message.split("(by ")[1].split()[0]) == pytest.approx(rho, abs=0.05)
    n_sweeps = float(message.split("about ")[1].split()[0])
    # A chain that is slow to see its target underestimates how slow it is.
    assert 0.2 < n_sweeps * (1 - abs(rho)) / step.sweeps_per_draw < 3
    assert "a[0]" not in message
    assert "did not move" not in message


@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_no_warning_of_independent_coordinates(sampler):
    """Not even where chance correlates them most: few points of many coordinates."""
    with pm.Model() as model:
        pm.Normal("x", 0, np.geomspace(1e-3, 1e3, 25))
    step = sampler(model=model)
    assert last_warning(step, tune=500, draws=100) == ""


FIXED = {
    pk.CMH: lambda scale: {"scales": [1.0, scale]},
    pk.CMTM: lambda scale: {
        "scales": np.outer([1.0, scale], [1.0, 2.0, 4.0]),
        "n_tries": 3,
        "adapt_every": None,
    },
}


@cache
def pair_model():
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=2)
    return model


@pytest.mark.parametrize(("tune", "draws", "n"), [(0, 500, 100), (200, 5000, 500)])
@pytest.mark.parametrize("sampler", FIXED)
def test_a_coordinate_that_does_not_move_is_named(sampler, tune, draws, n):
    step = sampler(model=pair_model(), **FIXED[sampler](1e9))
    message = last_warning(step, tune, draws)
    assert f": x[1] did not move in the last {n} sweeps." in message
    assert message.count("x[0]") == 0
    assert "correlate" not in message


@pytest.mark.parametrize("sampler", FIXED)
def test_coordinates_that_move_are_not(sampler):
    assert last_warning(sampler(model=pair_model(), **FIXED[sampler](1.0)), 0, 500) == ""


@pytest.mark.parametrize("sampler", FIXED)
def test_if_none_moves_that_is_said_instead(sampler):
    options = FIXED[sampler](1e9)
    options["scales"] = np.add(options["scales"], 1e9)
    message = last_warning(sampler(model=pair_model(), **options), 0, 500)
    assert "no proposal was accepted" in message
    assert "did not move" not in message


def test_at_most_three_coordinates_are_named():
    with pm.Model() as model:
        pm.Normal("x", 0, 1, shape=6)
    step = pk.CMH(model=model, scales=[1.0, *[1e9] * 5])
    assert "x[1], x[2], x[3] and 2 others did not move" in last_warning(step, 0, 500)


def test_a_scale_of_cmh_at_its_bound_is_named():
    step = pk.CMH(model=pair_model(), scale_bounds=(1e-3, 0.1))
    message = last_warning(step)
    assert "The scale of x[0], x[1] ended at its upper bound, 0.1" in message


# ---- ladders and bounds ---------------------------------------------------------------------


@pytest.mark.parametrize("bounds", [(1e-3, 0.1), (1.5, 2.0), (0.5, 0.6), (20, 1e3), (0.1, 100)])
def test_first_ladders_are_as_wide_as_bounds_allow(bounds):
    """At least a factor of 2, unless the bounds are closer, and increasing."""
    scales = np.array([0.7, 1.0])
    ladders, limits = cmtm.first_ladders(scales, None, np.array(bounds), 5)
    np.testing.assert_array_equal(limits, [bounds, bounds])
    assert (ladders >= bounds[0] * (1 - 1e-12)).all()
    assert (ladders <= bounds[1] * (1 + 1e-12)).all()
    assert (np.diff(ladders) > 0).all()
    assert (ladders[:, -1] / ladders[:, 0] > min(2, bounds[1] / bounds[0]) - 1e-9).all()


def test_without_adaptation_the_first_ladders_stay(model):
    step = pk.CMTM(model=model, adapt_every=None, fewer_tries=False)
    step.setup_chain(np.random.default_rng(1), 200, 1)
    point = {"x": np.array(START)}
    point, _ = step.step(point)
    first = step.parameters.scales.copy()
    for _ in range(199):
        point, _ = step.step(point)
    np.testing.assert_array_equal(step.parameters.scales, first)


def test_scales_outside_the_bounds_are_refused(model):
    with pytest.raises(ValueError, match="scales must lie within scale_bounds"):
        pk.CMTM(model=model, n_tries=3, scales=[0.1, 1, 10], scale_bounds=(0.5, 20))


@pytest.mark.parametrize(("bounds", "warns"), [((1e-3, 0.1), True), ((1e-3, 1e3), False)])
def test_a_ladder_that_ends_at_a_bound_is_named(bounds, warns):
    message = last_warning(pk.CMTM(model=pair_model(), scale_bounds=bounds), 600, 100)
    assert ("x[0], x[1] ended at their upper bound" in message) == warns
    assert warns or message == ""


def test_pinned_coordinates_do_not_correlate():
    with pm.Model() as model:
        pm.Normal("x", shape=3)
    message = last_warning(pk.CMH(model=model, scales=[1, 1e9, 1e9]), 1000, 300)
    assert "x[1], x[2] did not move" in message
    assert "correlate" not in message


def test_without_an_alarm_a_ladder_stays_as_it_was_given():
    """Also if its scales are not equidistant."""
    scales = np.array([1.0, 2.0, 8.0])
    cmtm.adapt_ladder(scales, np.array([10, 10, 10]), 30, np.array([1e-3, 1e3]))
    np.testing.assert_array_equal(scales, [1, 2, 8])


def test_keep_adapting_adapts_with_default_arguments(model):
    options = {"scale_bounds": (1e-3, 1e3), "region": {"x": (-50, 50)}}
    step = pk.CMTM(model=model, keep_adapting=True, adapt_every=20, **options)
    _, found = run(step, 2000, tune=400)
    assert len(np.unique(found["cmtm_largest_scale"][400:], axis=0)) > 1


@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_tails_heavier_than_alpha(sampler):
    """The widest try would always be selected, and never accepted."""
    with pm.Model() as model:
        pm.Cauchy("x", 0, 1, shape=2)
    step = sampler(model=model)
    positions, found = run(step, 3000, tune=1000, seed=3, x=[0.5, 0.5])
    assert (np.abs(positions[1000:]) < 1).mean() == pytest.approx(0.5, abs=0.1)
    assert found["accept_share"][1000:].mean() > 0.1


@pytest.mark.parametrize("rho", [0.8, pytest.param(0.95, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sampler", [pk.CMH, pk.CMTM])
def test_sweeps_per_independent_draw(sampler, rho):
    """What the warning says is what ArviZ finds."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("p", -(x[0] ** 2 - 2 * rho * x[0] * x[1] + x[1] ** 2) / (2 * (1 - rho**2)))
    step = sampler(model=model)
    positions, _ = run(step, 31_000, tune=1000, seed=2, x=[0.5, 0.5])
    ess = az.ess(az.convert_to_datatree({"x": positions[None, 1000:]}))["x"].values.min()
    assert step.sweeps_per_draw / (1 - rho) == pytest.approx(30_000 / ess, rel=0.35)
