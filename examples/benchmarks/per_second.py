"""Effective draws per second where evaluations are cheap, beside nutpie.

    python examples/benchmarks/per_second.py    some three minutes

Writes a table of docs/surrogate_results.md: least bulk ESS of x and x², on the unconstrained scale,
per second of the processor in a run of four chains with default arguments, tuning included and
compilation not; median of three seeds. It needs nutpie (pip install nutpie).
"""

import time
from functools import cache, partial
from pathlib import Path
from statistics import median

import benchmark
from problems import NAMES, problem_of

FILE = Path(__file__).with_suffix(".json")
CASES = ("AR5", "interaction", "log regression", "flat priors", "precise", "GARCH")
"""Those that are nearly normal."""
DRAWS, SEEDS = 5000, (1, 2, 3)


def plan(options):
    """Return what is to be run."""
    return benchmark.each(rate, case=CASES, sampler=SAMPLERS)


def rate(case, sampler):
    """Return d, and the median ESS per second of a sampler's runs."""
    problem, rates, run = problem_of(case), [], SAMPLERS[sampler]
    run(problem, 0)  # compiles what is compiled once
    for seed in SEEDS:
        began = time.process_time()
        dt = run(problem, seed)
        seconds = time.process_time() - began
        rates.append(benchmark.least_ess(benchmark.with_squares(draws(problem, dt))) / seconds)
    return {"d": problem.d, "ess_per_second": round(median(rates), 1)}


def ours(name, problem, seed):
    """Sample by pk.sample."""
    return benchmark.sample(benchmark.step_of(name, problem.model), DRAWS, random_seed=seed)


def theirs(adaptation, problem, seed):
    """Sample by nutpie."""
    own = {"draws": DRAWS, "seed": seed, "store_unconstrained": True}
    return benchmark.sample_by_nutpie(compiled(problem), adaptation, **own)


@cache
def compiled(problem):
    """Return a model as nutpie compiles it, once."""
    import nutpie

    return nutpie.compile_pymc_model(problem.model)


def draws(problem, dt):
    """Return the draws (chains, n, d) on the unconstrained scale."""
    if "unconstrained_draw" in dt["sample_stats"]:
        return dt["sample_stats"]["unconstrained_draw"].values
    return problem.coordinates(dt["posterior"])


SAMPLERS = {
    "SurrogateMetropolis": partial(ours, "SurrogateMetropolis"),
    "GAM": partial(ours, "GAM"),
    "nutpie, diagonal": partial(theirs, "diag"),
    "nutpie, low rank": partial(theirs, "low_rank"),
}


def tables(rows):
    """Return the table of the page."""
    found, lines = benchmark.grouped(rows, "case", "sampler"), []
    for case in CASES:
        own = [found[case, sampler][0] for sampler in SAMPLERS]
        rates = [benchmark.three_digits(row["ess_per_second"]) for row in own]
        lines.append([NAMES.get(case, case), own[0]["d"], *rates])
    titles = ["posterior", "d", *SAMPLERS]
    return {"surrogate_results.md": {"effective draws per second": benchmark.table(titles, lines)}}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables)
