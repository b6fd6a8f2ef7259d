"""What default arguments give on normal targets: the tables of three pages.

    python examples/benchmarks/defaults.py    some four minutes

Four chains, 1000 draws of tuning and 1000 after, three seeds each; starts uniform in (-1, 1). Each
run is added to defaults.json as it ends; what is in there is not run again.
"""

from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
from pages import load, save, when_and_where, write

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
PAGES = {
    "random_walk.md": ("AM", "RBAM", "GAM", "RAM"),
    "kam.md": ("KAM", "PCAKAM"),
    "surrogate_results.md": ("SurrogateMetropolis", "GAM"),
}
"""And the samplers of their tables."""
TUNE = DRAWS = 1000
CHAINS = 4
SAMPLERS = (
    pk.baselines.AM,
    pk.baselines.RBAM,
    pk.GAM,
    pk.baselines.RAM,
    pk.KAM,
    pk.PCAKAM,
    pk.CyclicalKAM,
    pk.SurrogateMetropolis,
)
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


def run(step, target, seed):
    """Return the row of four chains."""
    chains = [chain(step, [seed, i]) for i in range(CHAINS)]
    trace = az.convert_to_datatree({"x": np.array([draws for draws, _ in chains])})
    measured = {
        "acceptance": round(float(np.mean([share for _, share in chains])), 3),
        "ess": round(float(az.ess(trace).x.min())),
        "rhat": round(float(az.rhat(trace).x.max()), 4),
    }
    row = {"target": target, "sampler": type(step).__name__, "seed": seed}
    return row | measured | when_and_where()


def tables(rows):
    """Return the tables of each page."""
    return {page: {"least ESS": table(rows, samplers)} for page, samplers in PAGES.items()}


def table(rows, samplers):
    """Return least ESS by target and sampler, and over all targets acceptance and R-hat."""
    lines = [f"| target | {' | '.join(samplers)} |", "|---" * (1 + len(samplers)) + "|"]
    for target in TARGETS:
        own = [row for row in rows if row["target"] == target]
        cells = [span([r["ess"] for r in own if r["sampler"] == name], "d") for name in samplers]
        lines.append(f"| {target} | {' | '.join(cells)} |")
    by_sampler = [[row for row in rows if row["sampler"] == name] for name in samplers]
    acceptance = [span([row["acceptance"] for row in own], ".2f") for own in by_sampler]
    rhat = [f"{max(row['rhat'] for row in own):.3f}" for own in by_sampler]
    lines.append(f"| acceptance, all targets | {' | '.join(acceptance)} |")
    lines.append(f"| R-hat, at most | {' | '.join(rhat)} |")
    return lines


def span(values, form):
    """Format the least and the largest of some values."""
    return f"{min(values):{form}} to {max(values):{form}}"


def main():
    """Run what is not in the file yet, and write the pages."""
    rows = load(FILE)
    done = {(row["target"], row["sampler"]) for row in rows}
    for target, covariance in TARGETS.items():
        with pm.Model() as model:
            d = len(covariance)
            pm.MvNormal("x", np.zeros(d), chol=np.linalg.cholesky(covariance), shape=d)
        for sampler in SAMPLERS:
            if (target, sampler.__name__) in done:
                continue
            step = sampler(model=model)
            rows += [run(step, target, seed) for seed in SEEDS]
            print(*rows[-len(SEEDS) :], sep="\n", flush=True)
            save(FILE, rows)
    write(tables(rows))


if __name__ == "__main__":
    main()
