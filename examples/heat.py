"""Where does a rod conduct? A random field behind a black-box solver, by EmulatorMetropolis.

    python examples/heat.py [--draws 150] [--tune 75] [--output FILE]

One end of a cold rod is held at 1 degree, and eight sensors tell how the heat arrives. The
conductivity along the rod is unknown: its logarithm is a Gaussian process, of which 20 numbers say
all that matters. The data are made up. A minute or two. docs/tutorials/heat.md goes through it.
"""

import argparse

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.linalg import solve_banded

import pymc_kameleon as pk

SEED = 2
CELLS, STEPS, NOISE = 60, 120, 0.01
PLACES = (np.arange(CELLS) + 0.5) / CELLS
SENSORS = np.arange(3, CELLS, 8)
COVARIANCE = np.exp(-0.5 * ((PLACES[:, None] - PLACES) / 0.15) ** 2)
VALUES, VECTORS = np.linalg.eigh(COVARIANCE)
BASIS = (VECTORS * np.sqrt(np.maximum(VALUES, 0)))[:, ::-1][:, :20]
"""A field is BASIS @ z, with 20 standard normal numbers z."""


# ---- the simulator ------------------------------------------------------------------------------


def temperatures(field):
    """Return temperatures (6, 8) at six times and all sensors, of the log conductivity by cell."""
    if not np.abs(field).max() < 20:
        return np.full((6, SENSORS.size), np.nan)
    between = np.append(field[0] + np.log(2), (field[1:] + field[:-1]) / 2)
    flow = CELLS**2 / STEPS * 0.5 * np.exp(between)  # from the left into each cell
    out = np.append(flow[1:], 0)
    system = np.array([-flow, 1 + flow + out, -out])  # its diagonals, as solve_banded takes them
    u, found = np.zeros(CELLS), []
    for step in range(1, STEPS + 1):
        u[0] += flow[0]
        u = solve_banded((1, 1), system, u)
        if step % (STEPS // 6) == 0:
            found.append(u[SENSORS])
    return np.array(found)


rod = pk.black_box(temperatures, ndim=2)


# ---- the model ----------------------------------------------------------------------------------


def made_up_data():
    """Return the log conductivity of a rod, low in its middle, and what the sensors say."""
    field = 0.5 - 2 * np.exp(-0.5 * ((PLACES - 0.45) / 0.08) ** 2) + 0.5 * np.sin(7 * PLACES)
    rng = np.random.default_rng(SEED)
    return field, temperatures(field) + rng.normal(0, NOISE, (6, SENSORS.size))


def build_model(seen):
    """Return the model: the numbers of the field, and the noise, which is unknown, too."""
    with pm.Model() as model:
        z = pm.Normal("z", shape=BASIS.shape[1])
        field = pm.Deterministic("field", pt.dot(BASIS, z))
        noise = pm.HalfNormal("noise", 0.1)
        pm.Normal("seen", rod(field), noise, observed=seen)
    return model


# ---- what came out ------------------------------------------------------------------------------


def draw_picture(dt, field, output):
    """Draw the conductivity along the rod, as it is and as the posterior has it."""
    low, median, high = np.quantile(az.extract(dt)["field"], [0.05, 0.5, 0.95], axis=1)
    figure, axis = plt.subplots(figsize=(6, 3), layout="constrained")
    axis.fill_between(PLACES, np.exp(low), np.exp(high), alpha=0.25, lw=0, label="90 % of it")
    axis.plot(PLACES, np.exp(median), label="posterior, median")
    axis.plot(PLACES, np.exp(field), "k--", lw=1, label="truth")
    axis.plot(PLACES[SENSORS], np.full(SENSORS.size, 0.06), "k^", ms=5, label="sensors")
    axis.set(xlabel="place", ylabel="conductivity", yscale="log", ylim=(0.05, 12))
    axis.legend(frameon=False, ncols=2, loc="upper center")
    figure.savefig(output, dpi=100)
    plt.close(figure)


def main(arguments=None):
    """Sample, print what came out and what it took, and draw the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=150, help="draws of each of four chains")
    parser.add_argument("--tune", type=int, default=75, help="draws of tuning before them")
    parser.add_argument("--output", default="heat.png", help="file of the picture")
    options = parser.parse_args(arguments)

    field, seen = made_up_data()
    with build_model(seen):
        dt = pk.sample(draws=options.draws, tune=options.tune, random_seed=SEED)
        table = pk.summary(dt, var_names=["noise", "z"])
    n = int(dt["warmup_sample_stats"]["n_logp"].sum() + dt["sample_stats"]["n_logp"].sum())
    print(table.to_string())
    print(f"\n{n} calls of the solver")
    draw_picture(dt, field, options.output)
    print(f"The conductivity: {options.output}")


if __name__ == "__main__":
    main()
