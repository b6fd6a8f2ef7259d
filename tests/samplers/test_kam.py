"""KAM against a slow version written from the paper, on the same random numbers."""

import copy
from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytest
import slow
from scipy.spatial.distance import pdist
from scipy.stats import multivariate_normal, norm

import pymc_kameleon as pk
from pymc_kameleon.samplers import kam

# ---- targets --------------------------------------------------------------------------------


class Target(NamedTuple):
    """A log-density in numpy, the same in PyMC, and a start."""

    log_density: object
    build: object
    start: np.ndarray


PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])


def normal_model(precision):
    """Build a model without matrix products, which take PyTensor seconds to compile."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=len(precision))
        pm.Potential("p", -0.5 * (x[:, None] * precision * x).sum())
    return model


def banana_model():
    with pm.Model() as model:
        x = pm.Flat("x", shape=2)
        pm.Potential("p", -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.3 * (x[0] ** 2 - 9)) ** 2))
    return model


def line_model():
    with pm.Model() as model:
        pm.Normal("x", [5.0], 0.01)
    return model


TARGETS = {
    "banana": Target(
        lambda x: -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.3 * (x[0] ** 2 - 9)) ** 2),
        banana_model,
        np.array([1.0, -2.0]),
    ),
    "normal": Target(
        lambda x: -0.5 * x @ PRECISION @ x,
        lambda: normal_model(PRECISION),
        np.array([0.5, 1.5, -0.1]),
    ),
    "line": Target(lambda x: norm.logpdf(x[0], 5, 0.01), line_model, np.array([5.02])),
}


# ---- the compiled sampler -------------------------------------------------------------------


def run(step, n, x):
    """Run n draws from x; return positions and statistics."""
    point, positions, stats = {"x": x}, [], []
    for _ in range(n):
        point, [row] = step.step(point)
        positions.append(point["x"])
        stats.append(row)
    names = stats[0] if stats else ()
    return np.array(positions), {name: np.array([s[name] for s in stats]) for name in names}


@cache
def _tuned(name, tune, arguments):
    step = pk.KAM(model=TARGETS[name].build(), steps_per_draw=1, **dict(arguments))
    step.setup_chain(np.random.default_rng(1), tune, 1)
    if tune:
        run(step, tune, TARGETS[name].start)
    step.stop_tuning()
    return step, step.sampling_state


def tuned(name, tune=1500, **arguments):
    """Return a step of one transition per draw, as it is after tuning."""
    step, after_tuning = _tuned(name, tune, tuple(arguments.items()))
    step.sampling_state = after_tuning
    return step


# ---- the same from the paper ----------------------------------------------------------------


class Slow:
    """What a tuned step has learned, in plain matrices."""

    def __init__(self, parameters):
        self.whitening = np.tril(parameters.whitening)
        self.z = parameters.z[:, : parameters.m[0]].T.copy()
        self.bandwidth = parameters.bandwidth[0]
        self.gamma = np.exp(parameters.log_gamma[0])
        self.nu = parameters.nu0[0] * np.exp(parameters.log_rho[0])

    def kernel_covariance(self, u):
        """M H Mᵀ with M = 2[∇k(u, z₁) … ∇k(u, z_m)] for the Gaussian kernel."""
        m = len(self.z)
        if m == 0:
            return np.zeros((u.size, u.size))
        k = np.exp(-np.sum((u - self.z) ** 2, axis=1) / (2 * self.bandwidth**2))
        big_m = 2 * ((self.z - u) / self.bandwidth**2 * k[:, None]).T
        return big_m @ (np.eye(m) - np.ones((m, m)) / m) @ big_m.T

    def covariance(self, x):
        """C (γ²I + ν² M H Mᵀ) Cᵀ."""
        s = self.kernel_covariance(np.linalg.solve(self.whitening, x))
        r = self.gamma**2 * np.eye(x.size) + self.nu**2 * s
        return self.whitening @ r @ self.whitening.T

    def transition(self, log_density, x, rng):
        """Propose from q(·|x) and accept by log q both ways; return the new x and α."""
        here = self.covariance(x)
        y = x + np.linalg.cholesky(here) @ rng.standard_normal(x.size)
        log_u = -rng.standard_exponential()
        log_ratio = log_density(y) - log_density(x)
        log_ratio += multivariate_normal.logpdf(x, y, self.covariance(y))
        log_ratio -= multivariate_normal.logpdf(y, x, here)
        return (y if log_u < log_ratio else x), np.exp(min(0.0, log_ratio))

    def follow(self, log_density, positions, start, rng):
        """Make each transition from where the compiled chain was; return new positions and α."""
        before = [start, *positions[:-1]]
        expected, alphas = zip(*(self.transition(log_density, x, rng) for x in before), strict=True)
        return np.array(expected), np.array(alphas)


# ---- transition -----------------------------------------------------------------------------

VARIANTS = [
    ("banana", {}),
    ("banana", {"whiten": False}),
    ("banana", {"gamma": 0.05, "n_subsample": 7}),
    ("normal", {}),
    ("line", {}),
]


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_transitions_by_hand(name, arguments):
    """From a start of its own, so that what the state derives from the position is new."""
    step, target = tuned(name, **arguments), TARGETS[name]
    slow = Slow(step.parameters)
    assert len(slow.z) >= 7
    step.rng = np.random.default_rng(7)
    positions, stats = run(step, 400, target.start)
    expected, alphas = slow.follow(
        target.log_density, positions, target.start, np.random.default_rng(7)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-9, atol=1e-11)
    moved = np.any(expected != [target.start, *positions[:-1]], axis=1)
    np.testing.assert_array_equal(stats["accept_share"], moved)
    assert 20 < moved.sum() < 380
    np.testing.assert_allclose(stats["scaling"], slow.nu)
    np.testing.assert_allclose(stats["bandwidth"], slow.bandwidth)
    assert (stats["n_logp"][1:] == 1).all()
    # A rejection that is seen early reports 0, one that is not at least α.
    reported = stats["accept_prob"]
    assert ((reported == 0) | (reported >= alphas * (1 - 1e-8))).all()


@pytest.mark.parametrize(("name", "arguments"), VARIANTS)
def test_reported_acceptance_is_unbiased(name, arguments):
    """Without its correction for the rejections that are seen early, it is not."""
    n = 4000
    step, target = tuned(name, **arguments), TARGETS[name]
    slow = Slow(step.parameters)
    step.rng = np.random.default_rng(8)
    positions, stats = run(step, n, target.start)
    _, alphas = slow.follow(target.log_density, positions, target.start, np.random.default_rng(8))
    reported = stats["accept_prob"]
    uncorrected = np.where(reported == 0, 0, alphas)

    def z_score(difference):
        return difference.mean() / (difference.std() / np.sqrt(n))

    assert 0.1 < np.mean(reported == 0) < 0.8
    assert abs(z_score(reported - alphas)) < 4
    if "gamma" not in arguments:  # else ν is at its bound, and hardly anything is seen early
        assert z_score(uncorrected - alphas) < -5


@pytest.mark.parametrize("tune", [0, 1500])
def test_reported_acceptance_is_a_probability(tune):
    """To the last bit, also where q(x|y) reaches its bound, as it does without z."""
    step = tuned("normal", tune)
    _, stats = run(step, 3000, TARGETS["normal"].start)
    assert (stats["accept_prob"] >= 0).all()
    assert (stats["accept_prob"] <= 1).all()


@pytest.mark.parametrize("whiten", [False, True])
def test_without_nu_it_is_a_random_walk(whiten):
    """RWM with the scale γ; in whitened coordinates GAM with the factor C."""
    step = tuned("banana", whiten=whiten)
    step.parameters.nu0[0] = 0
    step.rng = np.random.default_rng(3)
    start = TARGETS["banana"].start
    positions, _ = run(step, 500, start)

    walk = (pk.GAM if whiten else pk.RWM)(model=banana_model(), steps_per_draw=1)
    walk.setup_chain(np.random.default_rng(3), 0, 500)
    walk.parameters.log_scale[:] = step.parameters.log_gamma
    if whiten:
        walk.parameters.factor[:] = step.parameters.whitening
    expected, _ = run(walk, 500, start)
    np.testing.assert_allclose(positions, expected, rtol=1e-8, atol=1e-10)
    assert len(np.unique(expected[:, 0])) > 100


@pytest.mark.parametrize("whiten", [False, True])
def test_without_tuning_it_is_a_random_walk(whiten):
    """Even with `gamma` given, which belongs to the z that it has not."""
    step = pk.KAM(model=banana_model(), steps_per_draw=1, whiten=whiten, gamma=0.05)
    walk = pk.RWM(model=banana_model(), steps_per_draw=1)
    for one in (step, walk):
        one.setup_chain(np.random.default_rng(3), 0, 300)
    (positions, stats), (expected, walk_stats) = (
        run(one, 300, TARGETS["banana"].start) for one in (step, walk)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(stats["scaling"], walk_stats["scaling"])


# ---- the density of the proposal ------------------------------------------------------------


def random_covariance(rng, d):
    root = rng.standard_normal((d, d)) * 10 ** rng.uniform(-1, 1, (d, 1))
    return root @ root.T


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_log_normal_is_scipys(d):
    """In whitened coordinates; in the others with the covariance C R Cᵀ and log |C|."""
    rng = np.random.default_rng(d)
    for _ in range(20):
        s, gamma, nu = random_covariance(rng, d), rng.uniform(0.1, 2), rng.uniform(0, 2)
        factor = np.full((d, d), np.nan)
        assert kam.factorise(s, gamma, nu, factor)
        step = rng.standard_normal(d)
        r = gamma**2 * np.eye(d) + nu**2 * s
        np.testing.assert_allclose(np.tril(factor), np.linalg.cholesky(r), rtol=1e-8, atol=1e-10)
        whitened = kam.log_normal(step, factor) - d / 2 * np.log(2 * np.pi)
        assert whitened == pytest.approx(multivariate_normal.logpdf(step, cov=r), rel=1e-8)
        c = np.tril(rng.standard_normal((d, d)) / 3) + np.eye(d)
        expected = multivariate_normal.logpdf(c @ step, cov=c @ r @ c.T)
        log_det = np.linalg.slogdet(c)[1]
        assert whitened - log_det == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_factorise_refuses_what_is_not_finite(bad):
    assert not kam.factorise(np.diag([1.0, bad]), 0.5, 1.0, np.empty((2, 2)))


@pytest.mark.parametrize("d", [1, 2, 5, 12])
def test_reverse_bound(d):
    """No R ≥ γ²I has a greater density, and one reaches it."""
    rng = np.random.default_rng(d)
    slack = []
    for _ in range(300):
        gamma = 10 ** rng.uniform(-2, 2)
        step = rng.standard_normal(d) * gamma * 10 ** rng.uniform(-2, 2)
        distance2 = step @ step
        bound = kam.log_reverse_bound(distance2, gamma, d) - d / 2 * np.log(2 * np.pi)
        # any R, one that is wide in about the direction of the step only, and the best one
        along = step + rng.standard_normal(d) * np.abs(step).max() * rng.choice([0, 0.01, 0.3])
        across = np.outer(step, step) / distance2
        best = max(gamma**2, distance2)
        for extra in [
            random_covariance(rng, d) * gamma**2,
            np.outer(along, along) * rng.uniform(0, 2),
            (best - gamma**2) * across,
        ]:
            r = gamma**2 * np.eye(d) + extra
            density = multivariate_normal.logpdf(step, cov=r)
            assert density <= bound + 1e-9 * (1 + abs(bound))
        assert density == pytest.approx(bound, rel=1e-7, abs=1e-7)
        slack.append(distance2 > gamma**2)
    assert 0.2 < np.mean(slack) < 0.95  # both forms of the bound were tried


# ---- what tuning learns ---------------------------------------------------------------------


@pytest.mark.parametrize("whiten", [False, True])
def test_z_and_what_follows_from_it(whiten):
    """Distinct states of the newest half of the past, σ, γ and ν₀ by their definitions."""
    n, m = 800, 40
    target = TARGETS["banana"]
    step = pk.KAM(model=target.build(), steps_per_draw=1, n_subsample=m, whiten=whiten)
    step.setup_chain(np.random.default_rng(5), n, 1)
    positions, _ = run(step, n, target.start)
    slow = Slow(step.parameters)
    assert slow.z.shape == (m, 2)
    assert np.array_equal(slow.whitening, np.eye(2)) == (not whiten)

    # z is drawn for the last time after 85 % of tuning.
    visited = np.unique(positions[17 * n // 40 : 17 * n // 20], axis=0)
    distances = np.abs(visited[:, None] - slow.z @ slow.whitening.T).max(axis=2)
    assert distances.min(axis=0).max() < 1e-12
    assert len(np.unique(distances.argmin(axis=0))) == m

    distance = np.median(pdist(slow.z))
    s = distance / np.sqrt(2 * 2)
    assert slow.bandwidth == pytest.approx(distance / 2)
    assert slow.gamma == pytest.approx(0.25 * 2.38 / np.sqrt(2) * s)
    trace = np.mean([np.trace(slow.kernel_covariance(z)) for z in slow.z])
    assert step.parameters.nu0[0] ** 2 == pytest.approx(2.38**2 * s**2 / trace)


@pytest.mark.parametrize("gamma", [0.02, 0.7])
@pytest.mark.parametrize("whiten", [False, True])
def test_gamma_of_the_user(gamma, whiten):
    target = TARGETS["banana"]
    step = pk.KAM(model=target.build(), steps_per_draw=1, gamma=gamma, whiten=whiten)
    step.setup_chain(np.random.default_rng(5), 400, 1)
    point, used = {"x": target.start}, []
    for _ in range(400):
        point, _ = step.step(point)
        used.append((step.parameters.m[0] > 0, np.exp(step.parameters.log_gamma[0])))
    step.stop_tuning()
    with_z = [value for has_z, value in used if has_z]
    assert len(with_z) >= 100
    np.testing.assert_allclose(with_z, gamma, rtol=1e-12)
    assert all(value != pytest.approx(gamma) for has_z, value in used if not has_z)


@pytest.mark.parametrize("whiten", [False, True])
def test_the_state_follows_each_redraw(whiten):
    """After each transition of tuning, u, S(u) and the factor are those of x."""
    n = 600
    target = TARGETS["banana"]
    step = pk.KAM(model=target.build(), steps_per_draw=1, n_subsample=30, whiten=whiten)
    step.setup_chain(np.random.default_rng(6), n, 1)
    point, n_redraws, n_factors, before = {"x": target.start}, 0, 0, None
    for _ in range(n):
        point, _ = step.step(point)
        slow, state = Slow(step.parameters), step.state
        np.testing.assert_array_equal(state.x, point["x"])
        assert state.logp[0] == pytest.approx(target.log_density(state.x), rel=1e-9)
        np.testing.assert_allclose(slow.whitening @ state.u, state.x, rtol=1e-10, atol=1e-12)
        s = slow.kernel_covariance(state.u)
        np.testing.assert_allclose(state.covariance, s, rtol=1e-8, atol=1e-12)
        gamma, nu = state.factor_scales
        if np.isfinite(gamma):
            r = gamma**2 * np.eye(2) + nu**2 * s
            np.testing.assert_allclose(np.tril(state.factor), np.linalg.cholesky(r), rtol=1e-7)
            n_factors += 1
        n_redraws += before is not None and not np.array_equal(before, slow.z)
        before = slow.z
    assert n_redraws >= 10
    assert n_factors >= 100


@pytest.mark.parametrize("whiten", [False, True])
def test_adaptation_by_hand(whiten):
    """An adaptive walk for 70 %, redraws of z for 15 %, ρ alone for the last 15 %.

    Given the compiled chain's states, reported acceptance and times of redraws.
    """
    n, n_seed, n_walk, n_learning = 800, 100, 560, 680
    target = TARGETS["banana"]
    step = pk.KAM(model=target.build(), steps_per_draw=1, whiten=whiten)
    step.setup_chain(np.random.default_rng(5), n, 1)
    point, positions, accept, kept = {"x": target.start}, [], [], []
    for _ in range(n):
        point, [stats] = step.step(point)
        positions.append(point["x"])
        accept.append(stats["accept_prob"])
        kept.append(copy.deepcopy(step.parameters))

    assert [bool(p.m[0]) for p in kept] == [False] * n_walk + [True] * (n - n_walk)
    redraws = [t for t in range(1, n) if not np.array_equal(kept[t].z, kept[t - 1].z)]
    assert redraws[0] == n_walk
    assert redraws[-1] == n_learning - 1
    # Σ (1+t)^-½ over 120 transitions is 20, and the variance of their number is less.
    assert 20 - 4 * 20**0.5 < len(redraws) < 20 + 4 * 20**0.5

    sigmas = [sigma for _, sigma in slow.moments(positions, n)]
    for t in range(n_seed - 1, n):
        learned = t if t < n_walk else max(r for r in redraws if r <= t)
        expected = np.linalg.cholesky(sigmas[learned]) if whiten else np.eye(2)
        np.testing.assert_allclose(np.tril(kept[t].whitening), expected, rtol=1e-7, atol=1e-10)

    best, last, seedings = np.log(2.38 / np.sqrt(2)), 0, slow.seeding_times(2, n)
    assert seedings == [100, 200, 400]
    log_gamma, log_rho, settled = best, 0.0, []
    for t in range(n):
        if t < n_walk:
            since = t - last + (10 if last else 0)
            log_gamma += (1 + since) ** -0.6 * (accept[t] - 0.234)
            if whiten and t + 1 in seedings:
                log_gamma, last = best, t + 1
            assert kept[t].log_gamma[0] == pytest.approx(log_gamma, rel=1e-9, abs=1e-12)
        elif t > n_walk:
            log_rho += (1 + 10 + t - n_walk) ** -0.6 * (accept[t] - 0.234)
            settled += [log_rho] if t >= (n_learning + n) // 2 else []
            final = np.mean(settled) if t == n - 1 else log_rho
            assert kept[t].log_rho[0] == pytest.approx(final, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("arguments", [{}, {"whiten": False}])
def test_parameters_are_constant_after_tuning(arguments):
    step = tuned("banana", **arguments)
    before = copy.deepcopy(step.parameters)
    positions, _ = run(step, 500, TARGETS["banana"].start)
    assert len(np.unique(positions[:, 0])) > 50
    for name in before._fields:
        np.testing.assert_array_equal(getattr(step.parameters, name), getattr(before, name), name)


# ---- default arguments suffice --------------------------------------------------------------


def acceptance(model, draws=500, **arguments):
    """Share of accepted proposals after 1000 draws of tuning from the mode."""
    step = pk.KAM(model=model, **arguments)
    step.setup_chain(np.random.default_rng(1), 1000, draws)
    positions, _ = run(step, 1000, np.zeros(model["x"].type.shape))
    step.stop_tuning()
    _, stats = run(step, draws, positions[-1])
    return stats["accept_share"].mean()


def scales_of_six_decades():
    return normal_model(np.diag(np.logspace(-3, 3, 10) ** -2.0))


def equicorrelation():
    return normal_model(np.linalg.inv(0.01 * np.eye(10) + 0.99))


def rotated_ellipsoid():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 32)))
    return normal_model(rotation @ np.diag(np.logspace(-2, 2, 32)) @ rotation.T)


@pytest.mark.parametrize("build", [scales_of_six_decades, equicorrelation, rotated_ellipsoid])
def test_reaches_the_target_acceptance(build):
    assert acceptance(build()) == pytest.approx(0.234, abs=0.05)


def test_as_published_it_does_not():
    """Without whitening, no ν makes up for a γ that is too long in some directions."""
    assert acceptance(scales_of_six_decades(), whiten=False) < 0.234 - 0.05
