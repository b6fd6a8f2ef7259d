"""Problems that others wrote, with default arguments: right, told, or wrong in silence.

    pip install pints
    git clone https://github.com/sbi-benchmark/sbibm
    pip install umbridge; git clone https://github.com/UM-Bridge/benchmarks
    git clone https://github.com/lacerbi/infbench
    python examples/benchmarks/suites.py --sbibm sbibm --umbridge benchmarks --infbench infbench
        [--cases "cone 2" "SLCP 1"] [--seeds 4]

PINTS has toy densities, and toy models that solve equations. Each is called as it is, as a black
box. sbibm has tasks of simulators, with ten observations of each, and 10 000 draws from each
posterior. These are read from a checkout; the simulators and their likelihoods are written anew, as
its paper describes them. UM-Bridge's benchmarks are servers, which are started here, and called by
HTTP. infbench, of the papers on VBMC, is in Matlab: its numbers are read, and its densities written
anew. A suite that is not there is left out, with a message. The messenger RNA of Ballnus et al. is
here.

A run is `pk.sample()`, which chooses its sampler. It has no argument that matters but a seed, and
where a black box returns predictions `max_evaluations`. docs/suites.md says what is right, and what
is told.
"""

import atexit
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import (
    grouped,
    judged,
    largest_rhat,
    least_ess,
    load,
    main,
    parameters,
    quiet,
    rounded,
    spaced,
    table,
)
from numba import float64, njit
from numba.experimental import jitclass
from problems import Case
from problems import Problem as Target
from reliability import SIGNS, SILENT, outcome
from scipy import integrate, optimize, stats
from scipy.cluster.vq import kmeans2

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

EVALUATIONS = 2000
"""Of a model whose black box returns predictions, as simulators do, which mostly are expensive."""

OFF, OFF_MASS = 0.2, 0.1
"""A mean or a standard deviation is wrong if it is off by more than so many standard deviations, a
mode if its mass is off by more than this."""

HEAVY = 50
"""A kurtosis above which quantiles are looked at instead: then a thousand independent draws do not
know a standard deviation to a fifth, either."""

MOST_TIMES = 25
"""Of a simulator, at which its data are."""

N, LEAST_WORTH, LARGEST_RHAT = 100_000, 500, 1.02
"""Exact draws that are a truth; how many those of chains are worth, at least; and their R-hat."""


class Toy(NamedTuple):
    """A posterior, and what is known of it.

    `truth` takes a function that makes the model, and a random generator. It returns draws of all
    free variables (n, d), in any order, and how many they are worth, or None if all.
    """

    model: Callable  # () -> a model, and a list that gets an item at each call of its black box
    truth: Callable
    centres: list | None = None  # (m, d), a point in each mode
    budget: int | None = None  # `max_evaluations`
    metric: Callable | None = None  # the suite's own, of draws (n, d)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--sbibm", type=Path, help="a checkout of sbibm")
    parser.add_argument("--umbridge", type=Path, help="one of UM-Bridge's benchmarks")
    parser.add_argument("--infbench", type=Path, help="one of infbench")


def plan(options):
    """Yield what is to be run."""
    toys = of_pints() | of_sbibm(options.sbibm) | of_ballnus()
    toys |= of_umbridge(options.umbridge) | of_infbench(options.infbench)
    for name, toy in toys.items():
        yield {"case": name, "what": "truth"}, partial(known_of, toy)
        for seed in range(options.seeds):
            yield {"case": name, "seed": seed}, partial(run, name, toy, seed, options.json)


# ---- a run --------------------------------------------------------------------------------------


def run(name, toy, seed, file):
    """Run once, and say what is off, and what the run said."""
    [known] = [row for row in load(file) if row["case"] == name and "what" in row]
    model, calls = toy.model()
    calls.clear()
    budget = {} if toy.budget is None else {"max_evaluations": toy.budget}
    began = time.perf_counter()
    with quiet():
        dt, failed = sampled(model, seed, budget)
        evaluations, seconds = len(calls), time.perf_counter() - began
        summary = pk.summary(dt, model=model, var_names=[rv.name for rv in model.free_RVs])
    x = parameters(model, dt)
    draws = x.reshape(-1, x.shape[-1])
    off = {}
    for source, found in ("draws", moments_of(draws)), ("summary", moments_in(summary)):
        for what, errors in errors_of(found, known).items():
            off |= {f"{what} of {source}": rounded(np.abs(errors).max(), 3)} if len(errors) else {}
    if "masses" in known:
        found = shares(draws, np.array(known["centres"]))
        off["mass"] = rounded(np.abs(found - known["masses"]).max(), 3)
    of_known = summary["sd"] / np.sqrt(known["ess"])
    z = (summary["mean"] - known["mean"]) / np.hypot(summary["mcse_mean"], of_known)
    return {
        "failed": failed,
        "sampler": re.search(r"\w+", dt["posterior"].attrs["samplers"])[0],
        "evaluations": evaluations,
        "seconds": round(seconds, 1),
        "off": off,
        "z": [rounded(each, 3) for each in z],  # of means
        **judged(dt),
        "rhat": float(summary["r_hat"].max()),
        "ess": float(summary["ess_bulk"].min()),
        "metric": metric_of(toy, draws),
    }


def sampled(model, seed, budget):
    """Return the result of a run, and the error that made it start from the prior, or None."""
    options = {"model": model, "random_seed": seed, "cores": 1, "progressbar": False} | budget
    try:
        return pk.sample(**options), None
    except ValueError as error:
        if "pk.initvals" not in str(error):
            raise
        return pk.sample(**options, initvals="prior"), str(error).partition(":")[0]


def metric_of(toy, draws):
    """Return the suite's own metric, or None."""
    if toy.metric is None:
        return None
    value = float(toy.metric(draws))
    return rounded(value, 3) if np.isfinite(value) else None


def moments_of(draws):
    """Return means, standard deviations and three quantiles of draws (n, d)."""
    quantiles = np.quantile(draws, (0.05, 0.5, 0.95), axis=0).T
    return {"mean": draws.mean(axis=0), "sd": draws.std(axis=0), "quantiles": quantiles}


def moments_in(summary):
    """Return what a summary states."""
    return {"mean": summary["mean"].to_numpy(), "sd": summary["sd"].to_numpy()}


def errors_of(found, known):
    """Return the errors of locations and spreads, in standard deviations.

    Where tails are heavy these are of the median, and of the width between two quantiles, of which
    a summary says nothing.
    """
    heavy = np.array(known["kurtosis"]) > HEAVY
    mean, sd = np.array(known["mean"]), np.array(known["sd"])
    location, spread = (found["mean"] - mean) / sd, found["sd"] / sd - 1
    if "quantiles" in found:
        low, median, high = np.array(known["quantiles"]).T
        own_low, own_median, own_high = found["quantiles"].T
        normal = 2 * stats.norm.ppf(0.95)
        location = np.where(heavy, normal * (own_median - median) / (high - low), location)
        spread = np.where(heavy, (own_high - own_low) / (high - low) - 1, spread)
        return {"mean": location, "sd": spread}
    return {"mean": location[~heavy], "sd": spread[~heavy]}


def shares(draws, centres):
    """Return the share of draws that is nearest to each centre."""
    nearest = np.argmin(((draws[:, None] - centres) ** 2).sum(axis=2), axis=1)
    return np.bincount(nearest, minlength=len(centres)) / len(draws)


def known_of(toy):
    """Return what is known of a posterior."""
    rng = np.random.default_rng(1)
    draws, ess = toy.truth(lambda: toy.model()[0], rng)
    found = moments_of(draws)
    known = {"d": draws.shape[1], "ess": ess or len(draws), "exact": ess is None}
    known |= {name: rounded(value, 5) for name, value in found.items()}
    known["kurtosis"] = rounded((((draws - found["mean"]) / found["sd"]) ** 4).mean(axis=0), 3)
    if toy.centres is not None:
        known["centres"] = rounded(toy.centres, 5)
        known["masses"] = rounded(shares(draws, np.array(toy.centres)))
    if ess is None:
        known["metric"] = metric_of(toy, rng.permutation(draws)[:4000])
    return known


# ---- black boxes --------------------------------------------------------------------------------


def black_box(function, ndim):
    """Return an Op that calls a function of a vector, and a list that gets an item at each call."""
    calls = []

    def call(theta):
        calls.append(None)
        return function(theta)

    call.__name__ = call.__qualname__ = "simulator"
    return pk.black_box(call, ndim=ndim), calls


def of_density(logp, d, prior=None):
    """Return a model of a density of d numbers, all flat, or as `prior(d)` makes them."""

    def build():
        op, calls = black_box(logp, 0)
        with pm.Model() as model:
            x = pm.Flat("x", shape=d) if prior is None else prior(d)
            pm.Potential("density", op(x))
        return model, calls

    return build


def box(low, high):
    """Return a function that makes variables uniform between two corners."""
    return lambda d: pm.Uniform("x", low, high, shape=d)


# ---- PINTS --------------------------------------------------------------------------------------


def of_pints():
    """Return the problems of PINTS, by name."""
    if find_spec("pints") is None:
        print("pip install pints", file=sys.stderr)
        return {}
    return densities() | equations()


def densities():
    """Return the toy densities of PINTS, in the sizes of its examples."""
    from pints import toy

    found = {}

    def add(name, density, truth, centres=None, prior=None):
        d = density.n_parameters()
        model = of_density(density, d, prior)
        found[name] = Toy(model, truth, centres, metric=density.distance)

    add("Gaussian", toy.GaussianLogPDF([1, 2], [1, 3]), normals([[1, 2]], [np.diag([1.0, 3])]))
    twenty = toy.HighDimensionalGaussianLogPDF()
    add("20 normals", twenty, normals([np.zeros(20)], [twenty._cov]))
    for d, r0, sigma in ((2, 10, 1), (3, 20, 0.5), (10, 15, 2)):
        add(f"annulus {d}", toy.AnnulusLogPDF(d, r0, sigma), annulus(d, r0, sigma))
    for d, beta in ((2, 1.0), (4, 0.6)):
        add(f"cone {d}", toy.ConeLogPDF(d, beta), spherical(d, lambda r, b=beta: -(r**b), 200))
    for d, b in ((2, 0.01), (2, 0.1), (10, 0.01), (10, 0.1)):
        add(f"banana {d} b={b}", toy.TwistedGaussianLogPDF(d, b), banana(d, b))
    add("funnel", toy.NealsFunnelLogPDF(), funnel)
    add("Rosenbrock", toy.RosenbrockLogPDF(), rosenbrock, prior=box([-2, -1], [4, 12]))
    for name, modes, lower, upper in (
        ("two modes", [[0, 0], [10, 10]], -5, 15),
        ("three modes", [[0, 0], [5, 10], [10, 0]], -5, 15),
        ("three modes 5", np.outer([0, 5, 10], np.ones(5)), -5, 15),
    ):
        density = toy.MultimodalGaussianLogPDF([list(map(float, m)) for m in modes])
        eyes = [np.eye(len(modes[0]))] * len(modes)
        truth = normals(modes, eyes)
        add(f"{name} flat", density, truth, modes)
        add(f"{name} in a box", density, truth, modes, box(lower, upper))
    egg = toy.SimpleEggBoxLogPDF()
    truth = normals(egg._modes, egg._covs)
    add("egg box flat", egg, truth, egg._modes)
    add("egg box in a box", egg, truth, egg._modes, box(-15, 15))
    for centred in (True, False):
        name = "schools centred" if centred else "schools"
        found[name] = Toy(
            partial(schools, toy.EightSchoolsLogPDF(centred)), partial(schools_truth, centred)
        )
    return found


def schools(density):
    """Return a model of the eight schools of PINTS."""
    op, calls = black_box(density, 0)
    with pm.Model() as model:
        mu = pm.Flat("mu")
        tau = pm.HalfFlat("tau")
        theta = pm.Flat("theta", shape=8)
        pm.Potential("density", op(pt.concatenate([[mu, tau], theta])))
    return model, calls


def normals(means, covariances):
    """Return a function that draws from normals of equal weights."""

    def truth(build, rng):
        n = N // len(means)
        pairs = zip(means, covariances, strict=True)
        return np.concatenate([rng.multivariate_normal(m, c, n) for m, c in pairs]), None

    return truth


def spherical(d, log_density, far):
    """Return a function that draws from a density of the distance from 0."""

    def truth(build, rng):
        r = np.linspace(0, far, 400_001)[1:]
        log_p = (d - 1) * np.log(r) + log_density(r)
        cdf = np.cumsum(np.exp(log_p - log_p.max()))
        radii = np.interp(rng.random(N), cdf / cdf[-1], r)
        z = rng.normal(size=(N, d))
        return radii[:, None] * z / np.linalg.norm(z, axis=1)[:, None], None

    return truth


def annulus(d, r0, sigma):
    """Return a function that draws from an annulus."""
    return spherical(d, lambda r: -(((r - r0) / sigma) ** 2) / 2, r0 + 12 * sigma)


def banana(d, b, v=100.0):
    """Return a function that draws from the twisted normal, as PINTS computes it.

    Its density has the first coordinate with a standard deviation of V, not √V as its own `sample`.
    """

    def truth(build, rng):
        x = rng.normal(size=(N, d))
        x[:, 0] *= v
        x[:, 1] -= b * (x[:, 0] ** 2 - v)
        return x, None

    return truth


def funnel(build, rng):
    """Draw from the funnel: the last coordinate is the logarithm of the others' variance."""
    x = rng.normal(size=(N, 10))
    x[:, 9] *= 3
    x[:, :9] *= np.exp(x[:, 9:] / 2)
    return x, None


def rosenbrock(build, rng):
    """Draw from the density in the box for which PINTS has mean and covariance."""
    return from_grid(
        lambda x, y: 1 / (1 + (1 - x) ** 2 + 100 * (y - x**2) ** 2), (-2, -1), (4, 12), rng
    )


def from_grid(density, low, high, rng, n=(3000, 6000)):
    """Return draws (N, 2) from a density in a box: of a cell by its middle, and anywhere in it."""
    width = np.subtract(high, low) / n
    x, y = (a + (np.arange(m) + 0.5) * w for a, m, w in zip(low, n, width, strict=True))
    p = density(x[:, None], y).ravel()
    k = rng.choice(p.size, N, p=p / p.sum())
    middles = np.stack([x[k // n[1]], y[k % n[1]]], axis=1)
    return middles + width * (rng.random((N, 2)) - 0.5), None


def schools_truth(centred, model, rng):
    """Draw τ from a grid, and the others, which are normal given it."""
    y = np.array([28, 8, -3, 7, -1, 1, 18, 12.0])
    s2 = np.array([15, 10, 16, 11, 9, 11, 10, 18.0]) ** 2
    tau = np.exp(np.linspace(-12, 8, 20_001))[:, None]
    precision = 1 / 25 + np.sum(1 / (tau**2 + s2), axis=1)
    mean = np.sum(y / (tau**2 + s2), axis=1) / precision
    log_p = np.sum(stats.norm.logpdf(y, mean[:, None], np.sqrt(tau**2 + s2)), axis=1)
    log_p += stats.norm.logpdf(mean, 0, 5) - np.log(precision) / 2
    log_p += stats.halfcauchy.logpdf(tau[:, 0], 0, 5) + np.log(tau[:, 0])
    k = rng.choice(tau.size, N, p=np.exp(log_p - log_p.max()) / np.exp(log_p - log_p.max()).sum())
    tau, mu = tau[k], (mean[k] + precision[k] ** -0.5 * rng.normal(size=N))[:, None]
    own = 1 / (1 / tau**2 + 1 / s2)
    theta = own * (mu / tau**2 + y / s2) + np.sqrt(own) * rng.normal(size=(N, 8))
    return np.hstack([mu, tau, theta if centred else (theta - mu) / tau]), None


# ---- equations of PINTS -------------------------------------------------------------------------


def equations():
    """Return the toy models of PINTS, with the priors and noise of its examples if any."""
    from pints import toy

    found = {}

    def add(name, simulator, *args, n=(600, 4000), quick=None, **options):
        build = partial(solved, simulator, *args, **options)
        near = partial(solved, quick or simulator, *args, **options, begins_near=True)
        truth = partial(by_chains, near, n=n)
        found[name] = Toy(build, truth, budget=EVALUATIONS)

    p, few = np.array, (400, 2500)
    add("logistic", toy.LogisticModel(), ([0, 0], [1, 500]), 5.0)
    add("oscillator", toy.SimpleHarmonicOscillatorModel(), ([-2, -2, 0], [2, 2, 1]), 0.1)
    neuron = toy.FitzhughNagumoModel()
    quick = compiled_neuron()  # as its truth takes many evaluations
    add("FitzHugh–Nagumo", neuron, ([0] * 3, [10] * 3), 0.5, quick=quick, n=(600, 12_000))
    goodwin = ([1, 1, 0.01, 0.01, 0.01], [10, 10, 1, 1, 1])
    add(
        "Goodwin",
        toy.GoodwinOscillatorModel(),
        goodwin,
        p([0.001, 0.01, 0.1]),
        known=True,
        n=few,
    )
    ik = toy.HodgkinHuxleyIKModel()
    mid = p(ik.suggested_parameters())
    steps = ik.suggested_times()
    sides = mid / 1.5, mid * 1.5
    add("Hodgkin–Huxley", ik, sides, 40.0, times=steps[steps % 100 >= 90], n=(2000, 40_000))
    lv = toy.LotkaVolterraModel()
    pelts = np.log(lv.suggested_values())  # its equations are those of the logarithms
    add("Lotka–Volterra", lv, ([0] * 4, [2] * 4), data=pelts, wide=3.0, n=(600, 12_000))
    compiled = toy.RepressilatorModel()
    compiled._rhs = partial(njit(toy.RepressilatorModel._rhs), None)
    add(
        "repressilator",
        toy.RepressilatorModel(),
        ([0, 100, 0, 1], [10, 3000, 20, 5]),
        5.0,
        quick=compiled,
        n=(2000, 20_000),
    )
    sir = toy.SIRModel()
    add("SIR", sir, ([0, 0, 10], [0.2, 2, 100]), data=sir.suggested_values())
    constant = toy.ConstantModel(2)
    constant.suggested_parameters = lambda: [1.0, 2.0]
    constant.suggested_times = lambda: np.arange(1.0, 11)
    add("constant", constant, ([-10, -10], [10, 10]), 1.0)
    cell = toy.ActionPotentialModel()
    mid = p(cell.suggested_parameters())
    compiled = toy.ActionPotentialModel()
    compiled._rhs = compiled_membrane(compiled)
    noise = p([1, 5e-7])
    add("action potential", cell, (mid - 1, mid + 1), noise, known=True, quick=compiled, n=few)
    return found


def compiled_membrane(cell):
    """Return the equations of PINTS' action potential, with the numbers of `cell`."""
    equations = njit(type(cell)._rhs)
    numbers = {name: value for name, value in vars(cell).items() if isinstance(value, float)}

    @jitclass(dict.fromkeys(numbers, float64))
    class Fixed:
        def __init__(self):
            pass

    fixed = Fixed()
    for name, value in numbers.items():
        setattr(fixed, name, value)

    @njit
    def slopes(fixed, y, t, theta):
        return equations(fixed, (y[0], y[1], y[2], y[3], y[4], y[5], y[6], y[7]), t, theta)

    return partial(slopes, fixed)


def compiled_neuron():
    """Return FitzHugh and Nagumo's model of PINTS with compiled equations."""
    from pints import toy

    neuron = toy.FitzhughNagumoModel()
    equations = njit(type(neuron)._rhs)

    @njit
    def slopes(y, t, theta):
        return equations(None, (y[0], y[1]), t, theta)

    neuron._rhs = slopes
    return neuron


def solved(
    simulator,
    prior,
    noise=None,
    data=None,
    known=False,
    wide=None,
    begins_near=False,
    times=None,
):
    """Return a model of a simulator, with normal noise, and the list of its calls.

    Its data are simulated at the parameters that PINTS suggests, if there are none, at each k-th of
    its times. Noise that is not known has a half-normal prior of scale `wide`, by default ten times
    the spread of the data. The initial point is there only if it is to begin near.
    """
    times = simulator.suggested_times() if times is None else times
    times = times[:: -(-len(times) // MOST_TIMES)]
    at = np.array(simulator.suggested_parameters(), dtype=float)
    if data is None:
        data = simulator.simulate(at, times)
        data = data + noise * np.random.default_rng(1).normal(size=data.shape)

    def simulate(theta):
        with np.errstate(all="ignore"):
            return simulator.simulate(theta, times)

    op, calls = black_box(simulate, data.ndim)
    with pm.Model() as model:
        theta = pm.Uniform("theta", *prior, shape=len(at), initval=at if begins_near else None)
        if known:
            sigma = noise
        else:
            wide = 10 * np.std(data, axis=0) if wide is None else wide
            sigma = pm.HalfNormal("sigma", wide, shape=data.shape[1:])
        pm.Normal("y", op(theta), sigma, observed=data)
    return model, calls


def by_chains(near, build, rng, n=(600, 4000), rounds=6):
    """Draw by four Metropolis chains, which are none of ours.

    Importance sampling from Student's t's learns where to draw, as it begins at the best of some
    optima, and with weights to a power that leaves it a tenth of the draws. Alone it may miss a
    tail. So half of the chains' proposals are its t's, and half are steps of a walk. Both are
    fitted anew after a first part. `near` makes the model with another initial point.
    """
    target = Target("", Case(lambda: near()[0]))
    found = [climbed(target, x) for x in (target.centre, *target.starts(2, 1))]
    best = min(found, key=lambda end: end.fun)
    parts = [(best.x, 0.01 * np.eye(target.d))]
    for _ in range(rounds):
        ts = t_distributions(parts, rng)
        x = np.concatenate([np.atleast_2d(t.rvs(-(-n[0] // len(ts)))) for t in ts])
        log_w = np.array([safely(target, row) for row in x]) - log_density_of(ts, x)
        power = 1.0
        while worth(power * log_w) < 0.1 * n[0]:
            power *= 0.9
        x = rng.choice(x, n[0], p=normed(power * log_w))
        parts = fitted(x)
    starts = rng.choice(x, 4)
    for length in (n[1] // 4, n[1]):
        ts, root = t_distributions(parts, rng), np.linalg.cholesky(parts[0][1])
        x = np.array([chain(target, start, ts, root, length, rng) for start in starts])
        starts, x = x[:, -1], x[:, length // 5 :].reshape(-1, target.d)
        parts = fitted(x)
    natural = [target._natural(target.unraveled(row)) for row in x]
    draws = np.array([np.concatenate([np.ravel(v) for v in values]) for values in natural])
    columns = draws.T.reshape(target.d, 4, -1).transpose(1, 2, 0)
    ess, rhat = least_ess(columns), largest_rhat(columns)
    print("worth", round(ess), "R-hat", rhat, "optima", *(round(-end.fun, 1) for end in found))
    assert ess > LEAST_WORTH
    assert rhat < LARGEST_RHAT
    return draws, round(ess)


def chain(target, x, ts, root, n, rng):
    """Return the places (n, d) of a Metropolis chain."""
    places, logp, d = [], safely(target, x), len(x)
    for _ in range(n):
        if rng.random() < 0.5:
            y = ts[rng.integers(len(ts))].rvs()
            log_back = log_density_of(ts, x[None])[0] - log_density_of(ts, y[None])[0]
        else:
            scale = 2.4 / np.sqrt(d) * 3.0 ** rng.uniform(-1, 1)
            y, log_back = x + scale * root @ rng.normal(size=d), 0.0
        logp_y = safely(target, y)
        if -rng.exponential() < logp_y - logp + log_back:
            x, logp = y, logp_y
        places.append(x)
    return places


def climbed(target, x):
    """Return an optimum near x."""
    return optimize.minimize(
        lambda x: min(-safely(target, x), 1e30),
        x,
        method="Nelder-Mead",
        options={"maxfev": 200 * len(x), "adaptive": True},
    )


def safely(target, x):
    """Return the log-density, or -inf where the simulator fails."""
    with np.errstate(all="ignore"):
        value = target.logp(x)
    return value if np.isfinite(value) else -np.inf


def t_distributions(parts, rng):
    """Return t's by their means and covariances."""
    return [stats.multivariate_t(mean, cov, df=5, seed=rng) for mean, cov in parts]


def log_density_of(ts, x):
    """Return the log-density of a mixture of t's at x (n, d), but for a constant."""
    return np.logaddexp.reduce([np.atleast_1d(t.logpdf(x)) for t in ts], axis=0)


def normed(log_w):
    """Return weights whose sum is one."""
    w = np.exp(log_w - log_w.max())
    return w / w.sum()


def worth(log_w):
    """Return how many draws of equal weights these are worth."""
    return 1 / np.sum(normed(log_w) ** 2)


def fitted(x, m=2):
    """Return means and covariances of draws (n, d), and of so many groups of them."""
    mean, cov = x.mean(axis=0), np.cov(x.T)
    white = np.linalg.solve(np.linalg.cholesky(cov), (x - mean).T).T
    _, group = kmeans2(white, m, seed=1, minit="++")
    own = [x[group == k] for k in range(m)]
    return [(mean, cov), *((y.mean(axis=0), 0.7 * np.cov(y.T) + 0.3 * cov) for y in own)]


# ---- sbibm --------------------------------------------------------------------------------------

OBSERVATIONS = 2
"""Of the ten of each task."""


def of_sbibm(path):
    """Return the tasks of sbibm, by name."""
    if path is None or not (path / "sbibm" / "tasks").exists():
        print("git clone https://github.com/sbi-benchmark/sbibm; --sbibm sbibm", file=sys.stderr)
        return {}
    found = {}
    for folder, (name, build, modes, budget) in TASKS.items():
        for n in range(1, OBSERVATIONS + 1):
            files = path / "sbibm" / "tasks" / folder / "files"
            own = files / f"num_observation_{n}"
            draws = np.loadtxt(
                own / "reference_posterior_samples.csv.bz2", delimiter=",", skiprows=1
            )
            found[f"{name} {n}"] = Toy(
                partial(build, partial(numbers, own), files),
                partial(stored, draws),
                None if modes is None else modes(draws),
                budget,
                partial(kolmogorov, draws),
            )
    return found


def numbers(folder, name="observation"):
    """Return the numbers of a file of a task."""
    return np.loadtxt(folder / f"{name}.csv", delimiter=",", skiprows=1)


def stored(draws, build, rng):
    """Return the draws of sbibm."""
    return draws, None


def kolmogorov(reference, draws):
    """Return the largest difference of a marginal's distribution function from that of sbibm."""
    pairs = zip(reference.T, draws.T, strict=True)
    return max(stats.ks_2samp(known, own).statistic for known, own in pairs)


def two_moons(read, files):
    """Make the model of a crescent that is seen from two sides: a density."""
    x = read()

    def logp(theta):
        p = x + np.array([abs(theta.sum()), theta[0] - theta[1]]) / np.sqrt(2)
        u, v = p[0] - 0.25, p[1]
        r = np.hypot(u, v)
        return -np.inf if u < 0 else -0.5 * ((r - 0.1) / 0.01) ** 2 - np.log(r)

    return of_density(logp, 2, box(-1, 1))()


def slcp(read, files):
    """Make that of a normal whose mean and covariance are five parameters: a density."""
    y = read().reshape(4, 2)

    def logp(theta):
        s1, s2, rho = theta[2] ** 2, theta[3] ** 2, np.tanh(theta[4])
        a, b, c = s1**2 + 1e-6, s2**2 + 1e-6, rho * s1 * s2
        det = a * b - c**2
        u, v = (y - theta[:2]).T
        return -2 * np.log(det) - np.sum(b * u**2 - 2 * c * u * v + a * v**2) / (2 * det)

    return of_density(logp, 5, box(-3, 3))()


def mixture(read, files):
    """Make that of a point from one of two normals, of widths 1 and 0.1: a density."""
    x = read()

    def logp(theta):
        z2 = np.sum((x - theta) ** 2)
        return np.logaddexp(-z2 / 2, -z2 / 0.02 + 2 * np.log(10))

    return of_density(logp, 2, box(-10, 10))()


def linear(prior, read, files):
    """Make that of ten means, of a point each."""
    op, calls = black_box(np.copy, 1)
    with pm.Model() as model:
        theta = prior()
        pm.Normal("y", op(theta), np.sqrt(0.1), observed=read())
    return model, calls


def glm(read, files):
    """Make that of spikes that follow a filter of what was seen."""
    last = (files / "design_matrix.pt").read_bytes()[-4000:]  # before that PyTorch tells what it is
    design = np.frombuffer(last, dtype="<f4").astype(float).reshape(100, 10)
    m = 9
    d = np.eye(m) - np.eye(m, k=-1)
    f = d @ d + np.diag(np.sqrt(np.arange(m) / m))
    precision = np.zeros((10, 10))
    precision[0, 0], precision[1:, 1:] = 0.5, f.T @ f
    op, calls = black_box(lambda theta: design @ theta, 1)
    with pm.Model() as model:
        theta = pm.MvNormal("theta", np.zeros(10), tau=precision)
        pm.Bernoulli("y", logit_p=op(theta), observed=read("observation_raw"))
    return model, calls


def sir(read, files):
    """Make that of an epidemic of a million, of whom 1000 are tested every 17 days."""

    def change(state, t, b, g):
        s, i = state
        return [-b * s * i, b * s * i - g * i]

    def solve(theta):
        return integrate.odeint(change, [1 - 1e-6, 1e-6], 17.0 * np.arange(10), tuple(theta))[:, 1]

    op, calls = black_box(solve, 1)
    with pm.Model() as model:
        theta = pm.LogNormal("theta", np.log([0.4, 0.125]), [0.5, 0.2], shape=2)
        pm.Binomial("y", 1000, pt.clip(op(theta), 0, 1), observed=read().astype(int))
    return model, calls


def lotka_volterra(read, files):
    """Make that of prey and predators at ten times."""

    def change(state, t, a, b, c, d):
        x, y = state
        return [a * x - b * x * y, -c * y + d * x * y]

    def solve(theta):
        u = integrate.odeint(change, [30, 1], 2.1 * np.arange(10), tuple(theta))
        return np.log(np.clip(u.T, 1e-10, 10_000))

    op, calls = black_box(solve, 2)
    with pm.Model() as model:
        theta = pm.LogNormal("theta", [-0.125, -3, -0.125, -3], 0.5, shape=4)
        pm.LogNormal("y", op(theta), 0.1, observed=read().reshape(2, 10))
    return model, calls


def moons(draws):
    """Return the middles of the two crescents."""
    side = draws.sum(axis=1) > 0
    return [draws[side].mean(axis=0), draws[~side].mean(axis=0)]


def signs(draws):
    """Return a point for each sign of the third and the fourth parameter."""
    size, at = np.abs(draws[:, 2:4]).mean(axis=0), draws.mean(axis=0)
    return [[*at[:2], a * size[0], b * size[1], at[4]] for a in (-1, 1) for b in (-1, 1)]


TASKS = {
    "two_moons": ("two moons", two_moons, moons, None),
    "slcp": ("SLCP", slcp, signs, None),
    "gaussian_linear": (
        "linear",
        partial(linear, lambda: pm.Normal("theta", 0, np.sqrt(0.1), shape=10)),
        None,
        EVALUATIONS,
    ),
    "gaussian_linear_uniform": (
        "linear uniform",
        partial(linear, lambda: pm.Uniform("theta", -1, 1, shape=10)),
        None,
        EVALUATIONS,
    ),
    "gaussian_mixture": ("mixture", mixture, None, None),
    "bernoulli_glm": ("Bernoulli GLM", glm, None, EVALUATIONS),
    "sir": ("SIR of sbibm", sir, None, EVALUATIONS),
    "lotka_volterra": ("Lotka–Volterra of sbibm", lotka_volterra, None, EVALUATIONS),
}
"""Folder -> name, model, modes, and `max_evaluations`."""


# ---- messenger RNA ------------------------------------------------------------------------------

FLUORESCENCE = [0.0] * 11 + [
    1.8309, 3.3559, 4.6091, 5.4235, 5.9757, 6.6298, 7.008, 7.828, 7.5852, 7.9247, 7.8363, 8.0107,
    7.7077, 7.5316, 7.4208, 7.5734, 7.3197, 7.1489, 7.1987, 6.8493, 6.6425, 6.6268, 6.1223, 6.1078,
    5.9242, 5.6034, 5.4618, 5.1281, 4.9489, 4.893, 4.7747, 4.775, 4.3095, 4.2211, 4.0416, 3.7485,
    3.7164, 3.4799, 3.5286, 3.2785,
]  # fmt: skip
"""Of a cell, each 0.2 hours: Leonhardt et al., Nanomedicine 10 (2014), as in PESTO's examples
(github.com/ICB-DCM/PESTO, BSD license)."""


def of_ballnus():
    """Return the messenger RNA of Ballnus et al., BMC Systems Biology 11 (2017)."""
    centres = [[0.3, 0.8, -1, 0, -1], [0.3, 0.8, 0, -1, -1]]
    near = partial(transfection, begins_near=True)
    return {"messenger RNA": Toy(transfection, partial(mirrored, near), centres, EVALUATIONS)}


def transfection(begins_near=False):
    """Return the model of a protein that a messenger makes, while both decay, and its calls."""
    times = 0.2 * np.arange(51)

    def simulate(theta):
        begin, rate, one, other = 10.0**theta
        s, difference = np.maximum(times - begin, 0), other - one
        made = s if difference == 0 else -np.expm1(-difference * s) / difference
        return rate * np.exp(-one * s) * made

    op, calls = black_box(simulate, 1)
    with pm.Model() as model:
        at = np.array([0.3, 0.8, -1, -0.1]) if begins_near else None
        theta = pm.Uniform("theta", [-2, -5, -5, -5], [1, 5, 5, 5], shape=4, initval=at)
        log_sigma = pm.Uniform("log_sigma", -2, 2)
        pm.Normal("y", op(theta), 10**log_sigma, observed=FLUORESCENCE)
    return model, calls


def mirrored(near, build, rng):
    """Draw one of the two modes, which differ by which of the decays is the faster one."""
    draws, ess = by_chains(near, build, rng)
    swaps = rng.random(len(draws)) < 0.5
    draws[swaps] = draws[swaps][:, [0, 1, 3, 2, 4]]
    return draws, ess


# ---- UM-Bridge ----------------------------------------------------------------------------------


def of_umbridge(path):
    """Return the benchmarks of UM-Bridge that need nothing but Python, by name: densities."""
    if path is None or find_spec("umbridge") is None:
        print("pip install umbridge; --umbridge, a checkout of its benchmarks", file=sys.stderr)
        return {}
    found = {}
    for name, truth, prior in (
        ("banana", served_banana, None),
        ("donut", spherical(2, lambda r: -((r - 2.6) ** 2) / 0.033, 6), None),
        ("funnel", served_funnel, None),
        ("gaussian-mixture", served_mixture, box(-6, 6)),  # where it underflows it is 1
    ):
        logp = partial(served, path / "benchmarks" / f"analytic-{name}" / "server.py")
        found[f"{name} over HTTP"] = Toy(of_density(logp, 2, prior), truth)
    return found


SERVERS = {}
"""The one that runs: all have the same port."""


def served(script, theta):
    """Return what a server says."""
    import umbridge

    if script not in SERVERS:
        stop_servers()
        process = subprocess.Popen([sys.executable, script], stdout=subprocess.DEVNULL)
        SERVERS[script] = process, None
        atexit.register(stop_servers)
    process, model = SERVERS[script]
    while model is None:
        assert process.poll() is None, "the server has ended"
        try:
            model = umbridge.HTTPModel("http://localhost:4243", "posterior")
        except OSError:
            time.sleep(0.1)
    SERVERS[script] = process, model
    return model([theta.tolist()])[0][0]


def stop_servers():
    """End the server that runs."""
    while SERVERS:
        _, (process, _) = SERVERS.popitem()
        process.terminate()
        process.wait()


def served_funnel(build, rng):
    """Draw from UM-Bridge's funnel, whose first coordinate is the logarithm of a variance."""
    x = 3 * rng.normal(size=N)
    return np.stack([x, np.exp(x / 2) * rng.normal(size=N)], axis=1), None


def served_banana(build, rng):
    """Draw from UM-Bridge's banana."""
    y = rng.multivariate_normal([0, 4], [[1, 0.5], [0.5, 1]], N)
    x = 2 * y[:, 0]
    return np.stack([x, (y[:, 1] - 0.4 * (x**2 + 4)) / 2], axis=1), None


def served_mixture(build, rng):
    """Draw from UM-Bridge's three normals."""
    covariances = [0.8 * np.eye(2), 0.8 * np.eye(2), 0.5 * np.eye(2)]
    return normals([[-1.5, -1.5], [1.5, 1.5], [-2, 2]], covariances)(build, rng)


# ---- infbench -----------------------------------------------------------------------------------

IN_MATLAB = 4
"""Dimension of those that are read: each has numbers for 2 to 20."""


def of_infbench(path):
    """Return the densities of the papers on VBMC, by name."""
    found = {"constrained bananas": Toy(of_density(bananas, 4, box(0, 10)), bananas_truth)}
    if path is None:
        print("git clone https://github.com/lacerbi/infbench; --infbench infbench", file=sys.stderr)
        return found
    d = IN_MATLAB
    [rotation] = matlab(path, "cigar", "R")
    cov = rotation.T @ np.diag([*np.ones(d - 1), 100.0**2]) @ rotation
    cigar = stats.multivariate_normal(np.linspace(-1, 1, d), cov)
    found["cigar"] = Toy(of_density(cigar.logpdf, d), lambda build, rng: (cigar.rvs(N, rng), None))
    [mu], [sigma] = matlab(path, "studentt", "Mu"), matlab(path, "studentt", "Sigma")
    tails = stats.t(2 + np.arange(1, d + 1) / 2, mu[0], sigma[0])
    found["Student's t"] = Toy(
        of_density(lambda x: tails.logpdf(x).sum(), d),
        lambda build, rng: (tails.rvs((N, d), rng), None),
    )
    [w], [mu] = matlab(path, "lumpy", "w"), matlab(path, "lumpy", "Mu")
    lumps = [
        stats.multivariate_normal(*pair)
        for pair in zip(mu, matlab(path, "lumpy", "Sigma"), strict=True)
    ]

    def lumpy(x):
        return np.logaddexp.reduce(
            [np.log(a) + lump.logpdf(x) for a, lump in zip(w[:, 0], lumps, strict=True)]
        )

    def truth(build, rng):
        n = rng.multinomial(N, w[:, 0] / w.sum())
        return np.concatenate(
            [lump.rvs(k, rng).reshape(k, d) for k, lump in zip(n, lumps, strict=True)]
        ), None

    found["lumpy"] = Toy(of_density(lumpy, d), truth)
    return found


def matlab(path, problem, name):
    """Return all matrices of a name, in the part of a problem that has so many dimensions."""
    text = (path / "matlab" / "problems" / f"infbench_{problem}.m").read_text()
    part = text.partition(f"case {IN_MATLAB}\n")[2].partition("case ")[0]
    found = re.findall(rf"\b{name}(?:\(\d+,:,:\))? = \[(.*?)\];", part)
    return [np.array([row.split() for row in rows.split(";")], float) for rows in found]


def bananas(x):
    """Return the log-density of two of Rosenbrock's functions, by normals of sd 3."""
    a, b = x[::2], x[1::2]
    return -np.sum((a**2 - b) ** 2 + (a - 1) ** 2 / 100) - np.sum(x**2) / 18


def bananas_truth(build, rng):
    """Draw both pairs from a grid in the box."""

    def density(a, b):
        return np.exp(-((a**2 - b) ** 2) - (a - 1) ** 2 / 100 - (a**2 + b**2) / 18)

    pairs = [from_grid(density, (0, 0), (10, 10), rng)[0] for _ in range(2)]
    return np.hstack(pairs), None


# ---- the page -----------------------------------------------------------------------------------


def verdict(row, known):
    """Return what a run was, a key of SIGNS: the error of what is known counts, too."""
    own = 2 * known["ess"] ** -0.5
    is_right = all(
        off <= (OFF_MASS if what == "mass" else OFF) + own for what, off in row["off"].items()
    )
    return outcome({"right": is_right, "told": row["told"]})


def suite_of(name):
    """Return which suite a problem is of."""
    if name.rpartition(" ")[0] in {task[0] for task in TASKS.values()}:
        return "sbibm"
    if name.endswith("over HTTP"):
        return "UM-Bridge"
    if name in ("constrained bananas", "cigar", "Student's t", "lumpy"):
        return "infbench"
    return "Ballnus et al." if name == "messenger RNA" else "PINTS"


def tables(rows):
    """Return the tables of the page."""
    of_case = grouped(rows, "case")
    known = {name: row for name, own in of_case.items() for row in own if "what" in row}
    runs = {name: [row for row in of_case[name] if "seed" in row] for name in known}
    found = {name: [verdict(row, known[name]) for row in own] for name, own in runs.items()}
    summary, problems = [], []
    for suite in dict.fromkeys(map(suite_of, found)):
        own = [verdicts for name, verdicts in found.items() if suite_of(name) == suite]
        count = Counter(what for verdicts in own for what in verdicts)
        summary.append([suite, len(own), sum(count.values()), *(count[what] for what in SIGNS)])
    summary.append(["all", *np.sum([row[1:] for row in summary], axis=0).tolist()])
    for name, own in runs.items():
        masses = [row["off"]["mass"] for row in own if "mass" in row["off"]]
        metrics = [row["metric"] for row in own if row["metric"] is not None]
        exact = known[name].get("metric")
        problems.append(
            [
                f"{name}, from the prior" if own[0]["failed"] else name,
                known[name]["d"],
                own[0]["sampler"].removesuffix("Metropolis"),
                spaced(round(np.median([row["evaluations"] for row in own]))),
                " ".join(SIGNS[what] for what in found[name]),
                f"{max(worst_moment(row) for row in own):.2f}",
                f"{max(masses):.2f}" if masses else None,
                f"{np.median(metrics):.2g}" if metrics else None,
                None if exact is None else f"{exact:.2g}",
            ]
        )
    silent = [
        [name, row["seed"], f"{worst_moment(row):.2f}", row["off"].get("mass"), row["rhat"]]
        for name, own in runs.items()
        for row, what in zip(own, found[name], strict=True)
        if what == SILENT
    ]
    titles = ["problem", "seed", "moment off, in sd", "mass off", "R-hat"]
    return {
        "suites.md": {
            "summary": table(["suite", "problems", "runs", *SIGNS], summary),
            "problems": table(TITLES, problems),
            "silent": table(titles, silent) if silent else ["None."],
        }
    }


TITLES = ("problem", "d", "sampler", "evaluations", "runs", "worst", "mass", "metric", "exact")


def worst_moment(row):
    """Return by how much the worst mean or standard deviation was off."""
    return max(off for what, off in row["off"].items() if what != "mass")


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4, add_options=add_options)
