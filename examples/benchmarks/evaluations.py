"""Effective draws at equal numbers of evaluations of the log-density, in all.

    python examples/benchmarks/evaluations.py [--jobs 2]    what the pages show; some hours
    python examples/benchmarks/evaluations.py --cases AR5,GARCH --samplers GAM,KAM
        --budgets 2000,10000 [--seeds 20]    the same of anything
    python examples/benchmarks/evaluations.py --picture     error by evaluations

What was run is in evaluations.json, or in --json FILE, and is not run again.

A run has 4 chains from dispersed starts. Its evaluations are those of all chains together; tuning
and the way from the starts to the posterior are among them, and draws beyond the budget are cut
off. With few, ``max_evaluations`` divides them. Its estimates are the means of every x_k and x_k²,
on the unconstrained scale, over all draws after tuning. A quantity's effective draws are 1 / mean
over the seeds of the squared error, in units of the posterior standard deviation: as many
independent draws would have that error. The table has the worst quantity and the median one.
Twenty seeds know each to some 30 %.
Rows "corrected" are the estimates of ``pk.expectation`` from the same draws, and rows "surrogates"
those of ``surrogate_draws``, where there are few evaluations; z is the root mean square of
error / standard error, over seeds and quantities.

The errors are those against a long run, which is made once and kept in the cache. It is marked
where it is not long enough, as then there are more effective draws than the table says. (In
evaluations.json, those of SurrogateMetropolis on regressions, schools and transforms are against
300 000 exact draws or more, and on the mixture, the hidden Markov model, and hares and lynxes
against weighted ones.)

In the funnel only the worst quantity means something: a chain that is stuck in the neck has the
right mean of most coordinates, which is 0.
"""

import argparse
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from functools import cached_property, partial
from hashlib import sha256
from importlib.util import find_spec
from itertools import chain, product
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pictures
import pymc as pm
import pytensor
import pytensor.tensor as pt
from dispersed import evaluations, quiet
from others import CHAINS, PACKAGES, SAMPLERS
from pages import DOCS, load, save, spaced, when_and_where, write
from posteriors import POSTERIORS, recursion

import pymc_kameleon as pk

sys.path.insert(0, str(Path(__file__).parents[1]))
import quickstart

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))
from kam_targets import Banana

FILE = Path(__file__).with_suffix(".json")
PICTURE = DOCS / "images" / "error_by_evaluations.png"

SHARE = 0.4
"""Of a chain's evaluations, the share that it tunes; its way to the posterior comes on top."""

OPTIONS = {
    "SurrogateMetropolis": {"expensive": True},
    "GAM": {"control_variates": True},
    "GadMALA": {"control_variates": True},
}
"""Here evaluations count, not seconds; and averages are corrected where that is possible."""

WAY, LEAST_TUNING = 10, 30
"""Evaluations times d of the way to the posterior, about, which SurrogateMetropolis makes in full
whatever is left for tuning; and draws of tuning at least."""

FEW, SURROGATE_DRAWS = 30, 4000
"""Evaluations of a chain, times d, below which chains share one way, and the run divides them by
itself; and draws of surrogates then, that have learned from all others."""

CORRECTED = {"surrogate_moves", "control_variates"}
"""Groups of a result by which averages are corrected."""

LONG = 100_000
"""Draws of each chain of a reference."""
ENOUGH = 5
"""A reference is worth so many times the effective draws that it measures, or marked."""


def main():
    """Run what is asked for and not in the file yet, and write the pages."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samplers", help="instead of those of the pages")
    parser.add_argument("--cases", help=f"some of {','.join(CASES)}")
    parser.add_argument("--budgets", help="evaluations in all")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each")
    parser.add_argument("--share", type=float, default=SHARE, help="of evaluations for tuning")
    parser.add_argument("--jobs", type=int, default=1, help="cases at a time")
    parser.add_argument("--json", type=Path, default=FILE, help="file for the results")
    parser.add_argument("--cache", type=Path, help="directory of the references")
    parser.add_argument("--picture", action="store_true", help="draw it instead")
    options = parser.parse_args()
    if options.picture:
        draw(load(options.json))
    else:
        run_all(options)
        if options.json == FILE:
            write(tables(load(FILE)))


def wanted(options):
    """Return what is asked for, as (case, sampler, evaluations): by default what the pages show."""
    cases, samplers, budgets = (
        given.split(",") if given else None
        for given in (options.cases, options.samplers, options.budgets)
    )
    if cases and samplers and budgets:
        return list(product(cases, installed(samplers), map(int, budgets)))
    shown = (
        (case, sampler, budget)
        for sampler, budgets_of, cases_of in SHOWN
        if (not samplers or sampler in samplers) and installed([sampler])
        for case, budget in product(cases_of, budgets_of)
        if (not cases or case in cases) and (not budgets or budget in map(int, budgets))
    )
    return list(dict.fromkeys(shown))  # some are shown on two pages


def installed(samplers):
    """Return the samplers without those whose package is not here, of which it tells."""
    missing = [s for s in samplers if s in PACKAGES and find_spec(PACKAGES[s]) is None]
    if missing:
        print(f"not installed: {', '.join(missing)}", file=sys.stderr)
    return [sampler for sampler in samplers if sampler not in missing]


# ---- effective draws ----------------------------------------------------------------------------


def run_all(options):
    """Run what is wanted, print effective draws, and add them to the file, a case at a time."""
    rows = load(options.json)
    done = {(row["case"], row["of"], row["evaluations"]) for row in rows}
    todo = {}
    for case, *rest in wanted(options):
        if (case, *rest) not in done:
            todo.setdefault(case, []).append(rest)
    directory = options.cache or Path(tempfile.gettempdir()) / "kameleon-references"
    task = partial(measured, options.seeds, options.share, directory)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        each = map if options.jobs == 1 else pool.map
        for new in each(task, todo, todo.values()):
            rows += new
            save(options.json, rows)


def measured(seeds, share, directory, name, asked):
    """Return the rows of a case: of samplers and budgets, what their runs are worth."""
    warnings.simplefilter("ignore")
    problem = Problem(name)
    known, rows = known_moments(problem, directory), []
    made = {sampler: SAMPLERS.get(sampler, ours)(sampler, problem) for sampler, _ in asked}
    for sampler, budget in asked:
        run = made[sampler]
        began = time.perf_counter()
        runs = [found(run(budget // CHAINS, share, seed)) for seed in range(seeds)]
        seconds = round((time.perf_counter() - began) / seeds, 2)
        for kind in dict.fromkeys(kind for estimates in runs for kind in estimates):
            row = {"case": name, "d": problem.d, "sampler": kind or sampler, "of": sampler}
            row |= {"evaluations": budget, "runs": seeds, "seconds": seconds}
            row |= known.worth([estimates.get(kind, estimates[""]) for estimates in runs])
            print(row, flush=True)
            rows.append(row | when_and_where())
    return rows


class Estimates(NamedTuple):
    """Estimates of the moments, and their standard errors, each (2d,)."""

    mean: np.ndarray
    mcse: np.ndarray


def found(run):
    """Return Estimates by kind, of what a run has returned: these, or draws (chains, n, d).

    A run that has no draws after tuning is infinitely wrong.
    """
    if isinstance(run, dict):
        return run
    mean = both(run).mean(axis=(0, 1)) if run.shape[1] > 0 else np.full(2 * run.shape[2], np.inf)
    return {"": Estimates(mean, np.full(mean.size, np.nan))}


class Moments(NamedTuple):
    """What is known of the x_k and x_k², in this order: each array is (2d,).

    `ess` says how well: as well as by so many independent draws.
    """

    mean: np.ndarray
    sd: np.ndarray
    ess: np.ndarray

    def worth(self, runs):
        """Return effective draws of the worst and the median quantity, of runs' Estimates."""
        errors = np.array([(one.mean - self.mean) / self.sd for one in runs])
        mcse = np.array([np.hypot(one.mcse / self.sd, self.ess**-0.5) for one in runs])
        effective, z = 1 / np.mean(errors**2, axis=0), np.sqrt(np.mean((errors / mcse) ** 2))
        shown = np.argsort(effective)[[0, self.mean.size // 2]]
        return {
            "worst": round(float(effective.min()), 1),
            "median": round(float(np.median(effective)), 1),
            "worst_quantity": int(shown[0]),
            "z": None if np.isnan(z) else round(float(z), 2),
            "too_short": bool(np.any(self.ess[shown] < ENOUGH * effective[shown])),
        }


def both(x):
    """Return x (..., d) and its squares, (..., 2d)."""
    return np.concatenate([x, x**2], axis=-1)


# ---- what is known ------------------------------------------------------------------------------


def known_moments(problem, directory):
    """Return the moments of a case, from the cache if it has them.

    Its files are named after values of the log-density, so that none outlives its model, and cases
    that differ in their starts share one.
    """
    values = [problem.logp(x) for x in problem.starts(3, seed=0, jitter=0.1)]
    digest = sha256(" ".join(f"{value:.6g}" for value in values).encode()).hexdigest()[:16]
    path = directory / f"{digest}.npz"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        np.savez(path, **problem.case.known(problem)._asdict())
    return Moments(**np.load(path))


def from_draws(x):
    """Return the moments of draws (chains, n, d)."""
    sampled = both(x)
    ess = az.ess(az.convert_to_datatree({"x": sampled}), method="mean")["x"].values
    return Moments(sampled.mean(axis=(0, 1)), sampled.std(axis=(0, 1)), ess)


def long_run(problem, draws=LONG):
    """Return draws (chains, n, d) from starts near the initial point.

    They are those of a random walk, which moves in tails and funnels where gradients mislead.
    """
    step = pk.GAM(model=problem.model, steps_per_draw=20)
    with quiet() as told:
        dt = pk.sample(
            draws,
            tune=5000,
            step=step,
            model=problem.model,
            chains=CHAINS,
            initvals=problem.initvals(seed=1, jitter=0.1),
            random_seed=1,
            progressbar=False,
            idata_kwargs={"include_transformed": True},
        )
    for record in told:
        print(f"reference of {problem.name}: {record.getMessage()}", file=sys.stderr)
    return problem.coordinates(dt["posterior"])


# ---- a case, as all samplers see it -------------------------------------------------------------


class Case(NamedTuple):
    """How a model is built, how its moments are known, and how far its starts are dispersed."""

    build: Callable
    known: Callable = lambda problem: from_draws(long_run(problem))
    jitter: float = 1.0


class Problem:
    """The model of a case, whose value variables, raveled in its order, are x (d,)."""

    def __init__(self, name, case=None):
        self.name, self.case = name, CASES[name] if case is None else case
        self.model = self.case.build()
        self.initial = self.model.initial_point()
        self.centre = np.concatenate([value.ravel() for value in self.initial.values()])
        self.d = self.centre.size

    def graph(self):
        """Return x and the log-density as symbols."""
        by_name = {value.name: value for value in self.model.value_vars}
        values = [by_name[name] for name in self.initial]
        [logp], x = pm.pytensorf.join_nonshared_inputs(self.initial, [self.model.logp()], values)
        return x, logp

    @cached_property
    def _logp(self):
        x, logp = self.graph()
        function = pm.pytensorf.compile([x], logp)
        function.trust_input = True  # checks of the argument take as long as a cheap log-density
        return function

    def logp(self, x):
        """Return the log-density at x, -inf for NaN."""
        value = float(self._logp(x))
        return value if value < np.inf else -np.inf

    def unraveled(self, x):
        """Return values by name."""
        ends = np.cumsum([value.size for value in self.initial.values()])[:-1]
        pairs = zip(self.initial.items(), np.split(x, ends), strict=True)
        return {name: part.reshape(value.shape) for (name, value), part in pairs}

    def coordinates(self, posterior):
        """Return the draws (chains, n, d) of a dataset, or arrays, with the value variables."""
        values = [np.asarray(posterior[name]) for name in self.initial]
        parts = [v.reshape(*v.shape[:2], int(np.prod(v.shape[2:]))) for v in values]
        return np.concatenate(parts, axis=2)

    def starts(self, n, seed, jitter=None):
        """Return n dispersed points (n, d) where the log-density is finite."""
        jitter = self.case.jitter if jitter is None else jitter
        rng, found = np.random.default_rng(seed), []
        while len(found) < n:
            x = self.centre + jitter * rng.uniform(-1, 1, self.d)
            if self.logp(x) > -np.inf:
                found.append(x)
        return np.array(found)

    @cached_property
    def _natural(self):
        variables = self.model.replace_rvs_by_values(self.model.free_RVs)
        return self.model.compile_fn(variables, inputs=self.model.value_vars, point_fn=True)

    def initvals(self, seed, jitter=None):
        """Return the starts of a run, as PyMC takes them: values by name, not transformed."""
        names = [rv.name for rv in self.model.free_RVs]
        points = [self._natural(self.unraveled(x)) for x in self.starts(CHAINS, seed, jitter)]
        return [dict(zip(names, values, strict=True)) for values in points]


# ---- samplers -----------------------------------------------------------------------------------


def ours(sampler, problem):
    """Return run(evaluations of each chain, share for tuning, seed) -> draws (chains, n, d)."""
    step = getattr(pk, sampler)(model=problem.model, steps_per_draw=1, **OPTIONS.get(sampler, {}))

    def run(each, share, seed):
        way = WAY * problem.d if sampler == "SurrogateMetropolis" else 0
        is_few = way > 0 and each < FEW * problem.d
        if is_few:  # the run divides them
            lengths = {"max_evaluations": CHAINS * each, "surrogate_draws": SURROGATE_DRAWS}
        else:
            tune = max(LEAST_TUNING, round(share * (each - way)))
            lengths = {"tune": tune, "draws": each - tune}
        with quiet():
            dt = pk.sample(
                **lengths,
                step=step,
                model=problem.model,
                chains=CHAINS,
                cores=1,
                initvals=problem.initvals(seed),
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
                idata_kwargs={"include_transformed": True},
            )
        if not is_few:
            n = np.count_nonzero(evaluations(dt).sum(axis=0)[tune:] <= CHAINS * each)
            dt = dt.isel(draw=slice(n))
        if dt["posterior"].sizes["draw"] == 0 or not CORRECTED & set(dt.children):
            return problem.coordinates(dt["posterior"])
        with quiet():
            found = {
                "": pk.expectation(dt["posterior"], moments),
                "corrected": pk.expectation(dt, moments, problem.model),
            }
            if "surrogate_posterior" in dt.children:
                surrogates = dt["surrogate_posterior"]
                found["surrogates"] = pk.expectation(surrogates, moments, problem.model)
        return {kind: Estimates(one.mean, one.mcse) for kind, one in found.items()}

    def moments(variables):
        return both(problem.coordinates(variables))

    return run


# ---- regressions, a hidden Markov model, shapes -------------------------------------------------


def flat(predictors, y):
    """Build a linear regression with flat priors."""
    with pm.Model() as model:
        b, sigma = pm.Flat("b", shape=predictors.shape[1]), pm.HalfFlat("sigma", initval=1)
        pm.Normal("y", pm.math.dot(predictors, b), sigma, observed=y)
    return model


def with_ones(*columns):
    """Return columns (n, k) with an intercept."""
    return np.column_stack([np.ones(len(columns[0])), *columns])


def leaves():
    """Log weights of shrubs by the logs of five measures of their size, which correlate."""
    rng = np.random.default_rng(20)
    size = rng.normal(0, 0.45, 46)
    logs = [mean + slope * size + rng.normal(0, 0.2, 46) for mean, slope in MEASURES]
    predictors = with_ones(*logs)
    return flat(predictors, predictors @ [4.8, 0.4, 1.1, 0.4, 0.1, 0.1] + rng.normal(0, 0.33, 46))


MEASURES = ((0.1, 1), (-0.2, 1), (0.3, 1), (0.2, 0.9), (-0.8, 2))


def votes():
    """How voters see themselves on a scale of seven, by eight predictors as they were coded."""
    rng, n = np.random.default_rng(21), 550
    education, income = rng.integers(1, 5, n), rng.integers(1, 6, n)
    age = rng.integers(18, 90, n)
    groups = [(low <= age) & (age < high) for low, high in ((30, 45), (45, 65), (65, 99))]
    others = [rng.random(n) < 0.1, rng.integers(1, 8, n), rng.random(n) < 0.55]
    predictors = with_ones(others[1], others[0], *groups, education, others[2], income)
    b = [1.8, 0.5, -1.1, -0.2, -0.1, 0.2, 0.3, -0.1, 0.16]
    return flat(predictors, predictors @ b + rng.normal(0, 1.9, n))


def precise():
    """Return a regression on large numbers, which knows all coefficients to 1e-3 or better."""
    rng, n = np.random.default_rng(22), 1200
    height, male = rng.normal(67, 4, n), rng.random(n) < 0.4
    predictors = with_ones(height, male, height * male, rng.normal(0, 1, n))
    return flat(predictors, predictors @ [5.8, 0.06, 0.3, -0.01, 0.2] + rng.normal(0, 0.001, n))


def hidden_markov(n=200):
    """Return a hidden Markov model of two states, with normal emissions."""
    rng, state, y = np.random.default_rng(23), 0, np.zeros(n)
    for t in range(n):
        state = int(rng.random() < (0.1, 0.85)[state])
        y[t] = rng.normal((3, 9)[state], (1, 2)[state])
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        stay = pm.Beta("stay", 2, 2, shape=2)
        mu = pm.Normal("mu", [3, 10], 3, shape=2, transform=ordered, initval=[3, 10])
        sigma = pm.HalfNormal("sigma", 3, shape=2)
        emissions = pm.logp(pm.Normal.dist(mu, sigma), y[:, None])
        moves = pt.log(pt.stack([stay, 1 - stay], axis=1))
        moves = pt.stack([moves[0], moves[1][::-1]])

        def forward(emission, before, moves):
            return emission + pt.logaddexp(before[0] + moves[0], before[1] + moves[1])

        after = recursion(forward, emissions, np.log([0.5, 0.5]), moves)
        pm.Potential("y", pt.logaddexp(after[-1, 0], after[-1, 1]))
    return model


def transforms():
    """Return independent blocks with all kinds of transforms, one of them with heavy tails."""
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        pm.Uniform("interval", -1, 3)
        pm.Beta("odds", 2, 5)
        pm.Dirichlet("simplex", [2.0, 3.0, 4.0])
        pm.Normal("ordered", 0, 2, shape=3, transform=ordered, initval=[-1, 0, 1])
        pm.HalfNormal("half", 2)
        pm.Gamma("gamma", 3, 0.5)
        pm.LKJCholeskyCov("factor", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1), compute_corr=False)
        pm.MvStudentT("tails", 5, mu=np.zeros(2), scale=np.array([[1, 0.8], [0.8, 1]]))
    return model


BANANA = Banana(0.03)


def banana_moments(problem):
    """Return the moments of exact draws."""
    rng = np.random.default_rng(1)
    return from_draws(BANANA.draw(rng, CHAINS * LONG).reshape(CHAINS, LONG, -1))


def funnel(d=10):
    """Return Neal's funnel."""
    with pm.Model() as model:
        v = pm.Normal("v", 0, 3)
        pm.Normal("x", 0, pt.exp(v / 2), shape=d - 1)
    return model


def funnel_moments(problem):
    """Return the moments, in which draws would err, as sd(x²) is dominated by rare ones."""
    second = np.array([9, *np.full(problem.d - 1, np.exp(4.5))])
    fourth = np.array([3 * 9**2, *np.full(problem.d - 1, 3 * np.exp(18))])
    mean = np.concatenate([np.zeros(problem.d), second])
    sd = np.sqrt(np.concatenate([second, fourth - second**2]))
    return Moments(mean, sd, np.full(mean.size, np.inf))


def centred_moments(problem):
    """Return the moments of a run of the schools that are not centred, transformed."""
    x = long_run(Problem("schools"))
    mu, log_tau, z = np.split(x, [1, 2], axis=2)
    return from_draws(np.concatenate([mu, log_tau, mu + np.exp(log_tau) * z], axis=2))


# ---- hares and lynxes ---------------------------------------------------------------------------


def hare_lynx():
    """Return the model of the quickstart, which starts at the published estimates.

    PyMC's own initial point has another period, and modes of its own around it.
    """
    model = quickstart.build_model()
    for name, value in (quickstart.GUESS | {"initial": quickstart.PELTS[0]}).items():
        model.set_initval(model[name], np.array(value))
    return model


def hare_lynx_moments(problem):
    """Return the moments of a run near the known mode, with a solver that is compiled."""
    with mock.patch.object(quickstart, "populations", solved_by_runge_kutta):
        twin = Problem("hare-lynx 0.1")
    return from_draws(long_run(twin, LONG // 4))


def solved_by_runge_kutta(rates, initial, steps=5):
    """Return what quickstart.solve does, to some 1e-4: logs of both populations by year, (n, 2)."""
    h = 1 / steps

    def growth(y, rates):
        alpha, beta, gamma, delta = (rates[k] for k in range(4))
        return pt.stack([alpha - beta * pt.exp(y[1]), delta * pt.exp(y[0]) - gamma])

    def step(y, rates):
        k1 = growth(y, rates)
        k2 = growth(y + h / 2 * k1, rates)
        k3 = growth(y + h / 2 * k2, rates)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + growth(y + h * k3, rates))

    start, n = pt.log(initial), steps * (len(quickstart.YEARS) - 1)
    y = pytensor.scan(
        step, outputs_info=start, non_sequences=rates, n_steps=n, return_updates=False
    )
    return pt.concatenate([start[None], y[steps - 1 :: steps]])


# ---- all cases ----------------------------------------------------------------------------------

CASES = {
    "AR5": Case(POSTERIORS["autoregression"]),
    "interaction": Case(POSTERIORS["interaction"]),
    "log regression": Case(leaves),
    "flat priors": Case(votes),
    "precise": Case(precise),
    "26 coefficients": Case(POSTERIORS["correlated"]),
    "GARCH": Case(POSTERIORS["GARCH"]),
    "hidden Markov": Case(hidden_markov),
    "mixture": Case(POSTERIORS["two components"]),
    "schools": Case(POSTERIORS["schools"]),
    "centred schools": Case(POSTERIORS["centred schools"], centred_moments),
    "latent process": Case(POSTERIORS["latent process"]),
    "transforms": Case(transforms),
    "banana": Case(BANANA.model, banana_moments),
    "funnel": Case(funnel, funnel_moments),
    "hare-lynx 0.1": Case(hare_lynx, hare_lynx_moments, jitter=0.1),
    "hare-lynx": Case(hare_lynx, hare_lynx_moments),
}

SOME = ("AR5", "interaction", "log regression", "GARCH", "hidden Markov")
"""Where 300 evaluations are tried."""

WALKS = ("AR5", "log regression", "GARCH")
"""Where averages over the draws of GAM and GadMALA are corrected."""

ALL_BUT_HARD = tuple(CASES)[:-3]
"""Where KAM is held against GAM: all but the funnel, and hares and lynxes."""

IN_PICTURE = ("AR5", "hidden Markov", "GARCH")

SHOWN = [
    ("SurrogateMetropolis", (2000, 10_000), tuple(CASES)),
    ("GAM", (2000, 10_000), tuple(CASES)),
    ("SurrogateMetropolis", (300,), SOME),
    *((sampler, (10_000, 50_000), ALL_BUT_HARD) for sampler in ("KAM", "GAM")),
    ("GadMALA", (2000, 10_000, 50_000), WALKS),
    *((sampler, (1000, 50_000), IN_PICTURE) for sampler in ("SurrogateMetropolis", "GAM")),
    ("emcee DE", (1000, 2000, 10_000, 50_000), IN_PICTURE),
    ("PyVBMC", (300,), ("GARCH",)),
]
"""What the pages show: samplers, evaluations in all, and cases."""

# ---- tables of the pages ------------------------------------------------------------------------

NAMES = {
    "AR5": "AR(5)",
    "interaction": "regression with interaction",
    "flat priors": "regression, flat priors",
    "precise": "regression, standard deviations below 1e-3",
    "26 coefficients": "26 correlated coefficients",
    "GARCH": "GARCH(1,1)",
    "hidden Markov": "hidden Markov model",
    "mixture": "mixture of two",
    "schools": "eight schools, non-centred",
    "centred schools": "eight schools, centred",
    "latent process": "Gaussian process, Poisson",
    "transforms": "every transform, heavy tails",
    "banana": "banana, B = 0.03",
    "funnel": "Neal's funnel",
    "hare-lynx 0.1": "hares and lynxes, starts ±0.1",
    "hare-lynx": "hares and lynxes, starts ±1",
}
"""As the pages call the cases."""

OURS, WALK = "SurrogateMetropolis", "GAM"
PAGES = {
    "choosing.md": {
        "KAM": ({"KAM": ("KAM", "KAM"), WALK: (WALK, WALK)}, (10_000, 50_000), ALL_BUT_HARD)
    },
    "surrogate_results.md": {
        "effective draws": ({OURS: (OURS, OURS), WALK: (WALK, WALK)}, (2000, 10_000), CASES)
    },
    "estimates_results.md": {
        "corrected averages": (
            {"draws": (OURS, OURS), "corrected": (OURS, "corrected")},
            (2000, 10_000),
            CASES,
        ),
        "few evaluations": (
            {"`pk.expectation`": (OURS, "corrected"), "`surrogate_draws`": (OURS, "surrogates")},
            (300,),
            SOME,
        ),
        "corrected walks": (
            {"draws": (WALK, WALK), "corrected": (WALK, "corrected")},
            (2000, 10_000, 50_000),
            WALKS,
        ),
        "corrected leapfrog": (
            {"draws": ("GadMALA", "GadMALA"), "corrected": ("GadMALA", "corrected")},
            (2000, 10_000, 50_000),
            WALKS,
        ),
    },
}
"""Tables by page: what their columns are called, and whose estimates of which kind they have;
evaluations; and cases."""


def tables(rows):
    """Return the tables of the pages."""
    found = {(row["case"], row["evaluations"], row["of"], row["sampler"]): row for row in rows}
    return {
        page: {name: table(found, *of) for name, of in own.items()} for page, own in PAGES.items()
    }


def table(found, kinds, budgets, cases):
    """Return the lines of a table: one for each case and number of evaluations that was run."""
    heading = ["case", "d", "evaluations"]
    for label in kinds:
        heading += [f"{label}, worst", "median", "z"]
    lines, last = [heading, ["---"] * len(heading)], None
    for case in cases:
        for budget in budgets:
            rows = [found.get((case, budget, *kind)) for kind in kinds.values()]
            if None in rows:
                continue
            name = ["", ""] if case == last else [NAMES.get(case, case), str(rows[0]["d"])]
            lines.append([*name, spaced(budget), *chain.from_iterable(map(cells, rows))])
            last = case
    return [f"| {' | '.join(line)} |" for line in lines]


def cells(row):
    """Return the worst and the median quantity's effective draws, and z."""
    mark = "+" if row["too_short"] else ""
    worst, median = (spaced(round(row[name])) + mark for name in ("worst", "median"))
    z = "–" if row["z"] is None else f"{row['z']:.1f}"
    return [worst, "–" if row["case"] == "funnel" else median, z]


# ---- a picture ----------------------------------------------------------------------------------


def draw(rows):
    """Draw the error of the median quantity by evaluations, one panel for each case.

    Bars are 90 % confidence intervals of one quantity's error, given so many runs.
    """
    pictures.use_style()
    size = {"figsize": (4 * len(IN_PICTURE), 3.6), "layout": "constrained"}
    figure, axes = plt.subplots(1, len(IN_PICTURE), sharex=True, sharey=True, **size)
    for axis, case in zip(axes, IN_PICTURE, strict=True):
        for (of, sampler), marker in zip(LABELS, pictures.MARKERS, strict=True):
            kind = {"case": case, "of": of, "sampler": sampler}
            own = [row for row in rows if kind.items() <= row.items() and row["median"] > 0]
            own.sort(key=lambda row: row["evaluations"])
            n = [row["evaluations"] for row in own]
            error = [row["median"] ** -0.5 for row in own]
            factors = np.array([pictures.known_to(row["runs"]) for row in own]).reshape(-1, 2)
            options = {"marker": marker, "ms": 5, "elinewidth": 1, "capsize": 2}
            axis.errorbar(
                n, error, pictures.bars(error, factors), label=LABELS[of, sampler], **options
            )
        axis.set(title=f"{NAMES[case]}, d = {Problem(case).d}", xlabel="evaluations in all")
        axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="error / posterior sd")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(PICTURE, dpi=200)


LABELS = {
    (OURS, "corrected"): "pk.expectation",
    (OURS, OURS): "SurrogateMetropolis, its draws",
    (OURS, "surrogates"): "surrogate_draws",
    (WALK, WALK): "GAM",
    ("emcee DE", "emcee DE"): "emcee",
    ("PyVBMC", "PyVBMC"): "PyVBMC",
}


if __name__ == "__main__":
    main()
