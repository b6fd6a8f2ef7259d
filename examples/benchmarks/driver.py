"""pk.sample beside pm.sample: cost per draw, threads, memory.

    python examples/benchmarks/driver.py

Steps are built before the clock starts, and everything runs once before it. Ratios are of runs side
by side, medians of several.
"""

import logging
from pathlib import Path
from resource import getpagesize
from statistics import median
from threading import Event, Thread
from time import perf_counter

import numpy as np
import pymc as pm
from transitions import draw_seconds, tuned

import pymc_kameleon as pk

D = 8
DRAWS = 500_000
REPEATS = 5
QUIET = {"progressbar": False, "compute_convergence_checks": False, "random_seed": 1}


def main():
    """Print the table."""
    logging.disable(logging.WARNING)
    cost_per_draw()
    against_pymc()
    threads()
    memory()


def banana(d=D):
    """Haario's banana in d dimensions, as a log-density of one vector."""
    with pm.Model() as model:
        x = pm.Flat("x", shape=d)
        curved = x[1] + 0.03 * (x[0] ** 2 - 100)
        pm.Potential("p", -0.5 * (x[0] ** 2 / 100 + curved**2 + (x[2:] ** 2).sum()))
    return model


def sample_seconds(sample, step, draws, chains=1, cores=1, tune=100):
    """Time a run, and drop its result."""
    starts = [{"x": np.full(D, 0.1 * i)} for i in range(1, chains + 1)]
    start = perf_counter()
    sample(
        draws,
        tune=tune,
        chains=chains,
        cores=cores,
        step=step,
        initvals=starts,
        model=step.model,
        **QUIET,
    )
    return perf_counter() - start


def cost_per_draw():
    """Cost of a draw besides its transitions, for which the same transitions run in one call."""
    step = pk.GAM(model=banana(), steps_per_draw=1)
    sample_seconds(pk.sample, step, 100)
    overhead, whole = [], []
    for _ in range(REPEATS):
        fixed = sample_seconds(pk.sample, step, 1)
        seconds = sample_seconds(pk.sample, step, DRAWS) - fixed
        transitions = draw_seconds(tuned(step), DRAWS, False)()
        overhead.append((seconds - transitions) / DRAWS)
        whole.append(seconds / DRAWS)
    print(f"a draw of 1 transition, GAM, d = {D}: {1e6 * median(whole):.2f} µs")
    print(f"  beyond its transition: {1e6 * median(overhead):.2f} µs")
    print(f"a run of 1 draw: {fixed:.2f} s")


def against_pymc(draws=20_000):
    """Draws per second of pk.sample over those of pm.sample, with the same step."""
    for steps_per_draw in (1, 10):
        step = pk.GAM(model=banana(), steps_per_draw=steps_per_draw)
        ratios = []
        for _ in range(REPEATS):
            slow = sample_seconds(pm.sample, step, draws) / draws
            ratios.append(slow / (sample_seconds(pk.sample, step, DRAWS) / DRAWS))
        print(f"pk.sample over pm.sample, steps_per_draw={steps_per_draw}: {median(ratios):.0f}")


def threads(chains=4):
    """Chains on one core over the same chains on two."""
    for steps_per_draw in (1, 10):
        step = pk.GAM(model=banana(), steps_per_draw=steps_per_draw)
        ratios = []
        for _ in range(REPEATS):
            one, two = (sample_seconds(pk.sample, step, DRAWS, chains, cores) for cores in (1, 2))
            ratios.append(one / two)
        print(f"{chains} chains, 2 cores over 1, steps_per_draw={steps_per_draw}: ", end="")
        print(f"{median(ratios):.2f}")


def memory():
    """Compare what a long run takes at most, beyond a short one, with the size of its result."""
    with pm.Model() as model:
        pm.Normal("x", shape=10)
        step = pk.GAM()
    pk.sample(1000, chains=1, step=step, model=model, **QUIET)
    with Watch() as watch:
        dt = pk.sample(1_000_000, chains=1, step=step, model=model, **QUIET)
    print(
        f"1 000 000 draws of 10 parameters take {watch.growth / 1e6:.0f} MB, "
        f"of which the result is {dt.nbytes / 1e6:.0f} MB"
    )


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
    main()
