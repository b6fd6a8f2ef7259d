"""The evidence by other packages and by ours: evaluations until a run ends, and its error.

    python examples/benchmarks/evidence_peers.py [--cases GARCH] [--samplers nautilus dynesty]
        [--seeds 4]

`pip install pymc-kameleon[peers]` installs what there is to compare with; what is not installed is
left out. A row of evidence_peers.json is one run; rows of "known" have what errors are
against: quadrature where all but one parameter can be integrated out by hand, otherwise importance
sampling from Student's t, whose error is in the row.

Other packages begin with the model's own priors. Nested samplers take them as quantiles of a unit
cube, SMC takes draws of them, and PyVBMC what its `PyMCTarget` makes of the model or, where that
refuses, its initial point and 5 and 95 % quantiles of the prior. What PyVBMC's target spends on its
search of a mode is counted, in its own units. An evaluation is one of the likelihood.

Z is the integral of the model's density, as PyMC has it. That of `ordered` is the one of
independent draws, so that it integrates to 1 / 2! over pairs that are in order. Those who draw from
the prior, in order, therefore find a Z that is twice as large; this is taken away.
"""

from collections.abc import Callable
from functools import cache, cached_property, partial
from importlib.util import find_spec
from itertools import pairwise
from math import log
from pathlib import Path
from time import process_time
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import (
    estimate,
    evaluations,
    grouped,
    main,
    rounded,
    sample,
    three_digits,
)
from benchmark import table as table_of
from problems import NAMES, Problem, long_run
from pymc.distributions.transforms import ordered
from pytensor.graph import graph_replace
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import halfcauchy, multivariate_normal, multivariate_t, qmc

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")


def plan(options):
    """Yield what is known of each case, and the runs of methods whose package is here."""
    for case in CASES:
        yield {"case": case, "sampler": "known"}, lambda case=case: known(target_of(case))
    for method, (package, run) in METHODS.items():
        if package is None or find_spec(package):
            for seed in range(options.seeds):
                for case in CASES:
                    what = {"case": case, "sampler": method, "seed": seed}
                    yield what, partial(timed, run, case, seed)


def timed(run, case, seed):
    """Return the row of a run."""
    target = target_of(case)
    began = process_time()
    found = run(target, seed)
    seconds = process_time() - began
    row = found.row() if isinstance(found, Found) else found
    row |= {key: rounded(value, 6) for key, value in row.items() if isinstance(value, float)}
    return row | {"seconds": round(seconds, 1)}


# ---- cases --------------------------------------------------------------------------------------


class Case(NamedTuple):
    """What the density of the prior integrates to where it is that of what is sorted; log Z."""

    mass: float = 1.0
    log_z: Callable | None = None


class Target(Problem):
    """A Problem of problems.py whose prior and likelihood are apart."""

    def __init__(self, name, case=None, evidence=None):
        super().__init__(name, case)
        self.evidence = evidence or CASES.get(name, Case())

    @cached_property
    def _log_likelihood(self):
        by_name = {value.name: value for value in self.model.value_vars}
        values = [by_name[name] for name in self.initial]
        [graph], x = pm.pytensorf.join_nonshared_inputs(self.initial, [self.model.datalogp], values)
        function = pm.pytensorf.compile([x], graph)
        function.trust_input = True
        return function

    def log_likelihood(self, x):
        """Return the log-likelihood at x (d,), as low as nested samplers take where it is none."""
        self.n_likelihood += 1
        if x.min() <= NOWHERE:
            return LOWEST
        value = float(self._log_likelihood(x))
        return value if value > LOWEST else LOWEST

    def count_from_zero(self):
        """Compile the likelihood, and forget its calls."""
        self._log_likelihood  # noqa: B018
        self.n_likelihood = 0

    @cached_property
    def _prior(self):
        u, at, quantiles, x = pt.vector("u", dtype="float64"), 0, {}, []
        for rv in self.model.free_RVs:
            shape = tuple(rv.shape.eval())
            n = int(np.prod(shape))
            own = graph_replace(rv, quantiles, strict=False) if quantiles else rv
            q = quantile(own, u[at : at + n].reshape(shape))
            transform = self.model.rvs_to_transforms[rv]
            if self.evidence.mass < 1 and isinstance(transform, type(ordered)):
                q = pt.sort(q)
            quantiles[rv], at = pt.specify_shape(q, shape), at + n
            x.append((q if transform is None else transform.forward(q, *own.owner.inputs)).ravel())
        function = pm.pytensorf.compile([u], pt.concatenate(x), on_unused_input="ignore")
        function.trust_input = True
        return function

    def prior(self, u):
        """Return the points x (..., d) of the unit cube's u (..., d), NOWHERE where there is none.

        That is where variables that are ordered, and not alike, are not in order.
        """
        flat = np.clip(np.atleast_2d(u), TINY, 1 - TINY)
        with np.errstate(all="ignore"):
            x = np.array([self._prior(row) for row in flat])
        return np.where(np.isnan(x), NOWHERE, x).reshape(np.shape(u))

    def draws_of_prior(self, u):
        """Return the points x (n, d) of those of u (m, d) that have one."""
        x = self.prior(u)
        return x[(x > NOWHERE).all(axis=1)]

    def quantiles(self, share, seed):
        """Return x (d,) with this share of the prior below, and above."""
        x = self.draws_of_prior(qmc.Sobol(self.d, seed=seed).random(1024))
        return np.quantile(x, [share, 1 - share], axis=0)

    @cached_property
    def _transformed(self):
        natural, at, values, x = pt.vector("natural", dtype="float64"), 0, {}, []
        for rv in self.model.free_RVs:
            shape = tuple(rv.shape.eval())
            n = int(np.prod(shape))
            inputs = graph_replace(rv.owner.inputs, values, strict=False)
            value = pt.specify_shape(natural[at : at + n].reshape(shape), shape)
            transform = self.model.rvs_to_transforms[rv]
            x.append((value if transform is None else transform.forward(value, *inputs)).ravel())
            values[rv], at = value, at + n
        return pm.pytensorf.compile([natural], pt.concatenate(x), on_unused_input="ignore")

    def transformed(self, natural):
        """Return x (n, d) of draws (n, d) of the free variables, each on its own scale."""
        return np.array([self._transformed(row) for row in natural])


LOWEST, TINY, NOWHERE = -1e100, 1e-15, -1e6


def quantile(rv, u):
    """Return the quantiles of a variable, as a graph; of a normal vector, those of its factor."""
    if isinstance(rv.owner.op, pm.MvNormal.rv_type):
        mean, covariance = rv.owner.op.dist_params(rv.owner)
        return mean + pt.linalg.cholesky(covariance) @ pm.icdf(pm.Normal.dist(), u)
    return pm.icdf(rv, u)


def log_z_of_regression(prior_sd, target):
    """Return log Z by quadrature over sigma: given it, the coefficients are normal."""
    model, y = target.model, target.model["y"]
    data, mean = model.rvs_to_values[y].data, y.owner.inputs[2]
    of_coefficients = pm.pytensorf.compile([model["intercept"], model["slope"]], mean)
    predictors = np.stack([of_coefficients(b[0], b[1:]) for b in np.eye(target.d - 1)], axis=1)
    spread, directions = np.linalg.eigh(prior_sd**2 * predictors @ predictors.T)
    y = directions.T @ data

    def log_density(sigma):
        variance = np.maximum(spread, 0) + sigma**2
        normal = -np.sum(np.log(2 * np.pi * variance) + y**2 / variance) / 2
        return normal + halfcauchy.logpdf(sigma, scale=5)

    return integrated(log_density)


def log_z_of_schools(target):
    """Return log Z by quadrature over tau: given it, mu and the effects are normal."""
    y = target.model["y"]
    data, error = target.model.rvs_to_values[y].data, y.owner.inputs[3].data

    def log_density(tau):
        covariance = 25 + np.diag(tau**2 + error.astype(float) ** 2)
        normal = multivariate_normal.logpdf(data, np.zeros(data.size), covariance)
        return normal + halfcauchy.logpdf(tau, scale=5)

    return integrated(log_density)


def integrated(log_density):
    """Return the log of the integral over a positive variable, by its logarithm."""
    grid = np.linspace(-12, 12, 481)
    values = np.array([log_density(np.exp(x)) + x for x in grid])
    top, centre = values.max(), grid[values.argmax()]

    def density(x):
        return np.exp(log_density(np.exp(x)) + x - top)

    options = {"epsabs": 1e-12, "epsrel": 1e-10, "limit": 400}
    ends = centre + np.array([-40, -3, -0.3, 0, 0.3, 3, 40])
    parts = [quad(density, *pair, **options)[0] for pair in pairwise(ends)]
    return top + log(sum(parts))


CASES = {
    "AR5": Case(log_z=partial(log_z_of_regression, 10)),
    "GARCH": Case(),
    "mixture": Case(mass=1 / 2),
    "schools": Case(log_z=log_z_of_schools),
}

target_of = cache(Target)

# ---- what is known ------------------------------------------------------------------------------


def known(target):
    """Return log Z by quadrature where there is one, and by importance sampling."""
    sampled, error = by_importance(target)
    row = {"log_z": sampled, "error": error}
    if target.evidence.log_z:
        row |= {"log_z": target.evidence.log_z(target), "error": 0.0, "by_importance": sampled}
    return {"d": target.d} | {key: round(float(value), 5) for key, value in row.items()}


def by_importance(target, n=1_000_000, nu=5):
    """Return log Z and its error, by draws of t's about the draws of a long walk."""
    x = long_run(target, 5000).reshape(-1, target.d)
    reference = multivariate_t(x.mean(axis=0), 1.2 * np.cov(x.T), nu, seed=1)
    proposed = reference.rvs(n)
    log_w = np.array([target.logp(one) for one in proposed]) - reference.logpdf(proposed)
    w = np.exp(log_w - log_w.max())
    return logsumexp(log_w) - log(n), np.std(w) / np.mean(w) / n**0.5


# ---- other packages -----------------------------------------------------------------------------


class TimeUp(BaseException):
    """A run has taken too long. Packages catch errors, but not this."""


class Found(NamedTuple):
    """What a run has found: evaluations, log Z, its error, and what returns draws and weights.

    Draws x are (n, d), on the unconstrained scale.
    """

    evaluations: int
    log_z: float
    stated: float | None
    draws: Callable
    converged: bool | None = None

    def row(self):
        """Return the row of the evidence."""
        row = {"evaluations": int(self.evaluations), "log_z": float(self.log_z)}
        row |= {} if self.stated is None else {"stated": float(self.stated)}
        return row | ({} if self.converged is None else {"converged": bool(self.converged)})


def nautilus(n_live, n_eff, target, seed):
    """Return a run of nautilus; its error is that of its effective draws, as its paper has it."""
    from nautilus import Sampler

    target.count_from_zero()
    sampler = Sampler(
        target.prior, target.log_likelihood, target.d, n_live=n_live, seed=seed, pass_dict=False
    )
    sampler.run(n_eff=n_eff)

    def draws():
        x, log_w, _ = sampler.posterior()
        return x, np.exp(log_w)

    log_z = sampler.log_z + log(target.evidence.mass)
    return Found(target.n_likelihood, log_z, sampler.n_eff**-0.5, draws)


def dynesty(n_live, target, seed):
    """Return a run of dynesty's static sampler, which is for the evidence."""
    from dynesty import NestedSampler

    target.count_from_zero()
    sampler = NestedSampler(
        target.log_likelihood,
        target.prior,
        target.d,
        nlive=n_live,
        rstate=np.random.default_rng(seed),
    )
    sampler.run_nested(print_progress=False)
    found = sampler.results

    def draws():
        return found.samples, found.importance_weights()

    log_z = found.logz[-1] + log(target.evidence.mass)
    return Found(target.n_likelihood, log_z, found.logzerr[-1], draws)


def sequential(n, target, seed):
    """Return a chain of PyMC's SMC, which states no error: users look at several chains."""
    rng = np.random.default_rng(seed)
    x = target.draws_of_prior(rng.random((2 * n, target.d)))[:n]
    points = [target.unraveled(row) for row in x]
    start = {name: np.array([point[name] for point in points]) for name in target.initial}
    kernel = pm.smc.IMH(draws=n, model=target.model)
    kernel.initialize(start, rng)
    spent = n
    while kernel.beta < 1:
        kernel.update_beta_and_weights()
        kernel.step()
        spent += n * (kernel.n_steps - 1)

    def draws():
        return kernel.tempered_posterior, np.ones(n)

    return Found(spent, kernel.log_marginal_likelihood + log(target.evidence.mass), None, draws)


def variational(target, seed):
    """Return a run of PyVBMC: its bound, and the bound's error."""
    from pyvbmc import VBMC
    from pyvbmc.pymc import PyMCTarget, UnsupportedModel

    options = {"display": "off"}
    try:
        of_model = PyMCTarget(target.model, seed=seed)
    except UnsupportedModel:
        low, high = target.quantiles(0.05, seed)
        start = np.clip(target.centre, low, high)
        vbmc = VBMC(
            target.logp,
            start,
            plausible_lower_bounds=low,
            plausible_upper_bounds=high,
            options=options,
            seed=seed,
        )
        setup, coordinates = 0, np.asarray
    else:
        vbmc, setup = VBMC(of_model, options=options, seed=seed), of_model.setup_cost

        def coordinates(x):
            by_name = of_model.to_model_variables(x)
            columns = [np.reshape(by_name[name], (len(x), -1)) for name in of_model.names]
            return target.transformed(np.column_stack(columns))

    try:
        posterior, found = vbmc.optimize()
    except (ValueError, np.linalg.LinAlgError) as error:
        spent = vbmc.function_logger.func_count + setup
        return {"evaluations": int(spent), "refused": str(error)[:120]}
    except TimeUp:  # what it has by now
        spent, history = vbmc.function_logger.func_count, vbmc.iteration_history
        posterior = history["vp"][-1]
        found = {key: history[key][-1] for key in ("elbo", "elbo_sd")}
        found |= {"func_count": spent, "success_flag": False}

    def draws():
        return coordinates(posterior.sample(VARIATIONAL_DRAWS)[0]), np.ones(VARIATIONAL_DRAWS)

    spent = found["func_count"] + setup
    return Found(spent, found["elbo"], found["elbo_sd"], draws, found["success_flag"])


VARIATIONAL_DRAWS = 20_000
"""Of PyVBMC's posterior."""

# ---- ours ---------------------------------------------------------------------------------------


def ours(most, target, seed):
    """Return `pk.evidence` of a run of SurrogateMetropolis, whose evaluations are in."""
    step = pk.SurrogateMetropolis(model=target.model, expensive=True)
    dt = sample(step, max_evaluations=most, random_seed=seed)
    spent = int(evaluations(dt)[:, -1].sum())
    try:
        found = pk.evidence(dt, model=target.model, random_seed=seed)
    except ValueError as error:
        return {"evaluations": spent, "refused": str(error)}
    if not np.isfinite(found.log_evidence):
        return {"evaluations": int(spent + found.evaluations), "refused": found.warning}
    return {
        "evaluations": int(spent + found.evaluations),
        "log_z": float(found.log_evidence),
        "stated": float(found.standard_error),
    }


METHODS = {
    "nautilus": ("nautilus", partial(nautilus, 2000, 10_000)),
    "nautilus 500": ("nautilus", partial(nautilus, 500, 500)),
    "dynesty": ("dynesty", partial(dynesty, 500)),
    "dynesty 100": ("dynesty", partial(dynesty, 100)),
    "SMC": (None, partial(sequential, 2000)),
    "SMC 500": (None, partial(sequential, 500)),
    "SMC 100": (None, partial(sequential, 100)),
    "PyVBMC": ("pyvbmc", variational),
    "ours 500": (None, partial(ours, 500)),
    "ours 1000": (None, partial(ours, 1000)),
    "ours 2000": (None, partial(ours, 2000)),
}
"""By name the package that it needs besides PyMC, and a function of a target and a seed."""

# ---- the page -----------------------------------------------------------------------------------

LABELS = {
    "nautilus": "nautilus",
    "nautilus 500": "nautilus, 500 live points, 500 effective draws",
    "dynesty": "dynesty",
    "dynesty 100": "dynesty, 100 live points",
    "SMC": "`pm.sample_smc`, a chain",
    "SMC 500": "`pm.sample_smc`, 500 draws",
    "SMC 100": "`pm.sample_smc`, 100 draws",
    "PyVBMC": "PyVBMC",
    "ours 500": "`pk.evidence`, 500 evaluations before",
    "ours 1000": "`pk.evidence`, 1000 before",
    "ours 2000": "`pk.evidence`, 2000 before",
}
FAMILIES = {
    "nautilus": ("nautilus", "nautilus 500"),
    "dynesty": ("dynesty", "dynesty 100"),
    "`pm.sample_smc`": ("SMC", "SMC 500", "SMC 100"),
    "PyVBMC": ("PyVBMC",),
    "SurrogateMetropolis and `pk.evidence`": ("ours 500", "ours 1000", "ours 2000"),
}
WANTED = (0.1, 0.02)
"""Errors of log Z."""
BIASED = 2.5
"""Standard errors of the mean error from which on an answer is called biased."""
FIXED = ("PyVBMC",)
"""What ends by itself: more evaluations would not be fewer errors."""


def tables(rows):
    """Return the tables of the page."""
    found = grouped(rows, "case", "sampler")
    right = {case: own[0] for (case, method), own in found.items() if method == "known"}
    runs = {
        what: Runs(own, right[what[0]]["log_z"])
        for what, own in found.items()
        if what[1] != "known" and len(own) > 1
    }
    cases = [case for case in CASES if case in right]
    return {
        "peers.md": {
            "evidence": table_of(
                ["model", "method", "runs", "evaluations", "error", "bias", "stated error"],
                [
                    [f"{NAMES[case]}, d = {right[case]['d']}", LABELS[method], *runs[what].cells()]
                    for case in cases
                    for method in METHODS
                    if (what := (case, method)) in runs
                ],
            ),
            "evaluations for an error of log Z": table_of(
                ["method", *(f"{NAMES[case]}, {e}" for case in cases for e in WANTED)],
                [
                    [family, *(fewest(runs, case, own, e) for case in cases for e in WANTED)]
                    for family, own in FAMILIES.items()
                    if any((case, method) in runs for case in cases for method in own)
                ],
            ),
        }
    }


class Runs:
    """What the runs of a method on a case are worth."""

    def __init__(self, rows, log_z):
        self.n, answered = len(rows), [row for row in rows if "refused" not in row]
        self.evaluations = float(np.mean([row["evaluations"] for row in answered or rows]))
        self.n_answered = len(answered)
        errors = np.array([row["log_z"] for row in answered]) - log_z
        if self.n_answered > 1:
            self.error, self.bias = np.sqrt(np.mean(errors**2)), errors.mean()
            self.of_bias = errors.std(ddof=1) / len(answered) ** 0.5
        stated = [row["stated"] for row in answered if "stated" in row]
        self.stated = np.mean(stated) if stated else None

    @property
    def is_biased(self):
        """Whether the mean error is more than chance, by runs' spread and by what they state."""
        stated = (self.stated or 0.0) / self.n_answered**0.5
        return abs(self.bias) > BIASED * max(self.of_bias, stated)

    def cells(self):
        """Return the cells of a row."""
        runs = f"{self.n_answered} of {self.n}" if self.n_answered < self.n else self.n
        if self.n_answered < 2:
            return [runs, three_digits(self.evaluations), "no answer", None, None]
        error, stated = (x and f"{rounded(x, 2):g}" for x in (self.error, self.stated))
        return [
            runs,
            three_digits(self.evaluations),
            error,
            estimate(self.bias, self.of_bias),
            stated,
        ]


def fewest(runs, case, methods, wanted):
    """Return evaluations for an error, by the best of some settings.

    Where a run's error is larger, as many times its evaluations as the square of the errors' ratio.
    """
    known = [(m, runs[case, m]) for m in methods if (case, m) in runs]
    known = [(m, own) for m, own in known if own.n_answered > 1]
    costs = [
        (own.evaluations * max(1, own.error / wanted) ** 2, own.is_biased)
        for m, own in known
        if own.error <= wanted or not (own.is_biased or m in FIXED)
    ]
    if costs:
        evaluations, is_biased = min(costs)
        return three_digits(rounded(evaluations, 2)) + ("°" if is_biased else "")
    return "biased" if known else None


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4)
