"""What the first evaluations are worth: averages of whole runs, of the search alone, of PyVBMC.

    python examples/benchmarks/first_evaluations.py [--of runs] [--cases GARCH AR5]
        [--budgets 100 200] [--seeds 12] [--noise 0.05]

Effective draws are 1 / mean over the seeds of the squared error, in units of the posterior: of the
means of all coordinates, and of the shares below their 5, 50 and 95 % quantiles. Printed are the
worst and the median quantity. Of

* runs: those of ``pk.sample(max_evaluations=...)`` from dispersed starts, averaged by
  ``pk.expectation``; and z, the root mean square, and the largest, of error / standard error, and
  how many of these are NaN;
* search: a search from the best of four starts, which count, that goes on beyond where a chain
  would stop, by draws of what its Gaussian process knows by then; and what it says of itself, and
  from how many evaluations on it was home;
* pyvbmc: from the same starts, which it is given; and where it stopped.

With --noise the log-density has noise of this standard deviation, as a solver's tolerance makes:
always the same at the same point. Errors are those from the posterior without it.

Nothing is kept: the pages have the figures typed.
"""

import time
from copy import copy
from functools import partial
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import main, sample
from others import fitted
from problems import CASES, Problem, known_quantiles
from pytensor.graph import Apply, Op

import pymc_kameleon as pk
from pymc_kameleon.samplers.surrogate.active.way import Way
from pymc_kameleon.samplers.surrogate.learning import linear_algebra

SOME = (
    *("GARCH", "AR5", "interaction", "flat priors", "hidden Markov", "mixture", "schools"),
    *("transforms", "banana"),
)
AT = 100, 120, 150, 200, 300

LEVELS = np.array([0.05, 0.5, 0.95])[:, None]
"""Of the quantiles."""

N_STEPS = 1000
"""Steps of each of the 48 chains that make draws."""

VARIATIONAL_DRAWS = 50_000
"""Of PyVBMC's posterior."""


def plan(options):
    """Yield what is to be run: of a case all numbers of evaluations."""
    measure, at = KINDS[options.of], [int(n) for n in options.budgets or AT]
    for case in SOME:
        what = {"case": case, "of": options.of, "noise": options.noise, "runs": options.seeds}
        yield what, partial(measured, measure, case, options, at)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--of", default="runs", choices=KINDS)
    parser.add_argument("--noise", type=float, default=0.0, help="of the log-density")


def measured(measure, case, options, at):
    """Return rows of what runs are worth, one for each number of evaluations."""
    known = known_quantiles(Problem(case))
    problem = Problem(case, CASES[case]._replace(build=partial(noisy, case, options.noise)))
    return measure(problem, known, at, range(options.seeds))


class Noise(Op):
    """Noise that depends on the point alone."""

    __props__ = ("sd",)

    def __init__(self, sd):
        self.sd = sd

    def make_node(self, x):
        """Return a node of points x (d,)."""
        return Apply(self, [x], [pt.dscalar()])

    def perform(self, node, inputs, outputs):
        """Draw it from a generator that the point seeds."""
        rng = np.random.default_rng(crc32(inputs[0].tobytes()))
        outputs[0][0] = np.asarray(self.sd * rng.standard_normal())


def noisy(name, sd):
    """Return the model of a case, with noise in its log-density."""
    model = CASES[name].build()
    if sd > 0:
        x = pt.concatenate([pt.cast(v, "float64").flatten() for v in model.free_RVs])
        with model:
            pm.Potential("noise", Noise(sd)(x))
    return model


def of_runs(problem, known, at, seeds):
    """Return what whole runs are worth."""
    step, rows = pk.SurrogateMetropolis(model=problem.model, expensive=True), []
    for n in at:
        found = [ran(problem, step, known, seed, n) for seed in seeds]
        errors, z, seconds = (np.array(part) for part in zip(*found, strict=True))
        row = {"evaluations": n} | worth(errors) | of_z(z)
        rows.append(row | {"seconds": round(np.median(seconds), 1)})
    return rows


def of_z(z):
    """Return the root mean square of z, the largest, and how many are NaN."""
    told = np.append(np.abs(z[np.isfinite(z)]), 0)
    rms = round(float(np.sqrt(np.mean(told**2))), 2)
    return {"z": rms, "largest": round(told.max(), 1), "NaN": int(np.isnan(z).sum())}


def of_search(problem, known, at, seeds):
    """Return what the search knows, and from how many evaluations on it is home."""
    runs, rows = [searched(problem, known, seed, at) for seed in seeds], []
    for k, n in enumerate(at):
        said = np.median([run[1][k] for run in runs], axis=0).round(2).tolist()
        row = {"evaluations": n} | worth([run[0][k] for run in runs])
        row |= dict(zip(("sdV", "error", "seconds"), said, strict=True))
        rows.append(row | {"home": [run[2] for run in runs]})
    return rows


def of_pyvbmc(problem, known, at, seeds):
    """Return what PyVBMC answers."""
    rows = []
    for n in at:
        runs = [variational(problem, known, seed, n) for seed in seeds]
        errors, stopped, seconds = zip(*runs, strict=True)
        rows.append({"evaluations": n} | worth(errors) | {"stopped": stopped, "seconds": seconds})
    return rows


KINDS = {"runs": of_runs, "search": of_search, "pyvbmc": of_pyvbmc}


def ran(problem, step, known, seed, n):
    """Return the errors (4d,) of a run's averages, errors / standard errors, and its seconds."""
    begun = time.process_time()
    dt = sample(step, max_evaluations=n, random_seed=seed)
    answer = pk.expectation(dt, lambda v: functions(problem.coordinates(v), known))
    error = answer.mean
    with np.errstate(invalid="ignore", divide="ignore"):
        return error, error / answer.mcse, time.process_time() - begun


def functions(x, known):
    """Return the errors (..., 4d) of averages of single points x (..., d)."""
    means = (x - known["mean"]) / known["sd"]
    shares = [
        ((x < q) - level) / np.sqrt(level * (1 - level))
        for q, level in zip(known["q"], LEVELS[:, 0], strict=True)
    ]
    return np.concatenate([means, *shares], axis=-1)


def searched(problem, known, seed, at):
    """Return errors, what the search says, and its seconds, at numbers of evaluations; and home."""
    way, seconds, home = Way(np.random.default_rng(seed)), 0.0, None
    going = way.go(problem.starts(4, seed))
    points, errors, said = next(going), [], []
    with linear_algebra().limit(limits=1), np.errstate(all="ignore"):
        for n in at:
            while len(way.f) < n:
                logp = np.array([problem.logp(x) for x in points])
                begun = time.process_time()
                points = going.send(logp)
                seconds += time.process_time() - begun
                if home is None and way.is_home:
                    home = len(way.f)
            draws = copy(way).draws(N_STEPS, np.random.default_rng(seed))
            errors.append(errors_of(draws, known))
            said.append((way.sd, way.error, seconds))
    return errors, said, home


def variational(problem, known, seed, budget):
    """Return the errors of PyVBMC, its evaluations, and its seconds; a run that fails is wrong."""
    starts = problem.starts(4, seed)
    logp = np.array([problem.logp(x) for x in starts])
    begun = time.process_time()
    fit = fitted(
        problem,
        starts[np.argmax(logp)],
        budget,
        seed,
        precomputed_evaluations=(starts, logp),
        initialization_cost=len(starts),
    )
    seconds = round(time.process_time() - begun, 1)
    if fit is None:
        return np.full(4 * problem.d, np.inf), None, seconds
    posterior, said = fit
    draws = posterior.sample(VARIATIONAL_DRAWS)[0]
    return errors_of(draws, known), len(starts) + said["func_count"], seconds


def errors_of(draws, known):
    """Return the errors (4d,) of draws (n, d), in units of the posterior."""
    return functions(draws, known).mean(axis=0)


def worth(errors):
    """Return what the errors (runs, 4d) are worth, in effective draws."""
    errors = np.asarray(errors)
    effective = 1 / np.mean(errors**2, axis=0)
    each = [round(1 / np.max(error**2)) for error in errors]
    worst, median = float(effective.min()), float(np.median(effective))
    return {"worst": round(worst, 1), "median": round(median), "each run": each}


if __name__ == "__main__":
    main(None, plan, seeds=12, add_options=add_options)
