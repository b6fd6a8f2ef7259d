"""Which epidemic? Three models of influenza in a boarding school, compared by their evidence.

    python examples/epidemic_models.py [--evaluations 1500] [--output FILE]

Were boys infectious as soon as they were infected (SIR), or only after some days (SEIR)? Could they
fall ill again (SIRS)? SciPy solves the equations, so there is no gradient. Half a minute.
docs/gallery/epidemic_models.md goes through it, and says where the priors come from.
"""

import argparse
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.integrate import odeint

import pymc_kameleon as pk

SEED = 1
IN_BED = np.array([3, 8, 26, 76, 225, 298, 258, 233, 189, 128, 68, 29, 14, 4])
DAYS = np.arange(1, 15)
BOYS = 763
PRIORS = {"onset": (np.log(1 / 2), 0.5), "waning": (np.log(1 / 20), 1)}
"""Mean and standard deviation of the logarithms of rates, per day."""


# ---- the equations ------------------------------------------------------------------------------


def sir(state, day, infection, recovery):
    """Return the change of those who are susceptible and infectious."""
    susceptible, infectious = state
    new = infection * susceptible * infectious / BOYS
    return -new, new - recovery * infectious


def seir(state, day, infection, recovery, onset):
    """Return the change of those who are susceptible, infectious, and exposed."""
    susceptible, infectious, exposed = state
    new = infection * susceptible * infectious / BOYS
    return -new, onset * exposed - recovery * infectious, new - onset * exposed


def sirs(state, day, infection, recovery, waning):
    """Return the change of those who are susceptible and infectious."""
    susceptible, infectious = state
    new = infection * susceptible * infectious / BOYS
    again = waning * (BOYS - susceptible - infectious)
    return again - new, new - recovery * infectious


def solved(change, rates):
    """Return who is infectious on each day (14,), NaN where the solver fails."""
    start = [BOYS - 1, 1, 0] if change is seir else [BOYS - 1, 1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # SciPy warns where it fails
            found = odeint(change, start, np.append(0, DAYS), tuple(rates.tolist()))
    except Warning:
        return np.full(DAYS.size, np.nan)
    return found[1:, 1].clip(1e-9)  # a solver may fall below 0 by its tolerance


# ---- the models ---------------------------------------------------------------------------------


def build(change, *extra):
    """Return the model of an epidemic, with further rates besides infection and recovery."""

    @pk.black_box
    def infectious(rates):
        return solved(change, rates)

    with pm.Model() as model:
        rates = [pm.LogNormal("infection", 0, 1), pm.LogNormal("recovery", 0, 1)]
        rates += [pm.LogNormal(name, *PRIORS[name]) for name in extra]
        dispersion = pm.HalfNormal("dispersion", 10)
        pm.NegativeBinomial("in_bed", infectious(pt.stack(rates)), dispersion, observed=IN_BED)
    return model


EPIDEMICS = {"SIR": (sir,), "SEIR": (seir, "onset"), "SIRS": (sirs, "waning")}
"""Equations, and rates besides infection and recovery."""


# ---- what came out ------------------------------------------------------------------------------


def draw_picture(runs, output):
    """Draw the epidemics of each posterior."""
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for axis, (name, (change, *extra)) in zip(axes, EPIDEMICS.items(), strict=True):
        draws = az.extract(runs[name]).isel(sample=slice(None, None, 10))
        for rates in np.stack([draws[v] for v in ("infection", "recovery", *extra)], axis=1):
            axis.plot(DAYS, solved(change, rates), "C0", lw=0.5, alpha=0.3)
        axis.plot(DAYS, IN_BED, "ko", ms=4)
        axis.set(title=name, xlabel="day", xticks=DAYS[::3])
    axes[0].set(ylabel="boys in bed")
    figure.savefig(output, dpi=100)
    plt.close(figure)


def main(arguments=None):
    """Sample, compare, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--evaluations", type=int, default=1500, help="for the draws of each model")
    parser.add_argument("--output", default="epidemic_models.png", help="file of the picture")
    options = parser.parse_args(arguments)

    runs, evidence = {}, {}
    for name, epidemic in EPIDEMICS.items():
        with build(*epidemic):
            step = pk.SurrogateMetropolis.options()
            runs[name] = pk.sample(step=step, max_evaluations=options.evaluations, random_seed=SEED)
            evidence[name] = pk.evidence(runs[name], random_seed=SEED)
    print(pk.compare_models(evidence).to_string())
    draw_picture(runs, options.output)
    print(f"The epidemics: {options.output}")


if __name__ == "__main__":
    main()
