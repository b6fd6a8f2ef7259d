"""MALA, GadRWM and GadMALA against slow versions from their definitions, on the same numbers."""

from functools import cache, partial
from typing import NamedTuple

import arviz as az
import matplotlib as mpl
import numba
import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
import reference
from pymc.exceptions import SamplingError
from runs import codes

import pymc_kameleon as pk
from pymc_kameleon.core.factor import is_diagonal
from pymc_kameleon.core.target import LOGP_SIGNATURE, Target, address_array, function_address
from pymc_kameleon.model.watch import Watch
from pymc_kameleon.step.make_draws import learn_together

# ---- targets --------------------------------------------------------------------------------
# data are the scales of the coordinates and, for some, a matrix (d, d), raveled.


@numba.njit(LOGP_SIGNATURE)
def skewed(x, data, shapes, gradient):
    """A normal density times a Cauchy density about 1 in each coordinate, so the Hessian varies."""
    d, total = x.size, 0.0
    for i in range(d):
        z, slope = x[i] / data[i], 0.0
        for j in range(d):
            slope -= data[d + d * i + j] * (x[j] / data[j])
        total += 0.5 * z * slope - np.log(1 + (z - 1) ** 2)
        gradient[i] = (slope - 2 * (z - 1) / (1 + (z - 1) ** 2)) / data[i]
    return total


@numba.njit(LOGP_SIGNATURE)
def skewed_curvature(x, data, shapes, v):
    """Replace v by the Hessian's product with it."""
    d = x.size
    product = np.empty(d)
    for i in range(d):
        square, product[i] = (x[i] / data[i] - 1) ** 2, 0.0
        for j in range(d):
            product[i] -= data[d + d * i + j] * (v[j] / data[j])
        product[i] -= 2 * (1 - square) / (1 + square) ** 2 * (v[i] / data[i])
    for i in range(d):
        v[i] = product[i] / data[i]
    return 0.0


def precision_of(d):
    """A precision matrix with strong correlations."""
    a = np.random.default_rng(d).standard_normal((d, d))
    return a @ a.T / d + np.diag(np.linspace(0.1, 1.0, d))


def in_python(function):
    """Return a compiled function as it was written."""
    return getattr(function, "py_func", function)


class Slow:
    """A target in plain Python: a function that returns the log-density and its gradient.

    `count` is the number of points within the region where it was evaluated.
    """

    def __init__(self, logp, data, curvature=None, region=(-np.inf, np.inf)):
        self.logp, self.curvature, self.data = logp, curvature, np.array(data, float)
        self.region = region
        self.seen = set()

    @property
    def count(self):
        return len(self.seen)

    def __call__(self, x):
        gradient = np.full(x.size, np.nan)
        if not ((self.region[0] <= x) & (x <= self.region[1])).all():
            return -np.inf, gradient
        self.seen.add(x.tobytes())
        with np.errstate(all="ignore"):
            value = in_python(self.logp)(x, self.data, np.empty(0, np.int64), gradient)
        return (value if value < np.inf else -np.inf), gradient

    def hessian(self, x):
        columns = np.eye(x.size)
        for v in columns:
            in_python(self.curvature)(x, self.data, np.empty(0, np.int64), v)
        return columns.T


def slow_skewed(d, scales=1.0):
    scales = np.broadcast_to(scales, d)
    return Slow(skewed, [*scales, *precision_of(d).ravel()], skewed_curvature)


def differences(function, x, step=1e-6):
    """Central differences of a function with respect to each entry of x."""
    result = np.empty((*np.shape(function(x)), *x.shape))
    for index in np.ndindex(x.shape):
        high, low = x.copy(), x.copy()
        high[index] += step
        low[index] -= step
        result[(..., *index)] = (function(high) - function(low)) / (2 * step)
    return result


# ---- the published gradients ----------------------------------------------------------------


def some_factor(d, rng):
    return np.tril(0.3 * rng.standard_normal((d, d)), -1) + np.diag(rng.uniform(0.5, 1.0, d))


def mala_objective(target, x, xi, factor, beta, held=None):
    """min(0, log r) + β Σ log L_ii [GAD, section 2.3], perhaps with ∇log π(y) held constant."""
    log_p, g = target(x)
    y = x + factor @ factor.T @ g / 2 + factor @ xi
    log_p_y, gy = target(y)
    gy = gy if held is None else held
    back = factor.T @ (g + gy) / 2 + xi
    log_ratio = log_p_y - log_p - (back @ back - xi @ xi) / 2
    return min(0.0, log_ratio) + beta * np.log(np.diag(factor)).sum()


def walk_objective(target, x, xi, factor, beta):
    """min(0, log r) + β Σ log L_ii [GAD, section 2.2]."""
    log_ratio = target(x + factor @ xi)[0] - target(x)[0]
    return min(0.0, log_ratio) + beta * np.log(np.diag(factor)).sum()


# ---- compiled chains ------------------------------------------------------------------------


class CompiledLogp:
    """What a model's log-density is to a step, from functions that numba has compiled already."""

    def __init__(self, function, data, curvature, model, own, *rest):
        _, _, self.region, derivatives = rest
        d = self.region.shape[1]
        self.function, self.data = function, np.array(data, float)
        self.value_vars, self.digest = own, b""
        self.point, self.count = np.zeros(d), np.zeros(2, np.int64)
        self.gradient, self.shapes = np.zeros(d if derivatives else 0), np.zeros(0, np.int64)
        others = [curvature] if derivatives > 1 else []
        self.address = function_address(function)
        self.others = address_array([function_address(f) for f in others])

    is_estimate = is_watched = looks_again = False
    n_trials = 0
    watch, failure = Watch.fresh(0), ""

    def begin_watch(self):
        pass

    def compiled(self):
        return self

    def target(self, rng):
        fields = self.address, self.point, self.data, self.shapes, self.region, self.count
        return Target(*fields, self.gradient, self.others, np.zeros(0), rng)

    def read_data(self):
        pass

    def follow_data(self):
        pass

    def inside(self, x):
        return bool(((self.region[0] <= x) & (x <= self.region[1])).all())

    def __call__(self, x):
        if not self.inside(x):
            return -np.inf
        self.count[0] += 1
        value = self.function(np.array(x), self.data, self.shapes, self.gradient)
        return value if value < np.inf else -np.inf


@cache
def flat_model(d):
    with pm.Model() as model:
        pm.Flat("x", shape=d)
    return model


def build(sampler, target, d, **options):
    """Return a step whose log-density is that of a slow target."""
    compiled = partial(CompiledLogp, target.logp, target.data, target.curvature)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.step.base.ModelLogp", compiled)
        region = {"x": target.region}
        return sampler(model=flat_model(d), **{"steps_per_draw": 1, "region": region, **options})


class Trace(NamedTuple):
    """What a compiled chain was after each draw."""

    x: np.ndarray
    stats: dict
    log_scale: np.ndarray
    factor: np.ndarray
    beta: np.ndarray


def dense(factor):
    """L as a matrix."""
    return np.diag(factor[:, 0]) if is_diagonal(factor) else np.tril(factor)


def run(step, n, tune, x, seed=0):
    """Make n draws from x, the first `tune` of them tuning."""
    step.jitters = False  # x may be 0
    step.setup_chain(np.random.default_rng(seed), tune, n - tune)
    point, rows = {"x": np.array(x, float)}, []
    for i in range(n):
        if i == tune:
            step.stop_tuning()
        point, [row] = step.step(point)
        beta = step.tuning.objective.beta[0] if hasattr(step.tuning, "objective") else 1.0
        parameters = step.parameters
        rows.append((point["x"], row, parameters.log_scale[0], dense(parameters.factor), beta))
    x, reports, *rest = zip(*rows, strict=True)
    columns = {name: np.array([row[name] for row in reports]) for name in reports[0]}
    return Trace(np.array(x), columns, *map(np.array, rest))


ADAPTATIONS = {
    "published": (pk.GadMALA, {"adaptation": "published"}, {"targets": (0.55, 0.55)}),
    "exact": (
        pk.GadMALA,
        {"adaptation": "published", "gradient": "exact"},
        {"targets": (0.55, 0.55), "exact": True},
    ),
    "fisher": (pk.GadMALA, {"adaptation": "fisher", "n_leapfrog": 1}, {"targets": (0.574, 0.574)}),
    "walk, published": (
        pk.GadRWM,
        {"adaptation": "published"},
        {"targets": (0.25, 0.25), "walks": True},
    ),
    "walk, whitened": (
        pk.GadRWM,
        {"adaptation": "whitened"},
        {"targets": (0.25, 0.25), "walks": True},
    ),
}
"""For each, the sampler and its options, and those of the slow chain."""


def compare(name, target, x, n_tune, n=None, seed=0, tolerance=1e-9, options=(), **expected):
    """Run a sampler and its slow version, compare all that they did; return both.

    The slow chain goes on from where the compiled one is, not to let rounding errors grow.
    """
    sampler, arguments, slow_arguments = ADAPTATIONS[name]
    slow_arguments = {"adaptation": arguments["adaptation"]} | slow_arguments | expected
    hessian = target.hessian if slow_arguments.pop("exact", False) else None
    step = build(sampler, target, len(x), **arguments | dict(options))
    n = n_tune + 50 if n is None else n
    trace = run(step, n, n_tune, x, seed)
    chain = reference.GadChain(target, x, n_tune, **slow_arguments, hessian=hessian)
    target(chain.x)  # which is evaluated where a chain starts, and before that if it is to tune
    rng, moves, counts = np.random.default_rng(seed), [], [-(n_tune > 0)]
    for i in range(n):
        moves.append(chain.step(rng))
        message = f"transition {i}"
        np.testing.assert_allclose(trace.x[i], chain.x, tolerance, tolerance, err_msg=message)
        assert trace.stats["accept_share"][i] == moves[-1].accepted
        assert trace.stats["n_logp"][i] == target.count - counts[-1], message
        if sampler is pk.GadMALA:
            check_trajectory(trace.stats, i, moves[-1])
        chain.x = trace.x[i]
        target(chain.x)
        counts.append(target.count)
        scale = np.linalg.norm(chain.factor, axis=1, keepdims=True)
        np.testing.assert_allclose(
            trace.factor[i] / scale, chain.factor / scale, 0, tolerance, err_msg=message
        )
        assert trace.log_scale[i] == pytest.approx(chain.log_scale, rel=tolerance, abs=tolerance)
        assert trace.beta[i] == pytest.approx(chain.beta, rel=1e-12)
    alphas = [move.alpha for move in moves]
    np.testing.assert_allclose(trace.stats["accept_prob"], alphas, tolerance, tolerance)
    return trace, chain, moves


def check_trajectory(stats, i, move):
    """Compare energies: the kinetic one of ξ, minus the log-density, and the change is −log r."""
    energy = move.xi @ move.xi / 2 - move.log_p - (move.log_ratio if move.accepted else 0.0)
    assert stats["energy"][i] == pytest.approx(energy, rel=1e-6, abs=1e-6)
    assert stats["diverging"][i] == (move.log_ratio < -1000)
    assert i == 0 or stats["n_steps"][i] == stats["n_logp"][i]


START = {1: [0.3], 2: [2.0, -1.0], 5: [1.0, -2.0, 0.5, 3.0, -0.2]}


def rate_of(name, rate=0.05):
    """Options that let the published rule learn faster than in the paper."""
    if ADAPTATIONS[name][1]["adaptation"] != "published":
        return {}
    return {"options": {"learning_rate": rate}, "learning_rate": rate}


@pytest.mark.slow
@pytest.mark.parametrize("d", START)
@pytest.mark.parametrize("name", ADAPTATIONS)
def test_chains(name, d):
    trace, chain, moves = compare(name, slow_skewed(d), START[d], 400, **rate_of(name))
    assert 30 < trace.stats["accept_share"].sum() < 420
    assert 30 < np.sum([move.log_ratio < 0 for move in moves]) < 430
    assert not np.allclose(chain.factor, chain.factor[0, 0] * np.eye(d)) or d == 1
    if name == "fisher":
        assert chain.refreshes == [20, 40, 60, 90, 135, 202, 300]


SHORT_LEAPFROG = {"options": {"n_leapfrog": 3}, "n_leapfrog": 3, "targets": (0.574, 0.75)}


@pytest.mark.parametrize("n_tune", [0, 1, 2, 3, 7, 30, 100])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(pytest.param(name, rate_of(name), marks=pytest.mark.slow) for name in ADAPTATIONS),
        ("fisher", SHORT_LEAPFROG),
    ],
)
def test_short_tuning(name, options, n_tune):
    compare(name, slow_skewed(2), START[2], n_tune, n_tune + 10, **options)


@pytest.mark.parametrize("n_leapfrog", [2, 3, 4])
@pytest.mark.parametrize("d", START)
def test_leapfrog_chains(d, n_leapfrog):
    _, _, moves = compare(
        "fisher",
        slow_skewed(d),
        START[d],
        200,
        options={"n_leapfrog": n_leapfrog},
        n_leapfrog=n_leapfrog,
        targets=(0.574, 0.75),
    )
    assert np.mean([move.accepted for move in moves[200:]]) > 0.5


@pytest.mark.slow
def test_pairs_that_have_no_room():
    """Every second one is kept then, and later every fourth."""
    step = build(pk.GadMALA, slow_skewed(1), 1)
    step.setup_chain(0, 6000, 0)
    capacity = len(step.tuning.pairs.points)
    assert capacity == 1004
    _, chain, _ = compare("fisher", slow_skewed(1), START[1], 6000, capacity=capacity)
    assert chain.stride > 1
    assert len(chain.refreshes) == 15


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_target_accept(name):
    options = rate_of(name)
    options["options"] = options.get("options", {}) | {"target_accept": 0.4}
    compare(name, slow_skewed(2), START[2], 200, **options, targets=(0.4, 0.4))


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, 0.01])
@pytest.mark.parametrize("name", ["published", "exact", "walk, published"])
def test_learning_rates(name, rate):
    published = 5e-5 if name.startswith("walk") else 1.5e-4
    options = {"options": {"learning_rate": rate}, "learning_rate": rate or published}
    trace, *_ = compare(name, slow_skewed(2), START[2], 100, **options)
    assert np.ptp(trace.factor[:, 0, 0]) > 1e-4


@pytest.mark.parametrize("name", [name for name in ADAPTATIONS if name != "exact"])
def test_keep_adapting(name):
    options = rate_of(name)
    options["options"] = options.get("options", {}) | {"keep_adapting": True}
    trace, *_ = compare(name, slow_skewed(2), START[2], 100, 400, **options, keep_adapting=True)
    moving = trace.factor[:, 0, 0] if "published" in name else trace.log_scale
    assert len(np.unique(moving[100:])) > 250


def test_weak_gradients_are_believed_in_the_first_half():
    """A box is narrower than the normal density within: at first L is that of the density."""
    target = Slow(normal, [4.0, 1.0], region=(np.array([-1.0, -np.inf]), np.array([1.0, np.inf])))
    trace, chain, _ = compare("fisher", target, [0.5, 0.5], 400)
    assert chain.refreshes == [20, 40, 60, 90, 135, 202, 300]
    early, late = trace.factor[135, 0, 0], trace.factor[-1, 0, 0]
    assert early == pytest.approx(4, rel=1e-2)
    assert late < 2


# ---- where there is nothing -----------------------------------------------------------------


@numba.njit(LOGP_SIGNATURE)
def holes(x, data, shapes, gradient):
    """A gamma and a normal density; around them, and in the midst, something is not finite."""
    gradient[0], gradient[1] = 1 / x[0] - 1, -x[1]
    if x[0] < 0:
        return -np.inf
    if x[1] > 1.2:
        return np.nan
    if 1 < x[0] < 1.2:
        return np.inf
    if x[1] < -1.2:
        gradient[0] = np.nan
    if x[0] > 3:
        gradient[1] = np.inf
    return np.log(x[0]) - x[0] - 0.5 * x[1] ** 2


@numba.njit(LOGP_SIGNATURE)
def holes_curvature(x, data, shapes, v):
    v[0] *= -(x[0] ** -2)
    v[1] *= -1.0
    return 0.0


def slow_holes():
    return Slow(holes, [0.0], holes_curvature, ([-np.inf, -np.inf], [2.0, np.inf]))


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_chains_with_holes(name):
    trace, _, moves = compare(name, slow_holes(), [0.7, 0.2], 400, **rate_of(name))
    nowhere = np.sum([move.log_ratio == -np.inf for move in moves])
    assert 5 < nowhere < 350
    assert trace.stats["accept_share"].sum() > 20
    assert np.isfinite(trace.factor).all()


@pytest.mark.slow
@pytest.mark.parametrize("n_leapfrog", [3, 6])
def test_leapfrog_chains_with_holes(n_leapfrog):
    leapfrog = {"options": {"n_leapfrog": n_leapfrog}, "n_leapfrog": n_leapfrog}
    trace, *_ = compare(
        "fisher", slow_holes(), [0.7, 0.2], 200, 500, **leapfrog, targets=(0.574, 0.75)
    )
    counts = trace.stats["n_logp"][200:]
    assert counts.max() == n_leapfrog
    assert (counts < n_leapfrog // 2 + 1).any()


# ---- the published gradients, compiled ------------------------------------------------------


def objective(name, target, move, beta, entries):
    """What the published rule climbs, as a function of L."""
    factor = np.tril(entries)
    if name == "walk, published":
        return walk_objective(target, move.x, move.xi, factor, beta)
    held = move.gradient_y if name == "published" else None
    return mala_objective(target, move.x, move.xi, factor, beta, held)


def learned_gradient(step, x, factor, beta, seed):
    """Make a transition from x with L and β; return the gradient that L was moved along."""
    step.search.begin = lambda q, asks: None
    step.setup_chain(np.random.default_rng(seed), 10, 0)
    step.parameters.factor[:] = factor
    step.tuning.objective.beta[0] = beta
    step.step({"x": x})
    relative = (np.tril(step.parameters.factor) - factor) / step.settings["learning_rate"]
    gradient = relative / (1 - np.abs(relative))  # of RMSprop's first step, ∇/(1 + |∇|)
    np.testing.assert_allclose(np.sqrt(step.tuning.squares), np.abs(gradient), rtol=1e-9)
    return gradient


@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("name", ["published", "exact", "walk, published"])
def test_compiled_gradient_of_the_objective(name, d):
    sampler, arguments, _ = ADAPTATIONS[name]
    target, rng, negative = slow_skewed(d), np.random.default_rng(d), 0
    step = build(sampler, target, d, **arguments, learning_rate=1e-3)
    for seed in range(20):
        x, factor = 1.5 * rng.standard_normal(d), some_factor(d, rng)
        propose = reference.walk if sampler is pk.GadRWM else reference.langevin
        move = propose(target, x, factor, np.random.default_rng(seed))
        beta = rng.uniform(0.5, 2)
        found = learned_gradient(step, x, factor, beta, seed)
        expected = differences(partial(objective, name, target, move, beta), factor)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)
        negative += move.log_ratio < 0
    assert 0 < negative < 20


# ---- scales of the coordinates --------------------------------------------------------------


def run_in_units(name, units, n=300, tune=250, seed=0):
    """Run on a target in other units, from L in these units; return what has no unit any more."""
    d = len(units)
    sampler, arguments, _ = ADAPTATIONS[name]
    if arguments["adaptation"] == "fisher":
        arguments = arguments | {"n_leapfrog": 3}
    elif arguments["adaptation"] == "published":
        arguments = arguments | {"learning_rate": 0.01}
    step = build(sampler, slow_skewed(d, units), d, **arguments)
    step.search.begin = lambda q, asks: step.parameters.factor.__setitem__(
        np.diag_indices(d), 0.5 * np.array(units)
    )
    trace = run(step, n, tune, np.array(units) * START[d], seed)
    return trace.x / units, trace.factor / np.array(units)[:, None]


UNITS = [2.0**-10, 2.0**3, 1.0, 2.0**12, 2.0**-3]
"""Powers of two change the exponents of floating-point numbers only."""


@pytest.mark.parametrize("name", ADAPTATIONS)
def test_units_do_not_matter_but_to_the_published_rule(name):
    expected, found = (run_in_units(name, units) for units in (np.ones(5), UNITS))
    if ADAPTATIONS[name][1]["adaptation"] == "published":
        assert not np.allclose(expected[0][100:], found[0][100:], rtol=0.1)
        return
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(one, other)
    assert len(np.unique(expected[0][:, 0])) > 50


# ---- leapfrog -------------------------------------------------------------------------------


def set_parameters(step, factor, log_scale):
    """Freeze L and log s, of a step that is not to tune."""
    step.setup_chain(np.random.default_rng(4), 0, 100)
    step.parameters.log_scale[0] = log_scale
    if not is_diagonal(step.parameters.factor):
        step.parameters.factor[:] = factor


def test_one_leapfrog_step_is_mala():
    target, draws = slow_skewed(2), []
    for sampler, options in [(pk.baselines.MALA, {}), (pk.GadMALA, {"n_leapfrog": 1})]:
        step = build(sampler, target, 2, **options)
        set_parameters(step, np.eye(2), -0.3)
        point, rows = {"x": np.array(START[2])}, []
        for _ in range(100):
            point, [row] = step.step(point)
            rows.append([*point["x"], row["accept_prob"], row["n_logp"]])
        draws.append(rows)
    np.testing.assert_allclose(*draws, rtol=1e-12)


# ---- MALA -----------------------------------------------------------------------------------


def slow_mala(target, x, n_tune, n, rng, target_accept):
    """Tune log s with step sizes (1+t)^-0.6 and settle it at its mean over the second half."""
    d = len(x)
    log_s = np.log(1.65 * d ** (-1 / 6))
    bounds, path, moves = log_s + np.log([1e-6, 1e6]), [], []
    for t in range(n):
        moves.append(reference.langevin(target, x, np.exp(log_s) * np.eye(d), rng))
        x = moves[-1].new
        if t < n_tune:
            step = (1 + t) ** -0.6 * (moves[-1].alpha - target_accept)
            log_s = np.clip(log_s + step, *bounds)
            path.append(log_s)
            if t == n_tune - 1:
                log_s = np.mean(path[min(n_tune // 2, n_tune - 1) :])
    return moves, log_s


@pytest.mark.parametrize(
    ("d", "n_tune", "options", "expected"),
    [
        *((d, n, {}, {}) for d in START for n in (0, 1, 2, 7, 60)),
        (5, 60, {"target_accept": 0.3}, {"target_accept": 0.3}),
    ],
)
def test_mala(d, n_tune, options, expected):
    target, expected = slow_skewed(d), {"target_accept": 0.574} | expected
    step = build(pk.baselines.MALA, target, d, **options)
    trace = run(step, n_tune + 20, n_tune, START[d], seed=2)
    rng = np.random.default_rng(2)
    moves, log_s = slow_mala(target, np.array(START[d]), n_tune, n_tune + 20, rng, **expected)
    # Rounding errors grow from move to move; those of the first ones are small.
    expected_x, alphas = np.array([move.new for move in moves]), [move.alpha for move in moves]
    np.testing.assert_allclose(trace.x[:30], expected_x[:30], rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(trace.x, expected_x, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(trace.stats["accept_prob"], alphas, rtol=1e-3, atol=1e-5)
    assert trace.log_scale[-1] == pytest.approx(log_s, rel=1e-5, abs=1e-6)
    n_accepted = trace.stats["accept_share"].sum()
    assert n_accepted < n_tune + 20
    assert n_accepted > 0 or n_tune < 60  # before that, where it is steep, it may be stuck


# ---- limits ---------------------------------------------------------------------------------


def test_least_diagonal():
    target = Slow(normal, [1e-5, 1.0])
    _, chain, _ = compare("published", target, [1e-5, 0.5], 800, **rate_of("published"))
    assert chain.factor[0, 0] == 1e-3 < chain.factor[1, 1]


@pytest.mark.slow
def test_least_beta():
    """All is rejected."""
    trace, *_ = compare("published", Slow(normal, [1e-6]), [0.0], 1200, **rate_of("published"))
    assert trace.beta[-1] == 1e-4 < trace.beta[700]


@pytest.mark.slow
def test_many_dimensions():
    scales = np.geomspace(0.1, 10, 100)
    _, chain, _ = compare("fisher", Slow(normal, scales), scales, 300)
    assert chain.refreshes == [25, 45, 67, 100, 150, 200]


# ---- after tuning ---------------------------------------------------------------------------


def test_transitions_with_a_diagonal():
    """After tuning a transition is that of this matrix."""
    target = slow_skewed(5)
    step = build(pk.GadMALA, target, 5, factor="diagonal", n_leapfrog=3)
    trace = run(step, 300, 200, START[5])
    factor = np.exp(trace.log_scale[-1]) * trace.factor[-1]
    assert np.count_nonzero(factor) == 5
    bits = np.random.default_rng(0).bit_generator.state
    step.rng.bit_generator.state = bits
    rng = np.random.default_rng(0)
    point, moves = {"x": trace.x[-1]}, 0
    for _ in range(50):
        move = reference.hamiltonian(target, point["x"], factor, 3, rng)
        point, [row] = step.step(point)
        np.testing.assert_allclose(point["x"], move.new, rtol=1e-9, atol=1e-9)
        assert row["accept_prob"] == pytest.approx(move.alpha, rel=1e-9)
        moves += move.accepted
    assert 10 < moves < 50


def test_the_form_that_learns_scales_only():
    """It is that of the dense one where there is nothing but scales."""
    options = {"n_leapfrog": 1, "factor": "diagonal"}
    trace = run(build(pk.GadMALA, slow_skewed(5), 5, **options), 220, 200, START[5])
    chain = reference.GadChain(slow_skewed(5), START[5], 200, "fisher", (0.574, 0.574))
    chain.learn_factor = lambda x, g, least: np.diag(reference.fisher_covariance(x, g, least)[1])
    rng = np.random.default_rng(0)
    for x, factor in zip(trace.x, trace.factor, strict=True):
        chain.step(rng)
        np.testing.assert_allclose(x, chain.x, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(factor, chain.factor, rtol=1e-9)
        chain.x = x


def test_chains_pool_their_pairs():
    """Of a chain in another mode too, but not of one that is far below the others."""
    chains = [build(pk.GadMALA, slow_skewed(2), 2) for _ in range(3)]
    for seed, step in enumerate(chains):
        run(step, 39, 200, START[2], seed)
    *home, away = chains
    assert home[0].pauses() == [19, 39, 59, 89, 133]
    windows = [step.tuning.pairs.points[: step.tuning.pairs.counts[0]] for step in home]
    pairs = np.concatenate([window - window.mean(axis=0) for window in windows])
    pooled = reference.fisher_factor(pairs[:, :2], pairs[:, 2:], 1e-8)
    windows[1][:, :2] += 100.0
    away.state.logp[0] -= 100.0
    before = away.parameters.factor.copy()
    learn_together(chains, [step.point for step in chains])
    np.testing.assert_array_equal(away.parameters.factor, before)
    for _ in range(2):  # as it is, and after the transition that each chain learns L with
        for step in home:
            np.testing.assert_allclose(dense(step.parameters.factor), pooled, rtol=1e-9)
            step.step({"x": step.point})
    assert [step.tuning.next_refresh[0] for step in chains] == [60, 60, 40]
    assert not any(step.tuning.is_pooled[0] for step in home)  # next time each may learn alone
    for n in (2, 0):  # too few to learn from
        for step in home:
            step.tuning.pairs.counts[0] = n
        pk.GadMALA.learn(home)
    np.testing.assert_allclose(dense(home[0].parameters.factor), pooled, rtol=1e-9)


@pytest.mark.parametrize(("d", "is_dense"), [(1000, True), (1001, False)])
def test_default_form(d, is_dense):
    step = build(pk.GadMALA, Slow(normal, np.ones(d)), d)
    assert is_diagonal(step.parameters.factor) != is_dense


# ---- traps ----------------------------------------------------------------------------------


@numba.njit(LOGP_SIGNATURE)
def normal(x, data, shapes, gradient):
    """Independent coordinates with these scales."""
    total = 0.0
    for i in range(x.size):
        gradient[i] = -x[i] / data[i] ** 2
        total += 0.5 * x[i] * gradient[i]
    return total


@numba.njit(LOGP_SIGNATURE)
def slope(x, data, shapes, gradient):
    """Constant gradients."""
    total = 0.0
    for i in range(x.size):
        gradient[i] = data[0]
        total += data[0] * x[i]
    return total


@numba.njit(LOGP_SIGNATURE)
def funnel(x, data, shapes, gradient):
    """Neal's: a normal v, the other coordinates with variance exp(v)."""
    v, d = x[0], x.size
    gradient[0] = -v / 9 - (d - 1) / 2
    total = -(v**2) / 18 - (d - 1) * v / 2
    for i in range(1, d):
        gradient[i] = -x[i] * np.exp(-v)
        gradient[0] -= 0.5 * x[i] * gradient[i]
        total += 0.5 * x[i] * gradient[i]
    return total


@pytest.mark.slow
@pytest.mark.parametrize("name", ADAPTATIONS)
def test_start_at_the_mode(name):
    """The gradient is zero: L_ii = 1 to begin with."""
    trace, *_ = compare(name, Slow(normal, [0.5, 2.0], stiff), [0.0, 0.0], 200, **rate_of(name))
    if "published" not in name and name != "exact":
        assert trace.stats["accept_share"][200:].mean() > 0.1


@numba.njit(LOGP_SIGNATURE)
def stiff(x, data, shapes, v):
    for i in range(x.size):
        v[i] /= -(data[i] ** 2)
    return 0.0


@pytest.mark.slow
@pytest.mark.parametrize("scales", [[1e-3, 1e3], [1e-6, 1e-6], [1e6, 1e6]], ids=str)
def test_any_scale_from_the_mode(scales):
    step = build(pk.GadMALA, Slow(normal, scales), 2, steps_per_draw=10)
    trace = run(step, 1000, 400, [0.0, 0.0])
    np.testing.assert_allclose(trace.x[400:].std(axis=0) / scales, 1, atol=0.15)


@pytest.mark.slow
@pytest.mark.parametrize("size", [0.0, 1e-8, 1.0, 1e3])
@pytest.mark.parametrize("name", ["fisher", "published", "mala"])
def test_constant_gradients_in_a_box(name, size):
    """The density is exp(size · x) there; the gradient knows nothing of the walls."""
    options = {"learning_rate": 1e-2} if name == "published" else {}
    options |= {} if name == "mala" else {"adaptation": name}
    target = Slow(slope, [size], region=(np.array([0.0, 0.0]), np.array([1.0, 1.0])))
    sampler = pk.baselines.MALA if name == "mala" else pk.GadMALA
    step = build(sampler, target, 2, steps_per_draw=20, **options)
    trace = run(step, 800, 100, [0.9, 0.95])
    assert np.isfinite(trace.factor).all()
    assert (np.diagonal(trace.factor, axis1=1, axis2=2) > 0).all()
    assert trace.stats["accept_share"][100:].mean() > 0.1
    mean = 0.5 + size / 12 if size < 0.1 else 1 / (1 - np.exp(-size)) - 1 / size
    sd = 12**-0.5 if size < 1e2 else 1 / size
    np.testing.assert_allclose((trace.x[100:].mean(axis=0) - mean) / sd, 0, atol=0.3)
    if name == "fisher":
        assert "x[0], x[1]" in str(trace.stats["warning"][-1])


@pytest.mark.parametrize("name", [*(name for name in ADAPTATIONS if name != "exact"), "leapfrog"])
def test_a_funnel_breaks_nothing(name):
    sampler, arguments, _ = ADAPTATIONS.get(name, (pk.GadMALA, {"n_leapfrog": 5}, None))
    step = build(sampler, Slow(funnel, [0.0]), 4, steps_per_draw=10, **arguments)
    trace = run(step, 300, 100, [0.0, 1.0, -1.0, 0.5])
    assert np.isfinite(trace.x).all()
    assert np.isfinite(trace.factor).all()
    assert (np.diagonal(trace.factor, axis1=1, axis2=2) > 0).all()
    assert trace.stats["accept_share"][100:].mean() > 0.05
    assert ((trace.stats["accept_prob"] >= 0) & (trace.stats["accept_prob"] <= 1)).all()


# ---- in a model -----------------------------------------------------------------------------


def test_some_variables_of_a_model():
    """Gradient and Hessian are those of the own variables, where all others and the data are."""
    with pm.Model() as model:
        a = pm.Normal("a", 0, [1.0, 2.0])
        b = pm.Gamma("b", 2, 1)
        data = pm.Data("data", [0.5, 1.5, 1.0])
        pm.Normal("y", a[0] * pm.math.exp(a[1] / 2), b, observed=data)
    graphs = [model.logp(), model.dlogp([a]), model.d2logp([a], negate_output=False)]
    with pytensor.config.change_flags(cxx=""):  # a scan would compile C, for seconds
        compiled = [model.compile_fn(graph, mode="FAST_COMPILE") for graph in graphs]
    logp, gradient, hessian = compiled
    options = {"adaptation": "published", "gradient": "exact", "learning_rate": 0.05}
    step = pk.GadMALA([a], model=model, steps_per_draw=2, **options)
    step.setup_chain(np.random.default_rng(0), 40, 0)
    others, point = {"b_log__": np.array(0.3)}, {"a": np.array([0.5, -0.5])}

    def target(x):
        at = others | {"a": x}
        return float(logp(at)), gradient(at)

    chain = reference.GadChain(
        target,
        point["a"],
        80,
        "published",
        (0.55, 0.55),
        learning_rate=0.05,
        hessian=lambda x: hessian(others | {"a": x}),
    )
    rng, accepted = np.random.default_rng(0), 0
    for i in range(40):
        if i == 10:
            others["b_log__"] = np.array(-0.5)
        if i == 20:
            with model:
                pm.set_data({"data": [3.0, 2.0]})
        if i == 30:
            point["a"] = chain.x = np.array([-1.0, 1.0])
        point, _ = step.step(point | others)
        accepted += chain.step(rng).accepted + chain.step(rng).accepted
        np.testing.assert_allclose(point["a"], chain.x, rtol=1e-9)
        np.testing.assert_allclose(np.tril(step.parameters.factor), chain.factor, rtol=1e-9)
        chain.x = point["a"]
    assert 20 < accepted < 75


def test_a_model_without_gradients():
    op = pytensor.wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])(np.copy)
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("p", op(x).sum())
    for sampler in (pk.baselines.MALA, pk.GadRWM, pk.GadMALA):
        with pytest.raises(ValueError, match=r"has no gradient.*pk\.GAM"):
            sampler(model=model)


@pytest.mark.parametrize("tune", [0, 50])
@pytest.mark.parametrize("sampler", [pk.baselines.MALA, pk.GadMALA])
def test_a_start_without_a_finite_gradient(sampler, tune):
    """The log-density is finite there; the walk needs no gradient to move."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Normal("y")
        pm.Potential("cone", -pt.sqrt((x**2).sum()))
    step = sampler(model=model, jitter=False)
    step.setup_chain(np.random.default_rng(1), tune, 10)
    with pytest.raises(SamplingError, match=r"gradient.*not finite.*x\[0\], x\[1\]\.") as error:
        step.step(model.initial_point())
    assert "y" not in str(error.value).partition("Point")[0].partition("respect to")[2]
    walk = pk.GadRWM(model=model, jitter=False)
    walk.setup_chain(np.random.default_rng(1), tune, 10)
    point = model.initial_point()
    for _ in range(50):
        point, _ = walk.step(point)
    assert (point["x"] != 0).all()


@pytest.mark.slow
def test_a_hessian_that_is_not_finite():
    """L goes on learning from the other proposals."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        pm.Potential("p", -(pm.math.maximum(x, 0.0) ** 1.5).sum())
    step = pk.GadMALA(model=model, adaptation="published", gradient="exact")
    step.setup_chain(np.random.default_rng(1), 500, 10)
    point = {"x": np.full(2, 0.5)}
    for _ in range(500):
        point, _ = step.step(point)
    assert np.isfinite(step.parameters.factor).all()


def test_a_walk_in_a_narrow_region_finds_its_scale():
    with pm.Model() as model:
        pm.Normal("x", 0, 1e4, shape=2)
    step = pk.GadRWM(model=model, region={"x": (-1, 1)})
    step.setup_chain(np.random.default_rng(1), 300, 300)
    point, shares = {"x": np.full(2, 0.1)}, []
    for i in range(600):
        if i == 300:
            step.stop_tuning()
        point, [stats] = step.step(point)
        shares.append(stats["accept_share"])
    assert 0.1 < np.mean(shares[300:]) < 0.5


@pytest.mark.parametrize(("d", "factor", "pairs"), [(50, None, 1200), (1200, None, 1000)])
def test_memory(d, factor, pairs):
    step = pk.GadMALA(model=flat_model(d), factor=factor)
    step.setup_chain(np.random.default_rng(1), 10**6, 10)
    assert step.tuning.pairs.points.shape == (pairs, 2 * d)
    assert step.parameters.factor.size < 50_000


# ---- options --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sampler", "options", "message"),
    [
        *((pk.GadMALA, {"adaptation": value}, "adaptation") for value in ("x", None, "Fisher", 1)),
        *((pk.GadRWM, {"adaptation": value}, "adaptation") for value in ("fisher", None, True)),
        *((pk.GadMALA, {"gradient": value}, "gradient") for value in ("x", None, 2)),
        *((pk.GadMALA, {"n_leapfrog": value}, "n_leapfrog") for value in (0, -1, 1.0, True, "3")),
        *((pk.GadMALA, {"factor": value}, "factor") for value in ("x", 3, "low_rank")),
        *(
            (sampler, {"adaptation": "published", "learning_rate": value}, "learning_rate")
            for sampler in (pk.GadRWM, pk.GadMALA)
            for value in (0, -1, np.nan, np.inf, True, "x", pk.samplers.Decay(0.1))
        ),
        (pk.GadMALA, {"learning_rate": 0.1}, "learning_rate.*published.*fisher"),
        (pk.GadRWM, {"learning_rate": 0.1}, "learning_rate.*published.*whitened"),
        (pk.GadMALA, {"gradient": "exact"}, "exact.*published"),
        (
            pk.GadMALA,
            {"adaptation": "published", "gradient": "exact", "keep_adapting": True},
            "exact.*tuning",
        ),
        (pk.GadMALA, {"adaptation": "published", "n_leapfrog": 3}, "n_leapfrog.*published"),
        (pk.GadMALA, {"adaptation": "published", "factor": "dense"}, "factor.*fisher.*published"),
    ],
    ids=str,
)
def test_impossible_options(sampler, options, message):
    with pytest.raises(ValueError, match=message):
        sampler(model=flat_model(2), **options)


# ---- statistics that PyMC and ArviZ know from NUTS ------------------------------------------


@pytest.fixture(scope="module")
def edge():
    """A density that ends abruptly, so that some trajectories leave the support."""
    with pm.Model() as model:
        pm.HalfNormal("x", default_transform=None)
        pm.Normal("y", shape=2)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("cls", [pk.GadMALA, pk.baselines.MALA])
def test_arviz_and_pymc_understand_the_statistics(cls, edge, caplog):
    mpl.use("Agg")
    step = cls(model=edge, steps_per_draw=3)
    dt = pk.sample(500, tune=500, chains=2, step=step, model=edge, random_seed=1, progressbar=False)
    found = dt["sample_stats"].to_dataset()
    kinds = {"step_size": "f", "n_steps": "i", "energy": "f", "diverging": "b"}
    assert {name: found[name].dtype.kind for name in kinds} == kinds
    np.testing.assert_array_equal(found["step_size"], found["scaling"])
    np.testing.assert_array_equal(found["n_steps"][:, 1:], found["n_logp"][:, 1:])
    kinetic = found["energy"] + found["lp"]
    assert kinetic.min() >= 0
    assert kinetic.mean() == pytest.approx(1.5, rel=0.2)
    rejected = found["accept_share"] < 1  # of three transitions
    assert found["diverging"].any()
    assert not found["diverging"].where(~rejected, other=False).any()
    [said] = [str(one) for one in dt["findings"]["what"].values if "divergences" in str(one)]
    assert said == f"There were {int(found['diverging'].sum())} divergences after tuning."
    assert "divergences" in codes(dt)
    assert (az.bfmi(dt)["energy"] > 0.5).all()
    az.plot_energy(dt)
