"""Effective draws per second where evaluations are cheap, beside nutpie.

    python examples/benchmarks/per_second.py    some three minutes

Writes a table of docs/surrogate_results.md: least bulk ESS of x and x², on the unconstrained scale,
per second of the processor in a run of four chains with default arguments, tuning included and
compilation not; median of three seeds. It needs nutpie (pip install nutpie). Each row is added to
per_second.json as it ends; what is in there is not run again.
"""

import time
from functools import cache, partial
from pathlib import Path
from statistics import median

import arviz as az
from dispersed import quiet, with_squares
from evaluations import NAMES, Problem
from pages import measured, table, three_digits, write

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
CASES = ("AR5", "interaction", "log regression", "flat priors", "precise", "GARCH")
"""Those that are nearly normal."""
DRAWS, SEEDS = 5000, (1, 2, 3)
RUN = {"chains": 4, "cores": 1}


def main():
    """Run what is not in the file yet, and write the page."""
    write(tables(measured(FILE, plan())))


def plan():
    """Return what is measured, and how."""
    for case in CASES:
        for sampler, run in SAMPLERS.items():
            yield {"case": case, "sampler": sampler}, partial(rate, case, run)


def rate(case, run):
    """Return d, and the median ESS per second of run(problem, seed)."""
    problem, rates = problem_of(case), []
    run(problem, 0)  # compiles what is compiled once
    for seed in SEEDS:
        began = time.process_time()
        dt = run(problem, seed)
        seconds = time.process_time() - began
        rates.append(float(az.ess(with_squares(draws(problem, dt)))["x"].min()) / seconds)
    return {"d": problem.d, "ess_per_second": round(median(rates), 1)}


@cache
def problem_of(case):
    """Return the case, built once."""
    return Problem(case)


def ours(name, problem, seed):
    """Sample by pk.sample."""
    step = step_of(name, problem)
    with quiet():
        return pk.sample(
            DRAWS,
            step=step,
            model=problem.model,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
            idata_kwargs={"include_transformed": True},
            **RUN,
        )


@cache
def step_of(name, problem):
    """Return a step, compiled once."""
    return getattr(pk, name)(model=problem.model)


def theirs(adaptation, problem, seed):
    """Sample by nutpie."""
    import nutpie

    return nutpie.sample(
        compiled(problem),
        draws=DRAWS,
        seed=seed,
        progress_bar=False,
        store_unconstrained=True,
        adaptation=adaptation,
        **RUN,
    )


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
    found = {(row["case"], row["sampler"]): row for row in rows}
    lines = [
        (
            NAMES.get(case, case),
            found[case, "GAM"]["d"],
            *(three_digits(found[case, name]["ess_per_second"]) for name in SAMPLERS),
        )
        for case in CASES
    ]
    titles = ["posterior", "d", *SAMPLERS]
    return {"surrogate_results.md": {"effective draws per second": table(titles, lines)}}


if __name__ == "__main__":
    main()
