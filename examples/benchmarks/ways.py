"""How many evaluations chains take to the posterior: sentences of docs/adaptation.md.

    python examples/benchmarks/ways.py [--seeds 2]

Four chains with default arguments from jittered starts, on each of the posteriors of posteriors.py.
Counted is what the first draw of tuning took, less its own transitions. GAM stands for the samplers
whose chains go alone; chains of SurrogateMetropolis, told that evaluations are expensive, follow
the first one. docs/quoted.py writes the numbers.

    python examples/benchmarks/ways.py --home [--seeds 5]

prints instead how many evaluations over d chains of GAM take on regressions until the last one is
in the typical set.
"""

from pathlib import Path

import numpy as np
from benchmark import each, evaluations, main, sample, sampler_class
from posteriors import POSTERIORS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = "GAM", "SurrogateMetropolis"
TUNE, MOST_BY_PROCESS = 200, 14
REGRESSIONS = "regression 5", "regression 10", "correlated"


def plan(options):
    """Return what is to be run."""
    if options.home:
        options.json = None
        return each(home, case=REGRESSIONS, sampler=["GAM"], seeds=[options.seeds])
    return each(run, case=POSTERIORS, sampler=SAMPLERS, seed=range(options.seeds))


def run(case, sampler, seed):
    """Return the evaluations of each chain before its transitions."""
    options = {"expensive": True} if sampler == "SurrogateMetropolis" else {}
    step = sampler_class(sampler)(model=POSTERIORS[case](), **options)
    dt = sample(step, 1, tune=TUNE, random_seed=seed)
    first = dt["warmup_sample_stats"]["n_logp"].values[:, 0]
    return {"d": step.layout.d, "way": (first - step.steps_per_draw).tolist()}


def per_parameter(rows):
    """Return evaluations per parameter of chains that go alone, of first ones, and of followers.

    First ones of SurrogateMetropolis with few parameters, whose way a process makes, are not among
    them.
    """
    found = {"alone": [], "first": [], "followers": []}
    for row in rows:
        ways = [n / row["d"] for n in row["way"]]
        if row["sampler"] == "GAM":
            found["alone"] += ways
        else:
            found["followers"] += ways[1:]
            if row["d"] > MOST_BY_PROCESS:
                found["first"].append(ways[0])
    return found


def home(case, sampler, seeds):
    """Return the median and the largest evaluations over d until the last chain is there."""
    model = POSTERIORS[case]()
    known = sample(pk.GadMALA(model=model), 10_000, tune=3000, random_seed=0)
    threshold = np.quantile(known["sample_stats"]["lp"], 0.01)
    step = sampler_class(sampler)(model=model)
    runs = [sample(step, 10, random_seed=seed) for seed in range(seeds)]
    last = [max(ways_home(dt, threshold)) / step.layout.d for dt in runs]
    return {"median": np.median(last), "worst": max(last)}


def ways_home(dt, threshold, n=10):
    """Return for each chain the evaluations up to the first of n draws all but one above it.

    A chain that is home is below the 1 % quantile at times, too. A chain that never is has inf.
    """
    high = dt["warmup_sample_stats"]["lp"].values > threshold
    ways = []
    for above, count in zip(high, evaluations(dt), strict=True):
        first = np.convolve(above, np.ones(n), "valid") >= n - 1
        first &= above[: first.size]
        ways.append(count[first.argmax()] if first.any() else np.inf)
    return ways


if __name__ == "__main__":
    main(
        FILE,
        plan,
        seeds=2,
        add_options=lambda parser: parser.add_argument("--home", action="store_true"),
    )
