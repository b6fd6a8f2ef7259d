"""How SurrogateMetropolis learns: moments, surrogate, inner chain, shares; in Python, while tuning.

Symbols: as in metropolis.py; f the log-densities of the points that were evaluated, e the worth of
a kind of move, its mean α|v − u|²/d.
"""

from typing import NamedTuple

import numpy as np
from scipy.special import erfc

from pymc_kameleon.approximation.drops import NEAR, NEGLIGIBLE, drop
from pymc_kameleon.approximation.linalg import linear_algebra, whitened
from pymc_kameleon.approximation.modes import MODE_NU, NEGLIGIBLE_MASS
from pymc_kameleon.core.arrays import copy_arrays
from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.samplers.approximation.moves import (
    BY_S,
    EXPECTED_MOVES,
    LEAST_SHARE,
    REFERENCE,
    moments,
    newest,
    shares_of,
)
from pymc_kameleon.samplers.surrogate import fit, inner_chain, modes
from pymc_kameleon.samplers.surrogate.fit import Hyper, log_t
from pymc_kameleon.samplers.surrogate.inner_chain import MOST_LOOKS

SHARED_PARAMETERS = (
    "shares",
    "mean",
    "factor",
    "error",
    "surrogate",
)
"""Parameters that chains share."""

LEARNED_TUNING = "hyper", "n_chosen", "depth", "news"
"""Fields of their tuning that they share."""

WARM_START = "home", "n_home", "middle", "home_factor", "mass", "has_arrived"
"""Fields of its tuning by which a chain remembers its warm start."""

WIDE = BY_S + 1
"""The kind of a move by a power of the surrogate, which is wider."""

LEAST_THAT_FINDS = 0.3
"""Least share of moves that find what the surrogate does not know: of wide ones while tuning, and
of reference moves if they are from a mixture of several modes."""

NEWS, NEWS_SHARE, KNOWN_WITHIN = 0.01, 0.17, 2.0
"""Share of the mass, at most, that is news to the surrogate; the newest moves that tell, as a
share; and how much log s may be too low where it is known."""

LEAST_LOW = 8
"""Low points, at least, that tell if the bound of h may be lower."""

PAYS, GOOD = 2.0, 1.0
"""What a move by the surrogate should be worth: so many times a walk, or so much."""

LOOK_SHARE = 0.02
"""Points that a chain looks at after each fit, as a share of its transitions."""

N_OF_T, MOST_ROUGH = 4096, 500
"""Points of t from which draws of s are taken; and evaluations up to which none is looked at: s is
too rough, and far points with next to no mass would spoil what else is made of so few."""

SPARSE_DISTANCE = 3.0
"""Times d: squared distance |u|² from which on points are preferred, as they are few."""

LOOK_RADII = 0.25 * 1.2 ** np.arange(27)
"""Distances from a state at which such a point is searched for; none is farther out."""


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
    for chain in chains:
        chain.parameters.n_looks[0] = 0
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        news, seen, least_depth = 0.0, seen_by(chains, rng), -np.inf
        if len(seen.sample[0]) == 0:
            return
        if not np.isnan(parameters.error[0]):
            news = share_of_news(chains)
            least_depth = known_depth(chains, seen.middle)
        chooses = is_last or seen.n >= 2 * tuning.n_chosen[0]
        left_out = fitted(surrogate, seen.sample, tuning.hyper, chooses, seen.middle)
        if not left_out < np.inf:
            return
        if chooses:
            tuning.n_chosen[0] = seen.n
            tuning.depth[0] = inner_chain.lower_bound(surrogate, seen.states, least_depth, rng)
        else:
            surrogate.bounds[0] -= tuning.depth[0]
    parameters.mean[:], parameters.factor[:] = seen.mean, seen.factor
    parameters.error[0], tuning.news[0] = left_out, news
    worth = sum(chain.tuning.worth for chain in chains)
    if is_last:  # before that it would keep chains from looking for what is not known
        acceptance = erfc(0.627 * left_out)  # of independent moves, by the mean error
        worth[BY_S] += EXPECTED_MOVES * np.array([2 * acceptance, 1.0])
    shares_of_modes = modes.learn_modes(chains)
    least = np.full(len(worth), LEAST_SHARE)
    if shares_of_modes:
        least[REFERENCE] = LEAST_THAT_FINDS
    if not is_last:
        least[WIDE] = LEAST_THAT_FINDS
    parameters.shares[:] = shares_of(worth, least)
    looks_at_draws = seen.n > MOST_ROUGH and not is_last
    draws = draws_of_s(surrogate, len(chains) if looks_at_draws else 0, rng)
    for k, chain in enumerate(chains):
        copy_arrays(parameters, chain.parameters, SHARED_PARAMETERS)
        copy_arrays(tuning, chain.tuning, LEARNED_TUNING)
        if not is_last:
            looks = np.concatenate([draws[k : k + 1], places_to_look(chain, seen, rng)])
            looks = looks[:MOST_LOOKS]
            chain.parameters.looks[: len(looks)] = looks
            chain.parameters.n_looks[0] = len(looks)
        chain.tuning.worth[:] /= 2


def seen_by(chains, rng):
    """Return what chains have Seen."""
    moves = newest(chains)
    points, f, is_move = points_of(chains)
    best = best_warm_start(chains).tuning
    mean, factor = moments(best.middle, best.home_factor, moves)
    states = np.concatenate([[chain.state.x for chain in chains], moves[0]])
    u, middle = whitened(points, mean, factor), level(chains, moves)
    rows = worth_fitting(u, f - middle, fit.N_CENTRES, rng)
    sample = u[rows], f[rows], scored(is_move[rows])
    newest_states = whitened(states[-10 * inner_chain.N_STARTS :], mean, factor)
    return Seen(mean, factor, sample, newest_states, middle, len(f))


def fitted(surrogate, sample, hyper, chooses, middle):
    """Fit the surrogate, from the last choice on; return its error."""
    n_rounds = fit.N_ROUNDS if np.isnan(hyper[0]) else int(chooses)
    choice, error = fit.fit(surrogate, *sample, unpacked(hyper), MODE_NU, middle, n_rounds)
    if error < np.inf:
        hyper[:] = *choice[:-1], *choice.stretch
    return error


def unpacked(hyper):
    """Return what was chosen last, from an array of numbers; NaN at first."""
    if np.isnan(hyper[0]):
        return Hyper.start(len(hyper) - 5)
    on_quadratic, *numbers = hyper.tolist()
    return Hyper(bool(on_quadratic), *numbers[:4], tuple(numbers[4:]))


# ---- points that a surrogate is fitted to, and which of them count ------------------------------


def best_warm_start(chains):
    """Return the chain whose way led to where most mass is; one that arrived, if any did."""
    return max(chains, key=lambda chain: (chain.tuning.has_arrived[0], chain.tuning.mass[0]))


def points_of(chains):
    """Return all points (n, d) that were evaluated, each once, f there, and which were moves."""
    rows, moves = [], []
    for chain in chains:
        tuning, d = chain.tuning, chain.state.x.size
        rows.append(tuning.home[: tuning.n_home[0]])
        moves.append(tuning.moves.points[: tuning.moves.counts[0], d : 2 * d + 1])
    is_move = np.repeat([False, True], [sum(map(len, rows)), sum(map(len, moves))])
    rows = np.concatenate([*rows, *moves])
    first = np.sort(np.unique(rows, axis=0, return_index=True)[1])  # as they came, whatever bits
    first = first[np.isfinite(rows[first, -1])]
    return rows[first, :-1], rows[first, -1], is_move[first]


def level(chains, moves):
    """Return the median of f over the states that the moves led to, about."""
    f = np.concatenate([[chain.state.logp[0] for chain in chains], moves[2]])
    weights = np.concatenate([np.ones(len(chains)), moves[3]])
    order = np.argsort(f, kind="stable")
    total = np.cumsum(weights[order])
    return f[order[np.searchsorted(total, total[-1] / 2)]]


def worth_fitting(u, f, most, rng):
    """Return rows of the points that a surrogate is fitted to, in random order."""
    d, drops = u.shape[1], np.maximum(-f, 0)
    rows = np.flatnonzero(drops < drop(d, NEGLIGIBLE))
    if len(rows) == 0:
        return rows
    far = np.maximum(np.sum(u[rows] ** 2, axis=1) / (SPARSE_DISTANCE * d), 1)
    weights = (np.exp(-drops[rows] / 4) + 0.02) * far**2
    return rng.choice(rows, min(most, len(rows)), replace=False, p=weights / weights.sum())


def scored(is_move):
    """Return the points whose errors count: those of moves, if there are enough of them.

    Others, in lines and close together, are easy to predict.
    """
    return is_move if np.count_nonzero(is_move) >= FEW else np.ones(len(is_move), bool)


# ---- chains that are lost ----------------------------------------------------------------------


def move_lost_chains(chains):
    """Move chains whose place has hardly any mass, as the way has shown, to the best one's."""
    best = best_warm_start(chains)
    for chain in chains:
        lost = best.tuning.mass[0] - chain.tuning.mass[0]
        if lost > NEGLIGIBLE_MASS:
            copy_arrays(best.state, chain.state)
            copy_arrays(best.tuning, chain.tuning, WARM_START)
            chain.tuning.moves.counts[0] = 0
            chain.tuning.lost[0] = lost


# ---- what the surrogate does not know ----------------------------------------------------------


def places_to_look(chain, seen, rng):
    """Return points u (n, d) where the fit is low, for a chain to evaluate, and stay where it is.

    Without them a chain that comes to an unknown tail after tuning is stuck for long. They are on
    rays from states, along which one coordinate moves, alone or with others.
    """
    d, factor = chain.state.x.size, seen.factor
    n = min(int(LOOK_SHARE * chain.tuning.t[0] + rng.random()), MOST_LOOKS)
    rays = np.concatenate([factor, np.linalg.inv(factor).T])[rng.integers(2 * d, size=n)]
    rays *= rng.choice([-1, 1], (n, 1)) / np.linalg.norm(rays, axis=1, keepdims=True)
    states = seen.states[rng.integers(len(seen.states), size=n)]
    points = states[:, None] + LOOK_RADII[:, None] * rays[:, None]
    fitted = fit.unbounded_values(chain.parameters.surrogate, points.reshape(-1, d))
    depths = rng.uniform(0, drop(d, NEGLIGIBLE), (n, 1))
    is_low = fitted.reshape(n, len(LOOK_RADII)) < seen.middle - depths
    found = is_low.any(axis=1)
    return points[found, np.argmax(is_low[found], axis=1)]


def draws_of_s(surrogate, n, rng):
    """Return draws u (n, d) of s, from points of t by their weights, for chains to look at."""
    d, nu = surrogate.rates.size, surrogate.nu[0]
    if n == 0:
        return np.zeros((0, d))
    u = rng.standard_normal((N_OF_T, d)) / np.sqrt(rng.gamma(nu / 2, 2 / nu, (N_OF_T, 1)))
    log_w = fit.values(surrogate, u) - log_t(u, nu)
    return u[np.argsort(-log_w - rng.gumbel(size=len(u)))[:n]]


def unseen_moves(chains):
    """Return u, f and α of the newest moves, of which the present surrogate knows nothing."""
    parameters = chains[0].parameters
    _, y, f, alpha = newest(chains, NEWS_SHARE)
    return whitened(y, parameters.mean, parameters.factor), f, alpha


def share_of_news(chains):
    """Return the share of the mass, by the newest moves, where the present surrogate is too low."""
    u, f, alpha = unseen_moves(chains)
    known = alpha > 0
    if not known.any():
        return 0.0
    too_low = f[known] - fit.values(chains[0].parameters.surrogate, u[known]) > KNOWN_WITHIN
    return np.average(too_low, weights=alpha[known])


def known_depth(chains, middle):
    """Return by how much the newest moves allow to lower the bound of h; -inf if that is open.

    Without that a steep tail, as that of the log of an exponential variable, is far too heavy in s.
    """
    u, f, _ = unseen_moves(chains)
    surrogate = chains[0].parameters.surrogate
    base = log_t(u, surrogate.nu[0])
    h, found = fit.unbounded_values(surrogate, u) - base, f - base
    found[f < middle - NEGLIGIBLE_MASS] = -np.inf
    bound = surrogate.bounds[0] + chains[0].tuning.depth[0]
    for depth in reversed(inner_chain.DEPTHS):
        low = h < bound - depth
        if low.sum() >= LEAST_LOW and np.mean(found[low] > bound - depth + 1) < NEAR:
            return depth
    return -np.inf
