"""How many evaluations chains take to the posterior: sentences of docs/adaptation.md.

    python examples/benchmarks/ways.py [--seeds 2]

Four chains with default arguments from jittered starts, on each of the posteriors of posteriors.py.
Counted is what the first draw of tuning took without a look and its own transitions. Chains of GAM
go alone, those of SurrogateMetropolis follow the first one. docs/quoted.py writes the numbers.
"""

from pathlib import Path
from unittest import mock

from benchmark import each, main, sample, sampler_class
from posteriors import POSTERIORS

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = "GAM", "SurrogateMetropolis"
TUNE, MOST_BY_PROCESS = 200, 14


def plan(options):
    """Return what is to be run."""
    return each(run, case=POSTERIORS, sampler=SAMPLERS, seed=range(options.seeds))


def run(case, sampler, seed):
    """Return the evaluations of each chain before its transitions."""
    step = sampler_class(sampler)(model=POSTERIORS[case]())
    with mock.patch.object(type(step.search), "may_look", False):
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


if __name__ == "__main__":
    main(FILE, plan, seeds=2)
