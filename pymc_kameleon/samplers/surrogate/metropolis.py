"""SurrogateMetropolis: moves that a fitted log-density proposes, and the true one accepts.

Sources, as the class names them: [L] section 9.4.3, [CF], and [K] for the reference move.

Symbols: x the position (d,), u = L⁻¹(x − μ), v the proposal in the same coordinates, π the
posterior, s the surrogate, t the density of a multivariate t with ν degrees of freedom,
z ~ N(0, I), M the steps of the inner chain, β a power of s, α the acceptance probability.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.chain import u_of, x_of
from pymc_kameleon.approximation.modes import draw_of_modes, log_of_modes
from pymc_kameleon.core.arrays import allocate, extended, floats, integers
from pymc_kameleon.core.chain import Algorithm
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy
from pymc_kameleon.samplers.approximation import moves
from pymc_kameleon.samplers.approximation.moves import BY_S, REFERENCE, WALK
from pymc_kameleon.samplers.approximation.step import ApproximationStep, several_modes
from pymc_kameleon.samplers.surrogate import findings, fit, learning, modes
from pymc_kameleon.samplers.surrogate.density import log_surrogate
from pymc_kameleon.samplers.surrogate.initial_search import SearchByProcess
from pymc_kameleon.samplers.surrogate.inner_chain import N_INNER, Parameters, inner_chain, power
from pymc_kameleon.samplers.surrogate.learning import WIDE
from pymc_kameleon.samplers.surrogate.modes import Found
from pymc_kameleon.samplers.surrogate.moves import dataset_of, learned
from pymc_kameleon.step.groups import SURROGATE_MOVES, Keeps
from pymc_kameleon.step.learned import Quantity
from pymc_kameleon.step.pooling import in_the_same_place

State = extended("State", moves.State, log_s=floats(1))  # log s(u), NaN where it is not known


Tuning = extended(
    "Tuning",
    moves.Tuning,
    home=floats("home", "d + 1"),  # points evaluated on the way to the posterior, and log π
    n_home=integers(1),
    has_arrived=integers(1),  # whether that way ended before its evaluations did
    middle=floats("d"),  # where that led, and the covariance there
    home_factor=floats("d", "d"),
    mass=floats(1),  # log of the mass there, but for a constant; -inf if there was no way
    lost=floats(1),  # log of the mass that a chain lacked which was moved; else 0
    hyper=floats("d + 5"),  # how the surrogate is fitted, NaN before that was chosen
    n_chosen=integers(1),  # points when it was
    depth=floats(1),  # by which the bound of h was lowered
    news=floats(1),  # share of the mass where the surrogate before the last fit was too low
    found=Found,
)

Work = extended("Work", moves.Work, w=floats("d"), distances=floats("m"))


# ---- transition ---------------------------------------------------------------------------------


@jit(inlined=False)
def transition(target, state, parameters, work, rng):
    """Make a move of a random kind; accept it by log π(y) − log π(x) and the proposal's ratio.

    Of the inner chain, which is reversible with respect to s^β, that is β(log s(u) − log s(v)) [L].
    """
    surrogate, u, v = parameters.surrogate, state.u, work.v
    moves.begin_move(state, work)
    if parameters.n_looks[0] > 0:
        parameters.n_looks[0] -= 1
        copy(parameters.looks[parameters.n_looks[0]], work.v)
        x_of(parameters, work.v, work.y)
        return moves.look(target, state, work)
    r = rng.random()
    log_hastings, log_s = 0.0, np.nan
    if r < parameters.shares[WALK]:
        kind = WALK
        work.is_short[0] = moves.walk_from(u, np.exp(parameters.log_scale[0]), v, rng)
    elif r < parameters.shares[WALK] + parameters.shares[REFERENCE]:
        kind = REFERENCE
        if parameters.modes.n_modes[0] > 1:
            draw_of_modes(parameters.modes, work.y, work.w, rng)
            u_of(parameters, work.y, v)
            log_hastings = log_of_modes(parameters.modes, state.x, work.w)
            log_hastings -= log_of_modes(parameters.modes, work.y, work.w)
        else:
            moves.reference_from(u, surrogate.nu[0], 0.5 * np.pi, v, rng)
            log_hastings = moves.log_t(u, surrogate.nu[0]) - moves.log_t(v, surrogate.nu[0])
    else:
        r -= parameters.shares[WALK] + parameters.shares[REFERENCE]
        kind = BY_S if r < parameters.shares[BY_S] else WIDE
        beta = parameters.power[0] if kind == WIDE else 1.0
        if np.isnan(state.log_s[0]):
            state.log_s[0] = log_surrogate(surrogate, u, work.distances)
        copy(u, v)
        log_s = inner_chain(parameters, work, state.log_s[0], beta, rng)
        log_hastings = beta * (state.log_s[0] - log_s)
    work.kind[0] = kind
    return accept_proposal(target, state, parameters, work, log_hastings, log_s, rng)


@jit
def accept_proposal(target, state, parameters, work, log_hastings, log_s, rng):
    """Accept or reject the proposal work.v, unless nothing moved."""
    moved = False
    for i in range(state.u.size):
        moved |= work.v[i] != state.u[i]
    accept_prob, accepted = 0.0, False
    work.evaluated[0] = moved
    copy(state.x, work.y)
    work.logp_y[0] = state.logp[0]
    if moved:
        x_of(parameters, work.v, work.y)
        accept_prob, accepted = moves.accept_move(target, state, work, log_hastings, rng)
        if accepted:
            state.log_s[0] = log_s
    moves.note_move(state, work, accept_prob, work.kind[0] == BY_S)
    return accept_prob, accepted


@jit
def derived(state, parameters, work):
    """Compute u; log s(u) follows when it is asked for."""
    u_of(parameters, state.x, state.u)
    state.log_s[0] = np.nan


class Stats(NamedTuple):
    """What a draw tells besides."""

    surrogate_accept: floats(1)
    reference_accept: floats(1)
    kept: moves.Kept


# ---- the class ----------------------------------------------------------------------------------


class SurrogateMetropolis(ApproximationStep):
    r"""Surrogate-transition Metropolis: for expensive log-densities without a gradient.

    .. math:: y \sim K_s^M(x, \cdot), \qquad
        \alpha = \min\Bigl(1, \frac{\pi(y)\, s(x)}{\pi(x)\, s(y)}\Bigr)

    s is a density that was fitted to all points that tuning evaluated, and :math:`K_s` a Metropolis
    step on s, which needs no evaluation of the log-density. So a move costs one evaluation, after M
    steps that cost microseconds, and neighbouring draws are nearly independent where s is close
    to the posterior. It is for up to about 40 parameters if the posterior is nearly normal.
    Hierarchies and random fields may fail from 15 parameters on; then R-hat or a warning says so.

    Parameters
    ----------
    steps_per_draw : int, optional
        Transitions per draw; by default 1, so that a draw costs one evaluation at most.
    target_accept : float, optional
        Acceptance rate that the scale of the random walk is tuned to; 0.234, or 0.44 in one
        dimension. The moves by the surrogate have no scale: the better it is, the more of them are
        accepted.
    {common parameters}

    Notes
    -----
    A transition is of one of four kinds, with fixed probabilities: a random walk, a move that is
    reversible with respect to a multivariate t [K], a move by the surrogate [L], which with M = 1
    is delayed acceptance [CF], and a wide one, by a power of the surrogate. Each leaves the
    posterior invariant, however bad the surrogate is; a bad one only costs acceptance. While
    tuning, some transitions only evaluate a point in a tail, and stay where they are.

    The statistics ``surrogate_accept`` and ``reference_accept`` are the mean acceptance
    probabilities of the draw's moves by the surrogate and by the t, NaN if there were none;
    ``scaling`` is the scale of the walk. A transition whose inner chain did not move evaluates
    nothing, and counts as rejected.

    In ``pk.sample`` the chains fit one surrogate to what all of them have seen. A chain that came
    to a place with hardly any mass is moved to the others, with a warning. See docs/surrogate.md.

    References
    ----------
    [L] Liu (2001). Monte Carlo Strategies in Scientific Computing, section 9.4.3. Springer.

    [CF] Christen & Fox (2005). Markov chain Monte Carlo using an approximation. Journal of
    Computational and Graphical Statistics 14.

    [K] Karamanis, Beutler, Peacock, Nabergoj & Seljak (2022). Accelerating astronomical and
    cosmological inference with preconditioned Monte Carlo. MNRAS 516.

    Rasmussen & Williams (2006). Gaussian Processes for Machine Learning. MIT Press.

    Examples
    --------
    >>> with model:
    ...     dt = pk.sample(step=pk.SurrogateMetropolis())
    ...     pk.summary(dt)  # averages that the surrogate has corrected
    """

    name = "surrogate_metropolis"
    stats = Stats
    algorithm = Algorithm(transition, moves.adapt, derived, moves.report)
    kinds = "walk", "reference", "surrogate", "wide"
    initial_search = SearchByProcess
    keeps = Keeps(SURROGATE_MOVES)
    lengths_of_run = ApproximationStep.lengths_of_run | {"home"}

    def _allocate(self, scales, n_tune):
        d = scales.size
        sizes, of_parameters, of_tuning = self._for_moves(d, n_tune, d + 1)
        sizes |= {"d + 1": d + 1, "m": fit.N_CENTRES}
        sizes |= {"d + 5": d + 5, "home": self._most_of_home + 20}
        sizes["kept"] *= self.layout.covers_all  # else evaluations are not of the whole log-density
        parameters = allocate(
            Parameters,
            sizes,
            factor=np.diag(scales),
            n_inner=N_INNER,
            power=power(d),
            error=np.nan,
            **of_parameters,
        )
        tuning = allocate(
            Tuning,
            sizes,
            home_factor=np.diag(scales),
            mass=-np.inf,
            hyper=np.nan,
            **of_tuning,
        )
        return allocate(State, sizes), parameters, tuning, allocate(Work, sizes)

    @property
    def _most_of_home(self):
        """Return how much the way tells tuning, at most."""
        many = self.search.most_of_search() if self.search.is_one_of_many else 0
        return min(max(self.search.usual_budget(), many), 2000)

    def _use_warm_start(self, found):
        tuning = self.tuning
        tuning.middle[:], tuning.home_factor[:] = found.x, found.factor
        tuning.mass[0] = found.logp + np.log(np.diag(found.factor)).sum()
        best = np.argsort(-found.logps, kind="stable")[: len(tuning.home)]
        tuning.n_home[0] = len(best)
        tuning.has_arrived[0] = len(found.logps) <= self.search.budget()
        tuning.home[: len(best)] = np.column_stack([found.points[best], found.logps[best]])
        self.state.logp[0] = found.logp - self._d / 2
        self.state.x[:] = found.x
        if not self.search.is_one_of_many:  # all together they fit one after the first draw
            learning.learn_from([self], self.rng)

    def _first_fit(self):
        """Return the draw before which the surrogate is fitted for the first time."""
        if self.search.is_one_of_many:
            return 1
        return -(-max(6, self._d // 2) // self.steps_per_draw)

    def evaluations(self, states, numbers, kept):
        """Return a Dataset of what chains have evaluated, None if they do not remember it."""
        tunings = [state.tuning for state in states]
        if len(tunings[0].evaluated) > 0:
            exact = np.any([state.guide.exact for state in states], axis=0)
            return dataset_of(self.layout.coordinates(), tunings, exact, numbers, kept)

    @classmethod
    def learn(cls, chains):
        """Fit the surrogate to all that the chains have evaluated."""
        if chains[0].monitor.done == chains[0].pauses()[0]:
            learning.move_lost_chains(chains)
            modes.share_what_was_found(in_the_same_place(chains))
        together = in_the_same_place(chains)
        learning.learn_from(together, together[0].rng)
        for chain in chains:
            if chain not in together:
                learning.learn_from([chain], chain.rng)

    def _needed_tuning(self):
        return self._d if self.search.has_few_evaluations else max(50, 5 * self._d)

    def _findings(self):
        modes = self.parameters.modes
        others = findings.other_samplers(self.model)
        found = [
            findings.of_move(self.tuning.lost[0]),
            findings.of_efficiency(self.tuning.worth, others, modes.n_modes[0] > 1),
            findings.of_missed_mass(self.tuning.news[0], others),
            several_modes(modes),
        ]
        return list(filter(None, found))

    def _learned(self):
        own = self.parameters
        return super()._learned() | {
            "n_inner": Quantity((), own.n_inner[0], "Steps of the inner chain, M."),
            **learned(own),
        }
