"""Calls of the solver until ESS and R-hat are good: a table of docs/surrogate_results.md.

    python examples/benchmarks/calls.py    some two minutes

The model of examples/quickstart.py with a solver that is compiled, and so takes microseconds;
`pk.sample` with `target_ess=400`, four chains, three seeds. Each run is added to calls.json as it
ends; what is in there is not run again.
"""

from pathlib import Path
from unittest import mock

import evaluations
from dispersed import evaluations as counts
from dispersed import quiet
from pages import load, save, spaced, when_and_where, write

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = {
    "SurrogateMetropolis": (pk.SurrogateMetropolis, {"expensive": True}),
    "GAM": (pk.GAM, {}),
    "KAM": (pk.KAM, {}),
}
TUNE, SEEDS = (250, 500, 1000, 2000), (1, 2, 3)


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["sampler"], row["tune"]) for row in rows}
    solver = evaluations.solved_by_runge_kutta
    with mock.patch.object(evaluations.quickstart, "populations", solver):
        problem = evaluations.Problem("hare-lynx 0.1")
    for sampler, (kind, options) in SAMPLERS.items():
        step = kind(model=problem.model, **options)
        for tune in TUNE:
            for seed in SEEDS:
                if (sampler, tune) not in done:
                    row = {"sampler": sampler, "tune": tune, "seed": seed}
                    rows.append(row | run(problem, step, tune, seed) | when_and_where())
                    print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def run(problem, step, tune, seed):
    """Return the evaluations of all chains, and the draws of each after tuning."""
    with quiet():
        dt = pk.sample(
            target_ess=400,
            tune=tune,
            chains=4,
            cores=1,
            step=step,
            model=problem.model,
            initvals=problem.initvals(seed),
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return {"calls": int(counts(dt)[:, -1].sum()), "draws": dt.posterior.sizes["draw"]}


def tables(rows):
    """Return the table of the page."""
    lines = [f"| draws of tuning | {' | '.join(SAMPLERS)} |", "|---" * (1 + len(SAMPLERS)) + "|"]
    for tune in TUNE:
        cells = [str(tune)]
        for sampler in SAMPLERS:
            own = [r["calls"] for r in rows if (r["sampler"], r["tune"]) == (sampler, tune)]
            cells.append(f"{spaced(min(own))} to {spaced(max(own))}")
        lines.append(f"| {' | '.join(cells)} |")
    return {"surrogate_results.md": {"calls": lines}}


if __name__ == "__main__":
    main()
