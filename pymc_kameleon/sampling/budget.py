"""``max_evaluations``: how a run divides the evaluations of the log-density that it may make.

First come the ways to the posterior, then tuning; all that is left makes draws. How many draws that
is follows from what all chains have evaluated where all have come: after their first draw, if what
their samplers remember does not depend on how long they tune, where tuning ends, and again at the
end, if draws have taken fewer evaluations than they may. So it does not depend on workers, and all
chains make equally many.
"""

from bisect import bisect_right
from dataclasses import dataclass, replace

from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.findings.words import counted, grouped
from pymc_kameleon.step.draw_costs import most_evaluations
from pymc_kameleon.step.warm_start.approach import FOLLOWING

NOTHING_SETTLED, TUNING_SETTLED, ALL_SETTLED = range(3)
"""Which numbers of draws of a run are settled."""

LEAST_SEARCH = 14, 2
"""Evaluations that a chain needs to look for the posterior, and times d."""

LEAST_TO_GUIDE, WAY_TO_GUIDE = 3, 6
"""Evaluations of a chain to where another one has found it, at least and usually: the start, that
place, and draws near it."""

UNFORESEEN = 2
"""Evaluations of a chain while it tunes, at most, that no draw foresees: where it was moved to, if
the log-density does not come along."""

LARGEST_EXCESS = 2
"""Times as many draws as there are for sure, at most, as draws may take fewer evaluations."""

LEAST_DRAWS = 2
"""Draws of tuning, and after it, below which nothing can be had."""


@dataclass
class Budget:
    """The evaluations that the chains of a run may make, those for their starts too."""

    job: object
    steps: list  # copies of the job's, which know how many evaluations are made at a time
    most: int
    tune: int  # draws that are asked for, at most
    draws: int
    chains: int
    pools: bool

    @classmethod
    def of(cls, job, settings):
        """Return that of a run with these settings, None if it is not limited."""
        if not settings.max_evaluations:
            return None
        most = settings.max_evaluations - settings.evaluations_before
        pools = settings.chains > 1
        draws = settings.most_draws or settings.draws
        lengths = settings.tune, draws, settings.chains
        return cls(job, job.copies(), most, *lengths, pools)

    # ---- before the first draw ------------------------------------------------------------------

    def first_lengths(self, n_failed):
        """Return draws of tuning and after it, at most, what is settled, and limits of the ways.

        The last ones are lists, for each chain, of those of each step; `n_failed` evaluations have
        found no start. Raises a ValueError if there are too few.
        """
        most, per_draw = self.most - n_failed, self.chains * self._per_draw
        least_ways, looks = self._ways(0), self._looks(LEAST_DRAWS)
        n_tune = min(self.tune, LEAST_DRAWS)
        rest = self.chains * self._unforeseen + looks + (n_tune + LEAST_DRAWS) * per_draw
        if (lacking := self._bound(least_ways) + rest - most) > 0:
            raise ValueError(
                f"max_evaluations is too small: it takes {grouped(lacking)} more for "
                f"{counted(self.chains, 'chain')} to begin, and make {LEAST_DRAWS} draws each. "
                "Allow more evaluations, or fewer chains."
            )
        ways = self._ways(self._share_of_ways(most), most - rest - self.chains * self._beside_way)
        draws = min(self.draws, self.room(most))
        if self.tune > 1 and all(step.search.follows for step in self.steps):
            tune = min(self.tune, LEAST_DRAWS + int(self._share * most) // per_draw)
            return tune, draws, NOTHING_SETTLED, ways
        usual = [step.search.usual_evaluations()[0] for step in self.steps]
        usual = sum(sum(map(min, own, usual)) for own in ways)
        n = min(int(self._share * (most - usual)), most - self._bound(ways) - rest)
        tune = max(n // per_draw, n_tune)
        return min(self.tune, tune), draws, TUNING_SETTLED, ways

    @property
    def _per_draw(self):
        return most_evaluations(self.steps)

    def room(self, evaluations):
        """Return the draws of each chain that so many evaluations may make, at most.

        Draws may take fewer than they can, but if that goes on it has to end.
        """
        return LARGEST_EXCESS * evaluations // (self.chains * self._per_draw)

    @property
    def _share(self):
        return max(step.search.tuning_share for step in self.steps)

    def _looks(self, draws):
        """Return the evaluations by which chains are tried where tuning ends, and later."""
        looks = self.job.n_looks(0, 0, draws, self.chains)
        is_estimate = draws > 0 and any(step.pseudo_marginal for step in self.steps)
        return looks + self.chains * FEW if is_estimate else looks

    def _ways(self, share, room=0):
        """Return how long the way of each step of each chain may be, 0 if it has none.

        All together take their `share`, if there is `room`; without either, as few as they can.
        """
        n = max(1, sum(map(self._searches, self.steps)))
        return [
            [
                self._way(k, step, share // n, room // n) if self._searches(step) else 0
                for step in self.steps
            ]
            for k in range(self.chains)
        ]

    def _share_of_ways(self, most):
        """Return the evaluations for all ways, of so many: no fewer than one usually takes."""
        leading = [step for step in self.steps if self._leads(step)]
        usual = sum(step.search.usual_evaluations()[0] for step in leading)
        return max(usual, int(max(step.search.share for step in self.steps) * most))

    def _leads(self, step):
        """Whether chains follow the first one."""
        return self.pools and step.pool_tuning and step.search.follows

    def _searches(self, step):
        return step.search.searches and self.tune > 0

    def _way(self, k, step, share, room):
        """Return how long that of the k-th chain may be.

        If chains follow the first one, that has half of it at least, and others have enough to look
        what is in between, or else just what takes them there.
        """
        d, n_others, most = step.layout.d, self.chains - 1, min(share, room)
        leads = self._leads(step)
        n, per_coordinate = LEAST_SEARCH
        usual, _ = step.search.usual_evaluations()
        least = min(n + per_coordinate * d, usual)
        if not leads:
            return max(least, most // self.chains)
        other = most // (2 * n_others)
        if other < FOLLOWING * max(d, 3):
            other = WAY_TO_GUIDE if 0 < share <= room else LEAST_TO_GUIDE
        return other if k > 0 else max(least, most - n_others * other)

    def _bound(self, ways):
        """Return the evaluations before the first transitions of all chains, at most."""
        most = [1 + step.search.most_evaluations() for step in self.steps]
        return sum(sum(map(min, own, most)) for own in ways) + self.chains * self._beside_way

    @property
    def _beside_way(self):
        """Return those of a chain besides its ways: a start from which no way begins, too.

        Before its first transition each step evaluates where the way has led, if that was not the
        last one. If that is NaN, by chance, it does so once more, at the cost of a draw.
        """
        others = sum(not self._searches(step) or step.search.is_one_of_many for step in self.steps)
        return len(self.steps) + others

    @property
    def _unforeseen(self):
        knows = all(step.search.follows and step.layout.covers_all for step in self.steps)
        return 0 if knows else UNFORESEEN

    # ---- on the way -----------------------------------------------------------------------------

    def left(self, states):
        """Return the evaluations that are left when chains have come to these states."""
        return self.most - sum(state.evaluations + state.checks for state in states)

    def tuning_after_ways(self, states, n_going):
        """Return draws of tuning, when chains have made their first; `n_going` of them go on.

        Checks of a run that was interrupted are left out, so that it tunes as long as without.
        """
        left = self.left(states) + sum(state.checks for state in states)
        per_draw = n_going * self._per_draw
        rest = n_going * self._unforeseen + self._looks(LEAST_DRAWS) + LEAST_DRAWS * per_draw
        n = 1 + min(int(self._share * left), left - rest) // per_draw
        return min(self.tune, max(LEAST_DRAWS, n))

    def draws_to_the_end(self, states, going, tune):
        """Return for how many draws after tuning all that is left suffices, those made too.

        `states` are those of all chains, `going` of those that go on, tuned or not. That is less
        than some have made if nothing is left.
        """
        made = [max(0, state.monitor.done - tune) for state in going]
        least, left = min(made), self.left(states)

        def cost(draws):
            to_go = self._per_draw * sum(max(0, draws - n) for n in made)
            return to_go + self._looks(draws) - self._looks(least)

        left -= sum(self._before_draws(state, tune) for state in going)
        possible = range(least, least + max(0, left) // self._per_draw + 1)
        return min(self.draws, least - 1 + bisect_right(possible, left, key=cost))

    def _before_draws(self, state, tune):
        """Return the evaluations of a chain until it is tuned, at most."""
        if (done := state.monitor.done) >= tune:
            return 0 if done > 0 else self._beside_way
        n = (tune - done) * self._per_draw + self._unforeseen
        if done == 0:
            limits = [own.monitor.most_on_the_way for own in state.steps]
            ways = [1 + s.search.most_evaluations() if s.search.searches else 0 for s in self.steps]
            n += sum(map(min, ways, limits)) + self._beside_way
        return n


def with_lengths(steps, state, tune, draws):
    """Return the state of a chain that is to make so many draws, of tuning and after it."""
    own = [
        replace(
            one,
            monitor=replace(one.monitor, tune=tune, draws=draws),
            tuning=one.tuning._replace(n=tune * step.steps_per_draw),
        )
        for step, one in zip(steps, state.steps, strict=True)
    ]
    return replace(state, steps=own)


def evaluations_left(prepared, computed):
    """Return the evaluations that a run may make yet, None if they are not limited."""
    job, budget = prepared.job, Budget.of(prepared.job, prepared.settings)
    if budget is None:
        return None
    others = [*outputs_that_call(job.outputs), *(computed if job.holds_gil else ())]
    if others:
        raise ValueError(
            f"max_evaluations: {', '.join(sorted(others))} would call the model's black box again "
            "for each draw. Leave that out, by var_names or idata_kwargs, or compute it later."
        )
    return budget.left([chain.state for chain in prepared.chains])


def outputs_that_call(outputs):
    """Return the names of what is kept of draws, or boxes in loops, that call black boxes again."""
    own = {name for names in outputs.own_calls.values() for name in names}
    return sorted(own | {*outputs.looped})


# ---- what is said of it -------------------------------------------------------------------------


def what_evaluations_were_for(settings, states):
    """Return in words how many evaluations were made, and what for."""
    monitors = [own.monitor for state in states for own in state.steps]
    searching = sum(state.search.evaluations for state in states)
    parts = {
        "before the run": settings.evaluations_before,
        "to find the posterior": searching + sum(m.on_the_way + m.uncounted for m in monitors),
        "to tune": sum(m.to_tune for m in monitors),
        "to draw": sum(m.to_draw for m in monitors),
        "to see that the model is what it was": sum(m.checks for m in monitors),
    }
    made, most = sum(parts.values()), settings.max_evaluations
    count = f"{grouped(made)} of {grouped(most)} evaluations"
    return f"{count} ({', '.join(f'{grouped(n)} {what}' for what, n in parts.items() if n > 0)})"
