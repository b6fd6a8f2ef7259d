"""The way from a chain's start to where the posterior is, and its shape there.

For log-densities that have no gradient and are expensive. Each coordinate is searched first, which
gives its scale. Where the log-density is exactly quadratic in many coordinates, as in the
coefficients of a regression given its scale, a fit in these finds their maximum from however far.
SciPy's BFGS goes the rest of the way, and quadratics that are fitted at the top give the shape.
Nothing of this is a Markov chain: it is for tuning.

Chains of one run need not all go the whole way: where f does not dip between a chain and the place
to which another has come, it goes there. With few evaluations in all it goes there without a look.

Symbols: f the log-density, x the best point so far (d,), L the metric, u the coordinates in which
y = x + Lu, H and g the Hessian and gradient of f in u, P = (d+1)(d+2)/2 the coefficients of a
quadratic, ρ the radius in u of the points that it is fitted to.
"""

import time
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

BUDGET = 60
"""Times d: evaluations of an approach, at most."""

IN_HASTE = 30
"""Times d, or times 3 if d is less: evaluations of a chain in all below which it has none to spare
for a way of its own."""

LATE = 5
"""Times d: evaluations by whose gain a way is judged that has used up its budget."""

FEW = 40
"""Dimensions up to which quadratics are fitted; beyond, they would take most of the budget."""

MANY = 60
"""Coordinates in which f is solved for at once; of more, least squares would take minutes."""

ALONG, FAR = (12, 6), 20
"""Evaluations along a coordinate, about: the first time, and later; and along one in which f is not
quadratic, where it is in others."""

SOME = 1
"""Coordinates whose scales tell how the volume changes."""

PROBES, MISFIT = 3, 0.2
"""Points at which a rough shape is tried, and the share by which f may fall more or less there."""

EXACT, EXACT_FIT = 1e-7, 1e-3
"""Largest misfit of a quadratic, over the range of f, where f is taken to be one: along a line,
and in many coordinates."""

ROUNDING = 10 * np.finfo(float).eps
"""Of a value of f, relative: more than that is misfit."""

DIFFERENCE = 0.01
"""Finite differences of the climb, in u."""
SLOPE, GAIN = 0.1, 0.1
"""The climb ends where the gradient in u, or the gain of a step, is less."""

BAD = 1e10
"""Below the start of a climb: what stands for -inf."""

LOSS, STRAYED = 0.2, 6.0
"""Times d: of log mass, from which on a climb is taken back; and the squared distance, in units of
the metric, if that was solved for."""

ROUNDS = 3
"""Fits at the top, about; three times as many at most, as long as it is wider than was known."""

FLATTEST = 0.1
"""Curvature in u that a fit is trusted with, at least."""

RADIUS = 0.7
"""ρ at first, and at most."""

DIP, NEARER, CLOSE = 1.0, 1.5, 1.0
"""By how much f may dip on the line between two places that are taken for one; by what the points
there come nearer to the second place; and the distance in u from which none is looked at."""

TRIES = 10
"""Draws near home, at most."""

TOP, ARMIJO, SHORTEST = 0.15, 0.3, 1e-3
"""Of a climb in another chain's metric: times d, what is still to be gained where it ends; what a
step has to gain of what the slope promises, as steps into other modes seldom do; and the least
factor by which steps are shortened."""

REACH = 0.05, 12.0
"""Times d: squared distances, in radii, of points that are fitted. Nearer ones, as those of finite
differences, say nothing of curvature."""


class Guide(NamedTuple):
    """What a chain that has come home tells others of the way; NaN before there is one.

    Attributes
    ----------
    x, scales, factor, exact
        As of a Home.
    """

    x: np.ndarray
    scales: np.ndarray
    factor: np.ndarray
    exact: np.ndarray

    @classmethod
    def nowhere(cls, d):
        """Return the one that knows nothing."""
        return cls(*(np.full(shape, np.nan) for shape in (d, d, (d, d))), np.zeros(d, bool))

    @property
    def is_home(self):
        """Whether it is one."""
        return self.x.size > 0 and not np.isnan(self.x[0])


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
    exact : (d,) bool
        Coordinates in which the log-density is exactly quadratic, together, if that was found.
    climbing : float
        What the log-density still gained in the last 5 d evaluations if the budget was used up;
        else 0.
    points : (n, d) float64
        All that was evaluated, in its order.
    logps : (n,) float64
        Its log-density, -inf where that is not finite.
    """

    x: np.ndarray
    logp: float
    scales: np.ndarray
    factor: np.ndarray
    exact: np.ndarray
    climbing: float
    points: np.ndarray
    logps: np.ndarray

    @property
    def guide(self):
        """What others may know of it."""
        return Guide(self.x, self.scales, self.factor, self.exact)


def evaluations_for_a_way(d):
    """Return from how many evaluations in all a chain finds the posterior by a way of its own."""
    return IN_HASTE * max(d, 3)


def approach(logp, start, rng, budget, rough=False, guide=None, in_haste=False):
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
    rough : bool
        Whether a rough shape is enough, as to a sampler that learns from every evaluation: that
        saves a fifth of them, about.
    guide : Guide, optional
        Of another chain.
    in_haste : bool
        Whether to go where that has come without a look at what is on the way.

    Returns
    -------
    Home
    """
    search = _Search(logp, start, budget)
    with threadpool_limits(1):  # on small matrices threads are slower, and differ in the last bit
        with suppress(_Spent, np.linalg.LinAlgError), np.errstate(all="ignore"):
            search.evaluate(start)
            is_led = guide is not None and guide.is_home
            if is_led and in_haste:
                search.go_to(guide, search.evaluate(guide.x))
            elif not is_led or not _joins(search, rng, guide):
                _find_home(search, rng, rough)
        factor = np.linalg.qr(search.metric.T, mode="r").T
    factor *= np.where(np.diag(factor) < 0, -1.0, 1.0)
    points, logps = np.array(search.points), np.array(search.logps)
    before = logps[: -LATE * start.size].max(initial=logps[0])
    climbing = float(logps.max() - before) if search.left == 0 else 0.0
    return Home(search.x, search.f, search.scales, factor, search.exact, climbing, points, logps)


def _joins(search, rng, guide):
    """Go to the guide's home if f does not dip on the way, nor ends low; return whether it did.

    The way leads to the guide's place in the coordinates in which f is exactly quadratic, then up
    in all, then straight on. From halfway up another mode the straight line might show no dip, so
    the climb ends at a top, or at home.
    """
    is_there = _go_where_exact(search, guide) if guide.exact.any() else guide.exact
    others = np.flatnonzero(~is_there)
    if len(others) > 1:
        _climb_in_metric(search, guide)
    else:
        _sweep(search, rng, others, ALONG[1])
    own = search.here()
    way, t = search.x - guide.x, 1.0
    distance = np.linalg.norm(np.linalg.solve(guide.factor, way))
    f = [search.f]
    while t > 0:
        t = t / NEARER if t * distance > CLOSE else 0.0
        f.append(search.evaluate(guide.x + t * way))
    f = np.array(f)
    before, after = np.maximum.accumulate(f), np.maximum.accumulate(f[::-1])[::-1]
    if np.max(np.minimum(before, after) - f) > DIP or f[-1] < f.max() - way.size:
        search.return_to(own)
        return False
    search.go_to(guide, f[-1])
    return True


def _go_where_exact(search, guide):
    """Go to the guide's place in the coordinates where f is exactly quadratic, if it is on the way.

    Returns these coordinates, as a mask.
    """
    place, way = search.here(), np.where(guide.exact, guide.x - search.x, 0.0)
    t = np.array([0.4, 0.7, 1.0])
    f = np.array([search.evaluate(place[0] + one * way) for one in t])
    misfit = abs(place[1] - np.polyval(_parabola(t, f), 0.0))
    rounding = ROUNDING * np.abs([place[1], *f]).max()
    if f[-1] > place[1] and misfit <= EXACT * (f[-1] - place[1]) + rounding:
        search.return_to((place[0] + way, f[-1], place[2]))
        return guide.exact
    search.return_to(place)
    return np.zeros_like(guide.exact)


def _climb_in_metric(search, guide):
    """Climb with the guide's curvature, which BFGS corrects, until near a top or the guide's home.

    SciPy's BFGS would begin with a step of length 1, and take a gradient at each trial.
    """
    d, origin, inverse = search.x.size, search.x, np.eye(search.x.size)
    home = np.linalg.solve(guide.factor, guide.x - origin)

    def at(u):
        return search.evaluate(origin + guide.factor @ u)

    def slope(u, f):
        return np.array([at(u + DIFFERENCE * one) - f for one in np.eye(d)]) / DIFFERENCE

    u, f, moved, gradient = np.zeros(d), search.f, None, None
    while np.sum((u - home) ** 2) > d:
        before, gradient = gradient, slope(u, f)
        if moved is not None:
            inverse = _updated(inverse, moved, before - gradient)
        step = inverse @ gradient
        if moved is not None and not gradient @ step > 2 * TOP * d:  # at first the scale is foreign
            return
        t, f_new = 1.0, at(u + step)
        while not f_new > f + ARMIJO * t * (gradient @ step):
            t *= ARMIJO
            if t < SHORTEST:
                return
            f_new = at(u + t * step)
        moved, u, f = t * step, u + t * step, f_new


def _updated(inverse, moved, change):
    """Return what BFGS makes of an inverse curvature; as it was, if f is not concave there."""
    if not moved @ change > 1e-3 * np.linalg.norm(moved) * np.linalg.norm(change):
        return inverse
    left = np.eye(moved.size) - np.outer(moved, change) / (moved @ change)
    return left @ inverse @ left.T + np.outer(moved, moved) / (moved @ change)


def draw_near(home, logp, rng):
    """Return a point (d,) near the middle of a home that is about a draw of the posterior.

    It is drawn from the normal with the home's covariance, and accepted as Metropolis and Hastings
    would from the middle; after ten tries it is the middle.
    """
    for _ in range(TRIES):
        z = rng.standard_normal(home.x.size)
        x = home.x + home.factor @ z
        if np.log(rng.random()) < logp(x) - home.logp + z @ z / 2:
            return x
    return home.x


def _find_home(search, rng, rough):
    """Go up, and learn the shape there; but back where that has lost mass.

    In the neck of a funnel f has no bound, and hardly any mass, which is f and the log of volume.
    """
    d = search.x.size
    _sweep(search, rng, range(d), ALONG[0])
    search.metric = np.diag(search.scales)
    if d == 1:
        return
    is_clear = search.ranges * EXACT > ROUNDING * abs(search.logps[0])
    known = np.flatnonzero((search.misfits < EXACT) & is_clear)
    known = known if len(known) >= max(2, d / 2) else []
    _sweep(search, rng, np.setdiff1d(range(d), known), ALONG[1])
    search.metric = np.diag(search.scales)
    exact, solved = np.flatnonzero(search.misfits < EXACT), False
    if max(2, d / 2) <= len(exact) <= MANY:
        gain = _solve(search, rng, exact)
        solved = gain >= 0
        # what held the coefficients at first may have no weight any more
        if gain > 1 and not (rough and _is_still_right(search, rng, exact)):
            solved = _solve(search, rng, exact) >= 0
        search.exact[exact] = solved
        if rough and solved:
            return
    before, inverse, climbed = search.here(), np.linalg.inv(search.metric), -np.inf
    mass = search.f - np.log(np.linalg.norm(inverse, axis=0)).sum()
    while search.f > climbed + max(0.5, 0.15 * d):  # the climb stopped too early
        with suppress(_Spent):
            _climb(search, least=ALONG[1] * d)
        climbed = search.f
        _sweep(search, rng, range(d), ALONG[1])
        is_lost = search.f + np.log(search.scales).sum() < mass - LOSS * d
        strays = solved and len(exact) < d
        if is_lost or (strays and np.sum((inverse @ (search.x - before[0])) ** 2) > STRAYED * d):
            search.return_to(before)
            return
        if d <= FEW:
            _fit_shape(search, rng, solved)


class OnTheWay(Exception):
    """There was no time to arrive."""


class Trail:
    """A log-density that remembers what it gave, so that an approach can go on after a pause.

    It is made again from its beginning, which takes no evaluations as far as the values are known,
    and by the same random numbers comes to the same end.

    Parameters
    ----------
    logp : callable
    values : (n,) float64
        What is known, then NaN; filled in.
    seconds : float
        After which `OnTheWay` is raised, but not before there is one new value.
    """

    def __init__(self, logp, values, seconds):
        self.logp, self.values = logp, values
        self.known, self.n = np.count_nonzero(~np.isnan(values)), 0
        self.begun, self.end = self.known, time.perf_counter() + seconds

    def __call__(self, x):
        """Return the log-density at x, -inf for NaN."""
        if self.n == self.known:
            if self.known > self.begun and time.perf_counter() > self.end:
                raise OnTheWay
            value = self.logp(x)
            self.values[self.n] = value if value < np.inf else -np.inf  # for NaN, too
            self.known += 1
        self.n += 1
        return self.values[self.n - 1]


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
        self.misfits, self.ranges = np.full(start.size, np.inf), np.zeros(start.size)
        self.exact = np.zeros(start.size, bool)

    def here(self):
        """Return the best point, f there, and a copy of the metric."""
        return self.x, self.f, self.metric.copy()

    def return_to(self, place):
        """Make a place the best again."""
        self.x, self.f, self.metric = place

    def go_to(self, guide, f):
        """Take the place of a guide, where f is known, for home."""
        self.return_to((guide.x, f, guide.factor.copy()))
        self.scales, self.exact = guide.scales.copy(), guide.exact

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
    """Maximise f along each coordinate in turn; learn its scale, and how well a parabola fits.

    Of several lines that tells which has the largest range of f: within a small one rounding counts
    as misfit, and what is far from its maximum looks straight.
    """
    for k in rng.permutation(coordinates):
        line = _Line(search, k)
        may_be_exact = search.ranges[k] == 0 or search.misfits[k] < EXACT
        top = _exact_top(line, search.scales[k]) if may_be_exact else None
        if top is None:
            _bracket(line, search.scales[k], most)
            top = _top(line)
        search.scales[k], misfit, spread = top
        if spread > search.ranges[k]:
            search.misfits[k], search.ranges[k] = misfit, spread


class _Line(dict):
    """f along a coordinate, by the distance from where it was begun."""

    def __init__(self, search, k):
        super().__init__()
        self.search, self.k, self.start = search, k, search.x
        self[0.0] = self.first()

    def first(self):
        """Return the value where it begins."""
        return self.search.f

    def value(self, t):
        """Return the value at a distance."""
        return self.search.evaluate(self.place(t))

    def place(self, t):
        """Return the point at a distance."""
        return _moved(self.start, self.k, t)

    def __missing__(self, t):
        for known in self:  # back where it has been, but for rounding
            if abs(t - known) <= 1e-14 * abs(t):
                return self[known]
        self[t] = self.value(t)
        return self[t]


class _MassLine(_Line):
    """The log of the mass along a coordinate, about: f, and the volume in `exact` coordinates.

    The scales of a few of these, given the others, tell how it changes: f is quadratic in them.
    """

    def __init__(self, search, k, exact, few):
        self.n, self.few, self.found = len(exact), few, {}
        super().__init__(search, k)

    def first(self):
        """Return the value where it begins."""
        return self.value(0.0)

    def value(self, t):
        """Return the value at a distance."""
        x = self.place(t)
        f = self.search.evaluate(x)
        growth = np.mean([self._growth(x, f, j) for j in self.few])
        self.found[t] = f, np.exp(growth)
        return f + self.n * growth

    def _growth(self, x, f, j):
        scale = self.search.scales[j]
        sides = [self.search.evaluate(_moved(x, j, h)) for h in (-scale, scale)]
        curvature = 2 * f - sum(sides)
        return -np.log(curvature) / 2 if 0 < curvature < np.inf else -np.inf


def _exact_top(line, h):
    """Return scale, misfit and range of f if f is a parabola along the line; else None.

    It goes through three points, h apart. A fourth one shows whether it is f: its top, or, if that
    is near the first point, one that is two scales away.
    """
    t = np.array([0.0, -h, h])
    f = np.array([line[one] for one in t])
    a, b, c = _parabola(t, f)
    if not (a < 0 and np.isfinite(f).all()):
        return None
    scale = (-2 * a) ** -0.5
    fourth = -b / (2 * a) if abs(b / a) > 0.6 * scale else 2 * scale
    misfit, spread = abs(line[fourth] - np.polyval((a, b, c), fourth)), np.ptp([*line.values()])
    is_exact = max(misfit, ROUNDING * np.abs(f).max()) <= EXACT * spread
    return (scale, misfit / spread, spread) if is_exact else None


def _bracket(line, h, most):
    """Bracket the maximum of a line, with steps of h at first."""
    c, uphill = 0.0, 0.0
    for _ in range(most):  # steps may lead back to points that are known
        if len(line) >= most:
            break
        if uphill != 0 and line[c + uphill * h] > line[c]:
            best = c + uphill * h
        else:
            best = max(c - h, c + h, key=line.__getitem__)
        gain = line[best] - line[c]
        if gain > 0:
            uphill, c = np.sign(best - c), best
            h *= 2.5 if gain > 2 else 1.0
            continue
        drops = line[c] - np.array([line[c - h], line[c + h]])
        if drops.min() > 4:  # of a parabola, h would then be about its scale
            h *= np.clip(drops.min() ** -0.5, 1e-3, 0.4) if drops.min() < np.inf else 0.1
        elif drops.max() < 0.1:
            h *= np.clip(np.maximum(drops.max(), 1e-10) ** -0.5, 4.0, 100.0)
        else:
            break
    line.c, line.h = c, h


def _top(line):
    """Try the vertex of a parabola along a line; return its scale, misfit, and range of f."""
    c, h = line.c, line.h
    if len(line) < 5:
        line[c + 2 * h if line[c + h] > line[c - h] else c - 2 * h]
    t = np.array([t for t in line if line[t] > -np.inf])
    t = t[np.argsort([-line[one] for one in t], kind="stable")][:5]
    f = np.array([line[one] for one in t])
    if len(t) < 3:
        return h, np.inf, 0.0
    a, b, _ = _parabola((t[:3] - c) / h, f[:3])
    if not a < 0:
        return h, np.inf, 0.0
    scale, misfit, spread = h * (-2 * a) ** -0.5, np.inf, 0.0
    if len(t) > 3:
        wide = np.argsort(t)[[0, len(t) // 2, -1]]  # rounding weighs less than within narrow ones
        misfits = np.abs(f - np.polyval(_parabola(t[wide], f[wide]), t))
        spread = np.ptp(f)
        misfit = np.maximum(misfits - ROUNDING * np.abs(f).max(), 0).max() / spread
    if misfit > EXACT:
        scale = np.clip(scale, 0.05 * h, 20 * h)
    vertex = c - h * b / (2 * a)
    if abs(vertex - c) > 0.3 * scale:
        line[vertex]
    return scale, misfit, spread


def _parabola(t, f):
    """Return a, b and c of the parabola at² + bt + c through three points."""
    first, second = (f[1] - f[0]) / (t[1] - t[0]), (f[2] - f[1]) / (t[2] - t[1])
    a = (second - first) / (t[2] - t[0])
    b = first - a * (t[0] + t[1])
    return a, b, f[0] - t[0] * (a * t[0] + b)


# ---- where f is exactly quadratic -----------------------------------------------------------


def _solve(search, rng, exact):
    """Maximise f in the coordinates in which it is exactly quadratic; then the mass in the others.

    Returns the gain of log mass by the others, or -1 if there was no solution. Going by the mass
    keeps out of the necks of funnels.
    """
    n = len(exact)
    n_points = (n + 1) * (n + 2) // 2 + 3
    if n_points > search.left:
        return -1.0
    centre, block = search.x, search.metric[np.ix_(exact, exact)]
    width = max(1.0, np.sqrt(ROUNDING * abs(search.f) / EXACT_FIT**2))  # f has to change by more
    u = 0.8 * rng.standard_normal((n_points, n))
    block = block * width
    f = np.array([search.evaluate(_moved(centre, exact, block @ one)) for one in u])
    if not np.isfinite(f).all():
        return -1.0
    design = np.column_stack([np.ones(n_points), u, _products(u)])
    coefficients = np.linalg.lstsq(design, f, rcond=1e-14)[0]
    misfit, spread = np.abs(f - design @ coefficients).max(), np.ptp(f)
    if not misfit <= EXACT_FIT * spread or spread == 0:
        return -1.0
    gradient, hessian = coefficients[1 : n + 1], _hessian(coefficients[n + 1 :], n)
    e, vectors = np.linalg.eigh(-hessian)
    e = np.maximum(np.abs(e), max(1e-9, 3 * misfit / spread / n**0.5) * np.abs(e).max())
    search.evaluate(_moved(centre, exact, block @ vectors @ (vectors.T @ gradient / e)))
    block = block @ vectors / np.sqrt(e)
    few, gain = rng.permutation(exact)[:SOME], 0.0
    for k in rng.permutation(np.setdiff1d(np.arange(search.x.size), exact)):
        line = _MassLine(search, k, exact, few)
        if line[0.0] == -np.inf:  # f is not concave here, so that it is not that quadratic
            return -1.0
        _bracket(line, search.scales[k], FAR)
        search.scales[k] = _top(line)[0]
        best = max(line, key=line.get)
        gain += line[best] - line[0.0]
        f, size = line.found[best]
        block = block * size / line.found[0.0][1]
        search.return_to((line.place(best), f, search.metric))
        search.metric[k, k] = search.scales[k]
    search.metric[np.ix_(exact, exact)] = block
    return gain


def _is_still_right(search, rng, exact):
    """Whether the quadratic in `exact` coordinates, with the volume that it has now, is f's."""
    block = search.metric[np.ix_(exact, exact)]
    origin, top = search.x, search.f
    for z in rng.standard_normal((PROBES, len(exact))):
        drop = top - search.evaluate(_moved(origin, exact, block @ z))
        if not abs(drop / (z @ z / 2) - 1) < MISFIT:
            return False
    return True


def _moved(x, coordinates, step):
    y = x.copy()
    y[coordinates] += step
    return y


# ---- uphill -------------------------------------------------------------------------------------


def _climb(search, least):
    """Maximise f by BFGS with finite differences; `least` evaluations have to be left."""
    origin, metric, top, d = search.x, search.metric, search.f, search.x.size

    def minus_f(u):
        if search.left <= least:
            raise _Spent
        return min(top - search.evaluate(origin + metric @ u), BAD)

    def look(u):
        nonlocal last
        gain, last = search.f - last, search.f
        if gain < GAIN or search.left < least + 3 * (d + 1):
            raise StopIteration

    last, options = top, {"eps": DIFFERENCE, "gtol": SLOPE}
    found = minimize(minus_f, np.zeros(d), method="BFGS", options=options, callback=look)
    with suppress(np.linalg.LinAlgError):  # rounding leaves it indefinite
        search.metric = metric @ np.linalg.cholesky(found.hess_inv)


# ---- the shape at the top -----------------------------------------------------------------------


def _fit_shape(search, rng, known):
    """Fit quadratics around the best point until one agrees with the metric.

    If that is `known`, a few points decide whether a fit is necessary.
    """
    d, rho = search.x.size, RADIUS
    p = (d + 1) * (d + 2) // 2
    for i in range(3 * ROUNDS):
        near = np.count_nonzero(_is_near(_distances2(search, search.x) / (d * rho**2)))
        origin, top = search.x, search.f
        n_new = d + 4 if known and i == 0 else max(d + 4, int(1.2 * p) - near)
        u = rho * rng.standard_normal((n_new, d)) * rng.uniform(0.5, 1.2, (n_new, 1))
        drop = np.median([top - search.evaluate(origin + search.metric @ one) for one in u])
        if known and i == 0:
            if 0.15 < drop / (d * rho**2) < 0.8:
                break
            continue
        fitted = _fit(search, origin, top, rho, drop)
        if fitted is None:
            rho *= 0.5
            continue
        e, vectors, g = fitted
        clipped = np.clip(np.abs(e), FLATTEST, 1 / FLATTEST)
        limit = 3 * rho / np.sqrt(clipped)
        step = np.clip(g / clipped, -limit, limit)
        gain = g @ step - step @ (e * step) / 2
        if gain > 0.25:
            search.evaluate(origin + search.metric @ vectors @ step)
        search.metric = search.metric @ vectors / np.sqrt(clipped)
        rho = RADIUS * min(1.0, np.sqrt(3 * d / max(drop, 1e-10)))
        agrees = gain < max(0.5, 0.15 * d) and e.min() > 0.4 and e.max() < 3
        if agrees or (i >= ROUNDS and e.min() > FLATTEST):
            break


def _is_near(distances2):
    return (distances2 > REACH[0]) & (distances2 < REACH[1])


def _distances2(search, origin):
    """Squared distances |u|² of all points from one."""
    u = np.linalg.solve(search.metric, (np.array(search.points) - origin).T)
    return np.sum(u * u, axis=0)


def _fit(search, origin, top, rho, drop):
    """Fit a quadratic in u; return eigenvalues and -vectors of −H, and g along them."""
    d = len(origin)
    p = (d + 1) * (d + 2) // 2
    drops, distances2 = top - np.array(search.logps), _distances2(search, origin)
    cap = max(6 * d, 2.5 * drop) if np.isfinite(drop) else 6 * d
    rows = np.flatnonzero(_is_near(distances2 / (d * rho**2)) & (drops < cap))
    rows = rows[np.argsort(distances2[rows], kind="stable")][: 2 * p]
    if len(rows) < d + 2:
        return None
    u = np.linalg.solve(search.metric, (np.array(search.points)[rows] - origin).T).T
    drops = drops[rows]
    weights = (1 + np.abs(drops) / max(d, cap / 6)) ** -2
    design = np.column_stack([np.ones(len(u)), u, _products(u)])
    penalty = np.repeat([1e-10, 1e-8, 1e-3], [1, d, p - d - 1])
    normal = (design.T * weights) @ design + np.diag(penalty)
    right = design.T @ (weights * (np.sum(u * u, axis=1) / 2 - drops))
    coefficients = np.linalg.solve(normal, right)
    hessian = _hessian(coefficients[d + 1 :], d) - np.eye(d)
    e, vectors = np.linalg.eigh(-hessian)
    return e, vectors, vectors.T @ coefficients[1 : d + 1]


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
