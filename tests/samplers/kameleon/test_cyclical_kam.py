"""CyclicalKAM against the slow version from its definition, on the same random numbers."""

import copy
from functools import cache
from itertools import product
from types import FunctionType, ModuleType

import numpy as np
import pymc as pm
import pytest
import reference
import runs
from invariance import Mixture, invariance_p_value, moved_fast
from kameleon import banana_model
from models import Counting, black_box
from reference import assert_equal
from runs import driven as run
from scipy.spatial.distance import pdist
from test_contract import sample

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import multiply_lower, solve_lower
from pymc_kameleon.core.metropolis import accept, accept_capped, normal_step
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon import cyclical_kam, kam, learn_modes, mode_moves, mode_search
from pymc_kameleon.samplers.kameleon.rkhs import kernel_covariance
from pymc_kameleon.step.initial_search import InitialSearch

# ---- targets --------------------------------------------------------------------------------

CORRELATED = np.array([[1.0, 0.9], [0.9, 1.5]])
LINE = Mixture([0.4, 0.6], [[-3], [4]], [0.3, 2])
PLANE = Mixture(
    [0.3, 0.5, 0.2], [[-8, 0], [8, 0], [0, 9]], [0.5, 2 * CORRELATED, np.diag([3, 0.1])]
)
SPACE = Mixture([0.5, 0.5], [[0, 0, 0], [9, -5, 2]], [np.diag([1, 0.01, 4]), 1])
NORMAL = Mixture([1.0], [[3, -1]], [CORRELATED])
NORMAL_LINE = Mixture([1.0], [[5]], [1e-4])


@cache
def pair(d, distance=16, weight=0.5, variance=1.0):
    """Two modes, one of unit variance."""
    means = np.zeros((2, d))
    means[1, 0] = distance
    return Mixture([weight, 1 - weight], means, [1, variance])


class Banana:
    """A target of one curved mode."""

    means = np.zeros((1, 2))

    build = staticmethod(banana_model)


BANANA = Banana()

# ---- the compiled sampler -------------------------------------------------------------------


@cache
def _made(target, options):
    return pk.CyclicalKAM(model=target.build(), **{"cycle_length": 100} | dict(options))


def started(target, n_tune, seed=1, steps_per_draw=1, draws=1, **options):
    """Return a step at the start of a chain."""
    step = _made(target, tuple(options.items()))
    step.steps_per_draw = steps_per_draw
    step.setup_chain(np.random.default_rng(seed), n_tune // steps_per_draw, draws)
    return step


def tune(target, n_tune, x=None, seed=1, **options):
    """Tune in draws of 10 transitions, from a little beside the first mode; return the step."""
    step = started(target, n_tune, seed, 10, **options)
    run(step, n_tune // 10, target.means[0] + 0.1 if x is None else x)
    step.stop_tuning()
    return step


def frozen(target, only=None, n=100, **options):
    """Return a step of one transition per draw as if it were tuned: parameters from exact draws.

    So it does not depend on which modes a search finds. z is drawn from the modes `only`.
    """
    step = started(target, 0, **options)
    learn_from_draws(step, target, only, n)
    return step


def learn_from_draws(step, target, only=None, n=100):
    """Fill the parameters from n points of each mode; weights and z are not quite right."""
    rng, p, k = np.random.default_rng(5), step.parameters, len(target.means)
    d = target.means.shape[1]
    modes = [Mixture([1.0], [m], [f @ f.T]).sample(rng, n) for m, f in target.modes]
    p.clusters.n[0] = k
    p.clusters.log_weights[:k] = np.log(target.weights**0.5 / np.sum(target.weights**0.5))
    p.clusters.means[:k] = [x.mean(axis=0) for x in modes]
    covariances = [np.atleast_2d(np.cov(x, rowvar=False)) for x in modes]
    p.clusters.factors[:k] = np.linalg.cholesky(covariances)
    subsample = p.kam.subsample
    subsample.shape.factor[:] = np.linalg.cholesky(np.mean(covariances, axis=0))
    points = np.concatenate(modes if only is None else [modes[i] for i in only])
    p.global_factor[:] = np.linalg.cholesky(np.atleast_2d(np.cov(points, rowvar=False)))
    m = subsample.m[0] = min(subsample.z.shape[1], len(points))
    z = np.linalg.solve(subsample.shape.factor, rng.permutation(points)[:m].T)
    subsample.z[:, :m] = z
    if np.isnan(subsample.kernel.bandwidth[0]):
        subsample.kernel.bandwidth[0] = 1.0
    subsample.shape.log_scale[0] = np.log(0.25 * 2.38 / np.sqrt(d))  # as s is about 1
    trace = np.mean([np.trace(reference.KernelWalk(step).kernel_covariance(u)) for u in z.T])
    p.kam.nu0[0] = 2.38 / np.sqrt(trace)


def use_maps(step, maps):
    step.parameters.n_maps[0] = len(maps)
    for k, matrix in enumerate(maps):
        step.parameters.maps[k] = matrix


def n_modes(step):
    return step.parameters.clusters.n[0]


# ---- transition -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("target", "options"),
    [
        (LINE, {}),
        (PLANE, {}),
        (SPACE, {}),
        (NORMAL, {}),
        (NORMAL_LINE, {"cycle_length": 10, "beta": 0.5}),
        (PLANE, {"kernel": pk.samplers.kernels.Matern(1.5), "cycle_length": 50, "beta": 0.9}),
        (SPACE, {"kernel": pk.samplers.kernels.Linear(), "cycle_length": 20, "beta": 0.5}),
        (SPACE, {"n_subsample": 9, "cycle_length": 7, "beta": 0.5}),
        (PLANE, {"cycle_length": 2, "beta": 0.5}),
        (LINE, {"cycle_length": 3, "beta": 0.99}),
        (PLANE, {"maps": [np.diag([-1.0, 1.0]), np.array([[0.0, 1.0], [1.0, 0.0]])]}),
        (NORMAL, {"maps": [np.diag([1.0, -1.0])]}),
    ],
)
def test_transitions_by_hand(target, options):
    """From a start of its own, so that what the state derives from the position is new."""
    maps, options = options.get("maps", []), {k: v for k, v in options.items() if k != "maps"}
    step, start = frozen(target, **options), target.means[0] + 0.1 * target.factors[0][0]
    use_maps(step, maps)
    expected_chain = reference.CyclicalKAM(step)
    assert len(expected_chain.means) == len(target.means)
    first = expected_chain.position
    step.rng = np.random.default_rng(7)
    positions, stats, _ = run(step, 500, start)
    expected, alphas = expected_chain.follow(
        target.log_density, positions, start, np.random.default_rng(7)
    )
    np.testing.assert_allclose(positions, expected, rtol=1e-7, atol=1e-9)
    assert step.state.position[0] == (first + 500) % expected_chain.length

    accepted = np.any(expected != [start, *positions[:-1]], axis=1)
    np.testing.assert_array_equal(stats["accept_share"], accepted)
    moves = np.array(expected_chain.moves)
    kinds = {"kam", "ladder", "walk", "difference", *(["jump"] * (len(target.means) > 1))}
    kinds |= {"mirror"} if maps else set()
    assert set(moves) == kinds
    assert {"kam", "difference"} <= set(moves[accepted])
    assert "jump" in moves[accepted] or len(target.means) == 1
    # A rejection that KAM's moves see early reports 0, one that they do not at least α.
    reported, of_kam = stats["accept_prob"], np.isin(moves, ["kam", "ladder"])
    np.testing.assert_allclose(reported[~of_kam], alphas[~of_kam], rtol=1e-6, atol=1e-12)
    assert ((reported == 0) | (reported >= alphas * (1 - 1e-6))).all()

    assert (stats["n_logp"][1:] == 1).all()
    np.testing.assert_allclose(stats["scaling"], expected_chain.nu)
    np.testing.assert_allclose(stats["bandwidth"], expected_chain.bandwidth)
    assert (stats["n_modes"] == len(target.means)).all()
    nearest = [np.argmax(expected_chain.responsibilities(x)) for x in positions]
    np.testing.assert_array_equal(stats["mode"], nearest)


# ---- the cycle ------------------------------------------------------------------------------


def test_the_cycle_goes_on_from_draw_to_draw():
    """The chain is the same whatever steps_per_draw is, and wherever it is saved."""
    step = frozen(PLANE)
    step.state.position[0] = 13
    saved = step.sampling_state
    first = saved.state.position[0]
    start, chains = PLANE.means[1], {}
    for n in [1, 7, 210]:
        step.sampling_state = saved
        step.steps_per_draw = n
        step.rng = np.random.default_rng(2)
        chains[n], _, places = run(step, 420 // n, start, lambda s: int(s.state.position[0]))
        assert places == [(first + n * (i + 1)) % 100 for i in range(420 // n)]
    np.testing.assert_array_equal(chains[1][6::7], chains[7])
    np.testing.assert_array_equal(chains[1][209::210], chains[210])

    step.steps_per_draw = 7
    step.sampling_state = saved
    step.rng = np.random.default_rng(2)
    run(step, 11, start)
    midway = step.sampling_state
    assert midway.state.position[0] == (first + 77) % 100
    rng = copy.deepcopy(step.rng)
    step.sampling_state = saved
    step.sampling_state = midway
    step.rng = rng
    again, _, _ = run(step, 49, chains[7][10])
    np.testing.assert_array_equal(again, chains[7][11:])


def test_the_number_of_draws_changes_nothing():
    one, other = (
        run(started(PLANE, 3000, steps_per_draw=10, draws=draws), 320, PLANE.means[0])[0]
        for draws in (20, 5000)
    )
    np.testing.assert_array_equal(one, other)


# ---- what a chain says ----------------------------------------------------------------------


def findings(nowhere):
    """Return what a chain tells whose second cluster is where nothing is, or the second mode."""
    step = frozen(pair(2))
    clusters = step.parameters.clusters
    if nowhere:
        clusters.means[1] = nowhere
    run(step, 1500, [0.1, 0.1])
    return step._findings(), step.state.jumps


def test_jumps_of_which_none_is_accepted_are_told():
    [found], jumps = findings([0, 30])
    assert (found.code, found.numbers["tried"]) == ("no_jump", jumps[0])
    assert "Tuning found 2 modes" in found.what
    assert jumps[1] == 0 < 100 < jumps[0]


def test_jumps_between_parts_of_one_mode():
    found, jumps = findings([0.1, 0.1])
    assert found == []
    assert jumps[1] > 0


def test_jumps_are_counted_from_the_end_of_tuning_on():
    step = tune(pair(2), 8000)
    assert n_modes(step) == 2
    np.testing.assert_array_equal(step.state.jumps, 0)
    run(step, 100, [0.1, 0.1])
    tried, accepted = step.state.jumps
    assert tried > accepted > 0


# ---- exact invariance -----------------------------------------------------------------------


@cache
def bimodal(weight):
    return Mixture([weight, 1 - weight], [[-2.5, 0], [2.5, 1]], [0.5, CORRELATED])


BOTH = bimodal(0.2)
LINES = Mixture([0.3, 0.7], [[-2], [3]], [0.3, 1.5])
DIMENSIONS = [
    pytest.param(LINES, id="1-d"),
    pytest.param(BOTH, id="2-d", marks=pytest.mark.slow),
]
MOVES = {
    "kam": mode_moves.WIDE_KAM,
    "jump": mode_moves.JUMP,
    "difference": mode_moves.ALL_DIFFERENCE,
    "whitened": mode_moves.WHITENED_DIFFERENCE,
    "single": mode_moves.SINGLE_DIFFERENCE,
    "global": mode_moves.GLOBAL_WALK,
    "mirror": mode_moves.MIRROR,
    "any": -1,
}
FLAWS = ["none", "jump", "hastings", "gamma", "restart"]


def twin(function, **changes):
    """Compile a function of the package with other globals."""
    function = function.py_func
    changed = FunctionType(function.__code__, function.__globals__ | changes)
    changed.__module__ = __name__  # so that it is not mistaken for the original on disk
    return jit(changed)


MOVE, FLAW = -1, -2
"""Where the twin looks what to do: weights of clusters that do not exist."""


@jit
def draw_the_same(parameters, rng):
    """Explore always by the move that the twin is told."""
    move = int(parameters.clusters.log_weights[MOVE])
    return cyclical_kam.draw_move(parameters, rng) if move < 0 else move


@jit
def accept_without_ratio(target, state, parameters, work, log_hastings, rng):
    return mode_moves.accept_derived(target, state, parameters, work, 0.0, rng)


@jit
def no_bound(distance2, gamma, d):
    """Let nothing be rejected early."""
    return np.inf


@jit
def accept_without_hastings(target, state, y, logp_y, log_hastings, log_u, cap):
    return accept_capped(target, state, y, logp_y, 0.0, log_u, cap)


@jit
def see_from(subsample, x, u, covariance, v):
    """Write u = C⁻¹x and S(u)."""
    solve_lower(subsample.shape.factor, x, u)
    kernel_covariance(subsample.kernel, subsample.z, subsample.m[0], u, covariance, v)


@jit
def move_with_another_gamma(target, state, subsample, work, rng, gamma, nu):
    """Take the γ at the end of the ladder for that of the way back."""
    local, step, y = state.local, work.walk.step, work.walk.y
    kam.factorise(local.covariance, gamma, nu, local.factor)
    local.scales[0] = np.nan
    normal_step(1.0, local.factor, work.walk.xi, step, rng)
    for i in range(step.size):
        work.u[i] = local.u[i] + step[i]
    multiply_lower(subsample.shape.factor, work.u, y)
    logp_y = log_density(target, y)
    see_from(subsample, y, work.u, work.covariance, work.v)
    kam.factorise(work.covariance, np.exp(subsample.shape.log_scale[0]), nu, work.factor)
    log_hastings = kam.log_normal(step, work.factor) - kam.log_normal(step, local.factor)
    result = accept(target, state, y, logp_y, log_hastings, rng)
    see_from(subsample, state.x, local.u, local.covariance, work.v)
    return result


def with_move(move):
    """Return the module of KAM with another move."""
    module = ModuleType("other_kam")
    vars(module).update(vars(kam) | {"move": move})
    return module


def flawed(**changes):
    return twin(cyclical_kam.transition, draw_move=draw_the_same, **changes)


as_it_is = flawed()
jump_flaw = flawed(jump=twin(mode_moves.jump, accept_derived=accept_without_ratio))
hastings_flaw = flawed(
    kam=with_move(twin(kam.move, log_reverse_bound=no_bound, accept_capped=accept_without_hastings))
)
gamma_flaw = flawed(kam=with_move(move_with_another_gamma))


@jit
def transition_perhaps_wrong(target, state, parameters, work, rng):
    """Make a transition with the flaw that the twin is told."""
    flaw = int(parameters.clusters.log_weights[FLAW])
    if flaw == 1:
        return jump_flaw(target, state, parameters, work, rng)
    if flaw == 2:
        return hastings_flaw(target, state, parameters, work, rng)
    if flaw == 3:
        return gamma_flaw(target, state, parameters, work, rng)
    accept_prob, accepted = as_it_is(target, state, parameters, work, rng)
    if accepted and flaw == 4:
        state.position[0] = 0
    return accept_prob, accepted


@jit
def adapt_nothing(state, parameters, tuning, work, accept_prob, rng):
    pass


class Twin(pk.CyclicalKAM):
    """The sampler after tuning, with moves alone and with flaws."""

    name = "twin"
    algorithm = pk.CyclicalKAM.algorithm._replace(
        transition=transition_perhaps_wrong, adapt=adapt_nothing, tuning_transition=None
    )


@cache
def _twin(target):
    return Twin(model=target.build())


def p_value(
    target,
    length=20,
    n_exploration=None,
    move="any",
    flaw="none",
    only=None,
    cycles=1,
    n=20_000,
    stretch=1.0,
):
    """Put exact draws through whole cycles."""
    step = _twin(target)
    step.steps_per_draw = length * cycles
    step.setup_chain(np.random.default_rng(3), 0, n)
    learn_from_draws(step, target, only)
    use_maps(step, [-stretch * np.eye(target.means.shape[1])])
    if n_exploration is None:
        n_exploration = 3 * length // 10
    step.parameters = step.parameters._replace(cycle_length=length, n_exploration=n_exploration)
    step.parameters.clusters.log_weights[MOVE] = MOVES[move]
    step.parameters.clusters.log_weights[FLAW] = FLAWS.index(flaw)
    return invariance_p_value(lambda x: moved_fast(step, x), target, n)


@pytest.mark.slow
@pytest.mark.parametrize("move", list(MOVES)[:-1])
@pytest.mark.parametrize("target", DIMENSIONS)
def test_each_move_alone_is_exact(target, move):
    """KAM's down the whole ladder."""
    assert p_value(target, 20, 19, move) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("target", DIMENSIONS)
def test_a_mirror_that_stretches_fails(target):
    """As it is neither its own inverse nor keeps volumes."""
    assert p_value(target, 20, 19, "mirror", stretch=1.3) < 1e-4


@pytest.mark.parametrize(
    ("weight", "length"),
    [
        (0.2, 20),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in product((0.2, 0.5, 0.8), (20, 50, 100))
            if case != (0.2, 20)
        ),
    ],
)
def test_cycles_are_exact(weight, length):
    assert p_value(bimodal(weight), length, n=10_000) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "only"),
    [(LINES, None), (LINES, [0]), (BOTH, [0]), (BOTH, [1]), (NORMAL, None)],
)
@pytest.mark.parametrize("length", [20, 50])
def test_cycles_are_exact_whatever_was_learned(target, only, length):
    """From one mode or both; at the lengths at which the published ones are not."""
    assert p_value(target, length, only=only) > 1e-3


ONCE, OFTEN = (20, 19, 1), (5, 1, 5)
"""The length of a cycle, how much of it explores, and how many there are."""


@pytest.mark.parametrize(
    ("flaw", "move", "cycles"),
    [
        ("jump", "jump", ONCE),
        ("hastings", "kam", ONCE),
        ("gamma", "kam", ONCE),
        ("restart", "jump", OFTEN),
    ],
)
@pytest.mark.parametrize("target", DIMENSIONS)
def test_broken_twins_fail(target, flaw, move, cycles):
    """Jumps without their ratio, KAM without its own or with the wrong γ in it, and a restart.

    A cycle must not begin again when a move is accepted.
    """
    length, n_exploration, n = cycles
    assert p_value(target, length, n_exploration, move, flaw, [0], n) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("move", "cycles"), [("jump", ONCE), ("kam", ONCE), ("jump", OFTEN)])
@pytest.mark.parametrize("target", DIMENSIONS)
def test_without_their_flaws_they_pass(target, move, cycles):
    length, n_exploration, n = cycles
    assert p_value(target, length, n_exploration, move, "none", [0], n) > 1e-3


# ---- tuning ---------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("steps_per_draw", [1, 7, 60])
def test_the_phases_of_tuning_end_where_draws_do(steps_per_draw):
    """At most one draw earlier than they should; what is learned there begins with a draw."""
    n_draws = 7000 // steps_per_draw
    step = started(PLANE, 7000, 2, steps_per_draw, cycle_length=10)
    n_tune = n_draws * steps_per_draw
    ends = [step.tuning.walk_end, step.tuning.learning_end]
    assert [pause * steps_per_draw for pause in step.pauses()] == ends
    for end, share in zip(ends, (cyclical_kam.WALK_END, cyclical_kam.LEARNING_END), strict=True):
        assert 0 <= share * n_tune - end < steps_per_draw

    def look(step):
        subsample = step.parameters.kam.subsample
        return step.tuning.t[0], subsample.m[0], subsample.z.copy()

    _, _, seen = run(step, n_draws, PLANE.means[0], look)
    assert [t for t, _, _ in seen] == [(i + 1) * steps_per_draw for i in range(n_draws)]
    m = np.array([m for _, m, _ in seen])
    assert np.flatnonzero(m)[0] == step.pauses()[0]
    last = step.pauses()[1]
    assert not np.array_equal(seen[last - 1][2], seen[last][2])
    assert np.array_equal(seen[last][2], seen[-1][2])


@pytest.mark.parametrize("draws", [1, 2])
def test_tuning_in_a_draw_or_two_is_a_walk(draws):
    """There is nowhere to pause."""
    step = started(PLANE, 7000, 2, 7000 // draws)
    assert list(step.pauses()) == []
    run(step, draws, PLANE.means[0])
    assert step.parameters.kam.subsample.m[0] == 0


@pytest.mark.parametrize(
    ("d", "variance"),
    [(2, 1.0), *(pytest.param(*case, marks=pytest.mark.slow) for case in [(8, 1.0), (2, 4.0)])],
)
def test_finds_both_of_two_modes(d, variance):
    """From one start, 16 sds apart; and visits them by their weights."""
    found = 0
    for seed in range(8):
        step = tune(pair(d, variance=variance), 10_000, seed=seed)
        clusters = step.parameters.clusters
        found += n_modes(step) == 2 and np.allclose(
            np.sort(clusters.means[:2, 0]), [0, 16], atol=1.5
        )
    assert found >= 7


@pytest.mark.slow
def test_ten_modes():
    angles = 2 * np.pi * np.arange(10) / 10
    means = 40 * np.c_[np.cos(angles), np.sin(angles)]
    target = Mixture(np.full(10, 0.1), means, np.linspace(0.5, 2, 10))
    step = tune(target, 30_000, seed=2)
    clusters = step.parameters.clusters
    distances = np.linalg.norm(clusters.means[: n_modes(step), None] - means, axis=2)
    assert (distances.min(axis=0) < 2).sum() >= 8
    assert n_modes(step) <= 12


def correlated():
    return Mixture([1.0], [np.zeros(10)], [0.01 * np.eye(10) + 0.99])


@pytest.mark.slow
@pytest.mark.parametrize("target", [NORMAL, NORMAL_LINE, correlated()])
@pytest.mark.parametrize("seed", range(3))
def test_one_mode_stays_one(target, seed):
    """So that there are no jumps, and the walks of exploration have its own covariance."""
    step = tune(target, 20_000, seed=seed)
    assert n_modes(step) == 1
    whitening = np.tril(step.parameters.kam.subsample.shape.factor)
    np.testing.assert_allclose(np.tril(step.parameters.global_factor), whitening, rtol=1e-9)
    np.testing.assert_allclose(whitening, target.factors[0], atol=0.35 * target.factors.max())


@pytest.mark.slow
def test_a_banana_is_a_few_modes():
    """Each wide one does not hold the next one's middle, but jumps between them are accepted."""
    start = np.array([1.0, -2.0])
    modes = np.array([n_modes(tune(BANANA, 20_000, start, seed)) for seed in range(10)])
    assert modes.max() <= 4


def test_what_is_learned():
    """C from the covariances within clusters, Σ from all points, z evenly, and what follows."""
    step = tune(pair(2), 10_000, n_subsample=200)
    learned = reference.CyclicalKAM(step)
    assert n_modes(step) == 2
    weights = learned.weights
    assert weights.sum() == pytest.approx(1)
    within = np.einsum("k,kij,klj->il", weights, learned.factors, learned.factors)
    np.testing.assert_allclose(learned.whitening @ learned.whitening.T, within, rtol=1e-8)
    np.testing.assert_allclose(learned.means, [[0, 0], [16, 0]], atol=0.5)
    assert np.sqrt(learned.sigma[0, 0]) == pytest.approx(8, rel=0.1)

    z = learned.z @ learned.whitening.T
    right = z[:, 0] > 8
    assert right.sum() == 100
    within = np.concatenate([pdist(learned.z[right]), pdist(learned.z[~right])])
    # The median is that of all points learned from, of which z is a part.
    assert learned.bandwidth == pytest.approx(np.median(within) / 2, rel=0.15)
    s = 2 * learned.bandwidth / np.sqrt(2 * 2)
    assert learned.gamma == pytest.approx(0.25 * 2.38 / np.sqrt(2) * s)
    trace = np.mean([np.trace(learned.kernel_covariance(u)) for u in learned.z[:50]])
    assert step.parameters.kam.nu0[0] ** 2 == pytest.approx((2.38 * s) ** 2 / trace)
    assert learned.ladder(0) == pytest.approx(20 * s)
    assert learned.ladder(29) == pytest.approx(learned.gamma)


def test_nu_is_tuned_by_the_local_moves_alone():
    """By hand, from the acceptance that they report; and it settles at a mean."""
    n, n_learning = 8000, 6800
    step = started(pair(2), n, 4)

    def look(step):
        return step.parameters.kam.log_rho[0], int(step.state.position[0])

    _, stats, seen = run(step, n, np.full(2, 0.1), look)
    log_rho, expected, settled = 0.0, [], []
    for t in range(n_learning, n):
        if (t - n_learning) % 100 >= 30 and t > n_learning:
            log_rho += (1 + 10 + t - n_learning) ** -0.6 * (stats["accept_prob"][t] - 0.234)
        settled += [log_rho] if t >= (n_learning + n) // 2 else []
        expected.append(log_rho if t < n - 1 else np.mean(settled))
    np.testing.assert_allclose([rho for rho, _ in seen[n_learning:]], expected, rtol=1e-9)
    assert [place for _, place in seen[n_learning:]] == [
        (i + 1) % 100 for i in range(n - n_learning)
    ]


def test_clusters_are_learned_by_hand():
    """As each is visited: the recursion of adaptive Metropolis with a memory of its own."""
    n = 6000
    step = started(pair(2), n, 4)

    def look(step):
        p = step.parameters
        k = p.clusters.n[0]
        factors = np.tril(p.clusters.factors[:k])
        return (
            p.clusters.means[:k].copy(),
            factors @ factors.transpose(0, 2, 1),
            (
                p.clusters.log_weights[:k].copy(),
                step.tuning.visits[:k].copy(),
            ),
        )

    positions, _, seen = run(step, n, np.full(2, 0.1), look)
    first, last = step.tuning.walk_end, step.tuning.learning_end
    means, covariances, (log_weights, visits) = seen[first]
    assert len(means) == 2
    visited = set()
    for t in range(first + 1, last - 1):
        densities = [
            log_weight
            - 0.5 * np.linalg.slogdet(c)[1]
            - 0.5 * (v := positions[t] - m) @ np.linalg.solve(c, v)
            for log_weight, m, c in zip(log_weights, means, covariances, strict=True)
        ]
        i = int(np.argmax(densities))
        visited.add(i)
        visits[i] += 1
        eta = 1 / max(16 * 2, visits[i] / 1.5)
        means[i], covariances[i] = reference.am_update(means[i], covariances[i], positions[t], eta)
    assert visited == {0, 1}
    found_means, found_covariances, (_, found_visits) = seen[last - 2]
    np.testing.assert_allclose(found_means, means, rtol=1e-6)
    np.testing.assert_allclose(found_covariances, covariances, rtol=1e-5)
    np.testing.assert_array_equal(found_visits, visits)


# ---- learning together ----------------------------------------------------------------------


class Alone(pk.CyclicalKAM):
    """The broken twin: each chain learns by itself."""

    name = "alone"
    learns = "alone"


UNEQUAL = Mixture([0.2, 0.8], [[-5] + [0] * 7, [11] + [0] * 7], [0.5, 2])  # no mirror images


def in_two_modes(kind, starts):
    """Run chains from these starts; return the chains' points, and the modes that they know."""
    step, initvals = kind(model=UNEQUAL.build()), [{"x": start} for start in starts]
    options = {"chains": len(starts), "random_seed": 3, "initvals": initvals}
    dt = runs.sample(step, draws=300, tune=200, **options)
    return dt.posterior["x"].values, dt.sample_stats["n_modes"].values[:, -1]


@pytest.fixture
def without_look(monkeypatch):
    """Let chains know other modes from each other alone."""
    monkeypatch.setattr(InitialSearch, "may_look", False)
    monkeypatch.setattr(mode_search, "SEARCH_SHARE", 0.0)


def test_chains_jump_to_what_others_found(without_look):
    """Each of them starts in one mode."""
    x, n = in_two_modes(pk.CyclicalKAM, [*UNEQUAL.means] * 2)
    assert (n == 2).all()
    left = x[:, :, 0] < 0
    assert (np.diff(left, axis=1).sum(axis=1) > 20).all()
    assert abs(left.mean() - 0.2) < 0.08


def test_chains_that_learn_alone_do_not(without_look):
    x, _ = in_two_modes(Alone, [*UNEQUAL.means] * 2)
    jumped = np.diff(x[:, :, 0] < 0, axis=1).any(axis=1)
    assert not jumped.all()


@pytest.mark.parametrize("together", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_n_logp_counts_what_chains_evaluate_when_they_learn(together):
    op = Recording(pair(2).log_density)
    step = pk.CyclicalKAM(model=black_box(op), steps_per_draw=10, pool_tuning=together)
    op.seen.clear()
    options = {"initvals": [{"x": np.full(2, 0.3)}, {"x": np.array([16.0, 0.3])}]}
    options |= {"random_seed": 1, "discard_tuned_samples": False}
    dt = runs.sample(step, draws=5, tune=300, **options)
    counted = [
        dt[group]["n_logp"].values.sum() for group in ("sample_stats", "warmup_sample_stats")
    ]
    assert sum(counted) == len(op.seen)


def learned_from(archives, bad=None):
    """Let chains learn, whose archives are points of a pair of modes; return their steps."""
    target, chains = pair(2), []
    for i, points in enumerate(archives):
        step = started(target, 4000, i).for_chain()
        step.setup_chain(np.random.default_rng(i), 4000, 1)
        fill(step, points, target)
        chains.append(step)
    if bad is not None:
        chains[bad].state.x[:] = 1e4
    pk.CyclicalKAM.learn(chains)
    return chains


def fill(step, points, target):
    rows = np.c_[points, [target.log_density(x) for x in points]]
    history = step.tuning.history
    history.points[: len(rows)], history.counts[0] = rows, len(rows)


def test_all_chains_get_the_same_and_stay_where_they_are():
    """One is so far away that it adds nothing."""
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((2, 300, 2)) + np.array([[[0, 0]], [[16, 0]]])
    far = 1e4 + 1e3 * rng.standard_normal((300, 2))
    chains = learned_from([left, far, right], bad=1)
    for step in chains[1:]:
        assert_equal(step.parameters, chains[0].parameters)
        np.testing.assert_array_equal(step.tuning.visits, chains[0].tuning.visits)
        assert step.tuning.s[0] == chains[0].tuning.s[0] > 0
    np.testing.assert_array_equal(chains[1].state.x, 1e4)
    without = learned_from([left, right])
    assert n_modes(chains[0]) == n_modes(without[0]) == 2
    for one, other in zip(
        chains[0].parameters.clusters, without[0].parameters.clusters, strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-9)
    means = chains[0].parameters.clusters.means[:2]
    np.testing.assert_allclose(means[np.argsort(means[:, 0])], [[0, 0], [16, 0]], atol=0.3)


def test_what_the_chains_learned_of_the_clusters_is_pooled():
    """As if one chain had made all visits."""
    rng = np.random.default_rng(2)
    pools = [rng.standard_normal((300, 2)) + np.array([16 * k, 0]) for k in (0, 1)]
    chains = learned_from(pools)
    sets = [
        [rng.standard_normal((n, 2)) + np.array([16 * k, n / 50]) for k in (0, 1)] for n in (20, 60)
    ]
    for step, own in zip(chains, sets, strict=True):
        clusters, tuning = step.parameters.clusters, step.tuning
        order = np.argsort(clusters.means[:2, 0])
        for k, points in zip(order, own, strict=True):
            clusters.means[k] = points.mean(axis=0)
            clusters.factors[k] = np.linalg.cholesky(np.cov(points.T, bias=True))
            tuning.visits[k] = len(points)
        fill(step, np.concatenate(own), pair(2))
    pk.CyclicalKAM.learn(chains)
    clusters = chains[1].parameters.clusters
    for k in (0, 1):
        both = np.concatenate([sets[0][k], sets[1][k]])
        i = np.argsort(clusters.means[:2, 0])[k]
        np.testing.assert_allclose(clusters.means[i], both.mean(axis=0), rtol=1e-9, atol=1e-9)
        factor = np.tril(clusters.factors[i])
        np.testing.assert_allclose(factor @ factor.T, np.cov(both.T, bias=True), rtol=1e-9)


# ---- the search -----------------------------------------------------------------------------


class Recording(Counting):
    """A black-box log-density that keeps where it was evaluated."""

    def __init__(self, function):
        super().__init__(self.record)
        self.target, self.seen = function, []

    def record(self, x):
        self.seen.append(x.copy())
        return self.target(x)


@pytest.mark.slow
def test_a_narrow_mode_is_found_from_a_wide_one():
    """In many dimensions only a ray comes upon it."""
    known = [n_modes(tune(UNEQUAL, 40_000, UNEQUAL.means[1], seed)) for seed in range(3)]
    assert known.count(2) >= 2


@pytest.mark.parametrize(
    "far",
    [
        pytest.param("impossible", marks=pytest.mark.slow),
        "plain",
        pytest.param("far lower", marks=pytest.mark.slow),
    ],
)
def test_a_search_that_finds_nothing(far):
    """A chain stays in its mode where there is nothing else."""

    def log_density(x):
        r2 = x @ x
        if far == "impossible":
            return -0.5 * r2 if r2 < 40 else -np.inf
        if far == "plain":
            return max(-0.5 * r2, -100.0) if r2 < 1e8 else -np.inf
        return np.logaddexp(-0.5 * r2, -0.5 * np.sum((x - [30, 0]) ** 2) - 60)

    op = Recording(log_density)
    step = pk.CyclicalKAM(model=black_box(op), n_subsample=50)
    step.setup_chain(np.random.default_rng(1), 600, 1)
    op.seen.clear()
    positions, _, _ = run(step, 600, np.full(2, 0.3))
    assert n_modes(step) == 1
    assert np.linalg.norm(positions[-60:], axis=1).max() < 6
    assert far == "impossible" or np.linalg.norm(op.seen, axis=1).max() > 10


@pytest.mark.slow
def test_a_mode_of_few_points():
    """That a search hardly touched, as a narrow one, does not break what follows."""
    step = tune(Mixture([0.5, 0.5], [[0, 0], [8, 8]], [1, 1e-4]), 8000)
    assert np.isfinite(step.parameters.global_factor).all()
    for seed in range(3):
        step = tune(Mixture([0.999, 0.001], [[0, 0], [14, 0]], [1, 1e-2]), 4000, seed=seed)
        assert np.isfinite(step.parameters.clusters.factors).all()


@pytest.mark.slow
def test_a_chain_that_moves_only_after_the_search():
    """It learned no clusters then; it remains a walk, or learns them later."""
    stuck = [True]
    op = Counting(lambda x: -np.inf if stuck[0] and (x != 0.3).any() else -0.5 * x @ x)
    step = pk.CyclicalKAM(model=black_box(op), steps_per_draw=10)
    step.setup_chain(np.random.default_rng(1), 600, 100)
    run(step, 400, np.full(2, 0.3))
    stuck[0] = False
    positions, _, _ = run(step, 200, np.full(2, 0.3))
    step.stop_tuning()
    _, stats, _ = run(step, 100, positions[-1])
    assert stats["accept_share"].mean() > 0.05
    assert np.isfinite(stats["scaling"]).all()


@pytest.mark.parametrize("driver", [pm.sample, pk.sample], ids=["pm.sample", "pk.sample"])
@pytest.mark.parametrize("kind", [ValueError, np.linalg.LinAlgError])
def test_what_the_likelihood_raises_while_modes_are_found_reaches_the_user(
    driver, kind, fragile, monkeypatch
):
    step, raises = fragile
    found = learn_modes.find_modes

    def find_modes(*arguments):
        raises.append(kind("the solver broke down"))
        return found(*arguments)

    monkeypatch.setattr(learn_modes, "find_modes", find_modes)
    with pytest.raises(kind, match="the solver broke down") as error:
        sample(step, step.model, driver, tune=200)
    if driver is pk.sample:
        assert error.value.__notes__[0] == "While the chains learned together."


@pytest.fixture(scope="module")
def fragile():
    """A step whose log-density raises, once, what is put into a list."""
    raises = []

    def log_density(x):
        if raises:
            raise raises.pop()
        return -0.5 * x @ x

    return pk.CyclicalKAM(model=black_box(Counting(log_density)), steps_per_draw=10), raises


def test_points_of_no_finite_width_leave_a_walk(fragile):
    step, _ = fragile
    step.setup_chain(np.random.default_rng(1), 200, 1)
    history = step.tuning.history
    history.points[:6, :2] = 1e160 * np.arange(12.0).reshape(6, 2)
    history.counts[0] = 6
    step.learn([step])
    assert step.parameters.kam.subsample.m[0] == step.parameters.clusters.n[0] == 0
