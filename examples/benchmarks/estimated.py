"""Estimated log-densities: whether the draws are exact, where the answer is known.

    python examples/benchmarks/estimated.py

Two independent standard normals, each of whose densities is estimated, unbiasedly, with a normal
log-estimate whose standard deviation grows from 0.3 to 1.7 with the first of them. Of each sampler
with ``pseudo_marginal=True``, 4 chains of 50 000 draws: how far mean, variance, and the shares of
draws below the 5 % and the 95 % quantile are from the truth, in Monte-Carlo standard errors. In
the controls the estimate is made again before each transition, as a step would that does not know
of it; they have to fail.
"""

import logging

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.stats import norm

import pymc_kameleon as pk
from pymc_kameleon.core.chain import N_PROGRESS, STALE
from pymc_kameleon.draws import NO_OUTPUTS, block

CHAINS, DRAWS, TUNE = 4, 50_000, 1000
CONTROLS = [pk.RWM, pk.CMTM]


def main():
    """Print a row for each sampler, and the controls."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    model = toy()
    print(f"{'':20}{'mean':>8}{'variance':>10}{'5 %':>8}{'95 %':>8}   z, the larger of two")
    for cls in pk.SAMPLERS:
        if not (cls.derivatives or cls.needs_exact_logp):
            step = cls(model=model, pseudo_marginal=True)
            show(cls.__name__, draws_of(step))
    for cls in CONTROLS:
        step = cls(model=model, pseudo_marginal=True, steps_per_draw=1)
        show(f"{cls.__name__}, refreshed", refreshed_draws_of(step))


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
        part, x = block(step, STALE, step.empty_stats(1)), point["x"].copy()
        for draw in draws:
            step._run((part,), x, NO_OUTPUTS, progress)
            draw[:] = x
    return chains


def show(name, x):
    """Print the largest z of the two coordinates."""
    low, high = norm.ppf([0.05, 0.95])
    functions = [(x, 0), (x**2, 1), (1.0 * (x < low), 0.05), (1.0 * (x < high), 0.95)]
    z = [max(z_score(f[:, :, i], truth) for i in (0, 1)) for f, truth in functions]
    print(f"{name:20}{z[0]:8.1f}{z[1]:10.1f}{z[2]:8.1f}{z[3]:8.1f}", flush=True)


def z_score(values, truth):
    """Return how many standard errors the mean of draws (chains, draws) is from the truth."""
    error = values.std() / np.sqrt(az.ess(values, method="mean"))
    return abs(values.mean() - truth) / error


if __name__ == "__main__":
    main()
