"""What CyclicalKAM's chains learn together of modes, by hand and against known answers."""

import numpy as np
import pytest

from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.kameleon.learn_modes import choose_evenly, drop_clusters, log_masses
from pymc_kameleon.samplers.kameleon.mode_moves import Clusters


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
