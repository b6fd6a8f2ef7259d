"""Customers who buy now and then: PyMC-Marketing's Pareto/NBD and BG/NBD models, by pk.sample().

Its documentation fits the Pareto/NBD model by `method="demz"`, without gradients, as NUTS is slow
on it. Here only the sampler changes. Customers are made here, as its own are downloaded.

    python pymc_marketing_model.py [--model ParetoNBDModel] [--draws N] [--tune N]
"""

import argparse
import sys
from importlib.util import find_spec

import numpy as np
import pandas as pd
import pymc as pm

import pymc_kameleon as pk

CUSTOMERS, WEEKS = 200, 39

TRUTH = {
    "ParetoNBDModel": {"r": 0.55, "alpha": 10.6, "s": 0.61, "beta": 11.7},
    "BetaGeoModel": {"r": 0.243, "alpha": 4.41, "a": 0.793, "b": 2.426},
}
"""About what the customers of CDNOW have, in the papers on both models."""


def customers(name):
    """Return how often each bought again, when last, and how long it has been known, in weeks."""
    from pymc_marketing.clv.distributions import BetaGeoNBD, ParetoNBD

    age = WEEKS - np.random.default_rng(1).uniform(0, 12, CUSTOMERS)
    kind = {"ParetoNBDModel": ParetoNBD, "BetaGeoModel": BetaGeoNBD}[name]
    bought = pm.draw(kind.dist(**TRUTH[name], T=age), random_seed=1)
    columns = {"recency": bought[:, 0], "frequency": bought[:, 1], "T": age}
    return pd.DataFrame({"customer_id": np.arange(CUSTOMERS)} | columns)


def main(arguments=None):
    """Sample, and let the package predict from the draws."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", choices=TRUTH, default="ParetoNBDModel")
    parser.add_argument("--draws", type=int, default=1000, help="draws of each chain")
    parser.add_argument("--tune", type=int, default=1000, help="draws of tuning before them")
    options = parser.parse_args(arguments)
    if find_spec("pymc_marketing") is None:
        sys.exit("PyMC-Marketing is not installed: pip install pymc-marketing")
    from pymc_marketing import clv

    data = customers(options.model)
    model = getattr(clv, options.model)()
    model.build_model(data)
    with model.model:
        dt = pk.sample(options.draws, tune=options.tune, random_seed=1)
        print(pk.summary(dt, var_names=list(TRUTH[options.model])))
    model.idata = dt
    alive = model.expected_probability_alive(data).mean(("chain", "draw"))
    print(f"{alive.mean().item():.0%} of the customers may come again.")


if __name__ == "__main__":
    main()
