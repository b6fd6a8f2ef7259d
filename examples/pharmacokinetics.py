"""A drug in four people: a hierarchy around a black-box solver, by EmulatorMetropolis.

    python examples/pharmacokinetics.py [--draws 100] [--tune 50] [--output FILE]

A dose is swallowed. From the gut it goes into the blood, from there into the tissue and back, and
out of the body. People differ in how fast they clear the drug, and in how much room it has in their
blood. The solver is called once for each person, and all its calls teach one emulator. The data are
made up. A minute or two. docs/tutorials/pharmacokinetics.md goes through such a model.
"""

import argparse

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import expm

import pymc_kameleon as pk

SEED = 1
DOSE = 100.0  # mg
HOURS = np.array([0.25, 0.5, 1, 1.5, 2, 3, 4, 6, 8, 12, 18, 24])
TRUTH = np.log([5, 20, 3, 40, 1.2])
"""Clearance, room in the blood, flow into the tissue, room there, and rate of uptake."""
PARAMETERS = ["clearance", "blood", "flow", "tissue", "uptake"]


# ---- the simulator ------------------------------------------------------------------------------


def concentrations(parameters, hours=HOURS):
    """Return concentrations in the blood of one person, mg/l; NaN where there is no solution."""
    clearance, blood, flow, tissue, uptake = parameters
    change = np.array(
        [
            [-uptake, 0, 0],
            [uptake, -(clearance + flow) / blood, flow / tissue],
            [0, flow / blood, -flow / tissue],
        ]
    )
    if not np.abs(change).max() < 1e6:  # per hour
        return np.full(len(hours), np.nan)
    amounts = expm(hours[:, None, None] * change) @ [DOSE, 0, 0]
    return amounts[:, 1] / blood


blood_levels = pk.black_box(concentrations)


# ---- the model ----------------------------------------------------------------------------------


def made_up_data():
    """Return concentrations of four people, with errors of 15 %."""
    rng = np.random.default_rng(SEED)
    own = TRUTH + np.pad(rng.normal(0, 0.3, (4, 2)), [(0, 0), (0, 3)])
    return [concentrations(np.exp(one)) * rng.lognormal(0, 0.15, HOURS.size) for one in own]


def build_model(measured):
    """Return the model: 16 parameters, and a call of the solver for each person."""
    coords = {"parameter": PARAMETERS, "own": PARAMETERS[:2], "person": range(len(measured))}
    with pm.Model(coords=coords) as model:
        typical = pm.Normal("typical", np.log([4, 30, 4, 30, 1]), 0.5, dims="parameter")
        between = pm.HalfNormal("between", 0.5, dims="own")
        effect = pm.Normal("effect", 0, 1, dims=("person", "own"))
        noise = pm.HalfNormal("noise", 0.5)
        for i, data in enumerate(measured):
            own = typical + pt.concatenate([between * effect[i], np.zeros(3)])
            expected = blood_levels(pt.exp(own))
            pm.LogNormal(f"measured_{i}", pt.log(expected), noise, observed=data)
    return model


# ---- what came out ------------------------------------------------------------------------------


def draw_picture(dt, measured, output):
    """Draw data and curves of the posterior, one panel for each person."""
    draws = az.extract(dt).transpose("sample", ...).isel(sample=slice(None, None, 10))
    hours = np.linspace(0.1, 24, 120)
    figure, axes = plt.subplots(1, 4, figsize=(10, 2.8), sharey=True, layout="constrained")
    for i, axis in enumerate(axes):
        own = draws["typical"].values.copy()
        own[:, :2] += draws["between"].values * draws["effect"].values[:, i]
        for one in own:
            axis.plot(hours, concentrations(np.exp(one), hours), color="C0", lw=0.5, alpha=0.3)
        axis.plot(HOURS, measured[i], "ko", ms=3.5)
        axis.set(title=f"person {i}", xlabel="hours", ylim=(0, 1.1 * np.max(measured)))
    axes[0].set(ylabel="mg/l")
    figure.savefig(output, dpi=100)
    plt.close(figure)


def main(arguments=None):
    """Sample, print what came out and what it took, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=100, help="draws of each of four chains")
    parser.add_argument("--tune", type=int, default=50, help="draws of tuning before them")
    parser.add_argument("--output", default="pharmacokinetics.png", help="file of the picture")
    options = parser.parse_args(arguments)

    measured = made_up_data()
    with build_model(measured):
        dt = pk.sample(draws=options.draws, tune=options.tune, random_seed=SEED)
        table = pk.summary(dt)
    n = int(dt["warmup_sample_stats"]["n_logp"].sum() + dt["sample_stats"]["n_logp"].sum())
    print(table.to_string())
    print(f"\n{n} evaluations of the model, each with a call of the solver for each person")
    draw_picture(dt, measured, options.output)
    print(f"Data and fitted curves: {options.output}")


if __name__ == "__main__":
    main()
