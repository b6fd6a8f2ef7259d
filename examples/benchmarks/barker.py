"""Barker beside GAM and GadMALA: the tables of docs/barker.md.

    python examples/benchmarks/barker.py    some three minutes

Four chains from dispersed starts, three seeds, one transition per draw: 5000 transitions of tuning,
and then as many as take 20 000 evaluations of the log-density. Each run is added to barker.json as
it ends; what is in there is not run again.
"""

import logging
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from dispersed import quiet
from evaluations import CASES, Case, Problem, both
from pages import load, save, spaced, when_and_where, write
from posteriors import POSTERIORS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = ("GAM", "Barker", "GadMALA")
SEEDS = (1, 2, 3)
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


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["target"], row["sampler"]) for row in rows}
    for target, case in TARGETS.items():
        problem = Problem(target, case)
        for sampler in SAMPLERS:
            if (target, sampler) in done:
                continue
            step = getattr(pk, sampler)(model=problem.model, steps_per_draw=1)
            for seed in SEEDS:
                row = {"target": target, "d": problem.d, "sampler": sampler, "seed": seed}
                rows.append(row | run(problem, step, seed) | when_and_where())
                print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def run(problem, step, seed):
    """Return least bulk ESS and largest R-hat of all x and x²."""
    with quiet(logging.WARNING):
        dt = pk.sample(
            EVALUATIONS,
            tune=TUNE,
            chains=4,
            cores=1,
            step=step,
            model=problem.model,
            random_seed=seed,
            compute_convergence_checks=False,
            progressbar=False,
            idata_kwargs={"include_transformed": True},
        )
    evaluations = dt["sample_stats"]["n_logp"].values.cumsum(axis=1)
    n = int((evaluations <= EVALUATIONS).sum(axis=1).min())
    x = both(problem.coordinates(dt["posterior"]))[:, :n]
    tree = az.convert_to_datatree({"x": x})
    return {
        "draws": n,
        "ess": round(float(az.ess(tree)["x"].min())),
        "rhat": round(float(az.rhat(tree)["x"].max()), 4),
    }


def tables(rows):
    """Return the tables of the page: least ESS of all seeds to the largest, and worst R-hat."""
    head = [f"| posterior | d | {' | '.join(SAMPLERS)} |", "|---" * (2 + len(SAMPLERS)) + "|"]
    least, worst = list(head), list(head)
    for target in TARGETS:
        own = [row for row in rows if row["target"] == target]
        by_sampler = [[row for row in own if row["sampler"] == name] for name in SAMPLERS]
        ess = [sorted(row["ess"] for row in some) for some in by_sampler]
        rhat = [max(row["rhat"] for row in some) for some in by_sampler]
        begin = f"| {target} | {own[0]['d']} | "
        least.append(begin + " | ".join(f"{spaced(e[0])} to {spaced(e[-1])}" for e in ess) + " |")
        worst.append(begin + " | ".join(f"{value:.3f}" for value in rhat) + " |")
    return {"barker.md": {"least ESS": least, "worst R-hat": worst}}


if __name__ == "__main__":
    main()
