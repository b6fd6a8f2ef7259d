"""EmulatorMetropolis: moves on the posterior with an emulated simulator, accepted by the true one.

An inner chain on s, the model's posterior with emulated black boxes, leads from x to y. Moves of
SurrogateMetropolis remain, for where s is wrong.

Symbols: as in surrogate/metropolis.py; s the emulated posterior, not normalised.
"""

from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.batches import turned
from pymc_kameleon.approximation.drops import NEGLIGIBLE, drop
from pymc_kameleon.approximation.records import MOST_REMEMBERED
from pymc_kameleon.core.arrays import allocate, copy_arrays, extend, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.target import log_density
from pymc_kameleon.model.layout import elements
from pymc_kameleon.model.pymc_internals import natural_name
from pymc_kameleon.model.simulator_logp import SimulatorLogp
from pymc_kameleon.model.starts import prior_draws
from pymc_kameleon.samplers.emulator import learning, problems
from pymc_kameleon.samplers.emulator.density import (
    INPUTS,
    Emulated,
    Mirrors,
    call_part,
    log_emulated,
)
from pymc_kameleon.samplers.emulator.evaluations import dataset_of, nothing_reused, reused_by
from pymc_kameleon.samplers.emulator.gaussian_process import Structure
from pymc_kameleon.samplers.emulator.inner_chain import (
    Trajectory,
    compiled_chains,
    compiled_values,
    run_inner_chain,
)
from pymc_kameleon.samplers.emulator.mirrors import MANY, MOST_MODES
from pymc_kameleon.samplers.emulator.way import MOST_CLIMBS, MOST_ERROR, SearchByEmulator
from pymc_kameleon.samplers.surrogate import metropolis as surrogate
from pymc_kameleon.samplers.surrogate.metropolis import SurrogateMetropolis
from pymc_kameleon.samplers.surrogate.proposal import Parameters as SurrogateParameters
from pymc_kameleon.samplers.surrogate.proposal import u_of, x_of
from pymc_kameleon.samplers.symmetries import likely_symmetries
from pymc_kameleon.step.groups import EMULATOR_MOVES
from pymc_kameleon.step.learned import COORDINATE, SHAPE_TEXT, UNITS, Quantity, covariance
from pymc_kameleon.step.options import check_names
from pymc_kameleon.step.warm_start.approach import NEAR_TRIES

EMULATED = 4
"""The kind of a move by the emulator, after those of SurrogateMetropolis."""

N_GUIDED = 32
"""Draws of s that other chains may begin at."""

STOPS, LEAST_STOPS, MOST_STOPS, STOPS_BY_OUTPUTS = 512, 12, 128, 2000
"""Stops R of the inner chain, times d, and bounds: one is proposed, and by all of them averages are
corrected. In few dimensions they cost little, and so would be the only error. Of many outputs, each
takes longer: stops times outputs are bounded, too. While tuning nothing is corrected, and one of
the first `LEAST_STOPS` is proposed."""

ENOUGH_TUNING = 4
"""Transitions of tuning, below which a warning says so: the way has taught most of what is needed.
"""

MOST_POINTS = 450
"""Points that the emulator of a box is fitted to, at most."""

MOST_KEPT_NUMBERS, LEAST_KEPT = 2**21, 300
"""Numbers of evaluations that a chain remembers, at most; but so many evaluations at least."""


def n_stops(d, q):
    """Return R for d coordinates and q outputs."""
    return max(min(STOPS // d, STOPS_BY_OUTPUTS // q, MOST_STOPS), LEAST_STOPS)


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


State = extended(
    "State",
    surrogate.State,
    others=floats("stops", "d"),  # all stops of the last move's inner chain
    log_s_end=floats(1),  # log s where it led
    inputs=floats("P"),  # of black boxes, where the target was evaluated last
    outputs=floats("Q"),
)

Parameters = extended(
    "Parameters",
    SurrogateParameters,
    emulated_share=floats(1),  # probability of a move by the emulator
    n_others=integers(1),  # stops that are kept: none while tuning, then all
    emulated=Emulated,
)

Tuning = extended(
    "Tuning",
    surrogate.Tuning,
    evaluated=floats("kept", "evaluation"),  # rows of z, log π, log s, x, y
    n_evaluated=integers(1),
    n_learned=integers(1),  # how many of these the last fit knew
    choices=learning.Choices,
    reused=floats("reused", "widest"),  # rows of earlier runs: number of the box, its x and y
)

Work = extended(
    "Work",
    surrogate.Work,
    at=Trajectory,
    origin=floats("d"),  # where the inner chain began, in its coordinates
    end=floats("d"),  # the stop that is proposed
    n_before=integers(1),  # evaluations before the transition
)


# ---- transition ---------------------------------------------------------------------------------


@jit
def transition(target, state, parameters, work, rng):
    """Make a move by the emulator, or one of SurrogateMetropolis, at random."""
    work.n_before[0] = target.count[0]
    state.log_s_end[0] = np.nan
    if parameters.n_looks[0] == 0 and rng.random() < parameters.emulated_share[0]:
        accept_prob, accepted = move_by_emulator(target, state, parameters, work, rng)
    else:
        accept_prob, accepted = surrogate.transition(target, state, parameters, work, rng)
    if target.count[0] > work.n_before[0]:
        note_calls(target, state, work)
    else:
        state.inputs[:] = np.nan
        state.outputs[:] = np.nan
    return accept_prob, accepted


@jit(inlined=False)
def move_by_emulator(target, state, parameters, work, rng):
    """Run the inner chain from x, of whose stops one is proposed, drawn beforehand."""
    emulated, at = parameters.emulated, work.at
    copy(state.x, work.x)
    copy(state.u, work.before)
    work.kind[0], work.is_short[0] = EMULATED, 0
    u_of(emulated, state.x, work.origin)
    copy(work.origin, at.u)
    copy(work.origin, work.end)
    start = log_emulated(target, emulated, at.u, at.slope, at.density)
    log_s = end = start
    proposed = int(rng.random() * max(parameters.n_others[0], LEAST_STOPS))
    for r in range(max(proposed + 1, parameters.n_others[0])):
        if start > -np.inf:
            log_s = run_inner_chain(target, emulated, at, log_s, rng)
        if r < parameters.n_others[0]:
            x_of(emulated, at.u, state.others[r])
        if r == proposed:
            copy(at.u, work.end)
            end = log_s
    return accept_end(target, state, parameters, work, start, end, rng)


@jit
def accept_end(target, state, parameters, work, log_s, log_s_end, rng):
    """Evaluate the inner chain's end if it moved; accept by π(y)s(x)/π(x)s(y), if s(x) > 0."""
    moved = False
    for i in range(state.x.size):
        moved |= work.end[i] != work.origin[i]
    accept_prob, accepted = 0.0, False
    work.evaluated[0] = moved
    copy(state.x, work.y)
    copy(state.u, work.v)
    work.logp_y[0], state.log_s_end[0] = state.logp[0], log_s
    if moved:
        x_of(parameters.emulated, work.end, work.y)
        work.logp_y[0], state.log_s_end[0] = log_density(target, work.y), log_s_end
        log_hastings = log_s - log_s_end
        u_of(parameters, work.y, work.v)
        accept_prob, accepted = accept(target, state, work.y, work.logp_y[0], log_hastings, rng)
        if accepted:
            copy(work.v, state.u)
            state.log_s[0] = np.nan
    surrogate.note_move(state, work, accept_prob, True)
    return accept_prob, accepted


@jit(inlined=False)
def note_calls(target, state, work):
    """Take down what the black boxes were given, and have returned, in the last evaluation."""
    n = target.gradient.size
    tape = work.at.density.tape
    copy(target.gradient, state.outputs)
    copy(target.gradient, tape[:n])
    call_part(target, INPUTS, tape)
    copy(tape[n : n + state.inputs.size], state.inputs)


# ---- tuning -------------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Remember the move as SurrogateMetropolis does, and the evaluation for the emulator."""
    unchanged = surrogate.adapt(state, parameters, tuning, work, accept_prob, rng)
    if not np.isnan(state.inputs[0]):
        row = tuning.evaluated[tuning.n_evaluated[0] % tuning.evaluated.shape[0]]
        d, n = state.x.size, state.inputs.size
        copy(work.y, row[:d])
        row[d], row[d + 1] = work.logp_y[0], state.log_s_end[0]
        copy(state.inputs, row[d + 2 : d + 2 + n])
        copy(state.outputs, row[d + 2 + n :])
        tuning.n_evaluated[0] += 1
    return unchanged


Kept = extended(
    "Kept",
    surrogate.Kept,
    end_log_s=floats(1),  # NaN unless it was by the emulator
    others=floats("stops", "d"),
    inputs=floats("P"),
    outputs=floats("Q"),
)


class Stats(NamedTuple):
    """What a draw tells besides."""

    emulator_accept: floats(1)
    surrogate_accept: floats(1)
    reference_accept: floats(1)
    kept: Kept


@jit
def report(state, parameters, stats):
    """Report the acceptance of moves by the emulator, NaN if none was made, and the last move."""
    total, number = state.tally[EMULATED]
    stats.emulator_accept[0] = total / number if number > 0 else np.nan
    kept = stats.kept
    for r in range(kept.others.shape[0]):
        copy(state.others[r], kept.others[r])
    kept.end_log_s[0] = state.log_s_end[0]
    copy(state.inputs, kept.inputs)
    copy(state.outputs, kept.outputs)
    return surrogate.report(state, parameters, stats)


# ---- the class ----------------------------------------------------------------------------------


class EmulatorMetropolis(SurrogateMetropolis):
    r"""Metropolis by an emulated simulator: for models with a black box of predictions.

    .. math:: y \sim K_s^M(x, \cdot), \qquad
        \alpha = \min\Bigl(1, \frac{\pi(y)\, s(x)}{\pi(x)\, s(y)}\Bigr)

    s is the model's own posterior density, in which a Gaussian process stands in for what each
    black box returns, and :math:`K_s` a transition of Hamiltonian Monte Carlo on it. Priors,
    hierarchies, transforms and noise are exact, so that only the simulator is to be learned, as a
    function of its own inputs. A move costs one evaluation of the model.

    Parameters
    ----------
    steps_per_draw : int, optional
        Transitions per draw; by default 1, so that a draw costs one evaluation at most.
    target_accept : float, optional
        Acceptance rate that the scale of the random walk is tuned to; 0.234, or 0.44 in one
        dimension. The better the emulator, the more of its moves are accepted.
    {common parameters}

    Notes
    -----
    Before its first draw a chain searches for the posterior with an emulator that it refines as it
    goes (way.py). While tuning, emulators learn from the ends of moves. After that they are frozen.
    If emulators do not come to predict, for example a simulator with jumps, moves of
    SurrogateMetropolis do most of the work, and a warning says so. A model without a black box that
    can be emulated is refused by a ValueError, which says why.

    The statistic ``emulator_accept`` is the mean acceptance probability of the draw's moves by the
    emulator, NaN if there were none; others are as in SurrogateMetropolis. See docs/emulator.md.

    References
    ----------
    Christen & Fox (2005). Markov chain Monte Carlo using an approximation. Journal of Computational
    and Graphical Statistics 14.

    Conti & O'Hagan (2010). Bayesian emulation of complex multi-output and dynamic computer models.
    Journal of Statistical Planning and Inference 140.

    Neal (2011). MCMC using Hamiltonian dynamics. Handbook of Markov Chain Monte Carlo.

    Examples
    --------
    >>> with model:  # doctest: +SKIP
    ...     dt = pk.sample(step=pk.EmulatorMetropolis())
    ...     pk.summary(dt)  # averages that the emulator has corrected
    """

    name = "emulator_metropolis"
    stats = Stats
    algorithm = Algorithm(transition, adapt, surrogate.derived, report)
    n_kinds = 5
    kept_group = EMULATOR_MOVES
    kept_dims = MappingProxyType(
        {"others": ["run", COORDINATE], "inputs": ["input"], "outputs": ["output"]}
    )
    own_arithmetic = "2 to 20 ms for each draw to walk on emulators, more if there are many outputs"
    lengths_of_run = SurrogateMetropolis.lengths_of_run | {
        *("reused", "evaluated", "looked"),
        *Mirrors._fields,
    }
    looks_for_modes = False
    least_between_fits = 2
    learned_tuning = (*SurrogateMetropolis.learned_tuning, "choices", "n_learned")
    most_points = MOST_POINTS
    leads_from_best = False
    way_share = 0.75  # what the way evaluates tells as much as draws
    tuning_share = 0.2  # as the way has taught it most of what it needs
    default_steps_per_draw = staticmethod(lambda d: 1)
    _search = None

    def __init__(self, vars=None, **common):
        check_names(type(self), {name: None for name in common if name == "expensive"})
        super().__init__(vars, expensive=True, **common)
        self._prior = prior_draws(self.model, self.layout)

    def _make_log_density(self, own, region):
        log_density = SimulatorLogp(
            self.model, own, self._initial_point, self._compile_kwargs, region
        )
        self._structure = Structure.of(
            log_density.simulators.sizes, log_density.simulators.applications
        )
        self.settings |= {"P": log_density.simulators.p, "Q": log_density.simulators.q}
        most = MOST_MODES[self._d > MANY] - 1
        self._n_mirrors = most if likely_symmetries(self) else 0
        self.settings["stops"] = n_stops(self._d, log_density.simulators.q)
        return log_density

    def _compile(self):
        super()._compile()
        problems.say_what_is_emulated(self.log_density, self._initial_point)

    @staticmethod
    def compile_learning():
        """Load, or compile, chains on the emulated posterior."""
        compiled_values()
        compiled_chains()

    def _allocate(self, scales, n_tune):
        state, parameters, tuning, work = super()._allocate(scales, n_tune)
        d, sizes = self._d, self._structure.sizes(self.most_points)
        p, q = self.settings["P"], self.settings["Q"]
        most = max(LEAST_KEPT, min(MOST_REMEMBERED, MOST_KEPT_NUMBERS // (d + 2 + p + q)))
        kept = min(self._most_on_the_way() + NEAR_TRIES + 1 + n_tune, most)
        sizes |= {"d": d, "P": p, "Q": q, "tape": 2 * (p + q) + d, "evaluation": d + 2 + p + q}
        sizes |= {"kept": kept, "stops": self.settings["stops"], "mirrors": self._n_mirrors}
        emulated = allocate(
            Emulated,
            sizes,
            structure=self._structure,
            factor=np.diag(scales),
            radius=np.inf,
            leap=0.3,
            most_leaps=8,
            n_inner=10,
        )
        before = self.known_before or nothing_reused(len(self._structure.boxes))
        choices = allocate(
            learning.Choices,
            sizes,
            hyper=before.hyper,
            scores=before.scores,
            widening=2.0,
            n_full=len(before.rows),
        )
        sizes |= dict(zip(("reused", "widest"), before.rows.shape, strict=True))
        return (
            extend(state, State, sizes, others=np.nan),
            extend(parameters, Parameters, sizes, emulated=emulated),
            extend(tuning, Tuning, sizes, choices=choices, reused=before.rows),
            extend(work, Work, sizes),
        )

    @property
    def _n_noted(self):
        return self.log_density.simulators.q

    @property
    def _remembers(self):
        return False  # `evaluated` and `reused` have it, and more

    def _emulator_budget(self):
        """Return the evaluations of a climb."""
        n_tune = self.monitor.tune * self.steps_per_draw
        return min(30 * self._d + 60, max(25 * self._d + 60, n_tune))

    def _most_by_emulator(self):
        """Return the evaluations of all climbs: a wrong place is left for another one."""
        return MOST_CLIMBS * self._emulator_budget()

    def _budget(self):
        """Return the evaluations of the way without an emulator, after one with it."""
        return min(self._usual_budget(), max(0, self._left_of_limit() - self._near_tries()))

    def evaluations_of_search(self, whole, short):
        """Return about how many evaluations the way takes: some rounds; others try a draw of s."""
        return 40 + 4 * self._d, 1

    def _most_on_the_way(self):
        """With the emulator, then without it, where it has not come to predict."""
        return self._most_by_emulator() + super()._most_on_the_way() + NEAR_TRIES

    def _first_fit(self):
        return 1

    def _needed_tuning(self):
        return ENOUGH_TUNING

    def _problems(self):
        tuning = self.tuning
        return [
            problems.explain_worth(tuning.worth, tuning.choices, self._names_of_boxes),
            problems.explain_climbs(tuning.choices, self._names_of_boxes),
        ]

    def _notes(self):
        mirrors, looked = self.parameters.emulated.mirrors, self.tuning.choices.looked
        return [
            problems.explain_mirrors(mirrors, self._names_of_parameters),
            problems.explain_no_look(self._n_mirrors == 0 or looked[0]),
        ]

    @property
    def _names_of_parameters(self):
        """What users call the coordinates."""
        shapes = self.layout.shapes.items()
        return [one for name, shape in shapes for one in elements(natural_name(name), shape)]

    @property
    def _names_of_boxes(self):
        return [box.name for box in self.log_density.simulators.boxes]

    @classmethod
    def learn(cls, chains):
        """Fit the emulators to all that the chains have evaluated."""
        learning.learn_from(chains, chains[0].rng)

    def _learned(self):
        parameters, emulated = self.parameters, self.parameters.emulated
        share = parameters.emulated_share[0]
        shares = [*(1 - share) * parameters.shares[:2], share]
        labels = {"move": ("walk", "reference", "emulator")}
        return {
            "scaling": Quantity((), np.exp(parameters.log_scale[0]), "Scale of the walk."),
            "mean": Quantity((COORDINATE,), parameters.mean, "Of the posterior, about.", UNITS),
            **covariance(parameters.factor, SHAPE_TEXT),
            "shares": Quantity(("move",), shares, "Probabilities of moves.", labels=labels),
            "n_inner": Quantity((), emulated.n_inner[0], "Transitions of the inner chain, M."),
            "leap": Quantity((), emulated.leap[0], "Length of its leaps, ε."),
        }

    # ---- evaluations of this run, and of earlier ones -------------------------------------------

    def evaluations(self, states, numbers, kept):
        """Return a Dataset of what chains have evaluated."""
        return dataset_of(self, states, numbers, kept)

    def reused(self, datasets):
        """Return what the step takes up of Datasets of evaluations."""
        return reused_by(self, datasets)

    def __getstate__(self):
        """Drop a search that is under way: it begins again where the step goes on."""
        return {k: v for k, v in super().__getstate__().items() if k != "_search"}

    # ---- the way to the posterior ---------------------------------------------------------------

    def _no_guide(self):
        draws = np.full((N_GUIDED, self._d), np.nan)
        return Guide(draws, self.parameters.emulated, self.tuning.choices, np.full(1, -np.inf))

    def _find_posterior(self, q, logp):
        """Go there with the emulator; or, where it does not come to predict, without one."""

        def noted(z):
            value = logp(z)
            learning.note(self, z, value, logp.outputs)
            return value

        noted.announce = logp.announce
        if self.guide.is_known:
            if not self.is_one_of_many:
                noted(q[: self._d])  # the first value that is recorded is that of the start
            copy_arrays(self.guide.emulated, self.parameters.emulated)
            copy_arrays(self.guide.choices, self.tuning.choices)
        else:
            self._n_searched, search = 0, self._search_from(q[: self._d])
            most = min(self._most_by_emulator(), self._limit_of_search() - self._near_tries())
            search.go_on(logp, self._emulator_budget(), most)
            draws = search.finish(self, N_GUIDED)
            if search.error > MOST_ERROR:
                self._n_searched = logp.n
                draws = self._draws_without_emulator(draws[0], noted)
            known = learning.evaluations_of([self])
            at_best = known.logp[(known.z == draws[0]).all(axis=1)]
            top = at_best[0] if at_best.size else learning.best_of(self)[1]
            parts = self.parameters.emulated, self.tuning.choices, np.array([top])
            self.guide = Guide(draws, *parts)
        q[: self._d] = self._first_point(self.guide.draws, noted)
        learning.take_shares([self])
        self._search = None

    def _search_from(self, start):
        """Return the search from a start, or the one that was interrupted."""
        seed = int(self.rng.integers(2**63))
        if self._search is None or not self._search.is_of(start, seed, self.trail[:, 0]):
            twin = self.for_chain()
            twin.setup_chain(seed, self.monitor.tune, draws=0)
            twin.tuning = twin.tuning._replace(reused=self.tuning.reused)
            copy_arrays(self.tuning.choices, twin.tuning.choices)
            twin.log_density.point[:] = self.log_density.point
            twin._search = None
            self._search = SearchByEmulator(twin, start, seed, self._prior)
        return self._search

    def _draws_without_emulator(self, best, logp):
        """Go on from the best point as SurrogateMetropolis does; return draws near its end."""
        before, q, self.guide = self.tuning, best.copy(), super()._no_guide()
        super()._find_posterior(q, logp)
        self.tuning = self.tuning._replace(reused=before.reused)
        copy_arrays(before, self.tuning, ("evaluated", "n_evaluated", "n_learned", "choices"))
        self.tuning.choices.n_judged[0] = learning.ENOUGH_JUDGED  # it has to prove itself
        emulated, middle = self.parameters.emulated, self.tuning.middle
        emulated.mean[:], emulated.factor[:] = middle, self.tuning.home_factor
        z = self.rng.standard_normal((N_GUIDED - 1, self._d))
        return np.concatenate([middle[None], middle + z @ emulated.factor.T])

    def _first_point(self, draws, logp):
        """Return a draw where the log-density is as high as it should be, or the first one."""
        top = self.guide.top_logp[0]
        others = np.arange(len(draws) - 1)
        if not self.is_one_of_many:
            self.rng.shuffle(others)
        for z in draws[1 + others[: self._near_tries()]]:
            value = logp(z)
            if value > top - drop(self._d, NEGLIGIBLE):
                return z
        return draws[0]
