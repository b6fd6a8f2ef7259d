"""What default arguments give on normal targets: the tables of three pages.

    python examples/benchmarks/defaults.py    some four minutes

Four chains, 1000 draws of tuning and 1000 after, three seeds each; starts uniform in (-1, 1).
"""

from functools import lru_cache
from itertools import islice
from pathlib import Path

import benchmark
import numpy as np
import pymc as pm

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
    start = {"x": rng.uniform(-1, 1, step.model["x"].type.shape)}
    after = islice(benchmark.driven(step, start, TUNE, DRAWS, rng), TUNE, None)
    draws, accepted = zip(
        *((point["x"], stats["accept_share"]) for point, stats in after), strict=True
    )
    return draws, np.mean(accepted)


def plan(options):
    """Return what is to be run."""
    return benchmark.each(run, case=TARGETS, sampler=SAMPLERS, seed=range(1, 1 + options.seeds))


@lru_cache(1)
def model_of(case):
    """Return the model of a target."""
    d = len(TARGETS[case])
    with pm.Model() as model:
        pm.MvNormal("x", np.zeros(d), chol=np.linalg.cholesky(TARGETS[case]), shape=d)
    return model


def run(case, sampler, seed):
    """Return the row of four chains."""
    step = benchmark.step_of(sampler, model_of(case))
    chains = [chain(step, [seed, i]) for i in range(benchmark.CHAINS)]
    x = np.array([draws for draws, _ in chains])
    return {
        "acceptance": round(float(np.mean([share for _, share in chains])), 3),
        "ess": round(benchmark.least_ess(x)),
        "rhat": round(benchmark.largest_rhat(x), 4),
    }


def tables(rows):
    """Return the tables of each page."""
    return {page: {"least ESS": table_of(rows, samplers)} for page, samplers in PAGES.items()}


def table_of(rows, samplers):
    """Return least ESS by target and sampler, and over all targets acceptance and R-hat."""
    found, every = benchmark.grouped(rows, "case", "sampler"), benchmark.grouped(rows, "sampler")
    lines = [
        [
            case,
            *(benchmark.span([row["ess"] for row in found[case, name]], str) for name in samplers),
        ]
        for case in TARGETS
    ]
    acceptance = [[row["acceptance"] for row in every[name]] for name in samplers]
    rhat = [max(row["rhat"] for row in every[name]) for name in samplers]
    two_digits = "{:.2f}".format
    lines.append(
        ["acceptance, all targets", *(benchmark.span(own, two_digits) for own in acceptance)]
    )
    lines.append(["R-hat, at most", *(f"{worst:.3f}" for worst in rhat)])
    return benchmark.table(["target", *samplers], lines)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=3)
