"""How much inputs matter: against closed forms, and with the emulator's uncertainty."""

import logging
from itertools import permutations

import numpy as np
import pymc as pm
import pytest
from numpy.testing import assert_allclose

import pymc_kameleon as pk
from pymc_kameleon.analysis.emulator import SimulatorEmulator
from pymc_kameleon.analysis.sensitivity import MANY_POINTS, Inputs, _doubts, _errors, indices
from pymc_kameleon.samplers.emulator.evaluations import Calls

SLOPES = np.array([1.0, -0.5, 2.0, 0.3])
MIXING = np.array([[1.0, 0, 0, 0], [0.8, 0.6, 0, 0], [-0.5, 0.5, 1, 0], [0.2, 0.9, 0.1, 0.5]])
COVARIANCE = MIXING @ MIXING.T
A = np.array([0, 1, 4.5, 9, 99, 99, 99, 99])
"""Of Sobol's g-function: the larger, the less an input matters."""


def explained(places):
    """Return Var E(y | x_A) / Var y of y = SLOPES @ x, of normal x."""
    places = list(places)
    inner = COVARIANCE[np.ix_(places, places)]
    slopes = COVARIANCE[:, places] @ np.linalg.pinv(inner) @ COVARIANCE[places]
    return SLOPES @ slopes @ SLOPES / (SLOPES @ COVARIANCE @ SLOPES)


def linear_indices():
    """Return what is known of y = SLOPES @ x: Shapley effects as means over all orders."""
    p = len(SLOPES)
    orders = [list(order) for order in permutations(range(p))]
    shapley = np.zeros(p)
    for order in orders:
        for k, i in enumerate(order):
            shapley[i] += (explained(order[: k + 1]) - explained(order[:k])) / len(orders)
    return {
        "first_order": [explained([i]) for i in range(p)],
        "total_order": [1 - explained(set(range(p)) - {i}) for i in range(p)],
        "shapley": shapley,
    }


def linear(x):
    return (x @ SLOPES)[:, None]


def dependent(n=20_000):
    """Return draws of dependent inputs, each on a scale of its own, and the function of these."""
    x = np.random.default_rng(1).normal(size=(n, len(SLOPES))) @ MIXING.T
    return x


def ishigami(x):
    return np.sin(x[:, 0]) + 7 * np.sin(x[:, 1]) ** 2 + 0.1 * x[:, 2] ** 4 * np.sin(x[:, 0])


def ishigami_indices():
    """Return first-order and total indices (Ishigami & Homma 1990)."""
    first = np.array([0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 0])
    both = 0.01 * np.pi**8 * (1 / 18 - 1 / 50)
    return first / (first.sum() + both), (first + np.array([both, 0, both])) / (first.sum() + both)


def g_function(x):
    return np.prod((np.abs(4 * x - 2) + A) / (1 + A), axis=1)


def g_indices():
    """Return first-order and total indices (Saltelli & Sobol' 1995)."""
    own = 1 / (3 * (1 + A) ** 2)
    whole = np.prod(1 + own)
    return own / (whole - 1), own * whole / (1 + own) / (whole - 1)


def emulated(function, low, high, n=300, p=3, seed=0, log_outputs=False):
    """Return the emulator of a function, of calls at random inputs."""
    x = np.random.default_rng(seed).uniform(low, high, (n, p))
    y = function(x).reshape(n, -1)
    described = {"name": "f", "label": "f", "variant": int(log_outputs), "hyper": [[-1] * 4] * 4}
    names = [f"x[{k}]" for k in range(p)]
    ones = np.ones(y.shape[1])
    calls = Calls(described, names, x, y, np.zeros(n), np.ones(n, bool), ones, p)
    return SimulatorEmulator(calls, over=None if log_outputs else x)


# ---- indices of a function ----------------------------------------------------------------------


def test_dependent_normal_inputs_of_a_linear_function():
    known, drawn = linear_indices(), Inputs(dependent(), independent=False)
    found = indices(linear, drawn, np.random.default_rng(2), MANY_POINTS)
    for kind, values in known.items():
        assert_allclose(found[kind][0], values, atol=0.02, err_msg=kind)
    assert found["shapley"].sum() == pytest.approx(1, abs=1e-9)


def test_inputs_that_are_taken_for_independent_have_other_indices():
    """The broken twin: the test above can fail."""
    drawn = Inputs(dependent(), independent=True)
    found = indices(linear, drawn, np.random.default_rng(2))
    assert np.abs(found["total_order"][0] - linear_indices()["total_order"]).max() > 0.1


def test_monotone_scales_change_nothing():
    """A copula goes by ranks."""
    x = dependent()
    of_ranks = Inputs(np.exp(x), independent=False)
    found = indices(lambda x: linear(np.log(x)), of_ranks, np.random.default_rng(2))
    same = indices(linear, Inputs(x, independent=False), np.random.default_rng(2))
    assert_allclose(found["shapley"], same["shapley"], atol=1e-3)


def test_inputs_that_determine_each_other_share_what_they_explain():
    z = np.random.default_rng(3).normal(size=5000)
    drawn = Inputs(np.stack([z, 3 * z], axis=1), independent=False)
    found = indices(lambda x: x[:, :1], drawn, np.random.default_rng(4), 2**14)
    assert_allclose(found["first_order"], [[1, 1]], atol=0.01)
    assert_allclose(found["total_order"], [[0, 0]], atol=0.01)
    assert_allclose(found["shapley"], [[0.5, 0.5]], atol=0.02)


def test_an_input_that_does_not_vary_explains_nothing():
    x = dependent()
    x[:, 3] = 2.0
    found = indices(linear, Inputs(x, independent=False), np.random.default_rng(2))
    assert_allclose([found[kind][0, 3] for kind in found], 0, atol=0.01)


def test_a_bootstrap_of_parts_varies_as_other_draws_do():
    """Correlations of parts that are drawn anew are about as far apart as those of new draws."""

    def correlations(draw, n=200):
        return np.array([draw(k).r[0, 1] for k in range(n)])

    drawn = Inputs(dependent(1600), False, n_parts=80)
    rng = np.random.default_rng(1)
    again = correlations(lambda _: drawn.resampled(rng))
    others = np.random.default_rng(2).normal(size=(200, 1600, len(SLOPES))) @ MIXING.T
    new = correlations(lambda k: Inputs(others[k], independent=False))
    assert 0.6 < again.std() / new.std() < 1.6
    assert Inputs(dependent(1600), independent=False).resampled(rng).r[0, 1] == drawn.r[0, 1]


# ---- functions that are drawn from the process --------------------------------------------------


@pytest.mark.parametrize("log_outputs", [False, True])
def test_drawn_functions_have_the_moments_of_the_process(log_outputs):
    """Those by the textbook's formulas, of the covariances of all points."""
    known = emulated(lambda x: 2 + np.sin(4 * x.sum(axis=1)), 0, 2, 15, log_outputs=log_outputs)
    x = np.random.default_rng(5).uniform(0, 2, (4, 3))
    fit, unsure = known._fit, known._uncertainty

    def kernel(a, b):
        squares = np.sum((a[:, None] - b) ** 2, axis=2)
        return (1 + squares / 4) ** -2.0 + unsure.linear * a @ b.T + 100.0

    u = fit.transformed(x)
    both = np.concatenate([fit.u, u])
    noises = np.append(unsure.noises, np.zeros(len(u)))
    root = np.linalg.cholesky(kernel(both, both) + np.diag(noises))[len(fit.u) :, len(fit.u) :]
    covariance = root @ root.T * unsure.sd[0] ** 2
    drawn = np.array([known.drawn(k)(x)[:, 0] for k in range(2000)])
    drawn, mean = (np.log(own) if fit.log_outputs[0] else own for own in (drawn, known(x)[:, 0]))
    sd = np.sqrt(np.diag(covariance))
    assert_allclose((drawn.mean(axis=0) - mean) / sd, 0, atol=0.1)
    assert_allclose(np.cov(drawn.T) / np.outer(sd, sd), covariance / np.outer(sd, sd), atol=0.3)


def test_calls_that_are_added_are_where_least_is_known():
    """One after the other, the largest variance given those before, by the textbook's formulas."""
    known = emulated(ishigami, -np.pi, np.pi, 40)
    x = np.random.default_rng(6).uniform(-np.pi, np.pi, (60, 3))
    fit, unsure = known._fit, known._uncertainty
    u = np.concatenate([fit.u, fit.transformed(x)])
    squares = np.sum((u[:, None] - u) ** 2, axis=2)
    k = (1 + squares / 4) ** -2.0 + unsure.linear * u @ u.T + 100.0
    noises, seen = np.append(unsure.noises, np.full(60, unsure.noise)), [*range(40)]
    for place in unsure.least_known(fit, x, 5, known.y.std(axis=0)):
        inner = np.linalg.inv(k[np.ix_(seen, seen)] + np.diag(noises[seen]))
        variances = np.diag(k) - np.einsum("ij,jk,ik->i", k[:, seen], inner, k[:, seen])
        assert place == np.argmax(variances[40:])
        seen.append(40 + place)


# ---- whole --------------------------------------------------------------------------------------

CASES = {
    "Ishigami": (ishigami, -np.pi, np.pi, 3, ishigami_indices()),
    "g-function": (g_function, 0.0, 1.0, 8, g_indices()),
}


@pytest.mark.parametrize("case", CASES)
def test_known_indices_over_a_prior(case):
    function, low, high, p, truth = CASES[case]
    with pm.Model():
        pm.Uniform("x", low, high, shape=p)
        known = emulated(function, low, high, 300, p)
        found = pk.sensitivity(known, over="prior", random_seed=1)
    held = []
    for kind, values in zip(("first_order", "total_order"), truth, strict=True):
        assert_allclose(found[kind][0], values, atol=0.03)
        low, high = found[f"{kind}_interval"][0].values.T
        held += list((low <= values + 0.005) & (values - 0.005 <= high))
    assert np.mean(held) >= 0.75


# ---- what is said of it -------------------------------------------------------------------------


def codes(caplog):
    return [one.code for record in caplog.records for one in getattr(record, "findings", [])]


def bent(x):
    return x[:, 1] - x[:, 0] ** 2


def on_a_parabola():
    """Return a model whose inputs are near a parabola, on which `bent` is nearly constant."""
    with pm.Model() as model:
        z = pm.Normal("z", shape=2)
        pm.Deterministic("x", pm.math.stack([z[0], z[0] ** 2 + 0.3 * z[1]]))
    return model


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_an_emulator_of_a_corner_does_not_know_the_prior(caplog):
    """Indices are NaN of what is not known."""
    with pm.Model(), caplog.at_level(logging.INFO, "pymc_kameleon"):
        pm.Uniform("x", -np.pi, np.pi, shape=3)
        known = emulated(lambda x: np.sin(6 * x).sum(axis=1), 2, 2.5, 30)
        found = pk.sensitivity(known, over="prior", random_seed=1)
    assert found["unknown"][0] > 0.5
    assert np.isnan(found["first_order"]).all()
    assert np.isnan(found["first_order_interval"]).all()
    assert codes(caplog) == ["emulator_unsure"]


def test_errors_tell_a_corner_of_the_prior_from_the_whole():
    """Functions that are drawn may be too sure there, but errors grow with the distance."""
    x = np.random.default_rng(1).uniform(-np.pi, np.pi, (1000, 3))
    whole, corner = (
        emulated(ishigami, *ends).everywhere(x) for ends in ((-np.pi, np.pi), (2, 2.5))
    )
    assert _errors(whole, x) < 0.1
    assert _errors(corner, x) > 0.5


def test_outputs_that_do_not_vary_say_nothing():
    x = np.random.default_rng(1).uniform(size=(100, 3))
    known = emulated(lambda x: np.stack([x[:, 0], np.ones(len(x))], axis=1), 0, 1, 50)
    assert _errors(known, x) < 0.1
    with pm.Model():
        pm.Uniform("x", 0, 1, shape=3)
        found = pk.sensitivity(known, over="prior", random_seed=1)
    assert_allclose(found["first_order"][0], [1, 0, 0], atol=0.01)


def test_a_parabola_is_no_copula(caplog):
    with on_a_parabola():
        known = emulated(bent, -4, 9, 100, 2)
        pk.sensitivity(known, over="prior", random_seed=1)
    assert codes(caplog) == ["not_a_copula"]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_independent_inputs_and_unknown_outputs_say_nothing_of_the_copula():
    unknown, far = np.array([0.9]), np.array([[1.0], [1e9]])
    [one] = _doubts(unknown, far, far / 1e9, ["y"])
    assert one.code == "emulator_unsure"
    assert _doubts(0 * unknown, far, None, ["y"]) == []
    [one] = _doubts(0 * unknown, far, far / 1e9, ["y"])
    assert one.code == "not_a_copula"


@pytest.fixture(scope="module")
def decay():
    """Return a model with deterministics of what a simulator returns, and its result."""
    times = np.linspace(0.2, 5, 6)

    def left(rate, size):
        return size * np.exp(-rate * times)

    with pm.Model() as model:
        rate, size = pm.LogNormal("rate", -0.5, 0.3), pm.Normal("size", 1, 0.3)
        y = pk.black_box(left)(rate, size)
        pm.Deterministic("total", y.sum())
        pm.Deterministic("ends", pm.math.stack([y[0], y[-1]]))
        pm.Deterministic("cleared", y.sum() * rate)
        pm.Normal("observed", y, 0.5, observed=left(0.6, 1.2))
        dt = pk.sample(max_evaluations=150, random_seed=1, quiet=True)
    return model, dt


def test_outputs_may_be_variables_of_the_model(decay):
    model, dt = decay
    named = pk.sensitivity(dt, outputs=["total", "ends"], model=model, random_seed=1)
    functions = {"total": lambda y: y.sum(axis=1), "ends": lambda y: y[:, [0, -1]]}
    expected = pk.sensitivity(dt, outputs=functions, model=model, random_seed=1)
    assert named["output"].values.tolist() == ["total", "ends[0]", "ends[1]"]
    assert_allclose(named["first_order"], expected["first_order"], rtol=1e-6)


def test_results_of_older_versions_have_no_shapes(decay):
    model, dt = decay
    older = dt.copy()
    older["evaluations"].attrs = {k: v for k, v in dt["evaluations"].attrs.items() if k != "shapes"}
    assert "first_order" in pk.sensitivity(older, model=model)
    with pytest.raises(ValueError, match="of an older version"):
        pk.sensitivity(older, outputs="total", model=model)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cleared", "depends on rate_log__ besides"),
        ("nothing", "no variable 'nothing'"),
        ("size", "one call of `left`"),
    ],
)
def test_variables_that_are_no_function_of_outputs(decay, name, words):
    model, dt = decay
    with pytest.raises(ValueError, match=words):
        pk.sensitivity(dt, outputs=name, model=model)


def test_an_emulator_alone_has_no_variables_but_takes_calls(decay):
    model, dt = decay
    known = pk.emulator(dt)
    with pytest.raises(ValueError, match="an emulator knows of no variables"):
        pk.sensitivity(known, outputs="total", over="prior", model=model)
    more = pk.sensitivity(known, over="prior", model=model, n_evaluations=10)
    assert "first_order" in more


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"outputs": [99]}, "there is no 99; there are 6"),
        ({"outputs": lambda y: 3}, "must return an array"),
        ({"ci_prob": 2}, "ci_prob must be between"),
    ],
)
def test_bad_questions(decay, options, words):
    model, dt = decay
    with pytest.raises(ValueError, match=words):
        pk.sensitivity(dt, model=model, **options)
