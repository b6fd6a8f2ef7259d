"""What the first evaluations are worth: averages of whole runs.

    python examples/benchmarks/first_evaluations.py [--cases GARCH AR5] [--budgets 100 200]
        [--seeds 12] [--noise 0.05] [--workers 1]

Runs are those of ``pk.sample(max_evaluations=...)``, averaged by ``pk.expectation``. Effective
draws are 1 / mean over the seeds of the squared error, in units of the posterior: of the means of
all coordinates, and of the shares below their 5, 50 and 95 % quantiles. Printed are the worst and
the median quantity; and z, the root mean square, and the largest, of error / standard error, and
how many of these are NaN.

With --noise the log-density has noise of this standard deviation, as a solver's tolerance makes:
always the same at the same point. Errors are those from the posterior without it.

Nothing is kept: the pages have the figures typed.
"""

import time
from functools import partial
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from benchmark import main, sample
from problems import CASES, Problem, known_quantiles

import pymc_kameleon as pk

SOME = (
    *("GARCH", "AR5", "interaction", "flat priors", "hidden Markov", "mixture", "schools"),
    *("transforms", "banana"),
)
AT = 100, 120, 150, 200, 300

LEVELS = 0.05, 0.5, 0.95
"""Of the quantiles."""


def plan(options):
    """Yield what is to be run: of a case all numbers of evaluations."""
    at = [int(n) for n in options.budgets or AT]
    for case in SOME:
        what = {"case": case, "noise": options.noise, "runs": options.seeds}
        yield what, partial(measured, case, options, at)


def add_options(parser):
    """Add the options of this script."""
    parser.add_argument("--noise", type=float, default=0.0, help="of the log-density")
    parser.add_argument("--workers", type=int, default=1, help="evaluations at once")


def measured(case, options, at):
    """Return rows of what runs are worth, one for each number of evaluations."""
    known = known_quantiles(Problem(case))
    problem = Problem(case, CASES[case]._replace(build=partial(noisy, case, options.noise)))
    step, rows = pk.SurrogateMetropolis(model=problem.model), []
    for n in at:
        runs = {"max_evaluations": n, "max_concurrent": options.workers}
        found = [ran(problem, step, known, runs, seed) for seed in range(options.seeds)]
        errors, z, seconds = (np.array(part) for part in zip(*found, strict=True))
        row = {"evaluations": n} | worth(errors) | of_z(z)
        rows.append(row | {"seconds": round(np.median(seconds), 1)})
    return rows


def noisy(name, sd):
    """Return the model of a case, with noise in its log-density."""
    model = CASES[name].build()
    if sd > 0:
        x = pt.concatenate([pt.cast(v, "float64").flatten() for v in model.free_RVs])

        @pk.black_box(ndim=0)
        def noise(x):
            return np.asarray(sd * np.random.default_rng(crc32(x.tobytes())).standard_normal())

        with model:
            pm.Potential("noise", noise(x))
    return model


def of_z(z):
    """Return the root mean square of z, the largest, and how many are NaN."""
    told = np.append(np.abs(z[np.isfinite(z)]), 0)
    rms = round(float(np.sqrt(np.mean(told**2))), 2)
    return {"z": rms, "largest": round(told.max(), 1), "NaN": int(np.isnan(z).sum())}


def ran(problem, step, known, options, seed):
    """Return the errors (4d,) of a run's averages, errors / standard errors, and its seconds."""
    begun = time.process_time()
    dt = sample(step, **options, random_seed=seed)
    answer = pk.expectation(dt, lambda v: functions(problem.coordinates(v), known))
    error = answer.mean
    with np.errstate(invalid="ignore", divide="ignore"):
        return error, error / answer.mcse, time.process_time() - begun


def functions(x, known):
    """Return the errors (..., 4d) of averages of single points x (..., d)."""
    means = (x - known["mean"]) / known["sd"]
    shares = [
        ((x < q) - level) / np.sqrt(level * (1 - level))
        for q, level in zip(known["q"], LEVELS, strict=True)
    ]
    return np.concatenate([means, *shares], axis=-1)


def worth(errors):
    """Return what the errors (runs, 4d) are worth, in effective draws."""
    errors = np.asarray(errors)
    effective = 1 / np.mean(errors**2, axis=0)
    each = [round(1 / np.max(error**2)) for error in errors]
    worst, median = float(effective.min()), float(np.median(effective))
    return {"worst": round(worst, 1), "median": round(median), "each run": each}


if __name__ == "__main__":
    main(None, plan, seeds=12, add_options=add_options)
