"""Moves that samplers by an approximation share, and what is learned from all of their moves.

Symbols: x the position (d,), u = L⁻¹(x − μ), v the proposal in the same coordinates, y its
position, π the posterior, t the density of a multivariate t with ν degrees of freedom, θ the angle
of the reference move, z ~ N(0, I), α the acceptance probability.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.approximation.linalg import cholesky
from pymc_kameleon.core.arrays import floats, integers
from pymc_kameleon.core.history import History, record
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, squared_norm
from pymc_kameleon.core.metropolis import accept
from pymc_kameleon.core.scaling import GOOD_GUESS, ScaleTuning, gain, tune_scale
from pymc_kameleon.core.target import log_density

WALK, REFERENCE, BY_S = range(3)
"""Kinds of moves, the last one by the approximation; a sampler may have more."""

LOOK = -1
"""The kind of a transition that only evaluates a point, while tuning."""

SHORT_SHARE, SHORTEST_STEP = 0.5, 0.05
"""Share of a walk's steps that are shorter, for narrow places; and how long the shortest are."""

NEWEST_SHARE = 0.65
"""Share of the moves, the newest, that mean and covariance come from."""

SHARPNESS = 5
"""Power of their worth that shares of moves are proportional to."""

LEAST_SHARE = 0.075
"""Share of each kind of move, at least."""

EXPECTED_MOVES = 10
"""Moves by s that what is expected of it counts for."""


class State(NamedTuple):
    """What the next transition needs, and what it has counted within a draw."""

    x: floats("d")
    logp: floats(1)
    u: floats("d")
    tally: floats("kinds", 2)  # of each kind of move: sum of α, and number
    move: floats("row")  # the last one: x, y, log π(y), and α, NaN unless it was by s


class Parameters(NamedTuple):
    """What tuning decides."""

    log_scale: floats(1)  # of the walk, in u
    mean: floats("d")  # μ
    factor: floats("d", "d")  # L


class Tuning(NamedTuple):
    """What tuning remembers."""

    t: integers(1)
    n: int
    scale: ScaleTuning
    n_walks: integers(1)
    worth: floats("kinds", 2)  # of each kind of move: sum of α|v − u|²/d, and number
    moves: History  # rows of x, y, log π(y), α
    row: floats("row")
    evaluated: floats("kept", "evaluation")  # x and log π, and more, of the last evaluations
    n_evaluated: integers(1)


class Work(NamedTuple):
    """Scratch, and what adaptation wants to know of the last transition."""

    x: floats("d")  # before the move
    before: floats("d")  # u before the move
    v: floats("d")
    y: floats("d")
    kind: integers(1)
    is_short: integers(1)
    evaluated: integers(1)
    logp_y: floats(1)


class Kept(NamedTuple):
    """What is kept of each draw: its last move."""

    start: floats("d")
    end: floats("d")
    end_logp: floats(1)
    accept_prob: floats(1)


# ---- proposals ----------------------------------------------------------------------------------


@jit
def walk_from(u, scale, out, rng):
    """Propose u + cz, with c the scale or, log-uniformly, less; return whether it was less."""
    is_short = rng.random() < SHORT_SHARE
    c = scale * SHORTEST_STEP ** rng.random() if is_short else scale
    for i in range(u.size):
        out[i] = u[i] + c * rng.standard_normal()
    return is_short


@jit
def reference_from(u, nu, angle, out, rng):
    """Propose cos θ u + sin θ z/√g, reversible with respect to t.

    For θ < π/2, g comes from its distribution given u; else the proposal is a draw of t.
    """
    d = u.size
    if angle < 0.5 * np.pi:
        g = rng.standard_gamma(0.5 * (nu + d)) / (0.5 * (nu + squared_norm(u)))
        cosine = np.cos(angle)
    else:
        g = rng.standard_gamma(0.5 * nu) / (0.5 * nu)
        cosine = 0.0
    sine = np.sin(angle) / np.sqrt(g)
    for i in range(d):
        out[i] = cosine * u[i] + sine * rng.standard_normal()


@jit
def log_t(u, nu):
    """Log of the t density, but for a constant."""
    return -0.5 * (nu + u.size) * np.log1p(squared_norm(u) / nu)


# ---- a move, from its proposal on ---------------------------------------------------------------


@jit
def begin_move(state, work):
    """Remember where a move begins."""
    copy(state.x, work.x)
    copy(state.u, work.before)
    work.is_short[0] = 0


@jit
def look(target, state, work):
    """Evaluate work.y, and stay."""
    work.kind[0], work.evaluated[0] = LOOK, True
    work.logp_y[0] = log_density(target, work.y)
    state.move[:] = np.nan
    return 0.0, False


@jit
def accept_move(target, state, work, log_hastings, rng):
    """Evaluate work.y, which is not x, and accept or reject it; u follows, as work.v."""
    work.logp_y[0] = log_density(target, work.y)
    accept_prob, accepted = accept(target, state, work.y, work.logp_y[0], log_hastings, rng)
    if accepted:
        copy(work.v, state.u)
    return accept_prob, accepted


@jit
def note_move(state, work, accept_prob, corrects):
    """Count a move from work.x to work.y, and take it down; averages are corrected by some."""
    d, tally = state.x.size, state.tally[work.kind[0]]
    tally[0] += accept_prob
    tally[1] += 1.0
    copy(work.x, state.move[:d])
    copy(work.y, state.move[d : 2 * d])
    state.move[2 * d] = work.logp_y[0]
    state.move[2 * d + 1] = accept_prob if corrects else np.nan


@jit
def mean_of_tally(state, kind):
    """Return the mean α of a draw's moves of a kind, NaN if there were none."""
    total, number = state.tally[kind]
    return total / number if number > 0 else np.nan


@jit
def report(state, parameters, stats):
    """Report the acceptance of moves by s, whatever its name, and by t; and the last move."""
    d, kept = state.x.size, stats.kept
    stats[0][0] = mean_of_tally(state, BY_S)
    stats.reference_accept[0] = mean_of_tally(state, REFERENCE)
    copy(state.move[:d], kept.start)
    copy(state.move[d : 2 * d], kept.end)
    kept.end_logp[0], kept.accept_prob[0] = state.move[2 * d], state.move[2 * d + 1]
    return np.exp(parameters.log_scale[0])


# ---- tuning -------------------------------------------------------------------------------------


@jit
def adapt(state, parameters, tuning, work, accept_prob, rng):
    """Remember a move, its evaluation, and its worth, α|v − u|²/d; tune the scale of the walk.

    All else is learned in Python.
    """
    d, kind = state.x.size, work.kind[0]
    copy(work.x, tuning.row[:d])
    copy(work.y, tuning.row[d : 2 * d])
    tuning.row[2 * d] = work.logp_y[0]
    tuning.row[2 * d + 1] = accept_prob
    record(tuning.moves, tuning.row)
    tuning.t[0] += 1
    if work.evaluated[0] and tuning.evaluated.shape[0] > 0:
        evaluation = tuning.evaluated[tuning.n_evaluated[0] % tuning.evaluated.shape[0]]
        copy(tuning.row[d : 2 * d + 1], evaluation[: d + 1])
        tuning.n_evaluated[0] += 1
    if kind == LOOK:
        return True
    if kind == WALK and not work.is_short[0]:
        eta = gain(GOOD_GUESS + tuning.n_walks[0])
        tune_scale(parameters.log_scale, tuning.scale, 0, accept_prob, eta)
        tuning.n_walks[0] += 1
    square = 0.0
    for i in range(d):
        square += (work.v[i] - work.before[i]) ** 2
    tuning.worth[kind, 0] += accept_prob * square / d if accept_prob > 0.0 else 0.0
    tuning.worth[kind, 1] += 1.0
    return True


def remembered(tuning):
    """Return rows of what was evaluated, in their order."""
    rows, n = tuning.evaluated, int(tuning.n_evaluated[0])
    return rows[:n] if n <= len(rows) else np.roll(rows, -(n % len(rows)), axis=0)


def newest(chains, share=NEWEST_SHARE):
    """Return x, y, log π(y) and α of the newest moves of chains."""
    histories, d = [chain.tuning.moves for chain in chains], chains[0].state.x.size
    n = [history.counts[0] for history in histories]
    parts = [own.points[int((1 - share) * k) : k] for own, k in zip(histories, n, strict=True)]
    rows = np.concatenate(parts)
    return rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d], rows[:, 2 * d + 1]


def states_of(moves):
    """Return where moves began and led (2n, d), and how often chains are there, about (2n,)."""
    x, y, _, alpha = moves
    y = np.where(alpha[:, None] > 0, y, x)
    return np.concatenate([x, y]), np.concatenate([1 - alpha, alpha])


def moments(mean, factor, moves):
    """Return μ and L: of moves, a proposal counting as often as it would be accepted.

    The `mean` and `factor` that are known of something else count as 2d independent points.
    """
    d, covariance = len(mean), factor @ factor.T
    (points, weights), n = states_of(moves), len(moves[0])
    if n > 0:
        own_mean = np.average(points, axis=0, weights=weights)
        deviations = points - own_mean
        own = (deviations.T * weights) @ deviations / n
        squares = weights[n:, None] * (points[n:] - points[:n]) ** 2
        jumps = np.mean(squares / np.maximum(np.diag(own), 1e-300))
        n *= np.clip(jumps / 0.8, 0.05, 1.0)
        share = 2 * d / (2 * d + n)
        covariance = (1 - share) * own + share * covariance
        mean = (1 - share) * own_mean + share * mean
    return mean.copy(), cholesky(covariance)


def mean_worth(worth):
    """Return the mean worth of each kind of move, from sums and numbers (k, 2)."""
    return (worth[:, 0] + 0.02) / (worth[:, 1] + 1)


def shares_of(worth, least):
    """Return the probabilities (k,) of kinds of moves by their worth (k, 2), and `least` ones."""
    shares = mean_worth(worth) ** SHARPNESS
    return least + (1 - np.sum(least)) * shares / shares.sum()
