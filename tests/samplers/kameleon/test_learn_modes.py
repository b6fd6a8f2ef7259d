"""The modes of a chain's past, against brute force and known answers."""

import numpy as np
import pytest
from invariance import Mixture

from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.samplers.kameleon.learn_modes import (
    BLEND,
    Archive,
    blended_factors,
    choose_evenly,
    drop_clusters,
    find_modes,
    log_masses,
)
from pymc_kameleon.samplers.kameleon.mode_moves import Clusters

NORMAL = Mixture([1.0], [[0, 0]], [1])


def found(log_density, points, runs, whitening=None):
    """Return the modes of points, each as a set of rows; only stragglers are in none."""
    points = np.asarray(points, float)
    logps = np.array([log_density(x) for x in points])
    if whitening is None:
        whitening = np.eye(points.shape[1])
    modes = find_modes(Archive(points, logps, np.asarray(runs, float)), log_density, whitening)
    rows = np.concatenate(modes)
    assert len(rows) == len(np.unique(rows)) >= 0.9 * len(points)
    sizes = [len(rows) for rows in modes]
    assert sizes == sorted(sizes, reverse=True)
    return [set(rows.tolist()) for rows in modes]


def of_components(mixture, sizes, runs_of_each, seed=0):
    """Draw points of each component, divided into runs; return points, runs, and components."""
    rng, points, runs, components = np.random.default_rng(seed), [], [], []
    for k, (mean, factor) in enumerate(mixture.modes):
        points.append(Mixture([1.0], [mean], [factor @ factor.T]).sample(rng, sizes[k]))
        runs.append(rng.integers(runs_of_each, size=sizes[k]) + runs_of_each * k)
        components.append(np.full(sizes[k], k))
    return map(np.concatenate, (points, runs, components))


def assert_separates(mixture, sizes, runs_of_each=4, whitening=None, seed=0):
    points, runs, components = of_components(mixture, sizes, runs_of_each, seed)
    modes = found(mixture.log_density, points, runs, whitening)
    labels = [set(components[list(mode)].tolist()) for mode in modes]
    assert sorted(map(tuple, labels)) == [(k,) for k in range(len(sizes))]


# ---- find_modes -----------------------------------------------------------------------------


@pytest.mark.parametrize("n", [20, 200, 2000])
@pytest.mark.parametrize("d", [1, 2, 8, 32])
@pytest.mark.parametrize("whitened", [False, True])
def test_a_normal_mode_is_never_split(d, n, whitened):
    """Whatever the scales, and however few points a run has: a path between two is concave."""
    rng = np.random.default_rng(d)
    root = rng.standard_normal((d, 2 * d)) * np.logspace(-2, 2, d)[:, None]
    target = Mixture([1.0], [rng.standard_normal(d)], [root @ root.T])
    points, runs = target.sample(rng, n), rng.integers(10, size=n)
    whitening = target.factors[0] if whitened else None
    assert len(found(target.log_density, points, runs, whitening)) == 1


@pytest.mark.parametrize("seed", range(3))
def test_a_banana_is_one_mode(seed):
    """It is joined step by step: each run is one piece of it."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(800) * 3
    points = np.c_[x, 0.3 * (x**2 - 9) + rng.standard_normal(800)]

    def log_density(x):
        return -0.5 * (x[0] ** 2 / 9 + (x[1] - 0.3 * (x[0] ** 2 - 9)) ** 2)

    assert len(found(log_density, points, np.digitize(x, [-4, -1, 1, 4]))) == 1


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 8, 32])
@pytest.mark.parametrize("sds", [(1, 1), (1, 10), (0.1, 3)])
def test_two_modes(d, sds):
    """Of equal and of very different widths."""
    means = np.zeros((2, d))
    means[1, 0] = 10 * sum(sds)
    assert_separates(Mixture([0.5, 0.5], means, np.square(sds)), [300, 300])


def test_two_modes_whose_weights_differ_by_far():
    """As long as both were visited."""
    target = Mixture([1 - 1e-6, 1e-6], [[0, 0], [12, 0]], [1, 1])
    assert_separates(target, [300, 30])


@pytest.mark.parametrize("k", [5, 10])
def test_many_modes(k):
    angles = 2 * np.pi * np.arange(k) / k
    means = 30 * np.c_[np.cos(angles), np.sin(angles)]
    assert_separates(Mixture(np.full(k, 1 / k), means, np.linspace(0.2, 2, k)), [100] * k, 3)


def test_runs_of_few_points():
    """Of as many searches as there may be."""
    target = Mixture([0.5, 0.5], [[0, 0], [14, 0]], [1, 1])
    assert_separates(target, [100, 100], 25)


def test_one_run_alone():
    for n in (4, 40):
        points = NORMAL.sample(np.random.default_rng(1), n)
        assert len(found(NORMAL.log_density, points, np.zeros(n))) == 1


def test_a_run_in_two_modes_does_not_join_them():
    """As of a walk that happened to jump."""
    target = Mixture([0.5, 0.5], [[0, 0], [16, 0]], [1, 1])
    points, _, components = of_components(target, [150, 150], 1)
    rng = np.random.default_rng(2)
    runs = np.where(rng.random(300) < 0.3, 2, components)
    modes = found(target.log_density, points, runs)
    assert len(modes) == 2
    assert all(len(set(components[list(mode)])) == 1 for mode in modes)


def test_what_is_impossible_separates():
    """A wall where the density is zero."""

    def log_density(x):
        return -np.inf if 0.5 < x[0] < 1.5 else -0.5 * x @ x

    x = np.random.default_rng(0).uniform(-1, 3, (200, 2))
    x = x[(x[:, 0] < 0.5) | (x[:, 0] > 1.5)]
    modes = found(log_density, x, x[:, 0] > 1)
    assert len(modes) == 2


def test_a_shallow_valley_does_not_separate():
    """A walk crosses it."""
    shallow, deep = (Mixture([0.5, 0.5], [[0], [distance]], [1, 1]) for distance in (3, 12))
    for target, n in [(shallow, 1), (deep, 2)]:
        points, runs, _ = of_components(target, [100, 100], 1)
        assert len(found(target.log_density, points, runs)) == n


def test_evaluations_are_few():
    """Also where no two runs can be joined."""
    count = 0

    def log_density(x):
        nonlocal count
        count += 1
        return 0.0 if (x == x.round()).all() else -100.0

    points = np.random.default_rng(0).integers(100, size=(1000, 3)).astype(float)
    runs = np.arange(1000) // 20
    find_modes(Archive(points, np.zeros(1000), runs), log_density, np.eye(3))
    assert count <= 100 * 5 * 8


# ---- its parts ------------------------------------------------------------------------------


def test_blended_factors():
    """By their formula: a mode of few points takes its shape from all of them, but not its size."""
    rng = np.random.default_rng(0)
    modes = [rng.standard_normal((n, 2)) * sd + 5 for n, sd in [(3, 1), (500, [10, 1]), (40, 0.1)]]
    covariances = [shrunk_covariance(points) for points in modes]
    pooled = sum(len(p) * c for p, c in zip(modes, covariances, strict=True)) / 543
    found = blended_factors(modes)
    for points, covariance, factor in zip(modes, covariances, found, strict=True):
        n = len(points)
        volume = np.trace(np.linalg.inv(pooled) @ covariance) / 2
        volume = (n * volume + 1) / (n + 1)
        own = n / (n + BLEND * 2)
        expected = own * covariance + (1 - own) * volume * pooled
        np.testing.assert_allclose(factor, np.linalg.cholesky(expected), rtol=1e-9)


def test_log_masses():
    """Those of normal modes, however often each was visited; few points tell nothing."""
    sds, weights, sizes = np.array([0.5, 1, 3]), np.array([0.6, 0.1, 0.3]), [20_000, 4000, 2]
    d, rng = 3, np.random.default_rng(4)
    labels = np.repeat(np.arange(3), sizes)
    squares = rng.chisquare(d, len(labels))
    logps = np.log(weights[labels]) - d * np.log(sds[labels]) - squares / 2 - 1000
    factors, before = sds[:, None, None] * np.eye(d), np.log([0.3, 0.3, 0.4])
    found = np.exp(log_masses(before, factors, labels, logps))
    assert found.sum() == pytest.approx(1)
    assert found[0] / found[1] == pytest.approx(6, rel=0.05)
    shift = np.mean(np.log(found[:2]) - before[:2])
    assert np.log(found[2]) == pytest.approx(before[2] + shift)


def test_drop_clusters():
    """Those of negligible weight; the weights of the others sum to 1."""
    weights = np.array([0.3, 1e-6, 0.7 - 1e-6])
    clusters = allocate(Clusters, {"d": 2})
    clusters.n[0], clusters.log_weights[:3] = 3, np.log(weights)
    clusters.means[:3, 0] = [1, 2, 3]
    clusters.factors[:3] = np.eye(2) * np.array([1, 2, 3])[:, None, None]
    drop_clusters(clusters)
    assert clusters.n[0] == 2
    assert np.exp(clusters.log_weights[:2]).sum() == pytest.approx(1)
    np.testing.assert_array_equal(clusters.means[:2, 0], [1, 3])
    np.testing.assert_array_equal(clusters.factors[:2, 0, 0], [1, 3])


@pytest.mark.parametrize(
    ("sizes", "m", "expected"),
    [
        ([100, 100], 50, [25, 25]),
        ([1000, 10, 3], 30, [17, 10, 3]),
        ([5, 5], 50, [5, 5]),
        ([200], 50, [50]),
        ([40, 40, 40], 30, [10, 10, 10]),
    ],
)
def test_choose_evenly(sizes, m, expected):
    labels = np.repeat(np.arange(len(sizes)), sizes)
    rows = choose_evenly(labels, m, np.random.default_rng(0))
    assert len(np.unique(rows)) == len(rows) == sum(expected)
    np.testing.assert_array_equal(np.bincount(labels[rows]), expected)


def test_choose_evenly_is_uniform_and_in_random_order():
    labels = np.repeat([0, 1], [20, 5])
    counts, first = np.zeros(25), np.zeros(2)
    for seed in range(4000):
        rows = choose_evenly(labels, 8, np.random.default_rng(seed))
        counts[rows] += 1
        first[labels[rows[0]]] += 1
    np.testing.assert_allclose(counts[:20] / 4000, 4 / 20, atol=0.03)
    np.testing.assert_allclose(counts[20:] / 4000, 4 / 5, atol=0.03)
    np.testing.assert_allclose(first / 4000, 0.5, atol=0.04)
