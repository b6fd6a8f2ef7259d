"""PCAKAM with the paper's proposal density, the mixture over all directions.

    python kam_mixture.py [--seeds 40]

A minute on two cores. Given the direction that
was drawn, as in `pk.PCAKAM`, the acceptance ratio takes one density at either end. The mixture of
Sejdinovic, Strathmann, Lomeli Garcia, Andrieu & Gretton, "Kernel adaptive Metropolis-Hastings",
ICML 2014, appendix C, proposition 3, takes one for each direction. Both leave the posterior
invariant. The sampler here takes all but its transition from PCAKAM.

Iterations and starts are those of figure 5. The effective sample size is the least of the
coordinates'. Seconds are those of the fastest chain after the burn-in, without what a draw costs
besides its transitions. Deviation: of the quantiles, in %, with its standard error.
"""

import time
from functools import lru_cache, partial
from pathlib import Path

import arviz as az
import numpy as np
from common import benchmark
from kam_figure5 import ITERATIONS, deviation, run_chain
from kam_targets import TARGETS

import pymc_kameleon as pk
from pymc_kameleon.core.jit import jit
from pymc_kameleon.core.linalg import copy, squared_norm
from pymc_kameleon.core.metropolis import accept_capped, log_uniform
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon import kam, pca_kam

FILE = Path(__file__).with_suffix(".json")
TARGET = "B(0.03, 100)"


@jit
def log_mixture(parameters, u, weights, step, gamma, direction):
    """Log density of `step` from u, without the factor (2π)^(-d/2); `direction` (d,) is scratch."""
    total = -np.inf
    for j in range(parameters.probabilities.size):
        if parameters.probabilities[j] > 0.0:
            pca_kam.look(parameters.subsample, parameters.directions[j], weights, u, direction)
            nu = np.exp(pca_kam.log_nu(parameters, j))
            log_q = pca_kam.log_normal(step, direction, gamma, nu)
            total = np.logaddexp(total, np.log(parameters.probabilities[j]) + log_q)
    return total


@jit
def transition(target, state, parameters, work, rng):
    """Propose as PCAKAM does, and accept by the density of the mixture."""
    subsample, local, step = parameters.subsample, state.local, work.walk.step
    if subsample.m[0] == 0:
        return pca_kam.transition(target, state, parameters, work, rng)
    gamma = np.exp(subsample.shape.log_scale[0])
    work.chosen[0] = pca_kam.draw_direction(parameters, rng)
    pca_kam.propose(parameters, local, work.chosen[0], gamma, work, rng)

    logp_y = log_density(target, work.walk.y)
    log_forward = log_mixture(parameters, local.u, local.weights, step, gamma, work.here)
    bound = kam.log_reverse_bound(squared_norm(step), gamma, step.size)
    cap = logp_y - state.logp[0] + (bound - log_forward)
    log_u = log_uniform(rng)
    if log_u >= cap:
        return 0.0, False

    pca_kam.weigh(subsample, work.u, work.weights)
    log_reverse = log_mixture(parameters, work.u, work.weights, step, gamma, work.there)
    log_hastings = log_reverse - log_forward
    result = accept_capped(target, state, work.walk.y, logp_y, log_hastings, log_u, cap)
    if result[1]:
        copy(work.u, local.u)
        copy(work.weights, local.weights)
    return result


class MixturePCAKAM(pk.PCAKAM):
    """PCAKAM that accepts by the proposal density of the paper."""

    name = "mixture_pca_kam"
    algorithm = pk.PCAKAM.algorithm._replace(transition=transition)


SAMPLERS = {
    "given the direction, `pk.PCAKAM`": pk.PCAKAM,
    "of the mixture, as in the paper": MixturePCAKAM,
}


@lru_cache
def build(sampler):
    """Build a step of ten transitions per draw."""
    return SAMPLERS[sampler](model=TARGETS[TARGET].model(), steps_per_draw=10)


def measure_chain(sampler, seed):
    """Return draws, acceptance and seconds per transition of one chain."""
    step = build(sampler)
    x, acceptance = run_chain(step, TARGET, seed)
    step.steps_per_draw, seconds = 1000, []  # of a draw of ten most is overhead
    for _ in range(20):
        start = time.perf_counter()
        step.step({"x": x[-1]})
        seconds.append((time.perf_counter() - start) / 1000)
    step.steps_per_draw = 10
    return x, acceptance, np.median(seconds)


def plan(options):
    """Yield what is to be run."""
    for what, run in benchmark.each(measure, density=SAMPLERS):
        yield what, partial(run, seeds=range(options.seeds))


def measure(density, seeds=()):
    """Return what all chains gave."""
    chains = benchmark.in_processes(measure_chain, density, seeds=seeds)
    x, acceptance, seconds = map(np.array, zip(*chains, strict=True))
    evaluations = ITERATIONS[TARGET] // 2 * len(x)
    deviations = [deviation(TARGETS[TARGET], one) for one in x]
    row = {
        "acceptance": acceptance.mean(),
        "per_evaluation": min(az.ess(x[:, :, k]) for k in range(x.shape[2])) / evaluations,
        "microseconds": 1e6 * seconds.min(),
        "deviation": np.mean(deviations),
        "error": np.std(deviations, ddof=1) / np.sqrt(len(deviations)),
    }
    return {name: round(float(value), 5) for name, value in row.items()}


def tables(rows):
    """Return the table, which is on two pages."""
    lines = []
    for row in rows:
        ess, took = 1000 * row["per_evaluation"], row["microseconds"]
        cells = [row["density"], f"{row['acceptance']:.2f}", f"{ess:.2f}", f"{took:.1f}"]
        rate = benchmark.spaced(round(1000 * ess / took))
        lines.append([*cells, rate, benchmark.estimate(row["deviation"], row["error"], 1)])
    titles = ["acceptance", "ESS per 1000 evaluations", "µs per transition", "ESS per second"]
    lines = benchmark.table(["proposal density", *titles, "deviation, %"], lines)
    return {page: {"mixture density": lines} for page in (benchmark.paper("kam"), "kam.md")}


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=40)
