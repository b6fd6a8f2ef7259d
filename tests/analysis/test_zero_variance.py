"""Control variates by gradients: the means of controls, standard errors, and broken twins."""

import numpy as np
import pytest
from arviz_stats.base import array_stats
from averages import autoregressive
from scipy.stats import gamma, norm

from pymc_kameleon.analysis import zero_variance as whole
from pymc_kameleon.analysis.gradients_of_draws import LEAST_P
from pymc_kameleon.analysis.identity import probability_of_means
from pymc_kameleon.analysis.limits_of_r_hat import HIGH_RHAT, limits_of_r_hat
from pymc_kameleon.analysis.zero_variance import control_of_step, controls_of, zero_variance

RUNS, MIXING, LIKELY_P = 60, 0.5, 1e-3


def chains_of_normals(seed, chains=4, draws=500, d=3, correlation=MIXING):
    return autoregressive(np.random.default_rng(seed), (chains, draws, d), correlation)


def skew(seed, **how):
    """x = log of a gamma of shape 3, and two normals: gradients of x are 3 − e^x."""
    z = chains_of_normals(seed, **how)
    x, g = z.copy(), -z
    x[..., 0] = np.log(gamma(3).ppf(norm.cdf(z[..., 0])))
    g[..., 0] = 3 - np.exp(x[..., 0])
    return x, g


@pytest.mark.parametrize("chains", [2, 3, 4, 7])
def test_quadratics_of_a_normal_are_known(chains):
    x = chains_of_normals(1, chains=chains) * [1, 5, 0.1] + [3, -1, 0]
    x[..., 1] += x[..., 0]
    precision = np.linalg.inv([[1, 1, 0], [1, 26, 0], [0, 0, 0.01]])
    g = -(x - [3, 2, 0]) @ precision
    f = np.stack([x[..., 0], x[..., 1] ** 2, x[..., 0] * x[..., 2]], axis=2)
    found = zero_variance(f, controls_of(x, g))
    assert found.is_better.all()
    least = f.std(axis=(0, 1)) / f[..., 0].size
    assert (least * (1 - 1e-9) < found.mcse).all()
    assert (found.gain > 20).all()
    diverged = zero_variance(f, controls_of(x, g, diverged=2))
    np.testing.assert_allclose(diverged.mcse, 3 * found.mcse)
    np.testing.assert_allclose(found.mean, [3, 30, 0], atol=1e-5)


def functions(x):
    return np.concatenate([x, x**2, np.exp(x / 2), x > 0, x > 1.3], axis=2)


@pytest.mark.slow
@pytest.mark.parametrize("chains", [2, 4])
def test_errors_are_as_stated(chains):
    """Against the mean of the runs, which the variance is reduced of by 60 runs."""
    found = [zero_variance(functions(x), controls_of(x, g)) for x, g in many(chains)]
    means, errors = (np.array([getattr(own, name) for own in found]) for name in ("mean", "mcse"))
    z = (means - means.mean(axis=0)) / errors
    assert 0.75 < np.sqrt(np.mean(z**2)) < 1.3
    plain = np.array([functions(x).mean(axis=(0, 1)) for x, _ in many(chains)])
    bias = (means.mean(axis=0) - plain.mean(axis=0)) / plain.std(axis=0) * np.sqrt(RUNS)
    assert np.abs(bias).max() < 4
    gains = plain.var(axis=0) / means.var(axis=0)
    assert np.median(gains) > 2
    assert gains.min() > 0.8


def test_steps_of_a_normal_are_known():
    """Of one coordinate and of a sum, as of what is independent of both."""
    x = chains_of_normals(2) * [1, 5, 0.1]
    x[..., 1] += x[..., 0]
    g = -x @ np.linalg.inv([[1, 1, 0], [1, 26, 0], [0, 0, 0.01]])
    total = x[..., 0] + x[..., 1]
    f = np.stack([x[..., 0] > -1, x[..., 1] <= 8, total < 2, total < -9], axis=2).astype(float)
    found = zero_variance(f, controls_of(x, g))
    truth = norm.cdf([1, 8 / 26**0.5, 2 / 29**0.5, -9 / 29**0.5])
    assert (found.gain > [100, 50, 2, 2]).all()  # few draws are beyond the last two steps
    np.testing.assert_allclose((found.mean - truth) / found.mcse, 0, atol=4.5)


@pytest.mark.parametrize("times", [1, 4])
def test_where_steps_are_is_known_by_different_draws_only(times):
    """A normal whose draws stay where they are, as those of Metropolis do."""
    points, z = np.array([-1.0, 0.0, 0.7, 2.0]), []
    for seed in range(40):
        x = np.random.default_rng(seed).standard_normal((4, 400, 1)).repeat(times, axis=1)
        found = zero_variance((x < points).astype(float), controls_of(x, -x))
        z.append((found.mean - norm.cdf(points)) / found.mcse)
    assert 0.7 < np.sqrt(np.mean(np.square(z))) < 1.5


def test_steps_have_the_mean_0():
    """Where s is not −u, as of a gamma, whose shape makes it known; but not without Φ(t)."""
    x, g = skew(3, draws=5000, correlation=0.0)
    mean, sd = x[..., 0].mean(), x[..., 0].std()
    u, s = (x[..., :1] - mean) / sd, g[..., :1] * sd
    points = np.array([-1.5, 0.0, 1.2])
    c = control_of_step(u, s, points)
    assert probability_of_means(c) > LIKELY_P
    assert probability_of_means(c + norm.cdf(points) - 0.5) < LEAST_P
    assert np.corrcoef(c[..., 1].ravel(), (u[..., 0] <= 0).ravel())[0, 1] > 0.8


@pytest.mark.slow
def test_probabilities_are_right():
    points = np.array([-0.5, 1.0, 1.7])
    truth, found, plain = gamma(3).cdf(np.exp(points)), [], []
    for x, g in many(4):
        f = (x[..., :1] < points).astype(float)
        found.append(zero_variance(f, controls_of(x, g)))
        plain.append(f.mean(axis=(0, 1)))
    errors = np.array([own.mean for own in found]) - truth
    z = errors / [own.mcse for own in found]
    assert 0.8 < np.sqrt(np.mean(z**2)) < 1.25
    assert (np.mean((plain - truth) ** 2, axis=0) > 4 * np.mean(errors**2, axis=0)).all()


def many(chains):
    return [skew(seed, chains=chains) for seed in range(RUNS)]


def test_a_control_without_its_laplacian_is_seen():
    x, g = skew(1)
    controls = controls_of(x, g).values
    assert probability_of_means(controls[..., :9]) > LIKELY_P
    centred = x[..., 0] - x[..., 0].mean()
    controls[..., 3] -= 1 / np.sqrt(np.mean((1 + centred * g[..., 0]) ** 2))
    assert probability_of_means(controls[..., :9]) < LEAST_P


def test_healthy_controls_are_seldom_refused():
    p = [probability_of_means(controls_of(*skew(seed)).values[..., :9]) for seed in range(RUNS)]
    assert min(p) > LEAST_P
    assert np.mean(np.array(p) < LIKELY_P) < 0.05


def test_of_many_parameters_there_are_fewer_controls():
    x = chains_of_normals(1, draws=100, d=60)
    controls = controls_of(x, -x)
    assert controls.sizes == [60]
    assert controls.values.shape[2] == 180
    assert not controls_of(x[:, :20], -x[:, :20]).sizes


def test_controls_of_many_parameters_have_the_mean_0():
    """Along axes that are learned from the draws, squares would have others."""
    x = chains_of_normals(5, draws=500, d=30, correlation=0.0)
    assert probability_of_means(controls_of(x, -x).values[..., :90]) > LIKELY_P
    _, axes = np.linalg.eigh(np.cov(x.reshape(-1, 30).T))
    along = x @ axes
    assert probability_of_means(1 - along**2) < LEAST_P


def of_noise(seed):
    """Averages of noise that controls have nothing to do with, over the plain ones' errors."""
    x = chains_of_normals(seed, draws=150, d=12, correlation=0.0)
    f = np.random.default_rng([seed, 1]).standard_normal((*x.shape[:2], 8))
    found = zero_variance(f, controls_of(x, -x))
    return found.mean * np.sqrt(f[..., 0].size), found.mcse * np.sqrt(f[..., 0].size)


def test_noise_is_not_made_larger():
    """Of 102 controls and 450 draws, a regression without a ridge would add a quarter."""
    means, errors = (np.array(part) for part in zip(*map(of_noise, range(RUNS)), strict=True))
    assert np.mean(means**2) < 1.12
    assert 0.8 < np.sqrt(np.mean((means / errors) ** 2)) < 1.2


def test_coefficients_do_not_know_their_own_fold(monkeypatch):
    """Where f is 0 in all other chains, a chain's own average is that of its draws."""
    monkeypatch.setattr(whole, "coefficients", lambda a, *_: np.ones(a[:, 0].shape))
    x = chains_of_normals(3, draws=200)
    f = x.copy()
    f[1:] = 0
    found = zero_variance(f, controls_of(x, -x))
    own = f[0].reshape(2, 100, 3).mean(axis=1)
    np.testing.assert_allclose(found.halves[[0, 4]], own, rtol=1e-9)
    assert (np.abs(found.halves[[1, 5]]) > 1e-6).any()


def is_suspect(x):
    r_hat = array_stats.rhat(x, chain_axis=0, draw_axis=1)
    return (r_hat > limits_of_r_hat(x)).any(), (r_hat > HIGH_RHAT).any()


@pytest.mark.slow
def test_r_hat_of_few_good_draws_is_not_suspect():
    """4 × 250 draws of ten parameters, worth some 330 independent ones."""
    few = [is_suspect(chains_of_normals(seed, draws=250, d=10)) for seed in range(RUNS)]
    suspect, beyond = np.mean(few, axis=0)
    assert suspect < 0.05
    assert beyond > 0.8


@pytest.mark.parametrize("broken", ["a chain elsewhere", "slow", "drifting", "two modes"])
def test_r_hat_of_broken_chains_is_suspect(broken):
    for seed in range(5):
        x = chains_of_normals(seed, draws=250, d=10, correlation=0.98 if broken == "slow" else 0.3)
        if broken == "a chain elsewhere":
            x[0, :, 3] += 1
        elif broken == "drifting":
            x[..., 3] += np.linspace(2, 0, 250) * np.array([1, -1, 1, 1])[:, None]
        elif broken == "two modes":
            x[..., 3] += 2.0 * np.array([1, -1, 1, 1])[:, None]
        assert is_suspect(x)[0]
