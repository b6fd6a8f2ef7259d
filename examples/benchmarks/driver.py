"""pk.sample beside pm.sample: cost per draw, threads, memory.

    python examples/benchmarks/driver.py    about a minute

Writes tables of docs/performance.md. Steps are built before the clock starts, and everything runs
once before it. Ratios are of runs side by side, medians of several.
"""

from functools import partial
from pathlib import Path
from resource import getpagesize
from statistics import median
from threading import Event, Thread
from time import perf_counter, process_time

import numpy as np
import pymc as pm
from benchmark import main, spaced, table
from transitions import draw_seconds, tuned

import pymc_kameleon as pk

FILE = Path(__file__).with_suffix(".json")
D = 8
DRAWS, LONG = 500_000, 1_000_000
CHAINS = 4
REPEATS = 5
STEPS_PER_DRAW = (1, 10)
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


OVER_PYMC = "draws per second over `pm.sample` with the same step"
TWO_CORES = f"{CHAINS} chains of {spaced(DRAWS)} draws: speed on 2 cores over that on 1"


def plan(options):
    """Return what is measured, and how."""
    yield {"what": "memory"}, memory  # before other runs leave some free
    yield {"what": "a draw"}, cost_per_draw
    for n in STEPS_PER_DRAW:
        yield {"what": OVER_PYMC, "steps_per_draw": n}, partial(over_pymc, n)
        yield {"what": TWO_CORES, "steps_per_draw": n}, partial(two_cores, n)


def tables(rows):
    """Return the tables of the page."""
    found = {(row["what"], row.get("steps_per_draw")): row for row in rows}
    ratios = [
        (what, *(form.format(found[what, n]["ratio"]) for n in STEPS_PER_DRAW))
        for what, form in [(OVER_PYMC, "{:.0f}"), (TWO_CORES, "{:.2f}")]
    ]
    draw, taken = found["a draw", None], found["memory", None]
    mb = f"{taken['growth']:.0f} MB, of which the result has {taken['result']:.0f} MB"
    costs = {
        f"cost of a draw beyond its transitions, {spaced(DRAWS)} draws": f"{draw['beyond']:.2f} µs",
        f"growth of memory with {spaced(LONG)} draws of 10 parameters": mb,
        "a run of one draw, with what is kept of each draw compiled": f"{draw['one']:.2f} s",
    }
    titles = ["what", *(f"`steps_per_draw={n}`" for n in STEPS_PER_DRAW)]
    made = {"pk.sample": table(titles, ratios), "a draw": table(["what", ""], costs.items())}
    return {"performance.md": made}


def banana(d=D):
    """Haario's banana in d dimensions, as a log-density of one vector."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=d)
        curved = x[1] + 0.03 * (x[0] ** 2 - 100)
        pm.Potential("p", -0.5 * (x[0] ** 2 / 100 + curved**2 + (x[2:] ** 2).sum()))
    return model


def sample_seconds(sample, step, draws, chains=1, cores=1, clock=perf_counter):
    """Time a run, and drop its result."""
    starts = [{"x": np.full(D, 0.1 * i)} for i in range(1, chains + 1)]
    start = clock()
    sample(
        draws,
        tune=100,
        chains=chains,
        cores=cores,
        step=step,
        initvals=starts,
        model=step.model,
        **QUIET,
    )
    return clock() - start


def cost_per_draw():
    """Microseconds of a draw besides its transitions, for which the same run in one call."""
    step = pk.GAM(model=banana(), steps_per_draw=1)
    sample_seconds(pk.sample, step, 100)
    beyond, ones = [], []
    for _ in range(REPEATS):
        one, whole = (sample_seconds(pk.sample, step, n, clock=process_time) for n in (1, DRAWS))
        ones.append(one)
        beyond.append((whole - one - draw_seconds(tuned(step), DRAWS, False)()) / DRAWS)
    return {"beyond": round(1e6 * median(beyond), 3), "one": round(median(ones), 3)}


def over_pymc(steps_per_draw, draws=20_000):
    """Draws per second of pk.sample over those of pm.sample, with the same step."""
    step, ratios = pk.GAM(model=banana(), steps_per_draw=steps_per_draw), []
    for _ in range(REPEATS):
        slow = sample_seconds(pm.sample, step, draws) / draws
        ratios.append(slow / (sample_seconds(pk.sample, step, DRAWS) / DRAWS))
    return {"ratio": round(median(ratios), 1)}


def two_cores(steps_per_draw):
    """Chains on one core over the same chains on two."""
    step, ratios = pk.GAM(model=banana(), steps_per_draw=steps_per_draw), []
    for _ in range(REPEATS):
        one, two = (sample_seconds(pk.sample, step, DRAWS, CHAINS, cores) for cores in (1, 2))
        ratios.append(one / two)
    return {"ratio": round(median(ratios), 3)}


def memory():
    """MB that a long run takes at most, beyond a short one, and the size of its result."""
    with pm.Model() as model:
        pm.Normal("x", shape=10)
        step = pk.GAM()
    pk.sample(1000, chains=1, step=step, model=model, **QUIET)
    with Watch() as watch:
        dt = pk.sample(LONG, chains=1, step=step, model=model, **QUIET)
    return {"growth": round(watch.growth / 1e6, 1), "result": round(dt.nbytes / 1e6, 1)}


class Watch:
    """Follow the memory of this process (Linux only)."""

    def __enter__(self):
        """Begin."""
        self._before = self._most = self._now()
        self._end = Event()
        self._thread = Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *error):
        """End."""
        self._end.set()
        self._thread.join()
        self.growth = self._most - self._before

    def _look(self):
        while not self._end.wait(0.01):
            self._most = max(self._most, self._now())

    @staticmethod
    def _now():
        return int(Path("/proc/self/statm").read_text().split()[1]) * getpagesize()


if __name__ == "__main__":
    main(FILE, plan, tables)
