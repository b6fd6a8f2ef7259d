"""What the control variates of GAM and GadMALA gain: a table of docs/estimates_results.md.

    python examples/benchmarks/walk_controls.py      some minutes

Runs of four chains from dispersed starts, with 1000 draws of tuning and 1000 after it, of ten
transitions each with GAM, and of one with GadMALA. A quantity's gain is the variance over the runs
of its mean over the draws, over that of its corrected average. Quantities are each x_k, x_k² and
whether x_k is below its median, on the unconstrained scale. Each row is added to walk_controls.json
as it ends; what is in there is not run again.
"""

from itertools import product
from pathlib import Path

import numpy as np
from dispersed import quiet
from evaluations import CHAINS, Problem
from pages import load, save, when_and_where, write

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
DRAWS, RUNS = 1000, 16
EACH = {"GAM": 10, "GadMALA": 1}
CASES = {
    "AR5": "AR(5)",
    "log regression": "log regression",
    "26 coefficients": "26 coefficients",
    "schools": "eight schools, non-centred",
    "GARCH": "GARCH(1,1)",
    "banana": "banana, B = 0.03",
}
KINDS = ("means", "mean squares", "probabilities")


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["sampler"], row["case"]) for row in rows}
    for sampler, name in product(EACH, CASES):
        if (sampler, name) not in done:
            found = measured(sampler, Problem(name))
            rows.append({"sampler": sampler, "case": name} | found | when_and_where())
            print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def measured(sampler, problem):
    """Return gains of all quantities by kind, and the root mean square of error / standard error.

    Errors are those from the mean over the runs.
    """
    options = {"control_variates": True, "steps_per_draw": EACH[sampler]}
    step = getattr(pk, sampler)(model=problem.model, **options)
    medians = None

    def quantities(variables):
        x = problem.coordinates(variables)
        return np.concatenate([x, (x - medians) ** 2, x < medians], axis=2)

    plain, corrected, errors = [], [], []
    for seed in range(RUNS):
        with quiet():
            dt = pk.sample(
                DRAWS,
                tune=DRAWS,
                step=step,
                model=problem.model,
                chains=CHAINS,
                initvals=problem.initvals(seed),
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
                idata_kwargs={"include_transformed": True},
            )
            if medians is None:
                medians = np.median(problem.coordinates(dt["posterior"]), axis=(0, 1))
            found = pk.expectation(dt, quantities)
        plain.append(pk.expectation(dt["posterior"], quantities).mean)
        corrected.append(found.mean)
        errors.append(found.mcse)
    gains = np.var(plain, axis=0) / np.var(corrected, axis=0)
    z = (corrected - np.mean(corrected, axis=0)) / np.array(errors)
    by_kind = zip(KINDS, np.split(gains.round(2), 3), strict=True)
    return {"d": problem.d} | {kind: own.tolist() for kind, own in by_kind} | {"z": rms(z)}


def rms(z):
    """Return the root mean square."""
    return round(float(np.sqrt(np.mean(z**2))), 2)


def tables(rows):
    """Return the table of the page: the least and the median gain over the coordinates."""
    heads = [f"{kind}, least | median" for kind in KINDS]
    lines = [f"| | case | d | {' | '.join(heads)} | z |", "|---" * (4 + 2 * len(KINDS)) + "|"]
    first = {row["sampler"]: row["case"] for row in reversed(rows)}
    for row in rows:
        sampler = row["sampler"] if row["case"] == first[row["sampler"]] else ""
        cells = [f"{of(row[kind]):.2g}" for kind in KINDS for of in (np.min, np.median)]
        cells = [CASES[row["case"]], row["d"], *cells, row["z"]]
        lines.append(f"| {sampler} | {' | '.join(map(str, cells))} |")
    return {"estimates_results.md": {"gains of control variates": lines}}


if __name__ == "__main__":
    main()
