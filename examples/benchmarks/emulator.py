"""How well a step knows a posterior after so many calls of its simulator.

    python examples/benchmarks/emulator.py influenza [--step SurrogateMetropolis] [--calls 500]
        [--tune 62] [--seeds 8]

The models are those of simulators.py, with what is known of their posteriors. A run is one of
`pk.sample` with four chains, in this process. Its calls are counted by the simulator itself, the
way to the posterior and tuning included; one call for each subject counts as one for all of them.
A run that would take more than are allowed has fewer draws, and if it learns for too long, none; it
is infinitely wrong then. Calls when the step is made are printed first.

A line for each seed, and then of all together: the largest R-hat of the draws, and that of what is
stated, which is that of `pk.summary` over the coordinates; and effective draws, 1 / mean
over the seeds of the squared error of the mean, in posterior standard deviations, of the worst and
the median coordinate on the unconstrained scale. As many independent draws would have that error.
They are those of the draws, of `pk.summary`, and of `surrogate_draws`. A plus says that the
reference is too short, so that there are more. z is the root mean square of
error / standard error. A run is right if no mean is off by a standard deviation. Seconds are those
of `pk.sample` without those of the simulator; what is compiled once is in the first seed's only.
"""

import argparse
import warnings
from time import perf_counter
from typing import NamedTuple

import arviz as az
import numpy as np
from dispersed import evaluations, quiet
from simulators import MODELS, Known, reference

import pymc_kameleon as pk

CHAINS = 4
SURROGATE_DRAWS = 2000
ENOUGH = 5
"""A reference is worth so many times the effective draws that it measures, or marked."""
KINDS = ("draws", "summary", "surrogates")
ACCEPTANCE = ("emulator_accept", "surrogate_accept", "acceptance_rate", "accept", "accepted")
"""Statistics of which the first that a step has is its acceptance."""


def main():
    """Run, and print a line for each seed and a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", choices=MODELS)
    parser.add_argument("--step", default="SurrogateMetropolis", help="a class of pymc_kameleon")
    parser.add_argument("--calls", type=int, default=500, help="of the simulator, per seed")
    parser.add_argument("--tune", type=int, help="of each chain's calls, half by default")
    parser.add_argument("--seeds", type=int, default=8, help="runs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    benchmark = MODELS[options.model]
    problem = Known(options.model, benchmark.model)
    call, known = benchmark.simulator.call, reference(benchmark.known_as or options.model)
    with quiet():
        step = getattr(pk, options.step)(model=problem.model, steps_per_draw=1)
    print(f"{options.model}, d = {problem.d}, {options.step}: {call.calls} calls when it is made")
    runs = []
    for seed in range(options.seeds):
        runs.append(measured(problem, step, call, options, seed))
        print(in_a_line(seed, runs[-1], known), flush=True)
    print_table(runs, known)


class Estimate(NamedTuple):
    """Means of coordinates (d,), their standard errors, and the largest R-hat."""

    mean: np.ndarray
    mcse: np.ndarray
    rhat: float = np.inf


class Measured(NamedTuple):
    """What a run came to; `estimates` are by kind, and `warned` is the first words of a warning."""

    calls: float
    n_logp: int
    draws: int
    rhat: float
    acceptance: float
    seconds: float
    estimates: dict
    warned: list


# ---- a run --------------------------------------------------------------------------------------


def measured(problem, step, call, options, seed):
    """Run once; if that takes more calls than are allowed, again with as many draws as they give.

    These are the same draws, as the seed is the same.
    """
    each = options.calls // CHAINS
    tune = each // 2 if options.tune is None else options.tune
    draws = each - tune
    while True:
        call.calls, call.seconds, began = 0, 0.0, perf_counter()
        with quiet() as told:
            dt = pk.sample(
                draws,
                tune=tune,
                step=step,
                model=problem.model,
                chains=CHAINS,
                cores=1,  # so that the calls are made, and counted, in this process
                random_seed=seed,
                progressbar=False,
                surrogate_draws=SURROGATE_DRAWS,
                idata_kwargs={"include_transformed": True},
            )
        seconds, calls = perf_counter() - began - call.seconds, call.calls
        n_logp = evaluations(dt).sum(axis=0)
        kept = np.count_nonzero(n_logp[tune:] <= options.calls)
        if kept in (0, draws):
            break
        draws = kept
    with quiet():
        estimates = estimates_of(problem, dt) if kept > 0 else of_nothing(problem.d)
    assert call.calls == calls, "an estimate has called the simulator"
    return Measured(
        calls / MODELS[problem.name].applications,
        int(n_logp[-1]),
        kept,
        rhat_of(problem.coordinates(dt["posterior"])[:, :kept]),
        acceptance_of(dt["sample_stats"]),
        seconds,
        estimates,
        [record.getMessage() for record in told],
    )


def estimates_of(problem, dt):
    """Return estimates by kind."""
    x = problem.coordinates(dt["posterior"])
    ess = az.ess(az.convert_to_datatree({"x": x}), method="mean")["x"].values
    found = {"draws": Estimate(x.mean(axis=(0, 1)), x.std(axis=(0, 1)) / np.sqrt(ess))}
    found["summary"] = summarised(problem, dt)
    if "surrogate_posterior" in dt.children:
        found["surrogates"] = summarised(problem, dt["surrogate_posterior"])
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


def rhat_of(x):
    """Return the largest R-hat of coordinates (chains, n, d), infinite of too few draws."""
    if x.shape[1] < 4:
        return np.inf
    return float(az.rhat(az.convert_to_datatree({"x": x}))["x"].max())


def acceptance_of(stats):
    """Return the mean acceptance after tuning."""
    own = next((stats[name].values for name in ACCEPTANCE if name in stats), np.nan)
    return float(np.nanmean(own))


# ---- what it comes to ---------------------------------------------------------------------------


def errors(estimate, known):
    """Return errors of means (d,) in posterior standard deviations."""
    return (estimate.mean - known["mean"]) / known["sd"]


def in_a_line(seed, run, known):
    """Return what there is to say of a run."""
    line = f"seed {seed}: {run.calls:g} calls, n_logp {run.n_logp}, {run.draws} draws, "
    line += f"R-hat {run.rhat:.3f}, of what is stated {run.estimates['summary'].rhat:.3f}, "
    line += f"acceptance {run.acceptance:.2f}, {run.seconds:.1f} s"
    if known is not None:
        for kind, estimate in run.estimates.items():
            line += f", {kind} off by {np.abs(errors(estimate, known)).max():.2f}"
    return line + "".join(f"\n    {told.splitlines()[0][:150]}" for told in run.warned)


def print_table(runs, known):
    """Print what all runs come to together."""
    for what, rhat in (
        ("the draws", [run.rhat for run in runs]),
        ("what is stated", [run.estimates["summary"].rhat for run in runs]),
    ):
        print(f"R-hat of {what}: worst {max(rhat):.3f}, median {np.median(rhat):.3f}")
    for name in ("calls", "acceptance", "seconds"):
        values = [getattr(run, name) for run in runs]
        print(f"{name}: {min(values):.4g} to {max(values):.4g}, median {np.median(values):.4g}")
    if known is None:
        return
    print(f"{'':<12}{'worst':>8}{'median':>9}{'z':>7}{'right':>8}")
    for kind in KINDS:
        own = [run.estimates[kind] for run in runs if kind in run.estimates]
        if not own:
            continue
        off = np.array([errors(estimate, known) for estimate in own])
        n = 1 / np.mean(off**2, axis=0)
        mcse = np.array([estimate.mcse for estimate in own]) / known["sd"]
        if known["ess"] is not None:
            mcse = np.hypot(mcse, known["ess"] ** -0.5)
        z = np.sqrt(np.nanmean((off / mcse) ** 2))
        right = np.count_nonzero(np.abs(off).max(axis=1) < 1)
        marks = ["", ""] if known["ess"] is None else marks_of(n, known["ess"])
        cells = [f"{value:.0f}{mark}" for value, mark in zip(shown(n), marks, strict=True)]
        print(f"{kind:<12}{cells[0]:>8}{cells[1]:>9}{z:>7.2f}{right:>5} of {len(runs)}")


def shown(n):
    """Return the least and the median."""
    return n.min(), np.median(n)


def marks_of(n, ess):
    """Return for the worst and the median coordinate a plus if its reference is too short."""
    places = np.argsort(n)[[0, n.size // 2]]
    return ["+" if ess[place] < ENOUGH * n[place] else "" for place in places]


if __name__ == "__main__":
    main()
