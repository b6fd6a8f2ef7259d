"""How SurrogateMetropolis learns: moments, surrogate, inner chain, shares; in Python, while tuning.

Symbols: as in metropolis.py; f the log-densities of the points that were evaluated, e the worth of
a kind of move, its mean α|v − u|²/d.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erfc

from pymc_kameleon.approximation.linalg import linear_algebra, whitened
from pymc_kameleon.approximation.modes import NEGLIGIBLE_MASS
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.samplers.approximation.moves import (
    BY_S,
    EXPECTED_MOVES,
    REFERENCE,
    mean_worth,
    newest,
    shares_of,
)
from pymc_kameleon.samplers.surrogate import archive, fit, inner_chain, modes
from pymc_kameleon.samplers.surrogate.fit import Hyper

SHARED_PARAMETERS = (
    "shares",
    "mean",
    "factor",
    "angle",
    "reference_share",
    "n_inner",
    "error",
    "surrogate",
)
"""Parameters that chains share."""

LEARNED_TUNING = "hyper", "n_chosen", "news", "unvisited"
"""Fields of their tuning that they share."""

WARM_START = "home", "n_home", "middle", "home_factor", "mass", "has_arrived"
"""Fields of its tuning by which a chain remembers its warm start."""

LEAST_SHARES = np.array([0.07, 0.05, 0.1])
"""Least shares of walks, reference moves and moves by the surrogate."""

LEAST_OF_MODES = 0.25
"""Least share of reference moves if they are from a mixture of several modes."""

NEWS, NEWS_SHARE, KNOWN_WITHIN = 0.01, 0.17, 2.0
"""Share of the mass, at most, that is news to the surrogate; the newest moves that tell, as a
share; and how much log s may be too low where it is known."""

PAYS, GOOD = 2.0, 1.0
"""What a move by the surrogate should be worth: so many times a walk, or so much."""


class Seen(NamedTuple):
    """What chains have seen, in coordinates u."""

    mean: np.ndarray  # μ
    factor: np.ndarray  # L
    sample: tuple  # points (n, d) to fit, f there, and which count
    states: np.ndarray  # (m, d), the newest
    middle: float  # median of f over the states
    n: int  # of all points


def learn_from(chains, rng):
    """Let chains, each with `parameters`, `tuning` and `state`, learn what they all have seen."""
    first = chains[0]
    parameters, tuning = first.parameters, first.tuning
    surrogate, is_last = parameters.surrogate, first.monitor.done >= first.monitor.tune - 1
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        news, seen = 0.0, seen_by(chains, rng)
        if len(seen.sample[0]) == 0:
            return
        if not np.isnan(parameters.error[0]):
            news = share_of_news(chains)
        chooses = is_last or seen.n >= 2 * tuning.n_chosen[0]
        nu = inner_chain.best_nu(seen.states)
        left_out = fitted(surrogate, seen.sample, tuning.hyper, nu, chooses, seen.middle)
        if not left_out < np.inf:
            return
        if chooses:
            tuning.n_chosen[0] = seen.n
            settings = inner_chain.inner_settings(surrogate, seen.states, rng)
            parameters.angle[0], parameters.reference_share[0], parameters.n_inner[0] = settings
    parameters.mean[:], parameters.factor[:] = seen.mean, seen.factor
    parameters.error[0], tuning.news[0] = left_out, news
    worth = sum(chain.tuning.worth for chain in chains)
    if is_last:  # before that it would keep chains from looking for what is not known
        worth[BY_S] += EXPECTED_MOVES * np.array([2 * acceptance(left_out), 1.0])
    shares_of_modes = modes.learn_modes(chains)
    least = LEAST_SHARES.copy()
    if shares_of_modes:
        least[REFERENCE] = LEAST_OF_MODES
    if is_last:
        tuning.unvisited[0] = modes.unvisited(tuning.found, shares_of_modes)
    parameters.shares[:] = shares_of(mean_worth(worth), least)
    for chain in chains:
        copy_arrays(parameters, chain.parameters, SHARED_PARAMETERS)
        copy_arrays(tuning, chain.tuning, LEARNED_TUNING)
        chain.tuning.worth[:] /= 2


def seen_by(chains, rng):
    """Return what chains have Seen."""
    moves = [newest(chain.tuning.moves) for chain in chains]
    points, f, is_move = archive.points_of(chains)
    mean, factor = archive.moments_of(chains, moves)
    states = np.concatenate([[chain.state.x.copy() for chain in chains], *(m[0] for m in moves)])
    u, middle = whitened(points, mean, factor), archive.level(chains, moves)
    rows = archive.worth_fitting(u, f - middle, fit.n_centres(u.shape[1]), rng)
    sample = u[rows], f[rows], archive.scored(is_move[rows])
    newest_states = whitened(states[-10 * inner_chain.N_STARTS :], mean, factor)
    return Seen(mean, factor, sample, newest_states, middle, len(f))


def fitted(surrogate, sample, hyper, nu, chooses, middle):
    """Fit the surrogate, from the last choice on; return its error."""
    n_rounds = fit.N_ROUNDS if np.isnan(hyper[0]) else int(chooses)
    choice, error = fit.fit(surrogate, *sample, unpacked(hyper), nu, middle, n_rounds)
    if error < np.inf:
        hyper[:] = *choice[:-1], *choice.stretch
    return error


def unpacked(hyper):
    """Return what was chosen last, from an array of numbers; NaN at first."""
    if np.isnan(hyper[0]):
        return Hyper.start(len(hyper) - 5)
    on_quadratic, *numbers = hyper.tolist()
    return Hyper(bool(on_quadratic), *numbers[:4], tuple(numbers[4:]))


def acceptance(error):
    """Return what is accepted of independent moves by a surrogate with this mean error."""
    return erfc(0.627 * error)


# ---- chains that are lost ----------------------------------------------------------------------


def move_lost_chains(chains):
    """Move chains whose place has hardly any mass, as the way has shown, to the best one's."""
    best = archive.best_warm_start(chains)
    for chain in chains:
        lost = best.tuning.mass[0] - chain.tuning.mass[0]
        if lost > NEGLIGIBLE_MASS:
            copy_arrays(best.state, chain.state)
            copy_arrays(best.tuning, chain.tuning, WARM_START)
            chain.tuning.moves.counts[0] = 0
            chain.tuning.lost[0] = lost


# ---- what the surrogate does not know ----------------------------------------------------------


def share_of_news(chains):
    """Return the share of the mass, by the newest moves, where the present surrogate is too low.

    It was not fitted to these.
    """
    parameters = chains[0].parameters
    moves = (newest(chain.tuning.moves, NEWS_SHARE) for chain in chains)
    _, y, f, alpha = map(np.concatenate, zip(*moves, strict=True))
    u = whitened(y, parameters.mean, parameters.factor)
    known = alpha > 0
    if not known.any():
        return 0.0
    too_low = f[known] - fit.values(parameters.surrogate, u[known]) > KNOWN_WITHIN
    return np.average(too_low, weights=alpha[known])
