"""Draw until the effective sample size is enough, or the time is up; go on if it was not.

A logistic growth curve with ten parameters of three batches, which correlate, and a cheap
likelihood. Draws go to a Zarr store while the chains run, so that what a process has drawn until it
ends, or is killed, is not lost. Started again, as another program or on another day, the chains go
on from the store.

    python until_enough.py [--ess N] [--seconds N] [--tune N] [--store PATH]
"""

import argparse
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk

BATCHES = ["A", "B", "C"]
TIMES = np.linspace(0, 10, 25)


def build_model():
    """Return logistic growth of three batches, each with a size, a rate and a midpoint."""
    rng = np.random.default_rng(7)
    truth = np.array([[8.0, 10.0, 13.0], [0.9, 1.1, 0.7], [4.0, 5.0, 6.0]])
    growth = truth[0] / (1 + np.exp(-truth[1] * (TIMES[:, None] - truth[2])))
    with pm.Model(coords={"batch": BATCHES, "time": TIMES}) as model:
        size = pm.HalfNormal("size", 20, dims="batch")
        rate = pm.HalfNormal("rate", 2, dims="batch")
        midpoint = pm.Normal("midpoint", 5, 3, dims="batch")
        noise = pm.HalfNormal("noise", 1)
        mean = size / (1 + pm.math.exp(-rate * (TIMES[:, None] - midpoint)))
        data = growth + rng.normal(0, 0.5, growth.shape)
        pm.Normal("y", mean, noise, observed=data, dims=("time", "batch"))
        pm.Deterministic("fastest growth", size * rate / 4, dims="batch")
    return model


def main(arguments=None):
    """Begin, or go on with a store that exists."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ess", type=int, default=5000, help="bulk and tail ESS of each parameter")
    parser.add_argument("--seconds", type=float, default=600, help="time for all, tuning included")
    parser.add_argument("--tune", type=int, default=3000, help="draws of tuning")
    parser.add_argument("--store", type=Path, default="until_enough.zarr", help="where draws go")
    options = parser.parse_args(arguments)

    limits = {"target_ess": options.ess, "max_time": options.seconds}
    with build_model():
        if options.store.exists():
            dt = pk.resume(options.store, **limits)
        else:
            step = pk.GAM()
            dt = pk.sample(
                tune=options.tune, step=step, random_seed=1, store=options.store, **limits
            )
    print(f"{dt.posterior.sizes['draw']} draws of each chain")
    print(az.summary(dt, var_names=["size", "fastest growth", "noise"]))


if __name__ == "__main__":
    main()
