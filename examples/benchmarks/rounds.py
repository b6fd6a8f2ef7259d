"""What many workers are good for: rounds, which are what a run takes in times of an evaluation.

    python examples/benchmarks/rounds.py [--cases AR5 GARCH] [--workers 4,16,64] [--evaluations N]
        [--each 0.1] [--sigma 0] [--seeds 3] [--threads]

Each evaluation sleeps for so many seconds on average in processes of this machine, or in threads, P
at a time, and ``pk.sample(max_concurrent=P, max_evaluations=N)`` is timed: rounds are its seconds
over those of an evaluation. ``own`` is the processor time of this process for each evaluation, in
ms. What the runs are worth is printed by ``first_evaluations.py --workers P``.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache, partial
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, main, sample
from problems import Problem

import pymc_kameleon as pk

CASES = ("AR5", "interaction", "flat priors", "GARCH", "hidden Markov", "schools")


def plan(options):
    """Yield what is to be run."""
    workers = map(int, options.workers.split(","))
    for what, measure in each(run, case=CASES, workers=workers):
        yield what, partial(measure, options=options)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--workers", default="4,16,64", help="evaluations at once")
    parser.add_argument("--evaluations", type=int, default=3500)
    parser.add_argument("--each", type=float, default=0.1, help="seconds of one, on average")
    parser.add_argument("--threads", action="store_true", help="a ThreadPoolExecutor")
    parser.add_argument("--sigma", type=float, default=0.0, help="of log seconds, which vary so")


@lru_cache(1)
def built(case, seconds, sigma):
    """Return a step for a problem, compiled once."""
    problem = Problem(case)
    make_slow(problem.model, seconds, sigma)
    return pk.SurrogateMetropolis(model=problem.model)


def make_slow(model, seconds, sigma):
    """Let each evaluation of the log-density sleep for so long on average, as its point says."""

    @pk.black_box(ndim=0)
    def sleep(x):
        z = np.random.default_rng(crc32(x.tobytes())).standard_normal()
        time.sleep(seconds * np.exp(sigma * z - sigma**2 / 2))
        return np.array(0.0)

    with model:
        pm.Potential("slow", sleep(pt.atleast_1d(model.free_RVs[0]).ravel().astype("float64")))


def run(case, workers, options=None):
    """Return the rounds of runs."""
    step = built(case, options.each, options.sigma)
    rounds, own, made = [], [], []
    for seed in range(options.seeds):
        begun, used = time.perf_counter(), time.process_time()
        with ThreadPoolExecutor(workers) as threads:
            dt = sample(
                step,
                max_concurrent=workers,
                max_evaluations=options.evaluations,
                cores=None if options.threads else workers,
                executor=threads if options.threads else None,
                random_seed=seed,
            )
        made.append(int(dt["sample_stats"]["n_logp"].sum()))
        rounds.append((time.perf_counter() - begun) / options.each)
        own.append(1e3 * (time.process_time() - used) / options.evaluations)
    found = {"rounds": round(np.median(rounds)), "own ms": round(np.median(own), 1)}
    return found | {"draws took": made}


if __name__ == "__main__":
    main(None, plan, seeds=3, add_options=add_options)
