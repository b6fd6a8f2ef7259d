"""The random walks against slow versions from their definitions, on the same random numbers."""

from typing import NamedTuple

import numpy as np
import pytest
import reference
from componentwise import SCALES, START, correlated_normal, log_density, run
from models import normal_model

import pymc_kameleon as pk
from pymc_kameleon.samplers import Decay


@pytest.fixture(scope="module")
def model():
    return correlated_normal()


class Move(NamedTuple):
    """One transition: before, proposal, after, acceptance probability and ξ."""

    x: np.ndarray
    y: np.ndarray
    new: np.ndarray
    alpha: float
    xi: np.ndarray


def slow_transition(x, factor, rng):
    """Propose x + Lξ and accept if log u < log π(y) - log π(x)."""
    xi = rng.standard_normal(x.size)
    y = x + factor @ xi
    log_u = -rng.standard_exponential()
    log_ratio = log_density(y) - log_density(x)
    return Move(x, y, y if log_u < log_ratio else x, min(1.0, np.exp(log_ratio)), xi)


# ---- frozen ---------------------------------------------------------------------------------

FACTOR = np.array([[0.8, 0.0, 0.0], [1.2, 0.4, 0.0], [-0.02, 0.03, 0.1]])


@pytest.mark.parametrize(
    ("sampler", "parameters", "factor"),
    [
        (pk.baselines.RWM, {"log_scale": np.log(0.3)}, 0.3 * np.eye(3)),
        *(
            (sampler, {"log_scale": np.log(1.7), "factor": FACTOR}, 1.7 * FACTOR)
            for sampler in (pk.baselines.AM, pk.baselines.RBAM, pk.GAM)
        ),
        # Untouched parameters: the best scale 2.38/√d for a standard normal target.
        (pk.baselines.RWM, {}, 2.38 / np.sqrt(3) * np.eye(3)),
        *(
            (sampler, {}, 2.38 / np.sqrt(3) * np.eye(3))
            for sampler in (pk.baselines.AM, pk.baselines.RBAM, pk.GAM)
        ),
    ],
)
def test_transitions_by_hand(model, sampler, parameters, factor):
    step = sampler(model=model, steps_per_draw=1)
    positions, stats = run(step, 200, seed=5, **parameters)
    x, rng = START, np.random.default_rng(5)
    moves = 0
    for i in range(200):
        _, _, new, alpha, _ = slow_transition(x, factor, rng)
        np.testing.assert_allclose(positions[i], new, rtol=1e-9, atol=1e-12)
        assert stats["accept_prob"][i] == pytest.approx(alpha, rel=1e-9)
        assert stats["accept_share"][i] == (new is not x)
        assert stats["model_logp"][i] == pytest.approx(log_density(new), rel=1e-9)
        moves += new is not x
        x = new
    assert 5 < moves < 195


@pytest.mark.parametrize("sampler", [pk.baselines.RWM, pk.GAM])
def test_a_draw_is_many_transitions(model, sampler):
    one, other = (sampler(model=model, steps_per_draw=n) for n in (1, 7))
    singles, single_stats = run(one, 70, seed=1, log_scale=-1.0)
    draws, stats = run(other, 10, seed=1, log_scale=-1.0)
    np.testing.assert_array_equal(draws, singles[6::7])
    for name in ["accept_prob", "accept_share"]:
        means = single_stats[name].reshape(10, 7).mean(axis=1)
        np.testing.assert_allclose(stats[name], means, rtol=1e-12)


# ---- adaptation -----------------------------------------------------------------------------


RATES = [None, 0.02, Decay(0.5, 20.0, 0.7), Decay(0.9)]


def bounded(log_scale, d, bounds=None):
    low, high = (2.38e-6 / np.sqrt(d), 2.38e6 / np.sqrt(d)) if bounds is None else bounds
    return np.clip(log_scale, np.log(low), np.log(high))


def slow_rwm(x, n, target, rng, bounds=None, start=None):
    """Tune log ν with step sizes (1+t)^-0.6 and settle it at its mean over the second half."""
    log_nu = bounded(np.log(start or 2.38 / np.sqrt(x.size)), x.size, bounds)
    positions, path = [], []
    for t in range(n):
        _, _, x, alpha, _ = slow_transition(x, np.exp(log_nu) * np.eye(x.size), rng)
        log_nu = bounded(log_nu + (1 + t) ** -0.6 * (alpha - target), x.size, bounds)
        path.append(log_nu)
        positions.append(x)
    return np.array(positions), np.exp(np.mean(path[n // 2 :]))


def learn_am(mean, factor, move, eta):
    mean, sigma = reference.am_update(mean, factor @ factor.T, move.new, eta)
    return mean, np.linalg.cholesky(sigma)


def learn_rbam(mean, factor, move, eta):
    mean, sigma = reference.rbam_update(mean, factor @ factor.T, move.x, move.y, move.alpha, eta)
    return mean, np.linalg.cholesky(sigma)


def learn_from_the_mean(mean, factor, move, eta):
    """RBAM with the outer product of the mean deviation: wrong."""
    deviation = move.alpha * (move.y - mean) + (1 - move.alpha) * (move.x - mean)
    mean, sigma = reference.am_update(mean, factor @ factor.T, mean + deviation, eta)
    return mean, np.linalg.cholesky(sigma)


def slow_walk(x, n, target, learn, rng, rate=None, tune_always=False, bounds=None):
    """A walk with a learned covariance, in plain matrices.

    λ is tuned, at first to find the posterior. Where μ and Σ are seeded, it starts again from its
    best guess with smaller steps. After half of tuning, or with a rate of the user after the only
    seeding, it is fixed there, or tuned on; then √λ settles at its geometric mean over the rest.
    """
    d = x.size
    best = bounded(np.log(2.38 / np.sqrt(d)), d, bounds)
    log_scale, mean, factor, last = best, None, np.diag(SCALES), 0
    positions, path = [], []
    seedings = reference.seeding_times(d, n, rate)
    for t in range(n):
        move = slow_transition(x, np.exp(log_scale) * factor, rng)
        x = move.new
        positions.append(x)
        if tune_always or not last or (rate is None and t < n // 2):
            step = (1 + t - last + (10 if last else 0)) ** -0.6 * (move.alpha - target)
            log_scale = bounded(log_scale + step, d, bounds)
        else:
            log_scale = best
        if t + 1 in seedings:
            mean, sigma = reference.seed(np.array(positions), seedings[0], factor @ factor.T)
            factor = np.linalg.cholesky(sigma)
            log_scale, last = best, t + 1
        elif last:
            mean, factor = learn(mean, factor, move, reference.rate_at(rate, d, t))
        path.append(log_scale)
    if tune_always:
        log_scale = np.mean(path[min(n - n // 2, n - 1) :])
    return np.array(positions), np.exp(log_scale), factor


@pytest.mark.parametrize(
    ("n", "options", "of_slow"),
    [
        *((n, {}, {}) for n in (1, 2, 7, 1000)),
        (100, {"scaling": 0.3}, {"start": 0.3}),
    ],
)
def test_rwm_with_adaptation(model, n, options, of_slow):
    step = pk.baselines.RWM(model=model, steps_per_draw=1, target_accept=0.3, **options)
    positions, stats = run(step, n, tune=n, seed=2)
    expected, scale = slow_rwm(START, n, 0.3, np.random.default_rng(2), **of_slow)
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    assert stats["scaling"][-1] == pytest.approx(scale, rel=1e-9)
    assert n < 10 or np.ptp(stats["scaling"]) > 0.1


def test_rwm_with_a_fixed_scale_is_never_tuned(model):
    step = pk.baselines.RWM(model=model, steps_per_draw=1, scaling=0.3, tune_scaling=False)
    positions, stats = run(step, 200, tune=100, seed=5)
    expected, _ = slow_rwm(START, 200, 0.234, np.random.default_rng(5), (0.3, 0.3))
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(stats["scaling"], 0.3, rtol=1e-12)
    assert stats["warning"][-1] is None


COVARIANCE_WALKS = {
    "am": (pk.baselines.AM, learn_am),
    "rbam": (pk.baselines.RBAM, learn_rbam),
    "gam": (pk.GAM, learn_am),
}


def compare_walk(model, name, n, rate=None, seed=3, tolerance=1e-6, **options):
    """Run a sampler and its slow version; return what is to be equal."""
    sampler, learn = COVARIANCE_WALKS[name]
    learn = options.pop("learn", learn)
    step = sampler(model=model, steps_per_draw=1, target_accept=0.3, learning_rate=rate, **options)
    positions, stats = run(step, n, tune=n, seed=seed)
    expected, scale, factor = slow_walk(
        START,
        n,
        0.3,
        learn,
        np.random.default_rng(seed),
        rate=rate,
        tune_always=sampler is pk.GAM,
        bounds=options.get("scaling_bounds"),
    )
    np.testing.assert_allclose(positions, expected, rtol=tolerance, atol=1e-9)
    assert stats["scaling"][-1] == pytest.approx(scale, rel=tolerance)
    np.testing.assert_allclose(np.tril(step.parameters.factor), factor, rtol=tolerance, atol=1e-9)
    return positions, stats


@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize("n", [1, 2, 7, 60, 600])
@pytest.mark.parametrize("name", COVARIANCE_WALKS)
def test_walks_with_adaptation(model, name, n):
    positions, stats = compare_walk(model, name, n)
    assert n < 60 or len(np.unique(positions, axis=0)) > n / 10
    if name != "gam" and n == 600:  # λ is tuned up to half of tuning, and fixed from there
        assert len(np.unique(stats["scaling"][:300])) > 290
        np.testing.assert_allclose(stats["scaling"][300:], 2.38 / np.sqrt(3), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize("rate", RATES[1:], ids=str)
@pytest.mark.parametrize("n", [2, 400])
@pytest.mark.parametrize("name", COVARIANCE_WALKS)
def test_walks_with_a_rate_of_the_user(model, name, n, rate):
    compare_walk(model, name, n, rate)


@pytest.mark.usefixtures("from_start")
def test_gam_within_bounds(model):
    _, stats = compare_walk(model, "gam", 400, scaling_bounds=(0.5, 1.2))
    assert 0.5 <= stats["scaling"].min() < stats["scaling"].max() <= 1.2 * (1 + 1e-12)


@pytest.mark.usefixtures("from_start")
@pytest.mark.parametrize(
    ("name", "learn", "rate"),
    [
        ("rbam", learn_from_the_mean, None),
        ("rbam", learn_am, None),  # from the state after the move
    ],
)
def test_another_rule_is_another_walk(model, name, learn, rate):
    """So the comparison would see the mistake."""
    with pytest.raises(AssertionError):
        compare_walk(model, name, 400, learn=learn, rate=rate)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pk.baselines.AM, pk.baselines.RBAM, pk.GAM])
def test_keep_adapting_goes_on_ever_less(model, sampler):
    step = sampler(model=model, steps_per_draw=1, keep_adapting=True)
    step.setup_chain(np.random.default_rng(0), 400, 4000)
    point, factors = {"x": START}, []
    for i in range(4400):
        if i == 400:
            step.stop_tuning()
        point, _ = step.step(point)
        factors.append(np.tril(step.parameters.factor) / SCALES[:, None])
    steps = np.linalg.norm(np.diff(factors, axis=0), axis=(1, 2))
    assert (steps[400:] > 0).mean() > 0.99
    early, late = steps[400:800].mean(), steps[-400:].mean()
    assert late < 0.5 * early


@pytest.mark.usefixtures("from_start")
def test_keep_adapting_is_the_same_recursion_without_an_end(model):
    """AM's moments after 300 more transitions, seeded as for the tuning that was announced."""
    step = pk.baselines.AM(model=model, steps_per_draw=1, keep_adapting=True)
    positions, _ = run(step, 700, tune=400, seed=6)
    mean, sigma = reference.moments(positions, 400, np.diag(SCALES**2))[-1]
    np.testing.assert_allclose(step.tuning.shape.moments.mean, mean, rtol=1e-7, atol=1e-10)
    factor = np.tril(step.parameters.factor)
    np.testing.assert_allclose(factor, np.linalg.cholesky(sigma), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("sampler", "option", "values"),
    [
        *(
            (sampler, "learning_rate", [0, 1, 1.5, -0.1, np.nan, True, "a", (0.1, 1, 1)])
            for sampler in (pk.baselines.AM, pk.baselines.RBAM, pk.GAM)
        ),
        *(
            (pk.baselines.AM, "learning_rate", [Decay(*wrong)])
            for wrong in [(1.5,), (1, 1, 0), (0.0,), (0.1, 0), (0.1, 1, -1), (np.nan,)]
        ),
        *(
            (pk.baselines.AM, "learning_rate", [Decay(0.1, *wrong)])
            for wrong in [(np.inf,), (1, np.nan), (1, None), (1, "")]
        ),
        (pk.baselines.RWM, "scaling", [0, -1, np.inf, np.nan, True, "a"]),
        (pk.baselines.RWM, "tune_scaling", [0, None]),
    ],
)
def test_impossible_options(model, sampler, option, values):
    for value in values:
        with pytest.raises(ValueError, match=option):
            sampler(model=model, **{option: value})


def acceptance(sampler, model, tune=500, **kwargs):
    """Share of accepted proposals after tuning from a bad start."""
    step = sampler(model=model, **kwargs)
    d = model["x"].type.shape[0]
    _, stats = run(step, tune + 500, tune=tune, seed=4, x=np.full(d, 0.1))
    return stats["accept_share"][tune:].mean()


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pk.baselines.RWM, pk.GAM])
@pytest.mark.parametrize("target", [0.1, 0.234, 0.5])
def test_reaches_the_target_acceptance(model, sampler, target):
    """Without tuning, the same bound is missed."""
    assert acceptance(sampler, model, target_accept=target) == pytest.approx(target, abs=0.03)
    untuned = acceptance(sampler, model, tune=0, target_accept=target)
    assert untuned != pytest.approx(target, abs=0.03)


@pytest.mark.slow
@pytest.mark.parametrize("sampler", [pk.GAM, pk.baselines.AM, pk.baselines.RBAM])
def test_learns_the_covariance(sampler):
    """Coordinates that correlate by 0.99: RWM, which sees one scale, fails where they do not."""
    d = 10
    model = normal_model(np.linalg.inv(0.01 * np.eye(d) + 0.99))

    def mean_squared_jump(sampler):
        positions, _ = run(sampler(model=model), 2000, tune=1000, x=np.zeros(d))
        return (np.diff(positions[1000:].mean(axis=1)) ** 2).mean()

    # A random walk with the target's own covariance jumps 2.38²/d per accepted transition.
    expected = 10 * 0.234 * 2.38**2 / d
    assert 0.5 * expected < mean_squared_jump(sampler) < 1.5 * expected
    assert mean_squared_jump(pk.baselines.RWM) < 0.1 * expected
