"""KAM against the slow version from the paper, on the same random numbers."""

import copy
from itertools import product

import numpy as np
import pytest
import reference
from kameleon import (
    TARGETS,
    banana_model,
    compare_by_hand,
    line_model,
    redraws,
    start_chain,
    tuned,
    z_score,
)
from models import normal_model
from reference import assert_equal
from runs import driven as run
from scipy.spatial.distance import pdist
from scipy.stats import multivariate_normal

import pymc_kameleon as pk
from pymc_kameleon.samplers import Decay
from pymc_kameleon.samplers.kameleon import kam
from pymc_kameleon.step.initial_search import InitialSearch

# ---- transition -----------------------------------------------------------------------------

KERNELS = [
    pk.samplers.kernels.Gaussian(0.7),
    pk.samplers.kernels.Matern(),
    pk.samplers.kernels.Matern(1.5),
    pk.samplers.kernels.Matern(2.5, 2.0),
    pk.samplers.kernels.Linear(),
]

VARIANTS = [
    ("banana", {}),
    ("banana", {"whiten": False}),
    ("banana", {"gamma": 0.05, "n_subsample": 7}),
    ("normal", {}),
    ("line", {}),
]


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        *VARIANTS,
        *(("banana", {"kernel": kernel}) for kernel in KERNELS),
        ("banana", {"kernel": pk.samplers.kernels.Matern(4), "whiten": False}),
        ("normal", {"kernel": pk.samplers.kernels.Matern(10)}),
        ("line", {"kernel": pk.samplers.kernels.Linear()}),
    ],
)
def test_transitions_by_hand(name, arguments):
    step = tuned(pk.KAM, name, **arguments)
    chain = reference.KAM(step)
    assert len(chain.z) >= 7
    stats, _ = compare_by_hand(step, chain, name, 400)
    assert 0 < stats["accept_share"].sum() < 400
    np.testing.assert_allclose(stats["scaling"], chain.nu)
    np.testing.assert_allclose(stats["bandwidth"], chain.bandwidth)
    assert (stats["n_logp"][1:] == 1).all()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        VARIANTS[0],
        *(pytest.param(*VARIANTS[i], marks=pytest.mark.slow) for i in (4, 1, 2, 3)),
    ],
)
def test_reported_acceptance_is_unbiased(name, arguments):
    """Without its correction for the rejections that are seen early, it is not."""
    step = tuned(pk.KAM, name, **arguments)
    stats, alphas = compare_by_hand(step, reference.KAM(step), name, 4000, seed=8)
    reported = stats["accept_prob"]
    uncorrected = np.where(reported == 0, 0, alphas)
    assert 0.1 < np.mean(reported == 0) < 0.8
    assert abs(z_score(reported - alphas)) < 4
    if "gamma" not in arguments:  # else ν is at its bound, and hardly anything is seen early
        assert z_score(uncorrected - alphas) < -5


@pytest.mark.parametrize(
    ("sampler", "arguments"),
    [
        (pk.KAM, {}),
        (pk.KAM, {"whiten": False}),
        pytest.param(pk.PCAKAM, {}, marks=pytest.mark.slow),
    ],
)
def test_without_tuning_it_is_a_random_walk(sampler, arguments):
    """Even with `gamma` given, which belongs to the z that it has not."""
    step = sampler(model=banana_model(), steps_per_draw=1, gamma=0.05, **arguments)
    walk = pk.baselines.RWM(model=banana_model(), steps_per_draw=1)
    for one in (step, walk):
        one.setup_chain(np.random.default_rng(3), 0, 300)
    (positions, stats, _), (expected, walk_stats, _) = (
        run(one, 300, TARGETS["banana"].start) for one in (step, walk)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-8, atol=1e-10)
    np.testing.assert_array_equal(stats["scaling"], walk_stats["scaling"])


@pytest.mark.parametrize(
    ("sampler", "arguments", "n_walk", "walk", "n_tune"),
    [
        (pk.KAM, {}, 1400, pk.GAM, 2000),
        (pk.PCAKAM, {}, 1400, pk.GAM, 2000),
        (pk.CyclicalKAM, {}, 400, pk.GAM, 400),
        (pk.KAM, {"whiten": False}, 200, pk.baselines.RWM, 2000),
    ],
)
def test_until_there_is_a_z_it_is_an_adaptive_walk(
    sampler, arguments, n_walk, walk, n_tune, monkeypatch
):
    """On the same random numbers, with the same report; and no longer."""
    monkeypatch.setattr(InitialSearch, "may_look", False)  # which depends on tuning
    step = sampler(model=banana_model(), steps_per_draw=1, **arguments)
    walk = walk(model=banana_model(), steps_per_draw=1)
    step.setup_chain(np.random.default_rng(3), 2000, 1)
    walk.setup_chain(np.random.default_rng(3), n_tune, 1)
    step.search = type(walk.search)(step)
    found, expected = (run(one, n_walk + 10, TARGETS["banana"].start) for one in (step, walk))
    for a, b in zip(
        (found[0], found[1]["accept_prob"]), (expected[0], expected[1]["accept_prob"]), strict=True
    ):
        np.testing.assert_allclose(a[:n_walk], b[:n_walk], rtol=1e-8, atol=1e-10)
        assert not np.allclose(a[n_walk:], b[n_walk:])
    scales = [one["scaling"][: n_walk - 1] for _, one, _ in (found, expected)]
    np.testing.assert_allclose(*scales, rtol=1e-8)


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


@pytest.mark.parametrize("kernel", [pk.samplers.kernels.Gaussian(), *KERNELS], ids=str)
@pytest.mark.parametrize("whiten", [False, True])
def test_z_and_what_follows_from_it(kernel, whiten):
    """Distinct states of the newest half of the past, σ, γ and ν₀ by their definitions."""
    n, m = 800, 40
    step = start_chain(pk.KAM, "banana", n, seed=5, n_subsample=m, whiten=whiten, kernel=kernel)
    positions, _, _ = run(step, n, TARGETS["banana"].start)
    learned = reference.KAM(step)
    assert learned.z.shape == (m, 2)
    assert np.array_equal(learned.whitening, np.eye(2)) == (not whiten)

    # z is drawn for the last time after 85 % of tuning.
    visited = np.unique(positions[17 * n // 40 : 17 * n // 20], axis=0)
    distances = np.abs(visited[:, None] - learned.z @ learned.whitening.T).max(axis=2)
    assert distances.min(axis=0).max() < 1e-12
    assert len(np.unique(distances.argmin(axis=0))) == m

    distance = np.median(pdist(learned.z))
    expected = distance / 2 if kernel.bandwidth == "median" else kernel.bandwidth
    assert learned.bandwidth == pytest.approx(expected)
    s = distance / np.sqrt(2 * 2)
    assert learned.gamma == pytest.approx(0.25 * 2.38 / np.sqrt(2) * s)
    trace = np.mean([np.trace(learned.kernel_covariance(z)) for z in learned.z])
    assert step.parameters.nu0[0] ** 2 == pytest.approx(2.38**2 * s**2 / trace)


def log_gamma_of(parameters):
    return parameters.subsample.shape.log_scale[0]


def followed(n_tune, n, **arguments):
    """Run n transitions on the banana; return positions, acceptance and parameters after each."""
    arguments = {"n_subsample": 30} | arguments
    step = start_chain(pk.KAM, "banana", n_tune, n - n_tune, seed=5, **arguments)
    point, positions, accept, kept = {"x": TARGETS["banana"].start}, [], [], []
    for t in range(n):
        if t == n_tune:
            step.stop_tuning()
        point, [stats] = step.step(point)
        positions.append(point["x"])
        accept.append(stats["accept_prob"])
        kept.append(copy.deepcopy(step.parameters))
    return np.array(positions), np.array(accept), kept


@pytest.mark.parametrize("gamma", [0.02, 0.7])
@pytest.mark.parametrize("whiten", [False, True])
def test_gamma_of_the_user(gamma, whiten):
    """From the first z on, and not before that."""
    positions, _, kept = followed(400, 600, gamma=gamma, whiten=whiten)
    has_z = [bool(p.subsample.m[0]) for p in kept]
    first = has_z.index(True)
    newest = (positions[(t + 1) // 2 : t + 1] for t in range(40, 400))
    enough = [1 + np.count_nonzero(np.diff(x, axis=0).any(axis=1)) >= 2 * 2 + 2 for x in newest]
    assert first == 280 if whiten else first == 40 + enough.index(True)
    assert all(has_z[first:])
    found = [np.exp(log_gamma_of(p)) for p in kept[:400]]
    np.testing.assert_allclose(found[first:], gamma, rtol=1e-12)
    assert all(value != pytest.approx(gamma) for value in found[:first])
    assert all(log_gamma_of(p) == log_gamma_of(kept[399]) for p in kept[400:])


@pytest.mark.slow
def test_by_default_nu_stays_about_its_first_guess():
    """Where S vanishes, or no step is short enough, ν must not run away."""
    _, _, kept = followed(4000, 4000, target_accept=0.999)
    log_rho = np.array([p.log_rho[0] for p in kept])
    assert log_rho.min() >= np.log(1e-3)
    _, _, kept = followed(4000, 4000, target_accept=0.001)
    assert max(p.log_rho[0] for p in kept) <= np.log(10)


def test_redraws():
    """At p_t = (1+t)^-½, besides the first and the last of all."""
    n = 4000
    times = redraws(followed(n, n)[2])
    assert times[0] == 2800
    assert times[-1] == 3399
    p = (1.0 + np.arange(1, 599)) ** -0.5
    deviation = np.sqrt((p * (1 - p)).sum())
    assert len(times) - 2 == pytest.approx(p.sum(), abs=4 * deviation)


@pytest.mark.slow
def test_keep_adapting():
    """ν is tuned with steps that go on to fall, and z redrawn ever more rarely."""
    n_tune, n, n_walk = 400, 6000, 280
    positions, accept, kept = followed(n_tune, n, keep_adapting=True)
    times = np.array(redraws(kept))
    for start, stop in [(n_tune, 1000), (1000, 2000), (5000, 6000)]:
        p = (1.0 + np.arange(start, stop) - n_walk) ** -0.5
        found = ((times >= start) & (times < stop)).sum()
        assert found == pytest.approx(p.sum(), abs=4 * np.sqrt((p * (1 - p)).sum()))
    assert ((times >= 1000) & (times < 2000)).sum() > ((times >= 5000) & (times < 6000)).sum()

    log_rho = kept[n_tune - 1].log_rho[0]
    for t in range(n_tune, n):
        log_rho += (1 + 10 + t - n_walk) ** -0.6 * (accept[t] - 0.234)
        log_rho = np.clip(log_rho, np.log(1e-3), np.log(10))
        assert kept[t].log_rho[0] == pytest.approx(log_rho, rel=1e-9, abs=1e-10)

    first = np.tril(kept[0].subsample.shape.factor)
    _, sigma = reference.moments(positions[: times[-1] + 1], n_tune, first @ first.T)[-1]
    expected, last = np.linalg.cholesky(sigma), kept[-1].subsample
    np.testing.assert_allclose(np.tril(last.shape.factor), expected, rtol=1e-6, atol=1e-9)
    # z comes from the newest half of all states, so from after tuning.
    z = last.z[:, : last.m[0]].T @ np.tril(last.shape.factor).T
    distances = np.abs(positions[:, None] - z).max(axis=2)
    assert distances.min(axis=0).max() < 1e-10
    assert distances.argmin(axis=0).min() > times[-1] // 4


def test_keep_adapting_is_tuning_as_usual_while_tuning_lasts():
    (one, _, kept), (other, _, kept_other) = (
        followed(400, 500, keep_adapting=keep) for keep in (False, True)
    )
    np.testing.assert_array_equal(one[:400], other[:400])
    assert_equal(kept_other[399], kept[399])
    assert kept_other[499].log_rho[0] != kept[499].log_rho[0]
    assert_equal(kept[499], kept[399])


@pytest.mark.parametrize("whiten", [False, True])
def test_adaptation_by_hand(whiten):
    """An adaptive walk for 70 % or 10 %, redraws of z up to 85 %, ρ alone for the last 15 %.

    Given the compiled chain's states, reported acceptance and times of redraws.
    """
    n, n_seed, n_learning = 800, 100, 680
    n_walk = 560 if whiten else 80
    positions, accept, kept = followed(n, n, whiten=whiten, n_subsample=50)
    assert [bool(p.subsample.m[0]) for p in kept] == [False] * n_walk + [True] * (n - n_walk)
    times = redraws(kept)
    assert times[0] == n_walk
    assert times[-1] == n_learning - 1
    expected = np.sum((1.0 + np.arange(n_learning - n_walk)) ** -0.5)  # more than their variance
    assert expected - 4 * expected**0.5 < len(times) < expected + 4 * expected**0.5

    first = np.tril(kept[0].subsample.shape.factor)
    sigmas = [sigma for _, sigma in reference.moments(positions, n, first @ first.T)]
    for t in range(n_seed - 1, n):
        learned = t if t < n_walk else max(r for r in times if r <= t)
        expected = np.linalg.cholesky(sigmas[learned]) if whiten else np.eye(2)
        np.testing.assert_allclose(
            np.tril(kept[t].subsample.shape.factor), expected, rtol=1e-7, atol=1e-10
        )

    best, last, seedings = np.log(2.38 / np.sqrt(2)), 0, reference.seeding_times(2, n)
    assert seedings == [100, 200, 400]
    log_gamma, log_rho, settled = best, 0.0, []
    for t in range(n):
        if t < n_walk:
            since = t - last + (10 if last else 0)
            log_gamma += (1 + since) ** -0.6 * (accept[t] - 0.234)
            if whiten and t + 1 in seedings:
                log_gamma, last = best, t + 1
            assert log_gamma_of(kept[t]) == pytest.approx(log_gamma, rel=1e-9, abs=1e-12)
        elif t > n_walk:
            log_rho += (1 + 10 + t - n_walk) ** -0.6 * (accept[t] - 0.234)
            settled += [log_rho] if t >= (n_learning + n) // 2 else []
            final = np.mean(settled) if t == n - 1 else log_rho
            assert kept[t].log_rho[0] == pytest.approx(final, rel=1e-9, abs=1e-12)


# ---- options --------------------------------------------------------------------------------


BOTH = pk.KAM, pk.PCAKAM


@pytest.mark.parametrize(
    ("samplers", "option", "values"),
    [
        ([pk.KAM], "kernel", ["gaussian", pk.samplers.kernels.Gaussian, 1.0, True, np.exp]),
        (BOTH, "n_subsample", [0, 1, -5, 2.5, 50.0, True, "a", np.nan]),
        (BOTH, "gamma", [0, -1, np.nan, np.inf, True, "a", (1, 1, 1), np.ones(2), Decay(1)]),
        (BOTH, "whiten", [0, 1, None, "yes", np.nan]),
        ([pk.PCAKAM], "n_components", [0, -1, 2.5, 10.0, True, "a", None, np.nan]),
    ],
)
def test_impossible_options(samplers, option, values):
    for sampler, value in product(samplers, values):
        with pytest.raises(ValueError, match=option):
            sampler(model=line_model(), **{option: value})


# ---- default arguments suffice --------------------------------------------------------------


def acceptance(model, draws=500, **arguments):
    """Share of accepted proposals after 1000 draws of tuning from the mode."""
    step = pk.KAM(model=model, **arguments)
    step.setup_chain(np.random.default_rng(3), 1000, draws)
    positions, _, _ = run(step, 1000, np.zeros(model["x"].type.shape))
    step.stop_tuning()
    _, stats, _ = run(step, draws, positions[-1])
    return stats["accept_share"].mean()


def scales_of_six_decades():
    return normal_model(np.diag(np.logspace(-3, 3, 10) ** -2.0))


def equicorrelation():
    return normal_model(np.linalg.inv(0.01 * np.eye(10) + 0.99))


def rotated_ellipsoid():
    rotation, _ = np.linalg.qr(np.random.default_rng(0).standard_normal((32, 32)))
    return normal_model(rotation @ np.diag(np.logspace(-2, 2, 32)) @ rotation.T)


@pytest.mark.parametrize(
    "build",
    [
        equicorrelation,
        pytest.param(scales_of_six_decades, marks=pytest.mark.slow),
        pytest.param(rotated_ellipsoid, marks=pytest.mark.slow),
    ],
)
def test_reaches_the_target_acceptance(build):
    assert acceptance(build()) == pytest.approx(0.234, abs=0.05)


def test_as_published_it_does_not():
    """Without whitening, no ν makes up for a γ that is too long in some directions."""
    assert acceptance(scales_of_six_decades(), whiten=False) < 0.234 - 0.05
