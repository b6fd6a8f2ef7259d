"""What default arguments give on normal targets with known answers, as in the docs.

    python examples/benchmarks/defaults.py

Four chains, 1000 draws of tuning and 1000 after, three seeds each; starts uniform in (-1, 1).
"""

import arviz as az
import numpy as np
import pymc as pm

import pymc_kameleon as pk

TUNE = DRAWS = 1000
CHAINS = 4
SAMPLERS = (pk.AM, pk.RBAM, pk.GAM, pk.RAM, pk.KAM, pk.PCAKAM, pk.CyclicalKAM)
SEEDS = (1, 2, 3)


def equicorrelated(d, correlation, sds):
    """Build a covariance with one correlation for all pairs."""
    matrix = np.full((d, d), correlation) + (1 - correlation) * np.eye(d)
    return matrix * np.outer(sds, sds)


def rotated(d, condition):
    """Build a covariance with this condition number, in no particular direction."""
    q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(d, d)))
    return q @ np.diag(np.logspace(0, np.log10(condition), d)) @ q.T


TARGETS = {
    "normal, d = 10": np.eye(10),
    "sd 1e-3 to 1e3": np.diag(np.logspace(-3, 3, 10) ** 2),
    "correlation 0.99": equicorrelated(10, 0.99, np.ones(10)),
    "both, far start": equicorrelated(10, 0.99, np.logspace(-3, 3, 10)),
    "condition 1e6": rotated(10, 1e6),
    "normal, d = 20": np.eye(20),
    "d = 32, condition 1e4": rotated(32, 1e4),
}


def chain(step, seed):
    """Run one chain by hand; return draws (DRAWS, d) and the share of accepted proposals."""
    rng = np.random.default_rng(seed)
    point = {"x": rng.uniform(-1, 1, step.model["x"].type.shape)}
    step.setup_chain(rng, TUNE, DRAWS)
    draws, accepted = [], []
    for i in range(TUNE + DRAWS):
        if i == TUNE:
            step.stop_tuning()
        point, [stats] = step.step(point)
        draws.append(point["x"])
        accepted.append(stats["accept_share"])
    return draws[TUNE:], np.mean(accepted[TUNE:])


def span(values, form):
    """Format the least and the largest of some values."""
    return f"{min(values):{form}}-{max(values):{form}}"


def main():
    """Print acceptance, least bulk ESS and worst R-hat, each over the seeds."""
    print(f"{'target':<23}{'sampler':<13}{'acceptance':<12}{'least ESS':<12}{'worst R-hat'}")
    for name, covariance in TARGETS.items():
        with pm.Model() as model:
            d = len(covariance)
            pm.MvNormal("x", np.zeros(d), chol=np.linalg.cholesky(covariance), shape=d)
        for sampler in SAMPLERS:
            step = sampler(model=model)
            rows = []
            for seed in SEEDS:
                chains = [chain(step, [seed, i]) for i in range(CHAINS)]
                trace = az.convert_to_datatree({"x": np.array([draws for draws, _ in chains])})
                acceptance = np.mean([share for _, share in chains])
                rows.append(
                    (acceptance, float(az.ess(trace).x.min()), float(az.rhat(trace).x.max()))
                )
            acceptance, ess, rhat = zip(*rows, strict=True)
            print(
                f"{name:<23}{sampler.__name__:<13}{span(acceptance, '.2f'):<12}"
                f"{span(ess, '.0f'):<12}{span(rhat, '.3f')}",
                flush=True,
            )


if __name__ == "__main__":
    main()
