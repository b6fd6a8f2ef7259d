"""Figures 11 and 13 of the cyclical KAM paper, and what it leaves open: kernels, cycles, bias.

    python ckam_ablations.py [--full]

Li, Zeng & Guo, "Cyclical kernel adaptive Metropolis". Four chains, some six minutes on two cores;
`--full`, 40 chains and an hour. Three tables:

1. Effective sample size on A.1, as ArviZ has it, per second (figure 11); beside it the weight of
   the first mode, which is 0.5.
2. Kernels on A.1 (figure 13), by symmetric KL. The linear kernel has S = 4 m Cov(z) everywhere: it
   is the cyclical schedule with a global covariance, the ablation that the paper proposes.
3. The bias of cKAM, which learns anew in every cycle, by the length L of a cycle: on a normal of
   variance 1, and on two modes of unequal width near enough for Sampling to jump between them.
   With γ₀ = 1, near these targets' scale; with 20 short Explorations accept and learn nothing.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor

import arviz as az
import numpy as np
from ckam_targets import (
    CORES,
    EVALUATIONS,
    EXACT,
    KERNEL,
    SAMPLERS,
    TARGETS,
    Mixture,
    Sampler,
    published,
    run_chain,
    with_error,
)

import pymc_kameleon as pk

BIMODAL = TARGETS["A.1"]
NORMAL = Mixture((1,), ((0, 0),), (1,), start=(0, 0), bins=(-5, 5, 50))
NEAR_MODES = Mixture((0.2, 0.8), ((-3, 0), (3, 0)), (0.25, 2), (-3, 0), bins=(-8, 8, 64))
BIAS_EVALUATIONS = 500_000

KERNELS = {
    "cKAM, Gaussian": published(kernel=pk.kernels.Gaussian(2.0)),
    "cKAM, Matérn": published(kernel=KERNEL),
    "cKAM, linear": published(kernel=pk.kernels.Linear()),
    f"{EXACT}, Gaussian": Sampler(pk.CyclicalKAM, options={"kernel": pk.kernels.Gaussian()}),
    f"{EXACT}, Matérn": Sampler(pk.CyclicalKAM, options={"kernel": pk.kernels.Matern(4)}),
    f"{EXACT}, linear": Sampler(pk.CyclicalKAM, options={"kernel": pk.kernels.Linear()}),
}
LENGTHS = {
    f"{name}, L = {length}": sampler
    for length in (20, 50, 100, 1000)
    for name, sampler in (
        ("cKAM", published(cycle_length=length, start=1)),
        (EXACT, Sampler(pk.CyclicalKAM, options={"cycle_length": length})),
    )
}


def measure_ess(sampler, seed):
    """Return the least ESS of a coordinate, the same per second, and the first mode's weight."""
    kind = SAMPLERS["A.1"][sampler]
    chain = run_chain(BIMODAL, kind, EVALUATIONS["A.1"], seed, every=10)
    ess = min(az.ess(x[None]) for x in chain.x.T)
    return ess, ess / chain.seconds[-1], np.mean(chain.x[:, 0] < 0)


def measure_kl(sampler, seed):
    """Return the symmetric KL on A.1."""
    chain = run_chain(BIMODAL, KERNELS[sampler], EVALUATIONS["A.1"], seed)
    return [BIMODAL.symmetric_kl(chain.x)]


def measure_bias(sampler, seed):
    """Return the normal's variance, and the share of the narrow one of the near modes."""
    normal, modes = (
        run_chain(target, LENGTHS[sampler], BIAS_EVALUATIONS, seed, every=10).x
        for target in (NORMAL, NEAR_MODES)
    )
    return np.mean(normal**2), np.mean(modes[:, 0] < 0)


TABLES = {
    measure_ess: (SAMPLERS["A.1"], {"ESS": 0, "ESS/s": 0, "weight, exact 0.5": 3}),
    measure_kl: (KERNELS, {"symmetric KL": 4}),
    measure_bias: (LENGTHS, {"variance, exact 1": 4, "x₁ < 0, exact 0.2136": 4}),
}
"""The samplers in a table, and its columns with their digits."""


def main():
    """Print the tables: means over chains, and standard errors."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--full", action="store_true", help="40 chains instead of 4")
    n_chains = 40 if parser.parse_args().full else 4
    with ProcessPoolExecutor(CORES) as pool:
        for measure, (samplers, columns) in TABLES.items():
            print(f"\n{'sampler':<23}" + "".join(f"{column:>22}" for column in columns))
            for sampler in samplers:
                rows = list(pool.map(measure, [sampler] * n_chains, range(n_chains)))
                cells = map(with_error, zip(*rows, strict=True), columns.values())
                print(f"{sampler:<23}" + "".join(f"{cell:>22}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
