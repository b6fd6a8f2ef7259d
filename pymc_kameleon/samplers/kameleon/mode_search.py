"""How CyclicalKAM finds modes: by the look of all samplers, along rays, and by symmetries.

Works between transitions, in Python.
"""

from contextlib import suppress

import numpy as np

from pymc_kameleon.approximation.linalg import cholesky, lower_of
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.core.moments import shrunk_covariance
from pymc_kameleon.samplers.kameleon.mode_moves import MOST_MODES, VALLEY_DEPTH
from pymc_kameleon.step.initial_search import InitialSearch
from pymc_kameleon.step.warm_start.approach import WARM_START_BUDGET
from pymc_kameleon.step.warm_start.climb import climb
from pymc_kameleon.step.warm_start.look import Look
from pymc_kameleon.step.warm_start.search import BudgetSpent, Search

SEARCH_SHARE = 0.35
"""Evaluations of the search, as a share of the transitions of a chain's tuning."""

RAY_SHARE = 0.7
"""Share of searches that begin along a ray, half of them along a coordinate."""

N_POINTS, NEAREST, FACTOR = 26, 2.0, 1.28
"""Points of a ray; the first one's distance in standard deviations; and the ratio of the others'.
The last is a thousand away."""

MOST_ASYMMETRY = 5.0
"""What a symmetry may lower the log-density by: the image of a mode is still one."""


class LookingForModes(InitialSearch):
    """A search whose chain remembers all modes that it has found, as its first clusters."""

    def find(self, q, logp):
        """Move `q` (n,) to where the posterior is."""
        self.modes = []
        super().find(q, logp)
        set_clusters(self.step.parameters.clusters, self.modes)

    def look_elsewhere(self, home, logp):
        """Return all modes and their WarmStarts."""
        self.modes, starts = super().look_elsewhere(home, logp)
        return self.modes, starts


def set_clusters(clusters, modes):
    """Let these Modes be the clusters, those of most mass first."""
    modes = sorted(modes, key=lambda mode: -mode.mass)[:MOST_MODES]
    n = clusters.n[0] = len(modes)
    for k, mode in enumerate(modes):
        clusters.means[k], clusters.factors[k], clusters.log_weights[k] = *mode[:2], mode.mass
    if n > 0:
        clusters.log_weights[:n] -= np.logaddexp.reduce(clusters.log_weights[:n])


def find_modes(chains, archives, maps, evaluate):
    """Return the Modes that chains know, those that a look along rays finds, and their images."""
    step = chains[0]
    known = known_modes(chains, archives, evaluate)
    if not known:
        return []
    look = RayLook(evaluate, known, int(SEARCH_SHARE * step.tuning.n), step.rng)
    look.go()
    least = max(mode.logp for mode in look.known) - negligible_drop(step._d)
    return with_images([mode for mode in look.known if mode.logp > least], maps, evaluate)


def negligible_drop(d):
    """Return how far below the best log-density nothing matters; masses are not yet known well."""
    return 10 + 3 * d


def known_modes(chains, archives, evaluate):
    """Return the Modes where chains are, and what they have found before their first draw."""
    modes = [mode_of(archive, evaluate) for archive in archives]
    for chain in chains:
        clusters = chain.parameters.clusters
        for k in range(clusters.n[0]):
            mean = clusters.means[k].copy()
            modes.append(Mode(mean, np.tril(clusters.factors[k]), evaluate(mean)))
    distinct = []
    for mode in modes:
        if np.isfinite(mode.mass) and not any(one.is_same(mode) for one in distinct):
            distinct.append(mode)
    return distinct


def mode_of(archive, evaluate):
    """Return the Mode of a chain that has been in one: its top, and the covariance of the past."""
    factor = cholesky(shrunk_covariance(archive.points))
    best = archive.points[np.argmax(archive.logps)]
    search = Search(evaluate, best, WARM_START_BUDGET * best.size)
    with suppress(BudgetSpent):
        for _ in climb(search, best, search.evaluate(best), factor):
            pass
    return Mode(search.x, factor, search.f)


class RayLook(Look):
    """A look for other modes than those known, most of it along rays from one of them."""

    def __init__(self, evaluate, known, n, rng):
        super().__init__(evaluate, known[0], n, n, rng, None)
        self.known, self.starts = known, [None] * len(known)
        self.farthest = np.inf

    def start(self):
        """Return a start, f there, a metric, and whether nothing else seems to be there.

        Of a ray that is the highest of the points where f has risen again.
        """
        rng = self.rng
        if rng.random() > RAY_SHARE:
            return super().start()
        home = self.known[rng.integers(len(self.known))]
        direction = home.factor @ rng.standard_normal(home.mean.size)
        if rng.random() < 0.5:
            i = rng.integers(direction.size)
            direction = np.eye(direction.size)[i] * np.linalg.norm(home.factor[i])
            direction *= rng.choice([-1.0, 1.0])
        reach = NEAREST * FACTOR ** (np.arange(N_POINTS) + rng.random())
        points = home.mean + np.outer(reach, direction)
        f = self.search.evaluate_all(points)
        lowest = np.minimum.accumulate([home.logp, *f[:-1]])
        rises = f > lowest + VALLEY_DEPTH
        k = np.argmax(np.where(rises, f, -np.inf))
        return points[k], f[k], home.factor, not rises.any()


def with_images(modes, maps, evaluate):
    """Return Modes, and their images under maps that hardly lower the log-density."""
    modes = list(modes)
    for mode in modes:  # which grow
        for matrix in maps:
            y = matrix @ mode.mean
            if len(modes) == MOST_MODES or any(one.holds(y) for one in modes):
                continue
            f = evaluate(y)
            if f > mode.logp - MOST_ASYMMETRY:
                modes.append(Mode(y, lower_of(matrix @ mode.factor), f))
    return modes
