"""How much closer to a posterior each call of its simulator leads, with and without an emulator.

    python examples/benchmarks/emulator_calls.py [--seeds 4] [--cases influenza pk_by_subject heat]
    python examples/benchmarks/emulator_calls.py --picture

A run takes up to some minutes, with four chains and the seeds 0, 1, …

The models are those of simulators.py. Each has runs of several lengths, half of them tuning, by
EmulatorMetropolis and by SurrogateMetropolis. A run counts the calls of its simulator, those of
its way to the posterior and of tuning included. One call for each subject counts as one for all.
The error is that of the means of `pk.summary`, in posterior standard deviations.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pictures
from benchmark import (
    DOCS,
    each,
    grouped,
    largest_rhat,
    main,
    parameters,
    rounded,
    sample,
    sampler_class,
    spaced,
    table,
)
from simulators import MODELS, reference

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
PICTURE = DOCS / "images" / "emulator_calls.png"
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


def plan(options):
    """Yield what each row is of, and how it is measured; short runs first."""
    for seed in range(options.seeds):
        for k in range(max(map(len, LENGTHS.values()))):
            for case, lengths in LENGTHS.items():
                own = lengths[k : k + 1]
                yield from each(run, case=[case], sampler=SAMPLERS, length=own, seed=[seed])


def run(case, sampler, length, seed):
    """Return the calls of a run, and errors of its means (d,)."""
    benchmark = MODELS[case]
    known = reference(benchmark.known_as or case, "variables")
    call, model = benchmark.simulator.call, benchmark.model()
    step = sampler_class(sampler)(model=model, steps_per_draw=1)
    call.calls = 0
    dt = sample(step, length, tune=length, random_seed=seed)
    calls = call.calls / benchmark.applications
    names = [rv.name for rv in model.free_RVs]
    table = pk.summary(dt, var_names=names, model=model, round_to="none")
    error = (table["mean"].to_numpy() - known["mean"]) / known["sd"]
    return {
        "calls": calls,
        "rhat": rounded(largest_rhat(parameters(model, dt))),
        "error": rounded(error),
    }


# ---- what the page has --------------------------------------------------------------------------


def groups(rows, name, sampler):
    """Return of each length the mean number of calls, and errors (seeds, d)."""
    by_run = grouped(rows, "case", "sampler", "length")
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
                    spaced(round(calls)),
                    f"{np.median(error):.2g}",
                    f"{error.max():.2g}",
                )
                lines.append([*first, *cells, f"{rhat:.2f}", len(own)])
    titles = ["model", "sampler", "calls", "error, median", "worst", "R-hat", "runs"]
    return {"emulator.md": {"errors by calls": table(titles, lines)}}


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
            factors = [pictures.known_to(len(own)) for _, own in found]
            bars = pictures.bars(y, np.array(factors))
            axis.errorbar(x, y, bars, fmt=style, ms=5, elinewidth=1, capsize=2, label=sampler)
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
    main(FILE, plan, tables, seeds=4, draw=draw)
