"""The climb that the warm start and looks for other modes share."""

import numpy as np

from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.search import Search


def climbed(logp, start):
    """Return the places that a climb from a start leads to."""
    search = Search(logp, start, 100)
    return list(climb(search, start, logp(start), np.eye(start.size)))


def test_it_ends_near_the_top_and_knows_the_curvature():
    """The points of a gradient may be evaluated together."""
    sds, asked = np.array([0.5, 1.0, 4.0]), []

    def logp(x):
        return -0.5 * np.sum((x / sds) ** 2)

    logp.announce = lambda points: asked.append(len(points))
    places = climbed(logp, np.full(3, 20.0))
    f = [place[1] for place in places]
    assert np.all(np.diff(f) > 0)
    assert -f[-1] < 0.2
    factor = places[-1][2]
    np.testing.assert_allclose(np.sqrt(np.diag(factor @ factor.T)), sds, rtol=0.3)
    assert asked == [3] * len(places)


def test_it_climbs_along_an_edge():
    """Where a difference is not finite, the one to the other side is; at a point, none is."""
    places = climbed(lambda x: -0.5 * x @ x if x[0] < 1 else -np.inf, np.array([0.995, 9.0]))
    np.testing.assert_allclose(places[-1][0], 0, atol=0.8)
    assert len(climbed(lambda x: 0.0 if (x == 0).all() else -np.inf, np.zeros(2))) == 1
