"""From dispersed starts to the posterior: what default arguments of pk.sample give.

    python examples/benchmarks/dispersed.py [--truth]     R-hat and ESS on ordinary posteriors
    python examples/benchmarks/dispersed.py --home        evaluations to the typical set
    python examples/benchmarks/dispersed.py --clock       seconds, learning together or alone

all with [--samplers GAM,KAM] [--posteriors trend,prices] [--seeds 2]; posteriors.py has the
posteriors. Chains start where pk.sample lets them by default, jittered around the initial point.
"""

import argparse
import logging
import warnings
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from statistics import median
from time import perf_counter
from typing import NamedTuple

import arviz as az
import numpy as np
from posteriors import FUNNELS, POSTERIORS
from scipy.stats import ks_2samp

import pymc_kameleon as pk

CHAINS = 4
RHAT, ESS = 1.02, 200
"""A run is right if R-hat is below the one, and the bulk ESS above the other."""

REGRESSIONS = ("regression 5", "regression 10", "correlated")


def main():
    """Print the table that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samplers", default="GAM,KAM")
    parser.add_argument("--posteriors", help="some of posteriors.py, with commas in between")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each")
    parser.add_argument("--truth", action="store_true", help="compare with long runs of GadMALA")
    what = parser.add_mutually_exclusive_group()
    for name in ("home", "clock"):
        what.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    seeds, samplers = range(options.seeds), options.samplers.split(",")
    names = options.posteriors and options.posteriors.split(",")
    if options.home:
        home(samplers, names or REGRESSIONS, seeds)
    elif options.clock:
        clock(samplers, names or REGRESSIONS, options.seeds)
    else:
        defaults(samplers, names or POSTERIORS, seeds, options.truth)


def run(step, seed, draws=1000, **options):
    """Sample with a step that was made before, from dispersed starts."""
    options = {"chains": CHAINS, "random_seed": seed, "progressbar": False} | options
    return pk.sample(draws, step=step, model=step.model, **options)


def reference(model):
    """Return a long run of GadMALA."""
    with quiet():
        return run(pk.GadMALA(model=model), 0, draws=10_000, tune=3000)


@contextmanager
def quiet(level=logging.WARNING):
    """Show no messages; yield a list of those that are warnings, or of this level."""
    keeper = BufferingHandler(10_000)
    keeper.setLevel(level)
    loggers = [logging.getLogger(name) for name in ("pymc_kameleon", "pymc")]
    before = [(logger, logger.handlers, logger.propagate) for logger in loggers]
    for logger in loggers:
        logger.handlers, logger.propagate = [keeper], False
    try:
        yield keeper.buffer
    finally:
        for logger, handlers, propagate in before:
            logger.handlers, logger.propagate = handlers, propagate


def parameters(model, dt):
    """Return the draws of all free variables, (chains, draws, d)."""
    values = [dt["posterior"][rv.name].values for rv in model.free_RVs]
    return np.concatenate([v.reshape(*v.shape[:2], -1) for v in values], axis=2)


def with_squares(x):
    """Return x (chains, draws, d) and the squares about the means, as a tree for ArviZ."""
    squares = (x - x.mean(axis=(0, 1))) ** 2
    return az.convert_to_datatree({"x": np.concatenate([x, squares], axis=2)})


def evaluations(dt):
    """Return the evaluations of the log-density up to each draw, tuning first: (chains, draws)."""
    groups = [dt[name]["n_logp"].values for name in ("warmup_sample_stats", "sample_stats")]
    return np.cumsum(np.concatenate(groups, axis=1), axis=1)


# ---- default arguments --------------------------------------------------------------------------


class Verdict(NamedTuple):
    """What there is to say of a run; `error` is NaN without a reference."""

    rhat: float
    ess: float
    n_logp: float
    warned: bool
    error: float

    @property
    def right(self):
        """Whether R-hat and ESS are good enough."""
        return self.rhat < RHAT and self.ess > ESS


def defaults(samplers, names, seeds, truth):
    """Print the worst R-hat, least bulk ESS and most evaluations of the seeds."""
    heading = f"{'posterior':<20}{'d':>3}  {'sampler':<13}{'worst R-hat':>12}{'least ESS':>11}"
    heading += f"{'evaluations':>13}{'right':>7}{'warned':>8}"
    print("Of the seeds the worst; evaluations per chain")
    print(heading + (f"{'error':>8}" if truth else ""))
    right = dict.fromkeys(samplers, 0)
    for name in names:
        model = POSTERIORS[name]()
        known = parameters(model, reference(model)) if truth else None
        for sampler in samplers:
            step = getattr(pk, sampler)(model=model)
            rows = [verdict(step, seed, known) for seed in seeds]
            good, worst = sum(row.right for row in rows), max(row.rhat for row in rows)
            right[sampler] += good == len(rows)
            print(
                f"{name:<20}{step.layout.d:>3}  {sampler:<13}{worst:>12.3f}"
                f"{min(row.ess for row in rows):>11.0f}{max(row.n_logp for row in rows):>13.0f}"
                f"{good:>3} of {len(rows)}{sum(row.warned for row in rows):>5} of {len(rows)}"
                + (f"{max(row.error for row in rows):>8.2f}" if truth else ""),
                flush=True,
            )
    n_funnels = sum(name in FUNNELS for name in names)
    for sampler, n in right.items():
        print(f"{sampler}: right on {n} of {len(names)}, of which {n_funnels} funnels")


def verdict(step, seed, known):
    """Run once with default arguments."""
    with quiet() as told:
        dt = run(step, seed)
    x = parameters(step.model, dt)
    tree = with_squares(x)
    rhat, ess = float(az.rhat(tree)["x"].max()), float(az.ess(tree)["x"].min())
    error = np.nan if known is None else largest_distance(x, known)
    return Verdict(rhat, ess, evaluations(dt)[:, -1].mean(), bool(told), error)


def largest_distance(x, known):
    """Return the largest distance between the distribution functions of a parameter."""
    pairs = zip(x.reshape(-1, x.shape[2]).T, known.reshape(-1, x.shape[2]).T, strict=True)
    return max(ks_2samp(a, b).statistic for a, b in pairs)


# ---- the way home -------------------------------------------------------------------------------


def home(samplers, names, seeds, asked=60):
    """Print the evaluations over d until all chains are where the posterior is."""
    print(f"evaluations / d until the last of {CHAINS} chains is in the typical set, <= {asked}")
    print(f"{'posterior':<20}{'sampler':<13}{'median':>8}{'worst':>8}{'each chain':>12}")
    for name in names:
        model = POSTERIORS[name]()
        threshold = np.quantile(reference(model)["sample_stats"]["lp"], 0.01)
        for sampler in samplers:
            step = getattr(pk, sampler)(model=model)
            with quiet():
                runs = [run(step, seed, draws=10) for seed in seeds]
            ways = np.array([ways_home(dt, threshold) for dt in runs]) / step.layout.d
            last = ways.max(axis=1)
            print(
                f"{name:<20}{sampler:<13}{np.median(last):>8.0f}{last.max():>8.0f}"
                f"{np.median(ways):>12.0f}",
                flush=True,
            )


def ways_home(dt, threshold, n=10):
    """Return for each chain the evaluations up to the first of n draws all but one above it.

    A chain that is home is below the 1 % quantile at times, too. A chain that never is has inf.
    """
    high = dt["warmup_sample_stats"]["lp"].values > threshold
    ways = []
    for above, count in zip(high, evaluations(dt), strict=True):
        first = np.convolve(above, np.ones(n), "valid") >= n - 1
        first &= above[: first.size]
        ways.append(count[first.argmax()] if first.any() else np.inf)
    return ways


# ---- seconds ------------------------------------------------------------------------------------


def clock(samplers, names, repeats):
    """Print the seconds of pk.sample in turns, learning together and alone."""
    print(f"seconds of pk.sample, {CHAINS} chains on 2 cores, medians of {repeats} in turns")
    print(f"{'posterior':<20}{'sampler':<13}{'together':>10}{'alone':>8}{'<= 1.1':>8}")
    for name in names:
        model = POSTERIORS[name]()
        for sampler in samplers:
            step = getattr(pk, sampler)(model=model)
            seconds(step, 0, pool=True)  # what is compiled once
            rows = [
                [seconds(step, seed, pool) for pool in (True, False)] for seed in range(repeats)
            ]
            together, alone = np.median(rows, axis=0)
            ratio = median(a / b for a, b in rows)
            print(f"{name:<20}{sampler:<13}{together:>10.2f}{alone:>8.2f}{ratio:>8.2f}", flush=True)


def seconds(step, seed, pool):
    """Return how long a run takes."""
    start = perf_counter()
    with quiet():
        run(step, seed, cores=2, pool_tuning=pool)
    return perf_counter() - start


if __name__ == "__main__":
    main()
