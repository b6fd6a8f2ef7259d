"""Several modes: what chains of CyclicalKAM find and visit, learning together and each alone.

    python examples/benchmarks/modes.py [--full] [--only FIGURE]

Figures: visits, search, paper, labels, real. With `--full` more runs and longer chains,
half an hour or more on one core; else some five minutes.

visits: two normal modes at distance 16, weights 0.2 and 0.8, variances 0.5 and 2; half of 8 chains
start in each. Independent visits per 1e6 evaluations after tuning, w(1 − w)/Var(ŵ) of the chains.
search: the same from one start in the wider mode; in how many runs 4 chains find both modes with
10 000 d transitions of tuning in all. The modes differ in one coordinate, or in all, that is in a
direction that was drawn. With `--full` these two are of chains that learn together only; they are
added to modes.json as each ends, and make the table of docs/cyclical_kam.md.
paper: A.2 and A.3 of the cyclical KAM paper, as in examples/papers, symmetric Kullback-Leibler
divergence of all draws of 4 chains that have so many evaluations in all; all states are kept.
labels: a mixture of three normals without an order; chains that visit all six modes, and the
occupancy of each, which should be 1/6.
real: the posteriors of modes_real.py from starts that are draws of the prior, 8 chains; clusters
that tuning found, the largest R-hat and least effective sample size of a parameter, changes of the
mode and its effective visits as `pk.mode_occupancy` has them, and the largest difference of a
marginal's distribution function from what is known otherwise. These are added to modes.json as each
run ends, too, and make the table of docs/modes.md. What is in there is not run again.
"""

import argparse
import logging
import sys
from itertools import product
from pathlib import Path

import arviz as az
import modes_real
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pages import load, save, spaced, when_and_where, write
from scipy.stats import ks_2samp

import pymc_kameleon as pk

sys.path.insert(0, str(Path(__file__).parents[1] / "papers"))

from ckam_targets import TARGETS

FILE = Path(__file__).with_suffix(".json")
WEIGHT, DISTANCE, VARIANCES = 0.2, 16.0, np.array([0.5, 2.0])
TOGETHER = {"together": True, "alone": False}
DIMENSIONS = {"one": (2, 8, 16, 32), "all": (2, 4, 8, 16), "visits": (2, 8, 16, 32)}
"""Of what is measured on two normal modes with `--full`: found, if they differ in one coordinate,
found, if they differ in all, and visits."""


def sample(step, starts, tune, draws, seed, together):
    """Sample chains from starts (chains, d) of x, or from jittered ones of a number of chains."""
    chains = starts if isinstance(starts, int) else len(starts)
    initvals = None if isinstance(starts, int) else [{"x": start} for start in starts]
    return pk.sample(
        draws,
        tune=tune,
        chains=chains,
        cores=1,
        step=step,
        model=step.model,
        initvals=initvals,
        random_seed=seed,
        pool_tuning=together,
        compute_convergence_checks=False,
        quiet=True,
    )


class Pair:
    """Two normal modes of unequal weight and width, that differ in one coordinate, or in all."""

    def __init__(self, d, differ="one"):
        drawn = np.random.default_rng(d).standard_normal(d)
        direction = drawn / np.linalg.norm(drawn) if differ == "all" else np.eye(d)[0]
        self.d, self.means = d, DISTANCE / 2 * np.array([-direction, direction])
        with pm.Model() as model:
            x = pm.Flat("x", shape=d)
            pm.Potential("p", pt.logaddexp(*self.log_terms(x)))
        self.step = pk.CyclicalKAM(model=model)

    def log_terms(self, x):
        """Return the log-densities of both modes at points (..., d)."""
        weights, heights = np.log([WEIGHT, 1 - WEIGHT]), -self.d / 2 * np.log(VARIANCES)
        squares = [((x - mean) ** 2).sum(axis=-1) for mean in self.means]
        terms = zip(weights + heights, squares, VARIANCES, strict=True)
        return [constant - square / (2 * variance) for constant, square, variance in terms]

    def in_first(self, dt):
        """Return for each draw (chains, draws) whether it is in the first mode."""
        first, second = self.log_terms(dt.posterior["x"].values)
        return first > second

    def start(self, k, rng):
        """Draw a point of mode k."""
        return self.means[k] + np.sqrt(VARIANCES[k]) * rng.standard_normal(self.d)


def plans(measure, full):
    """Return what is to be run on two normal modes, d and whether chains learn together."""
    if not full:
        return list(product((2, 8), TOGETHER))
    done = {row["d"] for row in load(FILE) if row.get("measure") == measure}
    return [(d, "together") for d in DIMENSIONS[measure] if d not in done]


def add(measure, d, value):
    """Add to the file what was measured on two normal modes."""
    rows = load(FILE)
    save(FILE, [*rows, {"measure": measure, "d": d, "value": value} | when_and_where()])


def visits(full):
    """Print independent visits per 1e6 evaluations, and the weight with its standard error."""
    print("\nvisits: from both modes    d   weight (s.e.)     visits per 1e6 evaluations (s.e.)")
    n_chains = 8 * (5 if full else 1)
    for d, name in plans("visits", full):
        pair, rng = Pair(d), np.random.default_rng(1)
        starts = [pair.start(i % 2, rng) for i in range(n_chains)]
        dt = sample(pair.step, starts, 1000, 1000, 1, TOGETHER[name])
        share = pair.in_first(dt).mean(axis=1)
        evaluations = dt.sample_stats["n_logp"].values.sum(axis=1).mean()
        found = WEIGHT * (1 - WEIGHT) / np.mean((share - WEIGHT) ** 2) / evaluations * 1e6
        print(
            f"{name:<24}{d:>4}   {share.mean():.4f} ({share.std() / n_chains**0.5:.4f})"
            f"{found:>12.0f} ({found * (2 / n_chains) ** 0.5:.0f})",
            flush=True,
        )
        if full:
            add("visits", d, round(found))
    write_if_complete()


def search(full):
    """Print in how many runs both modes were found from the wider one."""
    print("\nsearch: from the wider mode    d   coordinates   runs that found both")
    n_chains, runs = 4, 20 if full else 5
    for differ in ("one", "all"):
        for d, name in plans(differ, full):
            pair = Pair(d, differ)
            tune = 10_000 * d // n_chains // pair.step.steps_per_draw
            starts = [pair.means[1]] * n_chains
            chains = (sample(pair.step, starts, tune, 20, i, TOGETHER[name]) for i in range(runs))
            found = sum(bool(pair.in_first(dt).any()) for dt in chains)
            print(f"{name:<29}{d:>4}   {differ:<11}   {found} of {runs}", flush=True)
            if full:
                add(differ, d, found)
    write_if_complete()


def write_if_complete():
    """Write the pages, if all of two normal modes is in the file."""
    if not any(plans(measure, True) for measure in DIMENSIONS):
        write(tables(load(FILE)))


def paper(full):
    """Print symmetric Kullback-Leibler divergences."""
    print("\npaper             target  evaluations   symmetric KL (s.e.)")
    n_chains, runs = 4, 10 if full else 3
    for target, evaluations, options in (("A.2", 100_000, {}), ("A.3", 40_000, {"beta": 0.6})):
        mixture = TARGETS[target]
        step = pk.CyclicalKAM(model=mixture.model(), steps_per_draw=1, **options)
        starts = [np.array(mixture.start, float)] * n_chains
        each = evaluations // n_chains
        for name, together in TOGETHER.items():
            kl = []
            for seed in range(runs):
                dt = sample(step, starts, each // 5, each * 4 // 5, seed, together)
                kl.append(mixture.symmetric_kl(dt.posterior["x"].values.reshape(-1, mixture.d)))
            error = np.std(kl, ddof=1) / runs**0.5
            print(f"{name:<18}{target:<8}{evaluations:>11,}   {np.mean(kl):.4f} ({error:.4f})")


def labels(full):
    """Print which of the six modes of a mixture are visited."""
    print("\nlabels            data       chains that visit all six   occupancies (largest s.e.)")
    n_chains, draws = 8, 10_000 if full else 2000
    for data, means in (("apart", (-4, 0, 5)), ("near", (-2, 0, 2.5))):
        rng = np.random.default_rng(3)
        y = rng.normal(rng.choice(means, 300, p=[0.3, 0.4, 0.3]), 1.0)
        with pm.Model() as model:
            weights = pm.Dirichlet("weights", np.full(3, 2.0))
            centres = pm.Normal("means", 0, 10, shape=3)
            sds = pm.HalfNormal("sds", 3, shape=3)
            pm.NormalMixture("y", weights, centres, sds, observed=y)
        step = pk.CyclicalKAM(model=model)
        for name, together in TOGETHER.items():
            dt = sample(step, n_chains, 1000, draws, 1, together)
            orders = np.argsort(dt.posterior["means"].values, axis=2) @ [9, 3, 1]
            known = [5, 7, 11, 15, 19, 21]
            share = (orders[..., None] == known).mean(axis=1)
            error = share.std(axis=0, ddof=1).max() / n_chains**0.5
            print(
                f"{name:<18}{data:<11}{(share > 0).all(axis=1).sum()} of {n_chains}"
                f"                      {share.mean(axis=0).round(3)} ({error:.4f})",
                flush=True,
            )


def known_frequencies():
    """Draw frequencies (n, 1) of the oscillator from what quadrature knows."""
    frequency, shares = modes_real.known_frequency()
    return np.random.default_rng(1).choice(frequency, (20_000, 1), p=shares)


REAL = {
    "sensors": (modes_real.sensors, "places", modes_real.tempered_sensors),
    "oscillator": (modes_real.oscillator, "frequency", known_frequencies),
}


def real(full):
    """Run on real posteriors what is not in the file yet, and write the page."""
    rows = load(FILE)
    done = {(row["posterior"], row["draws"], row["seed"]) for row in rows if "posterior" in row}
    for name, (build, variable, know) in REAL.items():
        plans = [(draws, seed) for draws in (1000, 10_000) for seed in range(5 if full else 2)]
        plans = [plan for plan in plans if (name, *plan) not in done]
        if not plans:
            continue
        model, known = build(), know()
        step = pk.CyclicalKAM(model=model)
        for draws, seed in plans:
            starts = pk.initvals(8, seed, how="prior", model=model)
            dt = pk.sample(
                draws,
                tune=draws,
                chains=8,
                cores=1,
                step=step,
                model=model,
                initvals=starts,
                random_seed=seed,
                compute_convergence_checks=False,
                quiet=True,
            )
            values = dt.posterior[variable].values.reshape(8, draws, -1)
            found = values.reshape(-1, values.shape[-1])
            seen = pk.mode_occupancy(dt, var_names=[variable]).dataset
            row = {
                "posterior": name,
                "d": step.layout.d,
                "draws": draws,
                "seed": seed,
                "clusters": int(dt.sample_stats["n_modes"].values.max()),
                "rhat": round(float(max(az.rhat(x) for x in values.transpose(2, 0, 1))), 3),
                "ess": round(float(min(az.ess(x) for x in values.transpose(2, 0, 1)))),
                "jumps": int(seen["jumps"].sum()),
                "visits": round(float(seen["ess"].values.min())),
                "difference": round(float(max(map(ks_distance, found.T, known.T))), 3),
            }
            rows.append(row | when_and_where())
            print(rows[-1], flush=True)
            save(FILE, rows)
    write_if_complete()


def tables(rows):
    """Return the tables of the pages."""
    measured = {(row["measure"], row["d"]): row["value"] for row in rows if "measure" in row}
    pair = ["| d | found, one coordinate | found, all coordinates | visits |", "|---" * 4 + "|"]
    for d in sorted(set().union(*DIMENSIONS.values())):
        cells = [spaced(measured[m, d]) if (m, d) in measured else "" for m in DIMENSIONS]
        pair.append(f"| {d} | {' | '.join(cells)} |")

    rows = [row for row in rows if "posterior" in row]
    titles = ["posterior", "draws", "run", "clusters", "R-hat", "ESS", "jumps", "visits"]
    titles.append("difference")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    order = {name: i for i, name in enumerate(REAL)}
    for row in sorted(rows, key=lambda row: (order[row["posterior"]], row["draws"], row["seed"])):
        cells = [f"{row['posterior']}, d = {row['d']}", spaced(row["draws"]), str(row["seed"] + 1)]
        cells += [str(row["clusters"]), f"{row['rhat']:.2f}", spaced(row["ess"])]
        cells += [spaced(row["jumps"]), spaced(row["visits"]), f"{row['difference']:.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return {"cyclical_kam.md": {"two normal modes": pair}, "modes.md": {"real posteriors": lines}}


def ks_distance(x, y):
    """Return the largest difference of two empirical distribution functions."""
    return ks_2samp(x, y, method="asymp").statistic


FIGURES = {"visits": visits, "search": search, "paper": paper, "labels": labels, "real": real}


def main():
    """Print the figures that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", choices=FIGURES, help="one figure")
    parser.add_argument("--full", action="store_true", help="more runs and longer chains")
    options = parser.parse_args()
    logging.getLogger("pymc_kameleon").setLevel(logging.ERROR)
    for name in [options.only] if options.only else FIGURES:
        FIGURES[name](options.full)


if __name__ == "__main__":
    main()
