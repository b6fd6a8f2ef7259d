"""SurrogateMetropolis: its fit, its transition against a slow version, exactness, and learning."""

from copy import deepcopy
from functools import cache
from itertools import product

import numpy as np
import pymc as pm
import pytest
import reference
from invariance import TARGETS, invariance_p_value, log_banana, moved_fast, tuned
from models import Blind, black_box, normal, normal_model
from runs import assert_same, codes, done_of, resume, sample
from slow_modes import SlowModes, set_modes

import pymc_kameleon as pk
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.samplers.surrogate import (
    findings,
    learning,
)
from pymc_kameleon.samplers.surrogate import (
    fit as surrogate_fit,
)
from pymc_kameleon.samplers.surrogate import (
    inner_chain as surrogate_inner_chain,
)
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.fit import Hyper
from pymc_kameleon.samplers.surrogate.inner_chain import Parameters, inner_chain
from pymc_kameleon.samplers.surrogate.metropolis import Work
from pymc_kameleon.step.warm_start.approach import NEAR_TRIES, evaluations_for_own_search

# ---- the fit --------------------------------------------------------------------------------


def quadratic(u):
    """A normal log-density that is neither centred nor of the same scale in all directions."""
    v = u @ np.array([[1.2, 0.3], [0.0, 0.7]]) - [0.4, -0.2]
    return 1.5 - np.sum(v * v, axis=1) / 2


def smooth(u):
    return -np.log(np.cosh(1.5 * u[:, 0])) - np.sum(u**2, axis=1) / 4 + 0.5 * np.sin(u[:, 1])


def banana(u):
    return -(u[:, 0] ** 2) / 2 - 8 * (u[:, 1] - 0.5 * u[:, 0] ** 2 + 0.5) ** 2


def points(n, d=2, seed=1):
    return np.random.default_rng(seed).standard_normal((n, d))


def fitted(u, f, n_rounds=3, **changes):
    """Return a surrogate, the choice and its error; the choice begins with `changes`."""
    n, d = u.shape
    surrogate = allocate(Surrogate, {"d": d, "m": n + 2}, nu=8.0)
    hyper = Hyper.start(d)._replace(**changes)
    counts = np.ones(n, bool)
    nu = surrogate.nu[0]
    return surrogate, *surrogate_fit.fit(surrogate, u, f, counts, hyper, nu, n_rounds=n_rounds)


@pytest.mark.parametrize(
    ("function", "at_points", "elsewhere"), [(quadratic, 1e-4, 1e-4), (smooth, 0.01, 0.02)]
)
def test_noise_free_values_are_interpolated(function, at_points, elsewhere):
    u, others = points(80), 0.7 * points(200, seed=2)
    surrogate, _, error = fitted(u, function(u))
    near = np.sum(u**2, axis=1) < 4
    assert np.abs(surrogate_fit.values(surrogate, u) - function(u))[near].max() < at_points
    off = surrogate_fit.values(surrogate, others) - function(others)
    assert np.sqrt(np.mean(off**2)) < elsewhere  # where points are few it is more
    assert error < elsewhere


CHOICES = [
    Hyper(True, 1.5, 3.0, 1e-3, 2.0, (1.0, 4.0)),
    Hyper(False, 3.0, 30.0, 0.03, 6.0, (2.0, 0.5)),
]


@pytest.mark.parametrize("hyper", CHOICES)
def test_errors_are_those_of_fits_without_each_point(hyper):
    """By brute force: solve for each point anew, and weigh and limit the errors."""
    u = points(25)
    f = banana(u)
    counts = np.arange(25) % 3 > 0
    problem = surrogate_fit._Problem(u, f, counts, 8.0)
    k, residual, errors = problem.covariance(hyper), problem.residual(hyper), np.empty(25)
    for i in range(25):
        rest = np.arange(25) != i
        alpha = np.linalg.solve(k[np.ix_(rest, rest)], residual[rest])
        errors[i] = residual[i] - k[i, rest] @ alpha
    weights = counts * np.exp(-np.maximum(-f, 0) / surrogate_fit.SCORED_RANGE)
    errors -= np.average(errors, weights=weights)
    errors = np.minimum(np.abs(errors), surrogate_fit.LARGEST_ERROR)
    assert problem.error(hyper) == pytest.approx(np.average(errors, weights=weights), rel=1e-6)
    assert errors.max() == surrogate_fit.LARGEST_ERROR


@pytest.mark.parametrize("hyper", CHOICES)
def test_the_surrogate_is_the_mean_of_the_gaussian_process(hyper):
    """Though its polynomial is collapsed to a constant, a slope and a Hessian."""
    u, f, at = points(30), smooth(points(30)), 2 * points(20, seed=3)
    surrogate, found, _ = fitted(u, f, n_rounds=0, **hyper._asdict())
    assert found == hyper
    surrogate.bounds[:] = -1e9, 1e9

    def log_t(v):
        return -(8 + 2) / 2 * np.log1p(np.sum(v * v, axis=1) / 8)

    def prior(a, b):
        """Covariance of the values at a and at b, by its definition."""
        w = np.array(hyper.stretch) / (hyper.length * np.sqrt(2))
        squares = np.sum(((a[:, None] - b) * w) ** 2, axis=2)
        k = hyper.amplitude * hyper.length**4 / (1 + squares)
        constant, linear, second = surrogate_fit.PRIOR_VARIANCES
        k += constant
        if hyper.on_quadratic:
            k += linear * a @ b.T
            for i, j in ((0, 0), (0, 1), (1, 1)):
                c = 0.25 if i == j else 1.0
                k += second * c * np.outer(a[:, i] * a[:, j], b[:, i] * b[:, j])
        return k

    base = (lambda v: -np.sum(v * v, axis=1) / 2) if hyper.on_quadratic else log_t
    noise = hyper.noise / (np.exp(-np.maximum(-f, 0) / hyper.range) + surrogate_fit.LEAST_WEIGHT)
    alpha = np.linalg.solve(prior(u, u) + np.diag(noise), f - base(u))
    expected = base(at) + prior(at, u) @ alpha
    np.testing.assert_allclose(surrogate_fit.values(surrogate, at), expected, atol=1e-5)


@pytest.mark.slow
def test_a_banana_is_fitted_by_stretched_coordinates(monkeypatch):
    """Errors are small either way: which is the smaller one, and what is chosen, may be chance."""
    ratios = []
    for seed in range(7):
        u = points(300, seed=seed)
        u[:, 1] = 0.5 * (u[:, 0] ** 2 - 1) + u[:, 1] / 4
        _, _, error = fitted(u, banana(u))
        with monkeypatch.context() as patched:
            patched.setattr(surrogate_fit, "_stretched", lambda hyper, k: ())
            _, plain, error_without = fitted(u, banana(u))
        assert plain.stretch == (1, 1)
        ratios.append(error / error_without)
    assert np.median(ratios) < 1


@pytest.mark.parametrize("d", [1, 2, 6])
def test_few_points_are_enough_to_begin_with(d):
    for n in {1, 2, d, d + 2}:
        u = points(n, d)
        f = -np.sum(u * u, axis=1) / 2
        surrogate, _, error = fitted(u, f)
        at = points(50, d, seed=2)
        found = surrogate_fit.values(surrogate, at)
        assert np.isfinite(found).all()
        assert np.isfinite(error)
        np.testing.assert_allclose(surrogate_fit.values(surrogate, u), f, atol=0.1)


def test_points_that_do_not_decide_on_the_choice_are_fitted_all_the_same(monkeypatch):
    monkeypatch.setattr(surrogate_fit, "N_SCORED", 40)
    u = points(60)
    f = quadratic(u)
    one = fitted(u, f)
    spoilt = f.copy()
    spoilt[50] += 1.0
    other = fitted(u, spoilt)
    assert one[1:] == other[1:]
    changed = surrogate_fit.values(other[0], u[[50]]) - surrogate_fit.values(one[0], u[[50]])
    assert changed > 0.05


def test_a_fit_by_rounding_fails_openly():
    """Two equal points, no noise: the covariance is singular."""
    u = np.zeros((2, 2))
    hyper = {"noise": 0.0, "amplitude": 1e30}
    surrogate, _, error = fitted(u, np.zeros(2), n_rounds=0, **hyper)
    assert error == np.inf
    assert surrogate.n[0] == 0


# ---- the transition by hand -----------------------------------------------------------------

PRECISION = np.array([[4.0, -1.8, 0.0], [-1.8, 1.0, 0.3], [0.0, 0.3, 100.0]])
START = np.array([0.5, 1.5, -0.1])
FACTOR = np.array([[0.8, 0, 0], [1.2, 0.4, 0], [-0.02, 0.03, 0.1]])
WALK, REFERENCE, SURROGATE, WIDE = np.eye(4)
MIXED = np.array([0.3, 0.2, 0.3, 0.2])


@pytest.fixture(scope="module")
def step():
    return pk.SurrogateMetropolis(model=normal_model(PRECISION), steps_per_draw=1)


def set_arbitrary(parameters, shares, **values):
    """Set parameters, the surrogate too, to what tuning would not lead to."""
    rng, surrogate = np.random.default_rng(3), parameters.surrogate
    parameters.shares[:] = shares
    parameters.log_scale[0] = np.log(0.9)
    parameters.mean[:], parameters.factor[:] = [0.2, 0.5, 0.0], FACTOR
    parameters.n_inner[0] = 3
    surrogate.nu[0], surrogate.constant[0], surrogate.n[0] = 4.0, -0.5, 7
    surrogate.linear[:] = rng.standard_normal(3) / 2
    surrogate.quadratic[:] = np.tril(0.2 * rng.standard_normal((3, 3)) - 0.4 * np.eye(3))
    surrogate.bounds[:] = -4.0, 2.0
    surrogate.centres[:, :7] = rng.standard_normal((3, 7))
    surrogate.weights[:7] = 2 * rng.standard_normal(7)
    surrogate.rates[:] = 0.5, 1.0, 2.0
    set_modes(parameters.modes, 2 if values.pop("modes", False) else 0)
    parameters.modes.mode_means[:2] *= 0.2  # so that some moves are accepted here
    parameters.modes.mode_factors[:2] = FACTOR, 2 * FACTOR
    for name, value in values.items():
        holder = parameters if name in parameters._fields else surrogate
        getattr(holder, name)[:] = value


@pytest.mark.parametrize(
    ("shares", "values"),
    [
        (WALK, {}),
        (REFERENCE, {}),
        (REFERENCE, {"modes": True}),
        (SURROGATE, {"is_quadratic": 1}),
        (SURROGATE, {"n": 0, "n_inner": 1}),
        (WIDE, {"power": 0.4}),
        (MIXED, {"is_quadratic": 0}),
        (MIXED, {"is_quadratic": 1}),
    ],
)
def test_transitions_by_hand(step, shares, values):
    """With their statistics; a move that leads nowhere takes no evaluation."""
    step.setup_chain(np.random.default_rng(5), 0, 300)
    set_arbitrary(step.parameters, shares, **values)
    by_hand = reference.SurrogateChain(step.parameters, lambda x: -x @ PRECISION @ x / 2)
    x, rng, point, n_moves = START, np.random.default_rng(5), {"x": START}, 0
    for k in range(300):
        point, [stats] = step.step(point)
        new, alpha, kind = by_hand.transition(x, rng)
        np.testing.assert_allclose(point["x"], new, rtol=1e-8, atol=1e-10)
        expected = 0.0 if alpha is None else alpha
        assert stats["accept_prob"] == pytest.approx(expected, rel=1e-7)
        for name, number in (("reference_accept", 1), ("surrogate_accept", 2)):
            one = expected if kind == number else np.nan
            assert stats[name] == pytest.approx(one, rel=1e-7, nan_ok=True)
        assert stats["n_logp"] == (alpha is not None) + (k == 0)
        n_moves, x = n_moves + (new is not x), new
    assert 15 < n_moves < 285


def test_statistics_of_a_draw_are_means_over_its_moves():
    step = pk.SurrogateMetropolis(model=normal_model(PRECISION), steps_per_draw=6)
    step.setup_chain(np.random.default_rng(5), 0, 50)
    set_arbitrary(step.parameters, MIXED)
    by_hand = reference.SurrogateChain(step.parameters, lambda x: -x @ PRECISION @ x / 2)
    x, rng, point = START, np.random.default_rng(5), {"x": START}
    for _ in range(50):
        point, [stats] = step.step(point)
        alphas = {kind: [] for kind in range(4)}
        for _ in range(6):
            x, alpha, kind = by_hand.transition(x, rng)
            alphas[kind].append(alpha or 0.0)
        for name, number in (("reference_accept", 1), ("surrogate_accept", 2)):
            expected = np.mean(alphas[number]) if alphas[number] else np.nan
            assert stats[name] == pytest.approx(expected, rel=1e-6, nan_ok=True)


# ---- exactness ------------------------------------------------------------------------------


@cache
def tuned_on(name):
    """Return a step that was tuned on a target of the harness, and its parameters."""
    target = TARGETS[name]
    step = tuned(pk.SurrogateMetropolis(model=target.build(), steps_per_draw=3), target)
    return step, deepcopy(step.parameters)


def frozen(name, shares=None, spoilt=False, n_modes=0):
    """Return the step with these shares, perhaps with a bad surrogate and μ."""
    step, learned = tuned_on(name)
    restore(step.parameters, learned)
    parameters, surrogate = step.parameters, step.parameters.surrogate
    if shares is not None:
        parameters.shares[:] = shares
    set_modes(parameters.modes, n_modes)
    if spoilt:
        rng = np.random.default_rng(7)
        surrogate.weights[:] = 5 * rng.standard_normal(surrogate.weights.size)
        parameters.mean[:] += parameters.factor.sum(axis=1) / 2
        parameters.n_inner[0] = 2
    return step


def restore(parameters, values):
    """Write values into the arrays of a named tuple."""
    for own, value in zip(parameters, values, strict=True):
        if isinstance(own, tuple):
            restore(own, value)
        else:
            own[:] = value


@pytest.mark.parametrize("name", ["banana", pytest.param("bounded", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("shares", "spoilt"),
    [(WALK, False), *product((REFERENCE, SURROGATE), (False, True)), (WIDE, True), (MIXED, True)],
)
def test_each_kind_of_move_keeps_exact_draws_exact(name, shares, spoilt):
    """Whatever the surrogate."""
    step, target = frozen(name, shares, spoilt), TARGETS[name]
    p_value = invariance_p_value(lambda x: moved_fast(step, x), target, n=10_000)
    assert p_value > 1e-3


@pytest.mark.parametrize(("share", "is_exact"), [(0.3, True), (0.7, False)])
def test_moves_from_a_mixture_of_modes_keep_exact_draws_exact(share, is_exact):
    """But not if they are from another mixture than that whose density counts."""
    step, target = frozen("banana", REFERENCE, n_modes=2), TARGETS["banana"]

    def moved(x):
        p, rng = step.parameters.modes, np.random.default_rng(3)
        log_q = SlowModes(p).log_density
        wide = rng.random(len(x)) < share
        y = rng.standard_normal(x.shape) / np.sqrt(rng.chisquare(5, (len(x), 1)) / 5)
        own = np.where(wide, 1, 0)
        y = p.mode_means[own] + np.einsum("nij,nj->ni", np.tril(p.mode_factors[own]), y)
        log_ratio = log_banana(y) - log_banana(x) + log_q(x) - log_q(y)
        return np.where((np.log(rng.random(len(x))) < log_ratio)[:, None], y, x)

    assert (invariance_p_value(moved, target, n=10_000) > 1e-3) == is_exact
    if is_exact:
        p_value = invariance_p_value(lambda x: moved_fast(step, x), target, n=10_000)
        assert p_value > 1e-3


class Twin:
    """Frozen moves in plain numpy, all rows at once, with the inner chain that learning tries.

    rule : str
        What is done; "exact" is the sampler's own.
    """

    def __init__(self, step, log_density, rule):
        self.parameters, self.log_density, self.rule = step.parameters, log_density, rule
        self.surrogate = step.parameters.surrogate

    def log_t(self, u):
        nu, d = self.surrogate.nu[0], u.shape[1]
        return -(nu + d) / 2 * np.log1p(np.sum(u * u, axis=1) / nu)

    def by_surrogate(self, u, rng):
        steps = surrogate_inner_chain.steps_from(self.surrogate, u, self.parameters.n_inner[0], rng)
        *_, (v, _) = steps
        if self.rule == "to 0.8 v":
            v = 0.8 * v
        if self.rule == "without s":
            return v, 0.0
        values = surrogate_fit.values
        return v, values(self.surrogate, u) - values(self.surrogate, v)

    def by_reference(self, u, rng):
        nu = self.surrogate.nu[0]
        g = rng.standard_gamma(nu / 2, len(u)) * 2 / nu
        v = rng.standard_normal(u.shape) / np.sqrt(g)[:, None]
        return v, 0.0 if self.rule == "without t" else self.log_t(u) - self.log_t(v)

    def __call__(self, x, n, rng):
        factor, mean = np.tril(self.parameters.factor), self.parameters.mean
        for _ in range(n):
            if self.rule == "location follows":
                mean = mean + 0.6 * (x - mean)
            u = np.linalg.solve(factor, (x - mean).T).T
            kind = self.by_reference if self.parameters.shares[1] == 1 else self.by_surrogate
            v, log_hastings = kind(u, rng)
            y = mean + v @ factor.T
            log_ratio = self.log_density(y) - self.log_density(x) + log_hastings
            x = np.where((-rng.standard_exponential(len(x)) < log_ratio)[:, None], y, x)
        return x


@pytest.mark.parametrize(
    ("shares", "rule", "is_exact"),
    [
        pytest.param(SURROGATE, "exact", True, marks=pytest.mark.slow),
        (REFERENCE, "exact", True),
        (SURROGATE, "without s", False),
        (REFERENCE, "without t", False),
        pytest.param(SURROGATE, "to 0.8 v", False, marks=pytest.mark.slow),
        (REFERENCE, "location follows", False),
        pytest.param(SURROGATE, "location follows", False, marks=pytest.mark.slow),
    ],
)
def test_broken_twins_fail(shares, rule, is_exact):
    """In plain numpy, with the same frozen parameters."""
    step = frozen("banana", shares, spoilt=True)
    twin = Twin(step, log_banana, rule)
    p_value = invariance_p_value(
        lambda x: twin(x, 10, np.random.default_rng(9)), TARGETS["banana"], n=10_000
    )
    assert (p_value > 1e-3) == is_exact


@cache
def on_t():
    """Return parameters whose surrogate is the t density, in four dimensions, and scratch."""
    sizes = {"d": 4, "m": 1}
    parameters = allocate(Parameters, sizes)
    parameters.surrogate.nu[0] = 5.0
    parameters.surrogate.bounds[:] = -1.0, 1.0
    return parameters, allocate(Work, sizes)


@pytest.mark.slow
@pytest.mark.parametrize("n_inner", [1, 2])
def test_the_inner_chain_keeps_its_own_density(n_inner):
    """Which is t here, as are the chain's beginnings; not those of a twin, at 0.8 of them."""
    (parameters, work), rng = on_t(), np.random.default_rng(4)
    parameters.n_inner[0] = n_inner
    u = rng.standard_normal((20_000, 4)) / np.sqrt(rng.chisquare(5, (20_000, 1)) / 5)
    for factor, is_exact in ((1.0, True), (0.8, False)):
        ends, log_s = np.empty_like(u), np.empty(len(u))
        for i, start in enumerate(factor * u):
            work.v[:] = start
            log_s[i] = inner_chain(parameters, work, log_t_5(start), 1.0, rng)
            ends[i] = work.v
        difference = np.tanh(np.sum(ends**2, axis=1) / 4) - np.tanh(np.sum(u**2, axis=1) / 4)
        z = difference.mean() / difference.std() * np.sqrt(len(u))
        assert (abs(z) < 4) == is_exact, z
        np.testing.assert_allclose(log_s, [log_t_5(v) for v in ends], rtol=1e-9)


def log_t_5(u):
    return -(5 + u.size) / 2 * np.log1p(u @ u / 5)


# ---- learning -------------------------------------------------------------------------------


def test_what_the_state_derives_follows_all_that_is_learned(step):
    """u is of x, μ and L; log s(u), where it is known, of the surrogate; while tuning and after."""
    step.setup_chain(np.random.default_rng(1), 300, 30)
    point, pauses, known = {"x": START}, 0, 0
    for i in range(330):
        if i == 300:
            step.stop_tuning()
        pauses += i in step.pauses()
        point, _ = step.step(point)
        state, parameters = step.state, step.parameters
        u = np.linalg.solve(np.tril(parameters.factor), state.x - parameters.mean)
        np.testing.assert_allclose(state.u, u, atol=1e-9)
        assert state.logp[0] == pytest.approx(-point["x"] @ PRECISION @ point["x"] / 2, rel=1e-9)
        if np.isfinite(state.log_s[0]):
            log_s = reference.Surrogate(parameters.surrogate).log_s(u)
            assert state.log_s[0] == pytest.approx(log_s, abs=1e-5)
            known += 1
    assert pauses > 3
    assert known > 100


@pytest.mark.parametrize("steps_per_draw", [1, 5])
def test_learns_from_nearly_all_of_tuning(steps_per_draw):
    step = pk.SurrogateMetropolis(model=normal(2), steps_per_draw=steps_per_draw)
    step.setup_chain(np.random.default_rng(1), 100, 10)
    assert max(step.pauses()) == 99
    assert min(step.pauses()) < 12


def test_on_a_normal_moves_by_the_surrogate_are_nearly_independent(step):
    result = sample(step, tune=400, draws=400, chains=2)
    stats, learned = result["sample_stats"], result["learned"].to_dataset()
    assert stats["surrogate_accept"].mean() > 0.9
    x = result["posterior"]["x"].values
    for chain in x:
        for column in chain.T:
            assert np.corrcoef(column[1:], column[:-1])[0, 1] < 0.3
    covariance = np.linalg.inv(PRECISION)
    ratios = learned["covariance"].values / covariance
    np.testing.assert_allclose(ratios[:, [0, 1, 2], [0, 1, 2]], 1, atol=0.35)
    shares = learned["shares"].values
    np.testing.assert_allclose(shares.sum(axis=1), 1, rtol=1e-12)
    assert (shares >= learning.LEAST_SHARE - 1e-12).all()
    assert (shares[:, 2] > 0.3).all()
    assert (learned["surrogate_error"] < 0.05).all()
    made = np.isfinite(stats["surrogate_accept"].values), np.isfinite(stats["reference_accept"])
    assert not (made[0] & made[1]).any()  # of one move a draw
    for one, k in zip(made, (2, 1), strict=True):
        np.testing.assert_allclose(np.mean(one), shares[:, k].mean(), atol=0.08)


def chains_after(step, n, tune, seed=1):
    """Return copies of the step after n draws of tuning each, by themselves."""
    chains = [step.for_chain() for _ in range(3)]
    for k, chain in enumerate(chains):
        chain.setup_chain(np.random.default_rng([seed, k]), tune, 10)
        point = {"x": START}
        for _ in range(n):
            point, _ = chain.step(point)
    return chains


def learned_by(chains):
    """Return copies of the parameters of chains that learn."""
    pk.SurrogateMetropolis.learn(chains)
    return [deepcopy(chain.parameters) for chain in chains]


def same(one, other):
    """Whether parameters are equal, but for what is a chain's own."""
    own = {"log_scale": np.zeros(1), "looks": np.zeros(1), "n_looks": np.zeros(1)}
    try:
        reference.assert_equal(*(p._replace(**own) for p in (one, other)))
    except AssertionError:
        return False
    return True


def test_chains_learn_together(step):
    """But not one that is far below the others."""
    chains = chains_after(step, 20, tune=100)
    one, other, third = learned_by(chains)
    assert same(one, other)
    assert same(one, third)
    states = np.concatenate([chain.tuning.moves.points[:20, :3] for chain in chains])
    assert (np.abs(one.mean - states.mean(axis=0)) < states.std(axis=0)).all()
    assert (one.mean != 0).all()
    before = deepcopy(chains[2].parameters)
    chains[2].state.logp[0] -= 100
    one, other, third = learned_by(chains)
    assert same(one, other)
    assert not same(one, third)
    assert not same(before, third)


def test_other_chains_follow_the_first_one(step):
    """By few evaluations, on any number of cores; not if chains are independent."""
    kept = {"chains": 3, "tune": 60, "draws": 5, "discard_tuned_samples": False, "cores": 2}
    for pool_tuning in (True, False):
        own = pk.SurrogateMetropolis(model=step.model, pool_tuning=pool_tuning)
        result = sample(own, **kept)
        first, *others = result["warmup_sample_stats"]["n_logp"].values[:, 0]
        assert (np.array(others) < 0.7 * first).all() == pool_tuning


def test_with_few_evaluations_the_others_begin_where_the_first_one_has_come(step):
    result = sample(step, chains=3, tune=8, draws=20, discard_tuned_samples=False)
    spent = result["warmup_sample_stats"]["n_logp"].values[:, 0]
    assert spent[0] > 15
    assert spent[1:].max() <= 3 + NEAR_TRIES
    assert "no_search" in codes(result)
    assert [evaluations_for_own_search(d) for d in (1, 2, 4)] == [90, 90, 120]


def test_a_run_that_stops_before_the_others_begin_follows_when_it_goes_on(step):
    whole = sample(step, chains=3)
    begun = sample(step, chains=3, callback=lambda run, draw: run.stop())
    assert done_of(begun) == [1, 0, 0]
    assert_same(resume(begun, step.model), whole)


def test_a_store_keeps_what_chains_have_learned_together(step, tmp_path):
    """So a run that is interrupted while some have gone on from there makes the same draws."""
    whole, path = sample(step, chains=3), tmp_path / "run.zarr"

    def stop(run, draw):
        if draw.chain == 0 and draw.draw_idx == 12:
            run.stop()

    sample(step, chains=3, callback=stop, store=path)
    assert_same(resume(path, step.model), whole, ["posterior"])


def test_a_chain_with_hardly_any_mass_is_moved(step):
    """By where its own way led, whatever it has seen."""
    chains = chains_after(step, 5, tune=100)
    learning.move_lost_chains(chains)
    assert all(chain.tuning.lost[0] == 0 for chain in chains)
    mass, chains[1].tuning.mass[0] = chains[0].tuning.mass[0], -1000.0
    learning.move_lost_chains(chains)
    assert [chain.tuning.lost[0] > 900 for chain in chains] == [False, True, False]
    assert chains[1].tuning.mass[0] >= mass - 1
    assert any((chains[1].state.x == chains[k].state.x).all() for k in (0, 2))


def test_chains_that_learn_together_use_what_all_have_seen(step, monkeypatch):
    chains = chains_after(step, 20, tune=100)
    alone = len(learning.points_of(chains[:1])[0])
    together = learning.points_of(chains)
    assert len(together[0]) > 2 * alone
    np.testing.assert_allclose(
        together[1], [-x @ PRECISION @ x / 2 for x in together[0]], rtol=1e-9
    )
    rows = np.concatenate([chain.tuning.moves.points[:20] for chain in chains])
    rejected = rows[rows[:, -1] < 0.8, 3:6]
    assert len(rejected) > 0
    for y in rejected:
        assert (together[0] == y).all(axis=1).any()
    assert np.count_nonzero(together[2]) > 30
    counted, fit = [], surrogate_fit.fit
    monkeypatch.setattr(surrogate_fit, "fit", lambda *a: counted.append(len(a[1])) or fit(*a))
    learned_by(chains)
    assert len(together[0]) - 6 <= counted[0] <= len(together[0])  # a few are too low


@pytest.mark.slow
def test_a_thin_bend_is_explored_to_its_ends():
    """x ~ N(0, 1) and y ~ N(2x², 0.1²), on which walks alone never come to the ends in time."""
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Normal("y", 2 * x**2, 0.1)
    step = pk.SurrogateMetropolis(model=model)
    result = sample(step, tune=1000, draws=500, chains=4, random_seed=1)
    square = result["posterior"]["x"].values ** 2
    assert (
        0.7 < square.mean() < 1.3
    )  # of the runs of docs/surrogate_results.md, the standard deviation is 0.11
    learned = result["learned"]
    assert (learned["shares"].sel(move="wide") >= 0.05 - 1e-12).all()


def test_news_are_the_mass_that_the_surrogate_did_not_know(step):
    chains = chains_after(step, 40, tune=100)
    assert learning.share_of_news(chains) < 0.2
    for chain in chains:
        chain.parameters.surrogate.bounds[:] -= 50
    assert learning.share_of_news(chains) == 1
    found = findings.of_missed_mass(0.25, "NUTS")
    assert found.code == "surrogate_too_low"
    assert "about 25 % of the posterior" in found.what
    assert not findings.of_missed_mass(0.005, "NUTS")


@pytest.mark.parametrize(
    ("model", "others"),
    [(lambda: black_box(Blind()), "pk.GAM"), (lambda: normal(2), "NUTS or pk.GAM")],
)
def test_what_to_try_fits_the_model(model, others):
    assert findings.other_samplers(model()) == others
    poor = np.array([[0.1, 99.0], [0.0, 0.0], [0.1, 99.0], [0.0, 0.0]])
    found = findings.of_efficiency(poor, others)
    assert found.code == "poor_surrogate"
    assert f"Tune longer, use {others}, or try another" in found.remedy


def test_a_chain_that_was_moved_tells_what_that_means():
    found = findings.of_move(42.0)
    assert found.code == "moved_chain"
    assert "almost no posterior mass, about 1e-18 of" in found.what
    assert "1e-869" in findings.of_move(2000.0).what
    assert findings.of_move(0.0) is None


def test_points_that_are_far_out_are_fitted():
    """They are few, and what is known of tails comes from them; but not those without mass."""
    rng = np.random.default_rng(1)
    u, far = rng.standard_normal((4000, 2)), np.arange(4000) < 20
    u[far] *= 10 / np.linalg.norm(u[far], axis=1, keepdims=True)
    f = np.where(far, -8.0, -np.sum(u**2, axis=1) / 2)
    chosen = learning.worth_fitting(u, f, 400, rng)
    assert len(chosen) == 400
    assert far[chosen].sum() > 17
    f[far] = -25
    assert not far[learning.worth_fitting(u, f, 400, rng)].any()


def test_a_chain_looks_at_points_and_stays(step):
    """What it finds is learned from, and is no move of a chain."""
    chain = chains_after(step, 21, tune=100)[0]  # the next draw does not learn
    parameters, tuning = chain.parameters, chain.tuning
    looks = np.array([[5.0, 0, 1], [0, -4, 2]])
    parameters.looks[:2], parameters.n_looks[0] = looks, 2
    before, worth, x = tuning.moves.counts[0], tuning.worth.copy(), chain.state.x.copy()
    for look in looks[::-1]:
        point, [stats] = chain.step({"x": x})
        np.testing.assert_array_equal(point["x"], x)
        assert (stats["n_logp"], stats["accept_prob"]) == (1, 0)
        y = parameters.mean + parameters.factor @ look
        seen = tuning.moves.points[tuning.moves.counts[0] - 1]
        np.testing.assert_allclose(seen[:7], [*x, *y, -y @ PRECISION @ y / 2])
    assert tuning.moves.counts[0] == before + 2
    np.testing.assert_array_equal(tuning.worth, worth)
    chain.step({"x": x})
    assert tuning.worth[:, 1].sum() == worth[:, 1].sum() + 1


def test_chains_look_at_draws_of_s(step):
    """Also where none has come to: s may have mass there by mistake."""
    parameters, *_ = learned_by(chains_after(step, 60, tune=100))
    s, far = parameters.surrogate, np.full(3, 2.0)

    def n_there(surrogate):
        u = learning.draws_of_s(surrogate, 20, np.random.default_rng(1))
        assert len({tuple(one) for one in u}) == 20
        return np.count_nonzero(np.linalg.norm(u - far, axis=1) < 1.5)

    assert n_there(s) < 5  # hardly one is expected
    bump = s._replace(
        n=np.array([1]),
        rates=np.ones(3),
        centres=np.repeat(far[:, None], s.centres.shape[1], axis=1),
        weights=np.full(s.weights.shape, 20.0),
        bounds=s.bounds + np.array([0.0, 100.0]),
    )
    assert n_there(bump) > 5


def test_the_bound_is_lowered_where_most_of_the_volume_is_unknown():
    """A thin ridge far above the bound: half of the mass of s would be at the bound."""
    rng, sizes = np.random.default_rng(1), {"d": 2, "m": 1}
    ridge = allocate(Surrogate, sizes, nu=8.0, is_quadratic=1)
    ridge.quadratic[:] = [[-0.5, 0], [0, -5000]]
    ridge.bounds[:] = -2.0, 3.0
    u = rng.standard_normal((300, 2)) * [1, 0.01]
    depth = surrogate_inner_chain.lower_bound(ridge, u, -np.inf, rng)
    assert depth > 0  # and where tails are those of t it is raised, which costs nothing
    assert ridge.bounds[0] == -2 - depth
    wide = allocate(Surrogate, sizes, nu=8.0, is_quadratic=1)
    wide.quadratic[:] = [[-0.5, 0], [0, -0.5]]
    wide.bounds[:] = -2.0, 3.0
    u = rng.standard_normal((300, 2))
    assert surrogate_inner_chain.lower_bound(wide, u, -np.inf, rng) <= 0
    assert surrogate_inner_chain.lower_bound(wide, u, 3.0, rng) == 3
