"""A climb by BFGS, which the warm start and looks for other modes share.

The gradient is by finite differences if f has none.

A step is shortened where it gains less of what the gradient promises than a trust region demands,
and lengthened where it gains more, by the numbers of approximation/search.py.

Source: Nocedal & Wright, Numerical Optimization (2006), algorithms 3.1 and 6.1.

Symbols: as in approach.py; H the inverse curvature in u, g the gradient there.
"""

import numpy as np

from pymc_kameleon.approximation.search import AS_FORESEEN, GROW, NOT_FORESEEN, SHRINK

DIFFERENCE_STEP = 0.01
"""Finite differences, in u."""

LEAST_GAIN = 0.1
"""Gain that may be left at the end of a climb. With 0.15 d, looks for three modes with tails of a t
found 92 % of the mass, instead of 97 %."""

LEAST_FACTOR = 1e-3
"""A step is shortened to this share of itself, at most."""


def climb(search, x, f, factor, left=LEAST_GAIN, longest=np.inf):
    """Yield where a climb begins, then where each of its steps leads: x (d,), f, and a metric.

    `factor` (d, d) is the metric at first. Where it fails after some steps, the gradient leads. The
    climb ends where a gain of `left` is promised, by the gradient and H. Steps are at most
    `longest` in u, before they are lengthened.
    """
    yield x, f, factor
    inverse, gradient, least = np.eye(x.size), _gradient(search, x, f, factor), 0.0
    while True:
        step = inverse @ gradient
        step *= min(1.0, longest / max(np.linalg.norm(step), 1e-300))
        step, f = _step(search, x, f, factor, step, gradient, least)
        least = 2 * left  # at first the metric may be foreign
        if step is None and np.array_equal(inverse, np.eye(x.size)):
            return
        if step is None:
            inverse = np.eye(x.size)
            continue
        x, before = x + factor @ step, gradient
        yield x, f, factor @ _root(inverse)
        gradient = _gradient(search, x, f, factor)
        inverse = _updated(inverse, step, before - gradient)


def _step(search, x, f, factor, step, gradient, least):
    """Return a step uphill and f there; None where none is found, or little is promised."""
    promised, t = gradient @ step, 1.0
    if not promised > least:
        return None, f
    f_new = search.evaluate(x + factor @ step)
    while not f_new > f + NOT_FORESEEN * t * promised:
        t *= SHRINK
        if t < LEAST_FACTOR:
            return None, f
        f_new = search.evaluate(x + factor @ (t * step))
    while f_new > f + AS_FORESEEN * t * promised:
        further = search.evaluate(x + factor @ (GROW * t * step))
        if not further > f_new:
            break
        t, f_new = GROW * t, further
    return t * step, f_new


def _gradient(search, x, f, factor):
    """Return the gradient in u, 0 where it is not finite; by differences if f has none."""
    if search.has_gradient:
        return np.nan_to_num(factor.T @ search.slope_at(x), posinf=0.0, neginf=0.0)
    h = DIFFERENCE_STEP
    gradient = (search.evaluate_all(x + h * factor.T) - f) / h
    for i in np.flatnonzero(~np.isfinite(gradient)):
        gradient[i] = (f - search.evaluate(x - h * factor[:, i])) / h
    return np.where(np.isfinite(gradient), gradient, 0.0)


def _updated(inverse, moved, change):
    """Return what BFGS makes of H; as it was, if f is not concave there."""
    if not moved @ change > 1e-3 * np.linalg.norm(moved) * np.linalg.norm(change):
        return inverse
    left = np.eye(moved.size) - np.outer(moved, change) / (moved @ change)
    return left @ inverse @ left.T + np.outer(moved, moved) / (moved @ change)


def _root(inverse):
    try:
        return np.linalg.cholesky(inverse)
    except np.linalg.LinAlgError:  # by rounding
        return np.eye(len(inverse))
