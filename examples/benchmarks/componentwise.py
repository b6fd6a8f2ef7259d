"""CMH and CMTM: cost per evaluation, and pm.sample with them and with PyMC's own steps.

    python examples/benchmarks/componentwise.py

The target is the 20-dimensional mixture of the CMTM paper. ESS is that of the coordinate that mixes
worst, and of the median one, per second of the whole call of pm.sample: one chain from an exact
draw, 1000 draws of tuning. Each figure is the median of several runs, which alternate.
"""

import logging
import sys
import time
import warnings
from pathlib import Path
from statistics import median

import arviz as az
import numpy as np
import pymc as pm
from transitions import draw_seconds, normal_model, seconds, tuned

import pymc_kameleon as pk
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.target import log_density

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from cmtm_targets import LARGE

REPEATS = 3
ROWS = {
    "pm.Metropolis": (pm.Metropolis, {}, 40_000),
    "pm.Slice": (pm.Slice, {}, 5000),
    "CMH": (pk.CMH, {}, 40_000),
    "CMH, steps_per_draw=100": (pk.CMH, {"steps_per_draw": 100}, 15_000),
    "CMTM": (pk.CMTM, {}, 20_000),
    "CMTM, steps_per_draw=50": (pk.CMTM, {"steps_per_draw": 50}, 8000),
    "CMTM, fewer_tries=False": (pk.CMTM, {"fewer_tries": False}, 20_000),
    "the same, steps_per_draw=50": (
        pk.CMTM,
        {"fewer_tries": False, "steps_per_draw": 50},
        4000,
    ),
}
"""Step, its arguments, and draws that take some ten seconds."""


def main():
    """Print both tables."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    costs()
    rates()


# ---- cost per evaluation ------------------------------------------------------------------------


@entry_jit
def bare_loop(target, points, n):
    """Evaluate the log-density n times, at given points."""
    total = 0.0
    for i in range(n):
        total += log_density(target, points[i % points.shape[0]])
    return total


def costs(n=20_000):
    """Print the cost of an evaluation within a transition over that in a bare loop."""
    print(f"{'cost per evaluation / bare compiled logp, d = 20':<60}{'asked':>8}{'measured':>10}")
    rng = np.random.default_rng(0)
    models = {
        "mixture": (LARGE.model(), LARGE.draw(rng, 100)),
        "normal": (normal_model(20), rng.standard_normal((100, 20)) * np.linspace(1, 3, 20)),
    }
    for label, (model, points) in models.items():
        for sampler, arguments in [(pk.CMH, {}), (pk.CMTM, {}), (pk.CMTM, {"fewer_tries": False})]:
            step = tuned(sampler(model=model, **arguments), tune=1000)
            arguments_of_loop = (step.log_density.target, points, n)
            loop = specialise(bare_loop, *arguments_of_loop)
            draw = draw_seconds(step, n // 20, False)
            ratios = []
            for _ in range(16):
                count = step.log_density.count[0]
                cost = draw() / (step.log_density.count[0] - count)
                ratios.append(cost / (seconds(loop, *arguments_of_loop) / n))
            name = f"{sampler.__name__} {arguments or ''}, {label}"
            print(f"{name:<60}{'<= 1.5':>8}{median(ratios[1:]):10.2f}", flush=True)


# ---- effective draws per second -----------------------------------------------------------------


def rates():
    """Print effective draws per second, and over those of the better one of PyMC's steps."""
    model = LARGE.model()
    steps = {
        name: (cls(model.value_vars, model=model, **arguments), draws)
        for name, (cls, arguments, draws) in ROWS.items()
    }
    results = {name: [] for name in ROWS}
    for seed in range(REPEATS):
        for name, (step, draws) in steps.items():
            results[name].append(rate(model, step, draws, seed))
    rows = {name: np.median(result, axis=0) for name, result in results.items()}
    best = np.max([rows["pm.Metropolis"], rows["pm.Slice"]], axis=0)
    print(f"\n{'ESS per second':<34}{'least':>10}{'median':>10}{'over PyMC, asked >= 30':>26}")
    for name, row in rows.items():
        ratios = row / best
        print(f"{name:<34}{row[0]:10.1f}{row[1]:10.0f}{ratios[0]:19.1f}{ratios[1]:7.1f}")


def rate(model, step, draws, seed):
    """Return the least and the median ESS per second of pm.sample."""
    start = LARGE.draw(np.random.default_rng(seed), 1)[0]
    began = time.perf_counter()
    dt = pm.sample(
        draws,
        tune=1000,
        chains=1,
        step=step,
        model=model,
        initvals={"x": start},
        random_seed=seed,
        progressbar=False,
        compute_convergence_checks=False,
    )
    took = time.perf_counter() - began
    ess = az.ess(dt, method="mean")["x"].values / took
    return ess.min(), np.median(ess)


if __name__ == "__main__":
    main()
