"""What many workers are good for: rounds, what a run takes in times of an evaluation; and accuracy.

    python examples/benchmarks/rounds.py [--cases AR5,GARCH] [--workers 4,16,64] [--evaluations N]
        [--seconds 0.1] [--sigma 0] [--seeds 3]

Each evaluation sleeps for so many seconds on average in processes of this machine, P at a time, and
``pk.sample(max_concurrent=P, max_evaluations=N)`` is timed: rounds are its seconds over those
of an evaluation. ``own`` is the processor time of this process for each evaluation, in ms. With
``--seconds 0`` nothing sleeps, and what all runs are worth is printed: effective draws of means and
shares, as first_evaluations.py has them, of ``pk.expectation``.
"""

import argparse
import time
import warnings
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from dispersed import quiet
from evaluations import Problem
from first_evaluations import functions, reference, worth

import pymc_kameleon as pk

CASES = "AR5,interaction,flat priors,GARCH,hidden Markov,schools"


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--workers", default="4,16,64", help="evaluations at once")
    parser.add_argument("--evaluations", type=int, default=3500)
    parser.add_argument("--seconds", type=float, default=0.1, help="of an evaluation, on average")
    parser.add_argument("--sigma", type=float, default=0.0, help="of log seconds, which vary so")
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for name in options.cases.split(","):
        problem = Problem(name)
        if options.seconds > 0:
            make_slow(problem.model, options.seconds, options.sigma)
        step = pk.SurrogateMetropolis(model=problem.model, expensive=True)
        for p in map(int, options.workers.split(",")):
            show(problem, step, p, options)


def make_slow(model, seconds, sigma):
    """Let each evaluation of the log-density sleep for so long on average, as its point says."""

    @pk.black_box(ndim=0)
    def sleep(x):
        z = np.random.default_rng(crc32(x.tobytes())).standard_normal()
        time.sleep(seconds * np.exp(sigma * z - sigma**2 / 2))
        return np.array(0.0)

    with model:
        pm.Potential("slow", sleep(pt.atleast_1d(model.free_RVs[0]).ravel().astype("float64")))


def show(problem, step, p, options):
    """Print the rounds of runs, or what they are worth."""
    known, errors, z, rounds, own, made = reference(problem), [], [], [], [], []
    for seed in range(options.seeds):
        begun, used = time.perf_counter(), time.process_time()
        with quiet():
            dt = pk.sample(
                step=step,
                model=problem.model,
                max_concurrent=p,
                max_evaluations=options.evaluations,
                cores=p if options.seconds > 0 else 1,
                random_seed=seed,
                progressbar=False,
                compute_convergence_checks=False,
                idata_kwargs={"include_transformed": True},
            )
        made.append(int(dt["sample_stats"]["n_logp"].sum()))
        if options.seconds > 0:
            rounds.append((time.perf_counter() - begun) / options.seconds)
            own.append(1e3 * (time.process_time() - used) / options.evaluations)
            continue
        answer = pk.expectation(dt, lambda v: functions(problem.coordinates(v), known))
        errors.append(answer.mean)
        z.append(answer.mean / answer.mcse)
    label = f"{problem.name:14} P = {p:2}"
    if options.seconds > 0:
        told = f"{np.median(rounds):5.0f} rounds, {np.median(own):.1f} ms own"
    else:
        told = f"{worth(errors)}; z {np.sqrt(np.mean(np.square(z))):.2f}, NaN {np.isnan(z).sum()}"
    print(f"{label}: {told}; draws took {made}", flush=True)


if __name__ == "__main__":
    main()
