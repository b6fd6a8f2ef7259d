"""How well the weights of two modes are estimated, and how many independent visits a second buys.

    python ckam_weights.py

Not in the paper. A.1 of Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis", with weights 0.2 and
0.8, and as it is. Eight chains, forty of CyclicalKAM; some four minutes on one core, and more than
ten with zeus. Our samplers start in the first mode. SMC, emcee and zeus (`pip
install emcee zeus-mcmc`) need many starts, and have them all over a box that contains both modes.
Seconds include tuning, not compilation.

Independent visits are w(1−w)/MSE: so many independent draws would estimate the weight w with the
same mean squared error. The last table has the price
where there is one mode only: effective draws per transition, of CyclicalKAM and of KAM, on a normal
in eight dimensions with its mean at 0, where CyclicalKAM finds symmetries, and elsewhere.
"""

import random
import time
from functools import partial
from itertools import product
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from ckam_targets import EXACT, PUBLISHED, SAMPLERS, Sampler, normal, run_chain, two_modes
from common import benchmark

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
EVALUATIONS = 100_000
BOX = 20.0
"""Starts are uniform in (-20, 20)²."""
WALKERS = 50
PARTICLES = 2000

NORMALS = {
    "mean at 0": normal((0,) * 8, bins=(-5, 5, 50)),
    "mean elsewhere": normal(tuple(range(1, 9)), bins=(-5, 15, 50)),
}
NORMAL_SAMPLERS = {"KAM": Sampler(pk.KAM), EXACT: Sampler(pk.CyclicalKAM)}
SEEDS = 5


def run_steps(sampler):
    """Return a function that runs chains of one of our samplers."""

    def run(target, n_chains):
        chains = [
            run_chain(target, SAMPLERS["A.1"][sampler], EVALUATIONS, seed, every=10)
            for seed in range(n_chains)
        ]
        return [chain.x for chain in chains], np.mean([chain.seconds for chain in chains])

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
    "RW, ν = √15": run_steps("RW"),
    PUBLISHED: run_steps(PUBLISHED),
    EXACT: run_steps(EXACT),
    "`pm.sample_smc`": run_smc,
    "emcee": run_emcee,
    "zeus": run_zeus,
}


def measure(weight, sampler):
    """Return the first mode's weight as each chain estimates it, and the seconds of a chain."""
    n_chains = 40 if sampler == EXACT else 8
    draws, seconds = RUNS[sampler](two_modes(weight), n_chains)
    estimates = [np.mean(x[:, 0] < 0) for x in draws]
    return {"estimates": benchmark.rounded(estimates), "seconds": benchmark.rounded(seconds)}


def measure_price(name):
    """Return effective draws per transition of the worst coordinate, medians of chains."""
    found = {}
    for label, sampler in NORMAL_SAMPLERS.items():
        chains = [run_chain(NORMALS[name], sampler, 50_000, seed) for seed in range(SEEDS)]
        ess = [min(az.ess(x[None]) for x in chain.x.T) / len(chain.x) for chain in chains]
        found[label] = benchmark.rounded(np.median(ess))
    return found


def tables(rows):
    """Return the tables of the page."""
    found, errors = {}, []
    for row in (row for row in rows if "weight" in row):
        w, estimate = row["weight"], benchmark.with_error(row["estimates"])
        mse = np.mean((np.array(row["estimates"]) - w) ** 2)
        visits = w * (1 - w) / mse
        rates = [benchmark.spaced(round(value)) for value in (visits, visits / row["seconds"])]
        found[w, row["sampler"]] = [estimate, *rates]
        if row["sampler"] == EXACT:
            errors.append([w, estimate, f"{np.sqrt(mse):.4f}"])
    both = [sampler for sampler in RUNS if (0.5, sampler) in found]
    weights = [[sampler, *found[0.2, sampler], *found[0.5, sampler]] for sampler in both]
    price = []
    for row in (row for row in rows if "normal" in row):
        kam, ours = (row[sampler] for sampler in NORMAL_SAMPLERS)
        price.append([row["normal"], f"{kam:.3f}", f"{ours:.3f}", f"{ours / kam:.2f}"])
    visits = ["visits", "per s"]
    heads = {
        "weights": ["", "w = 0.2", *visits, "w = 0.5", *visits],
        "weights by CyclicalKAM": ["weight", "estimate", "root mean square error"],
        "price": ["normal in 8 dimensions", *NORMAL_SAMPLERS, "ratio"],
    }
    lines = map(benchmark.table, heads.values(), (weights, errors, price))
    return {benchmark.paper("cyclical_kam"): dict(zip(heads, lines, strict=True))}


def plan(options):
    """Yield what is to be run."""
    for w, name in [*product((0.2, 0.5), RUNS), (0.8, EXACT)]:
        yield {"weight": w, "sampler": name}, partial(measure, w, name)
    for name in NORMALS:
        yield {"normal": name}, partial(measure_price, name)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables)
