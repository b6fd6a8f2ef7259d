"""What the tries of CMTM are worth, beside CMH and single tries: two tables of docs/cmtm.md.

    python examples/benchmarks/tries.py    some two minutes

Four chains from exact draws, 2000 sweeps of tuning and 30 000 after it, three seeds.
"""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from statistics import median

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import CHAINS, each, ess_of_means, grouped, main, sample, spaced, span, table
from cmtm_targets import BANANA, LARGE, MEDIUM
from mixtures import halves

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
TUNE, SWEEPS = 2000, 30_000


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
    return halves(((0,), (0,)), ((spike**2,), (100,)))


TARGETS = {
    "normal, d = 10": halves(((0,) * 10,) * 2, ((1,) * 10,) * 2),
    "4-d mixture of the paper": MEDIUM,
    "20-d mixture of the paper": LARGE,
    "banana, B = 0.01, d = 10": BANANA,
    "½N(0, 0.1²) + ½N(0, 10²)": scales(0.1),
    "½N(0, 0.01²) + ½N(0, 10²)": scales(0.01),
    "½N(−5, 1) + ½N(5, 1)": halves(((-5,), (5,)), ((1,), (1,))),
    "funnel, d = 2": Funnel(),
}


SAMPLERS = {
    "CMH": (pk.CMH, {}),
    "CMTM, `fewer_tries=False`": (pk.CMTM, {"fewer_tries": False}),
    "CMTM": (pk.CMTM, {}),
}


def plan(options):
    """Return what is to be run."""
    return each(run, case=TARGETS, sampler=SAMPLERS, seed=range(1, 1 + options.seeds))


@lru_cache(1)
def step_of(case, sampler):
    """Return a step, compiled once."""
    kind, options = SAMPLERS[sampler]
    return kind(model=TARGETS[case].model(), steps_per_draw=1, **options)


def run(case, sampler, seed):
    """Return evaluations per sweep, and the largest autocorrelation time, in sweeps."""
    starts = [{"x": x} for x in TARGETS[case].draw(np.random.default_rng(seed), CHAINS)]
    step = step_of(case, sampler)
    dt = sample(step, SWEEPS, tune=TUNE, initvals=starts, random_seed=seed)
    x = dt["posterior"]["x"].values
    functions = [x, np.sign(x[:, :, :1]), 1.0 * (np.abs(x[:, :, -1:]) < 1)]
    values = np.concatenate(functions, axis=2)
    ess = ess_of_means(values[:, :, values.std(axis=(0, 1)) > 0])
    return {
        "evaluations": round(float(dt["sample_stats"]["n_logp"].mean()), 2),
        "act": round(CHAINS * SWEEPS / float(ess.min()), 2),
    }


def tables(rows):
    """Return the tables of the page: the median sweeps, and evaluations, least to largest."""
    found, sweeps, evaluations = grouped(rows, "case", "sampler"), [], []
    for case in TARGETS:
        own = [found[case, sampler] for sampler in SAMPLERS]
        acts = [two_digits(median(row["act"] for row in some)) for some in own]
        costs = [[row["act"] * row["evaluations"] for row in some] for some in own]
        sweeps.append([case, *acts])
        evaluations.append([case, *(span(some, two_digits) for some in costs)])
    titles = ["target", *SAMPLERS]
    pair = {"sweeps": table(titles, sweeps), "evaluations": table(titles, evaluations)}
    return {"cmtm.md": pair}


def two_digits(value):
    """Write a number with two digits."""
    value = float(f"{value:.2g}")
    return spaced(int(value)) if value >= 100 else f"{value:g}"


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=3)
