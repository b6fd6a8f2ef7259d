"""A fit that is no Gaussian process runs through the same sampler, search and correction."""

import numpy as np
import pytest
from invariance import COVARIANCE, TARGETS, invariance_p_value, moved_fast
from quadratic_fit import QuadraticMetropolis
from runs import DRAWN, assert_same, resume, sample
from simulated import ManyChains

import pymc_kameleon as pk
from pymc_kameleon.samplers.approximation import learning
from pymc_kameleon.samplers.approximation.fit import Evaluated

NORMAL = TARGETS["normal"]


@pytest.fixture(scope="module")
def step():
    return QuadraticMetropolis(model=NORMAL.build())


def frozen(target, shares=(0.0, 0.0, 1.0), n=100, spoils=False):
    """Return a step with a quadratic that is fitted to draws of a target."""
    step = QuadraticMetropolis(model=target.build(), steps_per_draw=2)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    z = target.sample(np.random.default_rng(4), n)
    logp, nothing = np.array([step.log_density(row) for row in z]), np.zeros((n, 0))
    known = Evaluated(z, logp, np.full(n, np.nan), nothing)
    step.fit.fit([step], known, known)
    s, parameters = step.parameters.s, step.parameters
    s.mean[:], s.factor[:] = s.middle, np.linalg.cholesky(np.linalg.inv(s.precision))
    s.leap[0], s.most_leaps[0], s.n_inner[0] = 0.7, 4, 2
    if spoils:
        s.middle[:] += 0.4 * np.diag(s.factor)
        s.precision[:] *= 0.7
    parameters.shares[:] = shares
    parameters.mean[:], parameters.factor[:] = s.mean, s.factor
    return step


# ---- exactness ----------------------------------------------------------------------------------


def test_it_is_fitted_where_it_can_be():
    s = frozen(NORMAL).parameters.s
    np.testing.assert_allclose(s.middle, 0, atol=1e-3)
    covariance = np.cov(NORMAL.sample(np.random.default_rng(1), 200_000).T)
    np.testing.assert_allclose(np.linalg.inv(s.precision), covariance, rtol=0.02, atol=1e-2)


@pytest.mark.parametrize("spoils", [False, True])
@pytest.mark.parametrize("shares", [(0.0, 0.0, 1.0), (0.3, 0.3, 0.4)])
@pytest.mark.parametrize("name", ["normal", "banana"])
def test_exact_draws_stay_exact(name, shares, spoils):
    """By a good fit, by the best quadratic of a banana, and where these are spoilt."""
    step = frozen(TARGETS[name], shares, spoils=spoils)
    p_value = invariance_p_value(lambda x: moved_fast(step, x), TARGETS[name], n=6000)
    assert p_value > 1e-3


@pytest.mark.parametrize(("rule", "is_exact"), [("exact", True), ("without s", False)])
def test_a_twin_whose_acceptance_forgets_s_does_not(rule, is_exact):
    step, rng = frozen(NORMAL, spoils=True), np.random.default_rng(3)
    twin, precision = ManyChains(step.fit.density(step, rng), rule), np.linalg.inv(COVARIANCE)

    def moved(x):
        return twin.move(x, lambda y: -np.sum(y @ precision * y, axis=1) / 2, rng)

    p_value = invariance_p_value(moved, NORMAL, n=6000)
    assert (p_value > 1e-3) == is_exact


# ---- runs ---------------------------------------------------------------------------------------

OPTIONS = {"discard_tuned_samples": False, "tune": 60, "draws": 40}


@pytest.fixture(scope="module")
def run(step):
    return sample(step, **OPTIONS)


def test_a_run_by_it_finds_the_posterior_and_corrects_averages(step, run):
    """A normal is learned exactly: most moves are by s, and accepted."""
    stats = run["sample_stats"]
    assert np.nanmean(stats["quadratic_accept"]) > 0.95
    shares = run["learned"]["shares"]  # draws of a t are as good for a normal
    assert shares.sel(move="quadratic").min() > 0.5
    n_search = stats["n_logp"].sum() + run["warmup_sample_stats"]["n_logp"].sum()
    assert n_search < 400
    table = pk.summary(run, model=step.model, round_to="none")
    sd = np.array([1, 2, 0.1])
    assert (np.abs(table["mean"]) < 5 * table["mcse_mean"]).all()
    assert (table["mcse_mean"] < 0.05 * sd).all()
    assert (table["gain"] > 2).all()


def test_the_same_seed_draws_the_same_and_a_run_goes_on(step, run):
    part = sample(step, **OPTIONS | {"draws": 15})
    assert_same(resume(part, step.model, 25), run, DRAWN)


def test_in_one_dimension_and_without_tuning():
    target = TARGETS["one dimension"]
    step = QuadraticMetropolis(model=target.build())
    dt = sample(step, tune=40, draws=200)
    assert np.abs(dt["posterior"]["x"].mean()) < 0.5
    assert np.nanmean(dt["sample_stats"]["quadratic_accept"]) > 0.6
    walked = sample(step, tune=0, draws=30)
    assert np.isnan(walked["sample_stats"]["quadratic_accept"]).all()
    assert np.ptp(walked["posterior"]["x"].values, axis=1).min() > 0


def test_evaluations_are_remembered_in_their_order(step):
    """And forgotten if there are more than there is room for."""
    chain = step.for_chain()
    chain.setup_chain(np.random.default_rng(1), 0, 1)
    room = len(chain.tuning.evaluated)
    z = np.random.default_rng(2).standard_normal((room + 3, 3))
    for k, row in enumerate(z):
        learning.note(chain, row, -float(k), np.zeros(0))
    known = learning.evaluations_of([chain])
    np.testing.assert_array_equal(known.z, z[3:])
    np.testing.assert_array_equal(learning.best_of(chain)[0], z[3])
