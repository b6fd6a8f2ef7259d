"""GadMALA: cost of a transition over its floor, and its rate beside that of nutpie.

    python examples/benchmarks/gradients.py [--data DIRECTORY] [--rates]    some four minutes

Writes tables of docs/performance.md. The floor is one evaluation of log-density and gradient, and
two triangular products; or these and d normals, which any such transition has to draw. With
--rates, which needs nutpie (pip install nutpie), also for nine targets the lesser of the bulk ESS
of x and of x², over all coordinates, per CPU second of one chain, tuning included, and per gradient
evaluated after tuning: medians of several seeds. Compilation has a table of its own. Where the
data of the regressions are searched: see examples/papers/gad_targets.py.
"""

import time
from functools import partial
from pathlib import Path

import numpy as np
from benchmark import (
    combinations,
    least_ess,
    main,
    sample_by_nutpie,
    table,
    three_digits,
    with_squares,
)
from gad_targets import NEAL, PAIR, Normal, add_data_option, gaussian_process, load
from transitions import draw_seconds, normal_model, ratio_of, seconds, tuned

import pymc_kameleon as pk
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.linalg import multiply_lower, multiply_lower_transposed
from pymc_kameleon.core.target import log_density

FILE = Path(__file__).with_suffix(".json")
N = 20_000
SEEDS = range(3)
DRAWS = 4000


def scales_with_correlation():
    """Return a normal of 30 dimensions, standard deviations 0.001 … 1000, correlations 0.9."""
    scales = np.geomspace(1e-3, 1e3, 30)
    return Normal((0.9 + 0.1 * np.eye(30)) * np.outer(scales, scales))


NORMALS = {
    "Neal": NEAL,
    "gp51": gaussian_process(),
    "ρ = 0.99": PAIR,
    "scales 1e-3 … 1e3, correlations 0.9": scales_with_correlation(),
}
REGRESSIONS = ("Ripley", "Pima", "heart", "Australian", "German")
CHEAP = {
    "independent normals": normal_model,
    "correlated normals": lambda d: Normal(np.eye(d) + 1).model(),
}


def add_options(parser):
    """Add the options of this script."""
    add_data_option(parser)
    parser.add_argument("--rates", action="store_true", help="beside nutpie, too")


def plan(options):
    """Yield what is measured, and how."""
    for what in combinations(cost=CHEAP, d=(25, 100)):
        yield what, partial(cost, CHEAP[what["cost"]], what["d"])
    for name in (*NORMALS, *REGRESSIONS) if options.rates else ():
        yield {"rate": name}, partial(compare, name, options.data)


def tables(rows):
    """Return the tables of the page."""
    costs = [
        (row["cost"], row["d"], f"{row['ratio']:.2f}", f"{row['with_normals']:.2f}")
        for row in rows
        if "cost" in row
    ]
    made = {"gradients": table(["target", "d", "ratio", "ratio, with normals"], costs)}
    forms = {
        "per CPU second": three_digits,
        "per gradient": "{:.3f}".format,
        "compiling": "{:.1f}".format,
    }
    rates = [row for row in rows if "rate" in row]
    for name, form in forms.items() if rates else ():
        lines = [(row["rate"], row["d"], *map(form, row[name].values())) for row in rates]
        made[name] = table(["target", "d", *rates[0][name]], lines)
    return {"performance.md": made}


# ---- cost per transition ------------------------------------------------------------------------


@entry_jit
def floor_loop(target, factor, points, v, out, rng, n_normals, n):
    """Evaluate log-density and gradient n times, with two triangular products each."""
    total = 0.0
    for i in range(n):
        for j in range(n_normals):
            out[j] = rng.standard_normal()
        total += log_density(target, points[i % points.shape[0]])
        multiply_lower(factor, target.gradient, v)
        multiply_lower_transposed(factor, v, out)
    return total


def cost(build, d):
    """Return the cost of a transition, tuned, over both floors."""
    step = tuned(pk.GadMALA(model=build(d), n_leapfrog=1), tune=1000)
    points = np.random.default_rng(0).standard_normal((100, d))
    arrays = step.parameters.factor, points, np.zeros(d), np.zeros(d)
    transition, ratios = draw_seconds(step, N, False), []
    for n_normals in (0, d):
        arguments = (step.log_density.target(step.rng), *arrays, step.rng, n_normals, N)
        loop = specialise(floor_loop, *arguments)
        ratios.append(ratio_of(transition, partial(seconds, loop, *arguments)))
    return {"ratio": ratios[0], "with_normals": ratios[1]}


# ---- effective draws per second -----------------------------------------------------------------


def compare(name, folder):
    """Return the rates of GadMALA and nutpie on a target, and the seconds that each compiles."""
    import nutpie

    target = NORMALS[name] if name in NORMALS else load(name.lower(), folder)
    model = target.model()
    began = time.perf_counter()
    step = pk.GadMALA(model=model)
    middle = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model)
    compiling = {"GadMALA": middle - began, "nutpie": time.perf_counter() - middle}
    runs = {
        "GadMALA": partial(ours, step, target.d),
        "nutpie, diagonal": partial(theirs, compiled, "diag"),
        "nutpie, low rank": partial(theirs, compiled, "low_rank"),
    }
    results = np.median([[run(seed) for run in runs.values()] for seed in SEEDS], axis=0)
    return {
        "d": target.d,
        "per CPU second": dict(zip(runs, results[:, 0].round(1).tolist(), strict=True)),
        "per gradient": dict(zip(runs, results[:, 1].round(4).tolist(), strict=True)),
        "compiling": {who: round(took, 1) for who, took in compiling.items()},
    }


def ours(step, d, seed):
    """Return ESS per second and per gradient of whole compiled runs, as pk.sample makes them."""
    n_tune = max(1000, 35 * d)
    step.setup_chain(np.random.default_rng(seed), n_tune, DRAWS)
    start = {step.vars[0].name: np.random.default_rng(seed).standard_normal(d)}
    began = time.process_time()
    step.step(start)
    draw_seconds(step, n_tune - 1, True)()
    step.stop_tuning()
    elapsed = time.process_time() - began
    count, transition = step.log_density.count[0], draw_seconds(step, 1, False)
    x = np.empty((DRAWS, d))
    for row in x:
        transition()
        row[:] = step.state.x
    n_gradients = step.log_density.count[0] - count
    began = time.process_time()
    draw_seconds(step, DRAWS, False)()
    elapsed += time.process_time() - began
    ess = least_ess(with_squares(x[None]))
    return ess / elapsed, ess / n_gradients


def theirs(compiled, adaptation, seed):
    """Return ESS per second and per gradient of nutpie with its default tuning."""
    began = time.process_time()
    dt = sample_by_nutpie(compiled, adaptation, draws=DRAWS, chains=1, seed=seed)
    elapsed = time.process_time() - began
    ess = least_ess(with_squares(dt["posterior"]["x"].values))
    return ess / elapsed, ess / float(dt["sample_stats"]["n_steps"].sum())


if __name__ == "__main__":
    main(FILE, plan, tables, add_options=add_options)
