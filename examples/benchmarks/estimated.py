"""Estimated log-densities: whether the draws are exact, where the answer is known.

    python examples/benchmarks/estimated.py    writes the table of docs/pseudo_marginal.md

Two independent standard normals, each of whose densities is estimated, unbiasedly, with a normal
log-estimate whose standard deviation grows from 0.3 to 1.7 with the first of them. Of each sampler
with ``pseudo_marginal=True``, 4 chains of 50 000 draws: how far mean, variance, and the shares of
draws below the 5 % and the 95 % quantile are from the truth, in Monte-Carlo standard errors. In
the controls the estimate is made again before each transition, as a step would that does not know
of it; they have to fail.
"""

from functools import cache, partial
from pathlib import Path

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import CHAINS, ess_of_means, main, sample, table
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.core.chain import N_PROGRESS, STALE_LOGP
from pymc_kameleon.step.make_draws import NO_OUTPUTS, block

FILE = Path(__file__).with_suffix(".json")
DRAWS, TUNE = 50_000, 1000
CONTROLS = [pk.baselines.RWM, pk.CMTM]


def plan(options):
    """Yield what is to be run."""
    kept = [cls for cls in pk.samplers.SAMPLERS if not (cls.derivatives or cls.needs_exact_logp)]
    for cls, refreshed in [*((cls, False) for cls in kept), *((cls, True) for cls in CONTROLS)]:
        yield {"sampler": cls.__name__, "refreshed": refreshed}, partial(run, cls, refreshed)


def run(cls, refreshed):
    """Return z of each quantity."""
    if refreshed:
        step = cls(model=toy(), pseudo_marginal=True, steps_per_draw=1)
        return errors(refreshed_draws_of(step))
    dt = sample(cls(model=toy(), pseudo_marginal=True), DRAWS, tune=TUNE, random_seed=1)
    return errors(dt["posterior"]["x"].values)


def tables(rows):
    """Return the table of the page."""
    lines = []
    for row in rows:
        name = row["sampler"]
        if row["refreshed"]:
            name += ", the estimate made again before each transition"
        lines.append([name, *(f"{row[quantity]:.1f}" for quantity in QUANTITIES)])
    titles = ["sampler", *QUANTITIES]
    return {"pseudo_marginal.md": {"distances from the truth": table(titles, lines)}}


@cache
def toy():
    """Return the model."""
    with pm.Model() as model:
        x = pm.Normal("x", shape=2)
        sd = 0.3 + 1.4 * pt.sigmoid(2 * x[0])
        pm.Potential("noise", sd * normal_from(pk.noise_seed()) - sd**2 / 2)
    return model


def normal_from(seed):
    """Return a standard normal number that is a function of the seed, by Box and Muller."""
    u, angle = (seed // 2**27 + 0.5) / 2**26, (seed % 2**27) / 2**27
    return pt.sqrt(-2 * pt.log(u)) * pt.cos(2 * np.pi * angle)


def refreshed_draws_of(step):
    """Return draws of tuned chains whose estimate is made again before each transition."""
    chains, progress = np.empty((CHAINS, DRAWS, 2)), np.zeros(N_PROGRESS, np.int64)
    for k, draws in enumerate(chains):
        step.setup_chain(np.random.default_rng(k), TUNE, DRAWS)
        point = {"x": np.zeros(2)}
        for _ in range(TUNE):
            point, _ = step.step(point)
        step.stop_tuning()
        part, x = block(step, STALE_LOGP, step.statistics.empty(1)), point["x"].copy()
        for draw in draws:
            step._run((part,), x, NO_OUTPUTS, progress)
            draw[:] = x
    return chains


QUANTITIES = ("mean", "variance", "5 % quantile", "95 % quantile")


def errors(x):
    """Return z of each quantity, the larger of the two coordinates'."""
    low, high = norm.ppf([0.05, 0.95])
    functions = [(x, 0), (x**2, 1), (1.0 * (x < low), 0.05), (1.0 * (x < high), 0.95)]
    z = [z_of(f, truth).max() for f, truth in functions]
    return {name: round(float(value), 2) for name, value in zip(QUANTITIES, z, strict=True)}


def z_of(values, truth):
    """Return how many standard errors the means of draws (chains, draws, 2) are from the truth."""
    errors = values.std(axis=(0, 1)) / np.sqrt(ess_of_means(values))
    return np.abs(values.mean(axis=(0, 1)) - truth) / errors


if __name__ == "__main__":
    main(FILE, plan, tables)
