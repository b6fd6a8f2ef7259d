"""What default arguments of pk.sample give from jittered starts: a table of docs/adaptation.md.

    python examples/benchmarks/starts.py    some four minutes

GAM and KAM on the posteriors of posteriors.py, two runs each.
"""

from functools import lru_cache
from pathlib import Path

import benchmark
from posteriors import POSTERIORS

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = ("GAM", "KAM")


def plan(options):
    """Return what is to be run."""
    return benchmark.each(run, case=POSTERIORS, sampler=SAMPLERS, seed=range(options.seeds))


@lru_cache(1)
def model_of(case):
    """Return the model of a case."""
    return POSTERIORS[case]()


def run(case, sampler, seed):
    """Return R-hat and ESS of all x and their squares about the mean."""
    step = benchmark.step_of(sampler, model_of(case))
    x = benchmark.with_squares(
        benchmark.parameters(step.model, benchmark.sample(step, 1000, random_seed=seed))
    )
    return {
        "d": step.layout.d,
        "rhat": round(benchmark.largest_rhat(x), 4),
        "ess": round(benchmark.least_ess(x)),
    }


def tables(rows):
    """Return the table of the page: of both runs the largest R-hat and the least ESS."""
    found, lines = benchmark.grouped(rows, "case", "sampler"), []
    for case in POSTERIORS:
        lines.append([case, found[case, SAMPLERS[0]][0]["d"]])
        for sampler in SAMPLERS:
            own = found[case, sampler]
            lines[-1].append(f"{max(row['rhat'] for row in own):.3f}")
            lines[-1].append(benchmark.spaced(min(row["ess"] for row in own)))
    titles = ["posterior", "d", *(f"{name}: R-hat | ESS" for name in SAMPLERS)]
    return {"adaptation.md": {"jittered starts": benchmark.table(titles, lines)}}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=2)
