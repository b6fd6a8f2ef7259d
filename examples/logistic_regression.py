"""GadMALA on a logistic regression whose predictors have raw, very different scales.

    python examples/logistic_regression.py [--draws 1000] [--tune 1000]

Prints, for GadMALA and NUTS, the seconds, R-hat, and the least effective sample sizes of the
coefficients and of their squares.
"""

import argparse
import logging
import time

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk


def regression():
    """Build the model: 500 observations, 25 correlated predictors of scales 0.01 … 100."""
    rng = np.random.default_rng(1)
    n, d = 500, 25
    predictors = rng.normal(size=(n, 1)) + 0.5 * rng.normal(size=(n, d))
    y = rng.random(n) < 1 / (1 + np.exp(-predictors @ rng.normal(0, 0.5, d)))
    scales = np.geomspace(0.01, 100, d)
    with pm.Model() as model:
        intercept = pm.Normal("intercept", 0, 5)
        slope = pm.Normal("slope", 0, 1 / scales, shape=d)
        logit = intercept + pm.math.dot(predictors * scales, slope)
        pm.Bernoulli("y", logit_p=logit, observed=y)
    return model


def least_ess(posterior):
    """Return the least bulk ESS over all coordinates."""
    return min(float(values.min()) for values in az.ess(posterior).data_vars.values())


def main():
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000)
    parser.add_argument("--tune", type=int, default=1000)
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)

    print(f"{'':<10}{'seconds':>9}{'R-hat':>8}{'ESS of x':>10}{'of x²':>8}")
    with regression():
        for name, step in [("GadMALA", pk.GadMALA()), ("NUTS", pm.NUTS())]:
            start = time.perf_counter()
            dt = pm.sample(
                step=step,
                draws=options.draws,
                tune=options.tune,
                initvals=pk.initvals(4, random_seed=1),
                chains=4,
                random_seed=1,
                progressbar=False,
            )
            seconds = time.perf_counter() - start
            x = dt["posterior"].to_dataset()
            r_hat = max(float(values.max()) for values in az.rhat(x).data_vars.values())
            squares = (x - x.mean(("chain", "draw"))) ** 2
            row = f"{seconds:>9.1f}{r_hat:>8.3f}{least_ess(x):>10.0f}{least_ess(squares):>8.0f}"
            print(f"{name:<10}{row}", flush=True)


if __name__ == "__main__":
    main()
