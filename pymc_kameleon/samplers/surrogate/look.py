"""A look for other modes, where evaluations are plenty, from wide starts about the one found.

From each a short climb, of which most end in the mode that is known, and are given up as soon as
that is seen. Where one ends elsewhere, and the log-density dips in between, the shape there tells
whether it has mass. What was not found cannot be told.

Symbols: f the log-density, L the factor of the known mode's covariance, u the coordinates in which
y = x + Lu.
"""

from contextlib import suppress

import numpy as np
from threadpoolctl import threadpool_limits

from pymc_kameleon.samplers.surrogate.modes import LEAST_MASS, Mode
from pymc_kameleon.step.warm_start.approach import (
    ARMIJO,
    DIFFERENCE_STEP,
    LEAST_FACTOR,
    TOP,
    updated,
)
from pymc_kameleon.step.warm_start.quadratics import fit_shape
from pymc_kameleon.step.warm_start.search import BudgetSpent, Search

LOOK_SHARE, LEAST_FOR_LOOK, MOST_LOOKED = 0.06, 1000, 400
"""Share of a chain's evaluations by which it looks; how many it makes, at least, if it does; and
evaluations of a look, at most."""

SHAPE_BUDGET = 40
"""Times d: evaluations besides, at most, by which shapes of new modes are learned."""

SCALES = 3.0, 100.0
"""How far away starts are, in standard deviations of the known mode, log-uniformly."""

N_STARTS = 2
"""Starts of which the best one is climbed from."""

LARGEST_DIP, ON_LINE = 2.0, (0.2, 0.4, 0.6, 0.8)
"""Dip of f between two modes, at least; and where it is looked for, on the line from one to the
other."""

LONGEST_CLIMB = 12
"""Steps of a climb, at most."""

STRIDE = 3.0
"""Factor by which a good step grows as long as f grows, too."""

LOW = 10.0, 2.0
"""How far below the known mode, and times d, a place is not worth its shape."""


def look_for_modes(logp, home, most, most_for_shapes, rng):
    """Look for other modes than that which is known.

    Parameters
    ----------
    logp : callable
        Maps a point (d,) to a log-density.
    home : Mode
    most, most_for_shapes : int
        Evaluations, for climbs and for the shapes of new modes.
    rng : numpy.random.Generator

    Returns
    -------
    modes : list of Mode
        Those that are new, and have mass.
    searches : list of Search
        Their points.
    """
    known, new, searches = [home], [], []
    search = Search(logp, home.mean, most - 1)
    with suppress(BudgetSpent), threadpool_limits(1), np.errstate(all="ignore"):
        while True:
            start = _start(search, home, rng)
            top = start and _climb(search, *start, known)
            if not top or not _is_apart(search, *top[:2], known):
                continue
            own = Search(logp, top[0], most_for_shapes - 1)
            mode = _shape(own, top[0], top[2], rng)
            most_for_shapes = own.left
            if mode is None:
                continue
            known.append(mode)
            if mode.mass > max(one.mass for one in known) + LEAST_MASS:
                new.append(mode)
                searches.append(own)
    return new, searches


def _start(search, home, rng):
    """Return the best of some wide starts, and f there; None if it is not finite."""
    d, scale = home.mean.size, np.exp(rng.uniform(*np.log(SCALES)))
    alone = np.diag(np.linalg.norm(home.factor, axis=1))
    shape = home.factor if rng.random() < 0.5 else alone
    z = rng.standard_normal((N_STARTS, d))
    points = home.mean + scale * z @ shape.T
    f = search.evaluate_all(points)
    return (points[np.argmax(f)], f.max()) if np.isfinite(f.max()) else None


def _climb(search, x, f, known):
    """Return the top (d,), f there, and a metric; None where the climb comes to what is known."""
    factor, inverse, moved, gradient = known[0].factor, np.eye(x.size), None, None
    for n in range(LONGEST_CLIMB):
        before, gradient = gradient, _slope(search, x, f, factor)
        if moved is not None:
            inverse = updated(inverse, moved, before - gradient)
        step = inverse @ gradient
        promised = gradient @ step
        if n > 1 and not promised > 2 * TOP * x.size:
            break
        t, f_new = 1.0, search.evaluate(x + factor @ step)
        while not f_new > f + ARMIJO * t * promised:
            t *= ARMIJO
            if t < LEAST_FACTOR:
                return x, f, factor @ _root(inverse)
            f_new = search.evaluate(x + factor @ (t * step))
        while f_new - f > 0.7 * t * promised:
            further = search.evaluate(x + factor @ (STRIDE * t * step))
            if not further > f_new:
                break
            t, f_new = STRIDE * t, further
        moved, x, f = t * step, x + factor @ (t * step), f_new
        if any(mode.holds(x) for mode in known):
            return None
    return x, f, factor @ _root(inverse)


def _slope(search, x, f, factor):
    """Return the gradient in u, by differences; 0 where they are not finite."""
    h = DIFFERENCE_STEP
    ahead = np.array([search.evaluate(x + h * column) for column in factor.T])
    slope = (ahead - f) / h
    return np.where(np.isfinite(slope), slope, 0.0)


def _root(inverse):
    try:
        return np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:
        return np.eye(len(inverse))


def _is_apart(search, x, f, known):
    """Whether a top may have mass, and f dips between it and all that is known."""
    if f < max(mode.logp for mode in known) - LOW[0] - LOW[1] * x.size:
        return False
    for mode in known:
        between = [search.evaluate(x + t * (mode.mean - x)) for t in ON_LINE]
        if min(between) > min(f, mode.logp) - LARGEST_DIP:
            return False
    return True


def _shape(search, x, metric, rng):
    """Return a Mode about a top, by quadratics that are fitted there; None if that fails."""
    search.metric = metric
    try:
        search.evaluate(x)
        fit_shape(search, rng, False)
    except (BudgetSpent, np.linalg.LinAlgError):
        return None
    factor = np.linalg.qr(search.metric.T, mode="r").T
    factor *= np.where(np.diag(factor) < 0, -1.0, 1.0)
    return Mode(search.x, factor, search.f)
