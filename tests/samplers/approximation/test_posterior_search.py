"""The search for the posterior: where it ends, after how many evaluations, and interrupted."""

import pickle

import numpy as np
import pymc as pm
import pytest
from runs import same
from scipy import stats
from simulated import CAPACITY, GROWTH, OSCILLATION, RATE, growth, logistic, oscillation

import pymc_kameleon as pk
from pymc_kameleon.approximation import search as search_module
from pymc_kameleon.approximation.modes import Mode
from pymc_kameleon.approximation.search import (
    MOST_AT_ONCE,
    MOST_FAR,
    N_DESIGN,
    N_FAR,
    PosteriorSearch,
    Walker,
)
from pymc_kameleon.approximation.searches import ENOUGH_CAME, Searches
from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.model.starts import N_PRIOR, prior_draws
from pymc_kameleon.samplers.approximation.moves import BY_S
from pymc_kameleon.samplers.emulator import learning
from pymc_kameleon.samplers.emulator.learning import Evaluations
from pymc_kameleon.step.job import ChainState, Job, advance
from pymc_kameleon.step.problems import of_searches
from pymc_kameleon.step.warm_start.approach import approach

# ---- with an emulator that is known -------------------------------------------------------------


class Known:
    """Stands in for an EmulatedDensity: log s and its gradient are functions of z (n, d)."""

    def __init__(self, log_s, gradient):
        self.values = lambda z: (log_s(z), gradient(z))


MIDDLE, SCALES = np.array([4.0, -2.0, 1.0]), np.array([0.3, 1.0, 0.05])


def log_normal(z):
    return -0.5 * np.sum(((z - MIDDLE) / SCALES) ** 2, axis=1)


NORMAL = Known(log_normal, lambda z: -(z - MIDDLE) / SCALES**2)
NOTHING = Known(lambda z: np.zeros(len(z)), np.zeros_like)
PRIOR = np.random.default_rng(0).standard_normal((300, 3))


def gone(density, log_pi, start, prior=PRIOR, most=300):
    """Return the batches of points that a search asks for, and their log-densities."""
    return walked(search_by(density, prior), log_pi, start, most)


def search_by(
    density,
    prior=PRIOR,
    learn=lambda n: None,
    unpredicted=lambda n: 0.0,
    misfit=lambda: (5.0, 5),
    paid=(0, 0),
    **options,
):
    """Return a search that has one climb, by default, and predicts what is far away."""
    rng = np.random.default_rng(1)

    def mode(z, factor):
        return Mode(z, factor, density.values(z[None])[0][0])

    return PosteriorSearch(density, learn, prior, rng, unpredicted, misfit, mode, paid, **options)


def walked(search, log_pi, start, most=300):
    """Return the same of a search."""
    going, batches, values = search.go(start), [], []
    points = next(going)
    while sum(map(len, batches)) < most:
        batches.append(points)
        values.append(log_pi(points))
        try:
            points = going.send(values[-1])
        except StopIteration:
            return batches, np.concatenate(values)
    raise AssertionError("it does not end")


def test_a_good_emulator_leads_there_at_once():
    batches, values = gone(NORMAL, log_normal, np.zeros(3))
    assert values.max() > -0.1
    assert len(values) <= 60
    np.testing.assert_array_equal(batches[0][0], np.zeros(3))
    assert max(map(len, batches)) == N_DESIGN
    assert min(map(len, batches)) > 0


def test_rounds_have_as_many_points_as_run_side_by_side():
    for n in (2, MOST_AT_ONCE):
        batches, values = walked(search_by(NORMAL, n_each=n), log_normal, np.zeros(3))
        assert values.max() > -0.1
        assert {len(points) for points in batches[1:-1]} == {n}  # the last are of the prior


def test_an_emulator_of_earlier_runs_needs_no_design():
    batches, values = walked(search_by(NORMAL, informed=True), log_normal, np.zeros(3))
    assert values.max() > -0.1
    assert (len(batches[0]), {len(points) for points in batches[1:]}) == (1, {2})
    assert len(values) < N_DESIGN


def log_of_plain(z):
    """A mode at 0, and a plain far below that rises slowly, without an end."""
    return np.maximum(2 * z[:, 0] - 1000, -0.5 * np.sum((z / 0.1) ** 2, axis=1))


def slope_of_plain(z):
    is_plain = log_of_plain(z) <= 2 * z[:, 0] - 1000
    return np.where(is_plain[:, None], [2.0, 0, 0], -z / 0.1**2)


@pytest.mark.parametrize("least", [search_module.LEAST_PROGRESS, -np.inf])
def test_a_climb_that_does_not_come_to_fit_the_data_is_left(monkeypatch, least):
    """Otherwise it goes on while it gains anything."""
    monkeypatch.setattr(search_module, "LEAST_PROGRESS", least)
    monkeypatch.setattr(search_module, "LARGEST_RADIUS", 1.0)
    search = search_by(
        Known(log_of_plain, slope_of_plain),
        misfit=lambda: (2000.0 if search.highest < -500 else 5.0, 5),
        paid=(0, 1000),
    )
    going = search.go(np.array([100.0, 0, 0]))
    points = next(going)
    n_rounds = 0
    while len(search.costs) == 0 and n_rounds < 20:
        points = going.send(log_of_plain(points))
        n_rounds += 1
    assert (n_rounds < 12) == (least > 0)
    for _ in range(20):
        if search.best.logp < -1:
            points = going.send(log_of_plain(points))
    assert (search.best.logp > -1) == (least > 0)


def test_the_best_climb_goes_on_if_none_comes_to_fit_the_data(monkeypatch):
    monkeypatch.setattr(search_module, "LARGEST_RADIUS", 1.0)  # so all of them are slow
    search = search_by(NORMAL, misfit=lambda: (2000.0, 5), paid=(0, 300))
    _, values = walked(search, log_normal, np.zeros(3), most=1000)
    assert search.best.arrived
    assert values.max() > -0.5


def test_an_emulator_that_knows_nothing_is_given_up():
    batches, values = gone(NOTHING, log_normal, np.zeros(3))
    assert len(batches) <= 60
    assert values.max() > log_normal(np.zeros((1, 3)))[0]


@pytest.mark.parametrize(
    "value", [np.nan, *(pytest.param(v, marks=pytest.mark.slow) for v in (-np.inf, np.inf))]
)
def test_points_without_a_log_density_are_passed_by(value):
    def log_pi(z):
        return np.where(z[:, 0] > 3, value, log_normal(z))

    _, values = gone(NORMAL, log_pi, np.zeros(3))
    finite = values[np.isfinite(values)]
    assert finite.max() > log_normal(np.array([[2.9, -2.0, 1.0]]))[0] - 20
    batches, _ = gone(NORMAL, lambda z: np.full(len(z), value), np.zeros(3))
    assert len(batches) == 1


def log_two(z):
    """Two modes, of which the one at −2 is lower by 8."""
    lower = stats.norm.logpdf(z, [-2, 0, 0], 0.2).sum(axis=1) - 8
    return np.logaddexp(lower, stats.norm.logpdf(z, [2, 0, 0], 0.2).sum(axis=1))


def slope_of_two(z, h=1e-6):
    return np.transpose([(log_two(z + e) - log_two(z - e)) / (2 * h) for e in h * np.eye(3)])


N_GROUPS = 6
FUNNEL_PRIOR = np.random.default_rng(2).standard_normal((300, 1 + N_GROUPS)) * [
    1.0,
    *[2.0] * N_GROUPS,
]


@np.errstate(all="ignore")
def log_funnel(z):
    """Groups x with a common log sd, and data around 0: without bound where the sd is small."""
    log_sd, x = z[:, 0], z[:, 1:]
    groups = -0.5 * np.sum(x**2, axis=1) * np.exp(-2 * log_sd) - N_GROUPS * log_sd
    return groups - 0.5 * np.sum(x**2, axis=1) + log_sd - 0.5 * np.exp(2 * log_sd)


@np.errstate(all="ignore")
def slope_of_funnel(z):
    log_sd, x = z[:, :1], z[:, 1:]
    precision = np.exp(-2 * log_sd)
    squares = np.sum(x**2, axis=1, keepdims=True)
    first = squares * precision - N_GROUPS + 1 - np.exp(2 * log_sd)
    return np.hstack([first, -x * (precision + 1)])


@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_it_does_not_go_into_the_neck_of_a_funnel(scale):
    """There the density has no bound, and hardly any mass: below z₀ about exp z₀."""
    search = search_by(Known(log_funnel, slope_of_funnel), FUNNEL_PRIOR)
    walked(search, log_funnel, scale * np.array([0.5, 1, -1, 1, -1, 1, -1]))
    assert -7 < search.best.z[0] < 1


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_by_heights_alone_it_would(scale, monkeypatch):
    search = search_by(Known(log_funnel, slope_of_funnel), FUNNEL_PRIOR)
    monkeypatch.setattr(search, "_volumes", lambda points: np.zeros(len(points)))
    walked(search, log_funnel, scale * np.array([0.5, 1, -1, 1, -1, 1, -1]))
    assert search.best.z[0] < -7


def test_it_looks_for_other_modes():
    _, values = gone(Known(log_two, slope_of_two), log_two, np.array([-2.0, 0, 0]))
    assert values.max() > log_two(np.array([[2.0, 0, 0]]))[0] - 0.5


def test_a_climb_that_is_cut_short_counts_if_it_is_better():
    """Else a search that its budget stops takes the wrong mode for its end."""
    search = search_by(Known(log_two, slope_of_two))
    going = search.go(np.array([-2.0, 0, 0]))
    points = next(going)
    while not search.costs or search.climbing is None:
        points = going.send(log_two(points))
    assert search.best.arrived
    assert search.best.z[0] < -1.9
    search.settle()
    assert not search.best.arrived
    assert search.modes()[1][0, 0] > 1.9


def test_where_draws_of_the_prior_are_not_predicted_it_begins_anew():
    """Until enough climbs came to the best place, each by its own evaluations."""
    learned, asked = [], []

    def unpredicted(n):
        asked.append(n)
        return 1.0

    search = search_by(NORMAL, learn=learned.append, unpredicted=unpredicted, paid=(0, 300))
    _, values = walked(search, log_normal, np.zeros(3))
    assert asked == MOST_FAR * [N_FAR]
    assert search.searches() == Searches(ENOUGH_CAME, 1, ENOUGH_CAME, True)
    assert search.best.logp == values.max()
    assert learned.count(N_DESIGN) == ENOUGH_CAME


@pytest.mark.parametrize("chi2", [5.0, 24.0])
def test_without_a_doubt_one_search_is_enough(chi2):
    search = search_by(NORMAL, misfit=lambda: (chi2, 5), paid=(0, 300))
    walked(search, log_normal, np.zeros(3))
    assert search.searches() == Searches(1, 1, 1, False)


def test_where_the_best_place_does_not_fit_the_data_it_begins_anew():
    search = search_by(NORMAL, misfit=lambda: (26.0, 5), paid=(0, 300))
    walked(search, log_normal, np.zeros(3))
    assert search.searches() == Searches(ENOUGH_CAME, 1, ENOUGH_CAME, True)


def test_a_place_that_fits_the_data_ends_the_doubt():
    def misfit():
        return 26.0 if len(search.costs) < 2 else 5.0, 5

    search = search_by(NORMAL, misfit=misfit, paid=(0, 300))
    walked(search, log_normal, np.zeros(3))
    assert search.searches() == Searches(2, 1, 2, False)


def test_searches_from_the_prior_end_when_hardly_any_start_leads_elsewhere():
    """Where all came to one place, after fifteen; and before, if they are not paid for."""
    search = search_by(NORMAL, paid=(1000, 1000))
    walked(search, log_normal, np.zeros(3), most=1000)
    assert search.searches() == Searches(15, 1, 15, False)
    assert max(search.costs[1:]) < search.costs[0]  # they end in the region of the first one
    search = search_by(NORMAL, paid=(40, 1000))
    walked(search, log_normal, np.zeros(3), most=1000)
    n, *_ = search.searches()
    assert 1 < n < 15
    assert sum(search.costs[1:]) <= 40


def test_how_many_ends_are_expected():
    """By the formulas of Boender and Rinnooy Kan, w(n − 1)/(n − w − 2) and w(w + 1)/(n(n − 1))."""
    assert [Searches(n, 1).expects_more for n in (3, 7, 8)] == [True, True, False]
    assert [Searches(n, 2).expects_more for n in (4, 16, 17)] == [True, True, False]
    assert Searches(8, 1).share_elsewhere == 2 / 56
    assert Searches(1, 1).share_elsewhere == Searches(2, 2).share_elsewhere == 1


def test_how_badly_outputs_fit():
    """χ² of normal noise is exact; without a curvature an output counts one."""
    sd, observed = np.array([0.5, 2.0, 1.0]), np.array([1.0, -3.0, 4.0])

    class LogDensity:
        point = np.zeros(1)

        @staticmethod
        def gradients_given(points, y):
            return (observed - y) / sd**2 * [1, 1, 0] + [0, 0, 0.7], None

    y = np.array([[0.0, 0, 0], [2.0, 1, 0]])
    known = Evaluations(np.zeros((2, 1)), np.array([-9.0, -1]), None, np.zeros((2, 1)), y)
    chi2, n = learning.misfit(LogDensity, known)
    assert n == 3
    np.testing.assert_allclose(chi2, (-1 / 0.5) ** 2 + (-4 / 2) ** 2 + 1, rtol=1e-4)


def test_where_searches_ended_is_counted():
    """Places that are negligible beside the best one count as one."""
    search = search_by(NORMAL)
    search.maxima = [
        Walker(np.zeros(3), logp, n_came=n)
        for logp, n in ((0.0, 2), (-5.0, 1), (-500.0, 3), (-900.0, 1), (-1.0, 0))
    ]
    search.best = search.maxima[0]
    assert search.searches() == Searches(7, 3, 2, False)


def test_what_is_not_predicted_is_relative_to_changes(monkeypatch):
    """Of the newest points, in units of noise: the second output does not count."""
    monkeypatch.setattr(learning, "curvatures", lambda *_: np.array([4.0, 0.0]))
    y = np.array([[0.0, 0], [9, 9], [1, 5], [2, 5], [4, 5]])
    nothing = np.zeros((5, 1))
    known = Evaluations(nothing, np.array([0.0, -1, -1, np.nan, -1]), nothing, nothing, y)

    class Emulated:
        emulate = staticmethod(lambda x: np.array([[0.5, 0], [2, 0], [5, 0]]))

    assert learning.unpredicted(Emulated, None, known, 3) == 0.25


@pytest.mark.parametrize(
    ("searches", "code", "says"),
    [
        ((0, 0, 0, 0), None, ""),
        ((1, 1, 1, 0), "no_search", "none was looked for"),
        ((5, 1, 5, 0, 1), "searches", "5 searches"),
        ((8, 1, 8, 0), "searches", "1 place; 4 % of such starts"),
        ((9, 2, 5, 0), "searches", "2 places; 8 % of such starts"),
        ((10, 2, 3, 1), "searches", "10 searches"),
        ((3, 1, 3, 0), "searches", "1 place; 33 % of such starts"),
        ((1, 1, 1, 0, 1), "no_search", "none was looked for"),
        ((3, 1, 3, 0, 1), "few_searches", "Only 3 searches looked for other modes"),
        ((1, 1, 1, 1), "blind_search", "1 of 1 searches ended there"),
        ((4, 2, 3, 0), "other_ends", "4 searches for the posterior ended in 2 places"),
        ((4, 2, 2, 1), "blind_search", "2 of 4 searches ended there"),
        ((3, 2, 2, 0), "other_ends", "2 places, and 100 % of such starts"),
        ((3, 1, 0, 1), "blind_search", "0 of 3 searches ended there"),
    ],
)
def test_it_tells_where_searches_ended_and_what_they_may_have_missed(searches, code, says):
    found = of_searches(Searches(*searches))
    assert (found and found.code) == code
    assert found is None or says in found.what


# ---- of a model ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step():
    return pk.EmulatorMetropolis(model=growth())


def begun(job, seed, start):
    [own] = job.steps
    own = own.for_chain()
    own.setup_chain(np.random.default_rng([seed, 0]), 60, 20)
    return ChainState(np.array(start), [own.sampling_state])


def job(step):
    return Job([step], step.outputs(step.var_names[:1]), keeps_warmup=True)


SEARCH = "pymc_kameleon.samplers.approximation.initial_search"
STARTS = [0.0, 3.0, -0.7], [-1.5, 1.0, 0.5], [1.0, 5.0, 0.0]


@pytest.mark.slow
@pytest.mark.parametrize("start", STARTS)
def test_it_finds_the_posterior(step, start):
    """In few evaluations, also from where the likelihood is lower by thousands."""
    state, portion = advance(job(step), begun(job(step), 1, start), 1)
    assert step.log_density(GROWTH) - step.log_density(np.array(start)) > 10
    assert step.log_density(state.point) > step.log_density(GROWTH) - 12
    assert portion.n_logp < 80
    learned = state.steps[0].parameters.s
    assert (np.abs(learned.mean - GROWTH) < 1).all()


@pytest.mark.slow
def test_it_finds_a_frequency_from_others():
    """In most of eight runs, from starts of which the nearest wave fits nothing."""
    step, n_found = pk.EmulatorMetropolis(model=oscillation()), 0
    for seed in range(1, 5):
        for start in (-0.7, 0.5):
            own, state, n_logp = job(step), begun(job(step), seed, [start, 0.0, -0.5]), 0
            while state.monitor.done == 0:  # it pauses after some seconds
                state, portion = advance(own, state, 1)
                n_logp += portion.n_logp
            n_found += step.log_density(state.point) > step.log_density(OSCILLATION) - 12
            assert n_logp < 300
    assert n_found >= 3


@pytest.mark.slow
def test_the_emulator_is_right_at_its_end(step):
    """Near the truth it predicts the simulator within a tenth of the noise."""
    state, _ = advance(job(step), begun(job(step), 1, STARTS[0]), 1)
    own = step.for_chain()
    own.sampling_state = state.steps[0]
    from simulated import density_of

    x = np.array([RATE, CAPACITY]) * np.exp(0.1 * np.random.default_rng(1).standard_normal((20, 2)))
    errors = density_of(own).emulate(x) / np.array([logistic(row) for row in x]) - 1
    assert np.sqrt(np.mean(errors**2)) < 0.02


@pytest.mark.slow
def test_interrupted_after_each_evaluation_it_ends_the_same(step, monkeypatch):
    """In the process where it was begun, and from its state in another one."""
    start = begun(job(step), 1, STARTS[1])
    expected, whole = advance(job(step), start, 1)
    monkeypatch.setattr("pymc_kameleon.step.base.WARM_START_PATIENCE", 0)
    for travels in (False, True):
        ours, state, n_logp, rounds = job(step), start, 0, 0
        while state.monitor.done == 0:
            if travels and rounds % 7 == 3:
                ours, state = job(step), pickle.loads(pickle.dumps(state))
            state, portion = advance(ours, state, 1)
            n_logp, rounds = n_logp + portion.n_logp, rounds + 1
        assert rounds > 20
        assert n_logp == whole.n_logp
        np.testing.assert_array_equal(portion.outputs, np.array(whole.outputs))
        assert same(state.steps[0].parameters, expected.steps[0].parameters)
        assert same(state.steps[0].tuning, expected.steps[0].tuning)


def test_a_chain_that_follows_knows_what_was_evaluated_where(step):
    """Its own start too, whose log-density is known before it follows."""
    first, _ = advance(job(step), begun(job(step), 1, STARTS[0]), 1)
    state = begun(job(step), 2, STARTS[1])
    own = step.for_chain()
    own.sampling_state = state.steps[0]
    own.guide = first.steps[0].guide
    state, portion = advance(job(step), ChainState(state.point, [own.sampling_state]), 1)
    assert portion.n_logp < 8
    tuning = state.steps[0].tuning
    z, logp, _, x, y = np.split(tuning.evaluated[: tuning.n_evaluated[0]], [3, 4, 5, 7], axis=1)
    np.testing.assert_array_equal(z[0], STARTS[1])
    assert len(z) >= 2
    np.testing.assert_allclose(y, [logistic(row) for row in x])
    np.testing.assert_allclose(logp[:, 0], [step.log_density(row) for row in z])


def test_a_chain_that_follows_begins_nowhere_near_its_own_start(step):
    """Where it is as good as there, but hardly anything of the posterior is."""
    first, _ = advance(job(step), begun(job(step), 1, STARTS[0]), 1)
    own = step.for_chain()
    own.sampling_state = begun(job(step), 2, STARTS[1]).steps[0]
    guide = first.steps[0].guide
    home = guide.draws[0].copy()
    bad = np.array(STARTS[1])
    assert -np.inf < step.log_density(bad) < step.log_density(home) - 20
    own.guide = guide._replace(draws=np.array([home, *np.tile(bad, (5, 1))]))
    np.testing.assert_array_equal(own.search._first_point(own.guide.draws, step.log_density), home)
    near = home + 0.01
    own.guide = guide._replace(draws=np.array([home, near]))
    np.testing.assert_array_equal(own.search._first_point(own.guide.draws, step.log_density), near)


def test_where_nothing_can_be_learned_it_goes_on_without(step, monkeypatch):
    """With evaluations of its own, all of which it may use."""
    monkeypatch.setattr(f"{SEARCH}.MOST_ERROR", -1)

    def uses_all(logp, start, rng, budget, *options):
        for _ in range(budget - 30):
            logp(start)
        return approach(logp, start, rng, 30, *options)

    monkeypatch.setattr(f"{SEARCH}.approach", uses_all)
    state, portion = advance(job(step), begun(job(step), 1, STARTS[0]), 1)
    assert portion.n_logp > 60
    own = state.steps[0]
    assert not own.tuning.found.predicts[0]
    assert own.parameters.shares[BY_S] == pytest.approx(1 / 3)  # before it has proved itself
    assert own.guide.is_known


# ---- draws of the prior -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("n", "are_enough"), [(1, True), (9, False)])
def test_draws_of_the_prior_are_finite(n, are_enough):
    """Half of those of Gamma(0.001, 0.001) are zero."""
    with pm.Model() as model:
        pm.Gamma("precision", 1e-3, 1e-3, shape=n)
    draws = prior_draws(model, pk.GAM(model=model).layout)
    if are_enough:
        assert np.isfinite(draws).all()
        assert FEW < len(draws) < 0.7 * N_PRIOR
    else:
        assert draws is None
