"""EmulatorMetropolis: moves on the posterior with an emulated simulator, accepted by the true one.

An inner chain on s, the model's posterior with emulated black boxes, leads from x to y. Moves of
SurrogateMetropolis remain, for where s is wrong.

Symbols: as in surrogate/metropolis.py; s the emulated posterior, not normalised.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import (
    FIRST_STOPS,
    Trajectory,
    n_stops,
    run_chain,
    u_of,
    x_of,
)
from pymc_kameleon.approximation.records import MOST_REMEMBERED
from pymc_kameleon.core.arrays import allocate, extend, extended, floats, integers
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
    DensityScratch,
    Emulated,
    Mirrors,
    call_part,
)
from pymc_kameleon.samplers.emulator.evaluations import dataset_of, nothing_reused, reused_by
from pymc_kameleon.samplers.emulator.gaussian_process import Structure
from pymc_kameleon.samplers.emulator.initial_search import SearchWithEmulator
from pymc_kameleon.samplers.emulator.inner_chain import (
    EmulatedModel,
    chains_on_emulated,
    log_emulated_model,
    mirror_jump,
    values_of_emulated,
)
from pymc_kameleon.samplers.emulator.mirrors import MANY, MOST_MODES
from pymc_kameleon.samplers.surrogate import metropolis as surrogate
from pymc_kameleon.samplers.surrogate.metropolis import SurrogateMetropolis
from pymc_kameleon.samplers.surrogate.proposal import Parameters as SurrogateParameters
from pymc_kameleon.samplers.symmetries import likely_symmetries
from pymc_kameleon.step.groups import EMULATOR_MOVES, Keeps
from pymc_kameleon.step.learned import COORDINATE, SHAPE_TEXT, UNITS, Quantity, covariance
from pymc_kameleon.step.options import check_names

EMULATED = 4
"""The kind of a move by the emulator, after those of SurrogateMetropolis."""

STOPS_BY_OUTPUTS = 2000
"""Stops of the chain on s times outputs, at most: of many outputs, each takes longer."""

ENOUGH_TUNING = 4
"""Transitions of tuning, below which a warning says so: the way has taught most of what is needed.
"""

MOST_POINTS = 450
"""Points that the emulator of a box is fitted to, at most."""

MOST_KEPT_NUMBERS, LEAST_KEPT = 2**21, 300
"""Numbers of evaluations that a chain remembers, at most; but so many evaluations at least."""


def stops_by_outputs(d, q):
    """Return R for d coordinates and q outputs."""
    return min(n_stops(d), max(STOPS_BY_OUTPUTS // q, FIRST_STOPS))


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
    emulator=DensityScratch,
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
    density = EmulatedModel(target, emulated, work.emulator)
    start, end = run_chain(
        log_emulated_model, mirror_jump, density, emulated, at, state.others,
        parameters.n_others[0], work.end, rng,
    )  # fmt: skip
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
    tape = work.emulator.tape
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
    initial_search = SearchWithEmulator
    stats = Stats
    algorithm = Algorithm(transition, adapt, surrogate.derived, report)
    n_kinds = 5
    keeps = Keeps(
        EMULATOR_MOVES,
        {"others": ["run", COORDINATE], "inputs": ["input"], "outputs": ["output"]},
    )
    own_arithmetic = "2 to 20 ms for each draw to walk on emulators, more if there are many outputs"
    lengths_of_run = SurrogateMetropolis.lengths_of_run | {
        *("reused", "evaluated", "looked"),
        *Mirrors._fields,
    }
    least_between_fits = 2
    learned_tuning = (*SurrogateMetropolis.learned_tuning, "choices", "n_learned")
    most_points = MOST_POINTS
    default_steps_per_draw = staticmethod(lambda d: 1)

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
        self.settings["stops"] = stops_by_outputs(self._d, log_density.simulators.q)
        return log_density

    def _compile(self):
        super()._compile()
        problems.say_what_is_emulated(self.log_density, self._initial_point)

    @staticmethod
    def compile_learning():
        """Load, or compile, chains on the emulated posterior."""
        values_of_emulated()
        chains_on_emulated()

    def _allocate(self, scales, n_tune):
        state, parameters, tuning, work = super()._allocate(scales, n_tune)
        d, sizes = self._d, self._structure.sizes(self.most_points)
        p, q = self.settings["P"], self.settings["Q"]
        most = max(LEAST_KEPT, min(MOST_REMEMBERED, MOST_KEPT_NUMBERS // (d + 2 + p + q)))
        kept = min(self.search.most_evaluations() + 1 + n_tune, most)
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
    def _remembers(self):
        return False  # `evaluated` and `reused` have it, and more

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
