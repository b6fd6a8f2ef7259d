"""Averages corrected by what a surrogate knows: exact whatever it is, and as ArviZ's elsewhere."""

import logging

import arviz as az
import numpy as np
import pandas as pd
import pymc as pm
import pytest
import reference
import xarray as xr
from averages import TRUE, Batches, at_draws, draws_of_banana, functions, log_banana, whole
from runs import codes, messages, resume, sample
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.analysis import (
    recomputed,
    summary,
    surrogate_correction,
)
from pymc_kameleon.analysis.corrections import Moves, ess_share
from pymc_kameleon.analysis.summary import _keep_what_draws_show
from pymc_kameleon.core.arrays import allocate
from pymc_kameleon.model.functions import ModelOutputs
from pymc_kameleon.samplers.surrogate import fit
from pymc_kameleon.samplers.surrogate.density import Surrogate
from pymc_kameleon.samplers.surrogate.inner_chain import Parameters
from pymc_kameleon.samplers.surrogate.moves import Spread, ends_of_pairs, new_ends

# ---- known answers, with a surrogate that is far off --------------------------------------------


def spoilt():
    """Return Parameters with a surrogate in the wrong place, of the wrong width, with bumps."""
    sizes = {"d": 2, "m": 6}
    surrogate = allocate(
        Surrogate,
        sizes,
        nu=4.0,
        is_quadratic=1,
        linear=(0.5, -0.4),
        quadratic=((-0.3, 0.0), (0.2, -0.4)),
        bounds=(-10.0, 10.0),
        n=6,
        centres=(
            (2.04, -2.56, 0.42, -0.57, -0.45, -0.22),
            (-2.02, -0.23, -0.87, 3.32, 0.23, -0.35),
        ),
        weights=(-0.2, -0.47, -0.74, -0.27, 0.34, -0.17),
        rates=(1.0, 1.5),
    )
    return allocate(
        Parameters,
        sizes,
        mean=(0.3, -0.2),
        factor=((1.2, 0.0), (-0.3, 0.9)),
        n_inner=4,
        surrogate=surrogate,
    )


def log_s_of(parameters):
    def log_s(x):
        u = np.linalg.solve(parameters.factor, (x - parameters.mean).T).T
        return fit.values(parameters.surrogate, u)

    return log_s


def stationary(n, chains=4, seed=1):
    """Return independent draws (chains, n, 2), and the moves that one chain each makes of them."""
    rng, parameters = np.random.default_rng(seed), spoilt()
    x = draws_of_banana(chains * n, rng)
    end, log_s = new_ends(parameters, x, rng), log_s_of(parameters)
    log_ratio = log_banana(end) - log_banana(x) + log_s(x) - log_s(end)
    rows, alpha = np.divmod(np.arange(chains * n), n), np.exp(np.minimum(0, log_ratio))
    moves = Moves(*rows, x, end, log_banana(end) - log_s(end), alpha, [parameters] * chains)
    return x.reshape(chains, n, 2), moves


@pytest.fixture
def whole_correction(monkeypatch):
    monkeypatch.setattr(surrogate_correction, "coefficients", whole)


@pytest.mark.usefixtures("whole_correction")
def test_it_is_exact_however_bad_the_surrogate_is(monkeypatch):
    """Unlike the mean over s, instead of that over new runs from where each move began."""
    x, moves = stationary(25_000)
    assert 0.4 < moves.accept_prob.mean() < 0.7
    found = surrogate_correction.corrected(at_draws(x), moves, functions)
    assert np.abs((found.mean - TRUE) / found.mcse).max() < 3.5
    assert found.is_better.all()

    def as_if_all_met(parameters, start, others, rng):
        return start, others, np.zeros(len(start), bool)

    monkeypatch.setattr(surrogate_correction, "ends_of_pairs", as_if_all_met)
    wrong = surrogate_correction.corrected(at_draws(x), moves, functions)
    assert np.abs((wrong.mean - TRUE) / wrong.mcse).max() > 6


@pytest.mark.slow
def test_without_use_it_is_left_out():
    """As b is then about 0, errors remain what they are; up to twice the variance is stated."""
    gains, errors, of_draws = [], [], []
    for seed in range(12):
        x, moves = stationary(2500, seed=seed)
        found = surrogate_correction.corrected(at_draws(x), moves, functions)
        gains.append(found.gain)
        errors.append(found.mean - TRUE)
        of_draws.append(at_draws(x).mean(axis=(0, 1)) - TRUE)
    assert np.median(gains) > 0.4
    ratios = np.square(errors).mean(axis=0) / np.square(of_draws).mean(axis=0)
    assert np.mean(ratios) < 1.5


def normals(seed):
    """Return moves (300 of each of 2 chains) for N(0, I), by a surrogate that is hardly off."""
    rng, sizes = np.random.default_rng(seed), {"d": 2, "m": 1}
    surrogate = allocate(
        Surrogate,
        sizes,
        nu=4.0,
        is_quadratic=1,
        quadratic=((-0.495, 0.0), (0.0, -0.505)),
        bounds=(-20.0, 20.0),
    )
    parameters = allocate(
        Parameters,
        sizes,
        factor=np.eye(2),
        n_inner=20,
        surrogate=surrogate,
    )
    x, log_s = rng.standard_normal((600, 2)), log_s_of(parameters)
    end = new_ends(parameters, x, rng)
    logp = -np.square(end).sum(axis=1) / 2
    log_ratio = logp + np.square(x).sum(axis=1) / 2 + log_s(x) - log_s(end)
    rows, alpha = np.divmod(np.arange(600), 300), np.exp(np.minimum(0, log_ratio))
    return x.reshape(2, 300, 2), Moves(*rows, x, end, logp - log_s(end), alpha, [parameters] * 2)


def one_sidedness(n=60):
    """Return n·mean(z)²/var(z) over n runs, of means and fourth moments: about 1 by chance."""
    z = []
    for seed in range(n):
        x, moves = normals(seed)
        f = np.concatenate([x, x**4], axis=2)
        found = surrogate_correction.corrected(f, moves, lambda x: np.c_[x, x**4])
        z.append((found.mean - [0, 0, 3, 3]) / found.mcse)
    z = np.array(z)
    assert np.sqrt(np.square(z).mean()) < 1.3
    return n * np.square(z.mean(axis=0)) / z.var(axis=0, ddof=1)


@pytest.mark.slow
def test_errors_of_several_runs_are_independent(monkeypatch):
    """Unlike those that lack what is clipped."""
    assert one_sidedness().max() < 9
    monkeypatch.setattr(surrogate_correction._Known, "beyond", 0.0)
    assert one_sidedness()[2:].min() > 30


# ---- by hand ------------------------------------------------------------------------------------


def test_new_runs_are_those_of_the_inner_chain():
    """Each of a pair is one, with the same random numbers, until both are the same."""
    parameters, rng = spoilt(), np.random.default_rng(2)
    by_hand, u = reference.SurrogateChain(parameters, None), rng.standard_normal((2, 30, 2))
    start, others = u @ parameters.factor.T + parameters.mean
    met = 0
    for k in range(30):
        *ends, apart = ends_of_pairs(parameters, start[[k]], others[[k]], np.random.default_rng(k))
        alone = [by_hand.inner_chain(v, 1.0, np.random.default_rng(k)) for v in u[:, k]]
        if apart[0]:
            expected = parameters.mean + np.array(alone) @ parameters.factor.T
            np.testing.assert_allclose(np.concatenate(ends), expected)
        else:
            met += 1
            np.testing.assert_array_equal(*alone)
    assert 0 < met < 30  # three of four do


def test_doubts_are_those_of_a_gaussian_process():
    """That has been told the values at the centres."""
    parameters = spoilt()
    s, spread = parameters.surrogate, Spread(parameters)
    u = np.random.default_rng(2).standard_normal((5, 2))

    def kernel(a, b):
        return 1 / (1 + np.sum((a[:, None] - b[None]) ** 2, axis=2))

    c, at = s.centres.T, u * s.rates
    given, cross = kernel(c, c), kernel(at, c)
    amplitude = s.weights @ given @ s.weights / 6
    covariance = kernel(at, at) - cross @ np.linalg.solve(given, cross.T)
    found = spread.doubt(parameters.mean + u @ parameters.factor.T)
    np.testing.assert_allclose(found, np.sqrt(amplitude * np.diag(covariance)), rtol=1e-4)
    at_centres = parameters.mean + (c / s.rates) @ parameters.factor.T
    np.testing.assert_allclose(spread.doubt(at_centres), 0, atol=1e-2)
    alone = parameters._replace(surrogate=s._replace(n=np.array([0])))
    assert not Spread(alone).doubt(at_centres).any()


def slowly(f, moves, function, n_runs, under_s):
    """Return T, its standard error and its gain of one function, from their definitions.

    `under_s` are points, weights, and doubts (sets, n, ...).
    """
    batches = Batches(f, moves)
    low, high = f.min(), f.max()
    half = 1.3 * (high - low) / 2
    low, high = (low + high) / 2 - half, (low + high) / 2 + half

    def value_at(x):
        value = function(x[None]).item()
        return value if value == value else low

    def g(x):
        return min(max(value_at(x), low), high)

    points, weights, doubts, is_lowest = under_s
    lowest = is_lowest(points.reshape(-1, 2))

    def tamed(x):
        return f.mean() if is_lowest(x[None])[0] else g(x)

    sums = [
        sum(v * tamed(p) for v, p in zip(*one, strict=True))
        for one in zip(weights, points, strict=True)
    ]
    total = [w.sum() for w in weights]
    level = sum(sums) / sum(total)
    off = [one - level * w for one, w in zip(sums, total, strict=True)]
    common = np.var(off, ddof=1) / len(off) / np.mean(total) ** 2

    lacking = weights * (np.exp(np.minimum(doubts, 4)) - 1) / weights.mean() / weights.shape[1]
    changes = [
        sum(v * (g(p) - level) for v, p in zip(*one, strict=True))
        for one in zip(lacking, points, strict=True)
    ]
    unseen = np.sqrt(max(np.mean(changes) ** 2 - np.var(changes, ddof=1) / len(changes), 0))
    pairs = list(zip(weights.ravel(), points.reshape(-1, 2), strict=True))
    lacks = [w * (value_at(p) - g(p)) for w, p in pairs]
    beyond = sum(np.array(lacks)[~lowest]) / weights.sum()
    unseen += abs(sum(lacks) / weights.sum())

    def k(row, x):
        x = np.repeat(x[None], n_runs, axis=0)
        ends, others, apart = surrogate_correction.ends_of_pairs(
            moves.parameters[row], x, None, None
        )
        values = zip(ends, others, apart, strict=True)
        return level + np.mean([(tamed(v) - tamed(w)) * is_apart for v, w, is_apart in values])

    mixed, used = batches.mix(g, tamed, lambda i: k(moves.row[i], moves.start[i]), common)
    before = batches.variance(batches.a)
    most = np.sqrt(before)
    mean = batches.mean(mixed) + np.clip(used.mean() * beyond, -most, most)
    rejected = sum(
        w * unknown * (g(p) - level) ** 2 / weights.sum()
        for w, p, unknown in zip(weights.ravel(), points.reshape(-1, 2), lowest, strict=True)
    )
    least = np.sum(used**2 / np.bincount(moves.row)) * rejected / batches.n_chains**2
    after = max(batches.variance(mixed), least) + common * used.mean() ** 2
    after += min((unseen * used.mean()) ** 2, before)
    return mean, np.sqrt(after), before / after


@pytest.mark.slow
def test_what_lies_beyond_all_draws_counts_in_the_error(step, result):
    """A surrogate that is all but exact leaves only the error of clipping: z was up to 170."""
    t = {"t": lambda v: v["t"], "square": lambda v: (v["t"] - 1) ** 2}
    for function in t.values():
        found = pk.expectation(result, function, step.model)
        assert abs(found.mean - 1) < 3 * found.mcse


@pytest.mark.parametrize("seed", range(4))  # rare moves that are lacking decide in most of them
@pytest.mark.parametrize("share", [0.0, 0.97])
def test_the_estimator_is_that_of_a_slow_version(share, seed, monkeypatch):
    """Chains of a length that batches do not divide, some batches without a move, NaN, clipping."""
    rng = np.random.default_rng(seed)
    walk = np.cumsum(rng.standard_normal((3, 47, 2)), axis=1) / 3
    is_move = rng.random((3, 47)) < 0.3
    is_move[1, :16] = False  # three batches or more have the first one without a move
    row, draw = np.nonzero(is_move)
    start = walk[row, draw]
    moves = Moves(
        row,
        draw,
        start,
        rng.standard_normal(start.shape),
        None,
        rng.random(len(row)),
        [spoilt()._replace(n_inner=np.array([chain])) for chain in range(3)],
    )

    under_s = 8 * rng.standard_normal((8, 16, 2)), rng.random((8, 16)), 5 * rng.random((8, 16)) ** 3

    def is_lowest(x):
        return np.sin(37 * x.sum(axis=1)) < 2 * share - 1

    under_s = *under_s, is_lowest

    class Known:
        def __init__(self, *_):
            pass

        def points(self, n, rng):
            return under_s[:2]

        def doubt(self, x):
            return under_s[2].ravel()

        def is_lowest(self, x):
            return is_lowest(x)

    def shrunk(parameters, start, others, rng):
        shifts = np.resize(np.linspace(-5, 4, 4), len(start))[:, None]
        ends = 0.2 * start + shifts + 0.1 * parameters.n_inner
        return ends, ends[:, ::-1] / 2, shifts[:, 0] > -5

    monkeypatch.setattr(surrogate_correction, "Spread", Known)
    monkeypatch.setattr(surrogate_correction, "ends_of_pairs", shrunk)
    monkeypatch.setattr(surrogate_correction, "POINTS", 16)
    monkeypatch.setattr(surrogate_correction, "RUNS", 4 * len(row))
    monkeypatch.setattr(surrogate_correction, "NUMBERS_PER_PART", 30)

    def function(x):
        root = np.sqrt(np.where(x[:, 0] > 3, np.nan, 4.0)) * x[:, 1]
        return np.column_stack([x[:, 0], x[:, 0] * x[:, 1], root])

    f = function(walk.reshape(-1, 2)).reshape(3, 47, 3)
    f[np.isnan(f)] = 0.0
    found = surrogate_correction.corrected(f, moves, function)
    for j in range(3):
        expected = slowly(f[..., j], moves, lambda x, j=j: function(x)[:, j], 4, under_s)
        np.testing.assert_allclose((found.mean[j], found.mcse[j], found.gain[j]), expected)
    assert found.is_better.tolist() == (np.abs(found.gain - 1) > 1e-9).tolist() != [False] * 3


def test_the_share_of_weights():
    log_w = 0.3 * np.random.default_rng(4).standard_normal(400)
    w = np.exp(log_w)
    assert ess_share(log_w) == pytest.approx(w.sum() ** 2 / 400 / np.sum(w**2))
    half = np.where(np.arange(400) % 2 == 0, -np.inf, log_w)
    assert ess_share(half) < 0.6
    assert ess_share(-half) == 0  # s was 0 there
    assert ess_share(np.full(400, -np.inf)) == 0


@pytest.mark.parametrize("kind", ["eti", "hdi"])
def test_intervals_of_a_known_distribution(kind):
    """That of χ² with two degrees of freedom, by shares that are not quite monotone."""
    x = np.linspace(0, 20, 60)
    shares = 1 - np.exp(-x / 2)
    shares[-3:] = shares[-3:][::-1]
    low, high = summary.interval(x, shares, 0.9, kind)
    expected = (-2 * np.log(0.95), -2 * np.log(0.05)) if kind == "eti" else (0, -2 * np.log(0.1))
    assert (low, high) == pytest.approx(expected, abs=0.02)


# ---- results ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def step():
    with pm.Model(coords={"k": ["u", "v"]}) as model:
        x = pm.Normal("x", [1.0, -1.0], [1.0, 3.0], dims="k")
        t = pm.Exponential("t", 1)
        pm.Deterministic("y", x[0] + t)
        pm.Deterministic("positive", 1 * (x[0] > 0))
        return pk.SurrogateMetropolis(model=model)


RUN = {"draws": 400, "tune": 300, "chains": 4, "random_seed": 3}


@pytest.fixture(scope="module")
def with_evaluations(step):
    return sample(step, **RUN)


@pytest.fixture(scope="module")
def result(with_evaluations):
    dt = with_evaluations.copy()
    del dt["evaluations"]  # of which a process would know all, as most are exact
    return dt


MEAN = np.array([1, -1, 1, 2, norm.cdf(1)])
"""Of all variables."""


def everything(v):
    return np.concatenate([v["x"], np.stack([v["t"], v["y"], v["positive"]], axis=2)], axis=2)


@pytest.mark.slow
def test_moves_are_kept(step, result):
    moves, stats = result["surrogate_moves"], result["sample_stats"]
    posterior = result["posterior"]
    x = np.concatenate([posterior["x"], np.log(posterior["t"].values)[..., None]], axis=2)
    np.testing.assert_allclose(moves["start"][:, 1:], x[:, :-1], rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(moves["accept_prob"], stats["surrogate_accept"])
    by_surrogate = ~np.isnan(moves["accept_prob"].values)
    assert 0.1 < by_surrogate.mean() < 0.95
    moved = by_surrogate & (stats["accept_share"].values == 1)
    np.testing.assert_allclose(moves["end"].values[moved], x[moved], rtol=1e-12)
    np.testing.assert_allclose(moves["end_logp"].values[moved], stats["lp"].values[moved])
    still = stats["n_logp"].values == 0
    np.testing.assert_array_equal(moves["end"].values[still], moves["start"].values[still])
    assert moves["coordinate"].values.tolist() == ["x[0]", "x[1]", "t_log__"]
    assert "start" not in stats
    assert "surrogate_moves" not in sample(pk.baselines.RWM(model=step.model)).children


def test_moves_are_kept_of_one_step_alone(step):
    one = pk.SurrogateMetropolis(["x"], model=step.model)
    assert one.statistics.kept == {} != step.statistics.kept
    assert one.statistics.empty(1).size < step.statistics.empty(1).size


@pytest.mark.slow
def test_they_outlive_files_and_interruptions(step, with_evaluations, tmp_path):
    result = with_evaluations
    options = RUN | {"draws": 150}
    short = sample(step, cores=2, store=tmp_path / "run.zarr", **options).load()
    short.to_netcdf(tmp_path / "run.nc")
    for saved in (xr.load_datatree(tmp_path / "run.nc"), tmp_path / "run.zarr"):
        whole = resume(saved, step.model, draws=250, step=step)
        kept = whole["surrogate_moves"].to_dataset().load()
        assert kept.equals(result["surrogate_moves"].to_dataset())
    stored = xr.open_datatree(tmp_path / "run.zarr", engine="zarr", consolidated=False)
    file = tmp_path / "run.nc"
    whole.to_netcdf(file)
    expected = pk.expectation(result, everything, step.model)
    for one in (whole, stored, file, str(file), tmp_path / "run.zarr"):
        np.testing.assert_array_equal(pk.expectation(one, everything, step.model), expected)
    tables = [pk.summary(one, model=step.model).sort_index() for one in (file, result)]
    assert tables[0].equals(tables[1])
    with pytest.raises(ValueError, match=r"no\.zarr does not exist: give a result of pk\.sample"):
        pk.summary(tmp_path / "no.zarr")
    del short["surrogate_moves"]
    with pytest.raises(ValueError, match="surrogate_moves has 0 draws, and the run had 150"):
        resume(short, step.model)


@pytest.mark.slow
def test_averages_are_worth_more_than_the_draws(step, result):
    found = pk.expectation(result, everything, step.model)
    plain = pk.expectation(result["posterior"], everything)
    assert (np.abs(found.mean - MEAN) < 4 * found.mcse).all()
    assert (found.gain[:4] > 3).all()
    assert (found.mcse < plain.mcse).all()
    sd = everything(dict(result["posterior"].data_vars)).std(axis=(0, 1))
    np.testing.assert_allclose(found.ess, (sd / found.mcse) ** 2)
    one = pk.expectation(result, lambda v: v["t"], step.model)
    assert one.mean == pytest.approx(found.mean[2], abs=found.mcse[2])


def test_the_summary_has_them(step, result):
    with step.model:
        table = pk.summary(result, round_to="none")
        rounded, to_three = pk.summary(result), pk.summary(result, round_to=3)
        found = pk.expectation(result, everything)
    order = ["x[u]", "x[v]", "t", "y", "positive"]
    assert list(table.columns) == [*az.summary(result).columns, "ess", "gain"]
    assert sorted(table.index) == sorted(order)
    ours = table.loc[order]
    assert (np.abs(ours["mean"] - found.mean) < 3 * found.mcse).all()
    sd = [1, 3, 1, np.sqrt(2), np.sqrt(MEAN[4] * (1 - MEAN[4]))]
    assert (np.abs(ours["sd"] - sd) < 4 * ours["mcse_sd"]).all()
    np.testing.assert_allclose(ours["ess"], (ours["sd"] / ours["mcse_mean"]) ** 2)
    tails = norm.ppf([0.055, 0.945])
    ends = [1 + tails, -1 + 3 * tails, -np.log([0.945, 0.055])]
    deviations = (ours.iloc[:3, 2:4] - np.array(ends)) / np.array(sd[:3])[:, None]
    np.testing.assert_allclose(deviations, 0, atol=0.08)
    plain = az.summary(result, round_to="none").loc[order]
    assert (ours.iloc[:3, 2:4] != plain.iloc[:3, 2:4]).all(axis=None)
    for column in ("ess_bulk", "ess_tail"):
        np.testing.assert_array_equal(ours[column], plain[column])
    assert ours["r_hat"].between(1, 1.001, inclusive="neither").all()
    assert (ours["r_hat"] != plain["r_hat"]).all()
    assert plain.loc["positive", "eti89_ub"] == ours.loc["positive", "eti89_ub"] == 1
    errors = np.abs(rounded["mean"] - table["mean"]) / table["mcse_mean"]
    assert (errors < 1.01).all()
    assert table.attrs["ess_share"] > 0.9
    assert to_three["mean"]["t"] == round(table["mean"]["t"], 3) != table["mean"]["t"]
    assert to_three.attrs == table.attrs
    chosen = pk.summary(result, ["t"], ci_kind="hdi", ci_prob=0.5, model=step.model)
    assert list(chosen.columns[2:4]) == ["hdi50_lb", "hdi50_ub"]
    assert 0 <= chosen["hdi50_lb"]["t"] < 0.1 < 0.6 < chosen["hdi50_ub"]["t"] < 0.8


def test_the_summary_computes_what_it_shows(step, result, monkeypatch):
    """A deterministic may be expensive."""
    computed = []

    def outputs(model, names, *others):
        computed.append(names)
        return ModelOutputs(model, names, *others)

    monkeypatch.setattr(recomputed, "ModelOutputs", outputs)
    table = pk.summary(result, ["~y"], model=step.model)
    assert computed == [[name for name in result["posterior"] if name != "y"]]
    assert (table["gain"][["x[u]", "x[v]", "t"]] > 2).all()


@pytest.mark.usefixtures("without_search")
def test_the_step_may_have_another_order(step):
    """Its coordinates are in the order of its variables, and a model's in that of the model."""
    other = pk.SurrogateMetropolis(["t", "x"], model=step.model)
    dt = sample(other, draws=400, tune=300, chains=4)
    assert dt["surrogate_moves"]["coordinate"].values.tolist()[0] == "t_log__"
    found = pk.expectation(dt, everything, step.model)
    assert (np.abs(found.mean - MEAN) < 4 * found.mcse).all()
    assert (found.gain[:4] > 2).all()


@pytest.mark.slow
def test_draws_may_be_left_out(step, result):
    """Of those that are left, only their own moves count."""
    part = result.isel(chain=[0, 2, 3], draw=slice(50, None))
    longer = part.copy()
    longer["surrogate_moves"] = result["surrogate_moves"]
    cut = pk.expectation(part, everything, step.model)
    np.testing.assert_array_equal(cut, pk.expectation(longer, everything, step.model))
    assert (cut.gain[:4] > 2).all()


def test_too_little_corrects_nothing(step, result):
    """One chain has no others, and eight moves of each are needed; no model is, then."""
    untuned = sample(step, tune=0)
    del untuned["evaluations"]
    for part in (result.isel(chain=[0]), result.isel(draw=slice(9)), untuned):
        found = pk.expectation(part, everything)
        np.testing.assert_array_equal(found, pk.expectation(part["posterior"], everything))
        assert (found.gain == 1).all()


def test_chains_that_differ_are_told_where_nothing_is_corrected(step, result, caplog):
    few = result.isel(draw=slice(9)).copy(deep=True)
    few["posterior"]["x"][0, :, 1] += 20
    with step.model:
        pk.summary(few, ["x"])
        pk.expectation(few, lambda v: v["x"][..., 1])
    said = [m for m in messages(caplog, logging.WARNING) if "R-hat" in m]
    for text, name in zip(said, ("x[v]", "the function"), strict=True):
        assert f"R-hat of {name} is " in text


def test_what_does_not_vary_or_is_infinite_has_no_error(step, result):
    for model in (None, step.model):
        dt = result if model else result["posterior"]
        found = pk.expectation(dt, lambda v: v["t"] > -1, model)
        assert found.mean == found.gain == 1
        assert np.isnan([found.mcse, found.ess]).all()
    changed = result.copy()
    changed["posterior"] = result["posterior"].to_dataset().assign(t=result["posterior"]["t"] * 0)
    changed["posterior"]["y"] = result["posterior"]["y"].where(lambda y: y < 4, np.inf)
    table = pk.summary(changed, ["t", "y"], model=step.model)
    assert table["mcse_mean"].isna().all()


def test_the_draws_of_others_are_arvizs(result):
    posterior = result["posterior"].to_dataset()
    t = posterior[["t"]]
    table, plain = pk.summary(posterior, round_to="none"), az.summary(posterior, round_to="none")
    pd.testing.assert_frame_equal(table[plain.columns], pd.DataFrame(plain), check_dtype=False)
    found = pk.expectation(posterior, lambda v: v["t"])
    expected = t.mean(), az.mcse(t), 1, az.ess(t, method="mean")
    assert found == pytest.approx([float(getattr(one, "t", one)) for one in expected])
    assert (table["gain"] == 1).all()
    assert table["ess"]["t"] == found.ess


def test_what_cannot_be_averaged_is_told(step, result):
    with pm.Model() as other:
        pm.Normal("z")
    with pytest.raises(
        ValueError, match=r"it has \['z'\], and the coordinates of the draws are \['x"
    ):
        pk.expectation(result, everything, other)
    with pytest.raises(ValueError, match="treat each draw for itself"):
        pk.expectation(result, lambda v: v["t"] - v["t"].mean(), step.model)
    with pytest.raises(ValueError, match="treat each draw for itself"):  # the first draws agree
        pk.expectation(result, lambda v: np.cumsum(v["t"], axis=1), step.model)
    with pytest.raises(ValueError, match=r"\(chain, draw, ...\), here of shape \(4, 400, \.\.\.\)"):
        pk.expectation(result, lambda v: v["t"].mean(axis=1), step.model)
    with pytest.raises(KeyError, match=r"for 'z', but the variables are \['x', 't', 'y', 'pos"):
        pk.expectation(result, lambda v: v["z"], step.model)
    empty = result.copy()
    del empty["posterior"]
    for none in (result.isel(draw=slice(0)), empty):
        with pytest.raises(ValueError, match="There are no draws"):
            pk.summary(none, model=step.model)
    with pytest.raises(ValueError, match='"none" or a number of decimals, not 3'):
        pk.summary(result, round_to=3.5, model=step.model)
    for other in (az.extract(result), result.isel(chain=0)):
        with pytest.raises(ValueError, match=r"dimensions chain and draw, and have \["):
            pk.summary(other, model=step.model)
    with pytest.raises(ValueError, match="var_names is empty: name some of"):
        pk.summary(result, [], model=step.model)
    with pytest.raises(ValueError, match=r"as lambda v: v\['t'\], not 't'"):
        pk.expectation(result, "t", step.model)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (lambda v: v["t"] + 1j, "of real numbers, not of complex128"),
        (lambda v: np.where(v["t"] > 1, "large", "small"), "of real numbers, not of <U5"),
        (lambda v: {"t": v["t"]}, "not a dict: average its parts one by one"),
        (lambda v: 3.0, r"shape \(4, 400, \.\.\.\), with something to average, not \(\)"),
        (lambda v: (v["t"], v["x"]), "not a tuple: average its parts one by one"),
        (lambda v: None, "of real numbers, not of object"),
        (lambda v: v["x"][..., :0], r"something to average, not \(4, 400, 0\)"),
    ],
)
def test_a_function_has_to_return_real_numbers(result, function, said):
    with pytest.raises(ValueError, match=said):
        pk.expectation(result["posterior"], function)


def test_draws_without_a_number_are_counted(result, caplog):
    n = int((result["posterior"]["x"][..., 0] < 0).sum())
    assert 0 < n < 1600
    assert np.isnan(pk.expectation(result["posterior"], lambda v: np.sqrt(v["x"][..., 0])).mean)
    said = f"The function is NaN or infinite at {n} of 1600 draws"
    [told] = [text for text in messages(caplog) if "[not_finite]" in text]
    assert told.startswith(said)
    caplog.clear()
    posterior = result["posterior"].to_dataset()
    posterior["root"] = posterior["t"].where(posterior["x"][..., 0] >= 0)
    assert np.isnan(pk.summary(posterior)["mean"]["root"])
    [told] = [text for text in messages(caplog) if "[not_finite]" in text]
    assert told.startswith(f"root is NaN or infinite at {n} of")


def test_signs_that_errors_are_too_small_are_told(step, result, caplog, monkeypatch):
    caplog.set_level(logging.WARNING)
    pk.summary(result, model=step.model)
    assert messages(caplog, logging.WARNING) == []
    spoiled = result.copy(deep=True)
    spoiled["posterior"]["x"][0, :, 1] += 5
    spoiled["surrogate_moves"]["start"][0, :, 1] += 5
    spoiled["surrogate_moves"]["accept_prob"][0] = 0.0  # nothing leads back
    spoiled["surrogate_moves"]["end_logp"][:, ::5] += 7
    spoiled["posterior"]["t"] = 1 / spoiled["posterior"]["t"]
    monkeypatch.setattr(recomputed, "agree", lambda *_: True)  # they are not what they were
    caplog.set_level(logging.INFO, "pymc_kameleon")
    for make, moved, tailed in [
        (lambda: pk.summary(spoiled), "x[v]", "t"),
        (lambda: pk.expectation(spoiled, everything), "the function[1]", "the function[2]"),
        (lambda: pk.expectation(spoiled, lambda v: v["x"][..., 1]), "the function", ""),
    ]:
        caplog.clear()
        with step.model:
            make()
        said = " ".join(messages(caplog))
        assert f"R-hat of {moved} is 1." in said
        assert "effective share of the weights 0." in said
        assert ("[long_tail]" in said) == bool(tailed)
        assert f"{tailed} has a long tail" in said or not tailed


@pytest.mark.slow
@pytest.mark.parametrize("function", [lambda v: v["t"] > 3, lambda v: v["x"] ** 2])
def test_rare_events_and_squares_have_no_long_tail(function, step, result, caplog):
    pk.expectation(result, function, step.model)
    assert messages(caplog, logging.WARNING) == []


def test_draws_that_are_farther_out_than_what_corrects_them_are_not_corrected():
    """As in a mode that a surrogate does not know, which makes the sd too small."""
    columns = ["mean", "sd", "eti89_lb", "eti89_ub"]
    plain = pd.DataFrame([[0.2, 1.0, -2, 2], [0.1, 1.0, -2, 2]], ["x", "y"], columns)
    table = pd.DataFrame([[0.0, 0.3, -1, 1], [0.0, 0.9, -2, 2]], ["x", "y"], columns)
    found = _keep_what_draws_show(table, plain)
    assert table["sd"].tolist() == [1.0, 0.9]
    assert table["mean"].tolist() == [0.2, 0.0]
    assert codes(found) == ["wider_draws"]
    assert "The averages of x are not corrected" in found[0].what
