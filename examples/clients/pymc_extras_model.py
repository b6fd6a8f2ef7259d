"""A state-space model of pymc-extras, whose log-density is a Kalman filter, by pk.sample().

An autoregression of order 2, as in its documentation of SARIMAX, on data made here: only the
sampler changes. The filter is a loop over times, and its gradient another one.

    python pymc_extras_model.py [--draws N] [--tune N]
"""

import argparse
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pymc as pm

import pymc_kameleon as pk

TIMES, COEFFICIENTS, NOISE = 60, (0.6, -0.3), 0.5


def series():
    """Return months of an autoregression."""
    rng, y = np.random.default_rng(2), np.zeros(TIMES + 50)
    for t in range(2, len(y)):
        y[t] = np.dot(COEFFICIENTS, y[t - 2 : t][::-1]) + rng.normal(0, NOISE)
    months = pd.date_range("2020-01-01", periods=TIMES, freq="MS")
    return pd.DataFrame({"y": y[50:]}, index=months)


def main(arguments=None):
    """Sample, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=1000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=1000, help="draws of tuning before them")
    options = parser.parse_args(arguments)
    if find_spec("pymc_extras") is None:
        sys.exit("pymc-extras is not installed: pip install pymc-extras")
    from pymc_extras.statespace import BayesianSARIMAX

    space = BayesianSARIMAX(order=(2, 0, 0), stationary_initialization=True, verbose=False)
    with pm.Model(coords=space.coords):
        pm.Normal("ar_params", 0, 0.5, dims=space.param_dims["ar_params"])
        pm.HalfNormal("sigma_state", 1)
        space.build_statespace_graph(series())
        dt = pk.sample(options.draws, tune=options.tune, random_seed=1)
        print(pk.summary(dt, var_names=["ar_params", "sigma_state"]))


if __name__ == "__main__":
    main()
