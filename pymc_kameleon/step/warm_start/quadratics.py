"""Quadratics that are fitted to f, where it is exactly one and for the shape at the top.

With a gradient that shape is the curvature, by its differences.

Symbols: as in approach.py.
"""

import numpy as np

from pymc_kameleon.approximation.drops import NEAR, drop
from pymc_kameleon.approximation.linalg import whitened
from pymc_kameleon.core.quadratic import by_order, gradient_and_hessian, n_coefficients, terms
from pymc_kameleon.step.warm_start.lines import MassLine, bracket, top_of
from pymc_kameleon.step.warm_start.search import EXACT_FIT, MASS_LINE_EVALUATIONS, ROUNDING, moved

MOST_SOLUTIONS, N_PROBES, PROBE_MISFIT = 3, 3, 0.2
"""How often f is solved for, at most; the points at which a solution is tried, and the share by
which f may fall more or less there."""

SHAPE_FITS = 6
"""Fits at the top, at most."""

LEAST_CURVATURE = 0.1
"""Curvature in u that a fit is trusted with, at least."""

FLAT = 1e-6
"""The same of differences of a gradient, which have no noise: f may be flat there."""

FIT_RADIUS = 0.7
"""ρ at first, and at most; and how far apart in u gradients are."""

FIT_REACH = 0.05, 12.0
"""Times d: squared radii between which points are fitted; nearer ones say nothing of curvature."""


def solve(search, rng, exact):
    """Maximise f in the coordinates in which it is exactly quadratic; then the mass in the others.

    Return whether the metric is then f's curvature. Where it is not, as the others have moved, or
    rounding was too much at first, f is solved for again. Mass avoids necks of funnels.
    """
    for _ in range(MOST_SOLUTIONS):
        if not (_go_to_top(search, rng, exact) and _maximise_mass(search, rng, exact)):
            return False
        if _is_right(search, rng, exact):
            return True
    return False


def _go_to_top(search, rng, exact):
    """Go to the maximum of a quadratic in `exact` coordinates; return whether f is that one."""
    n = len(exact)
    n_points = n_coefficients(n) + 3
    if n_points > search.left:
        return False
    centre, block = search.x, search.metric[np.ix_(exact, exact)]
    width = max(1.0, np.sqrt(ROUNDING * abs(search.f) / EXACT_FIT**2))  # f has to change by more
    u = 0.8 * rng.standard_normal((n_points, n))
    block = block * width
    f = search.evaluate_all(np.array([moved(centre, exact, block @ one) for one in u]))
    if not np.isfinite(f).all():
        return False
    design = terms(u)
    coefficients = np.linalg.lstsq(design, f, rcond=1e-14)[0]
    misfit, spread = np.abs(f - design @ coefficients).max(), np.ptp(f)
    if not misfit <= EXACT_FIT * spread or spread == 0:
        return False
    gradient, hessian = gradient_and_hessian(coefficients, n)
    e, vectors = np.linalg.eigh(-hessian)
    e = np.maximum(np.abs(e), max(1e-9, 3 * misfit / spread / n**0.5) * np.abs(e).max())
    search.evaluate(moved(centre, exact, block @ vectors @ (vectors.T @ gradient / e)))
    search.metric[np.ix_(exact, exact)] = block @ vectors / np.sqrt(e)
    return True


def _maximise_mass(search, rng, exact):
    """Maximise the mass along the others; return False where f is not concave in `exact` ones."""
    one = rng.permutation(exact)[0]
    for k in rng.permutation(np.setdiff1d(np.arange(search.x.size), exact)):
        line = MassLine(search, k, len(exact), one)
        if line[0.0] == -np.inf:
            return False
        bracket(line, search.scales[k], MASS_LINE_EVALUATIONS)
        search.scales[k] = top_of(line)[0]
        f, size = line.found[best := max(line, key=line.get)]
        search.metric[np.ix_(exact, exact)] *= size / line.found[0.0][1]
        search.metric[k, k] = search.scales[k]
        search.return_to((line.place(best), f, search.metric))
    return True


def _is_right(search, rng, exact):
    """Whether f falls as the metric says in `exact` coordinates."""
    origin, top, block = search.x, search.f, search.metric[np.ix_(exact, exact)]
    z = rng.standard_normal((N_PROBES, len(exact)))
    points = np.array([moved(origin, exact, block @ one) for one in z])
    shares = (top - search.evaluate_all(points)) / (np.sum(z * z, axis=1) / 2)
    return bool(np.all(np.abs(shares - 1) < PROBE_MISFIT))


def shape_by_gradient(search):
    """Let the metric be the curvature at the best point, by differences of the gradient.

    If f is to rise by much from there, that is no top: in the neck of a funnel f has no bound.
    """
    x, f, factor = search.here()
    slope = search.slope_at(x)
    rows = [search.slope_at(x + FIT_RADIUS * column) - slope for column in factor.T]
    hessian = np.array(rows) @ factor / FIT_RADIUS
    e, vectors = np.linalg.eigh(-(hessian + hessian.T) / 2)
    e = np.clip(np.abs(e), FLAT, 1 / FLAT)
    search.return_to((x, f, factor @ vectors / np.sqrt(e)))
    gain = np.sum((search.metric.T @ slope) ** 2) / 2
    search.promised = gain if gain > drop(x.size, NEAR) else 0.0


def fit_shape(search, rng):
    """Fit quadratics around the best point until one agrees with the metric; return if one did."""
    if search.has_gradient:
        shape_by_gradient(search)
        return True
    d, rho = search.x.size, FIT_RADIUS
    p = n_coefficients(d)
    for _ in range(SHAPE_FITS):
        origin, top = search.x, search.f
        n_new = max(d + 4, int(1.2 * p) - len(_near(search, origin, rho)[0]))
        u = rho * rng.standard_normal((n_new, d)) * rng.uniform(0.5, 1.2, (n_new, 1))
        search.evaluate_all(np.array([origin + search.metric @ one for one in u]))
        fitted = _fit(search, origin, top, rho)
        if fitted is None:
            rho *= 0.5
            continue
        e, vectors, g = fitted
        clipped = np.clip(np.abs(e), LEAST_CURVATURE, 1 / LEAST_CURVATURE)
        limit = 3 * rho / np.sqrt(clipped)
        step = np.clip(g / clipped, -limit, limit)
        gain = g @ step - step @ (e * step) / 2
        if gain > 0.25:
            search.evaluate(origin + search.metric @ vectors @ step)
        search.metric = search.metric @ vectors / np.sqrt(clipped)
        if gain < max(0.5, 0.15 * d) and e.min() > 0.4 and e.max() < 3:
            return True
    return False


def _near(search, origin, rho):
    """Return which points are near enough to be fitted to, the nearest first, and these in u."""
    u = whitened(np.array(search.points), origin, search.metric)
    distances2 = np.sum(u * u, axis=1) / (origin.size * rho**2)
    rows = np.argsort(distances2, kind="stable")
    rows = rows[slice(*np.searchsorted(distances2[rows], FIT_REACH))]
    return rows, u[rows]


def _fit(search, origin, top, rho):
    """Fit a quadratic in u; return eigenvalues and -vectors of −H, and g along them."""
    d = len(origin)
    rows, u = _near(search, origin, rho)
    drops = top - np.array(search.logps)[rows]
    u, drops = (values[np.isfinite(drops)][: 2 * n_coefficients(d)] for values in (u, drops))
    if len(u) < d + 2:
        return None
    design, penalty = terms(u), np.diag(by_order([1e-10, 1e-8, 1e-3], d))
    right = design.T @ (np.sum(u * u, axis=1) / 2 - drops)
    gradient, hessian = gradient_and_hessian(np.linalg.solve(design.T @ design + penalty, right), d)
    e, vectors = np.linalg.eigh(-(hessian - np.eye(d)))
    return e, vectors, vectors.T @ gradient
