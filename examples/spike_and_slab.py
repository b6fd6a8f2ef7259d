"""CMTM on a regression with a spike-and-slab prior, which says what predictors matter.

    python examples/spike_and_slab.py [--draws 2000] [--tune 2000]

Each slope is near 0 (the spike, sd 0.02) or free (the slab, sd 2), so its conditional density is
narrow here and wider there. Prints how often each slope is free by CMTM and by NUTS, with the
effective sample size of that and the seconds it took.
"""

import argparse
import logging
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk

TRUTH = np.array([1.5, 0.12, 0, 0, -0.9, 0, 0.1, 0])
EDGE = 0.06
"""Farther from 0 than this, a coefficient counts as free."""


def regression():
    """Build the model: 60 observations, 8 predictors."""
    rng = np.random.default_rng(1)
    predictors = rng.normal(size=(60, TRUTH.size))
    y = predictors @ TRUTH + 0.5 * rng.normal(size=60)
    with pm.Model() as model:
        slope = pm.NormalMixture("slope", [0.5, 0.5], 0, sigma=[0.02, 2], shape=TRUTH.size)
        noise = pm.HalfNormal("noise", 1)
        pm.Normal("y", pm.math.dot(predictors, slope), noise, observed=y)
    return model


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--tune", type=int, default=2000)
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)

    with regression():
        common = {
            "draws": options.draws,
            "tune": options.tune,
            "initvals": pk.initvals(4, random_seed=1),
            "chains": 4,
            "random_seed": 1,
            "progressbar": False,
        }
        print(f"{'slope':<28}" + "".join(f"{value:>7g}" for value in TRUTH))
        for name, step in [("CMTM", pk.CMTM()), ("NUTS", pm.NUTS())]:
            start = time.perf_counter()
            dt = pm.sample(step=step, **common)
            seconds = time.perf_counter() - start
            free = (np.abs(dt["posterior"]["slope"]) > EDGE).astype(float)
            ess = az.ess(free.to_dataset(name="free"), method="mean")["free"]
            row(f"{name}: probability to be free", free.mean(("chain", "draw")), ".2f")
            row(f"{name}: its ESS ({seconds:.0f} s)", ess, ".0f")


def row(label, values, form):
    """Print a line of the table."""
    print(f"{label:<28}" + "".join(f"{value:>7{form}}" for value in values.values))


if __name__ == "__main__":
    main()
