"""What ``pk.sensitivity`` and ``pk.where_next`` tell after a run, against what is known.

    python examples/benchmarks/after_a_run.py [--seeds 8] [--cases Ishigami heat] [--table]

A run is EmulatorMetropolis with `max_evaluations` of 300, of which the functions below ask. Without
calls of their own they make none, which each row counts ("calls"). Figures of rows:

* "sobol": indices over the prior, or over a posterior. Errors are the largest and the mean one of
  all indices, first-order and total, and Shapley effects over a posterior; "held" is the share of
  90 % intervals that hold the exact one; "unknown" is the largest share of an output's variance
  that is the emulator's uncertainty, and "told" what findings say. Indices of Ishigami and of the
  g-function are known. Others are those of the true simulator, by 2^13 points for each set of
  inputs; over a posterior, that of a run of 20 000 draws.
* "linear": indices over the posterior of a random linear model, which is normal and correlated,
  against the closed form. The run has the default number of draws instead of 300 evaluations.
* "where": the best one of 50 candidates. "loss" is what it leaves of the variance, relative to the
  candidate that leaves least, less 1. What is left is known by quadrature over a grid of the
  parameters and of measurements, or by hand.
"""

import time
from functools import cache, partial
from itertools import combinations, product
from math import comb
from pathlib import Path

import numpy as np
import pymc as pm
from ablations import one_compartment
from benchmark import each, grouped, main, quiet, rounded, sample, table
from scipy.stats import norm, sobol_indices
from simulators import MODELS, temperatures

import pymc_kameleon as pk
from pymc_kameleon.analysis.sensitivity import Inputs, indices

FILE = Path(__file__).with_suffix(".json")

CALLS, PROB, N_POINTS = 300, 0.9, 2**13
"""Evaluations of a run; the probability of intervals; points of references."""

# ---- Sobol indices: models ----------------------------------------------------------------------


def counted(function):
    """Return a black box of one vector, whose `call` counts its calls."""

    def call(x):
        call.calls += 1
        return function(x[None])[0]

    call.calls = 0
    op = pk.black_box(call, ndim=1)
    op.call = call
    return op


def ishigami(x):
    """Return a function (n, 1) of three inputs."""
    one, two, three = x.T
    return (np.sin(one) + 7 * np.sin(two) ** 2 + 0.1 * three**4 * np.sin(one))[:, None]


def ishigami_indices():
    """Return first-order and total indices (Ishigami & Homma 1990)."""
    first = np.array([0.5 * (1 + 0.1 * np.pi**4 / 5) ** 2, 49 / 8, 0])
    both = 0.01 * np.pi**8 * (1 / 18 - 1 / 50) * np.array([1, 0, 1])
    whole = first.sum() + both[0]
    return first / whole, (first + both) / whole


A = np.array([0, 1, 4.5, 9, 99, 99, 99, 99])


def g_function(x):
    """Return a function (n, 1) of eight inputs, with kinks."""
    return np.prod((np.abs(4 * x - 2) + A) / (1 + A), axis=1)[:, None]


def g_indices():
    """Return first-order and total indices (Saltelli & Sobol' 1995)."""
    own = 1 / (3 * (1 + A) ** 2)
    whole = np.prod(1 + own)
    return own / (whole - 1), own * whole / (1 + own) / (whole - 1)


FUNCTIONS = {
    "Ishigami": (ishigami, -np.pi, np.pi, 3, ishigami_indices, 3.0),
    "g-function": (g_function, 0.0, 1.0, 8, g_indices, 1.0),
}
"""Functions, the ends of their inputs, how many these are, indices, and a datum."""


def of_function(name, noise):
    """Return the model of a function with a datum, and its black box."""
    function, low, high, p, _, y = FUNCTIONS[name]
    solve = counted(function)
    with pm.Model() as model:
        x = pm.Uniform("x", low, high, shape=p)
        pm.Normal("y", solve(x), noise, observed=[y])
    return model, solve


TYPICAL = np.array([0.0, -2.0, 3.0])


def concentrations(x):
    """Return concentrations (n, 10) after a dose, of three log parameters."""
    return np.array([one_compartment(own) for own in x])


def kinetics():
    """Return a model of one subject, with a datum for each concentration, and its black box."""
    rng, solve = np.random.default_rng(1), counted(concentrations)
    y = one_compartment(np.array([0.3, -1.8, 3.2])) * np.exp(0.15 * rng.normal(size=10))
    with pm.Model() as model:
        x = pm.Normal("x", TYPICAL, 1, shape=3)
        sigma = pm.HalfNormal("sigma", 0.3)
        pm.LogNormal("y", pm.math.log(solve(x)), sigma, observed=y)
    return model, solve


def heat():
    """Return the model of a random field, and its black box."""
    return MODELS["heat"].model(), MODELS["heat"].simulator


def heat_outputs(x):
    """Return temperatures (n, 60) of coefficients of the field."""
    return np.array([temperatures(own).ravel() for own in x])


SIMULATORS = {
    "kinetics": (kinetics, concentrations, [norm(own, 1) for own in TYPICAL]),
    "heat": (heat, heat_outputs, [norm()] * 25),
}
"""Models, their simulators for many inputs, and priors of inputs."""

INPUTS = {"kinetics": "x", "heat": "z"}

# ---- Sobol indices: rows ------------------------------------------------------------------------


@cache
def run_of(case, seed, noise=None):
    """Return a run, its model and its black box."""
    model, solve = of_function(case, noise) if case in FUNCTIONS else SIMULATORS[case][0]()
    return after(model, seed), model, solve


def after(model, seed, **options):
    """Return a run of a model."""
    options = options or {"max_evaluations": CALLS}
    return sample(pk.EmulatorMetropolis(model=model), random_seed=seed, **options)


def sobol(case, over, noise, n_evaluations, seed):
    """Return errors of indices after a run."""
    dt, model, solve = run_of(case, seed, noise)
    options = {"model": model, "n_evaluations": n_evaluations, "ci_prob": PROB}
    found, row = measured(solve, partial(pk.sensitivity, dt, over=over, **options), seed)
    known = known_over(case, over)
    errors, held = [], []
    for kind, values in known.items():
        low, high = np.moveaxis(found[f"{kind}_interval"].values, 2, 0)
        errors.append(np.abs(found[kind].values - values).ravel())
        held.append(((low <= values) & (values <= high)).ravel())
    errors, held = np.concatenate(errors), np.concatenate(held)
    return row | {
        "largest": rounded(errors.max()),
        "mean": rounded(errors.mean()),
        "held": rounded(held.mean()),
        "unknown": rounded(found["unknown"].values.max()),
    }


def measured(solve, ask, seed):
    """Return what is asked for, and a row of its calls, seconds, and findings."""
    before, began = solve.call.calls, time.perf_counter()
    with quiet() as told:
        found = ask(random_seed=seed)
    row = {"calls": solve.call.calls - before}
    row |= {"seconds": round(time.perf_counter() - began, 1)}
    return found, row | {"told": sorted({own.code for record in told for own in record.findings})}


def known_over(case, over):
    """Return exact indices (outputs, inputs) by their kinds."""
    if over == "posterior":
        return known_over_posterior(case)
    return dict(zip(("first_order", "total_order"), known_over_prior(case), strict=True))


@cache
def known_over_posterior(case):
    """Return indices of the true simulator over the draws of a long run."""
    build, function, _ = SIMULATORS[case]
    x = after(build()[0], seed=100, draws=5000)["posterior"][INPUTS[case]].values
    drawn = Inputs(x.reshape(-1, x.shape[2]), independent=False)
    return indices(function, drawn, np.random.default_rng(1), N_POINTS)


@cache
def known_over_prior(case):
    """Return first-order and total indices (outputs, inputs)."""
    if case in FUNCTIONS:
        return FUNCTIONS[case][4]()
    _, function, priors = SIMULATORS[case]
    found = sobol_indices(func=lambda x: function(x.T).T, n=N_POINTS, dists=priors, rng=1)
    return found.first_order, found.total_order


# ---- linear models ------------------------------------------------------------------------------


def linear(d, seed):
    """Return errors of indices over the posterior of a random linear model."""
    rng = np.random.default_rng([d, seed])
    a, b = rng.normal(size=(d, d)), rng.normal(size=(2, d))
    solve = counted(lambda x: x @ np.concatenate([a, b]).T)
    with pm.Model() as model:
        x = pm.Normal("x", shape=d)
        pm.Normal("y", solve(x)[:d], 1, observed=rng.normal(size=d))
    dt = after(model, seed, draws=1000)
    ask = partial(pk.sensitivity, dt, outputs=[d, d + 1])
    found, row = measured(solve, ask, seed)
    covariance = np.linalg.inv(np.eye(d) + a.T @ a)
    known = [linear_indices(slopes, covariance) for slopes in b]
    errors = [
        np.abs(found[kind].values - [own[kind] for own in known]).ravel() for kind in known[0]
    ]
    errors = np.concatenate(errors)
    return row | {"largest": rounded(errors.max()), "mean": rounded(errors.mean())}


def linear_indices(slopes, covariance):
    """Return indices (d,) of slopes @ x, of normal x, by their kinds."""
    d, places = len(slopes), range(len(slopes))

    @cache
    def explained(kept):
        kept = list(kept)
        inner = np.linalg.pinv(covariance[np.ix_(kept, kept)])
        towards = slopes @ covariance[:, kept]
        return towards @ inner @ towards / (slopes @ covariance @ slopes)

    def others(i, n):
        return combinations([j for j in places if j != i], n)

    def shapley(i):
        return sum(
            (explained(tuple(sorted((*own, i)))) - explained(own)) / (d * comb(d - 1, n))
            for n in places
            for own in others(i, n)
        )

    return {
        "first_order": np.array([explained((i,)) for i in places]),
        "total_order": np.array([1 - explained(next(others(i, d - 1))) for i in places]),
        "shapley": np.array([shapley(i) for i in places]),
    }


# ---- where to measure next ----------------------------------------------------------------------

TIMES = np.linspace(0.25, 24, 50)


def waves(x):
    """Return sums (n, 50) of four waves, of their sizes."""
    return x @ np.cos(np.outer(np.arange(4), TIMES * np.pi / 24) + np.arange(4)[:, None])


def curve(x):
    """Return concentrations (n, 50) after a dose, of three log parameters."""
    absorption, elimination, volume = np.exp(x.T)[..., None]
    fall = np.exp(-elimination * TIMES) - np.exp(-absorption * TIMES)
    return 100 * absorption / (volume * (absorption - elimination)) * fall


def decay(x):
    """Return what is left (n, 50) of a log amount at first, given the log of its rate."""
    amount, rate = np.exp(x.T)[..., None]
    return amount * np.exp(-rate * TIMES)


CANDIDATES = {
    "waves": (waves, [0.0] * 4, [1.0] * 4, 0.5, [5, 20]),
    "kinetics": (curve, TYPICAL, [0.5] * 3, 0.2, [3, 12, 30]),
    "decay": (decay, [0.0, -1.5], [0.5, 1.0], 0.1, [1]),
}
"""Models by what they measure, means and standard deviations of the prior, noise, and which of the
candidates were measured already."""


def where(case, seed):
    """Return the loss of the best candidate after a run."""
    function, mean, sd, noise, places = CANDIDATES[case]
    rng, solve = np.random.default_rng(seed), counted(function)
    y = function(rng.normal(mean, sd)[None])[0, places] + noise * rng.normal(size=len(places))
    with pm.Model() as model:
        x = pm.Normal("x", mean, sd, shape=len(mean))
        pm.Normal("y", solve(x)[places], noise, observed=y)
    dt = after(model, seed)
    found, row = measured(solve, partial(pk.where_next, dt, noise=noise, for_="x"), seed)
    exact = left_exactly(case, y)
    return row | {
        "best": int(found.attrs["best"]),
        "loss": rounded(exact[found.attrs["best"]] / exact.min() - 1),
        "of linear": rounded(exact[int(found["remaining_linear"].argmin())] / exact.min() - 1),
        "at random": rounded(np.mean(exact) / exact.min() - 1),
        "largest": rounded(np.abs(found["remaining"].values - exact).max()),
    }


def left_exactly(case, y):
    """Return which share of the variance of parameters each candidate leaves, their mean (50,)."""
    function, mean, sd, noise, places = CANDIDATES[case]
    if case == "waves":
        rows = waves(np.eye(4)).T
        covariance = np.linalg.inv(np.eye(4) + rows[places].T @ rows[places] / noise**2)
        gain = (rows @ covariance) ** 2
        gain /= np.sum(rows @ covariance * rows, axis=1, keepdims=True) + noise**2
        return np.mean(1 - gain / np.diag(covariance), axis=1)

    def log_density(x):
        prior = np.sum(((x - mean) / sd) ** 2, axis=1)
        return -(prior + np.sum(((function(x)[:, places] - y) / noise) ** 2, axis=1)) / 2

    x, w = on_a_grid(log_density, np.array(mean), np.array(sd))
    return np.array([left_by(f, noise, x, w) for f in function(x).T])


def on_a_grid(log_density, mean, sd, reach=6.0, depth=12.0):
    """Return points (n, d) and their probabilities: twice, the second time where these are."""
    low, high, size = mean - reach * sd, mean + reach * sd, {2: 200, 3: 60}[len(mean)]
    for _ in range(3):
        axes = [np.linspace(*ends, size) for ends in zip(low, high, strict=True)]
        x = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, len(mean))
        log_w = log_density(x)
        log_w -= log_w.max()
        x, log_w = x[log_w > -depth], log_w[log_w > -depth]
        step = (high - low) / (size - 1)
        low, high = x.min(axis=0) - step, x.max(axis=0) + step
    return x, np.exp(log_w) / np.exp(log_w).sum()


def left_by(f, noise, x, w, n=400, reach=5.0):
    """Return the mean share of the variances of x (n, d) that measuring f (n,) leaves."""
    y = np.linspace(f.min() - reach * noise, f.max() + reach * noise, n)
    x = x - w @ x
    given = np.exp(-0.5 * ((y[:, None] - f) / noise) ** 2) * w
    density = given.sum(axis=1)
    means = given @ x / np.maximum(density, 1e-300)[:, None]
    explained = density @ means**2 / density.sum()
    return np.mean(1 - explained / (w @ x**2))


# ---- all ----------------------------------------------------------------------------------------

SOBOL = [
    ("Ishigami", "prior", 30.0, 0),
    ("Ishigami", "prior", 1.0, 0),
    ("Ishigami", "prior", 1.0, 100),
    ("g-function", "prior", 30.0, 0),
    ("g-function", "prior", 0.5, 0),
    ("g-function", "prior", 0.5, 100),
    ("kinetics", "prior", None, 0),
    ("kinetics", "prior", None, 100),
    ("kinetics", "posterior", None, 0),
    ("heat", "prior", None, 0),
    ("heat", "prior", None, 100),
    ("heat", "posterior", None, 0),
]
"""Case, what inputs vary over, noise of the datum of a function, and calls over the prior."""


def plan(options):
    """Yield the runs."""
    seeds = range(options.seeds)
    for case, over, noise, n in SOBOL:
        own = {"case": [case], "over": [over], "noise": [noise], "n_evaluations": [n]}
        yield from each(sobol, figure=["sobol"], **own, seed=seeds)
    for d, seed in product((3, 5, 8), seeds):
        yield {"figure": "linear", "case": "linear", "d": d, "seed": seed}, partial(linear, d, seed)
    yield from each(where, figure=["where"], case=CANDIDATES, seed=seeds)


def tables(rows):
    """Return the tables of all figures."""
    kinds, indexed, chosen = grouped(rows, "figure"), [], []
    of_indices = kinds["sobol"] + kinds["linear"]
    for key, own in grouped(of_indices, "case", "d", "noise", "over", "n_evaluations").items():
        largest = column(own, "largest")
        errors = [np.nanmedian(largest), np.nanmax(largest), np.nanmedian(column(own, "mean"))]
        errors = [f"{error:.3f}" for error in errors]
        held = f"{100 * np.mean(column(own, 'held')):.0f} %" if "held" in own[0] else None
        indexed.append([*named(*key), *errors, held, told(own), len(own)])
    for case, own in grouped(kinds["where"], "case").items():
        losses = [100 * column(own, key) for key in ("loss", "of linear", "at random")]
        chosen.append([case, *(f"{loss.mean():.1f} ({loss.max():.1f})" for loss in losses)])
        chosen[-1].append(len(own))
    titles = ["simulator", "inputs vary over", "largest error, median", "of all runs", "mean error"]
    titles += ["held", "cautions", "runs"]
    titles_of_choice = ["case", "loss, % (largest)", "by the linear formula", "at random", "runs"]
    return {
        "sensitivity.md": {"indices": table(titles, indexed)},
        "design.md": {"choices": table(titles_of_choice, chosen)},
    }


def named(case, d, noise, over, n_evaluations):
    """Return what is emulated, and where."""
    more = ""
    if noise is not None:
        more = ", data say nothing" if noise > 1 else ", data say something"
    of_linear = f", {d} inputs" if d else ""
    calls = f", {n_evaluations} more calls" if n_evaluations else ""
    return [f"{case}{of_linear}{more}", f"{over or 'posterior'}{calls}"]


def column(rows, key):
    """Return a number of each row."""
    return np.array([row[key] for row in rows])


def told(rows):
    """Write in how many runs something was told."""
    codes = sorted({code for row in rows for code in row["told"]})
    return ", ".join(f"{code} ({sum(code in row['told'] for row in rows)})" for code in codes)


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=8)
