"""How soon GadMALA learns L, what chains that learn together gain, and dense against diagonal L.

    python examples/benchmarks/learning.py --data DIRECTORY    some four minutes

Two tables of docs/gad.md. Default starts, 2000 draws after tuning, one transition per draw. The
folder has the CSV
files german and mnist56_t10k, see examples/papers/gad_targets.py.
"""

from functools import lru_cache, partial
from pathlib import Path

import numpy as np
from benchmark import grouped, least_ess, main, sample, step_of, table
from gad_targets import NEAL, Normal, add_data_option, load_digits
from gad_targets import load as data
from gradients import scales_with_correlation

FILE = Path(__file__).with_suffix(".json")
KEYS = ("case", "factor", "chains", "tune")
DRAWS, TUNE, LONG = 2000, (25, 50, 100, 200, 500, 2000), (1000, 4000)
CHAINS = {"4, each alone": (4, False), "4": (4, True), "8": (8, True), "2": (2, True)}
WAYS = ("4, each alone", "4", "8")
FACTORS = ("dense", "diagonal")


def neighbours(d=300):
    """Return a normal whose standard deviations are 0.01 … 100, and correlations 0.9^|i − j|."""
    i, scales = np.arange(d), np.geomspace(0.01, 100, d)
    return Normal(0.9 ** np.abs(i[:, None] - i) * np.outer(scales, scales))


SMALL = {
    "German": lambda folder: data("german", folder),
    "scales 1e-3 … 1e3, correlations 0.9": lambda _: scales_with_correlation(),
    "Neal": lambda _: NEAL,
}
LARGE = {
    "normal, scales 0.01 … 100, neighbours correlate by 0.9": lambda _: neighbours(),
    "MNIST 5 versus 6": lambda folder: load_digits(f"{folder}/mnist56_t10k.csv.gz"),
}
PLANS = [(name, "dense", how, n) for name in SMALL for how in WAYS for n in TUNE]
PLANS += [(name, factor, "2", n) for name in LARGE for factor in FACTORS for n in LONG]


def plan(options):
    """Yield what is to be run."""
    for values in PLANS:
        what = dict(zip(KEYS, values, strict=True))
        yield what, partial(run, **what, folder=options.data)


@lru_cache(1)
def model_of(case, folder):
    """Return the model of a target."""
    return (SMALL | LARGE)[case](folder).model()


def run(case, factor, chains, tune, folder):
    """Return the dimension, and least bulk ESS of x and of x² about the mean, per transition."""
    n, together = CHAINS[chains]
    options = {"factor": factor, "steps_per_draw": 1, "pool_tuning": together}
    step = step_of("GadMALA", model_of(case, folder), **options)
    dt = sample(step, DRAWS, tune=tune, chains=n, random_seed=1)
    x = dt["posterior"]["x"].values
    parts = {"x": x, "squares": (x - x.mean(axis=(0, 1))) ** 2}
    return {"d": x.shape[2]} | {
        name: round(least_ess(part) / (n * DRAWS), 4) for name, part in parts.items()
    }


def tables(rows):
    """Return the tables of the page; bold is 80 % of what four chains alone have at the end."""
    by_plan = {plan: row for plan, [row] in grouped(rows, *KEYS).items()}
    d_of = {row["case"]: row["d"] for row in rows}
    both = {plan: min(row["x"], row["squares"]) for plan, row in by_plan.items()}
    soon, large = [], []
    for name in SMALL:
        enough = 0.8 * both[name, "dense", "4, each alone", TUNE[-1]]
        for how in WAYS:
            rates = [both[name, "dense", how, n] for n in TUNE]
            cells = [f"**{rate:.2f}**" if rate >= enough else f"{rate:.2f}" for rate in rates]
            soon.append([name, d_of[name], how, *cells])
    for name in LARGE:
        for n in LONG:
            some = [by_plan[name, factor, "2", n] for factor in FACTORS]
            cells = [f"{row[part]:.2g}" for row in some for part in ("x", "squares")]
            large.append([name, d_of[name], n, *cells])
    soon = table(["target", "d", "chains", *map(str, TUNE)], soon)
    titles = ["target", "d", "tuning", *(f"{factor}: x | x²" for factor in FACTORS)]
    return {"gad.md": {"how soon": soon, "many dimensions": table(titles, large)}}


if __name__ == "__main__":
    main(FILE, plan, tables, add_options=add_data_option)
