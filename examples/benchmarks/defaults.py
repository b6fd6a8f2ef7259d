"""What default arguments give on normal targets: the tables of three pages.

    python examples/benchmarks/defaults.py    some four minutes

Four chains, 1000 draws of tuning and 1000 after, three seeds each; starts uniform in (-1, 1).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np
import pymc as pm
from benchmark import (
    CHAINS,
    each,
    grouped,
    largest_rhat,
    least_ess,
    main,
    sampler_class,
    span,
    table,
)

FILE = Path(__file__).with_suffix(".json")
PAGES = {
    "random_walk.md": ("AM", "RBAM", "GAM", "RAM"),
    "kam.md": ("KAM", "PCAKAM"),
    "surrogate_results.md": ("SurrogateMetropolis", "GAM"),
}
"""And the samplers of their tables."""
TUNE = DRAWS = 1000
SAMPLERS = list(dict.fromkeys([*(s for own in PAGES.values() for s in own), "CyclicalKAM"]))


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


def plan(options):
    """Return what is to be run."""
    return each(run, case=TARGETS, sampler=SAMPLERS, seed=range(1, 1 + options.seeds))


@lru_cache(1)
def step_of(case, sampler):
    """Return a step, compiled once."""
    covariance = TARGETS[case]
    d = len(covariance)
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(d), chol=np.linalg.cholesky(covariance), shape=d)
    return sampler_class(sampler)(model=model)


def run(case, sampler, seed):
    """Return the row of four chains."""
    chains = [chain(step_of(case, sampler), [seed, i]) for i in range(CHAINS)]
    x = np.array([draws for draws, _ in chains])
    return {
        "acceptance": round(float(np.mean([share for _, share in chains])), 3),
        "ess": round(least_ess(x)),
        "rhat": round(largest_rhat(x), 4),
    }


def tables(rows):
    """Return the tables of each page."""
    return {page: {"least ESS": table_of(rows, samplers)} for page, samplers in PAGES.items()}


def table_of(rows, samplers):
    """Return least ESS by target and sampler, and over all targets acceptance and R-hat."""
    found, every = grouped(rows, "case", "sampler"), grouped(rows, "sampler")
    lines = [
        [case, *(span([row["ess"] for row in found[case, name]], str) for name in samplers)]
        for case in TARGETS
    ]
    acceptance = [[row["acceptance"] for row in every[name]] for name in samplers]
    rhat = [max(row["rhat"] for row in every[name]) for name in samplers]
    two_digits = "{:.2f}".format
    lines.append(["acceptance, all targets", *(span(own, two_digits) for own in acceptance)])
    lines.append(["R-hat, at most", *(f"{worst:.3f}" for worst in rhat)])
    return table(["target", *samplers], lines)


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=3)
