"""How a chain finds the posterior before its first draw: by which rules, and how many evaluations.

Of a chain's way there `trail` has what was evaluated, so that it can be interrupted: it is repeated
from its beginning, by known values. `guide` is what other chains need of where it has led, and
`rounds` what it has done.
"""

import numpy as np

from pymc_kameleon.approximation.modes import NEGLIGIBLE_MASS, Mode, most_felt
from pymc_kameleon.approximation.rounds import Rounds, put_into
from pymc_kameleon.step.monitor import NO_LIMIT
from pymc_kameleon.step.warm_start.approach import (
    FOLLOWING,
    NEAR_TRIES,
    OWN_SEARCH,
    WARM_START_BUDGET,
    approach,
    draw_near,
    evaluations_for_own_search,
)
from pymc_kameleon.step.warm_start.look import MOST_LOOKED, Look, evaluations_of_look
from pymc_kameleon.step.warm_start.search import Guide, RecordedLogp


class InitialSearch:
    """The search of a step's chains, by line searches and BFGS; then a look for other modes.

    Parameters
    ----------
    step : KameleonStep
    """

    exists = True  # whether chains evaluate anything before their first draw
    searches = True  # whether they go to the posterior, for as long as they need
    follows = False  # whether chains begin where the first one's search has ended
    leads_from_best = False  # whether the first chain begins at the best of all starts
    share = 0.5  # of limited evaluations, for the searches of all chains
    tuning_share = 0.5  # of those left after them, for tuning
    n_noted = 0  # numbers that are noted of an evaluation, besides its value
    has_gradient = False  # whether they are its gradient

    def __init__(self, step):
        self.step, self.d = step, step.layout.d
        self.rounds, self.recorded = Rounds(), None  # of the search under way, and its log-density
        self.longest_way = NO_LIMIT  # what chains begin with, see ChainMonitor

    def no_guide(self):
        """Return the Guide of a chain that knows of no other one."""
        return Guide.nowhere(self.d if self.follows else 0)

    def no_trail(self):
        """Return the trail of a chain that has not begun: rows of values, and what is noted."""
        n = 1 + self.most_evaluations() if self.exists else 0
        return np.full((n, 1 + self.n_noted), np.nan)

    def note(self, decided):
        """Note a round that has ended, of all evaluations since the last one."""
        n = self.recorded.n
        self.rounds.note(n, self.recorded.values[:n, 0].max(initial=-np.inf), decided)

    def note_all(self, rounds, n):
        """Note the rounds of a search that has made the last n evaluations."""
        for one in rounds:
            self.rounds.note(self.recorded.n - n + one.evaluations, *one[1:])

    def know_start(self, n, noted):
        """Count `n` evaluations by which the chain's start was found, the last one there.

        Of that `noted` is a row of the trail, None if the way begins elsewhere. That way does not
        evaluate it again. The first draw counts them.
        """
        step = self.step
        begins_there = noted is not None and step.tune and self.exists
        if begins_there:
            step.trail[0] = noted
        step.monitor.uncounted = n - begins_there

    def begin(self, q, asks):
        """Move `q` (n,) to where the posterior is, before a chain's first draw.

        Return whether the state's log-density is the one there.
        If it `asks`, it raises `Wanted` instead of evaluating the log-density.
        """
        step, d, log_density = self.step, self.d, self.step.log_density
        others = q[d:].copy()
        logp = RecordedLogp(
            lambda x: log_density(np.concatenate([x, others])),
            step.trail,
            step.of_run.patience,
            log_density.gradient[: self.n_noted],
            asks,
            self.has_gradient,
        )
        is_led = self.is_one_of_many and step.guide.is_known  # so its own start is of no account
        if is_led or np.isfinite(logp(q[:d])):
            logp.n = 0  # back to the first value
            self.rounds, self.recorded = Rounds(), logp
            self.find(q, logp)
            self.note("start of the chain")
            put_into(step.rounds, self.rounds)
            log_density.count[0] += logp.begun  # of this draw, too
            value = logp.values[logp.n - 1, 0]
            if self.follows and np.array_equal(q[:d], logp.x) and value > -np.inf:
                step.state.logp[0] = value
                return True
        return False

    def find(self, q, logp):
        """Move `q` (n,) to where the posterior is, by evaluations of `logp`, a RecordedLogp."""
        found = self.approach(q, logp)
        if self.step.monitor.climbing == 0:
            found = self._begin_in_any_mode(found, logp)
        self.begin_near(found, q, logp)

    def approach(self, q, logp):
        """Return the WarmStart that a search from `q` comes to."""
        step, budget = self.step, self.budget()
        guide, is_few = step.guide if step.guide.is_known else None, self.has_few_evaluations
        found = approach(logp, q[: self.d], step.rng, budget, guide, is_few)
        self.note_all(found.rounds, len(found.logps))
        if self.follows and len(found.logps) <= budget:
            where = {name: getattr(found, name) for name in ("x", "scales", "factor", "exact")}
            step.guide = step.guide._replace(**where)
        step.monitor.climbing = found.climbing
        if self.follows:  # of others, nothing is known together
            self.note_searches(int(guide is None), 1)
        return found

    def begin_near(self, found, q, logp):
        """Move `q` (n,) to a draw near a WarmStart, from which the step begins to tune."""
        step = self.step
        q[: self.d] = draw_near(found, logp, step.rng, self.near_tries())
        step._fill(found.scales, step.tuning.n)
        step._use_warm_start(found)

    # ---- other modes ----------------------------------------------------------------------------

    def _begin_in_any_mode(self, found, logp):
        """Look for other modes; return the WarmStart of the one to begin in."""
        home = Mode(found.x, found.factor, found.logp)
        every, starts = self.look_elsewhere(home, logp)
        start = starts[self.mode_to_begin_in(every, starts)] if every else None
        return start or found

    def note_searches(self, n, n_ends):
        """Note how many searches of the whole posterior there were, and their ends."""
        monitor = self.step.monitor
        if self.step.layout.covers_all:
            monitor.searches, monitor.ends = int(n), int(n_ends)

    def look_elsewhere(self, home, logp):
        """Return all modes and their WarmStarts, None of that for `home`; nothing if none looks."""
        step = self.step
        left = step.monitor.most_on_the_way - self.recorded.n - self.near_tries()
        first, most = (min(n, max(0, left // 2)) for n in self.budget_of_look)
        if first < self.d:
            return [], []
        self.note("start of the chain")
        look = Look(logp, home, first, most, step.rng, step.prior)
        step.log_density.rejects_errors = True  # far away much may raise
        try:
            look.go()
        finally:
            step.log_density.rejects_errors = False
        self.note("other modes")
        self.note_searches(*look.searches[:2])
        step.note_other_mode(most_felt(look.known))
        step.monitor.of_prior, step.monitor.impossible = map(int, look.of_prior)
        return look.modes, [look.starts[k] for k in look.high]

    def mode_to_begin_in(self, modes, starts):
        """Return which of some Modes the chain begins in; the WarmStart of its own is None.

        That is its own, if it was told where to start, or is of ``pm.sample``: others may know of
        other modes. Else the k-th chain begins in the k-th of those that are not negligible, in the
        order of their masses, and further chains draw one by mass.
        """
        masses, monitor = np.array([mode.mass for mode in modes]), self.step.monitor
        order = np.argsort(-masses, kind="stable")
        order = order[masses[order] > masses.max() - NEGLIGIBLE_MASS]
        own = [k for k in order if starts[k] is None]
        if not monitor.spreads:
            return (own or order)[0]
        if monitor.number < len(order) or len(order) == 1:
            return order[monitor.number % len(order)]
        p = np.exp(masses[order] - masses.max())
        return self.step.rng.choice(order, p=p / p.sum())

    @property
    def may_look(self):
        """Whether it looks for other modes if there are evaluations for it."""
        step = self.step
        is_whole = step.layout.covers_all and step.monitor.tune > 0
        return is_whole and not self.is_one_of_many

    @property
    def is_one_of_many(self):
        """Whether a chain begins where the first one says, as evaluations are many at a time."""
        return self.follows and self.step.of_run.max_concurrent > 1

    @property
    def is_under_way(self):
        """Whether the log-density was last evaluated by it."""
        step, logp = self.step, self.step.log_density
        begins = self.exists and step.tune and step.point is None
        return begins and logp.evaluated_at is not logp.point

    # ---- how many evaluations it may take -------------------------------------------------------

    @property
    def has_few_evaluations(self):
        """Whether a chain has too few evaluations to search for the posterior itself."""
        monitor, d = self.step.monitor, self.d
        n = (monitor.tune + monitor.draws) * self.step.steps_per_draw
        few = monitor.most_on_the_way < FOLLOWING * max(d, 3)
        return few or self.is_one_of_many or n < evaluations_for_own_search(d)

    def budget(self):
        """Return the evaluations that a chain has for its way to the posterior."""
        return min(self.usual_budget(), self.limit())

    def usual_budget(self):
        """Return the same where they are not limited; more if other chains follow."""
        step, most = self.step, WARM_START_BUDGET * self.d
        n_tune = step.monitor.tune * step.steps_per_draw
        return most if self.follows else min(most, max(10 * self.d, n_tune))

    def limit(self):
        """Return how many these may be, besides the start and the tries at the end."""
        return self.step.monitor.most_on_the_way - 1 - self.near_tries()

    def near_tries(self):
        """Return the tries of the draw at the end of the way, at most."""
        most = self.step.monitor.most_on_the_way
        return min(NEAR_TRIES, max(2, most // 10), most - 2)

    def most_evaluations(self):
        """Return the evaluations of the whole way after the start, at most."""
        return min(self.most_of_search() + NEAR_TRIES, self.step.monitor.longest_way)

    def most_of_search(self):
        """Return the same but for the draw at its end."""
        return self.usual_budget() + MOST_LOOKED * self.may_look

    @property
    def budget_of_look(self):
        """Return the evaluations of a look for other modes, at first and at most."""
        monitor = self.step.monitor
        n = monitor.looks_for
        if n < 0:  # for itself
            n = 2 * monitor.tune * self.step.steps_per_draw  # as tuning may not depend on draws
            if monitor.most_on_the_way < NO_LIMIT:
                n = monitor.draws * self.step.steps_per_draw // 2  # twice those borne for sure
            n = 0 if self.has_few_evaluations else n
        of_gradient = 1 if self.has_gradient else self.d
        return evaluations_of_look(n, of_gradient) if self.may_look else (0, 0)

    def usual_evaluations(self):
        """Return about how many evaluations the way takes, and one that follows."""
        return OWN_SEARCH * self.d, FOLLOWING * self.d


class NoSearch(InitialSearch):
    """Chains begin where they are told."""

    exists = searches = False

    def begin(self, q, asks):
        """Leave `q` where it is."""
        return False
