"""The way from a chain's start to where the posterior is, and its shape there.

This maximises log-densities that have no gradient and are expensive. Each coordinate is searched
first, which gives its scale. Where the log-density is exactly quadratic in many coordinates, as in
the coefficients of a regression given its scale, one fit in these finds their maximum from however
far. Then quadratics are fitted to what has been evaluated, and their maxima tried, in a trust
region. Nothing here is a Markov chain: it is for tuning.

Symbols: f the log-density, x the best point so far (d,), s the scales of the coordinates, L the
metric, y = x + Lu, ρ the radius of new points in u, R that of the trust region, H and g the
Hessian and gradient of f in u, P = (d+1)(d+2)/2 the coefficients of a quadratic.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

BUDGET = 60
"""Times d: evaluations of an approach, at most."""

FEW = 40
"""Dimensions up to which quadratics are fitted; beyond, they would take most of the budget."""

ALONG = 12, 6
"""Evaluations along a coordinate at most, the first and the second time."""

EXACT, EXACT_FIT = 1e-7, 1e-3
"""Largest misfit of a quadratic, over the range of f, where f is taken to be one: along a line,
and in many coordinates."""

REACH = 12
"""Times d: squared distance, in radii, of points that are fitted."""


class Home(NamedTuple):
    """Where an approach has come to.

    Attributes
    ----------
    x : (d,) float64
        The middle of it.
    logp : float
        Log-density there.
    scales : (d,) float64
        Standard deviation of each coordinate, given the others.
    factor : (d, d) float64
        Lower triangular; times its transpose it is about the posterior's covariance.
    points : (n, d) float64
        All that was evaluated, in its order.
    logps : (n,) float64
        Its log-density, -inf where that is not finite.
    """

    x: np.ndarray
    logp: float
    scales: np.ndarray
    factor: np.ndarray
    points: np.ndarray
    logps: np.ndarray


def approach(logp, start, rng, budget):
    """Find the posterior from a far start.

    Parameters
    ----------
    logp : callable
        Maps a point (d,) to a log-density; NaN counts as -inf.
    start : (d,) float64
        A point where it is finite.
    rng : numpy.random.Generator
    budget : int
        Evaluations at most, besides that of the start.

    Returns
    -------
    Home
    """
    search = _Search(logp, start, budget)
    with threadpool_limits(1):  # on small matrices threads are slower, and differ in the last bit
        try:
            search.evaluate(start)
            _find_home(search, rng)
        except _Spent:
            pass
        search.judge()
        _, x, f, metric = search.heaviest
        factor = np.linalg.qr(metric.T, mode="r").T
    factor *= np.where(np.diag(factor) < 0, -1.0, 1.0)
    return Home(x, f, search.scales, factor, np.array(search.points), np.array(search.logps))


def draw_near(home, logp, rng, tries=10):
    """Return a point (d,) near the middle of a home that is about a draw of the posterior.

    It is drawn from the normal with the home's covariance, and accepted as Metropolis and Hastings
    would from the middle; after so many tries it is the middle.
    """
    for _ in range(tries):
        z = rng.standard_normal(home.x.size)
        x = home.x + home.factor @ z
        if np.log(rng.random()) < logp(x) - home.logp + z @ z / 2:
            return x
    return home.x


def _find_home(search, rng):
    d = search.x.size
    _sweep(search, rng, range(d), ALONG[0])
    search.judge()
    if d == 1:
        return
    misfits = _sweep(search, rng, range(d), ALONG[1])
    exact, region = np.flatnonzero(misfits < EXACT), _Region()
    if len(exact) >= max(2, d / 2):
        _solve(search, rng, exact)
    if d <= FEW:
        while not _round(search, rng, region, d):
            pass


class _Spent(Exception):
    """The budget is spent."""


class _Search:
    """All that was evaluated, the best of it, and what is known of the shape there."""

    def __init__(self, logp, start, budget):
        self.logp, self.left = logp, budget + 1
        self.points, self.logps = [], []
        self.x, self.f = start.copy(), -np.inf
        self.scales = np.full(start.size, 0.5)
        self.metric = np.diag(self.scales)
        self.heaviest = -np.inf, self.x, self.f, self.metric

    def judge(self):
        """Remember where the posterior has most mass, if it is about normal with this metric.

        Not where f is largest: in the neck of a funnel that is without bound.
        """
        mass = self.f + np.linalg.slogdet(self.metric)[1]
        if mass > self.heaviest[0]:
            self.heaviest = mass, self.x, self.f, self.metric

    def evaluate(self, y):
        """Return f(y); y may be the best so far."""
        if self.left == 0:
            raise _Spent
        self.left -= 1
        f = self.logp(y)
        f = f if np.isfinite(f) else -np.inf
        self.points.append(y)
        self.logps.append(f)
        if f > self.f:
            self.x, self.f = y, f
        return f


# ---- along the coordinates ----------------------------------------------------------------------


def _sweep(search, rng, coordinates, most):
    """Maximise f along each coordinate in turn, and learn its scale.

    Returns the misfit of a parabola along each (d,), infinite where that is not known.
    """
    misfits = np.full(search.x.size, np.inf)
    for k in rng.permutation(coordinates):
        line = _along(search, k, most)
        scale, misfits[k] = _parabola(search, k, line)
        search.scales[k] = scale
    search.metric = np.diag(search.scales)
    return misfits


class _Line(dict):
    """f along a coordinate, by the distance from where it was begun."""

    def __init__(self, search, k):
        super().__init__({0.0: search.f})
        self.search, self.k, self.start = search, k, search.x

    def __missing__(self, t):
        y = self.start.copy()
        y[self.k] += t
        self[t] = self.search.evaluate(y)
        return self[t]


def _along(search, k, most):
    """Bracket the maximum along a coordinate; return the line."""
    line, c, h = _Line(search, k), 0.0, search.scales[k]
    while len(line) < most:
        sides = {t: line[t] for t in (c - h, c + h)}
        best = max(sides, key=sides.get)
        gain, drops = sides[best] - line[c], line[c] - np.array([*sides.values()])
        if gain > 0:
            c = best
            h *= 2.5 if gain > 2 else 1.0
        elif drops.min() > 4:
            h *= 0.2 if drops.min() > 40 else 0.4
        elif drops.max() < 0.1:
            h *= 4
        else:
            break
    line.c, line.h = c, h
    return line


def _parabola(search, k, line):
    """Try the vertex of a parabola along a coordinate; return its scale, and its misfit."""
    c, h = line.c, line.h
    if len(line) < 5:
        line[c + 2 * h if line[c + h] > line[c - h] else c - 2 * h]
    t = np.array([t for t in line if line[t] > -np.inf])
    t = t[np.argsort([-line[one] for one in t], kind="stable")][:5]
    f = np.array([line[one] for one in t])
    if len(t) < 3:
        return h, np.inf
    a, b = _curvature((t[:3] - c) / h, f[:3])
    if not a < 0:
        return h, np.inf
    scale = h * np.clip((-2 * a) ** -0.5, 0.05, 20)
    vertex = c - h * b / (2 * a)
    if abs(vertex - c) > 0.3 * scale:
        line[vertex]
    if len(t) < 4:
        return scale, np.inf
    columns = np.vander((t - c) / h, 3)
    fitted = columns @ np.linalg.lstsq(columns, f)[0]
    return scale, np.abs(f - fitted).max() / np.ptp(f)


def _curvature(t, f):
    """Return a and b of the parabola a t² + bt + c through three points."""
    first, second = (f[1] - f[0]) / (t[1] - t[0]), (f[2] - f[1]) / (t[2] - t[1])
    a = (second - first) / (t[2] - t[0])
    return a, first - a * (t[0] + t[1])


# ---- where f is exactly quadratic -----------------------------------------------------------


def _solve(search, rng, exact):
    """Maximise f in the coordinates in which it is exactly quadratic, while the others are held."""
    n = len(exact)
    s = search.scales[exact]
    n_points = (n + 1) * (n + 2) // 2 + 3
    if n_points > search.left:
        return
    centre, u = search.x.copy(), 0.8 * rng.standard_normal((n_points, n))
    f = np.array([search.evaluate(_moved(centre, exact, s * one)) for one in u])
    if not np.isfinite(f).all():
        return
    design = np.column_stack([np.ones(n_points), u, _products(u)])
    coefficients = np.linalg.lstsq(design, f, rcond=1e-14)[0]
    residual = np.abs(f - design @ coefficients).max() / np.ptp(f)
    if residual > EXACT_FIT:
        return
    gradient, hessian = coefficients[1 : n + 1], _hessian(coefficients[n + 1 :], n)
    e, vectors = np.linalg.eigh(-hessian)
    e = np.abs(e)
    e = np.maximum(e, max(1e-9, 3 * residual / n**0.5) * e.max())
    step = s * (vectors @ (vectors.T @ gradient / e))
    before = search.f
    for share in (1.0, 0.3, 0.1):
        if search.evaluate(_moved(centre, exact, share * step)) > before:
            break
    others = np.setdiff1d(np.arange(search.x.size), exact)
    _sweep(search, rng, others, 30)
    block = s[:, None] * vectors / np.sqrt(e)
    search.metric[np.ix_(exact, exact)] = block * _size_of(search, rng, exact, block)


def _moved(x, coordinates, step):
    y = x.copy()
    y[coordinates] += step
    return y


def _size_of(search, rng, coordinates, block):
    """Return what a metric has to be multiplied with, as the scale of these coordinates moved."""
    size, f = 1.0, search.f
    for _ in range(6):
        z = rng.standard_normal(len(coordinates))
        drop = f - search.evaluate(_moved(search.x, coordinates, size * (block @ z)))
        ratio = np.clip(np.sqrt(z @ z / 2 / max(drop, 1e-10)), 1e-3, 1e3)
        size *= ratio
        if 0.6 < ratio < 1.6:
            break
    return size


# ---- quadratics in a trust region -----------------------------------------------------------


@dataclass
class _Region:
    """Where quadratics are trusted."""

    rho: float = 0.7
    reach: float = 3.0
    good: bool = False
    gains: list = field(default_factory=list)


def _round(search, rng, region, d):
    """Draw new points, fit, step; return whether that is home."""
    p = (d + 1) * (d + 2) // 2
    origin = search.x
    near = np.count_nonzero(_distances2(search) < REACH * d * region.rho**2)
    n_new = d + 4 if region.good else max(d + 4, int(1.2 * p) - near)
    u = region.rho * rng.standard_normal((n_new, d)) * rng.uniform(0.5, 1.2, (n_new, 1))
    top = search.f
    new = np.array([search.evaluate(origin + search.metric @ one) for one in u])
    drop = np.median(top - new)
    body = 0.1 < drop / (d * region.rho**2) < 1.2
    if body and region.rho > 0.45 and search.f == top:
        search.judge()
    model = _fit(search, origin, top, region.rho, drop, d)
    if model is None:  # nothing near is finite
        region.rho *= 0.5
        return False
    e, vectors, g, n = model
    least = 0.1 if n >= p else 0.4
    clipped = np.clip(np.abs(e), least, 1 / least)
    limit = region.reach * max(region.rho, 0.5) / np.sqrt(clipped)
    wanted = g / np.maximum(np.abs(e), least / 3)
    step = np.clip(wanted, -limit, limit)
    predicted = g @ step - step @ (e * step) / 2
    gain, share = 0.0, None
    before = search.f
    if predicted > 0.25:
        direction = search.metric @ (vectors @ step)
        for share in (1.0, 0.35, 0.1):
            gain = search.evaluate(origin + share * direction) - top
            if gain > 0:
                break
        _adapt_reach(search, region, origin, direction, share, gain, predicted, step, wanted, d)
    gain = search.f - before
    gained = search.f - top
    failed = predicted > 0.25 and not (share == 1.0 and gain > 0)
    _adapt_rho(region, drop, gained, failed, d)
    search.metric = search.metric @ vectors / np.sqrt(clipped)
    region.gains.append(gained)
    region.good = not failed and (body and predicted < d or gain > 0.3 * predicted - 0.5)
    settled = max(predicted, gained) < max(0.5, 0.15 * d)
    if settled and e.min() > 0.4 and e.max() < 3 and region.rho > 0.45:
        return True
    return len(region.gains) > 1 and max(region.gains[-2:]) < 0.25 * d + 0.5


def _distances2(search):
    """Squared distances |u|² of all points from the best."""
    u = np.linalg.solve(search.metric, (np.array(search.points) - search.x).T)
    return np.sum(u * u, axis=0)


def _fit(search, origin, top, rho, drop, d):
    """Fit a quadratic in u; return eigenvalues and -vectors of −H, g along them, and the points."""
    p = (d + 1) * (d + 2) // 2
    u = np.linalg.solve(search.metric, (np.array(search.points) - origin).T).T
    drops, distances2 = top - np.array(search.logps), np.sum(u * u, axis=1)
    cap = max(6 * d, 2.5 * drop) if np.isfinite(drop) else 6 * d
    rows = np.flatnonzero((distances2 < REACH * d * rho**2) & (drops < cap))
    rows = rows[np.argsort(distances2[rows], kind="stable")][: 2 * p]
    if len(rows) < d + 2:
        return None
    u, drops = u[rows], drops[rows]
    weights = (1 + np.abs(drops) / max(d, cap / 6)) ** -2
    design = np.column_stack([np.ones(len(u)), u, _products(u)])
    penalty = np.repeat([1e-10, 1e-8, 1e-3], [1, d, p - d - 1])
    normal = (design.T * weights) @ design + np.diag(penalty)
    right = design.T @ (weights * (np.sum(u * u, axis=1) / 2 - drops))
    coefficients = np.linalg.solve(normal, right)
    hessian = _hessian(coefficients[d + 1 :], d) - np.eye(d)
    e, vectors = np.linalg.eigh(-hessian)
    return e, vectors, vectors.T @ coefficients[1 : d + 1], len(rows)


def _adapt_reach(search, region, origin, direction, share, gain, predicted, step, wanted, d):
    """Widen the trust region, and go on, where a step was good; narrow it where it failed."""
    if share < 1.0 or gain <= 0:
        region.reach = max(1.5, 0.5 * region.reach)
        return
    was_clipped = not np.array_equal(step, wanted)
    if gain > 0.5 * predicted and (was_clipped or gain > 2 * d):
        region.reach = min(20.0, 1.6 * region.reach)
        best = gain
        for times in (2, 4, 8, 16):
            further = search.evaluate(origin + times * direction) - search.f
            if further < 0:
                break


def _adapt_rho(region, drop, gain, failed, d):
    if failed or drop > max(3 * d, gain / 2):
        region.rho = max(0.02, region.rho * min(0.6, np.sqrt(3 * d / max(drop, 1e-10))))
    else:
        region.rho = min(3.0 if gain > 3 * d else 1.0, 1.4 * region.rho)


# ---- quadratics ---------------------------------------------------------------------------------


def _products(u):
    """Return the columns u_i²/2 and u_i u_j, i > j, of rows u (n, d)."""
    i, j = np.tril_indices(u.shape[1])
    return np.where(i == j, 0.5, 1.0) * u[:, i] * u[:, j]


def _hessian(coefficients, d):
    """Return the matrix (d, d) of the coefficients of `_products`."""
    hessian = np.zeros((d, d))
    hessian[np.tril_indices(d)] = coefficients
    return hessian + np.tril(hessian, -1).T
