"""How well a step knows a posterior after so many calls of its simulator.

    python examples/benchmarks/emulator.py --cases influenza [--samplers EmulatorMetropolis]
        [--calls 500] [--tune 62] [--seeds 8]

The models are those of simulators.py, with what is known of their posteriors. A run is one of
`pk.sample` with four chains, in this process. Its calls are counted by the simulator itself, the
way to the posterior and tuning included; one call for each subject counts as one for all of them.
A run that would take more than are allowed has fewer draws, and if it learns for too long, none; it
is infinitely wrong then. Nothing is kept: the pages have the figures typed.

A line for each seed, and then of all together: the largest R-hat of the draws, and that of what is
stated, which is that of `pk.summary` over the coordinates; and effective draws, 1 / mean
over the seeds of the squared error of the mean, in posterior standard deviations, of the worst and
the median coordinate on the unconstrained scale. As many independent draws would have that error.
They are those of the draws, and of `pk.summary`. A plus says that the
reference is too short, so that there are more. z is the root mean square of
error / standard error. A run is right if no mean is off by a standard deviation. Seconds are those
of `pk.sample` without those of the simulator; what is compiled once is in the first seed's only.
"""

from functools import lru_cache, partial
from time import perf_counter
from typing import NamedTuple

import numpy as np
from benchmark import (
    CHAINS,
    each,
    ess_of_means,
    evaluations,
    grouped,
    largest_rhat,
    main,
    quiet,
    rounded,
    sample,
    sampler_class,
    table,
)
from simulators import MODELS, Known, reference

import pymc_kameleon as pk

ENOUGH = 5
"""A reference is worth so many times the effective draws that it measures, or marked."""
KINDS = ("draws", "summary")
ACCEPTANCE = ("emulator_accept", "surrogate_accept", "acceptance_rate", "accept", "accepted")
"""Statistics of which the first that a step has is its acceptance."""


def plan(options):
    """Yield what is to be run."""
    samplers = options.samplers or ["SurrogateMetropolis"]
    for what, measure in each(run, case=MODELS, sampler=samplers, seed=range(options.seeds)):
        yield what, partial(measure, calls=options.calls, tune=options.tune)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--calls", type=int, default=500, help="of the simulator, per seed")
    parser.add_argument("--tune", type=int, help="of each chain's calls, half by default")


@lru_cache(1)
def built(case, sampler):
    """Return a problem and a step, compiled once."""
    problem = Known(case, MODELS[case].model)
    return problem, sampler_class(sampler)(model=problem.model, steps_per_draw=1)


class Estimate(NamedTuple):
    """Means of coordinates (d,), their standard errors, and the largest R-hat."""

    mean: np.ndarray
    mcse: np.ndarray
    rhat: float = np.inf


# ---- a run --------------------------------------------------------------------------------------


def run(case, sampler, seed, calls=500, tune=None):
    """Run once; if that takes more calls than are allowed, again with as many draws as they give.

    These are the same draws, as the seed is the same.
    """
    (problem, step), call = built(case, sampler), MODELS[case].simulator.call
    tune = calls // CHAINS // 2 if tune is None else tune
    draws = calls // CHAINS - tune
    while True:
        call.calls, call.seconds, began = 0, 0.0, perf_counter()
        with quiet() as told:
            dt = sample(
                step,
                draws,
                tune=tune,
                random_seed=seed,
                compute_convergence_checks=True,
            )
        seconds, made = perf_counter() - began - call.seconds, call.calls
        n_logp = evaluations(dt).sum(axis=0)
        kept = np.count_nonzero(n_logp[tune:] <= calls)
        if kept in (0, draws):
            break
        draws = kept
    estimates = estimates_of(problem, dt) if kept > 0 else of_nothing(problem.d)
    assert call.calls == made, "an estimate has called the simulator"
    x = problem.coordinates(dt["posterior"])[:, :kept]
    row = {
        "calls": made / MODELS[case].applications,
        "n_logp": int(n_logp[-1]),
        "draws": int(kept),
        "rhat": largest_rhat(x) if kept >= 4 else np.inf,
        "rhat of summary": estimates["summary"].rhat,
        "acceptance": acceptance_of(dt["sample_stats"]),
        "seconds": round(seconds, 1),
        "told": [record.getMessage().splitlines()[0][:150] for record in told],
    }
    known = reference(MODELS[case].known_as or case)
    return row | ({} if known is None else errors(estimates, known))


def estimates_of(problem, dt):
    """Return estimates by kind."""
    x = problem.coordinates(dt["posterior"])
    error = x.std(axis=(0, 1)) / np.sqrt(ess_of_means(x))
    found = {"draws": Estimate(x.mean(axis=(0, 1)), error)}
    found["summary"] = summarised(problem, dt)
    return found


def of_nothing(d):
    """Return the estimates of a run that has no draws, which are infinitely wrong."""
    return dict.fromkeys(KINDS, Estimate(np.full(d, np.inf), np.full(d, np.nan)))


def summarised(problem, dt):
    """Return what pk.summary says of the coordinates."""
    names = list(problem.initial)
    table = pk.summary(dt, names, round_to="none", model=problem.model)
    return Estimate(
        table["mean"].to_numpy(), table["mcse_mean"].to_numpy(), float(table["r_hat"].max())
    )


def acceptance_of(stats):
    """Return the mean acceptance after tuning."""
    own = next((stats[name].values for name in ACCEPTANCE if name in stats), np.nan)
    return float(np.nanmean(own))


# ---- what it comes to ---------------------------------------------------------------------------


def errors(estimates, known):
    """Return by kind the errors of means (d,) in posterior standard deviations, and mcse."""
    found = {}
    for kind, one in estimates.items():
        found[kind] = rounded((one.mean - known["mean"]) / known["sd"])
        found[f"mcse of {kind}"] = rounded(one.mcse / known["sd"])
    return found


def tables(rows):
    """Return the table of all runs together."""
    lines = []
    for (case, sampler), own in grouped(rows, "case", "sampler").items():
        known = reference(MODELS[case].known_as or case)
        for kind in KINDS:
            runs = [row for row in own if kind in row]
            if runs:
                lines.append([case, sampler, kind, *cells(runs, kind, known)])
    titles = ["model", "sampler", "estimates", "R-hat, median | largest", "worst | median"]
    return {"emulator.md": {"accuracy": table([*titles, "z", "right"], lines)}}


def cells(runs, kind, known):
    """Return R-hat, effective draws of the worst and the median coordinate, z, and how many right.

    A plus says that a coordinate's reference is too short.
    """
    rhat = [row["rhat" if kind == "draws" else "rhat of summary"] for row in runs]
    off, mcse = (np.array([row[key] for row in runs]) for key in (kind, f"mcse of {kind}"))
    n, ess = 1 / np.mean(off**2, axis=0), known["ess"]
    if ess is not None:
        mcse = np.hypot(mcse, ess**-0.5)
    z = np.sqrt(np.nanmean((off / mcse) ** 2))
    right = np.count_nonzero(np.abs(off).max(axis=1) < 1)
    places = np.argsort(n)[[0, n.size // 2]]
    marks = ["+" if ess is not None and ess[k] < ENOUGH * n[k] else "" for k in places]
    worth = [f"{x:.0f}{mark}" for x, mark in zip((n.min(), np.median(n)), marks, strict=True)]
    rhats = [f"{np.median(rhat):.3f}", f"{max(rhat):.3f}"]
    return [*rhats, *worth, f"{z:.2f}", f"{right} of {len(runs)}"]


if __name__ == "__main__":
    main(None, plan, tables, seeds=8, add_options=add_options)
