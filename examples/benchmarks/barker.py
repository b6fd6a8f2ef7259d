"""Barker beside GAM and GadMALA: the tables of docs/barker.md.

    python examples/benchmarks/barker.py    some three minutes

Four chains from dispersed starts, three seeds, one transition per draw: 5000 transitions of tuning,
and then as many as take 20 000 evaluations of the log-density.
"""

from pathlib import Path

import benchmark
import numpy as np
import pymc as pm
from posteriors import POSTERIORS
from problems import CASES, Case, problem_of

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = ("GAM", "Barker", "GadMALA")
TUNE, EVALUATIONS = 5000, 20_000


def heavy_tails():
    """Build eight independent Student's t of very different scales."""
    with pm.Model() as model:
        pm.StudentT("x", nu=3, sigma=np.geomspace(1e-2, 1e2, 8), shape=8)
    return model


TARGETS = {
    "eight schools, non-centred": CASES["schools"],
    "eight schools, centred": CASES["centred schools"],
    "Student t with 3 degrees of freedom, scales 1e-2 … 1e2": Case(heavy_tails),
    "Poisson regression": Case(POSTERIORS["Poisson"]),
    "banana": CASES["banana"],
    "Neal's funnel": CASES["funnel"],
}


def plan(options):
    """Return what is to be run."""
    return benchmark.each(run, case=TARGETS, sampler=SAMPLERS, seed=range(1, 1 + options.seeds))


def run(case, sampler, seed):
    """Return least bulk ESS and largest R-hat of all x and x²."""
    problem = problem_of(case, TARGETS[case])
    step = benchmark.step_of(sampler, problem.model, steps_per_draw=1)
    dt = benchmark.sample(step, EVALUATIONS, tune=TUNE, random_seed=seed)
    evaluations = dt["sample_stats"]["n_logp"].values.cumsum(axis=1)
    n = int((evaluations <= EVALUATIONS).sum(axis=1).min())
    x = benchmark.both(problem.coordinates(dt["posterior"]))[:, :n]
    found = {"ess": round(benchmark.least_ess(x)), "rhat": round(benchmark.largest_rhat(x), 4)}
    return {"d": problem.d, "draws": n} | found


def tables(rows):
    """Return the tables of the page: least ESS of all seeds to the largest, and worst R-hat."""
    found, least, worst = benchmark.grouped(rows, "case", "sampler"), [], []
    for case in TARGETS:
        own = [found[case, sampler] for sampler in SAMPLERS]
        begin = [case, own[0][0]["d"]]
        least.append([*begin, *(benchmark.span([row["ess"] for row in some]) for some in own)])
        worst.append([*begin, *(f"{max(row['rhat'] for row in some):.3f}" for some in own)])
    titles = ["posterior", "d", *SAMPLERS]
    pair = {
        "least ESS": benchmark.table(titles, least),
        "worst R-hat": benchmark.table(titles, worst),
    }
    return {"barker.md": pair}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=3)
