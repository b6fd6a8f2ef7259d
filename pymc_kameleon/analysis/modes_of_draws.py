"""Modes of draws alone: groups of draws between which their density has a gap.

The draws of each chain are divided into small groups of near ones. Two groups are joined if the
density does not fall between them; so a curved mode is joined step by step. What is left is joined,
too, unless the gap is deeper than chance would make it with as many independent draws. Points are
the rows of (n, d) arrays.
"""

from itertools import combinations

import numpy as np
from scipy.cluster.hierarchy import DisjointSet, fcluster, linkage
from scipy.spatial.distance import cdist
from scipy.stats import norm

from pymc_kameleon.approximation.records import MANY_DRAWS
from pymc_kameleon.core.moments import JITTER, shrunk_covariance

MOST_COMPARED = 1000
"""Points that the others are compared with, and that principal components are computed of."""

GROUP_SIZE, LEAST_GROUP = 60, 15
"""Points of a group on average, and at least, to be told from others. In more coordinates than it
has points a group would have no shape."""

LOCAL_SHARE = 0.1
"""Share of the draws, the densest, that gives a coordinate its scale."""

TAIL_START = 3
"""Where tails begin: interquartile ranges, or standard deviations of the peaks, from the median."""

SAME_GROUP_DENSITY = 0.3
"""Density between two groups, relative to theirs, from which on they are one."""

GAP_DEPTH = 15
"""How many times lower the density is between two modes than in the lower one, at least. It is that
between normals 5.5 sd apart."""

GROUP_BINS, MODE_BINS, PROJECTION_BINS = 5, 9, 31
"""Bins between medians of groups, and of modes; and of a projection. Odd: one is central."""

PARTS_TO_INSIDE = 3
"""How many times a draw may be less far inside a mode than usual."""


class Groups:
    """Points (n, d) of draws, in order of `chains` (n,) and of draws, and how they are grouped."""

    def __init__(self, points, chains):
        self.points, self.chains = points, chains
        self.rows, self._moments, self._separated = {}, {}, {}

    def add(self, rows):
        """Add a group, with a number of its own."""
        number, points = len(self._moments), self.points[rows]
        self.rows[number] = np.sort(rows)
        self._moments[number] = points.mean(axis=0), regular_covariance(points), len(rows)

    def join(self, numbers):
        """Make one group of several."""
        self.add(np.concatenate([self.rows.pop(number) for number in numbers]))

    def nearest_first(self):
        """Return all pairs of groups, those with near means first."""
        numbers = list(self.rows)
        means = np.array([self._moments[number][0] for number in numbers])
        distances = cdist(means, means)
        pairs = sorted(combinations(range(len(numbers)), 2), key=distances.__getitem__)
        return [(numbers[i], numbers[j]) for i, j in pairs]

    def projected(self, i, j):
        """Return the points of two groups on the line that tells them apart best."""
        (a, a_covariance, n), (b, b_covariance, m) = self._moments[i], self._moments[j]
        pooled = (n * a_covariance + m * b_covariance) / (n + m)
        direction = np.linalg.solve(pooled, b - a)
        return [self.points[self.rows[number]] @ direction for number in (i, j)]

    def separated(self, i, j):
        """Whether there is a gap between two groups that is no accident."""
        if (i, j) not in self._separated:
            values = self.projected(i, j)
            gap = GAP_DEPTH * relative_density(*values, MODE_BINS) < 1
            if gap:
                shares = self._independent(i, j, values)
                gap = GAP_DEPTH * relative_density(*values, MODE_BINS, shares, more=1) < 1
            self._separated[i, j] = gap
        return self._separated[i, j]

    def _independent(self, i, j, values):
        """Return the shares of two groups' points that count as independent, on two lines."""
        means = self._moments[i][0], self._moments[j][0]
        shares = []
        for number, own in zip((i, j), values, strict=True):
            rows = self.rows[number]
            along = self.points[rows] @ (means[1] - means[0])
            chains = self.chains[rows]
            shares.append(min(independent_share(v, chains) for v in (own, along)))
        n = shares[0] * len(values[0]) + shares[1] * len(values[1])
        return np.array(shares) * max(0, 1 - 2 * self.points.shape[1] / n)


def independent_share(values, chains):
    """Return the share of values of chains that are independent, if these are AR(1) processes."""
    deviations = values - values.mean()
    products = (deviations[1:] * deviations[:-1])[chains[1:] == chains[:-1]]
    if not products.size or not deviations.any():
        return 1 / len(values)
    correlation = products.mean() / np.square(deviations).mean()
    return np.clip((1 - correlation) / (1 + correlation), 1 / len(values), 1)


def regular_covariance(points):
    """Return the covariance of points, also of such that are equal in a coordinate."""
    return shrunk_covariance(points) + JITTER * np.eye(points.shape[1])


def relative_density(left, right, n, shares=(1, 1), more=0):
    """Return the density between two groups (m,) on a line, relative to the lower of theirs.

    Values of `left` and `right`, whose median is larger, count `shares`; `more` might be between.
    Of n bins between the medians some, where it is lowest, are one.
    """
    low, high = np.median(left), np.median(right)
    width = (high - low) / n
    if not width > 0:
        return 1.0
    edges = low + width * np.arange(-(n // 2), n + n // 2 + 1)
    counts = shares[0] * np.histogram(left, edges)[0] + shares[1] * np.histogram(right, edges)[0]
    density = 1.0
    for start in range(n // 2 + 1, n // 2 + n - 1):
        for stop in range(start + 1, n // 2 + n):
            peak = min(counts[:start].max(), counts[stop:].max())
            if peak > 0:
                between = (counts[start:stop].sum() + more) / (stop - start)
                density = min(density, between / peak)
    return density


# ---- finding them -------------------------------------------------------------------------------


def find_modes(draws):
    """Return the mode of each of draws (chains, draws, d); 0 is the one with the most draws."""
    n_chains, n, d = draws.shape
    coordinates = in_local_scale(draws.reshape(-1, d)).reshape(n_chains, n, -1)
    kept = thinned(coordinates)
    groups = Groups(coordinates[kept], kept[0])
    for chain in range(n_chains):
        own = np.flatnonzero(kept[0] == chain)
        for rows in near_groups(groups.points, own, len(own) // GROUP_SIZE):
            groups.add(rows)
    join_neighbours(groups)
    absorb_stragglers(groups)
    while pair := next((p for p in groups.nearest_first() if not groups.separated(*p)), None):
        groups.join(pair)  # until there is a gap between any two
    if len(groups.rows) == 1:
        return np.zeros((n_chains, n), int)
    modes = modes_of_draws(distances_to_modes(coordinates, groups))
    order = np.argsort(-np.bincount(modes.ravel(), minlength=len(groups.rows)), kind="stable")
    return np.argsort(order)[modes]


def local_scale(points):
    """Return the standard deviation that normals would have with the peaks of each coordinate."""
    ordered, k = np.sort(points, axis=0), max(2, int(LOCAL_SHARE * len(points)))
    widths = ordered[k - 1 :] - ordered[: len(points) - k + 1]
    return np.where(widths > 0, widths, np.inf).min(axis=0) / (2 * norm.ppf((1 + LOCAL_SHARE) / 2))


def in_local_scale(points):
    """Scale each coordinate by its width where draws are densest, and draw its tails in.

    So distances between modes, and outliers, do not count. Many coordinates become few components.
    """
    low, middle, high = np.quantile(points, [0.25, 0.5, 0.75], axis=0)
    scale = local_scale(points)
    tail = TAIL_START * np.maximum(scale, high - low)
    scaled = tail / scale * np.arcsinh((points - middle) / tail)
    if scaled.shape[1] <= GROUP_SIZE:
        return scaled
    some = scaled[:: 1 + len(scaled) // MOST_COMPARED]
    directions = np.linalg.svd(some - some.mean(axis=0), full_matrices=False)[2]
    return scaled @ directions[:GROUP_SIZE].T


def thinned(draws):
    """Return chain and draw of evenly spaced draws, without those equal to the one before."""
    n_chains, n, _ = draws.shape
    most = min(n, max(GROUP_SIZE, MANY_DRAWS // n_chains))
    chosen = np.linspace(0, n - 1, most).astype(int)
    moved = np.any(np.diff(draws[:, chosen], axis=1, prepend=np.nan) != 0, axis=2)
    chains, places = np.nonzero(moved)
    return chains, chosen[places]


def join_neighbours(groups):
    """Join groups between which the density does not fall, step by step.

    What is joined has a projection with a gap if a group had points of two modes: it is cut there.
    """
    while True:
        joined = DisjointSet(groups.rows)
        for i, j in groups.nearest_first():
            if joined.connected(i, j) or min(len(groups.rows[k]) for k in (i, j)) < LEAST_GROUP:
                continue
            if relative_density(*groups.projected(i, j), GROUP_BINS) > SAME_GROUP_DENSITY:
                joined.merge(i, j)
        parts = [part for part in joined.subsets() if len(part) > 1]
        if not any([cut_at_gap(groups, part) for part in parts]):
            break
    for subset in joined.subsets():
        groups.join(sorted(subset))


def cut_at_gap(groups, subset):
    """Cut groups where a projection of all their points has a gap; return whether one was cut."""
    rows = np.concatenate([groups.rows[number] for number in subset])
    points = groups.points[rows]
    directions = np.linalg.eigh(regular_covariance(points))[1]
    best, direction, place = 1 / GAP_DEPTH, None, None
    for w in [*np.eye(points.shape[1]), *directions.T]:
        density, where = least_density(points @ w)
        if density < best:
            best, direction, place = density, w, where
    if direction is None:
        return False
    cut = False
    for number in sorted(subset):
        rows = groups.rows[number]
        left = groups.points[rows] @ direction < place
        if left.any() and not left.all():
            del groups.rows[number]
            groups.add(rows[left])
            groups.add(rows[~left])
            cut = True
    return cut


def least_density(values):
    """Return where values have the deepest gap, after its density relative to the lower side."""
    edges = np.linspace(*np.quantile(values, [0.002, 0.998]), PROJECTION_BINS + 1)
    counts = np.histogram(values, edges)[0]
    before = np.maximum.accumulate(counts)[:-2]
    after = np.maximum.accumulate(counts[::-1])[::-1][2:]
    densities = (counts[1:-1] + 1) / np.maximum(np.minimum(before, after), 1)
    k = np.argmin(densities)
    return densities[k], (edges[k + 1] + edges[k + 2]) / 2


def absorb_stragglers(groups):
    """Give groups that are too small for a mode to those with the nearest point."""
    small = {n: rows for n, rows in groups.rows.items() if len(rows) < LEAST_GROUP}
    large = [n for n in groups.rows if n not in small]
    if not large:
        groups.join(list(groups.rows))
        return
    owners = np.repeat(large, [len(groups.rows[n]) for n in large])
    points = groups.points[np.concatenate([groups.rows[n] for n in large])]
    absorbed = {n: [n] for n in large}
    for number, rows in small.items():
        distances = cdist(groups.points[rows], points).min(axis=0)
        absorbed[owners[distances.argmin()]].append(number)
    for numbers in absorbed.values():
        groups.join(numbers)


def distances_to_modes(coordinates, groups):
    """Return how far each draw is from the points of each mode, squared: (chains, modes, draws)."""
    parts = [groups.points[rows] for rows in groups.rows.values()]
    sizes = [len(points) for points in parts]
    within = np.average([regular_covariance(points) for points in parts], axis=0, weights=sizes)
    whitening = np.linalg.inv(np.linalg.cholesky(within)).T
    rng, most = np.random.default_rng(0), max(100, MOST_COMPARED // len(parts))
    known = [rng.permutation(points)[:most] @ whitening for points in parts]
    return np.array(
        [[distance_to(points, chain @ whitening) for points in known] for chain in coordinates]
    )


def distance_to(points, x):
    """Return the mean squared distance of each of x (m, d) to the nearest points."""
    k = min(LEAST_GROUP, len(points))
    return np.partition(cdist(x, points, "sqeuclidean"), k - 1, axis=1)[:, :k].mean(axis=1)


def modes_of_draws(distances):
    """Return the nearest mode of each draw, (chains, draws), from squared distances to all.

    A visit has to go a third of what is usual into a mode; else draws belong to the one before.
    """
    nearest, n = distances.argmin(axis=1), distances.shape[1]
    if n == 1:
        return nearest
    margins = np.diff(np.partition(distances, 1, axis=1)[:, :2], axis=1)[:, 0]
    least = np.array([np.median(margins[nearest == k]) if k in nearest else 0 for k in range(n)])
    inside = PARTS_TO_INSIDE * margins >= least[nearest]
    return np.array([visited(*chain) for chain in zip(nearest, inside, strict=True)])


def visited(nearest, inside):
    """Return the modes that a chain visited, (draws,): a run that is nowhere inside is none."""
    starts = np.flatnonzero(np.diff(nearest, prepend=-1))
    real = np.logical_or.reduceat(inside, starts)
    if not real.any():
        return nearest
    last = np.maximum.accumulate(np.where(real, np.arange(len(starts)), -1))
    last[last < 0] = np.argmax(real)
    return np.repeat(nearest[starts][last], np.diff(starts, append=len(nearest)))


def near_groups(points, rows, n):
    """Divide rows into n groups of points that are near each other."""
    if n < 2:
        return [rows]
    labels = fcluster(linkage(points[rows], "ward"), n, "maxclust")
    return [rows[labels == label] for label in np.unique(labels)]
