"""``pk.evidence`` and ``pk.compare_models``: known answers, and clear refusals."""

import logging
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import cache
from multiprocessing import get_context

import arviz as az
import models
import noisy
import numpy as np
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
import pytest
import xarray as xr
from runs import QUIET, codes, messages
from scipy.special import betaln, logsumexp
from scipy.stats import multivariate_normal, norm

import pymc_kameleon as pk
from pymc_kameleon.analysis.evidence import comparison, result
from pymc_kameleon.analysis.evidence import draws as draws_of_evidence
from pymc_kameleon.analysis.evidence.draws import EvidenceDraws
from pymc_kameleon.analysis.evidence.result import Evidence

# ---- exact draws of conjugate models ------------------------------------------------------------


def tree(**posterior):
    return az.from_dict({"posterior": posterior})


@cache
def coins():
    """Beta–binomial: a transform, and draws on the natural scale."""
    with pm.Model() as model:
        p = pm.Beta("p", 2, 5)
        pm.Binomial("heads", 10, p, observed=4)
    rng = np.random.default_rng(1)
    known = betaln(2 + 4, 5 + 6) - betaln(2, 5) + np.log(210)
    return model, tree(p=rng.beta(6, 11, (4, 250))), known


@cache
def line(slope=True):
    """Regression with known noise, of which all is normal."""
    rng = np.random.default_rng(2)
    t = np.linspace(-1, 1, 30)
    y = 0.5 + 1.5 * t + 0.4 * rng.standard_normal(30)
    predictors = np.column_stack([np.ones(30), t])[:, : 1 + slope]
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=predictors.shape[1])
        pm.Normal("y", (predictors * b).sum(axis=1), 0.4, observed=y)
    covariance = 4 * predictors @ predictors.T + 0.16 * np.eye(30)
    known = multivariate_normal(np.zeros(30), covariance).logpdf(y)
    precision = predictors.T @ predictors / 0.16 + np.eye(len(predictors.T)) / 4
    mean = np.linalg.solve(precision, predictors.T @ y / 0.16)
    draws = rng.multivariate_normal(mean, np.linalg.inv(precision), (4, 250))
    return model, tree(b=draws), known


@pytest.mark.parametrize("case", [coins, line])
def test_known_evidence(case):
    model, dt, known = case()
    found = pk.evidence(dt, model, n_evaluations=200, random_seed=1)
    assert abs(found.log_evidence - known) < 4 * found.standard_error < 0.08
    assert found.overlap > 0.9
    assert found.evaluations == 400  # a fifth of the draws, too


@pytest.mark.slow
def test_a_jacobian_that_is_forgotten_is_seen(monkeypatch):
    logp = pm.Model.logp
    monkeypatch.setattr(pm.Model, "logp", lambda model: logp(model, jacobian=False))
    _, dt, known = coins()
    with pm.Model() as twin:  # nothing is compiled of it yet
        pm.Binomial("heads", 10, pm.Beta("p", 2, 5), observed=4)
    found = pk.evidence(dt, twin, n_evaluations=200, random_seed=1)
    assert abs(found.log_evidence - known) > 20 * found.standard_error


@cache
def prior_alone():
    """All kinds of transforms, and exact draws of the prior."""
    with pm.Model() as model:
        a = pm.Uniform("a", -1, 3)
        pm.Uniform("below", 0, 4 - a)  # a transform that depends on another variable
        pm.Dirichlet("shares", [2.0, 3.0, 4.0])
        pm.Normal("ranks", 0, 2, shape=2, transform=pm.distributions.transforms.ordered)
        pm.Gamma("rate", 3, 0.5)
        pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1), compute_corr=False)
    rng, of_each = np.random.default_rng(1), (4, 100)
    a = rng.uniform(-1, 3, of_each)
    correlation = 2 * rng.beta(2, 2, of_each) - 1
    first, second = np.abs(rng.standard_normal((2, *of_each)))
    rows = first, second * correlation, second * np.sqrt(1 - correlation**2)
    dt = tree(
        a=a,
        below=(4 - a) * rng.random(of_each),
        shares=rng.dirichlet([2, 3, 4], of_each),
        ranks=np.sort(rng.normal(0, 2, (*of_each, 2))),
        rate=rng.gamma(3, 2, of_each),
        factor=np.stack(rows, axis=-1),
    )
    return model, dt


@pytest.mark.slow  # much to compile
def test_priors_have_evidence_1_under_every_transform():
    model, dt = prior_alone()
    found = pk.evidence(dt, model, random_seed=1)
    of_order = -np.log(2)  # of the orders of two, one is left
    assert abs(found.log_evidence - of_order) < 4 * found.standard_error < 0.8


def test_dimensions_and_labels_may_be_in_another_order():
    means = np.array([[0.0, 5.0], [10.0, 15.0]])
    coords = {"i": ["a", "b"], "j": [0, 1]}
    with pm.Model(coords=coords) as model:
        pm.Normal("x", means, dims=("i", "j"))
        pm.Exponential("rate", np.exp(means / 5), dims=("i", "j"))
    rng = np.random.default_rng(1)
    draws = {
        "x": means + rng.standard_normal((4, 50, 2, 2)),
        "rate": rng.exponential(np.exp(-means / 5), (4, 50, 2, 2)),
    }
    dims = {name: ["i", "j"] for name in draws}
    dt = az.from_dict({"posterior": draws}, coords=coords, dims=dims)
    turned = dt["posterior"].to_dataset().isel(i=[1, 0]).transpose("j", ...)
    other = xr.DataTree.from_dict({"posterior": turned})
    one, same = (EvidenceDraws(own, model).x for own in (dt, other))
    np.testing.assert_array_equal(one, same)
    np.testing.assert_array_equal(one[..., 1], draws["x"][..., 0, 1])


# ---- hierarchies and processes: normal, given one number that is integrated over -----------------

GRID = np.linspace(-4, 4, 2001)  # of a standard normal number


def mixed(log_likelihood, draw_given, rng, of_each=(4, 250)):
    """Return the integral over a standard normal number, and exact draws: of it, and what it gives.

    `log_likelihood` is that of the data given the number, `draw_given` one draw of all others.
    """
    logs = np.array([log_likelihood(z) for z in GRID]) + norm.logpdf(GRID)
    weights = np.exp(logs - logs.max())
    chosen = rng.choice(GRID, of_each, p=weights / weights.sum())
    z = chosen + (GRID[1] - GRID[0]) * (rng.random(of_each) - 0.5)
    others = np.array([draw_given(own, rng) for own in z.ravel()])
    return logsumexp(logs) + np.log(GRID[1] - GRID[0]), z, others.reshape(*of_each, -1)


def posterior_of(predictors, y, sd, rng):
    """Return a draw of standard normal coefficients, given y with noise of this sd."""
    precision = predictors.T @ predictors / sd**2 + np.eye(predictors.shape[1])
    mean = np.linalg.solve(precision, predictors.T @ y / sd**2)
    return rng.multivariate_normal(mean, np.linalg.inv(precision))


SCHOOLS, SD = np.array([-2.1, -0.3, 0.2, 1.2, 1.9, 3.1]), 0.7


def hierarchy():
    """Groups around a mean, both normal, with a log-normal spread."""
    n = len(SCHOOLS)

    def predictors(log_tau):  # of the mean, and of what groups are off by
        return np.column_stack([2 * np.ones(n), np.exp(log_tau) * np.eye(n)])

    def log_likelihood(z):
        own = predictors(z)
        return multivariate_normal(np.zeros(n), own @ own.T + SD**2 * np.eye(n)).logpdf(SCHOOLS)

    def draw_given(z, rng):
        own = predictors(z)
        mean, *off = posterior_of(own, SCHOOLS, SD, rng)
        return np.array([2 * mean, *(2 * mean + np.exp(z) * np.array(off))])

    known, z, others = mixed(log_likelihood, draw_given, np.random.default_rng(3))
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", 0, 2), pm.LogNormal("tau", 0, 1)
        theta = pm.Normal("theta", mu, tau, shape=n)
        pm.Normal("y", theta, SD, observed=SCHOOLS)
    return model, tree(mu=others[..., 0], tau=np.exp(z), theta=others[..., 1:]), known


TIMES = np.linspace(0, 1, 4)
WAVE = np.sin(5 * TIMES) + 0.3 * np.random.default_rng(4).standard_normal(len(TIMES))


def covariance(log_scale, exp=np.exp):
    """Of a Gaussian process at these times."""
    distances = (TIMES[:, None] - TIMES) ** 2
    return exp(-distances / (2 * exp(2 * log_scale))) + 1e-6 * np.eye(len(TIMES))


def process(free):
    """Gaussian process regression, with a length scale that is fixed at 0.3, or log-normal."""
    n, usual = len(TIMES), np.log(0.3)

    def log_likelihood(z):
        own = covariance(usual + 0.5 * z) + 0.3**2 * np.eye(n)
        return multivariate_normal(np.zeros(n), own).logpdf(WAVE)

    def draw_given(z, rng):
        factor = np.linalg.cholesky(covariance(usual + 0.5 * z))
        return posterior_of(factor, WAVE, 0.3, rng)

    rng = np.random.default_rng(5)
    with pm.Model() as model:
        log_scale = usual + 0.5 * pm.Normal("z") if free else usual
        white = pm.Normal("white", shape=n)
        factor = pt.linalg.cholesky(pt.as_tensor(covariance(log_scale, pt.exp)))
        pm.Normal("y", factor @ white, 0.3, observed=WAVE)
    if free:
        known, z, white = mixed(log_likelihood, draw_given, rng)
        return model, tree(z=z, white=white), known
    draws = np.array([draw_given(0, rng) for _ in range(1000)]).reshape(4, 250, n)
    return model, tree(white=draws), log_likelihood(0)


@pytest.mark.slow  # some seconds each
@pytest.mark.parametrize(
    "case",
    [hierarchy, lambda: process(False), lambda: process(True)],
    ids=["groups", "fixed", "free"],
)
def test_hierarchies_and_processes(case):
    model, dt, known = case()
    found = pk.evidence(dt, model, n_evaluations=400, random_seed=1)
    assert abs(found.log_evidence - known) < 4 * found.standard_error < 0.1


# ---- results of samplers ------------------------------------------------------------------------


@cache
def of_surrogates():
    """A black box, whose evaluations are counted, and a result of SurrogateMetropolis."""
    op = models.Counting()
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=2)
        pm.Potential("likelihood", op(x))
    step = pk.SurrogateMetropolis(model=model)
    options = {"max_evaluations": 300, "chains": 4, "cores": 1, "random_seed": 1}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pymc_kameleon.samplers.surrogate.initial_search.MOST_COORDINATES", 0)
        dt = pk.sample(step=step, model=model, **options, **QUIET)
    return op, model, dt, -np.log(2)  # of two dimensions: (1/√2)²


def test_of_a_surrogate(tmp_path, caplog):
    op, model, dt, known = of_surrogates()
    op.count = 0
    caplog.set_level(logging.INFO, "pymc_kameleon")
    found = pk.evidence(dt, random_seed=1, cores=1)
    assert found.evaluations == op.count == 203
    assert abs(found.log_evidence - known) < 4 * found.standard_error < 0.06
    assert any("[evidence_of_potentials]" in message for message in messages(caplog))
    assert "surrogate" in repr(found)
    dt.to_netcdf(tmp_path / "run.nc")
    again = pk.evidence(tmp_path / "run.nc", model, random_seed=1, cores=1)
    assert again.log_evidence == pytest.approx(found.log_evidence, abs=1e-6)


@pytest.mark.slow
@pytest.mark.usefixtures("without_search")
def test_a_surrogate_may_have_variables_in_another_order_than_the_model():
    op = models.Counting()
    with pm.Model() as model:
        a, b = pm.Normal("a", 0, 1), pm.Normal("b", 4, 0.1)
        pm.Potential("likelihood", op(pt.stack([a, 10 * (b - 4)])))
        step = pk.SurrogateMetropolis([b, a])
        dt = pk.sample(step=step, max_evaluations=300, cores=1, random_seed=1, **QUIET)
    found = pk.evidence(dt, model, 50, 1, cores=1)
    assert abs(found.log_evidence + np.log(2)) < 4 * found.standard_error < 0.1
    assert found.overlap > 0.9


@pytest.mark.forks
def test_processes_and_executors_change_nothing():
    _, model, dt, _ = of_surrogates()
    own_process = ProcessPoolExecutor(1, get_context("fork"))
    with own_process as pool, ThreadPoolExecutor(2) as threads:
        pool.submit(int).result()  # its process does not have the job
        ways = {"cores": 1}, {"cores": 2}, {"executor": pool}, {"executor": threads}
        found = [pk.evidence(dt, model, 50, 1, **own) for own in ways]
    assert found[0] == found[1] == found[2] == found[3]


def test_an_error_of_the_likelihood_is_raised_with_its_point(monkeypatch):
    op, model, dt, _ = of_surrogates()

    def fails(x):
        raise OSError("no licence")

    monkeypatch.setattr(op, "function", fails)
    with pytest.raises(OSError, match="no licence") as raised:
        pk.evidence(dt, model, cores=1)
    assert any("pk.evidence evaluates" in note for note in raised.value.__notes__)


def test_another_likelihood_is_seen(monkeypatch):
    op, model, dt, _ = of_surrogates()
    monkeypatch.setattr(op, "function", lambda x: -x @ x)
    with pytest.raises(ValueError, match="not the model that was sampled"):
        pk.evidence(dt, model, cores=1)


@pytest.mark.slow  # some seconds of draws
def test_an_estimated_likelihood_counts_by_its_mean():
    """Draws have the estimates that they were accepted with; new ones at the draws are lower."""
    model = noisy.toy(0.7)
    step = pk.GAM(model=model, pseudo_marginal=True)
    dt = pk.sample(2000, step=step, model=model, chains=4, cores=1, random_seed=1, **QUIET)
    found = pk.evidence(dt, model, random_seed=1)
    assert abs(found.log_evidence) < 4 * found.standard_error < 0.3
    fresh = dt.copy()
    lp = dt["sample_stats"]["lp"]
    rng = np.random.default_rng(1)
    x, noise = dt["posterior"]["x"].values, 0.7 * rng.standard_normal(lp.shape)
    without = -np.log(2 * np.pi) - np.sum(x**2, axis=2) / 2
    new = dt["sample_stats"].to_dataset().assign(lp=(lp.dims, without + noise - 0.7**2 / 2))
    fresh["sample_stats"] = xr.DataTree(new)
    wrong = pk.evidence(fresh, model, random_seed=1)
    assert abs(wrong.log_evidence) > 6 * found.standard_error
    assert "not those of this log-density" in wrong.warning


def test_the_sign_of_numpyro_is_known():
    model, dt, known = coins()
    logp = model.compile_logp()
    odds = np.log(dt["posterior"]["p"] / (1 - dt["posterior"]["p"]))
    energy = -np.vectorize(lambda own: logp({"p_logodds__": own}))(odds)
    kept = dt.assign({"sample_stats": xr.DataTree(xr.Dataset({"lp": odds.copy(data=energy)}))})
    found = pk.evidence(kept, model, random_seed=1)
    assert abs(found.log_evidence - known) < 4 * found.standard_error < 0.04
    assert found.evaluations == 1003


# ---- refusals -----------------------------------------------------------------------------------


def test_improper_priors_are_refused():
    with pm.Model() as model:
        m, s = pm.Flat("m"), pm.HalfFlat("s")
        pm.Normal("y", m, s, observed=[1.0, 2.0, 4.0])
    draws = tree(m=np.zeros((4, 100)), s=np.ones((4, 100)))
    with pytest.raises(ValueError, match="prior of m, s is improper"):
        pk.evidence(draws, model)


def test_discrete_variables_are_refused(mixed_model):
    with pytest.raises(ValueError, match="k is discrete"):
        pk.evidence(tree(k=np.zeros((2, 100), int)), mixed_model)


def test_angles_are_refused():
    with pm.Model() as model:
        pm.VonMises("angle", 0, 1)
    with pytest.raises(ValueError, match="angle is an angle"):
        pk.evidence(tree(angle=np.zeros((4, 100))), model)


def test_what_else_is_refused():
    model, dt, _ = coins()
    with pytest.raises(ValueError, match="needs the model"):
        pk.evidence(dt)
    with pytest.raises(ValueError, match="no draws of b"):
        pk.evidence(dt, line()[0])
    with pytest.raises(ValueError, match="too few for the evidence"):
        pk.evidence(dt.isel(draw=slice(20)), model)
    short = xr.Dataset({"p": (("chain", "draw"), np.full((100, 7), 0.5))})
    with pytest.raises(ValueError, match="8 of each chain"):
        pk.evidence(xr.DataTree.from_dict({"posterior": short}), model)
    with pytest.raises(ValueError, match="do not have all elements of p"):
        pk.evidence(tree(p=np.full((4, 100, 2), 0.5)), model)
    with pytest.raises(ValueError, match="draws of p_logodds__ are not finite"):
        pk.evidence(tree(p=np.full((4, 100), np.nan)), model)
    with pytest.raises(ValueError, match="p_logodds__ is the same in all draws"):
        pk.evidence(tree(p=np.full((4, 100), 0.5)), model)
    with pytest.raises(ValueError, match="model must be"):
        pk.evidence(dt, "coins")
    with pytest.raises(ValueError, match="whole result"):
        pk.evidence(dt["posterior"].to_dataset(), model)
    with pytest.raises(ValueError, match="from 50 on"):
        pk.evidence(dt, model, n_evaluations=10)
    at_a_bound = dt.copy()
    at_a_bound["posterior"] = dt["posterior"].to_dataset() * 0
    with pytest.raises(ValueError, match="on a bound, or rounded to it"):
        pk.evidence(at_a_bound, model)


def test_estimates_need_what_was_accepted():
    with pm.Model() as model:
        x = pm.Normal("x")
        pm.Potential("noise", 0 * x + 0 * pk.noise_seed())
    with pytest.raises(ValueError, match="is an estimate"):
        pk.evidence(tree(x=np.zeros((4, 100))), model)


def test_scaled_likelihoods_are_told(caplog):
    for total_size in (None, 20):
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("m"), 1, observed=[0.1, 0.2], total_size=total_size)
        draws_of_evidence.say_what_counts(model, {})
        said = any("[evidence_of_minibatch]" in message for message in messages(caplog))
        assert said is (total_size is not None)


# ---- warnings -----------------------------------------------------------------------------------


def checked(x, n_diverging=0, contradiction=0.0, **parts):
    """Return what is made of an Evidence, for draws x (chains, draws, d)."""
    found = Evidence(
        **{
            "log_evidence": -1.0,
            "standard_error": 0.01,
            "method": "bridge",
            "overlap": 0.9,
            "ess": 500.0,
            "evaluations": 200,
        }
        | parts
    )
    posterior = xr.Dataset({"x": (("chain", "draw", "i"), x)})

    class Draws:
        pass

    draws = Draws()
    draws.x, draws.posterior = x, posterior
    draws.n_diverging = n_diverging
    return result.checked(found, draws, contradiction)


def test_signs_of_trouble_are_told():
    rng = np.random.default_rng(3)
    x = rng.standard_normal((4, 300, 2))
    assert checked(x).log_evidence == -1
    assert not checked(x).warning
    nothing = checked(x, overlap=0.001)
    assert np.isnan(nothing.log_evidence)
    assert codes(nothing.findings) == ["unknown_evidence"]
    assert "not known" in nothing.warning
    apart = checked(x + 20 * np.arange(4)[:, None, None] // 2, ess=6.0).warning
    assert "not known" in apart
    assert "never jump" in apart
    assert "overlap" not in apart
    assert "or other data" in checked(x, standard_error=9.0, contradiction=5.0).warning
    doubtful = checked(x + 20 * np.arange(4)[:, None, None] // 2, overlap=0.4, ess=40.0)
    for sign in ("is 0.4;", "40 independent", "R-hat is", "never jump"):
        assert sign in doubtful.warning
    assert codes(doubtful.findings) == ["doubtful_evidence"]
    assert "doubtful" in repr(doubtful)
    assert "2 draws diverged" in checked(x, n_diverging=2).warning
    slightly_apart = x - x.mean(axis=1, keepdims=True) + 0.2 * np.arange(4)[:, None, None]
    assert "R-hat is 1.0" in checked(slightly_apart).warning


def test_divergences_of_a_result_are_counted():
    with pm.Model() as model:
        pm.Normal("x")
        pm.Normal("y", model["x"], observed=1.0)
        x = np.random.default_rng(1).normal(0.5, 0.5**0.5, (4, 100))
    dt = xr.DataTree.from_dict(
        {
            "posterior": xr.Dataset({"x": (("chain", "draw"), x)}),
            "sample_stats": xr.Dataset({"diverging": (("chain", "draw"), x > 2)}),
        }
    )
    assert "diverged" in pk.evidence(dt, model, random_seed=1).warning


@pytest.mark.slow
def test_draws_of_other_data_are_told(caplog):
    model, dt, _ = line()
    with pm.Model() as other:
        b = pm.Normal("b", 0, 2, shape=2)
        pm.Normal("y", b, 0.4, observed=[0.7, 1.2])
    pk.evidence(dt, model, n_evaluations=400, random_seed=1)
    assert not messages(caplog, logging.WARNING)
    pk.evidence(dt, other, n_evaluations=400, random_seed=1)
    assert "or other data" in messages(caplog, logging.WARNING)[-1]


# ---- several models -----------------------------------------------------------------------------


def test_models_are_compared():
    (model, dt, known), (other, other_dt, other_known) = line(), line(slope=False)
    a = pk.evidence(dt, model, n_evaluations=200, random_seed=1)
    b = pk.evidence(other_dt, other, n_evaluations=200, random_seed=1)
    table = pk.compare_models({"flat": b, "sloped": a})
    assert isinstance(table, pd.DataFrame)
    assert list(table.index) == ["sloped", "flat"]
    with model:
        assert table.equals(
            pk.compare_models({"flat": b, "sloped": dt}, n_evaluations=200, random_seed=1)
        )
    factor, error = table.loc["flat", ["log_bayes_factor", "log_bayes_factor_error"]]
    assert abs(factor - (other_known - known)) < 4 * error
    assert table["probability"].sum() == pytest.approx(1)


def made(log_evidence, standard_error=0.1):
    return Evidence(log_evidence, standard_error, "bridge", 0.9, 500.0, 200)


def test_probabilities_have_errors_and_priors():
    same = pk.compare_models({"a": made(-3.0), "b": made(-3.0)})
    np.testing.assert_allclose(same["probability"], 0.5)
    assert same["probability_error"].iloc[0] == pytest.approx(0.25 * np.hypot(0.1, 0.1), rel=0.1)
    odds = pk.compare_models({"a": made(-3.0), "b": made(-3.0)}, prior={"a": 3, "b": 1})
    assert odds.loc["a", "probability"] == pytest.approx(0.75)
    unknown = pk.compare_models({"a": made(-3.0), "b": made(np.nan, np.nan)})
    assert unknown["probability"].isna().all()
    assert unknown.index[0] == "a"
    for prior in ({"a": 1}, {"a": 1, "b": 0}, {"a": 1, "b": "1"}, [1, 1]):
        with pytest.raises(ValueError, match="prior must be"):
            pk.compare_models({"a": made(-3.0), "b": made(-3.0)}, prior=prior)
    with pytest.raises(ValueError, match="must be a dict"):
        pk.compare_models([made(-3.0)])


def test_evidences_are_drawn():
    table = pk.compare_models({"a": made(-3.0), "b": made(-4.0), "c": made(-9.0)})
    plots = pk.plot_evidence(table, backend="matplotlib")
    axes = plots.viz["plot"]["log_bayes_factor"].item()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["c", "b", "a"]
    lines = [line.get_xdata() for line in axes.get_lines() if len(line.get_xdata()) == 2]
    middles = sorted(float(np.mean(ends)) for ends in lines)
    np.testing.assert_allclose(middles, [-6, -1, 0])
    with pytest.raises(TypeError, match="compare_models"):
        pk.plot_evidence(made(-3.0))


def test_other_data_are_told(caplog):
    data = {"a": [1.0, 2.0], "b": [2, 1], "c": [1.0, 3.0]}
    trees = {
        name: az.from_dict({"observed_data": {f"y_{name}": np.array(y)}})
        for name, y in data.items()
    }
    assert comparison.differing_data({name: trees[name] for name in "ab"}) is None
    assert comparison.differing_data(trees) == ("a", "c")
    assert comparison.differing_data({"a": trees["a"], "none": xr.DataTree()}) is None
    with pytest.raises(ValueError, match="whole result"):
        pk.compare_models(trees)
    assert "data of 'a' and 'c' differ" in messages(caplog)[-1]
    assert "[other_data]" in messages(caplog)[-1]


def test_what_is_no_dict_of_results_is_named():
    with pytest.raises(ValueError, match="not DataTree"):
        pk.compare_models(coins()[1])
    with pytest.raises(ValueError, match="not an empty one"):
        pk.compare_models({})


def test_the_model_that_fails_is_named():
    with pytest.raises(ValueError, match="needs the model") as raised:
        pk.compare_models({"coins": coins()[1]})
    assert raised.value.__notes__ == ["in the model 'coins'"]


def test_repr_has_as_many_digits_as_are_known():
    assert "log_evidence=-3.00 ± 0.1;" in repr(made(-3.0))
    assert "log_evidence=-3.0000 ± 0.0021;" in repr(made(-3.0, 0.0021))
