"""How ApproximationMetropolis finds the posterior before its first draw: by s, or without.

Symbols: as in samplers/approximation/metropolis.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.batches import BatchSearch, noting
from pymc_kameleon.approximation.chain import FIRST_LENGTHS, Chain, mode_at
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.modes import Mode, mix, most_felt
from pymc_kameleon.approximation.search import MOST_AT_ONCE, PosteriorSearch, spread_of
from pymc_kameleon.approximation.searches import SHARES
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.samplers.approximation import learning
from pymc_kameleon.samplers.approximation.fit import Nothing
from pymc_kameleon.samplers.approximation.metropolis import Found
from pymc_kameleon.samplers.approximation.moves import BY_S
from pymc_kameleon.step.initial_search import InitialSearch
from pymc_kameleon.step.warm_start.approach import NEAR_TRIES, approach

N_GUIDED = 32
"""Draws of s that other chains may begin at, or the best point and draws."""

MOST_CLIMBS = 8
"""Times what a climb may evaluate: all climbs together, at most."""

MOST_ERROR = 10.0
"""Median error of predicted log-densities at the end of the search by s, from which it is gone on
with without s."""

OF_SEARCH = "evaluated", "n_evaluated", "n_learned", "found", "choices"
"""Fields of its tuning in which a step keeps what the search has found."""

USUAL_EVALUATIONS = 60
"""Of a search: 20 to 80 on simulators with 3 to 127 parameters, 150 where there are many modes."""


class Guide(NamedTuple):
    """What the first chain tells others; before that its draws are NaN."""

    draws: np.ndarray  # (n, d), the best point, and draws of s
    top_logp: np.ndarray  # (1,), the log-density at the best point; a neck may be higher
    s: Chain
    choices: Nothing
    found: Found

    @property
    def is_known(self):
        """Whether the posterior has been found."""
        return not np.isnan(self.draws[0, 0])


class SearchOfChain(BatchSearch):
    """The PosteriorSearch of a chain, by a step of its own; it goes on after interruptions."""

    def __init__(self, step, start, seed, prior, paid):
        super().__init__(start, seed)
        self.step = step
        if prior is None:
            prior = start + self.rng.standard_normal((100, start.size))
        s, fit = step.parameters.s, step.fit
        s.mean[:] = start
        s.factor[:] = np.diag(spread_of(prior))
        self._density = fit.density(step, self.rng)
        self.search = PosteriorSearch(
            self._density,
            lambda n: learning.refit([step], n),
            prior,
            self.rng,
            lambda n: fit.unpredicted(step, self._density, n),
            lambda: fit.misfit(step),
            lambda z, factor: mode_at(self._density, z, factor, self.rng),
            paid,
            fit.knows_enough(step),
            lambda: fit.is_guided(step),
            fit.images(step),
            np.clip(step.of_run.max_concurrent, 2, MOST_AT_ONCE),
        )
        self.begin(self.search.go(start))

    @property
    def error(self):
        """Median error of the log-densities that were predicted last, near the best point."""
        return np.inf if self.search.best is None else self.search.best.error

    def go_on(self, logp, budget, most):
        """Evaluate until the search ends, or the budget is spent: of each climb, and of all."""
        logp.n = self.n
        while not self.has_ended and logp.n < self._allowed(budget, most):
            z, value = self.evaluate(logp, self._allowed(budget, most))
            learning.note(self.step, z, value, logp.outputs)
            self.advance()

    def _allowed(self, budget, most):
        return min(budget * max(self.search.n_begun, 1), most)

    def finish(self, step, n):
        """Hand what was learned to the step; return the best point and draws of s."""
        own, draws = self.step, self.settled(n)
        step.search.note_all(self.search.rounds, self.n)
        copy_arrays(own.parameters, step.parameters, ("s",))
        copy_arrays(own.tuning, step.tuning, OF_SEARCH)
        step.other_mode[:] = own.other_mode
        step.monitor.of_prior, step.monitor.impossible = map(int, self.search.of_prior)
        return draws

    def _settle(self, n):
        """Learn s and its shape from all evaluations; return the best point and draws of s."""
        own, search = self.step, self.search
        search.settle()
        best, found = search.best, own.tuning.found
        arrived = best is not None and best.arrived
        own.state.x[:] = best.z if arrived else learning.best_of(own)[0]
        if best is not None and best.error < MOST_ERROR:
            found.searches[:] = search.searches()[:4]
        found.looked[0] = search.has_looked
        if arrived:
            s = own.parameters.s
            s.mean[:], s.factor[:] = best.z, search.factor(best.z)
        places, maxima = search.modes()
        shares = np.exp([place.mass - places[0].mass for place in places])
        mix(own.parameters.s.modes, [place.mode for place in places], shares / shares.sum())
        draws = learning.learn_s([own], self.rng, FIRST_LENGTHS, 0, maxima)
        if arrived:
            home = Mode(best.z, own.parameters.s.factor.copy(), 0.0)
            found = [place.mode for place in places] if len(places) > 1 else [home]
            images = search.images.modes(self._density, found[0], draws) if search.images else []
            own.note_other_mode(most_felt([*found, *images]))
        return np.concatenate([own.state.x[None], self.rng.choice(draws, n - 1)])


class SearchByApproximation(InitialSearch):
    """The search of an ApproximationMetropolis."""

    follows = True
    share = 0.75  # what the search evaluates tells as much as draws
    tuning_share = 0.2  # as the search has taught it most of what it needs

    def __init__(self, step):
        super().__init__(step)
        self._by_s = None  # the search by s, if it was interrupted
        self._n_by_s = 0  # its evaluations, after which the search goes on without

    @property
    def n_noted(self):
        """Numbers that an evaluation leaves, which the search notes."""
        return self.step.fit.n_outputs

    def _budget_by_s(self):
        """Return the evaluations of a climb."""
        n_tune = self.step.monitor.tune * self.step.steps_per_draw
        return min(30 * self.d + 60, max(25 * self.d + 60, n_tune))

    def _most_by_s(self):
        """Return the evaluations of all climbs: a wrong place is left for another one."""
        return MOST_CLIMBS * self._budget_by_s()

    def _paid_apart(self):
        """Return the evaluations of climbs from draws of the prior, and those in doubt.

        They are shares of those of all chains, as these follow this one, or of a chain alone.
        """
        monitor = self.step.monitor
        own = (monitor.tune + monitor.draws) * self.step.steps_per_draw
        n = monitor.looks_for if monitor.looks_for > 0 else own
        return SHARES[0] * n, SHARES[1] * min(n, self.limit())

    def budget(self):
        """Return the evaluations of the search without s, after one by it."""
        return min(self.usual_budget(), max(0, self.limit() - self._n_by_s - self.near_tries()))

    def usual_evaluations(self):
        """Return about how many evaluations the search takes; others try a draw of s.

        These do not grow with d, as an emulator learns a function of its own inputs.
        """
        return USUAL_EVALUATIONS, 1

    def most_of_search(self):
        """With s, then without it, where it does not predict."""
        return self._most_by_s() + self.usual_budget() + NEAR_TRIES

    def no_guide(self):
        """Return the Guide of a chain that knows of no other one."""
        parameters, tuning = self.step.parameters, self.step.tuning
        draws, top = np.full((N_GUIDED, self.d), np.nan), np.full(1, -np.inf)
        return Guide(draws, top, parameters.s, tuning.choices, tuning.found)

    def find(self, q, logp):
        """Go there with s; or, where it does not predict, without."""
        step = self.step
        noted = noting(logp, lambda z, value: learning.note(step, z, value, logp.outputs))
        if step.guide.is_known:
            if not self.is_one_of_many:
                noted(q[: self.d])  # the first value that is recorded is that of the start
            copy_arrays(step.guide.s, step.parameters.s)
            copy_arrays(step.guide.choices, step.tuning.choices)
            copy_arrays(step.guide.found, step.tuning.found)
        else:
            self._n_by_s, search = 0, self._search_from(q[: self.d])
            most = min(self._most_by_s(), self.limit() - self.near_tries())
            search.go_on(logp, self._budget_by_s(), most)
            draws = search.finish(step, N_GUIDED)
            step.tuning.found.predicts[0] = search.error <= MOST_ERROR
            if search.error > MOST_ERROR:
                self._n_by_s = logp.n
                draws = self._draws_without_s(draws[0], noted)
            known = learning.evaluations_of([step])
            at_best = known.logp[(known.z == draws[0]).all(axis=1)]
            top = at_best[0] if at_best.size else learning.best_of(step)[1]
            tuning = step.tuning
            parts = step.parameters.s, tuning.choices, tuning.found
            step.guide = Guide(draws, np.array([top]), *parts)
        q[: self.d] = self._first_point(step.guide.draws, noted)
        if not step.tuning.found.predicts[0]:
            step.tuning.worth[BY_S] = 0  # it has to prove itself
        learning.settle_moves([step])
        self._by_s = None

    def _search_from(self, start):
        """Return the search from a start, or the one that was interrupted."""
        seed = int(self.step.rng.integers(2**63))
        if self._by_s is None or not self._by_s.is_of(start, seed, self.step.trail[:, 0]):
            twin = self.step.for_chain()
            twin.search.longest_way = self.step.monitor.longest_way
            twin.setup_chain(seed, self.step.monitor.tune, draws=0)
            twin.tuning = twin.tuning._replace(reused=self.step.tuning.reused)
            copy_arrays(self.step.tuning.choices, twin.tuning.choices)
            twin.log_density.point[:] = self.step.log_density.point
            self._by_s = SearchOfChain(twin, start, seed, self.step.prior, self._paid_apart())
        return self._by_s

    def _draws_without_s(self, best, logp):
        """Go on from the best point by line searches and BFGS; return draws near its end."""
        step, s = self.step, self.step.parameters.s
        found = approach(logp, best.copy(), step.rng, self.budget())
        self.note_all(found.rounds, len(found.logps))
        s.mean[:], s.factor[:] = found.x, found.factor
        step.monitor.climbing = found.climbing
        z = step.rng.standard_normal((N_GUIDED - 1, self.d))
        return np.concatenate([found.x[None], found.x + z @ s.factor.T])

    def _first_point(self, draws, logp):
        """Return a draw where the log-density is as high as it should be, or the first one."""
        top = self.step.guide.top_logp[0]
        others = np.arange(len(draws) - 1)
        if not self.is_one_of_many:
            self.step.rng.shuffle(others)
        for z in draws[1 + others[: self.near_tries()]]:
            value = logp(z)
            if value > top - drop(self.d, NEGLIGIBLE):
                return z
        return draws[0]
