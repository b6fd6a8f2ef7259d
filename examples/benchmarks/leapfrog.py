"""How many leapfrog steps GadMALA makes best: a table of docs/gad.md.

    python examples/benchmarks/leapfrog.py [--data DIRECTORY]    some two minutes

Four chains, which learn alone; max(1000, 35 d) transitions of tuning and 6000 after it. Where the
data of the regressions are searched: see examples/papers/gad_targets.py.
"""

from functools import lru_cache, partial
from pathlib import Path

from benchmark import each, grouped, least_ess, main, sample, table, with_squares
from gad_targets import add_data_option, load
from gradients import NORMALS

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
DRAWS, STEPS = 6000, range(1, 7)
REGRESSIONS = ("ripley", "pima", "australian", "german")


def plan(options):
    """Return what is to be run."""
    for what, measure in each(run, case=(*NORMALS, *REGRESSIONS), n_leapfrog=STEPS):
        yield what, partial(measure, folder=options.data)


@lru_cache(1)
def model_of(case, folder):
    """Return the model of a target, compiled once, and its dimension."""
    target = NORMALS[case] if case in NORMALS else load(case, folder)
    return target.model(), target.d


def run(case, n_leapfrog, folder=None):
    """Return the least bulk ESS of x and of x² about the mean, per gradient after tuning."""
    model, d = model_of(case, folder)
    step = pk.GadMALA(model=model, n_leapfrog=n_leapfrog, steps_per_draw=1, pool_tuning=False)
    dt = sample(step, DRAWS, tune=max(1000, 35 * d), random_seed=1)
    ess = least_ess(with_squares(dt["posterior"]["x"].values))
    return {"d": d, "ess_per_gradient": round(ess / int(dt["sample_stats"]["n_logp"].sum()), 3)}


def tables(rows):
    """Return the table of the page, the best of each target bold."""
    lines = []
    for (case, d), own in sorted(grouped(rows, "case", "d").items(), key=lambda item: item[0][1]):
        rates = [f"{row['ess_per_gradient']:.2f}" for row in own]
        cells = [f"**{rate}**" if rate == max(rates) else rate for rate in rates]
        lines.append([case.capitalize() if case in REGRESSIONS else case, d, *cells])
    titles = ["target", "d", f"K = {STEPS[0]}", *map(str, STEPS[1:])]
    return {"gad.md": {"leapfrog steps": table(titles, lines)}}


if __name__ == "__main__":
    main(FILE, plan, tables, add_options=add_data_option)
