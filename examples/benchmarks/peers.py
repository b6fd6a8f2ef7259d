"""Ours beside the samplers of other packages: at equal numbers of evaluations, and per second.

    python examples/benchmarks/peers.py [--cases AR5 banana] [--samplers emcee zeus]
        [--budgets 1000 10000 100000 200000] [--seeds 8] [--limit 60]

others.py has the other samplers, evaluations.py says what is counted and what effective draws are.
`pip install pymc-kameleon[peers]` installs what there is to compare with; what is not installed is
left out. A row of peers.json is the runs of one sampler on one case with one budget. Where the
seeds do not end within the limit, in seconds of a processor, the row is of those that did, and of
none if fewer
than three. Seconds are those of a processor, so other work on the machine hardly counts; the
log-density and the step were compiled before, and what the sampler prepares for each run is in.
"""

import time
from functools import lru_cache, partial
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pictures
import pymc as pm
import pytensor.tensor as pt
from benchmark import CHAINS, DOCS, costs, grouped, main, sample, sampler_class, spaced
from benchmark import table as table_of
from evaluations import found, is_installed, ours
from others import BY_LENGTH, SAMPLERS, WITH_GRADIENT, planned
from problems import BANANA, Case, banana_moments, exact, known_moments, problem_of
from problems import CASES as OTHER_CASES

FILE = Path(__file__).with_suffix(".json")
PICTURE = DOCS / "images" / "peers.png"

BUDGETS = (1000, 10_000, 100_000, 200_000)
SHOWN = 10_000
"""The budget of the first tables."""
TIMED = (SHOWN, 100_000)
"""Budgets with a table per second."""
SHARE = 0.4
SEEDS, LEAST_SEEDS = 8, 3


def plan(options):
    """Yield the rows of all samplers whose package is here, a case after the other."""
    for case in CASES:
        for sampler in filter(is_installed, ALL):
            for budget in BUDGETS:
                what = {"case": case, "of": sampler, "evaluations": budget}
                yield what, partial(measure, case, sampler, budget, options.seeds, options.limit)


@lru_cache(1)
def run_of(sampler, problem):
    """Return what runs a sampler; the last one is kept."""
    return ALL[sampler](sampler, problem)


def measure(case, sampler, budget, seeds, limit):
    """Return rows of what the runs are worth, one for each kind of estimate."""
    problem = problem_of(case, CASES[case])
    known = known_moments(problem)
    try:
        run = run_of(sampler, problem)
        compiling = budget if sampler in BY_LENGTH else min(budget, 1000)
        run(compiling // CHAINS, SHARE, seeds)  # is not timed
        new = measured(run, known, budget, seeds, limit)
    except Exception as error:  # of any package: the row says so
        new = {"": {"failed": f"{type(error).__name__}: {error}"[:80]}}
    return [{"d": problem.d, "sampler": kind or sampler} | values for kind, values in new.items()]


def measured(run, known, budget, seeds, limit):
    """Return by kind of estimate what the runs of a sampler are worth."""
    runs, seconds = [], []
    for seed in range(seeds):
        began = time.process_time()
        runs.append(found(run(budget // CHAINS, SHARE, seed)))
        seconds.append(time.process_time() - began)
        if sum(seconds) > limit or seconds[0] * LEAST_SEEDS > limit:
            break
    own = {"seeds": len(runs), "seconds": float(f"{np.mean(seconds):.3g}")}
    if len(runs) < LEAST_SEEDS:
        return {"": own | {"failed": f"too slow: {seconds[0]:.0f} s a run"}}
    rows = {}
    for kind in dict.fromkeys(kind for estimates in runs for kind in estimates):
        worth = known.worth([estimates.get(kind, estimates[""]) for estimates in runs])
        values = {key: float(f"{worth[key]:.3g}") for key in ("worst", "median")}
        rows[kind] = own | values | {key: worth[key] for key in ("worst_quantity", "too_short")}
    return rows


# ---- samplers -----------------------------------------------------------------------------------


def ours_planned(sampler, problem):
    """Return a run of one of ours whose transitions cost more than one evaluation."""
    step = sampler_class(sampler)(model=problem.model, steps_per_draw=1)

    def go(tune, draws, seed):
        starts = problem.initvals(seed)
        dt = sample(step, draws, tune=tune, initvals=starts, random_seed=seed)
        spent = costs(dt, lambda group: group["n_logp"].values)
        return problem.coordinates(dt["posterior"]), spent

    return planned(go)


OURS = {
    "SurrogateMetropolis": ours,
    "GAM": ours,
    "KAM": ours,
    "CyclicalKAM": ours_planned,
    "GadMALA": ours_planned,
}
ALL = OURS | {name: run for name, run in SAMPLERS.items() if name != "PyVBMC"}
GRADIENT = ("GadMALA", *WITH_GRADIENT)


# ---- cases --------------------------------------------------------------------------------------


def target(log_density, d, sd):
    """Return a model of a log-density, with a wide normal prior, from which SMC can start.

    What the prior adds to the log-density is taken away again.
    """
    with pm.Model() as model:
        x = pm.Normal("x", 0, sd, shape=d)
        prior = pt.sum(pm.logp(pm.Normal.dist(0, sd), x))
        pm.Potential("target", log_density(x) - prior)
    return model


def banana(x):
    """Return the log-density of problems.py's."""
    straight = x[1] - BANANA.b * (x[0] ** 2 - BANANA.v)
    return -(x[0] ** 2 / BANANA.v + straight**2 + pt.sum(x[2:] ** 2)) / 2


NU, RHO, D = 5, 0.9, 5
"""Degrees of freedom of the heavy tails, the correlation of neighbours, and the dimension."""


def heavy_tails(x):
    """Return the log-density of Student's t, whose scales differ by a factor of ten."""
    precision = np.linalg.inv(scale_matrix())
    return -(NU + D) / 2 * pt.log1p(x @ precision @ x / NU)


def scale_matrix():
    """Return the scale matrix, (D, D)."""
    k, scales = np.arange(D), np.geomspace(0.3, 3, D)
    return RHO ** np.abs(k[:, None] - k) * np.outer(scales, scales)


def heavy_moments(problem):
    """Return the moments of a multivariate t."""
    second = NU / (NU - 2) * np.diag(scale_matrix())
    return exact(np.zeros(D), second, 3 * second**2 * (NU - 2) / (NU - 4))


WEIGHTS, APART, MODES_D = np.array([0.3, 0.7]), 8.0, 4
"""Weights of two normal modes with unit variances, how far apart they are, and the dimension."""


def two_modes(x):
    """Return the log-density of both; the middle between them is 0."""
    terms = [pt.sum((x - centre) ** 2) for centre in centres()]
    return pt.logaddexp(*[np.log(w) - t / 2 for w, t in zip(WEIGHTS, terms, strict=True)])


def centres():
    """Return the means of the modes, (2, d)."""
    along = np.ones(MODES_D) / MODES_D**0.5
    return APART / 2 * np.array([-along, along])


def two_modes_moments(problem):
    """Return the moments of the mixture."""
    m = centres()
    return exact(WEIGHTS @ m, WEIGHTS @ (m**2 + 1), WEIGHTS @ (m**4 + 6 * m**2 + 3))


CASES = {
    **{name: OTHER_CASES[name] for name in ("AR5", "schools", "GARCH")},
    "banana": Case(partial(target, banana, BANANA.d, 20.0), banana_moments),
    "heavy tails": Case(partial(target, heavy_tails, D, 10.0), heavy_moments),
    "two modes": Case(partial(target, two_modes, MODES_D, 10.0), two_modes_moments),
}

# ---- the page -----------------------------------------------------------------------------------

SHORT = ("AR5", "schools", "GARCH", "banana", "heavy tails", "two modes")
SHORT_SAMPLERS = (
    "SurrogateMetropolis",
    "GAM",
    "DEMetropolisZ",
    "SMC",
    "emcee DE",
    "GadMALA",
    "NUTS",
    "nutpie",
    "nutpie low rank",
    "BlackJAX",
)
"""Columns and rows of the small table, which the README has, too. Each that is ahead of one of ours
anywhere has to be among them, or a variant of it."""


def tables(rows):
    """Return the tables of the pages."""
    budgets = grouped(rows, "evaluations")
    small = [row for row in budgets[SHOWN] if row["sampler"] in SHORT_SAMPLERS]
    made = {"summary": table(small, worst, SHORT)}
    for budget in BUDGETS:
        own = budgets[budget]
        run = {row["case"] for row in own}
        cases = [case for case in CASES if case in run]
        made[f"worst at {budget}"] = table(own, worst, cases)
        if budget in TIMED:
            made[f"per second at {budget}"] = table(own, per_second, cases)
    made["median"] = table(budgets[SHOWN], median, CASES)
    made["failures"] = failures(rows)
    return {"peers.md": made, "../README.md": {"peers": made["summary"]}}


def table(rows, cell, cases):
    """Return a table of samplers by cases; the best of those without a gradient is bold.

    `cell` returns the number of a row.
    """
    by_place = {(row["sampler"], row["case"]): row for row in rows}
    best = {
        case: max((cell(r) for r in rows if r["case"] == case and is_free(r["sampler"])), default=0)
        for case in cases
    }
    lines = []
    for sampler in in_order(rows):
        cells = [label(sampler), "no" if is_free(sampler) else "yes"]
        for case in cases:
            row = by_place.get((sampler, case))
            text = "" if row is None else written(row, cell(row))
            is_best = row is not None and is_free(sampler) and cell(row) == best[case]
            cells.append(f"**{text}**" if is_best else text)
        lines.append(cells)
    return table_of(["sampler", "gradient", *cases], lines)


def in_order(rows):
    """Return the names of samplers as they are listed: without a gradient, with one."""
    names = dict.fromkeys(row["sampler"] for row in rows)
    order = list(ALL)
    of = {row["sampler"]: row["of"] for row in rows}
    return sorted(names, key=lambda name: (not is_free(name), order.index(of[name])))


def is_free(sampler):
    """Whether a sampler needs no gradient."""
    return sampler not in GRADIENT


def label(sampler):
    """Return the name of a sampler as the page has it; ours say so."""
    if sampler == "corrected":
        return "SurrogateMetropolis, [corrected averages](estimates.md)"
    own = {"emcee": "emcee stretch", "nutpie": "nutpie diagonal", "PINTS": "PINTS adaptive"}
    return f"`pk.{sampler}`" if sampler in OURS else own.get(sampler, sampler)


def written(row, value):
    """Return a number with two digits, marked if it is a lower bound or of fewer seeds."""
    if "failed" in row:
        return "too slow" if row["failed"].startswith("too slow") else "fails"
    number = float(f"{value:.2g}") if value >= 0.1 else 0
    text = spaced(int(number)) if number >= 1000 else f"{number:g}"
    return text + ("+" if row["too_short"] else "") + ("°" if row["seeds"] < SEEDS else "")


def worst(row):
    """Return the effective draws of the worst quantity."""
    return row.get("worst", 0.0)


def median(row):
    """Return those of the median quantity."""
    return row.get("median", 0.0)


def per_second(row):
    """Return those of the worst quantity for each second."""
    return row["worst"] / row["seconds"] if "worst" in row else 0.0


def failures(rows):
    """Return a list of what failed, and how."""
    return [
        f"- {label(row['sampler'])}, {row['case']}, {spaced(row['evaluations'])} evaluations: "
        f"{row['failed']}"
        for row in rows
        if "failed" in row
    ] or ["None failed."]


def draw(rows):
    """Draw the effective draws of the worst quantity, a panel for each case.

    Bars are 90 % confidence intervals of one quantity's, given so many runs.
    """
    pictures.use_style()
    own = [row for row in rows if row["evaluations"] == SHOWN and "failed" not in row]
    samplers = in_order(own)[::-1]
    figure, axes = plt.subplots(
        1, len(CASES), figsize=(2.1 * len(CASES), 5), sharey=True, layout="constrained"
    )
    for axis, case in zip(axes, CASES, strict=True):
        for row in own:
            if row["case"] == case:
                group = ("ours" if row["of"] in OURS else "others") + (
                    "" if is_free(row["sampler"]) else ", with a gradient"
                )
                x, y = max(worst(row), 0.5), samplers.index(row["sampler"])
                factors = pictures.known_to(row["seeds"])[::-1] ** -2.0
                known = pictures.bars([x], factors) if x > 0.5 else None
                axis.errorbar(x, y, xerr=known, **STYLES[group])
        axis.set(xscale="log", title=case, yticks=range(len(samplers)), xlim=(0.3, 1e5))
        axis.set_yticklabels([plain(sampler) for sampler in samplers])
        axis.grid(alpha=0.3)
    figure.supxlabel(
        f"effective draws of the worst quantity, {spaced(SHOWN)} evaluations", fontsize=11
    )
    for group, style in STYLES.items():
        axes[0].errorbar([], [], xerr=[], label=group, **style)
    figure.legend(loc="outside upper center", ncols=len(STYLES), frameon=False)
    figure.savefig(PICTURE, dpi=200)  # twice the pixels that it is shown with


def plain(sampler):
    """Return a label without marks."""
    return "Surrogate…, corrected" if sampler == "corrected" else label(sampler).strip("`")


PLAIN = {"ls": "", "ms": 6, "elinewidth": 1.2}
STYLES = {
    "ours": {"marker": "o", "color": "C1", **PLAIN},
    "others": {"marker": "s", "color": "C0", **PLAIN},
    "ours, with a gradient": {"marker": "o", "color": "C1", "mfc": "white", **PLAIN},
    "others, with a gradient": {"marker": "s", "color": "C0", "mfc": "white", **PLAIN},
}


def add_options(parser):
    """Add the option of this script."""
    parser.add_argument("--limit", type=float, default=60, help="seconds of a row")


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=SEEDS, draw=draw, add_options=add_options)
