"""What CyclicalKAM's chains learn together between transitions: their clusters, z, and its kernel.

Works between transitions, in Python; points are the rows of (n, d) arrays.
"""

from typing import NamedTuple

import numpy as np
from scipy.spatial.distance import pdist

from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.samplers.kameleon.mode_search import find_modes, negligible_drop, set_clusters
from pymc_kameleon.samplers.kameleon.subsample import BANDWIDTH_SHARE, least_points
from pymc_kameleon.samplers.symmetries import likely_symmetries

NEGLIGIBLE_WEIGHT = 1e-4
"""Weight of a cluster that is not worth a jump."""

LEAST_OF_MODE = 3
"""Points of a mode, at least, from which its weight is learned."""


class Archive(NamedTuple):
    """Distinct points that a chain has visited."""

    points: np.ndarray  # (n, d)
    logps: np.ndarray  # their log-densities

    def above(self, floor):
        """Return what is above a log-density."""
        return Archive(*(values[self.logps > floor] for values in self))


def learn_modes(chains):
    """Find the modes, and draw z from them; later, again. Too few points leave a walk.

    The chains learn from all archives, and all get the same; each stays where it is. Points far
    below the best of all archives are of no mode.
    """
    first = chains[0]
    others = first.log_density.point[first._d :].copy()
    if others.size and len(chains) > 1:  # where each chain has a log-density of its own
        for chain in chains:
            learn_modes([chain])
        return

    def evaluate(x):
        return first.log_density(np.concatenate([x, others]))

    archives = [archived(c.tuning.history, evaluate if others.size else None) for c in chains]
    best = max(archive.logps.max(initial=-np.inf) for archive in archives)
    floor = best - negligible_drop(first._d)
    archives = [archive.above(floor) for archive in archives]
    joined = Archive(*map(np.concatenate, zip(*archives, strict=True)))
    clusters, m = first.parameters.clusters, first.parameters.kam.subsample.m
    enough = len(joined.points) >= least_points(first._d)
    if not (learned(chains, archives, joined, evaluate) if enough else m[0] > 0):
        clusters.n[0] = m[0] = 0
    for chain in chains:
        copy_arrays(first.parameters, chain.parameters)
        chain.tuning.s[0], chain.tuning.visits[:] = first.tuning.s[0], first.tuning.visits
        chain.tuning.floor[0] = -np.inf if others.size else floor
        chain.tuning.history.counts[:] = 0, 1, 0


def archived(history, evaluate=None):
    """Return a chain's archive; `evaluate` is given where other steps have changed logp since."""
    rows = history.points[: history.counts[0]]
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[np.any(np.diff(rows, axis=0, prepend=np.nan) != 0, axis=1)]
    if evaluate:
        rows[:, -1] = [evaluate(row[:-1]) for row in rows]
    return Archive(rows[:, :-1], rows[:, -1])


def learned(chains, archives, joined, evaluate):
    """Learn the clusters, or pool those of the chains, and z; return whether that is possible."""
    step, points = chains[0], joined.points
    clusters, subsample = step.parameters.clusters, step.parameters.kam.subsample
    if not have_finite_width(points):
        return False
    if subsample.m[0] == 0:
        maps = likely_symmetries(step)
        keep_symmetries(step.parameters, maps, joined, evaluate)
        own = [archive for archive in archives if len(archive.points) >= least_points(step._d)]
        set_clusters(clusters, find_modes(chains, own or [joined], maps, evaluate))
        if clusters.n[0] == 0:
            return False
        step.tuning.visits[:] = 1.0
        subsample.shape.log_scale[0] = step.tuning.shape.log_best
        points = drawn_from(clusters, subsample.z.shape[1], step.rng)
    try:
        if subsample.m[0] > 0:
            if len(chains) > 1:
                pool_clusters(chains)
            weigh_clusters(clusters, *joined)
            drop_clusters(clusters)
        learn_kernel(step, points)
    except np.linalg.LinAlgError:  # rounding leaves a covariance that is not positive definite
        return False
    return True


def drawn_from(clusters, m, rng):
    """Return points (n, d), as many draws of each cluster, at least m in all."""
    n, d = clusters.n[0], clusters.means.shape[1]
    xi = rng.standard_normal((n, -(-m // n), d))
    points = clusters.means[:n, None] + xi @ np.tril(clusters.factors[:n]).transpose(0, 2, 1)
    return points.reshape(-1, d)


def pool_clusters(chains):
    """Pool the moments that the chains learned, by the visits of each, for the first one."""
    clusters, n = chains[0].parameters.clusters, chains[0].parameters.clusters.n[0]
    visits = np.array([chain.tuning.visits[:n] for chain in chains])
    means = np.array([chain.parameters.clusters.means[:n] for chain in chains])
    factors = np.tril([chain.parameters.clusters.factors[:n] for chain in chains])
    shares = visits / visits.sum(axis=0)
    clusters.means[:n] = np.einsum("ck,cki->ki", shares, means)
    deviations = means - clusters.means[:n]
    covariances = np.einsum("ck,ckij,ckhj->kih", shares, factors, factors)
    covariances += np.einsum("ck,cki,ckj->kij", shares, deviations, deviations)
    clusters.factors[:n] = np.linalg.cholesky(covariances)
    chains[0].tuning.visits[:n] = visits.sum(axis=0)


def weigh_clusters(clusters, points, logps):
    """Learn the weights of the clusters."""
    n = clusters.n[0]
    log_weights, factors = clusters.log_weights[:n], clusters.factors[:n]
    labels = nearest_modes(points, log_weights, clusters.means[:n], factors)
    log_weights[:] = log_masses(log_weights, factors, labels, logps)


def drop_clusters(clusters):
    """Forget clusters that do not matter, as those of searches that had not settled."""
    n = clusters.n[0]
    kept = np.flatnonzero(clusters.log_weights[:n] > np.log(NEGLIGIBLE_WEIGHT))
    for values in (clusters.log_weights, clusters.means, clusters.factors):
        values[: len(kept)] = values[kept]
    clusters.n[0] = len(kept)
    clusters.log_weights[: len(kept)] -= np.logaddexp.reduce(clusters.log_weights[: len(kept)])


def learn_kernel(step, points):
    """Learn C from the clusters, Σ from all points; draw z evenly from the clusters."""
    parameters = step.parameters
    clusters, subsample = parameters.clusters, parameters.kam.subsample
    n, whitening = clusters.n[0], subsample.shape.factor
    log_weights, factors = clusters.log_weights[:n], np.tril(clusters.factors[:n])
    labels = nearest_modes(points, log_weights, clusters.means[:n], factors)
    within = np.average(factors @ factors.transpose(0, 2, 1), axis=0, weights=np.exp(log_weights))
    whitening[:] = np.linalg.cholesky(within)
    total = within if n == 1 else shrunk_covariance(points)
    parameters.global_factor[:] = np.linalg.cholesky(total)

    chosen = choose_evenly(labels, subsample.z.shape[1], step.rng)
    m = subsample.m[0] = len(chosen)
    subsample.z[:, :m] = np.linalg.solve(whitening, points[chosen].T)
    median = median_distance_within(np.linalg.solve(whitening, points.T).T, labels)
    if step.settings["kernel"].bandwidth == "median":
        subsample.kernel.bandwidth[0] = BANDWIDTH_SHARE * median
    step.tuning.s[0] = median / np.sqrt(2 * step._d)


def log_masses(log_weights, factors, labels, logps):
    """Return the logs of the modes' weights, each from the log-densities of its points.

    The mass of a normal mode is the mean of log π + log|L|, but for a constant, however often
    chains have been there. A mode of few points keeps its weight against the others.
    """
    found = log_weights.copy()
    counts = np.bincount(labels, minlength=len(found))
    known = counts >= LEAST_OF_MODE
    means = np.bincount(labels, logps, len(found))[known] / counts[known]
    found[known] = means + np.log(np.diagonal(factors[known], axis1=1, axis2=2)).sum(axis=1)
    found[~known] += np.mean(found[known] - log_weights[known])
    found -= found.max()
    return found - np.log(np.exp(found).sum())


def keep_symmetries(parameters, maps, archive, evaluate):
    """Keep those of the maps that leave logp as it is at three points, but for rounding."""
    rows, exact = np.argsort(archive.logps)[[-1, len(archive.logps) // 2, 0]], []
    points, logps = archive.points[rows], archive.logps[rows]
    for matrix in maps:
        images = [evaluate(matrix @ point) for point in points]
        if (np.abs(images - logps) < ROOT_EPS * (1 + np.abs(logps))).all():
            exact.append(matrix)
    n = parameters.n_maps[0] = min(len(exact), len(parameters.maps))
    if n > 0:
        parameters.maps[:n] = exact[:n]


def have_finite_width(points):
    """Whether squared distances between the points, and their sums, are finite."""
    with np.errstate(over="ignore"):
        return bool(np.isfinite(len(points) * np.square(np.ptp(points, axis=0)).sum()))


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
    """Return the median distance between points of the same label, of at most a thousand."""
    thin = slice(None, None, 1 + len(points) // 1000)
    points, labels = points[thin], labels[thin]
    return np.median(np.concatenate([pdist(points[labels == k]) for k in np.unique(labels)]))
