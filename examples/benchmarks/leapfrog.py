"""How many leapfrog steps GadMALA makes best: a table of docs/gad.md.

    python examples/benchmarks/leapfrog.py [--data DIRECTORY]    some two minutes

Four chains, which learn alone; max(1000, 35 d) transitions of tuning and 6000 after it. Each row is
added to leapfrog.json as it ends; what is in there is not run again. Where the data of the
regressions are searched: see examples/papers/gad_targets.py.
"""

import argparse
import logging
import sys
from pathlib import Path

import arviz as az
import numpy as np
from dispersed import quiet
from gradients import NORMALS
from pages import load, save, when_and_where, write

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from gad_targets import add_data_option
from gad_targets import load as data

FILE = Path(__file__).with_suffix(".json")
CHAINS, DRAWS = 4, 6000
STEPS = range(1, 7)
REGRESSIONS = ("ripley", "pima", "australian", "german")


def main():
    """Run what is not in the file yet, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    add_data_option(parser)
    options = parser.parse_args()
    rows = load(FILE)
    done = {(row["target"], row["n_leapfrog"]) for row in rows}
    for name in (*NORMALS, *REGRESSIONS):
        left = [k for k in STEPS if (name, k) not in done]
        if not left:
            continue
        target = NORMALS[name] if name in NORMALS else data(name, options.data)
        model = target.model()
        for k in left:
            row = {"target": name, "d": target.d, "n_leapfrog": k}
            rows.append(row | {"ess_per_gradient": rate(model, target.d, k)} | when_and_where())
            print(rows[-1], flush=True)
            save(FILE, rows)
    write(tables(rows))


def rate(model, d, n_leapfrog):
    """Return the least bulk ESS of x and of x² about the mean, per gradient after tuning."""
    step = pk.GadMALA(model=model, n_leapfrog=n_leapfrog, steps_per_draw=1)
    with quiet(logging.WARNING):
        dt = pk.sample(
            DRAWS,
            tune=max(1000, 35 * d),
            chains=CHAINS,
            cores=1,
            pool_tuning=False,
            step=step,
            model=model,
            random_seed=1,
            compute_convergence_checks=False,
            progressbar=False,
        )
    x = dt["posterior"]["x"].values
    both = np.concatenate([x, (x - x.mean(axis=(0, 1))) ** 2], axis=2)
    ess = float(az.ess(az.convert_to_datatree({"x": both}))["x"].min())
    return round(ess / int(dt["sample_stats"]["n_logp"].sum()), 3)


def tables(rows):
    """Return the table of the page, the best of each target bold."""
    lines = [f"| target | d | K = {' | '.join(map(str, STEPS))} |", "|---" * (2 + len(STEPS)) + "|"]
    d_of = {row["target"]: row["d"] for row in rows}
    for target, d in sorted(d_of.items(), key=lambda item: item[1]):
        own = [f"{row['ess_per_gradient']:.2f}" for row in rows if row["target"] == target]
        cells = [f"**{rate}**" if rate == max(own) else rate for rate in own]
        name = target.capitalize() if target in REGRESSIONS else target
        lines.append(f"| {name} | {d} | {' | '.join(cells)} |")
    return {"gad.md": {"leapfrog steps": lines}}


if __name__ == "__main__":
    main()
