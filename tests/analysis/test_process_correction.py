"""Averages by a process where evaluations are few: their errors, and when it is not believed."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from models import box
from runs import messages
from simulated import simulator

import pymc_kameleon as pk
from pymc_kameleon.analysis.batches import Corrected
from pymc_kameleon.analysis.corrections import NotCorrected, with_approximate
from pymc_kameleon.analysis.process_correction import GOOD_ERROR, NOTHING, _largest_error, known_of
from pymc_kameleon.samplers.surrogate.active.averages import ProcessPosterior
from pymc_kameleon.samplers.surrogate.active.way import Known

QUIET = {"progressbar": False, "compute_convergence_checks": False, "chains": 4, "cores": 1}


# ---- known answers ------------------------------------------------------------------------------

BEND, D = 0.3, 2


def bent(x):
    """x₀ is the log of a Gamma(4, 1) variable, and x₁ ~ N(b(x₀ − 1)², 1)."""
    return 4 * x[..., 0] - np.exp(x[..., 0]) - (x[..., 1] - BEND * (x[..., 0] - 1) ** 2) ** 2 / 2


def draws_of_bent(rng, n):
    x = np.log(rng.gamma(4, size=n))
    return np.column_stack([x, BEND * (x - 1) ** 2 + rng.standard_normal(n)])


def functions(x):
    return np.column_stack([x, x**2, x[:, 0] > 1.5])


@pytest.fixture(scope="module", params=[0, pytest.param(0.05, marks=pytest.mark.slow)])
def answers(request):
    """Averages, errors and sds of posteriors that were learned from 24 points each, and truths.

    The log-density has noise, or none.
    """
    truth = functions(draws_of_bent(np.random.default_rng(0), 1_000_000)).mean(axis=0)
    found = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = np.concatenate([draws_of_bent(rng, 15), rng.normal(1, 2, (9, D))])
        f = bent(x) + request.param * rng.standard_normal(len(x))
        known = ProcessPosterior(Known(x, f, np.zeros(D, bool)), rng)
        found.append(known.averages(functions))
    return truth, *np.array(found).swapaxes(0, 1)


def hold(z):
    """Whether errors are of the size that they are said to have."""
    return 0.25 < np.sqrt(np.mean(z**2)) < 1.9 and np.abs(z).max() < 5


@pytest.mark.slow
def test_errors_hold(answers):
    """And would not if they were an eighth, or eight times as large."""
    truth, mean, error, sd = answers
    z = (mean - truth) / error
    assert hold(z)
    assert not hold(8 * z)
    assert not hold(z / 8)
    assert np.median(error / sd) < 0.1


@pytest.fixture(scope="module")
def of_forty():
    """What is known of a posterior by 40 draws of it."""
    rng = np.random.default_rng(1)
    x = draws_of_bent(rng, 40)
    return ProcessPosterior(Known(x, bent(x), np.zeros(D, bool)), rng)


@pytest.mark.slow
def test_it_says_where_it_has_been(of_forty):
    known, rng = of_forty, np.random.default_rng(2)
    assert known.covers(draws_of_bent(rng, 200)) > 0.98
    assert known.covers(draws_of_bent(rng, 200) + 30) == 0


@pytest.mark.slow
def test_it_is_computed_in_parts(of_forty):
    sizes = []

    def noted(x):
        sizes.append(len(x))
        return functions(x)

    in_parts = of_forty.averages(noted, 101)
    assert max(sizes) == 101
    np.testing.assert_allclose(in_parts, of_forty.averages(functions))


class TwoPaths:
    """Of two posteriors that fit as well, whose means and sds are these."""

    def __init__(self, means, sds):
        z = np.linspace(-2, 2, 101)[:, None]
        self.draws = [mean + sd * z for mean, sd in zip(means, sds, strict=True)]

    def averages(self, function, size):
        one, other = (function(x).mean(axis=0) for x in self.draws)
        sd = function(np.concatenate(self.draws)).std(axis=0)
        return (one + other) / 2, np.abs(one - other) / 2, sd


def test_errors_of_means_and_of_sds_tell_how_good_draws_are():
    assert _largest_error(TwoPaths([0, 0], [1, 1])) < 1e-9
    assert _largest_error(TwoPaths([0, 0], [1, 3])) > GOOD_ERROR
    assert _largest_error(TwoPaths([0, 2], [1, 1])) > GOOD_ERROR


# ---- which of the two --------------------------------------------------------------------------


def fixed(mean, error, sd=(1.0, 1.0), is_believed=True):
    """Averages of two functions by a process."""
    mean, error, sd, one = np.array(mean), np.array(error), np.array(sd), np.ones(2)
    believed, halves = np.full(2, is_believed), np.full((2, 2), np.nan)
    return Corrected(mean, error, one, believed, halves, "by_process", sd)


def by_moves(mean, mcse, is_better=True):
    n = len(mean)
    halves = np.zeros((2, n))
    return Corrected(np.array(mean), np.array(mcse), np.full(n, 4.0), np.full(n, is_better), halves)


VALUES = np.random.default_rng(0).standard_normal((2, 50, 2))


def test_the_smaller_error_decides():
    known = fixed([0.1, 0.1], [0.01, 0.2])
    found = with_approximate(by_moves([0.1, 0.1], [0.05, 0.05]), known, VALUES)
    np.testing.assert_array_equal(found.is_approximate, [True, False])
    np.testing.assert_allclose(found.mcse, [0.01, 0.05])
    assert found.gain[0] == pytest.approx(1 / 100 / 0.01**2)


def test_errors_grow_by_how_far_the_averages_are_apart():
    """By the factor of Birge; beyond three standard errors by what they differ."""
    known = fixed([0.1, 0.1], [0.01, 0.01])
    found = with_approximate(by_moves([0.0, 0.1], [0.05, 0.05]), known, VALUES)
    birge = 0.1 / np.hypot(0.05, 0.01)
    np.testing.assert_allclose(found.mcse, [0.01 * birge, 0.01])
    np.testing.assert_array_equal(found.mean, 0.1)
    known = fixed([0.4, 0.1], [0.06, 0.06])
    found = with_approximate(by_moves([0.0, 0.1], [0.05, 0.05]), known, VALUES)
    np.testing.assert_allclose(found.mcse, [np.hypot(0.4, 0.05), 0.05])
    np.testing.assert_allclose(found.gain * found.mcse**2, 4 * 0.05**2)


def test_an_error_that_draws_do_not_contradict_is_not_larger():
    """Few draws are often off by twice their error, which says nothing of a better average."""
    rng = np.random.default_rng(1)
    process, moves = 0.02 * rng.standard_normal(2000), 0.3 * rng.standard_normal(2000)
    values = np.broadcast_to(rng.standard_normal((4, 5, 1)), (4, 5, 2000))
    one = np.ones(2000)
    known = Corrected(process, 0.02 * one, one, one > 0, np.full((2, 2000), np.nan), "", one)
    found = with_approximate(by_moves(moves, 0.3 * one), known, values)
    assert 0.95 < np.mean(np.abs(found.mean) < 2 * found.mcse) < 0.99
    assert np.median(found.mcse) == 0.02


def test_a_process_that_is_far_from_exact_averages_is_not_taken():
    """However sure it is; unless there are none but those of the draws."""
    known = fixed([0.4, 0.1], [0.001, 0.001])
    found = with_approximate(by_moves([0.0, 0.1], [0.05, 0.05]), known, VALUES)
    np.testing.assert_array_equal(found.mean, [0.0, 0.1])
    np.testing.assert_array_equal(found.is_approximate, [False, True])
    np.testing.assert_allclose(found.mcse, [np.hypot(0.4, 0.05), 0.001])
    found = with_approximate(by_moves([0.0, 0.1], [0.05, 0.05], False), known, VALUES)
    np.testing.assert_array_equal(found.is_approximate, True)


def test_averages_of_draws_count_with_their_own_error():
    """Where moves are of no use: their variance is that of the corrected one, times the gain."""
    known = fixed([0.0, 0.0], [0.09, 0.2])
    found = with_approximate(by_moves([9.0, 9.0], [0.05, 0.05], False), known, VALUES)
    np.testing.assert_array_equal(found.is_approximate, [True, False])
    np.testing.assert_array_equal(found.is_better, [True, False])


def test_draws_that_miss_a_tail_know_no_more_than_independent_ones():
    known = fixed([0.0, 0.0], [0.06, 0.06], sd=(1.0, 3.0))
    found = with_approximate(by_moves([0.1, 0.1], [0.05, 0.05]), known, VALUES)
    np.testing.assert_array_equal(found.is_approximate, [False, True])  # 3 / sqrt(4 * 100) = 0.15
    found = with_approximate(by_moves([0.0, 0.0], [0.01, 0.01], False), known, VALUES)
    np.testing.assert_array_equal(found.is_approximate, [True, True])


def test_draws_that_are_equal_have_no_error():
    """Rounding has one for them."""
    known = fixed([0.1, 0.1], [0.3, 0.3])
    found = with_approximate(by_moves([0.0, 0.0], [1e-17, 1e-17]), known, np.zeros((2, 50, 2)))
    np.testing.assert_array_equal(found.mean, [0.1, 0.1])
    np.testing.assert_array_equal(found.mcse, [0.3, 0.3])


def test_what_is_equal_everywhere_has_no_error():
    """Nor has it where rounding has one for it."""
    found = with_approximate(None, fixed([0.0, 0.1], [0.0, 0.1]), np.zeros((2, 50, 2)))
    np.testing.assert_allclose(found.mcse, [np.nan, 0.1])
    found = with_approximate(None, fixed([0.3, 0.1], [1e-17, 0.1]), np.zeros((2, 50, 2)))
    np.testing.assert_allclose(found.mcse, [np.nan, 0.1])


def test_where_nothing_is_known_there_is_no_error():
    found = with_approximate(None, fixed([0, 0], [np.inf, np.inf], [0, 0], False), VALUES)
    assert np.isnan(found.mcse).all()
    np.testing.assert_allclose(found.mean, VALUES.mean(axis=(0, 1)))


def test_without_moves_each_chain_counts_as_a_draw():
    found = with_approximate(None, fixed([0.3, 0.1], [2.0, 0.1]), VALUES)
    assert found.is_approximate.all()
    of_one = VALUES.std(axis=(0, 1)) / np.sqrt(2)
    apart = np.hypot(of_one[0], 0.3 - VALUES[..., 0].mean())
    np.testing.assert_allclose(found.mcse, [apart, 0.1])
    np.testing.assert_allclose(found.gain, (of_one / found.mcse) ** 2)


# ---- in a run -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def result():
    _, model = box(lambda x: float(bent(x)))
    with model:
        return pk.sample(step=pk.SurrogateMetropolis(), max_evaluations=100, random_seed=1, **QUIET)


@pytest.fixture(scope="module")
def emulated():
    """The same posterior, of which a simulator knows the bend."""

    def straightened(x):
        return x[1:] - BEND * (x[0] - 1) ** 2

    with pm.Model():
        x = pm.Flat("x", shape=D)
        pm.Potential("p", 4 * x[0] - pt.exp(x[0]))
        pm.Normal("y", simulator(straightened)(x), observed=[0.0])
        return pk.sample(max_evaluations=100, random_seed=1, **QUIET)


@pytest.mark.parametrize("by", ["result", "emulated"])
def test_a_hundred_evaluations_tell_averages(by, request):
    result = request.getfixturevalue(by)
    table = pk.summary(result, round_to="none")
    truth = draws_of_bent(np.random.default_rng(0), 1_000_000)
    z = (table["mean"] - truth.mean(axis=0)) / table["mcse_mean"]
    assert (np.abs(z) < 4).all()
    assert (table["ess"] > 200).all()  # of some 50 draws
    np.testing.assert_allclose(table["sd"], truth.std(axis=0), rtol=0.15)
    ends = np.quantile(truth, [0.055, 0.945], axis=0)
    np.testing.assert_allclose(table[["eti89_lb", "eti89_ub"]].T, ends, atol=0.25)
    np.testing.assert_allclose(table["r_hat"], np.sqrt(1 + 1 / table["ess"]), rtol=0.02)
    found = pk.expectation(result, lambda v: v["x"])
    np.testing.assert_allclose(found.mean, table["mean"], atol=0.05)


@pytest.mark.slow
def test_the_same_evaluations_tell_the_same(result, tmp_path):
    result.to_netcdf(tmp_path / "result.nc")
    again = pk.summary(tmp_path / "result.nc")
    assert again.equals(pk.summary(result))


def test_draws_where_the_process_knows_nothing_refuse_it(result):
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    assert known_of(data, kept) is not NOTHING
    assert known_of(data, kept.assign(start=kept["start"] + 30)) is NOTHING


def test_draws_of_it_that_are_cut_off_refuse_it(result, monkeypatch):
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    known = known_of(data, kept)
    for outside, is_believed in (0.001, True), (0.01, False):
        monkeypatch.setattr(known, "outside", outside)
        assert (known_of(data, kept) is known) == is_believed


def test_evaluations_far_below_the_best_one_tell_nothing(result):
    """Nor do those along a line."""
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    best = np.arange(data.sizes["evaluation"]) == 3
    assert known_of(data.assign(logp=data["logp"].where(~best, 1e300)), kept) is NOTHING
    assert (
        known_of(data.assign(z=data["z"].where(data["coordinate"] == "x[0]", 1.0)), kept) is NOTHING
    )


@pytest.mark.slow
def test_evaluations_in_single_precision(result):
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    rounded = data.assign(z=data["z"].astype(np.float32), logp=data["logp"].astype(np.float32))
    found = [known_of(own, kept).averages(functions)[0] for own in (data, rounded)]
    np.testing.assert_allclose(*found, atol=0.1)


@pytest.mark.slow
def test_a_cliff_within_the_posterior_is_noticed(result):
    """A process is smooth: it is refused, or its errors are large, and hold."""
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    cut = data["logp"].where(data["z"].isel(coordinate=1) < 1, -np.inf)
    known = known_of(data.assign(logp=cut), kept)
    if known is not NOTHING:
        x = draws_of_bent(np.random.default_rng(0), 1_000_000)
        truth = functions(x[x[:, 1] < 1]).mean(axis=0)
        mean, error, sd = known.averages(functions)
        assert (np.abs(mean - truth) < 3 * error).all()
        assert np.median(error / sd) > 0.1


def test_too_few_or_many_evaluations_are_none_for_a_process(result):
    kept, data = (result[name].to_dataset() for name in ("surrogate_moves", "evaluations"))
    few = data.isel(evaluation=slice(12)).assign_attrs(n_evaluations=12)
    for own in few, data.assign_attrs(n_evaluations=501):
        with pytest.raises(NotCorrected):
            known_of(own, kept)


def test_what_is_not_known_is_said(result, caplog, monkeypatch):
    monkeypatch.setattr("pymc_kameleon.analysis.process_correction.FEW", np.inf)
    table = pk.summary(result)
    assert table["mcse_mean"].isna().all()
    [said] = [text for text in messages(caplog) if "[unknown_errors]" in text]
    assert said.startswith("The standard error of the mean of x[0] cannot be estimated.")
