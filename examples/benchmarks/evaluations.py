"""Effective draws at equal numbers of evaluations of the log-density, in all.

    python examples/benchmarks/evaluations.py    what the pages show; some hours
    python examples/benchmarks/evaluations.py --cases AR5 GARCH --samplers GAM KAM
        --budgets 2000 10000 [--seeds 20] [--share 0.4]    the same of anything
    python examples/benchmarks/evaluations.py --picture     error by evaluations

A run has 4 chains from dispersed starts. Its evaluations are those of all chains together; tuning
and the way from the starts to the posterior are among them, and draws beyond the budget are cut
off. With few, ``max_evaluations`` divides them. Its estimates are the means of every x_k and x_k²,
on the unconstrained scale, over all draws after tuning. A quantity's effective draws are 1 / mean
over the seeds of the squared error, in units of the posterior standard deviation: as many
independent draws would have that error. The table has the worst quantity and the median one.
Twenty seeds know each to some 30 %.
Rows "corrected" are the estimates of ``pk.expectation`` from the same draws; z is the root mean
square of error / standard error, over seeds and quantities.

The errors are those against a long run, which is made once (problems.py). It is marked
where it is not long enough, as then there are more effective draws than the table says. (In
evaluations.json, those of SurrogateMetropolis on regressions, schools and transforms are against
300 000 exact draws or more, and on the mixture, the hidden Markov model, and hares and lynxes
against weighted ones.)

In the funnel only the worst quantity means something: a chain that is stuck in the neck has the
right mean of most coordinates, which is 0.
"""

import time
from functools import lru_cache, partial
from importlib.util import find_spec
from itertools import product
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
import pictures
from benchmark import CHAINS, DOCS, both, evaluations, grouped, main, sample, sampler_class, spaced
from benchmark import table as table_of
from others import PACKAGES, SAMPLERS
from problems import CASES, NAMES, Problem, known_moments, problem_of

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
PICTURE = DOCS / "images" / "error_by_evaluations.png"

SHARE = 0.4
"""Of a chain's evaluations, the share that it tunes; its way to the posterior comes on top."""

WAY, LEAST_TUNING = 10, 30
"""Evaluations times d of the way to the posterior, about, which SurrogateMetropolis makes in full
whatever is left for tuning; and draws of tuning at least."""

FEW = 30
"""Evaluations of a chain, times d, below which chains share one way, and the run divides them by
itself."""


def plan(options):
    """Yield what is asked for, a case after the other: by default what the pages show."""
    asked = [
        (case, sampler, budget)
        for sampler, budgets, cases in SHOWN
        for case, budget in product(cases, budgets)
    ]
    if options.cases and options.samplers and options.budgets:
        asked = product(options.cases, options.samplers, map(int, options.budgets))
    for case, sampler, budget in sorted(asked, key=lambda one: list(CASES).index(one[0])):
        if is_installed(sampler):
            what = {"case": case, "of": sampler, "evaluations": budget}
            yield what, partial(measure, case, sampler, budget, options.seeds, options.share)


def is_installed(sampler):
    """Whether a sampler needs no package that is not here."""
    return sampler not in PACKAGES or find_spec(PACKAGES[sampler]) is not None


# ---- effective draws ----------------------------------------------------------------------------


@lru_cache(1)
def run_of(sampler, problem):
    """Return what runs a sampler; the last one is kept."""
    return SAMPLERS.get(sampler, ours)(sampler, problem)


def measure(case, sampler, budget, seeds, share):
    """Return rows of what the runs are worth, one for each kind of estimate."""
    problem = problem_of(case)
    known, run = known_moments(problem), run_of(sampler, problem)
    began, rows = time.perf_counter(), []
    runs = [found(run(budget // CHAINS, share, seed)) for seed in range(seeds)]
    seconds = round((time.perf_counter() - began) / seeds, 2)
    for kind in dict.fromkeys(kind for estimates in runs for kind in estimates):
        row = {"d": problem.d, "sampler": kind or sampler, "runs": seeds, "seconds": seconds}
        rows.append(row | known.worth([one.get(kind, one[""]) for one in runs]))
    return rows


class Estimates(NamedTuple):
    """Estimates of the moments, and their standard errors, each (2d,)."""

    mean: np.ndarray
    mcse: np.ndarray


def found(run):
    """Return Estimates by kind, of what a run has returned: these, or draws (chains, n, d).

    A run that has no draws after tuning is infinitely wrong.
    """
    if isinstance(run, dict):
        return run
    mean = both(run).mean(axis=(0, 1)) if run.shape[1] > 0 else np.full(2 * run.shape[2], np.inf)
    return {"": Estimates(mean, np.full(mean.size, np.nan))}


# ---- samplers -----------------------------------------------------------------------------------


def ours(sampler, problem):
    """Return run(evaluations of each chain, share for tuning, seed) -> draws (chains, n, d)."""
    step = sampler_class(sampler)(model=problem.model, steps_per_draw=1)

    def run(each, share, seed):
        way = WAY * problem.d if sampler == "SurrogateMetropolis" else 0
        is_few = way > 0 and each < FEW * problem.d
        if is_few:  # the run divides them
            lengths = {"max_evaluations": CHAINS * each}
        else:
            tune = max(LEAST_TUNING, round(share * (each - way)))
            lengths = {"tune": tune, "draws": each - tune}
        starts = problem.initvals(seed)
        dt = sample(step, **lengths, initvals=starts, random_seed=seed)
        if not is_few:
            n = np.count_nonzero(evaluations(dt).sum(axis=0)[tune:] <= CHAINS * each)
            dt = dt.isel(draw=slice(n))
        if dt["posterior"].sizes["draw"] == 0:  # the search took all
            return np.zeros((CHAINS, 0, problem.d))
        if "surrogate_moves" not in dt:
            return problem.coordinates(dt["posterior"])
        found = {
            "": pk.expectation(dt["posterior"], moments),
            "corrected": pk.expectation(dt, moments, problem.model),
        }
        return {kind: Estimates(one.mean, one.mcse) for kind, one in found.items()}

    def moments(variables):
        return both(problem.coordinates(variables))

    return run


# ---- what the pages show ------------------------------------------------------------------------

SOME = ("AR5", "interaction", "log regression", "GARCH", "hidden Markov")
"""Where 300 evaluations are tried."""

ALL_BUT_HARD = tuple(CASES)[:-3]
"""Where KAM is held against GAM: all but the funnel, and hares and lynxes."""

IN_PICTURE = ("AR5", "hidden Markov", "GARCH")

SHOWN = [
    ("SurrogateMetropolis", (2000, 10_000), tuple(CASES)),
    ("GAM", (2000, 10_000), tuple(CASES)),
    ("SurrogateMetropolis", (300,), SOME),
    *((sampler, (10_000, 50_000), ALL_BUT_HARD) for sampler in ("KAM", "GAM")),
    *((sampler, (1000, 50_000), IN_PICTURE) for sampler in ("SurrogateMetropolis", "GAM")),
    ("emcee DE", (1000, 2000, 10_000, 50_000), IN_PICTURE),
    ("PyVBMC", (300,), ("GARCH",)),
]
"""What the pages show: samplers, evaluations in all, and cases."""

# ---- tables of the pages ------------------------------------------------------------------------

OURS, WALK = "SurrogateMetropolis", "GAM"
PAGES = {
    "choosing.md": {
        "KAM": ({"KAM": ("KAM", "KAM"), WALK: (WALK, WALK)}, (10_000, 50_000), ALL_BUT_HARD)
    },
    "surrogate_results.md": {
        "effective draws": ({OURS: (OURS, OURS), WALK: (WALK, WALK)}, (2000, 10_000), CASES)
    },
    "estimates_results.md": {
        "corrected averages": (
            {"draws": (OURS, OURS), "corrected": (OURS, "corrected")},
            (2000, 10_000),
            CASES,
        ),
        "few evaluations": (
            {"`pk.expectation`": (OURS, "corrected")},
            (300,),
            SOME,
        ),
    },
}
"""Tables by page: what their columns are called, and whose estimates of which kind they have;
evaluations; and cases."""


def tables(rows):
    """Return the tables of the pages."""
    found = {key: row for key, [row] in grouped(rows, *PLACE).items()}
    return {
        page: {name: table(found, *of) for name, of in own.items()} for page, own in PAGES.items()
    }


PLACE = "case", "evaluations", "of", "sampler"


def table(found, kinds, budgets, cases):
    """Return the lines of a table: one for each case and number of evaluations that was run."""
    lines, last = [], None
    for case, budget in product(cases, budgets):
        rows = [found.get((case, budget, *kind)) for kind in kinds.values()]
        if None not in rows:
            name = [None, None] if case == last else [NAMES.get(case, case), rows[0]["d"]]
            lines.append([*name, spaced(budget), *(cell for row in rows for cell in cells(row))])
            last = case
    titles = ["case", "d", "evaluations", *(f"{kind}, worst | median | z" for kind in kinds)]
    return table_of(titles, lines)


def cells(row):
    """Return the worst and the median quantity's effective draws, and z."""
    mark = "+" if row["too_short"] else ""
    worst, median = (spaced(round(row[name])) + mark for name in ("worst", "median"))
    z = "–" if row["z"] is None else f"{row['z']:.1f}"
    return [worst, "–" if row["case"] == "funnel" else median, z]


# ---- a picture ----------------------------------------------------------------------------------


def draw(rows):
    """Draw the error of the median quantity by evaluations, one panel for each case.

    Bars are 90 % confidence intervals of one quantity's error, given so many runs.
    """
    pictures.use_style()
    size = {"figsize": (4 * len(IN_PICTURE), 3.6), "layout": "constrained"}
    figure, axes = plt.subplots(1, len(IN_PICTURE), sharex=True, sharey=True, **size)
    for axis, case in zip(axes, IN_PICTURE, strict=True):
        for (of, sampler), marker in zip(LABELS, pictures.MARKERS, strict=True):
            kind = {"case": case, "of": of, "sampler": sampler}
            own = [row for row in rows if kind.items() <= row.items() and row["median"] > 0]
            own.sort(key=lambda row: row["evaluations"])
            n = [row["evaluations"] for row in own]
            error = [row["median"] ** -0.5 for row in own]
            runs = [row["runs"] for row in own]
            pictures.draw_errors(axis, n, error, runs, label=LABELS[of, sampler], marker=marker)
        axis.set(title=f"{NAMES[case]}, d = {Problem(case).d}", xlabel="evaluations in all")
        axis.set(xscale="log", yscale="log")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="error / posterior sd")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.savefig(PICTURE, dpi=200)


LABELS = {
    (OURS, "corrected"): "pk.expectation",
    (OURS, OURS): "SurrogateMetropolis, its draws",
    (WALK, WALK): "GAM",
    ("emcee DE", "emcee DE"): "emcee",
    ("PyVBMC", "PyVBMC"): "PyVBMC",
}


def add_options(parser):
    """Add the option of this script."""
    parser.add_argument("--share", type=float, default=SHARE, help="of evaluations for tuning")


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=20, draw=draw, add_options=add_options)
