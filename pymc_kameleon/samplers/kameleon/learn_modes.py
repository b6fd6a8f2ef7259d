"""Modes of a log-density, from the past of chains that have seen them.

Works between transitions, in Python; points are the rows of (n, d) arrays.
"""

from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.cluster.hierarchy import DisjointSet, fcluster, linkage
from scipy.spatial.distance import cdist, pdist

from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.core.conventions import ROOT_EPS
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.samplers.kameleon.kernels import bandwidth_rule
from pymc_kameleon.samplers.kameleon.mode_moves import MOST_MODES, VALLEY_DEPTH
from pymc_kameleon.samplers.kameleon.rkhs import KNN, MEDIAN
from pymc_kameleon.samplers.kameleon.subsample import BANDWIDTH_SHARE, least_points, n_neighbours
from pymc_kameleon.samplers.symmetries import symmetries

PATH_PARTS = 7
"""Parts of a path between two points, which is evaluated where they meet."""

MOST_PATHS = 5
"""Paths that are evaluated from one group to others, the nearest first."""

PAST_GROUPS = 100
"""Groups into which a past of few runs is divided; of many runs, each into two."""


BLEND = 20
"""Times d: points that make the covariance of a mode its own."""

NEGLIGIBLE_WEIGHT = 1e-4
"""Weight of a cluster that is not worth a jump."""

MOST_ASYMMETRY = 5.0
"""What a symmetry may lower the log-density by: its moves are still accepted now and then."""

LEAST_OF_MODE = 3
"""Points of a mode, at least; fewer are stragglers between the others."""


class Archive(NamedTuple):
    """Distinct points that a chain has visited."""

    points: np.ndarray  # (n, d)
    logps: np.ndarray  # their log-densities
    runs: np.ndarray  # the run in which each of them was visited

    def above(self, floor):
        """Return what is above a log-density."""
        return Archive(*(values[self.logps > floor] for values in self))


def learn_modes(chains):
    """Find the modes, and draw z from them; later, again. Too few points leave a walk.

    The chains learn from all archives, and all get the same; each stays where it is. Points far
    below the best of all archives are of no mode. Nothing is caught, as the user's log-density is
    evaluated.
    """
    first = chains[0]
    others = first.log_density.point[first._d :].copy()
    if others.size and len(chains) > 1:  # where each chain has a log-density of its own
        for chain in chains:
            learn_modes([chain])
        return

    def evaluate(x):
        return first.log_density(np.concatenate([x, others]))

    archives = [archived(c.tuning.search, evaluate if others.size else None) for c in chains]
    best = max(archive.logps.max(initial=-np.inf) for archive in archives)
    floor = best - first.tuning.search.negligible
    archives = [archive.above(floor) for archive in archives]
    enough = sum(len(archive.points) for archive in archives) >= least_points(first._d)
    if enough and not learned(chains, archives, evaluate):
        first.parameters.clusters.n[0] = first.parameters.kam.subsample.m[0] = 0
    for chain in chains:
        search = chain.tuning.search
        copy_arrays(first.parameters, chain.parameters)
        chain.tuning.s[0], search.visits[:] = first.tuning.s[0], first.tuning.search.visits
        search.floor[0] = -np.inf if others.size else floor
        search.history.counts[:] = 0, 1, 0


def archived(search, evaluate=None):
    """Return a chain's archive; `evaluate` is given where other steps have changed logp since."""
    rows, d = search.history.points[: search.history.counts[0]], search.home.size
    rows = rows[np.isfinite(rows).all(axis=1)]
    rows = rows[np.any(np.diff(rows, axis=0, prepend=np.nan) != 0, axis=1)]
    if evaluate:
        rows[:, d] = [evaluate(row[:d]) for row in rows]
    return Archive(rows[:, :d], rows[:, d], rows[:, d + 1])


def learned(chains, archives, evaluate):
    """Learn the clusters, or pool those of the chains, and z; return whether that is possible."""
    step, modes = chains[0], None
    points, logps, _ = joined_archive = Archive(*map(np.concatenate, zip(*archives, strict=True)))
    whitening = pooled_factor(chains, archives)
    if not have_finite_width(points, whitening):
        return False
    if step.parameters.clusters.n[0] == 0:
        modes = find_common_modes(archives, evaluate, whitening)
        if not modes:
            return False
        maps = learn_symmetries(step, joined_archive, evaluate)
        (points, logps, _), modes = mirrored(joined_archive, modes, maps, evaluate)
    try:
        if modes:
            guess_clusters(step, [points[rows] for rows in modes[:MOST_MODES]], len(chains))
        elif len(chains) > 1:
            pool_clusters(chains)
        weigh_clusters(step.parameters.clusters, points, logps)
        if not modes:
            drop_clusters(step.parameters.clusters)
        learn_kernel(step, points)
    except np.linalg.LinAlgError:  # rounding leaves a covariance that is not positive definite
        return False
    return True


def pooled_factor(chains, archives):
    """Return the factor of the mean covariance of the chains that have points."""
    shapes = [chain.parameters.kam.subsample.shape for chain in chains]
    factors = [s.factor for s, a in zip(shapes, archives, strict=True) if len(a.points)]
    if len(factors) == 1:
        return factors[0]
    return np.linalg.cholesky(np.mean([factor @ factor.T for factor in factors], axis=0))


def guess_clusters(step, modes, n_chains):
    """Make a first guess of the clusters' moments from the points of each."""
    parameters, search = step.parameters, step.tuning.search
    clusters, n = parameters.clusters, len(modes)
    sizes = np.array([len(points) for points in modes])
    clusters.n[0] = n
    clusters.log_weights[:n] = np.log(sizes / sizes.sum())
    clusters.means[:n] = [points.mean(axis=0) for points in modes]
    clusters.factors[:n] = blended_factors(modes)
    search.visits[:n] = sizes * search.history.counts[1] / n_chains
    parameters.kam.subsample.shape.log_scale[0] = search.shape.log_best


def pool_clusters(chains):
    """Pool the moments that the chains learned, by the visits of each, for the first one."""
    clusters, n = chains[0].parameters.clusters, chains[0].parameters.clusters.n[0]
    visits = np.array([chain.tuning.search.visits[:n] for chain in chains])
    means = np.array([chain.parameters.clusters.means[:n] for chain in chains])
    factors = np.tril([chain.parameters.clusters.factors[:n] for chain in chains])
    shares = visits / visits.sum(axis=0)
    clusters.means[:n] = np.einsum("ck,cki->ki", shares, means)
    deviations = means - clusters.means[:n]
    covariances = np.einsum("ck,ckij,ckhj->kih", shares, factors, factors)
    covariances += np.einsum("ck,cki,ckj->kij", shares, deviations, deviations)
    clusters.factors[:n] = np.linalg.cholesky(covariances)
    chains[0].tuning.search.visits[:n] = visits.sum(axis=0)


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
    z = np.linalg.solve(whitening, points[chosen].T)
    subsample.z[:, :m] = z
    median = median_distance_within(np.linalg.solve(whitening, points.T).T, labels)
    rule = bandwidth_rule(step.settings["kernel"])
    if rule == MEDIAN:
        subsample.kernel.bandwidth[0] = BANDWIDTH_SHARE * median
    elif rule == KNN:
        neighbours = n_neighbours(m, step._d)
        subsample.kernel.bandwidth[0] = neighbour_distance(z.T, neighbours) / np.sqrt(2)
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


def find_modes(archive, evaluate, whitening):
    """Join the runs of a chain that no valley separates.

    Return the rows of each mode, the largest first. Each run is divided into groups of near points.
    Two groups are joined if on the straight path between two near points, each of the better half
    of its group, the log-density has no deep valley, and is nowhere far below the tops of both. So
    a normal mode is hardly ever split, a curved one is joined step by step, and points in the tails
    do not join two modes. Distances are in coordinates that `whitening` (d, d) whitens.
    """
    points, logps, runs = archive
    u, groups = np.linalg.solve(whitening, points.T).T, []
    most = max(2, PAST_GROUPS // max(1, len(np.unique(runs))))  # there may be none
    for run in np.unique(runs):
        rows = np.flatnonzero(runs == run)
        groups += near_groups(u, rows, min(most, len(rows) // 2))
    return joined(groups, points, u, logps, evaluate)


def joined(groups, points, u, logps, evaluate):
    """Join groups of rows that no valley separates, as `find_modes` does; `u` are whitened."""
    d = points.shape[1]
    better = [rows[logps[rows] >= np.median(logps[rows])] for rows in groups]
    links = []
    for i, j in combinations(range(len(groups)), 2):
        distances = cdist(u[better[i]], u[better[j]])
        a, b = np.unravel_index(distances.argmin(), distances.shape)
        links.append((distances[a, b], i, j, better[i][a], better[j][b]))
    modes, tests = DisjointSet(range(len(groups))), np.zeros(len(groups), int)
    tops = {i: logps[rows].max() for i, rows in enumerate(groups)}
    for _, i, j, a, b in sorted(links):
        if modes.connected(i, j) or max(tests[i], tests[j]) >= MOST_PATHS:
            continue
        tests[[i, j]] += 1
        shares = np.arange(1, PATH_PARTS) / PATH_PARTS
        path = [evaluate(points[a] + share * (points[b] - points[a])) for share in shares]
        path = np.array([logps[a], *path, logps[b]])
        top, other_top = tops[modes[i]], tops[modes[j]]
        if valley(path) < VALLEY_DEPTH and path.min() > min(top, other_top) - VALLEY_DEPTH - d:
            modes.merge(i, j)
            tops[modes[i]] = max(top, other_top)
    sets = [np.concatenate([groups[i] for i in sorted(mode)]) for mode in modes.subsets()]
    sets.sort(key=len, reverse=True)
    return [rows for rows in sets if len(rows) >= LEAST_OF_MODE]


def find_common_modes(archives, evaluate, whitening):
    """Return rows of the joined archives in each mode: those of each chain, joined likewise."""
    groups, start = [], 0
    for archive in archives:
        groups += [start + rows for rows in find_modes(archive, evaluate, whitening)]
        start += len(archive.points)
    if len(archives) == 1:
        return groups
    points, logps, _ = map(np.concatenate, zip(*archives, strict=True))
    return joined(groups, points, np.linalg.solve(whitening, points.T).T, logps, evaluate)


def learn_symmetries(step, archive, evaluate):
    """Keep the maps that leave logp as it is at three points; return also those that hardly do."""
    rows, parameters = np.argsort(archive.logps)[[-1, len(archive.logps) // 2, 0]], step.parameters
    exact, about = [], []
    for matrix in symmetries(step):
        changes = [evaluate(matrix @ archive.points[row]) - archive.logps[row] for row in rows]
        if (np.abs(changes) < rounding(archive.logps[rows])).all():
            exact.append(matrix)
        elif min(changes) > -MOST_ASYMMETRY:
            about.append(matrix)
    n = parameters.n_maps[0] = min(len(exact), len(parameters.maps))
    parameters.maps[:n] = np.reshape(exact[:n], (n, step._d, step._d))
    return exact + about


def rounding(logps):
    """Return what two log-densities may differ by that ought to be equal."""
    return ROOT_EPS * (1 + np.abs(logps))


def mirrored(archive, modes, maps, evaluate):
    """Add modes that follow from known ones by `maps`, and their points; return both."""
    normals = [normal_of(archive.points[rows]) for rows in modes]
    masses = [
        archive.logps[rows].mean() + np.log(np.diag(factor)).sum()
        for rows, (_, factor) in zip(modes, normals, strict=True)
    ]
    least = max(masses) - 10 - archive.points.shape[1]
    some = [rows for rows, mass in zip(modes, masses, strict=True) if mass >= least]
    for rows in some:  # which grows
        best = rows[np.argmax(archive.logps[rows])]
        for matrix in maps:
            y = matrix @ archive.points[best]
            if any(is_near(y, *normal) for normal in normals):
                continue
            change, logp = evaluate(y) - archive.logps[best], archive.logps[best]
            if not change > -MOST_ASYMMETRY:
                continue
            exact = abs(change) < rounding(logp)
            own = rows if exact else rows[:: 1 + len(rows) // (10 * len(y))]
            points = archive.points[own] @ matrix.T
            logps = archive.logps[own] if exact else np.array([evaluate(x) for x in points])
            images = np.arange(len(own)) + len(archive.points)
            more = Archive(points, logps, archive.runs[own])
            archive = Archive(*map(np.concatenate, zip(archive, more, strict=True)))
            normals.append(normal_of(more.points))
            some.append(images)
            modes = [*modes, images]
        if len(modes) >= MOST_MODES:
            break
    return archive, sorted(modes, key=len, reverse=True)


def normal_of(points):
    """Return mean and factor of the covariance of points."""
    return points.mean(axis=0), np.linalg.cholesky(shrunk_covariance(points))


def is_near(x, mean, factor):
    """Return whether x is where draws of a normal may be."""
    return np.sum(np.linalg.solve(factor, x - mean) ** 2) < 20 + 4 * len(x)


def have_finite_width(points, whitening):
    """Whether squared distances between the points, and their sums, are finite; whitened, too."""
    with np.errstate(over="ignore", invalid="ignore"):
        widths = [np.ptp(p, axis=0) for p in (points, np.linalg.solve(whitening, points.T).T)]
        return bool(np.isfinite(len(points) * np.square(widths).sum()))


def near_groups(points, rows, n):
    """Divide rows into n groups of points that are near each other."""
    if n < 2:
        return [rows]
    labels = fcluster(linkage(points[rows], "ward"), n, "maxclust")
    return [rows[labels == label] for label in np.unique(labels)]


def valley(logps):
    """Return how far a path of log-densities, evenly spaced, sinks below the line of its ends.

    Below the line, not below the lower end: in many dimensions a chain that has not yet come down
    to its mode is lower than the valley before it.
    """
    return np.max(np.linspace(logps[0], logps[-1], len(logps)) - logps)


def blended_factors(modes):
    """Return factors of modes, given by points; few points take their shape from all modes."""
    d, sizes = modes[0].shape[1], [len(points) for points in modes]
    covariances = [shrunk_covariance(points) for points in modes]
    pooled = np.average(covariances, axis=0, weights=sizes)
    factors = []
    for n, covariance in zip(sizes, covariances, strict=True):
        own = n / (n + BLEND * d)
        volume = np.trace(np.linalg.solve(pooled, covariance)) / d
        volume = (n * volume + 1) / (n + 1)  # a single point has none
        factors.append(np.linalg.cholesky(own * covariance + (1 - own) * volume * pooled))
    return factors


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


def neighbour_distance(points, k):
    """Return the median distance of the points to their k-th neighbours."""
    return np.median(np.sort(cdist(points, points), axis=1)[:, k])
