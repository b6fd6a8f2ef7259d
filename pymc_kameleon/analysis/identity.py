"""Whether the mean of a control by gradients is 0: in the graph of a model, its density, its draws.

That needs a log-density without jumps that falls off towards all ends of the unconstrained space,
and its gradient. A rise that few draws are in is a jump, too: a sum over the draws lacks its
gradient.

Symbols: z a whitened position, with mean 0 and covariance I over the draws.
"""

import numpy as np
from arviz_stats.base import array_stats
from pytensor.graph.traversal import io_toposort
from pytensor.tensor.shape import Shape, Shape_i
from scipy.spatial import KDTree
from scipy.stats import f as f_distribution
from scipy.stats import norm

from pymc_kameleon.analysis.batches import ROUNDING
from pymc_kameleon.analysis.trust import FEW_EVENTS
from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.records import MANY_DRAWS
from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.model.black_boxes import ops_inside
from pymc_kameleon.model.noise import REPEATABLE

ROUNDING_OPS = {
    *("RoundHalfToEven", "RoundHalfAwayFromZero", "Floor", "Ceil", "Trunc"),
    *("IntDiv", "Mod"),
}
"""PyTensor's Ops that make steps of what varies: their gradient says nothing of these."""

FAR = 10.0, 20.0
"""Standard deviations of a coordinate in which log π should fall: any number between these, as that
of an angle falls, and comes back."""

N_LINES, STRETCH = 100, 3.0
"""Lines of each kind along which the log-density is followed, at most; and how far outwards, in
distances of draws from their mean."""

STEP, WRONG_SHARE = 1e-3, 0.2
"""Length in z to both sides, in which a difference is compared with the integral of the gradient;
and at which share of draws they may differ, as there are kinks."""

MOST_HALVINGS = int(-np.log2(ROOT_EPS))
"""Halvings of lines along which log π and its gradient do not agree, at most."""

HALVINGS_OF_JUMP = 3
"""Halvings in which the disagreement is more than halved each time if log π is smooth."""

LEAST_JUMP = 1e-5
"""Change of log π at a point that is a jump: a solver's tolerance is less."""

LEAST_BATCH, BATCH_SHARE = 10, 0.25
"""Draws of a batch, at least; and controls whose means are looked at together, for each batch."""

NODES, WEIGHTS = np.polynomial.legendre.leggauss(4)


# ---- graph --------------------------------------------------------------------------------------


def why_not_by_graph(logp, value_vars):
    """Return what rounds, on the way from value variables to log π, as a reason; else nothing."""
    moving = set(value_vars)
    for node in io_toposort(value_vars, [logp]):
        if isinstance(node.op, Shape | Shape_i) or not moving.intersection(node.inputs):
            continue
        moving.update(node.outputs)
        names = {type(op).__name__ for op in ops_inside(node.op)} & ROUNDING_OPS
        if names or any(out.dtype.startswith(("int", "uint")) for out in node.outputs):
            what = min(names, default=str(node.op))
            return f"the log-density is made of steps ({what} of parameters)"
    return ""


# ---- density ------------------------------------------------------------------------------------


def why_not_by_density(density, x, logp, gradient):
    """Return why log π (chains, draws) at draws x (.., d) does not fit its gradient; else nothing.

    `density` returns both at points. Lines between draws, and beyond them, are halved until a
    difference of log π is the integral of the gradient, or a jump is left.
    """
    x, gradient = (part.reshape(-1, x.shape[2]) for part in (x, gradient))
    rng, logp = np.random.default_rng(len(x)), logp.ravel()
    mean, factor = whitening(x)
    if _derivative_is_wrong(density, x[rng.integers(len(x), size=N_LINES)], factor, rng):
        return (
            "the gradient is not exactly that of the log-density (is it by finite differences, or "
            "in float32?)"
        )
    if not _falls_off(density, x, logp, rng):
        return "the log-density does not fall off far away from the draws"
    begin, end = rng.integers(len(x), size=(2, N_LINES))
    last = rng.permutation(np.unique([x.argmin(axis=0), x.argmax(axis=0)]))[:N_LINES]
    draw, neighbour = _steep_pairs(x, logp, gradient, factor, rng)
    out = np.concatenate([end, last])
    ends = np.concatenate([x[end], mean + STRETCH * (x[out] - mean), x[neighbour]])
    begin = np.concatenate([begin, out, draw])
    precision = np.linalg.inv(factor @ factor.T)
    jump = _jump_along(density, x, precision, x[begin], ends, logp[begin], logp.min())
    if np.isinf(jump):
        return (
            "the log-density ends near the draws, where it is not yet low (has a bounded variable "
            "no transform?)"
        )
    return "the log-density jumps" if jump > 0 else ""


def whitening(x):
    """Return the mean of points x (n, d), and L of their covariance LLᵀ."""
    covariance = np.atleast_2d(np.cov(x.T))
    scales = np.sqrt(np.diag(covariance))
    values, vectors = np.linalg.eigh(covariance / np.outer(scales, scales))
    values = np.maximum(values, ROOT_EPS)
    return x.mean(axis=0), scales[:, None] * vectors * np.sqrt(values)


def _derivative_is_wrong(density, x, factor, rng):
    """Whether changes of log π near points x (n, d), each along a line, are not by its gradient."""
    way = STEP * rng.standard_normal(x.shape) @ factor.T / np.sqrt(x.shape[1])
    ends = x - way, x + way
    before, after = (density(end)[0] for end in ends)
    off = _disagreement(density, *ends, before, after)
    most = REPEATABLE * (2 * STEP + np.abs(after - before)) + _rounding_of(before)
    return np.mean(~(off < most)) > WRONG_SHARE


def _rounding_of(logp):
    return ROUNDING * np.abs(np.where(np.isfinite(logp), logp, 0.0))


def _falls_off(density, x, logp, rng):
    """Whether log π is lower far from draws of the better half, both ways along coordinates."""
    d = x.shape[1]
    base = rng.choice(np.argsort(logp)[len(x) // 2 :], 2 * max(d, N_LINES))
    far, row, k = x[base], np.arange(len(base)), np.arange(len(base)) // 2 % d
    way = (-1.0) ** row * rng.uniform(*FAR, len(base))
    far[row, k] = x.mean(axis=0)[k] + way * x.std(axis=0)[k]
    return (density(far)[0] < logp[base] - drop(1, NEAR)).all()


def _steep_pairs(x, logp, gradient, factor, rng):
    """Return neighbours between which log π changes most beyond the mean of their gradients."""
    own = rng.permutation(np.unique(x, axis=0, return_index=True)[1])[:MANY_DRAWS]
    x, logp, gradient = x[own], logp[own], gradient[own]
    z = np.linalg.solve(factor, x.T).T
    other = KDTree(z).query(z, k=2, workers=-1)[1][:, 1]
    slopes = np.sum((gradient + gradient[other]) * (x[other] - x), axis=1) / 2
    off = np.abs(logp[other] - logp - slopes)
    chosen = np.argsort(-off, kind="stable")[:N_LINES]
    return own[chosen], own[other[chosen]]


def _jump_along(density, x, precision, a, b, at_a, low):
    """Return the largest jump along lines from a to b (k, d): inf if it ends, 0 for none.

    A jump stays in all halvings, or few of the draws x are beside it.
    """
    at_b = density(b)[0]
    off = _disagreement(density, a, b, at_a, at_b)
    before = np.full((HALVINGS_OF_JUMP, len(a)), np.inf)  # the last ones
    for halving in range(MOST_HALVINGS + 1):
        is_open = off > LEAST_JUMP + _rounding_of(at_a)
        is_open &= np.fmax(at_a, at_b) > low - drop(1, NEGLIGIBLE)
        if halving == MOST_HALVINGS or not is_open.any():
            return off[is_open].max(initial=0.0)
        is_seen = (
            is_open & (np.fmin(at_a, at_b) > low) & (np.exp2(HALVINGS_OF_JUMP) * off > before[0])
        )
        if (seen := np.flatnonzero(is_seen)).size:
            is_rise = _is_steeper_inside(density, a[seen], b[seen], (at_b - at_a)[seen])
            if any(_are_few_beside(x, precision, a[k], b[k]) for k in seen[is_rise]):
                return off[seen[is_rise]].max()
        before = np.vstack([before[1:], off])[:, is_open]
        a, b, at_a, at_b = (part[is_open] for part in (a, b, at_a, at_b))
        middle = (a + b) / 2
        at_middle = density(middle)[0]
        halves = (a, middle, at_a, at_middle), (middle, b, at_middle, at_b)
        first, second = (_disagreement(density, *half) for half in halves)
        is_first = first >= second
        a, b = (np.where(is_first[:, None], *pair) for pair in ((a, middle), (middle, b)))
        at_a, at_b = (np.where(is_first, *pair) for pair in ((at_a, at_middle), (at_middle, at_b)))
        off = np.where(is_first, first, second)


def _is_steeper_inside(density, a, b, change):
    """Whether log π changes from a to b (k, d) more than with any slope between those there, (k,).

    At a kink it changes with such a slope.
    """
    slopes = np.array([np.sum(density(end)[1] * (b - a), axis=1) for end in (a, b)])
    return np.abs(change - slopes.mean(axis=0)) > np.ptp(slopes, axis=0) / 2 + LEAST_JUMP


def _are_few_beside(x, precision, a, b):
    """Whether few draws x (n, d) are between planes through a and b, normal to their line in z."""
    way = precision @ (b - a)
    shares = (x - a) @ way / ((b - a) @ way)
    return np.count_nonzero((shares > 0) & (shares < 1)) < FEW_EVENTS


def _disagreement(density, a, b, at_a, at_b):
    """Return the change of log π from a to b beyond its gradient's, (n,); -1 without a density."""
    shares = (1 + NODES[:, None, None]) / 2
    points = a + shares * (b - a)
    gradients = density(points.reshape(-1, a.shape[1]))[1].reshape(points.shape)
    with np.errstate(invalid="ignore"):
        integral = np.einsum("k,knd,nd->n", WEIGHTS / 2, gradients, b - a)
        off = np.abs(at_b - at_a - integral)
    is_off = np.isfinite(at_a) | np.isfinite(at_b)
    return np.where(is_off, np.nan_to_num(off, nan=np.inf, posinf=np.inf), -1.0)


# ---- draws --------------------------------------------------------------------------------------


def probability_of_means(controls):
    """Return how probable the means of controls (chains, draws, k) are, if they should be 0.

    That is of the one farthest off, or if that is less, of the first ones together: by Hotelling's
    T².
    """
    chains, draws, k = controls.shape
    ess = array_stats.ess(controls, chain_axis=0, draw_axis=1, method="mean")
    error = controls.std(axis=(0, 1)) / np.sqrt(ess)
    z = np.abs(controls.mean(axis=(0, 1)) / error).max()
    length = max(LEAST_BATCH, int(2 * chains * draws / ess.min()))
    n = chains * (draws // length)
    few = controls[:, : draws // length * length, : max(1, min(k, int(BATCH_SHARE * n)))]
    means = few.reshape(n, length, -1).mean(axis=1)
    mean, k_few = means.mean(axis=0), means.shape[1]
    if n <= k_few + 1:
        return k * 2 * norm.sf(z)
    inverse = np.linalg.pinv(np.atleast_2d(np.cov(means.T)), rcond=ROOT_EPS, hermitian=True)
    t_squared = n * mean @ inverse @ mean * (n - k_few) / (k_few * (n - 1))
    return min(k * 2 * norm.sf(z), f_distribution.sf(t_squared, k_few, n - k_few))
