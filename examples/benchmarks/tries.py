"""What the tries of CMTM are worth, beside CMH and single tries: two tables of docs/cmtm.md.

    python examples/benchmarks/tries.py    some two minutes

Four chains from exact draws, 2000 sweeps of tuning and 30 000 after it, three seeds. Each run is
added to tries.json as it ends; what is in there is not run again.
"""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from dispersed import quiet
from pages import load, save, spaced, when_and_where, write

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from cmtm_targets import BANANA, LARGE, MEDIUM, Mixture

FILE = Path(__file__).with_suffix(".json")
CHAINS, TUNE, SWEEPS, SEEDS = 4, 2000, 30_000, (1, 2, 3)


@dataclass(frozen=True)
class Funnel:
    """The standard deviation of x₂ is exp(x₁/2), and x₁ is N(0, 3²)."""

    d: int = 2

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=2)
            pm.Potential("funnel", -(x[0] ** 2) / 18 - (x[1] ** 2 * pt.exp(-x[0]) + x[0]) / 2)
        return model

    def draw(self, rng, n):
        """Draw n exact points (n, 2)."""
        first = 3 * rng.normal(size=n)
        return np.stack([first, np.exp(first / 2) * rng.normal(size=n)], axis=1)


def scales(spike):
    """Return a spike and a slab, in one dimension."""
    return Mixture(((0,), (0,)), ((spike**2,), (100,)))


TARGETS = {
    "normal, d = 10": Mixture(((0,) * 10,) * 2, ((1,) * 10,) * 2),
    "4-d mixture of the paper": MEDIUM,
    "20-d mixture of the paper": LARGE,
    "banana, B = 0.01, d = 10": BANANA,
    "½N(0, 0.1²) + ½N(0, 10²)": scales(0.1),
    "½N(0, 0.01²) + ½N(0, 10²)": scales(0.01),
    "½N(−5, 1) + ½N(5, 1)": Mixture(((-5,), (5,)), ((1,), (1,))),
    "funnel, d = 2": Funnel(),
}


SAMPLERS = {
    "CMH": (pk.CMH, {}),
    "CMTM, `fewer_tries=False`": (pk.CMTM, {"fewer_tries": False}),
    "CMTM": (pk.CMTM, {}),
}


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["target"], row["sampler"]) for row in rows}
    for name, target in TARGETS.items():
        for sampler in SAMPLERS:
            if (name, sampler) in done:
                continue
            kind, options = SAMPLERS[sampler]
            step = kind(model=target.model(), steps_per_draw=1, **options)
            for seed in SEEDS:
                row = {"target": name, "sampler": sampler, "seed": seed}
                rows.append(row | run(target, step, seed) | when_and_where())
                print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def run(target, step, seed):
    """Return evaluations per sweep, and the largest autocorrelation time, in sweeps."""
    starts = [{"x": x} for x in target.draw(np.random.default_rng(seed), CHAINS)]
    with quiet(logging.WARNING):
        dt = pk.sample(
            SWEEPS,
            tune=TUNE,
            chains=CHAINS,
            cores=1,
            step=step,
            model=step.model,
            initvals=starts,
            random_seed=seed,
            compute_convergence_checks=False,
            progressbar=False,
        )
    x = dt["posterior"]["x"].values
    functions = [*np.moveaxis(x, 2, 0), np.sign(x[:, :, 0]), 1.0 * (np.abs(x[:, :, -1]) < 1)]
    ess = [az.ess(values, method="mean") for values in functions if values.std() > 0]
    return {
        "evaluations": round(float(dt["sample_stats"]["n_logp"].mean()), 2),
        "act": round(CHAINS * SWEEPS / float(min(ess)), 2),
    }


def tables(rows):
    """Return the tables of the page: the median sweeps, and evaluations, least to largest."""
    head = [f"| target | {' | '.join(SAMPLERS)} |", "|---" * (1 + len(SAMPLERS)) + "|"]
    sweeps, evaluations = list(head), list(head)
    for target in TARGETS:
        medians, ranges = [], []
        for sampler in SAMPLERS:
            own = [row for row in rows if (row["target"], row["sampler"]) == (target, sampler)]
            medians.append(two_digits(median(row["act"] for row in own)))
            costs = sorted(row["act"] * row["evaluations"] for row in own)
            ranges.append(f"{two_digits(costs[0])} to {two_digits(costs[-1])}")
        sweeps.append(f"| {target} | {' | '.join(medians)} |")
        evaluations.append(f"| {target} | {' | '.join(ranges)} |")
    return {"cmtm.md": {"sweeps": sweeps, "evaluations": evaluations}}


def two_digits(value):
    """Write a number with two digits."""
    value = float(f"{value:.2g}")
    return spaced(int(value)) if value >= 100 else f"{value:g}"


if __name__ == "__main__":
    main()
