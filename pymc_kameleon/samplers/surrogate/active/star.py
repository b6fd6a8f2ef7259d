"""The first evaluations: a star around the start, and what is exactly quadratic.

Each coordinate is looked at by four points on a line. Where a parabola goes through all of them, f
is exactly quadratic in the coordinate, as in the coefficients of a regression; where one nearly
does, two points close by tell whether that is noise. If it is in many, a point for each pair
completes the Hessian, and a Newton step leads to their maximum. The other coordinates then are
searched on lines, unless that loses mass: in the neck of a funnel f has no bound.

Generators yield points (n, d), and are sent their log-densities (n,).

Symbols: x₀ the start, I the exact coordinates, J the others, H and g the Hessian and gradient in I.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.drops import TYPICAL, drop
from pymc_kameleon.step.warm_start.search import EXACT_LINE

NEAR_TOP, TWO_SCALES = 0.6, 2.0
"""How far the top of a parabola is, in scales, where the fourth point is there; and how far that
point is if the top is nearer."""

FARTHEST, LEAST_SCALE = 50.0, 1e-3
"""Bounds of the top of a parabola, and of scales, in x."""

MOST_NOISE, NEARBY, NOISY = 0.3, 1e-3, 4.0
"""Misfit of what may be an exact parabola with noise, at most, where f ranges as across a
posterior; how far apart points are that tell the noise, in scales; and the misfit of an exact
parabola, by the noise."""

ROUNDING, SURE, ALIKE = 1e-6, 5.0, (0.5, 2.0)
"""Misfit that is no noise; curvatures, by their errors by noise, that need not be measured again;
and how different the sizes may be that two points tell of what was solved with noise."""

MOST_ON_LINE, LEAST_STEP, GROWTH = 14, 0.05, 2.5
"""Points on a line at most; its first step at least; and the factor by which steps grow or, where
they were too far for a parabola, shrink."""

NO_NEWS = 0.02
"""Gain at the top of a line that is none."""


class Start(NamedTuple):
    """Where the star has led."""

    x: np.ndarray  # (d,)
    scales: np.ndarray  # (d,), standard deviations of each coordinate given the others
    exact: np.ndarray  # (d,) bool
    factor: np.ndarray  # (d, d) of the covariance if all is known; else of the scales
    is_home: bool


def look_around(x, f):
    """Evaluate a star around x (d,), whose log-density is f, and go to its top; return a Start."""
    steps = np.eye(len(x))
    sides = yield np.concatenate([x + steps, x - steps])
    lines = [{0.0: f, 1.0: a, -1.0: b} for a, b in zip(*np.split(sides, 2), strict=True)]
    fourth = [_fourth(line) for line in lines]
    for line, t, value in zip(lines, fourth, (yield x + np.diag(fourth)), strict=True):
        line[t] = value
    misfits, ranges = np.array([_misfit(line) for line in lines]).T
    tops, scales = np.array([_fitted(line) for line in lines]).T
    exact, noise = misfits <= EXACT_LINE * ranges, 0.0
    may_be_exact = exact | ((misfits <= MOST_NOISE) & (ranges >= drop(1, TYPICAL)))
    least = least_exact(len(x))
    if exact.sum() < least:
        least = max(3, len(x) / 2 + 1)  # so many hardly all seem to be exact by chance
        if may_be_exact.sum() >= least:
            noise = yield from _noise(x, f, scales)
    found = exact
    for _ in lines:  # those that are exact tell of the noise, too
        noise = max(noise, misfits[found].max(initial=0))
        found = found | (may_be_exact & (misfits <= NOISY * noise))
    if found.sum() >= least:
        return (yield from _solve(x, f, lines, found, scales, noise * (noise > ROUNDING)))
    k = max(range(len(x)), key=lambda k: max(lines[k].values()))
    best, at = _best(lines[k]), x.copy()
    at[k] += best
    [together] = yield (x + tops)[None]
    at = x + tops if together > lines[k][best] else at
    return Start(at, scales, np.zeros(len(x), bool), np.diag(scales), False)


def least_exact(d):
    """Return how many exact coordinates of d are worth to be solved for."""
    return max(2, d / 2)


def _best(line):
    """Return where f is largest on a line."""
    return max(line, key=line.get)


def _sorted(line):
    """Return where a line was evaluated, increasing, and f there."""
    t = np.array(sorted(line))
    return t, np.array([line[one] for one in t])


def _parabola(t, f):
    """Return curvature and top of the parabola through three points."""
    first = (f[1] - f[0]) / (t[1] - t[0])
    a = ((f[2] - f[0]) / (t[2] - t[0]) - first) / (t[2] - t[1])
    b = first - a * (t[0] + t[1])
    return 2 * a, -b / (2 * a) if a != 0 else 0.0


def _fourth(line):
    """Return where to look after three points."""
    t, f = _sorted(line)
    higher = 1.0 if line[1.0] >= line[-1.0] else -1.0
    if not np.isfinite(f).all():
        return higher / GROWTH
    curvature, top = _parabola(t, f)
    if not curvature < 0:
        return GROWTH * higher
    scale = (-curvature) ** -0.5
    top = np.clip(top, -FARTHEST, FARTHEST)
    if abs(top) > NEAR_TOP * scale and top not in line:
        return top
    return -TWO_SCALES * scale if top > 0 else TWO_SCALES * scale


def _fitted(line):
    """Return the top and the scale of the parabola through the best three points."""
    t, f = _sorted(line)
    best = np.argsort(-f, kind="stable")[:3]
    where, span = t[best[0]], np.ptp(t[best])
    if np.isfinite(f[best]).all():
        curvature, top = _parabola(t[best], f[best])
        if curvature < 0:
            scale = np.clip((-curvature) ** -0.5, LEAST_SCALE, FARTHEST)
            return np.clip(top, where - span, where + span), scale
    return where, span


def _misfit(line):
    """Return how far a parabola is from all points of a line, and the range of f there."""
    t, f = _sorted(line)
    if not np.isfinite(f).all():
        return np.inf, 0.0
    misfit = f - f[0] - np.polyval(np.polyfit(t, f - f[0], 2), t)
    return np.abs(misfit).max(), np.ptp(f)


def _noise(x, f, scales):
    """Return how far f is from a line through two points close by, if that has variance 1."""
    k, near = np.argmax(scales), np.zeros(len(x))
    near[k] = NEARBY * scales[k]
    return np.abs(f - np.mean((yield np.array([x + near, x - near])))) / 1.5**0.5


# ---- exact coordinates --------------------------------------------------------------------------


def _solve(x, f, lines, exact, scales, noise):
    """Go to the maximum in the exact coordinates, and search the others on lines.

    With noise, eigenvectors whose curvature is not sure are searched, too.
    """
    some, others = np.flatnonzero(exact), np.flatnonzero(~exact)
    n, nowhere = len(some), Start(x, scales, exact, np.diag(scales), False)
    steps = np.maximum(scales[some], LEAST_STEP)
    if noise > 0:
        steps = np.array([max(lines[k], key=abs) for k in some])
    in_pairs = yield _in_pairs(x, steps, some)
    known = [_sorted(lines[k]) for k in some]
    parabolas = np.array([np.polyfit(t, on_line - f, 2)[:2] for t, on_line in known])
    hessian = _hessian(in_pairs - f, parabolas, steps)
    if not np.isfinite(hessian).all():
        return nowhere
    curvatures, vectors = np.linalg.eigh(-hessian)
    least = SURE * 2 * noise * np.sum((vectors / steps[:, None]) ** 2, axis=0)
    weak = np.flatnonzero(curvatures < least)
    curvatures = np.maximum(curvatures, least)
    if not curvatures[0] > 0:
        return nowhere
    at = x.copy()
    at[some] += vectors @ (vectors.T @ parabolas[:, 1] / curvatures)
    [top] = yield at[None]
    if not top > f:
        return nowhere
    axes = np.eye(len(x))
    for k in weak:
        along = vectors[:, k] @ axes[some]
        at, top, scale = yield from _search_line(at, top, along, curvatures[k] ** -0.5)
        curvatures[k] = scale**-2
    before, block, f = (at, scales.copy()), vectors * curvatures**-0.5, top
    for k in others:
        at, top, scales[k] = yield from _search_line(at, top, axes[k], scales[k])
    z = np.random.default_rng(n).standard_normal((2, n))
    drops = top - (yield at + z @ block.T @ axes[some])
    predicted = 0.5 * np.sum(z * z, axis=1)
    size = (np.mean(drops) / np.mean(predicted)) ** -0.5
    mass = top - f + n * np.log(size) + np.log(scales / before[1]).sum()
    one, other = drops / predicted
    is_home = noise == 0 or bool(one > 0 and ALIKE[0] < one / other < ALIKE[1])
    if not mass > 0:  # the neck of a funnel has hardly any
        (at, scales), size = before, 1.0
    factor = np.diag(scales)
    factor[np.ix_(some, some)] = size * block
    return Start(at, scales, exact, factor, is_home)


def _in_pairs(x, steps, some):
    """Return x moved by steps (n,) in each pair of some coordinates, (n(n − 1)/2, d)."""
    moves, (i, j) = np.zeros((len(some), len(x))), np.tril_indices(len(some), -1)
    moves[np.arange(len(some)), some] = steps
    return x + moves[i] + moves[j]


def _hessian(rises_of_pairs, parabolas, steps):
    """Return the Hessian (n, n), by rises of f in pairs, and a parabola (n, 2) of each one."""
    i, j = np.tril_indices(len(steps), -1)
    rises = parabolas[:, 0] * steps**2 + parabolas[:, 1] * steps
    hessian = np.diag(2 * parabolas[:, 0])
    hessian[i, j] = (rises_of_pairs - rises[i] - rises[j]) / (steps[i] * steps[j])
    hessian[j, i] = hessian[i, j]
    return hessian


def _search_line(x, f, one, scale):
    """Maximise f along a direction by growing steps and a parabola; return x, f and the scale."""
    h, line = max(scale, LEAST_STEP), {0.0: f}
    line[h], line[-h] = yield x + np.outer([h, -h], one)
    while len(line) < MOST_ON_LINE:
        new = _next_on(line)
        if new is None or new in line:
            break
        [line[new]] = yield (x + new * one)[None]
    best = _best(line)
    return x + best * one, line[best], _fitted(line)[1]


def _next_on(line):
    """Return where to look next, None if the top is known."""
    t, f = _sorted(line)
    i = int(np.argmax(f))
    if i == 0:
        return t[0] - GROWTH * (t[1] - t[0])
    if i == len(t) - 1:
        return t[-1] + GROWTH * (t[-1] - t[-2])
    if f[i] - max(f[i - 1], f[i + 1]) > drop(1, TYPICAL):  # too far: on the wider side
        return t[i] + max(t[i + 1] - t[i], t[i - 1] - t[i], key=abs) / GROWTH
    around = slice(i - 1, i + 2)
    curvature, top = _parabola(t[around], f[around])
    return top if -0.5 * curvature * (top - t[i]) ** 2 > NO_NEWS else None
