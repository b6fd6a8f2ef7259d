"""Models cut at their black boxes: what is found, and that the parts make up the whole."""

import pickle
from functools import cache

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pytensor import wrap_py
from pytensor.compile import Mode
from pytensor.link.jax.ops import JAXOp

import pymc_kameleon as pk
from pymc_kameleon.model.black_boxes import is_of_user, name_of
from pymc_kameleon.model.functions import ModelLogp
from pymc_kameleon.model.simulator_calls import NotEmulated
from pymc_kameleon.model.simulator_logp import INPUTS, PULLBACK, SimulatorLogp
from pymc_kameleon.model.simulators import cut_of

# ---- black boxes --------------------------------------------------------------------------------


def test_a_function_of_jax_is_a_black_box_of_its_own_name():
    op = object.__new__(JAXOp)  # JAX need not be installed
    op.name = "solve"
    assert is_of_user(op)
    assert name_of(op) == "solve"


def decay(theta):
    return np.exp(-theta.mean()) * np.array([1.0, 0.5 + theta[0] ** 2, 2.0])


def cooling(theta):
    return 1.0 + np.array([np.sin(theta).sum() ** 2, np.abs(theta).max()])


def decay_at(theta, times):
    return theta[0] ** 2 + np.exp(-np.abs(theta[1]) * times)


calls = []


def black_box(function, itypes=(pt.dvector,), otypes=(pt.dvector,)):
    def counted(*inputs):
        calls.append(function.__name__)
        return function(*inputs)

    counted.__name__ = function.__name__
    return wrap_py(itypes=[*itypes], otypes=[*otypes])(counted)


decay_op, cooling_op = black_box(decay), black_box(cooling)
decay_at_op = black_box(decay_at, (pt.dvector, pt.dvector))


@wrap_py(itypes=[pt.dscalar, pt.dvector], otypes=[pt.dvector, pt.lscalar, pt.dmatrix])
def several(a, b):
    return a * b, np.array(b.size), np.outer(b, b) + a**2


# ---- models -------------------------------------------------------------------------------------


def observed(mu, n=3):
    pm.Normal("y", mu, 0.5, observed=np.linspace(0.1, 1.0, n))


def shared():
    beta, gamma = pm.LogNormal("beta"), pm.LogNormal("gamma")
    theta = pm.LogNormal("theta", shape=2)
    observed(decay_op(pt.stack([beta, gamma])) + decay_op(theta) + decay_op(theta[::-1] ** 2))


def two():
    theta, sigma = pm.Normal("theta", shape=2), pm.HalfNormal("sigma")
    pm.Normal("y", decay_op(theta), sigma, observed=[0.5, 0.2, 0.3])
    pm.Normal("other", cooling_op(theta * sigma), sigma, observed=[1.0, 0.3])


def nested():
    theta = pm.Normal("theta", shape=2)
    first = decay_op(theta)
    second = cooling_op(first[:2] * theta[0])
    observed(decay_op(second) + first)


def feeding_only():
    theta = pm.Normal("theta", shape=2)
    observed(cooling_op(decay_op(theta)), 2)


def data():
    theta = pm.Normal("theta", shape=2)
    observed(decay_at_op(theta, pm.Data("times", [0.0, 1.0, 2.0])))


def constants():
    theta, times = pm.Normal("theta", shape=2), np.array([0.0, 1.0, 2.0])
    mu = [decay_at_op(theta, pt.as_tensor(t)) for t in (times, times + 1.0)]
    observed(sum(mu) + decay_at_op(theta**2, pt.as_tensor(times.copy())))


def twice():
    theta = pm.Normal("theta", shape=2)
    observed(decay_op(theta * 2.0))
    pm.Potential("p", -(decay_op(theta * 2.0) ** 2).sum())  # which PyMC does not merge with it


def potential():
    theta = pm.Normal("theta", shape=2)
    pm.Potential("p", -((decay_op(theta) - 0.3) ** 2).sum())


def custom():
    theta = pm.Normal("theta", shape=2)

    def logp(value, mu):
        return -(((value - mu) / 0.5) ** 4).sum()

    pm.CustomDist("y", decay_op(theta), logp=logp, observed=[0.1, 0.2, 0.3])


def interval():
    observed(decay_op(pt.stack([pm.Uniform("a", 1.0, 2.0), pm.Beta("b", 2, 2)])))


def simplex():
    observed(decay_op(pm.Dirichlet("shares", np.ones(3))))


def discrete():
    k, theta = pm.Poisson("k", 2), pm.Normal("theta", shape=2)
    observed(decay_op(theta + 0.1 * k) + k)


def rows():
    theta = pm.Normal("theta", shape=(3, 2))
    both = pt.vectorize(decay_op, signature="(a)->(b)")(theta)
    observed(both.sum(0) + decay_op(theta[0] + theta[1]))


def rows_with_data():
    theta, times = pm.Normal("theta", shape=2), pt.as_tensor([[0.0, 1.0, 2.0], [1, 2, 3]])
    both = pt.vectorize(decay_at_op, signature="(a),(t)->(t)")(theta, times)
    observed(both.sum(0))


def outputs():
    a, b = pm.Normal("a"), pm.Normal("b", shape=2)
    path, n, product = several(a, b)
    observed(product.sum(0) + path + 0.0 * n.shape.sum(), 2)


def field():
    c = pm.Normal("c", shape=4)
    basis = np.random.default_rng(0).normal(size=(20, 3))
    observed(decay_op(pt.exp(basis @ c[1:])))


def subjects():
    """Many inputs, of which few are different: no coordinates."""
    cl, v, eta = pm.LogNormal("cl"), pm.LogNormal("v"), pm.Normal("eta", shape=2)
    sd = pm.HalfNormal("sd")
    own = cl * pt.exp(sd * eta)
    observed(decay_op(pt.stack([own[0], v, own[1], v, v, v])))


ONE, PLAIN = [(2, 3)], lambda *boxes: [(b, 0) for b in boxes]

MODELS = {  # sizes of boxes, and box and level of each application
    shared: (ONE, PLAIN(0, 0, 0)),
    two: ([(2, 2), (2, 3)], PLAIN(0, 1)),
    nested: ([(2, 3), (2, 2)], [(0, 0), (1, 1), (0, 2)]),
    feeding_only: ([(2, 3), (3, 2)], [(0, 0), (1, 1)]),
    data: (ONE, PLAIN(0)),
    constants: ([(2, 3), (2, 3)], PLAIN(0, 1, 0)),
    twice: (ONE, PLAIN(0)),
    potential: (ONE, PLAIN(0)),
    custom: (ONE, PLAIN(0)),
    interval: (ONE, PLAIN(0)),
    simplex: (ONE, PLAIN(0)),
    discrete: (ONE, PLAIN(0)),
    rows: (ONE, PLAIN(0, 0, 0, 0)),
    rows_with_data: ([(2, 3), (2, 3)], PLAIN(0, 1)),
    outputs: ([(3, 6)], PLAIN(0)),
    field: ([(3, 3)], PLAIN(0)),
    subjects: ([(6, 3)], PLAIN(0)),
}

FAST = shared, nested, data, subjects
"""The other models are cut where one of these is, and each takes a second to compile."""

each_model = pytest.mark.parametrize(
    "build",
    [
        pytest.param(build, id=build.__name__, marks=[pytest.mark.slow] * (build not in FAST))
        for build in MODELS
    ],
)


@cache
def model_of(build):
    with pm.Model() as model:
        build()
    return model


def log_density_of(model, own=None, kind=SimulatorLogp):
    own = model.continuous_value_vars if own is None else own
    start = model.initial_point()
    d = sum(start[var.name].size for var in own)
    region = np.array([np.full(d, -np.inf), np.full(d, np.inf)])
    return kind(model, own, start, {}, region).compiled()


@cache
def cut(build):
    return log_density_of(model_of(build))


def simulators_of(model):
    """Return the simulators of a model, of which nothing is compiled."""
    own = model.continuous_value_vars
    return cut_of(model, model.logp(), own, model.initial_point()).simulators


@cache
def found(build):
    return simulators_of(model_of(build))


def point_of(logp, seed=1):
    d = logp.region.shape[1]
    z = np.concatenate([np.random.default_rng(seed).normal(0, 0.5, d), np.zeros(logp.point.size)])
    return z[: logp.point.size] + 2.0 * (np.arange(logp.point.size) >= d)


# ---- a slow emulated log-density ----------------------------------------------------------------


class StandIn:
    """Smooth functions in place of boxes, which have nothing to do with them."""

    def __init__(self, simulators):
        rng = np.random.default_rng(5)
        self.weights = [rng.normal(size=(q, p)) for p, q in simulators.sizes]
        self.applications, self.sizes = simulators.applications, simulators.sizes
        self.levels = range(simulators.applications[:, 3].max() + 1)

    def at_level(self, level):
        for box, i, j, own in self.applications:
            if own == level:
                p, q = self.sizes[box]
                yield self.weights[box], slice(i, i + p), slice(j, j + q)

    def outputs(self, logp, z):
        y = np.full((1, logp.simulators.q), 0.7)
        for level in self.levels:
            x = logp.inputs_at([z], y)[0]
            for w, own_x, own_y in self.at_level(level):
                y[0, own_y] = 1.0 + 0.5 * np.tanh(w @ x[own_x])
        return y

    def value(self, logp, z):
        return logp.logp_given([z], self.outputs(logp, z))[0]

    def gradient(self, logp, z):
        y = self.outputs(logp, z)
        tape = logp.tape()
        parts = logp.parts(tape)
        parts.y[:], parts.x[:] = y[0], logp.inputs_at([z], y)[0]
        parts.y_bar[:], parts.z_bar[:] = (g[0] for g in logp.gradients_given([z], y))
        for level in reversed(self.levels):
            parts.x_bar[:] = 0.0
            for w, own_x, own_y in self.at_level(level):
                slope = 0.5 * (1.0 - np.tanh(w @ parts.x[own_x]) ** 2)
                parts.x_bar[own_x] = w.T @ (slope * parts.y_bar[own_y])
            logp._run(PULLBACK, z, tape)
        return parts.z_bar


def by_differences(function, z, d, h=1e-5):
    steps = h * np.eye(z.size)[:d]
    return np.array([(function(z + s) - function(z - s)) / (2 * h) for s in steps])


# ---- the parts make up the whole ----------------------------------------------------------------


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_boxes_and_their_applications_are_found(build):
    simulators = found(build)
    sizes, applications = MODELS[build]
    assert simulators.sizes.tolist() == [list(pair) for pair in sizes]
    assert [(int(b), int(level)) for b, _, _, level in simulators.applications] == applications
    ends = np.cumsum(simulators.sizes[simulators.applications[:, 0]], axis=0)
    np.testing.assert_array_equal(simulators.applications[1:, 1:3], ends[:-1])
    assert [simulators.p, simulators.q] == ends[-1].tolist()


@pytest.mark.slow
@each_model
def test_the_truth_is_the_models_log_density(build):
    model, logp = model_of(build), cut(build)
    z = point_of(logp)
    function = model.compile_fn(
        model.logp(), inputs=logp.value_vars, point_fn=False, mode=Mode("py", "fast_compile")
    )
    ends = np.cumsum([int(np.prod(shape)) for shape in logp.shapes])[:-1]
    parts = zip(np.split(z, ends), logp.shapes, logp.value_vars, strict=True)
    expected = function(*(part.reshape(shape).astype(var.dtype) for part, shape, var in parts))
    np.testing.assert_allclose(logp(z), expected, rtol=1e-12)
    y = logp.gradient.copy()
    np.testing.assert_allclose(logp.logp_given([z], [y]), [expected], rtol=1e-12)


@pytest.mark.slow
def test_the_truth_is_that_of_other_steps_to_the_last_bit():
    z = point_of(cut(nested))
    assert cut(nested)(z) == log_density_of(model_of(nested), kind=ModelLogp)(z)


FUNCTIONS = {"decay": decay, "cooling": cooling}


@pytest.mark.slow
@each_model
def test_outputs_are_those_of_the_inputs(build):
    """Each box, called by hand with the inputs of an application, returns its outputs."""
    logp = cut(build)
    z = point_of(logp)
    logp(z)
    y = logp.gradient.copy()
    x = logp.inputs_at([z], [y])[0]
    for b, i, j, _ in logp.simulators.applications:
        box = logp.simulators.boxes[b]
        if box.name in FUNCTIONS and not box.takes_coordinates:
            expected = FUNCTIONS[box.name](x[i : i + box.p])
            np.testing.assert_allclose(y[j : j + box.q], expected, rtol=1e-13)
        if build is outputs:
            path, _, product = several.perform.__self__._FromFunctionOp__fn(x[0], x[1:])
            np.testing.assert_allclose(y, [*path, *product.ravel()], rtol=1e-13)


@each_model
def test_the_gradient_of_an_emulated_log_density(build):
    logp = cut(build)
    z, stand_in = point_of(logp), StandIn(logp.simulators)
    expected = by_differences(lambda at: stand_in.value(logp, at), z, logp.region.shape[1])
    found = stand_in.gradient(logp, z)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    y = stand_in.outputs(logp, z)
    without_pullback = logp.gradients_given([z], y)[1][0]
    assert not np.allclose(without_pullback, expected, rtol=1e-3), "this test can fail"


@each_model
def test_the_density_by_outputs(build):
    logp = cut(build)
    z, y = point_of(logp), StandIn(logp.simulators).outputs(cut(build), point_of(logp))[0]
    expected = by_differences(lambda at: logp.logp_given([z], [at])[0], y, y.size)
    found = logp.gradients_given([z], [y])[0][0]
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


def test_levels_are_pulled_back_one_after_the_other():
    """A twin that pulls all of them back at once is wrong where boxes are nested."""
    logp = cut(nested)
    z, twin = point_of(logp), StandIn(logp.simulators)
    expected = twin.gradient(logp, z).copy()
    twin.levels = range(1)
    twin.at_level = lambda level: (own for k in range(3) for own in StandIn.at_level(twin, k))
    twin.outputs = StandIn(logp.simulators).outputs
    assert not np.allclose(twin.gradient(logp, z), expected, rtol=1e-3)


# ---- what boxes are -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (shared, ("theta[0]", "theta[1]")),
        (interval, ("a", "b")),
        (discrete, ("input 0", "input 1")),
        (rows, ("theta[0, 0]", "theta[0, 1]")),
        (field, ("c[1]", "c[2]", "c[3]")),
        (simplex, ("shares_simplex__[0]", "shares_simplex__[1]")),
        (outputs, ("a", "b[0]", "b[1]")),
    ],
)
def test_names_of_inputs(build, names):
    assert found(build).boxes[0].inputs == names


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_coordinates_are_taken_where_they_are_fewer(build):
    taken = [box.takes_coordinates for box in found(build).boxes]
    assert any(taken) == (build in (simplex, field))


@pytest.mark.parametrize(("times", "p"), [(2, 5), (20, 2)])
def test_parameters_that_are_repeated_for_each_trial_are_an_input_each(times, p):
    with pm.Model() as model:
        a, b = pm.LogNormal("a"), pm.Normal("b")
        observed(decay_op(pt.concatenate([pt.full((times,), a), pt.stack([b, b, b])])))
    [box] = simulators_of(model).boxes
    assert box.takes_coordinates == (times == 20)
    assert box.p == p
    assert box.inputs[-1] == "b"


def test_finding_boxes_calls_each_once():
    model = model_of(shared)
    before = len(calls)
    simulators_of(model)
    assert calls[before:] == ["decay"] * 3
    before = len(calls)
    again = log_density_of(model)
    assert len(calls) == before + 3 * again.n_trials
    assert again.functions is cut(shared).functions


def test_new_data_need_no_compilation():
    model = model_of(data)
    logp, times = log_density_of(model), model["times"].get_value()
    z = point_of(logp)
    before = logp(z)
    try:
        model.set_data("times", [0.5, 1.5, 2.5])
        logp.read_data()
        assert logp(z) != before
        expected = decay_at(z, np.array([0.5, 1.5, 2.5]))
        np.testing.assert_allclose(logp.gradient, expected, rtol=1e-14)
        assert log_density_of(model).functions is logp.functions
    finally:
        model.set_data("times", times)


@pytest.mark.slow
def test_some_variables_alone():
    """A block that another step's variables are beside: z̄ is that of its own."""
    model = model_of(two)
    own = [var for var in model.value_vars if var.name == "theta"]
    logp = log_density_of(model, own)
    z, stand_in = point_of(logp), StandIn(logp.simulators)
    expected = by_differences(lambda at: stand_in.value(logp, at), z, 2)
    np.testing.assert_allclose(stand_in.gradient(logp, z), expected, rtol=1e-6, atol=1e-6)


@pytest.mark.slow
def test_a_copy_and_a_pickle_compute_the_same():
    logp, z = failing(), np.array([0.3, -0.2])
    expected, y = logp(z), logp.gradient.copy()
    assert np.isfinite(expected)
    for twin in (logp.copy(), pickle.loads(pickle.dumps(logp))):
        assert twin.gradient is not logp.gradient
        assert twin(z) == expected
        np.testing.assert_array_equal(twin.gradient, y)
        np.testing.assert_array_equal(twin.inputs_at([z], [y]), logp.inputs_at([z], [y]))


def test_through_python_they_are_the_same(monkeypatch):
    """As without numba, which nothing else is compiled by then."""
    model, logp = model_of(nested), cut(nested)
    where = model.continuous_value_vars, model.initial_point()
    in_python = {"mode": Mode("py", "fast_compile")}
    with pytest.raises(NotEmulated, match="numba cannot compile"):
        SimulatorLogp(model, *where, in_python, logp.region).compiled()
    monkeypatch.setattr(SimulatorLogp, "_check_compiled", lambda self: None)
    slow = SimulatorLogp(model, *where, in_python, logp.region).compiled()
    z, stand_in = point_of(logp), StandIn(logp.simulators)
    np.testing.assert_allclose(slow(z), logp(z), rtol=1e-12)
    np.testing.assert_allclose(slow.gradient, logp.gradient, rtol=1e-12)
    for function in (StandIn.value, StandIn.gradient):
        expected = function(stand_in, logp, z)
        np.testing.assert_allclose(function(stand_in, slow, z), expected, rtol=1e-10)


def test_compiled_code_calls_them_through_a_target():
    logp = cut(nested)
    target = logp.target(np.random.default_rng(0))
    assert target.others.tolist() == [function.address for function in logp.functions[INPUTS:]]


# ---- evaluations that fail ----------------------------------------------------------------------


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def fails(theta):
    if theta[0] > 1.0:
        raise ArithmeticError("no solution")
    return np.append(theta, np.nan if theta[0] > 0.5 else 1.0)[: 2 if theta[0] < -1.0 else 3]


@cache
def failing():
    with pm.Model() as model:
        observed(fails(pm.Normal("theta", shape=2)))
    return log_density_of(model)


@pytest.mark.slow
def test_what_is_rejected_has_no_outputs():
    logp = failing().copy()
    logp.rejects_errors = True
    assert np.isfinite(logp(np.zeros(2)))
    assert logp.gradient.tolist() == [0.0, 0.0, 1.0]
    assert logp(np.array([2.0, 0.0])) == -np.inf
    assert np.isnan(logp.gradient).all()
    assert "no solution" in logp.failure


def test_a_box_that_raises_at_the_initial_point_is_looked_at_near_it():
    """Shapes are the same there; each call is counted, also if all of them raise."""
    points = []

    @wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
    def fails_below(theta):
        points.append(theta)
        if theta[0] < 0.3 or theta[0] > 5.0:
            raise ArithmeticError("no solution")
        return np.append(theta, theta[0] * theta[1])

    with pm.Model() as model:
        theta = pm.Normal("theta", shape=2)
        observed(fails_below(theta))
    logp = log_density_of(model)
    assert 1 < logp.n_trials == len(points)
    assert (points[0] == 0.0).all()
    assert np.isfinite(logp(np.ones(2)))
    assert logp.gradient.tolist() == [1.0, 1.0, 1.0]
    points.clear()
    with pytest.raises(NotEmulated, match="no solution") as caught:
        SimulatorLogp(model, model.value_vars, {"theta": np.full(2, 99.0)}, {}, logp.region)
    assert caught.value.n_trials == len(points) == 10


@pytest.mark.slow
def test_an_error_is_raised_if_none_is_rejected():
    with pytest.raises(ArithmeticError, match="no solution"):
        failing()(np.array([2.0, 0.0]))


def test_outputs_that_are_nan_arrive():
    logp = failing().copy()
    assert not np.isfinite(logp(np.array([0.7, 0.0])))
    np.testing.assert_array_equal(logp.gradient, [0.7, 0.0, np.nan])


def test_outputs_of_another_length_are_told():
    with pytest.raises((TypeError, ValueError)):
        failing()(np.array([-2.0, 0.0]))


# ---- what is not emulated -----------------------------------------------------------------------


def no_box():
    observed(pm.Normal("theta", shape=3))


def of_data_only():
    observed(pm.Normal("theta") + decay_op(pm.Data("data", [1.0, 2.0])))


def beside_data():
    observed(decay_op(pm.Normal("theta", shape=2)) + decay_op(pm.Data("data", [1.0, 2.0])))


def in_a_loop():
    theta = pm.Normal("theta", shape=2)
    path = pytensor.scan(
        lambda x: cooling_op(x), outputs_info=[theta], n_steps=2, return_updates=False
    )
    observed(path[-1], 2)


@wrap_py(itypes=[pt.lvector], otypes=[pt.dvector])
def of_integers(k):
    return k * 1.0


def integer_inputs():
    theta = pm.Normal("theta", shape=3)
    observed(of_integers(pt.floor(theta).astype("int64")) + theta)


@wrap_py(itypes=[pt.dvector], otypes=[pt.lvector])
def counts(theta):
    return np.floor(theta).astype(np.int64)


def integer_outputs():
    theta = pm.Normal("theta", shape=3)
    observed(counts(theta) + theta)


@wrap_py(itypes=[pt.dvector], otypes=[pt.dscalar])
def log_likelihood(theta):
    return np.asarray(-(theta**4).sum())


def returns_log_likelihood():
    theta = pm.Normal("theta", shape=2)
    pm.Potential("p", log_likelihood(theta))
    observed(decay_op(theta))


def beside_outliers(likelihood=lambda own: own):
    """Log-likelihoods of three trials, each of which may be an outlier, and one has to be."""
    own = likelihood(decay_op(pm.Normal("theta", shape=2)))
    own = pt.where(np.array([True, True, False]), own, -66.0)
    pm.Potential("p", pt.logaddexp(np.log(0.95) + own, np.log(0.05) - 3.0).sum())


def rounded():
    pm.Potential("p", -(pt.floor(decay_op(pm.Normal("theta", shape=2))).sum() ** 2))


@wrap_py(itypes=[pt.dvector], otypes=[pt.dvector])
def never(theta):
    raise ValueError("bad start")


def raises():
    observed(never(pm.Normal("theta", shape=2)))


def estimated():
    @wrap_py(itypes=[pt.dvector, pt.lscalar], otypes=[pt.dvector])
    def noisy(theta, seed):
        return theta + np.random.default_rng(int(seed)).normal(size=2)

    observed(noisy(pm.Normal("theta", shape=2), pk.noise_seed()), 2)


REASONS = {
    no_box: "calls no black box",
    of_data_only: "`decay` is no function of the user's that depends on parameters",
    beside_data: "calls Python for",
    in_a_loop: "`cooling` is called in a loop",
    integer_inputs: "`of_integers` takes numbers of type int64",
    integer_outputs: "`counts` returns numbers of type int64",
    returns_log_likelihood: "`log_likelihood` returns the log-likelihood",
    beside_outliers: "`decay` returns the log-likelihood",
    rounded: "no gradient in what `decay` returns",
    raises: "`never` raised ValueError .* initial point, and at 9 points around .* bad start",
    estimated: "is an estimate",
}


@pytest.mark.parametrize("build", REASONS, ids=lambda build: build.__name__)
def test_what_is_not_emulated_is_told(build):
    with pm.Model() as model:
        build()
    with pytest.raises(NotEmulated, match=REASONS[build]):
        log_density_of(model)


def normal_beside_outliers():
    beside_outliers(lambda own: -((own - [9.0, 99.0, 999.0]) ** 2) / 1e4)


def laplace():
    """The log-density has slope 1 in predictions up to 999."""
    pm.Laplace("y", decay_op(pm.Normal("theta", shape=2)), 1, observed=np.full(3, 999.0))


@pytest.mark.parametrize("build", [normal_beside_outliers, laplace])
def test_predictions_are_emulated(build):
    with pm.Model() as model:
        build()
    assert log_density_of(model).simulators.q == 3


def test_a_box_of_other_variables_is_told():
    with pm.Model() as model:
        theta, sigma = pm.Normal("theta", shape=2), pm.HalfNormal("sigma")
        pm.Normal("y", decay_op(theta), sigma, observed=[0.5, 0.2, 0.3])
    with pytest.raises(NotEmulated, match="`decay` does not depend on sigma_log__"):
        log_density_of(model, [var for var in model.value_vars if var.name == "sigma_log__"])
