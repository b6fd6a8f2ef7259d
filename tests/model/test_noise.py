"""Estimated log-densities: the draws are exact, the noise is the chain's, and misuse is refused."""

import pickle
from functools import cache

import cloudpickle
import numpy as np
import pymc as pm
import pytest
from models import box
from noisy import normal_from, sd_at, toy
from pymc.exceptions import SamplingError
from runs import QUIET, assert_same, messages, resume, sample, unpooled
from scipy import stats

import pymc_kameleon as pk
from pymc_kameleon.core.chain import CURRENT, N_PROGRESS, STALE_DERIVED, STALE_LOGP
from pymc_kameleon.core.conventions import FEW
from pymc_kameleon.model import noise
from pymc_kameleon.step.job import ChainState, Job, advance
from pymc_kameleon.step.make_draws import NO_OUTPUTS, block

TAKES = [cls for cls in pk.samplers.SAMPLERS if not (cls.derivatives or cls.needs_exact_logp)]
FIRST = {pk.KAM: {"n_subsample": 20}, pk.CMTM: {"n_tries": 4}}


@cache
def step_of(cls):
    return cls(model=toy(), pseudo_marginal=True, **FIRST.get(cls, {}))


def tuned(step, tune=300):
    step.setup_chain(np.random.default_rng(1), tune, 1)
    point = {"x": np.array([0.5, -0.5])}
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    return step


def p_value(step, status, n=20_000, draws=3):
    """Least p-value, times the number of tests, that draws keep an exact sample exact.

    At an exact x the log-estimate that a chain keeps is normal about +s²/2.
    """
    rng = np.random.default_rng(2)
    x, other = rng.standard_normal((2, n, 2))
    s = sd_at(x[:, 0])
    kept = stats.norm.logpdf(x).sum(axis=1) + s**2 / 2 + s * rng.standard_normal(n)
    own = block(step, status, step.statistics.empty(draws))
    progress = np.zeros(N_PROGRESS, np.int64)
    for row, logp in zip(x, kept, strict=True):
        step.state.x[:], step.state.logp[0] = row, logp
        assert step._run((own,), row, NO_OUTPUTS, progress)
    values = zip(x.T, other.T, strict=True)
    tests = [stats.ks_2samp(a, b).pvalue for a, b in [*values, (x.prod(1), other.prod(1))]]
    return min(tests) * len(tests)


QUICK = pk.baselines.RWM, pk.GAM, pk.CMTM


@pytest.mark.parametrize(
    "cls", [cls if cls in QUICK else pytest.param(cls, marks=pytest.mark.slow) for cls in TAKES]
)
def test_draws_are_exact_whatever_the_noise(cls):
    assert p_value(tuned(step_of(cls)), CURRENT | STALE_DERIVED) > 1e-3


@pytest.mark.slow
def test_that_they_are_not_where_the_estimate_is_refreshed():
    step = tuned(step_of(pk.CMTM))
    assert p_value(step, STALE_LOGP, draws=1) < 1e-6


def moved(values):
    return np.any(np.diff(values, axis=1) != 0, axis=-1)


@pytest.mark.parametrize(
    "cls", [pk.GAM, pytest.param(pk.CyclicalKAM, marks=pytest.mark.slow), pk.CMTM]
)
def test_an_estimate_is_kept_until_a_move(cls):
    """Where chains learn together, and after resuming, too."""
    step = cls(model=toy(1.5), pseudo_marginal=True, steps_per_draw=1)
    first = sample(step, draws=100, tune=200, discard_tuned_samples=False)
    dt = resume(first, toy(1.5), draws=100)
    for groups in ["warmup_posterior", "warmup_sample_stats"], ["posterior", "sample_stats"]:
        x, logp = dt[groups[0]]["x"].values, dt[groups[1]]["lp"].values
        stayed = ~moved(x)
        assert stayed.sum() > 20
        np.testing.assert_array_equal(np.diff(logp, axis=1)[stayed], 0)


def test_pauses_and_portions_do_not_refresh_it():
    """As where another step had moved nothing, and pools were learned from."""
    step = pk.GAM(model=toy(1.5), pseudo_marginal=True, steps_per_draw=1)
    options = {"step": step, "draws": 50, "tune": 100}
    with toy(1.5):
        dt = pm.sample(chains=2, cores=1, random_seed=1, **options | QUIET)
    stayed = ~moved(dt["posterior"]["x"].values)
    assert stayed.sum() > 20
    np.testing.assert_array_equal(np.diff(dt["sample_stats"]["lp"].values, axis=1)[stayed], 0)


@pytest.mark.slow
def test_the_noise_is_the_chains_own_wherever_it_runs():
    """The same in threads, in turn, and through PyMC's forked workers; and that of no other."""
    step = step_of(pk.GAM)
    one, two = (sample(unpooled(step), cores=cores) for cores in (1, 2))
    assert_same(one, two)
    with toy():
        forked = pm.sample(30, tune=50, chains=2, cores=2, random_seed=7, step=step, **QUIET)
        in_turn = pm.sample(30, tune=50, chains=2, cores=1, random_seed=7, step=step, **QUIET)
    np.testing.assert_array_equal(forked["posterior"]["x"], in_turn["posterior"]["x"])
    for dt in one, forked:
        x = dt["posterior"]["x"].values
        assert not np.any(x[0] == x[1])


def test_a_job_that_has_travelled_makes_the_same_noise():
    step = step_of(pk.GAM)
    job, own = Job([step], step.outputs(["x"]), keeps_warmup=True), step.for_chain()
    own.setup_chain(np.random.default_rng(1), 50, 0)
    state = ChainState(np.zeros(2), [own.sampling_state])
    jobs = job, pickle.loads(cloudpickle.dumps(job))
    (_, here), (_, there) = (advance(each, state, 50) for each in jobs)
    np.testing.assert_array_equal(here.outputs, there.outputs)
    assert np.any(np.diff(here.outputs, axis=0) != 0)


def test_seeds_are_drawn_from_all_that_there_are():
    step = step_of(pk.baselines.RWM)
    logp = step.log_density.copy()
    logp.rng = np.random.default_rng(1)
    seeds = []
    for _ in range(1000):
        logp(np.zeros(2))
        seeds.append(logp.seed[0])
    assert np.all(np.mod(seeds, 1) == 0)
    assert stats.kstest(np.array(seeds) / 2**53, "uniform").pvalue > 1e-3
    assert step.log_density.seed[0] not in seeds


def test_the_variance_is_measured_where_tuning_ends():
    dt = sample(pk.baselines.RWM(model=toy(1.2), pseudo_marginal=True))
    v = dt["sample_stats"][noise.NOISE_STATISTIC].values
    assert np.all(v == v[:, :1])
    n = FEW - 1
    low, high = stats.chi2.ppf([1e-4, 1 - 1e-4], n) / n
    assert np.all((low < v / 1.44) & (v / 1.44 < high))
    counted = dt["sample_stats"]["n_logp"].values
    assert np.all(counted[:, 0] == 10 + FEW)
    assert np.all(counted[:, 1:] == 10)


def test_pk_sample_chooses_a_sampler_that_keeps_estimates():
    dt = pk.sample(5, tune=5, chains=1, cores=1, model=toy(), **QUIET)
    assert noise.NOISE_STATISTIC in dt["sample_stats"]


@pytest.mark.slow
def test_the_target_acceptance_is_one_that_noise_allows():
    assert step_of(pk.GAM).target_accept == step_of(pk.PCAKAM).target_accept == 0.1
    assert pk.GAM(model=toy(), pseudo_marginal=True, target_accept=0.15).target_accept == 0.15


def test_too_much_noise_is_said(caplog):
    sample(pk.baselines.RWM(model=toy(3.0), pseudo_marginal=True), tune=200, draws=200)
    said = "\n".join(messages(caplog))
    assert "The estimates are noisy" in said
    assert "[noisy_estimates]" in said
    assert "more particles" in said
    assert "[stuck_on_estimate]" in said
    assert noise.TOO_NOISY < 9


def test_estimates_of_zero_are_infinitely_noisy():
    values = iter([0.0, -np.inf] * FEW)
    assert noise.estimate_variance(lambda q: next(values), None) == np.inf


# ---- misuse -------------------------------------------------------------------------------------


def refusal(cls, model, **options):
    with pytest.raises(ValueError) as info:  # noqa: PT011
        cls(model=model, **options)
    return str(info.value)


def with_estimate(of):
    """Build a model with variables x and y, `of` which something is estimated."""
    with pm.Model() as model:
        own = {"x": pm.Normal("x"), "y": pm.Normal("y")}
        if of:
            pm.Potential("noise", own[of] * normal_from(pk.noise_seed()))
    return model


@pytest.mark.parametrize("cls", [cls for cls in pk.samplers.SAMPLERS if cls not in TAKES])
def test_samplers_that_need_exact_values_lack_the_option(cls):
    with pytest.raises(TypeError, match=f"{cls.__name__} has no option 'pseudo_marginal'"):
        cls(model=toy(), pseudo_marginal=True)


def test_what_is_left_to_another_step_is_refused():
    model = with_estimate("x")
    for own in "x", "y":
        said = refusal(pk.baselines.RWM, model, vars=[model[own]], pseudo_marginal=True)
        assert f"leaves {['y' if own == 'x' else 'x']} to other steps" in said


def test_a_step_beside_it_is_noticed():
    both = [step_of(pk.baselines.RWM), pk.baselines.RWM(model=toy(), pseudo_marginal=True)]
    with toy(), pytest.raises(SamplingError, match=r"another step has moved x, .* leave the"):
        pm.sample(5, tune=5, chains=1, cores=1, step=both, **QUIET)


def test_an_estimate_has_to_be_declared_and_to_be_one():
    assert "Make it GAM(pseudo_marginal=True)" in refusal(pk.GAM, toy())
    assert "Use pk.GAM(pseudo_marginal=True)" in refusal(pk.SurrogateMetropolis, toy())
    said = refusal(pk.GAM, with_estimate(None), pseudo_marginal=True)
    assert "does not depend on pk.noise_seed()" in said
    assert "True or False" in refusal(pk.GAM, toy(), pseudo_marginal=1)


def test_a_deterministic_that_would_be_another_estimate_is_refused():
    with pm.Model() as model:
        estimate = pm.Normal("x") * normal_from(pk.noise_seed())
        pm.Potential("p", estimate)
        pm.Deterministic("estimate", estimate)
    assert "['estimate'] depend on noise_seed" in refusal(pk.GAM, model, pseudo_marginal=True)


def test_there_is_one_seed():
    with toy() as model, pytest.raises(ValueError, match=r'use model\["noise_seed"\]'):
        pk.noise_seed(model)


def test_noise_that_nobody_declared_is_said(caplog):
    rng = np.random.default_rng(1)
    _, model = box(lambda x: -0.5 * x @ x + 1e-3 * rng.standard_normal())
    pk.baselines.RWM(model=model)
    said = "\n".join(messages(caplog))
    assert "noise of its own: at one point it was" in said
    assert "[noisy_density]" in said
    assert "pk.noise_seed()" in said
    caplog.clear()
    _, model = box(lambda x: -0.5 * x @ x * (1 + 1e-9 * rng.standard_normal()))
    pk.baselines.RWM(model=model)
    assert "noise" not in "\n".join(messages(caplog))


def test_without_numba_it_is_the_same():
    options = {"compile_kwargs": {"mode": "FAST_COMPILE"}, "pseudo_marginal": True}
    slow = sample(pk.baselines.RWM(model=toy(), **options), draws=20)
    assert np.all(slow["sample_stats"]["n_logp"][:, 1:] == 10)  # no point is evaluated again
    np.testing.assert_allclose(
        slow["posterior"]["x"], sample(step_of(pk.baselines.RWM), draws=20)["posterior"]["x"]
    )
