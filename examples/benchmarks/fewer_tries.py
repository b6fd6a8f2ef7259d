"""What CMTM gains if single tries replace its own after tuning: a table of docs/cmtm.md.

    python examples/benchmarks/fewer_tries.py    some three minutes

Four chains from exact draws, 2000 sweeps of tuning and 6000 after it, with `fewer_tries` and
without. Each row is added to fewer_tries.json as it ends; what is in there is not run again.
"""

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from dispersed import quiet
from pages import load, save, spaced, when_and_where, write

import pymc_kameleon as pk

sys.path.append(str(Path(__file__).parents[1] / "papers"))
from cmtm_targets import BANANA, LARGE, MEDIUM, Mixture

FILE = Path(__file__).with_suffix(".json")
CHAINS, TUNE, SWEEPS = 4, 2000, 6000


@dataclass(frozen=True)
class Funnel:
    """The standard deviation of x₂ is exp(x₁/2), and x₁ is N(0, 3²)."""

    d: int = 2

    def model(self):
        """Return it as a PyMC model, with one variable x."""
        with pm.Model() as model:
            x = pm.Flat("x", shape=2)
            pm.Potential("funnel", -(x[0] ** 2) / 18 - (x[1] ** 2 * pt.exp(-x[0]) + x[0]) / 2)
        return model

    def draw(self, rng, n):
        """Draw n exact points (n, 2)."""
        first = 3 * rng.normal(size=n)
        return np.stack([first, np.exp(first / 2) * rng.normal(size=n)], axis=1)


def scales(spike):
    """Return a spike and a slab, in one dimension."""
    return Mixture(((0,), (0,)), ((spike**2,), (100,)))


TARGETS = {
    "normal, d = 10": Mixture(((0,) * 10,) * 2, ((1,) * 10,) * 2),
    "4-d mixture of the paper": MEDIUM,
    "20-d mixture of the paper": LARGE,
    "banana, B = 0.01, d = 10": BANANA,
    "½N(0, 0.1²) + ½N(0, 10²)": scales(0.1),
    "½N(0, 0.01²) + ½N(0, 10²)": scales(0.01),
    "½N(−5, 1) + ½N(5, 1)": Mixture(((-5,), (5,)), ((1,), (1,))),
    "funnel, d = 2": Funnel(),
}


def main():
    """Run what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["target"], row["fewer_tries"]) for row in rows}
    for name, target in TARGETS.items():
        for fewer in (False, True):
            if (name, fewer) not in done:
                row = {"target": name, "fewer_tries": fewer}
                rows.append(row | run(target, fewer) | when_and_where())
                print(rows[-1], flush=True)
                save(FILE, rows)
    write(tables(rows))


def run(target, fewer_tries):
    """Return evaluations per sweep, and the largest autocorrelation time, in sweeps."""
    model = target.model()
    starts = [{"x": x} for x in target.draw(np.random.default_rng(1), CHAINS)]
    with quiet(logging.WARNING):
        dt = pk.sample(
            SWEEPS,
            tune=TUNE,
            chains=CHAINS,
            cores=1,
            step=pk.CMTM(model=model, steps_per_draw=1, fewer_tries=fewer_tries),
            model=model,
            initvals=starts,
            random_seed=1,
            compute_convergence_checks=False,
            progressbar=False,
        )
    x = dt["posterior"]["x"].values
    functions = [*np.moveaxis(x, 2, 0), np.sign(x[:, :, 0]), 1.0 * (np.abs(x[:, :, -1]) < 1)]
    ess = [az.ess(values, method="mean") for values in functions if values.std() > 0]
    return {
        "evaluations": round(float(dt["sample_stats"]["n_logp"].mean()), 2),
        "act": round(CHAINS * SWEEPS / float(min(ess)), 2),
    }


def tables(rows):
    """Return the table of the page."""
    head = ["evaluations per sweep", "ACT", "evaluations per effective draw"]
    titles = ["target", *head, f"with single tries: {head[0]}", *head[1:]]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    by_place = {(row["target"], row["fewer_tries"]): row for row in rows}
    for target in TARGETS:
        cells = [target]
        for fewer in (False, True):
            row = by_place[target, fewer]
            values = row["evaluations"], row["act"], row["evaluations"] * row["act"]
            cells += [f"{float(f'{value:.2g}'):g}" for value in values[:2]]
            cells.append(spaced(round(float(f"{values[2]:.2g}"))))
        lines.append(f"| {' | '.join(cells)} |")
    return {"cmtm.md": {"fewer tries": lines}}


if __name__ == "__main__":
    main()
