"""How SurrogateMetropolis finds the posterior before its first draw.

A Gaussian process chooses the points where coordinates are few. If that fails, or they are many,
the way goes on by line searches and BFGS. Where evaluations are plenty, a look for other modes
follows.
"""

from contextlib import suppress

import numpy as np

from pymc_kameleon.approximation.batches import BatchSearch, noting
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.samplers.approximation.initial_search import N_GUIDED
from pymc_kameleon.samplers.surrogate import modes
from pymc_kameleon.samplers.surrogate.active.draws import N_STEPS_ALONE
from pymc_kameleon.samplers.surrogate.active.way import MOST_FOR_ALL, Way, least_fitted
from pymc_kameleon.samplers.surrogate.moves import each_once
from pymc_kameleon.step.initial_search import InitialSearch
from pymc_kameleon.step.warm_start.approach import FOLLOWING
from pymc_kameleon.step.warm_start.search import Guide, WarmStart

MOST_COORDINATES = 14
"""Coordinates up to which a process is worth its arithmetic."""

BUDGET = 15, 60
"""Times d, and plus: evaluations at most. If it is not home then, it is given up."""

GOOD, BETTER = (0.1, 0.3), (0.02, 0.1)
"""sdV, and the root mean square error of plain draws, with which s is good enough to move by; and
with which averages by the process itself are good."""

MOST_BATCHES = 16
"""Batches for which a search has evaluations at least, if many are made at a time."""

N_TYPICAL = 200
"""Draws for the typical log-density."""


def active_budget(d, at_once=1):
    """Return the evaluations of a search, at most, of which so many are made at a time."""
    return max(BUDGET[0] * d + BUDGET[1], MOST_BATCHES * at_once if at_once > 1 else 0)


def most_of_search(d, at_once=1):
    """Return the evaluations of a search, at most, however many there are in all."""
    return max(active_budget(d, at_once), MOST_FOR_ALL)


def suits(d):
    """Whether a search of d coordinates is worth it."""
    return 0 < d <= MOST_COORDINATES


class Search(BatchSearch):
    """A Way, one evaluation after another; parameters as of BatchSearch."""

    def __init__(self, start, seed, at_once=1):
        super().__init__(start, seed)
        self.way, self.is_over = Way(self.rng, at_once), False
        self.begin(self.way.go(start[None]))
        self._learns_all = False  # kept here, as a search may be interrupted anywhere
        self._budget = active_budget(start.size, at_once)

    def go_on(self, logp, most, is_all=False):
        """Evaluate until s is good enough, or the budget is spent; return whether it is home.

        If these evaluations are all there is, or log π is exactly quadratic in most coordinates, it
        learns more, and has all of them.
        """
        logp.n = self.n
        while not self.has_ended:
            self._learns_all |= is_all or (self.way.are_exact and self.way.is_home)
            longest = MOST_FOR_ALL if self._learns_all else self._budget
            sd, error = BETTER if self._learns_all else GOOD
            is_enough = self.way.is_home and self.way.sd < sd and self.way.error < error
            if self.n >= min(most, longest) or (self.is_between_batches and is_enough):
                break
            self.evaluate(logp, min(most, longest))
            self.advance()
        return not self.has_ended and self.way.is_home

    def _settle(self, n):
        """Return a WarmStart, and a Guide."""
        way = self.way
        draws = way.draws(N_STEPS_ALONE, self.rng)
        mean, covariance = draws.mean(axis=0), np.atleast_2d(np.cov(draws.T))
        scales = np.diag(np.linalg.inv(covariance)) ** -0.5
        factor = np.linalg.cholesky(covariance)
        typical = way.expected(self.rng.choice(draws, N_TYPICAL))
        logp = typical + mean.size / 2  # as if at the top of a normal
        found = WarmStart(mean, logp, scales, factor, way.exact, 0.0, way.x, way.f)
        if way.at_once == 1:
            some = self.rng.choice(draws, n - 1, replace=False)
        else:
            some = way.beginnings(typical - drop(mean.size, NEGLIGIBLE))
            some = some[np.arange(n - 1) % len(some)]
        points = np.concatenate([way.best[None], some])
        return found, Guide(mean, scales, factor, way.exact, np.array([logp]), points)


class SearchByProcess(InitialSearch):
    """The search of SurrogateMetropolis."""

    follows = True

    def __init__(self, step):
        super().__init__(step)
        self._by_process = None  # the search, if it was interrupted
        self._n_searched = 0  # evaluations of a search in vain, after which the way goes on

    @property
    def leads_from_best(self):
        """Whether the first chain, which the others follow, begins at the best of all starts."""
        return self.is_active

    def budget(self):
        """Return the evaluations of the way, or of what is left of it after a search in vain."""
        return min(self.usual_budget(), max(0, self.limit() - self._n_searched))

    def most_of_search(self):
        """Return the evaluations of a search in vain, of another one, and of a look."""
        search = self._most_by_process if self.is_active else 0
        return super().most_of_search() + search

    @property
    def _most_by_process(self):
        return most_of_search(self.d, self.step.of_run.max_concurrent)

    def usual_evaluations(self):
        """Return about how many evaluations the way takes, and one that follows."""
        if not self.is_active:
            return super().usual_evaluations()
        own = active_budget(self.d, self.step.of_run.max_concurrent) // 2
        return own, 1 if self.has_few_evaluations else FOLLOWING * self.d

    @property
    def share(self):
        """A process that makes the way learns more on it than by draws, and ends it by itself."""
        return 0.9 if self.is_active else super().share

    @property
    def is_active(self):
        """Whether a Gaussian process chooses the first points."""
        return suits(self.d)

    def no_guide(self):
        """Return the guide, which has room for draws of the process."""
        return Guide.nowhere(self.d, N_GUIDED if self.is_active else 0)

    def find(self, q, logp):
        """Go there, and remember all that was evaluated on the way."""
        rows = []
        noted = noting(logp, lambda x, value: rows.append(np.append(x, value)))
        self.note_searches(int(not self.step.guide.is_known), 1)
        self._go_home(q, logp, noted, rows)
        self._begin_in_any_mode(q, noted)
        self._by_process = None  # not before, as what was interrupted is repeated
        tuning = self.step.tuning
        if most := len(tuning.evaluated):
            rows = each_once(np.reshape(rows, (-1, self.d + 1)), self.d)[:most]
            tuning.evaluated[: len(rows)], tuning.n_evaluated[0] = rows, len(rows)

    def _begin_in_any_mode(self, q, logp):
        """Look for other modes, if the search has ended at one, and begin in any."""
        tuning = self.step.tuning
        if not tuning.has_arrived[0]:
            return
        factor = tuning.home_factor.copy()
        home = Mode(tuning.middle.copy(), factor, tuning.mass[0] - np.log(np.diag(factor)).sum())
        every, starts = self.look_elsewhere(home, logp)
        if not every:
            every, starts = [home], [None]
        if start := starts[self.mode_to_begin_in(every, starts)]:
            self._begin_elsewhere(q, start, logp)
        modes.note(self.step.tuning.found, every)

    def _begin_elsewhere(self, q, found, logp):
        """Begin in another mode, with all that is known of the first one, too."""
        before = self.step.tuning.home[: self.step.tuning.n_home[0]]
        points = np.concatenate([found.points, before[:, :-1]])
        logps = np.concatenate([found.logps, before[:, -1]])
        self.begin_near(found._replace(points=points, logps=logps), q, logp)
        self.step.tuning.has_arrived[0] = True  # with however many evaluations

    def _go_home(self, q, logp, noted, rows):
        """Go there with a process that chooses the points, or as others do; `rows` gets them."""
        step, start, n = self.step, q[: self.d].copy(), 0
        guide, most = step.guide, self.usual_budget()
        if step.of_run.max_concurrent > 1:  # many at a time may be more, as rounds are few
            most = self._most_by_process
        most = min(most, self.limit())
        if guide.has_draws and self.has_few_evaluations:
            x, points, logps = guide.draws[1], np.zeros((0, self.d)), np.zeros(0)
            if not self.is_one_of_many:
                at_start, (x, at_x) = noted(start), self._high_draw(noted)
                points, logps = np.array([start, x]), np.array([at_start, at_x])
            self._begin_at(q, x, guide.warm_start(points, logps))
            return
        if not guide.is_known and self.is_active and most >= least_fitted(self.d):
            search, end = self._active_search_from(start), None
            is_home = search.go_on(logp, most, self.limit() <= MOST_FOR_ALL)
            rows += search.rows
            self.note_all(search.way.rounds, search.n)
            with suppress(np.linalg.LinAlgError):
                end = search.settled(N_GUIDED) if is_home else None
            if end:
                found, step.guide = end
                x = step.guide.draws[1] if self.is_one_of_many else self._high_draw(noted)[0]
                self._begin_at(q, x, found)
                return
            if not search.is_over:  # what comes then may be begun again, to ask for points
                is_spent = self.limit() - search.n <= self.d
                step.monitor.not_found = search.n if is_spent else 0
            search.is_over = True
            q[: self.d], n = search.way.best, search.n + 1
        self._n_searched += n
        try:
            self.begin_near(self.approach(q, noted), q, noted)
        finally:  # it may be interrupted, and then begins again
            self._n_searched -= n

    def _active_search_from(self, start):
        """Return the search from a start, or the one that was interrupted."""
        seed = int(self.step.rng.integers(2**63))
        search = self._by_process
        if search is None or not search.is_of(start, seed, self.step.trail[:, 0]):
            self._by_process = Search(start, seed, self.step.of_run.max_concurrent)
        return self._by_process

    def _high_draw(self, logp):
        """Return a draw of the guide where the log-density is as high as it should be, and that."""
        draws, top = self.step.guide.draws, self.step.guide.top_logp[0]
        order = 1 + self.step.rng.permutation(len(draws) - 1)
        for x in draws[order[: max(1, self.near_tries() - 1)]]:
            value = logp(x)
            if value > top - drop(self.d, NEGLIGIBLE):
                return x, value
        return draws[0], logp(draws[0])

    def _begin_at(self, q, x, found):
        q[: self.d] = x
        self.step._fill(found.scales, self.step.tuning.n)
        self.step._use_warm_start(found)
        self.step.tuning.has_arrived[0] = True  # with however many evaluations
