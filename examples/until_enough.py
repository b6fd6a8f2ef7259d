"""Draw until the effective sample size is enough: ``pk.sample(resume=...)``, through a file.

A logistic growth curve with ten parameters of three batches, which correlate, and a cheap
likelihood. The first run tunes and saves its result. Then, as another program or on another day,
the chains go on from the file with what they have learned, until the least bulk ESS is reached.

    python until_enough.py [--draws N] [--tune N] [--ess N] [--file FILE]
"""

import argparse
import logging
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import xarray as xr

import pymc_kameleon as pk

BATCHES = ["A", "B", "C"]
MOST_RUNS = 20
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


def least_ess(dt):
    """Return the least bulk ESS of all parameters."""
    return float(min(values.min() for values in az.ess(dt).values()))


def main(arguments=None):
    """Tune and save; load and go on."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="draws of each chain at a time")
    parser.add_argument("--tune", type=int, default=3000, help="draws of tuning")
    parser.add_argument("--ess", type=int, default=5000, help="least bulk ESS")
    parser.add_argument("--file", type=Path, default="until_enough.nc", help="file of the result")
    options = parser.parse_args(arguments)
    logging.getLogger("pymc_kameleon").setLevel(logging.WARNING)

    with build_model():
        dt = pk.sample(options.draws, tune=options.tune, step=pk.GAM(), random_seed=1)
    dt.to_netcdf(options.file)
    print(f"tuned, and drew {dt.posterior.sizes['draw']}: ESS {least_ess(dt):.0f}; saved")

    with build_model():
        dt = xr.load_datatree(options.file)
        for _ in range(MOST_RUNS):
            if least_ess(dt) >= options.ess:
                break
            dt = pk.sample(options.draws, resume=dt)
            print(f"{dt.posterior.sizes['draw']} draws: ESS {least_ess(dt):.0f}")
        else:
            print(f"Not enough after {MOST_RUNS} runs: look at R-hat, and tune longer.")
    print(az.summary(dt, var_names=["size", "fastest growth", "noise"]))


if __name__ == "__main__":
    main()
