"""How soon GadMALA learns L, what chains that learn together gain, and dense against diagonal L.

    python examples/benchmarks/learning.py --data DIRECTORY    some four minutes

Two tables of docs/gad.md. Default starts, 2000 draws after tuning, one transition per draw. Each
row is added to learning.json as it ends; what is in there is not run again. The folder has the CSV
files german and mnist56_t10k, see examples/papers/gad_targets.py.
"""

import argparse
import logging
import sys
from pathlib import Path

import arviz as az
import numpy as np
from dispersed import quiet
from gradients import scales_with_correlation
from pages import load, save, when_and_where, write

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from gad_targets import NEAL, Normal, add_data_option, load_digits
from gad_targets import load as data

FILE = Path(__file__).with_suffix(".json")
KEYS = ("target", "factor", "chains", "tune")
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


def main():
    """Run what is not in the file yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_option(parser)
    folder, rows, steps = parser.parse_args().data, load(FILE), {}
    done = {tuple(row[key] for key in KEYS) for row in rows}
    for plan in PLANS:
        if plan not in done:
            name, factor, how, tune = plan
            if (name, factor) not in steps:
                model = (SMALL | LARGE)[name](folder).model()
                step = pk.GadMALA(model=model, factor=factor, steps_per_draw=1)
                steps = {(name, factor): step}
            row = dict(zip(KEYS, plan, strict=True)) | run(steps[name, factor], how, tune)
            rows.append(row | when_and_where())
            print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def run(step, how, tune):
    """Return the dimension, and least bulk ESS of x and of x² about the mean, per transition."""
    chains, together = CHAINS[how]
    with quiet(logging.WARNING):
        dt = pk.sample(
            DRAWS,
            tune=tune,
            chains=chains,
            cores=1,
            pool_tuning=together,
            step=step,
            model=step.model,
            random_seed=1,
            compute_convergence_checks=False,
            progressbar=False,
        )
    x = dt["posterior"]["x"].values
    parts = {"x": x, "squares": (x - x.mean(axis=(0, 1))) ** 2}
    ess = az.ess(az.convert_to_datatree(parts))
    rates = {name: round(float(ess[name].min()) / (chains * DRAWS), 4) for name in parts}
    return {"d": x.shape[2]} | rates


def tables(rows):
    """Return the tables of the page; bold is 80 % of what four chains alone have at the end."""
    by_plan = {tuple(row[key] for key in KEYS): row for row in rows}
    d_of = {row["target"]: row["d"] for row in rows}
    titles = ["target", "d", "chains", *map(str, TUNE)]
    soon = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for name in SMALL:
        both = {plan: min(row["x"], row["squares"]) for plan, row in by_plan.items()}
        enough = 0.8 * both[name, "dense", "4, each alone", TUNE[-1]]
        for how in WAYS:
            rates = [both[name, "dense", how, n] for n in TUNE]
            cells = [f"**{rate:.2f}**" if rate >= enough else f"{rate:.2f}" for rate in rates]
            soon.append(f"| {name} | {d_of[name]} | {how} | {' | '.join(cells)} |")
    large = ["| target | d | tuning | dense: x | x² | diagonal: x | x² |", "|---" * 7 + "|"]
    for name in LARGE:
        for n in LONG:
            some = [by_plan[name, factor, "2", n] for factor in FACTORS]
            cells = [f"{row[part]:.2g}" for row in some for part in ("x", "squares")]
            large.append(f"| {name} | {d_of[name]} | {n} | {' | '.join(cells)} |")
    return {"gad.md": {"how soon": soon, "many dimensions": large}}


if __name__ == "__main__":
    main()
