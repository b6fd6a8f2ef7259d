"""Evidences of models of which they are known: errors, and whether the stated ones are right.

    python examples/benchmarks/evidence.py [--cases AR5 GARCH] [--samplers NUTS] [--seeds 20]

A run is ``pk.evidence`` with its default numbers of evaluations, of the draws that
SurrogateMetropolis makes with 2000 evaluations in all, or NUTS (``pm.sample``, 4 chains of 1000
draws after 1000 of tuning), from dispersed starts. z is error / standard error. Regressions are
known by quadrature over the standard deviation of their errors, the banana and the transforms by
hand, cases of evidence_peers.py as there, by quadrature or a million draws of t densities, and the
hidden Markov model by such draws.
"""

import time
from itertools import product
from pathlib import Path

import evidence_peers
import numpy as np
from benchmark import each, grouped, load, main, sample, sample_by_pymc, step_of, table
from evidence_peers import log_z_of_regression
from problems import NAMES, Problem, problem_of

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")

CASES = (
    *("AR5", "interaction", "hidden Markov", "mixture", "26 coefficients"),
    *("schools", "GARCH", "banana", "transforms"),
)
SAMPLERS = "SurrogateMetropolis", "NUTS"
EVALUATIONS = 2000
"""Of SurrogateMetropolis, in all."""

REGRESSIONS = {"interaction": 100, "26 coefficients": 1}
"""Standard deviations of the coefficients' priors."""

BY_HAND = {"banana": 4 * np.log(2 * np.pi) + np.log(10), "transforms": -np.log(6)}
"""The banana is a normal that was curved; of the orders of three variables one is left."""


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
    step = step_of("SurrogateMetropolis", problem.model, expensive=True)
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
    log_z, error = None, 0.0
    if case in BY_HAND:
        log_z = BY_HAND[case]
    elif case in evidence_peers.CASES:
        [row] = grouped(load(evidence_peers.FILE), "case", "sampler")[case, "known"]
        log_z, error = row["log_z"], row["error"]
    elif case in REGRESSIONS:
        log_z = log_z_of_regression(REGRESSIONS[case], Problem(case))
    else:
        log_z, error = evidence_peers.by_importance(Problem(case))
    return {"log_evidence": float(log_z), "standard_error": float(error)}


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
