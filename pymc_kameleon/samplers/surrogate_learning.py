"""How SurrogateMetropolis learns: moments, surrogate, inner chain, shares; in Python, while tuning.

Symbols: as in surrogate.py; f the log-densities of the points that were evaluated, e the worth of a
kind of move, its mean α|v − u|²/d.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
from scipy.special import erfc, gammaln
from threadpoolctl import ThreadpoolController

from pymc_kameleon.approach import evaluations_for_a_way
from pymc_kameleon.core.scaling import best_scale
from pymc_kameleon.monitor import in_words
from pymc_kameleon.samplers import surrogate_fit
from pymc_kameleon.samplers.surrogate_fit import Hyper, log_t


class Effort(NamedTuple):
    """What learning and moving may cost.

    Attributes
    ----------
    n_centres : int
        Points that the surrogate is fitted to, at most; more where a quadratic needs them.
    n_scored : int
        Points by which it is chosen how, likewise.
    n_rounds : int
        How often each part of that choice is reconsidered, at most, for the first time.
    most_stretched : int
        Coordinates up to which each has a rate of its own.
    most_inner : int
        M at most.
    evaluation : float
        What an evaluation is taken to cost, in µs. Where that is finite, kinds of moves, M, and
        whether kernels are worth their cost follow from what moves bring per µs.
    """

    n_centres: int
    n_scored: int
    n_rounds: int
    most_stretched: int
    most_inner: int
    evaluation: float

    @property
    def is_cheap(self):
        """Whether the surrogate's arithmetic counts."""
        return self.evaluation < np.inf

    def in_dimensions(self, d):
        """Return the effort for d coordinates: somewhat more points than a quadratic needs."""
        enough = min(int(1.3 * n_coefficients(d)), MOST_CENTRES)
        return self._replace(
            n_centres=max(self.n_centres, enough), n_scored=max(self.n_scored, enough)
        )


CHEAP, EXPENSIVE = Effort(400, 100, 1, 12, 16, 6.0), Effort(800, 400, 4, 40, 64, np.inf)
"""For log-densities that cost microseconds, and for those that cost more."""

STEP, PER_COORDINATE, PER_KERNEL = 0.06, 0.01, 1.6e-4
"""µs of a move other than the log-density, as measured: for each step of the inner chain, and for
each of its coordinates, and for each of these times the centres."""

MOST_POINTS = 2000
"""That a quadratic alone is fitted to where evaluations are cheap."""

GOOD_ENOUGH = 0.15
"""Error of a quadratic alone below which no kernels are tried where evaluations are cheap."""

MOST_TERMS = 150
"""Coefficients of a quadratic beyond which few centres add nothing to it."""

GAIN = 1.1
"""Times the acceptance that a quadratic alone has: what kernels have to bring there."""

MOST_CENTRES = 1200
"""Of a surrogate with kernels, ever."""

LEAST_INNER = 32
"""M at least where evaluations are expensive: fewer steps suffice from typical states, but not from
tails, where chains would then stay for long."""

LEARNED = "shares", "mean", "factor", "angle", "reference_share", "n_inner", "error"
"""Parameters that chains share, beside the surrogate."""

HOME = "home", "n_home", "middle", "home_factor", "mass", "has_arrived"
"""What a chain remembers of its way."""

NEGLIGIBLE = 10.0
"""Log of the ratio of two masses, from which the smaller one is taken for none."""

NEWEST = 0.65
"""Share of the moves, the newest, that mean and covariance come from."""

FARTHEST = 25, 100
"""Squared distance |u|², times d and plus, beyond which points are not fitted."""

LOWEST = 15, 3
"""Drops of f, and times d, beyond which they are not."""

ENOUGH = 20
"""Moves that decide how a surrogate is fitted."""

N_STARTS = 200
"""Inner chains that are tried."""

ANGLES = (np.pi / 2, 1.1, 0.7, 0.35)
"""θ is one of these."""

NUS = (4.0, 8.0)
"""ν is one of these."""

SHORT_SHARE, SHORTEST = 0.5, 0.05
"""Steps of a walk that are shorter, for narrow places; and how long the shortest are."""

UNCORRELATED = 0.9
"""Of the squared jump of two independent points, in each coordinate, that M steps should make."""

LEAST_SHARES = np.array([0.07, 0.05, 0.1, 0.05])
"""Of walks, reference moves, moves by the surrogate and wide ones, in the end, at least."""

TUNING_SHARES = np.array([0.07, 0.05, 0.1, 0.3])
"""The same while tuning: wide moves find places that the surrogate does not know."""

FIRST_SHARES = (0.2, 0.2, 0.3, 0.3)
"""Of the four, before anything is known."""

WIDTH = 1.5
"""Standard deviations of log s by which it is lower, typically, where wide moves go."""

DEPTHS = {-3: 0.003, -1.5: 0.003, 0: 0.1, 1.5: 0.1, 3: 0.1, 4.5: 0.1, 6: 1, 9: 1, 12: 1}
"""By how much the lower bound of h is lowered, and the share of the inner chain's steps where h may
then be at it. The higher the bound, the sooner chains come to tails that tuning has not seen, and
leave them again; where tuning has seen that nothing is there, such steps are in vain."""

NEWS, LATEST, KNOWN = 0.01, 0.17, 2.0
"""Share of the mass, at most, of which the surrogate did not know; the share of the moves, the
newest, by which that is judged; and by how much log s may be too low where it is known."""

PAYS, GOOD = 2.0, 1.0
"""What a move by the surrogate should be worth: so many times a walk, or so much."""

LONG = 1e-3
"""Seconds of an evaluation that is not cheap."""

EXPECTED = 10
"""Moves by the surrogate that its error counts for, which tells how many will be accepted."""

SHARPNESS = 5
"""Power of e that shares are proportional to."""

FAR = 3.0
"""Times d: squared distance |u|² from which on points are preferred, as they are few."""

LEAST_LOW, SURPRISES = 8, 0.05
"""Points, at least, that tell whether the bound of h may be lower; and the share of them, at most,
that are not as low as it by 1 or more."""

LOOKS, MOST_LOOKS = 0.02, 50
"""Points that a chain looks at after each fit, times its transitions so far; and at most."""

FALL = 2.0, 20.0
"""How far the fit is below the typical f where a chain looks: between these, uniformly."""

RADII = 0.25 * 1.2 ** np.arange(27)
"""Distances from a state at which such a point is searched for; none is farther out."""


class Seen(NamedTuple):
    """What chains have seen, in coordinates u.

    Attributes
    ----------
    mean, factor
        μ and L.
    sample : tuple
        Points (n, d) to fit, f there, and which count.
    states : (m, d) float64
        Newest states.
    middle : float
        Median of f over the states.
    n : int
        All points.
    """

    mean: np.ndarray
    factor: np.ndarray
    sample: tuple
    states: np.ndarray
    middle: float
    n: int


def learn_from(chains, rng):
    """Let chains, each with `parameters`, `tuning` and `state`, learn what they all have seen."""
    first = chains[0]
    parameters, tuning, effort = first.parameters, first.tuning, first.effort
    surrogate, is_last = parameters.surrogate, first.monitor.done >= first.monitor.tune - 1
    for chain in chains:
        chain.parameters.n_looks[0] = 0
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        news, seen, least_depth = 0.0, seen_by(chains, effort, rng), -np.inf
        if len(seen.sample[0]) == 0:
            return
        if not np.isnan(parameters.error[0]):
            news, least_depth = share_of_news(chains), known_depth(chains, seen.middle)
        chooses = is_last or seen.n >= 2 * tuning.n_chosen[0]
        nu = best_nu(seen.states)
        left_out = fitted(surrogate, seen.sample, tuning.hyper, nu, effort, chooses, seen.middle)
        if not left_out < np.inf:
            return
        if chooses:
            tuning.n_chosen[0] = seen.n
            tuning.depth[0], settings = settle_inner(
                surrogate, seen.states, least_depth, effort, rng
            )
            parameters.angle[0], parameters.reference_share[0], parameters.n_inner[0] = settings
        else:
            surrogate.bounds[0] -= tuning.depth[0]
    parameters.mean[:], parameters.factor[:] = seen.mean, seen.factor
    parameters.error[0], tuning.news[0] = left_out, news
    worth = sum(chain.tuning.worth for chain in chains)
    if is_last:  # before that it would keep chains from looking for what is not known
        worth[2] += EXPECTED * np.array([2 * acceptance(left_out), 1.0])
    costs = move_costs(effort, surrogate, parameters.n_inner[0]) if effort.is_cheap else None
    least = LEAST_SHARES if is_last else TUNING_SHARES
    parameters.shares[:] = shares_of(worth, least, costs)
    for chain in chains:
        give(parameters, chain.parameters, LEARNED)
        give(surrogate, chain.parameters.surrogate, surrogate._fields)
        give(tuning, chain.tuning, ("hyper", "n_chosen", "depth", "news"))
        looks = places_to_look(chain, seen, is_last, rng)
        chain.parameters.n_looks[0] = len(looks)
        chain.parameters.looks[: len(looks)] = looks
        chain.tuning.worth[:] /= 2


def seen_by(chains, effort, rng):
    """Return what chains have Seen."""
    moves = [newest(chain.tuning.moves, NEWEST) for chain in chains]
    points, f, is_move = archive(chains)
    mean, factor = moments(chains, moves)
    states = np.concatenate([[chain.state.x.copy() for chain in chains], *(m[0] for m in moves)])
    u, middle = whitened(points, mean, factor), level(chains, moves)
    most = MOST_POINTS if effort.is_cheap else effort.n_centres
    rows = worth_fitting(u, f - middle, most, rng)
    sample = u[rows], f[rows], counted(is_move[rows])
    newest_states = whitened(states[-10 * N_STARTS :], mean, factor)
    return Seen(mean, factor, sample, newest_states, middle, len(f))


def give(source, out, names):
    """Copy fields of arrays."""
    for name in names:
        getattr(out, name)[:] = getattr(source, name)


@cache
def linear_algebra():
    """Return what limits its threads; to look for its libraries takes 3 ms."""
    return ThreadpoolController()


def fitted(surrogate, sample, hyper, nu, effort, chooses, middle):
    """Fit the surrogate to (u, f, counts), going on from the last choice; return its error.

    Where evaluations are cheap, a quadratic is enough unless kernels pay.
    """
    plain, n_terms = np.inf, n_coefficients(surrogate.rates.size)
    if effort.is_cheap and n_terms <= MOST_CENTRES:
        plain = surrogate_fit.fit_quadratic(surrogate, *sample, nu, middle)
        if plain < GOOD_ENOUGH or n_terms > MOST_TERMS:
            return plain
    few = [part[: effort.n_centres] for part in sample]
    effort = effort._replace(n_rounds=effort.n_rounds if np.isnan(hyper[0]) else int(chooses))
    choice, error = surrogate_fit.fit(surrogate, *few, unpacked(hyper), nu, effort, middle)
    if error < np.inf:
        hyper[:] = *choice[:-1], *choice.stretch
    if plain < np.inf and acceptance(error) < GAIN * acceptance(plain):
        return surrogate_fit.fit_quadratic(surrogate, *sample, nu, middle)
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


# ---- chains that have not come home ------------------------------------------------------------


def bring_home(chains):
    """Move chains whose place has hardly any mass to where the best one is.

    The mass is that of the normal which the way to the posterior has shown.
    """
    best = best_home(chains)
    for chain in chains:
        lost = best.tuning.mass[0] - chain.tuning.mass[0]
        if lost > NEGLIGIBLE:
            give(best.state, chain.state, best.state._fields)
            give(best.tuning, chain.tuning, HOME)
            chain.tuning.moves.counts[0] = 0
            chain.tuning.lost[0] = lost


def best_home(chains):
    """Return the chain whose way led to where most mass is; one that arrived, if any did."""
    return max(chains, key=lambda chain: (chain.tuning.has_arrived[0], chain.tuning.mass[0]))


def explain_size(d):
    """Warn if there are more coordinates than a surrogate can learn all correlations of."""
    if n_coefficients(d) <= MOST_CENTRES:
        return ""
    return (
        f"a quadratic in {d} coordinates has {n_coefficients(d)} coefficients, and the surrogate "
        f"is fitted to {MOST_CENTRES} points at most, so it may be poor. For so many use pk.GAM, "
        "or with a gradient NUTS or pk.GadMALA."
    )


def n_coefficients(d):
    """Return P, the number of coefficients of a quadratic."""
    return (d + 1) * (d + 2) // 2


def explain_haste(followed, d):
    """Warn if a chain has begun where another one had come, without a look at the way."""
    if not followed:
        return ""
    return (
        "it has too few evaluations to search for the posterior itself, so it began where the "
        "first chain had arrived. R-hat then says nothing about other modes. With tune + draws "
        f"of {evaluations_for_a_way(d)} each chain searches for itself."
    )


def explain_lost(lost):
    """Warn if a chain was moved."""
    if lost == 0:
        return ""
    return (
        "its start led to a place with a log mass some "
        f"{lost:.0f} lower than where another chain arrived, so it was moved there before it was "
        "tuned. The starts were then not independent. If several modes may matter, use "
        "pk.CyclicalKAM; otherwise there is nothing to do."
    )


# ---- what was seen ------------------------------------------------------------------------------


def newest(history, share):
    """Return x, y, log π(y) and α of the newest moves."""
    n, d = history.counts[0], history.points.shape[1] // 2 - 1
    rows = history.points[int((1 - share) * n) : n]
    return rows[:, :d], rows[:, d : 2 * d], rows[:, 2 * d], rows[:, 2 * d + 1]


def archive(chains):
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
    f = np.concatenate([[chain.state.logp[0] for chain in chains], *(m[2] for m in moves)])
    weights = np.concatenate([np.ones(len(chains)), *(m[3] for m in moves)])
    order = np.argsort(f, kind="stable")
    total = np.cumsum(weights[order])
    return f[order[np.searchsorted(total, total[-1] / 2)]]


def worth_fitting(u, f, most, rng):
    """Return rows of the points that a surrogate is fitted to, in random order."""
    d = u.shape[1]
    drop = np.maximum(-f, 0)
    squares = np.sum(u * u, axis=1)
    near = squares < FARTHEST[0] * d + FARTHEST[1]
    rows = np.flatnonzero(near & (drop < LOWEST[0] + LOWEST[1] * d))
    if len(rows) == 0:
        return rows
    far = np.maximum(squares[rows] / (FAR * d), 1)
    weights = (np.exp(-drop[rows] / 4) + 0.02) * far**2
    return rng.choice(rows, min(most, len(rows)), replace=False, p=weights / weights.sum())


def counted(is_move):
    """Return the points whose errors count: those of moves, if there are enough of them.

    The way to the posterior has made points in lines and close together, which are easy to predict.
    """
    return is_move if np.count_nonzero(is_move) >= ENOUGH else np.ones(len(is_move), bool)


# ---- moments ------------------------------------------------------------------------------------


def moments(chains, moves):
    """Return μ and L: of the newest moves, a proposal counting as often as it would be accepted.

    What the best way to the posterior has shown counts as 2d independent points.
    """
    d = chains[0].state.x.size
    home = best_home(chains).tuning
    mean, covariance = home.middle, home.home_factor @ home.home_factor.T
    x, y, _, alpha = (np.concatenate(parts) for parts in zip(*moves, strict=True))
    if len(x) > 0:
        y = np.where(alpha[:, None] > 0, y, x)
        points, weights = np.concatenate([x, y]), np.concatenate([1 - alpha, alpha])
        own_mean = np.average(points, axis=0, weights=weights)
        deviations = points - own_mean
        own = (deviations.T * weights) @ deviations / len(x)
        jumps = np.mean(alpha[:, None] * (y - x) ** 2 / np.maximum(np.diag(own), 1e-300))
        n = len(x) * np.clip(jumps / 0.8, 0.05, 1.0)
        share = 2 * d / (2 * d + n)
        covariance = (1 - share) * own + share * covariance
        mean = (1 - share) * own_mean + share * mean
    return mean.copy(), cholesky(covariance)


def cholesky(covariance):
    """Return the factor of a covariance, with as little added to its diagonal as rounding needs."""
    scales = np.sqrt(np.diag(covariance))
    correlation = covariance / np.outer(scales, scales)
    for jitter in (0.0, *10.0 ** np.arange(-14, -1)):
        try:
            return scales[:, None] * np.linalg.cholesky(correlation + jitter * np.eye(len(scales)))
        except np.linalg.LinAlgError:
            continue
    return np.diag(scales)


def whitened(points, mean, factor):
    """Return u of points (n, d)."""
    return np.linalg.solve(factor, (points - mean).T).T


# ---- the inner chain, which costs no evaluation -------------------------------------------------


def best_nu(u):
    """Return the ν with which the states are the likeliest."""
    return max(NUS, key=lambda nu: log_likelihood(u, nu))


def log_likelihood(u, nu):
    """Return the mean log density of states under t."""
    d = u.shape[1]
    squares = np.sum(u * u, axis=1)
    constant = gammaln((nu + d) / 2) - gammaln(nu / 2) - d / 2 * np.log(nu)
    return constant - np.mean((nu + d) / 2 * np.log1p(squares / nu))


def inner_settings(surrogate, u, effort, rng):
    """Return θ, the share of reference moves and M, by chains from u (n, d), and their places."""
    starts, most = u[rng.integers(len(u), size=N_STARTS)], effort.most_inner

    def jump(angle, share):
        return np.mean((moved(surrogate, starts, 2, angle, share, rng)[-1] - starts) ** 2)

    jumps = [jump(angle, 1.0) for angle in ANGLES]
    angle, reference, walk = ANGLES[np.argmax(jumps)], max(jumps), jump(0.0, 0.0)
    share = np.clip(reference / (reference + walk), 0.25, 0.75)
    places = moved(surrogate, starts, most, angle, share, rng)
    spread = 2 * np.maximum(np.var(starts, axis=0), 1e-10)
    far = np.array([np.min(np.mean((v - starts) ** 2, axis=0) / spread) for v in places])
    if effort.is_cheap:
        costs = [move_costs(effort, surrogate, m)[-1] for m in range(1, most + 1)]
        n_inner = 1 + np.argmax(effective(2 * far.clip(max=1)) / costs)
    else:
        enough = far > UNCORRELATED
        n_inner = next((m for m in range(LEAST_INNER, most, 4) if enough[m - 1]), most)
    return (angle, share, n_inner), places


def settle_inner(surrogate, u, least_depth, effort, rng):
    """Choose the bound of h, the highest one where the inner chain seldom is, and θ, share and M.

    It is lowered by `least_depth` or more.

    In a thin, curved posterior most of the volume is beyond all that is known. There the bound
    could hold most of the mass of s.

    Returns
    -------
    depth : float
        By how much the bound was lowered.
    settings : tuple
    """
    fitted = surrogate.bounds[0]
    for depth, most in DEPTHS.items():
        if depth < least_depth:
            continue
        surrogate.bounds[0] = fitted - depth
        settings, places = inner_settings(surrogate, u, effort, rng)
        if share_at_bound(surrogate, np.concatenate(places)) <= most:
            break
    return depth, settings


def share_at_bound(surrogate, u):
    """Return the share of points (n, d) where h is at its lower bound."""
    h = surrogate_fit.values(surrogate, u) - log_t(u, surrogate.nu[0])
    return np.mean(h < surrogate.bounds[0] + 1e-6)


def moved(surrogate, u, n, angle, share, rng):
    """Return where n steps of the inner chain lead from u (k, d): a list of (k, d)."""
    (k, d), nu, places = u.shape, surrogate.nu[0], []

    log_s = surrogate_fit.values(surrogate, u)
    for _ in range(n):
        z = rng.standard_normal((k, d))
        if angle < np.pi / 2:
            g = rng.standard_gamma((nu + d) / 2, k) / ((nu + np.sum(u * u, axis=1)) / 2)
        else:
            g = rng.standard_gamma(nu / 2, k) / (nu / 2)
        far = np.cos(angle) * u + np.sin(angle) * z / np.sqrt(g)[:, None]
        by_reference = rng.random(k) < share
        shortened = np.maximum(0, 1 - rng.random(k) / SHORT_SHARE)
        scale = best_scale(d) * SHORTEST**shortened
        v = np.where(by_reference[:, None], far, u + scale[:, None] * z)
        log_s_v = surrogate_fit.values(surrogate, v)
        log_ratio = log_s_v - log_s + by_reference * (log_t(u, nu) - log_t(v, nu))
        accepted = np.log(rng.random(k)) < log_ratio
        u, log_s = np.where(accepted[:, None], v, u), np.where(accepted, log_s_v, log_s)
        places.append(u)
    return places


def power(d):
    """Return β of wide moves: so that the mean of log s falls by as much as it varies, about."""
    return 1 / (1 + WIDTH * np.sqrt(2 / d))


def shares_of(worth, least, costs=None):
    """Return the probabilities of the kinds of moves, from sums and numbers of α|v − u|²/d.

    If they are not all as dear, their `costs` (4,) count.
    """
    if worth[:, 1].sum() == 0:
        return FIRST_SHARES
    e = mean_worth(worth)
    if costs is not None:
        e = effective(e) / costs
    e = e**SHARPNESS
    return least + (1 - least.sum()) * e / e.sum()


def effective(e):
    """Return the effective draws of a move: of an autoregression with this mean squared jump."""
    return e / (4 - np.minimum(e, 3.9))


def move_costs(effort, surrogate, n_inner):
    """Return µs of each kind of move: by what was measured once, not on this machine."""
    d = surrogate.rates.size
    step = STEP + d * (PER_COORDINATE + PER_KERNEL * surrogate.n[0])
    return effort.evaluation + step * np.array([0.5, 1.0, n_inner, n_inner])


def explain_cost(is_expensive, seconds):
    """Warn if evaluations that count as cheap take long."""
    if is_expensive or not seconds > LONG:
        return ""
    return (
        f"an evaluation of the log-density takes {in_words(seconds)}, but counts as cheap because "
        "it is compiled. pk.SurrogateMetropolis(expensive=True) gets more from each."
    )


def mean_worth(worth):
    """Return e of each kind of move."""
    return (worth[:, 0] + 0.02) / (worth[:, 1] + 1)


def explain_worth(worth):
    """Warn if moves by the surrogate go hardly farther than those of a walk."""
    walk, _, surrogate, _ = mean_worth(worth)
    if worth[2, 1] < ENOUGH or surrogate > min(PAYS * walk, GOOD):
        return ""
    return (
        f"moves by the surrogate are hardly better than a random walk here: in tuning their mean "
        f"squared jump was {surrogate:.2g}, a walk's {walk:.2g} (2 would be independent draws). "
        "Tune longer, or use NUTS or pk.GadMALA if there is a gradient."
    )


# ---- what the surrogate does not know ----------------------------------------------------------


def places_to_look(chain, seen, is_last, rng):
    """Return points u (n, d) where the fit is low, for a chain to evaluate, and stay where it is.

    Without them a tail that no chain has come to stays unknown, and a chain that comes there after
    tuning is stuck for long. They are on rays from states, along which one coordinate moves, alone
    or with the others as they correlate with it.
    """
    d, factor = chain.state.x.size, seen.factor
    wanted = 0 if is_last else int(LOOKS * chain.tuning.t[0] + rng.random())
    n = min(wanted, MOST_LOOKS)
    rays = np.concatenate([factor, np.linalg.inv(factor).T])[rng.integers(2 * d, size=n)]
    rays *= rng.choice([-1, 1], (n, 1)) / np.linalg.norm(rays, axis=1, keepdims=True)
    states = seen.states[rng.integers(len(seen.states), size=n)]
    points = states[:, None] + RADII[:, None] * rays[:, None]
    fitted = surrogate_fit.unbounded_values(chain.parameters.surrogate, points.reshape(-1, d))
    is_low = fitted.reshape(n, len(RADII)) < seen.middle - rng.uniform(*FALL, (n, 1))
    found = is_low.any(axis=1)
    return points[found, np.argmax(is_low[found], axis=1)]


def unlearned(chains):
    """Return u, f and α of the newest moves, of which the present surrogate knows nothing."""
    parameters = chains[0].parameters
    moves = (newest(chain.tuning.moves, LATEST) for chain in chains)
    _, y, f, alpha = map(np.concatenate, zip(*moves, strict=True))
    return whitened(y, parameters.mean, parameters.factor), f, alpha


def share_of_news(chains):
    """Return the share of the mass, by the newest moves, where the present surrogate is too low."""
    u, f, alpha = unlearned(chains)
    known = alpha > 0
    if not known.any():
        return 0.0
    too_low = f[known] - surrogate_fit.values(chains[0].parameters.surrogate, u[known]) > KNOWN
    return np.average(too_low, weights=alpha[known])


def known_depth(chains, middle):
    """Return by how much the bound of h may be lowered, by the newest moves; -inf if that is open.

    Where h was still lower, nearly all points turned out to be as low, or to have next to no mass.
    """
    u, f, _ = unlearned(chains)
    surrogate = chains[0].parameters.surrogate
    base = log_t(u, surrogate.nu[0])
    h, found = surrogate_fit.unbounded_values(surrogate, u) - base, f - base
    found[f < middle - NEGLIGIBLE] = -np.inf
    bound = surrogate.bounds[0] + chains[0].tuning.depth[0]
    for depth in reversed(DEPTHS):
        low = h < bound - depth
        if low.sum() >= LEAST_LOW and np.mean(found[low] > bound - depth + 1) < SURPRISES:
            return depth
    return -np.inf


def explain_news(news):
    """Warn if the last part of tuning found much that the surrogate did not know."""
    if news < NEWS:
        return ""
    return (
        f"until the end of tuning the surrogate was too low where some {news:.0%} of the posterior "
        "is. There may be more where no chain has been, and a chain may be stuck for long where "
        "it seldom comes. Tune longer, or use NUTS or pk.GadMALA if there is a gradient."
    )
