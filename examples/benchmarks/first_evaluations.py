"""What the first evaluations are worth: averages of whole runs, of the search alone, of PyVBMC.

    python examples/benchmarks/first_evaluations.py [--of runs] [--cases GARCH,AR5] [--at 100,200]
        [--seeds 12] [--noise 0.05]

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

For development: the pages show evaluations.py.
"""

import argparse
import tempfile
import time
import warnings
from copy import copy
from functools import partial
from pathlib import Path
from zlib import crc32

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from dispersed import quiet
from evaluations import BANANA, CASES, Problem, long_run
from others import fitted
from pytensor.graph import Apply, Op

import pymc_kameleon as pk
from pymc_kameleon.samplers.surrogate.active.way import Way
from pymc_kameleon.samplers.surrogate.learning import linear_algebra

SOME = "GARCH,AR5,interaction,flat priors,hidden Markov,mixture,schools,transforms,banana"
AT = "100,120,150,200,300"

LEVELS = np.array([0.05, 0.5, 0.95])[:, None]
"""Of the quantiles."""

DRAWS = 40_000
"""Of each chain of a reference."""

N_STEPS = 1000
"""Steps of each of the 48 chains that make draws."""

VARIATIONAL_DRAWS = 50_000
"""Of PyVBMC's posterior."""


def main():
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=SOME)
    parser.add_argument("--at", default=AT, help="numbers of evaluations")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--of", default="runs", choices=KINDS)
    parser.add_argument("--noise", type=float, default=0.0, help="of the log-density")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    at, seeds = (
        [int(n) for n in options.at.split(",")],
        range(options.first, options.first + options.seeds),
    )
    for name in options.cases.split(","):
        known = reference(Problem(name))
        problem = Problem(name, CASES[name]._replace(build=partial(noisy, name, options.noise)))
        KINDS[options.of](problem, known, at, seeds)


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


def show_runs(problem, known, at, seeds):
    """Print what whole runs are worth."""
    step = pk.SurrogateMetropolis(model=problem.model, expensive=True)
    for n in at:
        found = [ran(problem, step, known, seed, n) for seed in seeds]
        errors, z, seconds = (np.array(part) for part in zip(*found, strict=True))
        told = np.append(np.abs(z[np.isfinite(z)]), 0)
        print(
            f"{problem.name:14} {n:4}: {worth(errors)}; z {np.sqrt(np.mean(told**2)):.2f}, at most "
            f"{told.max():.1f}, NaN {np.isnan(z).sum()} of {z.size}; {np.median(seconds):.1f} s",
            flush=True,
        )


def show_search(problem, known, at, seeds):
    """Print what the search knows."""
    runs = [searched(problem, known, seed, at) for seed in seeds]
    for k, n in enumerate(at):
        sd, error, seconds = np.median([run[1][k] for run in runs], axis=0)
        print(
            f"{problem.name:14} {n:4}: {worth([run[0][k] for run in runs])}; "
            f"sdV {sd:.2f}, error {error:.2f}; {seconds:.1f} s",
            flush=True,
        )
    print(f"{problem.name:14} home at {[run[2] for run in runs]}", flush=True)


def show_pyvbmc(problem, known, at, seeds):
    """Print what PyVBMC answers."""
    for n in at:
        runs = [variational(problem, known, seed, n) for seed in seeds]
        errors, stopped, seconds = zip(*runs, strict=True)
        told = f"{worth(errors)}; {seconds} s; stopped at {stopped}"
        print(f"{problem.name:14} {n:4}: {told}", flush=True)


KINDS = {"runs": show_runs, "search": show_search, "pyvbmc": show_pyvbmc}


def reference(problem):
    """Return mean, sd and quantiles of a case, from the cache if it has them."""
    path = Path(tempfile.gettempdir()) / "kameleon-references" / f"quantiles of {problem.name}.npz"
    if not path.exists():
        if problem.name == "banana":
            x = BANANA.draw(np.random.default_rng(1), 10 * DRAWS)
        else:
            x = long_run(problem, DRAWS).reshape(-1, problem.d)
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(
            path, mean=x.mean(axis=0), sd=x.std(axis=0), q=np.quantile(x, LEVELS[:, 0], axis=0)
        )
    return np.load(path)


def ran(problem, step, known, seed, n):
    """Return the errors (4d,) of a run's averages, errors / standard errors, and its seconds."""
    begun = time.process_time()
    with quiet():
        dt = pk.sample(
            step=step,
            model=problem.model,
            max_evaluations=n,
            chains=4,
            cores=1,
            random_seed=seed,
            progressbar=False,
            compute_convergence_checks=False,
            idata_kwargs={"include_transformed": True},
        )
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
    """Return what the errors (runs, 4d) are worth, in effective draws, as text."""
    errors = np.asarray(errors)
    effective = 1 / np.mean(errors**2, axis=0)
    each = [round(1 / np.max(error**2)) for error in errors]
    worst, median = effective.min(), np.median(effective)
    return f"{worst:6.1f} worst, {median:6.0f} median, each run {each}"


if __name__ == "__main__":
    main()
