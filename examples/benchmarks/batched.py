"""Many chains of a simulator whose calls take as long whatever they compute: one by one, together.

    python examples/benchmarks/batched.py [--chains N] [--draws N] [--call SECONDS]

The simulator sleeps. Steps are made, and all is compiled, before the clock starts.
"""

import argparse
import logging
from time import perf_counter, process_time, sleep

import numpy as np
import pymc as pm
import pytensor.tensor as pt

import pymc_kameleon as pk

DAYS = np.linspace(0.5, 10, 10)
STEPS = {
    "GAM": {"steps_per_draw": 1},
    "SurrogateMetropolis": {},
    "EmulatorMetropolis": {},
}
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def main():
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--chains", type=int, default=64)
    parser.add_argument("--draws", type=int, default=50, help="of a chain, and of its tuning")
    parser.add_argument("--call", type=float, default=0.01, help="seconds that a call takes")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    model, sizes = build_model(options.call)
    for name, own in STEPS.items():
        step = getattr(pk, name)(model=model, **own)
        pk.sample(1, tune=1, chains=2, step=step, model=model, **QUIET)
        took = []
        for cores in (1, options.chains):
            sizes.clear()
            begun, worked = perf_counter(), process_time()
            pk.sample(
                options.draws,
                tune=options.draws,
                chains=options.chains,
                max_concurrent=options.chains,
                cores=cores,
                step=step,
                model=model,
                **QUIET,
            )
            took.append(perf_counter() - begun)
            print(
                f"{name}, {cores} at a time: {sum(sizes)} evaluations by {len(sizes)} calls took "
                f"{took[-1]:.1f} s, {process_time() - worked:.1f} s of them of processor",
                flush=True,
            )
        print(f"  one by one over together: {took[0] / took[1]:.1f}", flush=True)


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
    main()
