"""Evidences of models of which they are known: errors, and whether the stated ones are right.

    python examples/benchmarks/evidence.py [--cases AR5,GARCH] [--of NUTS] [--seeds 20]
    python examples/benchmarks/evidence.py --table     write the tables of docs/evidence.md

A run is ``pk.evidence`` with its default numbers of evaluations, of the draws that
SurrogateMetropolis makes with 2000 evaluations in all, or NUTS (``pm.sample``, 4 chains of 1000
draws after 1000 of tuning), from dispersed starts. z is error / standard error. Regressions are
known by quadrature over the standard deviation of their errors, the banana and the transforms by
hand, cases of evidence_peers.py as there, by quadrature or a million draws of t densities, and the
hidden Markov model by such draws. What is known, and what each run gave, is in evidence.json, and
is not run again.
"""

import argparse
import logging
import pickle
import time
import warnings
from itertools import product
from pathlib import Path

import evidence_peers
import numpy as np
import pymc as pm
from dispersed import quiet
from evaluations import NAMES, Problem
from pages import load, save, when_and_where, write
from scipy.special import logsumexp
from scipy.stats import halfcauchy

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

CASES = (
    *("AR5", "interaction", "hidden Markov", "mixture", "26 coefficients"),
    *("schools", "GARCH", "banana", "transforms"),
)
SAMPLERS = "SurrogateMetropolis", "NUTS"
EVALUATIONS = 2000
"""Of SurrogateMetropolis, in all."""

KNOWN_SEED = 1000
"""Which rows of what is known have, in place of a run's."""

REGRESSIONS = {"AR5": 10, "interaction": 100, "26 coefficients": 1}
"""Standard deviations of the coefficients' priors."""

BY_HAND = {"banana": 4 * np.log(2 * np.pi) + np.log(10), "transforms": -np.log(6)}
"""The banana is a normal that was curved; of the orders of three variables one is left."""


def main():
    """Run what is asked for and not in the file yet, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--of", default=",".join(SAMPLERS), help="whose draws")
    parser.add_argument("--seeds", type=int, default=20, help="runs of each")
    parser.add_argument("--seconds", type=float, default=np.inf, help="after which none begins")
    parser.add_argument("--cache", type=Path, help="directory where draws are kept")
    parser.add_argument("--table", action="store_true", help="write docs/evidence.md")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("pymc").setLevel(logging.CRITICAL)
    if options.table:
        write(tables(load(FILE)))
        return
    end = time.perf_counter() + options.seconds
    for name in options.cases.split(","):
        for sampler in options.of.split(","):
            add_runs(name, sampler, range(options.seeds), end, options.cache)


def add_runs(name, sampler, seeds, end, cache):
    """Add the runs of a case that are not in the file yet."""
    rows, problem = load(FILE), None
    done = {(row["case"], row["sampler"], row["seed"]) for row in rows}
    for seed in seeds:
        if (name, sampler, seed) in done or time.perf_counter() > end:
            continue
        if problem is None:
            problem = Problem(name)
            if (name, "known", KNOWN_SEED) not in done:
                done.add((name, "known", KNOWN_SEED))
                log_z, error = known_of(name, problem)
                rows.append(
                    {
                        "case": name,
                        "sampler": "known",
                        "seed": KNOWN_SEED,
                        "log_evidence": log_z,
                        "standard_error": error,
                    }
                    | when_and_where()
                )
                save(FILE, rows)
            step = pk.SurrogateMetropolis(model=problem.model, expensive=True)
        with quiet():
            dt = kept(cache, sampler, problem, step, seed)
            began = time.perf_counter()
            found = pk.evidence(dt, problem.model, random_seed=seed, cores=1)
        row = {"case": name, "d": problem.d, "sampler": sampler, "seed": seed}
        row |= {"log_evidence": found.log_evidence, "standard_error": found.standard_error}
        row |= {"overlap": found.overlap, "evaluations": found.evaluations}
        row |= {"seconds": round(time.perf_counter() - began, 1)} | when_and_where()
        print(row, flush=True)
        rows.append(row)
        save(FILE, rows)


def kept(cache, sampler, problem, step, seed):
    """Return the result of a sampler, from the cache if it is there."""
    file = cache and cache / f"{problem.name} {sampler} {seed}.pkl"
    if file and file.exists():
        return pickle.loads(file.read_bytes())
    dt = DRAWS[sampler](problem, step, seed)
    if file:
        file.write_bytes(pickle.dumps(dt))
    return dt


def of_surrogates(problem, step, seed):
    """Return a result of SurrogateMetropolis."""
    return pk.sample(
        step=step,
        model=problem.model,
        max_evaluations=EVALUATIONS,
        chains=4,
        cores=1,
        initvals=problem.initvals(seed),
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
    )


def of_nuts(problem, step, seed):
    """Return a result of PyMC's NUTS."""
    return pm.sample(
        1000,
        tune=1000,
        nuts_sampler="pymc",
        model=problem.model,
        chains=4,
        cores=1,
        initvals=problem.initvals(seed),
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
    )


DRAWS = {"SurrogateMetropolis": of_surrogates, "NUTS": of_nuts}


# ---- what is known ------------------------------------------------------------------------------


def known_of(name, problem):
    """Return log Z, and its standard error."""
    if name in BY_HAND:
        return BY_HAND[name], 0.0
    if name in evidence_peers.CASES:
        rows = load(evidence_peers.FILE)
        row = next(row for row in rows if (row["case"], row["method"]) == (name, "known"))
        return row["log_z"], row["error"]
    if name in REGRESSIONS:
        return of_regression(problem.model, REGRESSIONS[name]), 0.0
    return evidence_peers.by_importance(problem)


def of_regression(model, prior_sd):
    """Return log Z of a regression, which is normal given the standard deviation of its errors."""
    own = [model["intercept"], model["slope"]]
    mean = model.compile_fn(model["y"].owner.inputs[2], inputs=own, point_fn=False)
    n = 1 + model.initial_point()["slope"].size
    predictors = np.column_stack([mean(row[0], row[1:]) for row in np.eye(n)])
    y = model.rvs_to_values[model["y"]].eval()
    explained = prior_sd**2 * predictors @ predictors.T
    values, vectors = np.linalg.eigh(explained)
    squares = (vectors.T @ y) ** 2

    def log_density(log_sigma):
        variances = np.maximum(values, 0) + np.exp(2 * log_sigma)
        given = -0.5 * np.sum(np.log(2 * np.pi * variances) + squares / variances)
        return given + halfcauchy.logpdf(np.exp(log_sigma), scale=5) + log_sigma

    grid = np.linspace(-10, 10, 20_001)
    logs = np.array([log_density(point) for point in grid])
    return float(logsumexp(logs) + np.log(grid[1] - grid[0]))


# ---- tables -------------------------------------------------------------------------------------


def tables(rows):
    """Return the table of the page."""
    known = {row["case"]: row for row in rows if row["sampler"] == "known"}
    heading = [
        "case",
        "d",
        "draws of",
        "runs",
        "refused",
        "sd",
        "bias",
        "stated error",
        "z",
        "overlap",
        "s",
    ]
    lines, z = [heading, ["---"] * len(heading)], {sampler: [] for sampler in SAMPLERS}
    for case, sampler in product(CASES, SAMPLERS):
        own = [row for row in rows if row["case"] == case and row["sampler"] == sampler]
        if len(own) < 2 or case not in known:
            continue
        n, own = len(own), [row for row in own if np.isfinite(row["log_evidence"])]
        error = np.array([row["log_evidence"] for row in own]) - known[case]["log_evidence"]
        stated = np.array([row["standard_error"] for row in own])
        squares = np.square(error) / (np.square(stated) + known[case]["standard_error"] ** 2)
        z[sampler] += squares.tolist()
        cells = [NAMES.get(case, case), own[0]["d"], sampler, n, n - len(own) or ""]
        cells += [f"{error.std(ddof=1):.4f}", f"{error.mean():+.4f}", f"{np.median(stated):.4f}"]
        cells += [f"{np.sqrt(squares.mean()):.2f}", f"{np.median([r['overlap'] for r in own]):.2f}"]
        lines.append([*map(str, cells), f"{np.median([row['seconds'] for row in own]):.1f}"])
    for sampler, squares in z.items():
        if squares:
            all_of = f"{np.sqrt(np.mean(squares)):.2f}"
            lines.append(["all", "", sampler, str(len(squares)), "", "", "", "", all_of, "", ""])
    return {"evidence.md": {"evidences": [f"| {' | '.join(line)} |" for line in lines]}}


if __name__ == "__main__":
    main()
