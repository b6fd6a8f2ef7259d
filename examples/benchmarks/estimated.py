"""Estimated log-densities: whether the draws are exact, where the answer is known.

    python examples/benchmarks/estimated.py    writes the table of docs/pseudo_marginal.md

Two independent standard normals, each of whose densities is estimated, unbiasedly, with a normal
log-estimate whose standard deviation grows from 0.3 to 1.7 with the first of them. Of each sampler
with ``pseudo_marginal=True``, 4 chains of 50 000 draws: how far mean, variance, and the shares of
draws below the 5 % and the 95 % quantile are from the truth, in Monte-Carlo standard errors. In
the controls the estimate is made again before each transition, as a step would that does not know
of it; they have to fail. What was run is in estimated.json, and is not run again.
"""

import logging
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pages import load, save, when_and_where, write
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.core.chain import N_PROGRESS, STALE_LOGP
from pymc_kameleon.step.make_draws import NO_OUTPUTS, block

FILE = Path(__file__).with_suffix(".json")
CHAINS, DRAWS, TUNE = 4, 50_000, 1000
CONTROLS = [pk.baselines.RWM, pk.CMTM]


def main():
    """Run what is not in the file yet, and write the page."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model, rows = toy(), load(FILE)
    done = {(row["sampler"], row["refreshed"]) for row in rows}
    kept = [cls for cls in pk.samplers.SAMPLERS if not (cls.derivatives or cls.needs_exact_logp)]
    for cls, refreshed in [*((cls, False) for cls in kept), *((cls, True) for cls in CONTROLS)]:
        if (cls.__name__, refreshed) in done:
            continue
        if refreshed:
            step = cls(model=model, pseudo_marginal=True, steps_per_draw=1)
            draws = refreshed_draws_of(step)
        else:
            draws = draws_of(cls(model=model, pseudo_marginal=True))
        row = {"sampler": cls.__name__, "refreshed": refreshed} | errors(draws)
        print(row, flush=True)
        rows.append(row | when_and_where())
        save(FILE, rows)
    write(tables(rows))


def tables(rows):
    """Return the table of the page."""
    lines = [f"| sampler | {' | '.join(QUANTITIES)} |", "|---" * (1 + len(QUANTITIES)) + "|"]
    for row in rows:
        name = row["sampler"]
        if row["refreshed"]:
            name += ", the estimate made again before each transition"
        cells = [f"{row[quantity]:.1f}" for quantity in QUANTITIES]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return {"pseudo_marginal.md": {"distances from the truth": lines}}


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


def draws_of(step):
    """Return draws (chains, draws, 2)."""
    options = {"chains": CHAINS, "cores": 1, "tune": TUNE, "random_seed": 1, "quiet": True}
    dt = pk.sample(DRAWS, step=step, model=step.model, **options)
    return dt["posterior"]["x"].values


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
    z = [max(z_score(f[:, :, i], truth) for i in (0, 1)) for f, truth in functions]
    return {name: round(float(value), 2) for name, value in zip(QUANTITIES, z, strict=True)}


def z_score(values, truth):
    """Return how many standard errors the mean of draws (chains, draws) is from the truth."""
    error = values.std() / np.sqrt(az.ess(values, method="mean"))
    return abs(values.mean() - truth) / error


if __name__ == "__main__":
    main()
