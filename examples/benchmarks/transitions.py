"""What a transition costs, against its floor: ratios measured side by side in one run.

    python examples/benchmarks/transitions.py    about a minute

Writes tables of docs/performance.md. Each figure is the median of several repeats, in which the
sampler and its floor alternate, so that a machine whose speed drifts does not bend the ratio.
"""

import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

import numpy as np
import pymc as pm
from benchmark import main, sample_by_pymc, sampler_class, table

import pymc_kameleon as pk
from pymc_kameleon.core.chain import CURRENT, N_PROGRESS
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.target import log_density
from pymc_kameleon.samplers.kameleon.pca_kam import look, weigh
from pymc_kameleon.samplers.kameleon.rkhs import kernel_covariance
from pymc_kameleon.step.make_draws import NO_OUTPUTS, block

FILE = Path(__file__).with_suffix(".json")
REPEATS = 15
N = 20_000
D = 8
FLOORS = {
    "RWM": "a bare compiled loop of log-density and d normals",
    "GAM": "the same",
    "AM": "the same",
    "RBAM": "the same",
    "RAM": "the same",
    "KAM, m = 1000": "one matrix S and one log-density",
    "CyclicalKAM, one mode, m = 1000": "as KAM; other moves need no S unless they are accepted",
    "PCAKAM, m = 1000": "the weights of z, two directions and one log-density",
}
TITLES = {
    "surrogate": ("SurrogateMetropolis, d = 10", "µs beyond the log-density"),
    "rivals": ("over", "ratio"),
    "KAM": ("KAM", "measured"),
}


def plan(options):
    """Return what is measured, and how."""
    costs = {"KAM": kernel_ratio, "CyclicalKAM": kernel_ratio, "PCAKAM": pca_ratio}
    for sampler in FLOORS:
        name = sampler.partition(",")[0]
        yield {"sampler": sampler}, partial(costs.get(name, walk_ratios), sampler_class(name))
    moves = {
        "reference move": (0.0, 1.0, 0.0, 0.0),
        "move by the surrogate, M = 8, 300 points": (0.0, 0.0, 1.0, 0.0),
    }
    rivals = {
        "`pm.DEMetropolisZ`": pm.DEMetropolisZ,
        "`pm.Metropolis(blocked=True)`": pm.Metropolis,
    }
    of_kam = {
        "seconds to the first draw on a new model, in a new process with warm caches, beyond the "
        "compiled log-density": first_draw,
        "MiB of a chain's state after 1 000 000 transitions of tuning, d = 10": partial(memory, 10),
        "MiB of a chain's state, d = 32, m = 1000": partial(memory, 32, n_subsample=1000),
    }
    for what, shares in moves.items():
        yield {"table": "surrogate", "what": what}, partial(surrogate_move, shares)
    for what, rival in rivals.items():
        yield {"table": "rivals", "what": what}, partial(through_pm_sample, rival)
    for what, measure in of_kam.items():
        yield {"table": "KAM", "what": what}, measure


def tables(rows):
    """Return the tables of the page."""
    ratios = {row["sampler"]: row for row in rows if "sampler" in row}
    costs = [
        (name, floor, *(f"{ratios[name][k]:.2f}" if k in ratios[name] else None for k in WHEN))
        for name, floor in FLOORS.items()
    ]
    made = {"transitions": table(["sampler", "what its time is divided by", *WHEN], costs)}
    for name, titles in TITLES.items():
        own = [(row["what"], row["figure"]) for row in rows if row.get("table") == name]
        lines = [(what, f"{x:.0f}" if x >= 10 else f"{x:.2f}") for what, x in own]
        made[name] = table(titles, lines)
    return {"performance.md": made}


def normal_model(d):
    """Build a cheap log-density."""
    with pm.Model() as model:
        pm.Normal("x", 0, np.linspace(1, 3, d))
    return model


def banana_model(d):
    """Haario's banana, B(0.03, 100)."""
    with pm.Model() as model:
        x = pm.Normal("x", 0, np.r_[10.0, np.ones(d - 1)])
        curved = x[1] - 0.03 * (x[0] ** 2 - 100)
        pm.Potential("bend", (x[1] ** 2 - curved**2) / 2)
    return model


@entry_jit
def bare_loop(target, y, rng, n):
    """Evaluate the log-density n times, at points of d normals each."""
    total = 0.0
    for _ in range(n):
        for i in range(y.size):
            y[i] = rng.standard_normal()
        total += log_density(target, y)
    return total


@entry_jit
def evaluations(target, y, n):
    """Evaluate the log-density n times."""
    total = 0.0
    for _ in range(n):
        total += log_density(target, y)
    return total


@entry_jit
def kernel_loop(target, kernel, z, points, covariance, v, n):
    """Compute S and the log-density n times, at given points."""
    total = 0.0
    for i in range(n):
        x = points[i % points.shape[0]]
        kernel_covariance(kernel, z, z.shape[1], x, covariance, v)
        total += covariance[0, 0] + log_density(target, x)
    return total


@entry_jit
def direction_loop(target, parameters, points, weights, direction, n):
    """Compute weights, two directions and the log-density n times, at given points."""
    total = 0.0
    for i in range(n):
        x = points[i % points.shape[0]]
        weigh(parameters.subsample, x, weights)
        for j in range(2):
            look(parameters.subsample, parameters.directions[j], weights, x, direction)
            total += direction[0]
        total += log_density(target, x)
    return total


def seconds(function, *arguments):
    """Time one call, in seconds of the processor, which other processes cannot stretch."""
    start = time.process_time()
    function(*arguments)
    return time.process_time() - start


def ratio_of(sampler, floor):
    """Median ratio of two timings that alternate."""
    sampler(), floor()
    return round(median(sampler() / floor() for _ in range(REPEATS)), 3)


def tuned(step, tune=300):
    """Tune a step by hand; return it and its point."""
    step.setup_chain(np.random.default_rng(0), tune, 1)
    point = step.model.initial_point()
    for _ in range(tune):
        point, _ = step.step(point)
    step.stop_tuning()
    return step


def draw_seconds(step, n, tune):
    """Return a function that times n transitions inside one compiled call."""
    own = block(step, CURRENT, step.statistics.empty(1))._replace(n_transitions=n, tune=tune)
    point, progress = step.state.x.copy(), np.zeros(N_PROGRESS, np.int64)
    return lambda: seconds(step._run, (own,), point, NO_OUTPUTS, progress)


WHEN = ("after tuning", "while tuning")


def walk_ratios(sampler):
    """Cost of a transition over that of one evaluation and its random numbers."""
    model = normal_model(D)
    learning = sampler(model=model)
    learning.setup_chain(np.random.default_rng(0), 10**9, 1)
    learning.step(model.initial_point())
    steps = tuned(sampler(model=model)), learning
    return {when: bare(step, step is learning) for when, step in zip(WHEN, steps, strict=True)}


def bare(step, tune):
    """Ratio of n transitions and a bare loop of n evaluations."""
    target = step.log_density.target(step.rng)
    arguments = (target, np.zeros(target.point.size), step.rng, N)
    loop = specialise(bare_loop, *arguments)
    return ratio_of(draw_seconds(step, N, tune), lambda: seconds(loop, *arguments))


def kernel_ratio(sampler, n=1000):
    """Cost of a transition over that of one S and one evaluation."""
    step = tuned(sampler(model=normal_model(D), n_subsample=1000), tune=3000)
    # CyclicalKAM has those of KAM as a field.
    parameters, work = (getattr(own, "kam", own) for own in (step.parameters, step._work))
    subsample = parameters.subsample
    z = np.ascontiguousarray(subsample.z[:, : subsample.m[0]])
    arguments = (
        step.log_density.target(step.rng),
        subsample.kernel,
        z,
        np.ascontiguousarray(z.T),
        work.covariance,
        work.v,
        n,
    )
    loop = specialise(kernel_loop, *arguments)
    ratio = ratio_of(draw_seconds(step, n, False), lambda: seconds(loop, *arguments))
    return {"after tuning": ratio}


def pca_ratio(sampler, m=1000, n=1000):
    """Cost of a PCAKAM transition over that of its weights, two directions and one evaluation."""
    step = tuned(sampler(model=normal_model(D), n_subsample=m), tune=3000)
    parameters, work = step.parameters, step._work
    assert parameters.subsample.m[0] == m
    points = np.ascontiguousarray(parameters.subsample.z.T)
    arguments = (step.log_density.target(step.rng), parameters, points, work.weights, work.here, n)
    loop = specialise(direction_loop, *arguments)
    ratio = ratio_of(draw_seconds(step, n, False), lambda: seconds(loop, *arguments))
    return {"after tuning": ratio}


def surrogate_move(shares, n_centres=300, n_inner=8):
    """Microseconds beyond the log-density of moves whose kinds have these probabilities."""
    model = normal_model(10)
    step = pk.SurrogateMetropolis(model=model, expensive=True)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    step.step(model.initial_point())
    parameters, surrogate = step.parameters, step.parameters.surrogate
    rng, target = np.random.default_rng(1), step.log_density.target(step.rng)
    surrogate.nu[0], surrogate.n[0], parameters.n_inner[0] = 8.0, n_centres, n_inner
    surrogate.centres[:, :n_centres] = rng.standard_normal((step.state.x.size, n_centres))
    surrogate.weights[:n_centres] = 0.01 * rng.standard_normal(n_centres)
    surrogate.is_quadratic[0], surrogate.rates[:], surrogate.bounds[:] = 1, 0.3, (-1.0, 1.0)
    surrogate.quadratic[:], parameters.factor[:] = -0.5 * np.eye(10), np.diag(np.linspace(1, 3, 10))
    arguments = (target, np.zeros(target.point.size), N)
    loop = specialise(evaluations, *arguments)
    parameters.shares[:] = shares
    move, floor = draw_seconds(step, N, False), lambda: seconds(loop, *arguments)
    move(), floor()
    beyond = median(move() - floor() for _ in range(REPEATS))
    return {"figure": round(1e6 * beyond / N, 3)}


def through_pm_sample(rival, draws=2000):
    """Transitions per second of GAM over those of a step of PyMC, one chain each."""
    model = banana_model(D)
    ours = pk.GAM(model=model, steps_per_draw=100)
    theirs = rival(model.value_vars, model=model, blocked=True)

    def run(step, transitions):
        def timed():
            own = {"tune": 500, "chains": 1, "step": step, "model": model, "random_seed": 1}
            total = seconds(partial(sample_by_pymc, draws, **own))
            return total / ((draws + 500) * transitions)

        return timed

    slow, fast = run(theirs, 1), run(ours, 100)
    slow(), fast()
    return {"figure": round(median(slow() / fast() for _ in range(5)), 1)}


FIRST_DRAW = """
import time, numpy as np, pymc as pm, pymc_kameleon as pk
from pymc_kameleon.step import base as module
with pm.Model() as model:
    pm.Normal("x", 0, np.linspace(1, 3, 9)); pm.Gamma("g", 2, 1)
compiling = 0.0
original = module.ModelLogp
def timed(*arguments):
    global compiling
    start = time.perf_counter()
    try:
        return original(*arguments)
    finally:
        compiling = time.perf_counter() - start
module.ModelLogp = timed
point = model.initial_point()
start = time.perf_counter()
step = pk.KAM(model=model)
step.setup_chain(1, 1000, 1000)
step.step(point)
print(time.perf_counter() - start - compiling)
"""


def first_draw():
    """Seconds from the construction of KAM to its first draw in a new process, warm caches."""
    runs = [
        float(
            subprocess.run(
                [sys.executable, "-c", FIRST_DRAW], capture_output=True, text=True, check=True
            ).stdout
        )
        for _ in range(4)
    ]
    return {"figure": round(median(runs[1:]), 3)}


def memory(d, **options):
    """MiB of a chain's whole state: it has the same size whatever the length of tuning."""
    step = pk.KAM(model=normal_model(d), **options)
    step.setup_chain(0, 10**6 // step.steps_per_draw, 1)

    def size(value):
        if isinstance(value, np.ndarray):
            return value.nbytes
        return sum(map(size, value)) if isinstance(value, tuple) else 8

    whole = size((step.state, step.parameters, step.tuning, step._work))
    return {"figure": round(whole / 2**20, 3)}


if __name__ == "__main__":
    main(FILE, plan, tables)
