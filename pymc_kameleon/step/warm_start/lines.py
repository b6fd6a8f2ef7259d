"""Along the coordinates: where f is largest on a line, and how wide it is there.

Symbols: as in approach.py.
"""

import numpy as np

from pymc_kameleon.step.warm_start.search import EXACT_LINE, ROUNDING, moved


def sweep(search, rng, coordinates, most):
    """Maximise f along each coordinate in turn; learn its scale, and how well a parabola fits.

    Of several lines the one with the largest range tells: within a small one rounding is misfit.
    """
    for k in rng.permutation(coordinates):
        line = _Line(search, k)
        may_be_exact = search.ranges[k] == 0 or search.misfits[k] < EXACT_LINE
        top = _exact_top(line, search.scales[k]) if may_be_exact else None
        if top is None:
            bracket(line, search.scales[k], most)
            top = top_of(line)
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
        return moved(self.start, self.k, t)

    def __missing__(self, t):
        for known in self:  # back where it has been, but for rounding
            if abs(t - known) <= 1e-14 * abs(t):
                return self[known]
        self[t] = self.value(t)
        return self[t]


class MassLine(_Line):
    """The log of the mass along a coordinate, about: f, and the volume in n exact coordinates.

    The scale of `one` of these, given the others, tells how it changes: f is quadratic in them.
    """

    def __init__(self, search, k, n, one):
        self.n, self.one, self.found = n, one, {}
        super().__init__(search, k)

    def first(self):
        """Return the value where it begins."""
        return self.value(0.0)

    def value(self, t):
        """Return the value at a distance."""
        x = self.place(t)
        f = self.search.evaluate(x)
        scale = self.search.scales[self.one]
        sides = [self.search.evaluate(moved(x, self.one, h)) for h in (-scale, scale)]
        curvature = 2 * f - sum(sides)
        growth = -np.log(curvature) / 2 if 0 < curvature < np.inf else -np.inf
        self.found[t] = f, np.exp(growth)
        return f + self.n * growth


def _exact_top(line, h):
    """Return scale, misfit and range of f if f is a parabola along the line; else None.

    It goes through three points, h apart; a fourth, at its top or two scales away, shows if it is
    f.
    """
    t = np.array([0.0, -h, h])
    f = np.array([line[one] for one in t])
    a, b, c = parabola(t, f)
    if not (a < 0 and np.isfinite(f).all()):
        return None
    scale = (-2 * a) ** -0.5
    fourth = -b / (2 * a) if abs(b / a) > 0.6 * scale else 2 * scale
    misfit, spread = abs(line[fourth] - np.polyval((a, b, c), fourth)), np.ptp([*line.values()])
    is_exact = max(misfit, ROUNDING * np.abs(f).max()) <= EXACT_LINE * spread
    return (scale, misfit / spread, spread) if is_exact else None


def bracket(line, h, most):
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


def top_of(line):
    """Try the vertex of a parabola along a line; return its scale, misfit, and range of f."""
    c, h = line.c, line.h
    if len(line) < 5:
        line[c + 2 * h if line[c + h] > line[c - h] else c - 2 * h]
    t = np.array([t for t in line if line[t] > -np.inf])
    t = t[np.argsort([-line[one] for one in t], kind="stable")][:5]
    f = np.array([line[one] for one in t])
    if len(t) < 3:
        return h, np.inf, 0.0
    a, b, _ = parabola((t[:3] - c) / h, f[:3])
    if not a < 0:
        return h, np.inf, 0.0
    scale, misfit, spread = h * (-2 * a) ** -0.5, np.inf, 0.0
    if len(t) > 3:
        wide = np.argsort(t)[[0, len(t) // 2, -1]]  # rounding weighs less than within narrow ones
        misfits = np.abs(f - np.polyval(parabola(t[wide], f[wide]), t))
        spread = np.ptp(f)
        misfit = np.maximum(misfits - ROUNDING * np.abs(f).max(), 0).max() / spread
    if misfit > EXACT_LINE:
        scale = np.clip(scale, 0.05 * h, 20 * h)
    vertex = c - h * b / (2 * a)
    if abs(vertex - c) > 0.3 * scale:
        line[vertex]
    return scale, misfit, spread


def parabola(t, f):
    """Return a, b and c of the parabola at² + bt + c through three points."""
    first, second = (f[1] - f[0]) / (t[1] - t[0]), (f[2] - f[1]) / (t[2] - t[1])
    a = (second - first) / (t[2] - t[0])
    b = first - a * (t[0] + t[1])
    return a, b, f[0] - t[0] * (a * t[0] + b)
