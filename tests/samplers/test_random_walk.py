"""RWM and GAM against slow versions written from their definitions, on the same random numbers."""

import copy

import numpy as np
import pymc as pm
import pytest
import slow

import pymc_kameleon as pk

PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])


def log_density(x):
    return -0.5 * x @ PRECISION @ x


def normal_model(precision):
    """Build a model without matrix products, which take PyTensor seconds to compile."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=len(precision))
        pm.Potential("p", -0.5 * (x[:, None] * precision * x).sum())
    return model


@pytest.fixture(scope="module")
def model():
    return normal_model(PRECISION)


START = np.array([0.5, 1.5, -0.1])


def run(step, n, tune=0, seed=0, x=START, **parameters):
    """Run n draws; return positions and statistics. `parameters` are set before the first."""
    step.setup_chain(np.random.default_rng(seed), tune, n)
    for name, value in parameters.items():
        getattr(step.parameters, name)[...] = value
    point, positions, stats = {"x": x}, [], []
    for i in range(n):
        if i == tune:
            step.stop_tuning()
        point, [row] = step.step(point)
        positions.append(point["x"])
        stats.append(row)
    return np.array(positions), {name: np.array([s[name] for s in stats]) for name in stats[0]}


def slow_transition(x, factor, rng):
    """Propose x + Lξ and accept if log u < log π(y) - log π(x)."""
    y = x + factor @ rng.standard_normal(x.size)
    log_u = -rng.standard_exponential()
    log_ratio = log_density(y) - log_density(x)
    return (y if log_u < log_ratio else x), min(1.0, np.exp(log_ratio))


# ---- frozen ---------------------------------------------------------------------------------

FACTOR = np.array([[0.8, 0.0, 0.0], [1.2, 0.4, 0.0], [-0.02, 0.03, 0.1]])


@pytest.mark.parametrize(
    ("sampler", "parameters", "factor"),
    [
        (pk.RWM, {"log_scale": np.log(0.3)}, 0.3 * np.eye(3)),
        (pk.GAM, {"log_scale": np.log(1.7), "factor": FACTOR}, 1.7 * FACTOR),
        # Untouched parameters: the best scale 2.38/√d for a standard normal target.
        (pk.RWM, {}, 2.38 / np.sqrt(3) * np.eye(3)),
        (pk.GAM, {}, 2.38 / np.sqrt(3) * np.eye(3)),
    ],
)
def test_transitions_by_hand(model, sampler, parameters, factor):
    step = sampler(model=model, steps_per_draw=1)
    positions, stats = run(step, 200, seed=5, **parameters)
    x, rng = START, np.random.default_rng(5)
    moves = 0
    for i in range(200):
        new, alpha = slow_transition(x, factor, rng)
        np.testing.assert_allclose(positions[i], new, rtol=1e-9, atol=1e-12)
        assert stats["accept_prob"][i] == pytest.approx(alpha, rel=1e-9)
        assert stats["accept_share"][i] == (new is not x)
        assert stats["model_logp"][i] == pytest.approx(log_density(new), rel=1e-9)
        moves += new is not x
        x = new
    assert 5 < moves < 195


@pytest.mark.parametrize("sampler", [pk.RWM, pk.GAM])
def test_a_draw_is_many_transitions(model, sampler):
    one, other = (sampler(model=model, steps_per_draw=n) for n in (1, 7))
    singles, single_stats = run(one, 70, seed=1, log_scale=-1.0)
    draws, stats = run(other, 10, seed=1, log_scale=-1.0)
    np.testing.assert_array_equal(draws, singles[6::7])
    for name in ["accept_prob", "accept_share"]:
        means = single_stats[name].reshape(10, 7).mean(axis=1)
        np.testing.assert_allclose(stats[name], means, rtol=1e-12)


# ---- adaptation -----------------------------------------------------------------------------


def bounded(log_scale, d):
    return np.clip(log_scale, np.log(2.38e-6 / np.sqrt(d)), np.log(2.38e6 / np.sqrt(d)))


def slow_rwm(x, n, target, rng):
    """Tune log ν with step sizes (1+t)^-.6 and settle it at its mean over the second half."""
    log_nu, positions, path = np.log(2.38 / np.sqrt(x.size)), [], []
    for t in range(n):
        x, alpha = slow_transition(x, np.exp(log_nu) * np.eye(x.size), rng)
        log_nu = bounded(log_nu + (1 + t) ** -0.6 * (alpha - target), x.size)
        path.append(log_nu)
        positions.append(x)
    return np.array(positions), np.exp(np.mean(path[n // 2 :]))


def slow_gam(x, n, target, scales, rng):
    """Do the same with a covariance, in plain matrices [AT, algorithm 4].

    A seeding phase tunes λ alone. Where μ and Σ are seeded, λ starts again from its best guess with
    smaller steps. √λ settles at its geometric mean over the second half of tuning.
    """
    d = x.size
    best = np.log(2.38 / np.sqrt(d))
    log_scale, sigma, last = best, np.diag(scales**2), 0
    positions, path = [], []
    for t in range(n):
        x, alpha = slow_transition(x, np.exp(log_scale) * np.linalg.cholesky(sigma), rng)
        positions.append(x)
        step = t - last + (10 if last else 0)
        log_scale = bounded(log_scale + (1 + step) ** -0.6 * (alpha - target), d)
        if t + 1 in slow.seeding_times(d, n):
            log_scale, last = best, t + 1
        sigma = slow.moments(positions, n, np.diag(scales**2))[-1][1]
        path.append(log_scale)
    return np.array(positions), np.exp(np.mean(path[min(n - n // 2, n - 1) :])), sigma


@pytest.mark.parametrize("n", [1, 2, 7, 1000])
def test_rwm_with_adaptation(model, n):
    step = pk.RWM(model=model, steps_per_draw=1, target_accept=0.3)
    positions, stats = run(step, n, tune=n, seed=2)
    slow, scale = slow_rwm(START, n, 0.3, np.random.default_rng(2))
    np.testing.assert_allclose(positions, slow, rtol=1e-9, atol=1e-12)
    assert stats["scaling"][-1] == pytest.approx(scale, rel=1e-9)
    assert n < 10 or np.ptp(stats["scaling"]) > 0.1


@pytest.mark.parametrize("n", [1, 2, 7, 60, 600])
def test_gam_with_adaptation(model, n):
    step = pk.GAM(model=model, steps_per_draw=1, target_accept=0.3)
    positions, stats = run(step, n, tune=n, seed=3)
    scales = np.diag(PRECISION) ** -0.5  # the conditional ones, which are exact where π is normal
    expected, scale, sigma = slow_gam(START, n, 0.3, scales, np.random.default_rng(3))
    np.testing.assert_allclose(positions, expected, rtol=1e-6, atol=1e-9)
    assert stats["scaling"][-1] == pytest.approx(scale, rel=1e-6)
    factor = np.tril(step.parameters.factor)
    np.testing.assert_allclose(factor, np.linalg.cholesky(sigma), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("sampler", [pk.RWM, pk.GAM])
def test_parameters_are_constant_after_tuning(model, sampler):
    step = sampler(model=model)
    step.setup_chain(np.random.default_rng(0), 100, 100)
    point, kept = {"x": START}, []
    for i in range(200):
        if i == 100:
            step.stop_tuning()
        point, _ = step.step(point)
        kept.append(copy.deepcopy(step.parameters))
    for name in step.parameters._fields:
        values = [getattr(parameters, name) for parameters in kept]
        assert all(np.array_equal(value, values[99]) for value in values[100:]), name
        assert not np.array_equal(values[98], values[99]), name


def acceptance(sampler, model, tune=500, **kwargs):
    """Share of accepted proposals after tuning from a bad start."""
    step = sampler(model=model, **kwargs)
    d = model["x"].type.shape[0]
    _, stats = run(step, tune + 500, tune=tune, seed=4, x=np.full(d, 0.1))
    return stats["accept_share"][tune:].mean()


@pytest.mark.parametrize("sampler", [pk.RWM, pk.GAM])
@pytest.mark.parametrize("target", [0.1, 0.234, 0.5])
def test_reaches_the_target_acceptance(model, sampler, target):
    """Without tuning, the same bound is missed."""
    assert acceptance(sampler, model, target_accept=target) == pytest.approx(target, abs=0.03)
    untuned = acceptance(sampler, model, tune=0, target_accept=target)
    assert untuned != pytest.approx(target, abs=0.03)


def test_gam_learns_the_covariance():
    """Coordinates that correlate by .99: RWM, which sees one scale, fails where GAM does not."""
    d = 10
    model = normal_model(np.linalg.inv(0.01 * np.eye(d) + 0.99))

    def mean_squared_jump(sampler):
        positions, _ = run(sampler(model=model), 2000, tune=1000, x=np.zeros(d))
        return (np.diff(positions[1000:].mean(axis=1)) ** 2).mean()

    # A random walk with the target's own covariance jumps 2.38²/d per accepted transition.
    expected = 10 * 0.234 * 2.38**2 / d
    assert 0.5 * expected < mean_squared_jump(pk.GAM) < 1.5 * expected
    assert mean_squared_jump(pk.RWM) < 0.1 * expected
