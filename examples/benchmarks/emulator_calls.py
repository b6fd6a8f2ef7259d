"""How much closer to a posterior each call of its simulator leads, with and without an emulator.

    python examples/benchmarks/emulator_calls.py [--seeds 4] [--models influenza,pk_by_subject,heat]
    python examples/benchmarks/emulator_calls.py --picture

The first runs what is missing in emulator_calls.json; a run that is asked for takes up to some
minutes, with four chains and the seeds 0, 1, … The second draws docs/images/emulator_calls.png and
writes the table of docs/emulator.md.

The models are those of simulators.py. Each has runs of several lengths, half of them tuning, by
EmulatorMetropolis and by SurrogateMetropolis. A run counts the calls of its simulator, those of
its way to the posterior and of tuning included. One call for each subject counts as one for all.
The error is that of the means of `pk.summary`, in posterior standard deviations.
"""

import argparse
import functools
import itertools
import warnings

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pages
import pictures
from dispersed import quiet
from simulators import MODELS, reference

import pymc_kameleon as pk

FILE = pages.Path(__file__).with_suffix(".json")
PICTURE = pages.DOCS / "images" / "emulator_calls.png"
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


def plan(names, seeds):
    """Yield what each row is of, and how it is measured; short runs first."""
    for seed in range(seeds):
        for k in range(max(map(len, LENGTHS.values()))):
            for name, sampler in itertools.product(names, SAMPLERS):
                if k < len(LENGTHS[name]):
                    length = LENGTHS[name][k]
                    what = {"model": name, "sampler": sampler, "length": length, "seed": seed}
                    yield what, functools.partial(run, **what)


def run(model, sampler, length, seed):
    """Return the calls of a run, and errors of its means (d,)."""
    benchmark = MODELS[model]
    known = reference(benchmark.known_as or model, "variables")
    call, own = benchmark.simulator.call, benchmark.model()
    step = getattr(pk, sampler)(model=own, steps_per_draw=1)
    call.calls = 0
    with quiet():
        dt = pk.sample(
            length,
            tune=length,
            step=step,
            model=own,
            chains=4,
            cores=1,  # so that the calls are counted in this process
            random_seed=seed,
            progressbar=False,
        )
        calls = call.calls / benchmark.applications
        names = [rv.name for rv in own.free_RVs]
        table = pk.summary(dt, var_names=names, model=own, round_to="none")
    rhat = az.rhat(dt, var_names=names)
    error = (table["mean"].to_numpy() - known["mean"]) / known["sd"]
    return {
        "calls": calls,
        "rhat": pages.rounded(max(float(rhat[name].max()) for name in rhat.data_vars)),
        "error": pages.rounded(error),
    }


# ---- what the page has --------------------------------------------------------------------------


def groups(rows, name, sampler):
    """Return of each length the mean number of calls, and errors (seeds, d)."""
    found = []
    for length in LENGTHS[name]:
        what = {"model": name, "sampler": sampler, "length": length}
        own = [row for row in rows if what.items() <= row.items()]
        if own:
            found.append((np.mean([row["calls"] for row in own]), own))
    return found


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
                cells = pages.spaced(round(calls)), f"{np.median(error):.2g}", f"{error.max():.2g}"
                lines.append([*first, *cells, f"{rhat:.2f}", len(own)])
    titles = ["model", "sampler", "calls", "error, median", "worst", "R-hat", "runs"]
    return {"emulator.md": {"errors by calls": pages.table(titles, lines)}}


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


def main():
    """Run, or draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--models", default=",".join(SHOWN))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--picture", action="store_true", help="draw it instead")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.picture:
        rows = pages.load(FILE)
        draw(rows)
        pages.write(tables(rows))
    else:
        pages.measured(FILE, plan(options.models.split(","), options.seeds))


if __name__ == "__main__":
    main()
