"""How good the stated errors and intervals of `pk.summary` are: a table of docs/reliability.md.

    python examples/benchmarks/stated_errors.py [--cases AR5,GARCH] [--seeds 4]

Runs of `pk.sample` with default arguments on the posteriors of reliability.py, whose means of x_k
and x_k² are known, on the unconstrained scale. For each run and quantity:

* whether the mean of `pk.expectation` lies within 1.598 of its standard errors of what is known, as
  89 % of normal errors do. What is known has a standard error of its own, which is added.
* how much of the posterior lies in the interval of `pk.summary`, on the natural scale, which should
  be 0.89. The posterior is that of the draws of all runs together, some 300 000.

A quantity without a standard error is left out. What was run is in stated_errors.json, a row for
each posterior and kind of average, and is not run again.
"""

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
import reliability
from dispersed import quiet
from evaluations import Problem, both
from pages import load, rounded, save, table, when_and_where, write

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
WITHIN, FUNNEL = 1.598, "centred schools"
"""What normal errors are within in 89 of 100 cases; the posterior that no sampler here enters."""

KINDS = {
    "SurrogateMetropolis": ("SurrogateMetropolis", {}, False),
    "GAM, control variates": ("GAM", {"control_variates": True}, False),
    "GadMALA, control variates": ("GadMALA", {"control_variates": True}, False),
    "GadMALA, gradients at its draws": ("GadMALA", {}, True),
    "KAM, its draws": ("KAM", {}, False),
}
"""Sampler, its options, and whether averages are corrected by gradients, for which a model is
passed."""


def main():
    """Run what is asked for and not in the file yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=",".join(reliability.CASES))
    parser.add_argument("--seeds", type=int, default=4, help="runs of each")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    known = json.loads(reliability.FILE.read_text(encoding="utf-8"))["known"]
    rows = load(FILE)
    for name in options.cases.split(","):
        if all(row["case"] != name for row in rows):
            rows += measured(name, known[name], options.seeds)
            save(FILE, rows)
            print(name, flush=True)
    write(tables(rows))


def measured(name, known, seeds):
    """Return the rows of a posterior."""
    problem = Problem(name, reliability.CASES[name])
    names = [rv.name for rv in problem.model.free_RVs]
    known = {key: np.array(known[key]) for key in ("mean", "mcse")}

    def moments(variables):
        return both(problem.coordinates(variables))

    draws, found = [], {kind: {"z": [], "low": [], "high": []} for kind in KINDS}
    for kind, (sampler, own, by_gradients) in KINDS.items():
        step = getattr(pk, sampler)(model=problem.model, **own)
        model = problem.model if by_gradients else None
        for seed in range(seeds):
            with quiet():
                dt = pk.sample(
                    step=step,
                    model=problem.model,
                    random_seed=100 + seed,
                    cores=1,
                    progressbar=False,
                    idata_kwargs={"include_transformed": True},
                )
                mean = pk.expectation(dt, moments, model)
                summary = pk.summary(dt, names, round_to="none", model=model)
            error = np.hypot(mean.mcse, known["mcse"])
            found[kind]["z"].append((mean.mean - known["mean"]) / error)
            found[kind]["low"].append(summary["eti89_lb"].to_numpy())
            found[kind]["high"].append(summary["eti89_ub"].to_numpy())
            values = [dt["posterior"][own].values.reshape(4 * 1000, -1) for own in names]
            draws.append(np.concatenate(values, axis=1))
    every = np.sort(np.concatenate(draws), axis=0)
    return [
        {
            "case": name,
            "kind": kind,
            "runs": seeds,
            "z": rounded(one["z"], 3),
            "mass": rounded(shares(every, one["high"]) - shares(every, one["low"]), 4),
        }
        | when_and_where()
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
        own = [row for row in others if row["kind"] == kind]
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
        own = [row for row in rows if row["kind"] == kind]
        halves = [np.split(np.array(row["z"], float), 2, axis=1) for row in own]
        z = [np.concatenate([half[k].ravel() for half in halves]) for k in (0, 1)]
        found[kind] = [100 * np.mean(np.abs(one[np.isfinite(one)]) < WITHIN) for one in z]
    return found


if __name__ == "__main__":
    main()
