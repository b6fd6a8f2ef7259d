"""Several modes: what chains of CyclicalKAM find and visit, learning together.

    python examples/benchmarks/modes.py [--cases sensors] [--seeds 2]    half an hour

visits: two normal modes at distance 16, weights 0.2 and 0.8, variances 0.5 and 2; half of 40 chains
start in each. Independent visits per 1e6 evaluations after tuning, w(1 − w)/Var(ŵ) of the chains.
one, all: the same from one start in the wider mode; in how many of 20 runs 4 chains find both modes
with 10 000 d transitions of tuning in all. The modes differ in one coordinate, or in all, that is
in a direction that was drawn. These make the table of docs/cyclical_kam.md.
sensors, oscillator: the posteriors of modes_real.py from starts that are draws of the prior, 8
chains; clusters that tuning found, the largest R-hat and least effective sample size of a
parameter, changes of the mode and its effective visits as `pk.mode_occupancy` has them, and the
largest difference of a marginal's distribution function from what is known otherwise. These make
the table of docs/modes.md.
"""

from functools import partial
from pathlib import Path

import arviz as az
import modes_real
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, grouped, main, sample, spaced, table
from scipy.stats import ks_2samp

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
WEIGHT, DISTANCE, VARIANCES = 0.2, 16.0, np.array([0.5, 2.0])
DIMENSIONS = {"one": (2, 8, 16, 32), "all": (2, 4, 8, 16), "visits": (2, 8, 16, 32)}
"""Of what is measured on two normal modes: found, if they differ in one coordinate, found, if they
differ in all, and visits."""


def plan(options):
    """Yield what is to be run."""
    for measure, dimensions in DIMENSIONS.items():
        count = visits if measure == "visits" else partial(search, measure)
        for d in dimensions:
            yield {"measure": measure, "d": d}, partial(count, d)
    yield from each(real, case=REAL, draws=(1000, 10_000), seed=range(options.seeds))


def run(step, starts, draws, **options):
    """Sample chains that learn together, from starts (chains, d) of x."""
    initvals = [{"x": start} for start in starts]
    return sample(step, draws, chains=len(starts), initvals=initvals, **options)


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


def visits(d, n_chains=40):
    """Return independent visits per 1e6 evaluations, of chains half of which start in each mode."""
    pair, rng = Pair(d), np.random.default_rng(1)
    starts = [pair.start(i % 2, rng) for i in range(n_chains)]
    dt = run(pair.step, starts, 1000, tune=1000, random_seed=1)
    share = pair.in_first(dt).mean(axis=1)
    evaluations = dt.sample_stats["n_logp"].values.sum(axis=1).mean()
    found = WEIGHT * (1 - WEIGHT) / np.mean((share - WEIGHT) ** 2) / evaluations * 1e6
    return {"value": round(found)}


def search(differ, d, n_chains=4, runs=20):
    """Return in how many runs both modes were found from the wider one."""
    pair = Pair(d, differ)
    tune = 10_000 * d // n_chains // pair.step.steps_per_draw
    starts = [pair.means[1]] * n_chains
    found = (run(pair.step, starts, 20, tune=tune, random_seed=seed) for seed in range(runs))
    return {"value": sum(bool(pair.in_first(dt).any()) for dt in found)}


def known_frequencies():
    """Draw frequencies (n, 1) of the oscillator from what quadrature knows."""
    frequency, shares = modes_real.known_frequency()
    return np.random.default_rng(1).choice(frequency, (20_000, 1), p=shares)


REAL = {
    "sensors": (modes_real.sensors, "places", modes_real.tempered_sensors),
    "oscillator": (modes_real.oscillator, "frequency", known_frequencies),
}


def real(case, draws, seed):
    """Return what a run on a real posterior has found."""
    build, variable, know = REAL[case]
    model, known = build(), know()
    step = pk.CyclicalKAM(model=model)
    starts = pk.initvals(8, seed, how="prior", model=model)
    dt = sample(step, draws, tune=draws, chains=8, initvals=starts, random_seed=seed)
    values = dt.posterior[variable].values.reshape(8, draws, -1)
    found = values.reshape(-1, values.shape[-1])
    seen = pk.mode_occupancy(dt, var_names=[variable]).dataset
    return {
        "d": step.layout.d,
        "clusters": int(dt.sample_stats["n_modes"].values.max()),
        "rhat": round(float(max(az.rhat(x) for x in values.transpose(2, 0, 1))), 3),
        "ess": round(float(min(az.ess(x) for x in values.transpose(2, 0, 1)))),
        "jumps": int(seen["jumps"].sum()),
        "visits": round(float(seen["ess"].values.min())),
        "difference": round(float(max(map(ks_distance, found.T, known.T))), 3),
    }


def tables(rows):
    """Return the tables of the pages."""
    value = {(row["measure"], row["d"]): row["value"] for row in rows if "measure" in row}
    pair = [
        [d, *(spaced(value[m, d]) if (m, d) in value else None for m in DIMENSIONS)]
        for d in sorted(set().union(*DIMENSIONS.values()))
    ]
    lines, by_case = [], grouped(rows, "case")
    for case in REAL:
        for row in sorted(by_case[case], key=lambda row: (row["draws"], row["seed"])):
            cells = [f"{case}, d = {row['d']}", spaced(row["draws"]), row["seed"] + 1]
            cells += [row["clusters"], f"{row['rhat']:.2f}", spaced(row["ess"])]
            cells += [spaced(row["jumps"]), spaced(row["visits"]), f"{row['difference']:.2f}"]
            lines.append(cells)
    titles = ["posterior", "draws", "run", "clusters", "R-hat", "ESS", "jumps", "visits"]
    modes = table(["d", "found, one coordinate", "found, all coordinates", "visits"], pair)
    return {
        "cyclical_kam.md": {"two normal modes": modes},
        "modes.md": {"real posteriors": table([*titles, "difference"], lines)},
    }


def ks_distance(x, y):
    """Return the largest difference of two empirical distribution functions."""
    return ks_2samp(x, y, method="asymp").statistic


if __name__ == "__main__":
    main(FILE, plan, tables, seeds=2)
