"""Coarse models: the joint fit against a slow version, and runs that begin with them."""

import pickle
import signal

import numpy as np
import pymc as pm
import pytest
from runs import messages

import pymc_kameleon as pk
from pymc_kameleon.samplers.emulator import fit as fits
from pymc_kameleon.samplers.emulator.fit import ALONE, CONSTANT, Hyper, fit_box
from pymc_kameleon.samplers.emulator.metropolis import coarse_twin
from pymc_kameleon.sampling import coarse as coarse_runs

TIMES = np.linspace(0.2, 5.0, 12)
D = 2


def fine_curves(x):
    return np.array([a * np.exp(-b * TIMES) + 0.02 * a * np.sin(2 * b) * TIMES for a, b in x])


def coarse_curves(x):
    return np.array([a * np.exp(-b * TIMES) for a, b in x])


def unrelated(x):
    return np.array([np.cos(7 * a + 3 * TIMES * b) for a, b in x])


def points(n_fine, n_coarse, coarse=coarse_curves, seed=3):
    """Return x, y and which rows are fine, these last, and points to predict with outputs."""
    rng = np.random.default_rng(seed)
    x = np.exp(0.3 * rng.standard_normal((n_coarse + n_fine + 40, 2)))
    y = np.concatenate([coarse(x[:n_coarse]), fine_curves(x[n_coarse:])])
    n = n_coarse + n_fine
    return x[:n], y[:n], np.arange(n) >= n_coarse, x[n:], y[n:]


def test_it_is_the_autoregressive_model():
    """Against its definition: two independent processes of the same kernel, the second times σ."""
    x, y, fine, new, _ = points(6, 15)
    hyper = Hyper(rate=10, linear=5, noise=4, floor=6, difference=9)
    curvature = np.full(len(TIMES), 400.0)
    problem = fits._Problem(x, y, np.zeros(len(x)), fine, D, curvature, (False, False))
    found = problem.fit(hyper).predict(new)

    centre, sd, mean = x.mean(axis=0), x.std(axis=0), y.mean(axis=0)
    s, sigma = hyper.value("rate"), hyper.value("difference")

    def kernel(a, b):
        a, b = (a - centre) / sd, (b - centre) / sd
        near = (1 + s**2 * np.sum((a - b) ** 2) / 4) ** -2
        return near + hyper.value("linear") * a @ b + CONSTANT

    def covariance(a, a_is_fine, b, b_is_fine):
        of_coarse, of_difference = kernel(a, b), sigma * kernel(a, b)
        return of_coarse + (of_difference if a_is_fine and b_is_fine else 0.0)

    rows = list(zip(x, fine, strict=True))
    k = np.array([[covariance(*a, *b) for b in rows] for a in rows])
    k += hyper.value("noise") * np.eye(len(x))
    own = np.array([[covariance(v, True, *b) for b in rows] for v in new])
    np.testing.assert_allclose(found, mean + own @ np.linalg.solve(k, y - mean), rtol=1e-6)


def error_of(fit, new, expected):
    return np.sqrt(np.mean((fit.predict(new) - expected) ** 2))


def test_coarse_points_help():
    ratios = []
    for seed in range(12):
        x, y, fine, new, expected = points(10, 60, seed=seed)
        curvature, drop = np.full(len(TIMES), 400.0), np.zeros(len(x))
        both = fit_box(x, y, drop, D, curvature, fine=fine)
        alone = fit_box(x[fine], y[fine], drop[fine], D, curvature)
        ratios.append(error_of(both, new, expected) / error_of(alone, new, expected))
    assert np.exp(np.mean(np.log(ratios))) < 0.75


@pytest.mark.parametrize("seed", range(4))
def test_useless_ones_are_left_out(seed):
    x, y, fine, new, expected = points(12, 60, unrelated, seed=seed)
    curvature, drop = np.full(len(TIMES), 400.0), np.zeros(len(x))
    both = fit_box(x, y, drop, D, curvature, fine=fine)
    alone = fit_box(x[fine], y[fine], drop[fine], D, curvature)
    assert both.hyper.difference == ALONE
    np.testing.assert_array_equal(both.predict(new), alone.predict(new))
    again = fit_box(x, y, drop, D, curvature, start=both.hyper, look="none", fine=fine)
    assert len(again.u) == 12
    spoilt = both.hyper._replace(difference=0)  # if they had been kept
    spoilt = fit_box(x, y, drop, D, curvature, start=spoilt, look="none", fine=fine)
    assert error_of(spoilt, new, expected) > 2 * error_of(alone, new, expected)


# ---- runs ---------------------------------------------------------------------------------------


class Counted:
    """A simulator that counts its calls."""

    def __init__(self, function):
        self.function, self.calls, self.__name__ = function, 0, function.__name__

    def __call__(self, a, b):
        self.calls += 1
        return self.function(np.array([[a, b]]))[0]


def model_of(coarse, function=fine_curves, **options):
    """Return a model, its simulator and the coarse one, which count their calls."""
    fine, coarse = Counted(function), coarse and Counted(coarse)
    box = pk.black_box(fine, coarse=coarse, **options)
    observed = fine_curves([[1.5, 0.8]])[0] + 0.05 * np.random.default_rng(1).normal(size=12)
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0, 0.5), pm.LogNormal("b", 0, 0.5)
        pm.Normal("y", box(a, b), 0.05, observed=observed)
    return model, fine, coarse


@pytest.fixture(autouse=True)
def few_coarse_evaluations(monkeypatch):
    monkeypatch.setattr(coarse_runs, "N_COARSE", 80)


def quietly(**options):
    return pk.sample(**options, cores=1, progressbar=False, quiet=True)


def moments(dt):
    table = pk.summary(dt, round_to="none")
    return table["mean"].to_numpy(), table["sd"].to_numpy()


@pytest.fixture(scope="module")
def exact():
    """Posterior means and sds of a and b, by a grid."""
    observed = fine_curves([[1.5, 0.8]])[0] + 0.05 * np.random.default_rng(1).normal(size=12)
    z = np.linspace(-1.5, 1.5, 400)
    a, b = (np.exp(one.ravel()) for one in np.meshgrid(z, z, indexing="ij"))
    chi2 = np.sum((fine_curves(np.column_stack([a, b])) - observed) ** 2, axis=1) / 0.05**2
    log_prior = -((np.log(a) / 0.5) ** 2 + (np.log(b) / 0.5) ** 2) / 2
    w = np.exp(log_prior - chi2 / 2 - np.max(log_prior - chi2 / 2))
    mean = np.array([np.average(own, weights=w) for own in (a, b)])
    square = np.array([np.average(own**2, weights=w) for own in (a, b)])
    return mean, np.sqrt(square - mean**2)


@pytest.mark.parametrize("coarse", [coarse_curves, unrelated])
def test_draws_are_exact_for_the_fine_model(coarse, exact):
    model, fine, cheap = model_of(coarse)
    with model:
        dt = quietly(max_evaluations=200, random_seed=1)
    mean, sd = moments(dt)
    np.testing.assert_array_less(np.abs(mean - exact[0]), 0.1 * exact[1])
    np.testing.assert_allclose(sd, exact[1], rtol=0.15)
    assert fine.calls <= 200
    assert 50 < cheap.calls <= 80


def test_the_climb_takes_fewer_calls():
    """Of the fine model, if there is a good coarse one."""
    counts = []
    for coarse in (coarse_curves, None):
        model, _, _ = model_of(coarse)
        for seed in range(4):
            with model:
                dt = quietly(max_evaluations=120, random_seed=seed)
            search = dt["search"].to_dataset()
            counts.append(int(search["evaluations"][search["decided"] == "converged"][0]))
    assert sum(counts[:4]) < sum(counts[4:])


@pytest.mark.parametrize(("n", "seed"), [(150, 1), (150, 2), (300, 2), (300, 3)])
def test_a_mode_that_the_coarse_model_lacks_is_visited_or_told(n, seed):
    """At a = -1.9, where the coarse model is the tangent at the other one."""
    times = np.linspace(0.1, 2, 10)

    def fine(a, b):
        return (a**2 + 0.4 * a) * times + b

    def tangent(a, b):
        return (3.4 * a - 2.25) * times + b

    with pm.Model():
        a, b = pm.Normal("a", 0, 2), pm.Normal("b", 0, 1)
        box = pk.black_box(fine, coarse=tangent)
        pm.Normal("y", box(a, b), 0.1, observed=2.85 * times + 0.3)
        dt = quietly(max_evaluations=n, random_seed=seed)
    is_left = dt["posterior"]["a"].to_numpy() < 0
    told = {one.code for one in pk.diagnose(dt).findings if one.severity != "note"}
    assert (is_left.any() and not is_left.all()) or told & {"blind_search", "no_search"}


def test_draws_are_reproducible_and_go_on():
    draws = []
    for _ in range(2):
        model, _, _ = model_of(coarse_curves)
        with model:
            draws.append(quietly(max_evaluations=120, random_seed=3))
    assert draws[0]["posterior"].equals(draws[1]["posterior"])
    with model:
        longer = pk.resume(draws[1], max_evaluations=60, progressbar=False)
    n = draws[1]["posterior"].sizes["draw"]
    assert longer["posterior"].isel(draw=slice(n)).equals(draws[1]["posterior"])


def test_the_log_tells_of_it(caplog):
    caplog.set_level("INFO", logger="pymc_kameleon")
    model, _, _ = model_of(coarse_curves)
    with model:
        pk.sample(max_evaluations=120, random_seed=4, progressbar=False)
    text = "\n".join(messages(caplog))
    assert "`coarse_curves` in the place of `fine_curves`: 80 evaluations" in text


def test_other_samplers_say_that_they_do_without(caplog):
    caplog.set_level("INFO", logger="pymc_kameleon")
    model, _, cheap = model_of(coarse_curves)
    with model:
        pk.sample(5, tune=5, step=pk.GAM(), chains=1, random_seed=1, progressbar=False)
    assert cheap.calls == 0
    assert "The coarse model of `fine_curves` is not used, as that takes Emul" in caplog.text


def test_pm_sample_does_without(caplog):
    model, _, cheap = model_of(coarse_curves)
    caplog.set_level("INFO", logger="pymc_kameleon")
    with model:
        pm.sample(5, tune=5, step=pk.GAM(), chains=1, cores=1, progressbar=False)
    assert cheap.calls == 0
    assert "The coarse model of `fine_curves` is not used: that takes pk.sample" in caplog.text


def test_earlier_evaluations_may_be_reused_beside_it():
    model, fine, _ = model_of(coarse_curves)
    with model:
        first = quietly(max_evaluations=120, random_seed=1)
        fine.calls = 0
        again = quietly(max_evaluations=60, random_seed=2, reuse=first)
    assert fine.calls <= 60
    assert again["posterior"].sizes["draw"] > 1


def test_a_hierarchy_calls_it_for_each_row():
    fine, cheap = Counted(fine_curves), Counted(coarse_curves)
    box = pk.black_box(fine, coarse=cheap)
    observed = fine_curves([[1.5, 0.8], [1.0, 1.2]])
    with pm.Model():
        a, b = pm.LogNormal("a", 0, 0.5, shape=2), pm.LogNormal("b", 0, 0.5)
        for i in range(2):
            pm.Normal(f"y_{i}", box(a[i], b), 0.05, observed=observed[i])
        dt = quietly(max_evaluations=150, random_seed=1)
    assert dt["posterior"].sizes["draw"] > 1
    assert cheap.calls > 80


@pytest.mark.parametrize("is_own", [False, True])
def test_two_black_boxes_may_share_one(is_own):
    """Also if one is the coarse model of both, as of itself."""
    cheap, fine = Counted(coarse_curves), Counted(fine_curves)
    box = pk.black_box(fine, coarse=cheap)
    other = pk.black_box(cheap if is_own else Counted(fine_curves), coarse=cheap)
    observed = fine_curves([[1.5, 0.8]])[0]
    with pm.Model() as model:
        a, b = pm.LogNormal("a", 0, 0.5), pm.LogNormal("b", 0, 0.5)
        pm.Normal("y", box(a, b), 0.05, observed=observed)
        pm.Normal("w", other(a, b), 0.05, observed=observed)
        dt = quietly(max_evaluations=120, random_seed=1)
    assert dt["posterior"].sizes["draw"] > 1
    step = pk.EmulatorMetropolis(model=model)
    assert len(coarse_twin(step).log_density.simulators.boxes) == 2


def test_starts_of_fewer_chains():
    model, _, _ = model_of(coarse_curves)
    with model:
        dt = quietly(max_evaluations=120, chains=2, initvals=2 * [{"a": 1.0, "b": 1.0}])
    assert dt["posterior"].sizes["chain"] == 2


def test_it_has_the_options_of_the_step():
    model, _, _ = model_of(coarse_curves)
    step = pk.EmulatorMetropolis(model=model, region={"a_log__": (-1.0, 2.0)}, steps_per_draw=2)
    configuration = coarse_twin(step).configuration
    np.testing.assert_array_equal(configuration["region"], step.configuration["region"])
    assert configuration["steps_per_draw"] == 2


def test_ctrl_c_ends_the_whole_run():
    def interrupted(x):
        interrupted.calls += 1
        if interrupted.calls == 60:
            signal.raise_signal(signal.SIGINT)
        return coarse_curves(x)

    interrupted.calls = 0
    model, fine, _ = model_of(interrupted)
    with model, pytest.raises(KeyboardInterrupt):
        quietly(max_evaluations=120, random_seed=1)
    assert interrupted.calls >= 60
    assert fine.calls < 10


def test_a_batched_one_has_to_be_of_a_batched_function():
    with pytest.raises(ValueError, match="make it with batched=False"):
        pk.black_box(fine_curves, coarse=pk.black_box(coarse_curves, batched=True))


def test_all_black_boxes_need_one(caplog):
    caplog.set_level("INFO", logger="pymc_kameleon")
    fine, cheap = Counted(fine_curves), Counted(coarse_curves)
    box, other = pk.black_box(fine, coarse=cheap), pk.black_box(lambda a: a**2, ndim=0)
    with pm.Model():
        a, b = pm.LogNormal("a", 0, 0.5), pm.LogNormal("b", 0, 0.5)
        pm.Normal("y", box(a, b), 0.05, observed=fine.function([[1.5, 0.8]])[0])
        pm.Normal("w", other(a), 1.0, observed=2.0)
        pk.sample(max_evaluations=120, random_seed=1, progressbar=False)
    assert cheap.calls == 0
    assert "as `<lambda>` has none: if it is cheap, let it be its own coarse model" in caplog.text


def test_a_coarse_model_of_another_shape_is_an_error():
    def one_number(x):
        return np.ones((len(x), 1))

    model, _, _ = model_of(one_number)
    with model, pytest.raises(ValueError, match=r"`one_number` returns 1 number, .* 12\."):
        quietly(max_evaluations=120)


def test_its_own_exceptions_say_whose_they_are():
    def fails(x):
        raise RuntimeError("no licence")

    model, _, _ = model_of(fails)
    with model, pytest.raises(ValueError, match="no licence") as caught:
        quietly(max_evaluations=120)
    assert any("coarse model" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("coarse", [3, "cheap", pm.math.exp])
def test_it_has_to_be_a_function(coarse):
    with pytest.raises(TypeError, match="takes a function"):
        pk.black_box(fine_curves, coarse=coarse)


def test_a_black_box_may_be_a_coarse_model():
    box = pk.black_box(fine_curves, ndim=2, coarse=pk.black_box(coarse_curves))
    assert box.coarse == pk.black_box(coarse_curves, ndim=2)
    assert box != pk.black_box(fine_curves, ndim=2)
    again = pickle.loads(pickle.dumps(box))
    assert again == box


def test_by_a_decorator():
    @pk.black_box(coarse=coarse_curves, ndim=2)
    def own(x):
        return fine_curves(x)

    assert own.coarse.function is coarse_curves
