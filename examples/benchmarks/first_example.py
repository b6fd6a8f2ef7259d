"""The first example of the README, beside what PyMC does of itself: numbers of README.md.

    python examples/benchmarks/first_example.py [--seeds 8]

The model is that of the README, as it stands there. Each seed has a run of `pk.sample` with the
README's arguments, one of `pm.sample` with the same, whose steps PyMC chooses, and one of
`pm.DEMetropolisZ` with about as many runs of the solver as `pk.sample` made. Runs of the solver are
counted where they are made, those of tuning and of making a step included. Errors are those of
the means, on the natural scale, in posterior standard deviations, from a sum over a grid.
docs/quoted.py writes the numbers.
"""

import re
from functools import cache
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pymc as pm
import scipy.integrate
from benchmark import DOCS, each, grouped, largest_rhat, least_ess, main, parameters, rounded
from simulators import Known, over_grid

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
README = DOCS.parent / "README.md"
NAMES = ["infection", "recovery", "dispersion"]
OURS, PYMC, OTHER = SAMPLERS = "pk.sample", "pm.sample", "pm.DEMetropolisZ"
SHORT_RUN = {"draws": 150, "tune": 50}
"""Arguments of the README."""


@cache
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


def plan(options):
    """Yield what each row is of, and how it is measured."""
    yield {"sampler": "known"}, known
    yield from each(run, seed=range(1, options.seeds + 1), sampler=SAMPLERS)


def known():
    """Return means and standard deviations on the natural scale, by a sum over a grid."""
    model, _ = built()
    dt = pk.sample(
        300,
        tune=50,
        model=model,
        random_seed=1,
        progressbar=False,
        idata_kwargs={"include_transformed": True},
    )
    (_, moments), made = over_grid(Known("first example", lambda: model), dt, points=46)
    return {"mean": rounded(moments.mean, 7), "sd": rounded(moments.sd), "made": made}


def run(sampler, seed):
    """Return what a run is worth; errors of its means are relative to those of the grid."""
    model, calls = built()
    options = {"chains": 4, "cores": 1, "random_seed": seed, "progressbar": False}
    calls.clear()
    with model:
        if sampler == OURS:
            dt = pk.sample(**SHORT_RUN, **options)
        elif sampler == PYMC:
            dt = pm.sample(**SHORT_RUN, **options)
        else:  # two evaluations of each draw
            dt = pm.sample(80, tune=27, step=pm.DEMetropolisZ(), **options)
    n_calls = len(calls)
    own = pk.summary(dt, NAMES, model=model, round_to="none")
    x = parameters(model, dt)
    return {
        "calls": n_calls,
        "ess_bulk": rounded(least_ess(x)),
        "rhat": rounded(largest_rhat(x)),
        "mean": rounded(own["mean"], 7),
        "mcse": rounded(own["mcse_mean"]),
        "ess": rounded(own["ess"]),
    }


def summary(rows):
    """Return what each sampler had: medians over seeds, and how good the stated errors are."""
    by_sampler = grouped(rows, "sampler")
    [truth] = by_sampler["known"]
    found = {}
    for sampler in SAMPLERS:
        own = by_sampler[sampler]
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


if __name__ == "__main__":
    main(FILE, plan, seeds=8)
