"""Whether averages that rest on few draws are told."""

import arviz as az
import numpy as np
import pytest
from arviz_stats.base import array_stats
from averages import autoregressive
from runs import messages
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.analysis.limits_of_r_hat import high_r_hats
from pymc_kameleon.analysis.trust import (
    FEW_EVENTS,
    HIGH_ERROR,
    few_events,
    independent_events,
    slow_chains,
)


def autoregressions(correlation, runs):
    """Return stationary chains (4, 1000, runs) of standard normals."""
    return autoregressive(np.random.default_rng(1), (4, 1000, runs), correlation)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("correlation", "few", "enough"), [(0.0, 0.0025, 0.012), (0.5, 0.003, 0.02), (0.9, 0.015, 0.12)]
)
def test_too_small_errors_of_rare_events_are_told(correlation, few, enough):
    """Probabilities of tails: where runs of several seeds are far off, and where there is enough.

    The broken twin counts draws, however much they depend on each other.
    """
    x = autoregressions(correlation, runs=1000)
    rare = (x > norm.isf(few)).astype(float)
    mean, mcse = rare.mean(axis=(0, 1)), array_stats.mcse(rare, 0, 1, method="mean")
    is_off = np.abs(mean - few) > 3 * mcse
    assert is_off.mean() > 0.007  # 0.02 to 0.04, known to 0.0045; of a normal it were 0.003
    told = independent_events(rare) < FEW_EVENTS
    assert told[is_off].mean() > 0.95
    told = independent_events((x > norm.isf(enough)).astype(float)) < FEW_EVENTS
    assert told.mean() < 0.02
    if correlation == 0.9:
        assert (rare.sum(axis=(0, 1)) < FEW_EVENTS)[is_off].mean() < 0.5


def test_what_is_counted():
    """Visits; not what most draws have in common, and not where draws all differ."""
    x = np.zeros((2, 100, 6))
    x[0, :3, 0] = x[0, 50:60, 0] = x[1, -1, 0] = 1.0  # three visits
    x[..., 1] = 1 - x[..., 0]
    x[..., 2] = np.random.default_rng(1).standard_normal((2, 100))
    x[..., 3] = 7.0
    x[..., 4] = np.nan
    x[..., 5] = np.where(x[..., 0] > 0, x[..., 2], 5.0)  # other than 5 in the same draws
    events = independent_events(x)
    assert 1 < events[0] < 4
    np.testing.assert_array_equal(events, [events[0]] * 2 + [np.inf] * 3 + [events[0]])


def test_the_rarest_is_told_first():
    values = np.zeros((4, 500, 3))
    for own, every in enumerate([200, 4, 500]):
        values.reshape(-1, 3)[every // 2 :: every, own] = 1
    [found] = few_events(["a", "b", "c"], values, np.False_)
    n = int(values[..., 2].sum())
    assert found.code == "rare_events"
    assert found.what.startswith("The average of c, a rests on few draws")
    assert f"about {n} independent" in found.what
    assert f"Draw {-(-FEW_EVENTS // n)} times as long" in found.remedy
    assert few_events(["b"], values[..., 1:2], np.False_) == []
    assert few_events(["a", "b", "c"], values, np.array([True, False, True])) == []


def test_what_is_known_badly_is_told(caplog):
    """The mean of a slow chain, and the sd of what has a few large values; not what is known."""
    slow, known = (autoregressions(c, runs=1)[..., 0] for c in (0.98, 0.8))
    few = np.random.default_rng(1).random(known.shape) < 0.002
    variables = {"known": known, "slow": slow, "tailed": np.where(few, 30, 1) * known}
    table = pk.summary(az.from_dict({"posterior": variables}), round_to="none")
    errors = table[["mcse_mean", "mcse_sd"]].div(table["sd"], axis=0)
    worst = max(errors["mcse_mean"]["slow"], errors["mcse_sd"]["tailed"])
    [said] = messages(caplog)
    named = said.partition("imprecise: ")[2].partition(". The")[0]
    assert {"sd of tailed", "mean of slow"} <= set(named.split(", "))
    assert "known" not in named
    assert f"up to {worst:.2g} posterior sd" in said
    assert f"Draw {np.ceil((worst / HIGH_ERROR) ** 2):.0f} times as long" in said
    caplog.clear()
    pk.summary(az.from_dict({"posterior": {"known": known, "constant": np.ones(known.shape)}}))
    assert messages(caplog) == []


def test_draws_that_never_moved_are_told(caplog):
    """Of all variables: one alone may be a constant."""
    stuck = {"a": np.full((1, 20), 2.0), "b": np.full((1, 20), 0.1)}
    pk.summary(az.from_dict({"posterior": stuck}))
    assert any("[constant_draws]" in said for said in messages(caplog))


@pytest.mark.slow
def test_few_averages_are_off_by_a_fifth_without_a_word():
    """Those of slow chains are, and are told; those of others are not, and have no warning."""
    runs = 50
    chains = {"slow": autoregressions(0.98, runs), "known": autoregressions(0.8, runs)}
    table = pk.summary(az.from_dict({"posterior": chains}), round_to="none")
    is_off = (np.abs(table["mean"]) > 2 * HIGH_ERROR) | (np.abs(table["sd"] - 1) > 2 * HIGH_ERROR)
    told = (table[["mcse_mean", "mcse_sd"]].div(table["sd"], axis=0) > HIGH_ERROR).any(axis=1)
    assert is_off[:runs].sum() > 3
    assert told[:runs].sum() > 0.9 * runs
    assert not told[runs:].any()
    assert (is_off & ~told).sum() <= 1


def test_chains_that_move_slowly_are_told():
    """Not few draws that are nearly independent."""
    rng = np.random.default_rng(1)
    slow, fast = (autoregressive(rng, (4, 1000, 2), own) for own in (0.95, 0.3))
    [found] = slow_chains(["a", "b"], slow)
    assert found.code == "slow_chains"
    assert 20 < found.numbers["ess"] < 300
    assert slow_chains(["a", "b"], fast) == []
    assert slow_chains(["a", "b"], rng.standard_normal((4, 60, 2))) == []
    assert slow_chains(["a"], np.ones((4, 1000, 1))) == []


@pytest.mark.parametrize("seed", range(20))
def test_an_r_hat_of_1_02_is_too_high_where_draws_are_many(seed):
    """By chance, good chains have it if they are short."""
    x, r_hat = np.random.default_rng(seed).standard_normal((4, 1000, 3)), np.array([1.02, 1.0, 1.0])
    assert high_r_hats(x, r_hat).tolist() == [True, False, False]
    assert not high_r_hats(x[:, :50], r_hat).any()
    assert high_r_hats(x[:, :50], r_hat + 0.031).tolist() == [True, False, False]
