"""Many chains of a simulator whose calls take as long whatever they compute: one by one, together.

    python examples/benchmarks/batched.py [--chains N] [--draws N] [--call SECONDS]

The simulator sleeps. Steps are made, and all is compiled, before the clock starts. Nothing is kept:
docs/black_boxes.md has the ratios typed.
"""

from functools import cache, partial
from time import perf_counter, process_time, sleep

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, main, sample, sampler_class

import pymc_kameleon as pk

DAYS = np.linspace(0.5, 10, 10)
SAMPLERS = {"GAM": {"steps_per_draw": 1}, "SurrogateMetropolis": {}, "EmulatorMetropolis": {}}


def plan(options):
    """Yield what is to be run."""
    for what, measure in each(run, sampler=SAMPLERS):
        yield what, partial(measure, options=options)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--draws", type=int, default=50, help="of a chain, and of its tuning")
    parser.add_argument("--call", type=float, default=0.01, help="seconds that a call takes")


def run(sampler, options=None):
    """Return the seconds one by one and together, of the clock and of the processor, and calls."""
    model, sizes = build_model(options.call)
    step = sampler_class(sampler)(model=model, **SAMPLERS[sampler])
    sample(step, 1, tune=1, chains=2, random_seed=1)
    n, row = options.chains, {}
    for cores in (1, n):
        sizes.clear()
        begun, worked = perf_counter(), process_time()
        sample(
            step,
            options.draws,
            tune=options.draws,
            chains=n,
            max_concurrent=n,
            cores=cores,
            random_seed=1,
        )
        found = {"seconds": perf_counter() - begun, "of processor": process_time() - worked}
        found |= {"evaluations": sum(sizes), "calls": len(sizes)}
        row |= {f"{key}, {cores} at a time": value for key, value in found.items()}
    ratio = row["seconds, 1 at a time"] / row[f"seconds, {n} at a time"]
    return row | {"one by one over together": round(ratio, 1)}


@cache
def build_model(seconds):
    """Return a model of logistic growth, and a list of how much each call has computed."""
    sizes = []

    @pk.black_box(batched=True)
    def growth(theta):
        sizes.append(len(theta))
        sleep(seconds)
        rate, capacity = theta.T[:, :, None]
        return capacity / (1 + (capacity - 1) * np.exp(-rate * DAYS))

    noise = np.random.default_rng(0).normal(0, 0.1, DAYS.size)
    observed = growth.function(np.array([[0.8, 50.0]]))[0] * np.exp(noise)
    with pm.Model() as model:
        theta = pm.LogNormal("theta", [0, 3], 1, shape=2)
        pm.LogNormal("size", pt.log(growth(theta)), 0.1, observed=observed)
    return model, sizes


if __name__ == "__main__":
    main(None, plan, add_options=add_options)
