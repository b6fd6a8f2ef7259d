"""What a transition costs, against its floor: ratios measured side by side in one run.

    python examples/benchmarks/transitions.py

Prints the table of docs/performance.md. Each figure is the median of several repeats, in which the
sampler and its floor alternate, so that a machine whose speed drifts does not bend the ratio.
"""

import logging
import subprocess
import sys
import time
from statistics import median

import numpy as np
import pymc as pm

import pymc_kameleon as pk
from pymc_kameleon.core.chain import CURRENT, N_PROGRESS
from pymc_kameleon.core.jit import entry_jit, specialise
from pymc_kameleon.core.rkhs import kernel_covariance
from pymc_kameleon.core.target import log_density
from pymc_kameleon.draws import NO_OUTPUTS, block
from pymc_kameleon.samplers.pca_kam import look, weigh

REPEATS = 15
N = 20_000


def main():
    """Print all ratios."""
    logging.getLogger("pymc").setLevel(logging.ERROR)
    print(f"{'what':<68} {'asked':>7} {'measured':>9}")
    d = 8
    model = normal_model(d)
    row("RWM, d=8, after tuning / bare loop of logp + normals", "<= 2", bare(pk.RWM, model, False))
    row("GAM, d=8, after tuning / same", "<= 3", bare(pk.GAM, model, False))
    row("GAM, d=8, while tuning / same", "<= 6", bare(pk.GAM, model, True))
    for sampler in (pk.AM, pk.RBAM, pk.RAM):
        name = sampler.__name__
        row(f"{name}, d=8, after tuning / same", "", bare(sampler, model, False))
        row(f"{name}, d=8, while tuning / same", "", bare(sampler, model, True))
    row("KAM, d=8, m=1000, after tuning / one S + logp", "<= 1.4", kernel_ratio(pk.KAM, model))
    row("CyclicalKAM, one mode, same", "", kernel_ratio(pk.CyclicalKAM, model))
    row("PCAKAM, same / weights of z, two directions + logp", "", pca_against_its_kernel(model))
    for what, asked, microseconds in zip(
        ("reference move", "move by the surrogate, M=8, 300 centres"),
        ("<= 1.2", "<= 15"),
        surrogate_moves(normal_model(10)),
        strict=True,
    ):
        row(f"µs of a {what}, d=10, beyond the logp", asked, microseconds)
    banana = banana_model(d)
    for rival, asked in [(pm.DEMetropolisZ, ">= 30"), (pm.Metropolis, ">= 90")]:
        ratio = through_pm_sample(banana, rival)
        row(f"GAM through pm.sample, transitions/s / {rival.__name__} blocked", asked, ratio)
    row("seconds to the first draw of KAM, beyond the compiled logp", "<= 1", first_draw())
    row("MiB of state after 1e6 tuning transitions of KAM, d=10", "bounded", memory())


def row(what, asked, measured):
    """Print a line of the table."""
    print(f"{what:<68} {asked:>7} {measured:9.2f}", flush=True)


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
    """Time one call."""
    start = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - start


def ratio_of(sampler, floor):
    """Median ratio of two timings that alternate."""
    sampler(), floor()
    return median(sampler() / floor() for _ in range(REPEATS))


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
    own = block(step, CURRENT, step.empty_stats(1))._replace(n_transitions=n, tune=tune)
    point, progress = step.state.x.copy(), np.zeros(N_PROGRESS, np.int64)
    return lambda: seconds(step._run, (own,), point, NO_OUTPUTS, progress)


def bare(sampler, model, tune):
    """Cost of a transition over that of one evaluation and its random numbers."""
    step = sampler(model=model)
    if tune:
        step.setup_chain(np.random.default_rng(0), 10**9, 1)
        step.step(model.initial_point())
    else:
        tuned(step)
    target = step.log_density.target
    arguments = (target, np.zeros(target.point.size), step.rng, N)
    loop = specialise(bare_loop, *arguments)
    return ratio_of(draw_seconds(step, N, tune), lambda: seconds(loop, *arguments))


def kernel_ratio(sampler, model, n=1000):
    """Cost of a transition over that of one S and one evaluation."""
    step = tuned(sampler(model=model, n_subsample=1000), tune=3000)
    # CyclicalKAM has those of KAM as a field.
    parameters, work = (getattr(own, "kam", own) for own in (step.parameters, step._work))
    subsample = parameters.subsample
    z = np.ascontiguousarray(subsample.z[:, : subsample.m[0]])
    arguments = (
        step.log_density.target,
        subsample.kernel,
        z,
        np.ascontiguousarray(z.T),
        work.covariance,
        work.v,
        n,
    )
    loop = specialise(kernel_loop, *arguments)
    return ratio_of(draw_seconds(step, n, False), lambda: seconds(loop, *arguments))


def pca_against_its_kernel(model, m=1000, n=1000):
    """Cost of a PCAKAM transition over that of its weights, two directions and one evaluation."""
    step = tuned(pk.PCAKAM(model=model, n_subsample=m), tune=3000)
    parameters, work = step.parameters, step._work
    assert parameters.subsample.m[0] == m
    points = np.ascontiguousarray(parameters.subsample.z.T)
    arguments = (step.log_density.target, parameters, points, work.weights, work.here, n)
    loop = specialise(direction_loop, *arguments)
    return ratio_of(draw_seconds(step, n, False), lambda: seconds(loop, *arguments))


def surrogate_moves(model, n_centres=300, n_inner=8):
    """Microseconds of a reference move and of one by the surrogate, beyond the log-density."""
    step = pk.SurrogateMetropolis(model=model, expensive=True)
    step.setup_chain(np.random.default_rng(0), 0, 1)
    step.step(model.initial_point())
    parameters, surrogate = step.parameters, step.parameters.surrogate
    rng, target = np.random.default_rng(1), step.log_density.target
    surrogate.nu[0], surrogate.n[0], parameters.n_inner[0] = 8.0, n_centres, n_inner
    surrogate.centres[:, :n_centres] = rng.standard_normal((step.state.x.size, n_centres))
    surrogate.weights[:n_centres] = 0.01 * rng.standard_normal(n_centres)
    surrogate.is_quadratic[0], surrogate.rates[:], surrogate.bounds[:] = 1, 0.3, (-1.0, 1.0)
    surrogate.quadratic[:], parameters.factor[:] = -0.5 * np.eye(10), np.diag(np.linspace(1, 3, 10))
    arguments = (target, np.zeros(target.point.size), N)
    loop = specialise(evaluations, *arguments)
    found = []
    for shares in [(0.0, 1.0, 0.0), (0.0, 0.0, 1.0)]:
        parameters.shares[:] = shares
        move, floor = draw_seconds(step, N, False), lambda: seconds(loop, *arguments)
        move(), floor()
        found.append(1e6 / N * median(move() - floor() for _ in range(REPEATS)))
    return found


def through_pm_sample(model, rival, draws=2000):
    """Transitions per second of GAM over those of a step of PyMC, one chain each."""
    ours = pk.GAM(model=model, steps_per_draw=100)
    theirs = rival(model.value_vars, model=model, blocked=True)

    def run(step, transitions):
        def timed():
            total = seconds(
                lambda: pm.sample(
                    draws,
                    tune=500,
                    chains=1,
                    step=step,
                    model=model,
                    progressbar=False,
                    compute_convergence_checks=False,
                    random_seed=1,
                )
            )
            return total / ((draws + 500) * transitions)

        return timed

    slow, fast = run(theirs, 1), run(ours, 100)
    slow(), fast()
    return median(slow() / fast() for _ in range(5))


FIRST_DRAW = """
import time, numpy as np, pymc as pm, pymc_kameleon as pk
from pymc_kameleon import step as module
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
    return median(runs[1:])


def memory():
    """MiB of a chain's whole state: it has the same size whatever the length of tuning."""
    step = pk.KAM(model=normal_model(10))
    step.setup_chain(0, 10**6 // step.steps_per_draw, 1)

    def size(value):
        if isinstance(value, np.ndarray):
            return value.nbytes
        return sum(map(size, value)) if isinstance(value, tuple) else 8

    return size((step.state, step.parameters, step.tuning, step._work)) / 2**20


if __name__ == "__main__":
    main()
