"""The climb that the warm start and looks for other modes share."""

import numpy as np
import pytest

from pymc_kameleon.step.warm_start.approach import approach
from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.search import RecordedLogp, Search


def climbed(logp, start):
    """Return the places that a climb from a start leads to."""
    search = Search(logp, start, 100)
    return list(climb(search, start, logp(start), np.eye(start.size)))


def with_gradient(logp, gradient, d, n=300):
    """Return a log-density of points (d,) that notes its gradient."""
    outputs = np.empty(d)

    def both(x):
        outputs[:] = gradient(x)
        return logp(x)

    return RecordedLogp(both, np.full((n, 1 + d), np.nan), np.inf, outputs, has_gradient=True)


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


def bent(x):
    """A normal of six coordinates, bent."""
    return -0.5 * (x[0] ** 2 + (x[1] - 0.3 * x[0] ** 2) ** 2 + 4 * x[2:] @ x[2:])


def slope_of_bent(x):
    between = x[1] - 0.3 * x[0] ** 2
    return np.array([-x[0] + 0.6 * x[0] * between, -between, *(-4 * x[2:])])


def test_a_gradient_leads_where_differences_lead_by_fewer_evaluations():
    start, eye = np.full(6, 2.0), np.eye(6)
    ends, n = [], []
    for logp in (bent, with_gradient(bent, slope_of_bent, 6)):
        search = Search(logp, start, 300)
        search.evaluate(start)
        ends.append([*climb(search, start, search.f, eye)][-1][1])
        n.append(len(search.logps))
    assert min(ends) > -0.2
    assert 2 * n[1] < n[0]


def test_with_a_gradient_the_shape_is_the_curvature():
    """Of a normal, whatever its scales; not so by a gradient that is a tenth of it."""
    d, rng = 7, np.random.default_rng(3)
    factor = np.tril(rng.standard_normal((d, d)), -1) + np.diag(np.geomspace(0.1, 3, d))
    precision, start = np.linalg.inv(factor @ factor.T), 0.1 * factor @ np.ones(d)

    def sizes(share):
        """Return the semiaxes of the shape that is found, in those of the normal."""
        slope = -share * precision
        logp = with_gradient(lambda x: -0.5 * x @ precision @ x, lambda x: slope @ x, d)
        found = approach(logp, start, rng, 250)
        return np.linalg.svd(np.linalg.solve(factor, found.factor))[1]

    np.testing.assert_allclose(sizes(1.0), 1, atol=0.1)
    assert sizes(0.1).max() > 2


def funnel(x):
    """Nine normals with a scale: the highest point has next to no mass."""
    return -(x[0] ** 2) / 4.5 - 9 * x[0] - x[1:] @ x[1:] * np.exp(-2 * x[0]) / 2


def slope_of_funnel(x):
    per_variance = np.exp(-2 * x[0])
    squares = x[1:] @ x[1:] * per_variance
    return np.array([-x[0] / 2.25 - 9 + squares, *(-x[1:] * per_variance)])


@pytest.mark.parametrize("knows_of_mass", [True, False])
def test_the_neck_of_a_funnel_is_no_top(knows_of_mass, monkeypatch):
    """Nothing is that is four standard deviations out, but for who does not know of mass."""
    if not knows_of_mass:
        monkeypatch.setattr("pymc_kameleon.step.warm_start.approach.LOSS", np.inf)
    rng, are_necks = np.random.default_rng(5), []
    for _ in range(20):
        v = 1.5 * rng.standard_normal()
        start = np.array([v, *(np.exp(v) * rng.standard_normal(9))])
        found = approach(with_gradient(funnel, slope_of_funnel, 10), start, rng, 250)
        are_necks.append(found.climbing == 0 and found.x[0] < -6)
    assert any(are_necks) != knows_of_mass
