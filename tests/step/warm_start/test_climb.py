"""The climb that the warm start and looks for other modes share."""

import numpy as np
import pytest

from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.search import Search


def climbed(logp, start, factor=None):
    """Return the places that a climb from a start leads to, and the Search that it made."""
    search = Search(logp, start, 10_000)
    factor = np.eye(start.size) if factor is None else factor
    return list(climb(search, start, logp(start), factor)), search


def test_it_ends_near_the_top_and_knows_the_curvature():
    sds = np.array([0.5, 1.0, 4.0])
    places, search = climbed(lambda x: -0.5 * np.sum((x / sds) ** 2), np.full(3, 20.0))
    f = [place[1] for place in places]
    assert np.all(np.diff(f) > 0)
    assert -f[-1] < 0.2
    factor = places[-1][2]
    np.testing.assert_allclose(np.sqrt(np.diag(factor @ factor.T)), sds, rtol=0.3)
    assert len(search.logps) < 60


def test_it_climbs_along_an_edge():
    """Where a difference is not finite, the one to the other side is; at a point, none is."""

    def logp(x):
        return -0.5 * x @ x if x[0] < 1 else -np.inf

    places, _ = climbed(logp, np.array([0.995, 9.0]))
    np.testing.assert_allclose(places[-1][0], 0, atol=0.8)
    alone, _ = climbed(lambda x: 0.0 if (x == 0).all() else -np.inf, np.zeros(2))
    assert len(alone) == 1


@pytest.mark.parametrize("d", [1, 6])
def test_points_of_a_gradient_may_be_evaluated_together(d):
    asked = []

    def logp(x):
        return -0.5 * x @ x

    logp.announce = lambda points: asked.append(len(points))
    places, _ = climbed(logp, np.full(d, 5.0))
    assert asked == [d] * len(places)
