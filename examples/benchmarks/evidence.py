"""Evidences of models of which they are known: errors, and whether the stated ones are right.

    python examples/benchmarks/evidence.py [--cases AR5 GARCH] [--samplers NUTS] [--seeds 20]

A run is ``pk.evidence`` with its default numbers of evaluations, of the draws that
SurrogateMetropolis makes with 2000 evaluations in all, or NUTS (``pm.sample``, 4 chains of 1000
draws after 1000 of tuning), from dispersed starts. z is error / standard error. Regressions are
known by quadrature over the standard deviation of their errors, the schools over that of their
effects, the banana and the transforms by hand, and all others by a million draws of t densities.
"""

import time
from functools import partial
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pymc as pm
from benchmark import each, grouped, main, sample, sample_by_pymc, step_of, table
from problems import NAMES, Problem, long_run, problem_of
from scipy.integrate import quad
from scipy.special import logsumexp
from scipy.stats import halfcauchy, multivariate_normal, multivariate_t

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

CASES = (
    *("AR5", "interaction", "hidden Markov", "mixture", "26 coefficients"),
    *("schools", "GARCH", "banana", "transforms"),
)
SAMPLERS = "SurrogateMetropolis", "NUTS"
EVALUATIONS = 2000
"""Of SurrogateMetropolis, in all."""


def plan(options):
    """Yield what is known of each case, and the runs."""
    yield from each(known_of, case=CASES, sampler=["known"])
    yield from each(run, case=CASES, sampler=SAMPLERS, seed=range(options.seeds))


def run(case, sampler, seed):
    """Return the evidence of a run."""
    problem = problem_of(case)
    dt = DRAWS[sampler](problem, seed)
    began = time.perf_counter()
    found = pk.evidence(dt, problem.model, random_seed=seed, cores=1)
    return {
        "d": problem.d,
        "log_evidence": found.log_evidence,
        "standard_error": found.standard_error,
        "overlap": found.overlap,
        "evaluations": found.evaluations,
        "seconds": round(time.perf_counter() - began, 1),
    }


def of_surrogates(problem, seed):
    """Return a result of SurrogateMetropolis."""
    step = step_of("SurrogateMetropolis", problem.model)
    starts = problem.initvals(seed)
    return sample(step, max_evaluations=EVALUATIONS, initvals=starts, random_seed=seed)


def of_nuts(problem, seed):
    """Return a result of PyMC's NUTS."""
    starts, own = problem.initvals(seed), {"nuts_sampler": "pymc", "model": problem.model}
    return sample_by_pymc(1000, tune=1000, initvals=starts, random_seed=seed, **own)


DRAWS = {"SurrogateMetropolis": of_surrogates, "NUTS": of_nuts}


# ---- what is known ------------------------------------------------------------------------------


def known_of(case):
    """Return log Z, and its standard error."""
    if case in EXACT:
        log_z, error = EXACT[case](Problem(case)), 0.0
    else:
        log_z, error = by_importance(Problem(case))
    return {"log_evidence": float(log_z), "standard_error": float(error)}


def log_z_of_regression(prior_sd, problem):
    """Return log Z by quadrature over sigma: given it, the coefficients are normal."""
    model, y = problem.model, problem.model["y"]
    data, mean = model.rvs_to_values[y].data, y.owner.inputs[2]
    of_coefficients = pm.pytensorf.compile([model["intercept"], model["slope"]], mean)
    predictors = np.stack([of_coefficients(b[0], b[1:]) for b in np.eye(problem.d - 1)], axis=1)
    spread, directions = np.linalg.eigh(prior_sd**2 * predictors @ predictors.T)
    y = directions.T @ data

    def log_density(sigma):
        variance = np.maximum(spread, 0) + sigma**2
        normal = -np.sum(np.log(2 * np.pi * variance) + y**2 / variance) / 2
        return normal + halfcauchy.logpdf(sigma, scale=5)

    return integrated(log_density)


def log_z_of_schools(problem):
    """Return log Z by quadrature over tau: given it, mu and the effects are normal."""
    y = problem.model["y"]
    data, error = problem.model.rvs_to_values[y].data, y.owner.inputs[3].data

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
    return top + np.log(sum(parts))


def by_importance(problem, n=1_000_000, nu=5):
    """Return log Z and its error, by draws of t's about the draws of a long walk."""
    x = long_run(problem, 5000).reshape(-1, problem.d)
    reference = multivariate_t(x.mean(axis=0), 1.2 * np.cov(x.T), nu, seed=1)
    proposed = reference.rvs(n)
    log_w = np.array([problem.logp(one) for one in proposed]) - reference.logpdf(proposed)
    w = np.exp(log_w - log_w.max())
    return logsumexp(log_w) - np.log(n), np.std(w) / np.mean(w) / n**0.5


EXACT = {
    "AR5": partial(log_z_of_regression, 10),
    "interaction": partial(log_z_of_regression, 100),
    "26 coefficients": partial(log_z_of_regression, 1),
    "schools": log_z_of_schools,
    "banana": lambda _: 4 * np.log(2 * np.pi) + np.log(10),
    "transforms": lambda _: -np.log(6),
}
"""The banana is a normal that was curved; of the orders of three variables one is left."""


# ---- tables -------------------------------------------------------------------------------------


def tables(rows):
    """Return the table of the page."""
    found, lines, z = grouped(rows, "case", "sampler"), [], {sampler: [] for sampler in SAMPLERS}
    titles = ["case", "d", "draws of", "runs", "refused", "sd", "bias", "stated error", "z"]
    for case, sampler in product(CASES, SAMPLERS):
        [known], own = found[case, "known"], found[case, sampler]
        if len(own) < 2:
            continue
        n, own = len(own), [row for row in own if np.isfinite(row["log_evidence"])]
        error = np.array([row["log_evidence"] for row in own]) - known["log_evidence"]
        stated = np.array([row["standard_error"] for row in own])
        squares = np.square(error) / (np.square(stated) + known["standard_error"] ** 2)
        z[sampler] += squares.tolist()
        cells = [NAMES.get(case, case), own[0]["d"], sampler, n, n - len(own) or ""]
        cells += [f"{error.std(ddof=1):.4f}", f"{error.mean():+.4f}", f"{np.median(stated):.4f}"]
        cells += [f"{np.sqrt(squares.mean()):.2f}", f"{np.median([r['overlap'] for r in own]):.2f}"]
        lines.append([*cells, f"{np.median([row['seconds'] for row in own]):.1f}"])
    for sampler, squares in z.items():
        if squares:
            all_of = f"{np.sqrt(np.mean(squares)):.2f}"
            lines.append(["all", "", sampler, len(squares), "", "", "", "", all_of, "", ""])
    return {"evidence.md": {"evidences": table([*titles, "overlap", "s"], lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=20)
