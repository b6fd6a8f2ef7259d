"""The search for the posterior, by an approximation s that is fitted as it goes.

First some points around the start are evaluated. Then, round by round, s is fitted, and the point
is evaluated that maximises log s within a trust region,

    log s(z) − |(z − z_best)/sd|²/2ρ²

along with a draw of the normal there. ρ grows where log π rises as s has said, and shrinks where it
does not. In the neck of a funnel π has no bound, and hardly any mass, so where s is right points
are compared by their mass.

The climb may end in a local mode. So there are others from draws of the prior, with evaluations of
their own alone, as many as a share of all evaluations pays for, until none is expected to end
elsewhere. It is a larger share where they have ended in several places, where s does not predict
draws of the prior, and where the best place does not fit the data. Further, log s is maximised from
draws of the prior, and what may be another mode is evaluated, as are mirror images of the best
place. A climb that gains little is left, and resumed if no other one comes higher.

Generators ask for points and are sent their log-densities.

Source: Nocedal & Wright, Numerical Optimization (2006), algorithm 4.1.

Symbols: z the coordinates (d,), sd their standard deviations in the prior, ρ the radius.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_kameleon.approximation.chain import Approximation
from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import cholesky
from pymc_kameleon.approximation.modes import MOST_MODES, NEGLIGIBLE_MASS, Mode
from pymc_kameleon.approximation.rounds import Rounds
from pymc_kameleon.approximation.searches import SELDOM, Searches

N_DESIGN, DESIGN_SHARE = 8, 0.25
"""Points of the design; how far they are from the start, as a share of draws of the prior."""

MOST_IMAGES, MOST_SINGLE = 8, 6
"""Mirror images that are evaluated, at most; and before there are products of maps to try."""

MOST_AT_ONCE = 8
"""Points of a round at most, where evaluations run side by side; 2 otherwise."""

SHRINK, GROW, NOT_FORESEEN, AS_FORESEEN = 0.25, 2.0, 0.25, 0.75
"""Factors of ρ where a round has gained less than the one share, and more than the other, of what s
has said, by Nocedal & Wright."""

LARGEST_RADIUS = 10.0
"""Bound of ρ."""

SMALL_GAIN, SMALL_ERROR, MOST_SMALL = 1.0, 1.5, 10
"""A climb ends where a round gains less, predicts the log-densities within this, and its region is
as wide as the prior, or wider; or after so many rounds in a row that gain less. Where log-densities
are predicted, ρ grows."""

N_STARTS, MOST_MAXIMA, NEW_RADIUS, MOST_LOOKS = 24, 4, 0.3, 4
"""Draws of the prior from which other maxima of s are looked for; how many of these are evaluated
at a time; ρ of a walker that begins there; and how often there is such a look."""

SAME_PLACE = 0.02
"""Distance in sd within which points are the same."""

ON_LINE = 21
"""Points of a line between two maxima, on which a dip of log s is looked for."""

N_FAR, UNPREDICTED, MOST_FAR = 6, 0.35, 3
"""Draws of the prior that are evaluated at a time; the error of their outputs, relative to how much
these change, from which s does not predict them; and after so many times, in which it has learned
from those before, it may miss a mode."""

BADLY_FITTED = 3.0, 10.0
"""χ² at the best place from which it does not fit the data: times the number of outputs, and plus.
"""

STEADY, LEAST_PROGRESS = 5, 0.1
"""Rounds in which a climb is to gain this share of what it lacks, or another one begins."""

MOST_STEPS, TOLERANCE, LOSS_OUTSIDE, DIFFERENCE = 100, 1e-6, 1e10, 1e-3
"""Evaluations of log s for a maximum, about; the gain at whose end it is one; the loss where s is
0; and finite differences in units of a trust region."""


@dataclass
class Walker:
    """A search that climbs from a point."""

    z: np.ndarray  # its best point
    logp: float
    radius: float = 1.0  # ρ
    n_small: int = 0  # rounds in a row with a small gain
    arrived: bool = False
    error: float = np.inf  # median, of the log-densities that were predicted last
    since: int = 0  # the evaluations before these are not its own
    heights: tuple = ()  # its log-densities at the ends of rounds
    n_came: int = 0  # climbs from the start, and from draws of the prior, that came here
    mode: Mode = None  # of s here, if there are several walkers

    @property
    def mass(self):
        """Log of the mass of s here, but for a constant; 0 if nobody has asked."""
        return self.mode.mass if self.mode else 0.0


@dataclass(eq=False)
class PosteriorSearch:
    """The search for the posterior, as generators that yield points and are sent log-densities.

    `learn` fits s, of the `density`, to the newest n evaluations; `unpredicted` is how far it is
    off at n of them, `misfit` χ² at the best point, and of how many outputs; `mode` is the Mode of
    s about a point, where its covariance has about this factor. Of `prior` there are draws (n, d).
    Evaluations of climbs from them are `paid`: so many, and so many in doubt. The search is
    `informed` where earlier runs suffice for a fit, and `guided` says whether a coarse model tells
    where to climb; it asks for `n_each` points in a round.
    `images` knows of mirror images, if any are looked for.

    The `best` Walker is the one of most mass, at first the only one; `climbing` is the one under
    way, `maxima` are where walkers have come; `n_begun` have begun; `costs` are evaluations of
    those that have ended, of the ones from the start and from draws of the prior. `of_prior` (2,)
    are draws of the prior that were evaluated to see whether s predicts them, and impossible ones.
    """

    density: Approximation
    learn: Callable
    prior: np.ndarray
    rng: np.random.Generator
    unpredicted: Callable
    misfit: Callable
    mode: Callable
    paid: tuple
    informed: bool = False
    guided: Callable = bool
    images: object = None
    n_each: int = 2

    def __post_init__(self):
        self.spread, self.seen, self.highest = spread_of(self.prior), [], -np.inf
        self.best, self.climbing, self.maxima = None, None, []
        self.n_begun, self.costs, self.of_prior = 0, [], np.zeros(2, int)
        self.may_miss, self.misled, self.has_looked, self.rounds = False, False, False, Rounds()
        d = self.prior.shape[1]
        self.near, self.negligible = drop(d, NEAR), drop(d, NEGLIGIBLE)

    def go(self, start):
        """Climb from the best point around a start, and look for other modes."""
        points = start[None] if self.informed else self._design(start)
        self.best = yield from self._best_of(points, "design")
        if self.best.logp == -np.inf:
            return
        if self.informed:
            self.best.radius = LARGEST_RADIUS
        self.maxima = [self.best]
        yield from self._climb(self.best)
        self.best.n_came, self.costs = 1, [len(self.seen)]
        if not self.informed:
            if not (self.guided() and self.best.arrived):
                predicts = yield from self._predicts_prior()
                self.may_miss = not predicts
            yield from self._search_apart()
        if not self.best.arrived:
            yield from self._climb(self.best, to_the_end=True)
        yield from self._look_at_maxima()
        yield from self._look_at_images()
        self.has_looked = True

    def _search_apart(self):
        """Climb from draws of the prior, until none is expected to end elsewhere.

        A coarse model that is wrong far away may lead all climbs to one place.
        """
        misled = False
        while self._pays_for_another():
            self._learn()
            regions = [(place, Mode(place.z, self.factor(place.z), 0.0)) for place in self.maxima]
            since, start = len(self.seen), self.prior[self.rng.choice(len(self.prior))]
            points = self._design(start)
            walker = yield from self._best_of(points, "design")
            misled |= self.guided() and bool(self.unpredicted(len(points)) > UNPREDICTED)
            walker.since = since
            if walker.logp > -np.inf:
                place = yield from self._climb(walker, regions)
                if place is None:
                    self._learn()
                    place = self._add(walker)
                place.n_came += 1
            self.costs.append(len(self.seen) - since)
        self.misled = misled

    def _design(self, start):
        """Return the points that a climb begins with."""
        return start[None] if self.guided() else design(start, self.prior, self.rng)

    def _pays_for_another(self):
        """Whether another climb from a draw of the prior may end elsewhere, and is paid for."""
        searches = self.searches()
        is_more = searches.n_ends > 1 or searches.is_doubtful
        most = self.paid[int(is_more and searches.expects_more)]
        cost = sum(self.costs[1:]) + np.mean(self.costs)
        goes_on = searches.expects_more or searches.share_elsewhere > SELDOM
        return goes_on and cost <= most

    def _predicts_prior(self):
        """Whether s predicts draws of the prior, after it has learned from some."""
        for _ in range(MOST_FAR):
            self._learn()
            highest = self.highest
            draws = self.prior[self.rng.choice(len(self.prior), N_FAR)]
            logp = yield from self._evaluated(draws)
            self.of_prior += N_FAR, np.count_nonzero(logp == -np.inf)
            self._note("draws of the prior")
            if self.highest > highest:
                return False
            if not self.unpredicted(N_FAR) > UNPREDICTED:
                return True
        return False

    def _look_at_maxima(self):
        """Evaluate other maxima of s, and climb from what may be another mode."""
        for look in range(MOST_LOOKS):
            self._learn()
            points = self._other_maxima(np.inf if look == 0 else self.negligible)
            if len(points) == 0:
                return
            other = yield from self._best_of(points, "other maxima")
            if other.logp > self.best.logp - self.negligible:
                other.radius = NEW_RADIUS
                yield from self._climb(other)
                self._add(other)

    def _other_maxima(self, behind):
        """Return new maxima of log s (k, d), from draws of the prior, at most `behind` the best."""
        starts = self.prior[self.rng.choice(len(self.prior), N_STARTS)]
        found = np.array([maximum(self.density, z, self.spread)[0] for z in starts])
        log_s, _ = self.density.values(found)
        own, _ = self.density.values(self.best.z[None])
        known = [z for one in self.maxima for z in self._with_images(one.z)]
        chosen = []
        for k in np.argsort(-log_s, kind="stable"):
            away = (np.array([*self.seen, *chosen]) - found[k]) / self.spread
            is_new = np.linalg.norm(away, axis=1).min() > SAME_PLACE
            if not (is_new and log_s[k] > own[0] - behind):
                continue
            if self._is_apart(found[k], [*known, *chosen]):
                chosen.append(found[k])
        return np.array(chosen[:MOST_MAXIMA])

    def _look_at_images(self):
        """Evaluate mirror images of the best place; climb from good ones where outputs differ."""
        best = self.best
        maps, least = self._likely_maps(best, MOST_SINGLE)
        if not maps:
            return
        logp = yield from self._evaluated(np.array([one @ best.z for one in maps]))
        products = self.images.products(maps)
        more, least_of_more = self._likely_maps(best, MOST_IMAGES - len(maps), products)
        if more:
            logp_of_more = yield from self._evaluated(np.array([one @ best.z for one in more]))
            maps, logp = [*maps, *more], np.append(logp, logp_of_more)
            least = np.append(least, least_of_more)
        same = self.images.are_same(len(maps)) & (logp > least)
        if same.any():  # at one place that may be by chance
            places, own = self.images.other_places(), np.flatnonzero(same)
            yield from self._evaluated(np.array([maps[k] @ z for k in own for z in places]))
            same[own] = self.images.agree(len(own))
        self._note("mirror images")
        kept, others = [one for one, found in zip(maps, same, strict=True) if found], []
        self.images.keep(kept, others)
        self._learn()  # what is known of these
        for k in np.argsort(-logp, kind="stable"):
            image = maps[k] @ best.z
            known = min(self._dip(z, image) for z in self._with_images(best.z)) <= self.near
            if not same[k] and logp[k] > least[k] and not known:
                walker = Walker(image, logp[k])
                yield from self._climb(walker)
                place = self._add(walker)
                is_image = self._dip(image, walker.z) <= self.near
                if is_image and abs(best.mass - place.mass) < NEGLIGIBLE_MASS:
                    others.append(maps[k])
        self.images.keep(kept, others)
        self._learn()

    def _likely_maps(self, walker, most, maps=None):
        """Return maps to what may be other modes, and how high these are at least, (k,)."""
        maps = self.images.likely(walker.z, -self.negligible, maps) if self.images else []
        if not maps:
            return [], np.zeros(0)
        values, vectors = _curvature(self.density, walker.z, self.spread)
        ways = np.array([(one @ walker.z - walker.z) / self.spread for one in maps])
        fall = np.square(ways @ vectors) @ np.maximum(values, 0) / 8
        chosen = np.flatnonzero(fall > self.near)[:most]
        least = walker.logp - np.minimum(fall, self.negligible)
        return [maps[k] for k in chosen], least[chosen]

    def searches(self):
        """Return the Searches: climbs from the start, and from draws of the prior."""
        ends = [place for place in self.maxima if place.n_came]
        is_good = [place.logp > self.best.logp - self.negligible for place in ends]
        n, n_ends = sum(place.n_came for place in ends), sum(is_good) + (not all(is_good))
        came = self.best.n_came if self.best else 0
        fails = 2 if self.misled else int(self.may_miss or self._is_badly_fitted())
        return Searches(n, n_ends, came, fails)

    def _is_badly_fitted(self):
        chi2, n = self.misfit()
        return chi2 > BADLY_FITTED[0] * n + BADLY_FITTED[1]

    def _add(self, walker):
        """Add where a walker has come to the maxima, or find it there; return that one."""
        self._weigh([*self.maxima, walker])
        for place in self.maxima:
            dip = min(self._dip(z, walker.z) for z in self._with_images(place.z))
            if dip <= self.near and abs(place.mass - walker.mass) < NEGLIGIBLE_MASS:
                if walker.mass > place.mass:
                    place.z, place.logp, place.error = walker.z, walker.logp, walker.error
                    place.arrived, place.mode = walker.arrived, walker.mode
                walker = place
                break
        else:
            self.maxima.append(walker)
        self.best = max(self.maxima, key=lambda place: place.mass)
        return walker

    def _with_images(self, z):
        """Return z (d,), and its images where outputs are the same."""
        return [z, *self.images.of(z)] if self.images else [z]

    def _evaluated(self, points):
        logp = yield points
        self.seen = [*self.seen, *points]
        logp = np.where(np.isfinite(logp), logp, -np.inf)
        self.highest = max(self.highest, logp.max())
        return logp

    def _best_of(self, points, decided):
        logp = yield from self._evaluated(points)
        self._note(decided)
        return Walker(points[np.argmax(logp)], logp.max())

    def _note(self, decided, *numbers):
        self.rounds.note(len(self.seen), self.highest, decided, *numbers)

    def _learn(self, since=0):
        self.learn(len(self.seen) - since)

    def _climb(self, walker, regions=(), to_the_end=False):
        """Let a walker climb; return the place that it has come to, of those with `regions`."""
        self.climbing, place = walker, None
        self.n_begun += 1
        while not walker.arrived and (to_the_end or self._makes_progress(walker)):
            place = self._place_of(walker, regions)
            if place:
                break
            self._learn(walker.since)
            points = self._proposals(walker)
            predicted, _ = self.density.values(points)
            logp = yield from self._evaluated(points)
            finite = logp > -np.inf
            walker.error = np.median(np.abs(logp - predicted)[finite]) if finite.any() else np.inf
            gains = np.array([predicted[0], logp.max()]) - walker.logp
            self._note("climb", walker.radius, *gains)
            self._take(walker, points, logp, predicted[0] - walker.logp)
            walker.heights = (*walker.heights, walker.logp)
        has_come = walker.arrived or place
        self.rounds.end("converged" if has_come else "climb abandoned")
        self.climbing = None
        return place

    def _place_of(self, walker, regions):
        """Return the place in whose region a walker is, as high as what is there; or None."""
        for place, mode in regions:
            if walker.logp > place.logp - self.negligible and mode.holds(walker.z):
                return place
        return None

    def _makes_progress(self, walker):
        """Whether its last rounds gained a share of what it lacks, to fit or to the best point."""
        if len(walker.heights) <= STEADY:
            return True
        (chi2, n), before = self.misfit(), walker.heights[-1 - STEADY]
        lacking = max(0.0, chi2 - n) / 2 if self._is_badly_fitted() else 0.0
        lacking += self.highest - before
        is_far = lacking > self.negligible
        return not is_far or walker.logp - before > LEAST_PROGRESS * lacking

    def settle(self):
        """End here: a climb that the budget has stopped may have come to more mass."""
        walker, self.climbing = self.climbing, None
        if walker is None:
            return
        self._learn()  # a climb knows its own evaluations alone
        if walker is not self.best:
            self._weigh([self.best, walker])
            if walker.mass > self.best.mass:
                self.maxima.append(walker)
                self.best = walker

    def modes(self):
        """Return places of distinct modes that are not negligible, and these and images (k, d)."""
        self._weigh(self.maxima)
        places, found = [], []
        for place in sorted(self.maxima, key=lambda place: -place.mass)[:MOST_MODES]:
            if self._is_apart(place.z, found) and (
                not places or places[0].mass - place.mass < NEGLIGIBLE_MASS
            ):
                places.append(place)
                found += [z for z in self._with_images(place.z) if self._is_apart(z, found)]
        return places, np.array(found)

    def _is_apart(self, z, others):
        return all(self._dip(z, other) > self.near for other in others)

    def _weigh(self, walkers):
        """Find the modes of s where walkers are, if there are several.

        Those that are negligible by the curvature at their maxima are left at that.
        """
        if len(walkers) < 2:
            return
        log_s, _ = self.density.values(np.array([one.z for one in walkers]))
        for one, logp in zip(walkers, log_s, strict=True):
            one.mode = Mode(one.z, self.factor(one.z), logp)
        top = max(one.mass for one in walkers)
        for one in walkers:
            if one.mass > top - self.negligible:
                one.mode = self.mode(one.z, one.mode.factor)

    def factor(self, z):
        """Return a factor of the covariance that the curvature of log s leaves at z (d, d)."""
        values, vectors = _curvature(self.density, z, self.spread)
        covariance = (vectors / (1 + np.maximum(values, 0))) @ vectors.T
        return cholesky(covariance * np.outer(self.spread, self.spread))

    def _volumes(self, points):
        """Return the log volume (k,) that the curvature of log s leaves, and at most the prior."""
        values = [_curvature(self.density, z, self.spread)[0] for z in points]
        return -0.5 * np.log1p(np.maximum(values, 0)).sum(axis=-1)

    def _dip(self, a, b):
        """Return how far log s falls on the line between two points, below the lower one."""
        log_s, _ = self.density.values(a + np.linspace(0, 1, ON_LINE)[:, None] * (b - a))
        return min(log_s[0], log_s[-1]) - log_s.min()

    def _proposals(self, walker):
        """Return points (k, d) to evaluate next: the maximum of log s in the region, and draws."""
        z, root = maximum(self.density, walker.z, walker.radius * self.spread)
        draws = self.rng.standard_normal((z.size, self.n_each - 1))
        return np.vstack([z, z + solve_triangular(root, draws, trans="T", lower=True).T])

    def _take(self, walker, z, logp, foreseen):
        """Let a walker learn what its points turned out to be, and go to the best one.

        Where s is right, that is the one with most mass. `foreseen` is the gain by s.
        """
        merit = logp
        if walker.error < SMALL_ERROR:
            own, *others = self._volumes(np.concatenate([walker.z[None], z]))
            merit = logp + others - own
        best = np.argmax(merit)
        gain = merit[best] - walker.logp
        if gain > 0:
            walker.z, walker.logp = z[best], logp[best]
        is_right = walker.error < SMALL_ERROR
        has_ended = is_right and gain < SMALL_GAIN and walker.radius >= 1
        walker.n_small = walker.n_small + 1 if gain < SMALL_GAIN else 0
        walker.arrived = has_ended or walker.n_small >= MOST_SMALL
        if is_right:
            walker.radius = min(GROW * walker.radius, LARGEST_RADIUS)
        else:
            walker.radius = next_radius(walker.radius, gain, foreseen)


def next_radius(radius, gain, foreseen):
    """Return ρ after a round, by its gain and the one that s has said."""
    if gain > AS_FORESEEN * foreseen > 0:
        return min(GROW * radius, LARGEST_RADIUS)
    return radius if gain >= NOT_FORESEEN * max(foreseen, 0) else SHRINK * radius


def design(start, prior, rng):
    """Return the points (n, d) of the first round, the start first."""
    steps = prior[rng.choice(len(prior), N_DESIGN - 1)] - prior.mean(axis=0)
    return np.concatenate([start[None], start + DESIGN_SHARE * steps])


def maximum(density, centre, scales):
    """Return where log s − |(z − centre)/scales|²/2 is largest (d,), and a factor of its curvature.

    That is the maximum within a trust region about the centre.
    """
    (at_centre,), (slope,) = density.values(centre[None])
    unit = max(1.0, np.linalg.norm(scales * slope))  # as steps and tolerances of L-BFGS are about 1

    def loss(w):
        (log_s,), (slope,) = density.values((centre + scales * w)[None])
        if not np.isfinite(log_s):
            return LOSS_OUTSIDE, w
        return (0.5 * w @ w - log_s + at_centre) / unit, (w - scales * slope) / unit

    options = {"maxfun": MOST_STEPS, "ftol": TOLERANCE / unit}
    w = minimize(loss, np.zeros(centre.size), jac=True, method="L-BFGS-B", options=options).x
    z = centre + scales * w
    values, vectors = _curvature(density, z, scales)
    curvature = (vectors * (1 + np.maximum(values, 0))) @ vectors.T / np.outer(scales, scales)
    return z, cholesky(curvature)


def _curvature(density, z, scales):
    """Return eigenvalues and eigenvectors of the curvature of −log s at z, in units of `scales`."""
    steps = DIFFERENCE * np.diag(scales)
    _, slopes = density.values(np.concatenate([z + steps, z - steps]))
    curvature = (slopes[z.size :] - slopes[: z.size]) * scales / (2 * DIFFERENCE)
    curvature = np.where(np.isfinite(curvature), curvature, 0.0)
    return np.linalg.eigh((curvature + curvature.T) / 2)


def spread_of(prior):
    """Return half of the range of the middle 68 % of draws (n, d)."""
    return np.diff(np.quantile(prior, [0.16, 0.84], axis=0), axis=0)[0] / 2
