"""How EmulatorMetropolis finds the posterior before its first draw: with the emulator, or without.

Symbols: as in metropolis.py.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.batches import turned
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.samplers.emulator import learning
from pymc_kameleon.samplers.emulator.density import Emulated
from pymc_kameleon.samplers.emulator.way import MOST_CLIMBS, MOST_ERROR, SearchByEmulator
from pymc_kameleon.samplers.surrogate.initial_search import SearchByProcess
from pymc_kameleon.step.warm_start.approach import NEAR_TRIES

N_GUIDED = 32
"""Draws of s that other chains may begin at."""

USUAL_EVALUATIONS = 60
"""Of a search: 20 to 80 on simulators with 3 to 127 parameters, 150 where there are many modes."""


class Guide(NamedTuple):
    """What the first chain tells others; before that its draws are NaN."""

    draws: np.ndarray  # (n, d), the best point, and draws of s
    emulated: Emulated
    choices: learning.Choices
    top_logp: np.ndarray  # (1,), the log-density at the best point; a neck may be higher

    @property
    def is_known(self):
        """Whether the posterior has been found."""
        return not np.isnan(self.draws[0, 0])

    def turned(self, k):
        """Return the same with the draws of s k places farther on, of which the first is tried."""
        return self._replace(draws=turned(self.draws, k))


class SearchWithEmulator(SearchByProcess):
    """The search of EmulatorMetropolis."""

    looks_for_modes = leads_from_best = False
    share = 0.75  # what the way evaluates tells as much as draws
    tuning_share = 0.2  # as the way has taught it most of what it needs

    def __init__(self, step):
        super().__init__(step)
        self._by_emulator = None

    @property
    def n_noted(self):
        """Outputs of black boxes, which the way notes."""
        return self.step.log_density.simulators.q

    def _emulator_budget(self):
        """Return the evaluations of a climb."""
        n_tune = self.step.monitor.tune * self.step.steps_per_draw
        return min(30 * self.d + 60, max(25 * self.d + 60, n_tune))

    def _most_by_emulator(self):
        """Return the evaluations of all climbs: a wrong place is left for another one."""
        return MOST_CLIMBS * self._emulator_budget()

    def budget(self):
        """Return the evaluations of the way without an emulator, after one with it."""
        return min(self.usual_budget(), max(0, self._left_of_limit() - self.near_tries()))

    def usual_evaluations(self, whole, short):
        """Return about how many evaluations the way takes; others try a draw of s.

        These do not grow with d, as an emulator learns a function of its own inputs.
        """
        return USUAL_EVALUATIONS, 1

    def most_of_search(self):
        """With the emulator, then without it, where it has not come to predict."""
        return self._most_by_emulator() + super().most_of_search() + NEAR_TRIES

    def no_guide(self):
        """Return the Guide of a chain that knows of no other one."""
        draws, step = np.full((N_GUIDED, self.d), np.nan), self.step
        return Guide(draws, step.parameters.emulated, step.tuning.choices, np.full(1, -np.inf))

    def find(self, q, logp):
        """Go there with the emulator; or, where it does not come to predict, without one."""
        step = self.step

        def noted(z):
            value = logp(z)
            learning.note(step, z, value, logp.outputs)
            return value

        noted.announce = logp.announce
        if step.guide.is_known:
            if not self.is_one_of_many:
                noted(q[: self.d])  # the first value that is recorded is that of the start
            copy_arrays(step.guide.emulated, step.parameters.emulated)
            copy_arrays(step.guide.choices, step.tuning.choices)
        else:
            self._n_searched, search = 0, self._search_from(q[: self.d])
            most = min(self._most_by_emulator(), self.limit() - self.near_tries())
            search.go_on(logp, self._emulator_budget(), most)
            draws = search.finish(step, N_GUIDED)
            if search.error > MOST_ERROR:
                self._n_searched = logp.n
                draws = self._draws_without_emulator(draws[0], noted)
            known = learning.evaluations_of([step])
            at_best = known.logp[(known.z == draws[0]).all(axis=1)]
            top = at_best[0] if at_best.size else learning.best_of(step)[1]
            parts = step.parameters.emulated, step.tuning.choices, np.array([top])
            step.guide = Guide(draws, *parts)
        q[: self.d] = self._first_point(step.guide.draws, noted)
        learning.take_shares([step])
        self._by_emulator = None

    def _search_from(self, start):
        """Return the search from a start, or the one that was interrupted."""
        seed = int(self.step.rng.integers(2**63))
        if self._by_emulator is None or not self._by_emulator.is_of(
            start, seed, self.step.trail[:, 0]
        ):
            twin = self.step.for_chain()
            twin.setup_chain(seed, self.step.monitor.tune, draws=0)
            twin.tuning = twin.tuning._replace(reused=self.step.tuning.reused)
            copy_arrays(self.step.tuning.choices, twin.tuning.choices)
            twin.log_density.point[:] = self.step.log_density.point
            self._by_emulator = SearchByEmulator(twin, start, seed, self.step._prior)
        return self._by_emulator

    def _draws_without_emulator(self, best, logp):
        """Go on from the best point as SurrogateMetropolis does; return draws near its end."""
        step = self.step
        before, q, step.guide = step.tuning, best.copy(), super().no_guide()
        super().find(q, logp)
        step.tuning = step.tuning._replace(reused=before.reused)
        copy_arrays(before, step.tuning, ("evaluated", "n_evaluated", "n_learned", "choices"))
        step.tuning.choices.n_judged[0] = learning.ENOUGH_JUDGED  # it has to prove itself
        emulated, middle = step.parameters.emulated, step.tuning.middle
        emulated.mean[:], emulated.factor[:] = middle, step.tuning.home_factor
        z = step.rng.standard_normal((N_GUIDED - 1, self.d))
        return np.concatenate([middle[None], middle + z @ emulated.factor.T])

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
