"""What is waited for before the first draw: compiling transitions, and the model's log-density.

    python examples/benchmarks/compilation.py                       some four minutes
    python examples/benchmarks/compilation.py --against CHECKOUT    beside another version

Writes tables of docs/performance.md. Each figure is of fresh processes, imports not counted, and
the median of several. "Transitions" is the first draw with an empty cache less that with a full
one; PyTensor has compiled the models before. With
--against, another checkout of the package takes turns with this one, and ratios are printed only.
"""

import json
import os
import subprocess
import sys
import tempfile
from functools import cache, partial
from pathlib import Path
from statistics import median

from benchmark import combinations, main, sampler_class, table

HERE = Path(__file__).resolve()
FILE = HERE.with_suffix(".json")
PACKAGE = HERE.parents[2]
SAMPLERS = ("GAM", "KAM", "GadMALA", "CMTM", "CyclicalKAM")
MODELS = {"regression": "regression, d = 6", "garch": "GARCH, a loop over 200 points"}
STEPS = ("GAM", "GadMALA")
REPEATS = 3


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--against", type=Path, help="another checkout of the package")
    parser.add_argument("--measure", nargs=2, help="for itself")


def plan(options):
    """Return what is measured, and how; or compare with another version, and write no page."""
    if not (options.measure or options.against):
        return runs(PACKAGE)
    options.json = None
    if options.measure:
        print(json.dumps(measure(*options.measure)))
    else:
        compare(options.against.resolve())
    return ()


def compare(checkout):
    """Print the ratios of this version's seconds over another's, which take turns."""
    for (what, run), (_, run_other) in zip(runs(PACKAGE), runs(checkout), strict=True):
        seconds, others = run(), run_other()
        print(what, {name: round(seconds[name] / others[name], 2) for name in seconds}, flush=True)


def runs(checkout):
    """Yield what is measured of a version."""
    for run in range(REPEATS):
        for what in combinations(transitions=SAMPLERS, run=[run]):
            yield what, partial(transitions, checkout, what["transitions"])
        for what in combinations(model=MODELS, step=STEPS, run=[run]):
            yield what, partial(two_steps, checkout, what["step"], what["model"])


def tables(rows):
    """Return the tables of the page."""

    def seconds(name, **what):
        return f"{median(row[name] for row in rows if what.items() <= row.items()):.2f}"

    steps = [
        (
            text if sampler == STEPS[0] else None,
            sampler,
            *(seconds(name, model=model, step=sampler) for name in ("first", "second")),
        )
        for model, text in MODELS.items()
        for sampler in STEPS
    ]
    return {
        "performance.md": {
            "first compilation": table(
                ["sampler", "seconds"],
                [(name, seconds("seconds", transitions=name)) for name in SAMPLERS],
            ),
            "steps": table(["model", "sampler", "first step", "second step"], steps),
        }
    }


def transitions(checkout, sampler):
    """Return the first draw with an empty cache, less that with a full one."""
    fill(checkout)
    with tempfile.TemporaryDirectory() as folder:
        cold, warm = (in_fresh_process(checkout, sampler, "regression", folder) for _ in range(2))
    return {"seconds": round(cold[0] - warm[0], 3)}


def two_steps(checkout, sampler, model):
    """Return the seconds of a first and a second step on a model."""
    fill(checkout)
    first, second = in_fresh_process(checkout, sampler, model)
    return {"first": round(first, 3), "second": round(second, 3)}


@cache
def fill(checkout):
    """Let PyTensor compile the models, which it keeps on disk."""
    for model in MODELS:
        for sampler in STEPS:
            in_fresh_process(checkout, sampler, model)


def in_fresh_process(checkout, sampler, model, folder=None):
    """Return what `measure` does, with the package of `checkout`."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    if folder is not None:
        environment["NUMBA_CACHE_DIR"] = folder
    command = [sys.executable, str(HERE), "--measure", sampler, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(sampler, model):
    """Time a step and its first draw, and a second step, on one model."""
    from time import perf_counter

    model = globals()[model]()
    point = model.initial_point()

    def seconds():
        start = perf_counter()
        step = sampler_class(sampler)(model=model)
        step.setup_chain(1, 0, 1)
        step.step(point)
        return perf_counter() - start

    return seconds(), seconds()


def regression():
    """Linear regression with five coefficients."""
    import numpy as np
    import pymc as pm

    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 5))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 10, shape=5)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", x @ beta, sigma, observed=x.sum(1) + rng.normal(size=100))
    return model


def garch():
    """GARCH(1, 1), whose log-density is a loop over 200 points in time."""
    import numpy as np
    import pymc as pm
    import pytensor
    import pytensor.tensor as pt

    returns = np.random.default_rng(1).normal(size=200)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 10)
        omega = pm.HalfNormal("omega", 1)
        alpha = pm.Uniform("alpha", 0, 1)
        beta = pm.Uniform("beta", 0, 1)
        variances = pytensor.scan(
            lambda r, before, mu, omega, alpha, beta: omega + alpha * (r - mu) ** 2 + beta * before,
            sequences=pt.as_tensor(returns[:-1]),
            outputs_info=pt.as_tensor(np.float64(1)),
            non_sequences=[mu, omega, alpha, beta],
            return_updates=False,
        )
        sigma = pt.sqrt(pt.concatenate([pt.ones(1), variances]))
        pm.Normal("y", mu, sigma, observed=returns)
    return model


if __name__ == "__main__":
    main(FILE, plan, tables, add_options=add_options)
