"""The random walks side by side, on a regression whose predictors correlate.

    python examples/random_walks.py [--output FILE]

Prints the effective sample size of each sampler, and draws where RWM and GAM went in 100 draws.
"""

import argparse
import logging
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm

import pymc_kameleon as pk

OUTPUT = Path(__file__).resolve().parents[1] / "docs" / "images" / "random_walks.png"
SAMPLERS = (pk.baselines.RWM, pk.baselines.AM, pk.baselines.RBAM, pk.GAM)
SEED = 1


def regression():
    """Two predictors that correlate by 0.99; the posterior is a narrow ridge."""
    rng = np.random.default_rng(SEED)
    base = rng.standard_normal((100, 1))
    predictors = base + 0.1 * rng.standard_normal((100, 2))
    y = predictors @ [1.0, 2.0] + rng.standard_normal(100)
    with pm.Model() as model:
        slope = pm.Normal("slope", 0, 10, shape=2)
        noise = pm.HalfNormal("noise", 2)
        pm.Normal("y", (predictors * slope).sum(axis=1), noise, observed=y)
    return model


def main():
    """Print a table and draw a picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--output", default=OUTPUT, help="docs/images/random_walks.png by default")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)

    draws = {}
    print(f"{'sampler':<9}{'acceptance':>10}{'least ESS':>11}{'worst R-hat':>13}")
    with regression():
        for sampler in SAMPLERS:
            dt = pm.sample(
                step=sampler(),
                initvals=pk.initvals(4, random_seed=SEED),
                chains=4,
                random_seed=SEED,
                progressbar=False,
            )
            draws[sampler.__name__] = dt["posterior"]["slope"].values[0]
            summary = az.summary(dt, round_to="none")
            acceptance = float(dt["sample_stats"]["accept_share"].mean())
            print(
                f"{sampler.__name__:<9}{acceptance:>10.2f}{summary['ess_bulk'].min():>11.0f}"
                f"{summary['r_hat'].max():>13.3f}"
            )

    figure, axes = plt.subplots(
        1, 2, figsize=(8, 4), layout="constrained", sharex=True, sharey=True
    )
    for axis, name in zip(axes, ["RWM", "GAM"], strict=True):
        axis.plot(*draws["GAM"].T, ".", color="0.8", markersize=3, label="posterior")
        axis.plot(*draws[name][:100].T, ".-", linewidth=0.6, markersize=4, label="100 draws")
        axis.set(title=name, xlabel="slope[0]", ylabel="slope[1]")
        axis.legend(fontsize=8)
    figure.savefig(options.output, dpi=200)


if __name__ == "__main__":
    main()
