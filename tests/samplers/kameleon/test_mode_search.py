"""Modes that are found along rays, and by symmetries, against known answers."""

from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from invariance import Mixture

from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.kameleon.learn_modes import Archive
from pymc_kameleon.samplers.kameleon.mode_moves import Clusters
from pymc_kameleon.samplers.kameleon.mode_search import (
    RayLook,
    known_modes,
    set_clusters,
    with_images,
)


def normal_mode(mixture, k):
    """Return a component of a mixture as a Mode."""
    return Mode(mixture.means[k], mixture.factors[k], mixture.log_density(mixture.means[k]))


def chain_that_knows(modes, d):
    clusters = allocate(Clusters, {"d": d})
    set_clusters(clusters, modes)
    return SimpleNamespace(parameters=SimpleNamespace(clusters=clusters))


@pytest.mark.parametrize("d", [2, 8, 16])
def test_a_ray_leads_from_a_wide_mode_to_a_narrow_one(d):
    """Far away, where the narrow one attracts next to nothing, only a ray comes upon it."""
    means = np.zeros((2, d))
    means[1, 0] = 16
    target = Mixture([0.8, 0.2], means, [2, 0.5])
    look = RayLook(target.log_density, [normal_mode(target, 0)], 1500 * d, np.random.default_rng(d))
    look.go()
    modes = look.modes
    assert len(modes) == 2
    np.testing.assert_allclose(modes[1].mean, means[1], atol=0.5)
    np.testing.assert_allclose(np.diag(modes[1].factor), np.sqrt(0.5), rtol=0.3)
    assert modes[1].mass - modes[0].mass == pytest.approx(np.log(0.25), abs=0.5)


def test_a_look_takes_no_more_evaluations_than_it_may():
    seen = []
    target = Mixture([1.0], [[0.0, 0.0]], [1])

    def log_density(x):
        seen.append(x)
        return target.log_density(x)

    look = RayLook(log_density, [normal_mode(target, 0)], 500, np.random.default_rng(1))
    look.go()
    assert len(seen) == 500
    assert len(look.modes) == 1


def test_images_of_modes():
    """Of each known one, and of its images; none of what is known, or far lower."""
    means = np.array([[3.0, 9, 1], [9, 3, 1]])
    target = Mixture([0.5, 0.5], means, [np.diag([1, 4, 0.1]), np.diag([4, 1, 0.1])])
    exchange, reverse = np.eye(3)[[1, 0, 2]], np.diag([-1.0, 1, 1])
    for known in ([0], [0, 1]):
        modes = [normal_mode(target, k) for k in known]
        found = with_images(modes, [reverse, exchange], target.log_density)
        assert len(found) == 2
        np.testing.assert_allclose(found[1].mean, means[1])
        covariance = found[1].factor @ found[1].factor.T
        np.testing.assert_allclose(covariance, np.diag([4, 1, 0.1]), atol=1e-12)


def test_what_chains_know():
    """Where they are, from their past, and what was found before; each mode once."""
    target = Mixture([0.5, 0.5], [[0.0, 0], [20, 0]], [1, np.diag([4, 0.1])])
    rng = np.random.default_rng(3)
    archives = []
    for k in (0, 1, 0):
        mean, factor = target.means[k], target.factors[k]
        points = mean + rng.standard_normal((300, 2)) @ factor.T
        archives.append(Archive(points, np.array([target.log_density(x) for x in points])))
    third = Mode(np.array([0.0, 30]), np.eye(2), -3.0)
    chains = [chain_that_knows([normal_mode(target, 1), third], 2), chain_that_knows([], 2)]
    modes = known_modes(chains, archives, target.log_density)
    np.testing.assert_allclose([m.mean for m in modes[:2]], target.means, atol=0.3)
    np.testing.assert_array_equal(modes[2].mean, third.mean)
    assert len(modes) == 3
    factor = modes[1].factor
    np.testing.assert_allclose(np.diag(factor @ factor.T), [4, 0.1], rtol=0.3)


def test_clusters_of_most_mass_come_first():
    clusters = allocate(Clusters, {"d": 2})
    set_clusters(clusters, [])
    assert clusters.n[0] == 0
    mode = partial(Mode, factor=np.eye(2))
    set_clusters(clusters, [mode(np.full(2, float(k)), logp=k % 30) for k in range(40)])
    assert clusters.n[0] == 32
    np.testing.assert_array_equal(clusters.means[:4, 0], [29, 28, 27, 26])
    assert np.exp(clusters.log_weights).sum() == pytest.approx(1)
