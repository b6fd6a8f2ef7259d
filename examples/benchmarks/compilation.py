"""What is waited for before the first draw: compiling transitions, and the model's log-density.

    python examples/benchmarks/compilation.py [--against CHECKOUT] [--samplers GAM ...]

Each figure is of fresh processes, imports not counted, and medians of several. "Transitions" is the
first draw with an empty cache less that with a full one; PyTensor has compiled the models before.
With --against, another checkout of the package takes turns with this one.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve()
SAMPLERS = ("GAM", "KAM", "GadMALA", "CMTM", "CyclicalKAM")
MODELS = ("regression", "garch")


def main():
    """Print both tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--against", type=Path)
    parser.add_argument("--samplers", nargs="*", default=SAMPLERS)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", nargs=2, help="for itself")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    checkouts = [HERE.parents[2]] + ([arguments.against.resolve()] if arguments.against else [])
    for model in MODELS:  # fills PyTensor's cache
        for checkout in checkouts:
            in_fresh_process(checkout, "GAM", model, None)
            in_fresh_process(checkout, "GadMALA", model, None)
    print("First compilation of the transitions, seconds")
    for sampler in arguments.samplers:
        report(
            sampler,
            [
                [transitions(checkout, sampler) for checkout in checkouts]
                for _ in range(arguments.repeats)
            ],
        )
    print("A step on a model that PyTensor has cached, and a second one, seconds")
    for model in MODELS:
        for sampler in ("GAM", "GadMALA"):
            runs = [
                [in_fresh_process(checkout, sampler, model, None) for checkout in checkouts]
                for _ in range(arguments.repeats)
            ]
            for number, step in enumerate(("first", "second")):
                times = [[run[number] for run in row] for row in runs]
                report(f"{model}, {sampler}, {step}", times)


def report(what, rows):
    """Print the medians of this checkout and the other, and of their ratio."""
    columns = list(zip(*rows, strict=True))
    line = f"{what:32}" + "".join(f"{median(column):9.3f}" for column in columns)
    if len(columns) > 1:
        line += f"{median(row[0] / row[1] for row in rows):9.2f}"
    print(line, flush=True)


def transitions(checkout, sampler):
    """Return the first draw with an empty cache, less that with a full one."""
    with tempfile.TemporaryDirectory() as cache:
        cold, warm = (in_fresh_process(checkout, sampler, "regression", cache) for _ in range(2))
    return cold[0] - warm[0]


def in_fresh_process(checkout, sampler, model, cache):
    """Return what `measure` does, with the package of `checkout`."""
    environment = os.environ | {"PYTHONPATH": str(checkout)}
    if cache is not None:
        environment["NUMBA_CACHE_DIR"] = cache
    command = [sys.executable, str(HERE), "--measure", sampler, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(sampler, model):
    """Time a step and its first draw, and a second step, on one model."""
    from time import perf_counter

    import pymc_kameleon as pk

    model = globals()[model]()
    point = model.initial_point()

    def seconds():
        start = perf_counter()
        step = getattr(pk, sampler)(model=model)
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
    main()
