"""The search for modes by which CyclicalKAM tunes: rays, kicks, annealing; then the clusters.

Nothing here is part of the transition that is left after tuning, and most of it does not leave the
posterior invariant.

Symbols, besides those of KAM and of mode_moves.py: T the temperature at which the chain
searches, home the place where a kick starts.
"""

from typing import NamedTuple

import numpy as np

from pymc_kameleon.core.arrays import allocate, floats, integers
from pymc_kameleon.core.conventions import TINY
from pymc_kameleon.core.history import History, record
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, squared_norm
from pymc_kameleon.core.metropolis import accept, normal_step
from pymc_kameleon.core.moments import update_mean_and_factor
from pymc_kameleon.core.scaling import GOOD_GUESS, best_scale, gain, tune_scale
from pymc_kameleon.core.shape import ShapeTuning, learn_shape
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon import kam
from pymc_kameleon.samplers.kameleon.mode_moves import (
    JUMP,
    LOCAL_MOVE,
    MOST_MODES,
    SEARCH_MOVE,
    SINGLE_DIFFERENCE,
    VALLEY_DEPTH,
    difference,
    jump,
    nearest_cluster,
    walk_step,
)

WALK_END, SEARCH_END, LEARNING_END = 0.2, 0.55, 0.85
"""Ends of the phases of tuning, as shares of it; see `search_and_learn`."""

MOST_SEARCHES = 50
"""Searches at most: more tuning makes each of them longer."""
SCAN_SHARE, COOLING_SHARE = 0.25, 0.45
"""Shares of a search in which it looks along rays, and then cools down."""

NEAREST_KICK, FAR_KICK, FARTHEST_KICK, FAR_KICK_SHARE = 2.0, 32.0, 1024.0, 0.25
"""Kicks of the search, in standard deviations of the first mode: most up to FAR_KICK."""

N_LOOKS, LOOK_FACTOR = 26, 1.28
"""Points of a ray, from NEAREST_KICK up to FARTHEST_KICK, and how much farther out each is."""

SEARCH_GAIN = 0.3
"""Step of the search's scale: it has to follow the temperature, and modes of other scales."""

LEARNING_SHARE = 0.2
"""Share of jumps, and of differences, while tuning learns the clusters; the rest are walks."""


class Search(NamedTuple):
    """What tuning remembers of the phases before the last one."""

    walk_end: int  # the phases end at these transitions
    search_end: int
    learning_end: int
    length: int  # transitions of one search for a mode
    n_scanning: int  # … of which so many look along rays, if they find nothing
    n_cooling: int  # … and then so many anneal
    shape: ShapeTuning  # of the walk in the first mode; its scale is that of all walks
    history: History  # rows of x, logp, and the number of the search
    negligible: float  # log-densities that are so much lower are of no mode that matters
    visits: floats(MOST_MODES)  # transitions in each cluster
    home: floats("d")  # where the last search ended that found a place that matters
    home_logp: floats(1)  # log-density there
    floor: floats(1)  # log-density below which a state teaches nothing about the clusters
    log_walk: floats(1)  # log scale of the walk that found the first mode
    kick: floats(1)  # length of the kick that is due, or 0
    log_kick: floats(1)  # its logarithm, or that of the last one
    scans: integers(1)  # whether the search still looks along rays
    direction: floats("d")  # of the ray
    reach: floats(1)  # how far out it has been looked
    lowest: floats(1)  # log-density there
    highest: floats(1)  # where it rose again
    top: floats(1)  # how far out that is
    row: floats("d + 2")  # scratch


def start_search(step, scales, n_tune, m):
    """Return the first Shape, and a fresh Search, whose phases end with draws."""
    d, of_draw = scales.size, step.steps_per_draw

    def whole_draws(n):
        return int(n) // of_draw * of_draw

    walk_end = whole_draws(WALK_END * n_tune)
    n_searching = int((SEARCH_END - WALK_END) * n_tune)
    length = max(least_search(d), n_searching // MOST_SEARCHES)
    length = whole_draws(length + of_draw - 1)
    target_accept = step.default_target_accept(d)
    shape, tuning = ShapeTuning.start(scales, walk_end, target_accept, best_scale(d))
    search = allocate(
        Search,
        {"d": d, "d + 2": d + 2},
        walk_end=walk_end,
        search_end=walk_end + n_searching // length * length,
        learning_end=whole_draws(LEARNING_END * n_tune),
        length=length,
        n_scanning=max(1, int(SCAN_SHARE * length) // N_LOOKS) * N_LOOKS,
        n_cooling=int(COOLING_SHARE * length),
        shape=tuning,
        history=History.empty(max(2000, 8 * m), d + 2),
        negligible=10.0 + 3.0 * d,
        home_logp=-np.inf,
        floor=-np.inf,
    )
    return shape, search


def least_search(d):
    """Return the transitions of the shortest search that finds a mode, and settles there."""
    return 80 + 48 * d


# ---- moves --------------------------------------------------------------------------------------


@jit
def searches(search, t):
    """Whether transition t is one of the search."""
    return search.walk_end <= t < search.search_end


@jit
def learns(parameters, search, t):
    """Whether the clusters are learned by transition t."""
    return parameters.clusters.n[0] > 0 and search.search_end <= t < search.learning_end


@jit
def search_move(target, state, parameters, search, work, t, rng):
    """Look along a ray, kick, or make a step of a walk at the temperature of the search."""
    work.move[0] = SEARCH_MOVE  # also the last kick home, when clusters are known
    shape, walk = parameters.kam.subsample.shape, work.kam.walk
    if search.scans[0] == 1:
        return look(target, search, shape, walk, t, rng)
    if search.kick[0] > 0.0:
        if search.log_kick[0] > 0.0:
            normal_step(search.kick[0], shape.factor, walk.xi, walk.step, rng)
        else:
            for i in range(walk.step.size):
                walk.step[i] = search.kick[0] * search.direction[i]
        return annealed_move(target, state, parameters, search.home, work, np.inf, rng)
    temperature = temperature_at(search, t)
    scale = np.sqrt(temperature) * np.exp(shape.log_scale[0])
    normal_step(scale, shape.factor, walk.xi, walk.step, rng)
    return annealed_move(target, state, parameters, state.x, work, temperature, rng)


@jit
def look(target, search, shape, walk, t, rng):
    """Look how high the log-density is at the next point of a ray from home; do not move."""
    k = ((t - search.walk_end) % search.length) % N_LOOKS
    if k == 0:
        draw_direction(search, shape.factor, walk, rng)
        search.reach[0] = NEAREST_KICK * LOOK_FACTOR ** (rng.random() - 1.0)
        search.lowest[0] = search.home_logp[0]
        search.highest[0] = -np.inf
    search.reach[0] *= LOOK_FACTOR
    for i in range(walk.y.size):
        walk.y[i] = search.home[i] + search.reach[0] * search.direction[i]
    logp = log_density(target, walk.y)
    if logp < search.lowest[0]:
        search.lowest[0] = logp
    elif logp > max(search.lowest[0] + VALLEY_DEPTH, search.highest[0]):
        search.highest[0] = logp
        search.top[0] = search.reach[0]
    return 0.0, False


@jit
def draw_direction(search, factor, walk, rng):
    """Draw the direction of a ray: any, or that of a coordinate, in its standard deviations."""
    d = search.direction.size
    normal_step(1.0, factor, walk.xi, search.direction, rng)
    if rng.random() < 0.5:
        i = int(rng.random() * d)
        variance = squared_norm(factor[i, : i + 1])
        for k in range(d):
            search.direction[k] = 0.0
        search.direction[i] = np.sqrt(variance) * (1.0 if walk.xi[i] > 0.0 else -1.0)


@jit
def temperature_at(search, t):
    """T, which falls from that of the kick to 1, and stays there."""
    place = (t - search.walk_end) % search.length - search.n_scanning
    cooled = place / search.n_cooling * max(search.log_kick[0], np.log(FAR_KICK))
    return np.exp(2.0 * max(0.0, search.log_kick[0] - cooled))


@jit
def annealed_move(target, state, parameters, origin, work, temperature, rng):
    """Accept or reject the step from `origin` with min(1, (π(y)/π(x))^{1/T})."""
    walk = work.kam.walk
    for i in range(state.x.size):
        walk.y[i] = origin[i] + walk.step[i]
    logp_y = log_density(target, walk.y)
    surplus = (logp_y - state.logp[0]) * (1.0 / temperature - 1.0)
    accept_prob, accepted = accept(target, state, walk.y, logp_y, surplus, rng)
    if accepted:
        kam.derived(state, parameters.kam, work.kam)
    return accept_prob, accepted


@jit
def learning_move(target, state, parameters, work, rng):
    """Make a difference, a jump, or a step of a walk with the covariance of the cluster at x."""
    clusters, r = parameters.clusters, rng.random()
    if r < LEARNING_SHARE:
        work.move[0] = int(rng.random() * (SINGLE_DIFFERENCE + 1))
        return difference(target, state, parameters, work, work.move[0], rng)
    if clusters.n[0] > 1 and r > 1.0 - LEARNING_SHARE:
        work.move[0] = JUMP
        return jump(target, state, parameters, work, rng)
    work.move[0] = LOCAL_MOVE
    nearest = nearest_cluster(clusters, state.x, work.log_r, work.kam.walk.v)
    scale = np.exp(parameters.kam.subsample.shape.log_scale[0])
    return walk_step(target, state, parameters, scale, clusters.factors[nearest], work, rng)


# ---- adaptation ---------------------------------------------------------------------------------


@jit
def search_and_learn(state, parameters, search, work, accept_prob, t, rng):
    """Learn from transition t of the phases before the last one.

    Up to walk_end an adaptive random walk learns the shape of the mode where the chain begins. Up
    to search_end, kicks and annealing look for others. Then Python finds the modes
    (`learn_modes`), and up to learning_end walks, differences and jumps learn their means and
    covariances. Without modes the walk goes on.
    """
    shape = parameters.kam.subsample.shape
    search.kick[0] = 0.0
    if searches(search, t):
        follow_search(state, shape, search, accept_prob, t, rng)
    elif learns(parameters, search, t):
        learn_clusters(state, parameters, search, work, accept_prob, t)
    else:
        learn_shape(shape, search.shape, state.x, accept_prob, t, work.kam.walk.v)
        if t == search.walk_end - 1:
            search.log_walk[0] = shape.log_scale[0]
            settle_home(state, search)
    if search.walk_end // 2 <= t < search.walk_end or search.search_end <= t < search.learning_end:
        archive(state, search, t)
    if searches(search, t + 1) and (t + 1 - search.walk_end) % search.length == 0:
        search.kick[0], search.scans[0] = 0.0, 1


@jit
def follow_search(state, shape, search, accept_prob, t, rng):
    """Kick after looking, tune the walk, and archive where it is once it has cooled down."""
    place, scale = (t - search.walk_end) % search.length, search.shape.scale
    if search.scans[0] == 1:
        if (place + 1) % N_LOOKS == 0:
            if search.highest[0] > -np.inf:
                search.kick[0], search.log_kick[0] = search.top[0], 0.0
            elif place + 1 >= search.n_scanning:
                draw_kick(search, rng)
            search.scans[0] = search.kick[0] == 0.0
        return
    if place > 0:
        tune_scale(shape.log_scale, scale, 0, accept_prob, SEARCH_GAIN)
    if place > (search.n_scanning + search.n_cooling + search.length) // 2:
        archive(state, search, t)
    if place == search.length - 1:
        shape.log_scale[0] = search.log_walk[0]
        settle_home(state, search)


@jit
def draw_kick(search, rng):
    """Draw the kick of the next transition."""
    low, high = np.log(NEAREST_KICK), np.log(FAR_KICK)
    if rng.random() < FAR_KICK_SHARE:
        low, high = high, np.log(FARTHEST_KICK)
    search.log_kick[0] = low + (high - low) * rng.random()
    search.kick[0] = np.exp(search.log_kick[0])


@jit
def settle_home(state, search):
    """Make x the home, or let the next kick lead there if the density of x is negligible."""
    if state.logp[0] > search.home_logp[0] - search.negligible:
        copy(state.x, search.home)
        search.home_logp[0] = state.logp[0]
    else:
        search.kick[0] = TINY  # back to where the last search ended


@jit
def archive(state, search, t):
    """Record x, its logp, and the number of the search."""
    d = state.x.size
    copy(state.x, search.row)
    search.row[d] = state.logp[0]
    search.row[d + 1] = max(0, (t - search.walk_end) // search.length + 1)
    record(search.history, search.row)


@jit
def learn_clusters(state, parameters, search, work, accept_prob, t):
    """Learn mean and covariance of the cluster where the chain is, and tune the walk."""
    clusters, v = parameters.clusters, work.kam.walk.v
    if work.move[0] == LOCAL_MOVE:
        log_scale = parameters.kam.subsample.shape.log_scale
        eta = gain(GOOD_GUESS + t - search.search_end)
        tune_scale(log_scale, search.shape.scale, 0, accept_prob, eta)
    if state.logp[0] < search.floor[0]:
        return
    i = nearest_cluster(clusters, state.x, work.log_r, v)
    search.visits[i] += 1.0
    eta = 1.0 / max(16.0 * state.x.size, search.visits[i] / 1.5)
    update_mean_and_factor(clusters.means[i], clusters.factors[i], state.x, eta, v)
