"""What chains share that learn together."""

from itertools import product

import numpy as np
import pytest
from models import normal
from runs import sample, unpooled

import pymc_kameleon as pk
from pymc_kameleon.core.history import History, recent, record
from pymc_kameleon.core.moments import Moments
from pymc_kameleon.samplers.learned_shape import pool_moments
from pymc_kameleon.step.pooling import in_the_same_place, pool_histories


def learned(mean, covariance):
    moments = Moments.start(np.ones(len(mean)), 1000)
    moments.mean[:] = mean
    moments.factor[:] = np.linalg.cholesky(covariance)
    return moments


def spread(moments):
    return moments.factor @ moments.factor.T


COVARIANCE = np.array([[4.0, 1.0], [1.0, 2.0]])


def test_means_that_differ_a_little_count_as_they_are():
    means = np.array([[0.1, 0.2], [-0.3, 0.1], [0.4, -0.2]])
    chains = [learned(mean, COVARIANCE * (i + 1)) for i, mean in enumerate(means)]
    pool_moments(chains)
    expected = 2 * COVARIANCE + np.cov(means.T, bias=True)
    for moments in chains:
        np.testing.assert_allclose(spread(moments), expected)


def test_means_that_differ_much_count_as_the_spread_within():
    """In their direction; as if the chains were in several modes."""
    far = np.array([100.0, 50.0])
    chains = [learned(sign * far, COVARIANCE) for sign in (-1, 1)]
    pool_moments(chains)
    root = np.linalg.cholesky(COVARIANCE)
    values = np.linalg.eigvalsh(np.linalg.solve(root, np.linalg.solve(root, spread(chains[0])).T))
    np.testing.assert_allclose(values, [1, 2])


def test_a_chain_alone_keeps_what_it_has():
    chain = learned([1.0, 2.0], COVARIANCE)
    pool_moments([chain])
    np.testing.assert_array_equal(chain.factor, np.linalg.cholesky(COVARIANCE))


@pytest.mark.parametrize("collapsed", [np.nan, 0.0, 1e-200])
def test_a_covariance_that_has_collapsed_is_replaced(collapsed):
    """As that of a chain that never moved; if all have, each keeps what it has."""
    chains = [learned([1.0, 2.0], COVARIANCE) for _ in range(3)]
    chains[0].mean[:] = 9.0
    chains[0].factor[:] *= collapsed
    pool_moments(chains)
    for moments in chains:
        np.testing.assert_allclose(spread(moments), COVARIANCE)
        np.testing.assert_allclose(moments.mean, [1, 2])
    chains[0].factor[:] = chains[1].factor[:] = lost = chains[2].factor * collapsed
    pool_moments(chains[:2])
    np.testing.assert_array_equal(chains[0].factor, lost)


def past(first, n):
    """Return a record of n different states, each of which comes three times."""
    history = History.empty(100, 2)
    for i in range(n):
        for _ in range(3):
            record(history, np.array([first + i, 0.0]))
    return history


def test_pasts_are_mixed_evenly_and_in_order():
    histories = [past(0.0, 20), past(1000.0, 20)]
    pool_histories(histories)
    rows = histories[0].points[: histories[0].counts[0], 0]
    assert len(set(rows)) == len(rows) == 20  # the newer half of each
    newest = histories[0].points[slice(*recent(histories[0])), 0]
    assert np.count_nonzero(newest >= 1000) == len(newest) // 2
    assert rows.min() == 10
    for chain in (rows[rows < 1000], rows[rows >= 1000]):
        assert (np.diff(chain) > 0).all()
    np.testing.assert_array_equal(*(history.points[:20] for history in histories))
    record(histories[0], np.full(2, 7.0))
    assert histories[0].counts[0] == 21


def test_many_pasts_fit_into_the_room_of_one():
    histories = [past(1000.0 * k, 30) for k in range(8)]
    pool_histories(histories)
    assert histories[0].counts[0] <= 100
    rows = histories[0].points[: histories[0].counts[0], 0]
    assert {*(rows // 1000)} == {*range(8)}
    assert {*range(29, 8029, 1000)} <= {*rows}  # the newest of each


def test_a_chain_in_a_bad_place_learns_alone():
    step = pk.GAM(model=normal(2))
    chains = [step.for_chain() for _ in range(3)]
    for chain, logp in zip(chains, (-1.0, -12.0, -20.0), strict=True):
        chain.setup_chain(np.random.default_rng(1), 100, 100)
        chain.state.logp[0] = logp
    assert in_the_same_place(chains) == chains[:2]


def test_chains_pool_their_covariances():
    """Not one of them alone: what they know in the end differs less from chain to chain."""
    step = pk.GAM(model=normal(3), steps_per_draw=1)
    deviations = {True: 0.0, False: 0.0}
    for pool, seed in product(deviations, range(4)):
        result = sample(unpooled(step, pool), tune=600, chains=4, random_seed=seed)
        deviations[pool] += np.log(np.linalg.det(result["learned"]["covariance"])).std()
    assert deviations[True] < 0.5 * deviations[False]


def test_points_of_kam_are_of_all_chains():
    step = pk.KAM(model=normal(2), steps_per_draw=1, n_subsample=60)
    for pool in (True, False):
        result = sample(unpooled(step, pool), tune=400, chains=3, discard_tuned_samples=False)
        own = result["warmup_posterior"]["x"].values[:, :, 0]
        points = result["learned"]["subsample"].values[:, :, 0]
        others = [np.abs(points[k][:, None] - own[k]).min(axis=1) > 1e-9 for k in range(3)]
        assert (np.mean(others, axis=1) > 0.3).all() == pool
        assert np.any(others) == pool
