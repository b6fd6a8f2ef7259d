"""How much closer to a posterior each call of its simulator leads, with and without an emulator.

    python examples/benchmarks/emulator_calls.py [--seeds 4] [--cases influenza pk_by_subject heat]
    python examples/benchmarks/emulator_calls.py --picture
    python examples/benchmarks/emulator_calls.py --calls 500 --tune 45 --cases pk_by_subject

A run takes up to some minutes, with four chains and the seeds 0, 1, …

The models are those of simulators.py. Each has runs of several lengths, half of them tuning, by
EmulatorMetropolis and by SurrogateMetropolis. A run counts the calls of its simulator, those of
its way to the posterior and of tuning included. One call for each subject counts as one for all.
The error is that of the means of `pk.summary`, in posterior standard deviations.

With --calls, runs of any of the models have so many calls: draws beyond them are cut off. Nothing
is kept, and what all seeds together come to is printed: effective draws, 1 / mean of the squared
error, of the worst and the median coordinate on the unconstrained scale, by the draws and by
`pk.summary`; and medians of R-hat. docs/emulator.md has these figures typed.
"""

from pathlib import Path

import benchmark
import matplotlib.pyplot as plt
import numpy as np
import pictures
from simulators import MODELS, reference

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
PICTURE = benchmark.DOCS / "images" / "emulator_calls.png"
SHOWN = {
    "influenza": "epidemic, d = 3",
    "pk_by_subject": "a drug in four people, d = 16",
    "heat": "random field, d = 26",
}
LENGTHS = {
    "influenza": (6, 12, 25, 50, 100),
    "pk_by_subject": (12, 25, 50, 100),
    "heat": (25, 50, 100, 200),
}
"""Draws of tuning of each chain, and as many after it."""
TICKS = 100, 300, 1000, 3000
SAMPLERS = {"EmulatorMetropolis": "o-", "SurrogateMetropolis": "s--"}


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--calls", type=int, help="of the simulator, of each run")
    parser.add_argument("--tune", type=int, help="of each chain's calls, half by default")


def plan(options):
    """Return what is to be run."""
    if options.calls is None:
        return runs(options.seeds)
    options.json = None
    tune = options.tune or options.calls // benchmark.CHAINS // 2
    lengths = {"calls": [options.calls], "tune": [tune], "seeds": [options.seeds]}
    return benchmark.each(accuracy, case=MODELS, sampler=SAMPLERS, **lengths)


def runs(seeds):
    """Yield what the page has, short runs first."""
    for seed in range(seeds):
        for k in range(max(map(len, LENGTHS.values()))):
            for case, lengths in LENGTHS.items():
                own = lengths[k : k + 1]
                yield from benchmark.each(
                    run, case=[case], sampler=SAMPLERS, length=own, seed=[seed]
                )


def run(case, sampler, length, seed):
    """Return the calls of a run, and errors of its means (d,)."""
    names = [rv.name for rv in MODELS[case].model().free_RVs]
    found = measured(case, sampler, length, length, seed, names, "variables")
    return {key: found[key] for key in ("calls", "rhat", "error")}


def measured(case, sampler, tune, draws, seed, names, of, most=np.inf):
    """Return what a run gave for variables by name; of its evaluations at most so many count."""
    own = MODELS[case]
    known = reference(own.known_as or case, of)
    call, model = own.simulator.call, own.model()
    step = benchmark.sampler_class(sampler)(model=model, steps_per_draw=1)
    call.calls = 0
    dt = benchmark.sample(step, draws, tune=tune, random_seed=seed)
    calls = call.calls / own.applications
    dt = dt.isel(draw=slice(np.count_nonzero(benchmark.evaluations(dt).sum(axis=0)[tune:] <= most)))
    table = pk.summary(dt, var_names=names, model=model, round_to="none")
    x = benchmark.joined(dt["posterior"][name] for name in names)
    return {
        "calls": calls,
        "rhat": benchmark.rounded(benchmark.largest_rhat(x)),
        "error": benchmark.rounded((table["mean"].to_numpy() - known["mean"]) / known["sd"]),
        "error of draws": (x.mean(axis=(0, 1)) - known["mean"]) / known["sd"],
        "rhat of summary": table["r_hat"].max(),
    }


def accuracy(case, sampler, calls, tune, seeds):
    """Return what runs of so many calls are worth together."""
    names = list(MODELS[case].model().initial_point())
    runs = [
        measured(
            case, sampler, tune, calls // benchmark.CHAINS - tune, seed, names, "coordinates", calls
        )
        for seed in range(seeds)
    ]
    found = {key: np.median([row[key] for row in runs]) for key in ("rhat", "rhat of summary")}
    for name, key in {"draws": "error of draws", "summary": "error"}.items():
        worth = 1 / np.mean(np.square([row[key] for row in runs]), axis=0)
        found[name] = {"worst": round(worth.min()), "median": round(np.median(worth))}
    return found


# ---- what the page has --------------------------------------------------------------------------


def groups(rows, name, sampler):
    """Return of each length the mean number of calls, and errors (seeds, d)."""
    by_run = benchmark.grouped(rows, "case", "sampler", "length")
    found = [by_run[name, sampler, length] for length in LENGTHS[name]]
    return [(np.mean([row["calls"] for row in own]), own) for own in found if own]


def errors_of(own):
    """Return the root mean square over seeds of each variable's error (d,)."""
    return np.sqrt(np.mean(np.square([row["error"] for row in own]), axis=0))


def tables(rows):
    """Return the table of docs/emulator.md."""
    lines = []
    for name, title in SHOWN.items():
        for sampler in SAMPLERS:
            for k, (calls, own) in enumerate(groups(rows, name, sampler)):
                first = (title, sampler) if k == 0 else ("", "")
                error, rhat = errors_of(own), np.median([row["rhat"] for row in own])
                cells = (
                    benchmark.spaced(round(calls)),
                    f"{np.median(error):.2g}",
                    f"{error.max():.2g}",
                )
                lines.append([*first, *cells, f"{rhat:.2f}", len(own)])
    titles = ["model", "sampler", "calls", "error, median", "worst", "R-hat", "runs"]
    return {"emulator.md": {"errors by calls": benchmark.table(titles, lines)}}


def draw(rows):
    """Draw the error of the median variable over calls.

    Bars are 90 % confidence intervals of one variable's error, given so many runs.
    """
    pictures.use_style()
    figure, axes = plt.subplots(1, 3, figsize=(9, 3), sharey=True, layout="constrained")
    for axis, (name, title) in zip(axes, SHOWN.items(), strict=True):
        for sampler, style in SAMPLERS.items():
            found = groups(rows, name, sampler)
            x, y = [c for c, _ in found], [np.median(errors_of(own)) for _, own in found]
            runs = [len(own) for _, own in found]
            pictures.draw_errors(axis, x, y, runs, label=sampler, fmt=style)
        axis.set(title=title, xlabel="calls of the simulator", xscale="log", yscale="log")
        axis.set_xticks(TICKS, TICKS)
        axis.set_xticks([], minor=True)
        axis.set_xlim(80, 4500)
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="error of a mean, in sd")
    axes[0].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, dpi=200)
    plt.close(figure)


if __name__ == "__main__":
    benchmark.main(FILE, plan, tables, seeds=4, draw=draw, add_options=add_options)
