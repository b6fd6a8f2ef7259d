"""CMH and CMTM: cost per evaluation, and pm.sample with them and with PyMC's own steps.

    python examples/benchmarks/sweeps.py    some four minutes

Writes tables of docs/performance.md. The target is the 20-dimensional mixture of the CMTM paper.
ESS is that of the coordinate that mixes worst, per second of the whole call of pm.sample: one chain
from an exact draw, 1000 draws of tuning. Each figure is the median of several runs, which
alternate.
"""

import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pymc as pm
from benchmark import combinations, each, ess_of_means, grouped, main, sample_by_pymc, spaced, table
from cmtm_targets import LARGE
from transitions import draw_seconds, normal_model, seconds, tuned

import pymc_kameleon as pk
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.target import log_density

FILE = Path(__file__).with_suffix(".json")
COSTS = {
    "CMH": (pk.CMH, {}),
    "CMTM": (pk.CMTM, {}),
    "CMTM, `fewer_tries=False`": (pk.CMTM, {"fewer_tries": False}),
}
TARGETS = ("mixture of two normals", "normal")
STEPS = {
    "`pm.Metropolis`": (pm.Metropolis, {}, 40_000),
    "`pm.Slice`": (pm.Slice, {}, 5000),
    "CMH": (pk.CMH, {}, 40_000),
    "CMH, `steps_per_draw=100`": (pk.CMH, {"steps_per_draw": 100}, 15_000),
    "CMTM": (pk.CMTM, {}, 20_000),
    "CMTM, `steps_per_draw=50`": (pk.CMTM, {"steps_per_draw": 50}, 8000),
    "CMTM, `fewer_tries=False`": (pk.CMTM, {"fewer_tries": False}, 20_000),
    "CMTM, `fewer_tries=False, steps_per_draw=50`": (
        pk.CMTM,
        {"fewer_tries": False, "steps_per_draw": 50},
        4000,
    ),
}
"""Step, its arguments, and draws that take some ten seconds."""


def plan(options):
    """Yield what is measured, and how."""
    yield from each(measure_cost, cost=COSTS, target=TARGETS)
    model = LARGE.model()
    for what in combinations(seed=range(options.seeds), step=STEPS):
        yield what, partial(rate, model, *STEPS[what["step"]], what["seed"])


def measure_cost(cost, target):
    """Return the cost of an evaluation of a sampler on a target."""
    return cost_of(*COSTS[cost], target)


def tables(rows):
    """Return the tables of the page."""
    ratios = {(row["cost"], row["target"]): row["ratio"] for row in rows if "cost" in row}
    by_step = grouped(rows, "step")
    rates = {name: median(row["ess_per_second"] for row in by_step[name]) for name in STEPS}
    over = rates["`pm.Slice`"]
    costs = [(name, *(f"{ratios[name, target]:.2f}" for target in TARGETS)) for name in COSTS]
    speeds = [
        (name, spaced(round(rate)), f"{rate / over:.1f}" if "pm." not in name else None)
        for name, rate in rates.items()
    ]
    return {
        "performance.md": {
            "sweeps": table(["step", *TARGETS], costs),
            "rates": table(["step", "per second", "over `pm.Slice`"], speeds),
        }
    }


# ---- cost per evaluation ------------------------------------------------------------------------


@entry_jit
def bare_loop(target, points, n):
    """Evaluate the log-density n times, at given points."""
    total = 0.0
    for i in range(n):
        total += log_density(target, points[i % points.shape[0]])
    return total


def cost_of(kind, options, label, n=20_000):
    """Return the cost of an evaluation within a transition over that in a bare loop."""
    rng = np.random.default_rng(0)
    if label == "normal":
        model, points = normal_model(20), rng.standard_normal((100, 20)) * np.linspace(1, 3, 20)
    else:
        model, points = LARGE.model(), LARGE.draw(rng, 100)
    step = tuned(kind(model=model, **options), tune=1000)
    arguments = (step.log_density.target(step.rng), points, n)
    loop, draw, ratios = specialise(bare_loop, *arguments), draw_seconds(step, n // 20, False), []
    for _ in range(16):
        count = step.log_density.count[0]
        within = draw() / int(step.log_density.count[0] - count)
        ratios.append(within / (seconds(loop, *arguments) / n))
    return {"ratio": round(median(ratios[1:]), 3)}


# ---- effective draws per second -----------------------------------------------------------------


def rate(model, kind, options, draws, seed):
    """Return the least ESS per second of pm.sample."""
    step = kind(model.value_vars, model=model, **options)
    start = LARGE.draw(np.random.default_rng(seed), 1)[0]
    began = time.perf_counter()
    own = {"step": step, "model": model, "initvals": {"x": start}}
    dt = sample_by_pymc(draws, tune=1000, chains=1, random_seed=seed, **own)
    took = time.perf_counter() - began
    ess = ess_of_means(dt["posterior"]["x"].values)
    return {"ess_per_second": round(float(ess.min() / took), 1)}


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=3)
