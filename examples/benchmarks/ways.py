"""How many evaluations chains take to the posterior: a sentence of docs/adaptation.md.

    python examples/benchmarks/ways.py [--seeds 2]

Four chains with default arguments from jittered starts, on each of the posteriors of posteriors.py.
Counted is what the first draw of tuning took, less its own transitions. GAM stands for the samplers
whose chains go alone; chains of SurrogateMetropolis, told that evaluations are expensive, follow
the first one. What was run is in ways.json, and is not run again.
"""

import argparse
from functools import partial
from pathlib import Path

from dispersed import quiet
from pages import load, measured
from posteriors import POSTERIORS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
SAMPLERS = "GAM", "SurrogateMetropolis"
TUNE, MOST_BY_PROCESS = 200, 14


def plan(seeds):
    """Yield what each row is of, and how it is measured."""
    for name in POSTERIORS:
        for sampler in SAMPLERS:
            for seed in range(seeds):
                what = {"posterior": name, "sampler": sampler, "seed": seed}
                yield what, partial(run, **what)


def run(posterior, sampler, seed):
    """Return the evaluations of each chain before its transitions."""
    options = {"expensive": True} if sampler == "SurrogateMetropolis" else {}
    with POSTERIORS[posterior](), quiet():
        step = getattr(pk, sampler)(**options)
        dt = pk.sample(1, tune=TUNE, step=step, cores=1, random_seed=seed, progressbar=False)
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


def main():
    """Run what is not in the file yet."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    measured(FILE, plan(parser.parse_args().seeds))
    for kind, ways in per_parameter(load(FILE)).items():
        print(f"{kind}: {min(ways):.1f} to {max(ways):.1f}")


if __name__ == "__main__":
    main()
