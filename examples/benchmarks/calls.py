"""Calls of the solver until ESS and R-hat are good: a table of docs/surrogate_results.md.

    python examples/benchmarks/calls.py    some two minutes

The model of examples/quickstart.py with a solver that is compiled, and so takes microseconds;
`pk.sample` with `target_ess=400`, four chains, three seeds.
"""

from functools import cache
from pathlib import Path

from benchmark import each, evaluations, grouped, main, sample, span, step_of, table
from problems import hare_lynx_twin

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = {"SurrogateMetropolis": {"expensive": True}, "GAM": {}, "KAM": {}}
TUNE = 250, 500, 1000, 2000

problem = cache(hare_lynx_twin)


def plan(options):
    """Return what is to be run."""
    return each(run, sampler=SAMPLERS, tune=TUNE, seed=range(1, 1 + options.seeds))


def run(sampler, tune, seed):
    """Return the evaluations of all chains, and the draws of each after tuning."""
    starts = problem().initvals(seed)
    step = step_of(sampler, problem().model, **SAMPLERS[sampler])
    dt = sample(step, target_ess=400, tune=tune, initvals=starts, random_seed=seed)
    return {"calls": int(evaluations(dt)[:, -1].sum()), "draws": dt.posterior.sizes["draw"]}


def tables(rows):
    """Return the table of the page."""
    found = grouped(rows, "tune", "sampler")
    lines = [
        [tune, *(span([row["calls"] for row in found[tune, name]]) for name in SAMPLERS)]
        for tune in TUNE
    ]
    return {"surrogate_results.md": {"calls": table(["draws of tuning", *SAMPLERS], lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=3)
