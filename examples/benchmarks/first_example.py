"""The first example of the README, beside what PyMC does of itself: numbers of README.md.

    python examples/benchmarks/first_example.py [--seeds 8]

The model is that of the README, as it stands there. Each seed has a run of `pk.sample` with the
README's arguments, one of `pm.sample` with the same, whose steps PyMC chooses, and one of
`pm.DEMetropolisZ` with about as many runs of the solver as `pk.sample` made. Runs of the solver are
counted where they are made, those of tuning and of making a step included. Errors are those of
the means, on the natural scale, in posterior standard deviations, from a sum over a grid. What was
run is in first_example.json, and is not run again.
"""

import argparse
import re
import warnings
from functools import partial
from pathlib import Path
from unittest.mock import patch

import arviz as az
import numpy as np
import pages
import pymc as pm
import scipy.integrate
from dispersed import quiet
from simulators import Known, from_weights

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
README = pages.DOCS.parent / "README.md"
NAMES = ["infection", "recovery", "dispersion"]
OURS, PYMC, OTHER = SAMPLERS = "pk.sample", "pm.sample", "pm.DEMetropolisZ"
SHORT_RUN = {"draws": 150, "tune": 50}
"""Arguments of the README."""


def built():
    """Return the model of the README's first block of Python, and a list of its solver's calls."""
    block = re.search(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.M | re.S)[1]
    calls, solve = [], scipy.integrate.odeint

    def odeint(*args):
        calls.append(1)
        return solve(*args)

    found = {}
    with patch("scipy.integrate.odeint", odeint):
        exec(block.partition("    dt = pk.sample")[0], found)
    return found["model"], calls


def plan(seeds):
    """Yield what each row is of, and how it is measured."""
    model, calls = built()
    yield {"sampler": "known"}, partial(known, model)
    for seed in range(1, seeds + 1):
        for sampler in SAMPLERS:
            yield {"sampler": sampler, "seed": seed}, partial(run, model, calls, sampler, seed)


def known(model, points=46, reach=9.0):
    """Return means and standard deviations on the natural scale, by a sum over a grid.

    It is along principal axes, up to so many standard deviations each way, on the log scale.
    """
    problem = Known("first example", lambda: model)
    with quiet():
        kept = {"include_transformed": True}
        dt = pk.sample(
            300, tune=50, model=model, random_seed=1, progressbar=False, idata_kwargs=kept
        )
    x = problem.coordinates(dt["posterior"]).reshape(-1, problem.d)
    along = np.meshgrid(*[np.linspace(-reach, reach, points)] * problem.d)
    along = np.stack(along, axis=-1).reshape(-1, problem.d)
    x = x.mean(axis=0) + along @ np.linalg.cholesky(np.cov(x.T)).T
    logp = np.array([problem.logp(own) for own in x])
    weight = np.exp(logp - logp.max())
    outside = weight[np.abs(along).max(axis=1) == reach].max()
    moments = from_weights(problem.natural(x), weight / weight.sum())
    made = f"sum over {points}^3 points, at their edge {outside:.0e} of the highest"
    return {"mean": pages.rounded(moments.mean, 7), "sd": pages.rounded(moments.sd), "made": made}


def run(model, calls, sampler, seed):
    """Return what a run is worth; errors of its means are relative to those of the grid."""
    options = {"chains": 4, "cores": 1, "random_seed": seed, "progressbar": False}
    calls.clear()
    with model, quiet():
        if sampler == OURS:
            dt = pk.sample(**SHORT_RUN, **options)
        elif sampler == PYMC:
            dt = pm.sample(**SHORT_RUN, **options)
        else:  # two evaluations of each draw
            dt = pm.sample(80, tune=27, step=pm.DEMetropolisZ(), **options)
    n_calls = len(calls)
    with quiet():
        own = pk.summary(dt, NAMES, model=model, round_to="none")
    ess, rhat = az.ess(dt, var_names=NAMES), az.rhat(dt, var_names=NAMES)
    return {
        "calls": n_calls,
        "ess_bulk": pages.rounded(min(float(ess[name]) for name in NAMES)),
        "rhat": pages.rounded(max(float(rhat[name]) for name in NAMES)),
        "mean": pages.rounded(own["mean"], 7),
        "mcse": pages.rounded(own["mcse_mean"]),
        "ess": pages.rounded(own["ess"]),
    }


def summary(rows):
    """Return what each sampler had: medians over seeds, and how good the stated errors are."""
    [truth] = (row for row in rows if row["sampler"] == "known")
    found = {}
    for sampler in SAMPLERS:
        own = [row for row in rows if row["sampler"] == sampler]
        error = np.array([row["mean"] for row in own]) - truth["mean"]
        z = error / [row["mcse"] for row in own]
        middle = {key: float(np.median([row[key] for row in own])) for key in ("calls", "ess_bulk")}
        found[sampler] = middle | {
            "runs": len(own),
            "worst rhat": max(row["rhat"] for row in own),
            "least rhat": min(row["rhat"] for row in own),
            "effective draws": (1 / np.mean((error / truth["sd"]) ** 2, axis=0)).tolist(),
            "stated": np.median([row["ess"] for row in own], axis=0).tolist(),
            "z": float(np.sqrt(np.mean(z**2))),
        }
    return found


def main():
    """Run what is not in the file yet, and print what each sampler had."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for sampler, own in summary(pages.measured(FILE, plan(options.seeds))).items():
        print(sampler, own)


if __name__ == "__main__":
    main()
