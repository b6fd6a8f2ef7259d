"""A look for other modes, where evaluations are plenty, from wide starts about the one found.

From each a short climb, which is abandoned where it comes to a known mode. Where one ends
elsewhere, and the log-density dips in between, the shape there tells whether it has mass.

Symbols: f the log-density, L the factor of the known mode's covariance, u the coordinates in which
y = x + Lu.
"""

from contextlib import suppress

import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import lower_of
from pymc_kameleon.approximation.modes import NEGLIGIBLE_MASS, Mode
from pymc_kameleon.step.warm_start.approach import (
    ARMIJO,
    DIFFERENCE_STEP,
    LEAST_FACTOR,
    TOP,
    updated,
)
from pymc_kameleon.step.warm_start.quadratics import fit_shape
from pymc_kameleon.step.warm_start.search import BudgetSpent, Search

LOOK_SHARE, LEAST_FOR_LOOK, MOST_LOOKED = 0.1, 750, 800
"""Share of the evaluations by which a chain looks, of its own or of all that follow it; how many
these are, at least, if it does; and evaluations of a look, at most."""

SHAPE_BUDGET = 40
"""Times d: evaluations besides, at most, by which shapes of new modes are learned."""

EXTRA, MOST_EXTRAS = 0.5, 4
"""For each new mode, so much more of a look, as there may be others; and how often, at most."""

SCALES = 3.0, 50.0
"""How far away starts are, in standard deviations of the known mode, log-uniformly."""

N_STARTS, AS_KNOWN = 6, (0.95, 1.3)
"""Starts of which one is climbed from; and by how much f falls, compared with normals, if what is
known is nearly normal, and all."""

LARGEST_DIP, ON_LINE = 2.0, (0.2, 0.4, 0.6, 0.8)
"""Dip of f between two modes, at least; and where it is looked for, on the line from one to the
other."""

LONGEST_CLIMB, FARTHEST = 20, 200.0
"""Steps of a climb, at most; and how far from the first mode it may lead, in standard deviations,
as in the neck of a funnel it would go on for ever."""

STRIDE = 3.0
"""Factor by which a good step grows as long as f grows, too."""


def evaluations_of_look(n, d):
    """Return the evaluations of a look of a chain that makes n: of its climbs, and of shapes."""
    return min(int(LOOK_SHARE * n), MOST_LOOKED), SHAPE_BUDGET * d


def most_of_look(d):
    """Return how many these are at most, with what is added where there are new modes."""
    return MOST_LOOKED + MOST_EXTRAS * int(EXTRA * MOST_LOOKED) + SHAPE_BUDGET * d


def look_for_modes(logp, home, most, most_for_shapes, rng, prior=None):
    """Look for other modes than `home`; return the new ones that have mass, and their Searches.

    `most` and `most_for_shapes` are evaluations of climbs and of shapes. Of `prior` draws (n, d),
    about every second start is the next ones.
    """
    known, new, searches = [home], [], []
    unseen = [] if prior is None else list(rng.permutation(prior))
    search = Search(logp, home.mean, most - 1)
    with suppress(BudgetSpent), threadpool_limits(1), np.errstate(all="ignore"):
        while True:
            start = _start(search, known, unseen, rng)
            top = start and _climb(search, *start, home.factor, known)
            best, d = max(mode.logp for mode in known), home.mean.size
            if not top or top[1] < best - drop(d, NEGLIGIBLE):  # not worth its shape
                continue
            own = Search(logp, top[0], most_for_shapes - 1)
            mode = _mode_at(own, *top, known, rng)
            most_for_shapes = own.left
            if mode is None or any(one.holds(mode.mean) for one in known):
                continue
            known.append(mode)
            if mode.mass > max(one.mass for one in known) - NEGLIGIBLE_MASS:
                new.append(mode)
                search.left += int(EXTRA * most) if len(new) <= MOST_EXTRAS else 0
                searches.append(own)
    return new, searches


def _start(search, known, unseen, rng):
    """Return a start, and f there; None if it is not finite, or nothing can be there.

    It is the point where f has fallen least, compared with normals about the known modes.
    """
    home, scale = known[rng.integers(len(known))], np.exp(rng.uniform(*np.log(SCALES)))
    alone = np.diag(np.linalg.norm(home.factor, axis=1))
    shape = home.factor if rng.random() < 0.5 else alone
    if len(unseen) < N_STARTS or rng.random() < 0.5:
        points = home.mean + scale * rng.standard_normal((N_STARTS, home.mean.size)) @ shape.T
    else:
        points = np.array([unseen.pop() for _ in range(N_STARTS)])
    f, top = search.evaluate_all(points), max(mode.logp for mode in known)
    fallen = (top - f) / (top - np.max([mode.normal(points) for mode in known], axis=0))
    k = np.argmin(fallen)
    as_known = (fallen > AS_KNOWN[0]) & (fallen < AS_KNOWN[1])
    return None if as_known.all() or not np.isfinite(f[k]) else (points[k], f[k])


def _climb(search, x, f, factor, known):
    """Return the top (d,), f there, and a metric; None where the climb comes to what is known."""
    inverse, moved, gradient = np.eye(x.size), None, None
    for n in range(LONGEST_CLIMB):
        before, gradient = gradient, _slope(search, x, f, factor)
        if moved is not None:
            inverse = updated(inverse, moved, before - gradient)
        step = inverse @ gradient
        promised = gradient @ step
        if n > 1 and not promised > 2 * TOP * x.size:
            inverse, moved, step, promised = np.eye(x.size), None, gradient, gradient @ gradient
            if not promised > 2 * TOP * x.size:
                break
        t, f_new = 1.0, search.evaluate(x + factor @ step)
        while not f_new > f + ARMIJO * t * promised and t > LEAST_FACTOR:
            t *= ARMIJO
            f_new = search.evaluate(x + factor @ (t * step))
        if not f_new > f:
            if moved is None:
                break
            inverse, moved = np.eye(x.size), None  # and up the slope
            continue
        while f_new - f > 0.7 * t * promised:
            further = search.evaluate(x + factor @ (STRIDE * t * step))
            if not further > f_new:
                break
            t, f_new = STRIDE * t, further
        moved, x, f = t * step, x + factor @ (t * step), f_new
        away = np.abs(x - known[0].mean) / np.linalg.norm(known[0].factor, axis=1)
        if away.max() > FARTHEST or any(mode.holds(x) for mode in known):
            return None
    return x, f, factor @ _root(inverse)


def _slope(search, x, f, factor):
    """Return the gradient in u, by differences, to where f is finite; 0 if it is not."""
    h = DIFFERENCE_STEP
    slope = (np.array([search.evaluate(x + h * column) for column in factor.T]) - f) / h
    for i in np.flatnonzero(~np.isfinite(slope)):
        slope[i] = (f - search.evaluate(x - h * factor[:, i])) / h
    return np.where(np.isfinite(slope), slope, 0.0)


def _root(inverse):
    try:
        return np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        return np.eye(len(inverse))


def _mode_at(search, x, f, metric, known, rng):
    """Return a Mode about a top; None if it is of a known one, or that cannot be told."""
    with suppress(BudgetSpent, np.linalg.LinAlgError):
        if all(_dips(search, x, f, mode) for mode in known):
            return _shape(search, x, metric, rng)


def _dips(search, x, f, mode):
    """Whether f dips on the line from a top to a mode."""
    between = [search.evaluate(x + t * (mode.mean - x)) for t in ON_LINE]
    return min(between) < min(f, mode.logp) - LARGEST_DIP


def _shape(search, x, metric, rng):
    """Return a Mode about a top, by quadratics that are fitted there."""
    search.metric = metric
    search.evaluate(x)
    fit_shape(search, rng, False)
    return Mode(search.x, lower_of(search.metric), search.f)
