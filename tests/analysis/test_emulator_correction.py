"""Averages corrected by moves of EmulatorMetropolis: exact whatever the emulator is."""

import logging
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from arviz_stats.base import array_stats
from averages import TRUE, Batches, at_draws, draws_of_banana, functions, log_banana, whole
from pytensor.compile.ops import wrap_py
from runs import messages, sample
from scipy.special import logsumexp
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.analysis import draws_of_result, emulator_correction
from pymc_kameleon.analysis.batches import combined
from pymc_kameleon.analysis.corrections import Moves, ess_share
from pymc_kameleon.analysis.emulator_correction import by_emulator, moves_of
from pymc_kameleon.analysis.summary import _Block


@pytest.fixture(autouse=True)
def moves_alone(monkeypatch):
    """No averages by a process, which short runs also have."""
    monkeypatch.setattr(draws_of_result, "KINDS", [by_emulator])


# ---- known answers, with an emulator that is far off --------------------------------------------


def log_spoilt(x):
    return -np.sum(((x - [0.4, -0.3]) / [1.2, 1.4]) ** 2, axis=-1) / 2


def ends_on(log_s, x, rng, n_steps=3):
    """Return where walks on s, as reversible as an inner chain, end that begin at x (..., d)."""
    for _ in range(n_steps):
        y = x + rng.standard_normal(x.shape)
        accepted = np.log(rng.random(x.shape[:-1])) < log_s(y) - log_s(x)
        x = np.where(accepted[..., None], y, x)
    return x


def stationary(n, chains=4):
    """Return independent draws (chains, n, 2), and the moves that one chain each makes of them."""
    rng = np.random.default_rng(5)
    x = draws_of_banana(chains * n, rng)
    ends = ends_on(log_spoilt, np.repeat(x[:, None], 4, axis=1), rng)
    end = ends[:, 0]
    log_ratio = log_banana(end) - log_banana(x) + log_spoilt(x) - log_spoilt(end)
    alpha, log_w = np.exp(np.minimum(0, log_ratio)), log_banana(end) - log_spoilt(end)
    rows = np.divmod(np.arange(chains * n), n)
    return x.reshape(chains, n, 2), Moves(*rows, x, end, log_w, alpha, stops=ends)


@pytest.fixture
def whole_correction(monkeypatch):
    monkeypatch.setattr(emulator_correction, "coefficients", whole)


@pytest.mark.usefixtures("whole_correction")
def test_it_is_exact_however_bad_the_emulator_is():
    """Unlike the mean over inner chains alone, or over chains that began elsewhere."""
    x, moves = stationary(10_000)
    assert 0.5 < moves.accept_prob.mean() < 0.8

    def z(moves):
        found = emulator_correction.corrected(at_draws(x), moves, functions)
        return np.abs((found.mean - TRUE) / found.mcse).max()

    assert z(moves) < 3.5
    assert z(moves._replace(accept_prob=np.ones(len(x.reshape(-1, 2))))) > 6
    rng = np.random.default_rng(1)
    elsewhere = ends_on(log_spoilt, moves.stops, rng, 20)
    assert z(moves._replace(stops=elsewhere)) > 6


def test_without_use_it_is_left_out():
    """As b is then small, an average is not made worse."""
    x, moves = stationary(2500)
    found = emulator_correction.corrected(at_draws(x), moves, functions)
    assert (found.gain > 0.7).all()


FAR = 11.0


def slowly(f, moves, function):
    """Return T, its standard error and its gain of one function, from their definitions."""
    batches = Batches(f, moves)
    center, half = (f.min() + f.max()) / 2, 1.3 * (f.max() - f.min()) / 2

    def g(x):
        value = function(x[None]).item()
        return value if np.isfinite(value) else f.mean()

    def tamed(x):
        for k in range(2):
            low, high = moves.start[:, k].min(), moves.start[:, k].max()
            sd = (high - low) / np.sqrt(8 * np.log(len(moves.start)))
            if abs(x[k] - (low + high) / 2) > FAR * sd:
                return f.mean()
        return g(x)

    ends = [[tamed(v) for v in own] for own in moves.stops]
    mixed, used = batches.mix(g, tamed, lambda i: np.mean(ends[i]), common=0.0)
    least = 0.0
    for row, own in zip(moves.row, ends, strict=True):
        excess = [(v - f.mean()) ** 2 * (abs(v - center) > half) for v in own]
        least += (used[row] / np.sum(moves.row == row) / batches.n_chains) ** 2 * np.mean(excess)
    after = max(batches.variance(mixed), least)
    gain = batches.variance(batches.a) / after
    return batches.mean(mixed), np.sqrt(after), gain, least / after


def random_moves(rng):
    """Chains of a length that batches do not divide, and moves from some of their draws."""
    walk = np.cumsum(rng.standard_normal((3, 47, 2)), axis=1) / 3
    row, draw = np.nonzero(rng.random((3, 47)) < 0.3)
    start, shape = walk[row, draw], (len(row), 4, 2)
    ends = 0.5 * start[:, None] + rng.standard_t(2, shape)
    accept_prob = rng.random(len(row)) ** 0.2
    return walk, Moves(row, draw, start, ends[:, 0], None, accept_prob, stops=ends)


def test_the_estimator_is_that_of_a_slow_version(monkeypatch):
    """With some batches without a move, NaN, tails, and what one end alone has."""
    monkeypatch.setattr(emulator_correction, "NUMBERS_PER_PART", 30)
    monkeypatch.setattr(emulator_correction, "FAR", FAR)
    rng, shares, batches, far = np.random.default_rng(7), [], [], []
    for _ in range(12):
        walk, moves = random_moves(rng)
        batches.append(len(np.unique(np.column_stack([moves.row, moves.draw * 5 // 47]), axis=0)))
        far.append(emulator_correction._are_far(moves.stops, moves.start))
        step = np.sort(moves.stops[..., 1][~far[-1]])[-2]  # below one end

        def function(x, step=step):
            root = np.sqrt(np.where(x[:, 0] > 3, np.nan, 4.0)) * x[:, 1]
            rare = x[:, 0] + 40 * (x[:, 1] > step)
            return np.column_stack([x[:, 0], x[:, 0] * x[:, 1], root, rare])

        f = function(walk.reshape(-1, 2)).reshape(3, 47, 4)
        f[np.isnan(f)] = 0.0
        found = emulator_correction.corrected(f, moves, function)
        for j in range(4):
            *expected, share = slowly(
                f[..., j], moves, lambda x, j=j, function=function: function(x)[:, j]
            )
            np.testing.assert_allclose((found.mean[j], found.mcse[j], found.gain[j]), expected)
            shares.append(share)
    assert min(batches) < 15
    assert max(own.mean() for own in far) > 0.01
    assert max(shares) == 1 > np.median(shares)  # the least variance is that, and is not


# ---- are errors what they are said to be? -------------------------------------------------------


class Mixture(NamedTuple):
    """Normals in three coordinates, at places along the first."""

    shares: list
    places: list
    sd: float = 1.0

    def log_density(self, x):
        terms = [
            np.log(share) - 0.5 * np.sum(((x - [place, 0, 0]) / self.sd) ** 2, axis=-1)
            for share, place in zip(self.shares, self.places, strict=True)
        ]
        return logsumexp(terms, axis=0)

    def draws(self, shape, rng):
        x = self.sd * rng.standard_normal((*shape, 3))
        x[..., 0] += rng.choice(self.places, shape, p=self.shares)
        return x


TARGET = Mixture([1.0], [0.0])


def chains_from(x, n, log_pi, log_s, ends_of, rng, walks=0.0):
    """Return draws (..., n, d) of chains that begin at x (..., d), and what makes their moves.

    Inner chains forget where they began. Walks correct nothing.
    """
    shape, steps = x.shape[:-1], []
    for _ in range(n):
        is_walk, ends = rng.random(shape) < walks, ends_of(rng)
        y = np.where(is_walk[..., None], x + rng.standard_normal(x.shape), ends[..., 0, :])
        log_ratio = log_pi(y) - log_pi(x) + ~is_walk * (log_s(x) - log_s(y))
        alpha = np.exp(np.minimum(0, log_ratio))
        before, x = x, np.where((rng.random(shape) < alpha)[..., None], y, x)
        steps.append((x, before, y, np.where(is_walk, np.nan, alpha), ends))
    return [np.stack(part, axis=len(shape)) for part in zip(*steps, strict=True)]


def moves_by(start, end, alpha, stops):
    at = row, draw = np.nonzero(~np.isnan(alpha))
    return Moves(row, draw, start[at], end[at], None, alpha[at], stops=stops[at])


def runs(emulated, n_runs, n, chains=4, n_stops=16):
    """Return z (runs, 5) of corrected averages, and their errors, of a normal posterior.

    And errors of those that have the smaller error, by what the run says of it.
    """
    rng, shape = np.random.default_rng(0), (n_runs, chains)
    draws, *parts = chains_from(
        TARGET.draws(shape, rng),
        n,
        TARGET.log_density,
        emulated.log_density,
        lambda rng: emulated.draws((*shape, n_stops), rng),
        rng,
        walks=0.15,
    )

    def function(x):
        return np.concatenate([x[..., :2], x[..., :2] ** 2, x[..., :1] < 0.5], axis=-1)

    true = [0, 0, 1, 1, norm.cdf(0.5)]
    z, errors, of_smaller = [], [], []
    for own, *kept in zip(draws, *parts, strict=True):
        f = function(own)
        found = emulator_correction.corrected(f, moves_by(*kept), function)
        better, plain = found.is_better, f.mean(axis=(0, 1))
        z.append(np.where(better, (found.mean - true) / found.mcse, np.nan))
        errors.append(np.where(better, found.mean, plain) - true)
        of_smaller.append(np.where(better & (found.gain > 1), found.mean, plain) - true)
    return np.array(z), np.array(errors), np.array(of_smaller)


def one_sidedness(z):
    """Return n·mean(z)²/var(z), which is about 1 by chance."""
    n = np.isfinite(z).sum(axis=0)
    return n * np.square(np.nanmean(z, axis=0)) / np.nanvar(z, axis=0, ddof=1)


EMULATED = {
    "all but exact": Mixture([1.0], [0.01]),
    "off": Mixture([1.0], [0.3], 1.15),
    "wide": Mixture([1.0], [0.0], 1.5),
    "a mode that is not there": Mixture([0.997, 0.003], [0.0, 6.0]),
}


def test_errors_are_as_they_are_said_to_be():
    z, errors, _ = runs(EMULATED["off"], 60, 60)
    assert (np.abs(np.sqrt(np.nanmean(z**2, axis=0)) - 1) < 0.35).all()
    assert (one_sidedness(z) < 9).all()
    worth = 1 / np.square(errors[:, :2]).mean(axis=0)
    assert (worth > 300).all()  # of 240 draws


@pytest.mark.slow
def test_draws_are_not_taken_where_their_own_error_is_said_to_be_smaller():
    """As it is where they lack a tail: which is when the mean square is too small."""
    _, errors, of_smaller = runs(EMULATED["all but exact"], 600, 28)
    squares, of_smaller = np.square(errors[:, 2:4]), np.square(of_smaller[:, 2:4])
    differ = squares != of_smaller  # in one run of sixty
    assert differ.any()
    assert squares[differ].mean() < 0.9 * of_smaller[differ].mean()


@pytest.mark.slow
@pytest.mark.parametrize("n", [60, 300])
@pytest.mark.parametrize("name", EMULATED)
def test_errors_are_as_they_are_said_to_be_in_many_runs(name, n):
    z, *_ = runs(EMULATED[name], 300, n)
    rms = np.sqrt(np.nanmean(z**2, axis=0))
    assert (rms < 1.3).all()
    assert (rms > 0.65).all()
    assert (one_sidedness(z) < 16).all()
    assert (np.nanmean(np.abs(z) > 3, axis=0) < 0.03).all()


@pytest.mark.slow
def test_rare_moves_that_are_lacking_count_in_the_error(monkeypatch):
    """Where other stops have been, and no move: most runs would have errors of one sign."""
    emulated, n = EMULATED["a mode that is not there"], 400
    monkeypatch.setattr(emulator_correction, "FAR", np.inf)
    limit = 0.35**2 * n  # means of z of 0.2, and of 0.5 without them, are known to 0.05
    assert (one_sidedness(runs(emulated, n, 60)[0]) < limit).all()
    combined = emulator_correction.combined
    without = lambda a, x, b, lengths, least, common: combined(a, x, b, lengths, 0.0, common)  # noqa: E731
    monkeypatch.setattr(emulator_correction, "combined", without)
    assert one_sidedness(runs(emulated, n, 60)[0])[2] > limit


@pytest.mark.slow
def test_what_the_emulator_makes_far_off_is_of_no_harm(monkeypatch):
    emulated = EMULATED["a mode that is not there"]
    z, errors, _ = runs(emulated, 120, 60)
    assert (one_sidedness(z) < 16).all()
    worth = 2 / np.square(errors[:, 2]).mean()
    assert worth > 240  # draws
    monkeypatch.setattr(emulator_correction, "FAR", np.inf)
    assert 2 / np.square(runs(emulated, 120, 60)[1][:, 2]).mean() < worth / 3


# ---- R-hat of what is stated --------------------------------------------------------------------


def normal(place, sd=1.0):
    return lambda x: -(((x[..., 0] - place) / sd) ** 2) / 2 - np.log(sd)


def two_modes(x):
    return np.logaddexp(normal(-4)(x), normal(4)(x))


def too_low_in_a_tail(x):
    return normal(0)(x) - 30 * (x[..., 0] > 3)


class Case(NamedTuple):
    """Four chains, by inner chains that end at draws of a normal: s, or what it is in a mode."""

    log_pi: object
    log_s: object
    starts: list
    places: list  # of the normals that their inner chains end at
    sd: float = 1.0


CASES = {
    "well": Case(normal(0), normal(0.1, 1.05), [-1, 0, 0.5, 1], [0.1] * 4, 1.05),
    "in different modes": Case(two_modes, two_modes, [-4, -4, 4, 4], [-4, -4, 4, 4]),
    "one is stuck": Case(normal(0), too_low_in_a_tail, [4, 0, 0.5, 1], [0] * 4),
    "the emulator is poor": Case(normal(0), normal(1.5, 0.3), [-1, 0, 0.5, 1], [1.5] * 4, 0.3),
}


def r_hat_of(case, seed, n=20, n_stops=16, forgets_rejections=False):
    """Return R-hat of corrected averages, that of the draws, and whether T is better than A."""
    starts, places = (np.array(own, float)[:, None] for own in (case.starts, case.places))

    def ends_of(rng):
        return places[:, None] + case.sd * rng.standard_normal((4, n_stops, 1))

    rng = np.random.default_rng(seed)
    draws, start, end, alpha, stops = chains_from(starts, n, case.log_pi, case.log_s, ends_of, rng)
    moves = moves_by(start, end, alpha**0 if forgets_rejections else alpha, stops)
    block = _Block(draws)
    found = emulator_correction.corrected(block.functions(draws), moves, block.functions)
    of_draws = array_stats.rhat(draws, chain_axis=0, draw_axis=1)
    return block.r_hat(found.halves[:, 2:], found.halves[:, :1])[0], of_draws[0], found.is_better[0]


def test_r_hat_is_small_where_averages_are_known():
    """Also if there are so few draws that their own cannot be."""
    found, of_draws, _ = np.array([r_hat_of(CASES["well"], seed) for seed in range(100)]).T
    assert np.median(found) < 1.01
    assert np.quantile(found, 0.9) < 1.02 < np.quantile(of_draws, 0.9)


@pytest.mark.parametrize("name", list(CASES)[1:])
def test_r_hat_is_large_where_chains_disagree(name):
    found, of_draws, is_better = np.array([r_hat_of(CASES[name], seed) for seed in range(20)]).T
    assert np.where(is_better, found, of_draws).min() > 1.1


def test_r_hat_does_not_forget_rejections():
    """Else it would not see a chain that is stuck, whose inner chains go everywhere."""
    case = CASES["one is stuck"]
    found = [r_hat_of(case, seed, forgets_rejections=True)[0] for seed in range(20)]
    assert np.median(found) < 1.02


@pytest.mark.parametrize("n", [10, 23, 100])
def test_r_hat_is_like_that_of_draws_where_these_are_all_there_is(n):
    """With b = 0, up to terms of 1/n. Chains differ in place or scale."""
    rng, apart = np.random.default_rng(n), []
    lengths = np.array([n // 2, n - n // 2])
    for _ in range(50):
        draws = np.array([1, 1, 1, 3])[:, None, None] * rng.standard_normal((4, n, 2)) + [0, 5]
        draws[0, :, 1] += 1
        block = _Block(draws)
        f = block.functions(draws)
        a = np.stack([f[:, : n // 2].mean(axis=1), f[:, n // 2 :].mean(axis=1)], axis=1)
        halves = combined(a, a, np.zeros(a[:, 0].shape), lengths, 0.0, 0.0).halves
        expected = array_stats.rhat(draws, chain_axis=0, draw_axis=1)
        apart.append(np.abs(block.r_hat(halves[:, 4:], halves[:, :2]) - expected).max())
    assert np.mean(apart) < 2 / n


@pytest.mark.parametrize("level", [3, -3, 2, -2, 0])
def test_r_hat_of_what_is_rare(level):
    """Of an indicator, whose scores may all be the same, or the same for both distances."""

    def exceeds(x):
        return np.float64(x[..., :1] > level)

    def r_hat(x, moves):
        block = _Block(exceeds(x))
        found = emulator_correction.corrected(
            block.functions(block.values), moves, lambda x: block.functions(exceeds(x))
        )
        return block.r_hat(found.halves[:, 2:], found.halves[:, :1])[0]

    x, moves = stationary(1000)
    assert r_hat(x, moves) < 1.01
    x[3] = 9 if level >= 0 else -9  # a chain that is beyond the level, or below, and stays there
    for part in moves.start, moves.end, moves.stops:
        part[moves.row == 3] = x[3, 0]
    assert r_hat(x, moves) > 1.1


# ---- results ------------------------------------------------------------------------------------

TIMES = np.arange(5.0)


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def line(beta):
    return beta[0] + beta[1] * TIMES


SD, MEASURED = 0.5, np.array([0.9, 1.4, 2.2, 2.4, 3.3])
DESIGN = np.column_stack([np.ones(5), TIMES])
COVARIANCE = np.linalg.inv(DESIGN.T @ DESIGN / SD**2 + np.eye(2))
MEAN = COVARIANCE @ DESIGN.T @ MEASURED / SD**2


@pytest.fixture(scope="module")
def step():
    with pm.Model() as model:
        beta = pm.Normal("beta", shape=2)
        u = pm.Exponential("u", 1)
        pm.Deterministic("sum", beta.sum() + u)
        predicted = pm.Deterministic("predicted", line(beta))
        pm.Normal("y", predicted, SD, observed=MEASURED)
        return pk.EmulatorMetropolis(model=model)


@pytest.fixture(scope="module")
def result(step):
    return sample(step, draws=80, tune=20, chains=4)


def test_moves_are_what_has_been_drawn(result):
    kept, stats = result["emulator_moves"].to_dataset(), result["sample_stats"]
    moves = moves_of(kept)
    assert 0.7 < len(moves.row) / 320 < 0.95
    assert moves.stops.shape[1:] == (128, 3)
    np.testing.assert_array_equal(
        moves.accept_prob, stats["emulator_accept"].values[moves.row, moves.draw]
    )
    part = kept.copy(deep=True)
    part["others"][1] = np.nan  # as if there had been none
    assert set(moves_of(part).row) == {0, 2, 3}


@pytest.mark.slow
def test_averages_are_right_and_worth_more_than_the_draws(step, result, caplog):
    caplog.set_level(logging.INFO, "pymc_kameleon")
    table = pk.summary(result, round_to="none", model=step.model)
    ours, plain = (table.loc[["beta[0]", "beta[1]", "u", "sum"]] for table in (
        table, pk.summary(result["posterior"], round_to="none")
    ))  # fmt: skip
    true = np.array([*MEAN, 1, MEAN.sum() + 1])
    assert (np.abs(ours["mean"] - true) < 4 * ours["mcse_mean"]).all()
    assert (ours["mcse_mean"] < 0.75 * plain["mcse_mean"]).all()
    gap = np.abs(ours["mean"] - plain["mean"])
    assert (gap < 3.5 * np.hypot(ours["mcse_mean"], plain["mcse_mean"])).all()
    assert (ours["ess"] > 400).all()
    sd = np.sqrt([*np.diag(COVARIANCE), 1, COVARIANCE.sum() + 1])
    assert (np.abs(ours["sd"] - sd) < 4 * ours["mcse_sd"]).all()
    assert (table.loc["predicted[0]", "gain"]) == 1
    assert "Averages of predicted are those of the draws" in caplog.text
    assert "would call line" in caplog.text
    found = pk.expectation(result, lambda v: v["beta"], step.model)
    np.testing.assert_allclose(found.mean, ours["mean"][:2], atol=3 * found.mcse.max())
    alone = pk.expectation(result, lambda v: v["beta"])  # without a model, in the same process
    np.testing.assert_array_equal(found, alone)


def test_an_average_is_corrected_though_its_error_is_not_said_to_be_smaller(
    step, result, monkeypatch
):
    corrected = emulator_correction.corrected

    def less_sure(*arguments):
        found = corrected(*arguments)
        return found._replace(gain=found.gain / found.gain * 0.8)

    def average():
        return pk.expectation(result, lambda v: v["beta"], step.model)

    before = average()
    monkeypatch.setattr(emulator_correction, "corrected", less_sure)
    found = average()
    np.testing.assert_array_equal(found.mean, before.mean)
    np.testing.assert_array_equal(found.gain, 0.8)
    assert (before.gain > 1).all()


def test_the_share_of_weights(step, result):
    moves = moves_of(result["emulator_moves"].to_dataset())
    table = pk.summary(result, ["beta"], model=step.model)
    assert table.attrs["ess_share"] == ess_share(moves.log_w) > 0.97


def test_a_poor_emulator_is_called_one(step, result, caplog):
    poor = result.copy(deep=True)
    poor["emulator_moves"]["end_logp"][:, ::5] += 7
    pk.summary(poor, model=step.model)
    [said] = [text for text in messages(caplog) if "[poor_approximation]" in text]
    assert "The emulator does not come near the posterior (effective share" in said
    few = result.isel(draw=slice(8)).copy(deep=True)
    few["emulator_moves"]["end_log_s"][0, 1:] = np.nan  # one move is left, at most
    caplog.set_level(logging.INFO, "pymc_kameleon")
    pk.expectation(few, lambda v: v["u"])
    [said] = [text for text in messages(caplog) if "[not_corrected]" in text]
    assert said.startswith("No correction by emulator")
