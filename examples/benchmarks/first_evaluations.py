"""What the first evaluations are worth: draws of what SurrogateMetropolis' search knows by then.

    python examples/benchmarks/first_evaluations.py [--cases GARCH,AR5] [--at 100,200] [--seeds 12]
        [--pyvbmc]

A search begins at the best of four dispersed starts, which count, and goes on beyond where a chain
would stop. At some numbers of evaluations it is asked for draws of the posterior, as its Gaussian
process knows it: that takes none. Effective draws are 1 / mean over the seeds of the squared error,
in units of the posterior: of the means of all coordinates, and of the shares below their 5, 50 and
95 % quantiles. Printed are the worst and the median quantity, what the search itself says, and from
how many evaluations on it was home. With --pyvbmc the same of PyVBMC, from the same starts, which
it is given: it may take so many evaluations, and printed is where it stopped. For development: the
pages show evaluations.py.
"""

import argparse
import tempfile
import time
import warnings
from copy import copy
from pathlib import Path

import numpy as np
from evaluations import BANANA, Problem, long_run
from others import fitted

from pymc_kameleon.samplers.surrogate.active.way import Way
from pymc_kameleon.samplers.surrogate.learning import linear_algebra

CASES = "GARCH,AR5,interaction,flat priors,hidden Markov,mixture,schools,transforms,banana"
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
    parser.add_argument("--cases", default=CASES)
    parser.add_argument("--at", default=AT, help="numbers of evaluations")
    parser.add_argument("--seeds", type=int, default=12)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--pyvbmc", action="store_true", help="instead of the search")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    at, seeds = (
        [int(n) for n in options.at.split(",")],
        range(options.first, options.first + options.seeds),
    )
    for name in options.cases.split(","):
        problem = Problem(name)
        known = reference(problem)
        if options.pyvbmc:
            for n in at:
                runs = [variational(problem, known, seed, n) for seed in seeds]
                errors, stopped, seconds = zip(*runs, strict=True)
                told = f"{worth(errors)}; {seconds} s; stopped at {stopped}"
                print(f"{name:14} {n:4}: {told}", flush=True)
            continue
        runs = [searched(problem, known, seed, at) for seed in seeds]
        for k, n in enumerate(at):
            sd, error, seconds = np.median([run[1][k] for run in runs], axis=0)
            print(
                f"{name:14} {n:4}: {worth([run[0][k] for run in runs])}; "
                f"sdV {sd:.2f}, error {error:.2f}; {seconds:.1f} s",
                flush=True,
            )
        print(f"{name:14} home at {[run[2] for run in runs]}", flush=True)


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
    means = (draws.mean(axis=0) - known["mean"]) / known["sd"]
    shares = (draws < known["q"][:, None]).mean(axis=1)
    return np.concatenate([means, *((shares - LEVELS) / np.sqrt(LEVELS * (1 - LEVELS)))])


def worth(errors):
    """Return what the errors (runs, 4d) are worth, in effective draws, as text."""
    errors = np.asarray(errors)
    effective = 1 / np.mean(errors**2, axis=0)
    each = [round(1 / np.max(error**2)) for error in errors]
    worst, median = effective.min(), np.median(effective)
    return f"{worst:6.1f} worst, {median:6.0f} median, each run {each}"


if __name__ == "__main__":
    main()
