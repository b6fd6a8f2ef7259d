"""EmulatorMetropolis on modes that mirror one another: which it visits, and how often.

    python examples/benchmarks/mirrored.py [--cases "three rates"] [--seeds 4]

Parameters of simulators can be exchanged, or reversed, exactly or nearly. What share of the
posterior is in each mode follows from the symmetry, or from a sum over a grid of two parameters.
A run is pk.sample(max_evaluations=600).
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, grouped, main, rounded, table
from scipy.integrate import solve_ivp

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
EVALUATIONS = 600
TIMES = np.linspace(0.1, 6, 20)
VISITED = 0.01
"""Share of the draws from which on a mode was visited."""


class Mirrored(NamedTuple):
    """A model of a black box, and its modes; data are made of the `truth` and `noise`."""

    simulate: Callable
    priors: Callable  # () -> the parameters (p,) within a model
    truth: list
    noise: float
    mode: Callable  # parameters (..., p) -> the number of their mode
    masses: Callable  # this -> the mass of each mode

    @property
    def data(self):
        """What was observed."""
        y = self.simulate(np.array(self.truth, float))
        return y + self.noise * np.random.default_rng(1).normal(size=y.size)

    def model(self):
        """Return a model of PyMC."""

        def simulator(x):
            return self.simulate(x)

        op = pk.black_box(simulator)
        with pm.Model() as model:
            x = pm.Deterministic("parameters", self.priors())
            pm.Normal("y", op(x), self.noise, observed=self.data)
        return model


def decays(x):
    """Return a sum of exponentials of some rates."""
    return np.exp(-np.multiply.outer(TIMES, x)).sum(axis=1)


def unequal_decays(x):
    """Return the same of two rates, of which the second one counts more."""
    return np.exp(-np.multiply.outer(TIMES, x)) @ [1, 1.15]


def amplitudes_and_rates(x):
    """Return a sum of two exponentials."""
    return x[:2] @ np.exp(-np.multiply.outer(x[2:], TIMES))


def product(x):
    """Return what a chain of two reactions has made, solved roughly."""

    def change(t, u):
        return [-x[0] * u[0], x[0] * u[0] - x[1] * u[1]]

    return 1 - solve_ivp(change, (0, 6), [1.0, 0.0], t_eval=TIMES).y.sum(axis=0)


def two_peaks(x):
    """Return a mixture of two peaks, of a weight and two places."""
    places = np.linspace(-4, 4, 25)[:, None]
    return np.exp(-2 * (places - x[1:]) ** 2) @ [x[0], 1 - x[0]]


def loadings_and_scores(x):
    """Return products of three loadings and four scores."""
    return np.outer(x[:3], x[3:]).ravel()


def even(x):
    """Return what does not depend on signs."""
    return x**2 + 0.1 * x**4


def is_second_larger(x):
    """Return 1 where the last parameter is larger than the one before it."""
    return (x[..., -1] > x[..., -2]).astype(int)


def order(x):
    """Return the number of an order of three."""
    places = np.argsort(x, axis=-1)
    return 2 * places[..., 0] + (places[..., 1] > places[..., 2])


def equal(n):
    """Return a function that says so of the masses of n modes."""
    return lambda mirrored: np.full(n, 1 / n)


def by_grid(mirrored, means, sd):
    """Return those of two rates, by a sum over their logarithms, which are normal."""
    z = np.stack(np.meshgrid(*[np.linspace(-4, 4, 401)] * 2, indexing="ij"), axis=-1).reshape(-1, 2)
    y = np.array([mirrored.simulate(one) for one in np.exp(z)])
    log_p = -0.5 * np.square((y - mirrored.data) / mirrored.noise).sum(axis=1)
    log_p -= 0.5 * np.square((z - means) / sd).sum(axis=1)
    p = np.exp(log_p - log_p.max())
    return np.bincount(mirrored.mode(z), weights=p) / p.sum()


def two_scalars():
    """Return rates that have different priors."""
    return pt.stack([pm.LogNormal("k1", 0.15, 0.7), pm.LogNormal("k2", -0.15, 0.7)])


def four_scalars():
    """Return amplitudes and rates that have different priors, in pairs."""
    a = [pm.HalfNormal(f"a{i}", 3) for i in (1, 2)]
    return pt.stack([*a, *(pm.LogNormal(f"k{i}", 0, 1) for i in (1, 2))])


def log_normal(n):
    """Return a vector of them."""
    return pm.LogNormal("x", 0, 1, shape=n)


MODELS = {
    "two rates, other priors": Mirrored(
        decays,
        two_scalars,
        [2, 0.3],
        0.05,
        is_second_larger,
        partial(by_grid, means=[0.15, -0.15], sd=0.7),
    ),
    "three rates": Mirrored(decays, partial(log_normal, 3), [0.1, 0.7, 4], 0.02, order, equal(6)),
    "amplitudes and rates": Mirrored(
        amplitudes_and_rates, four_scalars, [1, 2, 0.3, 2], 0.05, is_second_larger, equal(2)
    ),
    "the same in one vector": Mirrored(
        amplitudes_and_rates,
        partial(log_normal, 4),
        [1, 2, 0.3, 2],
        0.05,
        is_second_larger,
        equal(2),
    ),
    "a chain of reactions": Mirrored(
        product, partial(log_normal, 2), [0.4, 2], 0.02, is_second_larger, equal(2)
    ),
    "two signs": Mirrored(
        even,
        lambda: pm.Normal("x", 0, 2, shape=2),
        [1.5, -1.8],
        0.2,
        lambda x: (x > 0) @ [1, 2],
        equal(4),
    ),
    "a weight and two peaks": Mirrored(
        two_peaks,
        lambda: pt.concatenate([[pm.Uniform("w", 0, 1)], pm.Normal("place", 0, 2, shape=2)]),
        [0.3, -1.5, 1.5],
        0.05,
        is_second_larger,
        equal(2),
    ),
    "loadings and scores": Mirrored(
        loadings_and_scores,
        lambda: pt.concatenate([pm.Normal("loading", shape=3), pm.Normal("score", shape=4)]),
        [1, 0.7, -0.8, 1.2, -0.5, 0.9, 0.3],
        0.1,
        lambda x: (x[..., 0] > 0).astype(int),
        equal(2),
    ),
    "two rates, nearly the same": Mirrored(
        unequal_decays,
        partial(log_normal, 2),
        [0.2, 1.6],
        0.1,
        is_second_larger,
        partial(by_grid, means=0, sd=1),
    ),
}


def plan(options):
    """Return what is to be run."""
    return each(run, case=MODELS, seed=range(options.seeds))


def run(case, seed):
    """Run once, and say what shares of the draws modes have."""
    mirrored = MODELS[case]
    model = mirrored.model()
    dt = pk.sample(
        model=model,
        max_evaluations=EVALUATIONS,
        random_seed=seed,
        cores=1,
        progressbar=False,
    )
    rhat = pk.summary(dt, model=model, var_names=["parameters"])["r_hat"].max()
    masses = mirrored.masses(mirrored)
    modes = mirrored.mode(dt["posterior"]["parameters"].values).ravel()
    shares = np.bincount(modes, minlength=len(masses)) / modes.size
    return {
        "modes": len(masses),
        "visited": int((shares > VISITED).sum()),
        "off": rounded(np.abs(shares - masses).max(), 2),
        "rhat": float(rhat),
    }


def tables(rows):
    """Return the table of the page."""
    cells, by_case = [], grouped(rows, "case")
    for name, mirrored in MODELS.items():
        own = by_case[name]
        all_visited = sum(row["visited"] == row["modes"] for row in own)
        worst = (f"{max(row[key] for row in own):.2f}" for key in ("off", "rhat"))
        share = f"{all_visited} of {len(own)}"
        cells.append([name, len(mirrored.truth), own[0]["modes"], share, *worst])
    titles = ["model", "d", "modes", "all visited", "mass off", "R-hat"]
    return {"emulator.md": {"mirrored": table(titles, cells)}}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=4)
