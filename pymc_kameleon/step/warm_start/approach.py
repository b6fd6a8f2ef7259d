"""The way from a chain's start to where the posterior is, and its shape there.

For log-densities that have no gradient and are expensive. Each coordinate is searched first, which
gives its scale. Where the log-density is exactly quadratic in many coordinates, a fit in these
finds their maximum from however far, and the shape. Elsewhere BFGS climbs the rest of the way, and
quadratics that are fitted at the top give the shape. Chains of one run need not all go the whole
way: where f does not dip between a chain and the place to which another has come, it goes there.

Symbols: f the log-density, x the best point so far (d,), L the metric, u the coordinates in which y
= x + Lu, H and g the Hessian and gradient of f in u, P = (d+1)(d+2)/2 the coefficients of a
quadratic, ρ the radius in u of the points that it is fitted to.
"""

from contextlib import suppress

import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.approximation.drops import NEAR, drop
from pymc_kameleon.approximation.linalg import lower_of
from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.lines import parabola, sweep
from pymc_kameleon.step.warm_start.quadratics import fit_shape, shape_by_gradient, solve
from pymc_kameleon.step.warm_start.search import (
    EXACT_LINE,
    LINE_EVALUATIONS,
    MOST_FITTED,
    MOST_SOLVED,
    ROUNDING,
    BudgetSpent,
    Search,
    WarmStart,
)

WARM_START_BUDGET = 60
"""Times d: evaluations of a warm start, at most."""

OWN_SEARCH = 30
"""Times d, or 3 if d is less: evaluations of a search, about; a chain that makes as many in all
searches for itself."""

FOLLOWING = 10
"""Times d, or 3 if d is less: evaluations by which a chain follows another one, about."""

LATE = 5
"""Times d: last evaluations, by whose gain a search is judged that has used up its budget."""

LOSS, NEAR_TOP = 0.2, 0.15
"""Times d: log mass that a climb may lose; and the gain that may be left where it is clear to which
top it leads."""

LINE_RATIO, NEAR_ENOUGH = 1.5, 1.0
"""Ratio of distances of points on the line between two places, where a dip of f is looked for; and
the distance in u within which none is looked at."""

NEAR_TRIES = 10
"""Tries of a draw near the middle of a WarmStart, at most; fewer where evaluations are limited."""


def evaluations_for_own_search(d):
    """Return from how many evaluations in all a chain searches for the posterior itself."""
    return OWN_SEARCH * max(d, 3)


def approach(logp, start, rng, budget, guide=None, unchecked=False):
    """Find the posterior from a far start, where logp is finite; return a WarmStart.

    `logp` maps a point (d,) to a log-density, and may be evaluated `budget` times more. If
    `unchecked`, another chain's `guide`, or its WarmStart, is followed without a look at what is in
    between.
    """
    search = Search(logp, start, budget)
    with threadpool_limits(1):  # on small matrices threads are slower, and differ in the last bit
        with suppress(BudgetSpent, np.linalg.LinAlgError), np.errstate(all="ignore"):
            search.evaluate(start)
            if guide and unchecked:
                search.go_to(guide, search.evaluate(guide.x))
            elif not guide or not _follows_guide(search, rng, guide):
                _search_alone(search, rng)
        factor = lower_of(search.metric)
    points, logps = np.array(search.points), np.array(search.logps)
    before = logps[: -LATE * start.size].max(initial=logps[0])
    has_jumped = guide and search.x is guide.x  # which is no climb
    is_spent = search.left == 0 and not has_jumped
    if is_spent:
        search.note("budget spent")
    climbing = float(logps.max() - before) if is_spent else search.promised
    here = search.x, search.f, search.scales, factor, search.exact
    return WarmStart(*here, climbing, points, logps, search.rounds)


def _follows_guide(search, rng, guide):
    """Go to the guide's place if f does not dip on the way, nor ends low; return whether it did.

    The way leads to the guide's place in the coordinates in which f is exactly quadratic, then up
    in all, then straight on. From halfway up another mode the straight line might show no dip, so
    the climb ends at a top, or at the guide's place.
    """
    is_there = _go_where_exact(search, guide) if guide.exact.any() else guide.exact
    others = np.flatnonzero(~is_there)
    if len(others) > 1:
        _climb_to(search, guide)
    else:
        sweep(search, rng, others, LINE_EVALUATIONS[1])
    own = search.here()
    way, t = search.x - guide.x, 1.0
    distance = np.linalg.norm(np.linalg.solve(guide.factor, way))
    f = [search.f]
    while t > 0:
        t = t / LINE_RATIO if t * distance > NEAR_ENOUGH else 0.0
        f.append(search.evaluate(guide.x + t * way))
    search.note("follow")
    f = np.array(f)
    before, after = np.maximum.accumulate(f), np.maximum.accumulate(f[::-1])[::-1]
    if np.max(np.minimum(before, after) - f) > drop(1, NEAR) or f[-1] < f.max() - way.size:
        search.return_to(own)
        return False
    search.go_to(guide, f[-1])
    return True


def _go_where_exact(search, guide):
    """Go to the guide's place where f is exactly quadratic, if it is on the way; return where."""
    place, way = search.here(), np.where(guide.exact, guide.x - search.x, 0.0)
    t = np.array([0.4, 0.7, 1.0])
    f = np.array([search.evaluate(place[0] + one * way) for one in t])
    misfit = abs(place[1] - np.polyval(parabola(t, f), 0.0))
    rounding = ROUNDING * np.abs([place[1], *f]).max()
    if f[-1] > place[1] and misfit <= EXACT_LINE * (f[-1] - place[1]) + rounding:
        search.return_to((place[0] + way, f[-1], place[2]))
        return guide.exact
    search.return_to(place)
    return np.zeros_like(guide.exact)


def _climb_to(search, guide):
    """Climb with the guide's curvature, until near a top or the guide."""
    left = NEAR_TOP * search.x.size
    for x, _, _ in climb(search, search.x, search.f, guide.factor, left):
        if np.sum(np.linalg.solve(guide.factor, x - guide.x) ** 2) <= x.size:
            return


def scales_of(gradient):
    """Return scales to begin with, |g_i|^-½, and 1 where the gradient vanishes."""
    size = np.abs(gradient)
    return np.where(np.isfinite(size) & (size > 1e-10), size, 1.0) ** -0.5


def draw_near(found, logp, rng, tries=NEAR_TRIES):
    """Return a point near the middle of a WarmStart: about a draw of the posterior.

    It is drawn from its normal, and accepted as by Metropolis and Hastings from the middle; after
    so many tries it is the middle.
    """
    for _ in range(tries):
        z = rng.standard_normal(found.x.size)
        x = found.x + found.factor @ z
        if np.log(rng.random()) < logp(x) - found.logp + z @ z / 2:
            return x
    return found.x


def _search_alone(search, rng):
    """Go up, and learn the shape there; but back where that has lost mass.

    In the neck of a funnel f has no bound, and hardly any mass, which is f and the log of volume.
    """
    d = search.x.size
    if search.has_gradient:
        _search_by_gradient(search)
        return
    sweep(search, rng, range(d), LINE_EVALUATIONS[0])
    search.note("line searches")
    search.metric = np.diag(search.scales)
    if d == 1:
        return
    known = np.flatnonzero(search.misfits < EXACT_LINE)
    known = known if len(known) >= max(2, d / 2) else []
    sweep(search, rng, np.setdiff1d(range(d), known), LINE_EVALUATIONS[1])
    search.note("line searches")
    search.metric = np.diag(search.scales)
    exact = np.flatnonzero(search.misfits < EXACT_LINE)
    if max(2, d / 2) <= len(exact) <= MOST_SOLVED:
        search.exact[exact] = solve(search, rng, exact)
        search.note("quadratic fit")
        if search.exact.any():
            return
    before, mass, climbed = search.here(), search.f + np.log(search.scales).sum(), -np.inf
    while search.f > climbed + max(0.5, 0.15 * d):  # the climb stopped too early
        with suppress(BudgetSpent):
            _climb(search, least=LINE_EVALUATIONS[1] * d)
        search.note("climb")
        climbed = search.f
        sweep(search, rng, range(d), LINE_EVALUATIONS[1])
        search.note("line searches")
        if search.f + np.log(search.scales).sum() < mass - LOSS * d:
            search.return_to(before)
            return
        if d <= MOST_FITTED:
            fit_shape(search, rng)
            search.note("quadratic fit")


def _search_by_gradient(search):
    """Go up, and learn the shape there; it is no top if that has lost mass."""
    d = search.x.size
    search.metric = np.diag(scales_of(search.slope_at(search.x)))
    shape_by_gradient(search)
    mass = search.f + np.linalg.slogdet(search.metric)[1]
    _climb(search, least=d)
    shape_by_gradient(search)
    if search.f + np.linalg.slogdet(search.metric)[1] < mass - LOSS * d:
        search.promised = np.inf


def _climb(search, least):
    """Maximise f; at least so many evaluations are left then, about."""
    before = search.f
    for _, f, metric in climb(search, search.x, search.f, search.metric):
        search.note("climb", np.nan, np.nan, f - before)
        search.metric, before = metric, f
        if search.left < least + 3 * (search.x.size + 1):
            return
