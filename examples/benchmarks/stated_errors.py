"""How good the stated errors and intervals of `pk.summary` are: a table of docs/reliability.md.

    python examples/benchmarks/stated_errors.py [--cases AR5 GARCH] [--seeds 4]

Runs of `pk.sample` with default arguments on the posteriors of reliability.py, whose means of x_k
and x_k² are known, on the unconstrained scale. For each run and quantity:

* whether the mean of `pk.expectation` lies within 1.598 of its standard errors of what is known, as
  89 % of normal errors do. What is known has a standard error of its own, which is added.
* how much of the posterior lies in the interval of `pk.summary`, on the natural scale, which should
  be 0.89. The posterior is that of the draws of all runs together, some 300 000.

A quantity without a standard error is left out.
"""

from functools import partial
from pathlib import Path

import numpy as np
import reliability
from benchmark import both, grouped, load, main, parameters, rounded, sample, sampler_class, table
from problems import Problem

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
WITHIN, FUNNEL = 1.598, "centred schools"
"""What normal errors are within in 89 of 100 cases; the posterior that no sampler here enters."""

KINDS = {
    "SurrogateMetropolis": ("SurrogateMetropolis", False),
    "GadMALA, gradients at its draws": ("GadMALA", True),
    "KAM, its draws": ("KAM", False),
}
"""Sampler, and whether averages are corrected by gradients, for which a model is passed."""


def plan(options):
    """Yield what is to be run: of a posterior all kinds together."""
    for case in reliability.CASES:
        yield {"case": case, "runs": options.seeds}, partial(measure, case, options.seeds)


def measure(case, seeds):
    """Return the rows of a posterior."""
    problem = Problem(case, reliability.CASES[case])
    names = [rv.name for rv in problem.model.free_RVs]
    [known] = grouped(load(reliability.FILE), "case", "sampler")[case, "known"]
    known = {key: np.array(known[key]) for key in ("mean", "mcse")}

    def moments(variables):
        return both(problem.coordinates(variables))

    draws, found = [], {kind: {"z": [], "low": [], "high": []} for kind in KINDS}
    for kind, (sampler, by_gradients) in KINDS.items():
        step = sampler_class(sampler)(model=problem.model)
        model = problem.model if by_gradients else None
        for seed in range(seeds):
            dt = sample(step, random_seed=100 + seed, compute_convergence_checks=True)
            mean = pk.expectation(dt, moments, model)
            summary = pk.summary(dt, names, round_to="none", model=model)
            error = np.hypot(mean.mcse, known["mcse"])
            found[kind]["z"].append((mean.mean - known["mean"]) / error)
            found[kind]["low"].append(summary["eti89_lb"].to_numpy())
            found[kind]["high"].append(summary["eti89_ub"].to_numpy())
            draws.append(parameters(problem.model, dt))
    every = np.concatenate(draws)
    every = np.sort(every.reshape(-1, every.shape[2]), axis=0)
    return [
        {
            "sampler": kind,
            "z": rounded(one["z"], 3),
            "mass": rounded(shares(every, one["high"]) - shares(every, one["low"]), 4),
        }
        for kind, one in found.items()
    ]


def shares(every, ends):
    """Return the share of sorted draws (n, q) below each of some runs' ends (runs, q)."""
    columns = zip(every.T, np.transpose(ends), strict=True)
    return np.array([np.searchsorted(*pair) for pair in columns]).T / len(every)


def tables(rows):
    """Return the table of the page."""
    lines = []
    others = [row for row in rows if row["case"] != FUNNEL]
    for kind, (means, squares) in percentages(others).items():
        own = grouped(others, "sampler")[kind]
        mass = np.concatenate([np.ravel(row["mass"]) for row in own])
        low, middle, high = np.quantile(mass, [0.05, 0.5, 0.95])
        cells = sum(row["runs"] for row in own), f"{means:.0f}", f"{squares:.0f}"
        lines.append([kind, *cells, f"{middle:.3f}", f"{low:.3f} to {high:.3f}"])
    titles = ["averages", "runs", "means, %", "mean squares, %", "in the interval", "90 % of these"]
    return {"reliability.md": {"coverage": table(titles, lines)}}


def percentages(rows):
    """Return by kind how many percent of errors are as small as 89 should be.

    Those of means, and of mean squares.
    """
    found = {}
    for kind in KINDS:
        own = grouped(rows, "sampler")[kind]
        halves = [np.split(np.array(row["z"], float), 2, axis=1) for row in own]
        z = [np.concatenate([half[k].ravel() for half in halves]) for k in (0, 1)]
        found[kind] = [100 * np.mean(np.abs(one[np.isfinite(one)]) < WITHIN) for one in z]
    return found


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4)
