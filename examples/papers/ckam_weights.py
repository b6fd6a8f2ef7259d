"""How well the weights of two modes are estimated, and how many independent visits a second buys.

    python ckam_weights.py [--full]

Not in the paper. A.1 of Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", with weights 0.2 and
.8, and as it is. Eight chains, a few minutes on one core; `--full`, 40 chains. Our samplers start
in the first mode; SMC, emcee and zeus (`pip install emcee zeus-mcmc`) need many starts, and have
them all over a box that contains both modes. Seconds include tuning, not compilation.

Independent visits are w(1−w)/MSE: so many independent draws would estimate the weight w with the
same mean squared error. The second table has the price where there is one mode only: effective
draws per transition, of CyclicalKAM and of KAM, on a normal in eight dimensions.
"""

import argparse
import logging
import random
import time
from importlib.util import find_spec

import arviz as az
import numpy as np
import pymc as pm
from ckam_targets import (
    EXACT,
    PUBLISHED,
    SAMPLERS,
    Mixture,
    Sampler,
    run_chain,
    two_modes,
    with_error,
)

import pymc_kameleon as pk

EVALUATIONS = 100_000
BOX = 20.0
"""Starts are uniform in (-20, 20)²."""
WALKERS = 50
PARTICLES = 2000

NORMAL = Mixture((1,), ((0,) * 8,), (1,), start=(0,) * 8, bins=(-5, 5, 50))
NORMAL_SAMPLERS = {"KAM": Sampler(pk.KAM), EXACT: Sampler(pk.CyclicalKAM)}
SEEDS = 5


def run_steps(sampler):
    """Return a function that runs chains of one of our samplers."""

    def run(target, n_chains):
        chains = [
            run_chain(target, SAMPLERS["A.1"][sampler], EVALUATIONS, seed, every=10)
            for seed in range(n_chains)
        ]
        return [chain.x for chain in chains], np.mean([chain.seconds[-1] for chain in chains])

    return run


def run_smc(target, n_chains):
    """Run PyMC's sequential Monte Carlo from a uniform prior."""
    with pm.Model():
        x = pm.Uniform("x", -BOX, BOX, shape=target.d)
        pm.Potential("mixture", target.symbolic_log_density(x))
        trace = pm.sample_smc(
            PARTICLES,
            chains=n_chains,
            cores=1,
            random_seed=1,
            progressbar=False,
            compute_convergence_checks=False,
        )
    return trace.posterior.x.to_numpy(), trace.sample_stats.attrs["_t_sampling"] / n_chains


def run_emcee(target, n_chains):
    """Run ensembles with the differential moves that emcee proposes for several modes."""
    import emcee

    moves = [(emcee.moves.DEMove(), 0.8), (emcee.moves.DESnookerMove(), 0.2)]
    n = EVALUATIONS // WALKERS
    draws, start = [], time.perf_counter()
    for x in starts(target, n_chains):
        sampler = emcee.EnsembleSampler(
            WALKERS, target.d, target.log_density, moves=moves, vectorize=True
        )
        sampler.run_mcmc(x, n)
        draws.append(sampler.get_chain(discard=n // 5, flat=True))
    return draws, (time.perf_counter() - start) / n_chains


def run_zeus(target, n_chains):
    """Run ensembles as zeus proposes for several modes: differential moves, then global ones."""
    import zeus

    draws, start = [], time.perf_counter()
    for x in starts(target, n_chains):
        for move, n in ((zeus.moves.DifferentialMove(), 60), (zeus.moves.GlobalMove(), 240)):
            sampler = zeus.EnsembleSampler(
                WALKERS, target.d, target.log_density, moves=move, vectorize=True, verbose=False
            )
            sampler.run_mcmc(x, n, progress=False)
            x = sampler.get_last_sample()
        draws.append(sampler.get_chain(flat=True))
    return draws, (time.perf_counter() - start) / n_chains


def starts(target, n_chains):
    """Draw the walkers' starts for each ensemble; both packages use the global generators."""
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002
    return np.random.default_rng(1).uniform(-BOX, BOX, (n_chains, WALKERS, target.d))


RUNS = {
    "RW": run_steps("RW"),
    PUBLISHED: run_steps(PUBLISHED),
    EXACT: run_steps(EXACT),
    "pm.sample_smc": run_smc,
    "emcee": run_emcee,
    "zeus": run_zeus,
}


def print_weights(weight, n_chains):
    """Print how well each sampler estimates the first mode's weight."""
    print(f"\nA.1, weights {weight:g} and {1 - weight:g}, {n_chains} chains")
    print(f"{'sampler':<15}{'weight':>16}{'RMSE':>8}{'visits':>9}{'s':>7}{'visits/s':>10}")
    target = two_modes(weight)
    for sampler, run in RUNS.items():
        if sampler in ("emcee", "zeus") and find_spec(sampler) is None:
            print(f"{sampler:<15} is not installed")
            continue
        draws, seconds = run(target, n_chains)
        estimates = np.array([np.mean(x[:, 0] < 0) for x in draws])
        mse = np.mean((estimates - weight) ** 2)
        visits = weight * (1 - weight) / mse
        print(
            f"{sampler:<15}{with_error(estimates):>16}{np.sqrt(mse):>8.4f}{visits:>9.0f}"
            f"{seconds:>7.2f}{visits / seconds:>10.0f}",
            flush=True,
        )


def efficiency(sampler, seed):
    """Return effective draws per transition on the normal, of the coordinate that has the least."""
    chain = run_chain(NORMAL, NORMAL_SAMPLERS[sampler], 50_000, seed)
    return min(az.ess(x[None]) for x in chain.x.T) / len(chain.x)


def print_price():
    """Print effective draws per transition on a normal."""
    print(f"\nNormal, d = {NORMAL.d}: effective draws per transition, median of {SEEDS} chains")
    rows = [[efficiency(name, seed) for name in NORMAL_SAMPLERS] for seed in range(SEEDS)]
    medians = np.median(rows, axis=0)
    for sampler, median in zip(NORMAL_SAMPLERS, medians, strict=True):
        print(f"{sampler:<15}{median:>8.4f}, {median / medians[0]:.2f} of KAM's")


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 8")
    n_chains = 40 if parser.parse_args().full else 8
    logging.getLogger("pymc").setLevel(logging.WARNING)
    for weight in (0.2, 0.5):
        print_weights(weight, n_chains)
    print_price()


if __name__ == "__main__":
    main()
