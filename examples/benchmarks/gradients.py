"""GadMALA: cost of a transition over its floor, and its rate beside that of nutpie.

    python examples/benchmarks/gradients.py [--data DIRECTORY] [--rates]

The floor is one evaluation of log-density and gradient, and two triangular products; or these and
d normals, which any such transition has to draw. With --rates, which needs nutpie (pip install
nutpie), prints for ten targets the lesser of the bulk ESS of x and of x², over all coordinates, per
CPU second of one chain, tuning included, and per gradient evaluated after tuning: medians of
several seeds. Compilation has a column of its own. Where the data of the regressions are searched:
see examples/papers/gad_targets.py.
"""

import argparse
import logging
import sys
import time
import warnings
from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
from transitions import draw_seconds, normal_model, ratio_of, seconds, tuned

import pymc_kameleon as pk
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.linalg import multiply_lower, multiply_lower_transposed
from pymc_kameleon.core.target import log_density

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from gad_targets import NEAL, PAIR, SHAPES, NoData, Normal, add_data_option, gaussian_process, load

N = 20_000
SEEDS = range(3)
DRAWS = 4000


def main():
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_option(parser)
    parser.add_argument("--rates", action="store_true")
    options = parser.parse_args()
    logging.getLogger("pymc").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    costs()
    if options.rates:
        rates(options.data)


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


def costs():
    """Print the cost of a transition of MALA, tuned, over the floor."""
    print(f"{'cost of a transition / its floor':<36}{'asked':>8}{'measured':>10}{'+ normals':>11}")
    for d in (25, 100):
        for label, model in [
            ("independent normals", normal_model(d)),
            ("correlated normals", Normal(np.eye(d) + 1).model()),
        ]:
            step = tuned(pk.GadMALA(model=model, n_leapfrog=1), tune=1000)
            points = np.random.default_rng(0).standard_normal((100, d))
            arrays = step.parameters.factor, points, np.zeros(d), np.zeros(d)
            transition, ratios = draw_seconds(step, N, False), []
            for n_normals in (0, d):
                arguments = (step.log_density.target, *arrays, step.rng, n_normals, N)
                loop = specialise(floor_loop, *arguments)
                ratios.append(ratio_of(transition, partial(seconds, loop, *arguments)))
            row = f"{'<= 1.3':>8}{ratios[0]:10.2f}{ratios[1]:11.2f}"
            print(f"{label + f', d = {d}':<36}{row}", flush=True)


# ---- effective draws per second -----------------------------------------------------------------


def scales_with_correlation():
    """Return a normal of 30 dimensions, standard deviations 0.001 … 1000, correlations 0.9."""
    scales = np.geomspace(1e-3, 1e3, 30)
    return Normal((0.9 + 0.1 * np.eye(30)) * np.outer(scales, scales))


def rates(folder):
    """Print a line for each target and sampler."""
    import nutpie

    targets = {
        "Neal": NEAL,
        "gp51": gaussian_process(),
        "pair": PAIR,
        "scales": scales_with_correlation(),
    }
    for name in SHAPES:
        try:
            targets[name] = load(name, folder)
        except NoData as error:
            print(error)
    print(f"\n{'':<12}{'sampler':<22}{'ESS/CPU s':>9}{'ESS/gradient':>14}{'compile, s':>12}")
    for name, target in targets.items():
        compare(name, target, nutpie)


def compare(name, target, nutpie):
    """Print the lines of a target."""
    model = target.model()
    began = time.perf_counter()
    step = pk.GadMALA(model=model)
    middle = time.perf_counter()
    compiled = nutpie.compile_pymc_model(model)
    seconds_ours, seconds_theirs = middle - began, time.perf_counter() - middle
    rows = {
        "GadMALA": (seconds_ours, lambda seed: ours(step, target.d, seed)),
        "nutpie, diagonal": (seconds_theirs, lambda seed: theirs(nutpie, compiled, False, seed)),
        "nutpie, low rank": (seconds_theirs, lambda seed: theirs(nutpie, compiled, True, seed)),
    }
    results = [[run(seed) for _, run in rows.values()] for seed in SEEDS]
    for (label, (compiling, _)), rates in zip(
        rows.items(), np.median(results, axis=0), strict=True
    ):
        print(f"{name:<12}{label:<22}{rates[0]:10.0f}{rates[1]:14.3f}{compiling:12.1f}", flush=True)


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
    ess = least_ess(x)
    return ess / elapsed, ess / n_gradients


def theirs(nutpie, compiled, low_rank, seed):
    """Return ESS per second and per gradient of nutpie with its default tuning."""
    began = time.process_time()
    dt = nutpie.sample(
        compiled,
        draws=DRAWS,
        chains=1,
        cores=1,
        seed=seed,
        progress_bar=False,
        low_rank_modified_mass_matrix=low_rank,
    )
    elapsed = time.process_time() - began
    ess = least_ess(dt["posterior"]["x"].values[0])
    return ess / elapsed, ess / float(dt["sample_stats"]["n_steps"].sum())


def least_ess(x):
    """Return the least bulk ESS of x and of x² about the mean, over the coordinates."""
    both = np.concatenate([x, (x - x.mean(axis=0)) ** 2], axis=1)
    return float(az.ess(az.convert_to_datatree({"x": both[None]}))["x"].min())


if __name__ == "__main__":
    main()
