"""The way to the posterior with an emulator: Gauss–Newton without derivatives, in batches.

First some points around the start are evaluated. Then, round by round, the emulator is fitted, and
points are evaluated that maximise the emulated log-density within a trust region:

    maximise log s(z) − |(z − z_best)/sd|²/2r²   for r = ρ/6, ρ/2.5, ρ, 3ρ

and near each of these maxima a draw of the normal there. ρ becomes the r that won, or falls. Where
evaluations are few, a round has r = ρ alone, and ρ grows where log π rises as s has said. In the
neck of a funnel π has no bound, and hardly any mass, so where s is right steps go by the mass.

The way may end in a local mode. So log s is maximised from draws of the prior, and what may be
another mode is evaluated, as are mirror images of the best place (mirrors.py), and some points far
away. Where the emulator does not predict these, or the best place does not fit the data, all begins
again from other starts, with evaluations of their own alone, until enough climbs have come to the
best place. A climb that gains little is left, and resumed if no other one comes higher.

Generators ask for points and are sent their log-densities.

Symbols: z the coordinates (d,), sd their standard deviations in the prior, ρ and r the radii.
"""

from dataclasses import dataclass

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_kameleon.approximation.batches import BatchSearch
from pymc_kameleon.approximation.chain import FIRST_LENGTHS
from pymc_kameleon.approximation.linalg import cholesky, linear_algebra
from pymc_kameleon.approximation.rounds import Rounds
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.samplers.approximation import learning
from pymc_kameleon.samplers.emulator.mirrors import MOST_IMAGES, MOST_SINGLE

LEAST_DESIGN, DESIGN_SHARE = 8, 0.25
"""Points of the design at least, where d + 2 are fewer; how far they are from the start, as a
share of draws of the prior."""

RADII = 1 / 6, 1 / 2.5, 1.0, 3.0
"""The radii r of a round, in units of ρ."""

SHRINK, LEAST_RADIUS, LARGEST_RADIUS = 0.25, 1e-3, 10.0
"""Factor of ρ where a round has not gained anything, and its bounds."""

GROW, AS_FORESEEN, NOT_FORESEEN = 3.0, 0.5, 0.25
"""Factor of ρ where a round of one radius has gained this share of what s has said, or more; and
the share below which ρ falls."""

FEW = 100, 20
"""Evaluations of a way, and times d, which are few."""

SMALL_GAIN, SMALL_ERROR, MOST_SMALL = 1.0, 1.5, 5
"""The way ends where a round gains less, and predicts the log-densities within this; or after so
many rounds in a row that gain less."""

MOST_ERROR = 10.0
"""Median error of predicted log-densities at the end of the way, from which it is gone again."""

BEHIND = 10.0, 2.0
"""How far below the best, and times d, there may still be something of the posterior."""

NEGLIGIBLE = 6.0
"""How far below the best one a maximum of log s is of no account."""

N_STARTS, MOST_MAXIMA, NEAR, NEW_RADIUS = 24, 4, 0.02, 0.3
"""Draws of the prior from which other maxima of s are looked for; how many are evaluated at a time;
distance in sd within which points are the same; and ρ of a walker that begins there."""

ON_LINE, LARGEST_DIP = 21, 1.0
"""Points of a line between two maxima, and the dip of log s there up to which they are one."""

LOSS = 0.2
"""Times d: log mass that a larger radius may lose, by s, to be tried at all."""

MOST_LOOKS = 4
"""Rounds in which other maxima are evaluated."""

N_FAR, FAR_SHARE, UNPREDICTED, MOST_FAR = 6, 0.5, 0.35, 3
"""Points far away that are evaluated at a time; how far they are from the best one, as a share of
the way to draws of the prior; the error of their outputs, relative to how much these change, from
which the emulator does not predict them; and after so many times, in which it has learned from
those before, it may miss a mode."""

BADLY_FITTED = 3.0, 10.0
"""χ² at the best place from which it does not fit the data: times the number of outputs, and plus.
"""

MOST_CLIMBS, MOST_STARTS, ENOUGH_CAME = 4, 8, 3
"""Climbs from starts of their own, if it may; while none fits the data; and how many that came to
the best place are enough.
"""

STEADY, LEAST_PROGRESS = 5, 0.1
"""Rounds in which a climb is to gain this share of what it lacks, or another one begins."""

MOST_JUMPS, N_JUMPS, JUMP, WELL_PREDICTED = 4, 2, 3.0, 0.1
"""Where s is known from earlier runs: rounds in which draws of s are evaluated, before the way is
gone as without them, and how many in a round; how far they may be, in sd; and the error of
log-densities with which s is good enough to tune."""

MOST_STEPS, LOSS_OUTSIDE, DIFFERENCE = 100, 1e10, 1e-3
"""Evaluations of log s for a maximum, about; the loss where s is 0; and finite differences in units
of a trust region."""


OF_SEARCH = "evaluated", "n_evaluated", "n_learned", "found", "choices"
"""What a chain's tuning knows of its search."""


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
    n_came: int = 0  # climbs from starts of their own that came here


class Way:
    """The search for the posterior, as generators that yield points and are sent log-densities.

    `learn` fits the emulator to the newest n evaluations; `unpredicted` is how far it is off at n
    of them, `misfit` χ² at the best point, and of how many outputs; `explore` gives draws of s from
    its maximum, where earlier runs have called the boxes often enough. Of `prior` there are draws
    (n, d).

    The `best` Walker is the best of those that have arrived, or the first one; `climbing` is the
    one under way, `maxima` are where walkers have come, `n_begun`, `n_starts` and `n_climbs` are
    how many have begun, from starts of their own, and arrived.
    """

    def __init__(
        self,
        density,
        learn,
        prior,
        rng,
        unpredicted,
        misfit,
        explore=None,
        images=None,
        in_small_steps=False,
    ):
        self.density, self.learn, self.prior, self.rng = density, learn, prior, rng
        self.in_small_steps = in_small_steps
        self.unpredicted, self.misfit, self.explore = unpredicted, misfit, explore
        self.images = images
        self.spread, self.seen = spread_of(prior), []
        self.best, self.climbing, self.maxima = None, None, []
        self.n_begun, self.n_climbs, self.may_miss, self.is_predicted = 0, 0, False, False
        self.has_looked, self.n_starts, self.highest = False, 1, -np.inf
        self.rounds = Rounds()

    def go(self, start):
        """Climb from the best point around a start, and look for other modes."""
        known = self.explore is not None
        points = start[None] if known else design(start, self.prior, self.rng)
        self.best = yield from self._best_of(points, 1.0)
        self._note("design")
        if self.best.logp == -np.inf:
            return
        if known:
            yield from self._jump(self.best)
        has_jumped = self.best.arrived
        if not has_jumped:
            yield from self._climb(self.best)
        self.maxima, self.n_climbs, self.best.n_came = [self.best], 1, 1
        if not has_jumped:
            yield from self._climb_until_it_fits()
            yield from self._look_at_maxima()
        yield from self._look_at_images()
        self.has_looked = True
        if has_jumped:
            return
        self.best.n_came = max(self.best.n_came, 1)
        start = yield from self._start_of_another_climb()
        self.may_miss = start is not None
        if self.may_miss:
            yield from self._go_again(start)

    def _look_at_maxima(self):
        """Evaluate other maxima of s, and climb from what may be another mode."""
        for look in range(MOST_LOOKS):
            self._learn()
            best = self.best
            points = self._other_maxima(best, np.inf if look == 0 else self._allowance(best))
            if len(points) == 0:
                return
            other = yield from self._best_of(points, NEW_RADIUS)
            self._note("other maxima")
            if other.logp > best.logp - self._allowance(best):
                yield from self._climb(other)
                self._add(other)
                self.n_climbs += 1

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
        kept, others = [one for one, found in zip(maps, same, strict=True) if found], []
        self._note("mirror images")
        self.images.keep(kept, others)
        self._learn()  # what is known of these
        for k in np.argsort(-logp, kind="stable"):
            image = maps[k] @ best.z
            known = min(self._dip(z, image) for z in self._with_images(best.z)) <= LARGEST_DIP
            if not same[k] and logp[k] > least[k] and not known:
                walker = Walker(image, logp[k], NEW_RADIUS)
                yield from self._climb(walker)
                own, other = self._masses([best, walker])
                self._add(walker)
                if self._dip(image, walker.z) <= LARGEST_DIP and abs(own - other) < NEGLIGIBLE:
                    others.append(maps[k])
        self.images.keep(kept, others)
        self._learn()

    def _likely_maps(self, walker, most, maps=None):
        """Return maps to what may be other modes, and how high these are at least, (k,)."""
        maps = self.images.likely(walker.z, -self._allowance(walker), maps) if self.images else []
        if not maps:
            return [], np.zeros(0)
        values, vectors = _curvature(self.density, walker.z, self.spread)
        ways = np.array([(one @ walker.z - walker.z) / self.spread for one in maps])
        fall = np.square(ways @ vectors) @ np.maximum(values, 0) / 8
        chosen = np.flatnonzero(fall > LARGEST_DIP)[:most]
        least = walker.logp - np.minimum(fall, self._allowance(walker))
        return [maps[k] for k in chosen], least[chosen]

    def _start_of_another_climb(self):
        """Return where another climb begins (d,), as a mode may be missed; else None."""
        for _ in range(MOST_FAR):
            self._learn()
            draws = self.prior[self.rng.choice(len(self.prior), N_FAR)]
            points = self.best.z + FAR_SHARE * (draws - self.best.z)
            highest = self.highest
            logp = yield from self._evaluated(points)
            self._note("far points")
            if logp.max() > highest:
                return points[np.argmax(logp)]
            if not self.unpredicted(N_FAR) > UNPREDICTED:
                self.is_predicted = True
                return self._prior_draw() if self._is_badly_fitted() else None
        return self._prior_draw()

    def climbs_to_tell(self):
        """Return how many climbs there were, and how many came to the best place.

        0, 0 if all is well; 1, 0 if that does not fit the data, and nothing was left for another.
        """
        if self.may_miss:
            return self.n_climbs, self.best.n_came
        return (1, 0) if self._is_badly_fitted() else (0, 0)

    def _is_badly_fitted(self):
        chi2, n = self.misfit()
        return chi2 > BADLY_FITTED[0] * n + BADLY_FITTED[1]

    def _prior_draw(self):
        return self.prior[self.rng.choice(len(self.prior))]

    def _go_again(self, start):
        """Climb from there, and from draws of the prior; to choose among these did not help."""
        while self.n_starts < MOST_CLIMBS and self.best.n_came < ENOUGH_CAME:
            if self.is_predicted and not self._is_badly_fitted():
                break
            yield from self._climb_from(start)
            start = self._prior_draw()
        if self.best.n_came < ENOUGH_CAME and self.is_predicted and not self._is_badly_fitted():
            self.may_miss = False

    def _climb_until_it_fits(self):
        """Climb from draws of the prior while no place fits the data; go on with the best climb."""
        while self._is_badly_fitted() and self.n_starts < MOST_STARTS:
            if self.best.n_came == ENOUGH_CAME:
                break
            yield from self._climb_from(self._prior_draw())
        if not self.best.arrived:
            yield from self._climb(self.best, to_the_end=True)

    def _climb_from(self, start):
        since = len(self.seen)
        walker = yield from self._best_of(design(start, self.prior, self.rng), 1.0)
        self._note("design")
        walker.since, self.n_starts = since, self.n_starts + 1
        if walker.logp > -np.inf:
            yield from self._climb(walker)
            self._learn()
            self._add(walker).n_came += 1
            self.n_climbs += 1

    def _add(self, walker):
        """Add where a walker has come to the maxima, or find it there; return that one."""
        found = walker
        *masses, own = self._masses([*self.maxima, walker])
        for place, mass in zip(self.maxima, masses, strict=True):
            near = abs(mass - own) < NEGLIGIBLE
            if near and any(
                self._dip(z, walker.z) <= LARGEST_DIP for z in self._with_images(place.z)
            ):
                found, before = place, mass
        if found is walker:
            self.maxima.append(walker)
        elif own > before:
            found.z, found.logp, found.error = walker.z, walker.logp, walker.error
            found.arrived = walker.arrived
        self.best = self.maxima[np.argmax(self._masses(self.maxima))]
        return found

    def _with_images(self, z):
        """Return z (d,), and its images where outputs are the same."""
        return [z, *self.images.of(z)] if self.images else [z]

    def _evaluated(self, points):
        logp = yield points
        self.seen = [*self.seen, *points]
        logp = np.where(np.isfinite(logp), logp, -np.inf)
        self.highest = max(self.highest, logp.max())
        return logp

    def _note(self, decided, *numbers):
        self.rounds.note(len(self.seen), self.highest, decided, *numbers)

    def _best_of(self, points, radius):
        logp = yield from self._evaluated(points)
        return Walker(points[np.argmax(logp)], logp.max(), radius)

    def _learn(self, since=0):
        self.learn(len(self.seen) - since)

    def _climb(self, walker, to_the_end=False):
        self.climbing = walker
        self.n_begun += 1
        while not walker.arrived and (to_the_end or self._makes_progress(walker)):
            self._learn(walker.since)
            points, radii = _proposals(self.density, walker, self.spread, self.rng, self._volumes)
            if self.in_small_steps:
                points, radii = of_one_radius(points, radii, walker.radius)
            predicted, _ = self.density.values(points)
            logp = yield from self._evaluated(points)
            finite = logp > -np.inf
            walker.error = np.median(np.abs(logp - predicted)[finite]) if finite.any() else np.inf
            gains = np.array([predicted.max(), logp.max()]) - walker.logp
            self._note("climb", walker.radius, *gains)
            foreseen = predicted[0] - walker.logp if self.in_small_steps else None
            _take(walker, points, radii, logp, self._volumes, foreseen)
            walker.heights = (*walker.heights, walker.logp)
        self.rounds.end("converged" if walker.arrived else "climb abandoned")
        self.climbing = None

    def _makes_progress(self, walker):
        """Whether its last rounds gained a share of what it lacks, to fit or to the best point."""
        if len(walker.heights) <= STEADY:
            return True
        (chi2, n), before = self.misfit(), walker.heights[-1 - STEADY]
        lacking = max(0.0, chi2 - n) / 2 if self._is_badly_fitted() else 0.0
        lacking += self.highest - before
        is_far = lacking > self._allowance(walker)
        return not is_far or walker.logp - before > LEAST_PROGRESS * lacking

    def come_to(self):
        """Return the best Walker so far: one that the budget has stopped may be far better."""
        if self.climbing is None:
            return self.best
        own, other = self._masses([self.best, self.climbing])
        return self.climbing if other > own else self.best

    def _jump(self, walker):
        """Evaluate draws of s, a few at a time, until their log-densities are well predicted."""
        for _ in range(MOST_JUMPS):
            self._learn()
            starts = [walker.z, *self.prior[self.rng.choice(len(self.prior), N_STARTS)]]
            ends = [_maximum(self.density, z, JUMP * self.spread) for z in starts]
            log_s, _ = self.density.values(np.array([z for z, _ in ends]))
            if not np.isfinite(log_s).any():
                return
            draws = self.explore(*ends[np.nanargmax(log_s)])
            points = draws[self.rng.choice(len(draws), N_JUMPS, replace=False)]
            predicted, _ = self.density.values(points)
            logp = yield from self._evaluated(points)
            self._note("emulated draws")
            walker.error = np.sqrt(np.mean((logp - predicted) ** 2))
            if logp.max() > walker.logp:
                walker.z, walker.logp = points[np.argmax(logp)], logp.max()
            walker.arrived = bool(walker.error < SMALL_ERROR)
            if walker.error < WELL_PREDICTED:
                return

    def modes(self):
        """Return the distinct maxima (k, d) that count: not a neck, higher but with less mass."""
        best, found = self.come_to(), []
        places = [*self.maxima, best] if best is self.climbing else self.maxima
        masses = self._masses(places)
        for k in np.argsort(-masses, kind="stable"):
            less = masses.max() - masses[k]
            is_neck = less > SMALL_GAIN and places[k].logp > best.logp
            if less < NEGLIGIBLE and not is_neck:
                for z in self._with_images(places[k].z):
                    if all(self._dip(z, other) > LARGEST_DIP for other in found):
                        found.append(z)
        return np.array(found)

    def _masses(self, walkers):
        """Return the log mass where walkers are (k,), about and but for a constant."""
        volumes = self._volumes(np.array([walker.z for walker in walkers]))
        return np.array([walker.logp for walker in walkers]) + volumes

    def _volumes(self, points):
        """Return the log volume (k,) that the curvature of log s leaves, and at most the prior."""
        values = [_curvature(self.density, z, self.spread)[0] for z in points]
        return -0.5 * np.log1p(np.maximum(values, 0)).sum(axis=-1)

    def _allowance(self, best):
        return BEHIND[0] + BEHIND[1] * best.z.size

    def _other_maxima(self, best, behind):
        """Return new maxima of log s (k, d), not more than `behind`, from draws of the prior."""
        starts = self.prior[self.rng.choice(len(self.prior), N_STARTS)]
        found = np.array([_climbed(self.density, z, self.spread)[0] for z in starts])
        log_s, _ = self.density.values(found)
        own, _ = self.density.values(best.z[None])
        least = own[0] - behind
        chosen = []
        for k in np.argsort(-log_s, kind="stable"):
            near = np.array([*self.seen, *chosen]) - found[k]
            if not log_s[k] > least or np.linalg.norm(near / self.spread, axis=1).min() < NEAR:
                continue
            if all(self._dip(found[k], z) > LARGEST_DIP for z in (best.z, *chosen)):
                chosen.append(found[k])
        return np.array(chosen[:MOST_MAXIMA])

    def _dip(self, a, b):
        """Return how far log s falls on the line between two points, below the lower one."""
        log_s, _ = self.density.values(a + np.linspace(0, 1, ON_LINE)[:, None] * (b - a))
        return min(log_s[0], log_s[-1]) - log_s.min()


def design(start, prior, rng):
    """Return the points (n, d) of the first round, the start first."""
    d = start.size
    n = max(LEAST_DESIGN, d + 2) - 1
    steps = prior[rng.choice(len(prior), n, replace=n > len(prior))] - prior.mean(axis=0)
    return np.concatenate([start[None], start + DESIGN_SHARE * steps])


def _proposals(density, walker, spread, rng, volumes):
    """Return points (k, d) to evaluate next, and their radii, but for those that lose mass by s."""
    points, radii = [], []
    for factor in RADII:
        r = factor * walker.radius
        z, root = _maximum(density, walker.z, r * spread)
        points += [
            z,
            z + solve_triangular(root, rng.standard_normal(z.size), trans="T", lower=True),
        ]
        radii += [r, r]
    points, radii = np.array(points), np.array(radii)
    log_s, _ = density.values(points[::2])
    mass = np.nan_to_num(log_s + volumes(points[::2]), nan=-np.inf)
    is_far = np.arange(len(mass)) > np.argmax(mass)
    loses = is_far & (mass < mass.max() - LOSS * walker.z.size)
    points, radii = points[np.repeat(~loses, 2)], radii[np.repeat(~loses, 2)]
    _, first = np.unique(np.round(points / spread, 6), axis=0, return_index=True)
    keep = np.sort(first[np.isfinite(points[first]).all(axis=1)])
    return points[keep], radii[keep]


def of_one_radius(points, radii, largest):
    """Return the points of the largest radius that is not above this one."""
    chosen = radii == radii[radii <= largest].max(initial=radii.min())
    return points[chosen], radii[chosen]


def _climbed(density, centre, scales):
    """Return where log s − |(z − centre)/scales|²/2 is largest (d,), and the same by `scales`."""

    def loss(w):
        log_s, slope = density.values((centre + scales * w)[None])
        if not np.isfinite(log_s[0]):
            return LOSS_OUTSIDE, w
        return 0.5 * w @ w - log_s[0], w - scales * slope[0]

    w = minimize(
        loss, np.zeros(centre.size), jac=True, method="L-BFGS-B", options={"maxfun": MOST_STEPS}
    ).x
    return centre + scales * w, w


def _maximum(density, centre, scales):
    """Return the maximum of log s within a trust region, and a factor of the curvature there."""
    z, _ = _climbed(density, centre, scales)
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


def _take(walker, z, radii, logp, volumes, foreseen=None):
    """Let a walker learn what its points turned out to be, and go to the best one.

    Where s is right, that is the one with most mass. `foreseen` is the gain by s, if there is one
    radius.
    """
    worth = logp
    if walker.error < SMALL_ERROR:
        own, *others = volumes(np.concatenate([walker.z[None], z]))
        worth = logp + others - own
    best = np.argmax(worth)
    gain = worth[best] - walker.logp
    if gain > 0:
        walker.z, walker.logp, walker.radius = z[best], logp[best], radii[best]
        if foreseen is not None and gain >= AS_FORESEEN * foreseen:
            walker.radius *= GROW
        elif foreseen is not None and gain < NOT_FORESEEN * foreseen:
            walker.radius *= SHRINK
    else:
        walker.radius *= SHRINK
    walker.radius = np.clip(walker.radius, LEAST_RADIUS, LARGEST_RADIUS)
    is_small = gain < SMALL_GAIN
    walker.n_small = walker.n_small + 1 if is_small else 0
    walker.arrived = (is_small and walker.error < SMALL_ERROR) or walker.n_small >= MOST_SMALL


class SearchByEmulator(BatchSearch):
    """The way of a chain, by a step of its own, which can be interrupted after each evaluation."""

    def __init__(self, step, start, seed, prior):
        super().__init__(start, seed)
        self.step, self._draws = step, None
        if prior is None:
            prior = start + self.rng.standard_normal((100, start.size))
        s, fit = step.parameters.s, step.fit
        s.mean[:] = start
        s.factor[:] = np.diag(spread_of(prior))
        self._density = fit.density(step, self.rng)
        are_few = step.monitor.most_on_the_way <= FEW[0] + FEW[1] * start.size
        self._way = Way(
            self._density,
            lambda n: learning.refit([step], n),
            prior,
            self.rng,
            lambda n: fit.unpredicted(step, self._density, n),
            lambda: fit.misfit(step),
            self._explore if fit.knows_enough(step) else None,
            fit.images(step),
            are_few and step.max_concurrent == 1,
        )
        self.begin(self._way.go(start))

    @property
    def error(self):
        """Median error of the log-densities that were predicted last, near the best point."""
        return np.inf if self._way.best is None else self._way.come_to().error

    def _explore(self, z, root):
        with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
            return learning.explore(self.step, self._density, z, root, self.rng)

    def go_on(self, logp, budget, most):
        """Evaluate until the way ends, or the budget is spent: of each climb, and of all."""
        logp.n = self.n
        while not self.has_ended and logp.n < self._allowed(budget, most):
            z, value = self.evaluate(logp, self._allowed(budget, most))
            learning.note(self.step, z, value, logp.outputs)
            self.advance()

    def _allowed(self, budget, most):
        return min(budget * max(self._way.n_begun, 1), most)

    def finish(self, step, n):
        """Hand what was learned to the step, once for all; return the best point and draws of s."""
        own = self.step
        step.search.note_all(self._way.rounds, self.n)
        if self._draws is None:
            best = self._way.best and self._way.come_to()
            arrived = best is not None and best.arrived
            own.state.x[:] = best.z if arrived else learning.best_of(own)[0]
            if best is not None and best.error < MOST_ERROR:
                own.tuning.found.climbs[:] = self._way.climbs_to_tell()
            own.tuning.found.looked[0] = self._way.has_looked
            draws = learning.learn_s([own], self.rng, FIRST_LENGTHS, 0, self._way.modes())
            self._draws = np.concatenate([own.state.x[None], self.rng.choice(draws, n - 1)])
        copy_arrays(own.parameters, step.parameters, ("s",))
        copy_arrays(own.tuning, step.tuning, OF_SEARCH)
        return self._draws


def spread_of(prior):
    """Return half of the range of the middle 68 % of draws (n, d)."""
    return np.diff(np.quantile(prior, [0.16, 0.84], axis=0), axis=0)[0] / 2
