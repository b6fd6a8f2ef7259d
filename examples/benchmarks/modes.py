"""Several modes: what chains of CyclicalKAM find and visit, learning together.

    python examples/benchmarks/modes.py [--cases sensors] [--seeds 2]    half an hour

visits: two normal modes at distance 16, weights 0.2 and 0.8, variances 0.5 and 2; half of 40 chains
start in each. Independent visits per 1e6 evaluations after tuning, w(1 − w)/Var(ŵ) of the chains.
one, all: the same from one start in the wider mode; in how many of 20 runs 4 chains find both modes
with 10 000 d transitions of tuning in all. The modes differ in one coordinate, or in all, that is
in a direction that was drawn. These make the table of docs/cyclical_kam.md.
sensors, oscillator: real posteriors from starts that are draws of the prior, 8 chains; clusters
that tuning found, the largest R-hat and least effective sample size of a parameter, changes of the
mode and its effective visits as `pk.mode_occupancy` has them, and the largest difference of a
marginal's distribution function from what is known otherwise. These make the table of
docs/modes.md.

sensors is where eight sensors in the unit square are, from noisy distances to three anchors and to
each other; those far apart are seldom seen. Whoever is seen by two others only may be on either
side of them. Known from parallel tempering of one sensor at a time, down from the uniform prior.
oscillator is a damped oscillation measured at twelve times that are nearly evenly spaced, so that
several periods fit. Known from quadrature: given period, decay and noise the rest is linear.
"""

from functools import partial
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import each, grouped, main, sample, spaced, table
from numba import njit
from scipy.stats import halfnorm, ks_2samp

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


# ---- sensors ------------------------------------------------------------------------------------

N_SENSORS, RANGE, NOISE = 8, 0.3, 0.02
ANCHORS = np.array([[0.1, 0.15], [0.5, 0.9], [0.85, 0.3]])


def observed_distances(seed=4):
    """Return distances (8, 11) to sensors and anchors, NaN if not seen; the upper triangle."""
    rng = np.random.default_rng(seed)
    places = np.concatenate([rng.random((N_SENSORS, 2)), ANCHORS])
    distances = np.linalg.norm(places[:N_SENSORS, None] - places, axis=2)
    seen = rng.random(distances.shape) < np.exp(-(distances**2) / (2 * RANGE**2))
    measured = distances + NOISE * rng.standard_normal(distances.shape)
    return np.where(seen & (np.arange(11) > np.arange(8)[:, None]), measured, np.nan)


def sensors():
    """Return the posterior of the places, which are uniform a priori."""
    measured = observed_distances()
    first, second = np.triu_indices(N_SENSORS, 1, N_SENSORS + len(ANCHORS))
    measured = measured[first, second]
    seen = np.isfinite(measured)
    with pm.Model() as model:
        places = pm.Uniform("places", 0, 1, shape=(N_SENSORS, 2))
        everywhere = pt.concatenate([places, ANCHORS])
        squares = ((everywhere[first] - everywhere[second]) ** 2).sum(axis=1)
        distance = pt.sqrt(squares[seen])
        pm.Normal("distance", distance, NOISE, observed=measured[seen])
        pm.Potential("seen", pt.sum(-squares[seen] / (2 * RANGE**2)))
        unseen = squares[~seen] / (2 * RANGE**2)
        pm.Potential("unseen", pt.sum(pt.log(-pt.expm1(-unseen))))
    return model


@njit
def log_of_sensor(places, i, x, measured):
    """Log-density of the distances of sensor i, if it is at x."""
    total = 0.0
    for j in range(places.shape[0]):
        if j == i:
            continue
        square = (x[0] - places[j, 0]) ** 2 + (x[1] - places[j, 1]) ** 2
        value = measured[min(i, j), max(i, j)]
        if np.isnan(value):
            total += np.log(-np.expm1(-square / (2 * RANGE**2)))
        else:
            residual = (value - np.sqrt(square)) / NOISE
            total -= square / (2 * RANGE**2) + residual**2 / 2
    return total


@njit
def temper(places, measured, powers, n, every, rng):
    """Return places (n / every, 8, 2) by parallel tempering; `places` are those of each power."""
    kept = np.empty((n // every, N_SENSORS, 2))
    x, logs = np.empty(2), np.zeros(len(powers))
    for sweep in range(n):
        for k in range(len(powers)):
            for i in range(N_SENSORS):
                scale = NOISE * 10.0 ** (1.5 * rng.random()) / np.sqrt(max(powers[k], 1e-2))
                if rng.random() < 0.2:
                    x[0], x[1] = rng.random(), rng.random()
                else:
                    x[0] = places[k, i, 0] + scale * rng.standard_normal()
                    x[1] = places[k, i, 1] + scale * rng.standard_normal()
                if x.min() <= 0.0 or x.max() >= 1.0:
                    continue
                change = log_of_sensor(places[k], i, x, measured)
                change -= log_of_sensor(places[k], i, places[k, i], measured)
                if np.log(rng.random()) < powers[k] * change:
                    places[k, i] = x
            logs[k] = 0.0
            for i in range(N_SENSORS):  # each pair of sensors once: those before i are left out
                logs[k] += log_of_sensor(places[k, i:], 0, places[k, i], measured[i:, i:])
        for k in range(len(powers) - 1):
            if np.log(rng.random()) < (powers[k + 1] - powers[k]) * (logs[k] - logs[k + 1]):
                other = places[k].copy()
                places[k], places[k + 1] = places[k + 1], other
                logs[k], logs[k + 1] = logs[k + 1], logs[k]
        if sweep % every == 0:
            kept[sweep // every] = places[-1, :N_SENSORS]
    return kept


def tempered_sensors(n=200_000, seed=1):
    """Return draws (n / 20, 16) of the places by tempering, the first tenth left out."""
    rng = np.random.default_rng(seed)
    powers = np.concatenate([[0.0], np.geomspace(1e-3, 1, 27)])
    places = rng.random((len(powers), N_SENSORS + len(ANCHORS), 2))
    places[:, N_SENSORS:] = ANCHORS
    draws = temper(places, observed_distances(), powers, n, 20, rng)
    return draws[len(draws) // 10 :].reshape(-1, 2 * N_SENSORS)


# ---- oscillator ---------------------------------------------------------------------------------


def oscillation(seed=2):
    """Return the times, in seconds, and what was measured then."""
    rng = np.random.default_rng(seed)
    times = 0.9 * np.arange(12) + rng.uniform(-0.04, 0.04, 12)
    y = np.exp(-0.1 * times) * (np.cos(2.5 * times) + 0.5 * np.sin(2.5 * times))
    return times, y + 0.3 * rng.standard_normal(12)


def oscillator():
    """Return the posterior of y'' + 2 decay y' + (frequency² + decay²) y = 0, solved by hand."""
    times, y = oscillation()
    with pm.Model() as model:
        frequency = pm.Uniform("frequency", 0, 12)
        decay = pm.HalfNormal("decay", 0.3)
        a, b = pm.Normal("cosine", 0, 2), pm.Normal("sine", 0, 2)
        noise = pm.HalfNormal("noise", 0.5)
        wave = a * pm.math.cos(frequency * times) + b * pm.math.sin(frequency * times)
        pm.Normal("y", pm.math.exp(-decay * times) * wave, noise, observed=y)
    return model


def known_frequency(n=6000, n_other=40):
    """Return a grid of frequencies, and their posterior probabilities."""
    times, y = oscillation()
    frequency = (np.arange(n) + 0.5) * (12 / n)
    shares = (np.arange(n_other) + 0.5) / n_other
    decays, noises = halfnorm.ppf(shares, scale=0.3), halfnorm.ppf(shares, scale=0.5)
    total = np.zeros(n)
    phases = frequency[:, None] * times
    for decay in decays:
        waves = np.exp(-decay * times) * np.stack([np.cos(phases), np.sin(phases)], axis=1)
        gram, by_data = waves @ waves.transpose(0, 2, 1), waves @ y
        for noise in noises:
            precision = gram / noise**2 + np.eye(2) / 4
            fit = np.linalg.solve(precision, by_data[..., None] / noise**2)[..., 0]
            log = np.sum(fit * by_data, axis=1) / (2 * noise**2) - np.sum(y**2) / (2 * noise**2)
            total += np.exp(log - len(y) * np.log(noise)) / np.sqrt(np.linalg.det(precision))
    return frequency, total / total.sum()


def known_frequencies():
    """Draw frequencies (n, 1) of the oscillator from what quadrature knows."""
    frequency, shares = known_frequency()
    return np.random.default_rng(1).choice(frequency, (20_000, 1), p=shares)


# ---- both ---------------------------------------------------------------------------------------

REAL = {
    "sensors": (sensors, "places", tempered_sensors),
    "oscillator": (oscillator, "frequency", known_frequencies),
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
