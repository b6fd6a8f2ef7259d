"""Modes of a log-density, from the past of a chain that has seen them.

Works between transitions, in Python; points are the rows of (n, d) arrays.
"""

from itertools import combinations

import numpy as np
from scipy.cluster.hierarchy import DisjointSet
from scipy.spatial.distance import cdist, pdist

from pymc_kameleon.core.moments import shrink

VALLEY = 2.0
"""Depth from which on a valley separates two modes: a local sampler crosses lesser ones."""

SHARES = np.arange(1, 8) / 8
"""Where a path between two points is evaluated."""

MOST_TESTS = 5
"""Paths that are evaluated from one run to others, the nearest first."""


def find_modes(points, logps, runs, evaluate, whitening):
    """Join the runs of a chain that no valley separates.

    Points of one run belong together, as a chain that moves locally stays in a mode. Two runs are
    joined if on the straight path between two near points, each of the better half of its run, the
    log-density has no deep valley. So a normal mode is never split, whatever its scales, and one
    that is bent is joined step by step.

    Parameters
    ----------
    points : (n, d) float64
    logps : (n,) float64
        Their log-densities.
    runs : (n,) float64
        The run in which each of them was visited.
    evaluate : callable
        Maps a point (d,) to its log-density.
    whitening : (d, d) float64
        Factor of a covariance; distances are measured in whitened coordinates.

    Returns
    -------
    list of (k,) int64
        Rows of the points of each mode, the largest first.
    """
    u = np.linalg.solve(whitening, points.T).T
    groups = [np.flatnonzero(runs == run) for run in np.unique(runs)]
    better = [rows[logps[rows] >= np.median(logps[rows])] for rows in groups]
    links = []
    for i, j in combinations(range(len(groups)), 2):
        distances = cdist(u[better[i]], u[better[j]])
        a, b = np.unravel_index(distances.argmin(), distances.shape)
        links.append((distances[a, b], i, j, better[i][a], better[j][b]))
    modes, tests = DisjointSet(range(len(groups))), np.zeros(len(groups), int)
    for _, i, j, a, b in sorted(links):
        if not modes.connected(i, j) and max(tests[i], tests[j]) < MOST_TESTS:
            tests[[i, j]] += 1
            path = [evaluate(points[a] + share * (points[b] - points[a])) for share in SHARES]
            if valley(np.array([logps[a], *path, logps[b]])) < VALLEY:
                modes.merge(i, j)
    joined = [np.concatenate([groups[i] for i in sorted(mode)]) for mode in modes.subsets()]
    return sorted(joined, key=len, reverse=True)


def valley(logps):
    """Return the depth of the deepest valley on a path."""
    left = np.maximum.accumulate(logps)
    right = np.maximum.accumulate(logps[::-1])[::-1]
    return np.max(np.minimum(left, right) - logps)


def shrunk_covariance(points):
    """Return the covariance of the points, shrunk if they are few."""
    covariance = np.atleast_2d(np.cov(points, rowvar=False, bias=True))
    shrink.py_func(covariance, len(points))
    return covariance


def nearest_modes(points, log_weights, means, factors):
    """Return for each point the component of a normal mixture that is most responsible for it."""
    log_r = [
        log_weight
        - np.sum(np.linalg.solve(factor, (points - mean).T) ** 2, axis=0) / 2
        - np.log(np.diag(factor)).sum()
        for log_weight, mean, factor in zip(log_weights, means, factors, strict=True)
    ]
    return np.argmax(log_r, axis=0)


def choose_evenly(labels, m, rng):
    """Return m rows in random order, as many of each label as there are, up to an equal share."""
    order = rng.permutation(len(labels))
    ranks = np.empty(len(labels))
    for label in np.unique(labels):
        own = order[labels[order] == label]
        ranks[own] = np.arange(len(own))
    return rng.permutation(order[np.argsort(ranks[order], kind="stable")][:m])


def median_distance_within(points, labels):
    """Return the median distance between points of the same label."""
    return np.median(np.concatenate([pdist(points[labels == k]) for k in np.unique(labels)]))


def neighbour_distance(points, k):
    """Return the median distance of the points to their k-th neighbours."""
    return np.median(np.sort(cdist(points, points), axis=1)[:, k])
