"""The way from a far start to the posterior."""

import itertools

import numpy as np
import pytest
from scipy.optimize import minimize

from pymc_kameleon.step.warm_start.approach import WARM_START_BUDGET, approach, draw_near
from pymc_kameleon.step.warm_start.search import MOST_FITTED, OutOfTime, RecordedLogp


def normal(d, condition, seed):
    """Return the log-density of a rotated normal with sds from 1 to `condition`, and its mean."""
    rng = np.random.default_rng(seed)
    axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
    root = axes * np.geomspace(1, condition, d)
    mean = rng.normal(0, 10, d)
    return lambda x: -0.5 * np.sum(np.linalg.solve(root, x - mean) ** 2), mean, root @ root.T


def regression(d, seed, n=80):
    """Return that of a regression with raw predictors: d - 2 slopes, intercept, and log sigma."""
    rng = np.random.default_rng(seed)
    common, own = rng.standard_normal((n, 1)), rng.standard_normal((n, d - 2))
    slopes = (common + 0.3 * own) * 10.0 ** rng.uniform(-2, 2, d - 2) + 50
    design = np.column_stack([slopes, np.ones(n)])
    y = design @ rng.standard_normal(d - 1) + rng.standard_normal(n)

    def logp(x):
        with np.errstate(over="ignore"):
            misfit = np.sum((y - design @ x[:-1]) ** 2) * np.exp(-2 * x[-1])
        return -n * x[-1] - misfit / 2 - np.sum((x / 1000) ** 2) / 2

    best = np.linalg.lstsq(design, y)[0]
    return logp, np.append(best, np.log(np.std(y - design @ best)))


def logistic(d, seed, n=300):
    """Return that of a logistic regression whose predictors correlate."""
    rng = np.random.default_rng(seed)
    design = 0.5 * rng.standard_normal((n, d)) + rng.standard_normal((n, 1))
    signs = np.where(rng.random(n) < 1 / (1 + np.exp(-design @ rng.standard_normal(d))), 1, -1)
    return lambda x: -np.logaddexp(0, -signs * (design @ x)).sum() - x @ x / 50


def student(d, condition, seed, nu=20):
    """Return that of a rotated Student t, and the covariance of the normal that fits its top."""
    logp, _, covariance = normal(d, condition, seed)
    return lambda x: -(nu + d) / 2 * np.log1p(-2 * logp(x) / nu), covariance * nu / (nu + d)


def schools(x, misfit=lambda z: z**2):
    """Eight schools, centred: a funnel, x[1] = log τ, without a mode."""
    y, sigma = np.array([28, 8, -3, 7, -1, 1, 18, 12]), np.array([15, 10, 16, 11, 9, 11, 10, 18])
    mu, log_tau, theta = x[0], x[1], x[2:]
    with np.errstate(over="ignore"):
        spread = np.sum(misfit((theta - mu) * np.exp(-log_tau)))
        prior = log_tau - np.log1p(np.exp(2 * log_tau) / 25)
    return prior - (mu / 5) ** 2 / 2 - 8 * log_tau - spread / 2 - np.sum(((y - theta) / sigma) ** 2)


def heavy_schools(x):
    """Those with effects of a Student t, so that no coordinates are exactly normal."""
    return schools(x, lambda z: 6 * np.log1p(z**2 / 5))


class Counted:
    """A log-density that counts."""

    def __init__(self, logp):
        self.logp, self.n = logp, 0

    def __call__(self, x):
        self.n += 1
        return self.logp(x)


def far(d, seed):
    return np.random.default_rng(seed).uniform(-2, 2, d)


@pytest.mark.parametrize(("d", "condition"), [(1, 1), (2, 1e3), (10, 1e2), (MOST_FITTED + 5, 3)])
def test_finds_a_normal_and_its_shape(d, condition):
    logp, _, covariance = normal(d, condition, d)
    home = approach(logp, far(d, 1), np.random.default_rng(2), WARM_START_BUDGET * d)
    assert home.logp > -0.05 * d
    assert home.logp == logp(home.x)
    np.testing.assert_array_equal(home.factor, np.tril(home.factor))
    assert (np.diag(home.factor) > 0).all()
    if d <= MOST_FITTED:
        scaled = np.linalg.solve(home.factor, np.linalg.cholesky(covariance))
        sds = np.linalg.svd(scaled)[1]
        assert sds.min() > 0.5
        assert sds.max() < 2
    conditional = np.diag(np.linalg.inv(covariance)) ** -0.5
    np.testing.assert_allclose(home.scales, conditional, rtol=0.2)


@pytest.mark.parametrize("d", [5, 10, 26])
def test_regressions_are_home_within_the_budget(d):
    """From log-densities of -1e3 and less, and ready for a random walk."""
    for seed in range(4):
        logp, best = regression(d, seed)
        counted = Counted(logp)
        start = far(d, seed)
        while logp(start) > -1e3:
            start *= 2
        home = approach(counted, start, np.random.default_rng(seed), WARM_START_BUDGET * d)
        assert counted.n <= WARM_START_BUDGET * d + 1
        assert home.logp > logp(best) - d
        assert home.climbing < d
        z = np.random.default_rng(9).standard_normal((50, d))
        drops = [home.logp - logp(home.x + home.factor @ one) for one in z]
        assert 0.3 * d / 2 < np.median(drops) < 4 * d / 2


def test_a_line_far_from_the_maximum_does_not_pass_for_a_parabola():
    """Where sigma went up first, for want of slopes, f is nearly straight, and others narrow."""
    rng = np.random.default_rng(3)
    area, age, distance = rng.gamma(9, 13, 300), rng.gamma(2, 20, 300), rng.gamma(2, 1500, 300)
    design = np.column_stack([np.ones(300), area, area / 25 + rng.normal(0, 1, 300), age, distance])
    y = design @ [50, 2, 8, -1, -0.02] + rng.normal(0, 40, 300)

    def logp(x):
        misfit = np.sum((y - design @ x[:5]) ** 2) * np.exp(-2 * x[5])
        prior = np.sum((x[:5] / 100) ** 2) / 2 + np.log1p(np.exp(2 * x[5]) / 25)
        return -299 * x[5] - misfit / 2 - prior

    lost = 0
    for seed in range(40):
        start = np.r_[np.zeros(5), 1.6] + far(6, seed) / 2
        home = approach(logp, start, np.random.default_rng(seed), WARM_START_BUDGET * 6)
        lost += home.logp < -1563 - 6
    assert lost < 4  # one of 160 is


def test_scales_of_fourteen_orders_are_no_obstacle():
    """At first f is so low that rounding hides what most coordinates change."""
    root, lost = np.linalg.cholesky(0.5 + 0.5 * np.eye(10)), 0
    for seed in range(120):
        sds = np.random.default_rng(seed).permutation(np.geomspace(1e-8, 1e6, 10))

        def logp(x, sds=sds):
            return -0.5 * np.sum(np.linalg.solve(root, x / sds) ** 2)

        start = far(10, seed + 100) / 2
        while logp(start) > -1e14:
            start *= 2
        home = approach(logp, start, np.random.default_rng(seed), WARM_START_BUDGET * 10)
        lost += home.logp < -1
    # 21 of 300 were, so 20 of 120 are once in 4000 runs; 90 or more of 300 where rounding counts
    # as misfit, where parabolas give no scale, or where quadratics are fitted within rounding.
    assert lost < 20


@pytest.mark.parametrize("d", [20, MOST_FITTED + 5])
def test_what_is_not_quadratic_is_climbed(d):
    logp = logistic(d, 1)
    home = approach(logp, 3 * far(d, 3), np.random.default_rng(1), WARM_START_BUDGET * d)
    best = -minimize(lambda x: -logp(x), np.zeros(d)).fun
    assert home.logp > best - 1


def test_the_shape_of_what_is_not_quadratic_is_fitted():
    """The conditional scales alone are some thirty times too narrow in one direction."""
    logp, covariance = student(5, 100, 5)
    home = approach(logp, far(5, 0), np.random.default_rng(0), WARM_START_BUDGET * 5)
    sds = np.linalg.svd(np.linalg.solve(home.factor, np.linalg.cholesky(covariance)))[1]
    assert sds.min() > 0.5
    assert sds.max() < 10


@pytest.mark.parametrize("funnel", [schools, heavy_schools])
def test_does_not_go_down_the_neck_of_a_funnel(funnel):
    """Where f grows without bound."""
    for seed in range(5):
        home = approach(funnel, far(10, seed), np.random.default_rng(seed), 600)
        assert home.x[1] > -8
    assert funnel(np.r_[4.0, -9.0, np.full(8, 4.0)]) > home.logp


def test_a_hierarchical_model_does_not_collapse():
    """Where its groups differ; from any start, also with a small spread between them."""
    rng = np.random.default_rng(3)
    group = np.repeat(np.arange(8), 9)
    y = rng.normal(150, 12, 8)[group] + rng.normal(0, 15, group.size)

    def logp(x):
        mu, log_tau, mean, log_sigma = x[0], x[1], x[2:10], x[10]
        tau, sigma = np.exp(np.minimum([log_tau, log_sigma], 300))
        spread = np.sum(((mean - mu) / tau) ** 2) + np.sum(((y - mean[group]) / sigma) ** 2)
        prior = ((mu - 100) / 100) ** 2 + (tau / 30) ** 2 + (sigma / 30) ** 2
        return -7 * log_tau - (y.size - 1) * log_sigma - (spread + prior) / 2

    for seed in range(12):
        start = np.r_[100, 3, np.full(8, 100), 3] + far(11, seed)
        home = approach(logp, start, np.random.default_rng(seed), WARM_START_BUDGET * 11)
        assert home.x[1] > 1, seed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_goes_along_an_edge(bad):
    """The best point is near one, beyond which the log-density is not finite."""

    def logp(x):
        return np.sum(np.log(x)) - x.sum() if (x > 0).all() else bad

    home = approach(logp, np.array([30.0, 0.01, 5.0]), np.random.default_rng(1), 180)
    np.testing.assert_allclose(home.x, 1, atol=0.3)


@pytest.mark.parametrize("budget", [0, 1, 7, 50, 80])
def test_a_budget_is_kept(budget):
    logp, _ = regression(6, 1)
    counted, start = Counted(logp), far(6, 1)
    home = approach(counted, start, np.random.default_rng(1), budget)
    assert counted.n == budget + 1
    assert home.logp >= logp(start)
    assert np.isfinite(home.factor).all()


def test_a_way_that_ends_while_it_climbs_says_so():
    """By what the last 5 d evaluations gained; but a budget that is not used up says nothing."""
    logp, _ = regression(6, 1)
    start = far(6, 1)
    short = approach(logp, start, np.random.default_rng(1), 60)
    assert short.climbing == short.logps.max() - short.logps[:31].max() > 10
    whole = approach(logp, start, np.random.default_rng(1), WARM_START_BUDGET * 6)
    assert whole.climbing == 0
    assert approach(logp, start, np.random.default_rng(1), 0).climbing == 0
    led = approach(logp, start, np.random.default_rng(1), 1, guide=whole, unchecked=True)
    assert led.logps.max() - led.logps[0] > 10
    assert led.climbing == 0  # it has not climbed there


def test_nothing_to_be_found_is_survived():
    """A log-density that is flat, or has a single finite point."""
    start = np.zeros(3)
    flat = approach(lambda x: 0.0, start, np.random.default_rng(1), 180)
    alone = approach(
        lambda x: 0.0 if (x == 0).all() else -np.inf, start, np.random.default_rng(1), 180
    )
    for home in (flat, alone):
        assert np.isfinite(home.factor).all()
        assert (np.diag(home.factor) > 0).all()
    np.testing.assert_array_equal(alone.x, start)


@pytest.mark.parametrize("width", [1.0, 2.0, 8.0, 100.0])
def test_a_flat_box_has_an_end(width):
    """Steps across it and back lead to points that are known."""
    box = Counted(lambda x: 0.0 if np.abs(x).max() < width else -np.inf)
    for d in (1, 3):
        for seed in range(5):
            start = np.random.default_rng(seed).uniform(-0.9, 0.9, d) * width
            home = approach(box, start, np.random.default_rng(seed), WARM_START_BUDGET * d)
            assert np.isfinite(home.factor).all()
            assert np.abs(home.x).max() < width


def spikes_and_slabs(x):
    """Of a regression: parabolas far from the spikes and on them, but not in between."""
    slopes, log_sigma = x[:-1], x[-1]
    prior = np.logaddexp(4 - (slopes / 0.02) ** 2 / 2, -((slopes / 0.5) ** 2) / 2).sum()
    squares = 20 + 10 * np.sum((slopes - 0.5) ** 2)
    return prior - 20 * log_sigma - squares * np.exp(-2 * log_sigma) / 2 - log_sigma**2 / 2


@pytest.mark.parametrize("seed", [11, 38])
def test_a_shape_is_found_where_parabolas_end(seed):
    """Beside a line along which the mass is to be maximised; its volume is not known there."""
    home = approach(
        spikes_and_slabs, far(4, seed), np.random.default_rng(seed), WARM_START_BUDGET * 4
    )
    assert np.isfinite(home.factor).all()
    assert np.isfinite(home.points).all()


@pytest.mark.parametrize("height", [-1e17, -1e200])
def test_steps_by_rounding_are_survived(height):
    home = approach(lambda x: height - x @ x / 2, far(5, 1), np.random.default_rng(1), 300)
    assert np.isfinite(home.factor).all()


def test_a_draw_near_a_normal_home_is_one_of_the_posterior():
    logp, mean, covariance = normal(3, 5, 1)
    home = approach(logp, mean, np.random.default_rng(1), 180)
    rng = np.random.default_rng(2)
    draws = np.array([draw_near(home, logp, rng) for _ in range(4000)])
    np.testing.assert_allclose(draws.mean(axis=0), mean, atol=0.4)
    np.testing.assert_allclose(np.cov(draws.T), covariance, rtol=0.2, atol=1.0)


def test_where_no_draw_is_accepted_it_is_the_middle():
    logp, mean, _ = normal(3, 5, 1)
    home = approach(logp, mean, np.random.default_rng(1), 180)
    np.testing.assert_array_equal(
        draw_near(home, lambda x: -np.inf, np.random.default_rng(1)), home.x
    )


@pytest.mark.parametrize("d", [5, 10])
def test_the_way_to_a_regression_is_short(d):
    """And its shape that of the posterior, also where a prior holds some coefficients."""
    logp, _ = regression(d, 1)
    n_long = 0
    for prior in (0.0, 1.0):

        def with_prior(x, prior=prior):
            return logp(x) - prior * x[0] ** 2 / 2

        for seed in range(6):
            rng = np.random.default_rng(seed)
            home = approach(with_prior, far(d, seed), rng, WARM_START_BUDGET * d)
            if len(home.logps) >= 35 * d:
                n_long += 1
                continue
            z = np.random.default_rng(9).standard_normal((50, d))
            drops = [home.logp - with_prior(home.x + home.factor @ one) for one in z]
            assert 0.3 * d / 2 < np.median(drops) < 4 * d / 2
            assert home.exact.sum() == d - 1
    assert n_long < 3  # one of 720 was; at a rate of 1 %, 3 of 12 are once in 5000 runs


def test_another_chain_follows_by_few_evaluations():
    d, rng = 8, np.random.default_rng(1)
    logp, _ = regression(d, 2)
    first = approach(logp, far(d, 1), rng, WARM_START_BUDGET * d)
    for seed in range(2, 8):
        home = approach(logp, far(d, seed), rng, WARM_START_BUDGET * d, guide=first)
        assert len(home.logps) < 5 * d
        np.testing.assert_array_equal(home.x, first.x)
        np.testing.assert_allclose(home.factor, first.factor, rtol=1e-12)


def two_modes(x):
    """Narrow in one direction, which hides the way from one mode to the other."""
    narrow = 1e4 * (x[1] - x[0] / 3) ** 2
    return np.logaddexp(-((x[0] - 3) ** 2) / 2, -1 - (x[0] + 3) ** 2 / 2) - narrow - x[2] ** 2


def test_a_chain_that_starts_near_another_mode_does_not_follow():
    """Although it has seen the place where the first one is."""
    rng = np.random.default_rng(1)
    first = approach(two_modes, np.array([2.0, 5.0, 1.0]), rng, WARM_START_BUDGET * 3)
    assert first.x[0] > 2
    own = approach(two_modes, np.array([-2.0, -5.0, 1.0]), rng, WARM_START_BUDGET * 3, guide=first)
    assert own.x[0] < -2


def two_ridges(x):
    """Side by side, 16 of their narrow standard deviations apart."""
    along, across = (x[0] + x[1]) / 2**0.5, (x[0] - x[1]) / 2**0.5
    return np.logaddexp(*(-((across - c) ** 2) / 3.2e-5 for c in (-0.032, 0.032))) - 50 * along**2


def test_a_chain_stays_on_the_ridge_that_it_would_climb():
    first = approach(two_ridges, far(2, 0), np.random.default_rng(0), 120)
    same = []
    for seed in range(1, 25):
        rng = np.random.default_rng(seed)
        home = approach(two_ridges, far(2, seed), rng, 120, guide=first)
        same.append((home.x[0] - home.x[1]) * (first.x[0] - first.x[1]) > 0)
    assert 0.2 < np.mean(same) < 0.8


def test_a_place_where_f_is_not_finite_guides_nobody():
    """The chain then goes its own way from where it began."""

    def logp(x):
        return -np.sum(x**2) / 2 if x[0] < 1 else -np.inf

    guide = approach(lambda x: -np.sum((x - 5) ** 2), np.zeros(3), np.random.default_rng(1), 180)
    home = approach(logp, -np.ones(3), np.random.default_rng(1), 180, guide=guide)
    np.testing.assert_allclose(home.x, 0, atol=0.5)


def test_what_is_repeated_does_not_count_as_time(monkeypatch):
    """It may take longer than the patience: then each evaluation would have a repetition."""
    clock = itertools.count(step=10)
    monkeypatch.setattr("pymc_kameleon.step.warm_start.search.time.perf_counter", clock.__next__)
    values = np.full((9, 1), np.nan)
    values[:3] = 1.0
    logp = RecordedLogp(np.sum, values, 25)
    for _ in range(9):
        next(clock)
    for _ in range(3 + 3):
        logp(np.zeros(2))
    with pytest.raises(OutOfTime):
        logp(np.zeros(2))
